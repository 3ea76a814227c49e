/**
 * GGUF version 3 (ggml's docs/gguf.md), so that llama.cpp, Ollama and LM Studio run what was trained here: architecture qwen3, weights as f32, f16 or
 * q8_0, tokenizer and chat template included. Written tensor by tensor from a model directory, atomically.
 */
import { PATTERN } from "./bpe.ts";
import { writeAll, writeAtomically } from "./files.ts";
import { loadModelDir, weightReader } from "./hub.ts";
import { EMBEDDING, FINAL_NORM, type ParameterSpec, parameterSpecs } from "./parameters.ts";
import { encodeTensor } from "./safetensors.ts";
import type { LoadedTokenizer } from "./tokenizer.ts";
import type { ModelConfig } from "./types.ts";

/** The model has something that GGUF's qwen3 cannot say. */
export class GgufError extends Error {
  override name = "GgufError";
}

export type GgufType = "f32" | "f16" | "q8_0";

/** ggml's numbers of the types, and llama.cpp's of files made of them. */
const GGML_TYPE: Record<GgufType, number> = { f32: 0, f16: 1, q8_0: 8 };
const FILE_TYPE: Record<GgufType, number> = { f32: 0, f16: 1, q8_0: 7 };
const ALIGNMENT = 32;
const Q8_BLOCK = 32;

/** Parameter within a layer → GGUF's name. */
const LAYER_NAMES: Record<string, string> = {
  input_layernorm: "attn_norm",
  "self_attn.q_proj": "attn_q",
  "self_attn.k_proj": "attn_k",
  "self_attn.v_proj": "attn_v",
  "self_attn.o_proj": "attn_output",
  "self_attn.q_norm": "attn_q_norm",
  "self_attn.k_norm": "attn_k_norm",
  post_attention_layernorm: "ffn_norm",
  "mlp.gate_proj": "ffn_gate",
  "mlp.up_proj": "ffn_up",
  "mlp.down_proj": "ffn_down",
};

function ggufName(name: string): string {
  if (name === EMBEDDING) return "token_embd.weight";
  if (name === FINAL_NORM) return "output_norm.weight";
  if (name === "lm_head.weight") return "output.weight";
  const match = /^model\.layers\.(\d+)\.(.+)\.weight$/.exec(name);
  const part = match && LAYER_NAMES[match[2]!];
  if (!part) throw new GgufError(`GGUF's qwen3 has no place for the parameter ${name}.`);
  return `blk.${match[1]}.${part}.weight`;
}

/** llama.cpp's names for ways of splitting text before merging, by the pattern in tokenizer.json. */
function preTokenizer(tokenizer: LoadedTokenizer): string {
  const pattern = tokenizer.pattern ?? "";
  if (pattern.includes("[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|")) return "qwen2";
  // Ours (bpe.ts): no merge crosses a split, so splitting at digits alone gives the same tokens; superbpe does that.
  if (pattern === PATTERN) return "superbpe";
  throw new GgufError(
    `llama.cpp has no name that is known here for the tokenizer's split pattern ${JSON.stringify(pattern)}.`,
  );
}

// ---- metadata ----------------------------------------------------------------------------------------------------------

type Value =
  | { type: "u32" | "f32"; value: number }
  | { type: "bool"; value: boolean }
  | { type: "string"; value: string }
  | { type: "strings"; value: readonly string[] }
  | { type: "i32s"; value: readonly number[] };

const u32 = (value: number): Value => ({ type: "u32", value });
const f32 = (value: number): Value => ({ type: "f32", value });
const text = (value: string): Value => ({ type: "string", value });

function modelMetadata(config: ModelConfig, name: string, type: GgufType): Record<string, Value> {
  const head = { "attention.key_length": config.head_dim, "attention.value_length": config.head_dim };
  const sizes = {
    block_count: config.num_hidden_layers,
    context_length: config.max_position_embeddings,
    embedding_length: config.hidden_size,
    feed_forward_length: config.intermediate_size,
    "attention.head_count": config.num_attention_heads,
    "attention.head_count_kv": config.num_key_value_heads,
    ...head,
  };
  return {
    "general.architecture": text("qwen3"),
    "general.name": text(name),
    "general.file_type": u32(FILE_TYPE[type]),
    "general.quantization_version": u32(2),
    "general.alignment": u32(ALIGNMENT),
    ...Object.fromEntries(Object.entries(sizes).map(([key, value]) => [`qwen3.${key}`, u32(value)])),
    "qwen3.attention.layer_norm_rms_epsilon": f32(config.rms_norm_eps),
    "qwen3.rope.freq_base": f32(config.rope_theta),
  };
}

