/** What holds for the rewards of any trajectory. */
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { normalName } from "../paraact/json.ts";
import type { RecordedTurn } from "../paraact/replay.ts";
import type { Trajectory } from "../paraact/types.ts";
import type { CallOutcome, FaultKind, ToolCall } from "../toolenv/types.ts";
import { PAPER_CONSTANTS as K } from "./constants.ts";
import { pOrder, pProtocol, pRepetition } from "./penalties.ts";
import { executionPhases, phaseCascade } from "./phase.ts";
import type { RewardReference } from "./reference.ts";
import { scoreTrajectory } from "./score.ts";
import { play, verdicts } from "./testing.ts";
import { scoreToolRL } from "./toolrl.ts";
import type { ChannelRewards } from "./types.ts";

// The same cases in every run.
fc.configureGlobal({ seed: 2026 });

/** A turn as data, so that it can be permuted and relabelled before it is written. Tools are numbers. */
interface Draft {
  head: string;
  plan: { slots: number } | { layers: number[][]; edges: [number[], number][]; listed: number[] } | "broken" | null;
  searches: { query: number; found: number[] | "transient" | "final" }[];
  calls: { tool: number; x: number; outcome: CallOutcome; fault: FaultKind | null }[];
  answer: string | null;
  tail: string;
}
const TOOLS = 4;
const tool = fc.nat(TOOLS - 1);
const layers = fc.array(fc.array(tool, { minLength: 1, maxLength: 3 }), { minLength: 1, maxLength: 3 });
const edge = fc.tuple(fc.array(tool, { minLength: 1, maxLength: 2 }), tool);
const wellFormed = fc.record({
  layers,
  edges: fc.array(edge, { maxLength: 1 }),
  listed: fc.array(tool, { maxLength: 1 }),
});
const plan: fc.Arbitrary<Draft["plan"]> = fc.oneof(
  { weight: 6, arbitrary: wellFormed.map((p) => ({ ...p, listed: [] })) },
  { weight: 2, arbitrary: wellFormed },
  { weight: 2, arbitrary: fc.constant(null) },
  { weight: 1, arbitrary: fc.constant("broken" as const) },
);
const outcome = fc.constantFrom<CallOutcome>("ok", "ok", "ok", "not_found", "unavailable", "transient", "invalid");
const call = fc.record({
  tool,
  x: fc.nat(2),
  outcome,
  fault: fc.constantFrom<FaultKind | null>(null, null, "partial"),
});
const search = fc.record({
  query: fc.nat(3),
  found: fc.oneof(
    { weight: 5, arbitrary: fc.array(tool, { maxLength: 3 }) },
    fc.constantFrom("transient" as const, "final" as const),
  ),
});
const clean = { head: fc.constant("<think>t</think>"), tail: fc.constant("") };
const noise = {
  head: fc.constantFrom("<think>t</think>", "", "well ", "<think>"),
  tail: fc.constantFrom("", "", " bye", "</plan>"),
};
const slots: fc.Arbitrary<Draft["plan"]> = fc.constantFrom<Draft["plan"]>({ slots: 1 }, { slots: 2 }, null, "broken");
const none = fc.constant(null);
const nothing = fc.constant<never[]>([]);
const searchTurn = {
  plan: slots,
  searches: fc.array(search, { minLength: 1, maxLength: 3 }),
  calls: nothing,
  answer: none,
};
const callTurn = { plan, searches: nothing, calls: fc.array(call, { minLength: 1, maxLength: 4 }), answer: none };
const anyTurn = {
  plan,
  searches: fc.array(search, { maxLength: 1 }),
  calls: fc.array(call, { maxLength: 2 }),
  answer: fc.constantFrom(null, null, "42"),
};
const draft: fc.Arbitrary<Draft> = fc.oneof(
  { weight: 2, arbitrary: fc.record({ ...clean, ...searchTurn }) },
  { weight: 4, arbitrary: fc.record({ ...clean, ...callTurn }) },
  { weight: 1, arbitrary: fc.record({ ...noise, ...searchTurn }) },
  { weight: 1, arbitrary: fc.record({ ...noise, ...callTurn }) },
  { weight: 1, arbitrary: fc.record({ ...noise, ...anyTurn }) },
);
/** Most episodes begin with a search that finds every tool, so that what follows can score. */
const start: Draft = {
  head: "<think>t</think>",
  plan: { slots: 1 },
  searches: [{ query: 9, found: [0, 1, 2, 3] }],
  calls: [],
  answer: null,
  tail: "",
};
const turns = fc
  .tuple(fc.boolean(), fc.array(draft, { maxLength: 6 }))
  .map(([found, rest]) => (found ? [start, ...rest] : rest));
