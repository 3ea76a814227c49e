/**
 * Every paradigm from one YAML against one OpenAI-compatible server on the loopback. The server is a scripted model: it knows the gold plans, sees
 * nothing but the messages that it is sent, and does what their system prompt asks for. So the tasks and the model are the same, and what differs
 * is the paradigm's.
 */
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PARADIGMS, type Paradigm, paradigmSettings } from "../agents/paradigms.ts";
import {
  DFSDT_SYSTEM,
  EAE_SYSTEM,
  ETE_SYSTEM,
  REFLEXION_CHECK,
  REFLEXION_REFLECT,
  REWOO_PLANNER,
  REWOO_SOLVER,
} from "../agents/prompts.ts";
import { requestText, scriptedPolicy, valueWords } from "../agents/scripted.ts";
import { inOrder, isFailure, readExchanges } from "../agents/solver.ts";
import type { TaskOutcome } from "../bench/types.ts";
import { buildCatalog } from "../catalog/build.ts";
import { openCatalog, type StoredCatalog } from "../catalog/store.ts";
import type { Json, Tool } from "../catalog/types.ts";
import { loadExperiment } from "../config/load.ts";
import { openingMessage } from "../paraact/conversation.ts";
import type { Environment } from "../paraact/environment.ts";
import { Episode, PAPER_LIMITS } from "../paraact/episode.ts";
import { callIdentity, isObject, parseJson } from "../paraact/json.ts";
import { PARAACT_SYSTEM } from "../paraact/prompt.ts";
import type { Message } from "../paraact/types.ts";
import { at as atPointer } from "../toolenv/compare.ts";
import type { Task } from "../toolenv/types.ts";
import { readOutcomes } from "./index-store.ts";
import { readJsonLines } from "./jsonl.ts";
import { type RunResult, runExperiment } from "./pipeline.ts";
import { readTrajectories, type StoredTrajectory } from "./run.ts";
import type { Progress } from "./types.ts";

// A catalogue, worlds and tasks are really made; a busy machine takes its time.
setDefaultTimeout(120_000);
const quiet: Progress = { update() {}, log() {} };
const before = { ...process.env };
const root = mkdtempSync(join(tmpdir(), "paraagent-paradigms-"));
const TASKS = 21;

const YAML = (url: string): string => `
name: paradigms-test
world: { seed: 1 }
tasks:
  train: { count: 0 }
  heldout:
    count: ${TASKS}
    seed: 5
    shapes: { single: 2, parallel: 2, chain: 2, fan_out: 1, mixed: 1 }
    faults: 0.3
# A search shows so many tools that ETE's and ReWOO's only one sometimes shows all.
agent: { k: 10, maxTurns: 20, responseChars: 4000, maxTrajectoryTokens: 20000 }
policy: { baseUrl: "${url}", model: scripted-1, concurrency: 8 }
stages: { evaluate: { benchmarks: { toolenv: {} }, policies: [openai] } }
matrix: { cells: { ${PARADIGMS.map((p) => `${p}: { agent: { paradigm: ${p} } }`).join(", ")} } }
`;

// The scripted model.

/** The function schemas that a conversation has shown, as a model reads them. */
function shownTools(messages: readonly Message[], catalog: StoredCatalog): Tool[] {
  const shown = messages.filter((m) => m.role !== "assistant").flatMap((m) => toolsIn(m.content, catalog));
  return [...new Map(shown.map((t) => [t.name, t])).values()];
}
function toolsIn(text: string, catalog: StoredCatalog): Tool[] {
  return [...text.matchAll(/<tools>\n(.*?)\n<\/tools>/gs)].flatMap(([, lines = ""]) =>
    lines.split("\n").flatMap((line) => {
      const value = line.startsWith("{") ? parseJson(line) : null;
      return isObject(value ?? undefined) && typeof (value as { name?: Json }).name === "string"
        ? (catalog.get((value as { name: string }).name) ?? [])
        : [];
    }),
  );
}

/**
 * What the plan controller says before the next turn: the conversation so far is played once more, with what it shows in place of an
 * environment.
 */
