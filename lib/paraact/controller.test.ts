/** Section 3, the plan controller: every row of the table on both sides, budgets, revise and restart, readiness. */
import { describe, expect, test } from "bun:test";
import type { JsonObject } from "../catalog/types.ts";
import {
  type CallEvent,
  type ControllerState,
  enterTurn,
  isFinished,
  offerPlan,
  PLAN_BUDGET,
  PLAN_RULES,
  planRulesTable,
  planSlot,
  readyOccurrences,
  recordTurn,
  type SearchEvent,
  startOfEpisode,
} from "./controller.ts";
import type { ActionKind, ExecutionPlan, ExplorationPlan, Plan } from "./types.ts";

const explore: ExplorationPlan = { kind: "exploration", capacity_slots: ["a"] };
/** A plan from layers like "a b | c" and dependencies like "a>c". */
function exec(layers: string, ...dependencies: string[]): ExecutionPlan {
  const flow = layers.split("|").map((layer, i) => ({ step: i + 1, parallel: layer.trim().split(" ") }));
  return {
    kind: "execution",
    available_tools: [...new Set(flow.flatMap((s) => s.parallel))],
    dependencies: dependencies.map((d) => ({ from: (d.split(">")[0] ?? "").split(","), to: d.split(">")[1] ?? "" })),
    execution_flow: flow,
  };
}
/** Calls from words like "a", "a:transient", "a=2:not_found". */
function calls(words: string): CallEvent[] {
  return words.split(" ").map((word) => {
    const [left = "", outcome = "ok"] = word.split(":");
    const [name = "", x = ""] = left.split("=");
    const args: JsonObject = x === "" ? {} : { x };
    return { call: { name, arguments: args }, outcome: outcome as CallEvent["outcome"], fault: null };
  });
}
const found: SearchEvent = { retrieved: ["a"], failed: null };

type Step = { plan?: Plan | "invalid"; calls?: string; searches?: SearchEvent[]; answer?: true; mixed?: true };
/** Plays turns; gives each turn's slot, event and matched occurrences, and the state after them. */
function play(...steps: Step[]) {
  let state: ControllerState = startOfEpisode();
  const log: { slot: string; rule: string; event: string; occurrences: (string | null)[] }[] = [];
  for (const step of steps) {
    const kind: ActionKind | "none" = step.searches ? "search" : step.calls ? "call" : step.answer ? "answer" : "none";
    state = enterTurn(state, kind);
    const { slot, rule } = planSlot({ kind, mixed: step.mixed ?? false, state });
    const plan = step.plan === "invalid" ? null : (step.plan ?? null);
    const offer = offerPlan(state, { plan, offered: step.plan !== undefined, slot });
    const events = { calls: step.calls ? calls(step.calls) : [], searches: step.searches ?? [] };
    const recorded = recordTurn(offer.state, events);
    state = recorded.state;
    log.push({ slot, rule, event: offer.event, occurrences: recorded.occurrences });
  }
  return { state, log, last: log.at(-1) };
}
const search: Step = { searches: [found] };

