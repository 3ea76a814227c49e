/** Evaluations end to end against servers of our own on the loopback: endpoints with faults, resuming, the judge, other responses. */
import { afterAll, afterEach, beforeEach, describe, expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TaskOutcome } from "../bench/types.ts";
import { ConfigError, check } from "../config/load.ts";
import { renderReply } from "../paraact/render.ts";
import { projectRoot } from "./environment.ts";
import { type EvaluationRequest, evaluationOf } from "./evaluation.ts";
import { readOutcomes } from "./index-store.ts";
import { evaluations, type RunResult, runExperiment } from "./pipeline.ts";
import type { Progress } from "./types.ts";

const quiet: Progress = { update() {}, log() {} };
const servers: { stop(force: boolean): unknown }[] = [];
let root = "";
const before = { ...process.env };

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "paraagent-eval-"));
  process.env.PARAAGENT_RESULTS = join(root, "results");
  // No benchmark files: the project's own samples, the same on every machine.
  process.env.PARAAGENT_DATA = join(root, "none");
  delete process.env.OPENAI_API_KEY;
  delete process.env.JUDGE_API_KEY;
});
afterEach(() => rmSync(root, { recursive: true, force: true }));
afterAll(() => {
  for (const server of servers) server.stop(true);
  for (const name of ["PARAAGENT_RESULTS", "PARAAGENT_DATA", "OPENAI_API_KEY", "JUDGE_API_KEY"]) {
    if (before[name] === undefined) delete process.env[name];
    else process.env[name] = before[name];
  }
});

interface ChatBody {
  messages: { role: string; content: string }[];
  seed: number;
  max_tokens: number;
}

/** What the scripted model says: a search with the request, a call of the first tool shown, then an answer. */
function say({ messages }: ChatBody): string {
  const replies = messages.filter((m) => m.role === "assistant").length;
  const request = messages.find((m) => m.role === "user")?.content ?? "";
  if (replies === 0) {
    const plan = { kind: "exploration" as const, capacity_slots: ["what is asked"] };
    return renderReply({ kind: "search", think: "Look.", plan, searches: [`what is asked: ${request}`] });
  }
  const shown = /"name":"([a-z0-9_]+)"/.exec(messages.at(-1)?.content ?? "")?.[1];
  if (replies === 1 && shown) {
    const plan = {
      kind: "execution" as const,
      available_tools: [shown],
      dependencies: [],
      execution_flow: [{ step: 1, parallel: [shown] }],
    };
    return renderReply({ kind: "call", think: "Call.", plan, calls: [{ name: shown, arguments: {} }] });
  }
  return renderReply({ kind: "answer", think: "Done.", answer: "Here is all of it." });
}

/** An OpenAI-compatible server. `fault` may answer a request in the model's place. */
function modelServer(fault: (request: number, body: ChatBody) => Response | null = () => null, text = say) {
  const state = { requests: 0, open: 0, most: 0, bodies: [] as string[] };
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    async fetch(request) {
      const body = (await request.json()) as ChatBody;
      state.requests++;
      state.most = Math.max(state.most, ++state.open);
      // A turn of the event loop, so that requests made at once are seen at once.
      await new Promise((resolve) => setImmediate(resolve));
      state.open--;
      const bad = fault(state.requests, body);
      if (bad) return bad;
      state.bodies.push(JSON.stringify([body.messages, body.seed]));
      return Response.json({
        id: "x",
        model: "scripted-1",
        choices: [{ index: 0, finish_reason: "stop", message: { role: "assistant", content: text(body) } }],
        usage: { prompt_tokens: 10, completion_tokens: 5 },
      });
    },
  });
  servers.push(server);
  return { url: `http://127.0.0.1:${server.port}/v1`, state };
}

const evaluate = (request: Partial<EvaluationRequest>): Promise<RunResult> =>
  runExperiment(evaluationOf({ benchmark: "toolbench", policy: "scripted", agent: {}, endpoint: {}, ...request }), {
    progress: quiet,
  });
const openai = (url: string): Partial<EvaluationRequest> => ({
  policy: "openai",
  endpoint: { baseUrl: url, model: "m", concurrency: 16 },
});
const outcomesOf = (run: RunResult): TaskOutcome[] => readOutcomes(run.dir);

