/**
 * Native function calling as another surface of the same episodes: searching and planning are functions, tools in view are functions, and what
 * the model does with them is written down as a reply of the text protocol, so that one loop, one parser and one reward serve both.
 * Arguments that are no JSON stay as the model wrote them: the parser reports them.
 */
import type {
  ChatCompletionMessageFunctionToolCall,
  ChatCompletionMessageParam,
  ChatCompletionTool,
} from "openai/resources/chat/completions";
import type { Tool } from "../../catalog/types.ts";
import { parseReply } from "../../paraact/parse.ts";
import { escapeTagsInJson, escapeTagsInText } from "../../paraact/tags.ts";
import type { Message } from "../../paraact/types.ts";
import type { Completion } from "./client.ts";

/** Names of our own functions. No tool of a catalogue has a hyphen. */
const SEARCH = "search-tools";
const PLAN = "make-plan";

const text = { type: "string" };
const names = { type: "array", items: text };
const searchFunction: ChatCompletionTool = {
  type: "function",
  function: {
    name: SEARCH,
    description:
      "Finds tools by what they must do. Tools that are found become functions that you can call from the next turn on.",
    parameters: {
      type: "object",
      properties: {
        capability: { ...text, description: "Short name of the missing capability." },
        query: { ...text, description: "What the tool must do." },
      },
      required: ["capability", "query"],
    },
  },
};
const planFunction: ChatCompletionTool = {
  type: "function",
  function: {
    name: PLAN,
    description:
      "States the plan of a phase, in the same turn as its first searches (capacity_slots) or its first calls (available_tools, dependencies, execution_flow).",
    parameters: {
      type: "object",
      properties: {
        subgoals: {
          type: "array",
          items: { type: "object", properties: { id: text, subgoal: text }, required: ["id", "subgoal"] },
        },
        capacity_slots: names,
        available_tools: names,
        dependencies: {
          type: "array",
          items: { type: "object", properties: { from: names, to: text }, required: ["from", "to"] },
        },
        execution_flow: {
          type: "array",
          items: {
            type: "object",
            properties: { step: { type: "integer" }, parallel: names },
            required: ["step", "parallel"],
          },
        },
      },
    },
  },
};

/** What an episode's paradigm lets the model do. */
export interface NativeSurface {
  searches: boolean;
  plans: boolean;
  /** More than one call a turn. */
  parallel: boolean;
}

/** The functions of a turn. */
export function nativeTools(surface: NativeSurface, inView: readonly Tool[]): ChatCompletionTool[] {
  return [
    ...(surface.searches ? [searchFunction] : []),
    ...(surface.plans ? [planFunction] : []),
    ...inView.map(
      ({ name, description, parameters }): ChatCompletionTool => ({
        type: "function",
        function: { name, description, parameters: { ...parameters } },
      }),
    ),
  ];
}

const TAGGED = /<tool_response>(.*?)<\/tool_response>/gs;

/** The episode so far as native messages: each turn's actions as tool calls, each observation as their results. */
export function nativeMessages(messages: readonly Message[], system: string): ChatCompletionMessageParam[] {
  const native: ChatCompletionMessageParam[] = [];
  let open: string[] = [];
  for (const [turn, message] of messages.entries()) {
    if (message.role === "system") native.push({ role: "system", content: system });
    else if (message.role === "user") native.push({ role: "user", content: message.content });
    else if (message.role === "assistant") {
      const reply = parseReply(message.content);
      const calls: ChatCompletionMessageFunctionToolCall[] = [];
      const add = (name: string, args: string): void =>
        void calls.push({ id: `call_${turn}_${calls.length}`, type: "function", function: { name, arguments: args } });
      if (reply.plan) {
        const { kind: _, ...plan } = reply.plan;
        add(PLAN, JSON.stringify(plan));
      }
      for (const query of reply.searches) {
        const colon = query.indexOf(":");
        add(
          SEARCH,
          JSON.stringify({ capability: query.slice(0, Math.max(0, colon)), query: query.slice(colon + 1).trim() }),
        );
      }
      // A call that could not be read is told with empty arguments: servers parse the history, and its result says what was wrong.
      for (const call of reply.calls) add(call?.name ?? "unreadable", JSON.stringify(call?.arguments ?? {}));
      open = calls.map((c) => c.id);
      const content = reply.answers[0] ?? reply.think ?? message.content;
      native.push({ role: "assistant", content, ...(calls.length > 0 ? { tool_calls: calls } : {}) });
    } else {
      const responses = [...message.content.matchAll(TAGGED)].map((m) => m[1] ?? "");
      // A search turn has one observation for all its searches: the last call gets it; what stands before is acknowledged.
      const results = responses.length > 0 ? responses : [message.content];
      const first = open.length - results.length;
      for (const [i, id] of open.entries()) {
        native.push({ role: "tool", tool_call_id: id, content: results[i - Math.max(0, first)] ?? "ok" });
      }
      if (open.length === 0) native.push({ role: "user", content: message.content });
      open = [];
    }
  }
  return native;
}

/** A model's answer as a reply of the text protocol. */
export function replyOf(completion: Completion): string {
  const { toolCalls, content, reasoning } = completion;
  const acts = toolCalls.length > 0;
  const think = escapeTagsInText((reasoning || (acts ? content : "")).trim());
  const head = `<think>${think}</think>`;
  if (!acts) return content.trim() === "" ? head : `${head}<answer>${escapeTagsInText(content.trim())}</answer>`;
  const blocks = toolCalls.map(({ name, arguments: args }) => {
    if (name === PLAN) return `<plan>${escapeTagsInJson(args)}</plan>`;
    if (name === SEARCH) return `<search_tool>${escapeTagsInText(searchText(args))}</search_tool>`;
    return `<tool_call>{"name":${JSON.stringify(name)},"arguments":${escapeTagsInJson(args.trim() === "" ? "{}" : args)}}</tool_call>`;
  });
  return head + blocks.sort((a, b) => Number(b.startsWith("<plan>")) - Number(a.startsWith("<plan>"))).join("");
}

/** "capability: query"; arguments that are no such object are searched as they stand. */
function searchText(args: string): string {
  try {
    const value: unknown = JSON.parse(args);
    if (typeof value === "object" && value !== null && "query" in value) {
      const capability = "capability" in value ? String(value.capability) : "search";
      return `${capability}: ${String(value.query)}`;
    }
  } catch {
    // No JSON: the text itself is the query.
  }
  return args;
}
