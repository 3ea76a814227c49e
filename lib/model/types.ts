/** The model's data: configuration, batches, generation. */
import type { Tensor } from "../engine/types.ts";

/** Hugging Face's names (config.json of Qwen3), plus the short convolution, off for Qwen3 checkpoints. */
export interface ModelConfig {
  architectures: ["Qwen3ForCausalLM"];
  model_type: "qwen3";
  num_hidden_layers: number;
  hidden_size: number;
  intermediate_size: number;
  num_attention_heads: number;
  num_key_value_heads: number;
  head_dim: number;
  vocab_size: number;
  rope_theta: number;
  rms_norm_eps: number;
  tie_word_embeddings: boolean;
  max_position_embeddings: number;
  /** Taps of the causal depthwise convolutions on queries and keys; absent or 0 is off. Not part of Qwen3. */
  short_conv?: { q: number; k: number };
}

/** Parameters by Hugging Face name, e.g. "model.layers.0.self_attn.q_proj.weight". */
export type Parameters = Map<string, Tensor>;

/** A packed micro-batch on the host. */
export interface PackedBatch {
  /** Token ids of all documents, one after the other. [T] */
  ids: Int32Array;
  /** Cumulative document lengths, first 0, last T. [docs+1] */
  cumulative: Int32Array;
  /** Rows (token indices) whose next token is trained on or scored. [M] */
  rows: Int32Array;
  /** The next token at each of those rows. [M] */
  targets: Int32Array;
  /** Constrained decoding: mask row per loss row (−1 none) and the masks' bits [R, ceil(V/32)]. */
  masks?: { bits: Uint32Array; row: Int32Array };
}

/**
 * A loss of the log-probabilities of the targets: given lp [M], the value and its derivative by each. SFT and all RL losses are
 * such functions, written in float64 TypeScript in train/losses.ts.
 */
export interface LossGradient {
  /** dLoss/dlp, [M]. */
  dLp: Float32Array;
}
export type LogProbLoss = (lp: Float32Array, entropy: Float32Array) => LossGradient;

/** Restricts decoding. State advances with each accepted token. */
export interface TokenConstraint {
  /** Bits of the allowed next tokens [ceil(V/32)], or null for no restriction. Owned by the constraint; copy to keep. */
  allowed(): Uint32Array | null;
  accept(id: number): void;
}

export interface GenerateRequest {
  promptIds: Int32Array;
  maxNewTokens: number;
  temperature: number;
  topK?: number;
  topP?: number;
  seed: number;
  /** Sampling one of these ends the sequence; it is the last id returned. */
  stopIds: number[];
  /** Sequences of ids that end it as well. */
  stopSequences?: number[][];
  constraint?: TokenConstraint;
  /** Keeps this sequence's pages after it ends, for the episode's next turn to reuse by prefix. */
  keepAs?: string;
  /** Aborting ends the sequence: `generate` rejects with the signal's reason, and the pages are free again. */
  signal?: AbortSignal;
}
export interface GenerateResult {
  ids: number[];
  logprobs: number[];
  finish: "stop" | "length";
  /** Masks under which the ids were sampled, where a constraint was given: null entries were free. */
  masks?: (Uint32Array | null)[];
  /** Prompt tokens taken from the cache instead of computed. */
  reusedTokens: number;
}

/** Continuous batching over a paged cache: `generate` is called concurrently, and the engine runs what is pending together. */
export interface Generator {
  generate(request: GenerateRequest): Promise<GenerateResult>;
  /** Frees pages kept under this name. */
  release(keepAs: string): void;
  /** Weights changed: every cached page is stale. */
  invalidate(): void;
  stats(): { promptTokens: number; reusedTokens: number; newTokens: number; steps: number; seconds: number };
  close(): void;
}

/** Text ↔ ids. Special tokens are encoded only where `special` is true: text from outside never becomes one. */
export interface Tokenizer {
  readonly vocabSize: number;
  /** Ids of the special tokens by text, e.g. "<|im_end|>". */
  readonly specials: ReadonlyMap<string, number>;
  encode(text: string, options?: { special?: boolean }): number[];
  decode(ids: readonly number[], options?: { skipSpecial?: boolean }): string;
  /** The bytes of one token, for constrained decoding. Empty for special tokens. */
  bytes(id: number): Uint8Array;
}