const episode = fc.record({
  turns,
  last: fc.constantFrom("the answer is 42", "n/a", null),
  hard: fc.array(fc.tuple(tool, tool), { maxLength: 3 }),
  soft: fc.array(fc.tuple(tool, tool), { maxLength: 2 }),
  gold: fc.array(tool, { maxLength: 3 }),
  digits: fc.constantFrom("111", "111", "110", "101", "000"),
});
type EpisodeDraft = typeof episode extends fc.Arbitrary<infer T> ? T : never;

const plainName = (i: number): string => `tool_${i}`;

/** Writes a turn with tools named by `name`, calls and searches in the order that `order` gives. */
function write(d: Draft, name: (i: number) => string, order: <T>(xs: T[]) => T[]): RecordedTurn {
  const planText = ((): string => {
    if (d.plan === null) return "";
    if (d.plan === "broken") return "<plan>{</plan>";
    if ("slots" in d.plan)
      return `<plan>${JSON.stringify({ capacity_slots: Array.from({ length: d.plan.slots }, (_, i) => `s${i}`) })}</plan>`;
    const { layers, edges, listed } = d.plan;
    const scheduled = [...new Set(layers.flat())];
    // An edge may name an occurrence: odd sources do, by position in the list of layers.
    const dependencies = edges.map(([from, to]) => ({
      from: from.map((i) => (i % 2 ? `${name(i)}#1` : name(i))),
      to: name(to),
    }));
    const flow = layers.map((layer, i) => ({ step: i + 1, parallel: layer.map(name) }));
    return `<plan>${JSON.stringify({ available_tools: [...scheduled, ...listed].map(name), dependencies, execution_flow: flow })}</plan>`;
  })();
  const searches = order(d.searches);
  const calls = order(d.calls);
  const body =
    searches.map((s) => `<search_tool>query ${s.query}</search_tool>`).join("") +
    calls
      .map((c) => `<tool_call>${JSON.stringify({ name: name(c.tool), arguments: { x: c.x } })}</tool_call>`)
      .join("") +
    (d.answer === null ? "" : `<answer>${d.answer}</answer>`);
  // Only what is dispatched has a record.
  const searchRecords = searches.map((s) => (typeof s.found === "string" ? s.found : s.found.map(name)));
  const callRecords = searches.length > 0 ? [] : calls.map(({ outcome, fault }) => ({ outcome, fault }));
  return { reply: d.head + planText + body + d.tail, searches: searchRecords, calls: callRecords };
}

