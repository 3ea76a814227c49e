/** Model directories in Hugging Face's layout: config.json, generation_config.json, (sharded) safetensors, tokenizer.json and its configuration. */
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { writeAtomic } from "../config/atomic.ts";
import type { Engine } from "../engine/types.ts";
import type { Adapters } from "./lora.ts";
import {
  type LazySafetensors,
  openSafetensors,
  readSafetensors,
  type TensorSource,
  writeSafetensors,
  writeSharded,
} from "./safetensors.ts";
import { type LoadedTokenizer, loadTokenizer } from "./tokenizer.ts";
import type { ModelConfig, Parameters } from "./types.ts";

/** A model directory is incomplete, or holds a model of another kind. The message names the file and the key. */
export class ModelDirError extends Error {
  override name = "ModelDirError";
}

const size = z.int().min(1);
const RopeParameters = z.looseObject({
  rope_type: z.string().optional(),
  rope_theta: z.number().positive().optional(),
});
/** Qwen3's config.json as Transformers 4 and 5 write it; keys that change the computation are held to what is implemented. */
const ConfigJson = z.looseObject({
  model_type: z.literal("qwen3"),
  num_hidden_layers: size,
  hidden_size: size,
  intermediate_size: size,
  num_attention_heads: size,
  num_key_value_heads: size,
  head_dim: size.default(128),
  vocab_size: size,
  rope_theta: z.number().positive().optional(),
  rope_parameters: RopeParameters.nullish(),
  rope_scaling: RopeParameters.nullish(),
  rms_norm_eps: z.number().positive(),
  tie_word_embeddings: z.boolean().default(false),
  max_position_embeddings: size,
  hidden_act: z.literal("silu").default("silu"),
  attention_bias: z.literal(false).default(false),
  use_sliding_window: z.literal(false).default(false),
  short_conv: z.strictObject({ q: z.int().min(0).max(16), k: z.int().min(0).max(16) }).optional(),
});

/** Reads a parsed config.json. Throws ModelDirError if it is not a dense Qwen3 that is computed here. */
export function parseModelConfig(json: unknown, where: string): ModelConfig {
  const parsed = ConfigJson.safeParse(json);
  if (!parsed.success)
    throw new ModelDirError(
      `${where}: not the configuration of a dense Qwen3 model:\n${z.prettifyError(parsed.error)}`,
    );
  const c = parsed.data;
  const rope = c.rope_parameters ?? c.rope_scaling;
  if (rope?.rope_type !== undefined && rope.rope_type !== "default")
    throw new ModelDirError(`${where}: RoPE scaling "${rope.rope_type}" is not implemented; only the default RoPE is.`);
  const rope_theta = c.rope_theta ?? c.rope_parameters?.rope_theta;
  if (rope_theta === undefined)
    throw new ModelDirError(`${where}: neither rope_theta nor rope_parameters.rope_theta is there.`);
  if (c.num_attention_heads % c.num_key_value_heads !== 0 || c.head_dim % 2 !== 0)
    throw new ModelDirError(
      `${where}: num_attention_heads (${c.num_attention_heads}) must be a multiple of num_key_value_heads (${c.num_key_value_heads}), and head_dim (${c.head_dim}) even.`,
    );
  return {
    architectures: ["Qwen3ForCausalLM"],
    model_type: "qwen3",
    num_hidden_layers: c.num_hidden_layers,
    hidden_size: c.hidden_size,
    intermediate_size: c.intermediate_size,
    num_attention_heads: c.num_attention_heads,
    num_key_value_heads: c.num_key_value_heads,
    head_dim: c.head_dim,
    vocab_size: c.vocab_size,
    rope_theta,
    rms_norm_eps: c.rms_norm_eps,
    tie_word_embeddings: c.tie_word_embeddings,
    max_position_embeddings: c.max_position_embeddings,
    ...(c.short_conv ? { short_conv: c.short_conv } : {}),
  };
}

export interface ModelDir {
  config: ModelConfig;
  /** config.json as it stands, with the keys that are not ours: given to `saveModel`, they are kept. */
  rawConfig: Record<string, unknown>;
  weights: LazySafetensors;
  /** Null where the directory has no tokenizer.json. */
  tokenizer: LoadedTokenizer | null;
}

/**
 * Opens a model directory that Transformers or `saveModel` wrote; weights are read when asked for. Throws ModelDirError, SafetensorsError
 * or TokenizerError, each naming the file.
 */
export function loadModelDir(dir: string): ModelDir {
  const file = join(dir, "config.json");
  if (!existsSync(file))
    throw new ModelDirError(`${file}: not found. A model directory has config.json and safetensors.`);
  let json: unknown;
  try {
    json = JSON.parse(readFileSync(file, "utf8"));
  } catch (error) {
    throw new ModelDirError(`${file}: ${error instanceof Error ? error.message : error}`);
  }
  return {
    config: parseModelConfig(json, file),
    rawConfig: z.record(z.string(), z.unknown()).parse(json),
    weights: openSafetensors(dir),
    tokenizer: existsSync(join(dir, "tokenizer.json")) ? loadTokenizer(dir) : null,
  };
}

/**
 * Reads parameters for `loadParameters` (model/parameters.ts), one at a time, widened to f32. Throws ModelDirError where the file's shape is not
 * the one that the configuration gives.
 */
export function weightReader(
  weights: LazySafetensors,
): (spec: { name: string; shape: readonly number[] }) => Float32Array {
  return ({ name, shape }) => {
    const stored = weights.read(name);
    if (stored.shape.join() !== shape.join() || !(stored.data instanceof Float32Array))
      throw new ModelDirError(
        `tensor "${name}" is ${stored.dtype} [${stored.shape}], the configuration asks for [${shape}]: config.json and the weights are of different models.`,
      );
    return stored.data;
  };
}