async function outlook(messages: readonly Message[], catalog: StoredCatalog): Promise<ReturnType<Episode["outlook"]>> {
  let seen = "";
  let responses: Json[] = [];
  const environment: Environment = {
    tool: (name) => catalog.get(name),
    search: () => ({ tools: toolsIn(seen, catalog), failed: null, latencyMs: 0 }),
    call() {
      const body = responses.shift() ?? null;
      const failed = isFailure(body);
      return { outcome: failed ? "transient" : "ok", status: failed ? 503 : 200, body, latencyMs: 0, fault: null };
    },
  };
  const limits = { ...PAPER_LIMITS, turns: Number.MAX_SAFE_INTEGER };
  const episode = new Episode(environment, "", {
    ...paradigmSettings("paraact", { limits }),
    callsNeedRetrieval: false,
  });
  for (const [i, message] of messages.entries()) {
    if (message.role !== "assistant") continue;
    seen = messages[i + 1]?.content ?? "";
    responses = readExchanges([message, { role: "observation", content: seen }])[0]!.responses.map((r) => r.result);
    await episode.step({ text: message.content });
  }
  return episode.outlook();
}

interface Chat {
  messages: { role: "system" | "user" | "assistant"; content: string }[];
}

/** A model that knows the gold plans of these tasks. */
function scriptedModel(tasks: Task[], catalog: StoredCatalog): (chat: Chat) => Promise<string> {
  const policies = {
    paraact: scriptedPolicy("paraact", tasks, { catalog }),
    eae: scriptedPolicy("eae", tasks, { catalog }),
    ete: scriptedPolicy("ete", tasks, { catalog }),
  };
  const taskOf = (text: string): Task => {
    const task = tasks.find((t) => openingMessage(t.request, undefined) === text);
    if (!task) throw new Error(`no task asks for: ${text}`);
    return task;
  };
  /** ReWOO's plan: the gold calls of the tools in view, carried values as references. */
  const blueprint = (task: Task, inView: ReadonlySet<string>): string => {
    const calls = inOrder(task);
    const number = new Map(calls.map((c, i) => [c.id, i + 1]));
    const lines = calls.flatMap((call) => {
      if (!inView.has(call.tool)) return [];
      const args = { ...call.arguments };
      for (const e of task.edges)
        if (e.kind === "hard" && e.to === call.id) args[e.argument] = `#E${number.get(e.from)}${e.pointer}`;
      return `E${number.get(call.id)} = ${JSON.stringify({ name: call.tool, arguments: args })}`;
    });
    return ["<think>All calls at once.</think>", ...lines].join("\n");
  };
  /** ReWOO's answer, from the evidence alone. */
  const fromEvidence = (task: Task, text: string): string => {
    const numbers = new Map(inOrder(task).map((c, i) => [c.id, String(i + 1)]));
    const bodies = new Map(
      [...text.matchAll(/^E(\d+) = [^\n]*\n<tool_response>(.*?)<\/tool_response>$/gms)].map(([, n = "", json = ""]) => {
        const value = parseJson(json);
        return [n, isObject(value) ? (value.result ?? null) : null] as const;
      }),
    );
    const known = task.facts.map((fact) => {
      const value = atPointer(bodies.get(numbers.get(fact.source)!), fact.pointer);
      return value === undefined ? `I could not find ${fact.label}.` : `${fact.label} is ${valueWords(value)}.`;
    });
    return known.length > 0 ? known.join(" ") : "It is done.";
  };
  return async ({ messages }) => {
    const [system, user] = [messages[0]!.content, messages[1]!.content];
    const read: Message[] = messages.map((m, i) => ({
      ...m,
      role: m.role === "user" && i > 1 ? "observation" : m.role,
    }));
    const first = requestText(read);
    if (system === REFLEXION_CHECK) return /I could not find/.test(user) ? "NO" : "YES";
    if (system === REFLEXION_REFLECT) return "Search with other words.";
    const inView = shownTools(read, catalog);
    if (system === REWOO_PLANNER) return blueprint(taskOf(first), new Set(inView.map((t) => t.name)));
    if (system === REWOO_SOLVER) return fromEvidence(taskOf(first), user);
    const paradigm =
      system === PARAACT_SYSTEM
        ? ("paraact" as const)
        : system === ETE_SYSTEM
          ? ("ete" as const)
          : system.startsWith(EAE_SYSTEM) || system.startsWith(DFSDT_SYSTEM)
            ? ("eae" as const)
            : null;
    if (!paradigm) throw new Error(`an unknown prompt: ${system.slice(0, 80)}`);
    const reply = await policies[paradigm].reply({
      episode: "",
      messages: read,
      toolsInView: inView,
      ...(paradigm === "paraact" ? await outlook(read, catalog) : {}),
      maxNewTokens: 1000,
      temperature: 0,
      seed: 0,
    });
    return reply.text;
  };
}

// The six runs.

