/** Foreign lists of tools as drafts for the catalogue: OpenAPI, MCP, OpenAI functions, ToolBench, BFCL. What cannot be mapped is reported, the rest is taken. */
import { type Problem, SourceError } from "./errors.ts";
import { clipName, shortHash, snakeCase } from "./naming.ts";
import { type Draft, operations, readDocument, readParameters, readResponse } from "./openapi.ts";
import { isRecord, normaliseSchema, own, type Raw, Resolver, usableKey } from "./schema.ts";
import { cleanText } from "./text.ts";
import { toolbenchTools } from "./toolbench.ts";
import type { JsonSchema, ObjectSchema, ParameterPlace } from "./types.ts";

export const FORMATS = ["openapi", "mcp", "functions", "toolbench", "bfcl"] as const;
export type Format = (typeof FORMATS)[number];

/** A tool to import; `name` is the callable name that it would like, null for the catalogue's rule. */
export interface Imported {
  draft: Draft;
  name: string | null;
}

export interface ImportResult {
  format: Format;
  tools: Imported[];
  problems: Problem[];
}

/** The format of a parsed document by its shape, or null. */
export function detectFormat(value: unknown): Format | null {
  if (isRecord(value)) {
    if (typeof value.openapi === "string" || typeof value.swagger === "string") return "openapi";
    if (Array.isArray(own(value.result, "tools"))) return "mcp";
    if (Array.isArray(value.api_list)) return "toolbench";
    for (const key of ["tools", "functions"]) {
      if (Array.isArray(value[key])) return detectFormat(value[key]);
    }
    if (isRecord(value.function) || Array.isArray(value.function) || typeof value.name === "string")
      return detectFormat([value]);
    return null;
  }
  const first = Array.isArray(value) ? value.find(isRecord) : undefined;
  if (!first) return null;
  if (typeof first.api_name === "string" || Array.isArray(first.api_list)) return "toolbench";
  if (Array.isArray(first.function)) return "bfcl";
  if (isRecord(first.inputSchema) || isRecord(first.input_schema)) return "mcp";
  if (isRecord(first.function)) return "functions";
  if (typeof first.name !== "string") return null;
  return own(first.parameters, "type") === "dict" ? "bfcl" : "functions";
}

/** Drafts of a parsed document. `file` is named in problems and provenance, `provider` stands where the document names none. Throws SourceError. */
export function importDocument(value: unknown, file: string, format: Format, provider: string): ImportResult {
  switch (format) {
    case "openapi":
      return fromOpenApi(value, file, provider);
    case "mcp":
      return fromFunctions(listOf(value, file), file, "mcp", provider);
    case "functions":
      return fromFunctions(listOf(value, file), file, "functions", provider);
    case "bfcl": {
      const list = listOf(value, file).flatMap((item) =>
        Array.isArray(own(item, "function")) ? (own(item, "function") as unknown[]) : [item],
      );
      return fromFunctions(list, file, "bfcl", provider);
    }
    case "toolbench": {
      const list = (Array.isArray(value) ? value : [value]).flatMap((item) =>
        Array.isArray(own(item, "api_list")) ? (own(item, "api_list") as unknown[]) : [item],
      );
      const { tools, problems } = toolbenchTools(list, file);
      return { format, problems, tools: tools.map(({ id: _, name, ...draft }) => ({ draft, name })) };
    }
  }
}

function listOf(value: unknown, file: string): unknown[] {
  const inner = own(own(value, "result"), "tools") ?? own(value, "tools") ?? own(value, "functions") ?? value;
  if (Array.isArray(inner)) return inner;
  if (isRecord(inner)) return [inner];
  throw new SourceError(file, "no list of tools in it");
}

/** All operations, unfiltered: what a user brings is wanted. */
function fromOpenApi(value: unknown, file: string, fallback: string): ImportResult {
  const problems: Problem[] = [];
  let document: ReturnType<typeof readDocument>;
  try {
    document = readDocument(value, file, fallback);
  } catch (e) {
    throw new SourceError(file, (e as Error).message);
  }
  const info = document.raw.info;
  if (typeof own(info, "x-providerName") !== "string") {
    const server = own(Array.isArray(document.raw.servers) ? document.raw.servers[0] : undefined, "url");
    const host = typeof server === "string" && URL.canParse(server) ? new URL(server).hostname : "";
    const title = snakeCase(String(own(info, "title") ?? "")).replaceAll("_", "-");
    document.provider = host || fallback;
    document.api = title ? `${document.provider}/${title}` : document.provider;
  }
  const tools: Imported[] = [];
  for (const op of operations(document)) {
    const note = (tool: string, field: string, reason: string) => problems.push({ file, tool, field, reason });
    const { parameters, places } = readParameters(op, note);
    if (op.description === "") note(op.name, "description", "says nothing: method and path stand in for it");
    tools.push({
      name: null,
      draft: {
        provider: document.provider,
        api: document.api,
        operation: op.name,
        method: op.method,
        path: op.path,
        description: op.description || `${op.method} ${op.path}`,
        category: document.category,
        parameters,
        places,
        ...readResponse(op, note),
        source: file,
        licence: document.licence,
      },
    });
  }
  return { format: "openapi", tools, problems };
}

