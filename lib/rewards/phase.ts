/** The phase channel (method.md section 4): a cascade of four levels for each execution phase. */
import { normalName } from "../paraact/json.ts";
import { type Edge, misplaced, type Occurrence, type PlanGraph, planGraph, predecessorsOf } from "../paraact/plan.ts";
import type { ExecutionPlan, Trajectory, Turn } from "../paraact/types.ts";
import type { CallOutcome } from "../toolenv/types.ts";
import type { RewardConstants } from "./constants.ts";
import { type RewardReference, ToolPairs } from "./reference.ts";
import { retrievedTools } from "./trajectory.ts";
import type { RewardTerm } from "./types.ts";

/** The part of an execution phase that one accepted plan controls. */
export interface PlanWindow {
  plan: ExecutionPlan;
  graph: PlanGraph;
  /** Tools retrieved before the plan was written. */
  retrieved: Set<string>;
  /** Refs that a revise carried over as successful. */
  carried: Set<string>;
  /** Matched calls: which occurrence, in which turn, with what outcome. */
  calls: { ref: string; turn: number; outcome: CallOutcome }[];
}

/** Execution phases as maximal runs of call turns (turns without an action break none), each cut into its plan windows. */
export function executionPhases(trajectory: Trajectory): PlanWindow[][] {
  const phases: PlanWindow[][] = [];
  let inside: PlanWindow[] | null = null;
  for (const [i, turn] of trajectory.turns.entries()) {
    if (turn.kind === "none") continue;
    if (turn.kind !== "call") {
      inside = null;
      continue;
    }
    if (!inside) phases.push((inside = []));
    const opened = openWindow(trajectory, turn, i, inside.at(-1));
    if (opened) inside.push(opened);
    const window = inside.at(-1);
    for (const { occurrence, outcome } of turn.calls)
      if (window && occurrence !== null) window.calls.push({ ref: occurrence, turn: i, outcome });
  }
  return phases;
}

function openWindow(trajectory: Trajectory, turn: Turn, i: number, last: PlanWindow | undefined): PlanWindow | null {
  const taken = turn.planEvent === "accepted" || turn.planEvent === "revise" || turn.planEvent === "restart";
  if (!taken || turn.plan?.kind !== "execution") return null;
  const { graph } = planGraph(turn.plan);
  const done = turn.planEvent === "revise" && last ? successTurns(last) : new Map<string, number>();
  const carried = new Set(graph.occurrences.map((o) => o.ref).filter((ref) => done.has(ref)));
  return { plan: turn.plan, graph, retrieved: retrievedTools(trajectory, i), carried, calls: [] };
}

/** The turn of each occurrence's success; -1 where a revise carried it over. */
function successTurns(window: PlanWindow): Map<string, number> {
  const turns = new Map<string, number>([...window.carried].map((ref) => [ref, -1]));
  for (const { ref, turn, outcome } of window.calls) if (outcome === "ok" && !turns.has(ref)) turns.set(ref, turn);
  return turns;
}

/**
 * The task's true edges between a plan's occurrences: declared edges that are hard or soft, the implied ones, and each hard pair that the
 * plan leaves undeclared. Such a pair holds from the latest earlier source to the earliest target that has one; where no target
 * has, from the first to the first, which no layering then respects.
 */
export function trueEdges(graph: PlanGraph, reference: RewardReference): Edge[] {
  const { occurrences, declared, implied } = graph;
  const toolOf = new Map(occurrences.map((o) => [o.ref, o.tool]));
  const truth = new ToolPairs([...reference.hard, ...reference.soft]);
  const edges: Edge[] = declared.filter(([from, to]) => truth.has(toolOf.get(from) ?? "", toolOf.get(to) ?? ""));
  const shown = [...declared, ...implied].map(([from, to]) => ({
    from: toolOf.get(from) ?? "",
    to: toolOf.get(to) ?? "",
  }));
  const declaredPairs = new ToolPairs(shown);
  for (const pair of reference.hard) {
    if (declaredPairs.has(pair.from, pair.to)) continue;
    edges.push(...undeclaredEdges(occurrences, normalName(pair.from), normalName(pair.to)));
  }
  return [...edges, ...implied];
}

