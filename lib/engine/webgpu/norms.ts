/** RMSNorm over rows, per-head q/k norm with RoPE, and the sums over rows that their weights' gradients need. */
import { EngineError, type Tensor } from "../types.ts";
import { grid, type Kit, withScratch } from "./kit.ts";
import { dims, expect, type GpuTensor, own } from "./tensor.ts";

/**
 * out [columns] += the sum over rows, in two steps of fixed order: `partial` fills partials [blocks, columns], n elements in all, each from
 * `block` rows.
 */
export function columnSum(
  kit: Kit,
  out: GpuTensor,
  rows: number,
  columns: number,
  partial: (partials: GpuTensor, block: number, n: number) => void,
): void {
  const block = Math.max(16, Math.ceil(rows / 256));
  const blocks = Math.ceil(rows / block);
  withScratch(kit, [{ shape: [blocks, columns], label: "column sums" }], (partials) => {
    if (!partials) return;
    partial(partials, block, blocks * columns);
    kit.context.run({
      kernel: "column_total",
      tensors: { partials, out },
      params: { width: columns, blocks },
      groups: grid(Math.ceil(columns / 64)),
    });
  });
}

export function rmsNorm(kit: Kit, out: Tensor, rstd: Tensor, x: Tensor, w: Tensor, eps: number): void {
  const width = w.size;
  const rows = x.size / width;
  expect("rmsNorm", "f32", [x, x.size], [w, width], [out, x.size], [rstd, rows]);
  kit.context.run({
    kernel: "rms_norm",
    constants: { WG: kit.rowLanes },
    tensors: { x: own(x), w: own(w), out: own(out), rstd: own(rstd) },
    params: { rows, width, eps },
    groups: grid(rows),
  });
}

export function rmsNormBackward(
  kit: Kit,
  dx: Tensor,
  dw: Tensor,
  dOut: Tensor,
  x: Tensor,
  w: Tensor,
  rstd: Tensor,
): void {
  const width = w.size;
  const rows = x.size / width;
  expect("rmsNormBackward", "f32", [dx, x.size], [dOut, x.size], [x, x.size], [w, width], [dw, width], [rstd, rows]);
  const inputs = { d_out: own(dOut), x: own(x), rstd: own(rstd) };
  kit.context.run({
    kernel: "rms_norm_backward",
    constants: { WG: kit.rowLanes },
    tensors: { ...inputs, w: own(w), dx: own(dx) },
    params: { rows, width },
    groups: grid(rows),
  });
  columnSum(kit, own(dw), rows, width, (partials, block, n) => {
    kit.context.run({
      kernel: "column_partials",
      constants: { NORM: true },
      tensors: { ...inputs, partials },
      params: { rows, width, block, n },
      groups: grid(Math.ceil(n / 64)),
    });
  });
}

/**
 * RoPE's frequencies in turns a position, as 32 and 12 more bits of fraction, computed in integers of 44 bits; see kernels/rope.wgsl.
 * u32 [D/2, 2].
 */
export function ropeTurns(d: number, theta: number): Uint32Array {
  const out = new Uint32Array(d);
  for (let i = 0; i < d / 2; i++) {
    const turns = theta ** ((-2 * i) / d) / (2 * Math.PI);
    const scaled = Math.round(turns * 2 ** 44);
    out[2 * i] = Math.floor(scaled / 4096);
    out[2 * i + 1] = scaled % 4096;
  }
  return out;
}

export type Turns = (d: number, theta: number) => GpuTensor;

export function qkNormRope(
  kit: Kit,
  turns: Turns,
  out: Tensor,
  x: Tensor,
  w: Tensor,
  positions: Tensor,
  eps: number,
  theta: number,
): void {
  const { t, heads, d } = shapes("qkNormRope", x, w, positions);
  expect("qkNormRope", "f32", [out, x.size]);
  kit.context.run({
    kernel: "qk_norm_rope",
    constants: { WG: Math.min(kit.rowLanes, 32) },
    tensors: { x: own(x), w: own(w), positions: own(positions), turns: turns(d, theta), out: own(out) },
    params: { rows: t * heads, heads, d, eps },
    groups: grid(t * heads),
  });
}

export function qkNormRopeBackward(
  kit: Kit,
  turns: Turns,
  dx: Tensor,
  dw: Tensor,
  dOut: Tensor,
  x: Tensor,
  w: Tensor,
  positions: Tensor,
  eps: number,
  theta: number,
): void {
  const op = "qkNormRopeBackward";
  const { t, heads, d } = shapes(op, x, w, positions);
  expect(op, "f32", [dx, x.size], [dOut, x.size], [dw, d]);
  const rows = t * heads;
  withScratch(kit, [{ shape: [rows, d], label: "q/k norm weight gradient" }], (dwRows) => {
    if (!dwRows) return;
    kit.context.run({
      kernel: "qk_norm_rope_backward",
      constants: { WG: Math.min(kit.rowLanes, 32) },
      tensors: {
        d_out: own(dOut),
        x: own(x),
        w: own(w),
        positions: own(positions),
        turns: turns(d, theta),
        dx: own(dx),
        dw_rows: dwRows,
      },
      params: { rows, heads, d, eps },
      groups: grid(rows),
    });
    columnSum(kit, own(dw), rows, d, (partials, block, n) => {
      kit.context.run({
        kernel: "column_partials",
        constants: { NORM: false },
        tensors: { d_out: dwRows, x: kit.nothing, rstd: kit.nothing, partials },
        params: { rows, width: d, block, n },
        groups: grid(Math.ceil(n / 64)),
      });
    });
  });
}

function shapes(op: string, x: Tensor, w: Tensor, positions: Tensor): { t: number; heads: number; d: number } {
  const [t, heads, d] = dims(op, x, 3);
  if (d % 2 !== 0) throw new EngineError(`${op}: "${x.label}" has heads of ${d}; RoPE needs an even number`);
  expect(op, "f32", [x, x.size], [w, d]);
  expect(op, "i32", [positions, t]);
  return { t, heads, d };
}
