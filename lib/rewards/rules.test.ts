/** Section 4, rule by rule: each with at least one case on either side. */
import { describe, expect, test } from "bun:test";
import type { RecordedTurn } from "../paraact/replay.ts";
import type { Task } from "../toolenv/types.ts";
import { PAPER_CONSTANTS as K } from "./constants.ts";
import { pOrder, pProtocol, pRepetition, repeatedCalls, repeatedPlans, repeatedSearches } from "./penalties.ts";
import { executionPhases, l1Grounding, l2Dependencies, l3Layers, l4Execution, phaseCascade, rPhase } from "./phase.ts";
import { type RewardReference, states, taskReference } from "./reference.ts";
import { scoreTrajectory } from "./score.ts";
import { rFormat, rStepFormat, sPlan, sStructure, turnPlanSlot } from "./step.ts";
import { answer, calls, find, planBlock as plan, play, says, searchTurn, truth, verdicts } from "./testing.ts";
import { scoreToolRL, toolrlCorrect } from "./toolrl.ts";
import { isPlaceholder, MissingVerdicts, rOutcome, rTools, rTraj } from "./trajectory.ts";

describe("section 4, step channel: s_structure, s_plan, R_format, R_step_format", () => {
  const bad = says("<search_tool>q</search_tool>");
  test("s_structure is the mean over all turns", async () => {
    const t = await play([find("a"), { ...bad, searches: [["a"]] }, says("<answer>x</answer>")]);
    expect(sStructure(t).value).toBeCloseTo((1 + 0 + 0.5) / 3, 9);
  });
  const slots: [rule: string, score: 0 | 1, turns: RecordedTurn[]][] = [
    ["required: a valid plan is there", 1, [find("a")]],
    ["required: none is there", 0, [searchTurn("", [["q", "a"]])]],
    ["required: an invalid one is there", 0, [searchTurn("<plan>{}</plan>", [["q", "a"]])]],
    ["required: a valid plan in a reply that is no turn", 0, [{ ...find("a"), reply: `oh ${find("a").reply}` }]],
    ["optional: none is there", 1, [find("a"), searchTurn("", [["q", "a"]])]],
    ["optional: a valid one is there", 1, [find("a"), find("b")]],
    ["optional: an invalid one is there", 0, [find("a"), searchTurn("<plan>{}</plan>", [["q", "a"]])]],
    ["forbidden: none is there", 1, [answer()]],
    ["forbidden: a valid one is there", 0, [find("a"), find("b"), find("c")]],
    ["forbidden: an invalid one is there", 0, [says("<think>t</think><plan>{}</plan><answer>x</answer>")]],
    [
      "mixed kinds count as forbidden: no plan is right",
      1,
      [{ ...searchTurn("", [["q", "a"]]), reply: `${searchTurn("", [["q", "a"]]).reply}<answer>x</answer>` }],
    ],
    [
      "mixed kinds count as forbidden: a plan is wrong",
      0,
      [{ ...find("a"), reply: `${find("a").reply}<answer>x</answer>` }],
    ],
  ];
  for (const [rule, score, turns] of slots)
    test(`s_plan, ${rule} → ${score}`, async () => {
      const t = await play(turns);
      expect(turnPlanSlot(t.turns.at(-1)!).score).toBe(score);
    });
  test("R_format = −λ·max(0, 1 − s_structure/2 − s_plan/2)", async () => {
    const t = await play([find("a"), { ...bad, searches: [["a"]] }, answer()]);
    expect([sStructure(t).value, sPlan(t).value]).toEqual([2 / 3, 1]);
    expect(rFormat(t, K).value).toBeCloseTo(-1 / 6, 9);
    expect(rFormat(t, { ...K, lambda: 3 }).value).toBeCloseTo(-1 / 2, 9);
  });
  test("R_step_format = 1 + R_format: 1 for a clean trajectory, 0 without a turn", async () => {
    expect(rStepFormat(await play([find("a"), calls("a", plan("a")), answer()]), K).value).toBe(1);
    expect(rStepFormat(await play([]), K).value).toBe(0);
  });
});

/** The levels of the first window of the first execution phase. */
async function levels(turns: RecordedTurn[], reference: RewardReference) {
  const [windows] = executionPhases(await play(turns));
  const window = windows![0]!;
  return {
    L1: l1Grounding(window).holds,
    L2: l2Dependencies(window, reference).holds,
    L3: l3Layers(window, reference).holds,
    L4: l4Execution(window, reference).share,
    cascade: phaseCascade(windows!, reference, K).value,
  };
}
const ab = find("a b c d");

