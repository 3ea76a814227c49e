/**
 * What a base model reads, in order (design: small-model.md): first sequences to copy, then single calls until they work, then the mix. A share
 * of it are micro-episodes: one turn with only what it needs before it, for the two skills that come last, picking the tool that fits and turning
 * stated values into arguments.
 */
import { encodeConversation } from "../agents/chat.ts";
import { hash2 } from "../engine/random.ts";
import type { Tokenizer } from "../model/types.ts";
import type { Message } from "../paraact/types.ts";
import { type Document, shuffled } from "./batch.ts";
import { rareWords, renamed } from "./renaming.ts";

export interface Curriculum {
  /** Tokens in all, and shares of them. */
  tokens: number;
  copying: number;
  singles: number;
  /** Share of the tokens after the copying that are micro-episodes. */
  micro: number;
  /** Longer documents are left out. */
  cutoff: number;
  /**
   * From this share of the tokens on, this share of the documents is renamed, half of them thoroughly, and this share of the tokens are
   * documents of random lines to recall.
   */
  renaming: { from: number; share: number; recall: number };
  seed: number;
}

/** A word in fewer of the lessons than this is rare. */
const RARE = 0.03;
/** Share of rare words that are exchanged in a document that is renamed lightly, and thoroughly. */
const LIGHTLY = 0.5;
const THOROUGHLY = 0.95;

/** A conversation to learn from. `calls`: how many gold calls its task has. */
export interface Lesson {
  messages: readonly Message[];
  calls: number;
}

/** Draws an ordinary token: neither a special one nor a bare byte. */
function ordinary(tokenizer: Tokenizer, draw: number): number {
  return 256 + (draw % (tokenizer.vocabSize - tokenizer.specials.size - 256));
}

/** A random sequence of 8 to 40 ordinary tokens, twice; the second is trained on. What is learnt is to look back and repeat. */
export function copyingDocument(tokenizer: Tokenizer, seed: number): Document {
  const length = 8 + (hash2(seed, 0) % 33);
  const sequence = Array.from({ length }, (_, i) => ordinary(tokenizer, hash2(seed, i + 1)));
  const ids = Int32Array.from([...sequence, ...sequence]);
  return { ids, actionMask: Uint8Array.from(ids, (_, i) => (i >= length ? 1 : 0)) };
}

/**
 * Six to twenty lines of two to eight random tokens, then the same lines in another order; of each, all but its first token is trained on. What is
 * learnt is to find the line that began so, and that every token of the vocabulary can be written.
 */
export function recallDocument(tokenizer: Tokenizer, seed: number): Document {
  const lines = Array.from({ length: 6 + (hash2(seed, 0) % 15) }, (_, l) => {
    const own = hash2(seed, l + 1);
    return Array.from({ length: 2 + (own % 7) }, (_, i) => ordinary(tokenizer, hash2(own, i)));
  });
  const [newline] = tokenizer.encode("\n");
  const again = [...shuffled(lines.length, seed, 0)].map((l) => lines[l]!);
  const ids = [...lines, ...again].flatMap((line) => [...line, newline!]);
  const before = lines.reduce((n, line) => n + line.length + 1, 0);
  const mask = again.flatMap((line) => line.map((_, i) => (i > 0 ? 1 : 0)).concat(1));
  return { ids: Int32Array.from(ids), actionMask: Uint8Array.from([...new Array(before).fill(0), ...mask]) };
}

const isResponse = (m: Message) => m.role === "observation" && m.content.startsWith("<tool_response>");
const isTools = (m: Message) => m.role === "observation" && m.content.startsWith("<tools>");

/** The micro-episodes of a conversation: its first calls after the tools that were found, and its answer after the responses. */
export function microEpisodes(messages: readonly Message[]): { pick: Message[] | null; answer: Message[] | null } {
  const start = messages.filter((m, i) => i < 2 && m.role !== "assistant");
  const at = messages.findIndex(
    (m, i) => m.role === "assistant" && isTools(messages[i - 1] ?? m) && m.content.includes("<tool_call>"),
  );
  const last = messages.at(-1)!;
  return {
    pick: at > 0 ? [...start, messages[at - 1]!, messages[at]!] : null,
    answer: last.content.includes("<answer>") ? [...start, ...messages.filter(isResponse), last] : null,
  };
}

