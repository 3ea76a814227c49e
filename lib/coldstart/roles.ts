/**
 * The roles that write a demonstration together (method.md section 5): a planner (phases, subgoals), an explorer (slots, queries), an
 * executor (plan, calls, recovery) and the answer's writer, each with its own wording, and with the detours that a real
 * agent takes: a search that misses and is refined, a call that is refused and mended, a plan that is revised. They are scripted here: pure
 * functions of task and seed. The verifier, the last role, is verify.ts.
 */
import { bare, nameWords, plainQuery, plainVoice, type Voice, valueWords } from "../agents/scripted.ts";
import { inOrder, type Standing } from "../agents/solver.ts";
import type { Catalog, Json } from "../catalog/types.ts";
import { escapeTagsInText } from "../paraact/tags.ts";
import { at as atPointer } from "../toolenv/compare.ts";
import type { Fact, GoldCall, Task, ToolCall } from "../toolenv/types.ts";
import { brief, capital, chance, contentWords, draw, listed, pick } from "./wording.ts";

/** What goes differently from the straight way. */
export type Detour = "none" | "miss" | "slip" | "revise" | "alternate";

export interface RoleOptions {
  /** "multi": all roles. "single": one agent with one way of saying things, no subgoals and no detours (an ablation). */
  mode: "multi" | "single";
  /** Share of demonstrations with a detour; each kind that the task allows is as likely as another. */
  detours: number;
  /** Share of demonstrations whose first plan states subgoals. */
  subgoals: number;
  /** "brief": one way of saying each thing, in as few words as can be, for models to which every token is dear. */
  wording: "varied" | "brief";
}

export const defaultRoles: RoleOptions = { mode: "multi", detours: 0.15, subgoals: 0.1, wording: "varied" };

/** Gold calls split where the chain goes on: what can start at once, and the rest. Null where all can. */
function twoPhases(task: Task): [GoldCall[], GoldCall[]] | null {
  const order = inOrder(task);
  const waits = (c: GoldCall): boolean => task.edges.some((e) => e.to === c.id && e.kind === "hard");
  const first = order.filter((c) => !waits(c));
  const rest = order.filter(waits);
  if (rest.length > 0) return [first, rest];
  return order.length > 1 ? [order.slice(0, 1), order.slice(1)] : null;
}

/** Which detour a demonstration takes. */
export function detourOf(task: Task, options: RoleOptions, seed: number): Detour {
  if (options.mode === "single" || chance(seed, "detour?") >= options.detours) return "none";
  const possible: Detour[] = ["miss", "slip"];
  if (twoPhases(task)) possible.push("revise", "alternate");
  return pick(possible, seed, "detour");
}

/** Hard edges into a call, as "argument from tool". */
function needs(task: Task, call: GoldCall): string[] {
  return task.edges
    .filter((e) => e.to === call.id && e.kind === "hard")
    .map((e) => `${e.argument} from ${task.calls.find((c) => c.id === e.from)?.tool ?? e.from}`);
}

/** The voice of the roles for one demonstration. */
export function rolesVoice(task: Task, options: RoleOptions, seed: number, catalog?: Pick<Catalog, "get">): Voice {
  const find = (tool: string, attempt: number): string => plainQuery(task, tool, attempt, catalog);
  if (options.mode === "single")
    return { ...plainVoice, slot: slotOf, query: (_, tool, attempt) => find(tool, attempt) };
  const detour = detourOf(task, options, seed);
  const say = (purpose: string, ...options: string[]): string => escapeTagsInText(pick(options, seed, purpose));
  /** The tool whose first search misses. */
  const missed = detour === "miss" ? pick(task.tools, seed, "missed") : null;
  /** The tool whose first call is refused. */
  const slipped = detour === "slip" ? pick(task.calls, seed, "slipped").tool : null;

  const planner: Pick<Voice, "phases" | "lookAhead" | "subgoals"> = {
    phases: () => (detour === "revise" || detour === "alternate" ? twoPhases(task) : null) ?? [inOrder(task)],
    lookAhead: detour !== "alternate",
    subgoals() {
      if (chance(seed, "subgoals?") >= options.subgoals) return undefined;
      return inOrder(task).map((c, i) => ({ id: `S${i + 1}`, subgoal: slotOf(task, c.tool) }));
    },
  };

  const explorer: Pick<Voice, "slot" | "query" | "thinkSearch"> = {
    slot: slotOf,
    query(_, tool, attempt) {
      if (tool !== missed) return find(tool, attempt);
      // Too few words to find it, then the right ones.
      return attempt === 0 ? escapeTagsInText(contentWords(task.queries[tool] ?? tool, 1)) : find(tool, attempt - 1);
    },
    thinkSearch(s, tools, again) {
      const slots = tools.map((t) => slotOf(task, t));
      if (again)
        return say(
          `again${s.exchanges.length}`,
          `No tool for ${listed(slots)} yet; other words.`,
          `${capital(listed(slots))} not found; search again, more exactly.`,
        );
      if (s.exchanges.length > 0) return say("next", `Now I need ${listed(slots)}.`, `Next: ${listed(slots)}.`);
      if (slots.length === 1)
        return say("one", `I need a tool: ${slots[0]}.`, `One thing to find: ${slots[0]}.`, `Missing: ${slots[0]}.`);
      return say(
        "many",
        `I need ${slots.length} tools: ${listed(slots)}.`,
        `Missing: ${listed(slots)}.`,
        `To find: ${listed(slots)}, all at once.`,
      );
    },
  };

  const executor: Pick<Voice, "thinkPlan" | "thinkCalls" | "slip"> = {
    thinkPlan(s, calls) {
      const waiting = calls.flatMap((c) => {
        const from = needs(task, c).filter((n) => calls.some((o) => n.endsWith(` from ${o.tool}`)));
        return from.length > 0 ? [`${c.tool} needs ${listed(from)}`] : [];
      });
      const unique = [...new Set(waiting)];
      const names = [...new Set(calls.map((c) => c.tool))];
      if (s.inPhase.length > 0)
        return say("revise", `That is done; now ${listed(names)}.`, `The plan goes on with ${listed(names)}.`);
      if (unique.length > 0) return escapeTagsInText(`${unique.slice(0, 3).join("; ")}.`);
      if (calls.length === 1) return say("fits", `${names[0]} fits.`, `${names[0]} does it.`);
      return say("parallel", `${listed(names)} are independent: together.`, `${listed(names)}, side by side.`);
    },
    thinkCalls(s, calls) {
      const failed = s.justFailed[0];
      if (failed)
        return say(
          `retry${s.exchanges.length}`,
          `${failed.tool} failed for now; again.`,
          `A passing fault of ${failed.tool}; the same call again.`,
        );
      if (s.exchanges.at(-1)?.reply.calls.some((c) => c && s.strays.has(c.name)))
        return say("mend", "The call was refused; I mend the arguments.", "An argument was missing; now complete.");
      const values = carried(s, calls);
      if (values.length > 0) return escapeTagsInText(`${values.slice(0, 3).join("; ")}.`);
      return say(
        `go${s.exchanges.length}`,
        `Next: ${listed(calls.map((c) => c.name))}.`,
        `Now ${listed(calls.map((c) => c.name))}.`,
      );
    },
    slip(_, call, attempt) {
      if (call.name !== slipped || attempt > 0) return null;
      const keys = Object.keys(call.arguments);
      if (keys.length === 0) return null;
      const left = { ...call.arguments };
      delete left[keys[draw(seed, "left out") % keys.length]!];
      return { name: call.name, arguments: left };
    },
  };

  const writer: Pick<Voice, "thinkAnswer" | "answer"> = {
    thinkAnswer: () => say("done", "All is known.", "Everything asked for is there.", "Nothing is missing; answer."),
    answer: (s, facts) => writeAnswer(s, facts, seed),
  };
  const voice = { ...planner, ...explorer, ...executor, ...writer };
  return options.wording === "brief" ? { ...voice, ...briefVoice } : voice;
}

