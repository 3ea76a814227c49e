import { afterAll, beforeEach, describe, expect, test } from "bun:test";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { acceptedReply, parseReply } from "../paraact/parse.ts";
import type { Message } from "../paraact/types.ts";
import {
  BudgetExceeded,
  chatEndpoint,
  EndpointError,
  type EndpointOptions,
  MissingKey,
  retryAfterMs,
} from "./openai/client.ts";
import { nativeMessages } from "./openai/native.ts";
import { openaiPolicy } from "./openai.ts";

const KEY = "sk-very-secret-0123456789";
const dir = mkdtempSync(join(tmpdir(), "openai-"));
afterAll(() => rmSync(dir, { recursive: true }));

type Handler = (body: Record<string, unknown>, n: number) => Response | Promise<Response>;
let handler: Handler;
let seen: { body: Record<string, unknown>; authorization: string | null }[] = [];
const server = Bun.serve({
  port: 0,
  hostname: "127.0.0.1",
  async fetch(request) {
    const body = (await request.json()) as Record<string, unknown>;
    seen.push({ body, authorization: request.headers.get("authorization") });
    return handler(body, seen.length);
  },
});
afterAll(() => server.stop(true));

let waits: number[] = [];
beforeEach(() => {
  seen = [];
  waits = [];
});

/** An endpoint whose waits are written down instead of waited. */
function endpoint(options: Partial<EndpointOptions> = {}) {
  return chatEndpoint({
    baseURL: `http://127.0.0.1:${server.port}/v1`,
    model: "m",
    keyVariable: "TEST_KEY",
    env: { TEST_KEY: KEY },
    sleep: async (ms) => void waits.push(ms),
    now: () => Date.UTC(2026, 0, 1),
    ...options,
  });
}

const usage = { prompt_tokens: 10, completion_tokens: 5 };
const said = (message: Record<string, unknown>, more: Record<string, unknown> = {}): Response =>
  Response.json({
    id: "x",
    object: "chat.completion",
    created: 0,
    model: "m-1",
    choices: [{ index: 0, finish_reason: "stop", message: { role: "assistant", ...message } }],
    usage,
    ...more,
  });
const ok = (): Response => said({ content: "<think>t</think><answer>a</answer>" });
const ask = { messages: [{ role: "user" as const, content: "hello" }], maxTokens: 20, temperature: 1, seed: 7 };

describe("a server that misbehaves", () => {
  test("429 with retry-after is waited for as asked; by date and in milliseconds as well", async () => {
    handler = (_, n) => (n === 1 ? new Response("{}", { status: 429, headers: { "retry-after": "3" } }) : ok());
    const e = endpoint();
    expect((await e.complete(ask)).content).toContain("<answer>");
    expect(waits.length).toBe(1);
    expect(waits[0]).toBeWithin(3000, 3251);
    expect(e.stats()).toMatchObject({ requests: 2, retries: 1 });
    const date = new Headers({ "retry-after": new Date(Date.UTC(2026, 0, 1) + 2000).toUTCString() });
    expect(retryAfterMs(date, Date.UTC(2026, 0, 1))).toBe(2000);
    expect(retryAfterMs(new Headers({ "retry-after-ms": "120" }), 0)).toBe(120);
    expect(retryAfterMs(new Headers({ "retry-after": "soon" }), 0)).toBeNull();
    expect(retryAfterMs(new Headers({ "retry-after": "999999" }), 0)).toBe(60_000);
  });

  test("5xx, malformed JSON, empty choices and a missing message are tried again, with growing waits", async () => {
    const bad = [
      () => new Response("upstream", { status: 502 }),
      () => new Response('{"choices": [{"mess', { headers: { "content-type": "application/json" } }),
      () => Response.json({ choices: [], usage }),
      () => Response.json({ choices: [{ finish_reason: "stop" }] }),
    ];
    handler = (_, n) => bad[n - 1]?.() ?? ok();
    await endpoint().complete(ask);
    expect(seen.length).toBe(5);
    for (const [i, wait] of waits.entries()) expect(wait).toBeWithin(250 * 2 ** i, 500 * 2 ** i + 1);
  });

  test("a dropped connection and a server too slow for the timeout are tried again", async () => {
    handler = (_, n) => (n === 1 ? new Promise<Response>(() => {}) : ok());
    const e = endpoint({ timeoutMs: 60 });
    expect((await e.complete(ask)).content).toContain("<answer>");
    expect(seen.length).toBe(2);
    expect(e.stats().retries).toBe(1);
    // Drops the first connection in the middle of the answer.
    const body = await ok().text();
    let connections = 0;
    const dropping = Bun.listen({
      hostname: "127.0.0.1",
      port: 0,
      socket: {
        open: () => void connections++,
        data(socket) {
          const head = `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n`;
          socket.end(head + (connections === 1 ? body.slice(0, 20) : body));
        },
      },
    });
    const dropped = endpoint({ baseURL: `http://127.0.0.1:${dropping.port}/v1` });
    expect((await dropped.complete(ask)).content).toContain("<answer>");
    expect(dropped.stats().retries).toBe(1);
    dropping.stop(true);
  });

  test("what no retry can cure is an error at once; what goes on failing is one after the retries", async () => {
    handler = () => Response.json({ error: { message: "no such model" } }, { status: 404 });
    expect(endpoint().complete(ask)).rejects.toThrow(EndpointError);
    await endpoint()
      .complete(ask)
      .catch((e: EndpointError) => expect(e.message).toMatch(/no such model/));
    expect(waits).toEqual([]);
    handler = () => Response.json({ error: { message: "quota", code: "insufficient_quota" } }, { status: 429 });
    await expect(endpoint().complete(ask)).rejects.toThrow(/quota/);
    expect(waits).toEqual([]);
    handler = () => new Response("{}", { status: 503 });
    await expect(endpoint({ retries: 2 }).complete(ask)).rejects.toThrow(/after 3 attempts/);
    expect(waits.length).toBe(2);
  });

  test("no more requests at once than allowed", async () => {
    let now = 0;
    let most = 0;
    handler = async () => {
      most = Math.max(most, ++now);
      await new Promise<void>((resolve) => setImmediate(resolve));
      now--;
      return ok();
    };
    const e = endpoint({ concurrency: 3 });
    await Promise.all(Array.from({ length: 20 }, (_, seed) => e.complete({ ...ask, seed })));
    expect(most).toBeLessThanOrEqual(3);
    expect(seen.length).toBe(20);
  });
});

