/**
 * From rewards to advantages (method.md section 5): one value a trajectory, for all of its action tokens. GDPO normalises each channel within
 * its group before they are added; the others add first.
 */

/** Rewards by channel, one entry a trajectory (N). */
export type Channel = "trajectory" | "phase" | "format";
export const CHANNELS: readonly Channel[] = ["trajectory", "phase", "format"];
export type ByChannel<T> = Record<Channel, T>;

export type AdvantageMethod = "gdpo" | "grpo" | "dr_grpo" | "rloo" | "reinforce++";

export interface AdvantageOptions {
  method: AdvantageMethod;
  /** GDPO's weights. For the other methods a channel with weight 0 is left out of the sum. */
  weights: ByChannel<number>;
  /** Added to standard deviations. */
  epsilon: number;
}

export const PAPER_ADVANTAGES: AdvantageOptions = {
  method: "gdpo",
  weights: { trajectory: 1, phase: 0.5, format: 0.25 },
  epsilon: 1e-6,
};

/** What a trainer watches. */
export interface AdvantageDiagnostics {
  groups: number;
  /** Share of groups of two or more whose rollouts all score the same in a channel; null without such groups. */
  flatShare: ByChannel<number | null>;
  /** Share of groups of two or more that are flat in every channel of weight other than 0: they carry no signal. */
  flatInAll: number | null;
  /** Pearson correlation of two channels over the batch; null where one is constant. */
  correlation: { "trajectory-phase": number | null; "trajectory-format": number | null; "phase-format": number | null };
}

export interface Advantages {
  /** The final advantages (N). */
  values: number[];
  /** Each channel's rewards normalised within its group (N each). */
  perChannel: ByChannel<number[]>;
  /** GDPO: the weighted sum of the channels' advantages before the batch's normalisation. Others: the summed reward. (N) */
  combined: number[];
  diagnostics: AdvantageDiagnostics;
}

/** Rewards that do not fit their groups. */
export class AdvantageError extends Error {
  override readonly name = "AdvantageError";
}

const meanOf = (xs: number[]): number => xs.reduce((a, b) => a + b, 0) / xs.length;

/** Mean and unbiased standard deviation; of a single value 0 and 1. */
function moments(xs: number[]): { mean: number; std: number } {
  if (xs.length < 2) return { mean: 0, std: 1 };
  const mean = meanOf(xs);
  return { mean, std: Math.sqrt(xs.reduce((s, x) => s + (x - mean) ** 2, 0) / (xs.length - 1)) };
}

/** (x − mean) / (std + ε) over all values. */
export function standardise(xs: number[], epsilon: number): number[] {
  const { mean, std } = moments(xs);
  return xs.map((x) => (x - mean) / (std + epsilon));
}

/** Indices of each group's members, in order of first appearance. */
function members(groups: readonly (string | number)[]): number[][] {
  const byGroup = new Map<string | number, number[]>();
  for (const [i, group] of groups.entries()) byGroup.set(group, [...(byGroup.get(group) ?? []), i]);
  return [...byGroup.values()];
}

/** Applies a function to each group's values, and puts the results back in place. */
function withinGroups(values: number[], groups: number[][], f: (xs: number[]) => number[]): number[] {
  const out = new Array<number>(values.length).fill(0);
  for (const group of groups) {
    const result = f(group.map((i) => values[i] ?? 0));
    group.forEach((i, k) => {
      out[i] = result[k] ?? 0;
    });
  }
  return out;
}

/** GRPO (Shao et al. 2024): A = (r − mean_group) / (std_group + ε), std unbiased; a group of one gives mean 0 and std 1. */
export const groupNormalised = (rewards: number[], groups: number[][], epsilon: number): number[] =>
  withinGroups(rewards, groups, (xs) => standardise(xs, epsilon));

/** Dr.GRPO (Liu et al. 2025): A = r − mean_group, without the division that favours easy and hard prompts. */
export const groupCentred = (rewards: number[], groups: number[][]): number[] =>
  withinGroups(rewards, groups, (xs) => xs.map((x) => x - moments(xs).mean));

/** RLOO (Ahmadian et al. 2024): A_i = r_i − the mean of the group's others; 0 is the baseline of a group of one. */
export const leaveOneOut = (rewards: number[], groups: number[][]): number[] =>
  withinGroups(rewards, groups, (xs) => {
    const total = xs.reduce((a, b) => a + b, 0);
    return xs.map((x) => (xs.length < 2 ? x : x - (total - x) / (xs.length - 1)));
  });

