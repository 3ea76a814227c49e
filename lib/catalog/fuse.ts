/** Several rankings as one. */
import type { Retriever, SearchHit } from "./types.ts";

/** The rank constant. Its inventors took 60 for rankings of equal worth; with unequal ones a small one lets the better ranking lead. */
export const FUSION_CONSTANT = 5;

/**
 * Reciprocal-rank fusion (Cormack, Clarke and Buettcher, SIGIR 2009): each ranking gives a tool weight / (constant + rank).
 * The score is the sum; ties by tool id.
 */
export function fuse(
  rankings: readonly SearchHit[][],
  k: number,
  weights: readonly number[] = [],
  constant = FUSION_CONSTANT,
): SearchHit[] {
  const found = new Map<number, SearchHit>();
  rankings.forEach((hits, r) => {
    hits.forEach(({ tool }, i) => {
      const score = (weights[r] ?? 1) / (constant + i + 1);
      const known = found.get(tool.id);
      if (known) known.score += score;
      else found.set(tool.id, { tool, score });
    });
  });
  return [...found.values()].sort((a, b) => b.score - a.score || a.tool.id - b.tool.id).slice(0, k);
}

/** How deep each ranking is read for a fusion. */
export const FUSION_DEPTH = 50;

/** What the dense ranking weighs beside BM25's: alone it finds half as many of ToolBench's tools. */
export const DENSE_WEIGHT = 0.25;

/** Several retrievers over one catalogue as one, by weighted reciprocal-rank fusion. */
export function fusedRetriever(
  parts: readonly Retriever[],
  weights: readonly number[] = parts.map(() => 1),
): Retriever {
  return {
    name: parts.map((p) => p.name).join("+"),
    search(query, k) {
      const rankings = parts.map((p) => p.search(query, Math.max(k, FUSION_DEPTH)));
      return fuse(rankings, k, weights);
    },
  };
}

/** The sentences of a request, for a query each. */
export function sentences(text: string): string[] {
  const parts = text.split(/(?<=[.!?])\s+/u).filter((s) => s.trim().length > 3);
  return parts.length > 0 ? parts : [text];
}
