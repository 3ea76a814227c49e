/** Words of tools and queries for lexical search. */

/** Function words that carry no meaning in a search for a tool. */
export const STOP_WORDS: ReadonlySet<string> = new Set(
  (
    "a an and are as at be been but by can could did do does for from had has have he her hers him his how i if in into is it its just let like may me might " +
    "more most must my no nor not of on or our ours out please she should so some such than that the their theirs them then there these they this those " +
    "to too us very was we were what when where which while who whom why will with would you your yours am also about any all both each other only own same s t re ll ve d m"
  ).split(" "),
);

const WORD = /[\p{L}\p{N}]+/gu;

/**
 * A light English stemmer: plurals, -ing, -ed, -ly and doubled consonants, for words of ASCII letters. It only has to give the forms of one
 * word one spelling; it need not give a word.
 */
export function stem(word: string): string {
  let w = word;
  if (w.length < 4 || !/^[a-z]+$/.test(w)) return w;
  if (w.endsWith("ies") && w.length > 4) w = `${w.slice(0, -3)}y`;
  else if (/(?:ss|x|ch|sh|zz)es$/.test(w)) w = w.slice(0, -2);
  else if (w.endsWith("s") && !/(?:ss|us|is)$/.test(w)) w = w.slice(0, -1);
  const ending = w.endsWith("ing") && w.length > 5 ? 3 : w.endsWith("ed") && w.length > 4 ? 2 : 0;
  if (ending > 0 && /[aeiouy]/.test(w.slice(0, -ending))) {
    w = w.slice(0, -ending);
    if (/([bdfgmnprt])\1$/.test(w)) w = w.slice(0, -1);
  }
  if (w.endsWith("ly") && w.length > 5) w = w.slice(0, -2);
  if (w.endsWith("ll") && w.length > 5) w = w.slice(0, -1);
  if (w.endsWith("e") && w.length > 4) w = w.slice(0, -1);
  return w;
}

/** Words of a text, in order, with repeats: camel case parted, lower case, accents kept, stop words dropped. Any script. */
export function words(text: string): string[] {
  const out: string[] = [];
  const parted = text.replace(/([\p{Ll}\p{N}])(\p{Lu})/gu, "$1 $2").replace(/['’](?=\p{L})/gu, " ");
  for (const word of parted.toLowerCase().match(WORD) ?? []) {
    if (!STOP_WORDS.has(word) && word.length <= 40) out.push(word);
  }
  return out;
}

/** Stems of words seen before: a catalogue says the same 50,000 words millions of times. */
const stems = new Map<string, string>();

/** stem(), remembered. */
export function stemOf(word: string): string {
  let known = stems.get(word);
  if (known === undefined) {
    if (stems.size >= 200_000) stems.clear();
    known = stem(word);
    stems.set(word, known);
  }
  return known;
}

/** Stems of a text's words. */
export function tokens(text: string): string[] {
  return words(text).map(stemOf);
}
