import { expect, setDefaultTimeout, test } from "bun:test";
import { parquetMetadata, parquetReadObjects } from "hyparquet";
import type { Message } from "../paraact/types.ts";
import { ExportError, toOpenAi, toShareGpt, verlParquet } from "./export.ts";

setDefaultTimeout(60_000);

const messages: Message[] = [
  { role: "system", content: "act" },
  { role: "user", content: "what is the weather?" },
  { role: "assistant", content: "<think>search</think>" },
  { role: "observation", content: "<tools></tools>" },
  { role: "assistant", content: "<answer>rain</answer>" },
];

test("a conversation in ShareGPT: alternating turns, the system prompt apart", () => {
  expect(toShareGpt(messages)).toEqual({
    system: "act",
    conversations: [
      { from: "human", value: "what is the weather?" },
      { from: "gpt", value: "<think>search</think>" },
      { from: "observation", value: "<tools></tools>" },
      { from: "gpt", value: "<answer>rain</answer>" },
    ],
  });
  expect(() => toShareGpt([...messages.slice(0, 2), ...messages.slice(1)])).toThrow(ExportError);
});

test("a conversation in OpenAI's messages: observations are what the user says", () => {
  expect(toOpenAi(messages).messages.map((m) => m.role)).toEqual(["system", "user", "assistant", "user", "assistant"]);
  expect(toOpenAi(messages).messages.map((m) => m.content)).toEqual(messages.map((m) => m.content));
});

test("verl's Parquet has its nested columns, and another reader finds every value", async () => {
  const rows = Array.from({ length: 2500 }, (_, i) => ({
    ...{ taskId: `t${i}`, shape: "chain", split: "train", system: "act" },
    request: `find ${i} "ünïcode"\n`,
    task: JSON.stringify({ id: `t${i}`, calls: [] }),
  }));
  const bytes = verlParquet(rows);
  const file = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length) as ArrayBuffer;
  expect(
    parquetMetadata(file)
      .schema.slice(1)
      .map((element) => element.name)
      .join(" "),
  ).toBe(
    "data_source prompt list element role content ability reward_model style ground_truth extra_info split index task_id shape",
  );
  const read = await parquetReadObjects({ file });
  expect(read.length).toBe(2500);
  for (const i of [0, 1, 999, 1000, 2499])
    expect(read[i]).toEqual({
      data_source: "paraagent/toolenv",
      prompt: [
        { role: "system", content: "act" },
        { role: "user", content: rows[i]!.request },
      ],
      ability: "tool_use",
      reward_model: { style: "rule", ground_truth: rows[i]!.task },
      extra_info: { split: "train", index: BigInt(i), task_id: `t${i}`, shape: "chain" },
    });
  expect(() => verlParquet([])).toThrow(/no tasks/);
});
