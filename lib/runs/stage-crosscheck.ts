import { encodeConversation } from "../agents/chat.ts";
import { openEngine } from "../engine/open.ts";
import { type DeviceRequest, type Engine, NoEngineError } from "../engine/types.ts";
import { Optimizer } from "../model/optimizer.ts";
import { type Document, lossTokens, pack } from "../train/batch.ts";
import { sftLoss } from "../train/losses.ts";
import type { Shared } from "./pipeline.ts";
import { type BaseResult, openModel } from "./stage-base.ts";
import { type Demos, readDemos } from "./stage-coldstart.ts";
import { runStage, type StageRecord } from "./stages.ts";

const VERSION = 2;

export type CrossCheckResult = {
  devices: [string, string];
  losses: [number[], number[]];
  /** Largest difference of the losses; null where the second engine is not on this machine. */
  largest: number | null;
  skipped: string | null;
};

/** Two engines must agree on the losses of the first steps to this much (engine.md section 4). */
const BOUND = 1e-4;

/** The engines disagree: one of them is wrong. */
export class CrossCheckError extends Error {
  override name = "CrossCheckError";
}

async function losses(
  engine: Engine,
  dir: string,
  documents: Document[],
  steps: number,
  lr: number,
): Promise<number[]> {
  const { model } = await openModel(engine, dir);
  const optimizer = new Optimizer(engine, model.trainable(), {});
  const values: number[] = [];
  for (let step = 0; step < steps; step++) {
    const batch = pack(documents.slice(step * 2, step * 2 + 2));
    const tokens = documents.slice(step * 2, step * 2 + 2).reduce((n, d) => n + lossTokens(d), 0);
    model.zeroGrad();
    const { loss } = await model.forwardBackward(batch, (lp) => sftLoss(lp, tokens));
    values.push(loss.loss);
    await optimizer.step(lr);
  }
  model.dispose();
  return values;
}

/** Trains the same few steps on a second engine and compares the losses. */
export async function crossCheckStage(
  shared: Shared,
  base: StageRecord<BaseResult>,
  demos: StageRecord<Demos>,
): Promise<void> {
  const { experiment } = shared.loaded;
  const { steps, device } = experiment.crossCheck!;
  const first = await shared.engine.kind();
  const record = await runStage<CrossCheckResult>({
    name: "crosscheck",
    inputs: { version: VERSION, base: base.key, demos: demos.key, steps, device, first },
    seed: experiment.seed,
    progress: shared.progress,
    async run(ctx) {
      const own = await shared.engine.get();
      let other: Engine;
      try {
        other = await openEngine(device as DeviceRequest);
      } catch (error) {
        if (!(error instanceof NoEngineError)) throw error;
        ctx.progress.log(`crosscheck: left out, ${error.message}`);
        return { devices: [own.info.description, device], losses: [[], []], largest: null, skipped: error.message };
      }
      try {
        const { tokenizer, model } = await openModel(own, base.result.model);
        // The shortest: a software adapter is slow, and any document will do.
        const documents = readDemos(demos)
          .map((d): Document => encodeConversation(d.messages, tokenizer))
          .sort((a, b) => a.ids.length - b.ids.length)
          .slice(0, 2 * steps);
        model.dispose();
        const run = (engine: Engine) =>
          losses(engine, base.result.model, documents, Math.min(steps, Math.floor(documents.length / 2)), 1e-3);
        const [a, b] = [await run(own), await run(other)];
        const largest = Math.max(...a.map((x, i) => Math.abs(x - b[i]!)));
        ctx.progress.log(
          `crosscheck: ${a.length} steps on ${own.info.kind} and on ${other.info.description}: losses differ by at most ${largest.toExponential(1)}`,
        );
        if (!(largest <= BOUND)) {
          throw new CrossCheckError(
            `the losses of the first ${a.length} steps differ by ${largest} between ${own.info.description} and ${other.info.description}, more than ${BOUND}. One engine is wrong on this machine: bun test lib/engine says which operation, and device: cpu is the safer one.`,
          );
        }
        return { devices: [own.info.description, other.info.description], losses: [a, b], largest, skipped: null };
      } finally {
        await other.dispose();
      }
    },
  });
  shared.done(record);
}
