/** Comparing what an answer says with what was observed: by value for numbers, dates, money and names, not by spelling. */
import { faker } from "@faker-js/faker/locale/en";
import type { Json } from "../catalog/types.ts";
import { isPersonName } from "./persona.ts";
import { singular, splitWords } from "./words.ts";

const MONTHS = "january february march april may june july august september october november december".split(" ");
const monthOf = (word: string): number =>
  MONTHS.findIndex(
    (m) =>
      m === word.toLowerCase() ||
      (word.length >= 3 &&
        m.slice(0, 3) === word.toLowerCase().replace(/\.$/, "").slice(0, 3) &&
        m.startsWith(word.toLowerCase().replace(/\.$/, ""))) ||
      (word.toLowerCase() === "sept" && m === "september"),
  );
const day = (y: number, m: number, d: number): string | null =>
  m >= 1 && m <= 12 && d >= 1 && d <= 31 ? `${y}-${String(m).padStart(2, "0")}-${String(d).padStart(2, "0")}` : null;

const DATES: [RegExp, (m: RegExpMatchArray) => (string | null)[]][] = [
  [
    /\b(\d{4})-(\d{2})-(\d{2})(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?: ?(?:Z|UTC|GMT|[+-]\d{2}:?\d{2}))?)?/g,
    (m) => [day(Number(m[1]), Number(m[2]), Number(m[3]))],
  ],
  [
    /\b([A-Za-z]{3,9})\.? (\d{1,2})(?:st|nd|rd|th)?,? (\d{4})\b/g,
    (m) => [day(Number(m[3]), monthOf(m[1] ?? "") + 1, Number(m[2]))],
  ],
  [
    /\b(\d{1,2})(?:st|nd|rd|th)?(?: of)? ([A-Za-z]{3,9})\.?,? (\d{4})\b/g,
    (m) => [day(Number(m[3]), monthOf(m[2] ?? "") + 1, Number(m[1]))],
  ],
  // Which of the two is the month is open: either reading may be meant.
  [
    /\b(\d{1,2})[/.](\d{1,2})[/.](\d{4})\b/g,
    (m) => [day(Number(m[3]), Number(m[1]), Number(m[2])), day(Number(m[3]), Number(m[2]), Number(m[1]))],
  ],
];
const TIME = /\b\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?: ?[AaPp]\.?[Mm]\.?)?(?: ?(?:Z|UTC|GMT))?\b/g;
const NUMBER = /(?<![\w.])-?\d{1,3}(?:,\d{3})+(?:\.\d+)?(?![\w])|(?<![\w.])-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w])/g;

/** Text folded for comparison: no case, no accents, signs as spaces. */
export function fold(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: plain ASCII has no accents to take off
  if (/^[\x00-\x7f]*$/.test(text))
    return text
      .toLowerCase()
      .replace(/[^a-z0-9]+/g, " ")
      .trim();
  return text
    .normalize("NFKD")
    .replace(/\p{M}/gu, "")
    .toLowerCase()
    .replace(/[^\p{L}\p{N}]+/gu, " ")
    .trim();
}

const foldCache = new Map<string, string>();
/** `fold` for values that come again and again. */
function folded(text: string): string {
  let f = foldCache.get(text);
  if (f === undefined) {
    f = fold(text);
    if (foldCache.size > 50_000) foldCache.clear();
    foldCache.set(text, f);
  }
  return f;
}

/** Dates in a text as YYYY-MM-DD (both readings where day and month are open), and the text without them. */
export function datesIn(text: string): { dates: Set<string>[]; rest: string } {
  const dates: Set<string>[] = [];
  // Every date has a year.
  if (!/\d{4}/.test(text)) return { dates, rest: text };
  let rest = text;
  for (const [pattern, read] of DATES)
    rest = rest.replace(pattern, (...m) => {
      const found = read(m as unknown as RegExpMatchArray).filter((d): d is string => d !== null);
      if (!found.length) return m[0] as string;
      dates.push(new Set(found));
      return " ";
    });
  return { dates, rest };
}

/** Numbers in a text, thousands separators read; dates and times are no numbers. */
export function numbersIn(text: string): readonly number[] {
  if (!/\d/.test(text)) return [];
  let found = numberCache.get(text);
  if (!found) {
    found = findNumbers(text);
    if (text.length > 80) return found;
    if (numberCache.size > 50_000) numberCache.clear();
    numberCache.set(text, found);
  }
  return found;
}
const numberCache = new Map<string, readonly number[]>();
function findNumbers(text: string): number[] {
  const { rest } = datesIn(text);
  return (rest.replace(TIME, " ").match(NUMBER) ?? []).map((t) => Number(t.replace(/,/g, ""))).filter(Number.isFinite); // "4e999" in an identifier is no number
}

