/**
 * Plans: their shape, their occurrences, the meaning of bare names, and layering (method.md section 2, "Valid plans" and "Occurrences").
 * Pure functions over plain data.
 */
import type { Json, JsonObject } from "../catalog/types.ts";
import { isObject, normalName } from "./json.ts";
import type { Dependency, ExecutionPlan, Finding, Plan, Subgoal } from "./types.ts";

/** Collects findings at one place of the reply. */
type Report = (code: string, message: string) => void;

const isText = (value: Json | undefined): value is string => typeof value === "string" && value.trim() !== "";

/** A non-empty list of non-empty strings, or null after a report. */
function textList(value: Json | undefined, where: string, report: Report): string[] | null {
  if (Array.isArray(value) && value.length > 0 && value.every(isText)) return value;
  report("plan-list", `${where} must be a non-empty list of non-empty strings`);
  return null;
}

function onlyKeys(object: JsonObject, allowed: string[], where: string, report: Report): void {
  for (const key of Object.keys(object))
    if (!allowed.includes(key))
      report("plan-unknown-key", `${where} has the key ${JSON.stringify(key)}; only ${allowed.join(", ")} are allowed`);
}

/** `subgoals`, where given, is a non-empty list of {id, subgoal}. */
function readSubgoals(object: JsonObject, report: Report): Subgoal[] | undefined {
  if (!Object.hasOwn(object, "subgoals")) return undefined;
  const list = object.subgoals;
  const subgoals: Subgoal[] = [];
  if (Array.isArray(list))
    for (const item of list) {
      if (!isObject(item) || !(isText(item.id) || typeof item.id === "number") || !isText(item.subgoal)) continue;
      onlyKeys(item, ["id", "subgoal"], "a subgoal", report);
      subgoals.push({ id: item.id, subgoal: item.subgoal });
    }
  if (!Array.isArray(list) || subgoals.length === 0 || subgoals.length < list.length)
    report("plan-subgoals", "subgoals must be a non-empty list of {id, subgoal}");
  return subgoals;
}

/** Each dependency has a non-empty `from` and one `to`. */
function readDependencies(value: Json | undefined, report: Report): Dependency[] {
  const dependencies: Dependency[] = [];
  if (!Array.isArray(value)) report("plan-dependencies", "dependencies must be a list");
  else
    for (const item of value) {
      if (!isObject(item) || !isText(item.to)) {
        report("plan-dependency", 'each dependency must be {"from": [names], "to": "name"}');
        continue;
      }
      onlyKeys(item, ["from", "to"], "a dependency", report);
      const from = textList(item.from, "a dependency's from", report);
      if (from) dependencies.push({ from, to: item.to });
    }
  return dependencies;
}

/** Steps are numbered 1, 2, 3 … without gaps; each `parallel` is non-empty. */
function readFlow(value: Json | undefined, report: Report): ExecutionPlan["execution_flow"] {
  const flow: ExecutionPlan["execution_flow"] = [];
  if (!Array.isArray(value) || value.length === 0)
    report("plan-flow", "execution_flow must be a non-empty list of steps");
  else
    for (const [i, item] of value.entries()) {
      if (!isObject(item)) {
        report("plan-step", 'each step must be {"step": number, "parallel": [names]}');
        continue;
      }
      onlyKeys(item, ["step", "parallel"], "a step", report);
      if (item.step !== i + 1)
        report("plan-step-number", `steps are numbered 1, 2, 3 …; number ${i + 1} is missing here`);
      const parallel = textList(item.parallel, `parallel of step ${i + 1}`, report);
      if (parallel) flow.push({ step: i + 1, parallel });
    }
  return flow;
}

/**
 * Reads a plan from JSON and checks its shape. `plan` is null as soon as there is one finding: a plan is valid whole or not at all.
 * `at` is the offset that findings carry.
 */
