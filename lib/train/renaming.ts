/**
 * Consistent renaming: in a copy of a conversation rare words are exchanged for made-up ones, the same everywhere in it. What stands where is what
 * it was, but a name can no longer be known from other conversations: it has to be read. Small models otherwise remember the providers that they
 * were trained on, and cannot write tokens that they have hardly met.
 */
import { hash2 } from "../engine/random.ts";
import type { Message } from "../paraact/types.ts";

/** Words of identifiers and of prose alike: "projectIds" is "project" and "Ids". */
const WORDS = /[A-Z]?[a-z]+|[A-Z]+(?![a-z])/g;
const SHORTEST = 3;

/** A word in lower case and without the s of its plural. */
function stem(word: string): string {
  const lower = word.toLowerCase();
  return lower.length > SHORTEST && lower.endsWith("s") && !lower.endsWith("ss") ? lower.slice(0, -1) : lower;
}

function stemsOf(messages: readonly Message[]): Set<string> {
  const found = new Set<string>();
  for (const { content } of messages)
    for (const [word] of content.matchAll(WORDS)) if (word.length >= SHORTEST) found.add(stem(word));
  return found;
}

/** A word in fewer conversations than this is most likely a piece of an identifier. */
const OFTEN_ENOUGH = 3;

/** The words that may be exchanged: those in fewer than `share` of the conversations. The protocol's own are in all. */
export function rareWords(conversations: readonly (readonly Message[])[], share: number): string[] {
  const count = new Map<string, number>();
  for (const messages of conversations)
    for (const word of stemsOf(messages)) count.set(word, (count.get(word) ?? 0) + 1);
  return [...count]
    .flatMap(([word, n]) => (n >= OFTEN_ENOUGH && n < share * conversations.length ? [word] : []))
    .sort();
}

/** `word` in the shape of `like`: its case and its plural. */
function shaped(word: string, like: string): string {
  const whole = stem(like) === like.toLowerCase() ? word : `${word}s`;
  if (like === like.toUpperCase()) return whole.toUpperCase();
  return like.charAt(0) === like.charAt(0).toUpperCase() ? whole.charAt(0).toUpperCase() + whole.slice(1) : whole;
}

/** A made-up word of one or two pieces. */
function madeUp(pieces: readonly string[], seed: number): string {
  const piece = (n: number) => pieces[hash2(seed, n) % pieces.length]!;
  const one = piece(1);
  return one.length < SHORTEST || hash2(seed, 0) % 2 === 0 ? one + piece(2) : one;
}

/** A copy in which each rare word is exchanged with probability `share` for a word made of `pieces`. A pure function of its arguments. */
export function renamed(
  messages: readonly Message[],
  rare: { words: ReadonlySet<string>; pieces: readonly string[] },
  share: number,
  seed: number,
): Message[] {
  const names = new Map<string, string>();
  for (const word of [...stemsOf(messages)].sort()) {
    if (!rare.words.has(word)) continue;
    const own = hash2(seed, names.size);
    names.set(word, own / 2 ** 32 < share ? madeUp(rare.pieces, own) : word);
  }
  return messages.map((message) => ({
    ...message,
    content: message.content.replace(WORDS, (word) => {
      const name = word.length < SHORTEST ? undefined : names.get(stem(word));
      return name === undefined || name === stem(word) ? word : shaped(name, word);
    }),
  }));
}
