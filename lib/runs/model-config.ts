import type { Experiment } from "../config/schema.ts";
import type { ModelConfig } from "../model/types.ts";

type Shape = Pick<
  Experiment["model"],
  "layers" | "hidden" | "feedForward" | "heads" | "kvHeads" | "headDim" | "context" | "shortConv"
>;

/** An experiment's model shape in Hugging Face's names. */
export function modelConfig(shape: Shape, vocabulary: number): ModelConfig {
  return {
    architectures: ["Qwen3ForCausalLM"],
    model_type: "qwen3",
    num_hidden_layers: shape.layers,
    hidden_size: shape.hidden,
    intermediate_size: shape.feedForward,
    num_attention_heads: shape.heads,
    num_key_value_heads: shape.kvHeads,
    head_dim: shape.headDim,
    vocab_size: vocabulary,
    rope_theta: 1e6,
    rms_norm_eps: 1e-6,
    tie_word_embeddings: true,
    max_position_embeddings: shape.context,
    ...(shape.shortConv ? { short_conv: shape.shortConv } : {}),
  };
}
