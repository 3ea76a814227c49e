/**
 * BM25F over a catalogue in memory: one inverted index on typed arrays, built once, kept as one file, loaded in one read. Each word is indexed
 * twice, as it is and as its stem: either alone finds fewer of ToolBench's tools.
 * Scores: Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), sections 3.4 and 3.6. Search stops early
 * as in MaxScore (Turtle and Flood, 1995): once no unseen tool can reach the k best, only those already seen are finished. Exact.
 */
import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { catalogHash, toolDigest } from "./hash.ts";
import { stemOf, words } from "./tokens.ts";
import type { Retriever, SearchHit, Tool } from "./types.ts";

/** What is indexed of a tool. */
export type SearchText = Pick<Tool, "name" | "description" | "api" | "category"> & { parameters: string[] };

export interface Bm25Settings {
  k1: number;
  /** Weight of each field: name, description, API and category, parameter names. */
  weights: readonly [number, number, number, number];
  /** How far each field's length is normalised, 0 … 1. */
  b: readonly [number, number, number, number];
}

/** Tuned on ToolBench's requests (`bun run catalog recall`); the optimum is flat: half or double of any of them costs a point at most. */
export const BM25_SETTINGS: Bm25Settings = { k1: 1.2, weights: [2, 1, 0.5, 0.5], b: [0.7, 0.8, 0.3, 0.6] };

const FIELDS = 4;
const MAGIC = 0x50414d33; // "PAM3"

export function searchText(tool: Tool): SearchText {
  return { ...tool, parameters: Object.keys(tool.parameters.properties) };
}

/** A growing Uint32Array. */
class Growing {
  data = new Uint32Array(1 << 16);
  length = 0;
  push(value: number): void {
    if (this.length === this.data.length) {
      const bigger = new Uint32Array(this.length * 2);
      bigger.set(this.data);
      this.data = bigger;
    }
    this.data[this.length++] = value;
  }
}

/** The words of each field of a tool: name, description, API and category, parameter names. */
export function searchFields(tool: SearchText): string[][] {
  const texts = [tool.name, tool.description, `${tool.api} ${tool.category ?? ""}`, tool.parameters.join(" ")];
  return texts.map(words);
}

/** Counts words as tools come, in id order. */
export class Bm25Builder {
  /** Stems as they are, words as "=word". */
  readonly terms = new Map<string, number>();
  /** The stem's term of each word's term, and itself for a stem. */
  readonly stemTerm: number[] = [];
  readonly #pairs = new Map<string, { stem: number; word: number }>();
  readonly termOf = new Growing();
  readonly docOf = new Growing();
  /** Four counts of 8 bits, one a field. */
  readonly counts = new Growing();
  readonly lengths = new Growing();
  readonly totals = [0, 0, 0, 0];
  size = 0;

