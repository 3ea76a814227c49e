/**
 * The plan controller (method.md section 3) as a pure state machine over plain data. A phase is a maximal run of turns with the same kind
 * of action; it has at most one live plan and a budget of accepted plans. `PLAN_RULES` is the one place that says when a turn
 * has to have a plan; the documentation prints the table from it.
 */
import type { CallOutcome, ToolCall } from "../toolenv/types.ts";
import { callIdentity, normalName } from "./json.ts";
import { type Edge, type Occurrence, planGraph, predecessorsOf } from "./plan.ts";
import type { ActionKind, Plan, PlanSlot, Turn } from "./types.ts";

/** Accepted plans a phase: the first and one refresh. */
export const PLAN_BUDGET = 2;

/** What became of an occurrence: not yet successful, successful, or failed for good. */
export type OccurrenceStatus = "open" | "ok" | "failed";

export interface LivePlan {
  plan: Plan;
  /** Empty for an exploration plan. */
  occurrences: Occurrence[];
  edges: Edge[];
  /** By ref. */
  status: Record<string, OccurrenceStatus>;
}

export interface ControllerState {
  /** Kind of the current phase; null before the first action and after an answer. */
  phase: "exploration" | "execution" | null;
  live: LivePlan | null;
  /** Plans accepted in this phase. */
  accepted: number;
  /** Why the last turn gives a reason to recover, or null. */
  recovery: string | null;
}

export const startOfEpisode = (): ControllerState => ({ phase: null, live: null, accepted: 0, recovery: null });

const phaseOf = (kind: ActionKind | "none"): ControllerState["phase"] =>
  kind === "search" ? "exploration" : kind === "call" ? "execution" : null;

/** The state with which a turn of this kind begins: a new kind of action begins a new phase. A turn without an action begins none. */
export function enterTurn(state: ControllerState, kind: ActionKind | "none"): ControllerState {
  if (kind === "none" || phaseOf(kind) === state.phase) return state;
  return { phase: phaseOf(kind), live: null, accepted: 0, recovery: state.recovery };
}

/** An outcome that says for good that the call cannot succeed. */
export const isFinalFailure = (outcome: CallOutcome): boolean => outcome === "not_found" || outcome === "unavailable";

/** Every occurrence has succeeded, or is a final failure or blocked behind one. */
export function isFinished(live: LivePlan): boolean {
  const blocked = new Set<string>();
  // In order of the flow, predecessors come first.
  for (const { ref } of live.occurrences)
    if (live.status[ref] === "failed" || predecessorsOf(ref, live.edges).some((before) => blocked.has(before)))
      blocked.add(ref);
  return live.occurrences.every(({ ref }) => live.status[ref] === "ok" || blocked.has(ref));
}

/** What the table looks at. `state` is that of the turn's own phase, before the turn. */
export interface RuleView {
  kind: ActionKind | "none";
  mixed: boolean;
  state: ControllerState;
}

export interface PlanRule {
  id: string;
  /** The state before the turn, in words. */
  when: string;
  applies(view: RuleView): boolean;
  /** The plan while the phase may still accept one, and when it may not. */
  inBudget: PlanSlot;
  spent: PlanSlot;
}

/** Section 3's table. The first rule that applies decides. */
export const PLAN_RULES: readonly PlanRule[] = [
  {
    id: "no-plan-outside-one-action",
    when: "an answer, a turn that mixes kinds of action, or one without an action",
    applies: ({ kind, mixed }) => mixed || kind === "answer" || kind === "none",
    inBudget: "forbidden",
    spent: "forbidden",
  },
  {
    id: "first-plan",
    when: "no live plan in this phase",
    applies: ({ state }) => state.live === null,
    inBudget: "required",
    spent: "required",
  },
  {
    id: "exploration-refresh",
    when: "exploration phase with a live plan",
    applies: ({ kind }) => kind === "search",
    inBudget: "optional",
    spent: "forbidden",
  },
  {
    id: "execution-finished",
    when: "execution: every occurrence of the live plan has succeeded, or is blocked behind a final failure",
    applies: ({ state }) => state.live !== null && isFinished(state.live),
    inBudget: "required",
    spent: "forbidden",
  },
  {
    id: "execution-recovery",
    when: "execution: the last turn gave a reason to recover (a call failed, a search came back empty or failed, a fault was injected)",
    applies: ({ state }) => state.recovery !== null,
    inBudget: "optional",
    spent: "forbidden",
  },
  { id: "otherwise", when: "otherwise", applies: () => true, inBudget: "forbidden", spent: "forbidden" },
];

/** `PLAN_RULES` as a Markdown table, for the documentation. */
export function planRulesTable(): string {
  const rows = PLAN_RULES.map(({ id, when, inBudget, spent }) => {
    const slot = inBudget === spent ? inBudget : `${inBudget} while the budget lasts, then ${spent}`;
    return `| ${when} | ${slot} | \`${id}\` |`;
  });
  return ["| state before the turn | plan in this turn | rule |", "|---|---|---|", ...rows].join("\n");
}

/** Whether this turn has to have a plan, and by which rule. `state` comes from `enterTurn`. */
export function planSlot(view: RuleView): { slot: PlanSlot; rule: string } {
  const rule = PLAN_RULES.find((r) => r.applies(view));
  if (!rule) throw new Error("PLAN_RULES must end with a rule that always applies");
  return { slot: view.state.accepted < PLAN_BUDGET ? rule.inBudget : rule.spent, rule: rule.id };
}

