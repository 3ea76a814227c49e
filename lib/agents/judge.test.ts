import { expect, test } from "bun:test";
import type { Trajectory, Turn } from "../paraact/types.ts";
import { JUDGE_PROMPT_HASH, judgeByModel, judgeCase } from "./judge.ts";
import {
  BudgetExceeded,
  type ChatEndpoint,
  type ChatRequest,
  type Completion,
  EndpointError,
} from "./openai/client.ts";

const call = (observation: string) => ({
  call: { name: "a", arguments: { x: 1 } },
  outcome: "ok" as const,
  status: 200,
  observation,
  fault: null,
  occurrence: null,
  latencyMs: 1,
});
const turn: Turn = {
  reply: "",
  kind: "call",
  planSlot: "forbidden",
  planEvent: "none",
  plan: null,
  findings: [],
  searches: [],
  calls: [call("rain"), call("y".repeat(5000))],
  answer: null,
  observation: "",
  startMs: 0,
  endMs: 1,
};
const trajectory: Trajectory = {
  taskId: "t",
  paradigm: "eae",
  policy: "test",
  seed: 1,
  system: "",
  request: "weather?",
  turns: [turn],
  end: "answered",
  error: null,
  answer: "It rains.",
  usage: { promptTokens: 0, completionTokens: 0, estimated: false },
  makespanMs: 1,
  serialMs: 2,
  verdicts: null,
};

/** An endpoint that says these things one after the other. */
function says(...replies: (Partial<Completion> | Error)[]): ChatEndpoint & { asked: ChatRequest[] } {
  const asked: ChatRequest[] = [];
  return {
    model: "m",
    asked,
    async complete(request) {
      const reply = replies[asked.length]!;
      asked.push(request);
      if (reply instanceof Error) throw reply;
      const usage = { promptTokens: 1, completionTokens: 1, estimated: false };
      return {
        content: "",
        reasoning: "",
        toolCalls: [],
        finish: "stop",
        usage,
        model: "m-1",
        date: "2026-01-01",
        cached: false,
        ...reply,
      };
    },
    stats: () => ({
      requests: 0,
      cached: 0,
      retries: 0,
      waitedMs: 0,
      promptTokens: 0,
      completionTokens: 0,
      estimated: false,
    }),
  };
}
const verdict =
  '{"quality":{"verdict":1,"reason":"q"},"faithfulness":{"verdict":0,"reason":"f"},"utility":{"verdict":1,"reason":"u"}}';

test("verdicts are read, fenced or wrapped in a sentence, with who judged and when", async () => {
  for (const content of [verdict, `\`\`\`json\n${verdict}\n\`\`\``, `Here it is: ${verdict} Done.`]) {
    const { verdicts, ...who } = await judgeByModel(trajectory, { endpoint: says({ content }) });
    expect(verdicts).toMatchObject({
      quality: 1,
      faithfulness: 0,
      utility: 1,
      judge: "model",
      reasons: { faithfulness: "f" },
    });
    expect(who).toEqual({ model: "m-1", promptHash: JUDGE_PROMPT_HASH, date: "2026-01-01" });
  }
});

test("a cut verdict is asked again for twice the tokens, an unreadable one with another seed", async () => {
  const endpoint = says(
    { content: verdict.slice(0, 40), finish: "length" },
    { content: '{"quality": 1}' },
    { content: verdict },
  );
  expect((await judgeByModel(trajectory, { endpoint, maxTokens: 100 })).verdicts.judge).toBe("model");
  expect(endpoint.asked.map((r) => [r.maxTokens, r.seed])).toEqual([
    [100, 0],
    [200, 1],
    [200, 2],
  ]);
});

test("a judge that goes on failing is neutral and marked, with the reason; a fault of the program is not hidden", async () => {
  const unread = await judgeByModel(trajectory, { endpoint: says({}, {}, {}) });
  expect(unread.verdicts).toMatchObject({ quality: 0, faithfulness: 0, utility: 0, judge: "failed" });
  expect(unread.verdicts.reasons.quality).toContain("could not be read");
  for (const error of [new EndpointError("down", 503), new BudgetExceeded("spent")]) {
    const { verdicts } = await judgeByModel(trajectory, { endpoint: says(error) });
    expect(verdicts.judge).toBe("failed");
    expect(verdicts.reasons.utility).toContain(error.message);
  }
  await expect(judgeByModel(trajectory, { endpoint: says(new TypeError("bug")) })).rejects.toThrow(TypeError);
});

test("the judge reads request, calls, responses and answer; a long response is cut, none is left out", () => {
  const text = judgeCase(trajectory, 2000);
  for (const part of ["weather?", "It rains.", '{"name":"a","arguments":{"x":1}}', "rain", "[cut, 5000 characters]"])
    expect(text).toContain(part);
  expect(text.length).toBeLessThan(2500);
});
