/** What the operations share: the context, the choices for this adapter, scratch memory, windows on tensors, and launching over elements. */

import type { DType } from "../types.ts";
import { OutOfMemoryError } from "../types.ts";
import type { Context, Dispatch } from "./context.ts";
import { bytesOf, elements, GpuTensor, isHalf } from "./tensor.ts";

export interface Kit {
  context: Context;
  /** Lanes of a workgroup that works on a row: the subgroup on software adapters, more on GPUs. */
  rowLanes: number;
  /** Lanes of a workgroup of the attention kernels. */
  attentionLanes: number;
  /** Lanes that share a row of attention at the most: 1, 2, 4 or 8. */
  attentionSlices: number;
  software: boolean;
  /** Whether matrix products go by `panel`: on software adapters whose subgroups have one size. */
  panels: boolean;
  /** Subgroup matrices of f16, and the lanes that work on one; null where the adapter has none. */
  matrix: { m: number; n: number; k: number; subgroup: number } | null;
  /** A small zeroed tensor, for bindings that a variant does not read. */
  nothing: GpuTensor;
}

/** A grid of that many workgroups in one dimension, folded where the limit of a dimension is passed (kernels undo it with `flat`). */
export function grid(groups: number): [number, number] {
  return groups <= 65535 ? [groups, 1] : [32768, Math.ceil(groups / 32768)];
}

/** A window of `shape` that starts `offset` elements into the tensor; no copy. */
export function windowOf(t: GpuTensor, shape: readonly number[], offset: number, dtype: DType = t.dtype): GpuTensor {
  const at = t.byteOffset + (isHalf(t.dtype) ? offset * 2 : offset * 4);
  return new GpuTensor(t.block, at, shape, dtype, t.label, t.base ?? t);
}

/** Scratch memory for the operations recorded in `use`. It goes back to the pool at once: later work comes later on the queue. */
export function withScratch<T>(
  kit: Kit,
  shapes: { shape: number[]; label: string; dtype?: DType }[],
  use: (...t: GpuTensor[]) => T,
): T {
  const taken = shapes.map(({ shape, label, dtype = "f32" }) => {
    const { block } = kit.context.take(bytesOf(elements(shape), dtype), label);
    return new GpuTensor(block, 0, shape, dtype, label, null);
  });
  try {
    return use(...taken);
  } finally {
    for (const t of taken) {
      t.freed = true;
      kit.context.give(t.block);
    }
  }
}

/** Rows of a [R, C] tensor in windows that one binding can hold; offsets are multiples of 256 bytes. */
export function* rowWindows(
  kit: Kit,
  op: string,
  t: GpuTensor,
): Generator<{ first: number; rows: number; window: GpuTensor }> {
  const [rows = 0, width = 0] = [t.shape[0], t.size / (t.shape[0] || 1)];
  const most = kit.context.limits.maxStorageBufferBindingSize ?? 2 ** 27;
  if (t.bytes <= most) {
    yield { first: 0, rows, window: t };
    return;
  }
  const step = Math.floor(most / bytesOf(width * 128, t.dtype)) * 128;
  if (step === 0) {
    throw new OutOfMemoryError(
      `${op}: 128 rows of "${t.label}" [${t.shape}] exceed the adapter's limit maxStorageBufferBindingSize of ${most} bytes. ${kit.context.inUse()}`,
    );
  }
  for (let first = 0; first < rows; first += step) {
    const n = Math.min(step, rows - first);
    yield { first, rows: n, window: windowOf(t, [n, width], first * width) };
  }
}

/** Runs an elementwise kernel over n elements, `per` elements an invocation of a workgroup of 64; in windows where a binding is too large. */
export function each(kit: Kit, d: Omit<Dispatch, "groups">, n: number, per = 1): void {
  const most = kit.context.limits.maxStorageBufferBindingSize ?? 2 ** 27;
  const largest = Math.max(...Object.values(d.tensors).map((t) => t.bytes));
  if (largest <= most) {
    kit.context.run({ ...d, params: { ...d.params, n }, groups: grid(Math.ceil(n / (64 * per))) });
    return;
  }
  const step = 2 ** Math.floor(Math.log2(most / 4));
  for (let at = 0; at < n; at += step) {
    const m = Math.min(step, n - at);
    const tensors = Object.fromEntries(
      // Packed tensors count their elements, words of a fill their words: either way the window has m elements of the tensor.
      Object.entries(d.tensors).map(([name, t]) => [name, windowOf(t, [m], at)]),
    );
    kit.context.run({ ...d, tensors, params: { ...d.params, n: m }, groups: grid(Math.ceil(m / (64 * per))) });
  }
}