  #term(key: string, stem?: number): number {
    let term = this.terms.get(key);
    if (term === undefined) {
      term = this.terms.size;
      this.terms.set(key, term);
      this.stemTerm.push(stem ?? term);
    }
    return term;
  }

  #pair(word: string): { stem: number; word: number } {
    let pair = this.#pairs.get(word);
    if (!pair) {
      const stem = this.#term(stemOf(word));
      pair = { stem, word: this.#term(`=${word}`, stem) };
      this.#pairs.set(word, pair);
    }
    return pair;
  }

  /** Adds the next tool, by the words of its fields. */
  add(fields: readonly string[][]): void {
    const seen = new Map<number, number>();
    const count = (term: number, f: number) => {
      const packed = seen.get(term) ?? 0;
      if (((packed >>> (8 * f)) & 255) < 255) seen.set(term, packed + 2 ** (8 * f));
    };
    fields.forEach((field, f) => {
      for (const word of field) {
        const pair = this.#pair(word);
        count(pair.stem, f);
        count(pair.word, f);
      }
      this.lengths.push(field.length);
      this.totals[f]! += field.length;
    });
    for (const [term, packed] of seen) {
      this.termOf.push(term);
      this.docOf.push(this.size);
      this.counts.push(packed);
    }
    this.size++;
  }

  /** Terms renumbered without the words that are their stem's only form: their postings would repeat it. -1 for those left out. */
  numbering(): { keys: string[]; renumbered: Int32Array } {
    const names = [...this.terms.keys()];
    const forms = new Uint32Array(names.length);
    this.stemTerm.forEach((stem, term) => {
      if (stem !== term) forms[stem]!++;
    });
    const only = new Map<number, string>();
    const renumbered = new Int32Array(names.length).fill(-1);
    const kept: number[] = [];
    this.stemTerm.forEach((stem, term) => {
      if (stem !== term && forms[stem] === 1) only.set(stem, names[term]!);
      else renumbered[term] = kept.push(term) - 1;
    });
    return { keys: kept.map((term) => names[term]! + (only.get(term) ?? "")), renumbered };
  }

  finish(hash: string, settings: Bm25Settings = BM25_SETTINGS): Bm25Index {
    return Bm25Index.of(hash, this, settings);
  }
}

/** What the dictionary says of a word or stem: which postings, and how often they count. */
class Dictionary {
  readonly #stems = new Map<string, number>();
  readonly #words = new Map<string, number>();
  /** Words that are their stem's only form: one list of postings stands for both. */
  readonly #alone = new Map<string, number>();

  /** Keys are "stem", "=word" or, for a stem with a single form, "stem=word". */
  constructor(readonly keys: readonly string[]) {
    keys.forEach((key, term) => {
      const at = key.indexOf("=");
      if (at === 0) this.#words.set(key.slice(1), term);
      else {
        this.#stems.set(at < 0 ? key : key.slice(0, at), term);
        if (at > 0) this.#alone.set(key.slice(at + 1), term);
      }
    });
  }

  /** Terms of a query's distinct words, with what each counts. */
  lookUp(query: string): Map<number, number> {
    const weights = new Map<number, number>();
    for (const word of new Set(words(query))) {
      const alone = this.#alone.get(word);
      const stem = alone ?? this.#stems.get(stemOf(word));
      if (stem === undefined) continue;
      weights.set(stem, Math.max(weights.get(stem) ?? 0, alone === undefined ? 1 : 2));
      const own = this.#words.get(word);
      if (own !== undefined) weights.set(own, 1);
    }
    return weights;
  }
}

export class Bm25Index {
  private constructor(
    /** Hash of the catalogue that it was built from. */
    readonly hash: string,
    /** Number of tools. */
    readonly size: number,
    private readonly dictionary: Dictionary,
    /** (terms+1) first posting of each term. */
    private readonly starts: Uint32Array,
    /** (terms) highest impact of each term. */
    private readonly bounds: Float32Array,
    /** (postings) tool ids, ascending within a term. */
    private readonly docs: Uint32Array,
    /** (postings) contribution to the score of a tool, idf included. */
    private readonly impacts: Float32Array,
  ) {}

  #scores = new Float64Array(0);
  #touched = new Uint32Array(0);

  static build(hash: string, tools: Iterable<SearchText>, settings: Bm25Settings = BM25_SETTINGS): Bm25Index {
    const builder = new Bm25Builder();
    for (const tool of tools) builder.add(searchFields(tool));
    return builder.finish(hash, settings);
  }

