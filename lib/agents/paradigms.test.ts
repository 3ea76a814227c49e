import { describe, expect, test } from "bun:test";
import type { Tool } from "../catalog/types.ts";
import type { Environment } from "../paraact/environment.ts";
import type { Policy, PolicyRequest } from "../paraact/types.ts";
import type { CallResult } from "../toolenv/types.ts";
import { chatEndpoint } from "./openai/client.ts";
import { openaiPolicy } from "./openai.ts";
import { fillReferences, readBlueprint } from "./paradigms/rewoo.ts";
import { PARADIGMS, type ParadigmOptions, paradigmSettings, runParadigm } from "./paradigms.ts";
import { NATIVE_SYSTEMS } from "./prompts.ts";

function tool(name: string, argument: string): Tool {
  return {
    id: 0,
    name,
    provider: "p",
    api: "p/a",
    operation: name,
    method: "GET",
    path: "",
    description: name,
    category: null,
    parameters: { type: "object", properties: { [argument]: { type: "string" } }, required: [argument] },
    places: { [argument]: "query" },
    response: null,
    example: null,
    source: "test",
    licence: null,
  };
}
const tools = [tool("find_city", "name"), tool("get_weather", "id"), tool("get_tides", "id")];

/** Fresh states over three tools; counts what was opened and called. */
function world() {
  const log = { opened: 0, calls: [] as string[] };
  const open = (): Environment => {
    log.opened++;
    return {
      tool: (name) => tools.find((t) => t.name === name) ?? null,
      search: (_, k) => ({ tools: tools.slice(0, k), failed: null, latencyMs: 100 }),
      call(t, args): CallResult {
        log.calls.push(`${t.name} ${JSON.stringify(args)}`);
        const ok = (body: CallResult["body"]): CallResult => ({
          outcome: "ok",
          status: 200,
          body,
          latencyMs: 50,
          fault: null,
        });
        if (t.name === "find_city") return ok({ items: [{ id: "c7", name: "Oslo" }] });
        if (t.name === "get_weather" && args.id === "c7") return ok({ degrees: 4 });
        return { outcome: "not_found", status: 404, body: { error: "no such city" }, latencyMs: 50, fault: null };
      },
    };
  };
  return { log, open };
}

/** A policy whose replies a function writes; keeps the requests. */
function policy(
  write: (request: PolicyRequest, n: number) => string,
): Policy & { requests: PolicyRequest[]; released: string[] } {
  const requests: PolicyRequest[] = [];
  const released: string[] = [];
  return {
    name: "test",
    requests,
    released,
    async reply(request) {
      requests.push(request);
      const usage = { promptTokens: 10, completionTokens: 2, estimated: false };
      return { text: write(request, requests.length - 1), finish: "stop", usage };
    },
    release: (episode) => void released.push(episode),
  };
}
function options(p: Policy, open: () => Environment, more: Partial<ParadigmOptions> = {}): ParadigmOptions {
  return {
    task: { id: "t", request: "weather in Oslo?" },
    policy: p,
    seed: 1,
    temperature: 0,
    settings: {},
    open,
    id: "e",
    ...more,
  };
}
const search = "<think>s</think><search_tool>w: weather</search_tool>";
const city = '<think>c</think><tool_call>{"name":"find_city","arguments":{"name":"Oslo"}}</tool_call>';
const weather = '<think>w</think><tool_call>{"name":"get_weather","arguments":{"id":"c7"}}</tool_call>';
const tides = '<think>w</think><tool_call>{"name":"get_tides","arguments":{"id":"c7"}}</tool_call>';
const answer = "<think>a</think><answer>4 degrees</answer>";

