/** The policy that runs on an OpenAI-compatible endpoint, by the text protocol or by native function calling. */

import { escapeTagsInText, holdsTag } from "../paraact/tags.ts";
import type { Message, Policy, PolicyReply, PolicyRequest } from "../paraact/types.ts";
import type { ChatEndpoint, ChatRequest, Completion } from "./openai/client.ts";
import { type NativeSurface, nativeMessages, nativeTools, replyOf } from "./openai/native.ts";

export interface OpenAIPolicyOptions {
  endpoint: ChatEndpoint;
  name?: string;
  /** Native function calling instead of the text protocol, and the system prompt that goes with it. */
  native?: NativeSurface & { system: string };
}

/**
 * A policy over an endpoint. In the text protocol, reasoning that a server split off becomes the think block if the text has none, and
 * tool calls that a server parsed out of the text are written back as blocks.
 */
export function openaiPolicy(options: OpenAIPolicyOptions): Policy {
  const { endpoint, native } = options;
  return {
    name: options.name ?? `${endpoint.model}${native ? " (native)" : ""}`,
    async reply(request: PolicyRequest): Promise<PolicyReply> {
      const sampling = { maxTokens: request.maxNewTokens, temperature: request.temperature, seed: request.seed };
      const chat: ChatRequest = native
        ? {
            ...sampling,
            messages: nativeMessages(request.messages, native.system),
            tools: nativeTools(native, request.toolsInView),
            parallelToolCalls: native.parallel,
          }
        : { ...sampling, messages: request.messages.map(textMessage) };
      const completion = await endpoint.complete(chat);
      return {
        text: native ? replyOf(completion) : textReply(completion),
        finish: completion.finish,
        usage: completion.usage,
      };
    },
  };
}

function textMessage({ role, content }: Message): { role: "system" | "user" | "assistant"; content: string } {
  return { role: role === "observation" ? "user" : role, content };
}

function textReply(completion: Completion): string {
  const { content, reasoning, toolCalls } = completion;
  const think =
    reasoning !== "" && !content.includes("<think>") ? `<think>${escapeTagsInText(reasoning.trim())}</think>` : "";
  if (toolCalls.length === 0) return think + content;
  const calls = replyOf({ ...completion, reasoning: "", content: "" }).slice("<think></think>".length);
  const rest =
    holdsTag(content) || content.trim() === "" ? content : `<think>${escapeTagsInText(content.trim())}</think>`;
  return think + (think !== "" && rest.startsWith("<think>") ? "" : rest) + calls;
}
