/** ToolEnv held out: tasks over providers that training never sees, with exact verdicts (method.md section 7). */
import type { Catalog, Retriever } from "../catalog/types.ts";
import type { Trajectory } from "../paraact/types.ts";
import { PAPER_CONSTANTS, type RewardConstants } from "../rewards/constants.ts";
import { taskReference } from "../rewards/reference.ts";
import { scoreTrajectory } from "../rewards/score.ts";
import type { Session, Task } from "../toolenv/types.ts";
import type { Benchmark, BenchTask, TaskScore } from "./types.ts";
import { judgeTrajectory, type TaskWorlds } from "./worlds.ts";

/** Verdicts by the exact judge, success where all three hold, and the three reward channels with their reasons. */
export function scoreToolEnv(
  task: Task,
  trajectory: Trajectory,
  session: Session | null,
  constants: RewardConstants = PAPER_CONSTANTS,
): TaskScore {
  const verdicts = judgeTrajectory(task, trajectory, session);
  trajectory.verdicts = verdicts;
  const rewards = scoreTrajectory(trajectory, taskReference(task, verdicts), constants);
  const all = verdicts.quality + verdicts.faithfulness + verdicts.utility === 3;
  return {
    success: all ? 1 : 0,
    scores: { R_traj: rewards.trajectory, R_phase: rewards.phase, R_step: rewards.format },
    rewards,
  };
}

export function toolEnvBenchmark(parts: {
  tasks: Task[];
  catalog: Catalog;
  retriever: Retriever;
  worlds: TaskWorlds;
}): Benchmark {
  return {
    name: "toolenv",
    sample: false,
    backend: "world",
    catalog: parts.catalog,
    retriever: parts.retriever,
    tasks: parts.tasks.map(
      (task): BenchTask => ({
        id: task.id,
        group: task.shape,
        request: task.request,
        gold: task,
        open: (seed) => parts.worlds.open(task, seed),
        score: (trajectory, session) => scoreToolEnv(task, trajectory, session),
      }),
    ),
    notes: ["success: quality, faithfulness and utility all hold, checked exactly; providers never seen in training"],
  };
}
