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
import type { LoadedTokenizer } from "../model/tokenizer.ts";
import type { Generator } from "../model/types.ts";
import type { Policy, Trajectory } from "../paraact/types.ts";
import {
  type AdvantageMethod,
  advantages,
  type ByChannel,
  CHANNELS,
  diagnose,
  PAPER_ADVANTAGES,
} from "../rewards/advantages.ts";
import type { ChannelRewards } from "../rewards/types.ts";
import type { StageContext } from "../runs/types.ts";
import {
  type Document,
  gatherLossRows,
  lossTokens,
  type PerToken,
  pack,
  packMicroBatches,
  scatterLossRows,
  shuffled,
} from "./batch.ts";
import { Checkpoints, readTrained, writeTrained } from "./checkpoint.ts";
import { type Aggregate, type PolicyLossValue, ppoLoss, tokenWeight } from "./losses.ts";
import { documentOf, drift, episodeMetrics, toRollout } from "./rollouts.ts";
import { learningRate, type Schedule } from "./schedule.ts";
import { DivergedError, TrainingDataError } from "./sft.ts";
import type { Rollout } from "./types.ts";

/** What RL needs of a task; the caller's own type may hold more. */
export interface RlTask {
  id: string;
  shape: string;
}

export interface RlEnvironment<T extends RlTask> {
  tasks: readonly T[];
  /** Never trained on; may be empty. */
  heldout: readonly T[];
  /** Plays one episode. `id` is unique among episodes that run at once. */
  play(task: T, player: { policy: Policy; id: string; seed: number; temperature: number }): Promise<Trajectory>;
  /** Sets the trajectory's verdicts and gives its rewards. */
  score(task: T, trajectory: Trajectory): ChannelRewards | Promise<ChannelRewards>;
}

export interface RlOptions<T extends RlTask> {
  /** As SFT left it: also the reference policy. */
  model: Model;
  tokenizer: LoadedTokenizer;
  /** Samples from `model` through `generator`, whose cache is dropped before each batch of episodes: the weights have changed. */
  policy: Policy;
  generator: Pick<Generator, "invalidate">;
  environment: RlEnvironment<T>;
  steps: number;
  /** Prompts a step, rollouts a prompt, prompts a mini-batch, passes over the step's batch. */
  prompts: number;
  group: number;
  miniBatch: number;
  epochs: number;
  lr: number;
  warmup: number;
  shape?: Schedule["shape"];
  /** 1: the log-probabilities of sampling and of training are of the same distribution. */
  temperature: number;
  clip: number;
  clipHigh?: number;
  dualClip?: number;
  kl: number;
  aggregate?: Aggregate;
  advantage: AdvantageMethod;
  weights: ByChannel<number>;
  /** Draw further tasks for groups without signal, three times as many as asked for at most. */
  dynamicSampling: boolean;
  microTokens: number;
  optimizer?: "adamw" | "muon";
  weightDecay?: number;
  /** Global norm that gradients are clipped to. */
  maxNorm?: number;
  /** Episodes that run at once. */
  concurrency?: number;
  /** Held-out episodes every so many steps, at `evaluationTemperature`; at the start and the end in any case. */
  evaluateEvery?: number;
  evaluationTemperature?: number;
  checkpointEvery?: number;
  /** Mean KL to the reference above which the run stops; largest rollout-to-training difference above which it warns. */
  maxKl?: number;
  maxDrift?: number;
  /** Is given every scored episode, e.g. to keep it. */
  record?: (step: number, kind: "train" | "heldout", episodes: readonly Episode<T>[]) => void | Promise<void>;
}

