/**
 * Matrix products C = alpha·op(A)·op(B) + beta·C on row-major f32, beta 0 or 1: by the system's BLAS where there is one, else packed into
 * panels that stay in the caches (Goto and van de Geijn 2008). Vectors run along the sum, four terms a lane each, and are added up at its
 * end: so nothing has to be broadcast, and two multiply-adds need little more than one load. 2×4 sums stay in registers.
 */
import { argF, argI, argP, get, hasBlas, madd, panels, put, sums4, widen1, widenBf16, widenF16, zero } from "./simd";

// @ts-ignore: AssemblyScript decorator
@external("env", "sgemm")
declare function sgemm(
  transA: i32, transB: i32, m: i32, n: i32, k: i32,
  alpha: f32, a: usize, lda: i32, b: usize, ldb: i32, beta: f32, c: usize, ldc: i32,
): void;

/** Terms, rows and columns of a packed block: B's (256 KiB) stays in the second-level cache, A's (16 KiB) in the first. */
const KC: i32 = 256;
const MC: i32 = 16;
const NC: i32 = 256;
/** The most rows of a product that streams its weights; CpuEngine asks for no more. */
export const MOST_ROWS: i32 = 64;
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
      if (transB) packRows(packedB, b + ((j0 * ldb + k0) << 2), ldb, nj, nk, 4);
      else packColumns(packedB, b + ((k0 * ldb + j0) << 2), ldb, nj, nk, 4);
      for (let i0 = 0; i0 < m; i0 += MC) {
        const ni = min(MC, m - i0);
        if (transA) packColumns(panels, a + ((k0 * lda + i0) << 2), lda, ni, nk, 2);
        else packRows(panels, a + ((i0 * lda + k0) << 2), lda, ni, nk, 2);
        tiles(ni, nj, (nk + 3) & ~3, packedB, c + ((i0 * ldc + j0) << 2), ldc << 2, alpha, first);
      }
    }
  }
}

/**
 * Rows whose terms lie along memory → panels of `width` rows: four terms of the first row, four of the second and so on, then the next four
 * terms. Missing rows and terms are zeros.
 */
function packRows(to: usize, from: usize, ld: i32, rows: i32, depth: i32, width: i32): void {
  const stride = <usize>ld << 2, step = <usize>width << 4;
  for (let r = 0; r < rows; r += width) {
    for (let j = 0; j < width; j++) {
      let f = from + <usize>(r + j) * stride;
      let p = to + (j << 4);
      if (r + j < rows) {
        let k = 0;
        for (; k + 4 <= depth; k += 4) {
          v128.store(p, v128.load(f));
          f += 16;
          p += step;
        }
        if (k < depth) v128.store(p, get(f, depth - k));
      } else {
        for (let k = 0; k < depth; k += 4) {
          v128.store(p, zero());
          p += step;
        }
      }
    }
    to += <usize>((depth + 3) >> 2) * step;
  }
}

/** As packRows for rows that lie across memory: term k of row r at k·ld + r. */
function packColumns(to: usize, from: usize, ld: i32, rows: i32, depth: i32, width: i32): void {
  const stride = <usize>ld << 2, step = <usize>width << 4;
  const whole = <usize>((depth + 3) >> 2) * step;
  for (let r = 0; r < rows; r += 4) {
    const left = rows - r;
    let f = from + (r << 2);
    // Four rows are one panel of four or two of two.
    let p = to + (width == 4 ? <usize>(r >> 2) * whole : <usize>(r >> 1) * whole);
    const second = width == 4 ? p + 32 : p + whole;
    let q = second;
    const both = width == 4 || left > 2;
    for (let k = 0; k < depth; k += 4) {
      const x0 = get(f, left);
      const x1 = k + 1 < depth ? get(f + stride, left) : zero();
      const x2 = k + 2 < depth ? get(f + 2 * stride, left) : zero();
      const x3 = k + 3 < depth ? get(f + 3 * stride, left) : zero();
      const a = v128.shuffle<f32>(x0, x1, 0, 4, 1, 5);
      const b = v128.shuffle<f32>(x2, x3, 0, 4, 1, 5);
      v128.store(p, v128.shuffle<i64>(a, b, 0, 2));
      v128.store(p, v128.shuffle<i64>(a, b, 1, 3), 16);
      if (both) {
        const c = v128.shuffle<f32>(x0, x1, 2, 6, 3, 7);
        const d = v128.shuffle<f32>(x2, x3, 2, 6, 3, 7);
        v128.store(q, v128.shuffle<i64>(c, d, 0, 2));
        v128.store(q, v128.shuffle<i64>(c, d, 1, 3), 16);
      }
      f += 4 * stride;
      p += step;
      q += step;
    }
  }
}

// @ts-ignore: AssemblyScript decorator
@inline
function flush(c: usize, alpha: v128, first: bool, left: i32, sum: v128): void {
  sum = f32x4.mul(sum, alpha);
  if (left >= 4) v128.store(c, first ? sum : f32x4.add(sum, v128.load(c)));
  else put(c, left, first ? sum : f32x4.add(sum, get(c, left)));
}

