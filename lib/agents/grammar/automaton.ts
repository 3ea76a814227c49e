/**
 * A byte-level pushdown automaton as immutable states, and the token masks that follow from it. A state knows what one more byte, or one
 * more special token, leads to; `key` names it, so that its mask is computed once. Continuations are lazy: a grammar is as large as
 * what a reply visits.
 */
import { atCharacter, type TextMode, textMask, textStep } from "./text.ts";
import { markTokens, type TokenTrie } from "./trie.ts";

/** What follows: a state, or how to make one. */
export interface Next {
  readonly key: string;
  readonly state: State;
}

export abstract class State implements Next {
  #key: string | null = null;
  get key(): string {
    this.#key ??= this.makeKey();
    return this.#key;
  }
  get state(): State {
    return this;
  }
  /** Gives a state the short key of the continuation that made it, where it has none yet. */
  named(key: string): this {
    this.#key ??= key;
    return this;
  }
  protected abstract makeKey(): string;
  abstract step(byte: number): State | null;
  /** Special tokens that may come next. */
  tags(): readonly number[] {
    return [];
  }
  tag(_id: number): State | null {
    return null;
  }
}

class Lazy implements Next {
  #state: State | null = null;
  constructor(
    readonly key: string,
    private readonly build: () => State,
  ) {}
  get state(): State {
    this.#state ??= this.build().named(this.key);
    return this.#state;
  }
}

/** A continuation made when it is reached. `key` must name everything that `build` depends on. */
export function lazy(key: string, build: () => State): Next {
  return new Lazy(key, build);
}

const utf8 = new TextEncoder();

class Literal extends State {
  constructor(
    private readonly bytes: Uint8Array,
    private readonly at: number,
    private readonly next: Next,
  ) {
    super();
  }
  protected makeKey(): string {
    return `L${this.bytes.subarray(this.at).join(",")};${this.next.key}`;
  }
  step(byte: number): State | null {
    if (this.bytes[this.at] !== byte) return null;
    return this.at + 1 === this.bytes.length ? this.next.state : new Literal(this.bytes, this.at + 1, this.next);
  }
}

/** Exactly this text. */
export function literal(text: string, next: Next): State {
  return text === "" ? next.state : new Literal(utf8.encode(text), 0, next);
}

class Special extends State {
  constructor(
    private readonly ids: readonly number[],
    private readonly next: Next,
  ) {
    super();
  }
  protected makeKey(): string {
    return `S${this.ids.join(",")};${this.next.key}`;
  }
  step(): State | null {
    return null;
  }
  override tags(): readonly number[] {
    return this.ids;
  }
  override tag(id: number): State | null {
    return this.ids.includes(id) ? this.next.state : null;
  }
}

/** One of these special tokens. */
export function special(ids: readonly number[], next: Next): State {
  return new Special(ids, next);
}

class Optional extends State {
  constructor(
    readonly byte: number,
    readonly next: Next,
  ) {
    super();
  }
  protected makeKey(): string {
    return `O${this.byte};${this.next.key}`;
  }
  step(byte: number): State | null {
    return byte === this.byte ? this.next.state : this.next.state.step(byte);
  }
  override tags(): readonly number[] {
    return this.next.state.tags();
  }
  override tag(id: number): State | null {
    return this.next.state.tag(id);
  }
}

/** One optional character, which `next` itself can't begin with. */
export function optional(character: string, next: Next): State {
  return new Optional(character.charCodeAt(0), next);
}

class Choice extends State {
  constructor(readonly options: readonly State[]) {
    super();
  }
  protected makeKey(): string {
    return `(${this.options.map((o) => o.key).join("|")})`;
  }
  step(byte: number): State | null {
    const next: State[] = [];
    for (const o of this.options) {
      const s = o.step(byte);
      if (s) next.push(s);
    }
    return next.length === 0 ? null : choice(next);
  }
  override tags(): readonly number[] {
    return [...new Set(this.options.flatMap((o) => o.tags()))];
  }
  override tag(id: number): State | null {
    const next = this.options.map((o) => o.tag(id)).filter((s): s is State => s !== null);
    return next.length === 0 ? null : choice(next);
  }
}

/** Any of these. */
export function choice(options: readonly State[]): State {
  return options.length === 1 ? options[0]! : new Choice(options);
}

