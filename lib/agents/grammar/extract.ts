/**
 * Values and answers that are taken over from what was read, as states: numbers and strings of a schema that stand in the context, and
 * answers all of whose words do.
 */
import type { Json, JsonSchema } from "../../catalog/types.ts";
import { fits, isKnownFormat } from "../../toolenv/schema.ts";
import { boundary, type CopySource, type Next, State } from "./automaton.ts";

const utf8 = new TextEncoder();
const utf8Text = new TextDecoder();

/** Distinct values that are offered at most; the first that were read. */
const MOST = 64;
/** Bytes of a run of words at most. */
const LONGEST_RUN = 120;

const numbers = new WeakMap<CopySource, number[]>();
/** The numbers that stand in a text by themselves, in order, once each. */
function numbersIn(source: CopySource): number[] {
  let found = numbers.get(source);
  if (!found) {
    const text = utf8Text.decode(source.bytes);
    const all = text.match(/(?<![\w.-])-?(?:0|[1-9]\d{0,14})(?:\.\d{1,9})?(?![\w-]|\.\d)/g) ?? [];
    numbers.set(source, (found = [...new Set(all.map(Number))]));
  }
  return found;
}

/** The numbers of the context that a schema allows, as JSON. */
export function numberValues(source: CopySource, schema: JsonSchema): string[] {
  return numbersIn(source)
    .filter((n) => (schema.type !== "integer" || Number.isInteger(n)) && fits(n, { ...schema, type: "number" }))
    .slice(0, MOST)
    .map((n) => JSON.stringify(n));
}

/** Whether a schema says what a string looks like, so that the runs that fit it can be listed. */
export const isShaped = (schema: JsonSchema): boolean =>
  schema.pattern !== undefined ||
  (schema.format !== undefined && isKnownFormat(schema.format)) ||
  (schema.minLength ?? 0) > 1;

/** The runs of whole words of the context that a string schema allows, as JSON, each once. Empty too where it allows so many that it says little. */
export function stringValues(source: CopySource, schema: JsonSchema): string[] {
  const { bytes, starts } = source;
  const found = new Set<string>();
  const most = Math.min(LONGEST_RUN, 4 * (schema.maxLength ?? LONGEST_RUN));
  for (const from of starts) {
    for (let to = from + Math.max(1, schema.minLength ?? 1); to <= Math.min(bytes.length, from + most); to++) {
      const last = bytes[to - 1]!;
      // A quote or a line break ends the text that is being read.
      if (bytes[from] === 0x22 || last === 0x22 || last === 0x0a) break;
      if (!boundary(bytes, to)) continue;
      const written = `"${utf8Text.decode(bytes.subarray(from, to))}"`;
      const value = parsed(written);
      if (typeof value === "string" && value.trim() === value && fits(value, { ...schema, type: "string" }))
        found.add(written);
      if (found.size >= MOST) return [];
    }
  }
  return [...found];
}

/**
 * What a request names, as whole values: the texts in quotation marks, and words that look like identifiers, numbers, dates or codes (with a digit,
 * a mark inside, or a capital behind the first letter); then the values of the responses. Each once, in the order in which it was read.
 */