/** Label and value, the label as the request has it: small models copy it, and a capital would be another token. */
export function briefAnswer(facts: readonly (readonly [label: string, values: readonly Json[]])[]): string {
  return `${facts.map(([label, values]) => `${label}: ${values.map(valueWords).join(", ")}`).join("; ")}.`;
}

/** Thoughts of two or three words that name what kind of step comes next, and answers that are label and value. */
const briefVoice: Pick<Voice, "subgoals" | "thinkSearch" | "thinkPlan" | "thinkCalls" | "thinkAnswer" | "answer"> = {
  subgoals: () => undefined,
  thinkSearch: (s, tools, again) =>
    again ? "Other words." : s.exchanges.length > 0 ? "Find more." : `Find ${tools.length}.`,
  thinkPlan(s, calls) {
    if (s.inPhase.length > 0) return "New plan.";
    if (calls.length === 1) return "One call.";
    return calls.some((c) => needs(s.task, c).length > 0) ? "Step by step." : "Side by side.";
  },
  thinkCalls: (s) => (s.justFailed.length > 0 ? "Again." : "Next step."),
  thinkAnswer: () => "Done.",
  answer(s, facts) {
    const groups = new Map<string, Json[]>();
    for (const { fact, value } of facts) {
      const label = bare(fact.label).split(" of ")[0]!;
      const list = groups.get(label) ?? [];
      groups.set(label, [...list, value ?? "not found"]);
    }
    return groups.size > 0 ? escapeTagsInText(briefAnswer([...groups])) : plainVoice.answer(s, facts);
  },
};

/** A capability's short name: what its query is about, without where ("… in Mailchimp"). */
function slotOf(task: Task, tool: string): string {
  const query = task.queries[tool] ?? nameWords(tool);
  return escapeTagsInText(contentWords(query.replace(/ (?:in|at|on|from|with) \p{Lu}.*$/u, ""), 3));
}

/** Values that the calls take over from responses: "id is 17". */
function carried(s: Standing, calls: readonly ToolCall[]): string[] {
  return s.task.edges.flatMap((e) => {
    const to = s.task.calls.find((c) => c.id === e.to);
    const value = atPointer(s.results.get(e.from), e.pointer);
    if (e.kind !== "hard" || !to || value === undefined) return [];
    return calls.some((c) => c.name === to.tool && String(c.arguments[e.argument]) === String(value))
      ? [`${e.argument} is ${brief(value)}`]
      : [];
  });
}

/** The facts as sentences, in the order of the task. */
function writeAnswer(s: Standing, facts: { fact: Fact; value: Json | undefined }[], seed: number): string {
  const form = draw(seed, "answer") % 3;
  const sentences = facts.map(({ fact, value }) => {
    const label = bare(fact.label);
    if (value === undefined) return `I could not find the ${label}.`;
    if (form === 1) return `${capital(label)}: ${valueWords(value)}.`;
    return `The ${label} is ${valueWords(value)}.`;
  });
  return sentences.length > 0 ? escapeTagsInText(sentences.join(" ")) : plainVoice.answer(s, facts);
}
