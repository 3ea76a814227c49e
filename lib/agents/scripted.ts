/**
 * Scripted policies that know the gold plan: the upper bound of each paradigm. They write real replies from what the conversation
 * shows: values that only a response gives are read there, faults are met and retried. What is said, and which detours are taken, is a `Voice`'s
 * business; the cold start's roles are voices.
 */
import type { Catalog, Json } from "../catalog/types.ts";
import { openingMessage } from "../paraact/conversation.ts";
import type { Reply } from "../paraact/parse.ts";
import { renderReply } from "../paraact/render.ts";
import { escapeTagsInText } from "../paraact/tags.ts";
import type { Message, Policy, PolicyRequest, Subgoal } from "../paraact/types.ts";
import type { Fact, GoldCall, Task, ToolCall } from "../toolenv/types.ts";
import { inOrder, knownFacts, openCalls, planOf, readyCalls, type Standing, standing } from "./solver.ts";

/** What is said at each point of an episode. `attempt` counts from 0. */
export interface Voice {
  /** Which gold calls are worked on in which phase; all at once by default. */
  phases(task: Task): GoldCall[][];
  /** Whether the first exploration looks for the tools of all phases. */
  lookAhead: boolean;
  subgoals(task: Task): Subgoal[] | undefined;
  slot(task: Task, tool: string): string;
  query(task: Task, tool: string, attempt: number): string;
  thinkSearch(s: Standing, tools: string[], missed: boolean): string;
  thinkPlan(s: Standing, calls: GoldCall[]): string;
  thinkCalls(s: Standing, calls: ToolCall[]): string;
  thinkAnswer(s: Standing): string;
  answer(s: Standing, facts: { fact: Fact; value: Json | undefined }[]): string;
  /** A call as first written, where it is written wrongly; null for a right one. */
  slip(s: Standing, call: ToolCall, attempt: number): ToolCall | null;
}

/** "invoices_list_by_customer" → "invoices list by customer". */
export function nameWords(tool: string): string {
  return tool.replaceAll("_", " ").trim();
}

/** A value as an answer gives it. */
export function valueWords(value: Json): string {
  if (typeof value === "string") return value;
  if (value === null) return "empty";
  if (typeof value === "boolean") return value ? "true" : "false";
  return Array.isArray(value) ? value.map(valueWords).join(", ") : JSON.stringify(value);
}

/** The searches tried for a tool, one after the other: the task's query, then the tool's name in words, its description, all together. */
export function plainQuery(task: Task, tool: string, attempt: number, catalog?: Pick<Catalog, "get">): string {
  const query = task.queries[tool] ?? nameWords(tool);
  const row = catalog?.get(tool);
  const description = row?.description.split(/\s+/).slice(0, 16).join(" ") ?? "";
  const api = (row?.api ?? task.providers[0] ?? "").replace(/[^a-z0-9]+/gi, " ");
  const name = nameWords(tool);
  const parameters = Object.keys(row?.parameters.properties ?? {}).join(" ");
  const ladder = [
    query,
    name,
    `${description} ${api}`,
    `${name} ${description}`,
    `${name} ${parameters}`,
    `${name} ${query}`,
  ];
  return escapeTagsInText(ladder[attempt % ladder.length]!.trim() || query);
}

/** Few words, always the same. */
export const plainVoice: Voice = {
  phases: (task) => [inOrder(task)],
  lookAhead: true,
  subgoals: () => undefined,
  slot: (_, tool) => nameWords(tool),
  query: plainQuery,
  thinkSearch: (_, tools, missed) =>
    missed ? "Not found yet; search with other words." : `Missing: ${tools.map(nameWords).join("; ")}.`,
  thinkPlan: (_, calls) => `Call ${calls.map((c) => c.tool).join(", ")}.`,
  thinkCalls: (s) => (s.justFailed.length > 0 ? "A call failed; try it again." : "Go on with the plan."),
  thinkAnswer: () => "All that can be known is known.",
  answer(_, facts) {
    const known = facts.map(({ fact, value }) =>
      value === undefined ? `I could not find ${fact.label}.` : `The ${bare(fact.label)} is ${valueWords(value)}.`,
    );
    return escapeTagsInText(known.length > 0 ? known.join(" ") : "It is done.");
  },
  slip: () => null,
};

/** A label without its article. */
export function bare(label: string): string {
  return label.replace(/^(the|an?)\s+/i, "");
}

/** Searches for one tool before it is taken to be out of reach. */
const MAX_SEARCHES = 6;

/** Searches made for each tool so far, by what a voice writes. */
function searchesMade(s: Standing, voice: Voice): Map<string, number> {
  const made = new Map<string, number>();
  for (const query of s.exchanges.flatMap((e) => e.reply.searches)) {
    for (const tool of s.task.tools) {
      const n = made.get(tool) ?? 0;
      if (query === `${voice.slot(s.task, tool)}: ${voice.query(s.task, tool, n)}`) made.set(tool, n + 1);
    }
  }
  return made;
}

function search(s: Standing, voice: Voice, tool: string, made: ReadonlyMap<string, number>): string {
  return `${voice.slot(s.task, tool)}: ${voice.query(s.task, tool, made.get(tool) ?? 0)}`;
}

/** Writes ready calls, slips included. */
function written(s: Standing, voice: Voice, calls: ToolCall[]): ToolCall[] {
  return calls.map((call) => voice.slip(s, call, s.strays.get(call.name) ?? 0) ?? call);
}

