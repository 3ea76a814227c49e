import { expect, test } from "bun:test";
import { Model } from "../model/model.ts";
import type { Message } from "../paraact/types.ts";
import type { Lesson } from "./drills.ts";
import { skills } from "./skills.ts";
import { config, tokenizer } from "./testdata/letters.ts";
import { testEngine } from "./testdata/tiny.ts";

const say = (role: Message["role"], content: string): Message => ({ role, content });
/** The search is a tag, one letter and a tag: four tokens with the end of the turn. */
const lesson: Lesson = {
  calls: 1,
  group: "p",
  messages: [
    say("system", "s"),
    say("user", "a?"),
    say("assistant", "<think>t</think><search_tool>a</search_tool>"),
    say("observation", "<tools>\na(id) A.\n</tools>"),
  ],
};

test("a turn's probability is that of all its tokens, and the loss their mean", async () => {
  const engine = await testEngine();
  const model = await Model.create(engine, config, 1);
  const measured = await skills(model, tokenizer, [lesson], { documents: 3, seed: 1, microTokens: 200 });
  expect(Object.keys(measured)).toEqual(["query"]);
  const { turns, probability, loss } = measured.query!;
  expect(turns).toBe(3);
  // All three are the same turn, so the mean of its log-probabilities is the logarithm of the mean.
  expect(Math.log(probability)).toBeCloseTo(-4 * loss, 4);
  expect(loss).toBeGreaterThan(0);
  model.dispose();
  await engine.dispose();
});
