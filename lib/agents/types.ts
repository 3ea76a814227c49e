/** What an agent runs on. */
import type { Tool } from "../catalog/types.ts";
import type { Message, Usage } from "../paraact/types.ts";

export interface PolicyRequest {
  /** Stable id of the episode, so that a policy can keep a cache between turns. */
  episode: string;
  messages: Message[];
  /** Tools shown so far in this episode: what a constrained decoder may name. */
  toolsInView: Tool[];
  maxNewTokens: number;
  temperature: number;
  seed: number;
}

export interface PolicyReply {
  text: string;
  /** Local models only: the sampled ids and the log-probability of each under the sampling distribution. */
  tokens?: { ids: number[]; logprobs: number[] };
  /** "stop": the model ended its turn; "length": the token budget ran out. */
  finish: "stop" | "length";
  usage: Usage;
}

/** One policy serves many episodes at once: `reply` is called concurrently, and a local model batches what is pending. */
export interface Policy {
  readonly name: string;
  reply(request: PolicyRequest): Promise<PolicyReply>;
  /** The episode is over: caches for it may go. */
  release?(episode: string): void;
  close?(): Promise<void>;
}
