/**
 * Intervals and comparisons. Values stand in a matrix: one row a task, one column a seed (a training run); a missing value is NaN.
 * Tasks are resampled, and seeds as a second level where there is more than one (Owen 2007, the pigeonhole bootstrap for crossed factors).
 */
import { uniform } from "../engine/random.ts";

export interface Interval {
  mean: number;
  /** 95 % bounds. */
  low: number;
  high: number;
  /** Tasks and seeds behind it. */
  tasks: number;
  seeds: number;
}

export interface Difference extends Interval {
  /** Two-sided p-value of "no difference", by flipping the signs of the tasks' differences. */
  p: number;
}

function mean(matrix: number[][], rows?: Int32Array, columns?: Int32Array): number {
  let sum = 0;
  let n = 0;
  const rowCount = rows?.length ?? matrix.length;
  for (let i = 0; i < rowCount; i++) {
    const row = matrix[rows ? rows[i]! : i]!;
    const columnCount = columns?.length ?? row.length;
    for (let j = 0; j < columnCount; j++) {
      const value = row[columns ? columns[j]! : j]!;
      if (!Number.isNaN(value)) {
        sum += value;
        n++;
      }
    }
  }
  return n === 0 ? Number.NaN : sum / n;
}

/**
 * Bootstrap replicates of the mean, widened by √(n/(n−1)) around it for each resampled level: resampling n values with replacement gives
 * a spread that is too small by that factor.
 */
function replicates(matrix: number[][], seed: number, count: number): { centre: number; draws: Float64Array } {
  const tasks = matrix.length;
  const seeds = matrix[0]?.length ?? 0;
  const centre = mean(matrix);
  const rows = new Int32Array(tasks);
  const columns = new Int32Array(seeds);
  const widen = Math.sqrt((tasks > 1 ? tasks / (tasks - 1) : 1) * (seeds > 1 ? seeds / (seeds - 1) : 1));
  const draws = new Float64Array(count);
  let counter = 0;
  for (let r = 0; r < count; r++) {
    for (let i = 0; i < tasks; i++) rows[i] = Math.floor(uniform(seed, counter++) * tasks);
    for (let j = 0; j < seeds; j++) columns[j] = seeds > 1 ? Math.floor(uniform(seed, counter++) * seeds) : 0;
    const drawn = mean(matrix, rows, columns);
    draws[r] = centre + widen * ((Number.isNaN(drawn) ? centre : drawn) - centre);
  }
  return { centre, draws: draws.sort() };
}

function quantile(sorted: Float64Array, q: number): number {
  const at = q * (sorted.length - 1);
  const low = Math.floor(at);
  const high = Math.ceil(at);
  return sorted[low]! + (at - low) * (sorted[high]! - sorted[low]!);
}

/**
 * Where all n tasks gave the same value, resampling sees no spread, which is not the same as certainty: the other values may be as likely as
 * 1 − 0.025^(1/n) and still not have been seen (Clopper & Pearson 1934). `range` is how far a value can lie from another.
 */
function unseen(tasks: number, range: number): number {
  return range * (1 - 0.025 ** (1 / tasks));
}

/** Bounds of the mean from its replicates, within the values that are possible. */
function bounds(centre: number, draws: Float64Array, tasks: number, possible: [number, number]): [number, number] {
  const spread = draws[0] !== draws.at(-1);
  const room = spread ? 0 : unseen(tasks, possible[1] - possible[0]);
  const low = spread ? quantile(draws, 0.025) : centre - room;
  const high = spread ? quantile(draws, 0.975) : centre + room;
  return [Math.max(possible[0], low), Math.min(possible[1], high)];
}

/**
 * Sign-flip test (Fisher 1935): under "no difference" each task's difference is as likely to be its negative. Exact up to 12 tasks with a
 * difference, else from 4,000 random flips.
 */
export function signFlip(differences: number[], seed = 1): number {
  const d = differences.filter((x) => x !== 0 && !Number.isNaN(x));
  if (d.length === 0) return 1;
  const observed = Math.abs(d.reduce((a, b) => a + b, 0)) - 1e-12;
  const exact = d.length <= 12;
  const count = exact ? 2 ** d.length : 4000;
  let extreme = exact ? 0 : 1;
  let counter = 0;
  for (let flip = 0; flip < count; flip++) {
    let sum = 0;
    for (let i = 0; i < d.length; i++) {
      const negative = exact ? (flip >> i) & 1 : uniform(seed, counter++) < 0.5;
      sum += negative ? -d[i]! : d[i]!;
    }
    if (Math.abs(sum) >= observed) extreme++;
  }
  return extreme / (exact ? count : count + 1);
}

/** Mean of values in [0,1] with a 95 % bootstrap interval. With fewer than two tasks the interval is NaN: nothing can be said. */
export function interval(
  matrix: number[][],
  options: { seed?: number; replicates?: number; possible?: [number, number] } = {},
): Interval {
  const tasks = matrix.length;
  const seeds = matrix[0]?.length ?? 0;
  if (tasks < 2) return { mean: mean(matrix), low: Number.NaN, high: Number.NaN, tasks, seeds };
  const { centre, draws } = replicates(matrix, options.seed ?? 1, options.replicates ?? 2000);
  const [low, high] = bounds(centre, draws, tasks, options.possible ?? [0, 1]);
  return { mean: centre, low, high, tasks, seeds };
}

/** Paired difference a − b of values in [0,1] over the same tasks (rows) and seeds (columns). */
export function difference(
  a: number[][],
  b: number[][],
  options: { seed?: number; replicates?: number } = {},
): Difference {
  const matrix = a.map((row, i) => row.map((value, j) => value - b[i]![j]!));
  const tasks = matrix.length;
  const seeds = matrix[0]?.length ?? 0;
  if (tasks < 2) return { mean: mean(matrix), low: Number.NaN, high: Number.NaN, p: Number.NaN, tasks, seeds };
  const { centre, draws } = replicates(matrix, options.seed ?? 1, options.replicates ?? 2000);
  const [low, high] = bounds(centre, draws, tasks, [-1, 1]);
  const perTask = matrix.map((row) => mean([row]));
  return { mean: centre, low, high, p: signFlip(perTask, options.seed ?? 1), tasks, seeds };
}

/** Holm's step-down correction: adjusted p-values in the order given. NaN stays NaN and does not count. */
export function holm(p: number[]): number[] {
  const order = p
    .map((value, index) => ({ value, index }))
    .filter((x) => !Number.isNaN(x.value))
    .sort((x, y) => x.value - y.value);
  const adjusted = p.map(() => Number.NaN);
  let running = 0;
  order.forEach(({ value, index }, rank) => {
    running = Math.max(running, Math.min(1, (order.length - rank) * value));
    adjusted[index] = running;
  });
  return adjusted;
}

/** pass@k by the unbiased estimator 1 − C(n−c, k)/C(n, k) (Chen et al. 2021): n runs of a task, c of them right. */
export function passAtK(n: number, c: number, k: number): number {
  if (k > n) return Number.NaN;
  if (n - c < k) return 1;
  let missing = 1;
  for (let i = n - c + 1; i <= n; i++) missing *= 1 - k / i;
  return 1 - missing;
}

/** pass^k: the chance that k runs of a task are all right, C(c, k)/C(n, k) (τ-bench, Yao et al. 2024). */
export function passHatK(n: number, c: number, k: number): number {
  if (k > n) return Number.NaN;
  let all = 1;
  for (let i = 0; i < k; i++) all *= Math.max(0, c - i) / (n - i);
  return all;
}
