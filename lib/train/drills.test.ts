import { describe, expect, test } from "bun:test";
import type { Message } from "../paraact/types.ts";
import { drillKinds, drills, type Lesson } from "./drills.ts";

const say = (role: Message["role"], content: string): Message => ({ role, content });

/** Reads entity `n` of a provider, and its owner where `calls` is 2. */
function lesson(n: number, calls: 1 | 2): Lesson {
  const thing = { id: `T-${n}`, title: `Maple ${n}`, status: "open", owner: { id: `U-${n}`, email: `u${n}@x.org` } };
  const plan = `<think>Go.</think><plan>{"execution_flow":[]}</plan>`;
  return {
    calls,
    group: `p${n % 3}`,
    messages: [
      say("system", "Find tools."),
      say("user", `What is the title of thing ${n}?`),
      say(
        "assistant",
        `<think>Find.</think><plan>{"capacity_slots":["a"]}</plan><search_tool>a: read thing ${n}</search_tool>`,
      ),
      say(
        "observation",
        `<tools>\nread_thing_${n}(id) Reads.\ndelete_thing_${n}(id) Deletes.\nread_user_${n}(id) Reads.\n</tools>`,
      ),
      say("assistant", `${plan}<tool_call>{"name":"read_thing_${n}","arguments":{"id":"T-${n}"}}</tool_call>`),
      say("observation", `<tool_response>{"name":"read_thing_${n}","result":${JSON.stringify(thing)}}</tool_response>`),
      ...(calls === 2
        ? [
            say(
              "assistant",
              `<think>Next.</think><tool_call>{"name":"read_user_${n}","arguments":{"id":"U-${n}"}}</tool_call>`,
            ),
            say(
              "observation",
              `<tool_response>{"name":"read_user_${n}","result":[{"id":"U-${n}","name":"Ann"},{"id":"U-0","name":"Bo"}]}</tool_response>`,
            ),
          ]
        : []),
      say("assistant", `<think>Done.</think><answer>title: Maple ${n}.</answer>`),
    ],
  };
}
const lessons = Array.from({ length: 24 }, (_, n) => lesson(n, n % 2 === 0 ? 1 : 2));
const some = (kind: (typeof drillKinds)[number], seed = 1, n = 40) => [...drills(kind, lessons, seed).take(n)];
const assistant = (messages: readonly Message[]) => messages.filter((m) => m.role === "assistant");

describe("every kind", () => {
  test("begins with the system message, ends with an action, and holds neither thought nor plan", () => {
    for (const kind of drillKinds)
      for (const messages of some(kind)) {
        expect(messages[0]!.role).toBe("system");
        expect(messages.at(-1)!.role).toBe("assistant");
        for (const m of assistant(messages)) expect(m.content).toMatch(/^<(search_tool|tool_call|answer)>.*>$/s);
      }
  });
  test("is the same for the same seed, and another for another", () => {
    for (const kind of drillKinds) {
      expect(some(kind)).toEqual(some(kind));
      expect(some(kind)).not.toEqual(some(kind, 2));
    }
  });
  test("ends where no lesson serves", () => {
    expect([
      ...drills(
        "follow",
        lessons.filter((l) => l.calls === 1),
        1,
      ),
    ]).toEqual([]);
    for (const kind of drillKinds) expect([...drills(kind, [], 1)]).toEqual([]);
  });
});

test("each request of a choice is followed by a call of a tool that is listed, beside others", () => {
  for (const messages of some("choose")) {
    const listed = messages.find((m) => m.content.startsWith("<tools>"))!.content;
    const requests = messages.filter((m) => m.role === "user");
    expect(requests.length).toBe(assistant(messages).length);
    expect(listed.split("\n").length - 2).toBeLessThanOrEqual(12);
    for (const [i, m] of assistant(messages).entries()) {
      const n = /thing (\d+)/.exec(requests[i]!.content)![1];
      expect(m.content).toBe(`<tool_call>{"name":"read_thing_${n}","arguments":{"id":"T-${n}"}}</tool_call>`);
      expect(listed).toContain(`\nread_thing_${n}(id)`);
    }
  }
  const longest = Math.max(...some("choose").map((messages) => assistant(messages).length));
  expect(longest).toBeGreaterThan(3);
});

test("what follows a response is the next call, with every response before it in view", () => {
  for (const messages of some("follow")) {
    expect(messages.map((m) => m.role)).toEqual(["system", "user", "observation", "observation", "assistant"]);
    expect(messages.at(-1)!.content).toContain("read_user_");
  }
});

test("questions are about fields of the responses, and their answers are the fields' values", () => {
  const facts: Record<string, (n: string) => string> = {
    title: (n) => `Maple ${n}`,
    status: () => "open",
    "email address": (n) => `u${n}@x.org`,
  };
  const labels = new Set<string>();
  for (const messages of some("lookup")) {
    const n = /thing (\d+)/.exec(messages[1]!.content)![1]!;
    for (const { content } of assistant(messages))
      for (const [, label, value] of content.matchAll(/(?<=>|; )([\w ]+): (.*?)(?=; |\.<)/g)) {
        labels.add(label!);
        if (facts[label!] && Number(n) % 2 === 0) expect(value).toBe(facts[label!]!(n));
      }
  }
  for (const label of ["title", "status", "email address", "name"]) expect(labels).toContain(label);
  // "ID" stands for two fields of a thing: it is not asked of one.
  const single = [...drills("lookup", [lesson(4, 1)], 1).take(20)].flatMap(assistant);
  expect(single.some((m) => m.content.includes("ID:"))).toBe(false);
});
