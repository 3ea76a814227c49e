import { type DenseSource, denseRetriever, denseText } from "../catalog/dense.ts";
import { loadEncoder } from "../catalog/encoder.ts";
import { DENSE_WEIGHT, fusedRetriever } from "../catalog/fuse.ts";
import type { StoredCatalog } from "../catalog/store.ts";
import type { Retriever } from "../catalog/types.ts";
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
      return withDense(catalog.bm25(), source, name, `${catalog.path}.dense`, progress);
    }
  }
}

/** Dense retrieval over a source, alone or fused with BM25. */
async function withDense(
  sparse: Retriever,
  source: DenseSource,
  name: "dense" | "fused",
  cache: string,
  progress: Progress,
): Promise<Retriever> {
  const dense = denseRetriever(source, await loadEncoder(), {
    cache,
    onProgress: (done, of) => progress.update(done, of, "tools embedded"),
  });
  return name === "dense" ? dense : fusedRetriever([sparse, dense], [1, DENSE_WEIGHT]);
}
