import { afterAll, expect, setDefaultTimeout, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openCpuEngine } from "../engine/cpu/index.ts";
import { uniform } from "../engine/random.ts";
import { openReferenceEngine } from "../engine/reference/index.ts";
import { trainTokenizer } from "./bpe.ts";
import { exportGguf, GgufError, type GgufType, quantizeQ8 } from "./gguf.ts";
import { loadModelDir, saveModel } from "./hub.ts";
import { compareWithLlama, llamaInstalled } from "./llama.ts";
import { Model } from "./model.ts";
import { Optimizer } from "./optimizer.ts";
import type { ModelConfig } from "./types.ts";

setDefaultTimeout(60_000);
const dir = mkdtempSync(join(tmpdir(), "gguf-"));
afterAll(() => rmSync(dir, { recursive: true }));
const engine = await openCpuEngine();

/** A text that the model is trained on and compared over: long enough for 256 tokens. */
const text = Array.from(
  { length: 24 },
  (_, i) =>
    `The ${["red", "green", "blue"][i % 3]} box holds ${(i * 7) % 10} "small_things", not ${i % 7}; see <b>note ${i}</b>.\n`,
).join("");
const tokenizer = await trainTokenizer([text], { vocabSize: 290, tags: ["<think>", "</think>"] });
const config: ModelConfig = {
  architectures: ["Qwen3ForCausalLM"],
  model_type: "qwen3",
  num_hidden_layers: 2,
  hidden_size: 64,
  intermediate_size: 96,
  num_attention_heads: 3,
  num_key_value_heads: 1,
  head_dim: 32,
  vocab_size: 296,
  rope_theta: 1e6,
  rms_norm_eps: 1e-6,
  tie_word_embeddings: true,
  max_position_embeddings: 512,
};

interface Gguf {
  metadata: Map<string, unknown>;
  tensors: Map<string, { dims: number[]; type: number; bytes: Uint8Array }>;
}

/** A reader of its own, by the format's description: it must find every field where the format says. */
function parseGguf(bytes: Buffer): Gguf {
  let at = 0;
  const u32 = () => bytes.readUInt32LE((at += 4) - 4);
  const u64 = () => Number(bytes.readBigUInt64LE((at += 8) - 8));
  const string = () => {
    const length = u64();
    return bytes.toString("utf8", at, (at += length));
  };
  const value = (type: number): unknown => {
    if (type === 4) return u32();
    if (type === 5) return bytes.readInt32LE((at += 4) - 4);
    if (type === 6) return bytes.readFloatLE((at += 4) - 4);
    if (type === 7) return bytes.readUInt8(at++) === 1;
    if (type === 8) return string();
    if (type !== 9) throw new Error(`type ${type}`);
    const of = u32();
    return Array.from({ length: u64() }, () => value(of));
  };
  expect(bytes.toString("latin1", 0, 4)).toBe("GGUF");
  at = 4;
  expect(u32()).toBe(3);
  const [tensorCount, pairCount] = [u64(), u64()];
  const metadata = new Map<string, unknown>();
  for (let i = 0; i < pairCount; i++) metadata.set(string(), value(u32()));
  const infos = Array.from({ length: tensorCount }, () => {
    const name = string();
    const dims = Array.from({ length: u32() }, u64);
    return { name, dims, type: u32(), offset: u64() };
  });
  const start = Math.ceil(at / 32) * 32;
  const tensors: Gguf["tensors"] = new Map();
  for (const { name, dims, type, offset } of infos) {
    const n = dims.reduce((a, b) => a * b, 1);
    expect(offset % 32).toBe(0);
    const size = type === 0 ? 4 * n : type === 1 ? 2 * n : (n / 32) * 34;
    expect(start + offset + size).toBeLessThanOrEqual(bytes.length);
    tensors.set(name, { dims, type, bytes: bytes.subarray(start + offset, start + offset + size) });
  }
  return { metadata, tensors };
}

const floats = (bytes: Uint8Array) => new Float32Array(Uint8Array.from(bytes).buffer);

test("every weight, size and token is in the file, where the format wants it", async () => {
  const model = await Model.create(engine, { ...config, tie_word_embeddings: false }, 1);
  const folder = join(dir, "plain");
  await saveModel(folder, { ...model, tokenizer }, {});
  const path = join(dir, "plain.gguf");
  const { bytes } = await exportGguf(folder, path, "f32", "a test");
  const file = readFileSync(path);
  expect(file.length).toBe(bytes);
  const { metadata, tensors } = parseGguf(file);
  const expected = { architecture: "qwen3", name: "a test", file_type: 0 };
  for (const [key, value] of Object.entries(expected)) expect<unknown>(metadata.get(`general.${key}`)).toBe(value);
  expect<unknown>(metadata.get("qwen3.attention.head_count")).toBe(3);
  expect<unknown>(metadata.get("qwen3.attention.key_length")).toBe(32);
  expect<unknown>(metadata.get("qwen3.rope.freq_base")).toBe(1e6);
  const tokens = metadata.get("tokenizer.ggml.tokens") as string[];
  const types = metadata.get("tokenizer.ggml.token_type") as number[];
  expect([tokens.length, types.length]).toEqual([296, 296]);
  expect(tokens.slice(0, 290)).toEqual([...tokenizer.spellings]);
  expect([
    types[0],
    types[tokenizer.specials.get("<|im_end|>")!],
    types[tokenizer.specials.get("<think>")!],
    types[295],
  ]).toEqual([1, 3, 4, 5]);
  expect<unknown>(metadata.get("tokenizer.ggml.eos_token_id")).toBe(tokenizer.eosId);
  expect<unknown>(metadata.get("tokenizer.chat_template")).toBe(tokenizer.chatTemplate);
  const arrays = await model.arrays();
  expect(tensors.size).toBe(arrays.size);
  expect(tensors.get("blk.1.ffn_down.weight")!.dims).toEqual([96, 64]);
  for (const [ours, theirs] of [
    ["model.layers.1.mlp.down_proj.weight", "blk.1.ffn_down.weight"],
    ["model.layers.0.post_attention_layernorm.weight", "blk.0.ffn_norm.weight"],
    ["lm_head.weight", "output.weight"],
  ] as const)
    expect<unknown>(floats(tensors.get(theirs)!.bytes)).toEqual(arrays.get(ours));
});

