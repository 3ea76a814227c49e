/**
 * The environment over HTTP, so that another trainer uses the same one: reset, step, score, close; one episode an id, many at
 * once, each with its own state. Plain JSON; every error is {"error": "..."} with a status that says whose fault it is.
 */
import { Hono } from "hono";
import { bodyLimit } from "hono/body-limit";
import { HTTPException } from "hono/http-exception";
import { z } from "zod";
import type { Catalog, Json, JsonObject, Retriever, Tool } from "../catalog/types.ts";
import { judgeExact, type MadeCall } from "./judge.ts";
import { taskBackend } from "./solve.ts";
import type { Session, Task } from "./types.ts";
import { World } from "./world.ts";

/** An episode of a protocol (ParaAct's lives above this module) that takes whole replies. */
export interface ReplyEpisode {
  step(reply: string): Promise<{ observation: string; end: string | null; turn: Json }>;
  /** What the policy reads at the start. */
  opening(): { role: string; content: string }[];
  answer(): string | null;
}
/** What a protocol's episode acts on: this service keeps the calls for the verdicts. */
export interface EpisodeTools {
  tool(name: string): Tool | null;
  search(query: string, k: number): Tool[];
  call(tool: Tool, args: JsonObject): Promise<{ result: Awaited<ReturnType<Session["call"]>> }>;
}

export interface ServiceOptions {
  catalog: Catalog;
  retriever: Retriever;
  /** The tasks that episodes may be opened on, by id. */
  tasks: readonly Task[];
  /** Makes the episode that reads replies; without it only direct actions are taken. */
  replies?: (tools: EpisodeTools, task: Task) => ReplyEpisode;
  /** Milliseconds; passed in so that tests need no waiting. */
  now: () => number;
  /** Episodes at a time; one more is refused with 503. */
  maxEpisodes?: number;
  /** An episode that nobody has touched for this long is gone (410). */
  idleMs?: number;
  /** Largest request body. */
  maxBodyBytes?: number;
  /** Calls and searches of one episode. */
  maxActions?: number;
}

interface Open {
  task: Task;
  session: Session;
  calls: MadeCall[];
  actions: number;
  answer: string | null;
  replies: ReplyEpisode | null;
  touched: number;
  /** Steps of one episode run one after the other. */
  queue: Promise<unknown>;
}

const reset = z.strictObject({ task: z.string().optional(), seed: z.int().min(0).max(0xffffffff).default(0) });
const step = z.strictObject({
  episode: z.string(),
  reply: z.string().max(200_000).optional(),
  search: z.strictObject({ query: z.string().max(2000), k: z.int().min(1).max(20).default(3) }).optional(),
  call: z.strictObject({ name: z.string().max(200), arguments: z.record(z.string(), z.json()) }).optional(),
  answer: z.string().max(100_000).optional(),
});
const named = z.strictObject({ episode: z.string(), answer: z.string().max(100_000).optional() });

const fail = (status: 400 | 404 | 409 | 410 | 413 | 429 | 503, message: string): never => {
  throw new HTTPException(status, { message });
};

/** The service's state: episodes that are open, and the ids of those that have expired. */
export class Episodes {
  readonly options: Required<Omit<ServiceOptions, "replies">> & Pick<ServiceOptions, "replies">;
  readonly #open = new Map<string, Open>();
  readonly #gone = new Set<string>();
  readonly #worlds = new Map<number, World>();
  readonly #tasks: Map<string, Task>;
  #next = 0;
  constructor(options: ServiceOptions) {
    this.options = { maxEpisodes: 1000, idleMs: 15 * 60_000, maxBodyBytes: 1_000_000, maxActions: 200, ...options };
    this.#tasks = new Map(options.tasks.map((t) => [t.id, t]));
  }
  get size(): number {
    return this.#open.size;
  }

