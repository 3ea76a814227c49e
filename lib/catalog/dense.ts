/** Dense retrieval: sentence embeddings in eight bits, compared with every tool's. Vectors are kept on disk by catalogue hash. */
import {
  appendFileSync,
  closeSync,
  existsSync,
  fstatSync,
  mkdirSync,
  openSync,
  readFileSync,
  readSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { dirname } from "node:path";
import type { SearchText } from "./bm25.ts";
import type { SentenceEncoder } from "./encoder.ts";
import { sentences } from "./fuse.ts";
import type { Retriever, Tool } from "./types.ts";

/** What is embedded of a tool: its name in words, then the beginning of its description. */
export function denseText(tool: Pick<SearchText, "name" | "description">): string {
  return `${tool.name.replaceAll("_", " ")}. ${tool.description.slice(0, 200)}`;
}

/** A catalogue as the dense index sees it. */
export interface DenseSource {
  hash: string;
  size: number;
  texts(): Iterable<string>;
  byId(id: number): Tool;
}

export interface DenseOptions {
  /** Where vectors are kept; without it they are made anew each time. */
  cache?: string;
  onProgress?: (done: number, of: number) => void;
  /** Queries whose vectors are remembered. */
  remember?: number;
}

/** Unit vector to eight bits: the largest component becomes ±127. The length is lost, which ranks by cosine all the same once divided out. */
export function quantise(vector: Float32Array, out: Int8Array, at: number): void {
  let largest = 0;
  for (const v of vector) largest = Math.max(largest, Math.abs(v));
  const scale = largest > 0 ? 127 / largest : 0;
  for (let i = 0; i < vector.length; i++) out[at + i] = Math.round(vector[i]! * scale);
}

const HEAD = 128;
const CHUNK = 512;

function head(hash: string, size: number, encoder: SentenceEncoder): Buffer {
  const text = `dense1 ${encoder.name} ${encoder.dimensions} ${size} ${hash}\n`;
  return Buffer.from(text.padEnd(HEAD).slice(0, HEAD));
}

/** The whole vectors of a cache file that begins with this head; null where it is another's or not there. */
function readVectors(path: string, wanted: Buffer, dimensions: number): Int8Array | null {
  if (!existsSync(path)) return null;
  const file = openSync(path, "r");
  try {
    const found = Buffer.alloc(HEAD);
    readSync(file, found, 0, HEAD, 0);
    if (!found.equals(wanted)) return null;
    const whole = Math.floor((fstatSync(file).size - HEAD) / dimensions) * dimensions;
    const bytes = readFileSync(path).subarray(HEAD, HEAD + whole);
    return new Int8Array(bytes.buffer, bytes.byteOffset, whole);
  } finally {
    closeSync(file);
  }
}

function bytesOf(vectors: Int8Array, from: number, to: number): Uint8Array {
  return new Uint8Array(vectors.buffer, vectors.byteOffset + from, to - from);
}

/**
 * Vectors of a catalogue, (size, dimensions) i8. What is in the cache is taken; the rest is embedded (about 10 ms a tool) and appended as it goes,
 * so that an interrupted run goes on where it stopped.
 */
export function denseVectors(source: DenseSource, encoder: SentenceEncoder, options: DenseOptions = {}): Int8Array {
  const { cache, onProgress } = options;
  const d = encoder.dimensions;
  const wanted = head(source.hash, source.size, encoder);
  const done = cache ? readVectors(cache, wanted, d) : null;
  if (done && done.length === source.size * d) return done;
  const part = cache ? `${cache}.part` : null;
  const before = part ? readVectors(part, wanted, d) : null;
  const vectors = new Int8Array(source.size * d);
  const start = Math.min((before?.length ?? 0) / d, source.size);
  if (before) vectors.set(before.subarray(0, start * d));
  if (part) {
    mkdirSync(dirname(part), { recursive: true });
    writeFileSync(part, wanted);
    appendFileSync(part, bytesOf(vectors, 0, start * d));
  }
  let id = 0;
  let kept = start;
  const keep = (end: number) => {
    if (part) appendFileSync(part, bytesOf(vectors, kept * d, end * d));
    kept = end;
  };
  for (const text of source.texts()) {
    if (id >= start) {
      quantise(encoder.embed(text), vectors, id * d);
      if ((id + 1) % CHUNK === 0) keep(id + 1);
      if (id % 16 === 0) onProgress?.(id, source.size);
    }
    id++;
  }
  keep(source.size);
  onProgress?.(source.size, source.size);
  if (part && cache) {
    renameSync(part, cache);
    rmSync(part, { force: true });
  }
  return vectors;
}

/** Sentences of a query that are compared; those of long requests beyond it are left out. */
const MAX_SENTENCES = 8;

/**
 * The dense retriever: a tool's score is the highest cosine with any sentence of the query, since a request asks for several things.
 * Embeds sentences as they come (about 10 ms each) and remembers them.
 */
export function denseRetriever(source: DenseSource, encoder: SentenceEncoder, options: DenseOptions = {}): Retriever {
  const d = encoder.dimensions;
  const vectors = denseVectors(source, encoder, options);
  const length = (v: Int8Array, from: number) => {
    let sum = 0;
    for (let i = from; i < from + d; i++) sum += v[i]! * v[i]!;
    return Math.sqrt(sum);
  };
  const inverse = Float32Array.from({ length: source.size }, (_, id) => 1 / (length(vectors, id * d) || 1));
  const known = new Map<string, Int8Array>();
  const scores = new Float32Array(source.size);
  const vectorOf = (query: string): Int8Array => {
    let vector = known.get(query);
    if (!vector) {
      vector = new Int8Array(d);
      quantise(encoder.embed(query), vector, 0);
      if (known.size >= (options.remember ?? 4096)) known.clear();
      known.set(query, vector);
    }
    return vector;
  };
  return {
    name: "dense",
    search(query, k) {
      const queries = sentences(query)
        .slice(0, MAX_SENTENCES)
        .map(vectorOf)
        .filter((q) => length(q, 0) > 0);
      if (k <= 0 || queries.length === 0) return [];
      scores.fill(-1);
      for (const q of queries) {
        const unit = 1 / length(q, 0);
        for (let id = 0, at = 0; id < source.size; id++, at += d) {
          let sum = 0;
          for (let i = 0; i < d; i++) sum += q[i]! * vectors[at + i]!;
          const score = sum * unit * inverse[id]!;
          if (score > scores[id]!) scores[id] = score;
        }
      }
      return best(scores, k).map((id) => ({ tool: source.byId(id), score: scores[id]! }));
    },
  };
}

/** Ids of the k highest scores, best first, ties by id. */
function best(scores: Float32Array, k: number): number[] {
  const top: number[] = [];
  for (let id = 0; id < scores.length; id++) {
    const s = scores[id]!;
    if (top.length === k && s <= scores[top[k - 1]!]!) continue;
    let at = top.length;
    while (at > 0 && scores[top[at - 1]!]! < s) at--;
    top.splice(at, 0, id);
    if (top.length > k) top.pop();
  }
  return top;
}

/** Any array of tools as a source; `hash` names its cache. */
export function denseSource(tools: readonly Tool[], hash: string): DenseSource {
  return { hash, size: tools.length, texts: () => tools.map(denseText), byId: (id) => tools[id]! };
}
