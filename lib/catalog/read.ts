/** Reads a source document from a file or a URL: JSON, JSON lines or YAML, within a size limit. */
import { statSync } from "node:fs";
import { parse as parseYaml } from "yaml";
import { type Problem, SourceError } from "./errors.ts";

export const MAX_DOCUMENT = 64 * 2 ** 20;

export interface ReadResult {
  value: unknown;
  /** Lines of a JSON-lines file that are no JSON. */
  problems: Problem[];
}

/** Reads and parses. Throws SourceError with the file's name where nothing of it can be used. */
export async function readDocumentFile(where: string, limit = MAX_DOCUMENT): Promise<ReadResult> {
  const text = /^https?:\/\//i.test(where) ? await download(where, limit) : await readFile(where, limit);
  return parseDocument(text, where);
}

async function readFile(path: string, limit: number): Promise<string> {
  let size: number;
  try {
    size = statSync(path).size;
  } catch (e) {
    throw new SourceError(path, (e as NodeJS.ErrnoException).code === "ENOENT" ? "no such file" : (e as Error).message);
  }
  if (size > limit) throw new SourceError(path, tooLarge(size, limit));
  return await Bun.file(path).text();
}

function tooLarge(size: number, limit: number): string {
  return `${(size / 2 ** 20).toFixed(1)} MiB, more than the ${(limit / 2 ** 20).toFixed(1)} MiB that are read: split it`;
}

async function download(url: string, limit: number): Promise<string> {
  let response: Response;
  try {
    response = await fetch(url, {
      signal: AbortSignal.timeout(60_000),
      headers: { accept: "application/json, application/yaml, */*" },
    });
  } catch (e) {
    throw new SourceError(url, `could not be fetched (${(e as Error).message})`);
  }
  if (!response.ok || !response.body) throw new SourceError(url, `answered ${response.status} ${response.statusText}`);
  const parts: Uint8Array[] = [];
  let size = 0;
  for await (const part of response.body) {
    size += part.length;
    // Leaving the loop cancels the download.
    if (size > limit) throw new SourceError(url, tooLarge(size, limit));
    parts.push(part);
  }
  return new TextDecoder().decode(Buffer.concat(parts));
}

const MAX_DEPTH = 1000;

/** Whether brackets are nested deeper than any real document's: a parser would need gigabytes for a few megabytes of them. */
export function tooDeep(text: string): boolean {
  let depth = 0;
  let quoted = false;
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (quoted) {
      if (c === 92) i++;
      else if (c === 34) quoted = false;
    } else if (c === 34) quoted = true;
    else if (c === 91 || c === 123) {
      if (++depth > MAX_DEPTH) return true;
    } else if (c === 93 || c === 125) depth--;
  }
  return false;
}

/** JSON, else JSON lines, else YAML. */
export function parseDocument(text: string, where: string): ReadResult {
  if (text.trim() === "") throw new SourceError(where, "empty");
  if (tooDeep(text)) throw new SourceError(where, `nested more than ${MAX_DEPTH} deep`);
  const jsonLike = /^\uFEFF?\s*[[{]/.test(text);
  let reason = "";
  try {
    return { value: JSON.parse(text.replace(/^\uFEFF/, "")) as unknown, problems: [] };
  } catch (e) {
    reason = (e as Error).message;
  }
  if (jsonLike) {
    const lines = jsonLines(text, where);
    if (lines) return lines;
    if (!/\.ya?ml$/i.test(where)) throw new SourceError(where, `cut off or not JSON (${reason})`);
  }
  try {
    // Aliases are counted, so that a "billion laughs" document is refused and not unrolled.
    const value: unknown = parseYaml(text, { maxAliasCount: 1000, logLevel: "error" });
    if (typeof value !== "object" || value === null) throw new Error("a document of plain text");
    return { value, problems: [] };
  } catch (e) {
    throw new SourceError(where, `neither JSON (${reason}) nor YAML (${(e as Error).message.split("\n")[0]})`);
  }
}

/** One JSON value a line; null where not even the first line is one. */
function jsonLines(text: string, where: string): ReadResult | null {
  const value: unknown[] = [];
  const problems: Problem[] = [];
  for (const [i, line] of text.split("\n").entries()) {
    if (line.trim() === "") continue;
    try {
      value.push(JSON.parse(line));
    } catch (e) {
      if (value.length === 0) return null;
      problems.push({ file: where, tool: null, field: `line ${i + 1}`, reason: (e as Error).message });
    }
  }
  return value.length > 1 ? { value, problems } : null;
}
