/** Matrix products: which kernel for which shape on which adapter. */
import { EngineError, type MatmulOptions } from "../types.ts";
import { grid, type Kit, rowWindows, windowOf, withScratch } from "./kit.ts";
import { dims, expect, type GpuTensor } from "./tensor.ts";

/**
 * One way to compute a product. All but `dot` and `matrix` add up k in order, in f32, so that they give the same bits (`panel` onto what is there,
 * when accumulating, the others apart from it).
 */
export type Variant =
  | { kernel: "naive" }
  | { kernel: "panel"; rows: number }
  | { kernel: "dot"; rows: number }
  | { kernel: "matrix" }
  | { kernel: "tile"; bm: number; bn: number; bk: number; tm: number; tn: number };

export interface Shape {
  m: number;
  n: number;
  k: number;
  transA: boolean;
  transB: boolean;
  /** Storage type of b. */
  type: string;
}

/** Shapes of one class share a variant: powers of two of the sizes, and how the operands lie. */
export function shapeClass(s: Shape): string {
  const bucket = (n: number) => Math.min(13, Math.ceil(Math.log2(Math.max(1, n))));
  return `${s.transA ? "T" : "N"}${s.transB ? "T" : "N"} ${s.type} ${bucket(s.m)}.${bucket(s.n)}.${bucket(s.k)}`;
}

/** The variants that may be tried for a shape, the default first. */
export function variants(kit: Kit, s: Shape): Variant[] {
  const tile = (bm: number, bn: number, bk: number, tm: number, tn: number): Variant => ({
    kernel: "tile",
    bm,
    bn,
    bk,
    tm,
    tn,
  });
  const few = s.transB && !s.transA && s.m <= 8;
  const dot: Variant = { kernel: "dot", rows: s.m === 1 ? 1 : s.m <= 4 ? 4 : 8 };
  if (kit.panels) {
    const panels: Variant[] = [8, 4].map((rows) => ({ kernel: "panel", rows }));
    if (s.m <= 4) panels.reverse();
    return few ? [dot, ...panels] : panels;
  }
  const tiles: Variant[] = [
    tile(64, 64, 16, 4, 4),
    tile(128, 128, 8, 8, 8),
    tile(128, 64, 16, 8, 4),
    tile(32, 32, 16, 4, 4),
  ];
  // Never the default: the tuner takes it where it is measured to be right and fastest.
  if (kit.matrix && s.m > 8) tiles.push({ kernel: "matrix" });
  return few ? [dot, ...tiles] : tiles;
}

export type Chooser = (s: Shape) => Variant;

export function matmul(
  kit: Kit,
  choose: Chooser,
  out: GpuTensor,
  a: GpuTensor,
  b: GpuTensor,
  options: MatmulOptions = {},
): void {
  const { transA = false, transB = false, accumulate = false } = options;
  const [a0, a1] = dims("matmul", a, 2);
  const [b0, b1] = dims("matmul", b, 2);
  const [m, k] = transA ? [a1, a0] : [a0, a1];
  const [n, kb] = transB ? [b0, b1] : [b1, b0];
  if (k !== kb) {
    throw new EngineError(
      `matmul: "${a.label}" [${a.shape}]${transA ? "ᵀ" : ""} by "${b.label}" [${b.shape}]${transB ? "ᵀ" : ""}: ${k} against ${kb}`,
    );
  }
  expect("matmul", "f32", [a, m * k], [out, m * n]);
  expect("matmul", ["f32", "f16", "bf16"], [b, n * k]);
  if (m === 0 || n === 0) return;
  const most = kit.context.limits.maxStorageBufferBindingSize ?? 2 ** 27;
  if (transB && b.bytes > most) {
    // Columns of the output in stretches, one for each window of b's rows.
    for (const { first, rows, window } of rowWindows(kit, "matmul", b)) {
      const s: Shape = { m, n: rows, k, transA, transB, type: b.dtype };
      runVariant(kit, choose(s), windowOf(out, [(m - 1) * n + rows], first), a, window, s, n, accumulate);
    }
    return;
  }
  const s: Shape = { m, n, k, transA, transB, type: b.dtype };
  runVariant(kit, choose(s), out, a, b, s, n, accumulate);
}

