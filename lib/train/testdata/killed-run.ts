/**
 * A short learning run in the folder that is named: SFT, then RL on what it gave. Prints a line for each step; a test kills it at any
 * of them and starts it again. Ends with "done".
 */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { localPolicy } from "../../agents/local.ts";
import { openCpuEngine } from "../../engine/cpu/index.ts";
import { createGenerator } from "../../model/generator.ts";
import { loadModelDir, weightReader } from "../../model/hub.ts";
import { Model } from "../../model/model.ts";
import { runRl } from "../rl.ts";
import { runSft } from "../sft.ts";
import { config, environment, tokenizer } from "./letters.ts";
import { countingDocuments, recordedContext } from "./tiny.ts";

const dir = process.argv[2]!;
const engine = await openCpuEngine();
const context = (stage: string) => {
  mkdirSync(join(dir, stage), { recursive: true });
  const ctx = recordedContext(join(dir, stage));
  ctx.progress = { update: (done) => void process.stdout.write(`${stage} ${done}\n`), log: () => {} };
  return ctx;
};
const sft = await runSft(
  {
    ...{
      model: await Model.create(engine, config, 1),
      tokenizer,
      train: countingDocuments(24, 1),
      heldout: countingDocuments(6, 2),
    },
    ...{ lr: 0.02, warmup: 0.1, epochs: 2, batchTokens: 48, microTokens: 48, cutoff: 64, weightDecay: 0.1 },
    ...{ optimizer: "muon", clip: 1, evaluateEvery: 2 },
  },
  context("sft"),
);
const { weights } = loadModelDir(sft.model);
const model = await Model.load(engine, config, weightReader(weights));
const generator = createGenerator(model, { maxBatch: 16, cacheTokens: 4096 });
await runRl(
  {
    ...{ model, tokenizer, generator, environment, policy: localPolicy({ generator, tokenizer, contextTokens: 256 }) },
    ...{
      steps: 4,
      prompts: 2,
      group: 3,
      miniBatch: 1,
      epochs: 2,
      lr: 0.02,
      warmup: 0,
      temperature: 1,
      clip: 0.2,
      kl: 0.001,
    },
    ...{ advantage: "gdpo", weights: { trajectory: 1, phase: 0.5, format: 0.25 }, dynamicSampling: false },
    ...{ microTokens: 200, evaluateEvery: 2, checkpointEvery: 1 },
  },
  context("rl"),
);
process.stdout.write("done\n");
process.exit(0);
