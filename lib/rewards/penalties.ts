/** The three penalties of the trajectory channel (method.md section 4), before scaling. */
import { isFinalFailure } from "../paraact/controller.ts";
import { callIdentity, normalName } from "../paraact/json.ts";
import { parseReply } from "../paraact/parse.ts";
import { renderPlan } from "../paraact/render.ts";
import type { Trajectory } from "../paraact/types.ts";
import type { ToolCall } from "../toolenv/types.ts";
import type { RewardConstants } from "./constants.ts";
import { type RewardReference, valueInRequest } from "./reference.ts";
import type { RewardTerm } from "./types.ts";

/** Protocol: for each of search then answer with no call; calls with no search; an answer with neither. A block counts, dispatched or not. */
export function pProtocol(trajectory: Trajectory, c: RewardConstants): RewardTerm {
  const replies = trajectory.turns.map((turn) => parseReply(turn.reply));
  const searched = trajectory.opening !== undefined || replies.some((reply) => reply.searches.length > 0);
  const called = replies.some((reply) => reply.calls.length > 0);
  const answered = replies.some((reply) => reply.answers.length > 0);
  const breaches = [
    searched && answered && !called ? "searched and answered without a call" : null,
    called && !searched ? "called without a search" : null,
    answered && !searched && !called ? "answered without a search or a call" : null,
  ].filter((breach) => breach !== null);
  return {
    name: "protocol",
    symbol: "P_protocol",
    value: c.protocol * breaches.length,
    reason: breaches.length > 0 ? breaches.join("; ") : "searches, calls and answer come together",
  };
}

/** One thing that was done, for counting repeats: what it is, and how it failed, if it did. */
interface Deed {
  key: string;
  failed: "transient" | "final" | null;
}

/**
 * Repeats over turns: each time that a thing is done again, less one free repeat of the same thing where `free` allows it, judged by how
 * its earlier attempts failed. Things of one turn are done at once, so their order does not matter.
 */
function countRepeats(turns: Deed[][], free: (earlier: Deed[]) => boolean): number {
  const history = new Map<string, Deed[]>();
  const freed = new Set<string>();
  let repeats = 0;
  for (const turn of turns) {
    const done = new Map<string, Deed[]>();
    for (const deed of turn) done.set(deed.key, [...(done.get(deed.key) ?? []), deed]);
    for (const [key, deeds] of done) {
      const earlier = history.get(key) ?? [];
      let again = deeds.length - (earlier.length > 0 ? 0 : 1);
      if (again > 0 && !freed.has(key) && free(earlier)) {
        freed.add(key);
        again--;
      }
      repeats += again;
      history.set(key, [...earlier, ...deeds]);
    }
  }
  return repeats;
}

/** Accepted plans with the same content as an earlier one. A plan that was not accepted is the step channel's matter. */
export const repeatedPlans = (trajectory: Trajectory): number =>
  countRepeats(
    trajectory.turns.map((turn) => {
      if (turn.plan === null || turn.planEvent === "none" || turn.planEvent === "rejected") return [];
      return [{ key: normalName(renderPlan(turn.plan)), failed: null }];
    }),
    () => false,
  );

/** Searches with the same words again. One retry of a search that failed transiently is free. */
export const repeatedSearches = (trajectory: Trajectory): number =>
  countRepeats(
    trajectory.turns.map((turn) => turn.searches.map(({ query, failed }) => ({ key: normalName(query), failed }))),
    (earlier) => earlier.some((deed) => deed.failed === "transient"),
  );

/** The same call (name and arguments) again. One repeat is free; a repeat of a call that failed for good is not. */
export const repeatedCalls = (trajectory: Trajectory): number =>
  countRepeats(
    trajectory.turns.map((turn) =>
      turn.calls.flatMap(({ call, outcome }): Deed[] => {
        if (call === null) return [];
        const final = isFinalFailure(outcome) || outcome === "invalid";
        return [{ key: callIdentity(call), failed: final ? "final" : outcome === "transient" ? "transient" : null }];
      }),
    ),
    (earlier) => !earlier.some((deed) => deed.failed === "final"),
  );

/** Repetition: for plans, searches and calls each 0.2·min(1, repeats/7). */
export function pRepetition(trajectory: Trajectory, c: RewardConstants): RewardTerm {
  const term = (name: string, repeats: number): RewardTerm => ({
    name,
    symbol: `P_repetition[${name}]`,
    value: c.repetition * Math.min(1, repeats / c.repeatsForMost),
    reason: `${repeats} repeats`,
  });
  const parts = [
    term("plans", repeatedPlans(trajectory)),
    term("searches", repeatedSearches(trajectory)),
    term("calls", repeatedCalls(trajectory)),
  ];
  const value = parts.reduce((total, part) => total + part.value, 0);
  return { name: "repetition", symbol: "P_repetition", value, reason: "plans + searches + calls", parts };
}

/**
 * Order: 0.3·(violated hard pairs / hard pairs present). Present: both tools were called. Violated: dependent calls in one turn and never in
 * order, unless the value was already in the user's request.
 */
export function pOrder(trajectory: Trajectory, reference: RewardReference, c: RewardConstants): RewardTerm {
  const turns = trajectory.turns.map((turn) => turn.calls.flatMap(({ call }) => (call ? [call] : [])));
  const at = (tool: string): { call: ToolCall; turn: number }[] =>
    turns.flatMap((calls, turn) =>
      calls.filter((call) => normalName(call.name) === normalName(tool)).map((call) => ({ call, turn })),
    );
  let present = 0;
  const violated: string[] = [];
  for (const edge of reference.hard) {
    const sources = at(edge.from);
    const targets = at(edge.to);
    const self = normalName(edge.from) === normalName(edge.to);
    if (sources.length === 0 || targets.length < (self ? 2 : 1)) continue;
    present++;
    const inOrder = targets.some((to) => sources.some((from) => from.turn < to.turn));
    const together = targets.filter((to) => sources.some((from) => from.turn === to.turn && from.call !== to.call));
    const waited = together.filter(
      ({ call }) => !valueInRequest(call, edge, trajectory.request, reference.requestValues ?? []),
    );
    if (!inOrder && waited.length > 0) violated.push(`${edge.from} and ${edge.to}`);
  }
  return {
    name: "order",
    symbol: "P_order",
    value: present === 0 ? 0 : (c.order * violated.length) / present,
    reason:
      violated.length > 0
        ? `called in one turn although dependent, and never in order: ${violated.join("; ")} (of ${present} pairs)`
        : `none of ${present} dependent pairs was called out of order`,
  };
}
