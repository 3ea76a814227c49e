/** Runs policies over a benchmark's tasks: many episodes at once, scored by the benchmark, in an order that does not depend on timing. */
import { hash2 } from "../engine/random.ts";
import { type Environment, environment } from "../paraact/environment.ts";
import { type EpisodeSettings, runEpisode } from "../paraact/episode.ts";
import type { Policy, Trajectory } from "../paraact/types.ts";
import type { ChannelRewards } from "../rewards/types.ts";
import type { Session } from "../toolenv/types.ts";
import { episodeMetrics } from "./metrics.ts";
import type { Benchmark, BenchTask, TaskOutcome } from "./types.ts";

/** How one episode of a task is played; the default is ParaAct's loop. Paradigms that retry or branch open further sessions. */
export type Play = (options: {
  task: { id: string; request: string };
  policy: Policy;
  seed: number;
  temperature: number;
  settings: Partial<EpisodeSettings>;
  /** A fresh state of the task's environment. Every one opened is closed by the evaluation. */
  open: () => Environment;
  id: string;
}) => Promise<Trajectory>;

const playParaAct: Play = ({ open, ...rest }) => runEpisode({ ...rest, environment: open() });

export interface EvaluateOptions {
  benchmark: Benchmark;
  /** Only tasks of these groups. */
  groups?: readonly string[] | undefined;
  /** The first n tasks, spread over the groups. */
  limit?: number | undefined;
  label: string;
  /** The policy of a task: the same one for all, or one that knows the task's gold plan. */
  policyFor: (task: BenchTask) => Policy;
  play?: Play;
  settings: Partial<EpisodeSettings>;
  temperature: number;
  trials: number;
  seed: number;
  /** Episodes at once. */
  concurrency: number;
  onDone?: (done: number, total: number) => void;
  /** Asked before each episode starts; true ends the evaluation early with an error. */
  stopping?: () => boolean;
}

/** The first n tasks, one group after the other in turn, so that each group has its share. */
export function spread<T extends { group: string }>(tasks: readonly T[], limit: number | undefined): T[] {
  if (limit === undefined || limit >= tasks.length) return [...tasks];
  const groups = new Map<string, T[]>();
  for (const task of tasks) groups.set(task.group, [...(groups.get(task.group) ?? []), task]);
  const chosen: T[] = [];
  for (let i = 0; chosen.length < limit; i++) {
    for (const group of groups.values()) {
      const task = group[i];
      if (task && chosen.length < limit) chosen.push(task);
    }
  }
  return chosen;
}

/** The benchmark has no such group. */
export class UnknownGroupError extends Error {
  override name = "UnknownGroupError";
}

function inGroups(benchmark: Benchmark, groups: readonly string[] | undefined): BenchTask[] {
  if (groups === undefined) return benchmark.tasks;
  const known = [...new Set(benchmark.tasks.map((t) => t.group))].sort();
  const unknown = groups.filter((g) => !known.includes(g));
  if (unknown.length > 0)
    throw new UnknownGroupError(
      `${benchmark.name} has no group ${unknown.map((g) => `"${g}"`).join(", ")}. Groups: ${known.join(", ")}.`,
    );
  return benchmark.tasks.filter((t) => groups.includes(t.group));
}

/** The evaluation was asked to stop. */
export class EvaluationStopped extends Error {
  override name = "EvaluationStopped";
}

/** Runs `work` on every item, at most `width` at once; results in order of the items. The first error stops new work and is thrown. */
export async function inParallel<T, R>(
  items: readonly T[],
  width: number,
  work: (item: T, index: number) => Promise<R>,
): Promise<R[]> {
  const results = new Array<R>(items.length);
  let next = 0;
  let failed = false;
  const lane = async () => {
    while (next < items.length && !failed) {
      const i = next++;
      try {
        results[i] = await work(items[i]!, i);
      } catch (error) {
        failed = true;
        throw error;
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(width, items.length) }, lane));
  return results;
}

export async function evaluate(
  options: EvaluateOptions,
): Promise<{ outcomes: TaskOutcome[]; trajectories: Trajectory[]; rewards: (ChannelRewards | null)[] }> {
  const { benchmark, label, settings, temperature } = options;
  const play = options.play ?? playParaAct;
  const jobs = spread(inGroups(benchmark, options.groups), options.limit).flatMap((task, t) =>
    Array.from({ length: options.trials }, (_, trial) => ({
      task,
      trial,
      seed: hash2(options.seed, t * 1009 + trial),
    })),
  );
  let done = 0;
  const results = await inParallel(jobs, options.concurrency, async ({ task, trial, seed }) => {
    if (options.stopping?.())
      throw new EvaluationStopped("stopped during the evaluation; run the same command again to go on.");
    const sessions: Session[] = [];
    const open = () => {
      const session = task.open(seed);
      sessions.push(session);
      return environment({ catalog: benchmark.catalog, retriever: benchmark.retriever, session });
    };
    try {
      const trajectory = await play({
        task: { id: task.id, request: task.request },
        policy: options.policyFor(task),
        seed,
        temperature,
        settings,
        open,
        id: `${label}/${benchmark.name}/${task.id}/${trial}`,
      });
      const score = await task.score(trajectory, sessions.at(-1) ?? null);
      const outcome: TaskOutcome = {
        benchmark: benchmark.name,
        group: task.group,
        task: task.id,
        label,
        trial,
        success: score.success,
        scores: score.scores,
        errors: score.errors ?? {},
        ...(score.verdict ? { verdict: score.verdict } : {}),
        ...episodeMetrics(trajectory),
      };
      options.onDone?.(++done, jobs.length);
      return { outcome, trajectory, rewards: score.rewards ?? null };
    } finally {
      for (const session of sessions) session.close();
    }
  });
  return {
    outcomes: results.map((r) => r.outcome),
    trajectories: results.map((r) => r.trajectory),
    rewards: results.map((r) => r.rewards),
  };
}
