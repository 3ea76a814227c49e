import { expect, test } from "bun:test";
import { conformance } from "../conformance.ts";
import { uniform } from "../random.ts";
import type { Packing, Tensor } from "../types.ts";
import { openReferenceEngine, type ReferenceEngine } from "./index.ts";

conformance("reference", openReferenceEngine);

/** A seeded f32 tensor, or zeros for gradients. */
function makers(engine: ReferenceEngine) {
  let draws = 0;
  const make = (shape: number[], fill: (() => number) | 0): Tensor => {
    const t = engine.alloc(shape, "f32", "t");
    if (fill !== 0) engine.values(t).set(Array.from({ length: t.size }, fill));
    return t;
  };
  const ints = (values: number[]): Tensor => {
    const t = engine.alloc([values.length], "i32", "ints");
    engine.upload(t, Int32Array.from(values));
    return t;
  };
  return {
    random: (...shape: number[]) => make(shape, () => 2 * uniform(11, draws++) - 1),
    zeros: (...shape: number[]) => make(shape, 0),
    ints,
    packing: (): Packing => ({
      docStart: ints([0, 0, 0, 3, 4, 4]),
      docEnd: ints([3, 3, 3, 4, 6, 6]),
      positions: ints([0, 1, 2, 0, 0, 1]),
      maxLength: 3,
    }),
  };
}

/**
 * With L = Σ weights·out, checks that each gradient equals (L(x+h) − L(x−h)) / 2h for every entry of each input.
 */
function checkGradients(
  engine: ReferenceEngine,
  out: Tensor[],
  weights: Tensor[],
  forward: () => void,
  pairs: [input: Tensor, gradient: Tensor][],
): void {
  const loss = () => {
    forward();
    return out.reduce((sum, o, i) => {
      const w = engine.values(weights[i]!);
      return sum + engine.values(o).reduce((s, v, j) => s + v * w[j]!, 0);
    }, 0);
  };
  const h = 1e-5;
  for (const [input, gradient] of pairs) {
    const [v, g] = [engine.values(input), engine.values(gradient)];
    for (let i = 0; i < v.length; i++) {
      const kept = v[i]!;
      v[i] = kept + h;
      const up = loss();
      v[i] = kept - h;
      const down = loss();
      v[i] = kept;
      expect(Math.abs((up - down) / (2 * h) - g[i]!)).toBeLessThan(1e-7);
    }
  }
}

test("rmsNormBackward is the derivative of rmsNorm", async () => {
  const e = await openReferenceEngine();
  const { random, zeros } = makers(e);
  const [x, w, out, rstd, dOut, dx, dw] = [
    random(3, 5),
    random(5),
    zeros(3, 5),
    zeros(3),
    random(3, 5),
    zeros(3, 5),
    zeros(5),
  ];
  const forward = () => e.rmsNorm(out, rstd, x, w, 1e-3);
  forward();
  e.rmsNormBackward(dx, dw, dOut, x, w, rstd);
  checkGradients(e, [out], [dOut], forward, [
    [x, dx],
    [w, dw],
  ]);
});

test("qkNormRopeBackward is the derivative of qkNormRope", async () => {
  const e = await openReferenceEngine();
  const { random, zeros, ints } = makers(e);
  const [x, w, out, dOut, dx, dw] = [
    random(3, 2, 6),
    random(6),
    zeros(3, 2, 6),
    random(3, 2, 6),
    zeros(3, 2, 6),
    zeros(6),
  ];
  const positions = ints([0, 3, 7]);
  const forward = () => e.qkNormRope(out, x, w, positions, 1e-3, 100);
  e.qkNormRopeBackward(dx, dw, dOut, x, w, positions, 1e-3, 100);
  checkGradients(e, [out], [dOut], forward, [
    [x, dx],
    [w, dw],
  ]);
});

