/** The step channel (method.md section 4): R_step_format = 1 + R_format. */
import { parseReply, structureScore } from "../paraact/parse.ts";
import type { Trajectory, Turn } from "../paraact/types.ts";
import type { RewardConstants } from "./constants.ts";
import type { RewardTerm } from "./types.ts";

const mean = (values: number[]): number =>
  values.length === 0 ? 0 : values.reduce((a, b) => a + b, 0) / values.length;

/** A turn's structure score: whether the reply is one of the protocol's turns. */
export function turnStructure(turn: Turn): { score: number; reason: string } {
  return structureScore(parseReply(turn.reply));
}

/** A turn's plan-slot score: required → 1 iff a valid plan is there; optional → 1 unless an invalid one is; forbidden → 1 iff none is. */
export function turnPlanSlot(turn: Turn): { score: 0 | 1; reason: string } {
  const event = turn.planEvent;
  switch (turn.planSlot) {
    case "required":
      if (event === "none") return { score: 0, reason: "a plan was required and none is there" };
      if (event === "rejected") return { score: 0, reason: "a plan was required and the one there is not valid" };
      return { score: 1, reason: "a plan was required and a valid one is there" };
    case "optional":
      if (event === "rejected") return { score: 0, reason: "a plan was optional and the one there is not valid" };
      return { score: 1, reason: "a plan was optional" };
    case "forbidden":
      if (event === "none") return { score: 1, reason: "no plan was allowed and none is there" };
      return { score: 0, reason: "no plan was allowed and one is there" };
  }
}

function meanOverTurns(
  name: string,
  symbol: string,
  trajectory: Trajectory,
  score: (turn: Turn) => { score: number; reason: string },
): RewardTerm {
  const parts = trajectory.turns.map((turn, i): RewardTerm => {
    const { score: value, reason } = score(turn);
    return { name: `turn ${i + 1}`, symbol: `${symbol}[${i + 1}]`, value, reason };
  });
  const value = mean(parts.map((part) => part.value));
  return { name, symbol, value, reason: `mean over ${parts.length} turns`, parts };
}

/** s_structure: the mean over all turns of the turn's structure. */
export const sStructure = (trajectory: Trajectory): RewardTerm =>
  meanOverTurns("structure", "s_structure", trajectory, turnStructure);

/** s_plan: the mean over all turns of the plan slot. */
export const sPlan = (trajectory: Trajectory): RewardTerm =>
  meanOverTurns("plan slots", "s_plan", trajectory, turnPlanSlot);

/** R_format = −λ·max(0, 1 − s_structure/2 − s_plan/2). */
export function rFormat(trajectory: Trajectory, c: RewardConstants): RewardTerm {
  const structure = sStructure(trajectory);
  const plan = sPlan(trajectory);
  const missing = Math.max(0, 1 - structure.value / 2 - plan.value / 2);
  return {
    name: "format penalty",
    symbol: "R_format",
    value: missing === 0 ? 0 : -c.lambda * missing,
    reason: `-λ·max(0, 1 - ${structure.value.toFixed(3)}/2 - ${plan.value.toFixed(3)}/2), λ = ${c.lambda}`,
    parts: [structure, plan],
  };
}

/** R_step_format = 1 + R_format. */
export function rStepFormat(trajectory: Trajectory, c: RewardConstants): RewardTerm {
  const format = rFormat(trajectory, c);
  return {
    name: "step channel",
    symbol: "R_step_format",
    value: 1 + format.value,
    reason: "1 + R_format",
    parts: [format],
  };
}