  /** From a builder's counts. */
  static of(hash: string, builder: Bm25Builder, settings: Bm25Settings): Bm25Index {
    const { termOf, docOf, counts, lengths, totals, size: n } = builder;
    const { keys, renumbered } = builder.numbering();
    const starts = new Uint32Array(keys.length + 1);
    for (let p = 0; p < termOf.length; p++) {
      const term = renumbered[termOf.data[p]!]!;
      if (term >= 0) starts[term + 1]!++;
    }
    for (let t = 0; t < keys.length; t++) starts[t + 1]! += starts[t]!;
    const next = starts.slice();
    const docs = new Uint32Array(starts[keys.length]!);
    const impacts = new Float32Array(docs.length);
    const bounds = new Float32Array(keys.length);
    const average = totals.map((t) => Math.max(t / Math.max(n, 1), 1e-9));
    for (let p = 0; p < termOf.length; p++) {
      const term = renumbered[termOf.data[p]!]!;
      if (term < 0) continue;
      const doc = docOf.data[p]!;
      let tf = 0;
      for (let f = 0; f < FIELDS; f++) {
        const count = (counts.data[p]! >>> (8 * f)) & 255;
        if (count === 0) continue;
        const length = lengths.data[doc * FIELDS + f]! / average[f]!;
        tf += (settings.weights[f]! * count) / (1 - settings.b[f]! + settings.b[f]! * length);
      }
      const df = starts[term + 1]! - starts[term]!;
      const idf = Math.log(1 + (n - df + 0.5) / (df + 0.5));
      const at = next[term]!++;
      docs[at] = doc;
      impacts[at] = (idf * tf * (settings.k1 + 1)) / (settings.k1 + tf);
      if (impacts[at]! > bounds[term]!) bounds[term] = impacts[at]!;
    }
    return new Bm25Index(hash, n, new Dictionary(keys), starts, bounds, docs, impacts);
  }

  /** Ids and scores of the k best tools, best first, ties by id. A word counts once, however often the query says it. */
  search(query: string, k: number): { id: number; score: number }[] {
    if (k <= 0) return [];
    if (this.#scores.length !== this.size) {
      this.#scores = new Float64Array(this.size);
      this.#touched = new Uint32Array(this.size);
    }
    const scores = this.#scores;
    const touched = this.#touched;
    const { starts, docs, impacts, bounds } = this;
    // Highest bound first, so that the rest can be cut early.
    const order = [...this.dictionary.lookUp(query)].map(([term, weight]) => {
      return { term, weight, bound: bounds[term]! * weight };
    });
    order.sort((a, b) => b.bound - a.bound || a.term - b.term);
    const rest = new Float64Array(order.length + 1);
    for (let i = order.length - 1; i >= 0; i--) rest[i] = rest[i + 1]! + order[i]!.bound;
    let seen = 0;
    let best = 0;
    let i = 0;
    let threshold = 0;
    for (; i < order.length; i++) {
      // A tool that none of the terms so far is in can reach rest[i] at most.
      if (seen >= k && best > rest[i]!) {
        threshold = kthBest(scores, touched, seen, k);
        if (threshold > rest[i]!) break;
      }
      const { term, weight } = order[i]!;
      for (let p = starts[term]!, end = starts[term + 1]!; p < end; p++) {
        const doc = docs[p]!;
        const before = scores[doc]!;
        if (before === 0) touched[seen++] = doc;
        const now = before + impacts[p]! * weight;
        scores[doc] = now;
        if (now > best) best = now;
      }
    }
    let candidates = touched.subarray(0, seen);
    if (i < order.length) {
      candidates = candidates.filter((doc) => scores[doc]! + rest[i]! >= threshold).sort();
      for (; i < order.length; i++) {
        const { term, weight } = order[i]!;
        let p = starts[term]!;
        const end = starts[term + 1]!;
        for (const doc of candidates) {
          p = seek(docs, doc, p, end);
          if (p === end) break;
          if (docs[p] === doc) scores[doc]! += impacts[p]! * weight;
        }
      }
    }
    const top = topK(scores, candidates, k);
    for (let t = 0; t < seen; t++) scores[touched[t]!] = 0;
    return top;
  }