describe("section 4, phase channel, L1 grounding: every listed tool was retrieved earlier, none twice", () => {
  const cases: [string, boolean, RecordedTurn[]][] = [
    ["all retrieved", true, [ab, calls("a", plan("a"))]],
    ["retrieved in any case of letters", true, [ab, calls("A", plan("A"))]],
    ["retrieved several turns ago", true, [find("a"), find("b"), calls("a", plan("a"))]],
    ["never retrieved", false, [ab, calls("z", plan("z"))]],
    ["retrieved only later", false, [ab, calls("z", plan("z")), find("z")]],
    ["listed twice", false, [ab, calls("a", plan("a", [], ["a", "a"]))]],
    ["listed twice in another case", false, [ab, calls("a", plan("a", [], ["a", "A"]))]],
  ];
  for (const [rule, holds, turns] of cases)
    test(`${rule} → ${holds}`, async () => {
      const l = await levels(turns, truth("a"));
      expect(l.L1).toBe(holds);
      expect(l.cascade).toBe(holds ? 1 : 0);
    });
});

describe("section 4, phase channel, L2 dependencies: every hard edge among the available tools, no untrue one", () => {
  const cases: [string, boolean, string, string[], string[], string[]][] = [
    ["independent tools, none declared", true, "a b", [], [], []],
    ["the hard edge is declared", true, "a | b", ["a>b"], ["a>b"], []],
    ["a hard edge is missing", false, "a | b", [], ["a>b"], []],
    ["a hard edge to a tool that is not available is not needed", true, "a", [], ["a>b"], []],
    ["a soft edge may be declared", true, "a | b", ["a>b"], [], ["a>b"]],
    ["a soft edge need not be", true, "a b", [], [], ["a>b"]],
    ["an untrue edge is declared", false, "a | b", ["a>b"], [], []],
    ["a true edge the wrong way round", false, "b | a", ["b>a"], ["a>b"], []],
    ["one of two hard edges is missing", false, "a b | c", ["a>c"], ["a>c", "b>c"], []],
    ["a tool that feeds itself, in successive layers", true, "a | a", [], ["a>a"], []],
    ["a tool that feeds itself, side by side", false, "a a", [], ["a>a"], []],
    ["a tool that could feed itself, scheduled once", true, "a", [], ["a>a"], []],
  ];
  for (const [rule, holds, layers, declared, hard, soft] of cases)
    test(`${rule} → ${holds}`, async () =>
      expect((await levels([ab, calls("a", plan(layers, declared))], truth("a b", hard, soft))).L2).toBe(holds));
});

describe("section 4, phase channel, L3 layers: all scheduled, edges respected, minimal", () => {
  const cases: [string, boolean, string, string[], string[], string[]][] = [
    ["independent calls in one step", true, "a b", [], [], []],
    ["independent calls in two steps", false, "a | b", [], [], []],
    ["a chain in two steps", true, "a | b", ["a>b"], ["a>b"], []],
    ["a chain in two steps, not declared", true, "a | b", [], ["a>b"], []],
    ["dependent calls side by side", false, "a b", [], ["a>b"], []],
    ["an untrue edge does not justify a step", false, "a | b", ["a>b"], [], []],
    ["a declared soft edge does", true, "a | b", ["a>b"], [], ["a>b"]],
    ["an undeclared soft edge does not", false, "a | b", [], [], ["a>b"]],
    ["a diamond in three steps", true, "a | b c | d", ["a>b", "a>c", "b,c>d"], ["a>b", "a>c", "b>d", "c>d"], []],
    ["a diamond in four", false, "a | b | c | d", ["a>b", "a>c", "b,c>d"], ["a>b", "a>c", "b>d", "c>d"], []],
    ["fan out over one tool", true, "a | b b b", ["a>b#1", "a>b#2", "a>b#3"], ["a>b"], []],
    ["fan out over one tool, nothing declared", true, "a | b b b", [], ["a>b"], []],
    ["fan out over one tool, one of them not declared", false, "a | b b", ["a>b#1"], ["a>b"], []],
  ];
  for (const [rule, holds, layers, declared, hard, soft] of cases)
    test(`${rule} → ${holds}`, async () =>
      expect((await levels([ab, calls("a", plan(layers, declared))], truth("a b", hard, soft))).L3).toBe(holds));
  test("an available tool that is not scheduled → false", async () =>
    expect((await levels([ab, calls("a", plan("a", [], ["a", "b"]))], truth("a"))).L3).toBe(false));
});

