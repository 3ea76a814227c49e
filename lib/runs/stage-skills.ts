import { faultRates, TaskWorlds } from "../bench/worlds.ts";
import { writeDemonstrations } from "../coldstart/write.ts";
import type { DrillKind } from "../train/drills.ts";
import { type Skill, skills } from "../train/skills.ts";
import { episodeSettings, scriptedParadigm, taughtParadigm } from "./agent.ts";
import type { Shared } from "./pipeline.ts";
import { retrieverOf } from "./retriever.ts";
import { openModel } from "./stage-base.ts";
import { lessonOf } from "./stage-pretrain.ts";
import { readTasks, type TasksResult } from "./stage-tasks.ts";
import { runStage, type StageRecord } from "./stages.ts";

const VERSION = 1;
const DOCUMENTS = 60;
const MICRO_TOKENS = 4096;

export type SkillsResult = { skills: Partial<Record<DrillKind, Skill>> };

/** Measures a pretrained base on micro-episodes of the held-out providers, which are written for this only. */
export async function skillsStage(
  shared: Shared,
  from: StageRecord<{ model: string }>,
  tasks: StageRecord<TasksResult>,
): Promise<StageRecord<SkillsResult>> {
  const { agent, stages, seed } = shared.loaded.experiment;
  const { wording } = stages.coldstart!;
  const record = await runStage<SkillsResult>({
    name: "skills",
    inputs: { version: VERSION, from: from.key, tasks: tasks.key, agent, wording, seed },
    seed,
    progress: shared.progress,
    async run(ctx) {
      const worlds = new TaskWorlds(shared.catalog, faultRates(0));
      const { demonstrations } = await writeDemonstrations({
        tasks: readTasks(tasks, "heldout"),
        catalog: shared.catalog,
        retriever: await retrieverOf(shared.catalog, agent.retriever, shared.progress),
        open: (task, episode) => worlds.open(task, episode),
        seed,
        paradigm: scriptedParadigm(taughtParadigm(agent.paradigm)),
        settings: episodeSettings(agent),
        roles: { mode: "multi", detours: 0, wording },
      });
      const { model, tokenizer } = await openModel(await shared.engine.get(), from.result.model);
      try {
        const measured = await skills(model, tokenizer, demonstrations.map(lessonOf), {
          documents: DOCUMENTS,
          seed,
          microTokens: MICRO_TOKENS,
        });
        for (const [kind, { turns, probability, loss }] of Object.entries(measured))
          ctx.progress.log(
            `skills: ${kind}, unseen providers: ${(100 * probability).toFixed(1)} % of ${turns} turns right to the letter, loss ${loss.toFixed(3)}`,
          );
        return { skills: measured };
      } finally {
        model.dispose();
      }
    },
  });
  return shared.done(record);
}
