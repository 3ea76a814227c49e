import { expect, test } from "bun:test";
import OpenAI from "openai";
import { attempt, perfect } from "../solve.ts";
import { generateTasks } from "../tasks.ts";
import { realSample } from "../testdata/sample.ts";
import type { Task } from "../types.ts";
import { World } from "../world.ts";
import { PARAPHRASE_PROMPT, paraphrased, refusal } from "./paraphrase.ts";
import { brand } from "./speech.ts";

const { catalog, retriever } = realSample();
const world = new World(catalog, 4);
const tasks = [
  ...generateTasks(catalog, world, { split: "train", seed: 5, count: 24, writes: 0.3, crossProvider: 0.2, retriever }),
];
/** The same request said otherwise: nothing is lost or added. */
const reworded = (t: Task) => `hey, quick one when you have a minute. ${t.request} thanks a lot!`;
/** A value that the user states, out of a gold call. */
const stated = (t: Task): string =>
  t.calls
    .flatMap((c) =>
      Object.entries(c.arguments).flatMap(([k, v]) =>
        t.edges.some((e) => e.to === c.id && e.argument === k && e.kind === "hard") ? [] : [String(v)],
      ),
    )
    .find((v) => v.length > 3) ?? "";

test("a wording that keeps every value and gives nothing away is taken; another leaves the scripted request", () => {
  for (const t of tasks) {
    expect([t.request, refusal(catalog, t, reworded(t))]).toEqual([t.request, null]);
    expect(refusal(catalog, t, "")).toBe("form");
    expect(refusal(catalog, t, t.request)).toBe("form");
    const value = stated(t);
    if (value) {
      expect(refusal(catalog, t, reworded(t).replaceAll(value, value.slice(0, -1)))).toBe("value");
      expect(refusal(catalog, t, reworded(t).replaceAll(value, `${value}7`))).toBe("value");
    }
    const service = brand(catalog.get(t.tools[0]!)!);
    const nameless = reworded(t).replaceAll(service, "the system");
    // Files, the service, goes by the name of what it keeps.
    if (!new RegExp(`\\b${service}\\b`, "i").test(nameless)) expect(refusal(catalog, t, nameless)).toBe("ask");
    for (const f of t.facts.slice(0, 1))
      if (f.label.split(" of ")[0] === "status")
        expect(refusal(catalog, t, reworded(t).replace(/status(es)?/g, "thing"))).toBe("ask");
    const tool = t.tools.find((n) => n.includes("_"));
    if (tool) expect(refusal(catalog, t, `${reworded(t)} (use ${tool})`)).toBe("tool");
    for (const f of t.facts) expect(refusal(catalog, t, `${reworded(t)} Is it ${f.value}?`)).toBe("answer");
    for (const e of t.edges.filter((e) => e.kind === "hard")) {
      const id = t.calls.find((c) => c.id === e.to)!.arguments[e.argument];
      expect(refusal(catalog, t, `${reworded(t)} It is ${id}.`)).toBe("answer");
    }
    expect(refusal(catalog, t, `${reworded(t)} Zebulon Quackenbush asked for it.`)).toBe("invented");
    expect(refusal(catalog, t, `${reworded(t)} It concerns case QX-90417.`)).toBe("invented");
  }
});

test("an OpenAI-compatible server words requests; the tasks stay exact and get ids of their own", async () => {
  let n = 0;
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    async fetch(request) {
      const body = (await request.json()) as { model: string; messages: { role: string; content: string }[] };
      const [system, user] = body.messages;
      expect([body.model, system?.content]).toEqual(["m", PARAPHRASE_PROMPT]);
      const task = tasks.find((t) => t.request === user?.content)!;
      // Every third answer forgets what was said.
      const content = n++ % 3 === 2 ? "please do the thing" : `<think>short</think>\n${reworded(task)}`;
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
    const say = async (system: string, user: string) => {
      const messages = [
        { role: "system" as const, content: system },
        { role: "user" as const, content: user },
      ];
      return (await client.chat.completions.create({ model: "m", messages })).choices[0]?.message.content ?? "";
    };
    let kept = 0;
    for (const [i, task] of tasks.entries()) {
      const { task: other, refused } = await paraphrased(catalog, world, task, say);
      if (i % 3 === 2) {
        expect(["value", "ask"]).toContain(refused as string);
        expect(other).toEqual(task);
        continue;
      }
      expect(refused).toBe(null);
      expect(other.request).toBe(reworded(task));
      expect(other).toEqual({ ...task, id: other.id, request: other.request });
      expect(other.id).not.toBe(task.id);
      expect(perfect(attempt(catalog, world, other).verdicts)).toBe(true);
      kept++;
    }
    expect(kept).toBe(16);
  } finally {
    await server.stop(true);
  }
}, 120_000);
