/** RMSNorm, and the per-head RMSNorm with RoPE of queries and keys. An item is a stretch of rows. */
import { argF, argI, argP, get, madd, put, scratch, sum4, zero } from "./simd";

/** Σ a·b over n. */
function dot(a: usize, b: usize, n: i32): f32 {
  let s = zero(), t = zero();
  let i = 0;
  for (; i + 8 <= n; i += 8) {
    const o = i << 2;
    s = madd(v128.load(a + o), v128.load(b + o), s);
    t = madd(v128.load(a + o, 16), v128.load(b + o, 16), t);
  }
  for (; i < n; i += 4) s = madd(get(a + (i << 2), n - i), get(b + (i << 2), n - i), s);
  return sum4(f32x4.add(s, t));
}

// @ts-ignore: AssemblyScript decorator
@inline
function inverseRoot(meanSquare: f32, eps: f32): f32 {
  return <f32>(1.0 / sqrt<f64>(<f64>meanSquare + <f64>eps));
}

/** out, rstd, x, w, T, C, rows an item, eps. */
export function rmsNorm(item: i32): void {
  const out = argP(0), rstd = argP(1), x = argP(2), w = argP(3), n = argI(5), per = argI(6), eps = argF(7);
  const end = min(argI(4), (item + 1) * per);
  for (let t = item * per; t < end; t++) {
    const row = (<usize>t * n) << 2;
    const s = inverseRoot(dot(x + row, x + row, n) / <f32>n, eps);
    store<f32>(rstd + (t << 2), s);
    const sv = f32x4.splat(s);
    for (let i = 0; i < n; i += 4) {
      const o = i << 2;
      put(out + row + o, n - i, f32x4.mul(f32x4.mul(get(x + row + o, n - i), sv), get(w + o, n - i)));
    }
  }
}

/** dx +=, partial dw [items, C] of this stretch. dx, partial, dOut, x, w, rstd, T, C, rows an item. */
export function rmsNormBackward(item: i32): void {
  const dx = argP(0), dOut = argP(2), x = argP(3), w = argP(4), rstd = argP(5), n = argI(7), per = argI(8);
  const dw = argP(1) + ((<usize>item * n) << 2);
  const end = min(argI(6), (item + 1) * per);
  memory.fill(dw, 0, <usize>n << 2);
  for (let t = item * per; t < end; t++) {
    const row = (<usize>t * n) << 2;
    const s = load<f32>(rstd + (t << 2));
    const sv = f32x4.splat(s);
    let acc = zero();
    for (let i = 0; i < n; i += 4) {
      const o = i << 2, left = n - i;
      const dyx = f32x4.mul(get(dOut + row + o, left), get(x + row + o, left));
      acc = madd(dyx, get(w + o, left), acc);
      put(dw + o, left, madd(dyx, sv, get(dw + o, left)));
    }
    const c = f32x4.splat((-s * s * s * sum4(acc)) / <f32>n);
    for (let i = 0; i < n; i += 4) {
      const o = i << 2, left = n - i;
      const g = f32x4.mul(f32x4.mul(get(dOut + row + o, left), get(w + o, left)), sv);
      put(dx + row + o, left, f32x4.add(get(dx + row + o, left), madd(get(x + row + o, left), c, g)));
    }
  }
}

/** out, x, w, positions, table [·, cos D/2, sin D/2], T, H, D, tokens an item, eps. */
export function qkNormRope(item: i32): void {
  const out = argP(0), x = argP(1), w = argP(2), positions = argP(3), heads = argI(6), d = argI(7), per = argI(8), eps = argF(9);
  const half = d >> 1, hb = <usize>half << 2;
  const end = min(argI(5), (item + 1) * per);
  for (let t = item * per; t < end; t++) {
    const cos = argP(4) + ((<usize>load<u32>(positions + (t << 2)) * d) << 2);
    for (let h = 0; h < heads; h++) {
      const row = (<usize>(t * heads + h) * d) << 2;
      const xr = x + row, o = out + row;
      const s = f32x4.splat(inverseRoot(dot(xr, xr, d) / <f32>d, eps));
      for (let i = 0; i < half; i += 4) {
        const p = i << 2, left = half - i;
        const a = f32x4.mul(f32x4.mul(get(xr + p, left), s), get(w + p, left));
        const b = f32x4.mul(f32x4.mul(get(xr + hb + p, left), s), get(w + hb + p, left));
        const c = get(cos + p, left), n = get(cos + hb + p, left);
        put(o + p, left, f32x4.sub(f32x4.mul(a, c), f32x4.mul(b, n)));
        put(o + hb + p, left, f32x4.add(f32x4.mul(b, c), f32x4.mul(a, n)));
      }
    }
  }
}

/** dx, partial dw [items, D], dOut, x, w, positions, table, T, H, D, tokens an item, eps. */
export function qkNormRopeBackward(item: i32): void {
  const dx = argP(0), dOut = argP(2), x = argP(3), w = argP(4), positions = argP(5);
  const heads = argI(8), d = argI(9), per = argI(10), eps = argF(11);
  const half = d >> 1, hb = <usize>half << 2;
  const dw = argP(1) + ((<usize>item * d) << 2);
  const end = min(argI(7), (item + 1) * per);
  const dn = scratch;
  memory.fill(dw, 0, <usize>d << 2);
  for (let t = item * per; t < end; t++) {
    const cos = argP(6) + ((<usize>load<u32>(positions + (t << 2)) * d) << 2);
    for (let h = 0; h < heads; h++) {
      const row = (<usize>(t * heads + h) * d) << 2;
      const xr = x + row, g = dOut + row;
      const s = inverseRoot(dot(xr, xr, d) / <f32>d, eps);
      const sv = f32x4.splat(s);
      // The rotation's transpose, then RMSNorm backward on the head.
      for (let i = 0; i < half; i += 4) {
        const p = i << 2, left = half - i;
        const a = get(g + p, left), b = get(g + hb + p, left), c = get(cos + p, left), n = get(cos + hb + p, left);
        put(dn + p, left, f32x4.add(f32x4.mul(a, c), f32x4.mul(b, n)));
        put(dn + hb + p, left, f32x4.sub(f32x4.mul(b, c), f32x4.mul(a, n)));
      }
      let acc = zero();
      for (let i = 0; i < d; i += 4) {
        const p = i << 2, left = d - i;
        const dyx = f32x4.mul(get(dn + p, left), get(xr + p, left));
        acc = madd(dyx, get(w + p, left), acc);
        put(dw + p, left, madd(dyx, sv, get(dw + p, left)));
      }
      const c = f32x4.splat((-s * s * s * sum4(acc)) / <f32>d);
      for (let i = 0; i < d; i += 4) {
        const p = i << 2, left = d - i;
        const y = f32x4.mul(f32x4.mul(get(dn + p, left), get(w + p, left)), sv);
        put(dx + row + p, left, madd(get(xr + p, left), c, y));
      }
    }
  }
}