test("each paradigm has its own prompt, and only ParaAct has plans and parallel actions", () => {
  const systems = PARADIGMS.map((name) => paradigmSettings(name).system);
  expect(new Set(systems).size).toBe(PARADIGMS.length - 1);
  for (const name of PARADIGMS) {
    const s = paradigmSettings(name, { schemaStyle: "compact" });
    expect(s.schemaStyle).toBe("compact");
    expect(s.plans).toBe(name === "paraact");
    if (name !== "paraact") expect(s.limits?.actionsPerTurn).toBe(1);
    expect(paradigmSettings(name, {}, "short").system!.length).toBeLessThan(name === "rewoo" ? 1000 : 100);
  }
});

test("EaE: search, call, call, answer; a second action of a turn is not carried out", async () => {
  const w = world();
  const replies = [search, city + weather.replace("<think>w</think>", ""), weather, answer];
  const t = await runParadigm(
    "eae",
    options(
      policy((_, n) => replies[n]!),
      w.open,
    ),
  );
  expect(t).toMatchObject({ paradigm: "eae", end: "answered", answer: "4 degrees" });
  expect(w.log.calls).toEqual(['find_city {"name":"Oslo"}', 'get_weather {"id":"c7"}']);
  expect(t.turns[1]!.calls[1]!.outcome).toBe("invalid");
});

test("ETE: tools come with the request, once; searching is refused", async () => {
  const w = world();
  const p = policy((_, n) => [search, city, answer][n]!);
  const t = await runParadigm(
    "ete",
    options(p, w.open, { settings: { limits: { ...paradigmSettings("ete").limits!, toolsPerSearch: 2 } } }),
  );
  expect(t.opening?.searches[0]?.retrieved).toEqual(["find_city", "get_weather"]);
  expect(p.requests[0]!.messages[1]!.content).toContain("<tools>");
  expect(p.requests[0]!.toolsInView.map((x) => x.name)).toEqual(["find_city", "get_weather"]);
  expect(t.turns[0]!.searches[0]!.failed).toBe("final");
  expect(t.answer).toBe("4 degrees");
});

describe("ReWOO", () => {
  const plan =
    '<think>two steps</think>\nE1 = {"name": "find_city", "arguments": {"name": "Oslo"}}\nE2 = {"name": "get_weather", "arguments": {"id": "#E1/items/0/id"}}';

  test("two requests, whatever the number of calls; references are filled from the responses", async () => {
    const w = world();
    const p = policy((_, n) => (n === 0 ? plan : "It is <answer>4 degrees</answer>"));
    const t = await runParadigm("rewoo", options(p, w.open));
    expect(p.requests.length).toBe(2);
    expect(w.log.calls).toEqual(['find_city {"name":"Oslo"}', 'get_weather {"id":"c7"}']);
    expect(t).toMatchObject({
      end: "answered",
      answer: "It is 4 degrees",
      usage: { promptTokens: 20, completionTokens: 4 },
    });
    expect(p.requests[1]!.messages[1]!.content).toContain('"degrees":4');
    expect(p.released.length).toBe(2);
  });

  test("a plan without calls still gets an answer; a reference that leads nowhere fails its call, not the episode", async () => {
    const none = await runParadigm(
      "rewoo",
      options(
        policy((_, n) => (n === 0 ? "I know it" : "4")),
        world().open,
      ),
    );
    expect(none).toMatchObject({ end: "answered", answer: "4", usage: { promptTokens: 20 } });
    const lost = await runParadigm(
      "rewoo",
      options(
        policy((_, n) => (n === 0 ? plan.replace("/items/0/id", "/no") : "unknown")),
        world().open,
      ),
    );
    expect(lost.turns.map((t) => t.calls[0]?.outcome)).toEqual(["ok", "not_found", undefined]);
    expect(lost.end).toBe("answered");
  });

  test("blueprints and references", () => {
    expect([
      ...readBlueprint(
        'text\nE1 = {"name":"a","arguments":{}}\nE2 = {broken\n#E3: {"name":"b","arguments":{"x":[1]}}',
      ).keys(),
    ]).toEqual(["1", "3"]);
    const bodies = new Map([["1", { items: [{ id: 7 }], id: "top" }]]);
    expect(fillReferences({ id: "#E1", x: ["#E1/items/0/id"], y: "#E2", z: { id: "E1" } }, bodies)).toEqual({
      id: "top",
      x: [7],
      y: "#E2",
      z: { id: "E1" },
    });
  });
});

