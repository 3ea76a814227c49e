/**
 * BM25F over a catalogue in memory: one inverted index on typed arrays, built once, kept as one file, loaded in one read.
 * Scores: Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), sections 3.4 and 3.6. Search stops early
 * as in MaxScore (Turtle and Flood, 1995): once no unseen tool can reach the k best, only those already seen are finished. Exact.
 */
import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { catalogHash, toolDigest } from "./hash.ts";
import { tokens } from "./tokens.ts";
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
export const BM25_SETTINGS: Bm25Settings = { k1: 1.2, weights: [2, 1, 0.75, 0.5], b: [0.7, 0.8, 0.3, 0.6] };

const FIELDS = 4;
const MAGIC = 0x50414d32; // "PAM2"

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
  return texts.map(tokens);
}

/** Counts words as tools come, in id order. */
export class Bm25Builder {
  readonly terms = new Map<string, number>();
  readonly termOf = new Growing();
  readonly docOf = new Growing();
  /** Four counts of 8 bits, one a field. */
  readonly counts = new Growing();
  readonly lengths = new Growing();
  readonly totals = [0, 0, 0, 0];
  size = 0;

  add(fields: readonly string[][]): void {
    const seen = new Map<number, number>();
    fields.forEach((words, f) => {
      for (const word of words) {
        let term = this.terms.get(word);
        if (term === undefined) this.terms.set(word, (term = this.terms.size));
        const packed = seen.get(term) ?? 0;
        if (((packed >>> (8 * f)) & 255) < 255) seen.set(term, packed + 2 ** (8 * f));
      }
      this.lengths.push(words.length);
      this.totals[f]! += words.length;
    });
    for (const [term, packed] of seen) {
      this.termOf.push(term);
      this.docOf.push(this.size);
      this.counts.push(packed);
    }
    this.size++;
  }

  finish(hash: string, settings: Bm25Settings = BM25_SETTINGS): Bm25Index {
    return Bm25Index.of(hash, this, settings);
  }
}

export class Bm25Index {
  private constructor(
    /** Hash of the catalogue that it was built from. */
    readonly hash: string,
    /** Number of tools. */
    readonly size: number,
    private readonly terms: Map<string, number>,
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
    const { terms, termOf, docOf, counts, lengths, totals, size: n } = builder;
    const postings = termOf.length;
    const starts = new Uint32Array(terms.size + 1);
    for (let p = 0; p < postings; p++) starts[termOf.data[p]! + 1]!++;
    for (let t = 0; t < terms.size; t++) starts[t + 1]! += starts[t]!;
    const next = starts.slice();
    const docs = new Uint32Array(postings);
    const impacts = new Float32Array(postings);
    const bounds = new Float32Array(terms.size);
    const average = totals.map((t) => Math.max(t / Math.max(n, 1), 1e-9));
    for (let p = 0; p < postings; p++) {
      const term = termOf.data[p]!;
      const doc = docOf.data[p]!;
      let tf = 0;
      for (let f = 0; f < FIELDS; f++) {
        const count = (counts.data[p]! >>> (8 * f)) & 255;
        if (count === 0) continue;
        tf +=
          (settings.weights[f]! * count) /
          (1 - settings.b[f]! + (settings.b[f]! * lengths.data[doc * FIELDS + f]!) / average[f]!);
      }
      const df = starts[term + 1]! - starts[term]!;
      const idf = Math.log(1 + (n - df + 0.5) / (df + 0.5));
      const impact = (idf * tf * (settings.k1 + 1)) / (settings.k1 + tf);
      const at = next[term]!++;
      docs[at] = doc;
      impacts[at] = impact;
      if (impacts[at]! > bounds[term]!) bounds[term] = impacts[at]!;
    }
    return new Bm25Index(hash, n, terms, starts, bounds, docs, impacts);
  }

  /** Ids and scores of the k best tools, best first, ties by id. A word that comes n times in the query counts √n times. */
  search(query: string, k: number): { id: number; score: number }[] {
    if (k <= 0) return [];
    if (this.#scores.length !== this.size) {
      this.#scores = new Float64Array(this.size);
      this.#touched = new Uint32Array(this.size);
    }
    const scores = this.#scores;
    const touched = this.#touched;
    const { starts, docs, impacts, bounds } = this;
    const weights = new Map<number, number>();
    for (const word of tokens(query)) {
      const term = this.terms.get(word);
      if (term !== undefined) weights.set(term, (weights.get(term) ?? 0) + 1);
    }
    // Highest bound first, so that the rest can be cut early.
    const order = [...weights].map(([term, weight]) => ({
      term,
      weight: Math.sqrt(weight),
      bound: bounds[term]! * Math.sqrt(weight),
    }));
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

  /** The index as one file's bytes. */
  encode(): Uint8Array {
    const dictionary = new TextEncoder().encode([...this.terms.keys()].join("\n"));
    const padded = Math.ceil(dictionary.length / 8) * 8;
    const hash = new TextEncoder().encode(this.hash.padEnd(64).slice(0, 64));
    const terms = this.terms.size;
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
    const words = terms === 0 ? [] : new TextDecoder().decode(body.subarray(0, dictionary)).split("\n");
    if (words.length !== terms) return "damaged";
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
    return new Bm25Index(hash, size, new Map(words.map((w, i) => [w, i])), starts, bounds, docs, take(f32, postings));
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
