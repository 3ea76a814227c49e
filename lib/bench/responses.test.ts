/** The judge and StableToolBench's server, each against a fake of the other side; the gold policy. */
import { afterAll, expect, test } from "bun:test";
import { type ChatEndpoint, type ChatRequest, EndpointError } from "../agents/openai/client.ts";
import { memoryCatalog } from "../catalog/memory.ts";
import { toolbenchTools } from "../catalog/toolbench.ts";
import { FAULT_KINDS } from "../toolenv/faults.ts";
import { completenessPoints, judgeCompleteness } from "./judge.ts";
import { ResponsesUnreachable, virtualBackend } from "./virtual.ts";
import { faultRates } from "./worlds.ts";

function judge(...said: (string | { cut: string } | Error)[]): ChatEndpoint & { asked: ChatRequest[] } {
  const asked: ChatRequest[] = [];
  return {
    asked,
    model: "judge",
    stats: () => {
      throw new Error("not asked");
    },
    async complete(request) {
      const next = said[asked.push(request) - 1] ?? "";
      if (next instanceof Error) throw next;
      return {
        content: typeof next === "string" ? next : next.cut,
        reasoning: "",
        toolCalls: [],
        finish: typeof next === "string" ? "stop" : "length",
        usage: { promptTokens: 1, completionTokens: 1, estimated: false },
        model: "judge-2",
        date: "2026-01-01T00:00:00.000Z",
        cached: false,
      };
    },
  };
}

test("a verdict keeps its model, prompt and date; pass, unsure and fail are 1, 0.5 and 0", async () => {
  const verdict = await judgeCompleteness("q", "a", judge('```json\n{"verdict":"unsure","reason":"r"}\n```'));
  expect(verdict).toMatchObject({ verdict: "unsure", reason: "r", model: "judge-2", date: "2026-01-01T00:00:00.000Z" });
  expect((["pass", "unsure", "fail", "failed"] as const).map(completenessPoints)).toEqual([1, 0.5, 0, null]);
});

test("no answer fails without asking", async () => {
  const endpoint = judge();
  expect((await judgeCompleteness("q", null, endpoint)).verdict).toBe("fail");
  expect(endpoint.asked.length).toBe(0);
});

test("a cut verdict is asked for again with twice the tokens, an unreadable one with another seed", async () => {
  const endpoint = judge({ cut: '{"verdict": "pa' }, '{"verdict": "maybe"}', '{"verdict": "pass", "reason": "ok"}');
  expect((await judgeCompleteness("q", "a", endpoint)).verdict).toBe("pass");
  expect(endpoint.asked.map((r) => r.seed)).toEqual([0, 1, 2]);
  expect(endpoint.asked[1]!.maxTokens).toBe(2 * endpoint.asked[0]!.maxTokens);
});

test("a judge that fails is marked and is no number; other errors are not hidden", async () => {
  const failed = await judgeCompleteness("q", "a", judge("no", "no", "no"));
  expect(failed).toMatchObject({ verdict: "failed", date: null });
  const down = await judgeCompleteness("q", "a", judge(new EndpointError("down", 503)));
  expect(down).toMatchObject({ verdict: "failed", reason: "down" });
  await expect(judgeCompleteness("q", "a", judge(new TypeError("ours")))).rejects.toThrow(TypeError);
});

const list = [
  {
    category_name: "Data",
    tool_name: "Zip Codes & Places",
    api_name: "/Get place by Code",
    required_parameters: [{ name: "code", type: "STRING" }],
    method: "GET",
  },
];
const { tools, originalOf } = toolbenchTools(list);
const catalog = memoryCatalog(tools);
const tool = catalog.byId(0);
let answer: () => Response = () => Response.json({});
const bodies: unknown[] = [];
const server = Bun.serve({
  port: 0,
  hostname: "127.0.0.1",
  async fetch(request) {
    bodies.push({ path: new URL(request.url).pathname, ...((await request.json()) as object) });
    return answer();
  },
});
afterAll(() => server.stop(true));
const backend = virtualBackend({
  url: `http://127.0.0.1:${server.port}/`,
  catalog,
  originalOf,
  attempts: 3,
  sleep: async () => {},
  now: () => 0,
});

test("the server is asked in ToolBench's own names, and its text answers are read as JSON", async () => {
  answer = () => Response.json({ error: "", response: '{"place": "Oslo"}' });
  const result = await backend.open(1).call(tool, { code: "0150" });
  expect(result).toMatchObject({ outcome: "ok", body: { place: "Oslo" } });
  expect(bodies.at(-1)).toEqual({
    path: "/virtual",
    category: "Data",
    tool_name: "Zip Codes & Places",
    api_name: "/Get place by Code",
    tool_input: '{"code":"0150"}',
    strip: "",
    toolbench_key: "",
  });
});

test("its errors are final, except those that pass; bad arguments don't reach it", async () => {
  const session = backend.open(1);
  answer = () => Response.json({ error: "API not subscribed", response: "" });
  expect((await session.call(tool, { code: "1" })).outcome).toBe("unavailable");
  answer = () => Response.json({ error: "Rate limit exceeded", response: "" });
  expect((await session.call(tool, { code: "1" })).outcome).toBe("transient");
  const asked = bodies.length;
  expect((await session.call(tool, {})).outcome).toBe("invalid");
  expect(bodies.length).toBe(asked);
});

test("a server that fails for all attempts is an error, never a response", async () => {
  const asked = bodies.length;
  answer = () => new Response("broken", { status: 500 });
  await expect(Promise.resolve(backend.open(1).call(tool, { code: "1" }))).rejects.toThrow(ResponsesUnreachable);
  expect(bodies.length - asked).toBe(3);
  let n = 0;
  answer = () => (n++ === 0 ? new Response("{", { status: 200 }) : Response.json({ response: [1] }));
  expect((await backend.open(1).call(tool, { code: "1" })).body).toEqual([1]);
});

test("a share of faults is spread over all kinds", () => {
  expect(faultRates(0)).toEqual({});
  const rates = Object.values(faultRates(0.3));
  expect(rates.length).toBe(FAULT_KINDS.length);
  expect(rates.reduce((a, b) => a + b, 0)).toBeCloseTo(0.3, 12);
});
