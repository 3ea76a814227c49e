/** Exact verdicts on an episode of a task (method.md sections 4 and 6): no model is asked. */
import type { Json } from "../catalog/types.ts";
import { canonicalJson } from "../config/hash.ts";
import { at, Evidence, sameValue, scalars, states } from "./compare.ts";
import type { CallOutcome, Fact, GoldCall, Task, ToolCall, Verdicts, Write } from "./types.ts";
import { normal } from "./words.ts";
import { callKey } from "./world.ts";

/** A call as an episode made it. */
export interface MadeCall {
  call: ToolCall;
  outcome: CallOutcome;
  /** The response body before any clipping. */
  body: Json;
}
export interface Episode {
  /** null: no answer was given. */
  answer: string | null;
  calls: readonly MadeCall[];
  /** What the session changed, in canonical order. */
  writes: readonly Write[];
}

const leaf = (pointer: string) =>
  normal(
    pointer
      .split("/")
      .filter((p) => !/^\d+$/.test(p))
      .at(-1) ?? "",
  );

/** Whether a call is the gold one: the same tool with the same arguments. */
const sameCall = (made: MadeCall, gold: GoldCall): boolean =>
  made.call.name === gold.tool &&
  (made.call.arguments === gold.arguments ||
    callKey(made.call.name, made.call.arguments) === callKey(gold.tool, gold.arguments));

/** Whether a body shows a value under a member of that name. */
function shows(body: Json, name: string, value: Json): boolean {
  for (const s of scalars(body)) if (sameValue(s.value, value) && leaf(s.pointer) === name) return true;
  return false;
}

/** Whether the fact's reading was made: the gold call itself, or another call that shows the same value under the same name. */
function observed(task: Task, fact: Fact, ok: readonly MadeCall[]): boolean {
  const gold = task.calls.find((c) => c.id === fact.source);
  return ok.some((m) =>
    gold && sameCall(m, gold)
      ? sameValue(at(m.body, fact.pointer) ?? null, fact.value)
      : shows(m.body, leaf(fact.pointer), fact.value),
  );
}

/** Whether a value that a later call takes was read somewhere before it was used. */
function carried(task: Task, ok: readonly MadeCall[]): string | null {
  for (const edge of task.edges) {
    if (edge.kind !== "hard") continue;
    const to = task.calls.find((c) => c.id === edge.to);
    const value = to?.arguments[edge.argument];
    if (!to || value === undefined) continue;
    const used = ok.findIndex((m) => sameCall(m, to));
    const before = used < 0 ? ok : ok.slice(0, used);
    const seen = before.some((m) => {
      const given = new Set(scalars(m.call.arguments).map((s) => String(s.value)));
      return (
        !given.has(String(value)) &&
        scalars(m.body).some((s) => String(s.value) === String(value) || sameValue(s.value, value))
      );
    });
    if (!seen) return `the ${edge.argument} of ${to.tool} was not read from any response before it was used`;
  }
  return null;
}

const asText = (w: Write) => `${w.kind} ${w.resource} ${w.id} ${canonicalJson(w.values)}`;

/** Differences between the writes that a task expects and those that an episode made. */
function stateFindings(expected: readonly Write[], made: readonly Write[]): string[] {
  const left = made.map(asText);
  const out: string[] = [];
  for (const w of expected) {
    const i = left.indexOf(asText(w));
    if (i < 0) out.push(`missing: ${w.kind} ${w.resource} ${w.id}`);
    else left.splice(i, 1);
  }
  return [...out, ...left.map((t) => `extra: ${t.slice(0, 120)}`)];
}

/** Whether the exact verdicts on an episode are all 1: what costs least is looked at first. */
export function isPerfect(task: Task, episode: Episode): boolean {
  const answer = episode.answer ?? "";
  if (answer.trim() === "" || task.facts.some((f) => !states(answer, f.value, f.accepted))) return false;
  if (stateFindings(task.writes, episode.writes).length) return false;
  const ok = episode.calls.filter((c) => c.outcome === "ok");
  return (
    missingWrites(task, ok) === null &&
    task.facts.every((f) => observed(task, f, ok)) &&
    carried(task, ok) === null &&
    evidenceOf(task, episode).unsupported(answer).length === 0
  );
}

/** What the answer of an episode may say. The words that name what was asked for are no claims. */
function evidenceOf(task: Task, episode: Episode): Evidence {
  return new Evidence(
    [task.request, ...task.facts.map((f) => f.label)].join("\n"),
    episode.calls.map((c) => c.body),
  );
}

/**
 * Utility: every fact of the gold reads was observed, and every value that a later call needs was read before.
 * Quality: every fact is in the answer and the final state is the expected one, with no other write.
 * Faithfulness: no identifier, number, date or name in the answer that the request and the observations lack.
 */
export function judgeExact(task: Task, episode: Episode): Verdicts {
  const ok = episode.calls.filter((c) => c.outcome === "ok");
  const unread = task.facts.filter((f) => !observed(task, f, ok));
  const broken = carried(task, ok);
  const answer = episode.answer ?? "";
  const unsaid = task.facts.filter((f) => !states(answer, f.value, f.accepted));
  const state = stateFindings(task.writes, episode.writes);
  const invented = evidenceOf(task, episode).unsupported(answer);
  const given = answer.trim() !== "";
  const utility = unread.length === 0 && broken === null && missingWrites(task, ok) === null;
  return {
    quality: given && unsaid.length === 0 && state.length === 0 ? 1 : 0,
    faithfulness: given && invented.length === 0 ? 1 : 0,
    utility: utility ? 1 : 0,
    reasons: {
      quality: !given
        ? "no answer was given"
        : unsaid.length
          ? `the answer lacks ${unsaid.map((f) => `${f.label} (${JSON.stringify(f.value)})`).join(", ")}`
          : state.length
            ? `the final state differs: ${state.join("; ")}`
            : "every requested fact is in the answer and the final state is the expected one",
      faithfulness: !given
        ? "no answer was given"
        : invented.length
          ? `not in the request or the observations: ${invented.slice(0, 8).join(", ")}`
          : "everything that the answer states was given or observed",
      utility: unread.length
        ? `not observed: ${unread.map((f) => f.label).join(", ")}`
        : (broken ?? missingWrites(task, ok) ?? "the observations cover everything that was asked for"),
    },
    judge: "exact",
  };
}

/** A gold write that was never carried out, in words, or null. */
function missingWrites(task: Task, ok: readonly MadeCall[]): string | null {
  if (!task.writes.length) return null;
  const read = new Set(task.facts.map((f) => f.source));
  const feeds = new Set(task.edges.map((e) => e.from));
  // Gold calls that give no fact and feed nothing are there for their effect.
  for (const c of task.calls)
    if (!read.has(c.id) && !feeds.has(c.id) && !ok.some((m) => sameCall(m, c)))
      return `${c.tool} was not carried out as asked`;
  return null;
}
