/**
 * Consistent renaming: in a copy of a conversation rare words are exchanged for others, the same everywhere in it. What stands where is what it
 * was, but a name can no longer be known from other conversations: it has to be read. Small models otherwise remember the providers they
 * were trained on and cannot copy the names of new ones.
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

/** The words that may be exchanged, and that others are exchanged for: those in fewer than `share` of the conversations. The protocol's own are in all. */
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

/** A copy in which each rare word is exchanged with probability `share`. A pure function of its arguments. */
export function renamed(
  messages: readonly Message[],
  rare: { list: readonly string[]; set: ReadonlySet<string> },
  share: number,
  seed: number,
): Message[] {
  const names = new Map<string, string>();
  for (const word of [...stemsOf(messages)].sort()) {
    if (!rare.set.has(word)) continue;
    const draw = hash2(seed, names.size * 2);
    const drawn = rare.list[hash2(seed, names.size * 2 + 1) % rare.list.length]!;
    names.set(word, draw / 2 ** 32 < share ? drawn : word);
  }
  return messages.map((message) => ({
    ...message,
    content: message.content.replace(WORDS, (word) => {
      const name = word.length < SHORTEST ? undefined : names.get(stem(word));
      return name === undefined || name === stem(word) ? word : shaped(name, word);
    }),
  }));
}
