/** RL in ToolEnv, as an experiment runs it, with a model of random weights. */
import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buildCatalog } from "../catalog/build.ts";
import { loadExperiment } from "../config/load.ts";
import { readJsonLines } from "./jsonl.ts";
import { runExperiment } from "./pipeline.ts";
import type { Progress } from "./types.ts";

setDefaultTimeout(120_000);
const quiet: Progress = { update() {}, log() {} };
const before = { ...process.env };
const root = mkdtempSync(join(tmpdir(), "paraagent-rl-"));
/** Providers of the training split. */
const PROVIDERS = ["prss.org", "billingo.hu", "instagram.com", "meshery.local"];

beforeAll(async () => {
  process.env.PARAAGENT_RESULTS = join(root, "results");
  process.env.PARAAGENT_CATALOG = join(root, "catalog.sqlite");
  await buildCatalog({ only: (file) => PROVIDERS.some((p) => file.startsWith(p)) });
});
afterAll(() => {
  rmSync(root, { recursive: true, force: true });
  for (const name of ["PARAAGENT_RESULTS", "PARAAGENT_CATALOG"]) {
    if (before[name] === undefined) delete process.env[name];
    else process.env[name] = before[name];
  }
});

const YAML = (share: string) => `
name: rl-test
device: cpu
tasks: { train: { count: 6, shapes: { single: 1 } }, heldout: { count: 0 } }
model: { vocabulary: 512, layers: 1, hidden: 32, heads: 1, headDim: 32, feedForward: 64, context: 1024 }
agent: { prompt: short, schemas: compact, maxTurns: 6, maxNewTokens: 40, maxTrajectoryTokens: 400 }
stages:
  coldstart: { mode: multi, wording: brief }
  rl: { steps: 3, prompts: 4, group: 2, miniBatch: 4, lr: 1.0e-3, warmup: 0${share} }
`;

/** The share of each step's rollouts that were sampled under masks. */
async function constrainedShares(share: string): Promise<number[]> {
  const file = join(root, "experiment.yaml");
  writeFileSync(file, YAML(share));
  const [loaded] = loadExperiment(file);
  const stages = join(root, "results/stages");
  rmSync(stages, { recursive: true, force: true });
  await runExperiment(loaded!, { progress: quiet });
  const rl = readdirSync(stages).find((name) => name.startsWith("rl-"))!;
  const metrics = readJsonLines<{ constrained?: number }>(join(stages, rl, "metrics.jsonl"));
  return metrics.flatMap((m) => m.constrained ?? []);
}

test("prompts are played under masks as their share says, all rollouts of a prompt alike", async () => {
  expect(await constrainedShares("")).toEqual([1, 1, 1]);
  expect(await constrainedShares(", constrained: 0")).toEqual([0, 0, 0]);
  const half = await constrainedShares(", constrained: 0.5");
  expect(half.length).toBe(3);
  expect(half.some((x) => x > 0 && x < 1)).toBe(true);
  // Four prompts: quarters, never a group that is split.
  expect(half.every((x) => Number.isInteger(4 * x))).toBe(true);
});
