import { afterAll, expect, setDefaultTimeout, test } from "bun:test";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { uniform } from "../engine/random.ts";
import { openReferenceEngine } from "../engine/reference/index.ts";
import { trainTokenizer } from "./bpe.ts";
import { loadModelDir, parseModelConfig, saveModel, weightReader } from "./hub.ts";
import { writeSharded } from "./safetensors.ts";
import type { ModelConfig, Parameters } from "./types.ts";

setDefaultTimeout(60_000);

const dir = mkdtempSync(join(tmpdir(), "hub-"));
afterAll(() => rmSync(dir, { recursive: true }));
const engine = await openReferenceEngine();

const config: ModelConfig = {
  architectures: ["Qwen3ForCausalLM"],
  model_type: "qwen3",
  num_hidden_layers: 1,
  hidden_size: 8,
  intermediate_size: 12,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  head_dim: 4,
  vocab_size: 300,
  rope_theta: 10000,
  rms_norm_eps: 1e-6,
  tie_word_embeddings: true,
  max_position_embeddings: 64,
  short_conv: { q: 2, k: 3 },
};

function randomParameters(dtype: "f32" | "bf16"): Parameters {
  const parameters: Parameters = new Map();
  for (const [name, shape] of [
    ["model.embed_tokens.weight", [300, 8]],
    ["model.layers.0.mlp.gate_proj.weight", [12, 8]],
    ["model.norm.weight", [8]],
  ] as const) {
    const tensor = engine.alloc(shape, dtype, name);
    engine.upload(
      tensor,
      Float32Array.from({ length: tensor.size }, (_, i) => uniform(parameters.size, i) - 0.5),
    );
    parameters.set(name, tensor);
  }
  return parameters;
}

test("a saved directory loads again: configuration, weights to the bit, tokenizer", async () => {
  const tokenizer = await trainTokenizer(["the cat and the hat and the bat"], { vocabSize: 262, tags: ["<answer>"] });
  for (const [name, dtype, maxShardBytes] of [
    ["one", "f32", undefined],
    ["many", "bf16", 1000],
  ] as const) {
    const folder = join(dir, name);
    const parameters = randomParameters(dtype);
    await saveModel(
      folder,
      { engine, config, parameters, tokenizer },
      { dtype: "as is", ...(maxShardBytes ? { maxShardBytes } : {}) },
    );
    const loaded = loadModelDir(folder);
    expect(loaded.config).toEqual(config);
    expect(loaded.tokenizer?.encode("the hat<answer>", { special: true })).toEqual(
      tokenizer.encode("the hat<answer>", { special: true }),
    );
    expect([...loaded.weights.tensors.keys()].sort()).toEqual([...parameters.keys()].sort());
    const read = weightReader(loaded.weights);
    for (const tensor of parameters.values()) {
      expect(read({ name: tensor.label, shape: tensor.shape })).toEqual(
        Float32Array.from(await engine.download(tensor)),
      );
    }
    expect(() => read({ name: "model.norm.weight", shape: [9] })).toThrow(
      /"model.norm.weight" is (bf16|f32) \[8\], the configuration asks for \[9\]/,
    );
    const json = JSON.parse(readFileSync(join(folder, "config.json"), "utf8"));
    expect(json).toMatchObject({
      torch_dtype: dtype === "f32" ? "float32" : "bfloat16",
      hidden_act: "silu",
      short_conv: { q: 2, k: 3 },
    });
    const generation = JSON.parse(readFileSync(join(folder, "generation_config.json"), "utf8"));
    expect(generation.eos_token_id).toEqual([tokenizer.eosId, tokenizer.specials.get("<|endoftext|>")]);
  }
});

/** What Transformers writes for Qwen3-0.6B (version 4), and the changed keys of version 5. */
const transformers4 = {
  architectures: ["Qwen3ForCausalLM"],
  attention_bias: false,
  attention_dropout: 0.0,
  bos_token_id: 151643,
  eos_token_id: 151645,
  head_dim: 128,
  hidden_act: "silu",
  hidden_size: 1024,
  initializer_range: 0.02,
  intermediate_size: 3072,
  max_position_embeddings: 40960,
  max_window_layers: 28,
  model_type: "qwen3",
  num_attention_heads: 16,
  num_hidden_layers: 28,
  num_key_value_heads: 8,
  rms_norm_eps: 1e-6,
  rope_scaling: null,
  rope_theta: 1000000,
  sliding_window: null,
  tie_word_embeddings: true,
  torch_dtype: "bfloat16",
  transformers_version: "4.51.0",
  use_cache: true,
  use_sliding_window: false,
  vocab_size: 151936,
};

test("configurations of both Transformers versions are read, and foreign keys are kept", async () => {
  const { rope_theta, torch_dtype, rope_scaling, ...rest } = transformers4;
  const transformers5 = { ...rest, dtype: torch_dtype, rope_parameters: { rope_theta, rope_type: "default" } };
  expect(parseModelConfig(transformers5, "5")).toEqual(parseModelConfig(transformers4, "4"));
  expect(parseModelConfig(transformers4, "4")).toMatchObject({ rope_theta: 1e6, head_dim: 128, vocab_size: 151936 });
  const folder = join(dir, "foreign");
  mkdirSync(folder);
  writeFileSync(join(folder, "config.json"), JSON.stringify(transformers5));
  const weight = { dtype: "bf16" as const, shape: [2, 2], data: new Float32Array([1, 2, 3, 4]) };
  await writeSharded(folder, [{ name: "model.norm.weight", ...weight }]);
  const loaded = loadModelDir(folder);
  const parameters = randomParameters("bf16");
  const out = join(dir, "foreign-again");
  await saveModel(out, { engine, parameters, ...loaded }, { dtype: "bf16", rawConfig: loaded.rawConfig });
  const json = JSON.parse(readFileSync(join(out, "config.json"), "utf8"));
  expect(json).toMatchObject({ transformers_version: "4.51.0", bos_token_id: 151643, dtype: "bfloat16" });
  expect(json.torch_dtype).toBeUndefined();
});

test("models of another kind are refused, naming the key", () => {
  const refuse = (change: object) => expect(() => parseModelConfig({ ...transformers4, ...change }, "x/config.json"));
  refuse({ model_type: "llama" }).toThrow(/x\/config.json[\s\S]*model_type/);
  refuse({ attention_bias: true }).toThrow(/attention_bias/);
  refuse({ use_sliding_window: true }).toThrow(/use_sliding_window/);
  refuse({ rope_scaling: { rope_type: "yarn", factor: 4 } }).toThrow(/"yarn" is not implemented/);
  refuse({ num_key_value_heads: 3 }).toThrow(/multiple of/);
  refuse({ hidden_size: undefined }).toThrow(/hidden_size/);
  expect(() => loadModelDir(join(dir, "nothing"))).toThrow(/config.json: not found/);
});