export interface SaveOptions {
  /** How weights are stored; "as is" takes each tensor's own dtype. */
  dtype?: "f32" | "f16" | "bf16" | "as is";
  maxShardBytes?: number;
  /** String pairs for the safetensors header. */
  metadata?: Record<string, string>;
  /** Keys of a loaded config.json to keep (ModelDir.rawConfig). */
  rawConfig?: Record<string, unknown>;
}

/**
 * Writes a model directory that Transformers loads: weights first, config.json last, each file whole or not at all. A short convolution is
 * kept under the key short_conv (Transformers ignores it, and would compute without it).
 */
export async function saveModel(
  dir: string,
  model: { engine: Engine; config: ModelConfig; parameters: Parameters; tokenizer: LoadedTokenizer | null },
  options: SaveOptions = {},
): Promise<void> {
  const { engine, config, parameters, tokenizer } = model;
  const sources = [...parameters].map(([name, tensor]): TensorSource => {
    if (tensor.dtype === "i32" || tensor.dtype === "u32")
      throw new ModelDirError(`tensor "${name}" is ${tensor.dtype}; weights are f32, f16 or bf16.`);
    return {
      name,
      dtype: tensor.dtype,
      shape: tensor.shape,
      data: async () => {
        const data = await engine.download(tensor);
        if (!(data instanceof Float32Array)) throw new ModelDirError(`tensor "${name}" came back as integers.`);
        return data;
      },
    };
  });
  await writeModelDir(dir, sources, config, tokenizer, options);
}

/** The folder of a model directory that its low-rank adapters are in, in PEFT's layout. */
const ADAPTER_DIR = "adapter";

/** Writes a model's adapters beside its (unchanged) weights, as PEFT reads them. Merge with Model.mergeAdapters. */
export async function saveAdapters(dir: string, adapters: Adapters): Promise<void> {
  const { tensors, config } = await adapters.export();
  const sources = [...tensors].map(([name, tensor]): TensorSource => ({ name, dtype: "f32", ...tensor }));
  await writeSafetensors(join(dir, ADAPTER_DIR, "adapter_model.safetensors"), sources, { format: "pt" });
  writeAtomic(join(dir, ADAPTER_DIR, "adapter_config.json"), `${JSON.stringify(config, null, 2)}\n`);
}

/** Reads back what `saveAdapters` wrote, into adapters of the same rank and targets. */
export function loadAdapters(dir: string, adapters: Adapters): void {
  adapters.import(readSafetensors(join(dir, ADAPTER_DIR, "adapter_model.safetensors")).tensors);
}

/** Copies a model directory into another one, with its weights in another precision or other shards. One tensor at a time is in memory. */
export async function convertModelDir(from: string, to: string, options: SaveOptions): Promise<void> {
  const { config, rawConfig, weights, tokenizer } = loadModelDir(from);
  weights.verify();
  const sources = [...weights.tensors].map(([name, { dtype, shape }]): TensorSource => {
    const own = STORED_AS[dtype];
    if (!own) throw new ModelDirError(`tensor "${name}" is ${dtype}; weights are F32, F16 or BF16.`);
    return { name, dtype: own, shape, data: () => weights.read(name).data };
  });
  await writeModelDir(to, sources, config, tokenizer, { rawConfig, ...options });
}

const STORED_AS: Record<string, "f32" | "f16" | "bf16"> = { F32: "f32", F16: "f16", BF16: "bf16" };

/** Writes a model directory from tensors wherever they come from; see `saveModel`. */
export async function writeModelDir(
  dir: string,
  own: readonly TensorSource[],
  config: ModelConfig,
  tokenizer: LoadedTokenizer | null,
  options: SaveOptions,
): Promise<void> {
  mkdirSync(dir, { recursive: true });
  const chosen = options.dtype ?? "f32";
  const sources = own.map((source) => (chosen === "as is" ? source : { ...source, dtype: chosen }));
  await writeSharded(dir, sources, {
    ...(options.metadata ? { metadata: options.metadata } : {}),
    ...(options.maxShardBytes ? { maxShardBytes: options.maxShardBytes } : {}),
  });
  await tokenizer?.save(dir);
  writeConfigs(dir, config, tokenizer, sources[0]?.dtype ?? "f32", options.rawConfig ?? {});
}

const TORCH_DTYPES = { f32: "float32", f16: "float16", bf16: "bfloat16", i32: "int32" };

function writeConfigs(
  dir: string,
  config: ModelConfig,
  tokenizer: LoadedTokenizer | null,
  dtype: TensorSource["dtype"],
  raw: Record<string, unknown>,
): void {
  const json = (name: string, value: unknown) => writeAtomic(join(dir, name), `${JSON.stringify(value, null, 2)}\n`);
  const end = tokenizer?.eosId ?? null;
  const pad = tokenizer?.specials.get("<|endoftext|>") ?? null;
  const ends = [end, pad].filter((id) => id !== null);
  json("generation_config.json", {
    do_sample: true,
    ...(ends.length > 0 ? { eos_token_id: ends } : {}),
    ...(pad === null ? {} : { pad_token_id: pad }),
    temperature: 1,
  });
  json("config.json", {
    attention_bias: false,
    attention_dropout: 0,
    hidden_act: "silu",
    initializer_range: 0.02,
    rope_scaling: null,
    sliding_window: null,
    use_cache: true,
    use_sliding_window: false,
    ...(end === null ? {} : { eos_token_id: end }),
    ...raw,
    ...config,
    // Transformers 5 renamed the key.
    ["dtype" in raw ? "dtype" : "torch_dtype"]: TORCH_DTYPES[dtype],
  });
}
