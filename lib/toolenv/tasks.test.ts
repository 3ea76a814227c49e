import { beforeAll, expect, test } from "bun:test";
import { bm25 } from "../catalog/bm25.ts";
import { memoryCatalog } from "../catalog/memory.ts";
import { openCatalog } from "../catalog/store.ts";
import type { Catalog, Retriever } from "../catalog/types.ts";
import { Rng } from "./hash.ts";
import { judgeExact } from "./judge.ts";
import { attempt, flaw, goldAnswer, mutilated, perfect } from "./solve.ts";
import { generateTasks, shapeOf, splitOf, TaskShortage, type TaskSpec } from "./tasks.ts";
import { realSample, shopTools } from "./testdata/sample.ts";
import type { Shape, Task } from "./types.ts";
import { World } from "./world.ts";

const FULL = process.env.PARAAGENT_FULL === "1";
let catalog: Catalog;
let retriever: Retriever;
let world: World;
let train: Task[];
let heldout: Task[];
const spec = (more: Partial<TaskSpec>): TaskSpec => ({
  split: "train",
  seed: 7,
  count: FULL ? 1500 : 60,
  writes: 0.35,
  faults: 0.2,
  crossProvider: 0.3,
  retriever,
  ...more,
});

beforeAll(() => {
  if (FULL) {
    const full = openCatalog();
    catalog = full;
    retriever = full.bm25();
  } else ({ catalog, retriever } = realSample());
  world = new World(catalog, 42);
  train = [...generateTasks(catalog, world, spec({}))];
  heldout = [
    ...generateTasks(
      catalog,
      world,
      spec({ split: "heldout", count: FULL ? 500 : 12, shapes: { single: 1, chain: 1, parallel: 1 } }),
    ),
  ];
}, 3_600_000);

test("the gold plan scores in full; without any call, argument or fact it does not", () => {
  for (const task of [...train, ...heldout]) {
    const w = new World(catalog, task.worldSeed);
    expect([task.request, flaw(catalog, w, task)]).toEqual([task.request, null]);
  }
}, 3_600_000);

test("mutilated plans are many: every call and every argument is tried", () => {
  const task = train.find((t) => t.calls.length >= 3)!;
  const expected = task.calls.length + task.calls.reduce((n, c) => n + Object.keys(c.arguments).length, 0);
  expect([...mutilated(task)].length).toBe(expected);
});

test("an answer with an invented identifier, number, name or date is not faithful", () => {
  const rng = new Rng(3);
  for (const task of train.slice(0, FULL ? 500 : 90)) {
    const { episode, verdicts } = attempt(catalog, world, task);
    expect(perfect(verdicts)).toBe(true);
    for (const lie of [
      `The reference is QX-${rng.int(10_000, 99_999)}Z.`,
      `There are ${rng.int(1_000_000, 9_000_000)} more.`,
      "It was done by Zebulon Quackenbush.",
      "The deadline is March 3, 1987.",
      "Write to liar@nowhere-else.example.",
      "It costs $48,213.77 a month.",
    ]) {
      const v = judgeExact(task, { ...episode, answer: `${episode.answer} ${lie}` });
      expect([lie, v.faithfulness, v.quality]).toEqual([lie, 0, 1]);
    }
  }
}, 600_000);

test("values are compared, not spelled", () => {
  const task: Task = {
    ...train[0]!,
    request: "When, how much, who?",
    calls: [],
    edges: [],
    writes: [],
    facts: [
      { source: "x", pointer: "/a", label: "date", value: "2025-03-04T10:15:00Z", accepted: [] },
      { source: "x", pointer: "/b", label: "amount", value: 1234.5, accepted: [] },
      { source: "x", pointer: "/c", label: "owner", value: "Zoë O'Neil-Smith", accepted: [] },
      { source: "x", pointer: "/d", label: "status", value: "ON_HOLD", accepted: [] },
    ],
  };
  const body = { a: "2025-03-04T10:15:00Z", b: 1234.5, c: "Zoë O'Neil-Smith", d: "ON_HOLD" };
  const judge = (answer: string) =>
    judgeExact(task, { answer, calls: [{ call: { name: "x", arguments: {} }, outcome: "ok", body }], writes: [] });
  for (const answer of [
    "On March 4, 2025 it was $1,234.50, for Zoe O’Neil Smith, and it is on hold.",
    "4 March 2025 at 10:15 AM: 1234.50 (Zoë O'Neil-Smith), status **ON_HOLD**",
    "- Date: 2025-03-04\n- Amount: 1,234.5\n- Owner: zoe o'neil-smith\n- Status: On hold",
  ])
    expect([answer, judge(answer).quality, judge(answer).reasons.faithfulness, judge(answer).faithfulness]).toEqual([
      answer,
      1,
      judge(answer).reasons.faithfulness,
      1,
    ]);
  expect(judge("On March 5, 2025 it was $1,234.50, for Zoe O'Neil Smith, and it is on hold.").quality).toBe(0);
  expect(judge("On March 4, 2025 it was $1,234.60, for Zoe O'Neil Smith, and it is on hold.").quality).toBe(0);
});

test("no answer, an empty answer, and an answer without calls", () => {
  const task = train.find((t) => t.facts.length > 0)!;
  const none = judgeExact(task, { answer: null, calls: [], writes: [] });
  expect([none.quality, none.faithfulness, none.utility]).toEqual([0, 0, 0]);
  const guess = judgeExact(task, { answer: goldAnswer(task), calls: [], writes: [] });
  expect(guess.utility).toBe(0);
  expect(guess.faithfulness).toBe(0);
});