describe("section 4, phase channel, L4 execution: the share of planned calls made when ready and resolved", () => {
  const chain = plan("a | b", ["a>b"]);
  const cases: [string, number, RecordedTurn[], string[]][] = [
    ["all succeed", 1, [calls("a b", plan("a b"))], []],
    ["one was never called", 0.5, [calls("a", plan("a b"))], []],
    ["no such resource resolves", 1, [calls("a:not_found b", plan("a b"))], []],
    ["tool unavailable resolves", 1, [calls("a:unavailable b", plan("a b"))], []],
    ["a transient fault does not", 0.5, [calls("a:transient b", plan("a b"))], []],
    ["an invalid call does not", 0.5, [calls("a:invalid b", plan("a b"))], []],
    ["a retry that succeeds does", 1, [calls("a:transient b", plan("a b")), calls("a")], []],
    ["a call in its turn of a chain", 1, [calls("a", chain), calls("b")], ["a>b"]],
    ["called before it is ready", 0.5, [calls("a b", chain)], ["a>b"]],
    ["called again when ready", 1, [calls("a b", chain), calls("b")], ["a>b"]],
    ["not ready by a hard edge that the plan leaves out", 0.5, [calls("a b", plan("a b"))], ["a>b"]],
    ["ready by an undeclared hard edge in the next turn", 1, [calls("a", plan("a | b")), calls("b")], ["a>b"]],
    ["behind a final failure it is never ready", 0.5, [calls("a:not_found", chain), calls("b")], ["a>b"]],
    ["a call outside the plan does not count", 0.5, [calls("a z", plan("a b"))], []],
  ];
  for (const [rule, share, turns, hard] of cases)
    test(`${rule} → ${share}`, async () => expect((await levels([ab, ...turns], truth("a b", hard))).L4).toBe(share));
});

describe("section 4, phase channel: windows, phases, R_phase", () => {
  test("0.1 + 0.2 + 0.2 + 0.5 make a whole cascade", async () => {
    expect((await levels([ab, calls("a b", plan("a b"))], truth("a b"))).cascade).toBeCloseTo(1, 9);
    expect((await levels([ab, calls("a", plan("a b"))], truth("a b"))).cascade).toBeCloseTo(0.75, 9);
  });
  test("a phase with several accepted plans is the mean of its windows, weighted by the work that each still declared", async () => {
    // First plan: 2 calls, 1 resolved (0.75). Then a revise that keeps a: 2 more calls, none made (0.5 from L1 to L3).
    const t = await play([ab, calls("a b:transient", plan("a b")), calls("z", plan("a b c")), answer()]);
    const [windows] = executionPhases(t);
    expect(windows?.map((w) => [...w.carried])).toEqual([[], ["a#1"]]);
    expect(phaseCascade(windows!, truth("a b c"), K).value).toBeCloseTo((2 * 0.75 + 2 * 0.5) / 4, 9);
  });
  test("a restart declares all its work anew", async () => {
    const t = await play([ab, calls("a b:transient", plan("a b")), calls("c", plan("c d a"))]);
    const [windows] = executionPhases(t);
    expect(windows?.map((w) => [...w.carried])).toEqual([[], []]);
    expect(phaseCascade(windows!, truth("a b c d"), K).value).toBeCloseTo((2 * 0.75 + 3 * (0.5 + 0.5 / 3)) / 5, 9);
  });
  test("a phase without an accepted plan scores 0", async () => {
    const t = await play([ab, calls("a")]);
    expect(executionPhases(t).map((w) => phaseCascade(w, truth("a"), K).value)).toEqual([0]);
  });
  test("R_phase = β·mean over execution phases", async () => {
    const t = await play([ab, calls("a", plan("a")), find("b"), calls("b"), answer()]);
    expect(rPhase(t, truth("a b"), 1.5, K).value).toBeCloseTo((0.5 * (1 + 0)) / 2, 9);
  });
  const gate: [number, number][] = [
    [1.5, 0.5],
    [0.5, 0.5 / 3],
    [0, 0],
    [-0.5, 0],
    [3, 0.5],
  ];
  for (const [outcome, expected] of gate)
    test(`× clip(R_outcome / 1.5, 0, 1): outcome ${outcome} → ${expected.toFixed(3)}`, async () =>
      expect(rPhase(await play([ab, calls("a", plan("a"))]), truth("a"), outcome, K).value).toBeCloseTo(expected, 9));
  test("without the outcome gate (ablation) coordination pays alone", async () =>
    expect(
      rPhase(await play([ab, calls("a", plan("a"))]), truth("a"), -0.5, { ...K, outcomeGate: false }).value,
    ).toBeCloseTo(0.5, 9));
  test("no execution phase → 0", async () =>
    expect(rPhase(await play([ab, answer()]), truth("a"), 1.5, K).value).toBe(0));
});

