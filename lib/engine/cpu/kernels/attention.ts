/**
 * Flash-style causal attention (Dao 2023): blocks of queries against blocks of keys with a running maximum and sum, in O(T) memory;
 * the products of a block are matrix products. Query head h reads key/value head ⌊h·K/H⌋.
 */
import { slot } from "./conv";
import { gemm } from "./gemm";
import { KEY_BLOCK, QUERY_BLOCK } from "./ids";
import { argF, argI, argP, exp1, exp4, get, lanes, log, madd, max4, put, scratch, sum4, sums4, zero } from "./simd";

/** Row length of a block of scores: not a power of two, so that rows do not fall on the same cache lines. */
const LD: i32 = KEY_BLOCK + 16;
const NONE: f32 = -3.0e38;

/** row[0..n) = exp(row − m), zeros up to `to`; the sum. */
function exponentials(row: usize, n: i32, to: i32, m: f32): f32 {
  const mv = f32x4.splat(m);
  let sum = zero();
  let i = 0;
  for (; i + 4 <= n; i += 4) {
    const e = exp4(f32x4.sub(v128.load(row + (i << 2)), mv));
    v128.store(row + (i << 2), e);
    sum = f32x4.add(sum, e);
  }
  if (i < n) {
    const e = v128.and(exp4(f32x4.sub(v128.load(row + (i << 2)), mv)), lanes(n - i));
    v128.store(row + (i << 2), e);
    sum = f32x4.add(sum, e);
    i += 4;
  }
  for (; i < to; i += 4) v128.store(row + (i << 2), zero());
  return sum4(sum);
}

function maximum(row: usize, n: i32): f32 {
  let m = f32x4.splat(NONE), m2 = m;
  let i = 0;
  for (; i + 8 <= n; i += 8) {
    m = f32x4.max(m, v128.load(row + (i << 2)));
    m2 = f32x4.max(m2, v128.load(row + (i << 2), 16));
  }
  let best = max4(f32x4.max(m, m2));
  for (; i < n; i++) best = max(best, load<f32>(row + (i << 2)));
  return best;
}

function scaleRow(row: usize, n: i32, by: f32): void {
  const s = f32x4.splat(by);
  for (let i = 0; i < n; i += 4) put(row + (i << 2), n - i, f32x4.mul(get(row + (i << 2), n - i), s));
}

/**
 * One block of queries [q0, q1) of one head against keys [d0, q1).
 * Arguments: table of blocks (q0, q1, d0), q, k, v, out, lse, H, K, D, scale. Item = block·H + head.
 */
export function attention(item: i32): void {
  const H = argI(6), K = argI(7), D = argI(8), scale = argF(9);
  const h = item % H, kv = (h * K) / H;
  const block = argP(0) + (item / H) * 12;
  const q0 = load<i32>(block), q1 = load<i32>(block, 4), d0 = load<i32>(block, 8);
  const rows = q1 - q0, ldq = H * D, ldk = K * D;
  const qb = argP(1) + ((<usize>q0 * ldq + h * D) << 2);
  const ob = argP(4) + ((<usize>q0 * ldq + h * D) << 2);
  const lse = argP(5);
  const maxima = scratch, sums = maxima + (QUERY_BLOCK << 2), scores = sums + (QUERY_BLOCK << 2);

  for (let k0 = d0; k0 < q1; k0 += KEY_BLOCK) {
    const n = min(KEY_BLOCK, q1 - k0);
    const at = (<usize>k0 * ldk + kv * D) << 2;
    gemm(false, true, rows, n, D, scale, qb, ldq, argP(2) + at, ldk, 0, scores, LD);
    for (let r = 0; r < rows; r++) {
      const row = scores + ((r * LD) << 2);
      const seen = max(0, min(n, q0 + r - k0 + 1));
      const old = k0 == d0 ? NONE : load<f32>(maxima + (r << 2));
      const m = max(old, maximum(row, seen));
      let sum = exponentials(row, seen, n, m);
      if (k0 > d0) {
        const shrink = exp1(old - m);
        sum += load<f32>(sums + (r << 2)) * shrink;
        if (shrink != 1) scaleRow(ob + ((<usize>r * ldq) << 2), D, shrink);
      }
      store<f32>(maxima + (r << 2), m);
      store<f32>(sums + (r << 2), sum);
    }
    gemm(false, false, rows, D, n, 1, scores, LD, argP(3) + at, ldk, k0 == d0 ? 0 : 1, ob, ldq);
  }
  for (let r = 0; r < rows; r++) {
    const sum = load<f32>(sums + (r << 2));
    scaleRow(ob + ((<usize>r * ldq) << 2), D, 1 / sum);
    store<f32>(lse + (((q0 + r) * H + h) << 2), <f32>(<f64>load<f32>(maxima + (r << 2)) + log(sum)));
  }
}