test("q8_0 keeps every value within half a step of its block, and norms stay f32", async () => {
  const data = Float32Array.from({ length: 320 }, (_, i) => (uniform(3, i) - 0.5) * 10 ** (Math.floor(i / 32) - 5));
  const bytes = quantizeQ8(data);
  const view = new DataView(bytes.buffer);
  for (const [i, x] of data.entries()) {
    const at = Math.floor(i / 32) * 34;
    const scale = view.getFloat16(at, true);
    const largest = Math.max(...data.subarray(Math.floor(i / 32) * 32, Math.floor(i / 32) * 32 + 32).map(Math.abs));
    // The scale is rounded to f16: a 2,048th of it, and below 6e-5 a fixed step.
    const slack = 127 * Math.max(scale / 2048, 2 ** -25);
    expect(Math.abs(scale * view.getInt8(at + 2 + (i % 32)) - x)).toBeLessThanOrEqual(largest / 254 + slack);
  }
  expect(quantizeQ8(new Float32Array(32))).toEqual(new Uint8Array(34));
  await exportGguf(join(dir, "plain"), join(dir, "q8.gguf"), "q8_0");
  const { tensors } = parseGguf(readFileSync(join(dir, "q8.gguf")));
  expect(tensors.get("blk.0.attn_q.weight")!.type).toBe(8);
  expect(tensors.get("blk.0.attn_q_norm.weight")!.type).toBe(0);
});

test("what llama.cpp would compute otherwise is refused with the reason", async () => {
  const convolved = { ...config, short_conv: { q: 2, k: 3 } };
  const model = await Model.create(engine, convolved, 1);
  await saveModel(join(dir, "conv"), { ...model, tokenizer }, {});
  expect(exportGguf(join(dir, "conv"), join(dir, "x.gguf"), "f32")).rejects.toThrow(
    /short convolutions.*shortConv: null/,
  );
  await saveModel(join(dir, "bare"), { ...(await Model.create(engine, config, 1)), tokenizer: null }, {});
  expect(exportGguf(join(dir, "bare"), join(dir, "x.gguf"), "f32")).rejects.toThrow(GgufError);
});

test.skipIf(!llamaInstalled())(
  "llama.cpp computes the same probabilities for a trained model, and the same tokens",
  async () => {
    const model = await Model.create(engine, config, 1);
    const ids = tokenizer.encode(text).slice(0, 256);
    expect(ids.length).toBe(256);
    const optimizer = new Optimizer(engine, model.trainable());
    const batch = {
      ids: Int32Array.from(ids),
      cumulative: Int32Array.of(0, 256),
      rows: Int32Array.from({ length: 255 }, (_, i) => i),
      targets: Int32Array.from(ids.slice(1)),
    };
    const train = async (steps: number) => {
      let loss = 0;
      for (let step = 0; step < steps; step++) {
        model.zeroGrad();
        const { lp } = await model.forwardBackward(batch, (x) => ({ dLp: new Float32Array(x.length).fill(-1 / 255) }));
        loss = -lp.reduce((a, b) => a + b) / 255;
        await optimizer.step(0.01);
      }
      return loss;
    };
    expect(await train(30)).toBeLessThan(2);
    const folder = join(dir, "trained");
    await saveModel(folder, { ...model, tokenizer }, {});
    const { tokenizer: loaded } = loadModelDir(folder);
    const bounds: [GgufType, number][] = [
      ["f32", 1e-5],
      ["f16", 5e-3],
      ["q8_0", 0.2],
    ];
    const texts = [text, 'a "quote", 12.5% of it?!\n\n  two  spaces\t{"k":["v",-3]}', "naïve Zürich 東京 👩‍👩‍👧 ½²"];
    for (const [type, bound] of bounds) {
      const path = join(dir, `trained.${type}.gguf`);
      await exportGguf(folder, path, type);
      const result = await compareWithLlama(model, loaded!, path, { ids, texts });
      expect(result.largestDifference).toBeLessThan(bound);
      expect(result.differentTexts).toEqual([]);
    }
    // Near certainty, where rounding shows most: ours and the float64 engine both lie within the bound of llama.cpp.
    expect(await train(70)).toBeLessThan(0.2);
    await saveModel(folder, { ...model, tokenizer }, {});
    const path = join(dir, "certain.gguf");
    await exportGguf(folder, path, "f32");
    const exact = await Model.fromArrays(await openReferenceEngine(), config, await model.arrays());
    for (const ours of [model, exact]) {
      const { largestDifference } = await compareWithLlama(ours, loaded!, path, { ids, texts });
      expect(largestDifference).toBeLessThan(1e-5);
    }
  },
);
