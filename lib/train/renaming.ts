/**
 * Consistent renaming: in a copy of a conversation rare words are exchanged for made-up ones, the same everywhere in it. What stands where is what
 * it was, but a name can no longer be known from other conversations: it has to be read. Small models otherwise remember the providers that they
 * were trained on, and cannot write tokens that they have hardly met.
 */
import { hash2 } from "../engine/random.ts";
import type { Tokenizer } from "../model/types.ts";
import type { Message } from "../paraact/types.ts";

/** Words of identifiers and of prose alike: "projectIds" is "project" and "Ids". */
const WORDS = /[A-Z]?[a-z]+|[A-Z]+(?![a-z])/g;
const SHORTEST = 3;

/** A word in fewer of the texts than this is rare. */
export const RARE = 0.03;
/** Share of rare words that are exchanged where renaming is thorough. */
export const THOROUGHLY = 0.95;

/** The tokens of a vocabulary that are letters only, in lower case. */
export function lettersOf(tokenizer: Tokenizer): string[] {
  const special = new Set(tokenizer.specials.values());
  const texts = Array.from({ length: tokenizer.vocabSize }, (_, id) => (special.has(id) ? "" : tokenizer.decode([id])));
  return [...new Set(texts.filter((text) => /^[A-Za-z]{2,}$/.test(text)).map((text) => text.toLowerCase()))].sort();
}

/** A word in lower case and without the s of its plural. */
function stem(word: string): string {
  const lower = word.toLowerCase();
  return lower.length > SHORTEST && lower.endsWith("s") && !lower.endsWith("ss") ? lower.slice(0, -1) : lower;
}

function stemsIn(texts: Iterable<string>): Set<string> {
  const found = new Set<string>();
  for (const text of texts)
    for (const [word] of text.matchAll(WORDS)) if (word.length >= SHORTEST) found.add(stem(word));
  return found;
}

const stemsOf = (messages: readonly Message[]): Set<string> => stemsIn(messages.map((message) => message.content));

/** A word in fewer conversations than this is most likely a piece of an identifier. */
const OFTEN_ENOUGH = 3;

/** The words that may be exchanged: those in fewer than `share` of the conversations. The protocol's own are in all. */
export function rareWords(conversations: readonly (readonly Message[])[], share: number): string[] {
  return rareAmong(conversations.map(stemsOf), share);
}

function rareAmong(documents: readonly ReadonlySet<string>[], share: number): string[] {
  const count = new Map<string, number>();
  for (const stems of documents) for (const word of stems) count.set(word, (count.get(word) ?? 0) + 1);
  return [...count].flatMap(([word, n]) => (n >= OFTEN_ENOUGH && n < share * documents.length ? [word] : [])).sort();
}

/** `word` in the shape of `like`: its case and its plural. */
function shaped(word: string, like: string): string {
  const whole = stem(like) === like.toLowerCase() ? word : `${word}s`;
  if (like === like.toUpperCase()) return whole.toUpperCase();
  return like.charAt(0) === like.charAt(0).toUpperCase() ? whole.charAt(0).toUpperCase() + whole.slice(1) : whole;
}

/** A text whose words are exchanged for what `of` gives for a stem and where it stands, where it gives any. */
function exchanged(text: string, of: (stem: string, from: number, to: number) => string | undefined): string {
  return text.replace(WORDS, (word, at: number) => {
    const name = word.length < SHORTEST ? undefined : of(stem(word), at, at + word.length);
    return name === undefined || name === stem(word) ? word : shaped(name, word);
  });
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
    content: exchanged(message.content, (word) => names.get(word)),
  }));
}

/** What a Naming exchanges, makes new words of, and must not hit. */
export interface NamingWords {
  rare: ReadonlySet<string>;
  pieces: readonly string[];
  known: ReadonlySet<string>;
}

/** Of texts. The words of `reserved` become no word's new name either. */
export function namingWords(
  texts: readonly string[],
  pieces: readonly string[],
  rare = RARE,
  reserved: readonly string[] = [],
): NamingWords {
  const stems = texts.map((text) => stemsIn([text]));
  const known = new Set([...stems.flatMap((own) => [...own]), ...stemsIn(reserved)]);
  return { rare: new Set(rareAmong(stems, rare)), pieces, known };
}

/**
 * Exchanges rare words one to one, each with probability `share`, and back, for texts that come one after another. Words that touch a digit are
 * left: they are pieces of identifiers.
 */
export class Naming {
  readonly #words: NamingWords;
  readonly #share: number;
  readonly #seed: number;
  readonly #new = new Map<string, string>();
  readonly #old = new Map<string, string>();

  constructor(words: NamingWords, share: number, seed: number) {
    this.#words = words;
    this.#share = share;
    this.#seed = seed;
  }

  to(text: string): string {
    return exchanged(text, (word, from, to) => (touchesDigit(text, from, to) ? undefined : this.#newOf(word)));
  }

  /** The inverse of `to`; words that it never gave stay. */
  back(text: string): string {
    return exchanged(text, (word, from, to) => (touchesDigit(text, from, to) ? undefined : this.#old.get(word)));
  }

  #newOf(word: string): string | undefined {
    if (!this.#words.rare.has(word)) return undefined;
    const known = this.#new.get(word);
    if (known !== undefined) return known;
    const own = hash2(this.#seed, hashOf(word));
    let name = word;
    if (own / 2 ** 32 < this.#share) {
      // Each failure makes the word longer, so that it ends however few the pieces are.
      for (let n = 0, before = ""; ; n++, before = name) {
        name = before + madeUp(this.#words.pieces, hash2(own, n));
        // A new word that was there before, or that reads as a plural, could not be told on the way back.
        if (!this.#old.has(name) && !this.#words.known.has(name) && stem(name) === name) break;
      }
    }
    this.#new.set(word, name);
    this.#old.set(name, word);
    return name;
  }
}

const touchesDigit = (text: string, from: number, to: number): boolean =>
  /[0-9]/.test(text.charAt(from - 1) + text.charAt(to));

const hashOf = (word: string): number => [...word].reduce((hash, c) => hash2(hash, c.charCodeAt(0)), 0);