interface Played {
  run: RunResult;
  outcomes: Map<string, TaskOutcome>;
  stored: Map<string, StoredTrajectory>;
}
const played = new Map<Paradigm, Played>();
const of = (paradigm: Paradigm): Played => played.get(paradigm)!;
let tasks: Task[] = [];
let close: () => void = () => {};

/** Providers of the held-out split whose interfaces give tasks of several shapes. */
const PROVIDERS = ["ijenko.net", "thebluealliance.com", "ote-godaddy.com", "youneedabudget.com", "izettle.com"];

beforeAll(async () => {
  process.env.PARAAGENT_RESULTS = join(root, "results");
  process.env.PARAAGENT_CATALOG = join(root, "catalog.sqlite");
  delete process.env.OPENAI_API_KEY;
  await buildCatalog({ only: (file) => PROVIDERS.some((p) => file.startsWith(p)) });
  const catalog = openCatalog();
  let model: ((chat: Chat) => Promise<string>) | null = null;
  const heldout = (): Task[] => {
    const stages = join(root, "results/stages");
    const made = readdirSync(stages).filter((name) => name.startsWith("tasks-"));
    expect(made.length).toBe(1);
    return readJsonLines<Task>(join(stages, made[0]!, "heldout.jsonl"));
  };
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    routes: {
      "/v1/chat/completions": {
        async POST(request) {
          const chat = (await request.json()) as Chat;
          model ??= scriptedModel(heldout(), catalog);
          const content = await model(chat);
          return Response.json({
            id: "x",
            model: "scripted-1",
            choices: [{ index: 0, finish_reason: "stop", message: { role: "assistant", content } }],
            usage: { prompt_tokens: 10, completion_tokens: 5 },
          });
        },
      },
    },
  });
  close = () => {
    server.stop(true);
    catalog.close();
  };
  const file = join(root, "experiment.yaml");
  writeFileSync(file, YAML(`http://127.0.0.1:${server.port}/v1`));
  for (const loaded of loadExperiment(file)) {
    const run = await runExperiment(loaded, { progress: quiet });
    const outcomes = new Map(readOutcomes(run.dir).map((o) => [o.task, o]));
    const list = readTrajectories(join(run.dir, "trajectories.jsonl.gz"));
    const stored = new Map(list.map((t) => [t.trajectory.taskId, t]));
    played.set(loaded.experiment.agent.paradigm, { run, outcomes, stored });
  }
  tasks = heldout();
});
afterAll(() => {
  close();
  rmSync(root, { recursive: true, force: true });
  for (const name of ["PARAAGENT_RESULTS", "PARAAGENT_CATALOG", "OPENAI_API_KEY"]) {
    if (before[name] === undefined) delete process.env[name];
    else process.env[name] = before[name];
  }
});

const goldCalls = (s: StoredTrajectory): string[] =>
  s.trajectory.turns
    .flatMap((t) => t.calls.flatMap((c) => (c.call && c.outcome === "ok" ? [callIdentity(c.call)] : [])))
    .sort();
const replies = (s: StoredTrajectory): string[] => s.trajectory.turns.map((t) => t.reply);
const mean = (values: number[]): number => values.reduce((a, b) => a + b, 0) / values.length;
/** Whether a paradigm's one search showed every tool that the task takes. */
const shownAtOnce = (task: Task, s: StoredTrajectory): boolean => {
  const shown = new Set(s.trajectory.opening?.searches.flatMap((x) => x.retrieved));
  return task.tools.every((t) => shown.has(t));
};