describe("the policy openai", () => {
  test("plays all tasks, many at once, through rate limits and broken answers", async () => {
    const { url, state } = modelServer((n) => {
      if (n % 7 === 0) return new Response("slow down", { status: 429, headers: { "retry-after-ms": "1" } });
      if (n % 11 === 0) return new Response("{", { status: 503, headers: { "retry-after-ms": "1" } });
      return null;
    });
    const run = await evaluate(openai(url));
    const outcomes = outcomesOf(run);
    expect(outcomes.length).toBe(12);
    expect(outcomes.every((o) => o.end === "answered" && o.toolCalls === 1)).toBe(true);
    expect(state.most).toBeGreaterThan(4);
    expect(state.most).toBeLessThanOrEqual(16);
    expect(run.groups[0]!.notes.join("\n")).toContain("retries");
  });

  test("stops on a dead endpoint without a result, and goes on without asking again for what was answered", async () => {
    let dead = true;
    const { url, state } = modelServer((n) => (dead && n > 20 ? new Response("no", { status: 401 }) : null));
    await expect(evaluate(openai(url))).rejects.toThrow(/can't go on.*same command/s);
    const answered = new Set(state.bodies);
    expect(answered.size).toBeGreaterThan(0);
    dead = false;
    state.bodies = [];
    const run = await evaluate(openai(url));
    expect(outcomesOf(run).length).toBe(12);
    expect(state.bodies.filter((b) => answered.has(b))).toEqual([]);
    // A third time nothing is asked at all.
    const asked = state.requests;
    await evaluate(openai(url));
    expect(state.requests).toBe(asked);
  });

  test("killed with -9 while answers come in, it asks again only for what was on its way", async () => {
    const { url, state } = modelServer();
    const command = ["run", "--silent", "eval", "toolbench", "--policy", "openai", "--url", url, "--model", "m"];
    const start = () =>
      Bun.spawn([process.execPath, ...command, "--concurrency", "4"], {
        cwd: projectRoot,
        env: { ...process.env },
        stdout: "ignore",
        stderr: "ignore",
      });
    const answered: string[] = [];
    for (const kill of [5, 12, 20]) {
      state.bodies = [];
      const child = start();
      while (state.bodies.length < kill && child.exitCode === null) await Bun.sleep(1);
      child.kill("SIGKILL");
      await child.exited;
      const again = state.bodies.filter((b) => answered.includes(b));
      expect(again.length).toBeLessThanOrEqual(4);
      answered.push(...state.bodies);
    }
    expect(await start().exited).toBe(0);
    const asked = state.requests;
    expect(await start().exited).toBe(0);
    expect(state.requests).toBe(asked);
  }, 120_000);

  test("needs an address and a model", async () => {
    delete process.env.OPENAI_BASE_URL;
    await expect(evaluate({ policy: "openai" })).rejects.toThrow(ConfigError);
  });
});

describe("ToolBench's judge", () => {
  const answers = (body: ChatBody): string => {
    const asked = body.messages[1]!.content;
    if (body.max_tokens < 600) return '{"verdict": "pa';
    return asked.length % 2 === 0
      ? 'So: {"verdict": "pass", "reason": "all there"}'
      : '{"verdict": "unsure", "reason": "?"}';
  };

  test("without one there is no pass rate, and the table says so", async () => {
    const run = await evaluate({});
    expect(run.groups[0]!.rows.every((r) => r[2] === "not measured")).toBe(true);
    expect(run.groups[0]!.notes.join("\n")).toContain("there is no pass rate");
    expect(run.groups[0]!.title).toContain("SAMPLE");
  });

  test("a cut verdict is asked for again; points, strictness and who judged are kept", async () => {
    const { url } = modelServer(() => null, answers);
    // Cut at the first 300 tokens: the client marks it by its length.
    const cut = modelServer(
      (_, body) =>
        body.max_tokens < 600
          ? Response.json({
              model: "judge-7",
              choices: [
                { index: 0, finish_reason: "length", message: { role: "assistant", content: '{"verdict": "pa' } },
              ],
            })
          : null,
      answers,
    );
    expect(url).not.toBe(cut.url);
    const run = await evaluate({ judge: { baseUrl: cut.url, model: "judge" } });
    const outcomes = outcomesOf(run);
    expect(outcomes.every((o) => o.verdict?.promptHash.length === 16 && o.verdict.date !== null)).toBe(true);
    for (const o of outcomes) {
      expect(o.success).toBe(o.verdict!.verdict === "pass" ? 1 : 0.5);
      expect(o.scores.strict).toBe(o.verdict!.verdict === "pass" ? 1 : 0);
    }
  });

  test("a judge that gives no verdict gives no number", async () => {
    const { url } = modelServer(
      () => null,
      () => "I would rather not say.",
    );
    const run = await evaluate({ judge: { baseUrl: url, model: "judge" } });
    const outcomes = outcomesOf(run);
    expect(outcomes.every((o) => o.success === null && o.errors.judgeFailed === 1)).toBe(true);
    expect(run.groups[0]!.notes.join("\n")).toContain("12 FAILED");
  });
});

describe("who answers ToolBench's calls", () => {
  test("StableToolBench's server gets the original names; its answers are recorded and replayed offline", async () => {
    const asked: { category: string; tool_name: string; api_name: string; tool_input: string }[] = [];
    const server = Bun.serve({
      port: 0,
      hostname: "127.0.0.1",
      routes: {
        "/virtual": {
          async POST(request) {
            const body = (await request.json()) as (typeof asked)[number];
            asked.push(body);
            return Response.json({ error: "", response: JSON.stringify({ ok: true, api: body.api_name }) });
          },
        },
      },
    });
    servers.push(server);
    const recording = join(root, "responses.jsonl");
    const responses = { kind: "server" as const, url: `http://127.0.0.1:${server.port}`, recording };
    const run = await evaluate({ responses });
    expect(asked.length).toBeGreaterThan(0);
    const samples = readFileSync(join(import.meta.dir, "../bench/samples/toolbench.json"), "utf8");
    for (const a of asked) {
      expect(samples).toContain(JSON.stringify(a.api_name));
      expect(samples).toContain(JSON.stringify(a.tool_name));
      expect(typeof JSON.parse(a.tool_input)).toBe("object");
    }
    expect(run.groups[0]!.notes.join("\n")).toContain("server:http://127.0.0.1");
    server.stop(true);
    const again = await evaluate({ responses: { ...responses, offline: true } });
    const same = (o: TaskOutcome) => [o.task, o.toolCalls, o.scores, o.end];
    expect(outcomesOf(again).map(same)).toEqual(outcomesOf(run).map(same));
  });

  test("a server that is not there is no result", async () => {
    await expect(
      evaluate({ limit: 1, responses: { kind: "model", url: "http://127.0.0.1:9", recording: "" } }),
    ).rejects.toThrow(ConfigError);
  });
});

test("gold calls pass every API-Bank sample; the repeated run is taken from the cache", async () => {
  const run = await evaluate({ benchmark: "apibank", policy: "gold", trials: 3 });
  expect(run.groups[0]!.rows.at(-1)![2]).toStartWith("100.0");
  expect(run.groups[0]!.columns).toContain("pass@3 / pass^3 %");
  const again = await evaluate({ benchmark: "apibank", policy: "gold", trials: 3 });
  expect(again.stages.every((s) => s.cached)).toBe(true);
  expect(again.id).toBe(run.id);
});

test("each checkpoint is asked greedily, unconstrained, and sampled at RL's temperature; other policies once", () => {
  const { evaluate } = check(
    {
      name: "x",
      tasks: { train: { count: 1, seed: 1 }, heldout: { count: 1, seed: 2 } },
      stages: { evaluate: { policies: ["local", "retrieval"], trials: 2, unconstrained: true, sampled: 4 } },
    },
    [],
  ).stages;
  const stage = { name: "rl", key: "k", dir: "d", cached: false, elapsedMs: 0, result: { model: "m" } };
  const plans = evaluations(evaluate!, [{ label: "after RL", stage }], 0.8);
  expect(plans.map((p) => [p.label, p.constrained, p.trials, p.temperature])).toEqual([
    ["after RL", true, 2, undefined],
    ["after RL, unconstrained", false, 2, undefined],
    ["after RL, sampled", true, 4, 0.8],
    ["retrieval", false, 2, undefined],
  ]);
});

test("an unknown group names those there are", async () => {
  await expect(evaluate({ groups: ["G9"] })).rejects.toThrow(/no group "G9".*samples/);
});
