/** The parameters of a Qwen3-style decoder: names and shapes as in Hugging Face's checkpoints, and their initial values. */
import { hash2, uniform } from "../engine/random.ts";
import type { Engine, Tensor } from "../engine/types.ts";
import type { ModelConfig, Parameters } from "./types.ts";

/** What a parameter is to the optimiser: embeddings and matrices decay, vectors (norms, convolution taps) do not; Muon takes matrices. */
export type ParameterKind = "embedding" | "matrix" | "vector" | "adapter";

export interface ParameterSpec {
  name: string;
  shape: number[];
  kind: ParameterKind;
}

/** A configuration or a set of weights that does not make a model: what is wrong, and where. */
export class ModelError extends Error {
  override name = "ModelError";
}

/** Checks what the shapes rely on. Throws ModelError. */
export function checkConfig(c: ModelConfig): void {
  const whole = [
    c.num_hidden_layers,
    c.hidden_size,
    c.intermediate_size,
    c.num_attention_heads,
    c.num_key_value_heads,
    c.head_dim,
    c.vocab_size,
  ];
  if (whole.some((n) => !Number.isSafeInteger(n) || n < 1)) {
    throw new ModelError(`model config: sizes must be positive integers, got ${JSON.stringify(c)}`);
  }
  if (c.num_attention_heads % c.num_key_value_heads !== 0) {
    throw new ModelError(
      `model config: ${c.num_attention_heads} heads do not divide among ${c.num_key_value_heads} key/value heads`,
    );
  }
  if (c.head_dim % 2 !== 0)
    throw new ModelError(`model config: head_dim ${c.head_dim} is odd, rotary positions need pairs`);
}

/** Name within a layer → full name. */
export const layerName = (layer: number, part: string) => `model.layers.${layer}.${part}.weight`;
export const EMBEDDING = "model.embed_tokens.weight";
export const FINAL_NORM = "model.norm.weight";
/** The output projection: the embedding itself where tied. */
export const headName = (c: ModelConfig) => (c.tie_word_embeddings ? EMBEDDING : "lm_head.weight");

/** All parameters in the order of the forward pass. */
export function parameterSpecs(c: ModelConfig): ParameterSpec[] {
  checkConfig(c);
  const [C, F, D] = [c.hidden_size, c.intermediate_size, c.head_dim];
  const [Q, KV] = [c.num_attention_heads * D, c.num_key_value_heads * D];
  const specs: ParameterSpec[] = [{ name: EMBEDDING, shape: [c.vocab_size, C], kind: "embedding" }];
  for (let l = 0; l < c.num_hidden_layers; l++) {
    const add = (part: string, kind: ParameterKind, ...shape: number[]) =>
      specs.push({ name: layerName(l, part), shape, kind });
    add("input_layernorm", "vector", C);
    add("self_attn.q_proj", "matrix", Q, C);
    add("self_attn.k_proj", "matrix", KV, C);
    add("self_attn.v_proj", "matrix", KV, C);
    if (c.short_conv?.q) add("self_attn.q_conv", "vector", Q, c.short_conv.q);
    if (c.short_conv?.k) add("self_attn.k_conv", "vector", KV, c.short_conv.k);
    add("self_attn.q_norm", "vector", D);
    add("self_attn.k_norm", "vector", D);
    add("self_attn.o_proj", "matrix", C, Q);
    add("post_attention_layernorm", "vector", C);
    add("mlp.gate_proj", "matrix", F, C);
    add("mlp.up_proj", "matrix", F, C);
    add("mlp.down_proj", "matrix", C, F);
  }
  specs.push({ name: FINAL_NORM, shape: [C], kind: "vector" });
  if (!c.tie_word_embeddings) specs.push({ name: headName(c), shape: [c.vocab_size, C], kind: "embedding" });
  return specs;
}

export const elements = (shape: readonly number[]) => shape.reduce((n, d) => n * d, 1);

export const countParameters = (c: ModelConfig) => parameterSpecs(c).reduce((sum, s) => sum + elements(s.shape), 0);

/** n draws from N(0, std²): Box and Muller's transform of the counter-based generator. */
export function normals(n: number, std: number, seed: number): Float32Array {
  const out = new Float32Array(n);
  for (let i = 0; i < n; i += 2) {
    const radius = std * Math.sqrt(-2 * Math.log(1 - uniform(seed, i)));
    const angle = 2 * Math.PI * uniform(seed, i + 1);
    out[i] = radius * Math.cos(angle);
    if (i + 1 < n) out[i + 1] = radius * Math.sin(angle);
  }
  return out;
}

/** A seed for one tensor, from the model's seed and the tensor's name. */
export function seedFor(seed: number, name: string): number {
  let h = hash2(seed, name.length);
  for (let i = 0; i < name.length; i++) h = hash2(h, name.charCodeAt(i));
  return h;
}

/**
 * Initial values. Norms 1; embeddings N(0, 0.02²); matrices N(0, 1/(4·fan-in)), those that write to the residual stream (o_proj, down_proj) less by
 * √(2·layers) as in GPT-2; convolution taps uniform in ±1/√taps.
 */
export function initialValues(c: ModelConfig, spec: ParameterSpec, seed: number): Float32Array {
  const n = elements(spec.shape);
  const own = seedFor(seed, spec.name);
  if (spec.kind === "embedding") return normals(n, 0.02, own);
  if (spec.name.endsWith("_conv.weight")) {
    const bound = 1 / Math.sqrt(spec.shape[1]!);
    return Float32Array.from({ length: n }, (_, i) => bound * (2 * uniform(own, i) - 1));
  }
  if (spec.kind === "vector") return new Float32Array(n).fill(1);
  const residual = /(o_proj|down_proj)\.weight$/.test(spec.name);
  return normals(n, 0.5 / Math.sqrt(spec.shape[1]! * (residual ? 2 * c.num_hidden_layers : 1)), own);
}

/**
 * Puts all parameters on the engine, one at a time. `read` gives a parameter's values; matrices and embeddings are kept as `dtype`, vectors as
 * f32. Throws ModelError where the number of values is wrong.
 */
export async function loadParameters(
  engine: Engine,
  c: ModelConfig,
  read: (spec: ParameterSpec) => Float32Array | Promise<Float32Array>,
  dtype: "f32" | "f16" | "bf16",
): Promise<Parameters> {
  const parameters = new Map<string, Tensor>();
  for (const spec of parameterSpecs(c)) {
    const data = await read(spec);
    if (data.length !== elements(spec.shape)) {
      throw new ModelError(
        `parameter ${spec.name}: shape [${spec.shape}] by the config, but ${data.length} values were given`,
      );
    }
    const tensor = engine.alloc(spec.shape, spec.kind === "vector" ? "f32" : dtype, spec.name);
    engine.upload(tensor, data);
    parameters.set(spec.name, tensor);
  }
  return parameters;
}
