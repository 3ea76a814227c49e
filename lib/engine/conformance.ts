/**
 * The tests that every engine must pass: each operation beside the float64 reference, on awkward shapes. Every case runs on plain tensors
 * and again on views at odd offsets between guard words (an operation that writes past its output is caught), and twice for equal bits.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { uniform } from "./random.ts";
import { openReferenceEngine } from "./reference/index.ts";
import { sampleRow } from "./reference/sample.ts";
import type { DType, Engine, Packing, PagedContext, Tensor, TokenMasks } from "./types.ts";

export interface ConformanceOptions {
  /** Multiplies every tolerance; 1 by default. Say why where it is used. */
  slack?: number;
  /** Milliseconds a case may take: the first use of a kernel compiles it. 120,000 by default. */
  timeout?: number;
}

type HostArray = Float32Array | Int32Array | Uint32Array;
const GUARD = 64;
const GUARD_VALUE = 7;

/** Makes a case's tensors, with the same seeded contents on whatever engine. */
class Bench {
  #made: { base: Tensor; size: number; offset: number }[] = [];
  #draws = 0;
  constructor(
    readonly engine: Engine,
    readonly seed: number,
    readonly asViews: boolean,
  ) {}

  random(): number {
    return uniform(this.seed, this.#draws++);
  }
  int(below: number): number {
    return Math.floor(this.random() * below);
  }
  /** Roughly normal numbers (the sum of three uniforms), as f32. */
  normals(n: number, std = 1): Float32Array {
    return Float32Array.from({ length: n }, () => 2 * std * (this.random() + this.random() + this.random() - 1.5));
  }
  tensor(shape: number[], dtype: DType, data: HostArray): Tensor {
    const size = shape.reduce((n, d) => n * d, 1);
    const offset = this.asViews ? GUARD * (1 + this.int(2)) : 0;
    const label = `case${this.#made.length}`;
    if (!this.asViews) {
      const t = this.engine.alloc(shape, dtype, label);
      this.engine.upload(t, data);
      this.#made.push({ base: t, size, offset });
      return t;
    }
    const base = this.engine.alloc([offset + size + GUARD], dtype, label);
    const around =
      dtype === "i32"
        ? new Int32Array(base.size)
        : dtype === "u32"
          ? new Uint32Array(base.size)
          : new Float32Array(base.size);
    this.engine.upload(base, around.fill(GUARD_VALUE));
    const view = this.engine.view(base, shape, offset);
    this.engine.upload(view, data);
    this.#made.push({ base, size, offset });
    return view;
  }
  f32(...shape: number[]): Tensor {
    return this.tensor(shape, "f32", this.normals(shape.reduce((n, d) => n * d, 1)));
  }
  float(dtype: DType, ...shape: number[]): Tensor {
    return this.tensor(shape, dtype, this.normals(shape.reduce((n, d) => n * d, 1)));
  }
  i32(values: number[], shape = [values.length]): Tensor {
    return this.tensor(shape, "i32", Int32Array.from(values));
  }
  /** An output holding garbage, which the operation must overwrite. */
  out(...shape: number[]): Tensor {
    return this.tensor(
      shape,
      "f32",
      this.normals(
        shape.reduce((n, d) => n * d, 1),
        50,
      ),
    );
  }
  /** Documents of these lengths, packed. */
  packing(lengths: number[]): Packing {
    let start = 0;
    const rows = lengths.flatMap((n) => {
      const document = Array.from({ length: n }, (_, i) => ({ start, end: start + n, position: i }));
      start += n;
      return document;
    });
    return {
      docStart: this.i32(rows.map((r) => r.start)),
      docEnd: this.i32(rows.map((r) => r.end)),
      positions: this.i32(rows.map((r) => r.position)),
      maxLength: Math.max(...lengths),
    };
  }
  /** Three masks of which rows use 0, 1, 2 or none, each allowing `always` of its rows and about a quarter of the rest. */
  masks(V: number, always: number[]): TokenMasks {
    const words = Math.ceil(V / 32);
    const bits = new Uint32Array(3 * words);
    const row = always.map((_, i) => (i % 4) - 1);
    const allow = (r: number, v: number) => (bits[r * words + (v >> 5)]! |= 1 << (v & 31));
    for (let r = 0; r < 3; r++) for (let v = 0; v < V; v++) if (this.random() < 0.25) allow(r, v);
    for (const [i, v] of always.entries()) if (row[i]! >= 0) allow(row[i]!, v);
    return { bits: this.tensor([3, words], "u32", bits), row: this.i32(row) };
  }
  /** Sequences of these lengths on shuffled pages; queries: the last `tail[b]` tokens of each. */
  paged(lengths: number[], tail: number[], pageSize: number): { context: PagedContext; slots: number; all: number[] } {
    const pages = lengths.map((n) => Math.ceil(n / pageSize));
    const total = pages.reduce((a, b) => a + b, 0) + 1;
    const order = Array.from({ length: total }, (_, i) => i);
    for (let i = total - 1; i > 0; i--) {
      const j = this.int(i + 1);
      [order[i], order[j]] = [order[j]!, order[i]!];
    }
    const widest = Math.max(...pages);
    const table: number[] = [];
    const [sequence, visible, all]: [number[], number[], number[]] = [[], [], []];
    for (const [b, n] of lengths.entries()) {
      const mine = order.splice(0, pages[b]!);
      for (let p = 0; p < widest; p++) table.push(mine[p] ?? 0);
      for (let i = 0; i < n; i++) all.push(mine[Math.floor(i / pageSize)]! * pageSize + (i % pageSize));
      for (let i = n - tail[b]!; i < n; i++) {
        sequence.push(b);
        visible.push(i + 1);
      }
    }
    const context = {
      pageSize,
      pageTable: this.i32(table, [lengths.length, widest]),
      sequence: this.i32(sequence),
      visible: this.i32(visible),
    };
    return { context, slots: total * pageSize, all };
  }

  /** Checks the words around every tensor and frees all. */
  async close(): Promise<void> {
    for (const { base, size, offset } of this.#made) {
      if (this.asViews) {
        const data = await this.engine.download(base);
        for (let i = 0; i < data.length; i++) {
          if ((i < offset || i >= offset + size) && data[i] !== GUARD_VALUE) {
            throw new Error(`word ${i - offset} outside of tensor ${base.label} (${size} elements) was overwritten`);
          }
        }
      }
      this.engine.free(base);
    }
  }
}

interface Case {
  name: string;
  /** Error allowed, relative to the largest entry of the expected tensor (or to 1e-3 where that is less). */
  tolerance: number;
  /** Runs the operation; returns the tensors that must agree. */
  run: (b: Bench) => Tensor[] | Promise<Tensor[]>;
}

/** f32 sums of a few hundred terms. */
const SUM = 2e-5;
/** One or two roundings an element, and the device's own exp, sqrt or division. */
const ELEMENT = 1e-5;
/** Softmax of sums: the error of a score is multiplied by the score's size. */
const SOFTMAX = 5e-5;
/** Data only moves. */
const EXACT = 0;

const x = (...n: number[]) => n.join("×");

function* elementwise(): Generator<Case> {
  for (const n of [1, 63, 257, 4099]) {
    yield {
      name: `fill ${n}`,
      tolerance: ELEMENT,
      run: (b) => {
        const out = b.out(n);
        b.engine.fill(out, -1.25);
        return [out];
      },
    };
    yield {
      name: `axpby ${n}, also in place`,
      tolerance: ELEMENT,
      run: (b) => {
        const [out, p, q] = [b.out(n), b.f32(n), b.f32(n)];
        b.engine.axpby(out, 0.5, p, -2, q);
        b.engine.axpby(p, 1, p, 0.25, out);
        b.engine.axpby(q, 3, out, 1, q);
        return [out, p, q];
      },
    };
    for (const dtype of ["f32", "f16", "bf16"] as const) {
      yield {
        name: `copy ${n} to and from ${dtype}`,
        tolerance: EXACT,
        run: (b) => {
          const [from, half, back] = [b.f32(n), b.float(dtype, n), b.out(n)];
          b.engine.copy(half, from);
          b.engine.copy(back, half);
          return [half, back];
        },
      };
    }
    yield {
      name: `adamw ${n}, three steps`,
      tolerance: ELEMENT,
      run: (b) => {
        const [p, g, m, v] = [b.f32(n), b.f32(n), b.f32(n), b.out(n)];
        b.engine.fill(v, 0.5);
        for (let step = 1; step <= 3; step++) {
          b.engine.adamw(p, g, m, v, {
            lr: 0.01,
            beta1: 0.9,
            beta2: 0.95,
            eps: 1e-8,
            weightDecay: 0.1,
            step,
            gradScale: 0.7,
          });
        }
        return [p, m, v];
      },
    };
    yield {
      name: `swiglu ${n}, backward in place`,
      tolerance: ELEMENT,
      run: (b) => {
        const [out, gate, up, dOut, dg, du] = [
          b.out(1, n),
          b.f32(1, n),
          b.f32(1, n),
          b.f32(1, n),
          b.out(1, n),
          b.out(1, n),
        ];
        b.engine.swiglu(out, gate, up);
        b.engine.swigluBackward(dg, du, dOut, gate, up);
        b.engine.swigluBackward(gate, up, dOut, gate, up);
        return [out, dg, du, gate, up];
      },
    };
  }
}

function* products(): Generator<Case> {
  const shapes = [
    [1, 1, 1],
    [1, 257, 64],
    [2, 5, 3],
    [17, 33, 65],
    [64, 64, 64],
    [129, 67, 31],
    [3, 512, 200],
    [130, 128, 96],
    [7, 1, 300],
    [11, 70, 1030],
  ] as const;
  for (const [M, N, K] of shapes) {
    for (const [transA, transB] of [
      [false, false],
      [false, true],
      [true, false],
      [true, true],
    ] as const) {
      for (const accumulate of [false, true]) {
        yield {
          name: `matmul ${x(M, N, K)}${transA ? " aᵀ" : ""}${transB ? " bᵀ" : ""}${accumulate ? " +=" : ""}`,
          tolerance: SUM,
          run: (b) => {
            const out = b.out(M, N);
            const a = transA ? b.f32(K, M) : b.f32(M, K);
            const w = transB ? b.f32(N, K) : b.f32(K, N);
            b.engine.matmul(out, a, w, { transA, transB, accumulate });
            return [out];
          },
        };
      }
    }
    for (const dtype of ["f16", "bf16"] as const) {
      for (const transB of [false, true]) {
        yield {
          name: `matmul ${x(M, N, K)}, b ${dtype}${transB ? " bᵀ" : ""}`,
          tolerance: SUM,
          run: (b) => {
            const out = b.out(M, N);
            const [a, w] = [b.f32(M, K), transB ? b.float(dtype, N, K) : b.float(dtype, K, N)];
            b.engine.matmul(out, a, w, { transB });
            return [out];
          },
        };
      }
    }
  }
}

function* rows(): Generator<Case> {
  for (const [T, C, V] of [
    [1, 1, 1],
    [7, 5, 3],
    [65, 96, 131],
    [130, 64, 40],
  ] as const) {
    for (const dtype of ["f32", "f16", "bf16"] as const) {
      yield {
        name: `embed ${x(T, C)} from ${V} ${dtype}`,
        tolerance: EXACT,
        run: (b) => {
          const [out, table, ids] = [
            b.out(T, C),
            b.float(dtype, V, C),
            b.i32(Array.from({ length: T }, () => b.int(V))),
          ];
          b.engine.embed(out, table, ids);
          return [out];
        },
      };
    }
    yield {
      name: `embedBackward ${x(T, C)} into ${V}`,
      tolerance: SUM,
      run: (b) => {
        const [dTable, dOut, ids] = [b.f32(V, C), b.f32(T, C), b.i32(Array.from({ length: T }, () => b.int(V)))];
        b.engine.embedBackward(dTable, dOut, ids);
        return [dTable];
      },
    };
    yield {
      name: `gatherRows and scatterRows ${x(T, C)}`,
      tolerance: EXACT,
      run: (b) => {
        const chosen = b.i32(
          Array.from({ length: T }, (_, t) => t)
            .filter((t) => t % 3 !== 1)
            .reverse(),
        );
        const [some, all, from] = [b.out(chosen.size, C), b.out(T, C), b.f32(T, C)];
        b.engine.gatherRows(some, from, chosen);
        b.engine.scatterRows(all, some, chosen);
        return [some, all];
      },
    };
  }
}

function* norms(): Generator<Case> {
  for (const [T, C] of [
    [1, 1],
    [3, 37],
    [17, 256],
    [5, 1030],
    [67, 64],
  ] as const) {
    yield {
      name: `rmsNorm ${x(T, C)}`,
      tolerance: SUM,
      run: (b) => {
        const [out, rstd, v, w] = [b.out(T, C), b.out(T), b.f32(T, C), b.f32(C)];
        const [dx, dw, dOut] = [b.f32(T, C), b.f32(C), b.f32(T, C)];
        b.engine.rmsNorm(out, rstd, v, w, 1e-6);
        b.engine.rmsNormBackward(dx, dw, dOut, v, w, rstd);
        return [out, rstd, dx, dw];
      },
    };
  }
  for (const [lengths, H, D] of [
    [[1], 1, 16],
    [[5, 1, 11], 3, 32],
    [[30, 37], 2, 64],
    [[9, 4], 5, 128],
  ] as const) {
    for (const theta of [1e4, 1e6]) {
      yield {
        name: `qkNormRope ${x(
          lengths.reduce((a: number, n: number) => a + n, 0),
          H,
          D,
        )} theta ${theta}`,
        tolerance: SUM,
        run: (b) => {
          const { positions } = b.packing([...lengths]);
          const T = positions.size;
          const [out, v, w, dx, dw, dOut] = [
            b.out(T, H, D),
            b.f32(T, H, D),
            b.f32(D),
            b.out(T, H, D),
            b.f32(D),
            b.f32(T, H, D),
          ];
          b.engine.qkNormRope(out, v, w, positions, 1e-6, theta);
          b.engine.qkNormRopeBackward(dx, dw, dOut, v, w, positions, 1e-6, theta);
          return [out, dx, dw];
        },
      };
    }
  }
  yield {
    name: "qkNormRope at far positions",
    tolerance: 3e-4,
    run: (b) => {
      const [out, v, w, positions] = [b.out(3, 2, 64), b.f32(3, 2, 64), b.f32(64), b.i32([4095, 1, 2047])];
      b.engine.qkNormRope(out, v, w, positions, 1e-6, 1e6);
      return [out];
    },
  };
}

function* attentions(): Generator<Case> {
  const cases = [
    [[1], 1, 1, 16],
    [[1, 2, 1], 2, 1, 32],
    [[33, 1, 31], 4, 2, 32],
    [[67], 3, 1, 64],
    [[64, 65], 4, 4, 16],
    [[40, 5], 8, 2, 128],
    [[130, 3], 6, 2, 64],
  ] as const;
  for (const [lengths, H, K, D] of cases) {
    yield {
      name: `attention ${lengths.join("+")} tokens, ${H}/${K} heads of ${D}`,
      tolerance: SOFTMAX,
      run: (b) => {
        const packing = b.packing([...lengths]);
        const T = packing.docStart.size;
        const saved = {
          q: b.f32(T, H, D),
          k: b.f32(T, K, D),
          v: b.f32(T, K, D),
          out: b.out(T, H, D),
          lse: b.out(T, H),
        };
        const grads = { dq: b.out(T, H, D), dk: b.out(T, K, D), dv: b.out(T, K, D) };
        const scale = 1 / Math.sqrt(D);
        b.engine.attention(saved.out, saved.lse, saved.q, saved.k, saved.v, packing, scale);
        b.engine.attentionBackward(grads, b.f32(T, H, D), saved, packing, scale);
        return [saved.out, saved.lse, grads.dq, grads.dk, grads.dv];
      },
    };
  }
  for (const [lengths, N, taps] of [
    [[1], 1, 2],
    [[5, 1, 2, 9], 33, 3],
    [[64, 3], 128, 2],
    [[17, 30], 64, 4],
  ] as const) {
    yield {
      name: `shortConv ${lengths.join("+")} tokens, width ${N}, ${taps} taps`,
      tolerance: SUM,
      run: (b) => {
        const packing = b.packing([...lengths]);
        const T = packing.docStart.size;
        const [out, v, w, dx, dw, dOut] = [
          b.out(T, N),
          b.f32(T, N),
          b.f32(N, taps),
          b.out(T, N),
          b.f32(N, taps),
          b.f32(T, N),
        ];
        b.engine.shortConv(out, v, w, packing);
        b.engine.shortConvBackward(dx, dw, dOut, v, w, packing);
        return [out, dx, dw];
      },
    };
  }
}

function* paged(): Generator<Case> {
  const cases = [
    [[1], [1], 1, 1, 16],
    [[17, 5, 32], [1, 1, 1], 4, 2, 32],
    [[40, 70], [23, 1], 6, 2, 64],
    [[33, 1, 16, 15], [33, 1, 16, 2], 4, 1, 128],
    [[300], [1], 8, 4, 64],
  ] as const;
  for (const [lengths, tail, H, K, D] of cases) {
    yield {
      name: `paged attention and convolution, ${tail.join("+")} of ${lengths.join("+")}, ${H}/${K} heads of ${D}`,
      tolerance: SOFTMAX,
      run: (b) => {
        const { context, slots, all } = b.paged([...lengths], [...tail], 16);
        const T = context.sequence.size;
        const [kCache, vCache] = [b.f32(slots, K * D), b.f32(slots, K * D)];
        b.engine.cacheWrite(kCache, b.f32(all.length, K * D), b.i32(all));
        b.engine.cacheWrite(vCache, b.f32(all.length, K * D), b.i32(all));
        const [out, conv, w] = [b.out(T, H, D), b.out(T, K * D), b.f32(K * D, 3)];
        b.engine.pagedAttention(out, b.f32(T, H, D), kCache, vCache, context, 1 / Math.sqrt(D));
        b.engine.pagedShortConv(conv, vCache, w, context);
        return [kCache, vCache, out, conv];
      },
    };
  }
}

function* projections(): Generator<Case> {
  for (const [M, C, V] of [
    [1, 1, 2],
    [3, 8, 1],
    [7, 64, 131],
    [65, 33, 67],
    [20, 96, 1030],
    [1, 32, 4097],
  ] as const) {
    for (const masked of [false, true]) {
      for (const dtype of ["f32", "bf16"] as const) {
        yield {
          name: `logProbs ${x(M, C, V)}${masked ? " masked" : ""}, head ${dtype}`,
          tolerance: SOFTMAX,
          run: (b) => {
            const ids = Array.from({ length: M }, () => b.int(V));
            const saved = { x: b.f32(M, C), head: b.float(dtype, V, C), targets: b.i32(ids), lse: b.out(M) };
            const out = { lp: b.out(M), lse: saved.lse, entropy: b.out(M) };
            const masks = masked ? b.masks(V, ids) : undefined;
            b.engine.logProbs(out, saved.x, saved.head, saved.targets, masks);
            const [lp, grads, dLp] = [b.out(M), { dx: b.out(M, C), dHead: b.f32(V, C) }, b.f32(M)];
            b.engine.logProbs({ lp, lse: saved.lse }, saved.x, saved.head, saved.targets, masks);
            const frozen = b.out(M, C);
            b.engine.logProbsBackward(grads, dLp, saved, masks);
            b.engine.logProbsBackward({ dx: frozen }, dLp, saved, masks);
            return [out.lp, out.lse, out.entropy, lp, grads.dx, grads.dHead, frozen];
          },
        };
      }
    }
  }
}

const CASES = [...elementwise(), ...products(), ...rows(), ...norms(), ...attentions(), ...paged(), ...projections()];

/** Runs a case on an engine; the results in order. */
async function results(c: Case, engine: Engine, seed: number, asViews: boolean): Promise<HostArray[]> {
  const bench = new Bench(engine, seed, asViews);
  const made = await c.run(bench);
  const data: HostArray[] = [];
  for (const t of made) data.push(await engine.download(t));
  await bench.close();
  return data;
}

function agree(got: HostArray, want: HostArray, tolerance: number, what: string): void {
  let largest = 1e-3;
  for (const v of want) largest = Math.max(largest, Math.abs(v));
  for (let i = 0; i < want.length; i++) {
    if (!(Math.abs(got[i]! - want[i]!) <= tolerance * largest)) {
      throw new Error(
        `${what}[${i}] is ${got[i]}, the reference has ${want[i]} (largest ${largest}, tolerance ${tolerance})`,
      );
    }
  }
}

/** Registers the conformance tests of an engine with bun:test. `open` is called once. */
export function conformance(name: string, open: () => Promise<Engine>, options: ConformanceOptions = {}): void {
  const { slack = 1, timeout = 120_000 } = options;
  describe(`${name} conforms to the reference`, () => {
    let engine: Engine;
    let reference: Engine;
    beforeAll(async () => {
      [engine, reference] = [await open(), await openReferenceEngine()];
    }, timeout);
    afterAll(async () => {
      await engine?.dispose();
    });

    for (const [seed, c] of CASES.entries()) {
      test(
        c.name,
        async () => {
          for (const asViews of [false, true]) {
            const want = await results(c, reference, seed, asViews);
            const got = await results(c, engine, seed, asViews);
            const again = await results(c, engine, seed, asViews);
            const how = asViews ? "on views" : "on whole tensors";
            for (const [i, w] of want.entries()) {
              agree(got[i]!, w, c.tolerance * slack, `${c.name} ${how}: result ${i}`);
              expect(again[i]).toEqual(got[i]!);
            }
          }
          await engine.sync();
        },
        timeout,
      );
    }

    test(
      "sumSquares over several tensors",
      async () => {
        const b = new Bench(engine, 901, false);
        const [p, q, r] = [b.f32(1), b.f32(4099), b.f32(7, 33)];
        let total = 0;
        for (const t of [p, q, r]) for (const v of await engine.download(t)) total += v * v;
        const got = await engine.sumSquares([p, q, r]);
        expect(Math.abs(got - total) / total).toBeLessThan(SUM * slack);
        expect(await engine.sumSquares([p, q, r])).toBe(got);
        await b.close();
      },
      timeout,
    );

    for (const V of [1, 31, 131, 4097]) {
      test(
        `sample from ${V}: greedy, temperature, top-k, top-p, masks, seeds`,
        async () => {
          const b = new Bench(engine, 950 + V, false);
          const B = 48;
          const logits = b.normals(B * V, 2);
          const settings = Array.from({ length: B }, (_, i) => ({
            temperature: Math.fround([1, 0, 0.7, 1.5][i % 4]!),
            topK: [0, 0, 5, 1, 40][i % 5]!,
            topP: Math.fround([1, 0.9, 1, 0.5, 0.2, 1, 1][i % 7]!),
            seed: b.int(2 ** 31) * 2 + 1,
            counter: b.int(1000),
          }));
          const masks = b.masks(
            V,
            settings.map(() => b.int(V)),
          );
          const row = await engine.download(masks.row);
          const bits = await engine.download(masks.bits);
          const [ids, lp] = [b.i32(Array(B).fill(-1)), b.out(B)];
          engine.sample(ids, lp, b.tensor([B, V], "f32", logits), {
            temperature: b.tensor(
              [B],
              "f32",
              Float32Array.from(settings, (s) => s.temperature),
            ),
            topK: b.i32(settings.map((s) => s.topK)),
            topP: b.tensor(
              [B],
              "f32",
              Float32Array.from(settings, (s) => s.topP),
            ),
            seeds: b.tensor([B, 2], "u32", Uint32Array.from(settings.flatMap((s) => [s.seed, s.counter]))),
            masks,
          });
          const [gotIds, gotLp] = [await engine.download(ids), await engine.download(lp)];
          let sure = 0;
          for (const [i, s] of settings.entries()) {
            const words = Math.ceil(V / 32);
            const allowed = (v: number) => row[i]! < 0 || ((bits[row[i]! * words + (v >> 5)]! >>> (v & 31)) & 1) === 1;
            const one = Float64Array.from(logits.subarray(i * V, (i + 1) * V));
            const want = sampleRow(one, { ...s, u: uniform(s.seed, s.counter), allowed });
            expect(allowed(gotIds[i]!)).toBe(true);
            if (want.margin < 1e-5) continue;
            sure++;
            expect({ i, id: gotIds[i]! }).toEqual({ i, id: want.id });
            expect(Math.abs(gotLp[i]! - want.lp)).toBeLessThan(1e-4 * slack);
          }
          expect(sure).toBeGreaterThan(B / 2);
          await b.close();
        },
        timeout,
      );
    }

    test("memory falls back when tensors are freed, and wrong views are refused", async () => {
      const before = engine.memory().bytes;
      const t = engine.alloc([1000, 100], "f32", "large");
      expect(engine.memory().bytes - before).toBeGreaterThanOrEqual(400_000);
      expect(engine.memory().peakBytes).toBeGreaterThanOrEqual(engine.memory().bytes);
      expect((await engine.download(t)).every((v) => v === 0)).toBe(true);
      expect(() => engine.view(t, [10], 63)).toThrow();
      expect(() => engine.view(t, [100_000], 64)).toThrow();
      engine.free(t);
      expect(engine.memory().bytes).toBe(before);
    });
  });
}
