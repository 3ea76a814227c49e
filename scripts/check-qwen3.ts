/**
 * `bun scripts/check-qwen3.ts`: a model directory with Qwen3-0.6B's shapes and random weights (bf16, two shards, Qwen3's own tokenizer) is
 * written, loaded, sampled from for 8 tokens, trained for one LoRA step, and saved again: unchanged to the byte but for the adapters.
 * Takes some minutes and 4 GB; not part of the tests.
 */
import { createHash } from "node:crypto";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openEngine } from "../lib/engine/open.ts";
import { hash2 } from "../lib/engine/random.ts";
import type { DeviceRequest } from "../lib/engine/types.ts";
import { createGenerator } from "../lib/model/generator.ts";
import { loadModelDir, saveAdapters, saveModel, weightReader, writeModelDir } from "../lib/model/hub.ts";
import { Model } from "../lib/model/model.ts";
import { Optimizer } from "../lib/model/optimizer.ts";
import { elements, parameterSpecs } from "../lib/model/parameters.ts";
import { loadTokenizer, qwen3TokenizerDir } from "../lib/model/tokenizer.ts";
import type { ModelConfig } from "../lib/model/types.ts";
import { pack } from "../lib/train/batch.ts";
import { sftLoss } from "../lib/train/losses.ts";
import { main } from "./cli.ts";

const config: ModelConfig = {
  architectures: ["Qwen3ForCausalLM"],
  model_type: "qwen3",
  num_hidden_layers: 28,
  hidden_size: 1024,
  intermediate_size: 3072,
  num_attention_heads: 16,
  num_key_value_heads: 8,
  head_dim: 128,
  vocab_size: 151936,
  rope_theta: 1e6,
  rms_norm_eps: 1e-6,
  tie_word_embeddings: true,
  max_position_embeddings: 40960,
};

/** Values of about the size that trained weights have; a table of them is enough, since only shapes and bits matter. */
function randomValues(size: number, seed: number, scale: number): Float32Array {
  const table = Float32Array.from({ length: 4093 }, (_, i) => (hash2(seed, i) / 2 ** 31 - 1) * scale);
  return Float32Array.from({ length: size }, (_, i) => table[i % 4093]!);
}

const digests = (dir: string) =>
  Object.fromEntries(
    readdirSync(dir)
      .filter((name) => /\.(safetensors|json)$/.test(name))
      .sort()
      .map((name) => [
        name,
        createHash("sha256")
          .update(readFileSync(join(dir, name)))
          .digest("hex"),
      ]),
  );

await main(
  {
    name: "check-qwen3",
    summary: "a Qwen3-0.6B-shaped model directory loads, generates, trains an adapter and is saved again unchanged",
    usage: ["bun scripts/check-qwen3.ts [--device cpu]"],
    flags: { device: { type: "string", default: "auto", help: "auto, cpu, gpu, software" } },
  },
  async (args) => {
    const root = mkdtempSync(join(tmpdir(), "qwen3-"));
    try {
      const tokenizer = loadTokenizer(qwen3TokenizerDir());
      const [first, second] = [join(root, "first"), join(root, "second")];
      const shards = { dtype: "bf16" as const, maxShardBytes: 700e6 };
      args.progress.log("writing 0.6 B random weights in bf16, two shards …");
      const sources = parameterSpecs(config).map((spec, i) => ({
        ...{ name: spec.name, dtype: "bf16" as const, shape: spec.shape },
        data: () =>
          spec.name.endsWith("norm.weight")
            ? new Float32Array(elements(spec.shape)).fill(1)
            : randomValues(elements(spec.shape), i, 0.03),
      }));
      await writeModelDir(first, sources, config, tokenizer, shards);
      const engine = await openEngine((args.text("device") ?? "auto") as DeviceRequest);
      args.progress.log(`loading on ${engine.info.description} …`);
      const loaded = loadModelDir(first);
      const lora = { rank: 8, alpha: 16, targets: ["q_proj", "v_proj"], seed: 1 };
      const model = await Model.load(engine, loaded.config, weightReader(loaded.weights), {
        dtype: "bf16",
        recompute: true,
        lora,
      });
      const promptIds = Int32Array.from(tokenizer.encode("<|im_start|>user\nHello<|im_end|>\n", { special: true }));
      const generator = createGenerator(model, { maxBatch: 1, cacheTokens: 256, maxTokens: 64 });
      const sampled = await generator.generate({ promptIds, maxNewTokens: 8, temperature: 1, seed: 1, stopIds: [] });
      generator.close();
      args.progress.log(`sampled ${JSON.stringify(tokenizer.decode(sampled.ids))}`);
      const ids = Int32Array.from([...promptIds, ...sampled.ids]);
      const batch = pack([{ ids, actionMask: Uint8Array.from(ids, (_, i) => (i < promptIds.length ? 0 : 1)) }]);
      const optimizer = new Optimizer(engine, model.trainable());
      const losses: number[] = [];
      for (let step = 0; step < 2; step++) {
        model.zeroGrad();
        losses.push((await model.forwardBackward(batch, (lp) => sftLoss(lp, lp.length))).loss.loss);
        if (step === 0) await optimizer.step(1e-3);
      }
      args.progress.log(`LoRA step: loss ${losses.map((l) => l.toFixed(4)).join(" → ")}`);
      await saveModel(
        second,
        { engine, config, parameters: model.parameters, tokenizer },
        { ...shards, rawConfig: loaded.rawConfig },
      );
      await saveAdapters(second, model.adapters!);
      const [before, after] = [digests(first), digests(second)];
      const changed = Object.keys({ ...before, ...after }).filter((name) => before[name] !== after[name]);
      const result = {
        parameters: parameterSpecs(config).reduce((n, s) => n + elements(s.shape), 0),
        shards: Object.keys(before).filter((name) => name.endsWith(".safetensors")).length,
        tokens: sampled.ids,
        losses,
        changed,
        adapters: readdirSync(join(second, "adapter")).sort(),
        peakBytes: engine.memory().peakBytes,
        passed: changed.length === 0 && losses[1]! < losses[0]!,
      };
      if (!args.json) process.stdout.write(`${JSON.stringify(result, null, 1)}\n`);
      return { json: result, exit: result.passed ? 0 : 1 };
    } finally {
      rmSync(root, { recursive: true, force: true });
    }
  },
);