/** Goes round a list in a new order each time, for ever. */
function* around<T>(items: readonly T[], seed: number): Generator<T> {
  for (let pass = 0; items.length > 0; pass++) for (const i of shuffled(items.length, seed, pass)) yield items[i]!;
}

/** The tokens of a vocabulary that are letters only, in lower case. */
function lettersOf(tokenizer: Tokenizer): string[] {
  const special = new Set(tokenizer.specials.values());
  const texts = Array.from({ length: tokenizer.vocabSize }, (_, id) => (special.has(id) ? "" : tokenizer.decode([id])));
  return [...new Set(texts.filter((text) => /^[A-Za-z]{2,}$/.test(text)).map((text) => text.toLowerCase()))].sort();
}

/** The documents in the order in which they are read. A pure function of its arguments. */
export function curriculum(lessons: readonly Lesson[], tokenizer: Tokenizer, options: Curriculum): Document[] {
  const { tokens, copying, singles, micro, cutoff, renaming, seed } = options;
  const known = new Map<readonly Message[], Document>();
  const encode = (messages: readonly Message[]): Document => {
    const document = known.get(messages) ?? encodeConversation(messages, tokenizer);
    known.set(messages, document);
    return document;
  };
  const words = new Set(
    rareWords(
      lessons.map((lesson) => lesson.messages),
      RARE,
    ),
  );
  const rare = { words, pieces: lettersOf(tokenizer) };
  /** The n-th document that is drawn, renamed where its turn is. */
  const drawn = (messages: readonly Message[], n: number): Document => {
    const draw = hash2(hash2(seed, 2), n) / 2 ** 32;
    if (read < renaming.from * tokens || draw >= renaming.share) return encode(messages);
    const share = draw < renaming.share / 2 ? THOROUGHLY : LIGHTLY;
    return encodeConversation(renamed(messages, rare, share, hash2(hash2(seed, 3), n)), tokenizer);
  };
  const sources = (list: readonly Lesson[], salt: number) => {
    const pieces = list.map((lesson) => microEpisodes(lesson.messages));
    return {
      whole: around(
        list.map((lesson) => lesson.messages),
        hash2(seed, salt),
      ),
      pick: around(
        pieces.flatMap((p) => (p.pick ? [p.pick] : [])),
        hash2(seed, salt + 1),
      ),
      answer: around(
        pieces.flatMap((p) => (p.answer ? [p.answer] : [])),
        hash2(seed, salt + 2),
      ),
    };
  };
  const documents: Document[] = [];
  let read = 0;
  let skipped = 0;
  let recalled = 0;
  let n = 0;
  const add = (document: Document) => {
    documents.push(document);
    read += document.ids.length;
  };
  for (let i = 0; read < copying * tokens; i++) add(copyingDocument(tokenizer, hash2(hash2(seed, 1), i)));
  const phases = [
    {
      until: (copying + singles) * tokens,
      from: sources(
        lessons.filter((l) => l.calls === 1),
        10,
      ),
    },
    { until: tokens, from: sources(lessons, 20) },
  ];
  for (const { until, from } of phases) {
    // Which source is behind its share is read from next, so that shares are of tokens, not of documents.
    const given = { whole: 0, pick: 0, answer: 0 };
    const share = { whole: 1 - micro, pick: (micro * 2) / 3, answer: micro / 3 };
    while (read < until) {
      if (read >= renaming.from * tokens && recalled < renaming.recall * (read - renaming.from * tokens)) {
        const document = recallDocument(tokenizer, hash2(hash2(seed, 4), recalled));
        recalled += document.ids.length;
        add(document);
        continue;
      }
      const names = (["whole", "pick", "answer"] as const).filter((name) => share[name] > 0);
      const next = names.reduce((a, b) => (given[b] / share[b] < given[a] / share[a] ? b : a));
      const { value } = from[next].next();
      if (value === undefined) break;
      const document = drawn(value, n++);
      // Counted even where it is left out, so that a list of nothing but long documents comes to an end.
      given[next] += document.ids.length;
      if (document.ids.length <= cutoff) add(document);
      else if (++skipped > lessons.length * 10) break;
    }
  }
  return documents;
}