describe("section 4, trajectory channel: R_outcome", () => {
  const table: [string, number][] = [
    ["111", 1.5],
    ["110", 0.5],
    ["011", 0.5],
    ["101", 0],
    ["001", 0],
    ["100", -0.5],
    ["010", -0.5],
    ["000", -0.5],
  ];
  for (const [digits, value] of table)
    test(`verdicts ${digits} → ${value}`, async () =>
      expect(rOutcome(await play([answer()]), truth("a", [], [], digits), K).value).toBe(value));
  test("no answer → −0.5", async () => expect(rOutcome(await play([ab]), truth("a"), K).value).toBe(-0.5));
  test("a placeholder answer is 000", async () =>
    expect(rOutcome(await play([answer("N/A")]), truth("a"), K).value).toBe(-0.5));
  for (const [text, is] of [
    ["", true],
    ["...", true],
    ["[your answer here]", true],
    ["TODO", true],
    ["<answer>", true],
    ["42", false],
    ["No, none of them is open.", false],
    ["是", false],
  ] as const)
    test(`placeholder: ${JSON.stringify(text)} → ${is}`, () => expect(isPlaceholder(text)).toBe(is));
  test("a judge that fails scores 0, marked", async () => {
    const term = rOutcome(await play([answer()]), { ...truth("a"), verdicts: verdicts("000", "failed") }, K);
    expect([term.value, term.reason]).toEqual([0, "the judge failed: neutral"]);
  });
  test("an answer that nobody judged is an error, not a guess", async () => {
    const t = await play([answer()]);
    expect(() => scoreTrajectory(t, { ...truth("a"), verdicts: null })).toThrow(MissingVerdicts);
  });
});

describe("section 4, trajectory channel: R_tools = 0.4·called with success + 0.1·retrieved", () => {
  const cases: [string, number, RecordedTurn[]][] = [
    ["all retrieved and called", 0.5, [find("a b"), calls("a b")]],
    ["all retrieved, half called", 0.3, [find("a b"), calls("a")]],
    ["a failed call does not count", 0.3, [find("a b"), calls("a b:not_found")]],
    ["half retrieved, none called", 0.05, [find("a")]],
    ["called without retrieval", 0.4, [calls("a b")]],
    ["nothing", 0, [answer()]],
  ];
  for (const [rule, value, turns] of cases)
    test(`${rule} → ${value}`, async () =>
      expect(rTools(await play(turns), truth("a b"), K).value).toBeCloseTo(value, 9));
});

describe("section 4, penalties: protocol", () => {
  const cases: [string, number, RecordedTurn[]][] = [
    ["search, call, answer", 0, [find("a"), calls("a"), answer()]],
    ["search then answer with no call", 0.5, [find("a"), answer()]],
    ["search without an answer or a call", 0, [find("a")]],
    ["calls with no search", 0.5, [calls("a"), answer()]],
    ["an answer with neither", 0.5, [answer()]],
    [
      "a block counts even if it is not dispatched",
      0,
      [{ ...find("a"), reply: `${find("a").reply}<tool_call>{</tool_call>` }, answer()],
    ],
  ];
  for (const [rule, value, turns] of cases)
    test(`${rule} → ${value}`, async () => expect(pProtocol(await play(turns), K).value).toBe(value));
});

