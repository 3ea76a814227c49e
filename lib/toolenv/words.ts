/** Words in identifiers: splitting, singular and plural, and names that a person would say. */

const SPLIT = /[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+/g;
const splitCache = new Map<string, string[]>();

/** Lower-case words of an identifier: `projectId`, `project_id`, `Project-ID` all give ["project", "id"]. */
export function splitWords(identifier: string): string[] {
  const known = splitCache.get(identifier);
  if (known) return known;
  const words = (identifier.match(SPLIT) ?? []).map((w) => w.toLowerCase());
  if (splitCache.size > 200_000) splitCache.clear();
  splitCache.set(identifier, words);
  return words;
}

/** Comparable form of a field name: lower-case letters and digits only. */
export function normal(identifier: string): string {
  let known = normalCache.get(identifier);
  if (known === undefined) {
    known = identifier.toLowerCase().replace(/[^a-z0-9]/g, "");
    if (normalCache.size > 100_000) normalCache.clear();
    normalCache.set(identifier, known);
  }
  return known;
}
const normalCache = new Map<string, string>();

const IRREGULAR: Record<string, string> = {
  people: "person",
  children: "child",
  statuses: "status",
  addresses: "address",
  aliases: "alias",
  buses: "bus",
  analyses: "analysis",
  indices: "index",
  indexes: "index",
  matrices: "matrix",
  criteria: "criterion",
  media: "media",
  data: "data",
  series: "series",
  news: "news",
  movies: "movie",
  cookies: "cookie",
  calories: "calorie",
  caches: "cache",
  databases: "database",
  licenses: "license",
  responses: "response",
  expenses: "expense",
  warehouses: "warehouse",
  purchases: "purchase",
  houses: "house",
  causes: "cause",
  leases: "lease",
  releases: "release",
  cases: "case",
  courses: "course",
  phases: "phase",
  bases: "base",
  images: "image",
  pulses: "pulse",
  analytics: "analytics",
  sms: "sms",
  alias: "alias",
  apis: "api",
  canvas: "canvas",
  bias: "bias",
  atlas: "atlas",
  gas: "gas",
  lens: "lens",
  vps: "vps",
  gps: "gps",
  dns: "dns",
  https: "https",
  aws: "aws",
};
const PLURALS: Record<string, string> = {
  person: "people",
  child: "children",
  index: "indexes",
  criterion: "criteria",
  analysis: "analyses",
  matrix: "matrices",
};
const UNCOUNTED = new Set([
  "media",
  "data",
  "series",
  "news",
  "analytics",
  "sms",
  "dns",
  "information",
  "info",
  "metadata",
  "software",
  "content",
  "history",
]);

export function isPlural(word: string): boolean {
  return word in IRREGULAR ? IRREGULAR[word] !== word : /[a-z]{2}s$/.test(word) && !/(ss|us|is|ics|ous)$/.test(word);
}

export function singular(word: string): string {
  let known = singularCache.get(word);
  if (known === undefined) {
    known = findSingular(word);
    if (singularCache.size > 100_000) singularCache.clear();
    singularCache.set(word, known);
  }
  return known;
}
const singularCache = new Map<string, string>();
function findSingular(word: string): string {
  const irregular = Object.hasOwn(IRREGULAR, word) ? IRREGULAR[word] : undefined;
  if (irregular !== undefined) return irregular;
  if (!isPlural(word)) return word;
  if (/ies$/.test(word) && word.length > 4) return `${word.slice(0, -3)}y`;
  if (/(ss|sh|ch|x|zz)es$/.test(word)) return word.slice(0, -2);
  return word.slice(0, -1);
}

export function plural(word: string): string {
  if (UNCOUNTED.has(word) || isPlural(word)) return word;
  const known = Object.hasOwn(PLURALS, word) ? PLURALS[word] : undefined;
  if (known) return known;
  if (/[^aeiou]y$/.test(word)) return `${word.slice(0, -1)}ies`;
  if (/(s|x|z|sh|ch)$/.test(word)) return `${word}es`;
  return `${word}s`;
}

/** Plural of a phrase: the last word changes. */
export function pluralPhrase(phrase: string): string {
  const words = phrase.split(" ");
  words.push(plural(words.pop() ?? ""));
  return words.join(" ");
}

const ACRONYMS = new Set(
  "id url uri ip api sms dns vat iban bic cpu gpu ram vm vpc ssl tls http https sku isbn ean upc pdf csv xml html json sim ssh ssid mac sql os ui gps pin faq crm sdk cdn rss iot kpi hr it utc uuid iso acl ttl".split(
    " ",
  ),
);

/** An identifier as a person would write it: "vat number" → "VAT number". */
export function humanise(identifier: string): string {
  return splitWords(identifier)
    .map((w) => (ACRONYMS.has(w) ? (w === "id" ? "ID" : w.toUpperCase()) : w === "ids" ? "IDs" : w))
    .join(" ");
}

export function withArticle(phrase: string): string {
  const silent = /^(u(ni|s[aei]|rl|ri|tc|uid|i\b)|one|eu)/i.test(phrase);
  const letters = /^(an? )/i.test(phrase);
  if (letters) return phrase;
  const spoken = /^(SMS|SKU|HTML|HTTP|SSL|SSH|XML|SQL|SDK|FAQ|HR|RSS|VM|VPC|IP|API|ID|ISBN|EAN|IBAN|OS|UPC)\b/.exec(
    phrase,
  )?.[1];
  if (spoken) return `${/^(VM|VPC|UPC)$/.test(spoken) ? (spoken === "UPC" ? "a" : "a") : "an"} ${phrase}`;
  return `${/^[aeiou]/i.test(phrase) && !silent ? "an" : "a"} ${phrase}`;
}

/** "a, b and c". */
export function listed(items: readonly string[], word = "and"): string {
  if (items.length < 2) return items[0] ?? "";
  return `${items.slice(0, -1).join(", ")} ${word} ${items.at(-1)}`;
}

export function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
