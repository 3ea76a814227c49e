/** Section 2, "Valid plans" and "Occurrences": each rule with a plan on either side. */
import { describe, expect, test } from "bun:test";
import type { Json, JsonObject } from "../catalog/types.ts";
import { isObject } from "./json.ts";
import { longestChains, misplaced, occurrencesOf, planGraph, readPlan } from "./plan.ts";
import type { ExecutionPlan } from "./types.ts";

const exec = (change: JsonObject = {}): JsonObject => ({
  available_tools: ["a", "b"],
  dependencies: [{ from: ["a"], to: "b" }],
  execution_flow: [
    { step: 1, parallel: ["a"] },
    { step: 2, parallel: ["b"] },
  ],
  ...change,
});
const without = (plan: JsonObject, key: string): JsonObject => {
  const { [key]: _, ...rest } = plan;
  return rest;
};
const codes = (plan: Json): string[] => readPlan(plan, 0).findings.map((f) => f.code);

const shapes: [rule: string, good: Json, bad: Json, code: string][] = [
  ["a plan is a JSON object", exec(), ["a"], "plan-shape"],
  ["capacity_slots is a non-empty list", { capacity_slots: ["a"] }, { capacity_slots: [] }, "plan-list"],
  ["capacity_slots holds non-empty strings", { capacity_slots: ["a"] }, { capacity_slots: [" "] }, "plan-list"],
  [
    "exploration: keys only capacity_slots and subgoals",
    { capacity_slots: ["a"], subgoals: [{ id: "1", subgoal: "s" }] },
    { capacity_slots: ["a"], tools: [] },
    "plan-unknown-key",
  ],
  [
    "subgoals is a non-empty list",
    exec({ subgoals: [{ id: "1", subgoal: "s" }] }),
    exec({ subgoals: [] }),
    "plan-subgoals",
  ],
  [
    "a subgoal is {id, subgoal}",
    exec({ subgoals: [{ id: 1, subgoal: "s" }] }),
    exec({ subgoals: [{ id: 1 }] }),
    "plan-subgoals",
  ],
  ["execution: available_tools is required", exec(), without(exec(), "available_tools"), "plan-list"],
  [
    "execution: dependencies is required",
    exec({ dependencies: [] }),
    without(exec(), "dependencies"),
    "plan-dependencies",
  ],
  ["execution: execution_flow is required", exec(), without(exec(), "execution_flow"), "plan-flow"],
  ["execution: at most subgoals besides", exec(), exec({ note: "x" }), "plan-unknown-key"],
  ["steps are numbered from 1", exec(), exec({ execution_flow: [{ step: 0, parallel: ["a"] }] }), "plan-step-number"],
  [
    "steps are numbered without gaps",
    exec(),
    exec({
      execution_flow: [
        { step: 1, parallel: ["a"] },
        { step: 3, parallel: ["b"] },
      ],
    }),
    "plan-step-number",
  ],
  ["each parallel is non-empty", exec(), exec({ execution_flow: [{ step: 1, parallel: [] }] }), "plan-list"],
  ["each dependency has a non-empty from", exec(), exec({ dependencies: [{ from: [], to: "b" }] }), "plan-list"],
  ["each dependency has one to", exec(), exec({ dependencies: [{ from: ["a"], to: ["b"] }] }), "plan-dependency"],
];

describe("section 2: valid plans", () => {
  for (const [rule, good, bad, code] of shapes) {
    test(`${rule} (kept)`, () => expect(codes(good)).toEqual([]));
    test(`${rule} (broken → ${code})`, () => {
      expect(codes(bad)).toContain(code);
      expect(readPlan(bad, 0).plan).toBeNull();
    });
  }
});

/** A plan from layers like "list | get get | sum" and dependencies like "list>get#1". */
function plan(layers: string, dependencies: string[] = [], tools?: string[]): ExecutionPlan {
  const flow = layers.split("|").map((layer, i) => ({ step: i + 1, parallel: layer.trim().split(" ") }));
  return {
    kind: "execution",
    available_tools: tools ?? [...new Set(flow.flatMap((s) => s.parallel))],
    dependencies: dependencies.map((text) => {
      const [from = "", to = ""] = text.split(">");
      return { from: from.split(","), to };
    }),
    execution_flow: flow,
  };
}
const edges = (p: ExecutionPlan): string[] => planGraph(p).graph.declared.map((e) => e.join(">"));
const problems = (p: ExecutionPlan): string[] => planGraph(p).findings.map((f) => f.code);

