import { expect, test } from "bun:test";
import fc from "fast-check";
import { trainTokenizer } from "../model/bpe.ts";
import { loadTokenizer, qwen3TokenizerDir } from "../model/tokenizer.ts";
import type { GenerateRequest, Generator } from "../model/types.ts";
import { ContextOverflow } from "../paraact/episode.ts";
import { TAG_TOKENS } from "../paraact/tags.ts";
import type { Message } from "../paraact/types.ts";
import { encodeConversation, encodePrompt, endOfTurn } from "./chat.ts";
import { localPolicy } from "./local.ts";

const texts = Array.from(
  { length: 30 },
  (_, i) => `find the weather in Paris ${i}; the weather service says rain. theweather`,
);
const small = await trainTokenizer(texts, { vocabSize: 290, tags: [...TAG_TOKENS] });
const qwen = loadTokenizer(qwen3TokenizerDir());
const end = endOfTurn(small);

/** A generator that returns scripted ids and remembers what it was asked. */
function scripted(replies: number[][]): Generator & { requests: GenerateRequest[]; released: string[] } {
  const requests: GenerateRequest[] = [];
  const released: string[] = [];
  return {
    requests,
    released,
    async generate(request) {
      const ids = replies[requests.length]!;
      requests.push(request);
      const masks = request.constraint ? ids.map(() => null) : undefined;
      return {
        ids,
        logprobs: ids.map(() => -1),
        finish: ids.at(-1) === end ? "stop" : "length",
        reusedTokens: 0,
        ...(masks ? { masks } : {}),
      };
    },
    release: (name) => void released.push(name),
    invalidate() {},
    stats: () => ({ promptTokens: 0, reusedTokens: 0, newTokens: 0, steps: 0, seconds: 0 }),
    close() {},
  };
}

const request = { episode: "e", toolsInView: [], maxNewTokens: 50, temperature: 1, seed: 1 };

test("training text is what the policy saw and sampled, id for id, although the sampled ids are not how the text encodes", async () => {
  // The same text as single bytes: one of many ways to write it.
  const spelled = [...new TextEncoder().encode("theweather in Paris")];
  expect(small.encode("theweather in Paris")).not.toEqual(spelled);
  const first = [small.specials.get("<think>")!, ...spelled, small.specials.get("</think>")!, end];
  // The second reply runs out of tokens: nobody sampled its end.
  const second = [small.specials.get("<answer>")!, ...new TextEncoder().encode("rain")];
  const generator = scripted([first, second]);
  const policy = localPolicy({ generator, tokenizer: small, contextTokens: 1000 });
  const messages: Message[] = [
    { role: "system", content: "find" },
    { role: "user", content: "the weather in Paris" },
  ];
  const one = await policy.reply({ ...request, messages });
  expect(one).toMatchObject({ text: "<think>theweather in Paris</think>", finish: "stop" });
  messages.push({ role: "assistant", content: one.text, tokens: one.tokens!.ids });
  messages.push({ role: "observation", content: "<tools>\nnone\n</tools>" });
  const two = await policy.reply({ ...request, messages });
  messages.push({ role: "assistant", content: two.text, tokens: two.tokens!.ids });

  const [prompt1, prompt2] = generator.requests.map((r) => [...r.promptIds]);
  expect(prompt2!.slice(0, prompt1!.length + first.length)).toEqual([...prompt1!, ...first]);
  const { ids, actionMask } = encodeConversation(messages, small);
  // The unended reply is closed by the frame, which is not the policy's.
  expect([...ids]).toEqual([...prompt2!, ...second, end]);
  expect([...ids].filter((_, i) => actionMask[i] === 1)).toEqual([...first, ...second]);
  policy.release?.("e");
  expect(generator.released).toEqual(["e"]);
});

test("a demonstration is encoded as a policy would read it: every turn of the assistant with its end is an action, nothing else", () => {
  const messages: Message[] = [
    { role: "system", content: "find" },
    { role: "user", content: "the weather" },
    { role: "assistant", content: "<think>a</think><answer>b</answer>" },
  ];
  for (const tokenizer of [small, qwen]) {
    const { ids, actionMask } = encodeConversation(messages, tokenizer);
    const prompt = encodePrompt(messages.slice(0, 2), tokenizer);
    expect([...ids.slice(0, prompt.length)]).toEqual([...prompt]);
    expect(tokenizer.decode([...ids].filter((_, i) => actionMask[i] === 1))).toBe(
      "<think>a</think><answer>b</answer><|im_end|>",
    );
    expect(tokenizer.decode([...ids])).toBe(
      "<|im_start|>system\nfind<|im_end|>\n<|im_start|>user\nthe weather<|im_end|>\n<|im_start|>assistant\n<think>a</think><answer>b</answer><|im_end|>",
    );
  }
});

test("text from outside never becomes a frame token", () => {
  const starts = (content: string): number =>
    [...encodeConversation([{ role: "user", content }], small).ids].filter(
      (id) => id === small.specials.get("<|im_start|>") || id === end,
    ).length;
  fc.assert(
    fc.property(
      fc.string(),
      fc.constantFrom("<|im_end|>", "<|im_start|>assistant\n", "<|endoftext|>"),
      (text, token) => {
        expect(starts(text + token + text)).toBe(2);
      },
    ),
  );
});

test("a conversation longer than the context is an error that says so, and a reply is cut to the room left", async () => {
  const messages: Message[] = [{ role: "user", content: "weather ".repeat(40) }];
  const length = encodePrompt(messages, small).length;
  const full = localPolicy({ generator: scripted([]), tokenizer: small, contextTokens: length });
  expect(full.reply({ ...request, messages })).rejects.toThrow(ContextOverflow);
  const generator = scripted([[end]]);
  await localPolicy({ generator, tokenizer: small, contextTokens: length + 7 }).reply({ ...request, messages });
  expect(generator.requests[0]!.maxNewTokens).toBe(7);
});

test("constrained decoding gets the tools in view, and its masks come back", async () => {
  const generator = scripted([[end]]);
  const policy = localPolicy({
    generator,
    tokenizer: small,
    contextTokens: 1000,
    constraint: { protocol: "paraact", copyStrings: true, followPlan: true },
  });
  const reply = await policy.reply({
    ...request,
    messages: [{ role: "user", content: "x" }],
    planSlots: { search: "required", call: "required" },
  });
  expect(reply.tokens?.masks).toEqual([null]);
  const mask = generator.requests[0]!.constraint!.allowed()!;
  expect([...mask].reduce((n, word) => n + [...word.toString(2)].filter((c) => c === "1").length, 0)).toBe(1);
});
