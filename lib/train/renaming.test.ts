import { expect, test } from "bun:test";
import type { Message } from "../paraact/types.ts";
import { rareWords, renamed } from "./renaming.ts";
import { stopAsked } from "./stop.ts";

const say = (role: Message["role"], content: string): Message => ({ role, content });
const conversations = Array.from({ length: 100 }, (_, n) => {
  const thing = ["maple", "falcon", "willow", "harbor"][n % 4]!;
  const service = ["Vimeo", "Loket", "Zoom", "Gitea"][(n >> 2) % 4]!;
  return [
    say("user", `In ${service}, list the names of all ${thing}s with projectId p-${n}.`),
    say("assistant", `<think>Find 1.</think><search_tool>list ${thing}s: list ${thing}s in ${service}</search_tool>`),
    say(
      "observation",
      `<tools>\nget_${thing}s(${thing}Id) Lists the ${thing}s of a ${service.toUpperCase()} project.\n</tools>`,
    ),
  ];
});
const list = rareWords(conversations, 0.5);
const pieces = ["undle", "ideo", "mb", "kestrel", "or"];
const rare = { words: new Set(list), pieces };

test("rare words are those in few conversations, without plurals; what stands in all is not among them", () => {
  expect(list).toEqual(["falcon", "gitea", "harbor", "loket", "maple", "vimeo", "willow", "zoom"]);
});

test("a word has one new name everywhere in a conversation, in the shape that each place gives it", () => {
  for (let seed = 0; seed < 40; seed++) {
    const [user, assistant, tools] = renamed(conversations[5]!, rare, 1, seed) as [Message, Message, Message];
    const [, service, thing] = user.content.match(/^In (\w+), list the names of all (\w+)s with projectId p-5\.$/)!;
    for (const name of [service!.toLowerCase(), thing!]) {
      expect(name.length).toBeGreaterThanOrEqual(3);
      expect(name).toMatch(new RegExp(`^(${pieces.join("|")}){1,2}$`));
    }
    expect(assistant.content).toBe(
      `<think>Find 1.</think><search_tool>list ${thing}s: list ${thing}s in ${service}</search_tool>`,
    );
    expect(tools.content).toBe(
      `<tools>\nget_${thing}s(${thing}Id) Lists the ${thing}s of a ${service!.toUpperCase()} project.\n</tools>`,
    );
  }
});

test("share 0 changes nothing; the same seed gives the same, and names do vary with the seed", () => {
  const names = (seed: number) => renamed(conversations[5]!, rare, 1, seed).map((m) => m.content);
  expect(renamed(conversations[5]!, rare, 0, 3)).toEqual(conversations[5]!);
  expect(names(3)).toEqual(names(3));
  expect(new Set(Array.from({ length: 20 }, (_, seed) => names(seed)[0])).size).toBeGreaterThan(10);
});

test("a training loop hears a stop that arrives as an event, without any other wait", async () => {
  let stopping = false;
  setImmediate(() => (stopping = true));
  expect(
    await stopAsked({
      get stopping() {
        return stopping;
      },
    }),
  ).toBe(true);
});
