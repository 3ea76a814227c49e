/**
 * ToolBench's api_list entries (RapidAPI's interfaces, as in StableToolBench's query files) as tools. Names follow ToolBench's own form,
 * `<api>_for_<tool>`, made unique and at most 64 characters; `originalOf` gives back the pair that a name stands for.
 */
import { z } from "zod";
import type { Problem } from "./errors.ts";
import { clipName, MAX_NAME, shortHash, snakeCase } from "./naming.ts";
import { foreignType, isRecord, normaliseSchema, Resolver, usableKey } from "./schema.ts";
import { scrubJson } from "./scrub.ts";
import { cleanText } from "./text.ts";
import type { Json, JsonSchema, ParameterPlace, Tool } from "./types.ts";

const parameter = z.looseObject({
  name: z.string(),
  type: z.unknown().optional(),
  description: z.unknown().optional(),
  default: z.unknown().optional(),
});
/** One entry of an api_list. */
export const toolbenchEntry = z.looseObject({
  category_name: z.string().optional(),
  tool_name: z.string(),
  api_name: z.string(),
  api_description: z.string().nullish(),
  required_parameters: z.array(parameter).default([]),
  optional_parameters: z.array(parameter).default([]),
  method: z.string().nullish(),
  template_response: z.unknown().optional(),
});
export type ToolbenchEntry = z.input<typeof toolbenchEntry>;
type Entry = z.output<typeof toolbenchEntry>;

export interface ToolbenchTools {
  /** One a distinct (category, tool, API), in order of appearance; ids are places in this array. */
  tools: Tool[];
  problems: Problem[];
  /** The callable name of an API; without a category the first of that pair. Null where the list has none. */
  nameOf(toolName: string, apiName: string, category?: string): string | null;
  /** What a callable name stands for. */
  originalOf(name: string): { category: string; tool: string; api: string } | null;
}

/** The type of a parameter in RapidAPI's words, e.g. "DATE (YYYY-MM-DD)"; null where it is unknown. */
export function rapidType(type: unknown): JsonSchema | null {
  if (type === undefined || type === null || type === "") return {};
  if (typeof type !== "string") return null;
  const bare = type.replace(/\s*\([^)]*\)\s*$/, "");
  if (/^time$/i.test(bare)) return { type: "string", pattern: "^([01]\\d|2[0-3]):[0-5]\\d$" };
  const mapped = foreignType(bare);
  return mapped === null ? null : { ...mapped };
}

