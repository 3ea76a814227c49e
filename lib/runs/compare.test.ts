import { describe, expect, test } from "bun:test";
import type { TaskOutcome } from "../bench/types.ts";
import type { Policy, PolicyRequest } from "../paraact/types.ts";
import { narrowed } from "./agent.ts";
import { arms, compareTables, groupTables, newestRuns, withBaseline } from "./compare.ts";
import type { RunRecord } from "./index-store.ts";
import { publishedPage } from "./publish.ts";
import { rewardConstants } from "./stage-rl.ts";
import { csvTable, markdownTable, textTable } from "./table.ts";

function record(id: string, cell: string, seed: number, created: string): RunRecord {
  return {
    id,
    experiment: "x",
    cell,
    seed,
    status: "done",
    error: null,
    created,
    finished: created,
    config: {},
    environment: { command: "bun run exp run x", commit: "abc+changes", bun: "1", machine: { cpu: "C", cores: 2 } },
    stages: [],
    samples: [],
  };
}

function outcome(task: string, success: number | null, extra: Partial<TaskOutcome> = {}): TaskOutcome {
  return {
    benchmark: "toolenv",
    group: "chain",
    task,
    label: "scripted",
    trial: 0,
    success,
    scores: {},
    errors: {},
    turns: 3,
    toolCalls: 2,
    searches: 1,
    tokens: 0,
    makespanMs: 500,
    serialMs: 1000,
    phases: 3,
    width: 2,
    faultsMet: 0,
    faultsRecovered: 0,
    end: "answered",
    ...extra,
  };
}

const cell = (table: { columns: string[]; rows: string[][] }, row: number, column: string): string =>
  table.rows[row]![table.columns.indexOf(column)]!;

describe("tables by group", () => {
  const outcomes = [
    outcome("a", 1, { group: "chain", turns: 2 }),
    outcome("b", 0, { group: "chain", turns: 4, errors: { noCall: 2 } }),
    outcome("c", 1, { group: "single", turns: 6, faultsMet: 2, faultsRecovered: 1 }),
    outcome("d", 1, { group: "single", turns: 6 }),
  ];
  const [table] = groupTables(arms([{ record: record("x/1", "", 1, "2026"), outcomes }]), { toolenv: ["said below"] });
  test("one row a group, then all", () => {
    expect(table!.rows.map((r) => r[0])).toEqual(["chain", "single", "all"]);
    expect(cell(table!, 0, "success % [95 %]")).toStartWith("50.0 [");
    expect(cell(table!, 2, "success % [95 %]")).toStartWith("75.0 [");
    expect(cell(table!, 2, "tasks")).toBe("4");
  });
  test("means, units and what was not met", () => {
    expect(cell(table!, 0, "turns")).toBe("3.00 ±1.96");
    expect(cell(table!, 0, "makespan s")).toBe("0.50 ±0.00");
    expect(cell(table!, 0, "faults recovered")).toBe("–");
    expect(cell(table!, 1, "faults recovered")).toBe("0.50 ±n/a");
  });
  test("notes: what ± means, counted errors, the benchmark's own", () => {
    expect(table!.notes.join("\n")).toMatch(/standard errors.*noCall 2.*said below/s);
  });
});

test("runs of one task count as one value in ±: seeds and trials don't narrow it", () => {
  const once = [outcome("a", 1, { turns: 2 }), outcome("b", 1, { turns: 4 })];
  const thrice = [0, 1, 2].flatMap((trial) => once.map((o) => ({ ...o, trial })));
  const turns = (outcomes: TaskOutcome[]) =>
    cell(compareTables(arms([{ record: record("x/1", "", 1, "2026"), outcomes }]))[0]!, 0, "turns");
  expect(turns(thrice)).toBe(turns(once));
});

test("success that was not measured is never a number", () => {
  const tables = compareTables(arms([{ record: record("x/1", "", 1, "2026"), outcomes: [outcome("a", null)] }]));
  expect(tables[0]!.rows[0]![1]).toBe("not measured");
});

test("pass@k and pass^k over trials", () => {
  const outcomes = [
    outcome("a", 1, { trial: 0 }),
    outcome("a", 0, { trial: 1 }),
    outcome("b", 1, { trial: 0 }),
    outcome("b", 1, { trial: 1 }),
  ];
  const [table] = compareTables(arms([{ record: record("x/1", "", 1, "2026"), outcomes }]));
  expect(cell(table!, 0, "pass@2 / pass^2 %")).toBe("100.0 / 50.0");
});

test("arms with several runs of a task share one k; those with one run have no pass@k", () => {
  const runs = (label: string, successes: number[]) =>
    successes.map((success, trial) => outcome("a", success, { label, trial }));
  const outcomes = [
    ...runs("after SFT, sampled", [1, 0, 0, 0]),
    ...runs("after SFT", [1]),
    ...runs("after RL", [1, 1]),
  ];
  const [table] = compareTables(arms([{ record: record("r", "", 1, "1"), outcomes }]));
  expect(table!.rows.map((row) => row[0]!)).toEqual(["after SFT", "after SFT, sampled", "after RL"]);
  // 1 of 4 runs: a pair holds it in half of all cases.
  expect(table!.rows.map((_, i) => cell(table!, i, "pass@2 / pass^2 %"))).toEqual(["–", "50.0 / 0.0", "100.0 / 100.0"]);
});

test("a baseline by label goes before the other arms", () => {
  const outcomes = ["before", "after SFT", "after RL"].map((label, i) => outcome("a", i % 2, { label }));
  const all = arms([{ record: record("r", "", 1, "1"), outcomes }]);
  expect(withBaseline(all, "after SFT").map((arm) => arm.name)).toEqual(["after SFT", "before", "after RL"]);
});