export function wholeValues(request: string, read: readonly { text: string }[]): string[] {
  const quoted = [...request.matchAll(/"([^"\n]+)"/g)].map(([, text]) => text!);
  const words = request
    .replaceAll(/"[^"\n]+"/g, " ")
    .split(/\s+/)
    .map((word) => word.replace(/^[("']+|[)"'.,;:!?]+$/g, ""))
    .filter((word) => /\d|.[\p{Lu}@_/:.-]./u.test(word) || /^\p{Lu}{2,}$/u.test(word));
  return [...new Set([...quoted, ...words, ...read.map(({ text }) => text)])].filter(
    (text) => text !== "" && !text.includes("<"),
  );
}

/** The whole values that a schema of a string or a number allows, as JSON, with the value that each stands for. */
export function fitting(values: readonly string[], schema: JsonSchema): { json: string; value: string }[] {
  const found: { json: string; value: string }[] = [];
  for (const value of values) {
    if (schema.type === "string") {
      if (fits(value, schema)) found.push({ json: JSON.stringify(value), value });
      continue;
    }
    const n = /^-?(?:0|[1-9]\d{0,14})(?:\.\d{1,9})?$/.test(value) ? Number(value) : Number.NaN;
    if (
      !Number.isNaN(n) &&
      (schema.type !== "integer" || Number.isInteger(n)) &&
      fits(n, { ...schema, type: "number" })
    )
      found.push({ json: JSON.stringify(n), value });
  }
  return found;
}

function parsed(json: string): Json | undefined {
  try {
    return JSON.parse(json) as Json;
  } catch {
    return undefined;
  }
}

/** A node of the words that an answer may hold. */
interface Node {
  id: number;
  children: Map<number, Node>;
  ends: boolean;
}
export interface Lexicon {
  root: Node;
}

/** A noun's other number, by the commonest endings: a request for "the end dates" is answered with an "end date". */
export function otherNumber(word: string): string[] {
  if (!/^\p{L}{3,}$/u.test(word)) return [];
  if (word.endsWith("ies")) return [`${word.slice(0, -3)}y`];
  if (word.endsWith("sses") || word.endsWith("xes") || word.endsWith("uses")) return [word.slice(0, -2)];
  return word.endsWith("s") ? [word.slice(0, -1)] : [`${word}s`];
}

/** The words of answers, each also with a capital or a small first letter, and in its other number. */
export function lexicon(words: Iterable<string>): Lexicon {
  let count = 0;
  const node = (): Node => ({ id: count++, children: new Map(), ends: false });
  const root = node();
  const add = (word: string): void => {
    let here = root;
    for (const byte of utf8.encode(word)) {
      let next = here.children.get(byte);
      if (!next) here.children.set(byte, (next = node()));
      here = next;
    }
    if (here !== root) here.ends = true;
  };
  for (const given of words)
    for (const word of [given, ...otherNumber(given)]) {
      add(word);
      add(word.charAt(0).toUpperCase() + word.slice(1));
      add(word.charAt(0).toLowerCase() + word.slice(1));
    }
  return { root };
}

/** Marks that may follow a word, each before a space; the full stop may also end the answer. */
const MARKS = new Set(utf8.encode(",;:."));
const SPACE = 0x20;
const STOP = 0x2e;
const LESS = 0x3c;

type Phase = "start" | "word" | "mark" | "stop";

/** Words of a lexicon between spaces, with a mark behind some, then `next`, which begins with a special token or "<". */
class Words extends State {
  constructor(
    private readonly lexicon: Lexicon,
    private readonly phase: Phase,
    private readonly node: Node,
    private readonly left: number,
    private readonly next: Next,
  ) {
    super();
  }
  protected makeKey(): string {
    return `W${this.phase}${this.node.id}:${Math.max(0, Math.min(this.left, 64))};${this.next.key}`;
  }
  #to(phase: Phase, node: Node): Words {
    return new Words(this.lexicon, phase, node, this.left - 1, this.next);
  }
  /** Whether the answer may end here. */
  get #complete(): boolean {
    return this.phase === "stop" || (this.phase === "word" && this.node.ends);
  }
  step(byte: number): State | null {
    const { root } = this.lexicon;
    if (this.phase === "start" || this.phase === "word") {
      const child = this.node.children.get(byte);
      if (child) return this.#to("word", child);
    }
    if (byte === LESS && this.#complete) return this.next.state.step(byte);
    if (this.phase === "word" && this.node.ends) {
      if (byte === SPACE && this.left > 0) return this.#to("start", root);
      if (byte === STOP) return this.#to("stop", root);
      if (MARKS.has(byte) && this.left > 0) return this.#to("mark", root);
    }
    if ((this.phase === "mark" || this.phase === "stop") && byte === SPACE && this.left > 0)
      return this.#to("start", root);
    return null;
  }
  override tags(): readonly number[] {
    return this.#complete ? this.next.state.tags() : [];
  }
  override tag(id: number): State | null {
    return this.#complete ? this.next.state.tag(id) : null;
  }
}

/** About `limit` characters of words of a lexicon (the last word is always finished), then `next`. */
export function words(lexicon: Lexicon, limit: number, next: Next): State {
  return new Words(lexicon, "start", lexicon.root, limit, next);
}
