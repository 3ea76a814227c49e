import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { cpSync, existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type BuildReport, buildCatalog } from "./build.ts";
import { CatalogFormatError, CatalogMissingError, SourceError } from "./errors.ts";
import { memoryCatalog } from "./memory.ts";
import { indexPath, openCatalog, type StoredCatalog } from "./store.ts";

let folder = "";
let SOURCE = "";
let report: BuildReport;
let catalog: StoredCatalog;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "catalog-build-"));
  SOURCE = join(folder, "api");
  cpSync(join(import.meta.dir, "testdata", "api"), SOURCE, { recursive: true });
  writeFileSync(join(SOURCE, "broken.example.json"), '{"openapi": "3.0.0", "info": {"title": "cut');
  report = await buildCatalog({ source: SOURCE, path: join(folder, "c.sqlite") });
  catalog = openCatalog(report.path);
});
afterAll(() => {
  catalog.close();
  rmSync(folder, { recursive: true, force: true });
});

describe("the recipe on documents full of traps", () => {
  test("broken files are named and counted, the rest is built", () => {
    expect(report.files).toEqual({ read: 2, copies: 1, broken: 2 });
    expect(report.broken.map((b) => b.file)).toEqual(["broken.example.json", "old.example.json"]);
    expect(report.broken[1]!.reason).toContain("Swagger 2.0");
  });

  test("every operation is a tool or is counted under one reason", () => {
    expect(report.dropped).toEqual({
      deprecated: 1,
      generated_navigation: 0,
      aws_twin: 0,
      no_description: 0,
      too_short: 1,
      only_the_id: 1,
      not_english: 1,
      no_parameters: 1,
      duplicate_path: 1,
      duplicate_interface: 0,
      duplicate_words: 1,
    });
    expect(report.tools).toBe(6);
    expect(report.operations).toBe(report.tools + Object.values(report.dropped).reduce((a, b) => a + b, 0));
  });

  test("names: the operation's own where only one has it, else with the API", () => {
    const names = [...catalog.all()].map((t) => t.name);
    expect(new Set(names).size).toBe(names.length);
    expect(names).toContain("add_book");
    expect(names).toContain("post_people");
    expect(names).toContain("get_book_for_people");
    // Two operations of one API are both "get_book": neither may take the plain name or the API's, and both keep a stable one.
    const ofLibrary = catalog.byApi("traps.example/library").filter((t) => t.operation === "get_book");
    expect(ofLibrary.map((t) => t.method)).toEqual(["GET", "DELETE"]);
    for (const t of ofLibrary) expect(t.name).toMatch(/^get_book_for_library_[0-9a-f]{4}$/);
  });

  test("text, provenance and credentials", () => {
    const tool = catalog
      .byApi("traps.example/library")
      .find((t) => t.method === "GET" && t.path === "/v1/books/{bookId}")!;
    expect(tool.description).toBe("Get a book. Returns one book of the library, with its author & shelf.");
    expect(tool.category).toBe("education");
    expect(tool.licence).toBe("Example Licence 1.0");
    expect(tool.source).toBe("api/traps.example/library.json");
    expect(Object.keys(tool.parameters.properties)).toEqual(["bookId", "fields"]);
    expect(tool.parameters.required).toEqual(["bookId"]);
    expect(tool.places).toEqual({ bookId: "path", fields: "query" });
    expect(tool.example).toEqual({ id: "b1", token: "[removed]", note: "fine" });
  });

  test("circular references are cut, read-only and write-only properties stay on their side", () => {
    const get = catalog
      .byApi("traps.example/library")
      .find((t) => t.method === "GET" && t.path === "/v1/books/{bookId}")!;
    expect(get.response?.properties?.secret).toBeUndefined();
    expect(get.response?.properties?.author?.properties?.name).toEqual({ type: "string" });
    expect(get.response?.properties?.author?.properties?.books).toEqual({ type: "array", items: { type: "object" } });
    expect(get.response?.properties?.rating).toEqual({ type: "number", nullable: true });
    const add = catalog.get("add_book")!;
    // The read-only id is required of responses only.
    expect(Object.keys(add.parameters.properties)).toEqual(["title", "secret", "author", "rating"]);
    expect(add.parameters.required).toEqual(["title"]);
    expect(add.places.title).toBe("body");
  });

  test("list types, contradictory bounds, unusable patterns, examples that do not fit, references to nowhere", () => {
    const p = catalog.get("list_loans")!.parameters.properties;
    expect(p.state).toEqual({ type: "string", nullable: true, enum: ["open", "closed"] });
    expect(p.limit).toEqual({ type: "integer" });
    expect(p.since?.format).toBe("date");
    expect(p.pattern).toEqual({ type: "string" });
    expect(p.lost).toEqual({ type: "string" });
    expect(report.problems.first.some((x) => x.tool === "list_loans" && x.reason.includes("Nowhere"))).toBe(true);
    expect(catalog.get("list_loans")!.response?.items?.type).toBe("object");
  });

  test("a body that is no object is one parameter", () => {
    const tool = catalog.get("post_people")!;
    expect(tool.parameters.properties.body).toEqual({ type: "array", items: { type: "string" } });
    expect(tool.parameters.required).toEqual(["body"]);
  });
});

