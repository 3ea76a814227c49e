/** The catalogue for the browser: search with facets over all tools, scores explained, a tool's place in its API's data flow, calls in a world. */
import { Database } from "bun:sqlite";
import { Bm25Index } from "../catalog/bm25.ts";
import { indexPath, openCatalog, type StoredCatalog } from "../catalog/store.ts";
import type { Json, JsonObject, JsonSchema, Tool } from "../catalog/types.ts";
import type { KeyRef, Op, ResourceType } from "../toolenv/resources.ts";
import type { CallResult, Write } from "../toolenv/types.ts";
import { apiModel, World } from "../toolenv/world.ts";

export interface CatalogQuery {
  text: string;
  provider: string;
  category: string;
  offset: number;
}
export interface Found {
  tool: Tool;
  score: number | null;
  terms: { word: string; adds: number; tools: number }[];
}
export type Facet = { value: string; count: number }[];
export interface CatalogAnswer {
  found: Found[];
  total: number;
  providers: Facet;
  categories: Facet;
}
export const PAGE = 20;
const FACETS_SHOWN = 30;

/** A resource in the data flow: which parameter needs it, and which tools give it. */
export interface Need {
  ref: KeyRef;
  role: "names it" | "lies in" | "refers to";
  givers: Tool[];
}
export interface Flow {
  op: Op;
  resource: ResourceType | null;
  needs: Need[];
  /** Tools that take what this one gives. */
  takers: { tool: Tool; param: string }[];
}

export class CatalogView {
  readonly catalog: StoredCatalog;
  #loaded: Bm25Index | null = null;
  /** Providers and categories by tool id, as numbers of the lists. */
  readonly #provider: Uint32Array;
  readonly #category: Uint32Array;
  readonly #providers: string[] = [];
  readonly #categories: string[] = [];
  readonly #worlds = new Map<number, World>();

  /** Throws CatalogMissingError or CatalogFormatError. */
  constructor(path?: string) {
    this.catalog = openCatalog(path);
    const { size } = this.catalog;
    this.#provider = new Uint32Array(size);
    this.#category = new Uint32Array(size);
    const db = new Database(this.catalog.path, { readonly: true });
    const numbers = [new Map<string, number>(), new Map<string, number>()] as const;
    const number = (map: Map<string, number>, list: string[], value: string) => {
      let n = map.get(value);
      if (n === undefined) {
        n = list.push(value) - 1;
        map.set(value, n);
      }
      return n;
    };
    for (const [id, provider, category] of db
      .query<never, []>("SELECT id, provider, coalesce(category, '') FROM tool")
      .values() as [number, string, string][]) {
      this.#provider[id] = number(numbers[0], this.#providers, provider);
      this.#category[id] = number(numbers[1], this.#categories, category);
    }
    db.close();
  }

