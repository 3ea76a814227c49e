/**
 * The conversation as tokens, in the one place that policies and training share, so that the training text is what the policy saw, byte for
 * byte. ChatML, as Qwen's models read it: `<|im_start|>role\ncontent<|im_end|>\n`. Observations are rendered under the role `user`, which is
 * where Qwen's own template puts tool responses.
 *
 * Ids are made piece by piece: the frame's special tokens, role names, protocol tags and the text between them are encoded apart, and
 * sampled ids are kept as they are. Text never becomes a special token by spelling one: only the frame does, and the protocol's
 * tags, which stand only where our own rendering put them, since paraact/render.ts escapes look-alikes in requests and tool text.
 */
import type { Tokenizer } from "../model/types.ts";
import { tagPattern } from "../paraact/tags.ts";
import type { Message } from "../paraact/types.ts";

/** The tokenizer lacks a token that the rendering needs. */
export class ChatError extends Error {
  override name = "ChatError";
}

const START = "<|im_start|>";
const END = "<|im_end|>";

function frameToken(tokenizer: Tokenizer, text: string): number {
  const id = tokenizer.specials.get(text);
  if (id === undefined) {
    throw new ChatError(
      `The tokenizer has no special token ${text}: conversations are ChatML. Use a Qwen-like tokenizer.`,
    );
  }
  return id;
}

/** The id that ends a turn. */
export function endOfTurn(tokenizer: Tokenizer): number {
  return frameToken(tokenizer, END);
}

function roleName(role: Message["role"]): string {
  return role === "observation" ? "user" : role;
}

/** Encodes content whose protocol tags are ours: each is its own token where the vocabulary has one. */
function encodeTagged(text: string, tokenizer: Tokenizer): number[] {
  const ids: number[] = [];
  let from = 0;
  const plain = (to: number): void => {
    if (to > from) ids.push(...tokenizer.encode(text.slice(from, to)));
  };
  for (const match of text.matchAll(tagPattern())) {
    const id = tokenizer.specials.get(match[0]);
    if (id === undefined) continue;
    plain(match.index);
    ids.push(id);
    from = match.index + match[0].length;
  }
  plain(text.length);
  return ids;
}

/** The ids of one message's content, without its frame. */
export function encodeContent(message: Message, tokenizer: Tokenizer): number[] {
  return message.tokens ?? encodeTagged(message.content, tokenizer);
}

/** One message with its frame, and which of its ids the policy writes: an assistant's content and the end of its turn. */
export function encodeMessage(message: Message, tokenizer: Tokenizer): { ids: number[]; actions: number[] } {
  const end = endOfTurn(tokenizer);
  const head = [frameToken(tokenizer, START), ...tokenizer.encode(`${roleName(message.role)}\n`)];
  const content = encodeContent(message, tokenizer);
  const tail = tokenizer.encode("\n");
  const assistant = message.role === "assistant";
  // A turn that ran out of tokens was not ended by the policy: its end is ours, and no action.
  const ended = message.tokens !== undefined && content.at(-1) === end;
  const written = content.length + (assistant && message.tokens === undefined ? 1 : 0);
  const ids = [...head, ...content, ...(ended ? [] : [end]), ...tail];
  const actions = ids.map((_, i) => (assistant && i >= head.length && i < head.length + written ? 1 : 0));
  return { ids, actions };
}

/**
 * A whole conversation as training data: every id that the policy read or wrote, and 1 where it wrote (method.md section 5: the loss is on
 * assistant tokens of every turn). Assistant messages with `tokens` keep them. The last message's closing line break is left out, as the
 * policy never saw it when that message is the assistant's.
 */
export function encodeConversation(
  messages: readonly Message[],
  tokenizer: Tokenizer,
): { ids: Int32Array; actionMask: Uint8Array } {
  const ids: number[] = [];
  const mask: number[] = [];
  for (const message of messages) {
    const m = encodeMessage(message, tokenizer);
    ids.push(...m.ids);
    mask.push(...m.actions);
  }
  if (messages.at(-1)?.role === "assistant") {
    const tail = tokenizer.encode("\n").length;
    ids.length -= tail;
    mask.length -= tail;
  }
  return { ids: Int32Array.from(ids), actionMask: Uint8Array.from(mask) };
}

/** What stands before an assistant's reply. */
export function replyOpening(tokenizer: Tokenizer): number[] {
  return [frameToken(tokenizer, START), ...tokenizer.encode("assistant\n")];
}

/** The prompt of the next reply: the conversation so far and the opening of the assistant's turn. */
export function encodePrompt(messages: readonly Message[], tokenizer: Tokenizer): Int32Array {
  return Int32Array.from([...messages.flatMap((m) => encodeMessage(m, tokenizer).ids), ...replyOpening(tokenizer)]);
}
