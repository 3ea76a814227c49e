import { encodeConversation } from "../agents/chat.ts";
import type { Document } from "../train/batch.ts";
import { runSft } from "../train/sft.ts";
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

/** Share of the demonstrations that are not trained on, and whose loss picks the best checkpoint. */
const VALIDATION = 0.05;

/** Fine-tunes the base on the demonstrations. */
export async function sftStage(
  shared: Shared,
  base: StageRecord<{ model: string }>,
  demos: StageRecord<Demos>,
): Promise<StageRecord<SftStageResult>> {
  const { experiment } = shared.loaded;
  const sft = experiment.stages.sft!;
  const device = await shared.engine.kind();
  const record = await runStage<SftStageResult>({
    name: "sft",
    inputs: { version: VERSION, base: base.key, demos: demos.key, sft, seed: experiment.seed, device },
    seed: experiment.seed,
    progress: shared.progress,
    async run(ctx) {
      const engine = await shared.engine.get();
      const { model, tokenizer } = await openModel(engine, base.result.model);
      try {
        const documents = readDemos(demos).map((d): Document => encodeConversation(d.messages, tokenizer));
        const cut = Math.max(1, Math.floor(documents.length * VALIDATION));
        const { maxSteps, ...rest } = sft;
        const result = await runSft(
          {
            model,
            tokenizer,
            train: documents.slice(cut),
            heldout: documents.slice(0, cut),
            ...rest,
            ...(maxSteps === undefined ? {} : { maxSteps }),
          },
          ctx,
        );
        ctx.progress.log(
          `sft: ${result.steps} steps, ${result.tokens} tokens, held-out loss ${result.heldout?.first.toFixed(3)} → ${result.heldout?.best.toFixed(3)}`,
        );
        return { model: result.model, steps: result.steps, heldout: result.heldout, tokens: result.tokens };
      } finally {
        model.dispose();
      }
    },
  });
  return shared.done(record);
}
