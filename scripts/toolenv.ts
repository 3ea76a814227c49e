/**
 * ToolEnv, the environment: a world that answers calls from 60,000 tools' own interfaces, tasks with exact answers, and both as a
 * service over HTTP and MCP. Differs from the paper, which lets a 14B model play the tools and a 235B model judge.
 */
import { existsSync } from "node:fs";
import { createInterface } from "node:readline";
import { chatEndpoint } from "../lib/agents/openai/client.ts";
import { buildCatalog } from "../lib/catalog/build.ts";
import { defaultCatalogPath, openCatalog, type StoredCatalog } from "../lib/catalog/store.ts";
import type { JsonObject } from "../lib/catalog/types.ts";
import { type Environment, SEARCH_LATENCY_MS } from "../lib/paraact/environment.ts";
import { Episode } from "../lib/paraact/episode.ts";
import { renderTool } from "../lib/paraact/render.ts";
import { responseCache } from "../lib/runs/endpoints.ts";
import { judgeExact, type MadeCall } from "../lib/toolenv/judge.ts";
import { mountMcp, serveStdio } from "../lib/toolenv/mcp-server.ts";
import { type EpisodeTools, type ReplyEpisode, service } from "../lib/toolenv/service.ts";
import { goldAnswer, taskBackend } from "../lib/toolenv/solve.ts";
import { paraphrased } from "../lib/toolenv/tasks/paraphrase.ts";
import { generateTasks } from "../lib/toolenv/tasks.ts";
import type { Shape, Task } from "../lib/toolenv/types.ts";
import { World } from "../lib/toolenv/world.ts";
import { type Args, main, UsageError, type Verb } from "./cli.ts";

const SHAPES = ["single", "parallel", "chain", "diamond", "fan_in", "fan_out", "mixed"] as const;
const VERB: Verb = {
  name: "toolenv",
  summary: "tasks of the simulated world, and the world as a service",
  usage: [
    "bun run toolenv tasks --n 20 --shape chain      tasks with their solutions",
    "bun run toolenv tasks --paraphrase http://127.0.0.1:8000/v1 --model qwen3    the same, worded by a model",
    "bun run toolenv play                            walk an episode by hand",
    "bun run toolenv serve --port 7878               HTTP: POST /reset /step /score /close; MCP at /mcp",
    "bun run toolenv mcp                             MCP over standard input and output",
    "bun run toolenv stats                           distinct tools, providers and shapes of 20,000 train and 2,000 held-out tasks",
  ],
  flags: {
    n: { type: "string", help: "how many tasks (tasks: 20, play and serve: 50, stats: 20000)" },
    seed: { type: "string", default: "1", help: "seed of the tasks" },
    world: { type: "string", default: "1", help: "seed of the world" },
    split: { type: "string", default: "train", help: "train or heldout" },
    shape: { type: "string", help: `only this shape: ${SHAPES.join(", ")}` },
    writes: { type: "string", default: "0.3", help: "share of tasks that change something" },
    faults: { type: "string", default: "0", help: "share of tasks with a fault on the path" },
    cross: { type: "string", default: "0.25", help: "share of multi-call tasks over several providers" },
    port: { type: "string", default: "7878", help: "serve: port" },
    host: {
      type: "string",
      default: "127.0.0.1",
      help: "serve: address to listen on; loopback unless you say otherwise",
    },
    paraphrase: { type: "string", help: "tasks: URL of an OpenAI-compatible endpoint that words the requests anew" },
    model: { type: "string", help: "tasks --paraphrase: the model to ask for" },
    key: { type: "string", help: "tasks --paraphrase: environment variable that holds the endpoint's key" },
    catalog: { type: "string", help: "catalogue file (data/catalog.sqlite)" },
  },
};

async function open(args: Args): Promise<StoredCatalog> {
  const path = args.text("catalog") ?? defaultCatalogPath();
  if (!existsSync(path))
    await buildCatalog({
      path,
      onProgress: ({ files, of, tools }) => args.progress.update(files, of, `building the catalogue: ${tools} tools`),
    });
  return openCatalog(path);
}

function* tasksOf(
  args: Args,
  catalog: StoredCatalog,
  count: number,
  more: { split?: "train" | "heldout" } = {},
): Generator<Task> {
  const split = more.split ?? args.text("split");
  if (split !== "train" && split !== "heldout") throw new UsageError(`--split takes train or heldout, not "${split}".`);
  const shape = args.text("shape");
  if (shape !== undefined && !(SHAPES as readonly string[]).includes(shape))
    throw new UsageError(`--shape takes one of ${SHAPES.join(", ")}, not "${shape}".`);
  const share = (flag: string) => args.number(flag, { min: 0, max: 1, integer: false }) as number;
  const world = new World(catalog, args.number("world", { min: 0 }) as number);
  yield* generateTasks(catalog, world, {
    split,
    seed: args.number("seed", { min: 0 }) as number,
    count,
    ...(shape ? { shapes: { [shape as Shape]: 1 } } : {}),
    writes: share("writes"),
    faults: share("faults"),
    crossProvider: share("cross"),
    retriever: catalog.bm25(),
  });
}

