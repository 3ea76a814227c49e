/** What an episode acts on: a catalogue, a search over it, and something that answers calls. ToolEnv, ToolBench and API-Bank are all this. */
import type { Catalog, JsonObject, Retriever, Tool } from "../catalog/types.ts";
import type { CallResult, Session } from "../toolenv/types.ts";

export interface SearchResult {
  /** Best first. */
  tools: Tool[];
  failed: "transient" | "final" | null;
  latencyMs: number;
}

export interface Environment {
  /** A tool of the catalogue by its (normalised) name, or null. */
  tool(name: string): Tool | null;
  search(query: string, k: number): SearchResult | Promise<SearchResult>;
  /** Answers a call. A bad call is a result; throwing means that the environment itself is broken and ends the episode. */
  call(tool: Tool, args: JsonObject): CallResult | Promise<CallResult>;
}

/** Virtual time of a search where nothing better is known. */
export const SEARCH_LATENCY_MS = 100;

/** The usual environment: a retriever over a catalogue, and one session of a backend. Close the session yourself. */
export function environment(parts: {
  catalog: Pick<Catalog, "get">;
  retriever: Pick<Retriever, "search">;
  session: Pick<Session, "call">;
  searchLatencyMs?: number;
}): Environment {
  const latencyMs = parts.searchLatencyMs ?? SEARCH_LATENCY_MS;
  return {
    tool: (name) => parts.catalog.get(name),
    search: (query, k) => ({ tools: parts.retriever.search(query, k).map((hit) => hit.tool), failed: null, latencyMs }),
    call: (tool, args) => parts.session.call(tool, args),
  };
}

/** What goes to the retriever: "slot: what the tool must do" without the slot's name. A query without a slot goes whole. */
export function searchText(query: string): string {
  const colon = query.indexOf(":");
  const rest = query.slice(colon + 1).trim();
  return colon < 0 || rest === "" ? query.trim() : rest;
}