/** One variant on one window: out[m·ldo + n]. */
export function runVariant(
  kit: Kit,
  v: Variant,
  out: GpuTensor,
  a: GpuTensor,
  b: GpuTensor,
  s: Shape,
  ldo: number,
  accumulate: boolean,
): void {
  const { context } = kit;
  const params = { m: s.m, n: s.n, k: s.k, ldo };
  const fours = (s.transA ? s.m : s.k) % 4 === 0 && (s.transB ? s.k : s.n) % 4 === 0;
  const suffix = fours ? "x4" : "";
  const types = { a: `f32${suffix}`, b: `${b.dtype}${suffix}` };
  const constants = { TRANS_A: s.transA, TRANS_B: s.transB, ACCUMULATE: accumulate };
  const tensors = { a, b, out };
  switch (v.kernel) {
    case "naive":
      context.run({
        kernel: "matmul_naive",
        constants,
        types: { a: "f32", b: b.dtype },
        tensors,
        params,
        groups: [Math.ceil(s.n / 8), Math.ceil(s.m / 8)],
      });
      return;
    case "dot": {
      const [x, y] = grid(s.n);
      context.run({
        kernel: "matmul_dot",
        constants: { WG: Math.min(kit.rowLanes, 64), ROWS: v.rows, FOURS: fours, ACCUMULATE: accumulate },
        types,
        tensors,
        params,
        groups: [x, y, Math.ceil(s.m / v.rows)],
      });
      return;
    }
    case "matrix": {
      if (!kit.matrix) throw new EngineError("matmul: this adapter has no subgroup matrices");
      const { m: mm, n: mn, k: mk, subgroup } = kit.matrix;
      context.run({
        kernel: "matmul_matrix",
        constants: {
          ...constants,
          MM: mm,
          MN: mn,
          MK: mk,
          BK: 16,
          SUBGROUP: subgroup,
          PARTS_B: b.dtype === "f16" ? 1 : 2,
        },
        types,
        tensors,
        params,
        groups: [Math.ceil(s.n / 64), Math.ceil(s.m / 64)],
      });
      return;
    }
    case "tile":
      context.run({
        kernel: "matmul_tile",
        constants: { ...constants, FOURS: fours, BM: v.bm, BN: v.bn, BK: v.bk, TM: v.tm, TN: v.tn },
        types,
        tensors,
        params,
        groups: [Math.ceil(s.n / v.bn), Math.ceil(s.m / v.bm)],
      });
      return;
    case "panel":
      panels(kit, v.rows, out, a, b, s, ldo, accumulate);
      return;
  }
}

/** Floats of a window of packed columns: the 64 KiB that every adapter binds as a uniform buffer. */
const WINDOW = 16384;
/** The most windows packed at once: 16 MiB. */
const WINDOWS = 256;

/** b is packed once, which costs N·K beside M·N·K, whichever way it lies; then a dispatch a window. */
function panels(
  kit: Kit,
  rows: number,
  out: GpuTensor,
  a: GpuTensor,
  b: GpuTensor,
  s: Shape,
  ldo: number,
  accumulate: boolean,
): void {
  const { context, rowLanes } = kit;
  const width = 4 * rowLanes;
  const padded = Math.max(1, Math.ceil(s.k / rowLanes)) * rowLanes;
  const depth = Math.min(padded, WINDOW / width);
  const parts = Math.ceil(padded / depth);
  const per = Math.floor(WINDOW / (width * depth));
  const bindable = (context.limits.maxStorageBufferBindingSize ?? 2 ** 27) / (4 * WINDOW);
  const step = Math.max(1, Math.floor(Math.min(WINDOWS, bindable) / parts)) * per * width;
  const constants = { WG: rowLanes, WINDOW };
  for (let first = 0; first < s.n; first += step) {
    const count = Math.ceil(Math.min(step, s.n - first) / width);
    const shape = [Math.ceil(count / per) * parts, WINDOW];
    withScratch(kit, [{ shape, label: `${b.label} in panels` }], (packed) => {
      if (!packed) return;
      context.run({
        kernel: "matmul_pack",
        constants: { ...constants, TRANS_B: s.transB },
        types: { b: b.dtype },
        tensors: { b, out: packed },
        params: { n: s.n, k: s.k, first, depth, per, parts },
        groups: [count, Math.ceil((depth * parts) / 16)],
      });
      for (let at = 0; at < count; at += per) {
        for (let part = 0; part < parts; part++) {
          context.run({
            kernel: "matmul_panel",
            constants: { ...constants, ROWS: rows, TRANS_A: s.transA },
            tensors: { a, b: windowOf(packed, [WINDOW], ((at / per) * parts + part) * WINDOW), out },
            params: {
              ...{ m: s.m, n: s.n, k: s.k, ldo, first: first + at * width },
              ...{ k0: part * depth, depth, onto: accumulate || part > 0 ? 1 : 0 },
            },
            groups: [Math.ceil(s.m / rows), Math.min(per, count - at)],
          });
        }
      }
    });
  }
}
