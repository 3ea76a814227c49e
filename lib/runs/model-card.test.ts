import { afterAll, expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { RunRecord } from "./index-store.ts";
import { modelCard } from "./model-card.ts";
import { modelConfig } from "./model-config.ts";

const root = mkdtempSync(join(tmpdir(), "card-"));
const before = process.env.PARAAGENT_RESULTS;
process.env.PARAAGENT_RESULTS = root;
afterAll(() => {
  if (before === undefined) delete process.env.PARAAGENT_RESULTS;
  else process.env.PARAAGENT_RESULTS = before;
  rmSync(root, { recursive: true });
});

function stage(name: string, result: object, metrics: object[] = []) {
  const dir = join(root, "stages", `${name}-k`);
  mkdirSync(dir, { recursive: true });
  writeFileSync(join(dir, "done.json"), JSON.stringify({ elapsedMs: 65_000, result }));
  writeFileSync(join(dir, "metrics.jsonl"), metrics.map((m) => `${JSON.stringify(m)}\n`).join(""));
  return { name, key: "k", elapsedMs: 65_000, cached: false };
}

test("a card's figures are the run's own", () => {
  const metrics = Array.from({ length: 100 }, (_, i) => ({ step: i + 1, loss: 2 - i / 100, tokens: 1000 * (i + 1) }));
  const held = [0, 50, 100].map((step) => ({ step, heldoutLoss: 3 - step / 50 }));
  const record: RunRecord = {
    ...{ id: "tiny/s1", experiment: "tiny", cell: "", seed: 1, status: "done", error: null, samples: [] },
    ...{ created: "2026-12-01T00:00:00Z", finished: null },
    config: { name: "tiny", description: "a test", model: {} },
    environment: { machine: { cpu: "Test CPU", cores: 2 }, commit: "abc" },
    stages: [
      stage("coldstart", { kept: 7, report: { kept: 7, shapes: { single: 5, chain: 2 } } }),
      stage(
        "pretrain",
        { steps: 100, tokens: 100_000 },
        [...metrics, ...held].sort((a, b) => a.step - b.step),
      ),
      stage("skills", { skills: { lookup: { turns: 40, probability: 0.875, loss: 0.125 } } }),
    ],
  };
  const config = modelConfig(
    {
      layers: 2,
      hidden: 64,
      feedForward: 128,
      heads: 2,
      kvHeads: 1,
      headDim: 32,
      context: 512,
      shortConv: { q: 2, k: 3 },
    },
    1024,
  );
  const model = { config, parameters: 1_234_567, bytes: 2 ** 20, stage: "pretrain", note: "Resumed." };
  const card = modelCard(record, [], model);
  const next = modelCard({ ...record, config: { name: "next", model: { from: "models/tiny" } } }, [], model);
  expect(card).toContain("Vocabulary trained on the same");
  expect(next).toContain("Weights and vocabulary start as those of models/tiny");
  for (const text of [
    "# tiny: a model of 1.23 million parameters",
    "7 scripted demonstrations (5 single, 2 chain)",
    "seed 1, 100 steps, 100,000 tokens, 1 min 5 s",
    "Test CPU × 2 cores",
    "short causal convolutions on queries (2 taps) and keys (3 taps); 1.0 MiB",
    "**Note**: Resumed.",
    "are asked for | 40 | 87.5 % | 0.125 |",
    "| 50 | 50,000 | 1.755 | 2.000 |",
    "| 100 | 100,000 | 1.255 | 1.000 |",
  ])
    expect(card).toContain(text);
});
