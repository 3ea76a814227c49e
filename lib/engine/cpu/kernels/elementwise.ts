/** Elementwise kernels, row movement, reductions, SwiGLU and AdamW. An item is a stretch of CHUNK elements unless said otherwise. */
import { argF, argI, argP, exp4, get, lanes, madd, narrow1, put, widen1, widenBf16, widenF16, zero } from "./simd";

/** out, n, chunk, value. */
export function fill(item: i32): void {
  const out = argP(0), chunk = argI(2), begin = item * chunk;
  const n = min(chunk, argI(1) - begin);
  const v = f32x4.splat(argF(3));
  const o = out + (begin << 2);
  for (let i = 0; i < n; i += 4) put(o + (i << 2), n - i, v);
}

export function widenRow(out: usize, from: usize, n: i32, storage: i32): void {
  if (storage == 0) {
    memory.copy(out, from, <usize>n << 2);
    return;
  }
  let i = 0;
  if (storage == 1) for (; i + 4 <= n; i += 4) v128.store(out + (i << 2), widenBf16(from + (i << 1)));
  else for (; i + 4 <= n; i += 4) v128.store(out + (i << 2), widenF16(from + (i << 1)));
  for (; i < n; i++) store<f32>(out + (i << 2), widen1(from + (i << 1), storage));
}

/** out, x, n, chunk, storage of out, storage of x. */
export function copy(item: i32): void {
  const out = argP(0), x = argP(1), chunk = argI(3), begin = item * chunk, to = argI(4), from = argI(5);
  const n = min(chunk, argI(2) - begin);
  if (to == from) {
    const shift = to == 0 ? 2 : 1;
    memory.copy(out + (<usize>begin << shift), x + (<usize>begin << shift), <usize>n << shift);
  } else if (to == 0) {
    widenRow(out + (begin << 2), x + (begin << 1), n, from);
  } else {
    for (let i = begin; i < begin + n; i++) store<u16>(out + (i << 1), narrow1(load<f32>(x + (i << 2)), to));
  }
}

/** out, a, x, b, y, n, chunk. */
export function axpby(item: i32): void {
  const out = argP(0), x = argP(2), y = argP(4), chunk = argI(6), begin = item * chunk;
  const n = min(chunk, argI(5) - begin);
  const a = f32x4.splat(argF(1)), b = f32x4.splat(argF(3));
  for (let i = 0; i < n; i += 4) {
    const o = (begin + i) << 2;
    const left = n - i;
    put(out + o, left, f32x4.add(f32x4.mul(a, get(x + o, left)), f32x4.mul(b, get(y + o, left))));
  }
}

/** x, n, chunk, partial f64 [items]: Σ x² in double precision. */
export function sumSquares(item: i32): void {
  const x = argP(0), chunk = argI(2), begin = item * chunk;
  const n = min(chunk, argI(1) - begin);
  let a = zero(), b = zero();
  for (let i = 0; i < n; i += 4) {
    const v = get(x + ((begin + i) << 2), n - i);
    const lo = f64x2.promote_low_f32x4(v);
    const hi = f64x2.promote_low_f32x4(v128.shuffle<f32>(v, v, 2, 3, 2, 3));
    a = f64x2.add(a, f64x2.mul(lo, lo));
    b = f64x2.add(b, f64x2.mul(hi, hi));
  }
  const s = f64x2.add(a, b);
  store<f64>(argP(3) + (item << 3), f64x2.extract_lane(s, 0) + f64x2.extract_lane(s, 1));
}

/** out [n] += Σ_r x [rows, n], rows in order. out, x, rows, n, columns an item. */
export function addRows(item: i32): void {
  const out = argP(0), x = argP(1), rows = argI(2), n = argI(3), per = argI(4);
  const end = min(n, (item + 1) * per);
  for (let j = item * per; j < end; j += 4) {
    const left = end - j;
    let s = get(out + (j << 2), left);
    for (let r = 0; r < rows; r++) s = f32x4.add(s, get(x + ((r * n + j) << 2), left));
    put(out + (j << 2), left, s);
  }
}

/**
 * Moves rows of n: gather (out[r] = x[ids[r]]) or scatter (out[ids[r]] = x[r]). out, x, ids, rows, n, rows an item, scatter, storage of x.
 */
export function rows(item: i32): void {
  const out = argP(0), x = argP(1), ids = argP(2), n = argI(4), per = argI(5), scatter = argI(6) != 0, storage = argI(7);
  const end = min(argI(3), (item + 1) * per);
  const from = <usize>n << (storage == 0 ? 2 : 1);
  for (let r = item * per; r < end; r++) {
    const id = load<u32>(ids + (r << 2));
    widenRow(out + (<usize>(scatter ? id : r) * n << 2), x + <usize>(scatter ? r : id) * from, n, storage);
  }
}

