/** Benchmarks of an engine's operations, for `bun run bench engine`. Ratios count, so whatever is compared runs by turns. */
import { uniform } from "./random.ts";
import type { Engine, Tensor } from "./types.ts";
import { WebGpuEngine } from "./webgpu/engine.ts";
import { runVariant, type Shape, type Variant, variants } from "./webgpu/matmul.ts";
import { own } from "./webgpu/tensor.ts";

/** Rates of one subject over the rounds. */
export interface Rates {
  name: string;
  /** GFLOP/s, or GB/s where `unit` says so. */
  median: number;
  least: number;
  most: number;
  unit: "GFLOP/s" | "GB/s";
}

function rates(name: string, all: number[], unit: Rates["unit"] = "GFLOP/s"): Rates {
  const sorted = all.toSorted((a, b) => a - b);
  return { name, median: sorted[sorted.length >> 1]!, least: sorted[0]!, most: sorted.at(-1)!, unit };
}

function random(engine: Engine, shape: number[], seed: number): Tensor {
  const t = engine.alloc(shape, "f32", `bench ${seed}`);
  engine.upload(
    t,
    Float32Array.from({ length: t.size }, (_, i) => uniform(seed, i) - 0.5),
  );
  return t;
}

/** Times the subjects by turns, `rounds` times each after one unmeasured run. work: what one run does, in units of 10⁹. */
async function byTurns(
  engine: Engine,
  subjects: { name: string; run: () => void }[],
  work: number,
  rounds: number,
  unit?: Rates["unit"],
): Promise<Rates[]> {
  const measured = subjects.map(() => [] as number[]);
  for (let round = -1; round < rounds; round++) {
    for (const [i, s] of subjects.entries()) {
      const start = performance.now();
      s.run();
      await engine.sync();
      if (round >= 0) measured[i]!.push((work * 1000) / (performance.now() - start));
    }
  }
  return subjects.map((s, i) => rates(s.name, measured[i]!, unit));
}

export interface MatmulBench {
  m: number;
  n: number;
  k: number;
  transA: boolean;
  transB: boolean;
  /** The engine's own choice first, then on WebGPU the plain kernel and every variant. */
  rates: Rates[];
  /** Own choice ÷ plain kernel, medians; absent on other engines. */
  overPlain?: number;
}

/** Products of these sizes in f32: what the engine chooses, beside the plain kernel and all variants on WebGPU. */
export async function benchMatmul(
  engine: Engine,
  sizes: { m: number; n: number; k: number; transA?: boolean; transB?: boolean }[] = [{ m: 512, n: 512, k: 512 }],
  rounds = 7,
): Promise<MatmulBench[]> {
  const out: MatmulBench[] = [];
  for (const { m, n, k, transA = false, transB = false } of sizes) {
    const a = random(engine, transA ? [k, m] : [m, k], 1);
    const b = random(engine, transB ? [n, k] : [k, n], 2);
    const result = engine.alloc([m, n], "f32", "bench out");
    const subjects = [{ name: "chosen", run: () => engine.matmul(result, a, b, { transA, transB }) }];
    if (engine instanceof WebGpuEngine) {
      const s: Shape = { m, n, k, transA, transB, type: "f32" };
      for (const v of [{ kernel: "naive" } as Variant, ...variants(engine.kit, s)]) {
        const name = Object.values(v).join(" ");
        subjects.push({ name, run: () => runVariant(engine.kit, v, own(result), own(a), own(b), s, n, false) });
      }
    }
    const measured = await byTurns(engine, subjects, (2 * m * n * k) / 1e9, rounds);
    engine.free(a, b, result);
    const plain = measured.find((r) => r.name === "naive");
    out.push({
      m,
      n,
      k,
      transA,
      transB,
      rates: measured,
      ...(plain && { overPlain: measured[0]!.median / plain.median }),
    });
  }
  return out;
}

/** Causal attention, one document of T tokens: forward, and backward (2.5 × the forward's arithmetic). */
export async function benchAttention(
  engine: Engine,
  size = { tokens: 512, heads: 8, kvHeads: 4, d: 64 },
  rounds = 5,
): Promise<Rates[]> {
  const { tokens: t, heads, kvHeads, d } = size;
  const [q, k, v, dOut] = [
    [t, heads, d],
    [t, kvHeads, d],
    [t, kvHeads, d],
    [t, heads, d],
  ].map((s, i) => random(engine, s, i + 1));
  const zero = (shape: number[]) => engine.alloc(shape, "f32", "bench attention");
  const [out, lse, dq, dk, dv] = [
    zero([t, heads, d]),
    zero([t, heads]),
    zero([t, heads, d]),
    zero([t, kvHeads, d]),
    zero([t, kvHeads, d]),
  ];
  const ints = (f: (i: number) => number) => {
    const x = engine.alloc([t], "i32", "bench packing");
    engine.upload(
      x,
      Int32Array.from({ length: t }, (_, i) => f(i)),
    );
    return x;
  };
  const packing = { docStart: ints(() => 0), docEnd: ints(() => t), positions: ints((i) => i), maxLength: t };
  const scale = 1 / Math.sqrt(d);
  const work = (2 * t * t * heads * d) / 1e9; // half of the T×T scores, two products of 2·D each
  const forward = await byTurns(
    engine,
    [{ name: "attention", run: () => engine.attention(out, lse, q!, k!, v!, packing, scale) }],
    work,
    rounds,
  );
  const saved = { q: q!, k: k!, v: v!, out, lse };
  const backward = await byTurns(
    engine,
    [{ name: "attention backward", run: () => engine.attentionBackward({ dq, dk, dv }, dOut!, saved, packing, scale) }],
    2.5 * work,
    rounds,
  );
  engine.free(q!, k!, v!, dOut!, out, lse, dq, dk, dv, packing.docStart, packing.docEnd, packing.positions);
  return [...forward, ...backward];
}

/** Reading and writing memory: out = a·x + b·y over 2²² elements, in GB/s; bounds what decoding can reach. */
export async function benchBandwidth(engine: Engine, elements = 2 ** 22, rounds = 7): Promise<Rates[]> {
  const [x, y, out] = [
    random(engine, [elements], 1),
    random(engine, [elements], 2),
    engine.alloc([elements], "f32", "bench out"),
  ];
  const measured = await byTurns(
    engine,
    [{ name: "axpby", run: () => engine.axpby(out, 0.5, x, 2, y) }],
    (12 * elements) / 1e9,
    rounds,
    "GB/s",
  );
  engine.free(x, y, out);
  return measured;
}