/** A played and scored episode. */
export interface Episode<T extends RlTask> {
  task: T;
  shape: string;
  trajectory: Trajectory;
  rewards: ChannelRewards;
}

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
      environment.heldout.map((task, i) => ({
        task,
        seed: hash2(hash2(ctx.seed, 0x4e1d), i),
        id: `heldout/${step}/${i}`,
      })),
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
  while (step < options.steps && !ctx.stopping) {
    const clock = stopwatch();
    const batch = await collect(options, ctx.seed, state, clock);
    const values: Record<string, number> = {
      ...episodeMetrics(batch.episodes),
      failed: batch.failed,
      drawn: state.drawn,
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
    const old = await score(model, documents, options.microTokens);
    Object.assign(values, drift(batch.rollouts, old.lp), { entropy: old.entropy });
    if ((values.driftMax ?? 0) > (options.maxDrift ?? 0.01))
      warn(
        "drift",
        `log-probabilities at sampling and in training differ by up to ${values.driftMax?.toExponential(1)} (step ${step + 1}): the gradient is biased. Check the precision of the cache and the weights, and top-k and top-p.`,
      );
    const refLp =
      options.kl > 0
        ? (await score(reference ?? model, documents, options.microTokens, { adapted: reference !== null })).lp
        : null;
    const diverged = (what: string) =>
      new DivergedError(
        `RL: ${what} in step ${step + 1}. The last good state is ${checkpoints.lastGood}. Lower lr (now ${options.lr}) or raise kl (now ${options.kl}).`,
      );
    if (batch.advantages.values.some((a) => a !== 0)) {
      const updated = await update(
        options,
        { ...batch, documents, old: old.lp, reference: refLp },
        optimizer,
        lr,
      ).catch((error: unknown) => {
        throw error instanceof GradientError ? diverged(error.message) : error;
      });
      if (!Number.isFinite(updated.loss)) throw diverged(`the loss is ${updated.loss}`);
      if (updated.kl > (options.maxKl ?? 5))
        throw diverged(`the KL to the reference policy is ${updated.kl.toFixed(2)} a token`);
      Object.assign(values, updated);
    } else {
      warn("no signal", `no trajectory of step ${step + 1} has an advantage: the weights were left as they are`);
    }
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
  if (options.temperature !== 1)
    throw new RlError(
      `RL: temperature ${options.temperature}: the training pass scores at temperature 1, so rollouts must be sampled at 1 (the paper's value).`,
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

// ---- playing -----------------------------------------------------------------------------------------------------------

interface Draw<T> {
  task: T;
  seed: number;
  id: string;
}

/** Plays episodes side by side, at most `concurrency` at once, and returns them in the order of the draws. Rewards are still to come. */
async function playAll<T extends RlTask>(
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
      const { task, seed, id } = draws[i]!;
      const trajectory = await options.environment.play(task, { policy: options.policy, id, seed, temperature });
      episodes[i] = { task, shape: task.shape, trajectory, rewards: { trajectory: 0, phase: 0, format: 0, terms: [] } };
    }
  };
  await Promise.all(Array.from({ length: Math.min(draws.length, options.concurrency ?? 64) }, worker));
  return episodes;
}

async function scoreAll<T extends RlTask>(options: RlOptions<T>, episodes: readonly Episode<T>[]): Promise<void> {
  for (const episode of episodes) episode.rewards = await options.environment.score(episode.task, episode.trajectory);
}

interface Batch<T extends RlTask> {
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
async function collect<T extends RlTask>(
  options: RlOptions<T>,
  seed: number,
  state: State,
  clock: ReturnType<typeof stopwatch>,
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
      return Array.from({ length: group }, (_, j) => ({
        task,
        seed: hash2(hash2(seed, draw), j),
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
    advantages: advantages(channels(episodes), groupOf, { ...PAPER_ADVANTAGES, method: options.advantage, weights }),
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

function warnOfFlatness(
  diagnostics: ReturnType<typeof advantages>["diagnostics"],
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

// ---- learning ----------------------------------------------------------------------------------------------------------

/** Log-probabilities of every action token under a model, and the mean entropy. */
async function score(
  model: Model,
  documents: readonly Document[],
  microTokens: number,
  how: { adapted?: boolean } = {},
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

interface ScoredBatch {
  documents: Document[];
  groups: number[][];
  advantages: { values: number[] };
  old: PerToken[];
  reference: PerToken[] | null;
}

/** The PPO steps of one batch: `epochs` passes in mini-batches of `miniBatch` groups. Returns means over the steps taken. */
async function update<T extends RlTask>(
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

/** Time by kind of work. */
function stopwatch() {
  const spent = { rollout: 0, reward: 0, update: 0 };
  let running: keyof typeof spent | null = null;
  let since = performance.now();
  const stop = () => {
    const now = performance.now();
    if (running) spent[running] += (now - since) / 1000;
    since = now;
    running = null;
  };
  return {
    start(kind: keyof typeof spent) {
      stop();
      running = kind;
    },
    stop() {
      stop();
      const total = spent.rollout + spent.reward + spent.update;
      const share = (x: number) => x / total;
      return {
        total,
        shares: {
          rolloutShare: share(spent.rollout),
          rewardShare: share(spent.reward),
          updateShare: share(spent.update),
        },
      };
    },
  };
}
