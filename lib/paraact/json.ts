/**
 * An exact JSON reader (RFC 8259) for replies. JSON.parse takes the last of two equal keys, rounds long integers and gives no position;
 * here each of these is an error with an offset, because nothing that a model wrote is repaired silently.
 */
import type { Json, JsonObject } from "../catalog/types.ts";
import { canonicalJson } from "../config/hash.ts";
import type { ToolCall } from "../toolenv/types.ts";

/** What is wrong with a JSON text, and at which character. */
export class JsonError extends Error {
  override readonly name = "JsonError";
  constructor(
    readonly code: "json-syntax" | "json-duplicate-key" | "json-number" | "json-depth",
    message: string,
    readonly at: number,
  ) {
    super(message);
  }
}

/** Deeper nesting than any tool's arguments have; keeps every recursion over the value safe. */
export const MAX_JSON_DEPTH = 64;

const NUMBER = /-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?/y;
const STRING = /"[^"\\]*(?:\\.[^"\\]*)*"/sy;
const SPACE = /[ \t\n\r]*/y;

/** Parses one JSON value that fills the whole text. Throws JsonError. */
export function parseJson(text: string): Json {
  let i = 0;
  const fail = (what: string): never => {
    const found = i < text.length ? JSON.stringify(text[i]) : "the end";
    throw new JsonError("json-syntax", `expected ${what}, found ${found}`, i);
  };
  const take = (pattern: RegExp): RegExpExecArray | null => {
    pattern.lastIndex = i;
    const match = pattern.exec(text);
    if (match) i += match[0].length;
    return match;
  };
  const space = (): void => void take(SPACE);

  const string = (): string => {
    const start = i;
    const match = take(STRING) ?? fail("a JSON string, closed by a quote");
    try {
      return String(JSON.parse(match[0]));
    } catch {
      throw new JsonError("json-syntax", "a string with a raw control character or an unknown escape", start);
    }
  };
  const number = (): number => {
    const start = i;
    const match = take(NUMBER) ?? fail("a JSON value");
    const value = Number(match[0]);
    const wholeNumber = match[1] === undefined && match[2] === undefined;
    if (!Number.isFinite(value) || (wholeNumber && !Number.isSafeInteger(value)))
      throw new JsonError("json-number", `number ${match[0]} cannot be held exactly; write it as a string`, start);
    return value;
  };
  const items = (close: string, depth: number, item: () => void): void => {
    if (depth > MAX_JSON_DEPTH) throw new JsonError("json-depth", `nested deeper than ${MAX_JSON_DEPTH} levels`, i);
    i++;
    space();
    if (text[i] === close) {
      i++;
      return;
    }
    for (;;) {
      item();
      space();
      if (text[i] === ",") i++;
      else if (text[i] === close) break;
      else fail(`"," or "${close}"`);
      space();
    }
    i++;
  };
  const value = (depth: number): Json => {
    space();
    switch (text[i]) {
      case "{": {
        const object: JsonObject = {};
        items("}", depth, () => {
          const at = i;
          const key = string();
          if (Object.hasOwn(object, key))
            throw new JsonError("json-duplicate-key", `key ${JSON.stringify(key)} is given twice`, at);
          space();
          if (text[i] !== ":") fail('":"');
          i++;
          // defineProperty, so that a key named __proto__ is data like any other.
          const entry = { value: value(depth + 1), enumerable: true, writable: true, configurable: true };
          Object.defineProperty(object, key, entry);
        });
        return object;
      }
      case "[": {
        const array: Json[] = [];
        items("]", depth, () => void array.push(value(depth + 1)));
        return array;
      }
      case '"':
        return string();
      default:
        for (const [word, meaning] of [["true", true] as const, ["false", false] as const, ["null", null] as const])
          if (text.startsWith(word, i)) {
            i += word.length;
            return meaning;
          }
        return number();
    }
  };

  const result = value(1);
  space();
  if (i < text.length) fail("the end of the JSON value");
  return result;
}

export { canonicalJson };

export const isObject = (value: Json | undefined): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** Names compare trimmed and lower-cased (method.md section 2). */
export const normalName = (name: string): string => name.trim().toLowerCase();

/** Call identity: (name, arguments as JSON with sorted keys) (method.md section 2). */
export const callIdentity = (call: ToolCall): string => `${normalName(call.name)} ${canonicalJson(call.arguments)}`;
