/**
 * The retrieval-only baseline: the request itself as the search, the best tool, arguments guessed from the request's words, and what came
 * back as the answer. Whatever a model is worth lies above it.
 */
import type { Json, JsonObject, JsonSchema, Tool } from "../catalog/types.ts";
import type { Policy } from "../paraact/types.ts";
import { answerReply, callReply, leaves, scriptedReply, searchReply } from "./baselines.ts";
import { requestText } from "./scripted.ts";
import { readExchanges } from "./solver.ts";

/** Values that a request seems to state: quoted text, then tokens with a digit, an @ or a _, then capitalised words inside the sentence. */
function statedValues(request: string): string[] {
  const quoted = [...request.matchAll(/["'“‘]([^"'”’]+)["'”’]/g)].map((m) => m[1]!);
  const tokens = request.split(/\s+/).map((t) => t.replace(/^[("'“‘]+|[)"'”’.,;:?!]+$/g, ""));
  const marked = tokens.filter((t) => /[\d@_]/.test(t));
  const names = tokens.filter((t, i) => i > 0 && /^\p{Lu}/u.test(t));
  return [...new Set([...quoted, ...marked, ...names])].filter((v) => v !== "");
}

/** A name's words, lower case: "corporationId" → ["corporation", "id"]. */
function wordsOf(name: string): string[] {
  return name
    .replace(/([a-z0-9])([A-Z])/g, "$1 $2")
    .toLowerCase()
    .split(/[^a-z0-9]+/)
    .filter((w) => w !== "");
}

/** The value that stands after a parameter's name in the request ("order id 17", "corporation 658", "status: open"), quoted or one word. */
function namedValue(request: string, key: string): string | null {
  const words = wordsOf(key);
  const names = [words, /^s?id$/.test(words.at(-1) ?? "") ? words.slice(0, -1) : words].filter((w) => w.length > 0);
  for (const name of names) {
    const pattern = new RegExp(
      `\\b${name.map(RegExp.escape).join("\\W+")}(?:\\W+(?:with|whose|the|id|is|of|to|named|called|number))*\\W+?(?:["'“]([^"'”]+)|(\\S+))`,
      "i",
    );
    const match = pattern.exec(request);
    const value = match?.[1] ?? match?.[2]?.replace(/[.,;:?!)]+$/, "");
    if (value && (match?.[1] !== undefined || /[\d@_]/.test(value))) return value;
  }
  return null;
}

function asType(text: string, schema: JsonSchema): Json | undefined {
  switch (schema.type) {
    case "integer":
      return /^-?\d+$/.test(text) ? Number(text) : undefined;
    case "number":
      return /^-?\d+(\.\d+)?$/.test(text) ? Number(text) : undefined;
    case "boolean":
      return /^(true|yes)$/i.test(text) ? true : /^(false|no)$/i.test(text) ? false : undefined;
    case "array": {
      const item = asType(text, schema.items ?? {});
      return item === undefined ? undefined : [item];
    }
    case "object":
    case "null":
      return undefined;
    default:
      return text;
  }
}

/** Arguments guessed from a request: enum values that it names, values after a parameter's name, then, for required ones, any of the right type. */
export function guessArguments(tool: Tool, request: string): JsonObject {
  const left = statedValues(request);
  const args: JsonObject = {};
  const { properties, required } = tool.parameters;
  for (const [key, schema] of Object.entries(properties)) {
    const member = schema.enum?.find((v) => typeof v === "string" && request.toLowerCase().includes(v.toLowerCase()));
    if (member !== undefined) args[key] = member;
    if (schema.enum) continue;
    const named = namedValue(request, key);
    const value = named === null ? undefined : asType(named, schema);
    if (value !== undefined) args[key] = value;
  }
  for (const key of required) {
    if (Object.hasOwn(args, key)) continue;
    const schema = properties[key] ?? {};
    if (schema.enum?.[0] !== undefined) {
      args[key] = schema.enum[0];
      continue;
    }
    const at = left.findIndex((v) => asType(v, schema) !== undefined && !Object.values(args).includes(v));
    const value = at < 0 ? undefined : asType(left.splice(at, 1)[0]!, schema);
    if (value !== undefined) args[key] = value;
  }
  return args;
}

/** Values that an answer gives at most. */
const MOST = 12;

/** Values whose name's last word the request speaks of, in singular or plural; where there are none, the first ones. */
function askedFor(
  found: [string, string | number | boolean][],
  request: string,
): [string, string | number | boolean][] {
  const spoken = new Set(wordsOf(request).map((w) => w.replace(/s$/, "")));
  const asked = found.filter(([name]) =>
    wordsOf(name)
      .slice(-1)
      .some((w) => spoken.has(w.replace(/s$/, ""))),
  );
  return (asked.length > 0 ? asked : found).slice(0, MOST);
}

export function retrievalPolicy(): Policy {
  return {
    name: "retrieval",
    async reply(request) {
      const text = requestText(request.messages);
      const turns = readExchanges(request.messages);
      const tool = request.toolsInView[0];
      if (!tool && turns.length === 0) return scriptedReply(searchReply(request, "Search the request.", text));
      if (tool && !turns.some((t) => t.reply.kind === "call")) {
        const call = { name: tool.name, arguments: guessArguments(tool, text) };
        return scriptedReply(callReply(request, "Call the first tool.", call));
      }
      const found = askedFor(leaves(turns.at(-1)?.responses[0]?.result ?? null), text);
      const answer = found.map(([name, value]) => `${name}: ${value}.`).join(" ");
      return scriptedReply(answerReply("Give what came back.", answer === "" ? "Nothing was found." : answer));
    },
  };
}
