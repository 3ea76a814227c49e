/**
 * ToolRL's reward (Qian et al. 2025, "ToolRL: Reward is All Tool Learning Needs", section 3.3) as an alternative: R = R_format + R_correct.
 * It compares calls with gold calls one by one and knows no phases or outcomes. Theirs scores a single reply; here the calls of the whole
 * trajectory stand against the task's gold calls.
 */
import { canonicalJson, normalName } from "../paraact/json.ts";
import { parseReply, structureScore } from "../paraact/parse.ts";
import type { Trajectory } from "../paraact/types.ts";
import type { ToolCall } from "../toolenv/types.ts";
import type { ChannelRewards, RewardTerm } from "./types.ts";

/** R_format: 1 if every reply has all its fields in the right order, else 0. */
export function toolrlFormat(trajectory: Trajectory): RewardTerm {
  const wrong = trajectory.turns.findIndex((turn) => structureScore(parseReply(turn.reply)).score < 1);
  const good = trajectory.turns.length > 0 && wrong < 0;
  const reason = good ? "every reply is well formed" : wrong < 0 ? "no reply" : `reply ${wrong + 1} is not well formed`;
  return { name: "format", symbol: "R_format", value: good ? 1 : 0, reason };
}

/** |A ∩ B| / |A ∪ B|; 1 for two empty sets. */
function jaccard(a: Set<string>, b: Set<string>): number {
  const union = a.union(b).size;
  return union === 0 ? 1 : a.intersection(b).size / union;
}

/** r_param + r_value of one pair of calls of the same tool: in [0, 1 + gold's parameters]. */
function pairScore(gold: ToolCall, made: ToolCall): number {
  const keys = Object.keys(gold.arguments);
  const param = jaccard(new Set(keys), new Set(Object.keys(made.arguments)));
  const equal = keys.filter((key) => {
    const value = made.arguments[key];
    return value !== undefined && canonicalJson(value) === canonicalJson(gold.arguments[key] ?? null);
  });
  return param + equal.length;
}

/** The best one-to-one matching of gold calls to calls of the same tool: the largest total score (assignment by augmenting paths, O(n³)). */
export function bestMatching(gold: ToolCall[], made: ToolCall[]): number {
  const n = Math.max(gold.length, made.length);
  const score = (i: number, j: number): number => {
    const [g, m] = [gold[i], made[j]];
    return g && m && normalName(g.name) === normalName(m.name) ? pairScore(g, m) : 0;
  };
  // Hungarian algorithm on costs -score, rows and columns from 1; column 0 is the free end of a path.
  const u = new Array<number>(n + 1).fill(0);
  const v = new Array<number>(n + 1).fill(0);
  const rowOf = new Array<number>(n + 1).fill(0);
  const at = (xs: number[], i: number): number => xs[i] ?? 0;
  for (let row = 1; row <= n; row++) {
    const least = new Array<number>(n + 1).fill(Number.POSITIVE_INFINITY);
    const cameFrom = new Array<number>(n + 1).fill(0);
    const used = new Array<boolean>(n + 1).fill(false);
    rowOf[0] = row;
    let column = 0;
    do {
      used[column] = true;
      const i = at(rowOf, column);
      let delta = Number.POSITIVE_INFINITY;
      let next = 0;
      for (let j = 1; j <= n; j++) {
        if (used[j]) continue;
        const reduced = -score(i - 1, j - 1) - at(u, i) - at(v, j);
        if (reduced < at(least, j)) [least[j], cameFrom[j]] = [reduced, column];
        if (at(least, j) < delta) [delta, next] = [at(least, j), j];
      }
      for (let j = 0; j <= n; j++) {
        if (used[j]) {
          u[at(rowOf, j)] = at(u, at(rowOf, j)) + delta;
          v[j] = at(v, j) - delta;
        } else least[j] = at(least, j) - delta;
      }
      column = next;
    } while (at(rowOf, column) !== 0);
    for (; column !== 0; column = at(cameFrom, column)) rowOf[column] = at(rowOf, at(cameFrom, column));
  }
  let total = 0;
  for (let j = 1; j <= n; j++) total += score(at(rowOf, j) - 1, j - 1);
  return total;
}

/** R_correct = 6·R_max/S_max − 3, in [−3, 3]: names, parameter names and values under the best matching. */
export function toolrlCorrect(trajectory: Trajectory, gold: ToolCall[]): RewardTerm {
  const made = trajectory.turns.flatMap((turn) => turn.calls.flatMap(({ call }) => (call ? [call] : [])));
  const names = (calls: ToolCall[]): Set<string> => new Set(calls.map((call) => normalName(call.name)));
  const most = 1 + gold.length + gold.reduce((sum, call) => sum + Object.keys(call.arguments).length, 0);
  const best = jaccard(names(gold), names(made)) + bestMatching(gold, made);
  const reason = `6·${best.toFixed(3)}/${most} - 3: names, parameters and values of ${made.length} calls against ${gold.length}`;
  return { name: "correctness", symbol: "R_correct", value: (6 * best) / most - 3, reason };
}

/** ToolRL's reward as one channel: the trajectory's, with the others at 0. */
export function scoreToolRL(trajectory: Trajectory, gold: ToolCall[]): ChannelRewards {
  const terms = [toolrlFormat(trajectory), toolrlCorrect(trajectory, gold)];
  return { trajectory: terms.reduce((sum, term) => sum + term.value, 0), phase: 0, format: 0, terms };
}