describe("the store", () => {
  test("the same content gives the same hash, in the store, in memory, and again", async () => {
    const again = await buildCatalog({ source: SOURCE, path: join(folder, "again.sqlite") });
    expect(again.hash).toBe(report.hash);
    expect(catalog.hash).toBe(report.hash);
    expect(memoryCatalog([...catalog.all()]).hash).toBe(report.hash);
    const fewer = await buildCatalog({
      source: SOURCE,
      path: join(folder, "fewer.sqlite"),
      only: (f) => !f.includes("people"),
    });
    expect(fewer.hash).not.toBe(report.hash);
  });

  test("look-ups by name, id, provider and API", () => {
    const tool = catalog.get("add_book")!;
    expect(catalog.byId(tool.id)).toBe(tool);
    expect(catalog.providers()).toEqual(["traps.example"]);
    expect(catalog.byProvider("traps.example").length).toBe(catalog.size);
    expect(catalog.byApi("traps.example/people").every((t) => t.api === "traps.example/people")).toBe(true);
    expect(catalog.get("nothing")).toBeNull();
    expect(catalog.get("__proto__")).toBeNull();
    expect(() => catalog.byId(999)).toThrow(RangeError);
  });

  test("a small cache gives the same tools", () => {
    const small = openCatalog(report.path, 2);
    for (let round = 0; round < 2; round++) {
      for (let id = 0; id < small.size; id++) expect(small.byId(id)).toEqual(catalog.byId(id));
    }
    small.close();
  });

  test("a missing catalogue says what to type; a foreign file is not read", () => {
    expect(() => openCatalog(join(folder, "none.sqlite"))).toThrow(CatalogMissingError);
    expect(() => openCatalog(join(folder, "none.sqlite"))).toThrow("bun run catalog build");
    const foreign = join(folder, "foreign.sqlite");
    writeFileSync(foreign, "not a database, but long enough to look like a file of some kind");
    expect(() => openCatalog(foreign)).toThrow(CatalogFormatError);
  });

  test("builds at the same time leave one whole catalogue and no temporary files", async () => {
    const path = join(folder, "race", "c.sqlite");
    await Promise.all([1, 2, 3].map(() => buildCatalog({ source: SOURCE, path })));
    const c = openCatalog(path);
    expect(c.hash).toBe(report.hash);
    expect(c.bm25().search("add a book", 1)[0]!.tool.name).toBe("add_book");
    c.close();
    expect(readdirSync(join(folder, "race")).sort()).toEqual(["c.sqlite", "c.sqlite.bm25"]);
  });

  test("a stopped build leaves the old catalogue", async () => {
    const path = join(folder, "race", "c.sqlite");
    const stop = new AbortController();
    const building = buildCatalog({ source: SOURCE, path, signal: stop.signal, onProgress: () => stop.abort() });
    await expect(building).rejects.toThrow();
    await building.catch(() => null);
    expect(readdirSync(join(folder, "race")).sort()).toEqual(["c.sqlite", "c.sqlite.bm25"]);
    const c = openCatalog(path);
    expect(c.size).toBe(report.tools);
    c.close();
  });

  test("a missing source is an error of its own", async () => {
    await expect(buildCatalog({ source: join(folder, "nowhere"), path: join(folder, "x.sqlite") })).rejects.toThrow(
      SourceError,
    );
  });

  test("a lost or damaged search index is rebuilt", () => {
    const reference = catalog.bm25().search("lists the loans", 3);
    for (const bytes of [null, "", "x".repeat(500)]) {
      const index = indexPath(report.path);
      if (bytes === null) rmSync(index);
      else writeFileSync(index, bytes);
      const c = openCatalog(report.path);
      expect(c.bm25().search("lists the loans", 3)).toEqual(reference);
      expect(existsSync(index)).toBe(true);
      c.close();
    }
  });

  test("FTS5 takes any text as a query", () => {
    const fts = catalog.fts();
    expect(fts.search("add a book to the library", 1)[0]!.tool.name).toBe("add_book");
    for (const q of ["the of and", "", '"', "a AND (b", "NEAR/2 (x* -y", "col:x ^", "天气", "'; DROP TABLE tool; --"]) {
      expect(Array.isArray(fts.search(q, 3))).toBe(true);
    }
    expect(fts.search("the of and", 3)).toEqual([]);
  });
});