describe("section 4, penalties: repetition", () => {
  const c = (...words: string[]) => words.map((w) => calls(w));
  const counted: [string, number, RecordedTurn[]][] = [
    ["different arguments are no repeat", 0, c("a=1", "a=2", "a=3")],
    ["one repeat of the same call is free", 0, c("a=1", "a=1")],
    ["the second repeat is not", 1, c("a=1", "a=1", "a=1")],
    ["one free repeat for each call", 0, c("a=1", "a=1", "b", "b")],
    ["a retry after a transient failure is the free one", 0, c("a:transient", "a")],
    ["a repeat of a call that failed for good is not free", 1, c("a:not_found", "a")],
    ["… nor of an unavailable tool", 1, c("a:unavailable", "a")],
    ["… nor of an invalid call", 1, c("a:invalid", "a")],
    ["the same call twice in a turn is a repeat, and free", 0, c("a a")],
    ["three times in a turn", 1, c("a a a")],
    ["names in any case are the same call", 1, c("a", "A", " a".trim())],
  ];
  for (const [rule, n, turns] of counted)
    test(`calls: ${rule} → ${n}`, async () => expect(repeatedCalls(await play(turns))).toBe(n));
  const s = (query: string, found = "a") => searchTurn("", [[query, found]]);
  const searched: [string, number, RecordedTurn[]][] = [
    ["different queries", 0, [s("x"), s("y")]],
    ["the same query", 1, [s("x"), s(" X ")]],
    ["one retry of a search that failed transiently is free", 0, [s("x", "transient"), s("x")]],
    ["the second retry is not", 1, [s("x", "transient"), s("x", "transient"), s("x")]],
    ["a retry of a search that failed for good is not free", 1, [s("x", "final"), s("x")]],
    ["a retry of a search that found nothing is not free", 1, [s("x", ""), s("x")]],
  ];
  for (const [rule, n, turns] of searched)
    test(`searches: ${rule} → ${n}`, async () => expect(repeatedSearches(await play(turns))).toBe(n));
  const a = plan("a");
  const planned: [string, number, RecordedTurn[]][] = [
    ["different plans", 0, [calls("a:transient", a), calls("b", plan("b"))]],
    ["the same plan accepted again", 1, [calls("a:transient", a), calls("a", a)]],
    ["the same plan in a later phase", 1, [calls("a", a), find("a"), calls("a", a)]],
    [
      "a plan that is rejected is the step channel's matter",
      0,
      [calls("a", plan("a | b", ["a>b"])), calls("b", plan("a | b", ["a>b"]))],
    ],
  ];
  for (const [rule, n, turns] of planned)
    test(`plans: ${rule} → ${n}`, async () => expect(repeatedPlans(await play(turns))).toBe(n));
  test("0.2·min(1, repeats/7) for each of the three", async () => {
    const t = await play([...c("a", "a", "a"), s("x"), s("x"), s("x")]);
    expect(pRepetition(t, K).value).toBeCloseTo(0.2 * (1 / 7) + 0.2 * (2 / 7), 9);
    const many = await play(Array.from({ length: 12 }, () => calls("a")));
    expect(pRepetition(many, K).value).toBeCloseTo(0.2, 9);
  });
});

describe("section 4, penalties: order = 0.3·(violated hard pairs / hard pairs present)", () => {
  const cases: [string, number, RecordedTurn[], string[]][] = [
    ["in order", 0, [calls("a"), calls("b=5")], ["a>b"]],
    ["in one turn and never in order", 0.3, [calls("a b=5")], ["a>b"]],
    ["in one turn, but in order later", 0, [calls("a b=5"), calls("b=5")], ["a>b"]],
    ["one of two pairs", 0.15, [calls("a b=5"), calls("c=5")], ["a>b", "a>c"]],
    ["a pair of which one was not called is not present", 0.3, [calls("a b=5")], ["a>b", "a>c"]],
    ["independent calls in one turn", 0, [calls("a b=5")], []],
    ["the value was already in the request", 0, [calls("a b=77")], ["a>b"]],
    ["a longer number in the request is not the value", 0.3, [calls("a b=7")], ["a>b"]],
    ["a tool that feeds itself, side by side", 0.3, [calls("a=1 a=2")], ["a>a"]],
    ["a tool that feeds itself, in order", 0, [calls("a=1"), calls("a=2")], ["a>a"]],
  ];
  for (const [rule, value, turns, hard] of cases)
    test(`${rule} → ${value}`, async () =>
      expect(pOrder(await play(turns, "look up number 77"), truth("a b", hard), K).value).toBeCloseTo(value, 9));
  test("only the argument that the edge carries has to be in the request", async () => {
    const t = await play([calls("a b=5")], "take 9");
    const edge = (name: string) => ({ ...truth("a b"), hard: [{ from: "a", to: "b", arguments: [name] }] });
    expect(pOrder(t, { ...edge("x"), requestValues: [5] }, K).value).toBe(0);
    expect(pOrder(t, edge("x"), K).value).toBe(0.3);
    expect(pOrder(t, { ...edge("other"), requestValues: [5] }, K).value).toBe(0.3);
  });
  test("a text states a value as a whole word, in any case", () => {
    expect([
      states("Order A-17, please", "a-17"),
      states("order a-170", "a-17"),
      states("x", ""),
      states("true story", true),
    ]).toEqual([true, false, false, true]);
  });
});