test("an extra write costs the final state", () => {
  const task = train.find((t) => t.writes.length > 0)!;
  const { episode } = attempt(catalog, world, task);
  const extra = judgeExact(task, {
    ...episode,
    writes: [...episode.writes, { kind: "delete", resource: "shop:customer", id: "1", values: {} }],
  });
  expect([extra.quality, extra.utility]).toEqual([0, 1]);
  expect(extra.reasons.quality).toContain("extra: delete");
});

test("the same spec gives the same bytes; ids are distinct and of the content", () => {
  const again = [...generateTasks(catalog, new World(catalog, 42), spec({ count: 12 }))];
  const once = [...generateTasks(catalog, world, spec({ count: 12 }))];
  expect(JSON.stringify(again)).toBe(JSON.stringify(once));
  expect(new Set(train.map((t) => t.id)).size).toBe(train.length);
}, 600_000);

test("no provider is in both splits", () => {
  const of = (tasks: Task[]) => new Set(tasks.flatMap((t) => t.providers));
  for (const p of of(train)) expect(splitOf(p)).toBe("train");
  for (const p of of(heldout)) expect(splitOf(p)).toBe("heldout");
});

test("every shape is made, and is what it is called", () => {
  const shapes = new Set<Shape>(train.map((t) => t.shape));
  for (const s of ["single", "parallel", "chain", "fan_out", "fan_in", "mixed"] as const)
    expect([...shapes]).toContain(s);
  for (const t of train) {
    expect(shapeOf(t.calls, t.edges)).toBe(t.shape);
    expect(t.calls.length).toBeLessThanOrEqual(6);
    const step = new Map(t.calls.map((c) => [c.id, c.step]));
    for (const c of t.calls) {
      const before = t.edges.filter((e) => e.to === c.id && e.kind === "hard").map((e) => step.get(e.from)!);
      expect(c.step).toBe(1 + Math.max(0, ...before));
    }
  }
});

test("the request tells every value that no response gives, names no tool, and each tool can be found", () => {
  for (const t of train) {
    const hard = new Set(t.edges.filter((e) => e.kind === "hard").map((e) => `${e.to} ${e.argument}`));
    for (const c of t.calls)
      for (const [k, v] of Object.entries(c.arguments)) {
        if (!hard.has(`${c.id} ${k}`)) expect(t.request).toContain(String(v));
        else expect(t.request).not.toContain(`"${v}"`);
      }
    for (const name of t.tools) {
      if (name.includes("_")) expect(t.request).not.toContain(name);
      expect(retriever.search(t.queries[name]!, 10).map((h) => h.tool.name)).toContain(name);
    }
  }
});

test("look-alikes are found by a tool's own query, are no gold tools, and do not do in its place", () => {
  let tried = 0;
  for (const t of train.slice(0, 25))
    for (const [tool, names] of Object.entries(t.distractors ?? {})) {
      const hits = retriever.search(t.queries[tool]!, 10).map((h) => h.tool.name);
      for (const name of names) {
        expect(hits).toContain(name);
        expect(t.tools).not.toContain(name);
        const { verdicts } = attempt(catalog, world, t, {
          calls: t.calls.map((c) => (c.tool === tool ? { ...c, tool: name } : c)),
        });
        expect([t.request, name, perfect(verdicts)]).toEqual([t.request, name, false]);
        tried++;
      }
    }
  expect(tried).toBeGreaterThan(75);
}, 600_000);

test("no provider fills a set, and the rare shapes have their places", () => {
  const many = [...generateTasks(catalog, world, spec({ count: 150, faults: 0 }))];
  const counts = new Map<string, number>();
  for (const p of many.flatMap((t) => t.providers)) counts.set(p, (counts.get(p) ?? 0) + 1);
  const fair = 150 / counts.size;
  // A dozen APIs are fewer than the share asks for: none gives more than twice its fair part.
  for (const n of counts.values()) expect(n).toBeLessThan(2.2 * fair + 5);
  const of = (s: Shape) => many.filter((t) => t.shape === s).length;
  expect(of("fan_in")).toBeGreaterThanOrEqual(5);
  // Few APIs have diamonds: a small set out of many APIs may hold none, one that asks for them holds nothing else.
  if (!FULL) expect(of("diamond")).toBeGreaterThanOrEqual(3);
  const rare = [...generateTasks(catalog, world, spec({ count: 8, faults: 0, shapes: { diamond: 1 } }))];
  expect(rare.map((t) => t.shape)).toEqual(Array(8).fill("diamond"));
}, 600_000);

test("planted faults are met on the path, and the plan still succeeds", () => {
  const hit = train.filter((t) => Object.keys(t.faults).length > 0);
  expect(hit.length).toBeGreaterThan(train.length / 10);
  for (const t of hit.slice(0, 20))
    expect(attempt(catalog, world, t).episode.calls.filter((c) => c.outcome === "transient").length).toBe(1);
});

test("a catalogue without anything to ask is an error that says so", () => {
  const tools = shopTools.filter((t) => t.name === "get_quote").map((t) => ({ ...t, id: 0 }));
  const small = memoryCatalog(tools);
  expect(() => [
    ...generateTasks(small, new World(small, 1), {
      split: splitOf("shop.test"),
      seed: 1,
      count: 3,
      shapes: { chain: 1 },
      retriever: bm25(tools),
    }),
  ]).toThrow(TaskShortage);
});
