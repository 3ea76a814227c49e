/** The retrievers by name, over a stored catalogue or any list of tools. */
import { join } from "node:path";
import { bm25 } from "./bm25.ts";
import { type DenseSource, denseRetriever, denseSource, denseText } from "./dense.ts";
import { loadEncoder, type SentenceEncoder } from "./encoder.ts";
import { fts } from "./fts.ts";
import { DENSE_WEIGHT, fusedRetriever } from "./fuse.ts";
import { memoryCatalog } from "./memory.ts";
import type { StoredCatalog } from "./store.ts";
import type { Retriever, Tool } from "./types.ts";

/** bm25: in memory, for rollouts. fts5: SQLite, nothing to load. dense: sentence embeddings. fused: bm25 and dense. */
export const RETRIEVERS = ["bm25", "fts5", "dense", "fused"] as const;
export type RetrieverName = (typeof RETRIEVERS)[number];

/** A set of tools that any retriever can be made over. */
export interface Searchable {
  bm25(): Retriever;
  fts(): Retriever;
  dense: DenseSource;
  /** File in which the tools' vectors are kept. */
  cache: string;
}

export function storedTools(catalog: StoredCatalog): Searchable {
  const { hash, size, byId } = catalog;
  function* texts(): Generator<string> {
    for (const text of catalog.searchTexts()) yield denseText(text);
  }
  return { bm25: catalog.bm25, fts: catalog.fts, dense: { hash, size, byId, texts }, cache: `${catalog.path}.dense` };
}

/** Any list of tools, their ids their places in it. Vectors are kept in `folder`, by content hash. */
export function toolList(tools: readonly Tool[], folder: string): Searchable {
  const { hash } = memoryCatalog(tools);
  const cache = join(folder, `tools-${hash.slice(0, 12)}.dense`);
  return { bm25: () => bm25(tools), fts: () => fts(tools), dense: denseSource(tools, hash), cache };
}

/**
 * The retriever of that name. Dense ones embed every tool the first time (about 10 ms each on an idle core) and keep the vectors.
 * Throws RetrieverMissingError where the optional encoder is not installed.
 */
export async function retrieverOf(
  name: RetrieverName,
  from: Searchable,
  onProgress?: (done: number, of: number) => void,
): Promise<Retriever> {
  if (name === "bm25") return from.bm25();
  if (name === "fts5") return from.fts();
  return embedded(name, from, await loadEncoder(), onProgress);
}

/** The dense ones, with the encoder at hand. */
export function embedded(
  name: "dense" | "fused",
  from: Searchable,
  encoder: SentenceEncoder,
  onProgress?: (done: number, of: number) => void,
): Retriever {
  const dense = denseRetriever(from.dense, encoder, { cache: from.cache, onProgress });
  return name === "dense" ? dense : fusedRetriever([from.bm25(), dense], [1, DENSE_WEIGHT]);
}