describe("section 2: occurrences", () => {
  test("a tool scheduled more than once is tool#1, tool#2 … in order of the flow", () =>
    expect(occurrencesOf(plan("get list | get get")).map((o) => o.ref)).toEqual(["get#1", "list#1", "get#2", "get#3"]));
  test("successive layers of one tool depend on each other", () =>
    expect(planGraph(plan("get get | get")).graph.implied).toEqual([
      ["get#1", "get#3"],
      ["get#2", "get#3"],
    ]));
  test("layers of different tools do not", () => expect(planGraph(plan("get | list")).graph.implied).toEqual([]));
  test("names compare trimmed and lower-cased", () =>
    expect(edges(plan("Get | LIST", ["get>list"], [" GET", "list "]))).toEqual(["get#1>list#1"]));

  const resolved: [rule: string, layers: string, dependency: string, edges: string[]][] = [
    ["as a target: its earliest occurrence that has all its sources in earlier steps", "a | b | b", "a>b", ["a#1>b#1"]],
    ["… and not an earlier one that lacks a source", "a b | c | b", "a,c>b", ["a#1>b#2", "c#1>b#2"]],
    ["as a source: its latest occurrence before the target", "a | a | b | a", "a>b", ["a#2>b#1"]],
    ["a tool may feed itself", "a | a", "a>a", ["a#1>a#2"]],
    ["an explicit reference means that one", "a | b b", "a>b#2", ["a#1>b#2"]],
    ["explicit sources", "a a | b", "a#1,a#2>b", ["a#1>b#1", "a#2>b#1"]],
  ];
  for (const [rule, layers, dependency, expected] of resolved)
    test(`bare names, ${rule}`, () => {
      expect(problems(plan(layers, [dependency]))).toEqual([]);
      expect(edges(plan(layers, [dependency]))).toEqual(expected);
    });

  const unresolved: [rule: string, layers: string, dependency: string, code: string][] = [
    ["more than one target candidate is an error", "a | b b", "a>b", "plan-edge-ambiguous"],
    ["more than one source candidate is an error", "a a | b", "a>b", "plan-edge-ambiguous"],
    ["edges run to later steps: side by side is an error", "a b", "a>b", "plan-edge-order"],
    ["edges run to later steps: backwards is an error", "a | b", "b>a", "plan-edge-order"],
    ["edges run to later steps: explicit references too", "a | a", "a#2>a#1", "plan-edge-order"],
    ["a name that is not scheduled is an error", "a | b", "c>b", "plan-edge-unscheduled"],
  ];
  for (const [rule, layers, dependency, code] of unresolved)
    test(`${rule} (${code})`, () => expect(problems(plan(layers, [dependency]))).toEqual([code]));
  test("scheduled tools are all in available_tools", () =>
    expect(problems(plan("a | b", [], ["a"]))).toEqual(["plan-tool-unlisted"]));
  test("a listed tool need not be scheduled for the plan to be consistent", () =>
    expect(problems(plan("a", [], ["a", "b"]))).toEqual([]));
});

describe("section 4, L3: the layering is minimal", () => {
  const wrong = (p: ExecutionPlan): string[] => {
    const { occurrences, declared, implied } = planGraph(p).graph;
    return misplaced(occurrences, [...declared, ...implied]).map((o) => o.ref);
  };
  test("kept: independent calls in one step", () => expect(wrong(plan("a b"))).toEqual([]));
  test("broken: independent calls in two steps", () => expect(wrong(plan("a | b"))).toEqual(["b#1"]));
  test("kept: a diamond in three steps", () => expect(wrong(plan("a | b c | d", ["a>b", "a>c", "b,c>d"]))).toEqual([]));
  test("broken: a call one step later than its chain", () =>
    expect(wrong(plan("a | b | c", ["a>b", "a>c"]))).toEqual(["c#1"]));
  test("broken: dependent calls side by side", () =>
    expect(misplaced(occurrencesOf(plan("a b")), [["a#1", "b#1"]]).map((o) => o.ref)).toEqual(["b#1"]));
  test("a cycle has no layering", () => {
    const loop: [string, string][] = [
      ["a", "b"],
      ["b", "a"],
    ];
    expect(longestChains(["a", "b"], loop)).toBeNull();
  });
});

test("a plan read from JSON is the plan that was written", () => {
  const written = exec();
  const read = readPlan(written, 0).plan;
  expect(isObject(written) && read?.kind === "execution" && read.execution_flow).toEqual([
    { step: 1, parallel: ["a"] },
    { step: 2, parallel: ["b"] },
  ]);
});