describe("six paradigms from one YAML, one endpoint", () => {
  test("the same tasks with the same seeds, made once; nothing but the paradigm is set differently", () => {
    const [first, ...rest] = PARADIGMS.map(of);
    const key = (p: Played): string => p.run.stages.find((s) => s.name === "tasks")!.key;
    const seeds = (p: Played): unknown[] => [...p.stored.values()].map((s) => [s.trajectory.taskId, s.trajectory.seed]);
    expect(tasks.length).toBe(TASKS);
    expect(new Set(tasks.map((t) => t.shape)).size).toBeGreaterThanOrEqual(4);
    expect(tasks.some((t) => Object.keys(t.faults).length > 0)).toBe(true);
    expect([...first!.outcomes.keys()].sort()).toEqual(tasks.map((t) => t.id).sort());
    for (const p of rest) {
      expect(key(p)).toBe(key(first!));
      expect(seeds(p)).toEqual(seeds(first!));
    }
    const settings = loadExperiment(join(root, "experiment.yaml")).map(({ experiment: { agent, ...others } }) => {
      const { paradigm: _, ...same } = agent;
      return JSON.stringify([same, others]);
    });
    expect(settings.length).toBe(6);
    expect(new Set(settings).size).toBe(1);
  });

  test("every episode ends with an answer, named after its paradigm, its policy and its prompt", () => {
    for (const paradigm of PARADIGMS) {
      for (const { trajectory } of of(paradigm).stored.values()) {
        expect([trajectory.paradigm, trajectory.policy, trajectory.end]).toEqual([paradigm, "scripted-1", "answered"]);
        expect(trajectory.system).toBe(paradigmSettings(paradigm).system!);
      }
    }
  });

  test.each(["paraact", "eae", "reflexion", "dfsdt"] as const)("%s solves every task", (paradigm) => {
    for (const task of tasks) {
      const { success, scores } = of(paradigm).outcomes.get(task.id)!;
      expect([task.id, success, scores.R_traj, scores.R_step]).toEqual([task.id, 1, 2, 1]);
    }
  });

  test("ParaAct has the full reward for its plans too; without plans there is none", () => {
    for (const task of tasks) {
      expect([task.id, of("paraact").outcomes.get(task.id)!.scores.R_phase]).toEqual([task.id, 0.5]);
      expect(of("eae").outcomes.get(task.id)!.scores.R_phase).toBe(0);
    }
  });

  test("the same calls succeed in ParaAct and EaE; ParaAct never takes longer, and less time and fewer turns where it can act in parallel", () => {
    for (const task of tasks) {
      const [a, b] = [of("paraact").stored.get(task.id)!, of("eae").stored.get(task.id)!];
      expect(goldCalls(a)).toEqual(goldCalls(b));
      expect(a.trajectory.makespanMs).toBeLessThanOrEqual(b.trajectory.makespanMs);
      expect(a.trajectory.turns.length).toBeLessThanOrEqual(b.trajectory.turns.length);
      const parallel = a.trajectory.turns.some((t) => t.calls.length > 1);
      if (parallel) expect(a.trajectory.makespanMs).toBeLessThan(b.trajectory.makespanMs);
    }
    const time = (p: Paradigm): number => mean([...of(p).outcomes.values()].map((o) => o.makespanMs));
    expect(time("paraact")).toBeLessThan(time("eae"));
  });

  test("Reflexion and DFSDT are EaE where the first attempt is right: the same replies and calls", () => {
    for (const task of tasks) {
      const eae = of("eae").stored.get(task.id)!;
      for (const paradigm of ["reflexion", "dfsdt"] as const) {
        const other = of(paradigm).stored.get(task.id)!;
        expect(replies(other)).toEqual(replies(eae));
        expect(goldCalls(other)).toEqual(goldCalls(eae));
      }
      // Reflexion checks itself once more.
      const tokens = (p: Paradigm): number => of(p).stored.get(task.id)!.trajectory.usage.promptTokens;
      expect(tokens("reflexion")).toBe(tokens("eae") + 10);
      expect(tokens("dfsdt")).toBe(tokens("eae"));
    }
  });

  test("ETE solves a task exactly where its one search shows all tools, some of them and not all", () => {
    const wins = tasks.map((task) => {
      const { success } = of("ete").outcomes.get(task.id)!;
      expect([task.id, success]).toEqual([task.id, shownAtOnce(task, of("ete").stored.get(task.id)!) ? 1 : 0]);
      return success;
    });
    expect(new Set(wins)).toEqual(new Set([0, 1]));
  });

  test("ReWOO asks twice, and solves a task exactly where its one search shows all tools and no call has to be repeated", () => {
    const wins = tasks.map((task) => {
      const s = of("rewoo").stored.get(task.id)!;
      const smooth = s.trajectory.turns.every((t) => t.calls.every((c) => c.outcome === "ok"));
      const { success } = of("rewoo").outcomes.get(task.id)!;
      expect([task.id, success]).toEqual([task.id, shownAtOnce(task, s) && smooth ? 1 : 0]);
      expect(s.trajectory.usage.promptTokens).toBe(20);
      expect(s.trajectory.opening?.searches).toEqual(of("ete").stored.get(task.id)!.trajectory.opening?.searches);
      if (success === 1) expect(goldCalls(s)).toEqual(goldCalls(of("eae").stored.get(task.id)!));
      return success;
    });
    expect(new Set(wins)).toEqual(new Set([0, 1]));
    expect(tasks.some((t) => Object.keys(t.faults).length > 0 && of("ete").outcomes.get(t.id)!.success === 1)).toBe(
      true,
    );
  });
});
