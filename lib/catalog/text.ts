/** Plain text out of the HTML and Markdown that interface authors write. */
import { scrubText } from "./scrub.ts";

const ENTITIES: Record<string, string> = {
  amp: "&",
  lt: "<",
  gt: ">",
  quot: '"',
  apos: "'",
  nbsp: " ",
  ndash: "–",
  mdash: "—",
  hellip: "…",
  rsquo: "'",
  lsquo: "'",
  rdquo: '"',
  ldquo: '"',
  trade: "",
  reg: "",
  copy: "",
  bull: " ",
};

function entity(whole: string, body: string): string {
  if (body.startsWith("#")) {
    const code =
      body[1] === "x" || body[1] === "X" ? Number.parseInt(body.slice(2), 16) : Number.parseInt(body.slice(1), 10);
    return Number.isInteger(code) && code >= 32 && code <= 0x10ffff ? String.fromCodePoint(code) : " ";
  }
  return Object.hasOwn(ENTITIES, body.toLowerCase()) ? ENTITIES[body.toLowerCase()]! : whole;
}

const PLAIN = /[<&*_`[\]#|\\~\n\r\t{]|https?:|- {0,3}\S| {2}/;

/**
 * One paragraph of plain text: HTML tags, Markdown marks, links, images, code fences, tables and bare URLs are gone, entities are
 * decoded, white space is folded, and strings shaped like secrets are removed. Not clipped.
 */
export function plainText(raw: string): string {
  if (!PLAIN.test(raw)) return scrubText(raw.trim());
  let s = raw;
  if (s.includes("```")) s = s.replace(/```[\s\S]*?(?:```|$)/g, " ");
  if (s.includes("<")) {
    s = s.replace(/<!--[\s\S]*?(?:-->|$)/g, " ").replace(/<(script|style|table|pre)\b[\s\S]*?(?:<\/\1>|$)/gi, " ");
    s = s.replace(/<\/(?:p|h\d|div|li|dt|dd|title)>/gi, "\n").replace(/<(?:br|hr|li)\b[^<>]{0,200}>/gi, "\n");
    s = s.replace(/<\/?[A-Za-z][^<>]{0,2000}>/g, "");
  }
  if (s.includes("&")) s = s.replace(/&(#?\w{1,8});/g, entity).replace(/<\/?[a-z][^<>]{0,200}>/gi, "");
  if (s.includes("[")) {
    s = s.replace(/!\[[^\]]{0,300}\]\([^)\s]{0,2000}[^)]{0,200}\)/g, " ");
    s = s
      .replace(/\[([^\][]{1,300})\]\(\s*(?:[^()\s]|\([^()\s]{0,200}\)){0,1000}[^)]{0,300}\)/g, "$1")
      .replace(/\[([^\][]{1,300})\]\[[^\][]{0,100}\]/g, "$1");
  }
  s = s.replace(/\(?<?\bhttps?:\/\/[^\s)>\]"']+>?\)?/g, " ");
  s = s.replace(/^\s*\|.*\|\s*$/gm, " ").replace(/^[\s|:-]{5,}$/gm, " ");
  s = s.replace(/^\s*(?:#{1,6}|>+|[-*+•])\s+/gm, "").replace(/\s#{1,6}\s+/g, " ");
  s = s.replace(/`+([^`]{0,300})`+/g, "$1").replace(/\*{1,3}(?=\S)([^*\n]{1,400}?)(?<=\S)\*{1,3}/g, "$1");
  s = s.replace(/(^|[\s(])_{1,2}([^_\n]{1,300}?)_{1,2}(?=[\s).,;:!?]|$)/gm, "$1$2").replace(/~~([^~]{1,300})~~/g, "$1");
  s = s.replace(/\\([\\`*_{}[\]()#+.!<>|~-])/g, "$1").replace(/\\[nrt]/g, " ");
  // A line that does not end as a sentence does ends where the next begins with a capital.
  if (s.includes("\n")) s = s.replace(/([\p{L}\p{N})"'])[ \t]*(?:\r?\n[ \t]*)+(?=\p{Lu}\p{Ll})/gu, "$1. ");
  s = s
    .replace(/\s+/g, " ")
    .replace(/ ([,;:!?.])(?=\s|$)/g, "$1")
    .replace(/\(\s*\)/g, "")
    .replace(/\.(?: ?\.)+ /g, ". ");
  return scrubText(s.replace(/\s+/g, " ").trim());
}

/** Cuts at the end of a sentence where one ends in the second half of the limit, else after a word and with an ellipsis. */
export function clip(text: string, limit: number): string {
  if (text.length <= limit) return text;
  const head = text.slice(0, limit);
  const sentence = Math.max(head.lastIndexOf(". "), head.lastIndexOf("! "), head.lastIndexOf("? "));
  if (sentence >= limit / 2) return head.slice(0, sentence + 1);
  const word = head.slice(0, limit - 1).lastIndexOf(" ");
  const cut = head.slice(0, word > limit / 2 ? word : limit - 1).replace(/[\s,;:(\-–]+$/, "");
  return `${cut.replace(/[\uD800-\uDBFF]$/, "")}…`;
}

/** Sentences about the documentation, credentials or limits of an interface, and those whose end was a link. */
const BOILERPLATE = new RegExp(
  [
    "^(?:for (?:more|further|additional|detailed|complete|full) |see |please (?:see|refer|visit|read|check)|refer to |to learn |learn more|read more|more (?:info|details?)\\b|" +
      "check (?:out|the doc)|documentation|tutorials? |change ?log|examples?\\b.{0,40}$|(?:request|response|usage|sample) (?:example|body|query)|" +
      "(?:required |o?auth2? |access )?(?:scopes?|permissions?|roles?)\\b.{0,30}[:-]|required (?:scopes?|permissions?|roles?)|permissions? required|supported integrations|" +
      "(?:authentication|authori[sz]ation)(?: (?:is )?required)?\\b.{0,40}$|rate limit|notes?[.:]?$|curl |(?:get|post|put|patch|delete) /)",
    "\\b(?:api credential|authori[sz]ation header|bearer|access token|api[ -]key|oauth2? scopes?|rate limit(?:ed|s|ing)?)\\b",
    "\\b(?:see|visit|refer to|check out|documented|described|found|available|click) ?(?:here|in|at|on|by)?(?: the)? ?[.:]?$",
  ].join("|"),
  "i",
);

/** The text without its boilerplate sentences; as it is where nothing but boilerplate is left. */
function withoutBoilerplate(text: string): string {
  if (!/[.!?] /.test(text)) return text;
  const kept = text.split(/(?<=[.!?]["')]?) +(?=[\p{Lu}"'(\d])/u).filter((sentence) => !BOILERPLATE.test(sentence));
  const out = kept.join(" ");
  return out.length >= 15 ? out : text;
}

/** Texts cleaned last, by limit and raw text: interfaces repeat their parameters' descriptions hundreds of times. */
const recent = new Map<string, string>();

/** Plain text of at most `limit` characters; "" for anything that is not a string. Reads only the head of giant texts. */
export function cleanText(raw: unknown, limit: number): string {
  if (typeof raw !== "string" || raw === "") return "";
  const head = raw.length > limit * 8 + 2000 ? raw.slice(0, limit * 8 + 2000) : raw;
  const key = `${limit} ${head}`;
  const known = recent.get(key);
  if (known !== undefined) return known;
  const text = clip(withoutBoilerplate(plainText(head)), limit);
  if (recent.size >= 4000) recent.clear();
  recent.set(key, text);
  return text;
}

/** Letters and digits only, lower case: for "says the same" comparisons. */
export function squash(text: string): string {
  return text.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "");
}

/**
 * A tool's description from a summary and a longer text, at most `limit` characters: the summary as first sentence where the text does
 * not already begin with it or say it.
 */
export function describe(summaryRaw: unknown, detailRaw: unknown, limit: number): string {
  const summary = cleanText(summaryRaw, limit);
  const detail = cleanText(detailRaw, limit);
  if (detail === "") return summary;
  if (summary === "") return detail;
  const s = squash(summary);
  const d = squash(detail);
  if (s === "" || d.startsWith(s)) return detail;
  if (d === "" || s.includes(d)) return summary;
  // A summary without a space is an identifier, one that the text says in its first sentence adds nothing.
  if (!summary.includes(" ") && detail.includes(" ")) return detail;
  const words = (text: string) => text.toLowerCase().match(/[\p{L}\p{N}]{3,}/gu) ?? [];
  const first = new Set(words(detail.split(/[.!?] /, 1)[0]!));
  const said = words(summary);
  if (said.filter((w) => first.has(w)).length >= 0.75 * said.length) return detail;
  return clip(`${/[.!?…]$/.test(summary) ? summary : `${summary}.`} ${detail}`, limit);
}
