/** Attention and the short convolutions: packed for training, paged for generation. */
import { EngineError, type Packing, type PagedContext, type Tensor } from "../types.ts";
import { each, grid, type Kit, withScratch } from "./kit.ts";
import { columnSum } from "./norms.ts";
import { dims, expect, type GpuTensor, own } from "./tensor.ts";

interface Heads {
  t: number;
  heads: number;
  kvHeads: number;
  d: number;
}

function headsOf(op: string, q: Tensor, k: Tensor): Heads {
  const [t, heads, d] = dims(op, q, 3);
  const [, kvHeads] = dims(op, k, 3);
  return { t, heads, kvHeads, d };
}

/** Heads are whole vec4s and are read four elements at a time. */
const fours = { q: "f32x4", k: "f32x4", v: "f32x4", d_out: "f32x4", x: "f32x4", y: "f32x4" };

/** The constant D of the kernels: the head dimension; on software adapters a bound of it that most models share. */
function capacity(kit: Kit, op: string, d: number): number {
  if (d % 4 !== 0) throw new EngineError(`${op}: head dimension ${d} is not a multiple of 4`);
  return kit.software ? Math.max(128, d) : d;
}

/** How the lanes share the work (kernels/slices.wgsl), with `rows` rows a lane where heads are sliced. */
function sharing(kit: Kit, op: string, d: number, rows: number) {
  let slices = kit.attentionSlices;
  while (d % (4 * slices) !== 0) slices /= 2;
  const constants = { D: capacity(kit, op, d), WG: kit.attentionLanes, SLICES: slices, ROWS: slices === 1 ? 1 : rows };
  return { constants, block: (constants.WG / slices) * constants.ROWS };
}

export function attention(
  kit: Kit,
  out: Tensor,
  lse: Tensor,
  q: Tensor,
  k: Tensor,
  v: Tensor,
  packing: Packing,
  scale: number,
): void {
  const { t, heads, kvHeads, d } = headsOf("attention", q, k);
  expect("attention", "f32", [out, t * heads * d], [lse, t * heads], [k, t * kvHeads * d], [v, t * kvHeads * d]);
  expect("attention", "i32", [packing.docStart, t]);
  const { constants, block } = sharing(kit, "attention", d, 4);
  kit.context.run({
    kernel: "attention",
    constants,
    types: fours,
    tensors: { q: own(q), k: own(k), v: own(v), doc_start: own(packing.docStart), out: own(out), lse: own(lse) },
    params: { t, heads, kv_heads: kvHeads, scale, d },
    groups: [Math.ceil(t / block), heads],
  });
}

export function attentionBackward(
  kit: Kit,
  grads: { dq: Tensor; dk: Tensor; dv: Tensor },
  dOut: Tensor,
  saved: { q: Tensor; k: Tensor; v: Tensor; out: Tensor; lse: Tensor },
  packing: Packing,
  scale: number,
): void {
  const op = "attentionBackward";
  const { t, heads, kvHeads, d } = headsOf(op, saved.q, saved.k);
  const [wide, narrow] = [t * heads * d, t * kvHeads * d];
  expect(op, "f32", [grads.dq, wide], [dOut, wide], [saved.out, wide], [saved.lse, t * heads]);
  expect(op, "f32", [grads.dk, narrow], [grads.dv, narrow], [saved.v, narrow]);
  expect(op, "i32", [packing.docStart, t], [packing.docEnd, t]);
  const { constants, block } = sharing(kit, op, d, 2);

  const params = { t, heads, kv_heads: kvHeads, scale, d };
  const inputs = { q: own(saved.q), k: own(saved.k), v: own(saved.v), d_out: own(dOut), lse: own(saved.lse) };
  const blocks = Math.ceil(t / block);
  withScratch(kit, [{ shape: [t * heads], label: "attention delta" }], (delta) => {
    if (!delta) return;
    const rows = t * heads;
    kit.context.run({
      kernel: "attention_delta",
      types: fours,
      tensors: { x: own(dOut), y: own(saved.out), out: delta },
      params: { rows, d },
      groups: grid(Math.ceil(rows / 64)),
    });
    kit.context.run({
      kernel: "attention_backward_q",
      constants,
      types: fours,
      tensors: { ...inputs, delta, doc_start: own(packing.docStart), dq: own(grads.dq) },
      params,
      groups: [blocks, heads],
    });
    kit.context.run({
      kernel: "attention_backward_kv",
      constants,
      types: fours,
      tensors: { ...inputs, delta, doc_end: own(packing.docEnd), dk: own(grads.dk), dv: own(grads.dv) },
      params,
      groups: [blocks, kvHeads],
    });
  });
}

