/** The policy that runs on the local engine: token-exact, with its cache reused over an episode's turns, and constrained if asked. */
import type { Json } from "../catalog/types.ts";
import type { Generator, Tokenizer } from "../model/types.ts";
import { ContextOverflow } from "../paraact/episode.ts";
import type { Message, Policy, PolicyReply, PolicyRequest } from "../paraact/types.ts";
import { scalars } from "../toolenv/compare.ts";
import { encodeMessage, endOfTurn, replyOpening } from "./chat.ts";
import { type ConstraintOptions, replyConstraint } from "./constraint.ts";
import type { ReadValue } from "./grammar/fields.ts";
import { valueWords } from "./scripted.ts";
import { isFailure, readExchanges } from "./solver.ts";

export interface LocalPolicyOptions {
  name?: string;
  generator: Generator;
  tokenizer: Tokenizer;
  /** Positions that the model has (max_position_embeddings). */
  contextTokens: number;
  topK?: number;
  topP?: number;
  /**
   * Schema-constrained decoding, off by default. `copyStrings`: string arguments must occur in the conversation. `followPlan`: calls are
   * those of the plan's ready occurrences, and plans stand where the controller wants them (needs the loop's planSlots and readyTools).
   * `extract`: numbers are copied too, and every word of an answer was read. `whole`: arguments are whole values of the request and the responses,
   * answers are labels and whole values.
   */
  constraint?: Pick<ConstraintOptions, "protocol" | "limits"> & {
    copyStrings?: boolean;
    followPlan?: boolean;
    extract?: boolean;
    whole?: boolean;
  };
}

/**
 * What a constrained value may be copied from, as it stands inside a JSON string: the request, and the responses, which are JSON already. Tools
 * are no place that values come from.
 */
export function readText(messages: readonly Message[]): string {
  return messages
    .flatMap((m) => {
      if (m.role === "user") return [JSON.stringify(m.content).slice(1, -1)];
      return m.role === "observation" && !m.content.startsWith("<tools>") ? [m.content] : [];
    })
    .join("\n");
}

/** The words that an answer can take over: of the request, and of names and values in the responses. */
export function readWords(messages: readonly Message[]): string[] {
  const found: string[] = [];
  const plain = (text: string) => {
    for (const word of text.split(/\s+/)) found.push(word, word.replace(/^[("']+|[)"'.,;:!?]+$/g, ""));
  };
  const value = (v: Json) => {
    if (typeof v === "string") plain(v);
    else if (Array.isArray(v)) v.forEach(value);
    else if (v !== null && typeof v === "object") {
      for (const [name, inner] of Object.entries(v)) {
        plain(name.replace(/([a-z0-9])([A-Z])/g, "$1 $2").replace(/[_-]+/g, " "));
        value(inner);
      }
    } else found.push(JSON.stringify(v));
  };
  for (const m of messages) if (m.role === "user") plain(m.content);
  for (const { responses } of readExchanges(messages)) for (const { result } of responses) value(result);
  return found.filter((word) => word !== "" && !word.includes("<"));
}

/** The scalars of the responses that are no failures, as an answer writes them, in the order in which they stand. */
export function readValues(messages: readonly Message[]): ReadValue[] {
  const responses = readExchanges(messages).flatMap((exchange) => exchange.responses);
  return responses.flatMap(({ result }, response) =>
    (isFailure(result) ? [] : scalars(result)).map(({ pointer, value }) => ({
      text: valueWords(value),
      response,
      member: pointer.replaceAll(/\/\d+(?=\/|$)/g, ""),
    })),
  );
}

/** What was asked, as it was written. */
export const requestOf = (messages: readonly Message[]) =>
  messages.flatMap((m) => (m.role === "user" ? [m.content] : [])).join("\n");

/**
 * A policy over a generator. Sampled ids are returned and, given back in Message.tokens, are used as they are; observations are encoded
 * apart and appended, so each prompt begins with the last one and its pages are reused. Throws ContextOverflow when no token can be
 * added.
 */
export function localPolicy(options: LocalPolicyOptions): Policy {
  const { generator, tokenizer } = options;
  const stopIds = [endOfTurn(tokenizer)];
  const endOfText = tokenizer.specials.get("<|endoftext|>");
  if (endOfText !== undefined) stopIds.push(endOfText);
  /** Encoded messages of each episode, so that a turn encodes only what is new. */
  const encoded = new Map<string, { message: Message; ids: number[] }[]>();

  function prompt(request: PolicyRequest): Int32Array {
    const known = encoded.get(request.episode) ?? [];
    const now = request.messages.map((message, i) => {
      const k = known[i];
      const same =
        k &&
        k.message.role === message.role &&
        k.message.content === message.content &&
        k.message.tokens === message.tokens;
      return same ? k : { message, ids: encodeMessage(message, tokenizer).ids };
    });
    encoded.set(request.episode, now);
    return Int32Array.from([...now.flatMap((m) => m.ids), ...replyOpening(tokenizer)]);
  }

  function constraint(request: PolicyRequest) {
    const c = options.constraint;
    if (!c) return undefined;
    return replyConstraint(tokenizer, {
      protocol: c.protocol,
      tools: request.toolsInView,
      stopIds: stopIds.slice(0, 1),
      ...(c.limits ? { limits: c.limits } : {}),
      ...(c.copyStrings ? { copyFrom: readText(request.messages) } : {}),
      ...(c.extract ? { answerWords: readWords(request.messages) } : {}),
      ...(c.whole ? { whole: { request: requestOf(request.messages), read: readValues(request.messages) } } : {}),
      ...(c.followPlan && request.planSlots ? { slots: request.planSlots } : {}),
      ...(request.doneOccurrences ? { done: request.doneOccurrences } : {}),
      ...(c.followPlan && request.readyTools ? { ready: request.readyTools } : {}),
    });
  }

  return {
    name: options.name ?? "local",
    async reply(request): Promise<PolicyReply> {
      const promptIds = prompt(request);
      const room = options.contextTokens - promptIds.length;
      if (room < 1) {
        throw new ContextOverflow(
          `Episode ${request.episode}: the conversation has ${promptIds.length} tokens, the model's context is ${options.contextTokens}. Shorten observations or turns.`,
        );
      }
      const restriction = constraint(request);
      const result = await generator.generate({
        promptIds,
        maxNewTokens: Math.min(request.maxNewTokens, room),
        temperature: request.temperature,
        seed: request.seed,
        stopIds,
        keepAs: request.episode,
        ...(options.topK === undefined ? {} : { topK: options.topK }),
        ...(options.topP === undefined ? {} : { topP: options.topP }),
        ...(restriction ? { constraint: restriction } : {}),
      });
      const last = result.ids.at(-1);
      const text = tokenizer.decode(
        last !== undefined && stopIds.includes(last) ? result.ids.slice(0, -1) : result.ids,
      );
      return {
        text,
        tokens: {
          ids: result.ids,
          logprobs: result.logprobs,
          ...(result.masks ? { masks: result.masks } : {}),
        },
        finish: result.finish,
        usage: { promptTokens: promptIds.length, completionTokens: result.ids.length, estimated: false },
      };
    },
    release(episode) {
      encoded.delete(episode);
      generator.release(episode);
    },
    async close() {
      generator.close();
    },
  };
}
