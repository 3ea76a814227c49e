/**
 * From any JSON Schema dialect (OpenAPI 3.0, 3.1, MCP, function lists) to the small one of types.ts: references resolved and cycles cut, depth,
 * width and total size limited, contradictory or unusable keywords left out so that values can always be made for what is kept.
 */
import { scrubJson, scrubText } from "./scrub.ts";
import { cleanText } from "./text.ts";
import type { Json, JsonSchema } from "./types.ts";

export interface SchemaLimits {
  /** Levels of properties under the top. */
  depth: number;
  /** Properties an object keeps, by level; required ones first. */
  width: readonly number[];
  /** Schema nodes in all. */
  nodes: number;
  /** Characters of a description. */
  description: number;
}

export const PARAMETER_LIMITS: SchemaLimits = { depth: 3, width: [30, 30, 12, 8], nodes: 160, description: 160 };
export const RESPONSE_LIMITS: SchemaLimits = { depth: 3, width: [30, 30, 12, 8], nodes: 160, description: 100 };

const MAX_ENUM = 64;
const MAX_HOPS = 40;
const MAX_PARTS = 1000;

export type Raw = Record<string, unknown>;

export function isRecord(value: unknown): value is Raw {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** One property of an object's own, never one of its prototype. */
export function own(value: unknown, key: string): unknown {
  return isRecord(value) && Object.hasOwn(value, key) ? value[key] : undefined;
}

/** Follows local references ("#/a/b~1c") in one document. */
export class Resolver {
  #cache = new Map<string, unknown>();
  constructor(readonly root: unknown) {}

  /** The value that a local reference names, or undefined where it names none (or another document). */
  lookup(ref: string): unknown {
    if (this.#cache.has(ref)) return this.#cache.get(ref);
    const value = this.#walk(ref);
    if (this.#cache.size < 50_000) this.#cache.set(ref, value);
    return value;
  }

  #walk(ref: string): unknown {
    if (ref === "#") return this.root;
    if (!ref.startsWith("#/")) return undefined;
    let at: unknown = this.root;
    for (const raw of ref.slice(2).split("/")) {
      let key = raw;
      if (key.includes("%")) {
        try {
          key = decodeURIComponent(key);
        } catch {
          return undefined;
        }
      }
      key = key.replaceAll("~1", "/").replaceAll("~0", "~");
      if (Array.isArray(at)) at = /^\d{1,6}$/.test(key) ? at[Number(key)] : undefined;
      else at = own(at, key);
      if (at === undefined) return undefined;
    }
    return at;
  }

  /** The object behind any chain of references; undefined where the chain breaks or bites its tail. */
  deref(value: unknown): Raw | undefined {
    let at = value;
    for (let hops = 0; hops < MAX_HOPS; hops++) {
      if (!isRecord(at)) return undefined;
      const ref = own(at, "$ref");
      if (typeof ref !== "string") return at;
      at = this.lookup(ref);
    }
    return undefined;
  }
}

interface Walk {
  resolver: Resolver;
  limits: SchemaLimits;
  /** "request" drops read-only properties, "response" write-only ones. */
  mode: "request" | "response";
  left: number;
  /** Parts of allOf, anyOf and oneOf that may still be read. */
  parts: number;
  stack: string[];
  onProblem?: (field: string, reason: string) => void;
}

/** Foreign type names, upper-cased, to a JSON Schema type and format. */
const FOREIGN: Record<string, { type?: JsonSchema["type"]; format?: string }> = {
  STR: { type: "string" },
  TEXT: { type: "string" },
  CHAR: { type: "string" },
  FILE: { type: "string", format: "binary" },
  BINARY: { type: "string", format: "binary" },
  BYTES: { type: "string", format: "byte" },
  UUID: { type: "string", format: "uuid" },
  DATE: { type: "string", format: "date" },
  DATETIME: { type: "string", format: "date-time" },
  "DATE-TIME": { type: "string", format: "date-time" },
  TIMESTAMP: { type: "string", format: "date-time" },
  TIME: { type: "string" },
  URL: { type: "string", format: "uri" },
  EMAIL: { type: "string", format: "email" },
  ENUM: { type: "string" },
  INT: { type: "integer" },
  INT32: { type: "integer" },
  INT64: { type: "integer" },
  LONG: { type: "integer" },
  SHORT: { type: "integer" },
  BIGINT: { type: "integer" },
  FLOAT: { type: "number" },
  DOUBLE: { type: "number" },
  DECIMAL: { type: "number" },
  BOOL: { type: "boolean" },
  DICT: { type: "object" },
  HASHMAP: { type: "object" },
  MAP: { type: "object" },
  JSON: { type: "object" },
  HASH: { type: "object" },
  LIST: { type: "array" },
  ARRAYLIST: { type: "array" },
  TUPLE: { type: "array" },
  SET: { type: "array" },
  ANY: {},
  MIXED: {},
};
const TYPES = new Set(["object", "array", "string", "number", "integer", "boolean", "null"]);

/** The JSON Schema type that a foreign type's name stands for, or null where it stands for none. */
export function foreignType(name: string): { type?: JsonSchema["type"]; format?: string } | null {
  const lower = name.trim().toLowerCase();
  if (TYPES.has(lower)) return { type: lower as NonNullable<JsonSchema["type"]> };
  const upper = name.trim().toUpperCase();
  return Object.hasOwn(FOREIGN, upper) ? FOREIGN[upper]! : null;
}

/** Normalises one schema. Never throws: what cannot be understood becomes a schema that allows anything. */
export function normaliseSchema(
  raw: unknown,
  resolver: Resolver,
  mode: "request" | "response",
  limits: SchemaLimits = mode === "request" ? PARAMETER_LIMITS : RESPONSE_LIMITS,
  onProblem?: (field: string, reason: string) => void,
): JsonSchema {
  return walk(raw, 0, 0, { resolver, limits, mode, left: limits.nodes, parts: MAX_PARTS, stack: [], onProblem }, "");
}

function walk(raw: unknown, depth: number, hops: number, w: Walk, at: string): JsonSchema {
  w.left--;
  if (!isRecord(raw) || hops > MAX_HOPS) return {};
  const ref = own(raw, "$ref");
  if (typeof ref === "string") {
    const target = w.resolver.lookup(ref);
    if (w.stack.includes(ref)) return typeof own(target, "type") === "string" ? shallow(target, w) : { type: "object" };
    if (!isRecord(target)) {
      w.onProblem?.(at, `reference ${ref.slice(0, 120)} leads nowhere in this document`);
      return {};
    }
    w.stack.push(ref);
    w.left++;
    const out = walk(target, depth, hops + 1, w, at);
    w.stack.pop();
    const description = cleanText(raw.description, w.limits.description);
    return description ? { ...out, description } : out;
  }
  const s = merged(raw, w, hops);
  const out: JsonSchema = {};
  const nullable = typeOf(s, out, w, at);
  const description = cleanText(s.description, w.limits.description) || cleanText(s.title, 60);
  if (description) out.description = description;
  if (nullable || s.nullable === true || s["x-nullable"] === true) out.nullable = true;
  if (s.readOnly === true) out.readOnly = true;
  if (s.writeOnly === true) out.writeOnly = true;
  values(s, out);
  if (out.type === "object") objectOf(s, out, depth, hops, w, at);
  else if (out.type === "array") arrayOf(s, out, depth, hops, w, at);
  else if (out.type === "string") stringOf(s, out);
  else if (out.type === "number" || out.type === "integer") numberOf(s, out);
  return out;
}

/** What is left of a schema whose cycle was cut: its kind, and nothing below. */
function shallow(raw: unknown, w: Walk): JsonSchema {
  const out: JsonSchema = {};
  if (isRecord(raw)) typeOf(raw, out, w, "");
  return out;
}

/** allOf merged into one; of anyOf and oneOf the first alternative that is not null. */
function merged(raw: Raw, w: Walk, hops: number): Raw {
  const all = own(raw, "allOf");
  const any = own(raw, "oneOf") ?? own(raw, "anyOf");
  if (!Array.isArray(all) && !Array.isArray(any)) return raw;
  if (hops > MAX_HOPS || w.parts <= 0) return raw;
  let out: Raw = raw;
  const parts: unknown[] = Array.isArray(all) ? all.slice(0, 20) : [];
  if (Array.isArray(any)) {
    const options = any
      .slice(0, 20)
      .map((x) => w.resolver.deref(x))
      .filter((x) => x !== undefined);
    const solid = options.filter((x) => x.type !== "null");
    if (solid.length < options.length) out = { ...out, nullable: true };
    const enums = solid.map((x) => (x.const !== undefined ? [x.const] : x.enum));
    if (solid.length > 1 && enums.every(Array.isArray))
      parts.push({ ...solid[0], const: undefined, title: undefined, description: undefined, enum: enums.flat() });
    else {
      const pick = solid.find((x) => x.type === "object" || own(x, "properties") !== undefined) ?? solid[0];
      if (pick) parts.push(pick);
    }
  }
  // Later parts refine earlier ones, the schema's own keywords refine them all; the order of properties is that of reading.
  let properties: Raw = {};
  const required: unknown[] = [];
  const add = (p: Raw) => {
    if (isRecord(own(p, "properties"))) properties = { ...properties, ...(p.properties as Raw) };
    required.push(...list(p.required));
  };
  for (const part of parts) {
    if (w.parts-- <= 0) break;
    const target = w.resolver.deref(part);
    if (!target) continue;
    const p = merged(target, w, hops + 8);
    add(p);
    const { allOf: _a, oneOf: _o, anyOf: _b, ...rest } = p;
    out = { ...rest, ...out };
  }
  add(raw);
  return Object.keys(properties).length > 0 ? { ...out, properties, required } : out;
}

function list(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

/** Sets out.type (and a format the type's name implies). Returns whether the schema also allows null. */
function typeOf(s: Raw, out: JsonSchema, w: Walk, at: string): boolean {
  const declared = s.type;
  let nullable = false;
  let name: unknown = declared;
  if (Array.isArray(declared)) {
    nullable = declared.includes("null");
    const solid = declared.filter((t) => t !== "null");
    name = solid.find((t) => t === "object" && isRecord(own(s, "properties"))) ?? solid[0] ?? "null";
  }
  if (typeof name === "string") {
    const mapped = foreignType(name);
    if (mapped === null) w.onProblem?.(at, `unknown type ${JSON.stringify(name.slice(0, 60))}`);
    if (mapped?.type) {
      out.type = mapped.type;
      if (mapped.format) out.format = mapped.format;
      return nullable;
    }
  }
  const format = typeof s.format === "string" ? s.format.toLowerCase() : "";
  const example = s.const ?? list(s.enum).find((v) => v !== null);
  if (isRecord(own(s, "properties")) || isRecord(s.additionalProperties)) out.type = "object";
  else if (isRecord(own(s, "items"))) out.type = "array";
  else if (example !== undefined && ["string", "number", "boolean"].includes(typeof example))
    out.type = typeof example as "string" | "number" | "boolean";
  else if (/^(?:int32|int64|integer)$/.test(format)) out.type = "integer";
  else if (/^(?:float|double|number)$/.test(format)) out.type = "number";
  else if (
    format !== "" ||
    typeof s.pattern === "string" ||
    typeof s.minLength === "number" ||
    typeof s.maxLength === "number"
  )
    out.type = "string";
  else if (typeof s.minimum === "number" || typeof s.maximum === "number") out.type = "number";
  return nullable;
}

/** A scalar as the schema's type wants it, or undefined. */
function coerce(value: unknown, type: JsonSchema["type"]): Json | undefined {
  switch (type) {
    case "string":
      if (typeof value === "string") return value;
      return typeof value === "number" || typeof value === "boolean" ? String(value) : undefined;
    case "integer":
    case "number": {
      const n = typeof value === "string" && value.trim() !== "" ? Number(value) : value;
      return typeof n === "number" && Number.isFinite(n) && (type === "number" || Number.isSafeInteger(n))
        ? n
        : undefined;
    }
    case "boolean":
      if (value === "true" || value === "false") return value === "true";
      return typeof value === "boolean" ? value : undefined;
    case "array":
      return Array.isArray(value) ? (value as Json) : undefined;
    case "object":
      return isRecord(value) ? (value as Json) : undefined;
    case "null":
      return null;
    case undefined:
      return value === undefined ? undefined : (value as Json);
  }
}

/** Enumerations, defaults and examples, where they fit the type. Long enumerations become an example. */
function values(s: Raw, out: JsonSchema): void {
  const scalar = out.type !== "object" && out.type !== "array";
  const raw = s.const !== undefined ? [s.const] : s.enum;
  let example = s.example ?? list(s.examples)[0];
  if (Array.isArray(raw) && scalar) {
    if (raw.includes(null)) out.nullable = true;
    const fit = [...new Set(raw.filter((v) => v !== null).map((v) => coerce(v, out.type)))].filter(
      (v) => v !== undefined,
    );
    const short = fit.filter((v) => typeof v !== "string" || (v.length <= 100 && v !== ""));
    if (short.length > 0 && short.length <= MAX_ENUM) out.enum = short.map((v) => scrubJson(v));
    else if (short.length > MAX_ENUM) {
      example ??= short[0];
      const some = short.slice(0, 4).map(String).join(", ");
      out.description = `${out.description ? `${out.description} ` : ""}One of ${short.length} values, such as ${some}.`;
    }
  }
  const keep = (v: unknown): Json | undefined => {
    const c = coerce(v, out.type);
    if (c === undefined || c === null || c === "") return undefined;
    if (typeof c === "string" ? c.length > 200 : typeof c === "object" && JSON.stringify(c).length > 200)
      return undefined;
    if (out.enum && !out.enum.includes(c)) return undefined;
    return scrubJson(c);
  };
  if (s.default !== undefined) {
    const v = keep(s.default);
    if (v !== undefined) out.default = v;
  }
  if (example !== undefined) {
    const v = keep(example);
    if (v !== undefined) out.example = v;
  }
}

function objectOf(s: Raw, out: JsonSchema, depth: number, hops: number, w: Walk, at: string): void {
  const properties = own(s, "properties");
  const extra = own(s, "additionalProperties");
  if (isRecord(properties) && depth < w.limits.depth && w.left > 0) {
    const required = new Set(list(s.required).filter((k): k is string => typeof k === "string"));
    const names = Object.keys(properties).filter(
      (k) => usableKey(k) || w.onProblem?.(`${at}.${k.slice(0, 60)}`, "unusable property name"),
    );
    const ordered = [...names.filter((k) => required.has(k)), ...names.filter((k) => !required.has(k))];
    const width = w.limits.width[Math.min(depth, w.limits.width.length - 1)]!;
    const kept: Record<string, JsonSchema> = {};
    let n = 0;
    for (const name of ordered) {
      if (n >= width || w.left <= 0) break;
      const raw = properties[name];
      const target = w.resolver.deref(raw);
      // A read-only property that is required is so in responses only (OpenAPI 3.0.3, Schema Object, readOnly).
      if (target?.[w.mode === "request" ? "readOnly" : "writeOnly"] === true) continue;
      kept[name] = walk(raw, depth + 1, hops + 1, w, `${at}.${name}`);
      n++;
    }
    if (n > 0) {
      out.properties = kept;
      const still = names.filter((k) => required.has(k) && Object.hasOwn(kept, k));
      if (still.length > 0) out.required = still;
    }
  }
  if (
    out.properties === undefined &&
    isRecord(extra) &&
    Object.keys(extra).length > 0 &&
    depth < w.limits.depth &&
    w.left > 0
  ) {
    out.additionalProperties = walk(extra, depth + 1, hops + 1, w, `${at}.*`);
  }
}

/** Names that can be keys of a plain object and that a caller can write. */
export function usableKey(name: string): boolean {
  return name !== "" && name !== "__proto__" && name.length <= 100 && !/[\p{Cc}"\\]/u.test(name);
}

function arrayOf(s: Raw, out: JsonSchema, depth: number, hops: number, w: Walk, at: string): void {
  const raw = own(s, "items");
  // A tuple's first item stands for all.
  const items = Array.isArray(raw) ? raw[0] : (raw ?? list(s.prefixItems)[0]);
  // An array adds no level of properties, an array within an array does.
  const inner = depth + (w.resolver.deref(items)?.type === "array" ? 1 : 0);
  if (isRecord(items) && w.left > 0 && inner <= w.limits.depth) out.items = walk(items, inner, hops + 1, w, `${at}[]`);
  count(s, out, "minItems");
  count(s, out, "maxItems");
  if (out.minItems !== undefined && out.maxItems !== undefined && out.minItems > out.maxItems) {
    delete out.minItems;
    delete out.maxItems;
  }
  if (out.minItems !== undefined && out.minItems > 100) delete out.minItems;
}

function count(s: Raw, out: JsonSchema, key: "minItems" | "maxItems" | "minLength" | "maxLength"): void {
  const v = s[key];
  if (typeof v === "number" && Number.isSafeInteger(v) && v >= 0) out[key] = v;
}

function stringOf(s: Raw, out: JsonSchema): void {
  if (typeof s.format === "string" && s.format.length <= 40 && s.format !== "string")
    out.format = s.format.toLowerCase();
  if (out.enum) return;
  count(s, out, "minLength");
  count(s, out, "maxLength");
  if (
    out.maxLength === 0 ||
    (out.minLength ?? 0) > (out.maxLength ?? Number.POSITIVE_INFINITY) ||
    (out.minLength ?? 0) > 1000
  ) {
    delete out.minLength;
    delete out.maxLength;
  }
  if (typeof s.pattern === "string" && s.pattern.length <= 200 && usablePattern(s.pattern)) out.pattern = s.pattern;
  for (const key of ["example", "default"] as const) {
    const v = out[key];
    if (typeof v !== "string") continue;
    out[key] = scrubText(v);
    const wrong = v.length < (out.minLength ?? 0) || v.length > (out.maxLength ?? Number.POSITIVE_INFINITY);
    if (wrong || (out.pattern && !new RegExp(out.pattern, "u").test(v))) delete out[key];
  }
}

/** Compiles as a Unicode regular expression and has no nested repetition (which could take exponential time). */
function usablePattern(pattern: string): boolean {
  if (/\([^)]*[+*][^)]*\)[+*{]/.test(pattern)) return false;
  try {
    new RegExp(pattern, "u");
    return true;
  } catch {
    return false;
  }
}

function numberOf(s: Raw, out: JsonSchema): void {
  const usable = (v: unknown): v is number =>
    typeof v === "number" && Number.isFinite(v) && Math.abs(v) <= Number.MAX_SAFE_INTEGER;
  const step = out.type === "integer" ? 1 : 0;
  if (typeof s.format === "string" && /^[a-z0-9-]{1,20}$/i.test(s.format)) out.format = s.format.toLowerCase();
  if (out.enum) return;
  const low = usable(s.exclusiveMinimum)
    ? s.exclusiveMinimum + step
    : usable(s.minimum)
      ? s.minimum + (s.exclusiveMinimum === true ? step : 0)
      : undefined;
  const high = usable(s.exclusiveMaximum)
    ? s.exclusiveMaximum - step
    : usable(s.maximum)
      ? s.maximum - (s.exclusiveMaximum === true ? step : 0)
      : undefined;
  if (low !== undefined && high !== undefined && low > high) return;
  if (low !== undefined) out.minimum = low;
  if (high !== undefined) out.maximum = high;
  for (const key of ["example", "default"] as const) {
    const v = out[key];
    if (typeof v === "number" && (v < (low ?? v) || v > (high ?? v))) delete out[key];
  }
}