describe("section 3: plan slots", () => {
  const rows: [rule: string, slot: string, steps: Step[]][] = [
    ["no live plan: the first search of a phase", "required", [search]],
    ["no live plan: the first call of a phase", "required", [{ calls: "a" }]],
    ["no live plan: the plan before was invalid", "required", [{ ...search, plan: "invalid" }, search]],
    ["no live plan: a new phase of the other kind", "required", [{ ...search, plan: explore }, { calls: "a" }]],
    [
      "no live plan: a later phase of the same kind",
      "required",
      [{ calls: "a", plan: exec("a") }, search, { calls: "a" }],
    ],
    ["exploration with a live plan, budget left", "optional", [{ ...search, plan: explore }, search]],
    [
      "exploration with a live plan, budget spent",
      "forbidden",
      [{ ...search, plan: explore }, { ...search, plan: explore }, search],
    ],
    ["execution, everything succeeded", "required", [{ calls: "a", plan: exec("a") }, { calls: "b" }]],
    ["execution, failed for good", "required", [{ calls: "a:not_found", plan: exec("a") }, { calls: "b" }]],
    [
      "execution, the rest blocked behind a final failure",
      "required",
      [{ calls: "a:unavailable", plan: exec("a | b", "a>b") }, { calls: "b" }],
    ],
    [
      "execution, something is not blocked",
      "optional",
      [{ calls: "a:unavailable", plan: exec("a c | b", "a>b") }, { calls: "c" }],
    ],
    [
      "execution, finished, budget spent",
      "forbidden",
      [{ calls: "a", plan: exec("a") }, { calls: "b", plan: exec("b") }, { calls: "c" }],
    ],
    [
      "execution, recovery: a transient failure",
      "optional",
      [{ calls: "a:transient", plan: exec("a") }, { calls: "a" }],
    ],
    ["execution, recovery: an invalid call", "optional", [{ calls: "a:invalid", plan: exec("a") }, { calls: "a" }]],
    [
      "execution, recovery: budget spent",
      "forbidden",
      [{ calls: "a:transient", plan: exec("a") }, { calls: "a:transient", plan: exec("a") }, { calls: "a" }],
    ],
    [
      "execution, recovery lasts one turn",
      "forbidden",
      [{ calls: "a:transient", plan: exec("a b | c", "b>c") }, { calls: "b" }, { calls: "c" }],
    ],
    ["execution, work goes on", "forbidden", [{ calls: "a", plan: exec("a | b", "a>b") }, { calls: "b" }]],
    ["an answer", "forbidden", [{ answer: true }]],
    ["an answer after a failure", "forbidden", [{ calls: "a:transient", plan: exec("a") }, { answer: true }]],
    ["a turn that mixes kinds of action", "forbidden", [{ ...search, mixed: true }]],
    ["a turn without an action", "forbidden", [{}]],
  ];
  for (const [rule, slot, steps] of rows) test(`${rule} → ${slot}`, () => expect(play(...steps).last?.slot).toBe(slot));

  test("recovery: a fault was injected into a call that came back", () => {
    const { state } = play({ calls: "a", plan: exec("a | b", "a>b") });
    const calls: CallEvent[] = [{ call: { name: "b", arguments: {} }, outcome: "ok", fault: "partial" }];
    expect(recordTurn(state, { calls, searches: [] }).state.recovery).toBe("a fault was injected");
  });
  test("recovery: a search came back empty, or failed", () => {
    expect(play({ searches: [{ retrieved: [], failed: null }] }).state.recovery).toBe("a search came back empty");
    expect(play({ searches: [{ retrieved: [], failed: "transient" }] }).state.recovery).toBe("a search failed");
    expect(play({ searches: [found] }).state.recovery).toBeNull();
  });
  test("every rule of the table decides some turn above", () => {
    const deciding = new Set(rows.map(([, , steps]) => play(...steps).last?.rule));
    expect([...deciding].sort()).toEqual(PLAN_RULES.map((rule) => rule.id).sort());
  });
  test("the table in words has one line a rule", () => {
    const lines = planRulesTable().split("\n");
    expect(lines).toHaveLength(PLAN_RULES.length + 2);
    expect(lines).toContain("| no live plan in this phase | required | `first-plan` |");
    expect(planRulesTable()).toContain("| optional while the budget lasts, then forbidden |");
  });
});

describe("section 3: phases", () => {
  test("a phase is a maximal run of turns of one kind", () => {
    expect(play(search, search).state.phase).toBe("exploration");
    expect(play(search, { calls: "a" }).state).toMatchObject({ phase: "execution", live: null, accepted: 0 });
  });
  test("a turn without an action breaks no phase", () =>
    expect(play({ calls: "a", plan: exec("a | b", "a>b") }, {}, { calls: "b" }).last).toMatchObject({
      slot: "forbidden",
      occurrences: ["b#1"],
    }));
});

describe("section 3: the controller takes a plan or not", () => {
  test("a required plan becomes the controller", () =>
    expect(play({ calls: "a", plan: exec("a") }).last?.event).toBe("accepted"));
  test("an invalid plan never does", () => {
    const { state, last } = play({ calls: "a", plan: "invalid" });
    expect([last?.event, state.live, state.accepted]).toEqual(["rejected", null, 0]);
  });
  test("a forbidden plan never does", () => {
    const first = exec("a | b", "a>b");
    const { state, last } = play({ calls: "a", plan: first }, { calls: "b", plan: exec("b") });
    expect([last?.event, state.live?.plan, state.accepted]).toEqual(["rejected", first, 1]);
  });
  test(`the budget is ${PLAN_BUDGET} accepted plans a phase`, () => {
    const plan = exec("a");
    const third = play({ calls: "a:transient", plan }, { calls: "a:transient", plan }, { calls: "a", plan });
    expect(third.log.map((turn) => turn.event)).toEqual(["accepted", "revise", "rejected"]);
  });
  test("a rejected plan costs no budget", () => {
    const turns = play(
      { calls: "a", plan: "invalid" },
      { calls: "a:transient", plan: exec("a") },
      { calls: "a", plan: exec("a") },
    );
    expect(turns.log.map((turn) => turn.event)).toEqual(["rejected", "accepted", "revise"]);
  });
});

