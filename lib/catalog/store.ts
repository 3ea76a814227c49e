/** The catalogue as one SQLite file: written once, then only read. */
import { Database } from "bun:sqlite";
import { closeSync, existsSync, fsyncSync, mkdirSync, openSync, renameSync, rmSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { Bm25Builder, Bm25Index, bm25Retriever, type SearchText, searchFields } from "./bm25.ts";
import { CatalogFormatError, CatalogMissingError } from "./errors.ts";
import { FTS_TABLE, ftsColumns, ftsRetriever } from "./fts.ts";
import { catalogHash, toolDigest, toolJson } from "./hash.ts";
import { assignNames } from "./naming.ts";
import type { Draft } from "./openapi.ts";
import type { Catalog, Json, JsonSchema, ObjectSchema, ParameterPlace, Retriever, Tool } from "./types.ts";

/** Raised whenever the tables or the recipe change: an older file is then rebuilt. */
export const FORMAT = 1;

const TABLES = `
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE tool (id INTEGER PRIMARY KEY, name TEXT NOT NULL, provider TEXT NOT NULL, api TEXT NOT NULL, operation TEXT NOT NULL, method TEXT NOT NULL,
  path TEXT NOT NULL, description TEXT NOT NULL, category TEXT, source TEXT NOT NULL, licence TEXT, parameter_names TEXT NOT NULL, digest TEXT NOT NULL);
CREATE TABLE detail (id INTEGER PRIMARY KEY, parameters TEXT NOT NULL, places TEXT NOT NULL, response TEXT, example TEXT);
${FTS_TABLE}`;

/** data/catalog.sqlite under the repository's root; PARAAGENT_CATALOG overrides it. */
export function defaultCatalogPath(): string {
  const set = process.env.PARAAGENT_CATALOG;
  return set ? resolve(set) : join(import.meta.dir, "..", "..", "data", "catalog.sqlite");
}

type Narrow = Omit<Draft, "parameters" | "places" | "response" | "example"> & {
  parameterNames: string;
  digest: string;
  name: string | null;
};

/**
 * Writes a new catalogue file. Tools stream in; names are given at the end; the file appears at its path in one step, complete, so that
 * readers and other writers never meet half a catalogue.
 */
export class CatalogWriter {
  #db: Database;
  #temporary: string;
  #rows: Narrow[] = [];
  #detail;

  constructor(readonly path: string) {
    mkdirSync(dirname(path), { recursive: true });
    this.#temporary = `${path}.${process.pid}.${crypto.randomUUID().slice(0, 8)}.tmp`;
    this.#db = new Database(this.#temporary, { create: true });
    this.#db.exec(
      "PRAGMA page_size = 8192; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -65536",
    );
    this.#db.exec(TABLES);
    this.#detail = this.#db.prepare("INSERT INTO detail VALUES (?, ?, ?, ?, ?)");
    this.#db.exec("BEGIN");
  }

  get size(): number {
    return this.#rows.length;
  }

  /** Adds a tool. `name` keeps the name that it had in another catalogue; null has one given at the end. */
  add(tool: Draft, name: string | null = null): void {
    const id = this.#rows.length;
    const json = toolJson(tool);
    this.#detail.run(id, json.parameters, json.places, json.response, json.example);
    const { parameters, places: _p, response: _r, example: _e, ...narrow } = tool;
    this.#rows.push({
      ...narrow,
      parameterNames: Object.keys(parameters.properties).join("\n"),
      digest: toolDigest(tool, json),
      name,
    });
  }

  /** Names the tools, indexes them, writes `meta` and puts the file in place. Returns the content hash. */
  finish(meta: Record<string, Json>): string {
    const open = this.#rows.filter((r) => r.name === null);
    const taken = new Set(this.#rows.map((r) => r.name).filter((n) => n !== null));
    const given = assignNames(
      open.map((r) => ({ api: r.api, operation: r.operation, key: `${r.method} ${r.path} ${r.digest}` })),
      taken,
    );
    open.forEach((row, i) => {
      row.name = given[i]!;
    });
    const builder = new Bm25Builder();
    const insert = this.#db.prepare("INSERT INTO tool VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
    const index = this.#db.prepare("INSERT INTO fts (rowid, name, description, rest) VALUES (?, ?, ?, ?)");
    this.#rows.forEach((r, id) => {
      insert.run(
        id,
        r.name,
        r.provider,
        r.api,
        r.operation,
        r.method,
        r.path,
        r.description,
        r.category,
        r.source,
        r.licence,
        r.parameterNames,
        r.digest,
      );
      const fields = searchFields(searchTextOf(r));
      builder.add(fields);
      index.run(id, ...ftsColumns(fields));
    });
    const hash = catalogHash(
      this.#rows.map((r) => r.name!),
      this.#rows.map((r) => r.digest),
    );
    const providers = new Set(this.#rows.map((r) => r.provider)).size;
    const apis = new Set(this.#rows.map((r) => r.api)).size;
    const all: Record<string, Json> = { ...meta, format: FORMAT, hash, tools: this.#rows.length, providers, apis };
    const put = this.#db.prepare("INSERT INTO meta VALUES (?, ?)");
    for (const [key, value] of Object.entries(all)) put.run(key, JSON.stringify(value));
    this.#db.exec("INSERT INTO fts (fts) VALUES ('optimize')");
    this.#db.exec(
      "CREATE UNIQUE INDEX tool_name ON tool (name); CREATE INDEX tool_provider ON tool (provider); CREATE INDEX tool_api ON tool (api)",
    );
    this.#db.exec("COMMIT; PRAGMA optimize");
    this.#close();
    const file = openSync(this.#temporary, "r+");
    fsyncSync(file);
    closeSync(file);
    builder.finish(hash).save(indexPath(this.path));
    renameSync(this.#temporary, this.path);
    syncFolder(dirname(this.path));
    return hash;
  }

  /** Throws away what was written. */
  abandon(): void {
    try {
      this.#close();
    } finally {
      for (const suffix of ["", "-journal"]) rmSync(`${this.#temporary}${suffix}`, { force: true });
    }
  }

  #close(): void {
    this.#detail.finalize();
    this.#db.close();
  }
}

/** Makes a rename last through a power cut, where the file system can be asked to. */
function syncFolder(folder: string): void {
  const handle = openSync(folder, "r");
  try {
    fsyncSync(handle);
  } catch (e) {
    // Some file systems refuse to sync a folder (EINVAL): the rename is still atomic.
    if ((e as NodeJS.ErrnoException).code !== "EINVAL") throw e;
  } finally {
    closeSync(handle);
  }
}

function searchTextOf(
  row: Pick<Narrow, "description" | "api" | "category" | "parameterNames"> & { name: string | null },
): SearchText {
  return {
    name: row.name ?? "",
    description: row.description,
    api: row.api,
    category: row.category,
    parameters: row.parameterNames.split("\n"),
  };
}

/** Where a catalogue's search index is kept. */
export function indexPath(path: string): string {
  return `${path}.bm25`;
}

export interface StoredCatalog extends Catalog {
  readonly path: string;
  /** What the build counted: providers, APIs, files, drops by filter, problems. */
  readonly meta: Record<string, Json>;
  /** The in-memory index, loaded on first use: median under 2 ms. For rollouts. */
  bm25(): Retriever;
  /** SQLite's own index: nothing to load, slower. For one-off searches. */
  fts(): Retriever;
  /** Every tool in id order, read as it goes. */
  all(): Generator<Tool>;
  /** What is indexed of every tool, in id order, without parsing schemas. */
  searchTexts(): Generator<SearchText>;
}

interface Row {
  id: number;
  name: string;
  provider: string;
  api: string;
  operation: string;
  method: string;
  path: string;
  description: string;
  category: string | null;
  source: string;
  licence: string | null;
  parameters: string;
  places: string;
  response: string | null;
  example: string | null;
}

function toTool(r: Row): Tool {
  return {
    id: r.id,
    name: r.name,
    provider: r.provider,
    api: r.api,
    operation: r.operation,
    method: r.method,
    path: r.path,
    description: r.description,
    category: r.category,
    parameters: JSON.parse(r.parameters) as ObjectSchema,
    places: JSON.parse(r.places) as Record<string, ParameterPlace>,
    response: r.response === null ? null : (JSON.parse(r.response) as JsonSchema),
    example: r.example === null ? null : (JSON.parse(r.example) as Json),
    source: r.source,
    licence: r.licence,
  };
}

const SELECT =
  "SELECT t.id, t.name, t.provider, t.api, t.operation, t.method, t.path, t.description, t.category, t.source, t.licence, d.parameters, d.places, d.response, d.example FROM tool t JOIN detail d ON d.id = t.id";

/**
 * Opens a catalogue for reading, in milliseconds; tools are parsed when they are first asked for and `cache` of them are kept.
 * Throws CatalogMissingError or CatalogFormatError.
 */
export function openCatalog(path: string = defaultCatalogPath(), cache = 20_000): StoredCatalog {
  if (!existsSync(path)) throw new CatalogMissingError(path);
  const db = new Database(path, { readonly: true });
  const meta: Record<string, Json> = {};
  try {
    for (const row of db.query<{ key: string; value: string }, []>("SELECT key, value FROM meta").all())
      meta[row.key] = JSON.parse(row.value) as Json;
  } catch (e) {
    db.close();
    throw new CatalogFormatError(path, (e as Error).message);
  }
  const { format, hash, tools: size } = meta;
  if (format !== FORMAT || typeof hash !== "string" || typeof size !== "number") {
    db.close();
    throw new CatalogFormatError(path, `format ${JSON.stringify(format ?? null)}, this version reads ${FORMAT}`);
  }
  const one = db.query<Row, [number]>(`${SELECT} WHERE t.id = ?`);
  const idOf = db.query<{ id: number }, [string]>("SELECT id FROM tool WHERE name = ?");
  const ids = (where: string) =>
    db.query<{ id: number }, [string]>(`SELECT id FROM tool WHERE ${where} = ? ORDER BY id`);
  const providerIds = ids("provider");
  const apiIds = ids("api");
  const known = new Map<number, Tool>();
  const names = new Map<string, number>();
  let retriever: Retriever | null = null;
  let providers: string[] | null = null;
  let apis: { provider: string; api: string; tools: number }[] | null = null;

  const byId = (id: number): Tool => {
    const cached = known.get(id);
    if (cached) {
      // Last used goes last: the first in the map is the one to forget.
      if (known.size * 2 > cache) {
        known.delete(id);
        known.set(id, cached);
      }
      return cached;
    }
    const row = one.get(id);
    if (!row) throw new RangeError(`no tool ${id}: the catalogue has ${size}`);
    const tool = toTool(row);
    known.set(id, tool);
    if (known.size > cache) known.delete(known.keys().next().value!);
    return tool;
  };
  function* searchTexts(): Generator<SearchText> {
    type Narrower = { name: string; description: string; api: string; category: string | null; parameterNames: string };
    const rows = db.query<Narrower, []>(
      "SELECT name, description, api, category, parameter_names AS parameterNames FROM tool ORDER BY id",
    );
    for (const row of rows.iterate()) yield searchTextOf(row);
  }
  return {
    path,
    meta,
    hash,
    size,
    byId,
    get(name) {
      let id = names.get(name);
      if (id === undefined) {
        id = idOf.get(name)?.id;
        if (id === undefined) return null;
        names.set(name, id);
      }
      return byId(id);
    },
    providers: () =>
      (providers ??= db
        .query<{ provider: string }, []>("SELECT DISTINCT provider FROM tool")
        .all()
        .map((r) => r.provider)
        .sort()),
    apis: () =>
      (apis ??= db
        .query<{ provider: string; api: string; tools: number }, []>(
          "SELECT provider, api, COUNT(*) AS tools FROM tool GROUP BY provider, api ORDER BY provider, api",
        )
        .all()),
    byProvider: (provider) => providerIds.all(provider).map((r) => byId(r.id)),
    byApi: (api) => apiIds.all(api).map((r) => byId(r.id)),
    bm25: () => (retriever ??= bm25Retriever(Bm25Index.load(indexPath(path), hash, size, searchTexts), byId)),
    fts: () => ftsRetriever(db, byId),
    *all() {
      for (const row of db.query<Row, []>(`${SELECT} ORDER BY t.id`).iterate()) yield toTool(row);
    },
    searchTexts,
    close: () => db.close(),
  };
}
