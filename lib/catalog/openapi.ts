/** OpenAPI 3.x documents as tools, one an operation. What is kept and dropped is decided in filters.ts. */
import { droppedParameter } from "./filters.ts";
import { operationName } from "./naming.ts";
import { isRecord, normaliseSchema, own, type Raw, Resolver, usableKey } from "./schema.ts";
import { scrubJson } from "./scrub.ts";
import { describe } from "./text.ts";
import type { Json, JsonSchema, ObjectSchema, ParameterPlace, Tool } from "./types.ts";

export const DESCRIPTION_LIMIT = 320;
const MAX_EXAMPLE = 1500;
const MAX_PARAMETERS = 30;
const METHODS = ["get", "put", "post", "delete", "patch", "head", "options"];

/** A tool that has no id and no final name yet. */
export type Draft = Omit<Tool, "id" | "name">;

/** What is known of a document before its operations are read. */
export interface Document {
  raw: Raw;
  resolver: Resolver;
  provider: string;
  api: string;
  category: string | null;
  licence: string | null;
  source: string;
  /** Names of parameters that the security schemes define: never an agent's to fill. */
  credentials: ReadonlySet<string>;
}

/** One operation, described but with its schemas unread: filters can drop it before that work is done. */
export interface Operation {
  document: Document;
  raw: Raw;
  item: Raw;
  method: string;
  path: string;
  operationId: string | null;
  name: string;
  description: string;
}

/** A document's identity. `fallback` names its provider where it says none. Throws an Error that says what is wrong with it. */
export function readDocument(raw: unknown, source: string, fallback: string): Document {
  if (!isRecord(raw)) throw new Error("not an object");
  if (typeof raw.swagger === "string")
    throw new Error(`Swagger ${raw.swagger} is not read: convert it to OpenAPI 3 first`);
  if (typeof raw.openapi !== "string" || !raw.openapi.startsWith("3.")) throw new Error('no "openapi": "3.x" version');
  if (!isRecord(raw.paths)) throw new Error('no "paths" object');
  const info = isRecord(raw.info) ? raw.info : {};
  const provider = text(info["x-providerName"]) ?? fallback;
  const service = text(info["x-serviceName"]);
  const categories = info["x-apisguru-categories"];
  const category = text(Array.isArray(categories) ? categories[0] : categories);
  const resolver = new Resolver(raw);
  const credentials = new Set<string>();
  const schemes = own(raw.components, "securitySchemes");
  for (const scheme of isRecord(schemes) ? Object.values(schemes) : []) {
    const s = resolver.deref(scheme);
    if (s?.type === "apiKey" && typeof s.name === "string" && s.in !== "cookie") credentials.add(s.name.toLowerCase());
  }
  return {
    raw,
    resolver,
    provider,
    api: service ? `${provider}/${service}` : provider,
    // Google's categories are the directory's guess, and often wrong.
    category: provider === "googleapis.com" ? null : category,
    licence: text(own(info.license, "name")),
    source,
    credentials,
  };
}

function text(value: unknown): string | null {
  return typeof value === "string" && value.trim() !== "" ? value.trim() : null;
}

/** The operations of a document in its own order. */
export function* operations(document: Document): Generator<Operation> {
  const paths = document.raw.paths as Raw;
  for (const [path, rawItem] of Object.entries(paths)) {
    const item = document.resolver.deref(rawItem);
    if (!item) continue;
    for (const m of METHODS) {
      const raw = document.resolver.deref(own(item, m));
      if (!raw) continue;
      const method = m.toUpperCase();
      const operationId = text(raw.operationId);
      yield {
        document,
        raw,
        item,
        method,
        path,
        operationId,
        name: operationName(operationId, method, path),
        description: describe(raw.summary ?? item.summary, raw.description ?? item.description, DESCRIPTION_LIMIT),
      };
    }
  }
}

export type OnProblem = (tool: string, field: string, reason: string) => void;