function undeclaredEdges(occurrences: Occurrence[], from: string, to: string): Edge[] {
  const sources = occurrences.filter((o) => o.tool === from);
  const targets = occurrences.filter((o) => o.tool === to);
  const before = (target: Occurrence): Occurrence[] => sources.filter((s) => s.step < target.step);
  const first = targets.find((target) => before(target).length > 0);
  if (first) {
    const latest = Math.max(...before(first).map((s) => s.step));
    return targets
      .filter((target) => target.step === first.step)
      .flatMap((target) => before(target).flatMap((s): Edge[] => (s.step === latest ? [[s.ref, target.ref]] : [])));
  }
  const source = sources[0];
  const target = targets.find((t) => t !== source);
  return source && target ? [[source.ref, target.ref]] : [];
}

/** L1: every tool in available_tools was retrieved earlier in the trajectory, and none is listed twice. */
export function l1Grounding(window: PlanWindow): { holds: boolean; reason: string } {
  const tools = window.plan.available_tools.map(normalName);
  const unseen = tools.find((tool) => !window.retrieved.has(tool));
  if (unseen !== undefined) return { holds: false, reason: `${unseen} was not retrieved before the plan` };
  const twice = tools.find((tool, i) => tools.indexOf(tool) < i);
  if (twice !== undefined) return { holds: false, reason: `${twice} is listed twice` };
  return { holds: true, reason: "every listed tool was retrieved, each is listed once" };
}

/** L2: the declared edges include every hard edge among the available tools, and none that is not a true (hard or soft) edge. */
export function l2Dependencies(window: PlanWindow, reference: RewardReference): { holds: boolean; reason: string } {
  const { occurrences, declared, implied } = window.graph;
  const toolOf = new Map(occurrences.map((o) => [o.ref, o.tool]));
  const pairs = (edges: Edge[]) => edges.map(([a, b]) => ({ from: toolOf.get(a) ?? "", to: toolOf.get(b) ?? "" }));
  const truth = new ToolPairs([...reference.hard, ...reference.soft]);
  const untrue = pairs(declared).find(({ from, to }) => !truth.has(from, to));
  if (untrue) return { holds: false, reason: `${untrue.to} does not depend on ${untrue.from}` };
  const said = new ToolPairs(pairs([...declared, ...implied]));
  const available = new Set(window.plan.available_tools.map(normalName));
  const missing = reference.hard.find(({ from, to }) => {
    const [a, b] = [normalName(from), normalName(to)];
    // A tool that feeds itself is an edge only where it is scheduled more than once.
    if (a === b && occurrences.filter((o) => o.tool === a).length < 2) return false;
    return available.has(a) && available.has(b) && !said.has(a, b);
  });
  if (missing) return { holds: false, reason: `${missing.to} depends on ${missing.from}, which the plan does not say` };
  return { holds: true, reason: "all hard dependencies are declared and no false one" };
}

/** L3: every available tool is scheduled, the steps respect the true edges, and the layering is minimal. */
export function l3Layers(window: PlanWindow, reference: RewardReference): { holds: boolean; reason: string } {
  const { occurrences } = window.graph;
  const unscheduled = window.plan.available_tools.find((name) => !occurrences.some((o) => o.tool === normalName(name)));
  if (unscheduled !== undefined) return { holds: false, reason: `${unscheduled} is listed but not scheduled` };
  const [wrong] = misplaced(occurrences, trueEdges(window.graph, reference));
  if (wrong)
    return { holds: false, reason: `${wrong.ref} stands in step ${wrong.step}, not where its longest chain ends` };
  return { holds: true, reason: "every occurrence stands in the earliest step that its dependencies allow" };
}

const RESOLVES: readonly CallOutcome[] = ["ok", "not_found", "unavailable"];