describe("section 3: revise and restart", () => {
  const failed: Step = { calls: "a b:transient", plan: exec("a b | c", "a,b>c") };
  test("a revise keeps unfinished work, and what succeeded stays so", () => {
    const { state, last } = play(failed, { calls: "b", plan: exec("a b | d", "a,b>d") });
    expect(last).toMatchObject({ event: "revise", occurrences: ["b#1"] });
    expect(state.live?.status).toEqual({ "a#1": "ok", "b#1": "ok", "d#1": "open" });
  });
  test("a restart abandons it, and nothing is kept", () => {
    const { state, last } = play(failed, { calls: "e", plan: exec("a e") });
    expect(last).toMatchObject({ event: "restart", occurrences: ["e#1"] });
    expect(state.live?.status).toEqual({ "a#1": "open", "e#1": "ok" });
  });
  test("what failed for good is not unfinished: a plan with something else in its place is a revise", () => {
    const { state, last } = play({ calls: "a b:not_found", plan: exec("a b") }, { calls: "d", plan: exec("a d") });
    expect(last?.event).toBe("revise");
    expect(state.live?.status).toEqual({ "a#1": "ok", "d#1": "ok" });
  });
  test("ours: after finished work, a plan that adds work is a revise", () =>
    expect(play({ calls: "a", plan: exec("a") }, { calls: "b", plan: exec("a | b", "a>b") }).last).toMatchObject({
      event: "revise",
      occurrences: ["b#1"],
    }));
  test("ours: after finished work, a plan for the same work again is a restart", () =>
    expect(play({ calls: "a=1", plan: exec("a") }, { calls: "a=2", plan: exec("a") }).last).toMatchObject({
      event: "restart",
      occurrences: ["a#1"],
    }));
  test("a second exploration plan is a revise", () =>
    expect(play({ ...search, plan: explore }, { ...search, plan: explore }).last?.event).toBe("revise"));
});

describe("section 3: readiness and matching", () => {
  const ready = (...steps: Step[]): string[] => {
    const { live } = play(...steps).state;
    return live ? readyOccurrences(live).map((o) => o.ref) : [];
  };
  test("ready: all predecessors have succeeded", () =>
    expect(ready({ calls: "a", plan: exec("a | b", "a>b") })).toEqual(["b#1"]));
  test("not ready: a predecessor failed", () =>
    expect(ready({ calls: "a:transient", plan: exec("a | b", "a>b") })).toEqual(["a#1"]));
  test("readiness is frozen at the start of the turn: a success in the same turn comes too late", () =>
    expect(play({ calls: "a b", plan: exec("a | b", "a>b") }).last?.occurrences).toEqual(["a#1", null]));
  test("calls match ready occurrences of the same tool, in order", () =>
    expect(play({ calls: "a=1 a=2 b", plan: exec("a a b") }).last?.occurrences).toEqual(["a#1", "a#2", "b#1"]));
  test("the order among calls of a tool is that of their arguments, however they are written", () =>
    expect(play({ calls: "a=2 a=1", plan: exec("a a") }).last?.occurrences).toEqual(["a#2", "a#1"]));
  test("a call that matches none is outside the plan", () =>
    expect(play({ calls: "a a z", plan: exec("a") }).last?.occurrences).toEqual(["a#1", null, null]));
  test("a done occurrence is not called again", () =>
    expect(play({ calls: "a", plan: exec("a b") }, { calls: "a b" }).last?.occurrences).toEqual([null, "b#1"]));
  test("names match in any case", () =>
    expect(play({ calls: "A", plan: exec("a") }).last?.occurrences).toEqual(["a#1"]));
  test("an occurrence that failed for good may still succeed, after the open ones", () => {
    const { state, last } = play({ calls: "a=1:not_found", plan: exec("a a") }, { calls: "a=2" });
    expect(last?.occurrences).toEqual(["a#2"]);
    expect(state.live && isFinished(state.live)).toBe(true);
  });
});