describe("section 4: R_traj and the three channels", () => {
  test("R_traj = R_outcome + R_tools − 0.25·(protocol + repetition + order)", async () => {
    const t = await play([calls("a b=5"), calls("a"), calls("a"), answer()]);
    const term = rTraj(t, truth("a b", ["a>b"]), K);
    expect(term.value).toBeCloseTo(1.5 + 0.4 - 0.25 * (0.5 + 0.2 / 7 + 0.3), 9);
    expect(term.parts?.map((p) => p.symbol)).toEqual(["R_outcome", "R_tools", "P_protocol", "P_repetition", "P_order"]);
  });
  test("a perfect trajectory gets 2, 0.5 and 1, and every term says why", async () => {
    const t = await play([find("a b c", "d"), calls("a b", plan("a b | c", ["a,b>c"])), calls("c"), answer()]);
    const scored = scoreTrajectory(t, truth("a b c", ["a>c", "b>c"]));
    expect([scored.trajectory, scored.phase, scored.format]).toEqual([2, 0.5, 1]);
    const terms = scored.terms.flatMap(function all(x): typeof scored.terms {
      return [x, ...(x.parts ?? []).flatMap(all)];
    });
    expect(terms.filter((x) => x.reason === "" || x.symbol === "" || !Number.isFinite(x.value))).toEqual([]);
    expect(terms.length).toBeGreaterThan(15);
  });
});

describe("the adapter from ToolEnv's task", () => {
  test("edges between calls become edges between tools; hard wins over soft", () => {
    const call = (id: string) => ({ id, tool: id.split("#")[0] ?? "", arguments: {}, step: 1 });
    const task: Task = {
      id: "t",
      shape: "mixed",
      request: "",
      worldSeed: 1,
      tools: ["a", "b"],
      providers: [],
      facts: [],
      writes: [],
      faults: {},
      queries: {},
      split: "train",
      calls: ["a#1", "b#1", "b#2"].map(call),
      edges: [
        { from: "a#1", to: "b#1", kind: "hard", argument: "id", pointer: "/id" },
        { from: "a#1", to: "b#2", kind: "hard", argument: "key", pointer: "/key" },
        { from: "a#1", to: "b#2", kind: "soft", argument: "page", pointer: "/page" },
        { from: "b#1", to: "b#2", kind: "soft", argument: "id", pointer: "/id" },
      ],
    };
    const reference = taskReference(task, null);
    expect(reference.hard).toEqual([{ from: "a", to: "b", arguments: ["id", "key"] }]);
    expect(reference.soft).toEqual([{ from: "b", to: "b", arguments: ["id"] }]);
    expect(reference.goldTools).toEqual(["a", "b"]);
  });
});

describe("ToolRL's reward, the alternative", () => {
  const gold = [
    { name: "a", arguments: { x: 1 } },
    { name: "b", arguments: { x: 2 } },
  ];
  const cases: [string, number, RecordedTurn[]][] = [
    ["all calls right → 3", 3, [calls("a=1 b=2")]],
    ["in any order and turn → 3", 3, [calls("b=2"), calls("a=1")]],
    ["no call → −3", -3, [answer()]],
    ["a wrong value loses its point", (6 * (1 + 2 + 1)) / 5 - 3, [calls("a=1 b=3")]],
    ["a missing call", (6 * (0.5 + 1 + 1)) / 5 - 3, [calls("a=1")]],
    ["a foreign tool costs by the names' overlap", (6 * (2 / 3 + 2 + 2)) / 5 - 3, [calls("a=1 b=2 z")]],
    ["the best matching counts", 3, [calls("a=7 a=1 b=2")]],
  ];
  for (const [rule, value, turns] of cases)
    test(rule, async () => expect(toolrlCorrect(await play(turns), gold).value).toBeCloseTo(value, 9));
  test("format is 1 or 0; both go into one channel", async () => {
    const good = scoreToolRL(await play([calls("a=1 b=2"), answer()]), gold);
    expect([good.trajectory, good.phase, good.format]).toEqual([4, 0, 0]);
    expect(scoreToolRL(await play([says("<answer>x</answer>")]), gold).trajectory).toBe(-3);
  });
});
