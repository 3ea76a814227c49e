/**
 * Reinforcement learning with decoupled advantages (method.md section 5). A step: play a group of episodes for each of a batch of tasks, score
 * them in three channels, turn these into one advantage a trajectory, and take PPO steps on exactly the tokens that were sampled, with a KL
 * term to the policy that training started from.
 *
 * Where tasks come from and what an episode acts on is the caller's: see RlEnvironment.
 */
import { z } from "zod";
import { hash2 } from "../engine/random.ts";
import { Model } from "../model/model.ts";
import { GradientError, Optimizer } from "../model/optimizer.ts";
import { type AdvantageDiagnostics, CHANNELS } from "../rewards/advantages.ts";
import type { StageContext } from "../runs/types.ts";
import { lossTokens } from "./batch.ts";
import { Checkpoints, readTrained, writeTrained } from "./checkpoint.ts";
import { collect, playAll, scoreAll } from "./collect.ts";
import { documentOf, drift, episodeMetrics } from "./rollouts.ts";
import { learningRate } from "./schedule.ts";
import { DivergedError, TrainingDataError } from "./sft.ts";
import { stopAsked } from "./stop.ts";
import { stopwatch } from "./stopwatch.ts";
import type { RlOptions, RlTask } from "./types.ts";
import { isOneStep, score, update } from "./update.ts";

export type { Episode, RlEnvironment, RlOptions, RlTask } from "./types.ts";

export interface RlResult {
  steps: number;
  planned: number;
  end: "finished" | "asked_to_stop";
  /** Held-out metrics at the start, at the best step and at the end; null without held-out tasks. */
  heldout: { first: Record<string, number>; best: Record<string, number>; last: Record<string, number> } | null;
  bestStep: number;
  /** Tasks drawn, episodes played, and tokens sampled. */
  drawn: number;
  episodes: number;
  newTokens: number;
  model: string;
  last: string;
}

const Metrics = z.record(z.string(), z.number());
const State = z.strictObject({
  drawn: z.number(),
  episodes: z.number(),
  newTokens: z.number(),
  heldout: z.strictObject({ first: Metrics, best: Metrics, last: Metrics }).nullable(),
});
type State = z.infer<typeof State>;

/** Wrong use of runRl. */
export class RlError extends Error {
  override name = "RlError";
}

/**
 * Trains `options.model` in place, in ctx.dir; called again on the same folder, it goes on from the newest whole checkpoint to the same metrics and
 * weights. Throws DivergedError (not a number, or KL past its bound), CheckpointError, TrainingDataError or RlError.
 */