describe("usage, budget, cache", () => {
  test("usage is recorded, or estimated and marked", async () => {
    handler = ok;
    const e = endpoint();
    expect((await e.complete(ask)).usage).toEqual({ promptTokens: 10, completionTokens: 5, estimated: false });
    handler = () => said({ content: "x".repeat(40) }, { usage: null });
    expect((await e.complete(ask)).usage).toMatchObject({ completionTokens: 10, estimated: true });
    expect(e.stats()).toMatchObject({ completionTokens: 15, estimated: true });
  });

  test("a request that the budget may not cover is refused before it is sent", async () => {
    handler = ok;
    const e = endpoint({ tokenBudget: 58 });
    await e.complete(ask);
    await e.complete(ask);
    await expect(e.complete(ask)).rejects.toThrow(BudgetExceeded);
    expect(seen.length).toBe(2);
  });

  test("the cache answers the same request, not another; one in flight is shared; failures and broken entries are never kept", async () => {
    handler = (_, n) => (n === 1 ? new Response("{}", { status: 500 }) : ok());
    const cacheDir = join(dir, "cache");
    const e = endpoint({ cacheDir });
    const [a, b] = await Promise.all([e.complete(ask), e.complete(ask)]);
    expect(seen.length).toBe(2);
    expect(b).toEqual(a);
    const again = endpoint({ cacheDir });
    expect(await again.complete(ask)).toEqual({ ...a, cached: true });
    expect(again.stats()).toMatchObject({ requests: 0, cached: 1 });
    await again.complete({ ...ask, seed: 8 });
    expect(seen.length).toBe(3);
    for (const name of readdirSync(cacheDir, { recursive: true })) {
      const path = join(cacheDir, String(name));
      if (path.endsWith(".json")) writeFileSync(path, '{"half');
    }
    await endpoint({ cacheDir }).complete(ask);
    expect(seen.length).toBe(4);
  });
});

test("the key is read from the environment and shows up in no error, cache entry or reply", async () => {
  expect(() => endpoint({ env: {} })).toThrow(MissingKey);
  const cacheDir = join(dir, "keyed");
  handler = () => Response.json({ error: { message: `Incorrect API key provided: ${KEY}` } }, { status: 401 });
  const error = await endpoint().complete(ask).then(String, String);
  expect(error).toContain("[key]");
  expect(error).not.toContain(KEY);
  handler = () => said({ content: `you sent ${KEY}` });
  await endpoint({ cacheDir }).complete(ask);
  expect(seen.every((s) => s.authorization === `Bearer ${KEY}`)).toBe(true);
  const kept = readdirSync(cacheDir, { recursive: true })
    .map((n) => join(cacheDir, String(n)))
    .filter((p) => p.endsWith(".json"));
  expect(kept.length).toBe(1);
  for (const path of kept) expect(readFileSync(path, "utf8")).not.toContain(KEY);
});