/** p = exp(s − lse) of the seen keys, 0 of the others, and ds = p·(dp − delta)·scale. Overwrites s with p and dp with ds. */
function scoreGradients(s: usize, dp: usize, seen: i32, n: i32, lse: f32, delta: f32, scale: f32): void {
  const l = f32x4.splat(lse), d = f32x4.splat(delta), c = f32x4.splat(scale);
  let i = 0;
  for (; i < seen; i += 4) {
    const o = i << 2;
    let p = exp4(f32x4.sub(v128.load(s + o), l));
    if (seen - i < 4) p = v128.and(p, lanes(seen - i));
    v128.store(s + o, p);
    // Lanes beyond `seen` hold whatever lay there; p = 0 does not clear a NaN, the mask does.
    let g = f32x4.mul(f32x4.mul(p, f32x4.sub(v128.load(dp + o), d)), c);
    if (seen - i < 4) g = v128.and(g, lanes(seen - i));
    v128.store(dp + o, g);
  }
  for (; i < n; i += 4) {
    v128.store(s + (i << 2), zero());
    v128.store(dp + (i << 2), zero());
  }
}

/**
 * Keys [k0, k1) of one document [d0, d1) and one key/value head against all later queries of its heads. dq is overwritten by the
 * document's first stretch of keys and added to by the others, which are dispatched one after the other.
 * Arguments: table (d1, d0, k0, k1), q, k, v, out, lse, dOut, dq, dk, dv, H, K, D, scale. Item = stretch·K + key/value head.
 */
export function attentionBackward(item: i32): void {
  const H = argI(10), K = argI(11), D = argI(12), scale = argF(13);
  const kv = item % K;
  const block = argP(0) + (item / K) * 16;
  const d1 = load<i32>(block), d0 = load<i32>(block, 4), k0 = load<i32>(block, 8), k1 = load<i32>(block, 12);
  const ldq = H * D, ldk = K * D;
  const at = (<usize>k0 * ldk + kv * D) << 2;
  const keys = argP(2) + at, values = argP(3) + at, dk = argP(8) + at, dv = argP(9) + at;
  const lse = argP(5);
  const s = scratch, dp = s + ((QUERY_BLOCK * LD) << 2);
  for (let j = 0; j < k1 - k0; j++) {
    memory.fill(dk + ((<usize>j * ldk) << 2), 0, <usize>D << 2);
    memory.fill(dv + ((<usize>j * ldk) << 2), 0, <usize>D << 2);
  }
  for (let h = (kv * H + K - 1) / K; h < H && (h * K) / H == kv; h++) {
    for (let q0 = k0; q0 < d1; q0 += QUERY_BLOCK) {
      const q1 = min(q0 + QUERY_BLOCK, d1);
      const rows = q1 - q0, n = min(k1, q1) - k0;
      const aq = (<usize>q0 * ldq + h * D) << 2;
      const q = argP(1) + aq, dOut = argP(6) + aq;
      gemm(false, true, rows, n, D, scale, q, ldq, keys, ldk, 0, s, LD);
      gemm(false, true, rows, n, D, 1, dOut, ldq, values, ldk, 0, dp, LD);
      for (let r = 0; r < rows; r++) {
        const o = (<usize>r * ldq) << 2;
        let delta = zero();
        for (let i = 0; i < D; i += 4) {
          const p = o + (i << 2);
          delta = madd(get(dOut + p, D - i), get(argP(4) + aq + p, D - i), delta);
        }
        const row = (r * LD) << 2;
        const seen = min(n, q0 + r - k0 + 1);
        scoreGradients(s + row, dp + row, seen, n, load<f32>(lse + (((q0 + r) * H + h) << 2)), sum4(delta), scale);
        // A document's first token sees one key, whatever its score: the gradient is 0, not what rounding leaves of dp − delta.
        if (q0 + r == d0) store<f32>(dp + row, 0);
      }
      gemm(true, false, n, D, rows, 1, s, LD, dOut, ldq, 1, dv, ldk);
      gemm(false, false, rows, D, n, 1, dp, LD, keys, ldk, k0 == d0 ? 0 : 1, argP(7) + aq, ldq);
      gemm(true, false, n, D, rows, 1, dp, LD, q, ldq, 1, dk, ldk);
    }
  }
}

