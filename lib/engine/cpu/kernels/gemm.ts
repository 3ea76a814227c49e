/**
 * Matrix products C = alpha·op(A)·op(B) + beta·C on row-major f32, beta 0 or 1: by the system's BLAS where there is one, else packed into
 * panels of 4 rows and 8 columns that stay in the caches (Goto and van de Geijn 2008), 4×8 accumulators in registers.
 */
import { argF, argI, argP, get, hasBlas, madd, panels, put, sums4, widen1, widenBf16, widenF16, zero } from "./simd";

// @ts-ignore: AssemblyScript decorator
@external("env", "sgemm")
declare function sgemm(
  transA: i32, transB: i32, m: i32, n: i32, k: i32,
  alpha: f32, a: usize, lda: i32, b: usize, ldb: i32, beta: f32, c: usize, ldc: i32,
): void;

const KC: i32 = 256;
const MC: i32 = 128;
const NC: i32 = 512;
/** Below this many multiplications a call into BLAS costs more than it saves. */
const SMALL: i32 = 2048;

export function gemm(
  transA: bool, transB: bool, m: i32, n: i32, k: i32,
  alpha: f32, a: usize, lda: i32, b: usize, ldb: i32, beta: f32, c: usize, ldc: i32,
): void {
  if (hasBlas && m * n * k > SMALL) {
    sgemm(i32(transA), i32(transB), m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    return;
  }
  const packedB = panels + MC * KC * 4;
  for (let j0 = 0; j0 < n; j0 += NC) {
    const nj = min(NC, n - j0);
    for (let k0 = 0; k0 < k; k0 += KC) {
      const nk = min(KC, k - k0);
      const first = k0 == 0 && beta == 0;
      if (transB) packRows(packedB, b + ((j0 * ldb + k0) << 2), ldb, nj, nk, 8);
      else packColumns(packedB, b + ((k0 * ldb + j0) << 2), ldb, nj, nk, 8);
      for (let i0 = 0; i0 < m; i0 += MC) {
        const ni = min(MC, m - i0);
        if (transA) packColumns(panels, a + ((k0 * lda + i0) << 2), lda, ni, nk, 4);
        else packRows(panels, a + ((i0 * lda + k0) << 2), lda, ni, nk, 4);
        for (let j = 0; j < nj; j += 8) {
          const pb = packedB + ((j * nk) << 2);
          for (let i = 0; i < ni; i += 4) {
            const out = c + (((i0 + i) * ldc + j0 + j) << 2);
            tile(nk, panels + ((i * nk) << 2), pb, out, ldc << 2, alpha, first, ni - i, nj - j);
          }
        }
      }
    }
  }
}

/** Rows that lie along memory → panels of `width` rows, element (row, k) at k·width + row; missing rows are zeros. */
function packRows(to: usize, from: usize, ld: i32, rows: i32, depth: i32, width: i32): void {
  const stride = <usize>ld << 2;
  for (let r = 0; r < rows; r += 4) {
    // A panel of 8 is filled by two passes of 4 rows.
    const part = r & (width - 1);
    const p = to + (((r - part) * depth + part) << 2);
    const left = rows - r;
    const f = from + <usize>r * stride;
    let k = 0;
    if (left >= 4) {
      for (; k + 4 <= depth; k += 4) {
        const q = f + (k << 2);
        const x0 = v128.load(q);
        const x1 = v128.load(q + stride);
        const x2 = v128.load(q + 2 * stride);
        const x3 = v128.load(q + 3 * stride);
        const a = v128.shuffle<f32>(x0, x1, 0, 4, 1, 5);
        const b = v128.shuffle<f32>(x2, x3, 0, 4, 1, 5);
        const c = v128.shuffle<f32>(x0, x1, 2, 6, 3, 7);
        const d = v128.shuffle<f32>(x2, x3, 2, 6, 3, 7);
        const o = p + ((k * width) << 2);
        const step = <usize>width << 2;
        v128.store(o, v128.shuffle<i64>(a, b, 0, 2));
        v128.store(o + step, v128.shuffle<i64>(a, b, 1, 3));
        v128.store(o + 2 * step, v128.shuffle<i64>(c, d, 0, 2));
        v128.store(o + 3 * step, v128.shuffle<i64>(c, d, 1, 3));
      }
    }
    for (; k < depth; k++) {
      for (let j = 0; j < 4; j++) {
        store<f32>(p + ((k * width + j) << 2), j < left ? load<f32>(f + <usize>j * stride + (k << 2)) : 0);
      }
    }
    if (width == 8 && left <= 4 && part == 0) {
      for (let i = 0; i < depth; i++) v128.store(p + ((i * 8 + 4) << 2), zero());
    }
  }
}

/** Columns side by side in memory → panels of `width` columns, element (column, k) at k·width + column; missing ones are zeros. */
function packColumns(to: usize, from: usize, ld: i32, columns: i32, depth: i32, width: i32): void {
  for (let c = 0; c < columns; c += width) {
    let p = to + ((c * depth) << 2);
    let f = from + (c << 2);
    const left = columns - c;
    for (let k = 0; k < depth; k++) {
      v128.store(p, get(f, left));
      p += 16;
      if (width == 8) {
        v128.store(p, left > 4 ? get(f + 16, left - 4) : zero());
        p += 16;
      }
      f += <usize>ld << 2;
    }
  }
}

// @ts-ignore: AssemblyScript decorator
@inline
function flush(c: usize, alpha: v128, first: bool, left: i32, lo: v128, hi: v128): void {
  lo = f32x4.mul(lo, alpha);
  hi = f32x4.mul(hi, alpha);
  if (left >= 8) {
    v128.store(c, first ? lo : f32x4.add(lo, v128.load(c)));
    v128.store(c, first ? hi : f32x4.add(hi, v128.load(c, 16)), 16);
  } else {
    put(c, left, first ? lo : f32x4.add(lo, get(c, left)));
    if (left > 4) put(c + 16, left - 4, first ? hi : f32x4.add(hi, get(c + 16, left - 4)));
  }
}

function tile(k: i32, a: usize, b: usize, c: usize, ldc: usize, alpha: f32, first: bool, rows: i32, columns: i32): void {
  let c00 = zero(), c01 = zero(), c10 = zero(), c11 = zero();
  let c20 = zero(), c21 = zero(), c30 = zero(), c31 = zero();
  const end = a + (<usize>k << 4);
  while (a < end) {
    const b0 = v128.load(b);
    const b1 = v128.load(b, 16);
    const x = v128.load(a);
    const x0 = v128.shuffle<f32>(x, x, 0, 0, 0, 0);
    c00 = madd(x0, b0, c00);
    c01 = madd(x0, b1, c01);
    const x1 = v128.shuffle<f32>(x, x, 1, 1, 1, 1);
    c10 = madd(x1, b0, c10);
    c11 = madd(x1, b1, c11);
    const x2 = v128.shuffle<f32>(x, x, 2, 2, 2, 2);
    c20 = madd(x2, b0, c20);
    c21 = madd(x2, b1, c21);
    const x3 = v128.shuffle<f32>(x, x, 3, 3, 3, 3);
    c30 = madd(x3, b0, c30);
    c31 = madd(x3, b1, c31);
    a += 16;
    b += 32;
  }
  const s = f32x4.splat(alpha);
  flush(c, s, first, columns, c00, c01);
  if (rows > 1) flush(c + ldc, s, first, columns, c10, c11);
  if (rows > 2) flush(c + 2 * ldc, s, first, columns, c20, c21);
  if (rows > 3) flush(c + 3 * ldc, s, first, columns, c30, c31);
}

/** Item → one tile of the output. Arguments as in `CpuEngine.gemm`. */
export function gemmItem(item: i32): void {
  const transA = argI(0) != 0, transB = argI(1) != 0;
  const m = argI(2), n = argI(3), k = argI(4);
  const lda = argI(6), ldb = argI(8), ldc = argI(11);
  const tileM = argI(13), tileN = argI(14), across = argI(15);
  const i = (item / across) * tileM;
  const j = (item % across) * tileN;
  gemm(
    transA, transB, min(tileM, m - i), min(tileN, n - j), k,
    argF(12), argP(5) + ((transA ? i : i * lda) << 2), lda, argP(7) + ((transB ? j * ldb : j) << 2), ldb,
    argF(9), argP(10) + ((i * ldc + j) << 2), ldc,
  );
}

// @ts-ignore: AssemblyScript decorator
@inline
function weights(p: usize, k: i32, storage: i32): v128 {
  if (storage == 0) return v128.load(p + (k << 2));
  return storage == 1 ? widenBf16(p + (k << 1)) : widenF16(p + (k << 1));
}

/** out[i, j..j+4] = x[i]·w[j..j+4] for rows of length k; `storage` is a constant, so each call becomes its own loop. */
// @ts-ignore: AssemblyScript decorator
@inline
function dotRows(storage: i32, x: usize, m: i32, lda: i32, w: usize, wStride: usize, columns: i32, k: i32, out: usize, ldc: i32, add: bool): void {
  const w1 = w + (columns > 1 ? wStride : 0);
  const w2 = w + (columns > 2 ? 2 * wStride : 0);
  const w3 = w + (columns > 3 ? 3 * wStride : 0);
  const whole = k & ~3;
  for (let i = 0; i < m; i += 2) {
    const x0 = x + ((i * lda) << 2);
    const x1 = i + 1 < m ? x0 + (lda << 2) : x0;
    let a0 = zero(), a1 = zero(), a2 = zero(), a3 = zero();
    let b0 = zero(), b1 = zero(), b2 = zero(), b3 = zero();
    for (let p = 0; p < whole; p += 4) {
      const u = v128.load(x0 + (p << 2));
      const v = v128.load(x1 + (p << 2));
      let y = weights(w, p, storage);
      a0 = madd(u, y, a0);
      b0 = madd(v, y, b0);
      y = weights(w1, p, storage);
      a1 = madd(u, y, a1);
      b1 = madd(v, y, b1);
      y = weights(w2, p, storage);
      a2 = madd(u, y, a2);
      b2 = madd(v, y, b2);
      y = weights(w3, p, storage);
      a3 = madd(u, y, a3);
      b3 = madd(v, y, b3);
    }
    let a = sums4(a0, a1, a2, a3);
    let b = sums4(b0, b1, b2, b3);
    for (let p = whole; p < k; p++) {
      const y = storage == 0
        ? f32x4(load<f32>(w + (p << 2)), load<f32>(w1 + (p << 2)), load<f32>(w2 + (p << 2)), load<f32>(w3 + (p << 2)))
        : f32x4(
            widen1(w + (p << 1), storage), widen1(w1 + (p << 1), storage),
            widen1(w2 + (p << 1), storage), widen1(w3 + (p << 1), storage),
          );
      a = madd(f32x4.splat(load<f32>(x0 + (p << 2))), y, a);
      b = madd(f32x4.splat(load<f32>(x1 + (p << 2))), y, b);
    }
    const o = out + ((i * ldc) << 2);
    put(o, columns, add ? f32x4.add(get(o, columns), a) : a);
    if (i + 1 < m) {
      const o1 = o + (ldc << 2);
      put(o1, columns, add ? f32x4.add(get(o1, columns), b) : b);
    }
  }
}

/**
 * out [M,N] = x [M,K] · w [N,K]ᵀ for few rows x: streams the weights once, unpacked, whatever their storage.
 * Arguments: m, n, k, x, w, out, columns an item, storage, add.
 */
export function dotItem(item: i32): void {
  const m = argI(0), n = argI(1), k = argI(2);
  const x = argP(3), w = argP(4), out = argP(5);
  const per = argI(6), storage = argI(7), add = argI(8) != 0;
  const stride = <usize>k << (storage == 0 ? 2 : 1);
  const end = min(n, (item + 1) * per);
  for (let j = item * per; j < end; j += 4) {
    const wj = w + <usize>j * stride;
    const o = out + (j << 2);
    const columns = min(4, end - j);
    if (storage == 0) dotRows(0, x, m, k, wj, stride, columns, k, o, n, add);
    else if (storage == 1) dotRows(1, x, m, k, wj, stride, columns, k, o, n, add);
    else dotRows(2, x, m, k, wj, stride, columns, k, o, n, add);
  }
}