/** Whether all values are the same up to rounding. */
const isFlat = (xs: number[]): boolean => Math.max(...xs) - Math.min(...xs) < 1e-9;

/** Pearson's correlation; null where one side is constant. */
function correlation(xs: number[], ys: number[]): number | null {
  if (xs.length < 2 || isFlat(xs) || isFlat(ys)) return null;
  const [mx, my] = [meanOf(xs), meanOf(ys)];
  const dot = (a: number[], ma: number, b: number[], mb: number): number =>
    a.reduce((s, x, i) => s + (x - ma) * ((b[i] ?? mb) - mb), 0);
  return dot(xs, mx, ys, my) / Math.sqrt(dot(xs, mx, xs, mx) * dot(ys, my, ys, my));
}

/** How much signal a batch carries. */
export function diagnose(
  rewards: ByChannel<number[]>,
  groups: readonly (string | number)[],
  weights: ByChannel<number>,
): AdvantageDiagnostics {
  const all = members(groups);
  const several = all.filter((group) => group.length > 1);
  const flat = (channel: Channel, group: number[]): boolean => isFlat(group.map((i) => rewards[channel][i] ?? 0));
  const share = (test: (group: number[]) => boolean): number | null =>
    several.length === 0 ? null : several.filter(test).length / several.length;
  const used = CHANNELS.filter((channel) => weights[channel] !== 0);
  return {
    groups: all.length,
    flatShare: {
      trajectory: share((group) => flat("trajectory", group)),
      phase: share((group) => flat("phase", group)),
      format: share((group) => flat("format", group)),
    },
    flatInAll: share((group) => used.every((channel) => flat(channel, group))),
    correlation: {
      "trajectory-phase": correlation(rewards.trajectory, rewards.phase),
      "trajectory-format": correlation(rewards.trajectory, rewards.format),
      "phase-format": correlation(rewards.phase, rewards.format),
    },
  };
}

/**
 * Advantages of a batch of N trajectories. `rewards` holds N values a channel, `groups` names each trajectory's prompt (any id). An empty
 * batch gives empty results. Throws AdvantageError where the lengths differ or a reward is not finite.
 *
 * - gdpo: A = Σ_c w_c·A_c with A_c normalised within the group, then normalised over the batch's trajectories.
 * - grpo, dr_grpo, rloo: on the sum of the channels, within the group.
 * - reinforce++ (Hu 2025): the sum, normalised over the whole batch.
 */
export function advantages(
  rewards: ByChannel<number[]>,
  groups: readonly (string | number)[],
  options: AdvantageOptions = PAPER_ADVANTAGES,
): Advantages {
  const { method, weights, epsilon } = options;
  for (const channel of CHANNELS) {
    if (rewards[channel].length !== groups.length)
      throw new AdvantageError(`${rewards[channel].length} ${channel} rewards for ${groups.length} trajectories`);
    const bad = rewards[channel].findIndex((r) => !Number.isFinite(r));
    if (bad >= 0) throw new AdvantageError(`${channel} reward ${bad} is ${rewards[channel][bad]}`);
  }
  const all = members(groups);
  const perChannel = {
    trajectory: groupNormalised(rewards.trajectory, all, epsilon),
    phase: groupNormalised(rewards.phase, all, epsilon),
    format: groupNormalised(rewards.format, all, epsilon),
  };
  const diagnostics = diagnose(rewards, groups, weights);
  const total = (weight: (c: Channel) => number, of: ByChannel<number[]>): number[] =>
    groups.map((_, i) => CHANNELS.reduce((s, c) => s + weight(c) * (of[c][i] ?? 0), 0));
  const combined =
    method === "gdpo" ? total((c) => weights[c], perChannel) : total((c) => (weights[c] === 0 ? 0 : 1), rewards);
  const values = ((): number[] => {
    switch (method) {
      case "gdpo":
      case "reinforce++":
        return standardise(combined, epsilon);
      case "grpo":
        return groupNormalised(combined, all, epsilon);
      case "dr_grpo":
        return groupCentred(combined, all);
      case "rloo":
        return leaveOneOut(combined, all);
    }
  })();
  return { values, perChannel, combined, diagnostics };
}
