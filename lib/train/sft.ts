/**
 * Supervised fine-tuning (method.md section 5): the loss is on the assistant's tokens of every turn, documents are packed but never attend to each other,
 * AdamW or Muon with a cosine schedule. Also trains a base model: a document whose mask is all ones is plain text.
 */
import { z } from "zod";
import type { Model } from "../model/model.ts";
import { GradientError, Optimizer } from "../model/optimizer.ts";
import type { LoadedTokenizer } from "../model/tokenizer.ts";
import type { StageContext } from "../runs/types.ts";
import { type Document, lossTokens, pack, packMicroBatches, shuffled, splitSteps } from "./batch.ts";
import { Checkpoints, readTrained, writeTrained } from "./checkpoint.ts";
import { sftLoss } from "./losses.ts";
import { learningRate, type Schedule } from "./schedule.ts";
import { stopAsked } from "./stop.ts";

/** The loss or a gradient is no longer a finite number, or a bound was passed. The message names the last good state. */
export class DivergedError extends Error {
  override name = "DivergedError";
}
/** The data or the settings leave nothing to train on. */
export class TrainingDataError extends Error {
  override name = "TrainingDataError";
}

export interface SftOptions {
  model: Model;
  tokenizer: LoadedTokenizer | null;
  train: readonly Document[];
  /** Its loss is measured on the way and picks the best weights; may be empty, then the last weights are the best. */
  heldout: readonly Document[];
  lr: number;
  /** Share of the steps that warm up. */
  warmup: number;
  epochs: number;
  /** Tokens a step, and tokens a micro-batch: what is accumulated, and what is in memory at once. */
  batchTokens: number;
  microTokens: number;
  /** Longer documents are cut to this many tokens. */
  cutoff: number;
  weightDecay: number;
  optimizer: "adamw" | "muon";
  /** Global norm that gradients are clipped to. */
  clip: number;
  /** Every so many steps: held-out loss, `evaluate`, a checkpoint. */
  evaluateEvery: number;
  maxSteps?: number;
  /** "given": documents are read in their order, a curriculum; else they are shuffled anew in each epoch. */
  order?: "shuffled" | "given";
  shape?: Schedule["shape"];
  /** Learning rate at the end, as a share of the peak. */
  minRatio?: number;
  /** Stop after this many evaluations in a row without a lower held-out loss. */
  patience?: number;
  /** Further measurements at each evaluation, e.g. episodes played or samples shown. */
  evaluate?: (step: number) => Promise<Record<string, number>>;
}

export interface SftResult {
  /** Steps taken, of how many that were planned, and why it ended. */
  steps: number;
  planned: number;
  end: "finished" | "early_stop" | "asked_to_stop";
  /** Mean loss of the last step, and held-out losses (null without held-out documents): at the start, at the best step, at the end. */
  trainLoss: number | null;
  heldout: { first: number; best: number; last: number } | null;
  bestStep: number;
  /** Tokens read, of which trained on. */
  tokens: number;
  lossTokens: number;
  /** Documents that were cut, and left out because nothing was to be learnt from them. */
  cut: number;
  dropped: number;
  /** Model directories: the best and the last weights. */
  model: string;
  last: string;
}

const State = z.strictObject({
  tokens: z.number(),
  lossTokens: z.number(),
  trainLoss: z.number().nullable(),
  heldout: z.strictObject({ first: z.number(), best: z.number(), last: z.number() }).nullable(),
  stale: z.number(),
});
type State = z.infer<typeof State>;

/**
 * Trains `options.model` in place, in ctx.dir. Called again on the same folder it goes on from the newest whole checkpoint and comes to the same
 * bits as a run that was never stopped. Throws DivergedError, CheckpointError or TrainingDataError, each saying where the last good state is or what to do.
 */
