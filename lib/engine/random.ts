/**
 * The counter-based generator that every engine's sampler uses, so that a draw depends on (seed, counter) only.
 * A pair of 32-bit words is mixed by two rounds of the `lowbias32` integer finaliser (Chris Wellons' constants).
 */
function mix(x: number): number {
  x = Math.imul(x ^ (x >>> 16), 0x7feb352d);
  x = Math.imul(x ^ (x >>> 15), 0x846ca68b);
  return (x ^ (x >>> 16)) >>> 0;
}

/** 32 random bits from two words; pure. WGSL and WebAssembly kernels compute the same function. */
export function hash2(seed: number, counter: number): number {
  return mix((mix(seed >>> 0) ^ (counter >>> 0)) >>> 0);
}

/** Uniform in [0, 1) with 24 bits, exact in f32. */
export function uniform(seed: number, counter: number): number {
  return (hash2(seed, counter) >>> 8) / 16777216;
}