describe("Reflexion", () => {
  const write = (request: PolicyRequest): string => {
    const system = request.messages[0]!.content;
    if (system.startsWith("You check"))
      return request.messages[1]!.content.includes("4 degrees") ? "YES" : "No, it guesses.";
    if (system.startsWith("An attempt")) return "Search first.";
    return system.includes("Lesson of attempt 1: Search first.")
      ? answer
      : "<think>a</think><answer>perhaps 20</answer>";
  };
  test("a failed attempt leads to a lesson, and the next begins anew with it; usage covers all", async () => {
    const w = world();
    const p = policy(write);
    const t = await runParadigm("reflexion", options(p, w.open));
    expect(t).toMatchObject({ answer: "4 degrees", paradigm: "reflexion" });
    expect(w.log.opened).toBe(2);
    // Attempt, check, lesson, attempt, check.
    expect(t.usage.promptTokens).toBe(50);
    expect(t.system).toContain("Lesson of attempt 1");
  });
  test("no more attempts than allowed; another judge may decide", async () => {
    const w = world();
    const t = await runParadigm(
      "reflexion",
      options(
        policy(() => answer),
        w.open,
        { trials: 2, succeeded: () => false },
      ),
    );
    expect(w.log.opened).toBe(2);
    expect(t.end).toBe("answered");
  });
});

describe("DFSDT", () => {
  test("a branch that is given up goes back to the step before, told what was tried, with a fresh state and the same responses", async () => {
    const w = world();
    const p = policy((request) => {
      const last = request.messages.at(-1)!.content;
      const turns = request.messages.filter((m) => m.role === "assistant").map((m) => m.content);
      if (turns.length === 0) return search;
      if (turns.length === 1) return city;
      if (turns.length === 2) return last.includes("Tried at this step") ? weather : tides;
      return turns[2] === tides ? "<think>no</think><answer>GIVE UP</answer>" : answer;
    });
    const t = await runParadigm("dfsdt", options(p, w.open));
    expect(t).toMatchObject({ end: "answered", answer: "4 degrees", paradigm: "dfsdt" });
    expect(t.turns.map((x) => x.kind)).toEqual(["search", "call", "call", "answer"]);
    const note = p.requests.find((r) => r.messages.at(-1)!.content.includes("Tried at this step"))!;
    expect(note.messages.at(-1)!.content).toContain("get_tides");
    expect(t.usage.promptTokens).toBe(10 * p.requests.length);
    // The given-up branch took its time too; the replay did not.
    expect(t.makespanMs).toBe(100 + 50 + 50 + 50);
    expect(new Set(p.released).size).toBe(p.requests.length);
  });

  test("a search without success ends at its bound, with what it did last", async () => {
    const w = world();
    const p = policy((request) => (request.messages.length < 6 ? search : "<think>no</think><answer>Give up</answer>"));
    const t = await runParadigm("dfsdt", options(p, w.open, { maxNodes: 9 }));
    expect(p.requests.length).toBeLessThanOrEqual(9);
    expect(t.taskId).toBe("t");
  });
});

test("a policy that fails ends the episode, in every paradigm", async () => {
  for (const name of PARADIGMS) {
    const broken: Policy = { name: "broken", reply: () => Promise.reject(new Error("no model")) };
    const t = await runParadigm(name, options(broken, world().open, { trials: 1 }));
    expect([t.end, t.error]).toEqual(["policy_error", "no model"]);
  }
});