const TOKEN_TYPE = { normal: 1, control: 3, userDefined: 4, unused: 5 };

/** The vocabulary, filled up to the model's size with unused entries. */
function tokenizerMetadata(tokenizer: LoadedTokenizer, vocabulary: number): Record<string, Value> {
  const special = new Set(tokenizer.specials.values());
  const tokens: string[] = [];
  const types: number[] = [];
  for (let id = 0; id < vocabulary; id++) {
    const spelling = tokenizer.spellings[id] ?? "";
    tokens.push(spelling === "" ? `[PAD${id}]` : spelling);
    if (spelling === "") types.push(TOKEN_TYPE.unused);
    else if (tokenizer.hidden.has(id)) types.push(TOKEN_TYPE.control);
    else types.push(special.has(id) ? TOKEN_TYPE.userDefined : TOKEN_TYPE.normal);
  }
  const pad = tokenizer.specials.get("<|endoftext|>");
  return {
    "tokenizer.ggml.model": text("gpt2"),
    "tokenizer.ggml.pre": text(preTokenizer(tokenizer)),
    "tokenizer.ggml.tokens": { type: "strings", value: tokens },
    "tokenizer.ggml.token_type": { type: "i32s", value: types },
    "tokenizer.ggml.merges": { type: "strings", value: tokenizer.merges.map(([a, b]) => `${a} ${b}`) },
    ...(tokenizer.eosId === null ? {} : { "tokenizer.ggml.eos_token_id": u32(tokenizer.eosId) }),
    ...(pad === undefined
      ? {}
      : { "tokenizer.ggml.padding_token_id": u32(pad), "tokenizer.ggml.bos_token_id": u32(pad) }),
    "tokenizer.ggml.add_bos_token": { type: "bool", value: false },
    ...(tokenizer.chatTemplate === null ? {} : { "tokenizer.chat_template": text(tokenizer.chatTemplate) }),
  };
}

/** Little-endian fields, one after the other. */
class Fields {
  #parts: Uint8Array[] = [];
  size = 0;

  bytes(part: Uint8Array): void {
    this.#parts.push(part);
    this.size += part.length;
  }
  #number(length: number, set: (view: DataView) => void): void {
    const part = new Uint8Array(length);
    set(new DataView(part.buffer));
    this.bytes(part);
  }
  u32 = (x: number) => this.#number(4, (view) => view.setUint32(0, x, true));
  u64 = (x: number) => this.#number(8, (view) => view.setBigUint64(0, BigInt(x), true));
  string(x: string): void {
    const utf8 = new TextEncoder().encode(x);
    this.u64(utf8.length);
    this.bytes(utf8);
  }
  /** A metadata value: its type's number, then the value. */
  value(v: Value): void {
    switch (v.type) {
      case "u32":
        this.u32(4);
        this.u32(v.value);
        break;
      case "f32":
        this.u32(6);
        this.#number(4, (view) => view.setFloat32(0, v.value, true));
        break;
      case "bool":
        this.u32(7);
        this.bytes(Uint8Array.of(v.value ? 1 : 0));
        break;
      case "string":
        this.u32(8);
        this.string(v.value);
        break;
      case "strings":
        this.#array(8, v.value.length);
        for (const x of v.value) this.string(x);
        break;
      case "i32s":
        this.#array(5, v.value.length);
        this.bytes(new Uint8Array(Int32Array.from(v.value).buffer));
        break;
    }
  }
  #array(of: number, length: number): void {
    this.u32(9);
    this.u32(of);
    this.u64(length);
  }
  pad(): void {
    this.bytes(new Uint8Array(aligned(this.size) - this.size));
  }
  join(): Uint8Array {
    return Buffer.concat(this.#parts);
  }
}

const aligned = (n: number) => Math.ceil(n / ALIGNMENT) * ALIGNMENT;

// ---- weights -----------------------------------------------------------------------------------------------------------

/** Vectors stay f32, as llama.cpp wants them; rows that q8_0's blocks do not divide become f16. */
function storedType(spec: ParameterSpec, type: GgufType): GgufType {
  if (spec.shape.length === 1) return "f32";
  return type === "q8_0" && spec.shape.at(-1)! % Q8_BLOCK !== 0 ? "f16" : type;
}

