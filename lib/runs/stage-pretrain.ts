import { encodeConversation } from "../agents/chat.ts";
import { curriculum } from "../train/curriculum.ts";
import type { Shared } from "./pipeline.ts";
import type { BaseResult } from "./stage-base.ts";
import type { Demos } from "./stage-coldstart.ts";
import { type SftStageResult, supervisedStage } from "./stage-sft.ts";
import type { StageRecord } from "./stages.ts";

const VERSION = 1;

/** Demonstrations whose loss is watched, and which are not trained on. */
const WATCHED = 60;

/** Trains the base model from random weights, in the order of train/curriculum.ts. */
export async function pretrainStage(
  shared: Shared,
  from: StageRecord<BaseResult>,
  demos: StageRecord<Demos>,
): Promise<StageRecord<SftStageResult>> {
  const { stages, seed } = shared.loaded.experiment;
  const settings = stages.pretrain!;
  const { copying, singles, micro, renaming, tokens, ...rest } = settings;
  return supervisedStage(
    shared,
    { name: "pretrain", version: VERSION, settings, from, demos, keep: "last" },
    (all, tokenizer) => {
      const lessons = all.slice(WATCHED).map((d) => ({ messages: d.messages, calls: d.task.calls.length }));
      const { cutoff } = rest;
      return {
        train: curriculum(lessons, tokenizer, { tokens, copying, singles, micro, renaming, cutoff, seed }),
        heldout: all.slice(0, WATCHED).map((d) => encodeConversation(d.messages, tokenizer)),
        ...rest,
        epochs: 1,
        order: "given",
      };
    },
  );
}
