/** How many of the tools that a request needs a search finds among its first k: recall@k, the mean over requests. */
import { FUSION_DEPTH, fuse } from "./fuse.ts";
import type { Retriever } from "./types.ts";

export interface RecallCase {
  group: string;
  /** One query, or several whose rankings are fused. */
  queries: string[];
  /** Names of the tools that must be found. */
  gold: string[];
}

export interface RecallRow {
  retriever: string;
  group: string;
  cases: number;
  /** k → mean share of the gold tools in the first k. */
  recall: Record<string, number>;
  /** Milliseconds per case: median. */
  medianMs: number;
}

export const RECALL_AT = [1, 3, 5, 10] as const;

/** Recall by group, and over all cases as group "all". */
export function measureRecall(retriever: Retriever, cases: readonly RecallCase[]): RecallRow[] {
  const deepest = Math.max(...RECALL_AT);
  const measured = cases.map((c) => {
    const started = performance.now();
    const hits =
      c.queries.length === 1
        ? retriever.search(c.queries[0]!, deepest)
        : fuse(
            c.queries.map((q) => retriever.search(q, FUSION_DEPTH)),
            deepest,
          );
    const ms = performance.now() - started;
    const names = hits.map((h) => h.tool.name);
    const gold = [...new Set(c.gold)];
    const recall = RECALL_AT.map(
      (k) => gold.filter((g) => names.slice(0, k).includes(g)).length / Math.max(gold.length, 1),
    );
    return { group: c.group, recall, ms };
  });
  const groups = [...new Set(cases.map((c) => c.group))];
  const wanted: [string, typeof measured][] = groups.map((g) => [g, measured.filter((m) => m.group === g)]);
  if (groups.length > 1) wanted.push(["all", measured]);
  return wanted.map(([group, rows]) => ({
    retriever: retriever.name,
    group,
    cases: rows.length,
    recall: Object.fromEntries(
      RECALL_AT.map((k, j) => [k, rows.reduce((a, r) => a + r.recall[j]!, 0) / Math.max(rows.length, 1)]),
    ),
    medianMs: rows.map((r) => r.ms).sort((a, b) => a - b)[rows.length >> 1] ?? 0,
  }));
}
