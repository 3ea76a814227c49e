import { afterAll, expect, setDefaultTimeout, test } from "bun:test";
import { runParadigm } from "../agents/paradigms.ts";
import { scriptedPolicy } from "../agents/scripted.ts";
import { scoreToolEnv } from "../bench/toolenv.ts";
import { TaskWorlds } from "../bench/worlds.ts";
import { environment } from "../paraact/environment.ts";
import type { Trajectory } from "../paraact/types.ts";
import { generateTasks } from "../toolenv/tasks.ts";
import { fiveProviders } from "../toolenv/testdata/providers.ts";
import type { Task, ToolCall } from "../toolenv/types.ts";
import { World } from "../toolenv/world.ts";
import { RenamedWorld, taskWords } from "./renamed-world.ts";

// Worlds and tasks are really made; a busy machine takes its time.
setDefaultTimeout(120_000);
const { catalog, remove } = await fiveProviders("renamed");
afterAll(remove);
const retriever = catalog.bm25();
const worlds = new TaskWorlds(catalog);
const spec = { split: "train", seed: 4, count: 40, writes: 0.3, retriever } as const;
const tasks = [...generateTasks(catalog, new World(catalog, 1), spec)];
const pieces = ["undle", "ideo", "mb", "kestrel", "or", "quin", "tavo", "rell"];
const found = taskWords(tasks, catalog, pieces, 0.5);
/** A task's own keys, which this test exchanges in the same sweep as its contents, stay. */
const keys = [
  "call",
  "tool",
  "argument",
  "fact",
  "label",
  "value",
  "source",
  "accepted",
  "step",
  "hard",
  "soft",
  "pointer",
  "edge",
  "from",
  "kind",
  "querie",
  "request",
  "distractor",
];
const words = { ...found, rare: new Set([...found.rare].filter((word) => !keys.includes(word))) };

/** The task as the policy meets it: every word of its calls, facts and queries under the new names. */
function underOtherNames(task: Task, world: RenamedWorld): Task {
  const { request, tools, calls, edges, facts, queries, distractors } = task;
  const told = { request, tools, calls, edges, facts, queries, distractors };
  return { ...task, ...(JSON.parse(world.request(JSON.stringify(told))) as typeof told) };
}

/** What was called, in an order of its own: the solver sorts by name. */
const callsOf = ({ turns }: Trajectory) => turns.flatMap((t) => t.calls.map((c) => canonical(c.call))).sort();
const canonical = (call: ToolCall | null) =>
  JSON.stringify([call?.name, Object.entries(call?.arguments ?? {}).sort(([a], [b]) => (a < b ? -1 : 1))]);

test("the scripted solver solves every task under other names, and is scored as under its own", async () => {
  let changed = 0;
  for (const [i, task] of tasks.entries()) {
    const play = async (world: RenamedWorld | null) => {
      const session = worlds.open(task, 5);
      const own = environment({ catalog, retriever, session });
      const told = world ? underOtherNames(task, world) : task;
      const inView = world?.environment(own) ?? own;
      const trajectory = await runParadigm("paraact", {
        task: told,
        policy: scriptedPolicy("paraact", [told], { catalog: { get: (name) => inView.tool(name) } }),
        seed: 5,
        temperature: 0,
        settings: {},
        open: () => inView,
        id: task.id,
      });
      const scored = world?.original(trajectory) ?? trajectory;
      return { trajectory, scored, score: scoreToolEnv(task, scored, session) };
    };
    const plain = await play(null);
    const { trajectory, scored, score } = await play(new RenamedWorld(words, 0.95, i));
    expect({ task: task.request, success: score.success, scores: score.scores }).toEqual({
      task: task.request,
      success: 1,
      scores: plain.score.scores,
    });
    expect(scored.request).toBe(task.request);
    expect(callsOf(scored)).toEqual(callsOf(plain.trajectory));
    changed += trajectory.request === task.request ? 0 : 1;
  }
  expect(changed).toBeGreaterThan(tasks.length * 0.9);
});

test("two prompts have other names, two rollouts of one the same tools as objects", async () => {
  const task = tasks[0]!;
  const query = Object.values(task.queries)[0]!;
  const shown = async (world: RenamedWorld) => {
    const env = world.environment(environment({ catalog, retriever, session: worlds.open(task, 1) }));
    return (await env.search(world.request(query), 3)).tools;
  };
  const world = new RenamedWorld(words, 0.95, 1);
  const [first, again, other] = [await shown(world), await shown(world), await shown(new RenamedWorld(words, 0.95, 2))];
  expect(first.length).toBe(3);
  for (const [i, tool] of first.entries()) expect(again[i]).toBe(tool);
  expect(other.map((tool) => tool.name)).not.toEqual(first.map((tool) => tool.name));
});

test("no word of the protocol becomes a new name, and a record's own words stay", () => {
  const hostile = taskWords(tasks, catalog, ["paral", "lel", "parallel", "search"], 0.5);
  for (const word of ["parallel", "search", "step", "execution"]) expect(hostile.known.has(word)).toBe(true);
  const world = new RenamedWorld(hostile, 0.95, 3);
  const plan = {
    kind: "execution" as const,
    available_tools: ["x"],
    dependencies: [],
    execution_flow: [{ step: 1, parallel: ["x"] }],
  };
  const turn = {
    kind: "call" as const,
    plan,
    calls: [],
    searches: [],
    findings: [],
    reply: "",
    answer: null,
    observation: "",
  };
  for (const task of tasks) world.request(task.request);
  const played = { turns: [turn], end: "answered" } as unknown as Trajectory;
  expect(world.original(played)).toEqual(played);
});
