/** Causal grouped-query attention and the short causal convolution, over packed documents and over a paged cache. */
import type { Packing, PagedContext, Tensor } from "../types.ts";
import { dims, ints, single, sized } from "./tensor.ts";

/** Softmax-weighted mean of values for one query head, keys and values at the given row offsets. Returns log Σ exp(scores). */
function attend(
  out: Float64Array,
  q: Float64Array,
  k: Float64Array,
  v: Float64Array,
  at: number[],
  scale: number,
): number {
  const D = q.length;
  const scores = at.map((o) => scale * q.reduce((sum, x, d) => sum + x * k[o + d]!, 0));
  const max = Math.max(...scores);
  const lse = max + Math.log(scores.reduce((sum, s) => sum + Math.exp(s - max), 0));
  out.fill(0);
  for (const [i, o] of at.entries()) {
    const p = Math.exp(scores[i]! - lse);
    for (let d = 0; d < D; d++) out[d]! += p * v[o + d]!;
  }
  return lse;
}

/** out[t,h] = Σ_{s ≤ t in the document} softmax(scale·q·k[s])·v[s] */
export function attention(
  out: Tensor,
  lse: Tensor,
  q: Tensor,
  k: Tensor,
  v: Tensor,
  packing: Packing,
  scale: number,
): void {
  const [T, H, D] = dims(q, 3);
  const [, K] = dims(k, 3);
  sized("attention", [out, T * H * D], [lse, T * H], [k, T * K * D], [v, T * K * D], [packing.docStart, T]);
  const [y, l, qs, start] = [single(out), single(lse), single(q), ints(packing.docStart)];
  for (let t = 0; t < T; t++) {
    for (let h = 0; h < H; h++) {
      const kv = Math.floor((h * K) / H);
      const at = Array.from({ length: t + 1 - start[t]! }, (_, i) => ((start[t]! + i) * K + kv) * D);
      const o = (t * H + h) * D;
      l[t * H + h] = attend(y.subarray(o, o + D), qs.subarray(o, o + D), single(k), single(v), at, scale);
    }
  }
}

/**
 * p = exp(scale·q·k − lse);  dv += p·dOut;  ds = p·(dOut·v − dOut·out);  dq += scale·ds·k;  dk += scale·ds·q
 */
export function attentionBackward(
  grads: { dq: Tensor; dk: Tensor; dv: Tensor },
  dOut: Tensor,
  saved: { q: Tensor; k: Tensor; v: Tensor; out: Tensor; lse: Tensor },
  packing: Packing,
  scale: number,
): void {
  const [T, H, D] = dims(saved.q, 3);
  const [, K] = dims(saved.k, 3);
  sized("attentionBackward", [grads.dq, T * H * D], [grads.dk, T * K * D], [grads.dv, T * K * D], [dOut, T * H * D]);
  const [q, k, v] = [single(saved.q), single(saved.k), single(saved.v)];
  const [out, lse, dy, start] = [single(saved.out), single(saved.lse), single(dOut), ints(packing.docStart)];
  const [dq, dk, dv] = [single(grads.dq).fill(0), single(grads.dk).fill(0), single(grads.dv).fill(0)];
  for (let t = 0; t < T; t++) {
    for (let h = 0; h < H; h++) {
      const o = (t * H + h) * D;
      let dot = 0;
      for (let d = 0; d < D; d++) dot += dy[o + d]! * out[o + d]!;
      for (let s = start[t]!; s <= t; s++) {
        const c = (s * K + Math.floor((h * K) / H)) * D;
        let [score, dp] = [0, 0];
        for (let d = 0; d < D; d++) {
          score += q[o + d]! * k[c + d]!;
          dp += dy[o + d]! * v[c + d]!;
        }
        const p = Math.exp(scale * score - lse[t * H + h]!);
        const ds = scale * p * (dp - dot);
        for (let d = 0; d < D; d++) {
          dv[c + d]! += p * dy[o + d]!;
          dq[o + d]! += ds * k[c + d]!;
          dk[c + d]! += ds * q[o + d]!;
        }
      }
    }
  }
}

/** Slot of entry j of a sequence in the paged cache. */
function slotReader(context: PagedContext): (sequence: number, j: number) => number {
  const pages = dims(context.pageTable, 2)[1];
  const [table, size] = [ints(context.pageTable), context.pageSize];
  return (b, j) => table[b * pages + Math.floor(j / size)]! * size + (j % size);
}