const sameNumber = (a: number, b: number) => a === b || Math.abs(a - b) <= 1e-9 * Math.max(Math.abs(a), Math.abs(b));
const isoDate = (text: string): string | null => /^(\d{4}-\d{2}-\d{2})([T ]\d{2}:\d{2}.*)?$/.exec(text)?.[1] ?? null;

/** Whether a text states a value. */
export function states(text: string, value: Json, accepted: readonly string[] = []): boolean {
  if (accepted.some((a) => a !== "" && ` ${fold(text)} `.includes(` ${fold(a)} `))) return true;
  if (typeof value === "number") return numbersIn(text).some((n) => sameNumber(n, value));
  if (typeof value === "boolean")
    return new RegExp(value ? "\\b(yes|true)\\b" : "\\b(no|false|not)\\b", "i").test(text);
  if (typeof value !== "string" || value === "") return false;
  const date = isoDate(value);
  if (date) return datesIn(text).dates.some((d) => d.has(date));
  if (/^-?\d+(\.\d+)?$/.test(value) && value.length < 16 && numbersIn(text).some((n) => sameNumber(n, Number(value))))
    return true;
  if (/[@/]|^[\w-]+\.[\w.-]+$/.test(value)) return text.toLowerCase().includes(value.toLowerCase());
  return ` ${fold(text)} `.includes(` ${fold(value)} `);
}

/** Whether two values say the same by the rule of `states`. */
export function sameValue(a: Json, b: Json): boolean {
  if (a === b) return true;
  if (
    a === null ||
    b === null ||
    typeof a === "object" ||
    typeof b === "object" ||
    typeof a === "boolean" ||
    typeof b === "boolean"
  )
    return false;
  const [x, y] = [String(a), String(b)];
  const digits = /\d/.test(x);
  if (digits !== /\d/.test(y) || (!digits && folded(x) !== folded(y))) return false;
  return states(x, b) && states(y, a);
}

