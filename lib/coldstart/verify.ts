/**
 * The verifier: keeps a demonstration only if it teaches nothing wrong. Five checks, in the order of method.md section 5's roles: format,
 * execution, grounding, minimality, answer.
 */
import { callIdentity } from "../paraact/json.ts";
import type { Trajectory } from "../paraact/types.ts";
import type { ChannelRewards } from "../rewards/types.ts";
import type { Task, Verdicts } from "../toolenv/types.ts";
import type { Detour } from "./roles.ts";

export type Check = "format" | "execution" | "grounding" | "minimality" | "answer";

export interface Problem {
  check: Check;
  /** Short and without the task's values, so that reports can count it. */
  reason: string;
  detail: string;
}

export interface Evidence {
  task: Task;
  trajectory: Trajectory;
  rewards: ChannelRewards;
  verdicts: Verdicts;
  detour: Detour;
}

function format({ trajectory }: Evidence): Problem | null {
  if (trajectory.end !== "answered") {
    return { check: "format", reason: `ended by ${trajectory.end}`, detail: trajectory.error ?? "" };
  }
  const finding = trajectory.turns.flatMap((t) => t.findings)[0];
  return finding ? { check: "format", reason: finding.code, detail: finding.message } : null;
}

/** Every gold call succeeded in the end, and nothing failed that no detour explains: a passing fault, or the one slip. */
function execution({ task, trajectory, detour }: Evidence): Problem | null {
  const calls = trajectory.turns.flatMap((t) => t.calls);
  const succeeded = new Set(calls.flatMap((c) => (c.call && c.outcome === "ok" ? [callIdentity(c.call)] : [])));
  const undone = task.calls.find((g) => !succeeded.has(callIdentity({ name: g.tool, arguments: g.arguments })));
  if (undone) return { check: "execution", reason: "a gold call never succeeded", detail: undone.id };
  const failed = calls.filter((c) => c.outcome !== "ok" && c.outcome !== "transient");
  const explained = detour === "slip" ? task.calls.length : 0;
  const worst = failed[explained];
  return worst ? { check: "execution", reason: `a call failed: ${worst.outcome}`, detail: worst.observation } : null;
}

/** Every tool that is called or planned had been shown by a search before. */
function grounding({ trajectory }: Evidence): Problem | null {
  const shown = new Set(trajectory.opening?.searches.flatMap((s) => s.retrieved));
  for (const turn of trajectory.turns) {
    const planned = turn.plan?.kind === "execution" ? turn.plan.available_tools : [];
    for (const name of [...planned, ...turn.calls.flatMap((c) => c.call?.name ?? [])]) {
      if (!shown.has(name)) return { check: "grounding", reason: "a tool was not retrieved", detail: name };
    }
    for (const name of turn.searches.flatMap((s) => s.retrieved)) shown.add(name);
  }
  return null;
}

/** The reward finds nothing to take off: minimal layers, true edges, no repetition beyond what a passing fault excuses. */
function minimality({ trajectory, rewards, detour }: Evidence): Problem | null {
  const low = (reason: string, detail: string): Problem => ({ check: "minimality", reason, detail });
  const straight = detour === "none";
  const phase = rewards.terms.find((t) => t.symbol === "R_phase");
  // Refused calls count against a phase (L4) and a refined search against nothing; plans have to be perfect without a detour.
  if (trajectory.paradigm === "paraact" && straight && rewards.phase < 0.5 - 1e-9) {
    return low("the plan is not perfect", phase?.reason ?? "");
  }
  const penalised = rewards.terms
    .find((t) => t.symbol === "R_traj")
    ?.parts?.find((p) => p.symbol.startsWith("P_") && p.value > 0);
  return penalised && straight ? low(`penalty ${penalised.name}`, penalised.reason) : null;
}

function answer({ verdicts }: Evidence): Problem | null {
  for (const name of ["utility", "quality", "faithfulness"] as const) {
    if (verdicts[name] === 0) return { check: "answer", reason: `${name} fails`, detail: verdicts.reasons[name] };
  }
  return null;
}

/** The first thing wrong with a demonstration, or null. */
export function verify(evidence: Evidence): Problem | null {
  for (const check of [format, execution, grounding, minimality, answer]) {
    const problem = check(evidence);
    if (problem) return problem;
  }
  return null;
}
