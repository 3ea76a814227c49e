/** The trajectory channel (method.md section 4): R_traj = R_outcome + R_tools − 0.25·(protocol + repetition + order). */
import { normalName } from "../paraact/json.ts";
import type { Trajectory } from "../paraact/types.ts";
import type { RewardConstants } from "./constants.ts";
import { pOrder, pProtocol, pRepetition } from "./penalties.ts";
import type { RewardReference } from "./reference.ts";
import type { RewardTerm } from "./types.ts";

/** An answer without verdicts cannot be scored; guessing them would invent a number. */
export class MissingVerdicts extends Error {
  override readonly name = "MissingVerdicts";
}

/** Names of the tools that searches had shown before turn `end` (all by default). */
export function retrievedTools(trajectory: Trajectory, end = trajectory.turns.length): Set<string> {
  const searches = [
    ...(trajectory.opening?.searches ?? []),
    ...trajectory.turns.slice(0, end).flatMap((t) => t.searches),
  ];
  return new Set(searches.flatMap((search) => search.retrieved.map(normalName)));
}

const PLACEHOLDERS =
  /^(?:n\/?a|none|null|nil|unknown|todo|tbd|tba|placeholder|answer|final answer|(?:the|your|my) (?:final )?answer(?: here)?|lorem ipsum.*)$/;

/** An answer that says nothing: no letter or digit, or the template's own words. */
export function isPlaceholder(answer: string): boolean {
  const words = answer
    .toLowerCase()
    .replace(/[^\p{L}\p{N}/]+/gu, " ")
    .trim();
  return !/[\p{L}\p{N}]/u.test(words) || PLACEHOLDERS.test(words);
}

/** R_outcome from the verdicts quality, faithfulness, utility. No answer and a placeholder have their own values; a failed judge is neutral. */
export function rOutcome(trajectory: Trajectory, reference: RewardReference, c: RewardConstants): RewardTerm {
  const term = (value: number, reason: string): RewardTerm => ({ name: "outcome", symbol: "R_outcome", value, reason });
  if (trajectory.answer === null) return term(c.noAnswer, `no answer (${trajectory.end})`);
  if (isPlaceholder(trajectory.answer))
    return term(c.outcome["000"], "the answer is a placeholder, which counts as 000");
  const { verdicts } = reference;
  if (!verdicts)
    throw new MissingVerdicts(`trajectory ${trajectory.taskId} has an answer but no verdicts; judge it first`);
  if (verdicts.judge === "failed") return term(c.judgeFailed, "the judge failed: neutral");
  const { quality, faithfulness, utility, reasons } = verdicts;
  const digits = `${quality}${faithfulness}${utility}` as const;
  const why = [reasons.quality, reasons.faithfulness, reasons.utility].filter((text) => text !== "").join("; ");
  return term(c.outcome[digits], `quality, faithfulness, utility = ${digits}${why === "" ? "" : `: ${why}`}`);
}

/** R_tools = 0.4·(share of the task's gold tools called with success) + 0.1·(share of them retrieved). */
export function rTools(trajectory: Trajectory, reference: RewardReference, c: RewardConstants): RewardTerm {
  const gold = [...new Set(reference.goldTools.map(normalName))];
  const succeeded = trajectory.turns.flatMap((turn) => turn.calls.filter((record) => record.outcome === "ok"));
  const called = new Set(succeeded.flatMap(({ call }) => (call ? [normalName(call.name)] : [])));
  const retrieved = retrievedTools(trajectory);
  const count = (set: Set<string>): number => gold.filter((tool) => set.has(tool)).length;
  const share = (n: number): number => (gold.length === 0 ? 0 : n / gold.length);
  const [nCalled, nRetrieved] = [count(called), count(retrieved)];
  return {
    name: "gold tools",
    symbol: "R_tools",
    value: c.goldCalled * share(nCalled) + c.goldRetrieved * share(nRetrieved),
    reason: `of ${gold.length} gold tools ${nCalled} called with success, ${nRetrieved} retrieved`,
  };
}

/** R_traj = R_outcome + R_tools − 0.25·(protocol + repetition + order penalties). */
export function rTraj(trajectory: Trajectory, reference: RewardReference, c: RewardConstants): RewardTerm {
  const outcome = rOutcome(trajectory, reference, c);
  const tools = rTools(trajectory, reference, c);
  const penalties = [pProtocol(trajectory, c), pRepetition(trajectory, c), pOrder(trajectory, reference, c)];
  const sum = penalties.reduce((total, penalty) => total + penalty.value, 0);
  return {
    name: "trajectory channel",
    symbol: "R_traj",
    value: outcome.value + tools.value - c.penaltyScale * sum,
    reason: `R_outcome + R_tools - ${c.penaltyScale}·(P_protocol + P_repetition + P_order)`,
    parts: [outcome, tools, ...penalties],
  };
}
