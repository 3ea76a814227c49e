import { afterAll, expect, setDefaultTimeout, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Template } from "@huggingface/jinja";
import fc from "fast-check";
import { trainTokenizer } from "./bpe.ts";
import { createTokenizer, type LoadedTokenizer, loadTokenizer, qwen3TokenizerDir } from "./tokenizer.ts";

setDefaultTimeout(60_000);
const dir = mkdtempSync(join(tmpdir(), "tokenizer-"));
afterAll(() => rmSync(dir, { recursive: true }));

const tags = ["<think>", "</think>", "<plan>", "</plan>", "<tool_call>", "</tool_call>", "<answer>", "</answer>"];

/** Text with repeated words in the surroundings that matter: after a space, a quote and an underscore. */
const corpus = Array.from({ length: 40 }, (_, i) => {
  const city = ["Paris", "Berlin", "Lagos", "Zürich", "東京"][i % 5];
  return (
    `Find the weather forecast for ${city} on day ${i * 37}.\n<think>The weather tool takes a city.</think>` +
    `<tool_call>{"name":"get_weather_forecast","arguments":{"city":"${city}","day":${i * 37}}}</tool_call>\n\n` +
    `<answer>The forecast for ${city} is rain; the weather service says so.</answer>`
  );
});
const small = await trainTokenizer(corpus, { vocabSize: 340, tags });

test("a vocabulary has the size asked for: bytes, merges, then one token a tag", () => {
  expect(small.vocabSize).toBe(340);
  for (let byte = 0; byte < 256; byte++) expect(small.bytes(byte)).toEqual(new Uint8Array([byte]));
  for (const tag of tags) expect(small.encode(tag, { special: true })).toEqual([small.specials.get(tag)!]);
  expect(small.specials.get("</answer>")).toBe(339);
  expect(small.eosId).toBe(small.specials.get("<|im_end|>")!);
  expect(small.chatTemplate).toContain("im_start");
});

test("training is deterministic, and too little text is an error", async () => {
  const again = await trainTokenizer(corpus, { vocabSize: 340, tags });
  expect(again.merges).toEqual(small.merges);
  expect(again.spellings).toEqual(small.spellings);
  expect(trainTokenizer(["ab"], { vocabSize: 400, tags })).rejects.toThrow(/the texts give 1 merges/);
  expect(trainTokenizer(corpus, { vocabSize: 100, tags })).rejects.toThrow(/at least/);
});

test("a word has the same tokens after a space, a quote and an underscore", () => {
  for (const word of ["weather", "forecast", "Paris", "city"]) {
    const alone = small.encode(word);
    for (const before of [" ", '"', "_", ":", "{", "4"]) {
      expect(small.encode(before + word)).toEqual([...small.encode(before), ...alone]);
    }
  }
  expect(small.encode("weather").length).toBe(1);
});

test("digits are read one by one", () => {
  expect(small.encode("12345")).toEqual([..."12345"].map((digit) => digit.charCodeAt(0)));
});

test("no merge holds white space beside anything else", () => {
  for (let id = 256; id < small.vocabSize; id++) {
    const text = new TextDecoder().decode(small.bytes(id));
    if (/\s/.test(text)) expect(text.trim()).toBe("");
  }
});

test("text from outside never becomes a special token", () => {
  const text = "ignore that <|im_end|> and </think> this";
  const specials = new Set(small.specials.values());
  expect(small.encode(text).some((id) => specials.has(id))).toBe(false);
  expect(small.decode(small.encode(text))).toBe(text);
  expect(small.encode(text, { special: true }).filter((id) => specials.has(id)).length).toBe(2);
});

test("decoding skips control tokens where asked, and keeps tags", () => {
  const ids = small.encode("<think>so</think><|im_end|>", { special: true });
  expect(small.decode(ids)).toBe("<think>so</think><|im_end|>");
  expect(small.decode(ids, { skipSpecial: true })).toBe("<think>so</think>");
  expect(small.bytes(small.specials.get("<think>")!)).toEqual(new Uint8Array());
});

function roundTrips(tokenizer: LoadedTokenizer, text: string): void {
  const ids = tokenizer.encode(text);
  expect(tokenizer.decode(ids)).toBe(text);
  expect(Buffer.concat(ids.map((id) => tokenizer.bytes(id))).toString("utf8")).toBe(text);
}

test("any text comes back exactly, spaces before marks included", () => {
  for (const text of ["a , b . c ' d n't", " lead", "trail ", "\r\n\t\n", "", "\ufeffx\u0085y", "👩‍👩‍👧 é é"])
    roundTrips(small, text);
  fc.assert(
    fc.property(fc.string({ unit: "binary", maxLength: 60 }), (text) => roundTrips(small, text)),
    { seed: 5, numRuns: 300 },
  );
});

test("saved and loaded again it is the same tokenizer, and the chat template renders", async () => {
  await small.save(dir);
  const loaded = loadTokenizer(dir);
  for (const text of corpus)
    expect(loaded.encode(text, { special: true })).toEqual(small.encode(text, { special: true }));
  expect(loaded.specials).toEqual(small.specials);
  expect(loaded.hidden).toEqual(small.hidden);
  const rendered = new Template(loaded.chatTemplate!).render({
    messages: [
      { role: "user", content: "hi" },
      { role: "tool", content: "ok" },
    ],
    add_generation_prompt: true,
  });
  expect(rendered).toBe("<|im_start|>user\nhi<|im_end|>\n<|im_start|>user\nok<|im_end|>\n<|im_start|>assistant\n");
});

test("Qwen3's tokenizer gives the ids that are known for it", () => {
  const qwen = loadTokenizer(qwen3TokenizerDir());
  expect(qwen.vocabSize).toBe(151669);
  expect(qwen.specials.get("<|im_end|>")).toBe(151645);
  expect(qwen.eosId).toBe(151645);
  expect(qwen.encode("<think></think>", { special: true })).toEqual([151667, 151668]);
  expect(qwen.encode("Hello world! 2026")).toEqual([9707, 1879, 0, 220, 17, 15, 17, 21]);
  for (const text of ["a , b . n't", " 東京 \n\n x", '{"name": "f", "arguments": {"x": [1, 2]}}'])
    roundTrips(qwen, text);
  expect(qwen.decode([151900])).toBe("");
});

test("files of another kind are refused with the reason", () => {
  expect(() => loadTokenizer(join(dir, "nowhere"))).toThrow(/not found/);
  const json = JSON.parse(readFileSync(join(dir, "tokenizer.json"), "utf8"));
  expect(() => createTokenizer({ ...json, pre_tokenizer: { type: "Metaspace" } }, {}, null, "x")).toThrow(/byte-level/);
  expect(() => createTokenizer({ ...json, model: { type: "Unigram", vocab: [] } }, {}, null, "x")).toThrow(/BPE/);
  const stripping = [{ ...json.added_tokens[0], lstrip: true }];
  expect(() => createTokenizer({ ...json, added_tokens: stripping }, {}, null, "x")).toThrow(/strips/);
  writeFileSync(join(dir, "broken.json"), "{");
  expect(() => loadTokenizer(join(dir, "broken.json"))).toThrow(/broken.json/);
});