/** A parameter's schema. RapidAPI's default of a required parameter is its example. */
function parameterSchema(p: Entry["required_parameters"][number], note: (reason: string) => void): JsonSchema {
  const mapped = rapidType(p.type);
  if (mapped === null) note(`unknown type ${JSON.stringify(p.type)?.slice(0, 60)}: taken as a string`);
  const schema: JsonSchema = mapped ?? { type: "string" };
  if (schema.type === undefined) schema.type = "string";
  const description = cleanText(p.description, 200);
  if (description) schema.description = description;
  if (p.default === undefined || p.default === null || p.default === "") return schema;
  let raw = schema.type === "array" && typeof p.default === "string" ? parsed(p.default) : p.default;
  if (schema.type === "boolean" && (raw === "1" || raw === "0")) raw = raw === "1";
  const fitted = normaliseSchema({ ...schema, default: raw }, new Resolver({}), "request").default;
  if (fitted === undefined)
    note(`default ${JSON.stringify(p.default).slice(0, 60)} is no ${schema.type}, or too long: left out`);
  else schema.default = fitted;
  return schema;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

const LEAVES: Record<string, JsonSchema> = {
  str: { type: "string" },
  int: { type: "integer" },
  float: { type: "number" },
  bool: { type: "boolean" },
  NoneType: { nullable: true },
  dict: { type: "object" },
  list: { type: "array" },
  "empty list": { type: "array" },
};

/** A template_response, where leaves name Python types ("str", "list of int with length 3"), as a schema. */
export function templateSchema(template: unknown, depth = 0): JsonSchema {
  if (typeof template === "string") {
    if (Object.hasOwn(LEAVES, template)) return { ...LEAVES[template]! };
    const list = /^list of (\w+) with length \d+$/.exec(template);
    return list ? { type: "array", items: { ...(LEAVES[list[1]!] ?? {}) } } : { type: "string" };
  }
  if (Array.isArray(template)) {
    const first = template.find((x) => x !== null);
    const list = typeof first === "string" ? /^list of (\w+) with length \d+$/.exec(first) : null;
    if (list) return { type: "array", items: { ...(LEAVES[list[1]!] ?? {}) } };
    return first === undefined || depth > 6
      ? { type: "array" }
      : { type: "array", items: templateSchema(first, depth + 1) };
  }
  if (!isRecord(template))
    return typeof template === "number" ? { type: "number" } : typeof template === "boolean" ? { type: "boolean" } : {};
  if (depth > 6) return { type: "object" };
  const properties: Record<string, JsonSchema> = {};
  for (const [key, value] of Object.entries(template)) {
    if (key !== "_list_length" && usableKey(key)) properties[key] = templateSchema(value, depth + 1);
  }
  return { type: "object", properties };
}

/** The part of a cut-off JSON text up to its last whole member, or null where there is none. */
export function cutJson(text: string): unknown {
  const open: string[] = [];
  let quoted = false;
  let best: { end: number; close: string } | null = null;
  for (let i = 0; i < text.length && i < 200_000; i++) {
    const c = text[i]!;
    if (quoted) {
      if (c === "\\") i++;
      else if (c === '"') quoted = false;
    } else if (c === '"') quoted = true;
    else if (c === "{" || c === "[") open.push(c === "{" ? "}" : "]");
    else if (c === "}" || c === "]") open.pop();
    else if (c === ",") best = { end: i, close: open.toReversed().join("") };
  }
  return best ? parsed(text.slice(0, best.end) + best.close) : null;
}

function responseOf(template: unknown, note: (reason: string) => void): JsonSchema | null {
  let value = template;
  if (typeof value === "string") {
    const text = value;
    value = parsed(text);
    if (typeof value === "string") {
      value = cutJson(text);
      note(
        isRecord(value) || Array.isArray(value)
          ? "cut off in the source: the fields before the cut are taken"
          : "not JSON: no response schema",
      );
    }
  }
  if (!isRecord(value) && !Array.isArray(value)) return null;
  const schema = normaliseSchema(templateSchema(value), new Resolver({}), "response");
  return schema.type === "object" && !schema.properties ? null : schema;
}

/** The tools of api_list entries; the same API listed twice is one tool. Entries that are no entries are reported and left out. */
export function toolbenchTools(apiList: readonly unknown[], file = "toolbench"): ToolbenchTools {
  const problems: Problem[] = [];
  const entries = new Map<string, Entry>();
  apiList.forEach((raw, i) => {
    const found = toolbenchEntry.safeParse(raw);
    if (!found.success) {
      const issue = found.error.issues[0];
      problems.push({
        file,
        tool: `entry ${i}`,
        field: issue?.path.join(".") ?? null,
        reason: issue?.message ?? "not an api_list entry",
      });
      return;
    }
    const key = keyOf(found.data.tool_name, found.data.api_name, found.data.category_name ?? "");
    if (!entries.has(key)) entries.set(key, found.data);
  });
  const names = callableNames([...entries]);
  const byPair = new Map<string, string>();
  const originals = new Map<string, { category: string; tool: string; api: string }>();
  const tools = [...entries].map(([key, entry], id): Tool => {
    const name = names.get(key)!;
    const note = (field: string) => (reason: string) => problems.push({ file, tool: name, field, reason });
    const pair = keyOf(entry.tool_name, entry.api_name, null);
    if (!byPair.has(pair)) byPair.set(pair, name);
    originals.set(name, { category: entry.category_name ?? "", tool: entry.tool_name, api: entry.api_name });
    const properties: Record<string, JsonSchema> = {};
    const places: Record<string, ParameterPlace> = {};
    const required: string[] = [];
    for (const [list, must] of [
      [entry.required_parameters, true],
      [entry.optional_parameters, false],
    ] as const) {
      for (const p of list) {
        if (!usableKey(p.name)) note(p.name.slice(0, 60))("unusable parameter name: left out");
        else if (!Object.hasOwn(properties, p.name)) {
          properties[p.name] = parameterSchema(p, note(p.name));
          places[p.name] = "query";
          if (must) required.push(p.name);
        }
      }
    }
    const said = cleanText(entry.api_description, 400);
    return {
      id,
      name,
      provider: entry.tool_name,
      api: entry.tool_name,
      operation: clipName(snakeCase(entry.api_name)) || "call",
      method: (entry.method ?? "GET").toUpperCase(),
      path: "",
      // 71 of the benchmark's APIs say nothing: then their names are all there is.
      description: said || `${entry.api_name} of ${entry.tool_name}`,
      category: entry.category_name ?? null,
      parameters: { type: "object", properties, required },
      places,
      response: responseOf(entry.template_response, note("template_response")),
      example: null,
      source: file,
      licence: null,
    };
  });
  return {
    tools: scrubJson(tools as unknown as Json) as unknown as Tool[],
    problems,
    nameOf: (tool, api, category) =>
      (category === undefined ? byPair.get(keyOf(tool, api, null)) : names.get(keyOf(tool, api, category))) ?? null,
    originalOf: (name) => originals.get(name) ?? null,
  };
}

function keyOf(tool: string, api: string, category: string | null): string {
  return JSON.stringify(category === null ? [tool, api] : [tool, api, category]);
}

/** `<api>_for_<tool>`, with four digits of the original's hash where two would share a name or one had to be cut. */
function callableNames(entries: readonly [string, Entry][]): Map<string, string> {
  const plain = entries.map(([, e]) => {
    const api = snakeCase(e.api_name) || `api_${shortHash(e.api_name)}`;
    const tool = snakeCase(e.tool_name) || `tool_${shortHash(e.tool_name)}`;
    return { api, tool, full: `${api}_for_${tool}` };
  });
  const times = new Map<string, number>();
  for (const p of plain) times.set(p.full, (times.get(p.full) ?? 0) + 1);
  const names = new Map<string, string>();
  const used = new Set<string>();
  entries.forEach(([key], i) => {
    const { api, tool, full } = plain[i]!;
    let name = full;
    if (full.length > MAX_NAME || times.get(full)! > 1) {
      const tail = `_for_${clipName(tool, 30)}_${shortHash(key)}`;
      name = clipName(api, MAX_NAME - tail.length) + tail;
    }
    for (let n = 2; used.has(name); n++) name = `${clipName(api, 30)}_for_${clipName(tool, 20)}_${shortHash(key)}_${n}`;
    used.add(name);
    names.set(key, name);
  });
  return names;
}
