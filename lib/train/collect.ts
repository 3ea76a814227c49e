/** One step's batch: tasks drawn, groups of episodes played side by side and scored, advantages computed. */
import { hash2 } from "../engine/random.ts";
import type { Trajectory } from "../paraact/types.ts";
import { advantages, type ByChannel, diagnose, PAPER_ADVANTAGES } from "../rewards/advantages.ts";
import type { ChannelRewards } from "../rewards/types.ts";
import { shuffled } from "./batch.ts";
import { toRollout } from "./rollouts.ts";
import { TrainingDataError } from "./sft.ts";
import type { Stopwatch } from "./stopwatch.ts";
import type { Episode, RlOptions, RlTask, Rollout } from "./types.ts";

/** What a run counts; changed in place. */
export interface Counters {
  drawn: number;
  episodes: number;
  newTokens: number;
}

interface Draw<T> {
  task: T;
  seed: number;
  prompt: number;
  id: string;
}

/** Plays episodes side by side, at most `concurrency` at once, and returns them in the order of the draws. Rewards are still to come. */
export async function playAll<T extends RlTask>(
  options: RlOptions<T>,
  draws: readonly Draw<T>[],
  temperature: number,
): Promise<Episode<T>[]> {
  // Also where the weights are the same: what is cached decides how a batch is cut, and so the last bit. A resumed run starts with none.
  options.generator.invalidate();
  const episodes: Episode<T>[] = [];
  let next = 0;
  const worker = async () => {
    for (let i = next++; i < draws.length; i = next++) {
      const { task, ...own } = draws[i]!;
      const trajectory = await options.environment.play(task, { policy: options.policy, ...own, temperature });
      episodes[i] = { task, shape: task.shape, trajectory, rewards: { trajectory: 0, phase: 0, format: 0, terms: [] } };
    }
  };
  await Promise.all(Array.from({ length: Math.min(draws.length, options.concurrency ?? 64) }, worker));
  return episodes;
}

export async function scoreAll<T extends RlTask>(
  options: RlOptions<T>,
  episodes: readonly Episode<T>[],
): Promise<void> {
  for (const episode of episodes) episode.rewards = await options.environment.score(episode.task, episode.trajectory);
}

export interface Batch<T extends RlTask> {
  episodes: Episode<T>[];
  rollouts: Rollout[];
  /** Rollouts of each group, as indices. */
  groups: number[][];
  advantages: ReturnType<typeof advantages>;
  failed: number;
}

const BROKEN: readonly Trajectory["end"][] = ["environment_error", "policy_error"];

/**
 * Draws tasks, plays and scores a group of episodes for each, and computes the advantages. Episodes that broke for no fault of the policy's are left out
 * and counted; if all broke, that is an error. With dynamic sampling, groups without signal are replaced as far as the bound allows.
 */
export async function collect<T extends RlTask>(
  options: RlOptions<T>,
  seed: number,
  state: Counters,
  clock: Stopwatch,
): Promise<Batch<T>> {
  const { environment, prompts, group, weights } = options;
  const kept: Episode<T>[][] = [];
  let played = 0;
  let failed = 0;
  const most = options.dynamicSampling ? 3 * prompts : prompts;
  for (let drawn = 0; kept.length < prompts && drawn < most; ) {
    const wanted = Math.min(prompts - kept.length, most - drawn);
    drawn += wanted;
    const draws = Array.from({ length: wanted }, () => state.drawn++).flatMap((draw) => {
      const task = taskOfDraw(environment.tasks, seed, draw);
      const prompt = hash2(seed, draw);
      return Array.from({ length: group }, (_, j) => ({
        task,
        seed: hash2(prompt, j),
        prompt,
        id: `train/${draw}/${j}`,
      }));
    });
    clock.start("rollout");
    const episodes = await playAll(options, draws, options.temperature);
    clock.start("reward");
    await scoreAll(options, episodes);
    played += episodes.length;
    state.episodes += episodes.length;
    for (const { trajectory } of episodes) state.newTokens += trajectory.usage.completionTokens;
    for (let g = 0; g < wanted; g++) {
      const members = episodes.slice(g * group, (g + 1) * group);
      const sound = members.filter((e) => !BROKEN.includes(e.trajectory.end) && e.trajectory.turns.length > 0);
      failed += members.length - sound.length;
      if (sound.length === 0) continue;
      const flat =
        diagnose(
          channels(sound),
          sound.map(() => 0),
          weights,
        ).flatInAll === 1;
      if (!options.dynamicSampling || !flat) kept.push(sound);
    }
    if (failed === played) {
      const first = episodes.find((e) => e.trajectory.error !== null);
      throw new TrainingDataError(`RL: every episode broke, e.g. task ${first?.task.id}: ${first?.trajectory.error}`);
    }
  }
  clock.start("reward");
  const episodes = kept.flat();
  const groupOf = kept.flatMap((members, g) => members.map(() => g));
  return {
    episodes,
    rollouts: episodes.map((e) => toRollout(e.trajectory, e.rewards, options.tokenizer)),
    groups: kept.map((_, g) => groupOf.flatMap((own, i) => (own === g ? [i] : []))),
    advantages: advantages(channels(episodes), groupOf, {
      method: options.advantage,
      weights,
      epsilon: options.epsilon ?? PAPER_ADVANTAGES.epsilon,
    }),
    failed,
  };
}

/** The draws run through shuffled passes over the tasks: draw d is a pure function of the seed. */
function taskOfDraw<T>(tasks: readonly T[], seed: number, draw: number): T {
  return tasks[shuffled(tasks.length, seed, Math.floor(draw / tasks.length))[draw % tasks.length]!]!;
}

function channels(episodes: readonly { rewards: ChannelRewards }[]): ByChannel<number[]> {
  const of = (channel: keyof ByChannel<number>) => episodes.map((e) => e.rewards[channel]);
  return { trajectory: of("trajectory"), phase: of("phase"), format: of("format") };
}
