/** Draws strings that match a regular expression: classes, groups, alternatives, quantifiers; look-around is left to the final test. */
import { Rng } from "./hash.ts";

type Node =
  | { kind: "chars"; chars: string }
  | { kind: "sequence"; nodes: Node[] }
  | { kind: "choice"; nodes: Node[] }
  | { kind: "repeat"; node: Node; min: number; max: number };

const DIGITS = "0123456789";
const LOWER = "abcdefghijklmnopqrstuvwxyz";
const UPPER = LOWER.toUpperCase();
const WORD = LOWER + UPPER + DIGITS;
const PRINTABLE = `${LOWER}${DIGITS}`;

class Unsupported extends Error {}

class Parser {
  #at = 0;
  readonly #text: string;
  constructor(text: string) {
    this.#text = text;
  }
  parse(): Node {
    const node = this.#choice();
    if (this.#at < this.#text.length) throw new Unsupported(`unmatched ")" at ${this.#at}`);
    return node;
  }
  #choice(): Node {
    const nodes = [this.#sequence()];
    while (this.#text[this.#at] === "|") {
      this.#at++;
      nodes.push(this.#sequence());
    }
    return nodes.length === 1 ? (nodes[0] as Node) : { kind: "choice", nodes };
  }
  #sequence(): Node {
    const nodes: Node[] = [];
    while (this.#at < this.#text.length && !/[|)]/.test(this.#text[this.#at] as string)) {
      const atom = this.#atom();
      if (atom) nodes.push(this.#quantified(atom));
    }
    return { kind: "sequence", nodes };
  }
  #quantified(node: Node): Node {
    const rest = this.#text.slice(this.#at);
    const m = /^(?:[*+?]|\{(\d+)(,?)(\d*)\})/.exec(rest);
    if (!m) return node;
    this.#at += m[0].length;
    if (this.#text[this.#at] === "?" || this.#text[this.#at] === "+") this.#at++;
    const min = m[0] === "*" || m[0] === "?" ? 0 : m[0] === "+" ? 1 : Number(m[1]);
    const max = m[0] === "?" ? 1 : m[1] !== undefined && !m[2] ? min : m[3] ? Number(m[3]) : Number.POSITIVE_INFINITY;
    return { kind: "repeat", node, min, max };
  }
  #atom(): Node | null {
    const c = this.#text[this.#at++] as string;
    if (c === "^" || c === "$") return null;
    if (c === ".") return { kind: "chars", chars: PRINTABLE };
    if (c === "(") {
      const opening = /^\?(?::|<?[=!]|<\w+>)/.exec(this.#text.slice(this.#at, this.#at + 40))?.[0] ?? "";
      if (!opening && this.#text[this.#at] === "?") throw new Unsupported("group");
      this.#at += opening.length;
      const node = this.#choice();
      if (this.#text[this.#at++] !== ")") throw new Unsupported("unclosed group");
      return /[=!]$/.test(opening) ? null : node;
    }
    if (c === "[") return { kind: "chars", chars: this.#set() };
    if (c === "\\") {
      const e = this.#escape();
      return e === null ? null : { kind: "chars", chars: e };
    }
    return { kind: "chars", chars: c };
  }
  /** Characters of an escape, or null for a zero-width one. */
  #escape(): string | null {
    const e = this.#text[this.#at++] ?? "";
    if (e === "d") return DIGITS;
    if (e === "w") return WORD;
    if (e === "s") return " ";
    if (e === "S" || e === "D" || e === "W") return e === "W" ? "-" : LOWER;
    if (e === "b" || e === "B" || e === "A" || e === "Z" || e === "z") return null;
    if (e === "n" || e === "r" || e === "t") return e === "n" ? "\n" : e === "r" ? "\r" : "\t";
    if (e === "x" || e === "u") {
      const hex = this.#text.slice(this.#at, this.#at + (e === "x" ? 2 : 4));
      if (!/^[0-9a-fA-F]+$/.test(hex)) throw new Unsupported("escape");
      this.#at += hex.length;
      return String.fromCharCode(Number.parseInt(hex, 16));
    }
    if (e === "p" || e === "P") {
      const name = /^\{[^}]*\}/.exec(this.#text.slice(this.#at))?.[0];
      if (!name) throw new Unsupported("property");
      this.#at += name.length;
      return e === "p" && name.startsWith("{N") ? DIGITS : LOWER;
    }
    if (/[1-9k]/.test(e)) throw new Unsupported("back-reference");
    return e;
  }
  #set(): string {
    const negated = this.#text[this.#at] === "^";
    if (negated) this.#at++;
    let chars = "";
    for (let first = true; first || this.#text[this.#at] !== "]"; first = false) {
      if (this.#at >= this.#text.length) throw new Unsupported("unclosed class");
      let c = this.#text[this.#at++] as string;
      if (c === "\\") {
        const e = this.#escape() ?? "";
        if (e.length !== 1) {
          chars += e;
          continue;
        }
        c = e;
      }
      if (this.#text[this.#at] === "-" && this.#text[this.#at + 1] !== "]" && this.#at + 1 < this.#text.length) {
        let end = this.#text[this.#at + 1] as string;
        this.#at += 2;
        if (end === "\\") end = this.#escape() ?? "";
        if (end.length !== 1) {
          chars += `${c}-${end}`;
          continue;
        }
        const high = Math.min(end.charCodeAt(0), c.charCodeAt(0) + 127);
        for (let k = c.charCodeAt(0); k <= high; k++) chars += String.fromCharCode(k);
      } else chars += c;
    }
    this.#at++;
    if (!negated) {
      const tame = [...chars].filter((c) => WORD.includes(c)).join("");
      return tame || chars;
    }
    const allowed = [...`${PRINTABLE}${UPPER}-_. `].filter((c) => !chars.includes(c)).join("");
    if (!allowed) throw new Unsupported("negated class");
    return allowed;
  }
}

const parsed = new Map<string, { node: Node; test: RegExp } | null>();

function parsePattern(pattern: string): { node: Node; test: RegExp } | null {
  let entry = parsed.get(pattern);
  if (entry === undefined) {
    try {
      entry = { node: new Parser(pattern).parse(), test: new RegExp(pattern, "u") };
    } catch (error) {
      // A pattern that this small parser or the engine's own cannot read has no sampler; callers fall back.
      if (!(error instanceof Unsupported) && !(error instanceof SyntaxError)) throw error;
      entry = null;
    }
    parsed.set(pattern, entry);
  }
  return entry;
}

/** How long repetitions are drawn: as they come, as long as wanted, or as short as allowed. */
type Length = "any" | "full" | "least";

function draw(node: Node, rng: Rng, want: number, length: Length): string {
  switch (node.kind) {
    case "chars":
      return node.chars[rng.int(0, node.chars.length - 1)] ?? "";
    case "sequence":
      return node.nodes.map((n) => draw(n, rng, want, length)).join("");
    case "choice":
      return draw(rng.pick(node.nodes), rng, want, length);
    case "repeat": {
      const high = Math.min(node.max, Math.max(node.min, want));
      const low = Math.min(Math.max(node.min, Math.min(3, high)), high);
      const n = length === "least" ? node.min : length === "full" ? high : rng.int(low, high);
      let out = "";
      for (let i = 0; i < n; i++) out += draw(node.node, rng, want, length);
      return out;
    }
  }
}

/**
 * A string that matches `pattern` and has between min and max characters, or null where none was found in twelve draws.
 * A pattern is searched for, not anchored (JSON Schema), so a drawn core may stand in any string; here it is the whole.
 */
export function samplePattern(pattern: string, rng: Rng, min = 0, max = Number.POSITIVE_INFINITY): string | null {
  const entry = parsePattern(pattern);
  if (!entry) return null;
  const want = Math.min(Math.max(min, 8), max, 64);
  for (let tries = 0; tries < 12; tries++) {
    const text = draw(entry.node, rng, want, tries < 6 ? "any" : tries < 9 ? "full" : "least");
    if (text.length >= min && text.length <= max && entry.test.test(text)) return text;
  }
  return null;
}

const drawable = new Map<string, boolean>();
/** Whether the sampler can meet the pattern within the lengths. One that it cannot binds nobody: neither generator nor validator. */
export function isDrawable(pattern: string, min = 0, max = Number.POSITIVE_INFINITY): boolean {
  const id = `${min} ${max} ${pattern}`;
  let yes = drawable.get(id);
  if (yes === undefined) {
    yes = [1, 2, 3].every((seed) => samplePattern(pattern, new Rng(seed), min, max) !== null);
    drawable.set(id, yes);
  }
  return yes;
}

/** Whether a string matches a drawable pattern. */
export function matchesPattern(pattern: string, text: string): boolean {
  return parsePattern(pattern)?.test.test(text) ?? true;
}
