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
  old: PerToken[];
  reference: PerToken[] | null;
}

/** The PPO steps of one batch: `epochs` passes in mini-batches of `miniBatch` groups. Returns means over the steps taken. */
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
}> {
  const { model } = options;
  const { documents } = batch;
  const lengths = documents.map((document) => document.ids.length);
  const actions = documents.map(lossTokens);
  const sums = { loss: 0, policyLoss: 0, kl: 0, clipFraction: 0, ratio: 0, maxRatio: 0, gradNorm: 0 };
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
          old: rows(batch.old),
          reference: batch.reference && rows(batch.reference),
          advantages: each((i) => batch.advantages.values[i]!),
          weights: each((i) => tokenWeight(options.aggregate ?? "token", actions[i]!, mini)),
        };
        const { loss } = await model.forwardBackward(
          pack(own),
          (lp): PolicyLossValue => ppoLoss({ lp, ...input }, options),
          { temperature: options.temperature },
        );
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
  return { ...means, maxRatio };
}
