/**
 * The vector vocabulary of the kernels (AssemblyScript): partial loads and stores for ragged ends, multiply-add, exp, log, and the
 * control block's arguments.
 */
import { ARGS, SCRATCH_BYTES } from "./ids";

/** This thread's scratch: first the panels of the matrix product, then the kernel's own. */
export let panels: usize = 0;
export let scratch: usize = 0;
/** 0 for the main thread, then the workers. */
export let thread: i32 = 0;
/** Whether `env.sgemm` is a BLAS. */
export let hasBlas: bool = false;

export const PANEL_BYTES: i32 = 1048576;
export const ROOM: i32 = SCRATCH_BYTES - PANEL_BYTES;

export function init(scratchBase: usize, threadNumber: i32, blas: bool): void {
  panels = scratchBase;
  scratch = scratchBase + PANEL_BYTES;
  thread = threadNumber;
  hasBlas = blas;
}

// @ts-ignore: AssemblyScript decorator
@inline
export function argI(i: i32): i32 {
  return load<i32>(ARGS + (i << 2));
}
// @ts-ignore: AssemblyScript decorator
@inline
export function argP(i: i32): usize {
  return load<u32>(ARGS + (i << 2));
}
// @ts-ignore: AssemblyScript decorator
@inline
export function argF(i: i32): f32 {
  return load<f32>(ARGS + (i << 2));
}

// @ts-ignore: AssemblyScript decorator
@inline
export function zero(): v128 {
  return i64x2.splat(0);
}

/** a·b + c, fused where this build has relaxed SIMD. */
// @ts-ignore: AssemblyScript decorator
@inline
export function madd(a: v128, b: v128, c: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) return f32x4.relaxed_madd(a, b, c);
  return f32x4.add(f32x4.mul(a, b), c);
}

function loadSome(p: usize, left: i32): v128 {
  let v = v128.load32_zero(p);
  if (left > 1) v = f32x4.replace_lane(v, 1, load<f32>(p, 4));
  if (left > 2) v = f32x4.replace_lane(v, 2, load<f32>(p, 8));
  return v;
}
function storeSome(p: usize, left: i32, v: v128): void {
  store<f32>(p, f32x4.extract_lane(v, 0));
  if (left > 1) store<f32>(p, f32x4.extract_lane(v, 1), 4);
  if (left > 2) store<f32>(p, f32x4.extract_lane(v, 2), 8);
}

/** Four floats, or the `left` < 4 that remain and zeros. */
// @ts-ignore: AssemblyScript decorator
@inline
export function get(p: usize, left: i32): v128 {
  return left >= 4 ? v128.load(p) : loadSome(p, left);
}
// @ts-ignore: AssemblyScript decorator
@inline
export function put(p: usize, left: i32, v: v128): void {
  if (left >= 4) v128.store(p, v);
  else storeSome(p, left, v);
}

/** All ones in the lanes below `left`. */
// @ts-ignore: AssemblyScript decorator
@inline
export function lanes(left: i32): v128 {
  return i32x4.lt_s(i32x4(0, 1, 2, 3), i32x4.splat(left));
}

// @ts-ignore: AssemblyScript decorator
@inline
export function sum4(v: v128): f32 {
  const h = f32x4.add(v, v128.shuffle<f32>(v, v, 2, 3, 0, 1));
  return f32x4.extract_lane(h, 0) + f32x4.extract_lane(h, 1);
}
// @ts-ignore: AssemblyScript decorator
@inline
export function max4(v: v128): f32 {
  const h = f32x4.max(v, v128.shuffle<f32>(v, v, 2, 3, 0, 1));
  return max(f32x4.extract_lane(h, 0), f32x4.extract_lane(h, 1));
}
/** The four sums of four vectors, as one vector. */
// @ts-ignore: AssemblyScript decorator
@inline
export function sums4(a: v128, b: v128, c: v128, d: v128): v128 {
  const ab = f32x4.add(v128.shuffle<f32>(a, b, 0, 4, 1, 5), v128.shuffle<f32>(a, b, 2, 6, 3, 7));
  const cd = f32x4.add(v128.shuffle<f32>(c, d, 0, 4, 1, 5), v128.shuffle<f32>(c, d, 2, 6, 3, 7));
  return f32x4.add(v128.shuffle<f32>(ab, cd, 0, 1, 4, 5), v128.shuffle<f32>(ab, cd, 2, 3, 6, 7));
}

/**
 * exp, about 1 ulp between −87.3 and 88; 0 below. Cody and Waite's reduction x = n·ln2 + r, |r| ≤ ln2/2, then a polynomial of
 * degree 5 fitted (minimax, relative) to (exp(r) − 1 − r)/r².
 */