/** Scores of one query against the keys at addresses at[0..n): row[i] = scale·q·k_i. */
function keyScores(row: usize, q: usize, at: usize, base: usize, n: i32, D: i32, scale: f32): void {
  const c = f32x4.splat(scale);
  for (let i = 0; i < n; i += 4) {
    const p0 = base + load<u32>(at + (i << 2));
    const p1 = i + 1 < n ? base + load<u32>(at + (i << 2), 4) : p0;
    const p2 = i + 2 < n ? base + load<u32>(at + (i << 2), 8) : p0;
    const p3 = i + 3 < n ? base + load<u32>(at + (i << 2), 12) : p0;
    let a = zero(), b = zero(), e = zero(), f = zero();
    for (let d = 0; d < D; d += 4) {
      const o = d << 2, left = D - d;
      const x = get(q + o, left);
      a = madd(x, get(p0 + o, left), a);
      b = madd(x, get(p1 + o, left), b);
      e = madd(x, get(p2 + o, left), e);
      f = madd(x, get(p3 + o, left), f);
    }
    v128.store(row + (i << 2), f32x4.mul(sums4(a, b, e, f), c));
  }
}

/** out[0..D) (+)= Σ_i p_i·v_i, rows at addresses at[0..n). */
function weightedValues(out: usize, p: usize, at: usize, base: usize, n: i32, D: i32, add: bool): void {
  let d = 0;
  for (; d + 16 <= D; d += 16) {
    const o = out + (d << 2), v = base + (d << 2);
    let a = zero(), b = zero(), e = zero(), f = zero();
    if (add) {
      a = v128.load(o);
      b = v128.load(o, 16);
      e = v128.load(o, 32);
      f = v128.load(o, 48);
    }
    for (let i = 0; i < n; i++) {
      const w = v128.load32_splat(p + (i << 2));
      const r = v + load<u32>(at + (i << 2));
      a = madd(w, v128.load(r), a);
      b = madd(w, v128.load(r, 16), b);
      e = madd(w, v128.load(r, 32), e);
      f = madd(w, v128.load(r, 48), f);
    }
    v128.store(o, a);
    v128.store(o, b, 16);
    v128.store(o, e, 32);
    v128.store(o, f, 48);
  }
  for (; d < D; d += 4) {
    const left = D - d;
    let a = add ? get(out + (d << 2), left) : zero();
    for (let i = 0; i < n; i++) {
      a = madd(v128.load32_splat(p + (i << 2)), get(base + load<u32>(at + (i << 2)) + (d << 2), left), a);
    }
    put(out + (d << 2), left, a);
  }
}

/**
 * One query token and one key/value head, keys and values through the page table.
 * Arguments: out, q, kCache, vCache, pageTable, sequence, visible, pages a sequence, page size, H, K, D, scale. Item = token·K + key/value head.
 */
export function pagedAttention(item: i32): void {
  const pages = argI(7), pageSize = argI(8), H = argI(9), K = argI(10), D = argI(11), scale = argF(12);
  const t = item / K, kv = item % K;
  const kBase = argP(2) + ((kv * D) << 2), vBase = argP(3) + ((kv * D) << 2);
  const table = argP(4) + ((load<i32>(argP(5) + (t << 2)) * pages) << 2);
  const visible = load<i32>(argP(6) + (t << 2));
  const row = scratch, at = row + ((KEY_BLOCK + 4) << 2), maxima = at + (KEY_BLOCK << 2), sums = maxima + (H << 2);
  const first = (kv * H + K - 1) / K;
  for (let k0 = 0; k0 < visible; k0 += KEY_BLOCK) {
    const n = min(KEY_BLOCK, visible - k0);
    for (let i = 0; i < n; i++) store<u32>(at + (i << 2), (slot(table, k0 + i, pageSize) * (K * D)) << 2);
    for (let h = first; h < H && (h * K) / H == kv; h++) {
      const o = (<usize>(t * H + h) * D) << 2;
      const out = argP(0) + o;
      keyScores(row, argP(1) + o, at, kBase, n, D, scale);
      const old = k0 == 0 ? NONE : load<f32>(maxima + (h << 2));
      const m = max(old, maximum(row, n));
      let sum = exponentials(row, n, n, m);
      if (k0 > 0) {
        const shrink = exp1(old - m);
        sum += load<f32>(sums + (h << 2)) * shrink;
        scaleRow(out, D, shrink);
      }
      weightedValues(out, row, at, vBase, n, D, k0 > 0);
      store<f32>(maxima + (h << 2), m);
      store<f32>(sums + (h << 2), sum);
      if (k0 + n == visible) scaleRow(out, D, 1 / sum);
    }
  }
}