/** The tool's own name at its server, for a tool that came from MCP or a function list. */
export function originalName(source: string): string | null {
  const at = source.lastIndexOf("#");
  return at < 0 ? null : decodeURIComponent(source.slice(at + 1));
}

/** MCP tools, OpenAI functions (both API generations) and BFCL function documents: a name, a description, a parameter schema. */
function fromFunctions(
  list: readonly unknown[],
  file: string,
  format: "mcp" | "functions" | "bfcl",
  provider: string,
): ImportResult {
  const tools: Imported[] = [];
  const problems: Problem[] = [];
  const seen = new Set<string>();
  list.forEach((item, i) => {
    const raw: unknown = isRecord(own(item, "function")) ? own(item, "function") : item;
    const original = own(raw, "name");
    if (typeof original !== "string" || original.trim() === "" || original.length > 200) {
      problems.push({ file, tool: `entry ${i}`, field: "name", reason: "no usable name: left out" });
      return;
    }
    const note = (field: string, reason: string) => problems.push({ file, tool: original, field, reason });
    const written = JSON.stringify(raw);
    // BFCL repeats a function in every question that offers it.
    if (seen.has(written)) return;
    seen.add(written);
    const { parameters, places } = argumentsOf(raw as Raw, note);
    const output = own(raw, "outputSchema") ?? own(raw, "response");
    const response = isRecord(output)
      ? normaliseSchema(output, new Resolver(output), "response", undefined, (f, r) => note(`response${f}`, r))
      : null;
    const description = cleanText(own(raw, "description"), 600);
    if (description === "") note("description", "says nothing: the name stands in for it");
    const operation = clipName(snakeCase(original)) || `tool_${shortHash(original)}`;
    tools.push({
      name: null,
      draft: {
        provider,
        api: provider,
        operation,
        method: "CALL",
        path: "",
        description: description || original,
        category: null,
        parameters,
        places,
        response,
        example: null,
        source: `${file}#${encodeURIComponent(original)}`,
        licence: null,
      },
    });
  });
  return { format, tools, problems };
}

function argumentsOf(
  tool: Raw,
  note: (field: string, reason: string) => void,
): { parameters: ObjectSchema; places: Record<string, ParameterPlace> } {
  const raw = own(tool, "inputSchema") ?? own(tool, "input_schema") ?? own(tool, "parameters");
  const parameters: ObjectSchema = { type: "object", properties: {}, required: [] };
  const places: Record<string, ParameterPlace> = {};
  if (raw === undefined || raw === null) return { parameters, places };
  const declared = own(raw, "properties");
  for (const key of isRecord(declared) ? Object.keys(declared) : []) {
    if (!usableKey(key)) note(key.slice(0, 60), "unusable parameter name: left out");
  }
  const schema: JsonSchema = normaliseSchema(raw, new Resolver(raw), "request", undefined, (field, reason) => {
    if (reason !== "unusable property name") note(field.replace(/^\./, ""), reason);
  });
  if (schema.type !== undefined && schema.type !== "object")
    note("parameters", `of type ${schema.type}, not object: taken as no parameters`);
  else {
    parameters.properties = schema.properties ?? {};
    parameters.required = schema.required ?? [];
  }
  const lost = isRecord(declared)
    ? Object.keys(declared).filter((k) => usableKey(k) && !Object.hasOwn(parameters.properties, k))
    : [];
  if (lost.length > 0)
    note(
      "parameters",
      `more than fit: ${lost.slice(0, 5).join(", ")}${lost.length > 5 ? ` and ${lost.length - 5} others` : ""} left out`,
    );
  for (const key of Object.keys(parameters.properties)) places[key] = "argument";
  return { parameters, places };
}
