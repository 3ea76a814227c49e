/** JSON values that a schema admits, as states: compact JSON with an optional space after ":" and ",". */
import type { Json, JsonSchema } from "../../catalog/types.ts";
import {
  type CopySource,
  choice,
  copied,
  lazy,
  literal,
  type Next,
  number,
  optional,
  type State,
  text,
} from "./automaton.ts";
import { fitting, isShaped, numberValues, stringValues } from "./extract.ts";
import { jsonText, jsonTextNonEmpty } from "./text.ts";
import type { TokenTrie } from "./trie.ts";

export interface JsonLimits {
  /** Characters of a free string. */
  string: number;
  /** Entries of an array or of an object without declared properties. */
  entries: number;
  /** Depth of values whose schema says nothing. */
  depth: number;
}

export interface JsonGrammar {
  trie: TokenTrie;
  limits: JsonLimits;
  /** Strings (enums apart) must occur in this. */
  copy: CopySource | null;
  /** Numbers must occur there too, and strings whose schema says what they look like fit it. */
  extract: boolean;
  /** Where given, the strings and numbers of a call are whole values of these, each once a call; what has none is not offered if it may be left out. */
  whole: readonly string[] | null;
}

/** A JSON string of free text with at least one character that is no white space. */
export function freeString(g: JsonGrammar, limit: number, next: Next): State {
  return literal(
    '"',
    lazy(`fs${limit};${next.key}`, () => text(g.trie, jsonTextNonEmpty, limit, after('"', next))),
  );
}

function after(punctuation: string, next: Next): Next {
  return lazy(`${punctuation};${next.key}`, () => literal(punctuation, next));
}

/** `first`, then after each item either a comma and another, or `close` and `next`. */
export function list(
  id: string,
  bounds: { min: number; max: number },
  close: string,
  item: (index: number, next: Next) => State,
  next: Next,
): State {
  const from = (index: number): Next =>
    lazy(`${id}[${index}];${next.key}`, () => {
      const options: State[] = [];
      if (index >= bounds.min) options.push(literal(close, next));
      if (index < bounds.max) {
        const body = lazy(`${id}[${index}]i;${next.key}`, () => item(index, from(index + 1)));
        options.push(
          index === 0
            ? body.state
            : literal(
                ",",
                lazy(`_${body.key}`, () => optional(" ", body)),
              ),
        );
      }
      return choice(options);
    });
  return from(0).state;
}

const schemaIds = new WeakMap<object, number>();
let schemaCount = 0;
/** A short name for a schema object, for state keys. */
function schemaId(schema: JsonSchema): number {
  let id = schemaIds.get(schema);
  if (id === undefined) schemaIds.set(schema, (id = schemaCount++));
  return id;
}

function stringValue(g: JsonGrammar, schema: JsonSchema, next: Next): State {
  if (g.copy && g.extract && isShaped(schema)) {
    const values = stringValues(g.copy, schema);
    if (values.length > 0) return choice(values.map((v) => literal(v, next)));
  }
  const limit = Math.max(1, Math.min(schema.maxLength ?? g.limits.string, g.limits.string));
  const end = after('"', next);
  const inside = (): State => {
    if (g.copy && g.copy.starts.length > 0) return copied(g.copy, jsonText, limit, end);
    return text(g.trie, (schema.minLength ?? 0) > 0 ? jsonTextNonEmpty : jsonText, limit, end);
  };
  return literal('"', lazy(`sv${schemaId(schema)};${next.key}`, inside));
}

const anything: JsonSchema = {};

/** A value of a schema. What it does not say is free: any JSON of limited depth. */
export function jsonValue(g: JsonGrammar, schema: JsonSchema, next: Next, depth = 0): State {
  const options: State[] = [];
  const values: Json[] | undefined = schema.const !== undefined ? [schema.const] : schema.enum;
  if (values && values.length > 0) {
    for (const v of values) options.push(literal(JSON.stringify(v), next));
    if (schema.nullable && !values.includes(null)) options.push(literal("null", next));
    return choice(options);
  }
  const nested = depth < g.limits.depth;
  const type = schema.type ?? (schema.properties ? "object" : schema.items ? "array" : undefined);
  if (type === "string" || type === undefined) options.push(stringValue(g, schema, next));
  const read = g.copy && g.extract && (type === "integer" || type === "number") ? numberValues(g.copy, schema) : [];
  if (read.length > 0) options.push(...read.map((v) => literal(v, next)));
  else if (type === "integer" || type === "number" || type === undefined) {
    options.push(number({ integer: type === "integer", negative: (schema.minimum ?? -1) < 0 }, next));
  }
  if (type === "boolean" || type === undefined) options.push(literal("true", next), literal("false", next));
  if (type === "null" || type === undefined || schema.nullable) options.push(literal("null", next));
  if (type === "array" || (type === undefined && nested)) options.push(arrayValue(g, schema, next, depth));
  if (type === "object" || (type === undefined && nested)) options.push(objectValue(g, schema, next, depth));
  return choice(options);
}

