/** Demonstrations for other trainers: ShareGPT and OpenAI messages, one JSON object a line, written whole or not at all. */
import { writeAtomic } from "../config/atomic.ts";
import type { Message } from "../paraact/types.ts";
import type { Demonstration } from "./write.ts";

export type ExportFormat = "sharegpt" | "openai";

const SHAREGPT_FROM: Record<Message["role"], string> = {
  system: "system",
  user: "human",
  assistant: "gpt",
  observation: "observation",
};

/** ShareGPT (as LLaMA-Factory reads it): `conversations` of {from, value}, the system prompt beside them. */
export function toShareGpt({ messages, task }: Demonstration): object {
  return {
    id: task.id,
    system: messages.find((m) => m.role === "system")?.content ?? "",
    conversations: messages
      .filter((m) => m.role !== "system")
      .map((m) => ({ from: SHAREGPT_FROM[m.role], value: m.content })),
  };
}

/** OpenAI chat messages; observations under `user`, where the policies of the text protocol read them (agents/chat.ts). */
export function toOpenAi({ messages }: Demonstration): object {
  return {
    messages: messages.map((m) => ({ role: m.role === "observation" ? "user" : m.role, content: m.content })),
  };
}

/** Writes demonstrations as JSON lines in a format that other trainers read. */
export function exportDemonstrations(
  path: string,
  demonstrations: readonly Demonstration[],
  format: ExportFormat,
): void {
  const line = format === "sharegpt" ? toShareGpt : toOpenAi;
  writeAtomic(path, demonstrations.map((d) => `${JSON.stringify(line(d))}\n`).join(""));
}
