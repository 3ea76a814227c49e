/** The RL system's data, said once. */
import type { Trajectory } from "../paraact/types.ts";
import type { ChannelRewards } from "../rewards/types.ts";

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
  /** Token masks by index of action token, where decoding was constrained. */
  masks?: Map<number, Uint32Array>;
}

/** n rollouts of one prompt. */
export interface Group {
  taskId: string;
  rollouts: Rollout[];
}