/** All tiles of a packed block: `rows` × `columns` of C, sums of k terms (a multiple of 4). */
function tiles(rows: i32, columns: i32, k: i32, packedB: usize, c: usize, ldc: usize, scale: f32, first: bool): void {
  const alpha = f32x4.splat(scale);
  const length = <usize>k << 3;
  for (let j = 0; j < columns; j += 4) {
    let a = panels;
    let out = c + (j << 2);
    for (let i = 0; i < rows; i += 2) {
      let b = packedB + ((j * k) << 2);
      let c00 = zero(), c01 = zero(), c02 = zero(), c03 = zero();
      let c10 = zero(), c11 = zero(), c12 = zero(), c13 = zero();
      const end = a + length;
      while (a < end) {
        const b0 = v128.load(b);
        const b1 = v128.load(b, 16);
        const b2 = v128.load(b, 32);
        const b3 = v128.load(b, 48);
        const a0 = v128.load(a);
        c00 = madd(a0, b0, c00);
        c01 = madd(a0, b1, c01);
        c02 = madd(a0, b2, c02);
        c03 = madd(a0, b3, c03);
        const a1 = v128.load(a, 16);
        c10 = madd(a1, b0, c10);
        c11 = madd(a1, b1, c11);
        c12 = madd(a1, b2, c12);
        c13 = madd(a1, b3, c13);
        a += 32;
        b += 64;
      }
      flush(out, alpha, first, columns - j, sums4(c00, c01, c02, c03));
      if (i + 1 < rows) flush(out + ldc, alpha, first, columns - j, sums4(c10, c11, c12, c13));
      out += 2 * ldc;
    }
  }
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

/** Four weights from term k of a row on, widened. */
// @ts-ignore: AssemblyScript decorator
@inline
function weights(row: usize, k: i32, storage: i32): v128 {
  if (storage == 0) return v128.load(row + (k << 2));
  return storage == 1 ? widenBf16(row + (k << 1)) : widenF16(row + (k << 1));
}
// @ts-ignore: AssemblyScript decorator
@inline
function weight(row: usize, k: i32, storage: i32): f32 {
  return storage == 0 ? load<f32>(row + (k << 2)) : widen1(row + (k << 1), storage);
}

/** One row x against four rows of weights, straight from memory: for a product that only waits for the weights. */
function dotRow(storage: i32, x: usize, w: usize, stride: usize, columns: i32, k: i32, out: usize, add: bool): void {
  const w1 = w + (columns > 1 ? stride : 0);
  const w2 = w + (columns > 2 ? 2 * stride : 0);
  const w3 = w + (columns > 3 ? 3 * stride : 0);
  let s0 = zero(), s1 = zero(), s2 = zero(), s3 = zero();
  let p = 0;
  for (; p + 4 <= k; p += 4) {
    const u = v128.load(x + (p << 2));
    s0 = madd(u, weights(w, p, storage), s0);
    s1 = madd(u, weights(w1, p, storage), s1);
    s2 = madd(u, weights(w2, p, storage), s2);
    s3 = madd(u, weights(w3, p, storage), s3);
  }
  let s = sums4(s0, s1, s2, s3);
  for (; p < k; p++) {
    const y = f32x4(weight(w, p, storage), weight(w1, p, storage), weight(w2, p, storage), weight(w3, p, storage));
    s = madd(f32x4.splat(load<f32>(x + (p << 2))), y, s);
  }
  put(out, columns, add ? f32x4.add(get(out, columns), s) : s);
}

/** A panel of four rows of weights, terms [k0, k0 + depth), widened. */
function packWeights(to: usize, storage: i32, w: usize, stride: usize, columns: i32, k0: i32, depth: i32): void {
  for (let j = 0; j < 4; j++) {
    let p = to + (j << 4);
    const row = w + <usize>min(j, columns - 1) * stride;
    let k = k0;
    for (; k + 4 <= k0 + depth; k += 4) {
      v128.store(p, weights(row, k, storage));
      p += 64;
    }
    for (let i = 0; k + i < k0 + depth || (i > 0 && i < 4); i++) {
      store<f32>(p + (i << 2), k + i < k0 + depth ? weight(row, k + i, storage) : 0);
    }
  }
}

/**
 * out [M,N] = x [M,K] · w [N,K]ᵀ for few rows x (at most MOST_ROWS): passes over the weights once, whatever their storage.
 * Arguments: m, n, k, x, w, out, columns an item, storage, add.
 */
export function dotItem(item: i32): void {
  const m = argI(0), n = argI(1), k = argI(2);
  const x = argP(3), w = argP(4), out = argP(5);
  const per = argI(6), storage = argI(7), add = argI(8) != 0;
  const stride = <usize>k << (storage == 0 ? 2 : 1);
  const start = item * per, end = min(n, start + per);
  if (m <= 3 || k == 0) {
    for (let j = start; j < end; j += 4) {
      for (let i = 0; i < m; i++) {
        dotRow(storage, x + ((i * k) << 2), w + <usize>j * stride, stride, min(4, end - j), k, out + ((i * n + j) << 2), add);
      }
    }
    return;
  }
  const panel = panels + MOST_ROWS * KC * 4;
  for (let k0 = 0; k0 < k; k0 += KC) {
    const nk = min(KC, k - k0);
    packRows(panels, x + (k0 << 2), k, m, nk, 2);
    for (let j = start; j < end; j += 4) {
      const columns = min(4, end - j);
      packWeights(panel, storage, w + <usize>j * stride, stride, columns, k0, nk);
      tiles(m, columns, (nk + 3) & ~3, panel, out + (j << 2), n << 2, 1, k0 == 0 && !add);
    }
  }
}