export async function runSft(options: SftOptions, ctx: StageContext): Promise<SftResult> {
  const { model } = options;
  const train = prepare(options.train, options.cutoff);
  const heldout = prepare(options.heldout, options.cutoff);
  if (train.documents.length === 0)
    throw new TrainingDataError(
      `SFT: none of ${options.train.length} documents has a token to learn from within ${options.cutoff} tokens. Raise cutoff or add demonstrations.`,
    );
  if (train.cut + train.dropped > 0)
    ctx.progress.log(
      `SFT: ${train.cut} documents were cut to ${options.cutoff} tokens, ${train.dropped} had nothing to learn from`,
    );
  const lengths = train.documents.map((document) => document.ids.length);
  const plan = planSteps(lengths, options, ctx.seed);
  const schedule: Schedule = {
    lr: options.lr,
    warmup: options.warmup,
    steps: plan.length,
    shape: options.shape ?? "cosine",
    ...(options.minRatio === undefined ? {} : { minRatio: options.minRatio }),
  };
  const optimizer = new Optimizer(model.engine, model.trainable(), {
    kind: options.optimizer,
    weightDecay: options.weightDecay,
    maxNorm: options.clip,
  });
  const trained = { model, optimizer, tokenizer: options.tokenizer };
  const checkpoints = new Checkpoints(ctx.dir, State, ctx.progress);
  const resumed = await checkpoints.restore(async (folder) => readTrained(folder, trained));
  let step = resumed?.step ?? 0;
  let state: State = resumed?.state ?? { tokens: 0, lossTokens: 0, trainLoss: null, heldout: null, stale: 0 };
  if (resumed) ctx.progress.log(`SFT: going on after step ${step} of ${plan.length}`);

  const evaluate = async (): Promise<void> => {
    let improved = heldout.documents.length === 0;
    const values: Record<string, number> = {};
    if (heldout.documents.length > 0) {
      const loss = await documentsLoss(model, heldout.documents, options.microTokens);
      if (!Number.isFinite(loss)) throw diverged(`the held-out loss is ${loss}`, step);
      improved = loss < (state.heldout?.best ?? Number.POSITIVE_INFINITY);
      const before = state.heldout ?? { first: loss, best: loss };
      state.heldout = { first: before.first, best: Math.min(before.best, loss), last: loss };
      state.stale = improved ? 0 : state.stale + 1;
      values.heldoutLoss = loss;
    }
    Object.assign(values, await options.evaluate?.(step));
    if (Object.keys(values).length > 0) ctx.metric(step, values);
    await checkpoints.save(step, (folder) => writeTrained(folder, trained), state, improved);
  };
  const diverged = (what: string, at: number) =>
    new DivergedError(
      `SFT: ${what} at step ${at}; the step was not taken. The last good state is ${checkpoints.lastGood}. Lower lr (now ${options.lr}) or look at the data of that step.`,
    );

  const early = () => options.patience !== undefined && state.stale >= options.patience;
  if (!resumed) await evaluate();
  let saved = step;
  // One turn of the event loop a step: a signal to stop is heard even where every wait is over at once.
  while (step < plan.length && !(await stopAsked(ctx)) && !early()) {
    const started = performance.now();
    const members = plan[step]!;
    const total = members.reduce((n, i) => n + lossTokens(train.documents[i]!), 0);
    let loss = 0;
    model.zeroGrad();
    for (const micro of packMicroBatches(lengths, members, options.microTokens)) {
      const batch = pack(micro.map((i) => train.documents[i]!));
      loss += (await model.forwardBackward(batch, (lp) => sftLoss(lp, total))).loss.loss;
    }
    if (!Number.isFinite(loss)) throw diverged(`the loss is ${loss}`, step + 1);
    const lr = learningRate(step, schedule);
    const { gradNorm } = await optimizer.step(lr).catch((error: unknown) => {
      throw error instanceof GradientError ? diverged(error.message, step + 1) : error;
    });
    step++;
    const tokens = members.reduce((n, i) => n + lengths[i]!, 0);
    const seconds = (performance.now() - started) / 1000;
    state = { ...state, tokens: state.tokens + tokens, lossTokens: state.lossTokens + total, trainLoss: loss };
    ctx.metric(step, { loss, lr, gradNorm, tokens: state.tokens, tokensPerSecond: tokens / seconds });
    const held = state.heldout ? ` · held out ${state.heldout.last.toFixed(3)}` : "";
    ctx.progress.update(step, plan.length, `loss ${loss.toFixed(3)}${held} · ${Math.round(tokens / seconds)} tokens/s`);
    if (step % options.evaluateEvery === 0 || step === plan.length) {
      await evaluate();
      saved = step;
    }
  }
  if (saved !== step) await checkpoints.save(step, (folder) => writeTrained(folder, trained), state);
  optimizer.dispose();
  const bestStep = checkpoints.bestStep ?? step;
  return {
    steps: step,
    planned: plan.length,
    end: step === plan.length ? "finished" : early() ? "early_stop" : "asked_to_stop",
    ...{ trainLoss: state.trainLoss, heldout: state.heldout, tokens: state.tokens, lossTokens: state.lossTokens },
    ...{ bestStep, cut: train.cut, dropped: train.dropped },
    model: checkpoints.publish(bestStep, "model"),
    last: checkpoints.publish(step, "last"),
  };
}

/** Mean loss over the trained tokens of documents, without changing anything. */
export async function documentsLoss(
  model: Model,
  documents: readonly Document[],
  microTokens: number,
): Promise<number> {
  const lengths = documents.map((document) => document.ids.length);
  let sum = 0;
  let count = 0;
  for (const micro of packMicroBatches(lengths, [...documents.keys()], microTokens)) {
    const { lp } = await model.logProbs(pack(micro.map((i) => documents[i]!)));
    for (const x of lp) sum -= x;
    count += lp.length;
  }
  return sum / count;
}

/** Cuts documents to `cutoff` tokens and leaves out those without a token to learn from. */
function prepare(
  documents: readonly Document[],
  cutoff: number,
): { documents: Document[]; cut: number; dropped: number } {
  let cut = 0;
  const kept = documents
    .map((document) => {
      if (document.ids.length <= cutoff) return document;
      cut++;
      return { ...document, ids: document.ids.slice(0, cutoff), actionMask: document.actionMask.slice(0, cutoff) };
    })
    .filter((document) => lossTokens(document) > 0);
  return { documents: kept, cut, dropped: documents.length - kept.length };
}

/** The documents of every step, over all epochs: a pure function of lengths, settings and seed. */
function planSteps(lengths: readonly number[], options: SftOptions, seed: number): number[][] {
  const orderOf = (epoch: number): Iterable<number> =>
    options.order === "given" ? lengths.keys() : shuffled(lengths.length, seed, epoch);
  const steps: number[][] = [];
  for (let epoch = 0; epoch < options.epochs && steps.length < (options.maxSteps ?? Number.POSITIVE_INFINITY); epoch++)
    steps.push(...splitSteps(lengths, orderOf(epoch), options.batchTokens));
  return steps.slice(0, options.maxSteps);
}
