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
import { around, type DrillKind, drillKinds, drills, type Lesson } from "./drills.ts";
import { lettersOf, RARE, rareWords, renamed, THOROUGHLY } from "./renaming.ts";

export interface Curriculum {
  /** Tokens in all, and shares of them. */
  tokens: number;
  copying: number;
  singles: number;
  /** How the tokens after the copying are shared out, in any unit: whole conversations, and each kind of micro-episode. */
  mix: Readonly<Record<"whole" | DrillKind, number>>;
  /** Longer documents are left out. */
  cutoff: number;
  /**
   * From this share of the tokens on, this share of the documents is renamed, half of them thoroughly, and this share of the tokens are
   * documents of random lines to recall.
   */
  renaming: { from: number; share: number; recall: number };
  seed: number;
}

/** Share of rare words that are exchanged in a document that is renamed lightly; thoroughly is renaming.ts's. */
const LIGHTLY = 0.5;

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

/** The documents in the order in which they are read. A pure function of its arguments. */
export function curriculum(lessons: readonly Lesson[], tokenizer: Tokenizer, options: Curriculum): Document[] {
  const { tokens, copying, singles, mix, cutoff, renaming, seed } = options;
  const known = new WeakMap<readonly Message[], Document>();
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
  const names = (["whole", ...drillKinds] as const).filter((name) => mix[name] > 0);
  const sources = (list: readonly Lesson[], salt: number) => {
    const whole = list.map((lesson) => lesson.messages);
    return names.map((name, i) => ({
      name,
      documents: name === "whole" ? around(whole, hash2(seed, salt)) : drills(name, list, hash2(seed, salt + i)),
      given: 0,
    }));
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
    while (read < until) {
      if (read >= renaming.from * tokens && recalled < renaming.recall * (read - renaming.from * tokens)) {
        const document = recallDocument(tokenizer, hash2(hash2(seed, 4), recalled));
        recalled += document.ids.length;
        add(document);
        continue;
      }
      const next = from.reduce((a, b) => (b.given / mix[b.name] < a.given / mix[a.name] ? b : a));
      if (next.given === Number.POSITIVE_INFINITY) break;
      const { value } = next.documents.next();
      if (value === undefined) {
        next.given = Number.POSITIVE_INFINITY;
        continue;
      }
      const document = drawn(value, n++);
      // Counted even where it is left out, so that a list of nothing but long documents comes to an end.
      next.given += document.ids.length;
      if (document.ids.length <= cutoff) add(document);
      else if (++skipped > lessons.length * 10) break;
    }
  }
  return documents;
}