/** The tasks in a model's words where those keep to the task. How many did not, and why, goes to standard error. */
async function wordedAnew(args: Args, catalog: StoredCatalog, tasks: readonly Task[], url: string): Promise<Task[]> {
  const model = args.text("model");
  if (!model) throw new UsageError("--paraphrase needs --model: the name of the model that words the requests.");
  const seed = args.number("seed", { min: 0 }) as number;
  const endpoint = chatEndpoint({
    baseURL: url,
    model,
    keyVariable: args.text("key") ?? null,
    cacheDir: responseCache(),
  });
  const world = new World(catalog, args.number("world", { min: 0 }) as number);
  const counts: Record<string, number> = {};
  let done = 0;
  const out = await Promise.all(
    tasks.map(async (task) => {
      const { task: other, refused } = await paraphrased(catalog, world, task, async (system, user) => {
        const messages = [
          { role: "system" as const, content: system },
          { role: "user" as const, content: user },
        ];
        return (await endpoint.complete({ messages, maxTokens: 1000, temperature: 0.7, seed })).content;
      });
      const kept = refused ? `scripted, ${refused}` : "paraphrased";
      counts[kept] = (counts[kept] ?? 0) + 1;
      args.progress.update(++done, tasks.length, "requests worded anew");
      return other;
    }),
  );
  const said = Object.entries(counts).map(([what, k]) => `${k} ${what}`);
  process.stderr.write(`requests by ${model}: ${said.join("; ")}\n`);
  return out;
}

function describe(task: Task, n: number): string {
  const lines = [`${n}. ${task.shape}, ${task.providers.join(", ")}  [${task.id}]`, `   ${task.request}`];
  for (const c of task.calls)
    lines.push(
      `     step ${c.step}: ${c.tool} ${JSON.stringify(c.arguments)}${task.faults[c.id] ? `   (first attempt: ${task.faults[c.id]})` : ""}`,
    );
  for (const e of task.edges)
    lines.push(
      `     ${e.kind === "hard" ? "needs" : "may take"}: ${e.to}.${e.argument} from ${e.from} at ${e.pointer}`,
    );
  for (const w of task.writes) lines.push(`     changes: ${w.kind} ${w.resource} ${w.id} ${JSON.stringify(w.values)}`);
  for (const [tool, names] of Object.entries(task.distractors ?? {}))
    if (names.length) lines.push(`     looks like ${tool}: ${names.join(", ")}`);
  lines.push(`     answer: ${goldAnswer(task)}`);
  return `${lines.join("\n")}\n`;
}

/** Distinct tools, providers and shapes of a set of tasks. */
function counted(tasks: Iterable<Task>, tick: (n: number) => void): JsonObject {
  const tools = new Set<string>();
  const providers = new Set<string>();
  const ids = new Set<string>();
  const shapes: Record<string, number> = {};
  let calls = 0;
  let writes = 0;
  for (const t of tasks) {
    for (const x of t.tools) tools.add(x);
    for (const p of t.providers) providers.add(p);
    ids.add(t.id);
    shapes[t.shape] = (shapes[t.shape] ?? 0) + 1;
    calls += t.calls.length;
    if (t.writes.length) writes++;
    tick(ids.size);
  }
  return { tasks: ids.size, tools: tools.size, providers: providers.size, calls, withWrites: writes, shapes };
}

/** ParaAct's episode for the service: whole replies in, observations out. */
function replies(tools: EpisodeTools, task: Task): ReplyEpisode {
  const environment: Environment = {
    tool: tools.tool,
    search: (query, k) => ({ tools: tools.search(query, k), failed: null, latencyMs: SEARCH_LATENCY_MS }),
    call: async (tool, args) => (await tools.call(tool, args)).result,
  };
  const episode = new Episode(environment, task.request);
  return {
    async step(reply) {
      const { turn, observation, end } = await episode.step({ text: reply });
      return {
        observation,
        end,
        turn: JSON.parse(
          JSON.stringify({
            kind: turn.kind,
            planSlot: turn.planSlot,
            planEvent: turn.planEvent,
            findings: turn.findings,
          }),
        ),
      };
    },
    opening: () => episode.messages().map(({ role, content }) => ({ role, content })),
    answer: () => episode.state.turns.at(-1)?.answer ?? null,
  };
}

