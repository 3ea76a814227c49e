/** The RL system's data, said once. */
import type { Model } from "../model/model.ts";
import type { LoadedTokenizer } from "../model/tokenizer.ts";
import type { Generator } from "../model/types.ts";
import type { Policy, Trajectory } from "../paraact/types.ts";
import type { AdvantageMethod, ByChannel } from "../rewards/advantages.ts";
import type { ChannelRewards } from "../rewards/types.ts";
import type { Aggregate } from "./losses.ts";
import type { Schedule } from "./schedule.ts";

/** A finished episode as training data: exactly the tokens that were read and sampled. */
export interface Rollout {
  trajectory: Trajectory;
  rewards: ChannelRewards;
  /** Every token of the conversation, as the policy saw and sampled it. */
  ids: Int32Array;
  /** 1 where the id was sampled by the policy (trained on), 0 for prompts and observations. Same length. */
  actionMask: Uint8Array;
  /** Log-probability at sampling time for action tokens, 0 elsewhere. Same length. */
  logprobs: Float32Array;
  /** By index in `ids`: the token mask that the id was sampled under, where decoding was constrained. */
  masks?: Map<number, Uint32Array>;
}

/** n rollouts of one prompt. */
export interface Group {
  taskId: string;
  rollouts: Rollout[];
}

/** What RL needs of a task; the caller's own type may hold more. */
export interface RlTask {
  id: string;
  shape: string;
}

export interface RlEnvironment<T extends RlTask> {
  tasks: readonly T[];
  /** Never trained on; may be empty. */
  heldout: readonly T[];
  /** Plays one episode. `id` is unique among episodes that run at once; `prompt` is the same for the rollouts of one group, and theirs only. */
  play(
    task: T,
    player: { policy: Policy; id: string; seed: number; prompt: number; temperature: number },
  ): Promise<Trajectory>;
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
  /** Of rollouts, above 0; the training pass and the reference policy are scored at it too, so that all are of the same distribution. */
  temperature: number;
  clip: number;
  clipHigh?: number;
  dualClip?: number;
  kl: number;
  aggregate?: Aggregate;
  advantage: AdvantageMethod;
  weights: ByChannel<number>;
  /** Added to the standard deviations of advantages; the paper's where left out. */
  epsilon?: number;
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