test("attentionBackward is the derivative of attention, over documents and grouped heads", async () => {
  const e = await openReferenceEngine();
  const { random, zeros, packing } = makers(e);
  const p = packing();
  const saved = { q: random(6, 4, 3), k: random(6, 2, 3), v: random(6, 2, 3), out: zeros(6, 4, 3), lse: zeros(6, 4) };
  const grads = { dq: zeros(6, 4, 3), dk: zeros(6, 2, 3), dv: zeros(6, 2, 3) };
  const dOut = random(6, 4, 3);
  const forward = () => e.attention(saved.out, saved.lse, saved.q, saved.k, saved.v, p, 0.7);
  forward();
  e.attentionBackward(grads, dOut, saved, p, 0.7);
  checkGradients(e, [saved.out], [dOut], forward, [
    [saved.q, grads.dq],
    [saved.k, grads.dk],
    [saved.v, grads.dv],
  ]);
});

test("shortConvBackward is the derivative of shortConv", async () => {
  const e = await openReferenceEngine();
  const { random, zeros, packing } = makers(e);
  const p = packing();
  const [x, w, out, dOut, dx, dw] = [random(6, 4), random(4, 3), zeros(6, 4), random(6, 4), zeros(6, 4), zeros(4, 3)];
  e.shortConvBackward(dx, dw, dOut, x, w, p);
  checkGradients(e, [out], [dOut], () => e.shortConv(out, x, w, p), [
    [x, dx],
    [w, dw],
  ]);
});

test("swigluBackward is the derivative of swiglu", async () => {
  const e = await openReferenceEngine();
  const { random, zeros } = makers(e);
  const [g, u, out, dOut, dg, du] = [random(2, 7), random(2, 7), zeros(2, 7), random(2, 7), zeros(2, 7), zeros(2, 7)];
  e.swigluBackward(dg, du, dOut, g, u);
  checkGradients(e, [out], [dOut], () => e.swiglu(out, g, u), [
    [g, dg],
    [u, du],
  ]);
});

test("logProbsBackward is the derivative of logProbs, masked and free rows", async () => {
  const e = await openReferenceEngine();
  const { random, zeros, ints } = makers(e);
  const [x, head, lp, lse, dLp, dx, dHead] = [
    random(3, 4),
    random(9, 4),
    zeros(3),
    zeros(3),
    random(3),
    zeros(3, 4),
    zeros(9, 4),
  ];
  const targets = ints([2, 0, 8]);
  const bits = e.alloc([1, 1], "u32", "bits");
  e.upload(bits, Uint32Array.of(0b100001011));
  const masks = { bits, row: ints([-1, 0, 0]) };
  const forward = () => e.logProbs({ lp, lse }, x, head, targets, masks);
  forward();
  e.logProbsBackward({ dx, dHead }, dLp, { x, head, targets, lse }, masks);
  checkGradients(e, [lp], [dLp], forward, [
    [x, dx],
    [head, dHead],
  ]);
});

test("embedBackward is the derivative of embed", async () => {
  const e = await openReferenceEngine();
  const { random, zeros, ints } = makers(e);
  const [table, out, dOut, dTable, ids] = [random(4, 3), zeros(5, 3), random(5, 3), zeros(4, 3), ints([1, 3, 1, 0, 1])];
  e.embedBackward(dTable, dOut, ids);
  checkGradients(e, [out], [dOut], () => e.embed(out, table, ids), [[table, dTable]]);
});

test("a tensor used after free, and a tensor of the wrong size, are refused by name", async () => {
  const e = await openReferenceEngine();
  const t = e.alloc([4], "f32", "weights");
  expect(() => e.upload(t, new Float32Array(3))).toThrow(/weights/);
  const v = e.view(t, [2, 2]);
  e.free(t);
  expect(() => e.fill(t, 1)).toThrow(/weights.*freed/);
  expect(() => e.fill(v, 1)).toThrow(/freed/);
});

test("rounding to half precisions is to nearest, ties to even", async () => {
  const e = await openReferenceEngine();
  const half = e.alloc([3], "f16", "half");
  const brain = e.alloc([3], "bf16", "brain");
  e.upload(half, Float32Array.of(1 + 2 ** -11, 1 + 3 * 2 ** -11, 70000));
  e.upload(brain, Float32Array.of(1 + 2 ** -8, 1 + 3 * 2 ** -8, -0.1));
  expect([...(await e.download(half))]).toEqual([1, 1 + 2 ** -9, Infinity]);
  expect([...(await e.download(brain))]).toEqual([1, 1 + 2 ** -6, -0.10009765625]);
});
