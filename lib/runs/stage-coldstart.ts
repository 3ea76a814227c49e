import { join } from "node:path";
import { faultRates, TaskWorlds } from "../bench/worlds.ts";
import { type ColdStartReport, type Demonstration, writeDemonstrations } from "../coldstart/write.ts";
import { writeAtomic } from "../config/atomic.ts";
import { episodeSettings, scriptedParadigm, taughtParadigm } from "./agent.ts";
import { jsonLines, readJsonLines } from "./jsonl.ts";
import type { Shared } from "./pipeline.ts";
import { retrieverOf } from "./retriever.ts";
import { readTasks, type TasksResult } from "./stage-tasks.ts";
import { runStage, type StageRecord } from "./stages.ts";

/** Bumped when the roles write differently. */
const VERSION = 3;

export type Demos = { kept: number; report: ColdStartReport };

/** The cooperating roles play the training tasks; what their verifier accepts is kept. */
export async function coldstartStage(shared: Shared, tasks: StageRecord<TasksResult>): Promise<StageRecord<Demos>> {
  const { experiment } = shared.loaded;
  // Demonstrations are as wide as the task allows, whatever width is played later: the ablation of the width compares one and the same model.
  const {
    actionsPerTurn: _width,
    extractive: _decoding,
    wholeValues: _whole,
    ...agent
  } = {
    ...experiment.agent,
    paradigm: taughtParadigm(experiment.agent.paradigm),
  };
  const { world } = experiment;
  const faulty = world.faultRate > 0 ? { world } : {};
  const coldstart = experiment.stages.coldstart!;
  const record = await runStage<Demos>({
    name: "coldstart",
    inputs: { version: VERSION, tasks: tasks.key, coldstart, agent, ...faulty, seed: experiment.seed },
    seed: experiment.seed,
    progress: shared.progress,
    async run(ctx) {
      const worlds = new TaskWorlds(shared.catalog, faultRates(world.faultRate));
      const retriever = await retrieverOf(shared.catalog, agent.retriever, shared.progress);
      const list = readTasks(tasks, "train");
      const { demonstrations, report } = await writeDemonstrations({
        tasks: list,
        catalog: shared.catalog,
        retriever,
        open: (task, seed) => worlds.open(task, seed),
        seed: experiment.seed,
        paradigm: scriptedParadigm(agent.paradigm),
        settings: episodeSettings(agent),
        roles: { mode: coldstart.mode, detours: coldstart.detours, wording: coldstart.wording },
        recovery: coldstart.recovery,
        perTask: coldstart.perTask,
        onDone: (done, kept) => ctx.progress.update(done, list.length * coldstart.perTask, `${kept} kept`),
      });
      writeAtomic(join(ctx.dir, "demonstrations.jsonl"), jsonLines(demonstrations));
      const dropped = Object.entries(report.dropped).map(([reason, n]) => `${n} × ${reason}`);
      ctx.progress.log(
        `coldstart: ${report.kept} of ${report.played} demonstrations kept${dropped.length > 0 ? `; dropped: ${dropped.join(", ")}` : ""}`,
      );
      return { kept: demonstrations.length, report };
    },
  });
  return shared.done(record);
}

export function readDemos(record: StageRecord<Demos>): Demonstration[] {
  return readJsonLines<Demonstration>(join(record.dir, "demonstrations.jsonl"));
}

/** All text of the demonstrations, for training a vocabulary. */
export function demoTexts(record: StageRecord<Demos>): string[] {
  return readDemos(record).flatMap((d) => d.messages.map((m) => m.content));
}