  /** The search index, loaded when it is first needed. */
  get #index(): Bm25Index {
    const { hash, size, path } = this.catalog;
    this.#loaded ??= Bm25Index.load(indexPath(path), hash, size, () => this.catalog.searchTexts());
    return this.#loaded;
  }

  search(q: CatalogQuery): CatalogAnswer {
    const asked = q.text.trim() !== "";
    const scores = asked ? this.#index.scores(q.text) : null;
    const provider = q.provider === "" ? -1 : this.#providers.indexOf(q.provider);
    const category = q.category === "" ? -1 : this.#categories.indexOf(q.category);
    const byProvider = new Uint32Array(this.#providers.length);
    const byCategory = new Uint32Array(this.#categories.length);
    const ids: number[] = [];
    for (let id = 0; id < this.catalog.size; id++) {
      if (scores && scores[id] === 0) continue;
      const inProvider = q.provider === "" || this.#provider[id] === provider;
      const inCategory = q.category === "" || this.#category[id] === category;
      // A facet counts what its own choice would give.
      if (inCategory) byProvider[this.#provider[id]!]!++;
      if (inProvider) byCategory[this.#category[id]!]!++;
      if (inProvider && inCategory) ids.push(id);
    }
    if (scores) ids.sort((a, b) => scores[b]! - scores[a]! || a - b);
    const found = ids.slice(q.offset, q.offset + PAGE).map((id) => ({
      tool: this.catalog.byId(id),
      score: scores ? scores[id]! : null,
      terms: scores ? this.#index.explain(q.text, id) : [],
    }));
    return {
      found,
      total: ids.length,
      providers: facet(this.#providers, byProvider),
      categories: facet(this.#categories, byCategory),
    };
  }

  /** Rank and terms of one tool for a query; null where it holds none of its words. */
  explain(text: string, id: number): { rank: number; score: number; terms: Found["terms"] } | null {
    const scores = this.#index.scores(text);
    const score = scores[id] ?? 0;
    if (score === 0) return null;
    let rank = 1;
    for (let other = 0; other < scores.length; other++)
      if (scores[other]! > score || (scores[other] === score && other < id)) rank++;
    return { rank, score, terms: this.#index.explain(text, id) };
  }

  flow(tool: Tool): Flow | null {
    const model = apiModel(this.catalog, tool.api);
    const op = model.ops.get(tool.name);
    if (!op) return null;
    const others = [...model.ops].filter(([name]) => name !== tool.name);
    const toolOf = (name: string): Tool[] => {
      const found = this.catalog.get(name);
      return found ? [found] : [];
    };
    const need =
      (role: Need["role"]) =>
      (ref: KeyRef): Need => ({
        ref,
        role,
        givers: others
          .filter(([, o]) => o.type === ref.type && o.at !== null && /^(list|get|create)$/.test(o.kind))
          .sort(([, a], [, b]) => GIVES.indexOf(a.kind) - GIVES.indexOf(b.kind))
          .flatMap(([name]) => toolOf(name)),
      });
    const gives = op.type !== null && op.at !== null && op.kind !== "compute";
    return {
      op,
      resource: op.type === null ? null : (model.types.get(op.type) ?? null),
      needs: [
        ...(op.target ? [need("names it")(op.target)] : []),
        ...op.scope.map(need("lies in")),
        ...op.refs.map(need("refers to")),
      ],
      takers: gives
        ? others.flatMap(([name, o]) => {
            const ref = [...(o.target ? [o.target] : []), ...o.scope, ...o.refs].find((r) => r.type === op.type);
            return ref ? toolOf(name).map((t) => ({ tool: t, param: ref.param })) : [];
          })
        : [],
    };
  }

  #world(seed: number): World {
    let world = this.#worlds.get(seed);
    if (!world) {
      if (this.#worlds.size >= 8) this.#worlds.clear();
      world = new World(this.catalog, seed);
      this.#worlds.set(seed, world);
    }
    return world;
  }

  /** Values to begin with: identifiers of entities that exist in the world, else examples of the schema; required parameters only. */
  sample(tool: Tool, seed: number): Record<string, string> {
    const out: Record<string, string> = {};
    for (const name of tool.parameters.required) {
      const s = tool.parameters.properties[name];
      const value = s?.example ?? s?.default ?? s?.enum?.[0];
      if (value !== undefined) out[name] = written(value);
    }
    const flow = this.flow(tool);
    if (!flow) return out;
    const people = this.#world(seed).population(tool.api);
    const { op } = flow;
    const inner = op.target ?? op.scope.at(-1);
    const first = inner && people.model.types.has(inner.type) ? people.members(inner.type)[0] : undefined;
    for (const ref of [...op.scope, ...(op.target ? [op.target] : []), ...op.refs]) {
      if (!people.model.types.has(ref.type) || !tool.parameters.required.includes(ref.param)) continue;
      const above = inner && first !== undefined ? people.ancestor(inner.type, first, ref.type) : null;
      const index = above ?? people.members(ref.type)[0];
      if (index !== undefined) out[ref.param] = String(people.keyOf(ref.type, index, ref.key));
    }
    return out;
  }

  /** One call in a fresh session of the world with that seed. */
  call(tool: Tool, args: JsonObject, seed: number): { result: CallResult; writes: Write[] } {
    const session = this.#world(seed).open(seed);
    try {
      const result = session.call(tool, args);
      return { result, writes: session.writes() };
    } finally {
      session.close();
    }
  }

  close(): void {
    this.catalog.close();
  }
}

const GIVES = ["list", "get", "create"];

function facet(names: string[], counts: Uint32Array): Facet {
  return names
    .map((value, i) => ({ value, count: counts[i]! }))
    .filter((f) => f.count > 0)
    .sort((a, b) => b.count - a.count || (a.value < b.value ? -1 : 1))
    .slice(0, FACETS_SHOWN);
}

/** A value as a form field shows it. */
export const written = (value: Json): string => (typeof value === "string" ? value : JSON.stringify(value));

/** A field's text as the schema's type; text that is not of the type stays text, so that the world says what is wrong with it. */
export function readField(text: string, schema: JsonSchema): Json {
  if (schema.type === "string") return text;
  try {
    return JSON.parse(text) as Json;
  } catch {
    return text;
  }
}
