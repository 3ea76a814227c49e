/** The softmax ends of the fused output projection, on a stretch of rows of logits, and sampling. An item is one row unless said. */
import { argI, argP, exp4, get, lanes, log, max4, put, scratch, sum4, zero } from "./simd";

const NONE: f32 = -3.0e38;
/** Elements summed in f32 before the sum moves on to f64. */
const STRETCH: i32 = 512;

/** Writes NONE over the logits whose bit is off. */
function applyMask(logits: usize, V: i32, bits: usize): void {
  const none = f32x4.splat(NONE);
  for (let v = 0; v < V; v += 4) {
    const four = load<u32>(bits + ((v >> 5) << 2)) >> (v & 31);
    if ((four & 15) == 15) continue;
    const on = i32x4.ne(v128.and(i32x4.splat(four), i32x4(1, 2, 4, 8)), i32x4.splat(0));
    const o = logits + (v << 2);
    put(o, V - v, v128.bitselect(get(o, V - v), none, on));
  }
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

/** logits, V, targets, lp, lse, entropy or 0, mask bits or 0, mask rows, words a mask, rows an item, rows in all, first row of the stretch. */
export function logProbs(item: i32): void {
  const V = argI(1), bits = argP(6), per = argI(9);
  const end = min(argI(10), (item + 1) * per);
  for (let r = item * per; r < end; r++) {
    const m = argI(11) + r;
    const row = argP(0) + ((<usize>r * V) << 2);
    const target = load<f32>(row + (load<u32>(argP(2) + (m << 2)) << 2));
    if (bits != 0) {
      const which = load<i32>(argP(7) + (m << 2));
      if (which >= 0) applyMask(row, V, bits + ((<usize>which * argI(8)) << 2));
    }
    const top = maximum(row, V), tv = f32x4.splat(top);
    let total: f64 = 0, weighted: f64 = 0;
    for (let v0 = 0; v0 < V; v0 += STRETCH) {
      const v1 = min(V, v0 + STRETCH);
      let sum = zero(), dot = zero();
      for (let v = v0; v < v1; v += 4) {
        const x = f32x4.sub(get(row + (v << 2), V - v), tv);
        let e = exp4(x);
        if (V - v < 4) e = v128.and(e, lanes(V - v));
        sum = f32x4.add(sum, e);
        dot = f32x4.add(dot, f32x4.mul(e, f32x4.max(x, f32x4.splat(-1000))));
      }
      total += <f64>sum4(sum);
      weighted += <f64>sum4(dot);
    }
    const shift = log(total);
    const lse = <f64>top + shift;
    store<f32>(argP(3) + (m << 2), <f32>(<f64>target - lse));
    store<f32>(argP(4) + (m << 2), <f32>lse);
    if (argP(5) != 0) store<f32>(argP(5) + (m << 2), <f32>(shift - weighted / total));
  }
}

/** Logits become dLp·(1[target] − p). logits, V, targets, dLp, lse, 0, mask bits or 0, mask rows, words a mask, rows an item, rows in all, first row. */
export function logProbsGradient(item: i32): void {
  const V = argI(1), bits = argP(6), per = argI(9);
  const end = min(argI(10), (item + 1) * per);
  for (let r = item * per; r < end; r++) {
    const m = argI(11) + r;
    const row = argP(0) + ((<usize>r * V) << 2);
    if (bits != 0) {
      const which = load<i32>(argP(7) + (m << 2));
      if (which >= 0) applyMask(row, V, bits + ((<usize>which * argI(8)) << 2));
    }
    const g = load<f32>(argP(3) + (m << 2));
    const lse = f32x4.splat(load<f32>(argP(4) + (m << 2)));
    const minus = f32x4.splat(-g);
    for (let v = 0; v < V; v += 4) {
      put(row + (v << 2), V - v, f32x4.mul(exp4(f32x4.sub(get(row + (v << 2), V - v), lse)), minus));
    }
    const target = row + (load<u32>(argP(2) + (m << 2)) << 2);
    store<f32>(target, load<f32>(target) + g);
  }
}

// @ts-ignore: AssemblyScript decorator
@inline
function mix(x: u32): u32 {
  x = (x ^ (x >> 16)) * 0x7feb352d;
  x = (x ^ (x >> 15)) * 0x846ca68b;
  return x ^ (x >> 16);
}

/** Floats as integers that sort alike. */
// @ts-ignore: AssemblyScript decorator
@inline
function sortable(x: v128): v128 {
  return v128.xor(x, v128.and(i32x4.shr_s(x, 31), i32x4.splat(0x7fffffff)));
}
// @ts-ignore: AssemblyScript decorator
@inline
function sortable1(bits: i32): i32 {
  return bits ^ ((bits >> 31) & 0x7fffffff);
}

/** Σ weights (or the count, where `weights` is 0) of the logits ≥ the threshold, a sortable key. */
function massAbove(row: usize, weights: usize, V: i32, threshold: i32): f64 {
  const least = i32x4.splat(threshold);
  let total: f64 = 0;
  for (let v0 = 0; v0 < V; v0 += STRETCH) {
    const v1 = min(V, v0 + STRETCH);
    let sum = zero();
    for (let v = v0; v < v1; v += 4) {
      let in4 = i32x4.ge_s(sortable(get(row + (v << 2), V - v)), least);
      if (V - v < 4) in4 = v128.and(in4, lanes(V - v));
      sum = f32x4.add(sum, v128.and(in4, weights == 0 ? f32x4.splat(1) : get(weights + (v << 2), V - v)));
    }
    total += <f64>sum4(sum);
  }
  return total;
}

/** The largest key at which massAbove still reaches `goal`: 32 halvings. */
function threshold(row: usize, weights: usize, V: i32, goal: f64): i32 {
  let key: u32 = 0; // biased so that unsigned order is key order
  for (let bit = 31; bit >= 0; bit--) {
    const candidate = key | (<u32>1 << bit);
    if (massAbove(row, weights, V, <i32>(candidate ^ 0x80000000)) >= goal) key = candidate;
  }
  return <i32>(key ^ 0x80000000);
}

/**
 * One row of logits. The rule is SampleOptions' in types.ts. Arguments: ids, lp, logits, V, temperature, topK, topP, seeds, mask bits or 0,
 * mask rows, words a mask.
 */
export function sample(item: i32): void {
  const V = argI(3);
  const row = scratch, weights = scratch + (((V + 3) & ~3) << 2);
  memory.copy(row, argP(2) + ((<usize>item * V) << 2), <usize>V << 2);
  if (argP(8) != 0) {
    const which = load<i32>(argP(9) + (item << 2));
    if (which >= 0) applyMask(row, V, argP(8) + ((<usize>which * argI(10)) << 2));
  }
  const temperature = load<f32>(argP(4) + (item << 2));
  const scale: f32 = temperature > 0 ? 1 / temperature : 1;
  const top = maximum(row, V);
  const tv = f32x4.splat(top), sv = f32x4.splat(scale);
  let total: f64 = 0;
  for (let v0 = 0; v0 < V; v0 += STRETCH) {
    const v1 = min(V, v0 + STRETCH);
    let sum = zero();
    for (let v = v0; v < v1; v += 4) {
      let e = exp4(f32x4.mul(f32x4.sub(get(row + (v << 2), V - v), tv), sv));
      if (V - v < 4) e = v128.and(e, lanes(V - v));
      put(weights + (v << 2), V - v, e);
      sum = f32x4.add(sum, e);
    }
    total += <f64>sum4(sum);
  }
  let chosen = 0;
  if (temperature <= 0) {
    while (load<f32>(row + (chosen << 2)) != top) chosen++;
  } else {
    const k = load<i32>(argP(5) + (item << 2));
    const p = load<f32>(argP(6) + (item << 2));
    let key = sortable1(reinterpret<i32>(NONE)) + 1; // keeps all that the mask allows
    if (k > 0 && k < V) key = max(key, threshold(row, 0, V, <f64>k));
    if (p < 1) {
      const goal = <f64>p * massAbove(row, weights, V, key);
      key = max(key, threshold(row, weights, V, goal));
    }
    const seeds = argP(7) + (item << 3);
    const u = <f64>(mix(mix(load<u32>(seeds)) ^ load<u32>(seeds, 4)) >> 8) / 16777216.0;
    let kept: f64 = 0;
    for (let v = 0; v < V; v++) {
      if (sortable1(load<i32>(row + (v << 2))) >= key) kept += <f64>load<f32>(weights + (v << 2));
    }
    const goal = u * kept;
    let sum: f64 = 0;
    for (let v = 0; v < V; v++) {
      if (sortable1(load<i32>(row + (v << 2))) < key) continue;
      const w = <f64>load<f32>(weights + (v << 2));
      if (w > 0) chosen = v; // the last of them, should rounding keep the sum below the goal
      sum += w;
      if (sum > goal) break;
    }
  }
  store<i32>(argP(0) + (item << 2), chosen);
  store<f32>(argP(1) + (item << 2), <f32>(<f64>(load<f32>(row + (chosen << 2)) - top) * <f64>scale - log(total)));
}

