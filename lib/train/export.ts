/** Training data in other trainers' formats: ShareGPT (LLaMA-Factory), OpenAI messages, and verl's Parquet. */
import { parquetWriteBuffer } from "hyparquet-writer";
import type { Message } from "../paraact/types.ts";

/** A conversation that a format has no words for. */
export class ExportError extends Error {
  override name = "ExportError";
}

const SHAREGPT_ROLES = { user: "human", assistant: "gpt", observation: "observation" } as const;

export interface ShareGpt {
  system: string;
  conversations: { from: "human" | "gpt" | "observation"; value: string }[];
}

/** LLaMA-Factory's sharegpt format: the reader's and the writer's turns alternate. Throws ExportError where they do not. */
export function toShareGpt(messages: readonly Message[]): ShareGpt {
  const system = messages
    .filter((message) => message.role === "system")
    .map((message) => message.content)
    .join("\n");
  const conversations = messages.flatMap((message) =>
    message.role === "system" ? [] : [{ from: SHAREGPT_ROLES[message.role], value: message.content }],
  );
  conversations.forEach(({ from }, i) => {
    if ((from === "gpt") !== (i % 2 === 1))
      throw new ExportError(
        `message ${i + 1} is from "${from}": in ShareGPT the assistant's turns are every second one.`,
      );
  });
  return { system, conversations };
}

/** OpenAI's chat messages. Observations are user messages, as our policies read them: the protocol's tags are in the text. */
export function toOpenAi(messages: readonly Message[]): {
  messages: { role: "system" | "user" | "assistant"; content: string }[];
} {
  return {
    messages: messages.map(({ role, content }) => ({ role: role === "observation" ? "user" : role, content })),
  };
}

/** A task for an RL trainer: what the policy reads first, and what its environment needs to know the task. */
export interface RlRow {
  taskId: string;
  shape: string;
  split: string;
  system: string;
  request: string;
  /** The task whole, as JSON, for a reward function. */
  task: string;
}

const text = (name: string) =>
  ({ name, type: "BYTE_ARRAY", converted_type: "UTF8", repetition_type: "REQUIRED" }) as const;
const struct = (name: string, children: number) =>
  ({ name, num_children: children, repetition_type: "REQUIRED" }) as const;

/**
 * A Parquet file with verl's columns: data_source, prompt (list of {role, content}), ability, reward_model {style, ground_truth},
 * extra_info {split, index, task_id, shape}.
 */
export function verlParquet(rows: readonly RlRow[]): Uint8Array {
  if (rows.length === 0) throw new ExportError("no tasks to export.");
  const column = <T>(name: string, value: (row: RlRow, index: number) => T) => ({ name, data: rows.map(value) });
  const buffer = parquetWriteBuffer({
    schema: [
      { name: "root", num_children: 5 },
      text("data_source"),
      { ...struct("prompt", 1), converted_type: "LIST" },
      { name: "list", num_children: 1, repetition_type: "REPEATED" },
      struct("element", 2),
      text("role"),
      text("content"),
      text("ability"),
      struct("reward_model", 2),
      text("style"),
      text("ground_truth"),
      struct("extra_info", 4),
      text("split"),
      { name: "index", type: "INT64", repetition_type: "REQUIRED" },
      text("task_id"),
      text("shape"),
    ],
    columnData: [
      column("data_source", () => "paraagent/toolenv"),
      column("prompt", (row) => [
        { role: "system", content: row.system },
        { role: "user", content: row.request },
      ]),
      column("ability", () => "tool_use"),
      column("reward_model", (row) => ({ style: "rule", ground_truth: row.task })),
      column("extra_info", (row, i) => ({ split: row.split, index: BigInt(i), task_id: row.taskId, shape: row.shape })),
    ],
  });
  return new Uint8Array(buffer);
}
