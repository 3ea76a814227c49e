/**
 * Writes replies and observations (method.md section 2). Text from outside cannot forge a tag: in JSON `<` of whatever looks like one
 * is written \u003c, and a reply whose plain text holds a tag is refused.
 */
import type { Json, JsonSchema, Tool } from "../catalog/types.ts";
import { isObject } from "./json.ts";
import { acceptedReply, parseReply, type Reply } from "./parse.ts";
import { closeTag, escapeTagsInJson, escapeTagsInText, openTag, type Tag } from "./tags.ts";
import type { Plan } from "./types.ts";

/** A reply that the protocol cannot express, e.g. a tag inside its text. */
export class RenderError extends Error {
  override readonly name = "RenderError";
}

const block = (tag: Tag, content: string): string => openTag(tag) + content + closeTag(tag);

/** JSON that can forge no tag. A number that JSON cannot write is an error, not a null. */
const json = (value: unknown): string =>
  escapeTagsInJson(
    JSON.stringify(value, (key, item: unknown) => {
      if (typeof item === "number" && !Number.isFinite(item))
        throw new RenderError(`${key} is ${item}, which JSON cannot hold`);
      return item;
    }),
  );

/** A plan's block, keys in the order of method.md's table. */
export function renderPlan(plan: Plan): string {
  const goals = plan.subgoals ? { subgoals: plan.subgoals } : {};
  if (plan.kind === "exploration") return block("plan", json({ ...goals, capacity_slots: plan.capacity_slots }));
  const { available_tools, dependencies, execution_flow } = plan;
  return block("plan", json({ ...goals, available_tools, dependencies, execution_flow }));
}

/** The blocks of a reply's actions. */
function renderActions(reply: Reply): string {
  switch (reply.kind) {
    case "search":
      return reply.searches.map((query) => block("search_tool", query)).join("");
    case "call":
      return reply.calls
        .map((call) => block("tool_call", json({ name: call.name, arguments: call.arguments })))
        .join("");
    case "answer":
      return block("answer", reply.answer);
  }
}

/**
 * A reply's text, without white space between the blocks; `acceptedReply(parseReply(renderReply(x)))` equals x. Throws RenderError for what
 * the protocol cannot express: a tag in plain text, no action, a plan that is not valid. `escapeTagsInText` makes foreign text fit.
 */
export function renderReply(reply: Reply): string {
  const plan = reply.kind === "answer" || reply.plan === null ? "" : renderPlan(reply.plan);
  const text = block("think", reply.think) + plan + renderActions(reply);
  const parsed = parseReply(text);
  if (acceptedReply(parsed)) return text;
  throw new RenderError(
    `this reply cannot be written: ${parsed.findings[0]?.message ?? "wrong plan"}: ${text.slice(0, 200)}`,
  );
}

/** How a tool's interface is shown: its JSON schema, or one short line for small models. */
export type SchemaStyle = "json" | "compact";

/** One JSON function schema, on one line. */
const jsonSchemaLine = ({ name, description, parameters }: Tool): string => json({ name, description, parameters });

/** A parameter's type in a word or two: `string`, `"a"|"b"`, `integer[]`. At most 6 enum values are listed. */
function compactType(schema: JsonSchema): string {
  if (schema.enum && schema.enum.length > 0) {
    const shown = schema.enum.slice(0, 6).map((value: Json) => JSON.stringify(value));
    return shown.join("|") + (schema.enum.length > shown.length ? "|…" : "");
  }
  if (schema.type === "array") return `${schema.items ? compactType(schema.items) : "any"}[]`;
  return schema.type ?? "any";
}

/** `name(required: type, text, optional?: type) Description.`: a string's type is not said, the description is clipped at a word within 80 characters. */
function compactLine(tool: Tool): string {
  const { properties, required } = tool.parameters;
  const order = [...required, ...Object.keys(properties).filter((key) => !required.includes(key))];
  const parameters = order.map((key) => {
    const type = compactType(properties[key] ?? {});
    return `${key}${required.includes(key) ? "" : "?"}${type === "string" ? "" : `: ${type}`}`;
  });
  const words = tool.description.replace(/\s+/g, " ").trim();
  const short = words.length <= 80 ? words : `${words.slice(0, 80).replace(/\s\S*$/, "")}…`;
  return escapeTagsInText(`${tool.name}(${parameters.join(", ")}) ${short}`);
}

export const renderTool = (tool: Tool, style: SchemaStyle): string =>
  style === "json" ? jsonSchemaLine(tool) : compactLine(tool);

/** `<tools>`, one tool a line; notes (a search that found nothing, or failed) are JSON lines after them. */
export function renderTools(tools: Tool[], notes: { query: string; error: string }[], style: SchemaStyle): string {
  const lines = [...tools.map((tool) => renderTool(tool, style)), ...notes.map(json)];
  return `${openTag("tools")}\n${lines.join("\n")}\n${closeTag("tools")}`;
}

/** The first `limit` characters, never half a surrogate pair. */
function head(text: string, limit: number): string {
  const last = text.charCodeAt(limit - 1);
  return text.slice(0, last >= 0xd800 && last <= 0xdbff ? limit - 1 : limit);
}

/** Cuts text to at most `limit` characters, and says how long it was. */
export const clip = (text: string, limit: number): string =>
  text.length <= limit ? text : `${head(text, limit)}… [clipped, ${text.length} characters in all]`;

/** What is left of a response at each level of shortening: items of a list, characters of a text, levels of nesting. Lists give way last. */
const SHORTER = [
  { items: 50, chars: 500, depth: 6 },
  { items: 50, chars: 200, depth: 4 },
  { items: 50, chars: 100, depth: 3 },
  { items: 20, chars: 100, depth: 3 },
  { items: 20, chars: 60, depth: 2 },
  { items: 10, chars: 100, depth: 3 },
  { items: 10, chars: 60, depth: 2 },
  { items: 5, chars: 100, depth: 3 },
  { items: 5, chars: 60, depth: 2 },
  { items: 2, chars: 60, depth: 2 },
  { items: 1, chars: 60, depth: 1 },
];

function shortened(value: Json, to: { items: number; chars: number; depth: number }, depth = 0): Json {
  if (typeof value === "string")
    return value.length <= to.chars ? value : `${head(value, to.chars)}… [${value.length} characters]`;
  if (Array.isArray(value)) {
    if (depth > to.depth && value.length > 0) return `… [${value.length} items]`;
    const kept = value.slice(0, to.items).map((item) => shortened(item, to, depth + 1));
    return value.length <= to.items ? kept : [...kept, `… [${value.length - to.items} more items]`];
  }
  if (!isObject(value)) return value;
  const entries = Object.entries(value);
  if (depth > to.depth && entries.length > 0) return `… [${entries.length} fields]`;
  return Object.fromEntries(entries.map(([key, item]) => [key, shortened(item, to, depth + 1)]));
}

/**
 * A response that fits into `limit` characters of JSON: whole if it does, else with long lists, long texts and deep parts shortened, each marked
 * "…" where it is, as little as is needed; as a last resort its clipped text.
 */
export function fitResponse(body: Json, limit: number): Json {
  const text = JSON.stringify(body);
  if (text.length <= limit) return body;
  for (const level of SHORTER) {
    const shorter = shortened(body, level);
    if (JSON.stringify(shorter).length <= limit) return shorter;
  }
  return clip(text, limit);
}

/** One `<tool_response>`, its result within `limit` characters (see fitResponse). */
export const renderResponse = (name: string, body: Json, limit: number): string =>
  block("tool_response", json({ name, result: fitResponse(body, limit) }));