export function readPlan(value: Json, at: number): { plan: Plan | null; findings: Finding[] } {
  const findings: Finding[] = [];
  const report: Report = (code, message) => void findings.push({ code, message, at });
  const done = (plan: Plan): { plan: Plan | null; findings: Finding[] } => ({
    plan: findings.length === 0 ? plan : null,
    findings,
  });
  if (!isObject(value)) {
    report("plan-shape", "a plan must be a JSON object");
    return { plan: null, findings };
  }
  const goals = readSubgoals(value, report);
  const subgoals = goals === undefined ? {} : { subgoals: goals };
  if (Object.hasOwn(value, "capacity_slots")) {
    onlyKeys(value, ["subgoals", "capacity_slots"], "an exploration plan", report);
    const slots = textList(value.capacity_slots, "capacity_slots", report);
    return done({ kind: "exploration", ...subgoals, capacity_slots: slots ?? [] });
  }
  onlyKeys(value, ["subgoals", "available_tools", "dependencies", "execution_flow"], "an execution plan", report);
  const tools = textList(value.available_tools, "available_tools", report);
  const dependencies = readDependencies(value.dependencies, report);
  const flow = readFlow(value.execution_flow, report);
  return done({ kind: "execution", ...subgoals, available_tools: tools ?? [], dependencies, execution_flow: flow });
}

/** One scheduled call of a plan. */
export interface Occurrence {
  /** `tool#k`, the k-th time that the flow schedules this tool, from 1. Normalised name. */
  ref: string;
  tool: string;
  step: number;
}
/** From one occurrence's ref to another's. */
export type Edge = readonly [from: string, to: string];

export interface PlanGraph {
  /** In order of the flow. */
  occurrences: Occurrence[];
  /** Edges that the plan declares, names resolved. */
  declared: Edge[];
  /** Successive layers of one tool depend on each other, without being declared. */
  implied: Edge[];
}

/** A tool scheduled more than once has occurrences tool#1, tool#2, … in order of the flow. */
export function occurrencesOf(plan: ExecutionPlan): Occurrence[] {
  const count = new Map<string, number>();
  return plan.execution_flow.flatMap(({ step, parallel }) =>
    parallel.map((name) => {
      const tool = normalName(name);
      const k = (count.get(tool) ?? 0) + 1;
      count.set(tool, k);
      return { ref: `${tool}#${k}`, tool, step };
    }),
  );
}

/** Successive layers of one tool depend on each other. */
function impliedEdges(occurrences: Occurrence[]): Edge[] {
  return occurrences.flatMap((to) => {
    const earlier = occurrences.filter((o) => o.tool === to.tool && o.step < to.step);
    const last = Math.max(...earlier.map((o) => o.step));
    return earlier.filter((o) => o.step === last).map((from): Edge => [from.ref, to.ref]);
  });
}

/** Occurrences that a written name may mean: `tool#k` one, a bare name all of the tool's. */
const named = (name: string, occurrences: Occurrence[]): Occurrence[] =>
  occurrences.filter((o) => o.ref === name || o.tool === name);

/** The occurrences of the earliest (or latest) step among some. */
function atStep(occurrences: Occurrence[], pick: (...steps: number[]) => number): Occurrence[] {
  const step = pick(...occurrences.map((o) => o.step));
  return occurrences.filter((o) => o.step === step);
}

/**
 * What one dependency means. As a target, a bare name is its earliest occurrence that has all its sources in earlier steps; as a
 * source, its latest occurrence before that target. None, or more than one candidate, is an error.
 */
