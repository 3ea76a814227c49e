/** Episodes as training data, exactly as sampled: nothing is ever encoded from decoded text again. */
import { encodeConversation } from "../agents/chat.ts";
import type { Tokenizer } from "../model/types.ts";
import { conversation } from "../paraact/conversation.ts";
import type { Trajectory } from "../paraact/types.ts";
import type { ChannelRewards } from "../rewards/types.ts";
import type { Document } from "./batch.ts";
import type { Rollout } from "./types.ts";

/** A trajectory's tokens are not those that its policy sampled. */
export class RolloutError extends Error {
  override name = "RolloutError";
}

/**
 * The trajectory as the policy saw and sampled it. Throws RolloutError if a turn has no sampled ids (the policy was not a local model), or if
 * the conversation's action tokens are not the sampled ones, one for one.
 */
export function toRollout(trajectory: Trajectory, rewards: ChannelRewards, tokenizer: Tokenizer): Rollout {
  const sampled = trajectory.turns.map((turn, t) => {
    if (!turn.tokens)
      throw new RolloutError(`task ${trajectory.taskId}: turn ${t + 1} has no sampled ids; RL needs a local policy.`);
    return turn.tokens;
  });
  const { ids, actionMask } = encodeConversation(conversation(trajectory), tokenizer);
  const logprobs = new Float32Array(ids.length);
  const masks = new Map<number, Uint32Array>();
  const flat = sampled.flatMap((turn) =>
    turn.ids.map((id, k) => ({ id, lp: turn.logprobs[k], mask: turn.masks?.[k] ?? null })),
  );
  let at = 0;
  for (let i = 0; i < ids.length; i++) {
    if (actionMask[i] !== 1) continue;
    const action = flat[at++];
    if (action?.id !== ids[i] || action?.lp === undefined)
      throw new RolloutError(
        `task ${trajectory.taskId}: token ${i} of the conversation is ${ids[i]}, the policy sampled ${action?.id ?? "nothing"} there.`,
      );
    logprobs[i] = action.lp;
    if (action.mask) masks.set(i, action.mask);
  }
  if (at !== flat.length)
    throw new RolloutError(
      `task ${trajectory.taskId}: ${flat.length - at} sampled tokens are not in the conversation.`,
    );
  return { trajectory, rewards, ids, actionMask, logprobs, ...(masks.size > 0 ? { masks } : {}) };
}

export const documentOf = ({ ids, actionMask, masks }: Rollout): Document => ({
  ids,
  actionMask,
  ...(masks ? { masks } : {}),
});

/** Whether the three verdicts are all yes. Null where there are none. */
export function succeeded({ verdicts }: Trajectory): boolean | null {
  return verdicts && verdicts.quality === 1 && verdicts.faithfulness === 1 && verdicts.utility === 1
    ? true
    : verdicts && false;
}

const mean = (values: readonly number[]) => values.reduce((a, b) => a + b, 0) / values.length;

/** What a set of scored episodes looks like, as metrics; a name is left out where nothing is known of it. */
export function episodeMetrics(
  episodes: readonly { trajectory: Trajectory; rewards: ChannelRewards; shape: string }[],
): Record<string, number> {
  if (episodes.length === 0) return {};
  const values: Record<string, number> = {
    episodes: episodes.length,
    rewardTrajectory: mean(episodes.map((e) => e.rewards.trajectory)),
    rewardPhase: mean(episodes.map((e) => e.rewards.phase)),
    rewardFormat: mean(episodes.map((e) => e.rewards.format)),
    turns: mean(episodes.map((e) => e.trajectory.turns.length)),
    newTokens: mean(episodes.map((e) => e.trajectory.usage.completionTokens)),
    answered: mean(episodes.map((e) => (e.trajectory.end === "answered" ? 1 : 0))),
  };
  const callTurns = episodes.flatMap((e) => e.trajectory.turns.filter((turn) => turn.calls.length > 0));
  if (callTurns.length > 0) values.parallelWidth = mean(callTurns.map((turn) => turn.calls.length));
  const judged = episodes.flatMap((e) => {
    const success = succeeded(e.trajectory);
    return success === null ? [] : [{ shape: e.shape, value: success ? 1 : 0 }];
  });
  if (judged.length > 0) values.success = mean(judged.map((j) => j.value));
  for (const shape of new Set(judged.map((j) => j.shape)))
    values[`success/${shape}`] = mean(judged.filter((j) => j.shape === shape).map((j) => j.value));
  return values;
}

/**
 * How far the rollout's log-probabilities lie from the training pass's, over action tokens: mean and largest difference, and the largest
 * in each turn (drift/turn1, …).
 */
export function drift(rollouts: readonly Rollout[], scored: readonly Float32Array[]): Record<string, number> {
  let sum = 0;
  let count = 0;
  const byTurn: number[] = [];
  for (const [r, rollout] of rollouts.entries()) {
    const ends = rollout.trajectory.turns.map((turn) => turn.tokens?.ids.length ?? 0);
    let turn = 0;
    let seen = 0;
    for (let i = 0; i < rollout.ids.length; i++) {
      if (rollout.actionMask[i] !== 1) continue;
      while (seen === ends[turn]) {
        turn++;
        seen = 0;
      }
      const difference = Math.abs(rollout.logprobs[i]! - scored[r]![i]!);
      sum += difference;
      byTurn[turn] = Math.max(byTurn[turn] ?? 0, difference);
      count++;
      seen++;
    }
  }
  if (count === 0) return {};
  const turns = Object.fromEntries(
    byTurn.flatMap((value, t) => (value === undefined ? [] : [[`drift/turn${t + 1}`, value]])),
  );
  return { driftMean: sum / count, driftMax: Math.max(...byTurn.filter((value) => value !== undefined)), ...turns };
}
