/**
 * Free text inside a reply as small byte automata: valid UTF-8, no control characters, and no "<" that could begin a tag. JSON strings
 * add escapes. A state is a small integer; tables are [state × 256].
 */
import { markTokens, type TokenTrie } from "./trie.ts";

const DEAD = 255;
/** Common to all modes: 0 empty, 1 inside, 2 after "<" and any spaces, 3–9 in the middle of a character, 10–14 in a JSON escape. */
const STATES = 15;

export interface TextMode {
  name: string;
  table: Uint8Array;
  /** States in which the text may end. */
  accepting: ReadonlySet<number>;
  /** The byte that begins what follows the text: `"` or `<`. */
  exitByte: number;
}

function isSpace(b: number): boolean {
  return b === 0x20 || b === 0x0a || b === 0x09 || b === 0x0d;
}

/**
 * Builds a mode. `json` is a JSON string's inside, else plain text before a closing tag. With `nonEmpty` the first character is there and is
 * not white space.
 */
function textMode(name: string, json: boolean, nonEmpty: boolean): TextMode {
  const t = new Uint8Array(STATES * 256).fill(DEAD);
  const set = (state: number, from: number, to: number, next: number): void => {
    for (let b = from; b <= to; b++) t[state * 256 + b] = next;
  };
  for (const state of [0, 1, 2]) {
    set(state, 0x20, 0x7e, 1);
    if (!json) set(state, 0x0a, 0x0a, 1);
    set(state, 0xc2, 0xdf, 3);
    set(state, 0xe0, 0xe0, 4);
    set(state, 0xe1, 0xef, 5);
    set(state, 0xed, 0xed, 6);
    set(state, 0xf0, 0xf0, 7);
    set(state, 0xf1, 0xf3, 8);
    set(state, 0xf4, 0xf4, 9);
    set(state, 0x3c, 0x3c, 2);
    if (json) {
      set(state, 0x22, 0x22, DEAD);
      set(state, 0x5c, 0x5c, 10);
    }
  }
  // After "<" and spaces: nothing that could begin a tag's name, a closing tag or another "<".
  set(2, 0x20, 0x20, 2);
  if (!json) set(2, 0x0a, 0x0a, 2);
  set(2, 0x41, 0x5a, DEAD);
  set(2, 0x61, 0x7a, DEAD);
  for (const c of "/!?|_<\\") set(2, c.charCodeAt(0), c.charCodeAt(0), DEAD);
  set(3, 0x80, 0xbf, 1);
  set(4, 0xa0, 0xbf, 3);
  set(5, 0x80, 0xbf, 3);
  set(6, 0x80, 0x9f, 3);
  set(7, 0x90, 0xbf, 5);
  set(8, 0x80, 0xbf, 5);
  set(9, 0x80, 0x8f, 5);
  if (json) {
    for (const c of '"\\/bfnrt') set(10, c.charCodeAt(0), c.charCodeAt(0), 1);
    set(10, 0x75, 0x75, 11);
    for (const state of [11, 12, 13, 14]) {
      const next = state === 14 ? 1 : state + 1;
      set(state, 0x30, 0x39, next);
      set(state, 0x41, 0x46, next);
      set(state, 0x61, 0x66, next);
    }
  }
  if (nonEmpty) {
    for (let b = 0; b < 256; b++) if (isSpace(b) || b === 0x5c || b === 0x3c) t[b] = DEAD;
  }
  const accepting = new Set(nonEmpty ? [1] : [0, 1]);
  if (json) accepting.add(2);
  return { name, table: t, accepting, exitByte: json ? 0x22 : 0x3c };
}

export const plainText = textMode("plain", false, true);
export const jsonText = textMode("json", true, false);
export const jsonTextNonEmpty = textMode("json+", true, true);

/** The next state, or null. */
export function textStep(mode: TextMode, state: number, byte: number): number | null {
  const next = mode.table[state * 256 + byte]!;
  return next === DEAD ? null : next;
}

/** Whether a state stands between two characters: only there does the length count, so that a character is never cut. */
export function atCharacter(state: number): boolean {
  return state <= 2;
}

export interface TextMask {
  /** Tokens that stay inside the text. */
  inside: Uint32Array;
  /** Trie nodes reached by the exit byte from an accepting state. */
  exits: readonly number[];
}

/** By the characters that they need: tokens that stay inside a text, and trie nodes that leave it. */
interface TextPaths {
  nodes: number[][];
  exits: number[][];
}
const textPaths = new WeakMap<TokenTrie, Map<string, TextPaths>>();
const textMasks = new WeakMap<TokenTrie, Map<string, TextMask>>();

/** The value of a key in a tokenizer's own table, made on first use. */
function cached<V>(caches: WeakMap<TokenTrie, Map<string, V>>, trie: TokenTrie, key: string, make: () => V): V {
  let byKey = caches.get(trie);
  if (!byKey) caches.set(trie, (byKey = new Map()));
  let value = byKey.get(key);
  if (value === undefined) byKey.set(key, (value = make()));
  return value;
}

function findPaths(trie: TokenTrie, mode: TextMode, state: number): TextPaths {
  const nodes: number[][] = Array.from({ length: trie.longest + 1 }, () => []);
  const exits: number[][] = Array.from({ length: trie.longest + 1 }, () => []);
  const visit = (node: number, s: number, used: number): void => {
    const end = trie.first[node + 1]!;
    for (let child = trie.first[node]!; child < end; child++) {
      const b = trie.byte[child]!;
      if (b === mode.exitByte && mode.accepting.has(s)) exits[used]!.push(child);
      const next = mode.table[s * 256 + b]!;
      if (next === DEAD) continue;
      const cost = used + (atCharacter(s) ? 1 : 0);
      if (trie.token[child]! >= 0) nodes[cost]!.push(child);
      visit(child, next, cost);
    }
  };
  visit(0, state, 0);
  return { nodes, exits };
}

/**
 * Which tokens stay inside a text that may still hold `left` characters, and where the others leave it. Computed once for each vocabulary,
 * mode, state and (near the limit) length; what follows the text is no part of it.
 */
export function textMask(trie: TokenTrie, mode: TextMode, state: number, left: number): TextMask {
  const room = Math.min(left, trie.longest);
  return cached(textMasks, trie, `${mode.name}:${state}:${room}`, () => {
    const paths = cached(textPaths, trie, `${mode.name}:${state}`, () => findPaths(trie, mode, state));
    const inside = new Uint32Array(trie.words);
    for (const nodes of paths.nodes.slice(0, room + 1)) for (const node of nodes) markTokens(trie, node, inside);
    return { inside, exits: paths.exits.slice(0, room + 1).flat() };
  });
}