export function resolveDependency(
  dependency: Dependency,
  occurrences: Occurrence[],
): { edges: Edge[]; problem: null } | { edges: null; problem: { code: string; message: string } } {
  const problem = (code: string, message: string) => ({ edges: null, problem: { code, message } });
  const sources = dependency.from.map(normalName);
  const target = normalName(dependency.to);
  for (const name of [...sources, target])
    if (named(name, occurrences).length === 0)
      return problem("plan-edge-unscheduled", `a dependency names ${name}, which execution_flow does not schedule`);
  const eligible = named(target, occurrences).filter((t) =>
    sources.every((s) => named(s, occurrences).some((o) => o.step < t.step)),
  );
  if (eligible.length === 0)
    return problem("plan-edge-order", `${target} is not in a later step than all of ${sources.join(", ")}`);
  const [to, ...others] = atStep(eligible, Math.min);
  if (!to || others.length > 0)
    return problem(
      "plan-edge-ambiguous",
      `${target} may be any of several in one step; write ${target}#1, ${target}#2 …`,
    );
  const edges: Edge[] = [];
  for (const s of sources) {
    const before = named(s, occurrences).filter((o) => o.step < to.step);
    const [from, ...more] = atStep(before, Math.max);
    if (!from || more.length > 0)
      return problem("plan-edge-ambiguous", `${s} may be any of several in one step; write ${s}#1, ${s}#2 …`);
    edges.push([from.ref, to.ref]);
  }
  return { edges, problem: null };
}

/**
 * The plan as a graph. It is consistent when there are no findings: every dependency resolves, every edge runs to a later step (so
 * that the graph has no cycle), and every scheduled tool is in available_tools.
 */
export function planGraph(plan: ExecutionPlan, at = 0): { graph: PlanGraph; findings: Finding[] } {
  const findings: Finding[] = [];
  const occurrences = occurrencesOf(plan);
  const available = new Set(plan.available_tools.map(normalName));
  for (const tool of new Set(occurrences.map((o) => o.tool)))
    if (!available.has(tool))
      findings.push({ code: "plan-tool-unlisted", message: `${tool} is scheduled but not in available_tools`, at });
  const declared = new Map<string, Edge>();
  for (const dependency of plan.dependencies) {
    const { edges, problem } = resolveDependency(dependency, occurrences);
    if (problem) findings.push({ ...problem, at });
    else for (const edge of edges) declared.set(edge.join(" "), edge);
  }
  return { graph: { occurrences, declared: [...declared.values()], implied: impliedEdges(occurrences) }, findings };
}

/** Refs that an occurrence waits for. */
export const predecessorsOf = (ref: string, edges: Edge[]): string[] =>
  edges.filter(([, to]) => to === ref).map(([from]) => from);

/**
 * Minimal layering: for each occurrence the length of the longest chain that ends in it (1 without predecessors), or null where
 * the edges have a cycle. Edges to refs that are not in the list are ignored.
 */
export function longestChains(refs: string[], edges: Edge[]): Map<string, number> | null {
  const known = new Set(refs);
  const inside = edges.filter(([from, to]) => known.has(from) && known.has(to));
  const waits = new Map(refs.map((ref) => [ref, inside.filter(([, to]) => to === ref).length]));
  const chain = new Map(refs.map((ref) => [ref, 1]));
  const free = refs.filter((ref) => waits.get(ref) === 0);
  for (let ref = free.pop(), done = 0; ; ref = free.pop()) {
    if (ref === undefined) return done === refs.length ? chain : null;
    done++;
    for (const [from, to] of inside) {
      if (from !== ref) continue;
      chain.set(to, Math.max(chain.get(to) ?? 1, (chain.get(from) ?? 1) + 1));
      waits.set(to, (waits.get(to) ?? 0) - 1);
      if (waits.get(to) === 0) free.push(to);
    }
  }
}

/**
 * Occurrences whose step is not the length of the longest chain that ends in them: dependent ones side by side, or needlessly
 * late ones. Empty means that the layering is minimal. All of them where the edges have a cycle.
 */
export function misplaced(occurrences: Occurrence[], edges: Edge[]): Occurrence[] {
  const chains = longestChains(
    occurrences.map((o) => o.ref),
    edges,
  );
  return occurrences.filter((o) => chains?.get(o.ref) !== o.step);
}
