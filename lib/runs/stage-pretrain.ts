import { encodeConversation } from "../agents/chat.ts";
import { curriculum } from "../train/curriculum.ts";
import { runSft } from "../train/sft.ts";
import type { Shared } from "./pipeline.ts";
import { type BaseResult, openModel } from "./stage-base.ts";
import { type Demos, readDemos } from "./stage-coldstart.ts";
import type { SftStageResult } from "./stage-sft.ts";
import { runStage, type StageRecord } from "./stages.ts";

const VERSION = 1;

/** Demonstrations whose loss is watched, and which are not trained on. */
const WATCHED = 60;

/** Trains the base model from random weights, in the order of train/curriculum.ts. */
export async function pretrainStage(
  shared: Shared,
  base: StageRecord<BaseResult>,
  demos: StageRecord<Demos>,
): Promise<StageRecord<SftStageResult>> {
  const { experiment } = shared.loaded;
  const pretrain = experiment.stages.pretrain!;
  const device = await shared.engine.kind();
  const record = await runStage<SftStageResult>({
    name: "pretrain",
    inputs: { version: VERSION, base: base.key, demos: demos.key, pretrain, seed: experiment.seed, device },
    seed: experiment.seed,
    progress: shared.progress,
    async run(ctx) {
      const engine = await shared.engine.get();
      const { model, tokenizer } = await openModel(engine, base.result.model);
      try {
        const { copying, singles, micro, renaming, tokens, cutoff, ...rest } = pretrain;
        const all = readDemos(demos);
        const lessons = all.slice(WATCHED).map((d) => ({ messages: d.messages, calls: d.task.calls.length }));
        const train = curriculum(lessons, tokenizer, {
          ...{ tokens, copying, singles, micro, renaming, cutoff },
          seed: experiment.seed,
        });
        const heldout = all.slice(0, WATCHED).map((d) => encodeConversation(d.messages, tokenizer));
        const result = await runSft(
          { model, tokenizer, train, heldout, ...rest, cutoff, epochs: 1, order: "given" },
          ctx,
        );
        ctx.progress.log(
          `pretrain: ${result.steps} steps, ${result.tokens} tokens, loss on whole demonstrations ${result.heldout?.first.toFixed(3)} → ${result.heldout?.last.toFixed(3)}`,
        );
        return { model: result.last, steps: result.steps, heldout: result.heldout, tokens: result.tokens };
      } finally {
        model.dispose();
      }
    },
  });
  return shared.done(record);
}
