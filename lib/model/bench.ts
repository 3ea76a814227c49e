/** Benchmarks of whole models: ours beside a peer, run by turns, so that what else the machine does falls on both alike. */
import { uniform } from "../engine/random.ts";
import type { Engine, Tensor } from "../engine/types.ts";
import { createGenerator } from "./generator.ts";
import { Model } from "./model.ts";
import { Optimizer } from "./optimizer.ts";
import type { ModelConfig, PackedBatch } from "./types.ts";

export interface BenchSize {
  config: ModelConfig;
  /** Tokens a document, documents a batch. */
  T: number;
  B: number;
}

/** A decoder of C channels, ff feed-forward, H heads, K key/value heads and V tokens; B documents of T tokens. */
export function modelSize(
  ...[layers, C, ff, H, K, V, T, B]: [number, number, number, number, number, number, number, number]
): BenchSize {
  const config: ModelConfig = {
    architectures: ["Qwen3ForCausalLM"],
    model_type: "qwen3",
    num_hidden_layers: layers,
    hidden_size: C,
    intermediate_size: ff,
    num_attention_heads: H,
    num_key_value_heads: K,
    head_dim: C / H,
    vocab_size: V,
    rope_theta: 10_000,
    rms_norm_eps: 1e-6,
    tie_word_embeddings: true,
    max_position_embeddings: 2 * T,
  };
  return { config, T, B };
}

/** The sizes of issue 6: 4.2 M, 29.4 M and 0.56 M parameters. */
export const SIZES = {
  S: modelSize(4, 256, 768, 4, 2, 4096, 512, 8),
  M: modelSize(8, 512, 1536, 8, 4, 8192, 1024, 4),
  XS: modelSize(2, 128, 384, 2, 1, 1024, 256, 4),
} as const;

/** Documents of random ids in which every token but the first is a target. */
export function randomBatch({ config, T, B }: BenchSize): PackedBatch {
  const ids = Int32Array.from({ length: T * B }, (_, i) => Math.floor(uniform(1, i) * config.vocab_size));
  const targets = Int32Array.from({ length: T * B }, (_, i) => Math.floor(uniform(2, i) * config.vocab_size));
  const cumulative = Int32Array.from({ length: B + 1 }, (_, i) => i * T);
  return { ids, cumulative, rows: Int32Array.from({ length: T * B }, (_, i) => i), targets };
}

export type SizeName = keyof typeof SIZES;

/** Something that answers in tokens a second, unless said otherwise. Models are made when first asked for. */
export interface Runner {
  train(size: SizeName, steps: number): Promise<number>;
  forward(size: SizeName, steps: number): Promise<number>;
  /** Prompts of 16 tokens count in the time, their tokens do not. */
  decode(size: SizeName, batch: number, tokens: number): Promise<number>;
  /** A product of two n×n matrices, in GFLOP/s. */
  matmul(n: number): Promise<number>;
}

type Triple = [Tensor, Tensor, Tensor];

/** Our engine. */
export function engineRunner(engine: Engine): Runner {
  const models = new Map<string, { model: Model; optimizer: Optimizer; batch: PackedBatch }>();
  const of = async (name: SizeName) => {
    const have = models.get(name);
    if (have) return have;
    const model = await Model.create(engine, SIZES[name].config, 1);
    const made = { model, optimizer: new Optimizer(engine, model.trainable()), batch: randomBatch(SIZES[name]) };
    models.set(name, made);
    return made;
  };
  const rate = async (tokens: number, work: () => Promise<void>) => {
    const start = performance.now();
    await work();
    return (1000 * tokens) / (performance.now() - start);
  };
  return {
    async train(name, steps) {
      const { model, optimizer, batch } = await of(name);
      const M = batch.rows.length;
      return rate(steps * M, async () => {
        for (let i = 0; i < steps; i++) {
          model.zeroGrad();
          await model.forwardBackward(batch, (lp) => ({ dLp: new Float32Array(lp.length).fill(-1 / M) }));
          await optimizer.step(1e-4);
        }
        await engine.sync();
      });
    },
    async forward(name, steps) {
      const { model, batch } = await of(name);
      return rate(steps * batch.rows.length, async () => {
        for (let i = 0; i < steps; i++) await model.logProbs(batch);
      });
    },
    async decode(name, batch, tokens) {
      const { model } = await of(name);
      const generator = createGenerator(model, { maxBatch: batch, cacheTokens: batch * (tokens + 32) });
      const promptIds = Int32Array.from({ length: 16 }, (_, i) => i);
      const run = (n: number) =>
        Promise.all(
          Array.from({ length: batch }, (_, seed) =>
            generator.generate({
              promptIds: promptIds.map((x) => x + seed),
              maxNewTokens: n,
              temperature: 1,
              seed,
              stopIds: [],
            }),
          ),
        );
      const tokensPerSecond = await rate(batch * tokens, async () => void (await run(tokens)));
      generator.close();
      return tokensPerSecond;
    },
    async matmul(n) {
      const [out, a, b] = ["out", "a", "b"].map((label) => engine.alloc([n, n], "f32", `bench ${label}`)) as Triple;
      for (const [seed, t] of [a, b].entries())
        engine.upload(
          t,
          Float32Array.from({ length: n * n }, (_, i) => uniform(seed, i) - 0.5),
        );
      await engine.sync();
      const gflops = await rate((2 * n ** 3) / 1e9, async () => {
        engine.matmul(out, a, b);
        await engine.sync();
      });
      engine.free(out, a, b);
      return gflops;
    },
  };
}

export interface BenchRow {
  work: string;
  unit: string;
  /** Median, and the lowest and highest of the runs. */
  ours: [number, number, number];
  peer: [number, number, number] | null;
  peerName: string | null;
  /** Median of the ratios run by run. */
  ratio: [number, number, number] | null;
}

const spread = (xs: number[]): [number, number, number] => {
  const sorted = xs.toSorted((a, b) => a - b);
  return [sorted[sorted.length >> 1]!, sorted[0]!, sorted.at(-1)!];
};

/** `runs` turns of ours and the peer's, each after one that warms up. Rates in `unit`. */
export async function interleave(
  work: string,
  unit: string,
  ours: () => Promise<number>,
  peerName: string | null,
  peer: (() => Promise<number>) | null,
  runs = 5,
): Promise<BenchRow> {
  await ours();
  await peer?.();
  const [a, b]: [number[], number[]] = [[], []];
  for (let i = 0; i < runs; i++) {
    a.push(await ours());
    if (peer) b.push(await peer());
  }
  const compared = peer ? { peer: spread(b), ratio: spread(a.map((x, i) => x / b[i]!)) } : { peer: null, ratio: null };
  return { work, unit, ours: spread(a), peerName, ...compared };
}
