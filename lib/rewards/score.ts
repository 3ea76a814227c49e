/** The three reward channels of a trajectory (method.md section 4), each with its terms and reasons. */
import type { Trajectory } from "../paraact/types.ts";
import { PAPER_CONSTANTS, type RewardConstants } from "./constants.ts";
import { rPhase } from "./phase.ts";
import type { RewardReference } from "./reference.ts";
import { rStepFormat } from "./step.ts";
import { rOutcome, rTraj } from "./trajectory.ts";
import type { ChannelRewards } from "./types.ts";

/**
 * Scores a trajectory against its task. The channels stay apart until the advantages. Throws MissingVerdicts for an answer that nobody
 * judged.
 */
export function scoreTrajectory(
  trajectory: Trajectory,
  reference: RewardReference,
  constants: RewardConstants = PAPER_CONSTANTS,
): ChannelRewards {
  const traj = rTraj(trajectory, reference, constants);
  const phase = rPhase(trajectory, reference, rOutcome(trajectory, reference, constants).value, constants);
  const step = rStepFormat(trajectory, constants);
  return { trajectory: traj.value, phase: phase.value, format: step.value, terms: [traj, phase, step] };
}