describe("policies", () => {
  const messages: Message[] = [
    { role: "system", content: "text protocol" },
    { role: "user", content: "weather?" },
    {
      role: "assistant",
      content: '<think>find</think><plan>{"capacity_slots":["w"]}</plan><search_tool>w: get weather</search_tool>',
    },
    { role: "observation", content: "<tools>\n{}\n</tools>" },
    {
      role: "assistant",
      content:
        '<think>call</think><tool_call>{"name":"a","arguments":{"x":1}}</tool_call><tool_call>{"name":"b","arguments":{x}}</tool_call>',
    },
    {
      role: "observation",
      content:
        '<tool_response>{"name":"a","result":1}</tool_response>\n<tool_response>{"name":"b","result":{"error":"no"}}</tool_response>',
    },
  ];
  const request = { episode: "e", messages, toolsInView: [], maxNewTokens: 20, temperature: 1, seed: 1 };
  const native = { searches: true, plans: true, parallel: true, system: "native" };

  test("text protocol: messages as they are, observations under user, reasoning fields as the think block", async () => {
    handler = () => said({ content: "<answer>a</answer>", reasoning_content: "because <think> x" }, {});
    const reply = await openaiPolicy({ endpoint: endpoint() }).reply(request);
    expect(reply.text).toBe("<think>because &lt;think> x</think><answer>a</answer>");
    const sent = seen[0]!.body.messages as { role: string; content: string }[];
    expect(sent.map((m) => m.role)).toEqual(["system", "user", "assistant", "user", "assistant", "user"]);
    expect(sent.map((m) => m.content)).toEqual(messages.map((m) => m.content));
    expect(seen[0]!.body.stream).toBe(false);
    handler = () => said({ content: "<think>half", finish_reason: "length" });
    expect((await openaiPolicy({ endpoint: endpoint() }).reply(request)).text).toBe("<think>half");
  });

  test("text protocol: calls that the server parsed out of the text come back as blocks", async () => {
    const tool_calls = [{ id: "1", type: "function", function: { name: "a", arguments: '{"x": 1}' } }];
    handler = () => said({ content: "<think>t</think>", tool_calls });
    expect((await openaiPolicy({ endpoint: endpoint() }).reply(request)).text).toBe(
      '<think>t</think><tool_call>{"name":"a","arguments":{"x": 1}}</tool_call>',
    );
  });

  test("native: parallel calls, searches and plans become one reply of the protocol", async () => {
    const call = (name: string, args: string) => ({ id: name, type: "function", function: { name, arguments: args } });
    handler = () =>
      said({
        content: "two cities",
        tool_calls: [
          call("a", '{"x":1}'),
          call(
            "make-plan",
            '{"available_tools":["a"],"dependencies":[],"execution_flow":[{"step":1,"parallel":["a","a"]}]}',
          ),
          call("a", '{"x":2}'),
        ],
      });
    const policy = openaiPolicy({ endpoint: endpoint(), native });
    const reply = acceptedReply(parseReply((await policy.reply(request)).text));
    expect(reply).toMatchObject({
      kind: "call",
      think: "two cities",
      calls: [
        { name: "a", arguments: { x: 1 } },
        { name: "a", arguments: { x: 2 } },
      ],
    });
    expect(seen[0]!.body.parallel_tool_calls).toBe(true);
    handler = () =>
      said({ content: null, tool_calls: [call("search-tools", '{"capability":"w","query":"get weather"}')] });
    expect(acceptedReply(parseReply((await policy.reply(request)).text))).toMatchObject({
      searches: ["w: get weather"],
    });
    handler = () => said({ content: "It rains." });
    expect(acceptedReply(parseReply((await policy.reply(request)).text))).toMatchObject({ answer: "It rains." });
  });

  test("native: broken argument JSON reaches the parser as it is", async () => {
    const tool_calls = [{ id: "1", type: "function", function: { name: "a", arguments: '{"x": ' } }];
    handler = () => said({ content: "t", tool_calls });
    const parsed = parseReply((await openaiPolicy({ endpoint: endpoint(), native }).reply(request)).text);
    expect(parsed.calls).toEqual([null]);
    expect(parsed.findings.map((f) => f.code)).toEqual(["json-syntax"]);
  });

  test("native: every tool call of the history has its result", () => {
    const history = nativeMessages(messages, "native");
    expect(history[0]).toEqual({ role: "system", content: "native" });
    const ids = history.flatMap((m) => (m.role === "assistant" ? (m.tool_calls ?? []).map((c) => c.id) : []));
    const results = history.flatMap((m) => (m.role === "tool" ? [m] : []));
    expect(results.map((m) => m.tool_call_id)).toEqual(ids);
    expect(results.map((m) => m.content)).toEqual([
      "ok",
      "<tools>\n{}\n</tools>",
      '{"name":"a","result":1}',
      '{"name":"b","result":{"error":"no"}}',
    ]);
  });
});
