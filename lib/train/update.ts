/** Learning from a scored batch: PPO steps on the tokens that were sampled. */
import type { Model, ScoreOptions } from "../model/model.ts";
import type { Optimizer } from "../model/optimizer.ts";
import {
  type Document,
  gatherLossRows,
  lossTokens,
  type PerToken,
  pack,
  packMicroBatches,
  scatterLossRows,
} from "./batch.ts";
import { type PolicyLossValue, ppoLoss, tokenWeight } from "./losses.ts";
import type { RlOptions, RlTask } from "./types.ts";

/** Log-probabilities of every action token under a model, and the mean entropy. */
export async function score(
  model: Model,
  documents: readonly Document[],
  microTokens: number,
  how: ScoreOptions = {},
): Promise<{ lp: PerToken[]; entropy: number }> {
  const lengths = documents.map((document) => document.ids.length);
  const lp: PerToken[] = [];
  let entropy = 0;
  let count = 0;
  for (const micro of packMicroBatches(lengths, [...documents.keys()], microTokens)) {
    const members = micro.map((i) => documents[i]!);
    const scores = await model.logProbs(pack(members), how);
    for (const [k, values] of scatterLossRows(members, scores.lp).entries()) lp[micro[k]!] = values;
    for (const x of scores.entropy) entropy += x;
    count += scores.entropy.length;
  }
  return { lp, entropy: entropy / Math.max(1, count) };
}

export interface ScoredBatch {
  documents: Document[];
  groups: number[][];
  advantages: { values: number[] };
  /** Null where the batch is one step: then the weights that are trained are those that sampled, and the ratio is 1. */
  old: PerToken[] | null;
  reference: PerToken[] | null;
}

/** Whether a step's batch is one PPO step. */
export const isOneStep = ({
  epochs,
  miniBatch,
  prompts,
}: Pick<RlOptions<RlTask>, "epochs" | "miniBatch" | "prompts">) => epochs === 1 && miniBatch >= prompts;

/**
 * The PPO steps of one batch: `epochs` passes in mini-batches of `miniBatch` groups. Returns means over the steps taken, and what the first pass
 * scored: log-probabilities of every action token, and the mean entropy.
 */
export async function update<T extends RlTask>(
  options: RlOptions<T>,
  batch: ScoredBatch,
  optimizer: Optimizer,
  lr: number,
): Promise<{
  loss: number;
  policyLoss: number;
  kl: number;
  clipFraction: number;
  ratio: number;
  maxRatio: number;
  gradNorm: number;
  scored: { lp: PerToken[]; entropy: number };
}> {
  const { model } = options;
  const { documents } = batch;
  const lengths = documents.map((document) => document.ids.length);
  const actions = documents.map(lossTokens);
  const sums = { loss: 0, policyLoss: 0, kl: 0, clipFraction: 0, ratio: 0, maxRatio: 0, gradNorm: 0 };
  const scored = { lp: [] as PerToken[], entropy: 0 };
  const all = actions.reduce((a, b) => a + b, 0);
  let updates = 0;
  for (let epoch = 0; epoch < options.epochs; epoch++) {
    for (let first = 0; first < batch.groups.length; first += options.miniBatch) {
      const members = batch.groups.slice(first, first + options.miniBatch).flat();
      const mini = {
        tokens: members.reduce((n, i) => n + actions[i]!, 0),
        trajectories: members.length,
        maxLength: Math.max(...members.map((i) => actions[i]!)),
      };
      model.zeroGrad();
      for (const micro of packMicroBatches(lengths, members, options.microTokens)) {
        const own = micro.map((i) => documents[i]!);
        const rows = (values: PerToken[]) =>
          gatherLossRows(
            own,
            micro.map((i) => values[i]!),
          );
        const each = (value: (i: number) => number) =>
          Float32Array.from(micro.flatMap((i) => new Array<number>(actions[i]!).fill(value(i))));
        const input = {
          reference: batch.reference && rows(batch.reference),
          advantages: each((i) => batch.advantages.values[i]!),
          weights: each((i) => tokenWeight(options.aggregate ?? "token", actions[i]!, mini)),
        };
        const old = batch.old && rows(batch.old);
        const { lp, entropy, loss } = await model.forwardBackward(
          pack(own),
          (now): PolicyLossValue => ppoLoss({ lp: now, old: old ?? now, ...input }, options),
          { temperature: options.temperature },
        );
        if (epoch === 0) {
          for (const [k, values] of scatterLossRows(own, lp).entries()) scored.lp[micro[k]!] = values;
          for (const x of entropy) scored.entropy += x / all;
        }
        sums.loss += loss.loss;
        sums.policyLoss += loss.policy;
        sums.kl += loss.kl;
        sums.clipFraction += loss.clipFraction;
        sums.ratio += loss.ratio;
        sums.maxRatio = Math.max(sums.maxRatio, loss.maxRatio);
      }
      sums.gradNorm += (await optimizer.step(lr)).gradNorm;
      updates++;
    }
  }
  const { maxRatio, ...means } = sums;
  for (const name of ["loss", "policyLoss", "kl", "clipFraction", "ratio", "gradNorm"] as const) means[name] /= updates;
  return { ...means, maxRatio, scored };
}
