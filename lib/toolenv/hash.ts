/** Seeded randomness and canonical forms: every value of the environment is a function of a key made here. */
import type { Json } from "../catalog/types.ts";
import { canonicalJson } from "../config/hash.ts";
import { hash2 } from "../engine/random.ts";

/** 32-bit FNV-1a over UTF-16 code units (Fowler, Noll, Vo), finished by the engine's mixer so that close keys part. */
export function hashText(text: string): number {
  let h = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 0x01000193);
  return hash2(h, text.length);
}

/** What every key starts from. */
export const KEY = 0x9e3779b9;

/** Joins keys: order matters, every part counts. */
export function key(...parts: (number | string)[]): number {
  let h = KEY;
  for (const p of parts) h = hash2(h, typeof p === "number" ? p : hashText(p));
  return h;
}

/** A counter-based stream of draws from one key. */
export class Rng {
  #seed: number;
  #n = 0;
  constructor(seed: number) {
    this.#seed = seed >>> 0;
  }
  /** 32 random bits. */
  bits(): number {
    return hash2(this.#seed, ++this.#n);
  }
  /** Uniform in [0, 1). */
  unit(): number {
    return this.bits() / 4294967296;
  }
  /** Uniform integer in [low, high], both included. */
  int(low: number, high: number): number {
    return low + Math.floor(this.unit() * (high - low + 1));
  }
  chance(p: number): boolean {
    return this.unit() < p;
  }
  pick<T>(items: readonly T[]): T {
    if (!items.length) throw new RangeError("pick: nothing to pick from");
    return items[Math.floor(this.unit() * items.length)] as T;
  }
  /** A new array in random order (Fisher–Yates). */
  shuffle<T>(items: readonly T[]): T[] {
    const out = [...items];
    for (let i = out.length - 1; i > 0; i--) {
      const j = this.int(0, i);
      [out[i], out[j]] = [out[j] as T, out[i] as T];
    }
    return out;
  }
  /** Index drawn in proportion to the weights. */
  weighted(weights: readonly number[]): number {
    let x = this.unit() * weights.reduce((a, b) => a + b, 0);
    for (let i = 0; i < weights.length; i++) if ((x -= weights[i] as number) < 0) return i;
    return weights.length - 1;
  }
}

/** SHA-256 of the canonical form, first 16 hex digits. */
export function contentId(value: Json): string {
  return new Bun.CryptoHasher("sha256").update(canonicalJson(value)).digest("hex").slice(0, 16);
}