/** dTable[ids[t]] += dOut[t] for the rows of the table that the item owns, in token order. dTable, dOut, ids, T, n, V, rows an item. */
export function embedBackward(item: i32): void {
  const table = argP(0), dOut = argP(1), ids = argP(2), tokens = argI(3), n = argI(4), per = argI(6);
  const low = <u32>(item * per), high = <u32>min(argI(5), (item + 1) * per);
  for (let t = 0; t < tokens; t++) {
    const id = load<u32>(ids + (t << 2));
    if (id < low || id >= high) continue;
    const o = table + (<usize>id * n << 2), x = dOut + (<usize>t * n << 2);
    for (let j = 0; j < n; j += 4) put(o + (j << 2), n - j, f32x4.add(get(o + (j << 2), n - j), get(x + (j << 2), n - j)));
  }
}

// @ts-ignore: AssemblyScript decorator
@inline
function sigmoid(x: v128): v128 {
  return f32x4.div(f32x4.splat(1), f32x4.add(f32x4.splat(1), exp4(f32x4.neg(x))));
}

/** out, gate, up, n, chunk. */
export function swiglu(item: i32): void {
  const out = argP(0), gate = argP(1), up = argP(2), chunk = argI(4), begin = item * chunk;
  const n = min(chunk, argI(3) - begin);
  for (let i = 0; i < n; i += 4) {
    const o = (begin + i) << 2, left = n - i;
    const g = get(gate + o, left);
    put(out + o, left, f32x4.mul(f32x4.mul(g, sigmoid(g)), get(up + o, left)));
  }
}

/** dGate, dUp, dOut, gate, up, n, chunk. */
export function swigluBackward(item: i32): void {
  const dGate = argP(0), dUp = argP(1), dOut = argP(2), gate = argP(3), up = argP(4), chunk = argI(6), begin = item * chunk;
  const n = min(chunk, argI(5) - begin);
  const one = f32x4.splat(1);
  for (let i = 0; i < n; i += 4) {
    const o = (begin + i) << 2, left = n - i;
    const g = get(gate + o, left), u = get(up + o, left), d = get(dOut + o, left);
    const s = sigmoid(g);
    const ds = f32x4.mul(d, s);
    put(dUp + o, left, f32x4.mul(ds, g));
    put(dGate + o, left, f32x4.mul(f32x4.mul(ds, u), madd(g, f32x4.sub(one, s), one)));
  }
}

/** param, grad, m, v, n, chunk, then gradScale, beta1, beta2, lr/(1 − beta1^t), 1/√(1 − beta2^t), eps, 1 − lr·weightDecay, 1 − beta1, 1 − beta2. */
export function adamw(item: i32): void {
  const param = argP(0), grad = argP(1), m = argP(2), v = argP(3), chunk = argI(5), begin = item * chunk;
  const n = min(chunk, argI(4) - begin);
  const scale = f32x4.splat(argF(6)), beta1 = f32x4.splat(argF(7)), beta2 = f32x4.splat(argF(8));
  const rate = f32x4.splat(argF(9)), root = f32x4.splat(argF(10)), eps = f32x4.splat(argF(11)), decay = f32x4.splat(argF(12));
  const rest1 = f32x4.splat(argF(13)), rest2 = f32x4.splat(argF(14));
  for (let i = 0; i < n; i += 4) {
    const o = (begin + i) << 2, left = n - i;
    const g = f32x4.mul(get(grad + o, left), scale);
    const m1 = f32x4.add(f32x4.mul(beta1, get(m + o, left)), f32x4.mul(rest1, g));
    const v1 = f32x4.add(f32x4.mul(beta2, get(v + o, left)), f32x4.mul(rest2, f32x4.mul(g, g)));
    put(m + o, left, m1);
    put(v + o, left, v1);
    const denominator = f32x4.add(f32x4.mul(f32x4.sqrt(v1), root), eps);
    const p = f32x4.mul(get(param + o, left), decay);
    put(param + o, left, f32x4.sub(p, f32x4.div(f32x4.mul(rate, m1), denominator)));
  }
}

/** Adds lanes below `left` only; for sums over ragged rows of values that are not 0 beyond the end. */
export function masked(v: v128, left: i32): v128 {
  return left >= 4 ? v : v128.and(v, lanes(left));
}