class Text extends State {
  constructor(
    readonly mode: TextMode,
    readonly at: number,
    readonly left: number,
    readonly next: Next,
    private readonly longest: number,
  ) {
    super();
  }
  protected makeKey(): string {
    return `T${this.mode.name}:${this.at}:${Math.min(this.left, this.longest)};${this.next.key}`;
  }
  get ends(): boolean {
    return this.mode.accepting.has(this.at);
  }
  step(byte: number): State | null {
    const inside = textStep(this.mode, this.at, byte);
    const cost = atCharacter(this.at) ? 1 : 0;
    const stay =
      inside !== null && this.left >= cost
        ? new Text(this.mode, inside, this.left - cost, this.next, this.longest)
        : null;
    const leave = this.ends && byte === this.mode.exitByte ? this.next.state.step(byte) : null;
    return stay && leave ? choice([stay, leave]) : (stay ?? leave);
  }
  override tags(): readonly number[] {
    return this.ends ? this.next.state.tags() : [];
  }
  override tag(id: number): State | null {
    return this.ends ? this.next.state.tag(id) : null;
  }
}

/** Up to `limit` characters of free text, then `next`, which begins with the mode's exit byte or a special token. */
export function text(trie: TokenTrie, mode: TextMode, limit: number, next: Next): State {
  return new Text(mode, 0, limit, next, trie.longest);
}

/** Text that strings may be copied from: its bytes and where its words begin. */
export interface CopySource {
  bytes: Uint8Array;
  starts: Int32Array;
}

function wordByte(b: number | undefined): boolean {
  return (
    b !== undefined && ((b >= 48 && b <= 57) || (b >= 65 && b <= 90) || (b >= 97 && b <= 122) || b === 95 || b >= 128)
  );
}

/** Whether a word begins or ends between bytes i−1 and i. */
export function boundary(bytes: Uint8Array, i: number): boolean {
  return !(wordByte(bytes[i - 1]) && wordByte(bytes[i]));
}

/** Characters besides a word's own that a copied value may begin with. */
const copyOpeners = new Set(utf8.encode("+#@/.$-"));
const escapes = new Set(utf8.encode('"\\/bfnrt'));

/** Whether a backslash in the source begins a JSON escape. */
function escapeAt(bytes: Uint8Array, i: number): boolean {
  const b = bytes[i + 1];
  if (b === 0x75) return /^[0-9a-fA-F]{4}$/.test(String.fromCharCode(...bytes.subarray(i + 2, i + 6)));
  return b !== undefined && escapes.has(b);
}

/** The places of a context that a string may be copied from. */
export function copySource(context: string): CopySource {
  const bytes = utf8.encode(context);
  const starts: number[] = [];
  for (let i = 0; i < bytes.length; i++) {
    if ((wordByte(bytes[i]) || copyOpeners.has(bytes[i]!)) && boundary(bytes, i)) starts.push(i);
  }
  return { bytes, starts: Int32Array.from(starts) };
}

class Copy extends State {
  #following: Map<number, number[]> | null = null;
  constructor(
    private readonly source: CopySource,
    private readonly mode: TextMode,
    private readonly at: number,
    /** Where the next byte would stand in the source, for each place that matches so far. */
    private readonly places: ArrayLike<number> & Iterable<number>,
    private readonly length: number,
    private readonly limit: number,
    private readonly next: Next,
  ) {
    super();
  }
  protected makeKey(): string {
    const start = this.places.length === 0 ? 0 : this.places[0]! - this.length;
    return `C${start}+${this.length}:${this.at};${this.next.key}`;
  }
  step(byte: number): State | null {
    const { bytes } = this.source;
    if (byte === this.mode.exitByte && this.length > 0 && this.mode.accepting.has(this.at)) {
      for (const p of this.places) if (boundary(bytes, p)) return this.next.state.step(byte);
      return null;
    }
    const next = textStep(this.mode, this.at, byte);
    if (next === null) return null;
    this.#following ??= this.#group();
    const places = this.#following.get(byte);
    if (!places) return null;
    return new Copy(this.source, this.mode, next, places, this.length + 1, this.limit, this.next);
  }
  /** Places behind each byte that may follow; all places are looked at once, whatever is asked. */
  #group(): Map<number, number[]> {
    const { bytes } = this.source;
    const groups = new Map<number, number[]>();
    for (const p of this.places) {
      const byte = bytes[p];
      if (byte === undefined) continue;
      // Past the limit a copy may only go on to the end of its word.
      if (this.length >= this.limit && this.at < 3 && boundary(bytes, p)) continue;
      if (byte === 0x5c && this.at !== 10 && !escapeAt(bytes, p)) continue;
      const group = groups.get(byte);
      if (group) group.push(p + 1);
      else groups.set(byte, [p + 1]);
    }
    return groups;
  }
}

