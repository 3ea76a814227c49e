/** What the tests of training share: a tiny model, documents that it can learn, and a stage context that remembers. */
import { appendFileSync } from "node:fs";
import { join } from "node:path";
import { openEngine } from "../../engine/open.ts";
import { hash2 } from "../../engine/random.ts";
import type { DeviceRequest, Engine } from "../../engine/types.ts";
import { Model } from "../../model/model.ts";
import type { ModelConfig } from "../../model/types.ts";
import type { StageContext } from "../../runs/types.ts";
import type { Document } from "../batch.ts";

/** The cpu engine, or the one that PARAAGENT_TEST_DEVICE names (software, gpu, …): all of training is to hold on each. */
export const testEngine = (): Promise<Engine> =>
  openEngine((process.env.PARAAGENT_TEST_DEVICE ?? "cpu") as DeviceRequest);

export const tinyConfig: ModelConfig = {
  architectures: ["Qwen3ForCausalLM"],
  model_type: "qwen3",
  num_hidden_layers: 1,
  hidden_size: 16,
  intermediate_size: 24,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  head_dim: 8,
  vocab_size: 24,
  rope_theta: 10000,
  rms_norm_eps: 1e-6,
  tie_word_embeddings: true,
  max_position_embeddings: 64,
};

export const tinyModel = (engine: Engine, seed = 1): Promise<Model> => Model.create(engine, tinyConfig, seed);

/** Documents "x s x+1 x+2 s' …": after a prompt of random tokens the answer counts upwards from the first one. Actions are the answer. */
export function countingDocuments(n: number, seed: number): Document[] {
  return Array.from({ length: n }, (_, d) => {
    const draw = (i: number) => hash2(seed * 1000 + d, i) % 8;
    const start = draw(0);
    const prompt = [start, ...Array.from({ length: 1 + (draw(1) % 3) }, (_, i) => 8 + draw(2 + i))];
    const answer = Array.from({ length: 3 + (draw(9) % 3) }, (_, i) => ((start + i + 1) % 8) + 16);
    const ids = Int32Array.from([...prompt, ...answer]);
    return { ids, actionMask: Uint8Array.from(ids, (_, i) => (i >= prompt.length ? 1 : 0)) };
  });
}

export interface RecordedContext extends StageContext {
  metrics: { step: number; values: Record<string, number> }[];
  lines: string[];
  stopping: boolean;
}

/** A stage's context on a folder. `stopAt` asks to stop once that step has been reported. */
export function recordedContext(dir: string, options: { seed?: number; stopAt?: number } = {}): RecordedContext {
  const ctx: RecordedContext = {
    dir,
    seed: options.seed ?? 1,
    metrics: [],
    lines: [],
    stopping: false,
    progress: {
      update(done) {
        if (done === options.stopAt) ctx.stopping = true;
      },
      log: (line) => ctx.lines.push(line),
    },
    metric(step, values) {
      ctx.metrics.push({ step, values });
      appendFileSync(join(dir, "metrics.jsonl"), `${JSON.stringify({ step, ...values })}\n`);
    },
  };
  return ctx;
}