/** Parameters and places of an operation: path, query, header and body in one object. */
export function readParameters(
  op: Operation,
  onProblem?: OnProblem,
): { parameters: ObjectSchema; places: Record<string, ParameterPlace> } {
  const { resolver, credentials } = op.document;
  const report = (field: string, reason: string) => onProblem?.(op.name, field, reason);
  const found = new Map<string, { place: ParameterPlace; raw: Raw; required: boolean }>();
  const declared = [...array(op.raw.parameters), ...array(op.item.parameters)];
  for (const place of ["path", "query", "header"] as const) {
    for (const item of declared) {
      const p = resolver.deref(item);
      if (p === undefined) {
        if (place === "path") report("parameters", "a reference leads nowhere in this document");
        continue;
      }
      if (p.in !== place || typeof p.name !== "string" || !usableKey(p.name) || found.has(p.name)) continue;
      const content = isRecord(p.content) ? own(Object.values(p.content)[0], "schema") : undefined;
      const schema = (isRecord(p.schema) ? p.schema : isRecord(content) ? content : { type: "string" }) as Raw;
      const examples = isRecord(p.examples) ? own(resolver.deref(Object.values(p.examples)[0]), "value") : undefined;
      const example = p.example ?? examples;
      const raw: Raw = {
        allOf: [schema],
        ...(text(p.description) ? { description: p.description } : {}),
        ...(example !== undefined ? { example } : {}),
      };
      if (droppedParameter(p.name, place, p, op.document.provider, credentials)) continue;
      found.set(p.name, {
        place,
        raw: example === undefined && !text(p.description) ? schema : raw,
        required: place === "path" || p.required === true,
      });
    }
  }
  const body = resolver.deref(op.raw.requestBody);
  const content = body && isRecord(body.content) ? preferred(body.content) : undefined;
  if (content) {
    const raw = own(content.media, "schema");
    const schema = raw === undefined ? {} : normaliseSchema(raw, resolver, "request", undefined, report);
    if (schema.type === "object" && schema.properties) {
      const required = new Set(schema.required ?? []);
      for (const [name, property] of Object.entries(schema.properties)) {
        if (found.has(name) || droppedParameter(name, "body", property, op.document.provider, credentials)) continue;
        found.set(name, { place: "body", raw: property as Raw, required: required.has(name) });
      }
    } else if (raw !== undefined && !found.has("body")) {
      found.set("body", { place: "body", raw: schema as Raw, required: body?.required === true });
    }
  }
  const properties: Record<string, JsonSchema> = {};
  const places: Record<string, ParameterPlace> = {};
  // PHP-style lists ("ids[]") beside the plain parameter are the same parameter.
  const all = [...found].filter(([name]) => !(name.endsWith("[]") && found.has(name.slice(0, -2))));
  const ordered = [...all.filter(([, p]) => p.required), ...all.filter(([, p]) => !p.required)].slice(
    0,
    MAX_PARAMETERS,
  );
  for (const [name, p] of ordered) {
    const schema =
      p.place === "body" ? (p.raw as JsonSchema) : normaliseSchema(p.raw, resolver, "request", undefined, report);
    if (schema.type === undefined && p.place !== "body") schema.type = "string";
    properties[name] = schema;
    places[name] = p.place;
  }
  const required = ordered.filter(([, p]) => p.required).map(([name]) => name);
  return { parameters: { type: "object", properties, required }, places };
}

function array(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

/** The media type to read of several: JSON first, then its relatives, then forms, then the first. */
function preferred(content: Raw): { type: string; media: Raw } | undefined {
  const rank = (t: string) =>
    /^application\/json\b/i.test(t)
      ? 0
      : /json/i.test(t)
        ? 1
        : /urlencoded/i.test(t)
          ? 2
          : /multipart/i.test(t)
            ? 3
            : 4;
  const entries = Object.entries(content).filter((e): e is [string, Raw] => isRecord(e[1]));
  const best = entries.sort((a, b) => rank(a[0]) - rank(b[0]))[0];
  return best ? { type: best[0], media: best[1] } : undefined;
}

/** Schema and recorded example of the successful JSON response, null where there is none. XML's schemas say the same things (AWS's query protocols). */
export function readResponse(
  op: Operation,
  onProblem?: OnProblem,
): { response: JsonSchema | null; example: Json | null } {
  const { resolver } = op.document;
  const responses = isRecord(op.raw.responses) ? op.raw.responses : {};
  const codes = Object.keys(responses)
    .filter((c) => /^2(?:\d\d|XX)$/i.test(c))
    .sort();
  for (const code of codes) {
    const response = resolver.deref(responses[code]);
    const content = response && isRecord(response.content) ? preferred(response.content) : undefined;
    if (!content || !(/json|xml/i.test(content.type) || content.type === "*/*")) continue;
    const raw = own(content.media, "schema");
    const schema =
      raw === undefined
        ? null
        : normaliseSchema(raw, resolver, "response", undefined, (f, r) => onProblem?.(op.name, `response${f}`, r));
    const examples = own(content.media, "examples");
    const named = isRecord(examples) ? own(resolver.deref(Object.values(examples)[0]), "value") : undefined;
    return {
      response: schema && Object.keys(schema).length > 0 ? schema : null,
      example: shortExample(own(content.media, "example") ?? named),
    };
  }
  return { response: null, example: null };
}

function shortExample(value: unknown): Json | null {
  if (!isRecord(value) && !Array.isArray(value)) return null;
  const written = JSON.stringify(value);
  return written.length <= MAX_EXAMPLE && !written.includes('"__proto__"')
    ? scrubJson(JSON.parse(written) as Json)
    : null;
}
