import { encodeConversation } from "../agents/chat.ts";
import type { Demonstration } from "../coldstart/write.ts";
import type { Message } from "../paraact/types.ts";
import { type Curriculum, curriculum } from "../train/curriculum.ts";
import { drillKinds, drills, type Lesson } from "../train/drills.ts";
import type { Shared } from "./pipeline.ts";
import type { BaseResult } from "./stage-base.ts";
import type { Demos } from "./stage-coldstart.ts";
import { type SftStageResult, supervisedStage } from "./stage-sft.ts";
import type { StageRecord } from "./stages.ts";

const VERSION = 2;

/** Demonstrations whose loss is watched, and which are not trained on. */
const WATCHED = 60;

export const lessonOf = ({ messages, task }: Demonstration): Lesson => ({
  messages,
  calls: task.calls.length,
  group: task.providers.join(),
});

/** Documents of each kind that is read, to watch the loss on. */
function lessonsAsRead(lessons: readonly Lesson[], mix: Curriculum["mix"], seed: number): (readonly Message[])[] {
  const each = Math.ceil(lessons.length / 4);
  return [
    ...(mix.whole > 0 ? lessons.slice(0, each).map((lesson) => lesson.messages) : []),
    ...drillKinds.flatMap((kind) => (mix[kind] > 0 ? [...drills(kind, lessons, seed).take(each)] : [])),
  ];
}

/** Trains the base model from random weights, in the order of train/curriculum.ts. */
export async function pretrainStage(
  shared: Shared,
  from: StageRecord<BaseResult>,
  demos: StageRecord<Demos>,
): Promise<StageRecord<SftStageResult>> {
  const { stages, seed } = shared.loaded.experiment;
  const settings = stages.pretrain!;
  const { copying, singles, mix, renaming, tokens, ...rest } = settings;
  return supervisedStage(
    shared,
    { name: "pretrain", version: VERSION, settings, from, demos, keep: "last" },
    (all, tokenizer) => {
      const lessons = all.map(lessonOf);
      const { cutoff } = rest;
      const watched = lessons.slice(0, WATCHED);
      return {
        train: curriculum(lessons.slice(WATCHED), tokenizer, { tokens, copying, singles, mix, renaming, cutoff, seed }),
        heldout: lessonsAsRead(watched, mix, seed).map((messages) => encodeConversation(messages, tokenizer)),
        ...rest,
        epochs: 1,
        order: "given",
      };
    },
  );
}