describe("over an OpenAI-compatible server", () => {
  /** A server whose model searches, finds the city, asks for the weather and answers; by text or by function calls, as it is asked. */
  function serve(write: (turn: number, native: boolean) => Record<string, unknown>) {
    const bodies: { messages: { role: string }[]; tools?: { function: { name: string } }[] }[] = [];
    const server = Bun.serve({
      port: 0,
      hostname: "127.0.0.1",
      async fetch(request) {
        const body = (await request.json()) as (typeof bodies)[number];
        bodies.push(body);
        const turn = body.messages.filter((m) => m.role === "assistant").length;
        const message = { role: "assistant", ...write(turn, body.tools !== undefined) };
        return Response.json({
          model: "m",
          choices: [{ index: 0, finish_reason: "stop", message }],
          usage: { prompt_tokens: 5, completion_tokens: 5 },
        });
      },
    });
    const endpoint = chatEndpoint({ baseURL: `http://127.0.0.1:${server.port}/v1`, model: "m", keyVariable: null });
    return { bodies, endpoint, stop: () => server.stop(true) };
  }
  const fn = (name: string, args: object) => ({
    id: name,
    type: "function",
    function: { name, arguments: JSON.stringify(args) },
  });

  test("text and native surfaces play the same episode; native functions are those in view", async () => {
    const text = [search, city, weather, answer];
    const acts = [
      { tool_calls: [fn("search-tools", { capability: "w", query: "weather" })] },
      { tool_calls: [fn("find_city", { name: "Oslo" })] },
      { tool_calls: [fn("get_weather", { id: "c7" })] },
      { content: "4 degrees" },
    ];
    const s = serve((turn, native) => (native ? { content: null, ...acts[turn] } : { content: text[turn] }));
    const native = { searches: true, plans: false, parallel: false, system: NATIVE_SYSTEMS.eae };
    const a = await runParadigm("eae", options(openaiPolicy({ endpoint: s.endpoint }), world().open));
    const b = await runParadigm("eae", options(openaiPolicy({ endpoint: s.endpoint, native }), world().open));
    expect(a.end).toBe("answered");
    const seen = (t: typeof a) => ({
      answer: t.answer,
      calls: t.turns.map((x) => x.calls.map((c) => [c.call, c.outcome])),
      searches: t.turns.map((x) => x.searches),
    });
    expect(seen(b)).toEqual(seen(a));
    expect(s.bodies.slice(4).map((x) => x.tools!.map((t) => t.function.name))).toEqual([
      ["search-tools"],
      ...Array.from({ length: 3 }, () => ["search-tools", "find_city", "get_weather", "get_tides"]),
    ]);
    s.stop();
  });

  test("ParaAct by native calls: plan and parallel calls of one turn are one reply", async () => {
    const plan = fn("make-plan", {
      available_tools: ["find_city", "get_tides"],
      dependencies: [],
      execution_flow: [{ step: 1, parallel: ["find_city", "get_tides"] }],
    });
    const acts = [
      {
        tool_calls: [
          fn("make-plan", { capacity_slots: ["w"] }),
          fn("search-tools", { capability: "w", query: "weather" }),
        ],
      },
      { content: "both at once", tool_calls: [plan, fn("find_city", { name: "Oslo" }), fn("get_tides", { id: "x" })] },
      { content: "no tides known" },
    ];
    const s = serve((turn) => ({ content: null, ...acts[turn] }));
    const native = { searches: true, plans: true, parallel: true, system: NATIVE_SYSTEMS.paraact };
    const t = await runParadigm("paraact", options(openaiPolicy({ endpoint: s.endpoint, native }), world().open));
    expect(t.turns.map((x) => x.planEvent)).toEqual(["accepted", "accepted", "none"]);
    expect(t.turns[1]!.calls.map((c) => c.outcome)).toEqual(["ok", "not_found"]);
    expect(t.turns.flatMap((x) => x.findings)).toEqual([]);
    expect(t.makespanMs).toBeLessThan(t.serialMs);
    s.stop();
  });
});
