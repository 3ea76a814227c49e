import { join } from "node:path";
import { writeAtomic } from "../config/atomic.ts";
import type { TaskSpecConfig } from "../config/schema.ts";
import { generateTasks } from "../toolenv/tasks.ts";
import type { Task } from "../toolenv/types.ts";
import { World } from "../toolenv/world.ts";
import { jsonLines, readJsonLines } from "./jsonl.ts";
import type { Shared } from "./pipeline.ts";
import { runStage, type StageRecord } from "./stages.ts";

/** Bumped when generated tasks change. */
const VERSION = 7;

export type TasksResult = { train: number; heldout: number; shapes: Record<string, number> };

/** Generates the training and the held-out tasks. No provider is in both. */
export async function tasksStage(shared: Shared): Promise<StageRecord<TasksResult>> {
  const { experiment } = shared.loaded;
  const { catalog, progress } = shared;
  const { tasks, world } = experiment;
  const record = await runStage<TasksResult>({
    name: "tasks",
    inputs: { version: VERSION, catalog: catalog.hash, world: world.seed, tasks },
    seed: tasks.train.seed,
    progress,
    async run(ctx) {
      const shapes: Record<string, number> = {};
      const make = (split: "train" | "heldout", spec: TaskSpecConfig): Task[] => {
        const list: Task[] = [];
        const source = generateTasks(catalog, new World(catalog, world.seed), {
          split,
          seed: spec.seed,
          count: spec.count,
          shapes: spec.shapes,
          maxCalls: spec.maxCalls,
          writes: spec.writes,
          faults: spec.faults,
          crossProvider: spec.crossProvider,
          ...(spec.maxResponse === undefined ? {} : { maxResponse: spec.maxResponse }),
          withinTop: spec.withinTop,
          plainQueries: spec.plainQueries,
          retriever: catalog.bm25(),
        });
        for (const task of source) {
          list.push(task);
          shapes[`${split} ${task.shape}`] = (shapes[`${split} ${task.shape}`] ?? 0) + 1;
          progress.update(list.length, spec.count, `${split} tasks`);
        }
        writeAtomic(join(ctx.dir, `${split}.jsonl`), jsonLines(list));
        return list;
      };
      return { train: make("train", tasks.train).length, heldout: make("heldout", tasks.heldout).length, shapes };
    },
  });
  return shared.done(record);
}

export function readTasks(record: StageRecord<TasksResult>, split: "train" | "heldout"): Task[] {
  return readJsonLines<Task>(join(record.dir, `${split}.jsonl`));
}