// @ts-ignore: AssemblyScript decorator
@inline
export function exp4(x: v128): v128 {
  const bounded = f32x4.min(x, f32x4.splat(88.37));
  const n = f32x4.nearest(f32x4.mul(bounded, f32x4.splat(1.4426950408889634)));
  let r = madd(n, f32x4.splat(-0.693359375), bounded);
  r = madd(n, f32x4.splat(2.12194440e-4), r);
  let p = f32x4.splat(1.979020016733557e-4);
  p = madd(p, r, f32x4.splat(1.3944808160886168e-3));
  p = madd(p, r, f32x4.splat(8.333497680723667e-3));
  p = madd(p, r, f32x4.splat(4.1666291654109955e-2));
  p = madd(p, r, f32x4.splat(1.666666567325592e-1));
  p = madd(p, r, f32x4.splat(0.5));
  p = f32x4.add(madd(f32x4.mul(r, r), p, r), f32x4.splat(1));
  const scaled = f32x4.mul(p, i32x4.shl(i32x4.add(i32x4.trunc_sat_f32x4_s(n), i32x4.splat(127)), 23));
  return v128.andnot(scaled, f32x4.lt(x, f32x4.splat(-87.33)));
}

/** exp of one number, the same bits as a lane of exp4. */
export function exp1(x: f32): f32 {
  return f32x4.extract_lane(exp4(f32x4.splat(x)), 0);
}

/** Natural logarithm of a positive normal number, to about 1e-15: x = 2^e·m, then ln m = 2·artanh((m − 1)/(m + 1)). */
export function log(x: f64): f64 {
  const bits = reinterpret<u64>(x);
  let e = <i32>(bits >> 52) - 1023;
  let m = reinterpret<f64>((bits & 0x000fffffffffffff) | 0x3ff0000000000000);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    e += 1;
  }
  const s = (m - 1) / (m + 1);
  const z = s * s;
  let p: f64 = 0;
  for (let k = 21; k >= 1; k -= 2) p = p * z + 1.0 / <f64>k;
  return <f64>e * 0.6931471805599453 + 2 * s * p;
}

/** Four bf16 or f16 numbers at p, widened to f32. */
// @ts-ignore: AssemblyScript decorator
@inline
export function widenBf16(p: usize): v128 {
  return i32x4.shl(v128.load16x4_u(p), 16);
}
// @ts-ignore: AssemblyScript decorator
@inline
export function widenF16(p: usize): v128 {
  const h = v128.load16x4_u(p);
  const magnitude = v128.and(h, i32x4.splat(0x7fff));
  const finite = f32x4.mul(i32x4.shl(magnitude, 13), i32x4.splat(0x77800000)); // × 2^112 moves the exponent's bias
  const special = i32x4.gt_s(magnitude, i32x4.splat(0x7bff));
  const value = v128.or(finite, v128.and(special, i32x4.splat(0x7f800000)));
  return v128.or(value, i32x4.shl(v128.and(h, i32x4.splat(0x8000)), 16));
}
export function widen1(p: usize, storage: i32): f32 {
  const h = <u32>load<u16>(p);
  if (storage == 1) return reinterpret<f32>(h << 16);
  const magnitude = h & 0x7fff;
  let value = reinterpret<f32>(magnitude << 13) * reinterpret<f32>(0x77800000);
  if (magnitude > 0x7bff) value = reinterpret<f32>(reinterpret<u32>(value) | 0x7f800000);
  return reinterpret<f32>(reinterpret<u32>(value) | ((h & 0x8000) << 16));
}
/** f32 → bf16 (storage 1) or f16 (2), to nearest even; NaN stays NaN, too large becomes infinite. */
export function narrow1(x: f32, storage: i32): u16 {
  const bits = reinterpret<u32>(x);
  const sign = bits >> 31;
  const magnitude = bits & 0x7fffffff;
  if (storage == 1) {
    if (magnitude > 0x7f800000) return <u16>((bits >> 16) | 0x40);
    return <u16>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  }
  const s = <u16>(sign << 15);
  if (magnitude > 0x7f800000) return s | 0x7e00;
  if (magnitude >= 0x477ff000) return s | 0x7c00;
  // Adding 0.5 · 2^(e+...) rounds a subnormal at the right place; normals rebias and round on the bits.
  if (magnitude < 0x38800000) return s | <u16>(reinterpret<u32>(reinterpret<f32>(magnitude) + 0.5) - 0x3f000000);
  return s | <u16>((magnitude - 0x38000000 + 0xfff + ((magnitude >> 13) & 1)) >> 13);
}
