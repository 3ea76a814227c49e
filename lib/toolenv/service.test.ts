import { afterAll, expect, test } from "bun:test";
import { rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { InMemoryTransport } from "@modelcontextprotocol/sdk/inMemory.js";
import type { Transport } from "@modelcontextprotocol/sdk/shared/transport.js";
import { Hono } from "hono";
import OpenAI from "openai";
import { bm25 } from "../catalog/bm25.ts";
import { memoryCatalog } from "../catalog/memory.ts";
import type { Json, JsonObject, Tool } from "../catalog/types.ts";
import { mcpBackend } from "./backends/mcp.ts";
import { modelBackend } from "./backends/model.ts";
import { NotRecorded, Recording, RecordingError, recording, replay } from "./backends/recorded.ts";
import { mcpServer, mountMcp } from "./mcp-server.ts";
import { service } from "./service.ts";
import { goldAnswer } from "./solve.ts";
import { shopTools } from "./testdata/sample.ts";
import type { Task } from "./types.ts";
import { World } from "./world.ts";

const tools = shopTools.map((t, id): Tool => ({ ...t, id }));
const catalog = memoryCatalog(tools);
const retriever = bm25(tools);
const world = new World(catalog, 5);

/** A task by hand: the e-mail address of one customer, and a new order. */
function task(i: number): Task {
  const customers = (
    world.open(0).call(catalog.get("list_customers")!, {}).body as { data: { id: number; email: string }[] }
  ).data;
  const c = customers[i % customers.length]!;
  const session = world.open(0);
  const args = { customer_id: c.id, title: `Parcel ${i}` };
  session.call(catalog.get("create_order")!, args);
  return {
    id: `task${i}`,
    shape: "parallel",
    request: `What is the email address of customer ${c.id}? Also create an order for customer ${c.id} with title "Parcel ${i}".`,
    worldSeed: 5,
    tools: ["get_customer", "create_order"],
    providers: ["shop.test"],
    calls: [
      { id: "get_customer#1", tool: "get_customer", arguments: { id: c.id }, step: 1 },
      { id: "create_order#1", tool: "create_order", arguments: args, step: 1 },
    ],
    edges: [],
    facts: [
      {
        source: "get_customer#1",
        pointer: "/email",
        label: `email address of customer ${c.id}`,
        value: c.email,
        accepted: [],
      },
    ],
    writes: session.writes(),
    faults: {},
    queries: {},
    split: "train",
  };
}
const tasks = Array.from({ length: 8 }, (_, i) => task(i));
let clock = 0;
const make = (more: Partial<Parameters<typeof service>[0]> = {}) =>
  service({ catalog, retriever, tasks, now: () => clock, ...more });
type App = ReturnType<typeof make>["app"];
async function post(
  app: Pick<App, "request">,
  path: string,
  body: unknown,
): Promise<{ status: number; body: JsonObject }> {
  const r = await app.request(path, { method: "POST", body: typeof body === "string" ? body : JSON.stringify(body) });
  return { status: r.status, body: (await r.json()) as JsonObject };
}

async function solve(app: Pick<App, "request">, t: Task): Promise<JsonObject> {
  const { body } = await post(app, "/reset", { task: t.id, seed: 3 });
  const episode = body.episode as string;
  expect(body.request).toBe(t.request);
  for (const c of t.calls) {
    const r = await post(app, "/step", { episode, call: { name: c.tool, arguments: c.arguments } });
    expect(r.body.outcome).toBe("ok");
  }
  await post(app, "/step", { episode, answer: goldAnswer(t) });
  const score = await post(app, "/score", { episode });
  expect((await post(app, "/close", { episode })).body).toEqual({ closed: true });
  return score.body;
}

test("reset, step, score, close over HTTP", async () => {
  const { app, episodes } = make();
  const found = await post(app, "/reset", {});
  const search = await post(app, "/step", { episode: found.body.episode, search: { query: "get one customer" } });
  expect((search.body.tools as JsonObject[]).map((t) => t.name)).toContain("get_customer");
  expect((await solve(app, tasks[2]!)).success).toBe(true);
  const idle = await post(app, "/score", { episode: found.body.episode });
  expect(idle.body.success).toBe(false);
  expect(episodes.size).toBe(1);
});

test("200 episodes at once mix nothing", async () => {
  const { app, episodes } = make();
  const scores = await Promise.all(Array.from({ length: 200 }, (_, i) => solve(app, tasks[i % tasks.length]!)));
  expect(scores.every((s) => s.success === true)).toBe(true);
  expect(episodes.size).toBe(0);
});

test.skipIf(process.env.PARAAGENT_FULL !== "1")(
  "200 episodes at a time over HTTP for a minute lose nothing and mix nothing",
  async () => {
    const { app, episodes } = make();
    const server = Bun.serve({ port: 0, hostname: "127.0.0.1", fetch: app.fetch });
    const over: Pick<App, "request"> = { request: (path, init) => fetch(new URL(path as string, server.url), init) };
    const end = performance.now() + 60_000;
    let played = 0;
    let lost = 0;
    let early = 0;
    await Promise.all(
      Array.from({ length: 200 }, async (_, i) => {
        for (let n = 0; performance.now() < end; n++) {
          const score = await solve(over, tasks[(i + n) % tasks.length]!);
          if (score.success !== true) lost++;
          if (++played === 2000) early = process.memoryUsage().rss;
        }
      }),
    );
    await server.stop(true);
    console.log(`${played} episodes over HTTP in a minute`);
    expect([lost, episodes.size]).toEqual([0, 0]);
    // What is left of ten thousand closed episodes is their ids.
    if (early) expect(process.memoryUsage().rss - early).toBeLessThan(200e6);
  },
  120_000,
);

test("steps of one episode run one after the other", async () => {
  const { app } = make();
  const { body } = await post(app, "/reset", { task: "task0" });
  const customer = tasks[0]!.calls[1]!.arguments.customer_id as number;
  const made = await Promise.all(
    Array.from({ length: 20 }, (_, i) =>
      post(app, "/step", {
        episode: body.episode,
        call: { name: "create_order", arguments: { customer_id: customer, title: `n${i}` } },
      }),
    ),
  );
  expect(new Set(made.map((m) => (m.body.body as JsonObject).id)).size).toBe(20);
});

test("hostile requests: each a clear error", async () => {
  const { app } = make({ maxBodyBytes: 10_000, maxEpisodes: 3, maxActions: 2 });
  let pulled = 0;
  const endless = new ReadableStream({
    pull(controller) {
      pulled += 65_536;
      if (pulled > 100_000_000) controller.close();
      else controller.enqueue(new Uint8Array(65_536));
    },
  });
  const big = await app.request("/step", { method: "POST", body: endless, duplex: "half" } as RequestInit);
  expect(big.status).toBe(413);
  expect(pulled).toBeLessThan(1_000_000);
  const told = await app.request("/step", { method: "POST", body: "{}", headers: { "content-length": "100000000" } });
  expect(told.status).toBe(413);
  expect((await post(app, "/step", "{not json")).status).toBe(400);
  const abyss = `{"episode":"x","call":{"name":"y","arguments":${'{"a":'.repeat(100_000)}1${"}".repeat(100_000)}}}`;
  expect((await post(make().app, "/step", abyss)).body.error).toContain("nested");
  expect((await post(app, "/step", { episode: "../../x", answer: "" })).status).toBe(404);
  expect((await post(app, "/reset", { task: "../../etc/passwd" })).status).toBe(404);
  expect((await post(app, "/reset", { seed: -1 })).body.error).toContain("seed");
  expect((await post(app, "/reset", { sed: 1 })).body.error).toContain("sed");
  expect((await app.request("/tasks?from=-1")).status).toBe(400);
  expect((await app.request("/tasks?from=99999")).status).toBe(200);
  expect((await app.request("/nowhere")).status).toBe(404);
  const { body } = await post(app, "/reset", {});
  const e = body.episode;
  expect((await post(app, "/step", { episode: e })).body.error).toContain("exactly one");
  expect((await post(app, "/step", { episode: e, reply: "<answer>x</answer>" })).body.error).toContain(
    "direct actions only",
  );
  expect((await post(app, "/step", { episode: e, call: { name: "no_tool", arguments: {} } })).body.outcome).toBe(
    "invalid",
  );
  expect(
    (await post(app, "/step", { episode: e, call: { name: "get_order", arguments: { orderId: "../../etc/passwd" } } }))
      .body.status,
  ).toBe(404);
  await post(app, "/step", { episode: e, search: { query: "OR AND \"' NEAR(" } });
  expect((await post(app, "/step", { episode: e, search: { query: "x" } })).status).toBe(429);
  await post(app, "/reset", {});
  await post(app, "/reset", {});
  expect((await post(app, "/reset", {})).status).toBe(503);
  expect((await post(app, "/step", { episode: e, answer: "done" })).body).toEqual({ done: true });
  expect((await post(app, "/step", { episode: e, answer: "again" })).status).toBe(409);
});

test("idle episodes expire, and say so", async () => {
  const { app, episodes } = make({ idleMs: 1000 });
  const { body } = await post(app, "/reset", {});
  clock += 1001;
  expect((await post(app, "/step", { episode: body.episode, answer: "x" })).status).toBe(410);
  expect(episodes.size).toBe(0);
});

test("a real MCP client lists, searches and calls, and sees found tools as tools", async () => {
  const app = new Hono();
  mountMcp(app, { catalog, retriever, backend: world }, () => clock, { most: 2, idleMs: 1000 });
  const server = Bun.serve({ port: 0, hostname: "127.0.0.1", fetch: app.fetch });
  try {
    const clients = await Promise.all(
      [0, 1].map(async () => {
        const client = new Client({ name: "test", version: "1" });
        await client.connect(new StreamableHTTPClientTransport(new URL(`${server.url}mcp`)) as Transport);
        return client;
      }),
    );
    const [a, b] = clients as [Client, Client];
    expect((await a.listTools()).tools.map((t) => t.name)).toEqual(["search_tools", "call_tool"]);
    const found = (await a.callTool({ name: "search_tools", arguments: { query: "create a customer" } })) as {
      content: { text: string }[];
    };
    expect(found.content[0]!.text).toContain("create_customer");
    expect((await a.listTools()).tools.map((t) => t.name)).toContain("create_customer");
    const made = (await a.callTool({ name: "create_customer", arguments: { name: "Ada" } })) as {
      content: { text: string }[];
      isError?: boolean;
    };
    const id = (JSON.parse(made.content[0]!.text) as { id: number }).id;
    const own = (await a.callTool({ name: "call_tool", arguments: { name: "get_customer", arguments: { id } } })) as {
      isError?: boolean;
    };
    const others = (await b.callTool({
      name: "call_tool",
      arguments: { name: "get_customer", arguments: { id } },
    })) as { isError?: boolean };
    expect([own.isError ?? false, others.isError]).toEqual([false, true]);
    await expect(a.callTool({ name: "nothing", arguments: {} })).rejects.toThrow("no tool");
    await Promise.all(clients.map((c) => c.close()));
    // Two that have not said goodbye fill the service until they have been idle for too long.
    const connect = () =>
      new Client({ name: "late", version: "1" }).connect(
        new StreamableHTTPClientTransport(new URL(`${server.url}mcp`)) as Transport,
      );
    await expect(connect()).rejects.toThrow("limit");
    clock += 1001;
    await connect();
  } finally {
    await server.stop(true);
  }
});

test("a live MCP server is a backend", async () => {
  const [clientSide, serverSide] = InMemoryTransport.createLinkedPair();
  const { server } = mcpServer({ catalog, retriever, backend: world });
  await server.connect(serverSide);
  let t = 0;
  const backend = await mcpBackend(clientSide, { now: () => (t += 5) });
  const session = backend.open(0);
  const tool = (operation: string): Tool => ({ ...catalog.get("get_customer")!, operation, source: "live" });
  const search = await session.call(tool("search_tools"), { query: "list all customers" });
  expect([search.outcome, search.latencyMs]).toEqual(["ok", 5]);
  expect((search.body as JsonObject[]).map((x) => x.name)).toContain("list_customers");
  expect((await session.call(tool("call_tool"), { name: "get_customer", arguments: { id: 1 } })).outcome).toBe(
    "not_found",
  );
  expect((await session.call(tool("call_tool"), { name: "get_customer", arguments: { id: "x" } })).outcome).toBe(
    "invalid",
  );
  expect((await session.call(tool("vanished"), {})).outcome).toBe("unavailable");
  await backend.close();
});

const file = join(tmpdir(), `toolenv-recording-${process.pid}.jsonl`);
afterAll(() => rmSync(file, { force: true }));

test("responses are recorded and replayed, state and all", async () => {
  rmSync(file, { force: true });
  const play = async (
    session: ReturnType<World["open"]> | ReturnType<ReturnType<typeof recording>["open"]>,
  ): Promise<Json[]> => {
    const out: Json[] = [];
    for (const [name, args] of [
      ["list_customers", {}],
      ["create_customer", { name: "Ada" }],
      ["list_customers", {}],
      ["get_customer", { id: 1 }],
    ] as const)
      out.push((await session.call(catalog.get(name)!, args)).body);
    return out;
  };
  const live = await play(recording(world, new Recording(file), { seed: 5 }).open(1));
  const kept = new Recording(file);
  expect(kept.size).toBe(4);
  const session = replay(kept, world, { seed: 5 }).open(1);
  expect(await play(session)).toEqual(live);
  expect(session.writes().length).toBe(1);
  await expect(
    replay(kept, world, { seed: 5 }).open(1).call(catalog.get("get_quote")!, { city: "Ghent", weight: 1 }),
  ).rejects.toThrow(NotRecorded);
  await expect(replay(kept, world, { seed: 6 }).open(1).call(catalog.get("list_customers")!, {})).rejects.toThrow(
    NotRecorded,
  );
  // A line that was cut off while it was written goes; any other damage is told with its place.
  const text = await Bun.file(file).text();
  await Bun.write(file, `${text}{"key":"torn`);
  expect(new Recording(file).size).toBe(4);
  await Bun.write(file, `{"key":1}\n${text}`);
  expect(() => new Recording(file)).toThrow(RecordingError);
});

test("a model simulates: checked arguments, validated answers, faults where it fails twice", async () => {
  const answers: string[] = [];
  const asked: string[] = [];
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    async fetch(request) {
      asked.push(await request.text());
      const content = answers.shift() ?? "";
      return Response.json({
        id: "x",
        object: "chat.completion",
        created: 0,
        model: "m",
        choices: [{ index: 0, message: { role: "assistant", content }, finish_reason: "stop" }],
      });
    },
  });
  try {
    const client = new OpenAI({ baseURL: `${server.url}v1`, apiKey: "none", maxRetries: 0 });
    const session = modelBackend({ client, model: "m", catalog }).open(0);
    const call = (name: string, args: JsonObject) => session.call(catalog.get(name)!, args);
    expect((await call("get_customer", { id: "x" })).outcome).toBe("invalid");
    expect(asked.length).toBe(0);
    answers.push('```json\n{"status":200,"body":{"id":4,"name":"Ada"}}\n```');
    const good = await call("get_customer", { id: 4 });
    expect([good.outcome, (good.body as JsonObject).name]).toEqual(["ok", "Ada"]);
    answers.push('{"status":200,"body":{"name":"no id"}}', '{"status":201,"body":{"id":5,"name":"Eve"}}');
    expect((await call("create_customer", { name: "Eve" })).outcome).toBe("ok");
    expect(asked.at(-1)).toContain("did not follow the response schema");
    expect(asked.at(-1)).toContain("Calls so far");
    expect(session.writes()).toEqual([
      { kind: "create", resource: "shop.test:customer", id: "5", values: { name: "Eve" } },
    ]);
    answers.push("sorry", "still sorry");
    const bad = await call("get_customer", { id: 9 });
    expect([bad.outcome, bad.fault]).toEqual(["transient", "server_error"]);
    answers.push('{"status":404,"body":{"error":"no such customer"}}');
    expect((await call("get_customer", { id: 8 })).outcome).toBe("not_found");
  } finally {
    await server.stop(true);
  }
});
