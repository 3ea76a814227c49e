/** What the two lower bounds share: three turns (search, call, answer) in the protocol, with a plan where the controller requires one. */
import type { Json } from "../catalog/types.ts";
import { isObject } from "../paraact/json.ts";
import type { Reply } from "../paraact/parse.ts";
import { renderReply } from "../paraact/render.ts";
import { escapeTagsInText } from "../paraact/tags.ts";
import type { PolicyReply, PolicyRequest } from "../paraact/types.ts";
import type { ToolCall } from "../toolenv/types.ts";

/** One search, with the plan that it needs. */
export function searchReply(request: PolicyRequest, think: string, query: string): Reply {
  const text = escapeTagsInText(query);
  const plan =
    request.planSlots?.search === "required" ? { kind: "exploration" as const, capacity_slots: ["tool"] } : null;
  return { kind: "search", think, plan, searches: [`tool: ${text}`] };
}

/** One call, with the plan that it needs. */
export function callReply(request: PolicyRequest, think: string, call: ToolCall): Reply {
  const plan =
    request.planSlots?.call === "required"
      ? {
          kind: "execution" as const,
          available_tools: [call.name],
          dependencies: [],
          execution_flow: [{ step: 1, parallel: [call.name] }],
        }
      : null;
  return { kind: "call", think, plan, calls: [call] };
}

export function answerReply(think: string, answer: string): Reply {
  return { kind: "answer", think, answer: escapeTagsInText(answer) };
}

/** A scripted reply costs no tokens; its usage is marked as an estimate. */
export function scriptedReply(reply: Reply): PolicyReply {
  return { text: renderReply(reply), finish: "stop", usage: { promptTokens: 0, completionTokens: 0, estimated: true } };
}

/** Scalars of a response with the words of their places, e.g. ["customer name", "Ada"]. */
export function leaves(value: Json, path: readonly string[] = []): [string, string | number | boolean][] {
  if (Array.isArray(value)) return value.flatMap((v) => leaves(v, path));
  if (isObject(value)) return Object.entries(value).flatMap(([k, v]) => leaves(v, [...path, k]));
  return value === null ? [] : [[path.slice(-2).join(" ").replaceAll("_", " "), value]];
}
