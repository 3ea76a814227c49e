/** Every experiment that ships loads, also at its small size, and means what its name says. */
import { describe, expect, test } from "bun:test";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { ConfigError, loadExperiment } from "./load.ts";

const root = join(import.meta.dir, "../../experiments");
const files = readdirSync(root, { recursive: true, encoding: "utf8" }).filter((f) => /\.ya?ml$/.test(f));
const load = (name: string, ...sets: string[]) => loadExperiment(join(root, name), sets);

describe("experiments", () => {
  test.each(files)("%s loads", (file) => {
    expect(load(file).length).toBeGreaterThan(0);
  });
  test.each(files.filter((f) => f.startsWith("ablations")))(
    "%s has a small size, no more cells than the full one, each cell its own settings",
    (file) => {
      const full = load(file);
      const small = load(file, "size=small");
      expect(small.length).toBeGreaterThan(2);
      expect(small.length).toBeLessThanOrEqual(full.length);
      expect(new Set(full.map((l) => JSON.stringify(l.experiment))).size).toBe(full.length);
    },
  );
  test("paradigms: at least three paradigms by three seeds at the small size, under the same limits", () => {
    const small = load("ablations/paradigms.yaml", "size=small");
    const agents = small.map((l) => l.experiment.agent);
    expect(new Set(agents.map((a) => a.paradigm)).size).toBeGreaterThanOrEqual(3);
    expect(new Set(small.map((l) => l.experiment.seed)).size).toBe(3);
    expect(new Set(agents.map(({ paradigm: _, ...rest }) => JSON.stringify(rest))).size).toBe(1);
    expect(new Set(small.map((l) => JSON.stringify(l.experiment.tasks))).size).toBe(1);
  });
  test("rewards: each cell leaves out what it names", () => {
    const by = new Map(load("ablations/rewards.yaml").map((l) => [l.cell, l.experiment.stages.rl!]));
    expect(by.get("all")!.weights).toEqual({ trajectory: 1, phase: 0.5, format: 0.25 });
    expect(by.get("no-phase")!.weights).toEqual({ trajectory: 1, phase: 0, format: 0.25 });
    expect(by.get("no-step")!.weights).toEqual({ trajectory: 1, phase: 0.5, format: 0 });
    expect(by.get("no-outcome-gate")!.rewards?.outcomeGate).toBe(false);
    expect(by.get("toolrl")!.rewards?.scheme).toBe("toolrl");
  });
  test("coldstart: without demonstrations nothing is fine-tuned", () => {
    const none = load("ablations/coldstart.yaml").find((l) => l.cell === "none")!;
    expect(none.experiment.stages.sft).toBeUndefined();
    expect(none.experiment.stages.coldstart).toBeDefined();
  });
  test("the paper's constants", () => {
    const { experiment } = load("presets/paper.yaml")[0]!;
    expect(experiment.tasks.train.count).toBe(16384);
    expect(experiment.stages.rl).toMatchObject({
      prompts: 256,
      group: 8,
      miniBatch: 128,
      epochs: 2,
      kl: 0.001,
      clip: 0.2,
      lr: 1e-6,
    });
    expect(experiment.stages.rl!.steps * experiment.stages.rl!.prompts).toBe(16384);
    expect(experiment.stages.sft).toMatchObject({ lr: 1e-5, warmup: 0.1, epochs: 3, cutoff: 20000 });
    expect(experiment.agent).toMatchObject({ k: 3, maxTurns: 15, maxNewTokens: 1536, maxTrajectoryTokens: 10240 });
    expect(experiment.model).toMatchObject({
      layers: 36,
      hidden: 2560,
      feedForward: 9728,
      heads: 32,
      kvHeads: 8,
      headDim: 128,
      vocabulary: 151936,
      shortConv: null,
    });
  });
});

test("null leaves a section out, and is an error where a section must be", () => {
  expect(load("quickstart.yaml", "stages.rl=null")[0]!.experiment.stages.rl).toBeUndefined();
  expect(load("quickstart.yaml", "crossCheck=null")[0]!.experiment.crossCheck).toBeUndefined();
  expect(load("quickstart.yaml", "model.shortConv=null")[0]!.experiment.model.shortConv).toBeNull();
  expect(() => load("quickstart.yaml", "stages.rl.lr=null")).toThrow(ConfigError);
});
