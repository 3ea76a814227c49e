/** Benchmarks of the CPU engine: ours beside a peer, run by turns, so that what else the machine does falls on both alike. */
import { createGenerator } from "../../model/generator.ts";
import { Model } from "../../model/model.ts";
import { Optimizer } from "../../model/optimizer.ts";
import type { ModelConfig, PackedBatch } from "../../model/types.ts";
import { uniform } from "../random.ts";
import { type CpuOptions, openCpuEngine } from "./index.ts";

export interface BenchSize {
  config: ModelConfig;
  /** Tokens a document, documents a batch. */
  T: number;
  B: number;
}

function size(layers: number, C: number, ff: number, H: number, K: number, V: number, T: number, B: number): BenchSize {
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
  S: size(4, 256, 768, 4, 2, 4096, 512, 8),
  M: size(8, 512, 1536, 8, 4, 8192, 1024, 4),
  XS: size(2, 128, 384, 2, 1, 1024, 256, 4),
} as const;

/** Documents of random ids in which every token but the first is a target. */
export function randomBatch({ config, T, B }: BenchSize): PackedBatch {
  const ids = Int32Array.from({ length: T * B }, (_, i) => Math.floor(uniform(1, i) * config.vocab_size));
  const targets = Int32Array.from({ length: T * B }, (_, i) => Math.floor(uniform(2, i) * config.vocab_size));
  const cumulative = Int32Array.from({ length: B + 1 }, (_, i) => i * T);
  return { ids, cumulative, rows: Int32Array.from({ length: T * B }, (_, i) => i), targets };
}

/** Something that answers in tokens a second. */
export interface Runner {
  train(size: keyof typeof SIZES, steps: number): Promise<number>;
  forward(size: keyof typeof SIZES, steps: number): Promise<number>;
  decode(size: keyof typeof SIZES, batch: number, tokens: number): Promise<number>;
  close(): Promise<void>;
}

/** Our engine. Models are made when first asked for. */
export async function cpuRunner(options: CpuOptions = {}): Promise<Runner & { description: string }> {
  const engine = await openCpuEngine(options);
  const models = new Map<string, { model: Model; optimizer: Optimizer; batch: PackedBatch }>();
  const of = async (name: keyof typeof SIZES) => {
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
    description: engine.info.description,
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
      // The prompts are computed outside the time, as in the peers.
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
    close: () => engine.dispose(),
  };
}

/** PyTorch through scripts/bench/torch_train.py; null where that Python has no torch. */
export async function torchRunner(python = "/usr/bin/python3"): Promise<Runner | null> {
  if (!(await Bun.file(python).exists())) return null;
  const script = new URL("../../../scripts/bench/torch_train.py", import.meta.url).pathname;
  const child = Bun.spawn([python, script], { stdin: "pipe", stdout: "pipe", stderr: "ignore" });
  const lines = child.stdout.pipeThrough(new TextDecoderStream()).getReader();
  const ask = async (line: string): Promise<number> => {
    child.stdin.write(`${line}\n`);
    child.stdin.flush();
    let text = "";
    while (!text.includes("\n")) {
      const { done, value } = await lines.read();
      if (done) throw new Error(`${python} ${script} ended; has it torch? (Debian: apt-get install python3-torch)`);
      text += value;
    }
    const answer: unknown = JSON.parse(text);
    if (!answer || typeof answer !== "object" || !("tokensPerSecond" in answer))
      throw new Error(`torch answered ${text}`);
    return Number(answer.tokensPerSecond);
  };
  const runner: Runner = {
    train: (name, steps) => ask(`train ${name} ${steps}`),
    forward: (name, steps) => ask(`forward ${name} ${steps}`),
    decode: (name, batch, tokens) => ask(`decode ${name} ${batch} ${tokens}`),
    close: async () => {
      child.stdin.end();
      await child.exited;
    },
  };
  return runner.forward("S", 1).then(
    () => runner,
    () => null,
  );
}

export interface BenchRow {
  work: string;
  unit: string;
  /** Median, and the lowest and highest of the runs. */
  ours: [number, number, number];
  peer: [number, number, number] | null;
  peerName: string;
  /** Median of the ratios run by run. */
  ratio: [number, number, number] | null;
}

const spread = (xs: number[]): [number, number, number] => {
  const sorted = xs.toSorted((a, b) => a - b);
  return [sorted[sorted.length >> 1]!, sorted[0]!, sorted.at(-1)!];
};

/** `runs` turns of ours and the peer's, each after one that warms up. */
export async function interleave(
  work: string,
  peerName: string,
  ours: () => Promise<number>,
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
  return { work, unit: "tokens/s", ours: spread(a), peerName, ...compared };
}
