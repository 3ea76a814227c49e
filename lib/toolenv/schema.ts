/** JSON Schema at the environment's borders: one cleaned form that validators and generators share, and findings in words. */
import { Ajv, type ErrorObject, type ValidateFunction } from "ajv";
import addFormats from "ajv-formats";
import { type FormatName, fullFormats } from "ajv-formats/dist/formats.js";
import type { Json, JsonSchema } from "../catalog/types.ts";
import { canonicalJson } from "../config/hash.ts";
import { isDrawable, matchesPattern } from "./pattern.ts";

const TYPES = new Set(["object", "array", "string", "number", "integer", "boolean", "null"]);
/** Formats that are checked; any other format of a specification only guides the generator. */
const CHECKED = new Set<string>([
  "date-time",
  "date",
  "email",
  "uri",
  "uuid",
  "ipv4",
  "ipv6",
  "hostname",
] satisfies FormatName[]);

export function typeOf(value: Json): NonNullable<JsonSchema["type"]> {
  if (value === null) return "null";
  if (Array.isArray(value)) return "array";
  if (typeof value === "number") return Number.isInteger(value) ? "integer" : "number";
  return typeof value === "object" ? "object" : (typeof value as "string" | "boolean");
}

export function hasType(value: Json, type: JsonSchema["type"]): boolean {
  switch (type) {
    case undefined:
      return true;
    case "string":
    case "boolean":
    case "number":
      return typeof value === type;
    case "integer":
      return Number.isInteger(value);
    case "null":
      return value === null;
    case "array":
      return Array.isArray(value);
    case "object":
      return typeof value === "object" && value !== null && !Array.isArray(value);
  }
}

/** Finite bounds in order, or nothing. */
function bounds(low: unknown, high: unknown): [number | undefined, number | undefined] {
  const a = typeof low === "number" && Number.isFinite(low) ? low : undefined;
  const b = typeof high === "number" && Number.isFinite(high) ? high : undefined;
  return a !== undefined && b !== undefined && a > b ? [undefined, undefined] : [a, b];
}

const cleaned = new WeakMap<JsonSchema, JsonSchema>();

/**
 * The part of a schema that can be kept by both sides: contradictions (a minimum over the maximum, an enum of another type,
 * a pattern that the sampler cannot meet) are dropped, since no value could meet them. Descriptions and examples stay for the generator.
 */
export function clean(schema: JsonSchema): JsonSchema {
  const known = cleaned.get(schema);
  if (known) return known;
  const out: JsonSchema = {};
  cleaned.set(schema, out);
  let type = schema.type !== undefined && TYPES.has(schema.type) ? schema.type : undefined;
  if (schema.properties && type === undefined) type = "object";
  if (Array.isArray(schema.enum)) {
    const fitting = schema.enum.filter((v) => hasType(v, type) || (v === null && schema.nullable));
    if (fitting.some((v) => v !== null)) out.enum = fitting;
  }
  if (schema.const !== undefined && hasType(schema.const, type)) out.enum = [schema.const];
  if (type) out.type = type;
  for (const k of ["description", "example", "default", "format", "nullable", "readOnly", "writeOnly"] as const)
    if (schema[k] !== undefined) Object.assign(out, { [k]: schema[k] });
  if (!out.enum) {
    const [min, max] = bounds(schema.minimum, schema.maximum);
    const whole = type === "integer";
    if (min !== undefined && !(whole && max !== undefined && Math.ceil(min) > Math.floor(max))) out.minimum = min;
    if (max !== undefined && !(whole && min !== undefined && Math.ceil(min) > Math.floor(max))) out.maximum = max;
    const [shortest, longest] = bounds(schema.minLength, schema.maxLength);
    if (shortest !== undefined && shortest > 0) out.minLength = shortest;
    if (longest !== undefined && longest > 0) out.maxLength = longest;
    // Some specifications write the pattern as a literal of a programming language: /^a$/i.
    const pattern =
      typeof schema.pattern === "string" ? (/^\/(.*)\/[a-z]*$/s.exec(schema.pattern)?.[1] ?? schema.pattern) : "";
    if (pattern && isDrawable(pattern, out.minLength, out.maxLength)) out.pattern = pattern;
  }
  if (type === "array") {
    const [fewest, most] = bounds(schema.minItems, schema.maxItems);
    if (fewest !== undefined && fewest > 0) out.minItems = fewest;
    if (most !== undefined && most > 0) out.maxItems = most;
    out.items =
      schema.items && typeof schema.items === "object" && !Array.isArray(schema.items) ? clean(schema.items) : {};
  }
  if (schema.properties && type === "object") {
    out.properties = {};
    for (const [k, v] of Object.entries(schema.properties))
      if (v && typeof v === "object") out.properties[k] = clean(v);
    const required = (Array.isArray(schema.required) ? schema.required : []).filter((k) => k in (out.properties ?? {}));
    if (required.length) out.required = required;
    if (schema.additionalProperties === false) out.additionalProperties = false;
  }
  return out;
}