async function play(catalog: StoredCatalog, task: Task): Promise<JsonObject> {
  const session = taskBackend(catalog, task).open(1);
  const made: MadeCall[] = [];
  const say = (text: string) => void process.stdout.write(`${text}\n`);
  say(`\n${task.request}\n\nsearch <words> | call <tool> <JSON arguments> | answer <text> | solution | quit`);
  const lines = createInterface({
    input: process.stdin,
    output: process.stdout,
    prompt: "> ",
    terminal: process.stdin.isTTY ?? false,
  });
  lines.prompt();
  let result: JsonObject = { ended: "quit" };
  for await (const line of lines) {
    const [verb, rest] = [line.trim().split(/\s+/, 1)[0] ?? "", line.trim().replace(/^\S+\s*/, "")];
    if (verb === "quit") break;
    if (verb === "search") {
      const hits = catalog.bm25().search(rest, 3);
      say(hits.map((h) => renderTool(h.tool, "compact")).join("\n") || "nothing found");
    } else if (verb === "call") {
      const name = rest.split(/\s+/, 1)[0] ?? "";
      const tool = catalog.get(name);
      let args: unknown = null;
      try {
        args = JSON.parse(rest.slice(name.length).trim() || "{}");
      } catch (error) {
        say(`the arguments are not JSON: ${(error as Error).message}`);
      }
      if (!tool) say(`no tool is named ${name}; search shows names`);
      else if (args !== null && typeof args === "object" && !Array.isArray(args)) {
        const r = await session.call(tool, args as JsonObject);
        made.push({ call: { name, arguments: args as JsonObject }, outcome: r.outcome, body: r.body });
        say(`${r.status} ${r.outcome}, ${r.latencyMs} ms\n${JSON.stringify(r.body, null, 2)}`);
      } else if (args !== null) say("the arguments must be a JSON object");
    } else if (verb === "solution") say(describe(task, 1));
    else if (verb === "answer") {
      const verdicts = judgeExact(task, { answer: rest, calls: made, writes: session.writes() });
      say(
        `quality ${verdicts.quality}: ${verdicts.reasons.quality}\nfaithfulness ${verdicts.faithfulness}: ${verdicts.reasons.faithfulness}\nutility ${verdicts.utility}: ${verdicts.reasons.utility}`,
      );
      result = {
        ended: "answered",
        quality: verdicts.quality,
        faithfulness: verdicts.faithfulness,
        utility: verdicts.utility,
      };
      break;
    } else if (verb !== "") say("search <words> | call <tool> <JSON arguments> | answer <text> | solution | quit");
    lines.prompt();
  }
  lines.close();
  return result;
}

await main(VERB, async (args) => {
  const [what = "tasks", ...extra] = args.positionals;
  if (extra.length) throw new UsageError(`toolenv ${what} takes no further words; see: bun run toolenv --help`);
  const n = args.number("n", { min: 1, max: 1_000_000 });
  switch (what) {
    case "tasks": {
      const catalog = await open(args);
      const all: Task[] = [];
      const url = args.text("paraphrase");
      for (const task of tasksOf(args, catalog, n ?? 20)) {
        all.push(task);
        if (!args.json && !url) process.stdout.write(`${describe(task, all.length)}\n`);
      }
      if (!url) return { json: all };
      const worded = await wordedAnew(args, catalog, all, url);
      if (!args.json) for (const [i, t] of worded.entries()) process.stdout.write(`${describe(t, i + 1)}\n`);
      return { json: worded };
    }
    case "play": {
      const catalog = await open(args);
      const [task] = tasksOf(args, catalog, 1);
      return { json: await play(catalog, task as Task) };
    }
    case "serve": {
      const catalog = await open(args);
      const tasks = [...tasksOf(args, catalog, n ?? 50)];
      const { app } = service({ catalog, retriever: catalog.bm25(), tasks, replies, now: () => performance.now() });
      const backend = new World(catalog, args.number("world", { min: 0 }) as number);
      mountMcp(app, { catalog, retriever: catalog.bm25(), backend }, () => performance.now());
      const server = Bun.serve({
        port: args.number("port", { min: 0, max: 65535 }) as number,
        hostname: args.text("host") as string,
        // The service itself refuses large bodies, unread and with a reason.
        maxRequestBodySize: Number.MAX_SAFE_INTEGER,
        idleTimeout: 120,
        fetch: app.fetch,
      });
      process.stderr.write(
        `ToolEnv at ${server.url} with ${tasks.length} tasks over ${catalog.size} tools; MCP at ${server.url}mcp. Stop with Ctrl-C.\n`,
      );
      await new Promise<void>((resolve) => {
        process.once("SIGINT", resolve);
        process.once("SIGTERM", resolve);
      });
      await server.stop(true);
      return { json: { stopped: true } };
    }
    case "mcp": {
      const catalog = await open(args);
      await serveStdio({
        catalog,
        retriever: catalog.bm25(),
        backend: new World(catalog, args.number("world", { min: 0 }) as number),
      });
      return { json: { stopped: true } };
    }
    case "stats": {
      const catalog = await open(args);
      const count = n ?? 20_000;
      const result: Record<string, JsonObject> = {};
      for (const [split, size] of [
        ["train", count],
        ["heldout", Math.ceil(count / 10)],
      ] as const) {
        const start = performance.now();
        const figures = counted(tasksOf(args, catalog, size, { split }), (k) =>
          args.progress.update(k, size, `${split} tasks`),
        );
        result[split] = { ...figures, seconds: Math.round((performance.now() - start) / 100) / 10 };
        if (!args.json) process.stdout.write(`${split}: ${JSON.stringify(result[split])}\n`);
      }
      return { json: result };
    }
    default:
      throw new UsageError(`toolenv does tasks, play, serve, mcp or stats, not "${what}".`);
  }
});