export function pagedAttention(
  out: Tensor,
  q: Tensor,
  kCache: Tensor,
  vCache: Tensor,
  context: PagedContext,
  scale: number,
): void {
  const [T, H, D] = dims(q, 3);
  const [S, KD] = dims(kCache, 2);
  const K = KD / D;
  sized("pagedAttention", [out, T * H * D], [vCache, S * KD], [context.sequence, T], [context.visible, T]);
  const [y, qs, slot] = [single(out), single(q), slotReader(context)];
  const [sequence, visible] = [ints(context.sequence), ints(context.visible)];
  for (let t = 0; t < T; t++) {
    for (let h = 0; h < H; h++) {
      const kv = Math.floor((h * K) / H);
      const at = Array.from({ length: visible[t]! }, (_, j) => slot(sequence[t]!, j) * KD + kv * D);
      const o = (t * H + h) * D;
      attend(y.subarray(o, o + D), qs.subarray(o, o + D), single(kCache), single(vCache), at, scale);
    }
  }
}

/** cache[slots[t]] = x[t] */
export function cacheWrite(cache: Tensor, x: Tensor, slots: Tensor): void {
  const [T, N] = dims(x, 2);
  sized("cacheWrite", [slots, T], [cache, dims(cache, 2)[0] * N]);
  const [c, xs, slot] = [single(cache), single(x), ints(slots)];
  for (let t = 0; t < T; t++) c.set(xs.subarray(t * N, (t + 1) * N), slot[t]! * N);
}

/** out[t] = x[t] + Σ_{j<taps, t−j ≥ docStart} w[n,j]·x[t−j] */
export function shortConv(out: Tensor, x: Tensor, w: Tensor, packing: Packing): void {
  const [T, N] = dims(x, 2);
  const taps = dims(w, 2)[1];
  sized("shortConv", [out, T * N], [w, N * taps], [packing.docStart, T]);
  const [y, xs, ws, start] = [single(out), single(x), single(w), ints(packing.docStart)];
  for (let t = 0; t < T; t++) {
    for (let n = 0; n < N; n++) {
      let sum = xs[t * N + n]!;
      for (let j = 0; j < taps && t - j >= start[t]!; j++) sum += ws[n * taps + j]! * xs[(t - j) * N + n]!;
      y[t * N + n] = sum;
    }
  }
}

/** dx[t] = dOut[t] + Σ_{j<taps, t+j < docEnd} w[n,j]·dOut[t+j];  dw[n,j] += Σ_t dOut[t]·x[t−j] */
export function shortConvBackward(dx: Tensor, dw: Tensor, dOut: Tensor, x: Tensor, w: Tensor, packing: Packing): void {
  const [T, N] = dims(x, 2);
  const taps = dims(w, 2)[1];
  sized("shortConvBackward", [dx, T * N], [dw, N * taps], [dOut, T * N], [w, N * taps], [packing.docEnd, T]);
  const [dxs, dws, dy, xs, ws] = [single(dx), single(dw), single(dOut), single(x), single(w)];
  const end = ints(packing.docEnd);
  for (let t = 0; t < T; t++) {
    for (let n = 0; n < N; n++) {
      let sum = dy[t * N + n]!;
      for (let j = 0; j < taps && t + j < end[t]!; j++) {
        sum += ws[n * taps + j]! * dy[(t + j) * N + n]!;
        dws[n * taps + j]! += dy[(t + j) * N + n]! * xs[t * N + n]!;
      }
      dxs[t * N + n] = sum;
    }
  }
}

export function pagedShortConv(out: Tensor, xCache: Tensor, w: Tensor, context: PagedContext): void {
  const [T, N] = dims(out, 2);
  const taps = dims(w, 2)[1];
  sized("pagedShortConv", [w, N * taps], [context.sequence, T], [context.visible, T], [xCache, dims(xCache, 2)[0] * N]);
  const [y, xs, ws, slot] = [single(out), single(xCache), single(w), slotReader(context)];
  const [sequence, visible] = [ints(context.sequence), ints(context.visible)];
  for (let t = 0; t < T; t++) {
    const position = visible[t]! - 1;
    for (let n = 0; n < N; n++) {
      const at = (j: number) => xs[slot(sequence[t]!, position - j) * N + n]!;
      let sum = at(0);
      for (let j = 0; j < taps && j <= position; j++) sum += ws[n * taps + j]! * at(j);
      y[t * N + n] = sum;
    }
  }
}
