import { describe, expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { apiBank, equalValue, scoreApiBank } from "./apibank.ts";
import { calculate } from "./calculate.ts";
import { BENCHMARK_FILES, BenchmarkFileError, readBenchmarkFile } from "./files.ts";
import sample from "./samples/apibank.json";
import { rougeL } from "./text.ts";

const gold: { name: string; input: Record<string, string | number>; output: null }[] = [
  { name: "a", input: { x: 1 }, output: null },
  { name: "b", input: { y: "two" }, output: null },
];

describe("API-Bank's success", () => {
  test("every gold call matched, in any order, extra calls ignored", () => {
    const made: { name: string; arguments: Record<string, string> }[] = [
      { name: "b", arguments: { y: "two" } },
      { name: "c", arguments: {} },
      { name: "a", arguments: { x: "1" } },
    ];
    expect(scoreApiBank(gold, made, "", "").success).toBe(1);
  });
  test("a missing call fails and is counted as no call", () => {
    const score = scoreApiBank(gold, [{ name: "a", arguments: { x: 1 } }], "", "");
    expect(score.success).toBe(0);
    expect(score.scores.apiAccuracy).toBe(0.5);
    expect(score.errors?.noCall).toBe(1);
  });
  test("a wrong argument is wrong input, another tool is a wrong name", () => {
    const score = scoreApiBank(
      gold,
      [
        { name: "a", arguments: { x: 2 } },
        { name: "z", arguments: {} },
      ],
      "",
      "",
    );
    expect(score.errors).toEqual({ noCall: 0, wrongInput: 1, wrongName: 1 });
  });
  test("one call matches one gold call only", () => {
    const twice = [gold[0]!, gold[0]!];
    expect(scoreApiBank(twice, [{ name: "a", arguments: { x: 1 } }], "", "").success).toBe(0);
  });
});

describe("equal arguments", () => {
  test.each([
    ["40.7128", 40.7128, true],
    ["074", 74, true],
    ["Oslo", "oslo", false],
    [["a", "b"], ["a", "b"], true],
    [["a", "b"], ["b", "a"], false],
    ["", 0, false],
  ])("%p and %p: %p", (a, b, equal) => {
    expect(equalValue(a, b)).toBe(equal);
  });
});

describe("calculator", () => {
  test.each([
    ["40+50+60", 150],
    ["2*(3-5)", -4],
    ["-3 + 4/2", -1],
    ["1/0", null],
    ["2 +", null],
    ["alert(1)", null],
  ])("%s", (formula, value) => {
    expect(calculate(formula)).toBe(value);
  });
});

test("ROUGE-L by hand: 'the cat sat' against 'the cat lay down' shares two words", () => {
  expect(rougeL("the cat sat", "The cat lay down.")).toBeCloseTo((2 * 2) / 7, 12);
});

/** Replays the gold calls of each task through its session, and scores them. */
async function replay(benchmark: ReturnType<typeof apiBank>, drop: number): Promise<number> {
  let passed = 0;
  for (const task of benchmark.tasks) {
    const session = task.open(1);
    const calls = task.gold!.calls.filter((_, i) => i !== drop);
    for (const call of calls) {
      const result = await session.call(benchmark.catalog.get(call.tool)!, call.arguments);
      expect(result.outcome).toBe("ok");
    }
    const turn = { calls: calls.map((c) => ({ call: { name: c.tool, arguments: c.arguments } })) };
    const trajectory = { turns: [turn], answer: benchmark.answers.get(task.id) };
    passed += (await task.score(trajectory as never, session)).success!;
  }
  return passed;
}

test("our own samples: replaying gold passes all twelve, dropping the first call passes none", async () => {
  const benchmark = apiBank(sample, { sample: true, source: "samples" });
  expect(benchmark.tasks.length).toBe(12);
  expect(await replay(benchmark, -1)).toBe(12);
  expect(await replay(benchmark, 0)).toBe(0);
});

const folder = process.env.PARAAGENT_DATA ?? join(import.meta.dir, "../../../shared/benchmarks");
const file = BENCHMARK_FILES.find((f) => f.benchmark === "apibank")!;
const there = existsSync(join(folder, file.path));
test.skipIf(!there && process.env.CI !== "true")(
  "the real Level 3: gold calls pass 50 of 50, dropping one fails it",
  async () => {
    const benchmark = apiBank(readBenchmarkFile(file, folder), { sample: false, source: file.path });
    expect(benchmark.tasks.length).toBe(50);
    expect(benchmark.catalog.size).toBe(21);
    expect(await replay(benchmark, -1)).toBe(50);
    expect(await replay(benchmark, 0)).toBe(0);
  },
);

test("a missing file says what to do", () => {
  expect(() => readBenchmarkFile(file, "/nowhere")).toThrow(BenchmarkFileError);
  expect(() => readBenchmarkFile(file, "/nowhere")).toThrow(/fetch-benchmarks/);
});
