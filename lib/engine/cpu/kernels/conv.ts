/** The short causal depthwise convolution with residual: out[t] = x[t] + Σ_j w[n,j]·x[t−j] within the document. */
import { argI, argP, get, madd, put } from "./simd";

/** w[n..n+4, j] of w [N, taps]. */
// @ts-ignore: AssemblyScript decorator
@inline
function taps4(w: usize, taps: i32, n: i32, j: i32, left: i32): v128 {
  const p = w + ((n * taps + j) << 2), step = <usize>taps << 2;
  return f32x4(
    load<f32>(p),
    left > 1 ? load<f32>(p + step) : 0,
    left > 2 ? load<f32>(p + 2 * step) : 0,
    left > 3 ? load<f32>(p + 3 * step) : 0,
  );
}

/** out, x, w, docStart, T, N, taps, tokens an item. */
export function shortConv(item: i32): void {
  const out = argP(0), x = argP(1), w = argP(2), docStart = argP(3), n = argI(5), taps = argI(6), per = argI(7);
  const begin = item * per, end = min(argI(4), begin + per);
  for (let c = 0; c < n; c += 4) {
    const left = n - c;
    for (let t = begin; t < end; t++) {
      const p = x + ((<usize>t * n + c) << 2);
      const reach = min(taps, t - load<i32>(docStart + (t << 2)) + 1);
      let s = get(p, left);
      for (let j = 0; j < reach; j++) s = madd(taps4(w, taps, c, j, left), get(p - ((<usize>j * n) << 2), left), s);
      put(out + ((<usize>t * n + c) << 2), left, s);
    }
  }
}

/** dx[t] = dOut[t] + Σ_j w[n,j]·dOut[t+j] within the document. dx, dOut, w, docEnd, T, N, taps, tokens an item. */
export function shortConvBackwardX(item: i32): void {
  const dx = argP(0), dOut = argP(1), w = argP(2), docEnd = argP(3), n = argI(5), taps = argI(6), per = argI(7);
  const begin = item * per, end = min(argI(4), begin + per);
  for (let c = 0; c < n; c += 4) {
    const left = n - c;
    for (let t = begin; t < end; t++) {
      const p = dOut + ((<usize>t * n + c) << 2);
      const reach = min(taps, load<i32>(docEnd + (t << 2)) - t);
      let s = get(p, left);
      for (let j = 0; j < reach; j++) s = madd(taps4(w, taps, c, j, left), get(p + ((<usize>j * n) << 2), left), s);
      put(dx + ((<usize>t * n + c) << 2), left, s);
    }
  }
}

/** dw[n,j] += Σ_t dOut[t,n]·x[t−j,n] for the columns that the item owns. dw, dOut, x, docStart, T, N, taps, columns an item. */
export function shortConvBackwardW(item: i32): void {
  const dw = argP(0), dOut = argP(1), x = argP(2), docStart = argP(3), tokens = argI(4), n = argI(5), taps = argI(6), per = argI(7);
  const end = min(n, (item + 1) * per);
  for (let c = item * per; c < end; c += 4) {
    const left = end - c;
    for (let j = 0; j < taps; j++) {
      let s = taps4(dw, taps, c, j, left);
      for (let t = j; t < tokens; t++) {
        if (t - load<i32>(docStart + (t << 2)) < j) continue;
        const p = ((<usize>t * n + c) << 2);
        s = madd(get(dOut + p, left), get(x + p - ((<usize>j * n) << 2), left), s);
      }
      const o = dw + ((c * taps + j) << 2), step = <usize>taps << 2;
      store<f32>(o, f32x4.extract_lane(s, 0));
      if (left > 1) store<f32>(o + step, f32x4.extract_lane(s, 1));
      if (left > 2) store<f32>(o + 2 * step, f32x4.extract_lane(s, 2));
      if (left > 3) store<f32>(o + 3 * step, f32x4.extract_lane(s, 3));
    }
  }
}

/** out, cache, w, pageTable, sequence, visible, T, N, taps, pages a sequence, page size, tokens an item. */
export function pagedShortConv(item: i32): void {
  const out = argP(0), cache = argP(1), w = argP(2), pageTable = argP(3), sequence = argP(4), visible = argP(5);
  const n = argI(7), taps = argI(8), pages = argI(9), pageSize = argI(10), per = argI(11);
  const end = min(argI(6), (item + 1) * per);
  for (let t = item * per; t < end; t++) {
    const table = pageTable + ((load<i32>(sequence + (t << 2)) * pages) << 2);
    const last = load<i32>(visible + (t << 2)) - 1;
    const reach = min(taps, last + 1);
    for (let c = 0; c < n; c += 4) {
      const left = n - c;
      let s = get(cache + ((<usize>slot(table, last, pageSize) * n + c) << 2), left);
      for (let j = 0; j < reach; j++) {
        s = madd(taps4(w, taps, c, j, left), get(cache + ((<usize>slot(table, last - j, pageSize) * n + c) << 2), left), s);
      }
      put(out + ((<usize>t * n + c) << 2), left, s);
    }
  }
}

/** Cache row of entry i of a sequence whose page numbers lie at `table`. */
// @ts-ignore: AssemblyScript decorator
@inline
export function slot(table: usize, i: i32, pageSize: i32): u32 {
  return load<u32>(table + ((i / pageSize) << 2)) * pageSize + (i % pageSize);
}
