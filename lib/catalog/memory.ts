/** A catalogue held in memory: for benchmarks, imports and tests. */
import { catalogHash, toolDigest } from "./hash.ts";
import type { Catalog, Tool } from "./types.ts";

/** Groups of tools by a key, in id order, made on first use. */
function grouped(tools: readonly Tool[], key: (tool: Tool) => string): () => Map<string, Tool[]> {
  let groups: Map<string, Tool[]> | null = null;
  return () => (groups ??= Map.groupBy(tools, key));
}

const compare = (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0);

/**
 * A catalogue of these tools, in this order; each gets its place as its id (the tools are copied shallowly).
 * Throws where a name is not unique or not [a-z0-9_]{1,64}.
 */
export function memoryCatalog(list: readonly Tool[]): Catalog & { readonly tools: readonly Tool[] } {
  const tools = list.map((tool, id) => (tool.id === id ? tool : { ...tool, id }));
  const byName = new Map<string, Tool>();
  for (const tool of tools) {
    if (!/^[a-z0-9_]{1,64}$/.test(tool.name))
      throw new Error(`tool name ${JSON.stringify(tool.name)} is not 1–64 characters of [a-z0-9_]`);
    if (byName.has(tool.name)) throw new Error(`two tools are named ${tool.name}: names must be unique in a catalogue`);
    byName.set(tool.name, tool);
  }
  const byProvider = grouped(tools, (t) => t.provider);
  const byApi = grouped(tools, (t) => t.api);
  let hash: string | null = null;
  return {
    tools,
    get hash() {
      return (hash ??= catalogHash(
        byName.keys(),
        tools.map((t) => toolDigest(t)),
      ));
    },
    size: tools.length,
    get: (name) => byName.get(name) ?? null,
    byId(id) {
      const tool = tools[id];
      if (!tool) throw new RangeError(`no tool ${id}: the catalogue has ${tools.length}`);
      return tool;
    },
    providers: () => [...byProvider().keys()].sort(),
    apis: () =>
      [...byApi()]
        .map(([api, own]) => ({ provider: own[0]?.provider ?? api, api, tools: own.length }))
        .sort((a, b) => compare(a.provider, b.provider) || compare(a.api, b.api)),
    byProvider: (provider) => byProvider().get(provider) ?? [],
    byApi: (api) => byApi().get(api) ?? [],
    close() {},
  };
}