function storedBytes(spec: ParameterSpec, type: GgufType): number {
  const n = spec.shape.reduce((product, d) => product * d, 1);
  return type === "f32" ? 4 * n : type === "f16" ? 2 * n : (n / Q8_BLOCK) * (2 + Q8_BLOCK);
}

/** Blocks of 32 values: an f16 scale d = max|x|/127, then round(x/d) as bytes. */
export function quantizeQ8(data: Float32Array): Uint8Array {
  const out = new Uint8Array((data.length / Q8_BLOCK) * (2 + Q8_BLOCK));
  const view = new DataView(out.buffer);
  for (let block = 0; block < data.length / Q8_BLOCK; block++) {
    const x = data.subarray(block * Q8_BLOCK, (block + 1) * Q8_BLOCK);
    let largest = 0;
    for (const value of x) largest = Math.max(largest, Math.abs(value));
    const scale = largest / 127;
    const at = block * (2 + Q8_BLOCK);
    view.setFloat16(at, scale, true);
    for (let i = 0; i < Q8_BLOCK; i++) {
      const q = scale === 0 ? 0 : x[i]! / scale;
      view.setInt8(at + 2 + i, Math.sign(q) * Math.floor(Math.abs(q) + 0.5));
    }
  }
  return out;
}

/**
 * Writes the model directory `dir` as one GGUF file. Throws GgufError for a model with short convolutions (llama.cpp's qwen3 has none, and
 * would compute something else), without a tokenizer, or with a tokenizer that llama.cpp cannot name.
 */
export async function exportGguf(
  dir: string,
  path: string,
  type: GgufType,
  name = "paraagent",
): Promise<{ bytes: number }> {
  const { config, weights, tokenizer } = loadModelDir(dir);
  if (config.short_conv && (config.short_conv.q > 0 || config.short_conv.k > 0))
    throw new GgufError(
      `${dir}: the model has short convolutions (short_conv ${JSON.stringify(config.short_conv)}), which llama.cpp's qwen3 does not compute. Train with shortConv: null to export as GGUF.`,
    );
  if (!tokenizer) throw new GgufError(`${dir}: has no tokenizer.json, and a GGUF file needs its vocabulary.`);
  const specs = parameterSpecs(config);
  const metadata = { ...modelMetadata(config, name, type), ...tokenizerMetadata(tokenizer, config.vocab_size) };
  const header = new Fields();
  header.bytes(new TextEncoder().encode("GGUF"));
  header.u32(3);
  header.u64(specs.length);
  header.u64(Object.keys(metadata).length);
  for (const [key, value] of Object.entries(metadata)) {
    header.string(key);
    header.value(value);
  }
  let offset = 0;
  for (const spec of specs) {
    header.string(ggufName(spec.name));
    header.u32(spec.shape.length);
    // ggml counts dimensions from the innermost.
    for (const d of spec.shape.toReversed()) header.u64(d);
    header.u32(GGML_TYPE[storedType(spec, type)]);
    header.u64(offset);
    offset = aligned(offset + storedBytes(spec, storedType(spec, type)));
  }
  header.pad();
  const read = weightReader(weights);
  await writeAtomically(path, (fd) => {
    writeAll(fd, header.join());
    for (const spec of specs) {
      const stored = storedType(spec, type);
      const data = read(spec);
      const bytes = stored === "q8_0" ? quantizeQ8(data) : encodeTensor(data, stored);
      writeAll(fd, bytes);
      writeAll(fd, new Uint8Array(aligned(bytes.length) - bytes.length));
    }
  });
  return { bytes: header.size + offset };
}

/**
 * Ollama's Modelfile for an exported file: ChatML as agents/chat.ts renders it (observations under `user`), the two ids that end a turn, and greedy
 * decoding without the penalty on repetition that Ollama has by default (its docs/modelfile.md and docs/template.md). Without a TEMPLATE it would
 * send prompts bare. Paths are taken from the Modelfile's folder.
 */
export function ollamaModelfile(ggufName: string, contextTokens: number): string {
  return `FROM ./${ggufName}
TEMPLATE """{{- range .Messages }}<|im_start|>{{ if eq .Role "tool" }}user{{ else }}{{ .Role }}{{ end }}
{{ .Content }}<|im_end|>
{{ end }}<|im_start|>assistant
"""
PARAMETER stop "<|im_end|>"
PARAMETER stop "<|endoftext|>"
PARAMETER num_ctx ${contextTokens}
PARAMETER temperature 0
PARAMETER repeat_penalty 1
`;
}