  /** Opens an episode on a task: the one named, or the next in turn. */
  reset(taskId: string | undefined, seed: number): { id: string; open: Open } {
    this.expire();
    const { catalog, maxEpisodes, tasks } = this.options;
    if (this.#open.size >= maxEpisodes)
      fail(503, `${maxEpisodes} episodes are open, which is the limit: close one, or wait until idle ones expire`);
    const task = taskId === undefined ? tasks[this.#next++ % Math.max(1, tasks.length)] : this.#tasks.get(taskId);
    if (!task)
      return fail(
        404,
        taskId === undefined
          ? "this service has no tasks"
          : `no task ${JSON.stringify(taskId.slice(0, 80))}: see GET /tasks`,
      );
    let world = this.#worlds.get(task.worldSeed);
    if (!world) {
      world = new World(catalog, task.worldSeed);
      this.#worlds.set(task.worldSeed, world);
    }
    const open: Open = {
      task,
      session: taskBackend(catalog, task, world).open(seed),
      calls: [],
      actions: 0,
      answer: null,
      replies: null,
      touched: this.options.now(),
      queue: Promise.resolve(),
    };
    open.replies = this.options.replies?.(this.#tools(open), task) ?? null;
    const id = crypto.randomUUID();
    this.#open.set(id, open);
    return { id, open };
  }

  #tools(open: Open): EpisodeTools {
    const { catalog, retriever } = this.options;
    return {
      tool: (name) => catalog.get(name),
      search: (query, k) => {
        this.#count(open);
        return retriever.search(query, k).map((h) => h.tool);
      },
      call: async (tool, args) => ({ result: await this.#call(open, tool, args) }),
    };
  }
  #count(open: Open): void {
    if (++open.actions > this.options.maxActions)
      fail(429, `an episode may take ${this.options.maxActions} actions; this one has: score or close it`);
  }
  async #call(open: Open, tool: Tool, args: JsonObject) {
    this.#count(open);
    const result = await open.session.call(tool, args);
    open.calls.push({ call: { name: tool.name, arguments: args }, outcome: result.outcome, body: result.body });
    return result;
  }

  /** The episode, or an error that says whether it expired or never was. */
  get(id: string): Open {
    this.expire();
    const open = this.#open.get(id);
    if (!open)
      return this.#gone.has(id)
        ? fail(410, "this episode has expired or was closed: reset opens a new one")
        : fail(404, "no such episode: reset opens one and gives its id");
    open.touched = this.options.now();
    return open;
  }

  /** Runs work on an episode after all earlier work on it. */
  inTurn<T>(open: Open, work: () => Promise<T>): Promise<T> {
    const result = open.queue.then(work);
    open.queue = result.catch(() => undefined);
    return result;
  }

  async step(open: Open, body: z.infer<typeof step>): Promise<JsonObject> {
    const given = (["reply", "search", "call", "answer"] as const).filter((k) => body[k] !== undefined);
    if (given.length !== 1)
      return fail(400, `a step is exactly one of reply, search, call, answer; got ${given.join(" and ") || "none"}`);
    if (open.answer !== null) return fail(409, "the episode has ended with an answer: score it, or reset another");
    if (body.reply !== undefined) {
      if (!open.replies) return fail(400, "this service takes direct actions only: search, call or answer");
      const { observation, end, turn } = await open.replies.step(body.reply);
      open.answer = open.replies.answer();
      return { observation, done: end !== null, end, turn };
    }
    if (body.search) {
      const tools = this.#tools(open).search(body.search.query, body.search.k);
      return { tools: tools.map(shown) };
    }
    if (body.call) {
      const tool = this.options.catalog.get(body.call.name);
      if (!tool)
        return {
          outcome: "invalid",
          status: 404,
          body: { error: `no tool is named ${body.call.name.slice(0, 80)}: search for it` },
        };
      const r = await this.#call(open, tool, body.call.arguments as JsonObject);
      return { outcome: r.outcome, status: r.status, body: r.body, latencyMs: r.latencyMs };
    }
    open.answer = body.answer ?? "";
    return { done: true };
  }

  score(open: Open, answer: string | undefined): JsonObject {
    const verdicts = judgeExact(open.task, {
      answer: answer ?? open.answer,
      calls: open.calls,
      writes: open.session.writes(),
    });
    const success = verdicts.quality + verdicts.faithfulness + verdicts.utility === 3;
    return { success, verdicts: verdicts as unknown as Json };
  }

  close(id: string): void {
    this.#open.get(id)?.session.close();
    if (this.#open.delete(id)) this.#bury(id);
  }
  #bury(id: string): void {
    // Ids of the last ten thousand gone episodes are told apart from ids that never were.
    if (this.#gone.size >= 10_000) this.#gone.delete(this.#gone.values().next().value as string);
    this.#gone.add(id);
  }
  /** Closes episodes that have been idle too long. */
  expire(): void {
    const limit = this.options.now() - this.options.idleMs;
    for (const [id, open] of this.#open) if (open.touched < limit) this.close(id);
  }
}

/** A tool as agents see it. */
export const shown = (tool: Tool): JsonObject => ({
  name: tool.name,
  description: tool.description,
  parameters: tool.parameters as unknown as Json,
});

/** The HTTP interface. Give its `fetch` to a server that is bound to loopback unless the user says otherwise. */
export function service(options: ServiceOptions): { app: Hono; episodes: Episodes } {
  const episodes = new Episodes(options);
  const app = new Hono();
  app.use(
    bodyLimit({
      maxSize: episodes.options.maxBodyBytes,
      onError: (c) => c.json({ error: `the body is larger than ${episodes.options.maxBodyBytes} bytes` }, 413),
    }),
  );
  app.onError((error, c) => {
    if (error instanceof HTTPException) return c.json({ error: error.message }, error.status);
    console.error(error);
    return c.json({ error: "the environment itself failed; see the server's log" }, 500);
  });
  app.notFound((c) =>
    c.json(
      {
        error:
          "no such path: GET /health, GET /tasks, POST /reset, /step, /score, /close; MCP at /mcp where it is served",
      },
      404,
    ),
  );

  /** The body as a schema wants it; a 400 that names the field otherwise. */
  const read = async <S extends z.ZodType>(c: { req: { text(): Promise<string> } }, schema: S): Promise<z.infer<S>> => {
    let parsed: z.ZodSafeParseResult<z.infer<S>>;
    try {
      parsed = schema.safeParse(JSON.parse((await c.req.text()) || "{}")) as typeof parsed;
    } catch (error) {
      if (error instanceof RangeError) return fail(400, "the body is nested too deeply");
      if (error instanceof SyntaxError) return fail(400, `the body is not JSON: ${error.message}`);
      throw error;
    }
    if (parsed.success) return parsed.data;
    const issue = parsed.error.issues[0];
    return fail(400, `${issue?.path.join(".") || "body"}: ${issue?.message}`);
  };

  app.get("/health", (c) =>
    c.json({
      ok: true,
      episodes: episodes.size,
      tasks: options.tasks.length,
      tools: options.catalog.size,
      catalog: options.catalog.hash,
    }),
  );
  app.get("/tasks", (c) => {
    const whole = (name: string, fallback: number, most: number) => {
      const text = c.req.query(name);
      if (text === undefined) return fallback;
      const n = Number(text);
      return Number.isSafeInteger(n) && n >= 0
        ? Math.min(n, most)
        : fail(400, `${name}: a whole number of 0 or more, not ${JSON.stringify(text.slice(0, 40))}`);
    };
    const from = whole("from", 0, Number.MAX_SAFE_INTEGER);
    const count = whole("count", 50, 500);
    return c.json({
      total: options.tasks.length,
      tasks: options.tasks
        .slice(from, from + count)
        .map((t) => ({ id: t.id, shape: t.shape, request: t.request, split: t.split })),
    });
  });
  app.post("/reset", async (c) => {
    const body = await read(c, reset);
    const { id, open } = episodes.reset(body.task, body.seed);
    return c.json({
      episode: id,
      task: open.task.id,
      request: open.task.request,
      ...(open.replies ? { messages: open.replies.opening() } : {}),
    });
  });
  app.post("/step", async (c) => {
    const body = await read(c, step);
    const open = episodes.get(body.episode);
    return c.json(await episodes.inTurn(open, () => episodes.step(open, body)));
  });
  app.post("/score", async (c) => {
    const body = await read(c, named);
    const open = episodes.get(body.episode);
    return c.json(await episodes.inTurn(open, async () => episodes.score(open, body.answer)));
  });
  app.post("/close", async (c) => {
    const body = await read(c, named);
    const open = episodes.get(body.episode);
    await episodes.inTurn(open, async () => episodes.close(body.episode));
    return c.json({ closed: true });
  });
  return { app, episodes };
}