/** A run of whole words that stands in the source. */
export function copied(source: CopySource, mode: TextMode, limit: number, next: Next): State {
  return new Copy(source, mode, 0, source.starts, 0, limit, next);
}

type NumberPhase = "start" | "minus" | "zero" | "digits" | "dot" | "fraction";

class NumberState extends State {
  constructor(
    private readonly form: { integer: boolean; negative: boolean },
    private readonly phase: NumberPhase,
    private readonly length: number,
    private readonly next: Next,
  ) {
    super();
  }
  protected makeKey(): string {
    return `N${this.form.integer ? "i" : "f"}${this.form.negative ? "-" : ""}${this.phase}${this.length};${this.next.key}`;
  }
  #go(phase: NumberPhase, length: number): State {
    return new NumberState(this.form, phase, length, this.next);
  }
  get #complete(): boolean {
    return this.phase === "zero" || this.phase === "digits" || this.phase === "fraction";
  }
  step(byte: number): State | null {
    const digit = byte >= 0x30 && byte <= 0x39;
    switch (this.phase) {
      case "start":
        if (byte === 0x2d && this.form.negative) return this.#go("minus", 0);
        return digit ? this.#go(byte === 0x30 ? "zero" : "digits", 1) : null;
      case "minus":
        return digit ? this.#go(byte === 0x30 ? "zero" : "digits", 1) : null;
      case "digits":
        if (digit) return this.length < 15 ? this.#go("digits", this.length + 1) : null;
        break;
      case "dot":
        return digit ? this.#go("fraction", 1) : null;
      case "fraction":
        if (digit) return this.length < 9 ? this.#go("fraction", this.length + 1) : null;
        break;
      case "zero":
        break;
    }
    if (byte === 0x2e && !this.form.integer && this.phase !== "fraction") return this.#go("dot", 0);
    return this.#complete ? this.next.state.step(byte) : null;
  }
}

/** A JSON number without an exponent; `next` begins with a byte. */
export function number(form: { integer: boolean; negative: boolean }, next: Next): State {
  return new NumberState(form, "start", 0, next);
}

class Ended extends State {
  protected makeKey(): string {
    return "E";
  }
  step(): State | null {
    return null;
  }
}
/** Nothing more. */
export const ended: State = new Ended();

/** Marks the tokens that lie on paths of the automaton below a trie node. */
function walk(trie: TokenTrie, state: State, node: number, mask: Uint32Array): void {
  const end = trie.first[node + 1]!;
  for (let child = trie.first[node]!; child < end; child++) {
    const next = state.step(trie.byte[child]!);
    if (!next) continue;
    markTokens(trie, child, mask);
    walk(trie, next, child, mask);
  }
}

/** Sets the bits of the tokens that may come next in a state. */
function fill(trie: TokenTrie, state: State, mask: Uint32Array): void {
  if (state instanceof Choice) {
    for (const option of state.options) fill(trie, option, mask);
  } else if (state instanceof Optional) {
    fill(trie, state.next.state, mask);
    for (let node = trie.first[0]!; node < trie.first[1]!; node++) {
      if (trie.byte[node] !== state.byte) continue;
      markTokens(trie, node, mask);
      walk(trie, state.next.state, node, mask);
    }
  } else if (state instanceof Text) {
    const { inside, exits } = textMask(trie, state.mode, state.at, state.left);
    for (let i = 0; i < mask.length; i++) mask[i]! |= inside[i]!;
    const after = state.next.state.step(state.mode.exitByte);
    if (after) {
      for (const node of exits) {
        markTokens(trie, node, mask);
        walk(trie, after, node, mask);
      }
    }
  } else {
    walk(trie, state, 0, mask);
  }
  for (const id of state.tags()) mask[id >>> 5]! |= 1 << (id & 31);
}

/** The tokens that may come next in a state. `cache` holds masks by state key and is the caller's. */
export function tokenMask(trie: TokenTrie, state: State, cache: Map<string, Uint32Array>): Uint32Array {
  let mask = cache.get(state.key);
  if (!mask) {
    mask = new Uint32Array(trie.words);
    fill(trie, state, mask);
    cache.set(state.key, mask);
  }
  return mask;
}