  /** Every tool's score, by id; 0 where it holds no word of the query. Nothing is cut early: for facets and filters over all that fits. */
  scores(query: string): Float64Array {
    const scores = new Float64Array(this.size);
    for (const [term, weight] of this.dictionary.lookUp(query))
      for (let p = this.starts[term]!, end = this.starts[term + 1]!; p < end; p++)
        scores[this.docs[p]!]! += this.impacts[p]! * weight;
    return scores;
  }

  /** What each word of a query adds to one tool's score, most first. `word` is a stem, or a word as written ("=word"). Sums to its score. */
  explain(query: string, id: number): { word: string; adds: number; tools: number }[] {
    const terms = [...this.dictionary.lookUp(query)].flatMap(([term, weight]) => {
      const [start, end] = [this.starts[term]!, this.starts[term + 1]!];
      const p = seek(this.docs, id, start, end);
      if (p === end || this.docs[p] !== id) return [];
      return [{ word: this.dictionary.keys[term]!, adds: this.impacts[p]! * weight, tools: end - start }];
    });
    return terms.sort((a, b) => b.adds - a.adds || (a.word < b.word ? -1 : 1));
  }

  /** The index as one file's bytes. */
  encode(): Uint8Array {
    const dictionary = new TextEncoder().encode(this.dictionary.keys.join("\n"));
    const padded = Math.ceil(dictionary.length / 8) * 8;
    const hash = new TextEncoder().encode(this.hash.padEnd(64).slice(0, 64));
    const terms = this.dictionary.keys.length;
    const body = new Uint8Array(padded + 4 * (terms + 1 + terms + 2 * this.docs.length));
    body.set(dictionary);
    let at = padded;
    for (const part of [this.starts, this.bounds, this.docs, this.impacts]) {
      body.set(new Uint8Array(part.buffer, part.byteOffset, part.byteLength), at);
      at += part.byteLength;
    }
    const head = new ArrayBuffer(96);
    new Uint32Array(head, 0, 6).set([MAGIC, this.size, terms, this.docs.length, dictionary.length, 0]);
    new BigUint64Array(head, 24, 1)[0] = BigInt(Bun.hash(body));
    new Uint8Array(head, 32).set(hash);
    const out = new Uint8Array(96 + body.length);
    out.set(new Uint8Array(head));
    out.set(body, 96);
    return out;
  }

  /** The index of a file's bytes, or the reason why it cannot be used for a catalogue of that hash and size. */
  static decode(bytes: Uint8Array, hash: string, size: number): Bm25Index | string {
    if (bytes.length < 96) return "too short";
    const aligned = bytes.byteOffset % 8 === 0 ? bytes : bytes.slice();
    const head = new Uint32Array(aligned.buffer, aligned.byteOffset, 6);
    if (head[0] !== MAGIC) return "another version's file";
    const found = new TextDecoder().decode(aligned.subarray(32, 96)).trimEnd();
    if (found !== hash || head[1] !== size) return "another catalogue's index";
    const [, , terms = 0, postings = 0, dictionary = 0] = head;
    const padded = Math.ceil(dictionary / 8) * 8;
    const body = aligned.subarray(96);
    if (body.length !== padded + 4 * (2 * terms + 1 + 2 * postings)) return "cut off";
    if (BigInt(Bun.hash(body)) !== new BigUint64Array(aligned.buffer, aligned.byteOffset + 24, 1)[0]) return "damaged";
    const keys = terms === 0 ? [] : new TextDecoder().decode(body.subarray(0, dictionary)).split("\n");
    if (keys.length !== terms) return "damaged";
    let at = body.byteOffset + padded;
    const take = <T>(make: (buffer: ArrayBufferLike, offset: number, n: number) => T, n: number): T => {
      const part = make(aligned.buffer, at, n);
      at += 4 * n;
      return part;
    };
    const u32 = (b: ArrayBufferLike, o: number, n: number) => new Uint32Array(b, o, n);
    const f32 = (b: ArrayBufferLike, o: number, n: number) => new Float32Array(b, o, n);
    const starts = take(u32, terms + 1);
    const bounds = take(f32, terms);
    const docs = take(u32, postings);
    return new Bm25Index(hash, size, new Dictionary(keys), starts, bounds, docs, take(f32, postings));
  }