/** Occurrences that a window still declared as work: those that were not carried over as successful. */
export const declaredWork = (window: PlanWindow): Occurrence[] =>
  window.graph.occurrences.filter((o) => !window.carried.has(o.ref));

/**
 * L4: the share of planned occurrences that were called when ready and resolved. Success resolves; so does a definitive "no such resource" or
 * "tool unavailable"; a transient or injected fault does not. Ready means that all true predecessors had succeeded before the turn.
 */
export function l4Execution(window: PlanWindow, reference: RewardReference): { share: number; reason: string } {
  const work = declaredWork(window);
  const edges = trueEdges(window.graph, reference);
  const success = successTurns(window);
  const resolved = work.filter(({ ref }) =>
    window.calls.some(
      (call) =>
        call.ref === ref &&
        RESOLVES.includes(call.outcome) &&
        predecessorsOf(ref, edges).every((before) => (success.get(before) ?? Number.POSITIVE_INFINITY) < call.turn),
    ),
  );
  const share = work.length === 0 ? 1 : resolved.length / work.length;
  return { share, reason: `${resolved.length} of ${work.length} planned calls were made when ready and resolved` };
}

/** The cascade of one plan window, in [0, 1]. */
export function planCascade(window: PlanWindow, reference: RewardReference, c: RewardConstants): RewardTerm {
  const l1 = l1Grounding(window);
  if (!l1.holds) return { name: "plan", symbol: "cascade", value: 0, reason: `L1 fails: ${l1.reason}` };
  const l2 = l2Dependencies(window, reference);
  const l3 = l3Layers(window, reference);
  const l4 = l4Execution(window, reference);
  const parts: RewardTerm[] = [
    { name: "grounding", symbol: "L1", value: c.grounding, reason: l1.reason },
    { name: "dependencies", symbol: "L2", value: l2.holds ? c.dependencies : 0, reason: l2.reason },
    { name: "layers", symbol: "L3", value: l3.holds ? c.layers : 0, reason: l3.reason },
    { name: "execution", symbol: "L4", value: c.execution * l4.share, reason: l4.reason },
  ];
  const value = parts.reduce((total, part) => total + part.value, 0);
  return { name: "plan", symbol: "cascade", value, reason: "L1 + L2 + L3 + L4", parts };
}

/** The cascade of a phase: the mean of its plan windows, each weighted by the work that it still declared. 0 without an accepted plan. */
export function phaseCascade(windows: PlanWindow[], reference: RewardReference, c: RewardConstants): RewardTerm {
  const term = { name: "execution phase", symbol: "cascade" };
  const parts = windows.map((window) => planCascade(window, reference, c));
  const weights = windows.map((window) => declaredWork(window).length);
  const total = weights.reduce((a, b) => a + b, 0);
  if (total === 0) return { ...term, value: 0, reason: "no plan was accepted in this phase" };
  const value = parts.reduce((s, part, i) => s + (part.value * (weights[i] ?? 0)) / total, 0);
  return {
    ...term,
    value,
    reason: `mean over ${parts.length} plan(s), weighted by work (${weights.join(", ")})`,
    parts,
  };
}

/** R_phase = β·mean over execution phases, × clip(R_outcome / full outcome, 0, 1). No execution phase → 0. */
export function rPhase(
  trajectory: Trajectory,
  reference: RewardReference,
  outcome: number,
  c: RewardConstants,
): RewardTerm {
  const parts = executionPhases(trajectory).map((windows) => phaseCascade(windows, reference, c));
  const term = { name: "phase channel", symbol: "R_phase", parts };
  if (parts.length === 0) return { ...term, value: 0, reason: "no execution phase" };
  const mean = parts.reduce((total, part) => total + part.value, 0) / parts.length;
  const gate = c.outcomeGate ? Math.min(1, Math.max(0, outcome / c.outcome["111"])) : 1;
  const reason = `β·mean(cascades)·gate = ${c.beta}·${mean.toFixed(3)}·${gate.toFixed(3)}`;
  return { ...term, value: c.beta * mean * gate, reason };
}