/** A cleaned schema in the words of JSON Schema 2020-12, for a validator. */
function forValidator(s: JsonSchema): Record<string, unknown> {
  const out: Record<string, unknown> = {};
  if (s.type) out.type = s.nullable ? [s.type, "null"] : s.type;
  if (s.enum) out.enum = s.nullable && !s.enum.includes(null) ? [...s.enum, null] : s.enum;
  if (s.format && CHECKED.has(s.format) && s.type === "string") out.format = s.format;
  if (s.type === "string")
    for (const k of ["pattern", "minLength", "maxLength"] as const) if (s[k] !== undefined) out[k] = s[k];
  if (s.type === "number" || s.type === "integer")
    for (const k of ["minimum", "maximum"] as const) if (s[k] !== undefined) out[k] = s[k];
  if (s.type === "array") {
    for (const k of ["minItems", "maxItems"] as const) if (s[k] !== undefined) out[k] = s[k];
    if (s.items && Object.keys(s.items).length) out.items = forValidator(s.items);
  }
  if (s.properties) {
    out.properties = Object.fromEntries(Object.entries(s.properties).map(([k, v]) => [k, forValidator(v)]));
    if (s.required?.length) out.required = s.required;
    if (s.additionalProperties === false) out.additionalProperties = false;
  }
  return out;
}

/** What a value should be, in words: `a string (date-time)`, `one of "a", "b"`. */
export function expected(s: JsonSchema): string {
  if (s.enum) {
    const shown = s.enum.slice(0, 12).map((v) => JSON.stringify(v));
    return `one of ${shown.join(", ")}${s.enum.length > 12 ? ", …" : ""}`;
  }
  const kind =
    s.type === "integer" || s.type === "array" || s.type === "object"
      ? `an ${s.type}`
      : s.type
        ? `a ${s.type}`
        : "a value";
  const notes: string[] = [];
  if (s.format && CHECKED.has(s.format)) notes.push(s.format);
  if (s.pattern) notes.push(`matching ${s.pattern.slice(0, 80)}`);
  if (s.minimum !== undefined) notes.push(`at least ${s.minimum}`);
  if (s.maximum !== undefined) notes.push(`at most ${s.maximum}`);
  if (s.minLength !== undefined) notes.push(`${s.minLength} or more characters`);
  if (s.maxLength !== undefined) notes.push(`at most ${s.maxLength} characters`);
  if (s.minItems !== undefined) notes.push(`${s.minItems} or more items`);
  if (s.maxItems !== undefined) notes.push(`at most ${s.maxItems} items`);
  return notes.length ? `${kind} (${notes.join(", ")})` : kind;
}

/** The schema at a JSON pointer of an instance. */
function schemaAt(root: JsonSchema, pointer: string): JsonSchema {
  let s: JsonSchema = root;
  for (const part of pointer.split("/").slice(1)) {
    const name = part.replace(/~1/g, "/").replace(/~0/g, "~");
    s = (s.type === "array" ? s.items : s.properties?.[name]) ?? {};
  }
  return s;
}

function inWords(error: ErrorObject, root: JsonSchema): string {
  const at = error.instancePath
    .slice(1)
    .split("/")
    .map((p) => p.replace(/~1/g, "/").replace(/~0/g, "~"))
    .join(".");
  const child = (name: string) => (at ? `${at}.${name}` : name);
  if (error.keyword === "required") {
    const name = String(error.params.missingProperty);
    const s = schemaAt(root, `${error.instancePath}/${name.replace(/~/g, "~0").replace(/\//g, "~1")}`);
    return `"${child(name)}" is required: ${expected(s)}`;
  }
  if (error.keyword === "additionalProperties")
    return `"${child(String(error.params.additionalProperty))}" is not a known argument; known: ${Object.keys(
      schemaAt(root, error.instancePath).properties ?? {},
    )
      .slice(0, 15)
      .join(", ")}`;
  return `"${at || "arguments"}" must be ${expected(schemaAt(root, error.instancePath))}`;
}

const formatTests = new Map<string, (text: string) => boolean>();
for (const [name, f] of Object.entries(fullFormats)) {
  if (!CHECKED.has(name)) continue;
  if (f instanceof RegExp) formatTests.set(name, (text) => f.test(text));
  else if (typeof f === "function") formatTests.set(name, (text) => Boolean(f(text)));
  else if (typeof f === "object" && typeof f.validate === "function") {
    const validate = f.validate as (text: string) => boolean;
    formatTests.set(name, (text) => validate(text));
  }
}

