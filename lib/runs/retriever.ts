import { dirname } from "node:path";
import { bm25 } from "../catalog/bm25.ts";
import { loadEncoder } from "../catalog/encoder.ts";
import { embedded, retrieverOf as named, storedTools, toolList } from "../catalog/retrievers.ts";
import { defaultCatalogPath, type StoredCatalog } from "../catalog/store.ts";
import type { Retriever, Tool } from "../catalog/types.ts";
import { ConfigError } from "../config/load.ts";
import type { Experiment } from "../config/schema.ts";
import type { Progress } from "./types.ts";

const embedding = (progress: Progress) => (done: number, of: number) => progress.update(done, of, "tools embedded");

/** The retriever that an experiment names, over the catalogue. Dense vectors are made once per catalogue and kept beside it. */
export function retrieverOf(
  catalog: StoredCatalog,
  name: Experiment["agent"]["retriever"],
  progress: Progress,
): Promise<Retriever> {
  return named(name, storedTools(catalog), embedding(progress));
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
      return (tools) => embedded(name, toolList(tools, dirname(defaultCatalogPath())), encoder, embedding(progress));
    }
  }
}
