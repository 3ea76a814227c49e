/** The numerical references beside the checkout: every field of rewards.json and advantages.json to 1e-6. */
import { describe, expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import { z } from "zod";
import { replayEpisode } from "../paraact/replay.ts";
import type { CallOutcome } from "../toolenv/types.ts";
import { advantages } from "./advantages.ts";
import { PAPER_CONSTANTS } from "./constants.ts";
import { pOrder, pProtocol, pRepetition } from "./penalties.ts";
import { executionPhases, phaseCascade } from "./phase.ts";
import type { RewardReference } from "./reference.ts";
import { scoreTrajectory } from "./score.ts";
import { rFormat, turnPlanSlot, turnStructure } from "./step.ts";
import { rOutcome, rTools } from "./trajectory.ts";

const shared = process.env.PARAAGENT_SHARED ?? resolve(import.meta.dir, "../../../shared");

/** Reads a reference file. Without it a CI run fails, and any other run says what it skips. */
async function reference<T>(file: string, schema: z.ZodType<T>): Promise<T | null> {
  const path = join(shared, "reference", file);
  if (existsSync(path)) return schema.parse(await Bun.file(path).json());
  const message = `${path} is missing; set PARAAGENT_SHARED to the folder that holds reference/${file}`;
  if (process.env.CI) throw new Error(message);
  console.warn(`skipped: ${message}`);
  return null;
}

const numbers = z.array(z.number());
const channels = z.object({ trajectory: numbers, phase: numbers, format: numbers });
const bit = z.union([z.literal(0), z.literal(1)]);
const RewardCases = z.array(
  z.object({
    name: z.string(),
    gold_tools: z.array(z.string()),
    hard: z.array(z.tuple([z.string(), z.string()])),
    soft: z.array(z.tuple([z.string(), z.string()])),
    verdicts: z.object({ quality: bit, faithfulness: bit, utility: bit }),
    turns: z.array(
      z.strictObject({
        reply: z.string(),
        retrieved: z.array(z.array(z.string())).optional(),
        calls: z.array(z.enum(["ok", "not_found", "unavailable", "timeout", "invalid"])).optional(),
      }),
    ),
    expected: z.strictObject({
      structure: numbers,
      plan_slots: z.array(z.string()),
      plan_scores: numbers,
      R_format: z.number(),
      R_step_format: z.number(),
      cascades: numbers,
      R_outcome: z.number(),
      R_phase: z.number(),
      R_tools: z.number(),
      penalties: z.strictObject({ protocol: z.number(), repetition: z.number(), order: z.number() }),
      R_traj: z.number(),
    }),
  }),
);
const AdvantageCases = z.array(
  z.strictObject({
    name: z.string(),
    group: numbers,
    weights: z.object({ trajectory: z.number(), phase: z.number(), format: z.number() }),
    rewards: channels,
    per_channel: channels,
    combined: numbers,
    gdpo: numbers,
    grpo_on_sum: numbers,
    dr_grpo_on_sum: numbers,
  }),
);

/** Equal to 1e-6, the precision of the references. */
function close(actual: number[], expected: number[], what: string): void {
  expect({ what, length: actual.length }).toEqual({ what, length: expected.length });
  for (const [i, value] of actual.entries())
    if (Math.abs(value - (expected[i] ?? Number.NaN)) < 1e-6 === false)
      throw new Error(`${what}[${i}]: ${value}, the reference says ${expected[i]}`);
}

const rewardCases = await reference("rewards.json", RewardCases);
describe.skipIf(rewardCases === null)("rewards.json", () => {
  for (const c of rewardCases ?? [])
    test(c.name, async () => {
      const outcome = (word: string): CallOutcome => (word === "timeout" ? "transient" : (word as CallOutcome));
      const trajectory = await replayEpisode({
        taskId: c.name,
        request: "",
        policy: "reference",
        turns: c.turns.map(({ reply, retrieved, calls }) => ({
          reply,
          ...(retrieved ? { searches: retrieved } : {}),
          ...(calls ? { calls: calls.map((word) => ({ outcome: outcome(word) })) } : {}),
        })),
      });
      const truth: RewardReference = {
        goldTools: c.gold_tools,
        hard: c.hard.map(([from, to]) => ({ from, to })),
        soft: c.soft.map(([from, to]) => ({ from, to })),
        verdicts: { ...c.verdicts, reasons: { quality: "", faithfulness: "", utility: "" }, judge: "exact" },
      };
      const { turns } = trajectory;
      const e = c.expected;
      const k = PAPER_CONSTANTS;
      expect(turns.map((turn) => turn.planSlot as string)).toEqual(e.plan_slots);
      close(
        turns.map((turn) => turnStructure(turn).score),
        e.structure,
        "structure",
      );
      close(
        turns.map((turn) => turnPlanSlot(turn).score),
        e.plan_scores,
        "plan_scores",
      );
      close([rFormat(trajectory, k).value], [e.R_format], "R_format");
      const cascades = executionPhases(trajectory).map((windows) => phaseCascade(windows, truth, k).value);
      close(cascades, e.cascades, "cascades");
      const penalties = [pProtocol(trajectory, k), pRepetition(trajectory, k), pOrder(trajectory, truth, k)];
      const { protocol, repetition, order } = e.penalties;
      close(
        penalties.map((p) => p.value),
        [protocol, repetition, order],
        "penalties",
      );
      close(
        [rOutcome(trajectory, truth, k).value, rTools(trajectory, truth, k).value],
        [e.R_outcome, e.R_tools],
        "outcome, tools",
      );
      const scored = scoreTrajectory(trajectory, truth);
      close(
        [scored.format, scored.phase, scored.trajectory],
        [e.R_step_format, e.R_phase, e.R_traj],
        "format, phase, trajectory",
      );
    });
});

const advantageCases = await reference("advantages.json", AdvantageCases);
describe.skipIf(advantageCases === null)("advantages.json", () => {
  for (const c of advantageCases ?? [])
    test(c.name, () => {
      const options = { weights: c.weights, epsilon: 1e-6 };
      const gdpo = advantages(c.rewards, c.group, { ...options, method: "gdpo" });
      close(gdpo.perChannel.trajectory, c.per_channel.trajectory, "trajectory");
      close(gdpo.perChannel.phase, c.per_channel.phase, "phase");
      close(gdpo.perChannel.format, c.per_channel.format, "format");
      close(gdpo.combined, c.combined, "combined");
      close(gdpo.values, c.gdpo, "gdpo");
      close(advantages(c.rewards, c.group, { ...options, method: "grpo" }).values, c.grpo_on_sum, "grpo");
      close(advantages(c.rewards, c.group, { ...options, method: "dr_grpo" }).values, c.dr_grpo_on_sum, "dr_grpo");
    });
});