function arrayValue(g: JsonGrammar, schema: JsonSchema, next: Next, depth: number): State {
  const min = schema.minItems ?? 0;
  const bounds = { min, max: Math.max(min, Math.min(schema.maxItems ?? g.limits.entries, g.limits.entries)) };
  const id = `ar${schemaId(schema)}.${depth}`;
  const items = schema.items ?? anything;
  return literal(
    "[",
    lazy(`${id};${next.key}`, () => list(id, bounds, "]", (_, n) => jsonValue(g, items, n, depth + 1), next)),
  );
}

function objectValue(g: JsonGrammar, schema: JsonSchema, next: Next, depth: number): State {
  const id = `ob${schemaId(schema)}.${depth}`;
  if (schema.properties && Object.keys(schema.properties).length > 0) {
    return members(g, { properties: schema.properties, required: schema.required ?? [] }, next, depth);
  }
  const member = (_: number, n: Next): State =>
    freeString(
      g,
      g.limits.string,
      after(
        ":",
        lazy(`${id}v;${n.key}`, () =>
          optional(
            " ",
            lazy(`${id}w;${n.key}`, () => jsonValue(g, anything, n, depth + 1)),
          ),
        ),
      ),
    );
  return literal(
    "{",
    lazy(`${id};${next.key}`, () => list(id, { min: 0, max: g.limits.entries }, "}", member, next)),
  );
}

/** The whole values that may stand for a parameter; null where it is not held to them. */
function wholeFor(
  g: JsonGrammar,
  schema: JsonSchema,
  taken: readonly string[],
): { json: string; value: string }[] | null {
  const free = schema.const === undefined && !schema.enum?.length;
  if (!g.whole || !free || !(schema.type === "string" || schema.type === "integer" || schema.type === "number"))
    return null;
  return fitting(g.whole, schema).filter(({ value }) => !taken.includes(value));
}

/** Whether something was read that an argument can be made of. */
function offered(g: JsonGrammar, schema: JsonSchema, taken: readonly string[]): boolean {
  if (schema.type === "array") return schema.items === undefined || offered(g, schema.items, taken);
  return wholeFor(g, schema, taken)?.length !== 0;
}

/** An object of declared properties: each at most once, in any order, the required ones before it closes. */
export function members(
  g: JsonGrammar,
  schema: { properties: Record<string, JsonSchema>; required: readonly string[] },
  next: Next,
  depth = 0,
): State {
  const names = Object.keys(schema.properties);
  const required = names.filter((n) => schema.required.includes(n));
  const id = `me${schemaId(schema.properties)}.${depth}`;
  /** `taken`: whole values that stand in the object already. */
  const from = (used: ReadonlySet<string>, taken: readonly string[]): Next => {
    const at = `{${names.map((n) => (used.has(n) ? 1 : 0)).join("")}${JSON.stringify(taken)}`;
    return lazy(`${id}${at};${next.key}`, () => {
      const options: State[] = [];
      if (required.every((n) => used.has(n))) options.push(literal("}", next));
      const open = names.filter(
        (n) => !used.has(n) && (required.includes(n) || offered(g, schema.properties[n]!, taken)),
      );
      if (open.length > 0) {
        const body = lazy(`${id}m${at};${next.key}`, () =>
          choice(open.map((n) => literal(`${JSON.stringify(n)}:`, value(n, used, taken)))),
        );
        options.push(
          used.size === 0
            ? body.state
            : literal(
                ",",
                lazy(`_${body.key}`, () => optional(" ", body)),
              ),
        );
      }
      return choice(options);
    });
  };
  const value = (name: string, used: ReadonlySet<string>, taken: readonly string[]): Next => {
    const now = new Set([...used, name]);
    const rest = from(now, taken);
    const body = lazy(`${id}=${name};${rest.key}`, () => {
      const left = wholeFor(g, schema.properties[name]!, taken);
      // What is required is given, if need be once more.
      const whole = left?.length === 0 ? wholeFor(g, schema.properties[name]!, []) : left;
      if (!whole || whole.length === 0) return jsonValue(g, schema.properties[name]!, rest, depth + 1);
      return choice(whole.map((w) => literal(w.json, from(now, [...taken, w.value]))));
    });
    return lazy(`_${body.key}`, () => optional(" ", body));
  };
  return literal("{", from(new Set(), []));
}