/** Scalars of a JSON value with their pointers. */
export function scalars(value: Json, pointer = ""): Scalar[] {
  const out: Scalar[] = [];
  collect(value, pointer, out);
  return out;
}
export interface Scalar {
  pointer: string;
  value: null | boolean | number | string;
}
function collect(value: Json, pointer: string, out: Scalar[]): void {
  if (value === null || typeof value !== "object") out.push({ pointer, value });
  else if (Array.isArray(value))
    for (let i = 0; i < value.length; i++) collect(value[i] as Json, `${pointer}/${i}`, out);
  else for (const k of Object.keys(value)) collect(value[k] as Json, `${pointer}/${escaped(k)}`, out);
}
/** A member's name in a JSON pointer. */
const escaped = (name: string) => (/[~/]/.test(name) ? name.replace(/~/g, "~0").replace(/\//g, "~1") : name);

/** The value at a JSON pointer (RFC 6901), or undefined where there is none. */
export function at(root: Json | undefined, pointer: string): Json | undefined {
  let v = root;
  for (const part of pointer.split("/").slice(1)) {
    if (v === null || typeof v !== "object") return undefined;
    const k = part.replaceAll("~1", "/").replaceAll("~0", "~");
    v = Array.isArray(v) ? v[Number(k)] : Object.hasOwn(v, k) ? v[k] : undefined;
  }
  return v;
}

/** Words that are no names wherever they stand. */
const vocabulary = new Set<string>();
for (const list of Object.values(faker.definitions.word))
  if (Array.isArray(list)) for (const w of list) vocabulary.add(String(w).toLowerCase());
for (const w of `the a an i we you he she it they this that these those here there both all each every no none not and or but so if as at by for from in into of off on onto out over to up with without
 is are was were be been being has have had do does did done can could will would shall should may might must let its their his her our your my me us them who whom whose which what when where why how
 yes ok okay sure sorry please thanks thank however also then now next first second third last finally done found created updated deleted removed added changed set sent cancelled completed failed according
 name names status state type date time id ids email phone address amount total price currency number code details summary result results answer note request list item items new old current following below above
 information info data value values successfully successful based using since while because after before during within between per via etc monday tuesday wednesday thursday friday saturday sunday utc gmt
 january february march april may june july august september october november december jan feb mar apr jun jul aug sep sept oct nov dec am pm one two three four five six seven eight nine ten
 user users account accounts api url json http https error errors message messages creation updated modified start end due page pages title version count level rate key tag tags file files`.split(
  /\s+/,
))
  if (w) vocabulary.add(w);

/** What an answer may say: everything in the request and the observations. */
export class Evidence {
  readonly #text: string;
  readonly #raw: string;
  readonly #words = new Set<string>();
  readonly #numbers: number[] = [];
  readonly #dates = new Set<string>();
  readonly #lengths = new Set<number>();
  constructor(request: string, bodies: readonly Json[]) {
    const parts = [request];
    const walk = (v: Json): void => {
      if (Array.isArray(v)) {
        this.#lengths.add(v.length);
        v.forEach(walk);
      } else if (v !== null && typeof v === "object") {
        for (const [k, w] of Object.entries(v)) {
          parts.push(splitWords(k).join(" "), k);
          walk(w);
        }
      } else if (v !== null) {
        parts.push(String(v));
        if (typeof v === "number") {
          this.#numbers.push(v, v * 100);
          if (v > 1e9 && v < 4e12) this.#dates.add(new Date(v > 1e11 ? v : v * 1000).toISOString().slice(0, 10));
        }
      }
    };
    bodies.forEach(walk);
    this.#raw = parts.join("\n").toLowerCase();
    this.#text = ` ${fold(this.#raw)} `;
    for (const w of this.#text.split(" ")) this.#words.add(w);
    for (const p of parts) {
      for (const n of numbersIn(p)) this.#numbers.push(n);
      for (const d of datesIn(p).dates) for (const x of d) this.#dates.add(x);
    }
  }

  /** Identifiers, numbers, dates and names of a text that the evidence lacks, as written. */
  unsupported(answer: string): string[] {
    const out: string[] = [];
    const plain = answer.replace(/[*`"“”]/g, " ").replace(/^\s*\d{1,2}[.)]\s/gm, " ");
    const { dates, rest } = datesIn(plain);
    for (const d of dates) if (![...d].some((x) => this.#dates.has(x))) out.push([...d][0] ?? "");
    let text = rest.replace(TIME, (t) => {
      const clock = /^(\d{1,2}:\d{2})/.exec(t)?.[1] ?? "";
      const padded = clock.padStart(5, "0");
      const hour = Number(padded.slice(0, 2));
      const options = [
        padded,
        `${String((hour + 12) % 24).padStart(2, "0")}${padded.slice(2)}`,
        `${String(hour % 12).padStart(2, "0")}${padded.slice(2)}`,
      ];
      if (!options.some((o) => this.#raw.includes(o))) out.push(t);
      return " ";
    });
    // Identifiers: a run with a digit and something else, an address, a link.
    text = text.replace(/[^\s,;()[\]{}<>|]+/g, (raw) => {
      const token = raw.replace(/^[^\p{L}\p{N}#$€£+-]+|[^\p{L}\p{N}%]+$/gu, "");
      const mixed =
        /\d/.test(token) && /[\p{L}_]/u.test(token) && !/^\d+(st|nd|rd|th|s|x|px|kb|mb|gb|ms|k|m)$/i.test(token);
      const address = /@|^https?:|^www\.|^[\w-]+(\.[\w-]+)+$/.test(token) && !/^[-+$€£]?[\d.,]+%?$/.test(token);
      const dashed = /\d[-_/:.]\d|[-_]\d/.test(token) && !/^-?[$€£]?\d[\d,]*(\.\d+)?%?$/.test(token);
      if (!mixed && !address && !dashed) return raw;
      if (!this.#has(token)) out.push(token);
      return " ";
    });
    for (const t of text.match(NUMBER) ?? []) {
      const n = Number(t.replace(/,/g, ""));
      if (!this.#numbers.some((x) => sameNumber(x, n)) && !this.#lengths.has(n) && !this.#words.has(t)) out.push(t);
    }
    for (const m of text.matchAll(/\p{Lu}[\p{L}\p{M}'’-]*/gu)) {
      const word = m[0].replace(/['’]s$/, "");
      for (const part of fold(word).split(" "))
        if (
          part.length > 1 &&
          !this.#words.has(part) &&
          !this.#words.has(singular(part)) &&
          (isPersonName(part) || !this.#ordinary(part))
        )
          out.push(word);
    }
    return out;
  }

  #has(token: string): boolean {
    const t = token.toLowerCase();
    return this.#raw.includes(t) || this.#text.includes(` ${fold(t)} `);
  }
  #ordinary(word: string): boolean {
    const bare = word.replace(/(ing|ed|es|s|ly|d)$/, "");
    return vocabulary.has(word) || vocabulary.has(singular(word)) || vocabulary.has(bare) || vocabulary.has(`${bare}e`);
  }
}

/** Whether a lower-case word is ordinary English (for labels that people can read). */
export function isOrdinary(word: string): boolean {
  return vocabulary.has(word) || vocabulary.has(singular(word));
}