function livePlan(plan: Plan): LivePlan {
  if (plan.kind === "exploration") return { plan, occurrences: [], edges: [], status: {} };
  const { occurrences, declared, implied } = planGraph(plan).graph;
  const status = Object.fromEntries(occurrences.map(({ ref }) => [ref, "open" as const]));
  return { plan, occurrences, edges: [...declared, ...implied], status };
}

/**
 * The second plan of an execution phase. It is a revise if it keeps unfinished work, and then occurrences with the same reference keep their
 * success; a restart if it abandons it, and then nothing is kept. Ours: where nothing was unfinished, it is a revise if it adds
 * work, and a restart if it only asks for finished work again.
 */
function refresh(old: LivePlan, plan: Plan): { live: LivePlan; event: "revise" | "restart" } {
  const live = livePlan(plan);
  const unfinished = old.occurrences.filter(({ ref }) => old.status[ref] === "open");
  const kept = live.occurrences.some(({ ref }) => unfinished.some((o) => o.ref === ref));
  const added = live.occurrences.some(({ ref }) => old.status[ref] !== "ok");
  if (plan.kind === "execution" && !(unfinished.length > 0 ? kept : added)) return { live, event: "restart" };
  for (const { ref } of live.occurrences) if (old.status[ref] === "ok") live.status[ref] = "ok";
  return { live, event: "revise" };
}

/**
 * Offers the turn's plan to the controller. `plan` is null where the reply holds no valid plan, `offered` says whether it holds a plan
 * block at all. A forbidden or invalid plan never becomes the controller.
 */
export function offerPlan(
  state: ControllerState,
  offer: { plan: Plan | null; offered: boolean; slot: PlanSlot },
): { state: ControllerState; event: Turn["planEvent"] } {
  if (!offer.offered) return { state, event: "none" };
  if (offer.plan === null || offer.slot === "forbidden") return { state, event: "rejected" };
  const next = state.live
    ? refresh(state.live, offer.plan)
    : { live: livePlan(offer.plan), event: "accepted" as const };
  return { state: { ...state, live: next.live, accepted: state.accepted + 1 }, event: next.event };
}

/** Refs whose predecessors have all succeeded, with which a turn begins: readiness is frozen there. Successful ones are done, not ready. */
export function readyOccurrences(live: LivePlan): Occurrence[] {
  return live.occurrences.filter(
    ({ ref }) => live.status[ref] !== "ok" && predecessorsOf(ref, live.edges).every((b) => live.status[b] === "ok"),
  );
}

/** A call of the turn with what became of it; `call` is null where the block was unreadable. */
export interface CallEvent {
  call: ToolCall | null;
  outcome: CallOutcome;
  fault: string | null;
}
export interface SearchEvent {
  retrieved: string[];
  failed: string | null;
}

/**
 * Matches the calls of a turn to ready occurrences of the same tool, in order; a call that matches none is outside the plan (null). The
 * order among calls of one tool is that of their arguments, so that parallel calls may be written in any order; open
 * occurrences come before those that have failed for good.
 */
export function matchCalls(live: LivePlan | null, calls: CallEvent[]): (string | null)[] {
  const matched: (string | null)[] = calls.map(() => null);
  if (!live) return matched;
  const ready = readyOccurrences(live);
  const queue = [
    ...ready.filter((o) => live.status[o.ref] === "open"),
    ...ready.filter((o) => live.status[o.ref] === "failed"),
  ];
  const ordered = calls
    .flatMap(({ call, outcome }, i) =>
      call ? [{ i, tool: normalName(call.name), key: `${callIdentity(call)} ${outcome}` }] : [],
    )
    .sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : a.i - b.i));
  for (const { i, tool } of ordered) {
    const next = queue.findIndex((o) => o.tool === tool);
    if (next >= 0) matched[i] = queue.splice(next, 1)[0]?.ref ?? null;
  }
  return matched;
}

/** A reason to recover: a call failed, a search came back empty or failed, a fault was injected. */
function recoveryReason(calls: CallEvent[], searches: SearchEvent[]): string | null {
  if (calls.some(({ outcome }) => outcome !== "ok")) return "a call failed";
  if (calls.some(({ fault }) => fault !== null)) return "a fault was injected";
  if (searches.some(({ failed }) => failed !== null)) return "a search failed";
  if (searches.some(({ retrieved }) => retrieved.length === 0)) return "a search came back empty";
  return null;
}

/** Ends a turn: what its calls did to the live plan. Returns the occurrence of each call. */
export function recordTurn(
  state: ControllerState,
  events: { calls: CallEvent[]; searches: SearchEvent[] },
): { state: ControllerState; occurrences: (string | null)[] } {
  const { live } = state;
  const occurrences = matchCalls(live, events.calls);
  const recovery = recoveryReason(events.calls, events.searches);
  if (!live) return { state: { ...state, recovery }, occurrences };
  const status = { ...live.status };
  for (const [i, ref] of occurrences.entries()) {
    const outcome = events.calls[i]?.outcome;
    if (ref === null || outcome === undefined) continue;
    if (outcome === "ok") status[ref] = "ok";
    else if (isFinalFailure(outcome)) status[ref] = "failed";
  }
  return { state: { ...state, recovery, live: { ...live, status } }, occurrences };
}