interface Scored {
  trajectory: Trajectory;
  reference: RewardReference;
  rewards: ChannelRewards;
  toolrl: ChannelRewards;
}
async function score(e: EpisodeDraft, name = plainName, order: <T>(xs: T[]) => T[] = (xs) => xs): Promise<Scored> {
  // The first answer that is dispatched ends the episode.
  const end = e.turns.findIndex((d) => d.answer !== null && d.searches.length === 0 && d.calls.length === 0);
  const drafts = end < 0 ? e.turns : e.turns.slice(0, end + 1);
  const turns = drafts.map((d) => write(d, name, order));
  if (end < 0 && e.last !== null) turns.push({ reply: `<think>t</think><answer>${e.last}</answer>` });
  const trajectory = await play(turns);
  const edge = ([a, b]: [number, number]) => ({ from: name(a), to: name(b) });
  const reference = {
    goldTools: e.gold.map(name),
    hard: e.hard.map(edge),
    soft: e.soft.map(edge),
    verdicts: verdicts(e.digits),
  };
  const gold: ToolCall[] = e.gold.map((i) => ({ name: name(i), arguments: { x: i } }));
  return {
    trajectory,
    reference,
    rewards: scoreTrajectory(trajectory, reference),
    toolrl: scoreToolRL(trajectory, gold),
  };
}
/** Values of every term in order: the reasons may name tools and turns. */
const values = (r: ChannelRewards): number[] => {
  const all = (terms: ChannelRewards["terms"]): number[] => terms.flatMap((t) => [t.value, ...all(t.parts ?? [])]);
  return [r.trajectory, r.phase, r.format, ...all(r.terms)];
};
const same = (a: ChannelRewards, b: ChannelRewards): void => {
  const [x, y] = [values(a), values(b)];
  expect(x.length).toBe(y.length);
  for (const [i, v] of x.entries()) expect(v).toBeCloseTo(y[i]!, 9);
};

describe("rewards of any trajectory", () => {
  test("are within their bounds", async () => {
    const seen = { phases: 0, accepted: 0, gated: 0, order: 0 };
    await fc.assert(
      fc.asyncProperty(episode, async (e) => {
        const { trajectory, reference, rewards, toolrl } = await score(e);
        const within = (x: number, low: number, high: number): void => {
          expect(x).toBeGreaterThanOrEqual(low - 1e-9);
          expect(x).toBeLessThanOrEqual(high + 1e-9);
        };
        within(rewards.format, 0, 1);
        within(rewards.phase, 0, K.beta);
        within(rewards.trajectory, -0.5 - 0.25 * (0.5 + 0.6 + 0.3), 2);
        within(toolrl.trajectory, -3, 4);
        within(pProtocol(trajectory, K).value, 0, 0.5);
        within(pRepetition(trajectory, K).value, 0, 0.6);
        within(pOrder(trajectory, reference, K).value, 0, 0.3);
        for (const windows of executionPhases(trajectory)) {
          within(phaseCascade(windows, reference, K).value, 0, 1);
          seen.phases++;
          seen.accepted += windows.length;
        }
        if (rewards.phase > 0) seen.gated++;
        if (pOrder(trajectory, reference, K).value > 0) seen.order++;
      }),
      { numRuns: 700 },
    );
    // The generator reaches what the property is about.
    for (const count of Object.values(seen)) expect(count).toBeGreaterThan(10);
  }, 120_000);

  test("do not change when parallel calls, or searches, are written in another order", async () => {
    await fc.assert(
      fc.asyncProperty(episode, fc.nat(5), async (e, turn) => {
        const order = <T>(xs: T[]): T[] =>
          turn % 2
            ? [...xs].reverse()
            : [...xs.slice(turn % (xs.length || 1)), ...xs.slice(0, turn % (xs.length || 1))];
        const [a, b] = [await score(e), await score(e, plainName, order)];
        same(a.rewards, b.rewards);
        same(a.toolrl, b.toolrl);
      }),
      { numRuns: 500 },
    );
  }, 120_000);

  test("do not change when the tools are relabelled", async () => {
    const names = ["zebra_get", "Apple", "mid_list_for_x", "b"];
    await fc.assert(
      fc.asyncProperty(episode, fc.shuffledSubarray(names, { minLength: TOOLS }), async (e, labels) => {
        const [a, b] = [await score(e), await score(e, (i) => labels[i]!)];
        same(a.rewards, b.rewards);
        same(a.toolrl, b.toolrl);
      }),
      { numRuns: 500 },
    );
  }, 120_000);

  test("do not change when names are written in another case", async () => {
    await fc.assert(
      fc.asyncProperty(episode, async (e) => {
        let n = 0;
        const upper = (i: number): string => (n++ % 2 ? plainName(i).toUpperCase() : plainName(i));
        expect(normalName(upper(1))).toBe("tool_1");
        same((await score(e)).rewards, (await score(e, upper)).rewards);
      }),
      { numRuns: 500 },
    );
  }, 120_000);
});
