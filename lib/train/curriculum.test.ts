import { expect, test } from "bun:test";
import { trainTokenizer } from "../model/bpe.ts";
import { TAG_TOKENS } from "../paraact/tags.ts";
import type { Message } from "../paraact/types.ts";
import { lossTokens } from "./batch.ts";
import { copyingDocument, curriculum, recallDocument } from "./curriculum.ts";
import type { Lesson } from "./drills.ts";

const say = (role: Message["role"], content: string): Message => ({ role, content });
/** A conversation with `calls` calls, one after the other. */
function lesson(calls: number, n: number): Lesson {
  const steps = Array.from({ length: calls }, (_, i) => [
    say("assistant", `<think>Next step.</think><tool_call>{"name":"read_${n}_${i}","arguments":{}}</tool_call>`),
    say("observation", `<tool_response>{"name":"read_${n}_${i}","result":{"name":"Maple ${n}"}}</tool_response>`),
  ]).flat();
  const messages = [
    say("system", "Find tools."),
    say("user", `What is the name of thing ${n}?`),
    say("assistant", `<think>Find 1.</think><search_tool>read: read thing ${n}</search_tool>`),
    say("observation", `<tools>\nread_${n}_0(id) Reads.\n</tools>`),
    ...steps,
    say("assistant", `<think>Done.</think><answer>Name: Maple ${n}.</answer>`),
  ];
  return { messages, calls, group: `provider ${n % 5}` };
}
const lessons = Array.from({ length: 40 }, (_, n) => lesson(n % 4 === 0 ? 2 : 1, n));
const texts = lessons.flatMap((l) => l.messages.map((m) => m.content));
const tokenizer = await trainTokenizer(texts, { vocabSize: 320, tags: TAG_TOKENS });
const options = {
  tokens: 12_000,
  copying: 0.1,
  singles: 0.4,
  mix: { whole: 0.7, query: 0, choose: 0, follow: 0, lookup: 0.3 },
  cutoff: 400,
  renaming: { from: 0, share: 0, recall: 0 },
  seed: 5,
};
const text = (ids: Int32Array) => tokenizer.decode([...ids]);

test("a copying document says everything twice and trains on the second time only", () => {
  for (let seed = 0; seed < 50; seed++) {
    const { ids, actionMask } = copyingDocument(tokenizer, seed);
    const half = ids.length / 2;
    expect(half).toBeGreaterThanOrEqual(8);
    expect([...ids.slice(half)]).toEqual([...ids.slice(0, half)]);
    expect([...actionMask]).toEqual([...ids].map((_, i) => (i < half ? 0 : 1)));
    for (const id of ids) expect([...tokenizer.specials.values()]).not.toContain(id);
  }
});

test("a recall document says each line twice, in two orders, and trains on all but what begins a line", () => {
  const [newline] = tokenizer.encode("\n");
  const lines = (ids: number[]) =>
    ids
      .join(",")
      .split(`,${newline},`)
      .map((line) => line.replace(`,${newline}`, ""))
      .sort();
  for (let seed = 0; seed < 50; seed++) {
    const document = recallDocument(tokenizer, seed);
    const ids = [...document.ids];
    const from = ids.length / 2;
    expect(lines(ids.slice(0, from))).toEqual(lines(ids.slice(from)));
    const learnt = ids.map((_, i) => (i >= from && i > from && ids[i - 1] !== newline ? 1 : 0));
    expect([...document.actionMask]).toEqual(learnt);
  }
});

test("copying comes first, then single calls only, then the mix, in the shares that were asked for", () => {
  const documents = curriculum(lessons, tokenizer, options);
  const read = (list: typeof documents) => list.reduce((n, d) => n + d.ids.length, 0);
  expect(read(documents)).toBeGreaterThanOrEqual(options.tokens);
  expect(read(documents)).toBeLessThan(options.tokens + options.cutoff);
  const isCopy = (d: (typeof documents)[number]) => d.ids[0] !== tokenizer.specials.get("<|im_start|>");
  const copies = documents.filter(isCopy);
  expect(documents.slice(0, copies.length)).toEqual(copies);
  expect(read(copies) / options.tokens).toBeCloseTo(options.copying, 1);
  let before = 0;
  const twoCalls: number[] = [];
  for (const d of documents) {
    if (text(d.ids).split("<tool_call>").length > 2) twoCalls.push(before);
    before += d.ids.length;
  }
  expect(Math.min(...twoCalls)).toBeGreaterThanOrEqual((options.copying + options.singles) * options.tokens);
  const micro = documents.filter((d) => !isCopy(d) && !text(d.ids).includes("Find 1."));
  expect(read(micro) / (options.tokens * (1 - options.copying))).toBeCloseTo(options.mix.lookup, 1);
  for (const d of documents) expect(lossTokens(d)).toBeGreaterThan(0);
});

test("from where renaming begins, names are made up and lines are recalled, in their shares", () => {
  const renaming = { from: 0.5, share: 1, recall: 0.2 };
  const documents = curriculum(lessons, tokenizer, { ...options, copying: 0, renaming });
  let read = 0;
  let recalled = 0;
  for (const d of documents) {
    const said = text(d.ids);
    if (d.ids[0] !== tokenizer.specials.get("<|im_start|>")) recalled += d.ids.length;
    else if (said.includes("<answer>") && read < 0.5 * options.tokens) expect(said).toContain("Maple");
    read += d.ids.length;
  }
  expect(recalled / (0.5 * options.tokens)).toBeCloseTo(0.2, 1);
});

test("the same seed gives the same order, another seed another; too long documents are left out, and nothing loops", () => {
  const order = (seed: number) => curriculum(lessons, tokenizer, { ...options, seed }).map((d) => text(d.ids));
  expect(order(1)).toEqual(order(1));
  expect(order(1)).not.toEqual(order(2));
  const mix = { whole: 1, query: 1, choose: 1, follow: 1, lookup: 1 };
  const copies = curriculum(lessons, tokenizer, { ...options, mix, cutoff: 10 });
  expect(copies.every((d) => d.ids[0] !== tokenizer.specials.get("<|im_start|>"))).toBe(true);
});
