/** Seeded wording: short sentences that say what matters, in more than one way. */

import { valueWords } from "../agents/scripted.ts";
import type { Json } from "../catalog/types.ts";
import { hash2 } from "../engine/random.ts";

/** A draw that depends on the seed and on what it is for, so that a turn's wording does not hang on how often others drew. */
export function draw(seed: number, purpose: string): number {
  let h = seed >>> 0;
  for (let i = 0; i < purpose.length; i++) h = hash2(h, purpose.charCodeAt(i));
  return h;
}

export function pick<T>(options: readonly T[], seed: number, purpose: string): T {
  return options[draw(seed, purpose) % options.length]!;
}

/** Uniform in [0, 1). */
export function chance(seed: number, purpose: string): number {
  return draw(seed, purpose) / 2 ** 32;
}

/** "a", "a and b", "a, b and c". */
export function listed(items: readonly string[]): string {
  return items.length < 2 ? (items[0] ?? "") : `${items.slice(0, -1).join(", ")} and ${items.at(-1)}`;
}

/** A value in a think block: short. */
export function brief(value: Json): string {
  const words = valueWords(value);
  return words.length <= 40 ? words : `${words.slice(0, 40).trimEnd()}…`;
}

const FILLERS = new Set(
  "a an the of for to in on by with from and or its their this that which given specific specified based using about into at as is are be it all any".split(
    " ",
  ),
);

/** The first content words of a text: a capability's name. */
export function contentWords(text: string, most: number): string {
  const words = text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
  const content = words.filter((w) => !FILLERS.has(w));
  return (content.length > 0 ? content : words).slice(0, most).join(" ");
}

export function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