export async function runRl<T extends RlTask>(options: RlOptions<T>, ctx: StageContext): Promise<RlResult> {
  check(options);
  const { model, environment } = options;
  const reference = options.kl > 0 && !model.adapters ? await frozenCopy(model) : null;
  const optimizer = new Optimizer(model.engine, model.trainable(), {
    kind: options.optimizer ?? "adamw",
    weightDecay: options.weightDecay ?? 0,
    maxNorm: options.maxNorm ?? 1,
  });
  const trained = { model, optimizer, tokenizer: options.tokenizer };
  const checkpoints = new Checkpoints(ctx.dir, State, ctx.progress);
  const resumed = await checkpoints.restore(async (folder) => readTrained(folder, trained));
  let step = resumed?.step ?? 0;
  const state: State = resumed?.state ?? { drawn: 0, episodes: 0, newTokens: 0, heldout: null };
  if (resumed) ctx.progress.log(`RL: going on after step ${step} of ${options.steps}`);
  const warnings = new Map<string, number>();
  const warn = (kind: string, text: string) => {
    warnings.set(kind, (warnings.get(kind) ?? 0) + 1);
    if (warnings.get(kind) === 1) ctx.progress.log(`WARNING: ${text} (counted from here on, and said once)`);
  };
  let saved = step;
  const save = async (best: boolean) => {
    await checkpoints.save(step, (folder) => writeTrained(folder, trained), state, best);
    saved = step;
  };
  const evaluate = async (): Promise<void> => {
    if (environment.heldout.length === 0) return save(true);
    const episodes = await playAll(
      options,
      environment.heldout.map((task, i) => {
        const seed = hash2(hash2(ctx.seed, 0x4e1d), i);
        return { task, seed, prompt: seed, id: `heldout/${step}/${i}` };
      }),
      options.evaluationTemperature ?? 0,
    );
    await scoreAll(options, episodes);
    await options.record?.(step, "heldout", episodes);
    const values = episodeMetrics(episodes);
    ctx.metric(step, Object.fromEntries(Object.entries(values).map(([name, value]) => [`heldout/${name}`, value])));
    const success = values.success === undefined ? "" : `success ${(100 * values.success).toFixed(1)} %, `;
    ctx.progress.log(
      `RL: step ${step}, ${episodes.length} held-out episodes: ${success}reward ${values.rewardTrajectory?.toFixed(3)}`,
    );
    const before = state.heldout;
    const improved = !before || rank(values) > rank(before.best);
    state.heldout = { first: before?.first ?? values, best: improved ? values : before.best, last: values };
    await save(improved);
  };

  if (!resumed) await evaluate();
  while (step < options.steps && !(await stopAsked(ctx))) {
    const clock = stopwatch();
    const batch = await collect(options, ctx.seed, state, clock);
    const values: Record<string, number> = {
      ...episodeMetrics(batch.episodes),
      failed: batch.failed,
      drawn: state.drawn,
      constrained: batch.rollouts.filter((rollout) => rollout.masks).length / batch.rollouts.length,
    };
    await options.record?.(step + 1, "train", batch.episodes);
    warnOfFlatness(batch.advantages.diagnostics, values, warn);
    const schedule = {
      lr: options.lr,
      warmup: options.warmup,
      steps: options.steps,
      shape: options.shape ?? "constant",
    };
    const lr = learningRate(step, schedule);
    clock.start("update");
    const documents = batch.rollouts.map(documentOf);
    const { temperature } = options;
    const learns = batch.advantages.values.some((a) => a !== 0);
    // One PPO step scores the batch itself.
    const old =
      learns && isOneStep(options) ? null : await score(model, documents, options.microTokens, { temperature });
    let before = old;
    const refLp =
      options.kl > 0
        ? (
            await score(reference ?? model, documents, options.microTokens, {
              adapted: reference !== null,
              temperature,
            })
          ).lp
        : null;
    const diverged = (what: string) =>
      new DivergedError(
        `RL: ${what} in step ${step + 1}. The last good state is ${checkpoints.lastGood}. Lower lr (now ${options.lr}) or raise kl (now ${options.kl}).`,
      );
    if (learns) {
      const { scored, ...updated } = await update(
        options,
        { ...batch, documents, old: old?.lp ?? null, reference: refLp },
        optimizer,
        lr,
      ).catch((error: unknown) => {
        throw error instanceof GradientError ? diverged(error.message) : error;
      });
      if (!Number.isFinite(updated.loss)) throw diverged(`the loss is ${updated.loss}`);
      if (updated.kl > (options.maxKl ?? 5))
        throw diverged(`the KL to the reference policy is ${updated.kl.toFixed(2)} a token`);
      Object.assign(values, updated);
      before ??= scored;
    } else {
      warn("no signal", `no trajectory of step ${step + 1} has an advantage: the weights were left as they are`);
    }
    if (before) Object.assign(values, drift(batch.rollouts, before.lp), { entropy: before.entropy });
    if ((values.driftMax ?? 0) > (options.maxDrift ?? 0.01))
      warn(
        "drift",
        `log-probabilities at sampling and in training differ by up to ${values.driftMax?.toExponential(1)} (step ${step + 1}): the gradient is biased. Check the precision of the cache and the weights, and top-k and top-p.`,
      );
    step++;
    const seconds = clock.stop();
    const newTokens = batch.rollouts.reduce((n, rollout) => n + lossTokens(rollout), 0);
    Object.assign(values, seconds.shares, { lr, tokensPerSecond: newTokens / seconds.total });
    ctx.metric(step, values);
    const success = values.success === undefined ? "" : ` · success ${(100 * values.success).toFixed(0)} %`;
    ctx.progress.update(
      step,
      options.steps,
      `reward ${values.rewardTrajectory?.toFixed(3)}${success} · ${Math.round(newTokens / seconds.total)} tokens/s`,
    );
    if (step === options.steps || (options.evaluateEvery && step % options.evaluateEvery === 0)) await evaluate();
    else if (step % (options.checkpointEvery ?? 5) === 0) await save(false);
  }
  if (saved !== step) await save(false);
  for (const [kind, count] of warnings) ctx.progress.log(`warning "${kind}": ${count} of ${step} steps`);
  reference?.dispose();
  optimizer.dispose();
  const bestStep = checkpoints.bestStep ?? step;
  return {
    steps: step,
    planned: options.steps,
    end: step === options.steps ? "finished" : "asked_to_stop",
    ...state,
    bestStep,
    model: checkpoints.publish(bestStep, "model"),
    last: checkpoints.publish(step, "last"),
  };
}

function check<T extends RlTask>(options: RlOptions<T>): void {
  if (options.environment.tasks.length === 0) throw new TrainingDataError("RL: no tasks. Make a training split first.");
  if (!(options.temperature > 0))
    throw new RlError(
      `RL: temperature ${options.temperature}: rollouts must be sampled, at a temperature above 0 (the paper's value is 1).`,
    );
  if (options.group < 2 && options.advantage !== "reinforce++")
    throw new RlError(
      `RL: group ${options.group} with ${options.advantage}: a group of one has no baseline. Use 2 or more.`,
    );
}

async function frozenCopy(model: Model): Promise<Model> {
  return Model.fromArrays(model.engine, model.config, await model.arrays());
}

/** Held-out metrics in one number: success first, then the trajectory reward. */
const rank = (values: Record<string, number>) => 1000 * (values.success ?? 0) + (values.rewardTrajectory ?? 0);

function warnOfFlatness(
  diagnostics: AdvantageDiagnostics,
  values: Record<string, number>,
  warn: (kind: string, text: string) => void,
): void {
  for (const channel of CHANNELS) {
    const share = diagnostics.flatShare[channel];
    if (share !== null) values[`flat/${channel}`] = share;
  }
  for (const [pair, value] of Object.entries(diagnostics.correlation))
    if (value !== null) values[`correlation/${pair}`] = value;
  if (diagnostics.flatInAll === null) return;
  values["flat/all"] = diagnostics.flatInAll;
  if (diagnostics.flatInAll >= 0.5)
    warn(
      "flat groups",
      `in ${Math.round(100 * diagnostics.flatInAll)} % of the groups all rollouts score the same in every channel: NOTHING IS LEARNT FROM THEM. Use easier or more varied tasks, a larger group, or dynamicSampling`,
    );
}