function answerReply(s: Standing, voice: Voice): Reply {
  return { kind: "answer", think: voice.thinkAnswer(s), answer: voice.answer(s, knownFacts(s)) };
}

/**
 * The next ParaAct reply: one search a missing tool, a plan where the controller requires one (`due`), all ready calls, an answer when
 * nothing is open.
 */
export function paraactReply(
  s: Standing,
  voice: Voice,
  due: { search: boolean; call: boolean },
  readyTools: readonly string[] = [],
): Reply {
  const { task } = s;
  const made = searchesMade(s, voice);
  const unfound = new Set(task.tools.filter((t) => !s.inView.has(t) && (made.get(t) ?? 0) >= MAX_SEARCHES));
  const open = openCalls(s, unfound);
  const group = voice.phases(task).find((calls) => calls.some((c) => open.includes(c))) ?? [];
  const todo = group.filter((c) => open.includes(c));
  if (todo.length === 0) return answerReply(s, voice);
  const wanted = voice.lookAhead ? open : todo;
  const missing = [...new Set(wanted.map((c) => c.tool).filter((t) => !s.inView.has(t)))];
  if (missing.length > 0) {
    const missed = s.exchanges.at(-1)?.reply.kind === "search";
    const subgoals = s.exchanges.length === 0 ? voice.subgoals(task) : undefined;
    return {
      kind: "search",
      think: voice.thinkSearch(s, missing, missed),
      plan: due.search
        ? {
            kind: "exploration",
            ...(subgoals ? { subgoals } : {}),
            capacity_slots: missing.map((t) => voice.slot(task, t)),
          }
        : null,
      searches: missing.map((t) => search(s, voice, t, made)),
    };
  }
  // Layers of one tool wait for each other: while an earlier call is tried again, a later one of the same tool is not ready.
  const room = [...readyTools];
  const possible = readyCalls(s, todo);
  const ready = possible.filter(({ name }) => {
    const at = room.indexOf(name);
    if (at >= 0) room.splice(at, 1);
    return due.call || at >= 0;
  });
  // What the plan holds no place for any more (it failed for good) is tried outside it.
  const calls = ready.length > 0 ? ready : possible;
  return {
    kind: "call",
    think: due.call ? voice.thinkPlan(s, todo) : voice.thinkCalls(s, calls),
    plan: due.call ? planOf(task, todo, s.inPhase) : null,
    calls: written(s, voice, calls),
  };
}

/** The next flat reply: one search or one call a turn. With `canSearch` false (ETE) what was not retrieved stays out of reach. */
export function flatReply(s: Standing, voice: Voice, canSearch: boolean): Reply {
  const { task } = s;
  const made = searchesMade(s, voice);
  const unfound = new Set(
    task.tools.filter((t) => !s.inView.has(t) && (!canSearch || (made.get(t) ?? 0) >= MAX_SEARCHES)),
  );
  const open = openCalls(s, unfound);
  const next = open[0];
  if (!next) return answerReply(s, voice);
  if (!s.inView.has(next.tool)) {
    return {
      kind: "search",
      think: voice.thinkSearch(s, [next.tool], (made.get(next.tool) ?? 0) > 0),
      plan: null,
      searches: [search(s, voice, next.tool, made)],
    };
  }
  const calls = readyCalls(s, [next]);
  return { kind: "call", think: voice.thinkCalls(s, calls), plan: null, calls: written(s, voice, calls) };
}

export type ScriptedParadigm = "paraact" | "eae" | "ete";

/** A task has no script: its request is not among those that the policy was given. */
export class UnknownTask extends Error {
  override name = "UnknownTask";
}

/**
 * A policy that solves these tasks in a paradigm. It finds its task by the request's text in the first user message. With the catalogue it
 * can search for a tool by its description where the task's own query does not show it.
 */
export function scriptedPolicy(
  paradigm: ScriptedParadigm,
  tasks: Iterable<Task>,
  options: { voiceOf?: (task: Task) => Voice; catalog?: Pick<Catalog, "get"> } = {},
): Policy {
  const plain: Voice = {
    ...plainVoice,
    query: (task, tool, attempt) => plainQuery(task, tool, attempt, options.catalog),
  };
  const voiceOf = options.voiceOf ?? (() => plain);
  const byRequest = new Map([...tasks].map((task) => [openingMessage(task.request, undefined), task]));
  return {
    name: `scripted-${paradigm}`,
    async reply(request: PolicyRequest) {
      const task = byRequest.get(requestText(request.messages));
      if (!task) throw new UnknownTask("No script for this request; give scriptedPolicy the task that is played.");
      const s = standing(task, request.messages, request.toolsInView);
      const voice = voiceOf(task);
      const due = {
        search: request.planSlots?.search === "required",
        call: request.planSlots?.call === "required",
      };
      const reply =
        paradigm === "paraact"
          ? paraactReply(s, voice, due, request.readyTools)
          : flatReply(s, voice, paradigm === "eae");
      const text = renderReply(reply);
      return { text, finish: "stop", usage: { promptTokens: 0, completionTokens: 0, estimated: true } };
    },
  };
}

/** The user's request as the first user message shows it, without the tools that ETE adds. */
export function requestText(messages: readonly Message[]): string {
  const first = messages.find((m) => m.role === "user")?.content ?? "";
  return first.split("\n<tools>")[0]!;
}
