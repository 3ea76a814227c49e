/**
 * A task's request in a language model's words. The wording is taken only where it still says every value and gives nothing away;
 * otherwise the scripted request stays.
 */
import type { Catalog } from "../../catalog/types.ts";
import { Evidence, states } from "../compare.ts";
import { flaw } from "../solve.ts";
import type { Task } from "../types.ts";
import { splitWords } from "../words.ts";
import type { World } from "../world.ts";
import { withId } from "./draft.ts";
import { brand } from "./speech.ts";

export const PARAPHRASE_PROMPT = `You rewrite requests that people send to an assistant. Say the same in other words, as a busy person would type it: another order, another tone, contractions, one or two sentences more or less.
- Keep every name, identifier, number, date and address exactly as it is written, character for character; keep quotation marks around quoted names.
- Ask for exactly the same things, no more and no fewer, and keep what depends on what.
- Do not answer the request, do not invent details, do not mention tools, functions or APIs.
Answer with the rewritten request and nothing else.`;

/** Values that a request states: arguments that no response gives, names in quotation marks, and codes, numbers and addresses. */
function statedValues(task: Task): Set<string> {
  const carried = new Set(task.edges.flatMap((e) => (e.kind === "hard" ? [`${e.to} ${e.argument}`] : [])));
  const out = new Set<string>();
  for (const c of task.calls)
    for (const [k, v] of Object.entries(c.arguments)) if (!carried.has(`${c.id} ${k}`)) out.add(String(v));
  for (const m of task.request.matchAll(/"([^"]+)"/g)) out.add(m[1] as string);
  for (const m of task.request.replace(/"[^"]+"/g, " ").matchAll(/[^\s"]*[\d@][^\s"]*/g)) {
    const bare = m[0].replace(/^[(]+|[.,;:!?)]+$/g, "");
    // The numbers of a list ("2)") are no values.
    if (bare !== "" && !/^\d\)$/.test(m[0])) out.add(bare);
  }
  return out;
}

/** Whether a text holds a value as it is, not as a part of a longer word or number. */
function holds(text: string, value: string): boolean {
  const inside = /[\p{L}\p{N}_]/u;
  for (let i = text.indexOf(value); i >= 0; i = text.indexOf(value, i + 1))
    if (!inside.test(text[i - 1] ?? " ") && !inside.test(text[i + value.length] ?? " ")) return true;
  return false;
}

/** Whether a text still speaks of what is asked and of the service that it is asked of: one word of each, however inflected. */
function asks(catalog: Catalog, task: Task, text: string): boolean {
  const lower = text.toLowerCase();
  const services = new Set(task.tools.flatMap((t) => catalog.get(t) ?? []).map(brand));
  for (const s of services) if (task.request.includes(s) && !holds(lower, s.toLowerCase())) return false;
  return task.facts.every((f) =>
    f.label
      .split(" of ")[0]
      ?.split(" ")
      .some((w) => lower.includes(w.toLowerCase().slice(0, 4))),
  );
}

/** What speaks against a wording of a task's request, or null: `value` lacks a value, `tool` names one, `answer` gives something away, `invented` says what nobody said, `ask` drops a question or the service, `form`. */
export type Refusal = "form" | "value" | "ask" | "tool" | "answer" | "invented" | "judge";
export function refusal(catalog: Catalog, task: Task, text: string): Refusal | null {
  if (text === "" || text === task.request || text.length > 2 * task.request.length + 200 || /<[a-z_]+>/.test(text))
    return "form";
  for (const v of statedValues(task)) if (!holds(text, v)) return "value";
  if (!asks(catalog, task, text)) return "ask";
  const lower = text.toLowerCase();
  if (task.tools.some((t) => splitWords(t).length > 1 && (lower.includes(t) || lower.includes(t.replace(/_/g, "")))))
    return "tool";
  for (const e of task.edges) {
    const value = task.calls.find((c) => c.id === e.to)?.arguments[e.argument];
    if (e.kind === "hard" && value !== undefined && holds(text, String(value))) return "answer";
  }
  if (task.facts.some((f) => states(text, f.value, f.accepted) && !states(task.request, f.value, f.accepted)))
    return "answer";
  const known = new Evidence([task.request, ...task.facts.map((f) => f.label)].join("\n"), []);
  return known.unsupported(text).length ? "invented" : null;
}

/**
 * The task in the words that `say` answers to a system prompt and the request, with an id of its own; or as it was, with what
 * spoke against them. `say` may throw: that is the caller's.
 */
export async function paraphrased(
  catalog: Catalog,
  world: World,
  task: Task,
  say: (system: string, user: string) => Promise<string>,
): Promise<{ task: Task; refused: Refusal | null }> {
  const said = (await say(PARAPHRASE_PROMPT, task.request)).replace(/^\s*<think>.*?<\/think>/s, "").trim();
  const refused = refusal(catalog, task, said);
  if (refused) return { task, refused };
  const { id: _, ...body } = task;
  const other = withId({ ...body, request: said });
  return flaw(catalog, world, other) ? { task, refused: "judge" } : { task: other, refused: null };
}
