import { afterAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import { WebStandardStreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/webStandardStreamableHttp.js";
import { ListToolsRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { SourceError } from "./errors.ts";
import { originalName } from "./formats.ts";
import { addToCatalog, importFile } from "./import.ts";
import { importMcp, splitCommand } from "./mcp.ts";
import { parseDocument, readDocumentFile } from "./read.ts";
import { openCatalog } from "./store.ts";

const folder = mkdtempSync(join(tmpdir(), "catalog-import-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const data = (name: string) => join(import.meta.dir, "testdata", "import", name);
const quick = { tries: 2, waitMs: 0 };

describe("formats are told by their shape, mapped, and what does not fit is reported", () => {
  test("OpenAPI in YAML", async () => {
    const { format, tools, problems } = await importFile(data("pets.yaml"));
    expect(format).toBe("openapi");
    const [list, status] = tools.map((t) => t.draft);
    expect(list).toMatchObject({
      provider: "pets.example",
      api: "pets.example/pet-shop",
      operation: "list_pets",
      method: "GET",
      path: "/pets",
      licence: "Example Licence 2.0",
    });
    expect(list!.parameters.properties.kind).toEqual({ type: "string", nullable: true, enum: ["cat", "dog"] });
    expect(list!.response?.items?.properties?.parent).toEqual({ type: "object" });
    expect(status!.description).toBe("GET /status");
    expect(problems.map((p) => [p.tool, p.field])).toEqual([
      ["list_pets", ""],
      ["get_status", "description"],
    ]);
  });

  test("an MCP tools/list answer", async () => {
    const { format, tools, problems } = await importFile(data("mcp.json"));
    expect(format).toBe("mcp");
    expect(tools.map((t) => t.draft.operation)).toEqual(["search_notes", "ping"]);
    expect(originalName(tools[0]!.draft.source)).toBe("Search-Notes");
    expect(tools[0]!.draft.parameters.required).toEqual(["query"]);
    expect(tools[0]!.draft.response?.properties?.hits).toEqual({ type: "array", items: { type: "string" } });
    expect(problems.map((p) => p.field)).toEqual(["description", "name"]);
  });

  test("OpenAI functions, nested and flat", async () => {
    const { format, tools, problems } = await importFile(data("functions.json"));
    expect(format).toBe("functions");
    expect(tools.map((t) => t.draft.operation)).toEqual(["get_weather", "set_alarm"]);
    expect(tools[1]!.draft.places).toEqual({ at: "argument" });
    expect(problems).toEqual([]);
  });

  test("BFCL's function documents with Python's types, one a line", async () => {
    const { format, tools, problems } = await importFile(data("bfcl.jsonl"));
    expect(format).toBe("bfcl");
    expect(tools.length).toBe(1);
    expect(tools[0]!.draft.operation).toBe("geometry_area");
    expect(tools[0]!.draft.parameters.properties).toEqual({
      sides: { type: "array", description: "Lengths.", items: { type: "number" } },
      point: { type: "array", items: { type: "integer" } },
      options: { type: "object", properties: { unit: { type: "string", enum: ["m", "ft"] } } },
      anything: {},
      odd: {},
    });
    expect(problems.map((p) => [p.tool, p.field])).toEqual([
      [null, "line 3"],
      ["geometry.area", "odd"],
    ]);
    expect(problems[1]!.reason).toContain("quaternion");
  });

  test("ToolBench's queries", async () => {
    const { format, tools } = await importFile(data("toolbench.json"));
    expect(format).toBe("toolbench");
    expect(tools[0]!.name).toBe("find_flights_for_fly_now");
  });
});

describe("adding to a catalogue", () => {
  test("imports join, keep to unique names, replace themselves, and are found", async () => {
    const path = join(folder, "own.sqlite");
    const first = addToCatalog(path, await importFile(data("pets.yaml")), "pets.yaml");
    expect(first).toMatchObject({ added: 2, replaced: 0, tools: 2 });
    addToCatalog(path, await importFile(data("mcp.json")), "mcp.json");
    const again = addToCatalog(path, await importFile(data("pets.yaml")), "pets.yaml");
    expect(again).toMatchObject({ added: 2, replaced: 2, tools: 4, names: ["list_pets", "get_status"] });
    const other = addToCatalog(path, await importFile(data("mcp.json"), "auto", "second-server"), "other");
    expect(other.names).toEqual(["search_notes_for_second_server", "ping_for_second_server"]);
    const c = openCatalog(path);
    expect(c.get("search_notes")!.provider).toBe("mcp");
    expect(c.bm25().search("pets in the shop", 1)[0]!.tool.name).toBe("list_pets");
    expect(
      c
        .fts()
        .search("search my notes", 2)
        .map((h) => h.tool.operation),
    ).toEqual(["search_notes", "search_notes"]);
    expect((c.meta.imports as unknown[]).length).toBe(4);
    c.close();
  });

  test("an import without tools changes nothing", () => {
    const path = join(folder, "never.sqlite");
    expect(() => addToCatalog(path, { format: "mcp", tools: [], problems: [] }, "x")).toThrow(SourceError);
    expect(() => openCatalog(path)).toThrow("no catalogue");
  });
});

describe("hostile documents are refused with the file's name", () => {
  const refused: [string, string, string][] = [
    ["cut.json", '{"openapi": "3.0.0", "paths": {"/a": {"get', "cut off or not JSON"],
    ["empty.json", "  \n", "empty"],
    ["words.yaml", "just some words", "neither JSON"],
    [
      "laughs.yaml",
      `a: &a [x,x,x,x,x,x,x,x,x,x]\n${"bcdefghi"
        .split("")
        .map((c, i) => `${c}: &${c} [${Array(10).fill(`*${"abcdefgh"[i]}`).join(",")}]`)
        .join("\n")}`,
      "neither JSON",
    ],
    ["swagger.json", '{"swagger": "2.0", "paths": {}}', "convert it to OpenAPI 3"],
    ["other.json", '{"hello": 1}', "say which with --format"],
  ];
  test.each(refused)("%s", async (name, text, reason) => {
    const path = join(folder, name);
    writeFileSync(path, text);
    const error = await importFile(path).then(
      () => null,
      (e: unknown) => e as Error,
    );
    expect(error).toBeInstanceOf(SourceError);
    expect(error!.message).toContain(name);
    expect(error!.message).toContain(reason);
  });

  test("files that are missing, too large, or nested without end", async () => {
    await expect(readDocumentFile(join(folder, "nowhere.json"))).rejects.toThrow("no such file");
    await expect(readDocumentFile(data("pets.yaml"), 100)).rejects.toThrow("more than");
    expect(() => parseDocument("[".repeat(2_000_000), "deep.json")).toThrow("nested more than 1000 deep");
  });

  test("keys that reach for the prototype set nothing", async () => {
    const path = join(folder, "proto.json");
    writeFileSync(
      path,
      '[{"name": "__proto__", "description": "Named like a prototype.", "parameters": {"type": "object", "properties": {"__proto__": {"type": "string"}, "a": {"type": "object", "properties": {"__proto__": {"polluted": true}}}}}}]',
    );
    const { tools, problems } = await importFile(path);
    expect(tools[0]!.draft.operation).toBe("proto");
    expect(Object.keys(tools[0]!.draft.parameters.properties)).toEqual(["a"]);
    expect(problems.some((p) => p.field === "__proto__")).toBe(true);
    expect(({} as Record<string, unknown>).polluted).toBeUndefined();
  });

  test("a function with a $ref bomb and one with 100 KB of parameters are cut to size", async () => {
    const path = join(folder, "bomb.json");
    const $defs = Object.fromEntries(
      Array.from({ length: 30 }, (_, i) => [
        `d${i}`,
        {
          type: "object",
          properties: Object.fromEntries(
            Array.from({ length: 30 }, (_, k) => [`p${k}`, { $ref: `#/$defs/d${i + 1}` }]),
          ),
        },
      ]),
    );
    const many = Object.fromEntries(
      Array.from({ length: 1500 }, (_, i) => [`p${i}`, { type: "string", description: "long ".repeat(20) }]),
    );
    const functions: object[] = [
      {
        name: "bomb",
        description: "A bomb of references.",
        parameters: { type: "object", properties: { root: { $ref: "#/$defs/d0" } }, $defs },
      },
      { name: "many", description: "Too many parameters.", parameters: { type: "object", properties: many } },
    ];
    writeFileSync(path, JSON.stringify(functions));
    const { tools, problems } = await importFile(path);
    for (const t of tools) expect(JSON.stringify(t.draft).length).toBeLessThan(20_000);
    expect(problems.some((p) => p.tool === "many" && p.reason.includes("1465 others"))).toBe(true);
  });
});

describe("live MCP servers", () => {
  const stdio = (mode: string) => ({
    kind: "stdio" as const,
    command: process.execPath,
    args: [data("server.ts"), mode],
  });

  test("over stdio, page by page", async () => {
    const { tools } = await importMcp(stdio("serve"), null, quick);
    expect(tools.map((t) => t.draft.operation)).toEqual(["first", "second"]);
    expect(tools[0]!.draft.provider).toBe("test-notes");
  });

  test("one that lists nothing, or dies, is an error and no catalogue", async () => {
    await expect(importMcp(stdio("empty"), null, quick)).rejects.toThrow("after 2 tries: lists no tools");
    await expect(importMcp(stdio("crash"), null, quick)).rejects.toThrow(SourceError);
    expect(
      importMcp({ kind: "stdio", command: join(folder, "no-such-program"), args: [] }, null, quick),
    ).rejects.toThrow(SourceError);
  });

  test("over HTTP, after a first empty answer", async () => {
    let asked = 0;
    const http = Bun.serve({
      port: 0,
      hostname: "127.0.0.1",
      async fetch(request) {
        const server = new Server({ name: "late", version: "1" }, { capabilities: { tools: {} } });
        server.setRequestHandler(ListToolsRequestSchema, () => {
          asked++;
          return {
            tools:
              asked === 1
                ? []
                : [
                    {
                      name: "late_tool",
                      description: "Comes late, but comes.",
                      inputSchema: { type: "object" as const },
                    },
                  ],
          };
        });
        const transport = new WebStandardStreamableHTTPServerTransport({ enableJsonResponse: true });
        await server.connect(transport);
        return await transport.handleRequest(request);
      },
    });
    try {
      const { tools } = await importMcp({ kind: "http", url: `http://127.0.0.1:${http.port}/mcp` }, null, quick);
      expect(tools.map((t) => t.draft.operation)).toEqual(["late_tool"]);
      expect(asked).toBe(2);
    } finally {
      await http.stop(true);
    }
  });

  test("command lines are split as a shell would", () => {
    expect(splitCommand(`npx "my server" --dir '/a b' -x "say \\"hi\\""`)).toEqual([
      "npx",
      "my server",
      "--dir",
      "/a b",
      "-x",
      'say "hi"',
    ]);
  });
});