test("with a baseline by label each arm is compared with the one that was played alike", () => {
  const arm = (label: string, success: number[]) => success.map((x, i) => outcome(`t${i}`, x, { label }));
  const outcomes = [
    ...arm("after SFT", [1, 1, 1, 1]),
    ...arm("after SFT, sampled", [0, 0, 0, 1]),
    ...arm("after RL, sampled", [0, 0, 1, 1]),
    ...arm("retrieval", [0, 0, 0, 0]),
  ];
  const all = withBaseline(arms([{ record: record("r", "", 1, "1"), outcomes }]), "after SFT");
  const [table] = compareTables(all, {}, "after SFT");
  const column = "difference to after SFT, played alike";
  const said = new Map(table!.rows.map((row, i) => [row[0]!, cell(table!, i, column).split(" ")[0]]));
  expect(said).toEqual(
    new Map([
      ["after SFT", "–"],
      ["after SFT, sampled", "–"],
      ["after RL, sampled", "+25.0"],
      ["retrieval", "−100.0"],
    ]),
  );
});

test("the newest run of a cell and seed counts, the older is named; cells keep the order in which they were made", () => {
  const list = [
    record("x/new", "a", 1, "2026-03"),
    record("x/b", "b", 1, "2026-02"),
    record("x/old", "a", 1, "2026-01"),
    record("x/a2", "a", 2, "2026-01"),
  ];
  const { runs, older } = newestRuns(list);
  expect(older.map((r) => r.id)).toEqual(["x/old"]);
  expect(runs.map((r) => r.id).sort()).toEqual(["x/a2", "x/b", "x/new"]);
});

test("runs that evaluate other policies are no older runs of each other", () => {
  const config = (policy: string) => ({ stages: { evaluate: { policies: [policy] } } });
  const list = ["gold", "random"].map((p) => ({ ...record(`x/${p}`, "a", 1, "2026-01"), config: config(p) }));
  expect(newestRuns(list).runs.length).toBe(2);
});

test("checkpoints stand in the order in which they are made", () => {
  const labels = ["scripted", "after SFT", "before"];
  const outcomes = labels.map((label) => outcome("a", 1, { label }));
  const all = arms([{ record: record("x/1", "", 1, "2026"), outcomes }]);
  expect(all.map((a) => a.name)).toEqual(["before", "after SFT", "scripted"]);
});

describe("tables as text", () => {
  const table = {
    title: "t",
    columns: ["name", "first", "second"],
    rows: [
      ["日本", "1.5 ±0.1", "-0.5 ±0.1"],
      ["b", "10.5 ±0.1", "12.5 ±0.1"],
    ],
    notes: ["n"],
  };
  test("numbers end in one column, wide letters counted as wide", () => {
    const lines = textTable(table).split("\n");
    expect(lines[3]).toBe("日本   1.5 ±0.1  -0.5 ±0.1");
    expect(lines[4]).toBe("b     10.5 ±0.1  12.5 ±0.1");
  });
  test("a narrow terminal gets blocks that fit, each with the first column", () => {
    const lines = textTable(table, 18).split("\n");
    expect(Math.max(...lines.map((l) => Bun.stringWidth(l)))).toBeLessThanOrEqual(18);
    expect(lines.filter((l) => l.startsWith("name")).length).toBe(2);
    expect(lines.join("\n")).toContain("-0.5 ±0.1");
  });
  test("one column, and none at all", () => {
    expect(textTable({ title: "t", columns: ["a"], rows: [["x"]], notes: [] })).toBe("t\na\n─\nx");
    expect(textTable({ title: "t", columns: ["a", "b"], rows: [], notes: [] })).toContain("a  b");
  });
  test("Markdown and CSV hold every cell", () => {
    expect(markdownTable(table)).toContain("| b | 10.5 ±0.1 | 12.5 ±0.1 |");
    expect(csvTable(table).split("\r\n").length).toBe(3);
  });
});

test("a published page says the command, the commit, the machine and the runs", () => {
  const page = publishedPage("x", [record("x/1", "a", 1, "2026-01-02T")], [], "bun run compare x");
  for (const part of ["bun run exp run x", "bun run compare x", "abc+changes", "C × 2 cores", "2026-01-02", "x/1"]) {
    expect(page).toContain(part);
  }
});

describe("settings of ablations", () => {
  test("a narrowed policy keeps the first actions of a turn, and its plan", async () => {
    const text =
      '<think>t</think><plan>{"capacity_slots":["a","b"]}</plan><search_tool>a: x</search_tool><search_tool>b: y</search_tool>';
    const policy: Policy = {
      name: "p",
      reply: async () => ({ text, finish: "stop", usage: { promptTokens: 0, completionTokens: 0, estimated: true } }),
    };
    const request = {} as PolicyRequest;
    expect((await narrowed(policy, 1).reply(request)).text).toBe(text.replace("<search_tool>b: y</search_tool>", ""));
    expect((await narrowed(policy, 2).reply(request)).text).toBe(text);
    expect(narrowed(policy, undefined)).toBe(policy);
  });
  test("rewards: what is not set is the paper's", () => {
    expect(rewardConstants(undefined)).toMatchObject({ outcomeGate: true, lambda: 1, beta: 0.5 });
    expect(rewardConstants({ scheme: "paraagent", outcomeGate: false, beta: 0 })).toMatchObject({
      outcomeGate: false,
      lambda: 1,
      beta: 0,
    });
  });
});