/** Whether a format is one that is checked; specifications name many others. */
export const isKnownFormat = (format: string): boolean => formatTests.has(format);

/** Length as JSON Schema counts it: pairs of surrogates are one. */
function codePoints(text: string): number {
  let n = text.length;
  for (let i = 0; i < text.length; i++) if ((text.codePointAt(i) as number) > 0xffff) n--;
  return n;
}

/** Whether a cleaned schema is met by any text. */
export const isFree = (s: JsonSchema): boolean =>
  s.type === "string" &&
  !s.enum &&
  !s.pattern &&
  s.minLength === undefined &&
  s.maxLength === undefined &&
  !(s.format && formatTests.has(s.format));

/** Whether a value meets a cleaned schema: the quick yes of a check, which needs no compiling. Agrees with ajv (a test compares). */
export function fits(value: Json, s: JsonSchema, closed = false): boolean {
  if (value === null && s.nullable) return true;
  if (!hasType(value, s.type)) return false;
  if (s.enum) {
    if (typeof value !== "object" || value === null) return s.enum.includes(value);
    return s.enum.some((v) => canonicalJson(v) === canonicalJson(value));
  }
  if (typeof value === "string" && s.type === "string") {
    if (s.minLength !== undefined || s.maxLength !== undefined) {
      const n = codePoints(value);
      if (n < (s.minLength ?? 0) || n > (s.maxLength ?? Number.POSITIVE_INFINITY)) return false;
    }
    if (s.pattern && !matchesPattern(s.pattern, value)) return false;
    return s.format ? (formatTests.get(s.format)?.(value) ?? true) : true;
  }
  if (typeof value === "number" && s.type !== undefined)
    return value >= (s.minimum ?? Number.NEGATIVE_INFINITY) && value <= (s.maximum ?? Number.POSITIVE_INFINITY);
  if (Array.isArray(value)) {
    if (s.type !== "array") return true;
    if (value.length < (s.minItems ?? 0) || value.length > (s.maxItems ?? Number.POSITIVE_INFINITY)) return false;
    const items = s.items;
    return items ? value.every((v) => fits(v, items)) : true;
  }
  if (typeof value === "object" && value !== null && s.properties) {
    for (const k of s.required ?? []) if (!Object.hasOwn(value, k)) return false;
    for (const k in value) {
      const property = Object.hasOwn(s.properties, k) ? s.properties[k] : undefined;
      if (!property) {
        if (closed || s.additionalProperties === false) return false;
      } else if (!fits(value[k] as Json, property)) return false;
    }
  }
  return true;
}

/** Checks values against one schema. An empty list means valid; each finding names the field and what it expects. */
export type Check = (value: Json) => string[];

function newAjv(): Ajv {
  const ajv = new Ajv({ strict: false, validateSchema: false, addUsedSchema: false, allErrors: true, logger: false });
  addFormats.default(ajv);
  return ajv;
}

/**
 * Compiles checks on demand and keeps the `capacity` last used. `closed` refuses members that the top level does not name.
 */
export class Checks {
  readonly #capacity: number;
  readonly #kept = new Map<string, Check>();
  #ajv = newAjv();
  #compiled = 0;
  constructor(capacity = 4000) {
    this.#capacity = capacity;
  }
  get(id: string, schema: JsonSchema, closed: boolean): Check {
    let check = this.#kept.get(id);
    if (check) {
      // Move to the young end only once the cache is full: order is of no use before.
      if (this.#kept.size >= this.#capacity) {
        this.#kept.delete(id);
        this.#kept.set(id, check);
      }
      return check;
    }
    if (this.#kept.size >= this.#capacity) {
      const oldest = this.#kept.keys().next().value;
      if (oldest !== undefined) this.#kept.delete(oldest);
    }
    const root = clean(schema);
    let validate: ValidateFunction | null = null;
    check = (value) => {
      if (fits(value, root, closed)) return [];
      validate ??= this.#compile(root, closed);
      if (validate(value)) return [];
      return [...new Set((validate.errors ?? []).map((e) => inWords(e, root)))];
    };
    this.#kept.set(id, check);
    return check;
  }

  /** ajv's own word on a value, without the quick check before it. */
  slow(schema: JsonSchema, closed: boolean): (value: Json) => boolean {
    const validate = this.#compile(clean(schema), closed);
    return (value) => validate(value) === true;
  }

  #compile(root: JsonSchema, closed: boolean): ValidateFunction {
    // The compiler keeps every schema that it has seen; a fresh one now and then lets them go.
    if (++this.#compiled > this.#capacity) {
      this.#ajv = newAjv();
      this.#compiled = 0;
    }
    const form = forValidator(root);
    if (closed) form.additionalProperties = false;
    return this.#ajv.compile(form);
  }
}
