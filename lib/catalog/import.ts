/** Adds tools to a catalogue file: the tools that are there keep their names, an API that comes again replaces itself. */
import { existsSync } from "node:fs";
import { basename } from "node:path";
import { type Problem, SourceError } from "./errors.ts";
import { detectFormat, FORMATS, type Format, type ImportResult, importDocument } from "./formats.ts";
import { snakeCase } from "./naming.ts";
import { readDocumentFile } from "./read.ts";
import { CatalogWriter, openCatalog } from "./store.ts";
import type { Json } from "./types.ts";

/** A provider's name for a source that has none: the file's. */
export function providerOf(where: string): string {
  const name = /^https?:/i.test(where) ? new URL(where).hostname : basename(where).replace(/\.(?:jsonl?|ya?ml)$/i, "");
  return snakeCase(name).replaceAll("_", "-") || "imported";
}

/** Reads a file or URL of any known format. Throws SourceError where nothing of it can be used. */
export async function importFile(
  where: string,
  format: Format | "auto" = "auto",
  provider: string | null = null,
): Promise<ImportResult> {
  const { value, problems } = await readDocumentFile(where);
  const found = format === "auto" ? detectFormat(value) : format;
  if (found === null)
    throw new SourceError(where, `of no format that is known (${FORMATS.join(", ")}): say which with --format`);
  const result = importDocument(value, where, found, provider ?? providerOf(where));
  result.problems.unshift(...problems);
  return result;
}

export interface AddReport {
  path: string;
  hash: string;
  tools: number;
  added: number;
  replaced: number;
  /** Callable names of the added tools. */
  names: string[];
  problems: Problem[];
}

/** Writes a catalogue with the tools of the one at `path` (if any) and the imported ones, and puts it in its place. Throws SourceError for an import without tools. */
export function addToCatalog(path: string, result: ImportResult, source: string): AddReport {
  if (result.tools.length === 0) throw new SourceError(source, "no tools in it: nothing was changed");
  const old = existsSync(path) ? openCatalog(path) : null;
  const apis = new Set(result.tools.map((t) => t.draft.api));
  let writer: CatalogWriter | null = null;
  try {
    writer = new CatalogWriter(path);
    const names = new Set<string>();
    let replaced = 0;
    for (const { id: _, name, ...tool } of old?.all() ?? []) {
      if (apis.has(tool.api)) {
        replaced++;
        continue;
      }
      writer.add(tool, name);
      names.add(name);
    }
    for (const { draft, name } of result.tools) {
      const free = name !== null && !names.has(name);
      writer.add(draft, free ? name : null);
      if (free) names.add(name);
    }
    const added = result.tools.length;
    const tools = writer.size;
    const imports = Array.isArray(old?.meta.imports) ? old.meta.imports : [];
    const record: Json = { source, format: result.format, tools: added, problems: result.problems.length };
    const hash = writer.finish({ ...old?.meta, imports: [...imports, record] });
    writer = null;
    const now = openCatalog(path);
    const given = Array.from({ length: added }, (_, i) => now.byId(tools - added + i).name);
    now.close();
    return { path, hash, tools, added, replaced, names: given, problems: result.problems };
  } catch (e) {
    writer?.abandon();
    throw e;
  } finally {
    old?.close();
  }
}
