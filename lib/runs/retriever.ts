import { dirname, join } from "node:path";
import { bm25 } from "../catalog/bm25.ts";
import { type DenseSource, denseRetriever, denseSource, denseText } from "../catalog/dense.ts";
import { loadEncoder, type SentenceEncoder } from "../catalog/encoder.ts";
import { DENSE_WEIGHT, fusedRetriever } from "../catalog/fuse.ts";
import { memoryCatalog } from "../catalog/memory.ts";
import { defaultCatalogPath, type StoredCatalog } from "../catalog/store.ts";
import type { Retriever, Tool } from "../catalog/types.ts";
import { ConfigError } from "../config/load.ts";
import type { Experiment } from "../config/schema.ts";
import type { Progress } from "./types.ts";

/** The retriever that an experiment names, over the catalogue. Dense vectors are made once per catalogue and kept beside it. */
export async function retrieverOf(
  catalog: StoredCatalog,
  name: Experiment["agent"]["retriever"],
  progress: Progress,
): Promise<Retriever> {
  switch (name) {
    case "bm25":
      return catalog.bm25();
    case "fts5":
      return catalog.fts();
    case "dense":
    case "fused": {
      const source: DenseSource = {
        hash: catalog.hash,
        size: catalog.size,
        byId: (id) => catalog.byId(id),
        *texts() {
          for (const text of catalog.searchTexts()) yield denseText(text);
        },
      };
      return withDense(catalog.bm25(), source, name, `${catalog.path}.dense`, progress, await loadEncoder());
    }
  }
}

/** The same over tools in memory (ToolBench's own catalogue). The full-text index of SQLite is the stored catalogue's alone. */
export async function toolsRetriever(
  name: Experiment["agent"]["retriever"],
  progress: Progress,
): Promise<(tools: readonly Tool[]) => Retriever> {
  switch (name) {
    case "bm25":
      return bm25;
    case "fts5":
      throw new ConfigError([
        "agent.retriever: fts5 searches the stored catalogue only. Use bm25, dense or fused for toolbench, or leave toolbench out.",
      ]);
    case "dense":
    case "fused": {
      const encoder = await loadEncoder();
      return (tools) => {
        const hash = memoryCatalog(tools).hash;
        const cache = join(dirname(defaultCatalogPath()), `toolbench-${hash.slice(0, 12)}.dense`);
        return withDense(bm25(tools), denseSource(tools, hash), name, cache, progress, encoder);
      };
    }
  }
}

/** Dense retrieval over a source, alone or fused with BM25. */
function withDense(
  sparse: Retriever,
  source: DenseSource,
  name: "dense" | "fused",
  cache: string,
  progress: Progress,
  encoder: SentenceEncoder,
): Retriever {
  const dense = denseRetriever(source, encoder, {
    cache,
    onProgress: (done, of) => progress.update(done, of, "tools embedded"),
  });
  return name === "dense" ? dense : fusedRetriever([sparse, dense], [1, DENSE_WEIGHT]);
}
