/**
 * The losses, in float64, as functions of the log-probabilities of the targets: each gives its value and dLoss/dlp, and the model does the
 * rest (model/types.ts, LogProbLoss). A batch is worked through in micro-batches, so every mean is given its weight from outside: the
 * values and gradients of the micro-batches of a batch add up to those of the batch.
 */

/** A loss's value and gradient, and named sums for the metrics; all are already weighted, so they add up over micro-batches. */
export interface LossValue {
  loss: number;
  /** dLoss/dlp [M]. */
  dLp: Float32Array;
}

/** Supervised fine-tuning: L = −(1/N) Σ lp, N the action tokens of the whole batch. */
export function sftLoss(lp: Float32Array, tokens: number): LossValue {
  let sum = 0;
  for (const x of lp) sum += x;
  return { loss: -sum / tokens, dLp: new Float32Array(lp.length).fill(-1 / tokens) };
}

/**
 * How token terms become one number: a mean over all action tokens of the batch (the paper's, DAPO's); a mean over trajectories of each
 * one's mean (GRPO as first published); or the sum of tokens over trajectories × a constant length (Dr.GRPO).
 */
export type Aggregate = "token" | "trajectory" | "constant";

/** The weight of each of a trajectory's action tokens. `batch` is the mini-batch that the mean is over. */
export function tokenWeight(
  aggregate: Aggregate,
  length: number,
  batch: { tokens: number; trajectories: number; maxLength: number },
): number {
  switch (aggregate) {
    case "token":
      return 1 / batch.tokens;
    case "trajectory":
      return 1 / (batch.trajectories * length);
    case "constant":
      return 1 / (batch.trajectories * batch.maxLength);
  }
}

export interface PolicyLossInput {
  /** log π(target) now, [M]. */
  lp: Float32Array;
  /** log π_old: at sampling time, or of the weights before the first update of this batch, [M]. */
  old: Float32Array;
  /** log π_ref, [M]; null where there is no KL term. */
  reference: Float32Array | null;
  /** The trajectory's advantage at each of its tokens, [M]. */
  advantages: Float32Array;
  /** See tokenWeight, [M]. */
  weights: Float32Array;
}

export interface PolicyLossOptions {
  /** ε: the ratio is clipped to [1 − ε, 1 + ε]. */
  clip: number;
  /** DAPO's clip-higher: the upper bound is 1 + clipHigh. */
  clipHigh?: number;
  /** Dual clip: for negative advantages the term is at most −c·A (c > 1). */
  dualClip?: number;
  /** Coefficient of the KL to the reference policy. */
  kl: number;
}

export interface PolicyLossValue extends LossValue {
  policy: number;
  kl: number;
  clipFraction: number;
  /** Weighted mean of the ratio, and the largest one. */
  ratio: number;
  maxRatio: number;
}

/** Bounds of the exponents and of the KL estimate: beyond them a token is an outlier, and only its gradient is lost. */
const MAX_LOG_RATIO = 20;
const MAX_KL = 10;

const clamp = (x: number, low: number, high: number) => Math.min(high, Math.max(low, x));

/**
 * PPO on tokens: L = Σ w·max(−A·r, −A·clip(r, 1−ε, 1+ε)) + β·Σ w·k3, with r = exp(lp − old) and k3 = exp(d) − d − 1, d = ref − lp (Schulman's
 * low-variance estimator). The entropy term is zero (method.md section 5).
 */
export function ppoLoss(input: PolicyLossInput, options: PolicyLossOptions): PolicyLossValue {
  const { lp, old, reference, advantages, weights } = input;
  const low = 1 - options.clip;
  const high = 1 + (options.clipHigh ?? options.clip);
  const out: PolicyLossValue = {
    ...{ loss: 0, policy: 0, kl: 0, clipFraction: 0, ratio: 0, maxRatio: 0 },
    dLp: new Float32Array(lp.length),
  };
  for (let m = 0; m < lp.length; m++) {
    const w = weights[m]!;
    const a = advantages[m]!;
    const logRatio = lp[m]! - old[m]!;
    const ratio = Math.exp(clamp(logRatio, -MAX_LOG_RATIO, MAX_LOG_RATIO));
    const inside = Math.abs(logRatio) <= MAX_LOG_RATIO;
    const surrogate = -a * ratio;
    const clipped = -a * clamp(ratio, low, high);
    let term = Math.max(surrogate, clipped);
    // d(−A·r)/dlp = −A·r where the unclipped term is the larger, else the clipped one is constant.
    let gradient = surrogate >= clipped && inside ? surrogate : 0;
    if (options.dualClip !== undefined && a < 0 && term > -options.dualClip * a) {
      term = -options.dualClip * a;
      gradient = 0;
    }
    out.policy += w * term;
    if (clipped > surrogate) out.clipFraction += w;
    out.ratio += w * ratio;
    out.maxRatio = Math.max(out.maxRatio, ratio);
    if (reference) {
      const { kl, dKl } = k3(lp[m]!, reference[m]!);
      out.kl += w * kl;
      gradient += options.kl * dKl;
    }
    out.dLp[m] = w * gradient;
  }
  out.loss = out.policy + options.kl * out.kl;
  return out;
}

/** k3 = exp(d) − d − 1 with d = ref − lp held to ±20 and k3 to ±10; dk3/dlp = 1 − exp(d), 0 where held. */
function k3(lp: number, ref: number): { kl: number; dKl: number } {
  const d = clamp(ref - lp, -MAX_LOG_RATIO, MAX_LOG_RATIO);
  const estimate = Math.exp(d) - d - 1;
  const held = Math.abs(ref - lp) > MAX_LOG_RATIO || estimate > MAX_KL;
  return { kl: clamp(estimate, -MAX_KL, MAX_KL), dKl: held ? 0 : 1 - Math.exp(d) };
}