  /** The stored index of a catalogue, rebuilt from its tools (and stored, where the folder can be written) if missing, foreign or damaged. */
  static load(path: string, hash: string, size: number, tools: () => Iterable<SearchText>): Bm25Index {
    let bytes: Uint8Array | null = null;
    try {
      bytes = readFileSync(path);
    } catch (e) {
      if ((e as NodeJS.ErrnoException).code !== "ENOENT") throw e;
    }
    const found = bytes === null ? "missing" : Bm25Index.decode(bytes, hash, size);
    if (typeof found !== "string") return found;
    const index = Bm25Index.build(hash, tools());
    try {
      index.save(path);
    } catch (e) {
      process.stderr.write(
        `note: the search index could not be stored at ${path} (${(e as Error).message}); it is rebuilt each time\n`,
      );
    }
    return index;
  }

  /** Writes to a file beside it first, so that a reader never sees half an index. */
  save(path: string): void {
    const temporary = `${path}.${process.pid}.${crypto.randomUUID().slice(0, 8)}.tmp`;
    writeFileSync(temporary, this.encode(), { flush: true });
    renameSync(temporary, path);
  }
}

/** First position in docs[p, end) whose id is `doc` or more, by galloping. */
function seek(docs: Uint32Array, doc: number, from: number, end: number): number {
  let low = from;
  let step = 1;
  while (low + step < end && docs[low + step]! < doc) {
    low += step;
    step *= 2;
  }
  let high = Math.min(low + step, end);
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (docs[middle]! < doc) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The k-th highest score of the touched tools (k ≤ seen). */
function kthBest(scores: Float64Array, touched: Uint32Array, seen: number, k: number): number {
  const heap = new Float64Array(k); // ascending
  let n = 0;
  for (let t = 0; t < seen; t++) {
    const s = scores[touched[t]!]!;
    if (n === k && s <= heap[0]!) continue;
    let at: number;
    if (n < k) at = n++;
    else {
      heap.copyWithin(0, 1);
      at = k - 1;
    }
    while (at > 0 && heap[at - 1]! > s) {
      heap[at] = heap[at - 1]!;
      at--;
    }
    heap[at] = s;
  }
  return heap[0]!;
}

/** The k best candidates, best first, ties by id. */
function topK(scores: Float64Array, candidates: Uint32Array, k: number): { id: number; score: number }[] {
  const top: { id: number; score: number }[] = [];
  for (const id of candidates) {
    const score = scores[id]!;
    const worst = top[top.length - 1];
    if (top.length === k && worst && (score < worst.score || (score === worst.score && id > worst.id))) continue;
    let at = top.length;
    while (at > 0 && (top[at - 1]!.score < score || (top[at - 1]!.score === score && top[at - 1]!.id > id))) at--;
    top.splice(at, 0, { id, score });
    if (top.length > k) top.pop();
  }
  return top;
}

/** The retriever over an index, with the catalogue's look-up. */
export function bm25Retriever(index: Bm25Index, byId: (id: number) => Tool): Retriever {
  return {
    name: "bm25",
    search: (query, k): SearchHit[] => index.search(query, k).map(({ id, score }) => ({ tool: byId(id), score })),
  };
}

/** BM25 over any array of tools. Their ids must be their places in the array. */
export function bm25(tools: readonly Tool[], settings: Bm25Settings = BM25_SETTINGS): Retriever {
  const hash = catalogHash(
    tools.map((t) => t.name),
    tools.map((t) => toolDigest(t)),
  );
  return bm25Retriever(Bm25Index.build(hash, tools.map(searchText), settings), (id) => tools[id]!);
}