export function pagedAttention(
  kit: Kit,
  out: Tensor,
  q: Tensor,
  kCache: Tensor,
  vCache: Tensor,
  context: PagedContext,
  scale: number,
): void {
  const op = "pagedAttention";
  const [t, heads, d] = dims(op, q, 3);
  const [slots, width] = dims(op, kCache, 2);
  if (width % d !== 0) throw new EngineError(`${op}: cache rows of ${width} are not whole heads of ${d}`);
  expect(op, "f32", [out, t * heads * d], [vCache, slots * width]);
  const { pages, tensors } = paging(op, context, t);
  kit.context.run({
    kernel: "paged_attention",
    constants: { D: capacity(kit, op, d), WG: kit.rowLanes },
    types: { ...fours, v: "f32" },
    tensors: { q: own(q), k: own(kCache), v: own(vCache), ...tensors, out: own(out) },
    params: { t, heads, kv_heads: width / d, d, scale, page_size: context.pageSize, pages },
    groups: grid(t * heads),
  });
}

function paging(op: string, context: PagedContext, t: number): { pages: number; tensors: Record<string, GpuTensor> } {
  const [sequences, pages] = dims(op, context.pageTable, 2);
  expect(op, "i32", [context.pageTable, sequences * pages], [context.sequence, t], [context.visible, t]);
  return {
    pages,
    tensors: { page_table: own(context.pageTable), sequence: own(context.sequence), visible: own(context.visible) },
  };
}

// ---- short convolution -------------------------------------------------------------------------------------------------
/** [T, N] of whatever rank after the first dimension. */
const rowsOf = (x: Tensor): [number, number] => [x.shape[0] ?? 0, x.size / (x.shape[0] || 1)];

export function shortConv(kit: Kit, out: Tensor, x: Tensor, w: Tensor, packing: Packing): void {
  const [t, width] = rowsOf(x);
  const [, taps] = dims("shortConv", w, 2);
  expect("shortConv", "f32", [out, x.size], [x, x.size], [w, width * taps]);
  expect("shortConv", "i32", [packing.docStart, t]);
  each(
    kit,
    {
      kernel: "short_conv",
      tensors: { x: own(x), w: own(w), doc_start: own(packing.docStart), out: own(out) },
      params: { width, taps },
    },
    t * width,
  );
}

export function shortConvBackward(
  kit: Kit,
  dx: Tensor,
  dw: Tensor,
  dOut: Tensor,
  x: Tensor,
  w: Tensor,
  packing: Packing,
): void {
  const op = "shortConvBackward";
  const [t, width] = rowsOf(x);
  const [, taps] = dims(op, w, 2);
  expect(op, "f32", [dx, x.size], [dOut, x.size], [x, x.size], [w, width * taps], [dw, width * taps]);
  expect(op, "i32", [packing.docStart, t], [packing.docEnd, t]);
  kit.context.run({
    kernel: "short_conv_backward",
    tensors: { d_out: own(dOut), w: own(w), doc_end: own(packing.docEnd), dx: own(dx) },
    params: { n: t * width, width, taps },
    groups: grid(Math.ceil((t * width) / 64)),
  });
  columnSum(kit, own(dw), t, width * taps, (partials, block, n) => {
    kit.context.run({
      kernel: "short_conv_weight",
      tensors: { d_out: own(dOut), x: own(x), doc_start: own(packing.docStart), partials },
      params: { rows: t, width, taps, block, n },
      groups: grid(Math.ceil(n / 64)),
    });
  });
}

export function pagedShortConv(kit: Kit, out: Tensor, xCache: Tensor, w: Tensor, context: PagedContext): void {
  const op = "pagedShortConv";
  const [t, width] = rowsOf(out);
  const [, taps] = dims(op, w, 2);
  const [slots] = dims(op, xCache, 2);
  expect(op, "f32", [out, t * width], [w, width * taps], [xCache, slots * width]);
  const { pages, tensors } = paging(op, context, t);
  kit.context.run({
    kernel: "paged_short_conv",
    tensors: { cache: own(xCache), w: own(w), ...tensors, out: own(out) },
    params: { n: t * width, width, taps, page_size: context.pageSize, pages },
    groups: grid(Math.ceil((t * width) / 64)),
  });
}
