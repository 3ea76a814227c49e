import { encodeConversation } from "../agents/chat.ts";
import type { Demonstration } from "../coldstart/write.ts";
import type { LoadedTokenizer } from "../model/tokenizer.ts";
import type { Document } from "../train/batch.ts";
import { runSft, type SftOptions } from "../train/sft.ts";
import type { Shared } from "./pipeline.ts";
import { openModel } from "./stage-base.ts";
import { type Demos, readDemos } from "./stage-coldstart.ts";
import { runStage, type StageRecord } from "./stages.ts";

const VERSION = 1;

export type SftStageResult = {
  model: string;
  steps: number;
  heldout: { first: number; best: number; last: number } | null;
  tokens: number;
};

/** What a stage of supervised training is keyed by, and what it trains from. */
interface Supervised {
  name: "pretrain" | "sft";
  version: number;
  /** The stage's settings in the experiment. */
  settings: object;
  from: StageRecord<{ model: string }>;
  demos: StageRecord<Demos>;
  /** Which weights are the stage's result. */
  keep: "best" | "last";
}

/** Trains a model on demonstrations: `prepare` says which documents, in what order, and how. */
export async function supervisedStage(
  shared: Shared,
  { name, version, settings, from, demos, keep }: Supervised,
  prepare: (all: Demonstration[], tokenizer: LoadedTokenizer) => Omit<SftOptions, "model" | "tokenizer">,
): Promise<StageRecord<SftStageResult>> {
  const { seed } = shared.loaded.experiment;
  const device = await shared.engine.kind();
  const record = await runStage<SftStageResult>({
    name,
    inputs: { version, base: from.key, demos: demos.key, [name]: settings, seed, device },
    seed,
    progress: shared.progress,
    async run(ctx) {
      const engine = await shared.engine.get();
      const { model, tokenizer } = await openModel(engine, from.result.model);
      try {
        const result = await runSft({ model, tokenizer, ...prepare(readDemos(demos), tokenizer) }, ctx);
        const { steps, tokens, heldout } = result;
        ctx.progress.log(
          `${name}: ${steps} steps, ${tokens} tokens, held-out loss ${heldout?.first.toFixed(3)} → ${heldout?.[keep].toFixed(3)}`,
        );
        return { model: keep === "best" ? result.model : result.last, steps, heldout, tokens };
      } finally {
        model.dispose();
      }
    },
  });
  return shared.done(record);
}

/** Share of the demonstrations that are not trained on, and whose loss picks the best checkpoint. */
const VALIDATION = 0.05;

/** Fine-tunes the base on the demonstrations. */
export async function sftStage(
  shared: Shared,
  from: StageRecord<{ model: string }>,
  demos: StageRecord<Demos>,
): Promise<StageRecord<SftStageResult>> {
  const settings = shared.loaded.experiment.stages.sft!;
  const { maxSteps, ...rest } = settings;
  return supervisedStage(
    shared,
    { name: "sft", version: VERSION, settings, from, demos, keep: "best" },
    (all, tokenizer) => {
      const documents = all.map((d): Document => encodeConversation(d.messages, tokenizer));
      const cut = Math.max(1, Math.floor(documents.length * VALIDATION));
      return {
        train: documents.slice(cut),
        heldout: documents.slice(0, cut),
        ...rest,
        ...(maxSteps === undefined ? {} : { maxSteps }),
      };
    },
  );
}
