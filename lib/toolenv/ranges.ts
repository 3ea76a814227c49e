/** Date ranges among the parameters of a list: which of them bound which date of the items, and whether a date is within. */
import type { Json, JsonSchema, Tool } from "../catalog/types.ts";
import { fieldClass } from "./fields.ts";
import { normal, splitWords } from "./words.ts";

/** One bound. `field`: normal name of the date that the items show. `open`: a moment equal to the bound is outside. */
export interface Bound {
  field: string;
  side: "from" | "to";
  open: boolean;
}

const FROM = /^(from|since|after|start|starts|starting|begin|beginning|min|gt|gte|newer|earliest|>)$/;
const TO = /^(to|until|till|before|end|ends|ending|max|lt|lte|older|latest|through|<)$/;
/** Words that bound something only beside their counterpart: alone they are values or speak of pages. */
const PAIRED = /^(start|starts|starting|begin|beginning|min|earliest|end|ends|ending|max|latest)$/;
const OPEN = /^(after|before|gt|lt|newer|older)$/;
const TIME_WORDS = /^(at|on|date|dates|time|datetime|timestamp|utc|day|last|than|or|equal)$/;
const SAYS_DATE = /\bdates?\b|\btime(stamp)?\b|ISO.?8601|RFC.?3339|\b(unix|epoch)\b/i;
const SAYS_PAGE = /\b(index|offset|page|cursor|position|token)\b/i;

const root = (word: string) =>
  word.replace(/(ification|ation|ion|ied|ed|es|ing|e|s|y)$/, "").replace(/^(updat|chang|edit)$/, "modif");
/** What a date is of, by its words: "created_at", "creationDate" and "create time" are all "creat". "" is the date as such. */
const subjectOf = (words: readonly string[]) =>
  words
    .filter((w) => !TIME_WORDS.test(w))
    .map(root)
    .join(" ");

/** Words of a parameter; signs that compare, and words written together ("createdateFrom", "DateSent>"), come apart. */
const wordsOf = (param: string): string[] => [
  ...splitWords(param).flatMap((w) => /^(from|to|start|end|create|change|update)(date|time)$/.exec(w)?.slice(1) ?? [w]),
  ...(/[<>]$/.exec(param) ?? []),
];

interface Marked {
  mark: string;
  side: "from" | "to";
  subject: string;
}
function marked(param: string): Marked | null {
  const words = wordsOf(param);
  const i = words.findIndex((w) => FROM.test(w) || TO.test(w));
  const mark = words[i];
  if (mark === undefined) return null;
  return {
    mark,
    side: FROM.test(mark) ? "from" : "to",
    subject: subjectOf(words.filter((w, j) => j !== i && !FROM.test(w) && !TO.test(w))),
  };
}

/** The bounds among a list's parameters, by parameter. `shown`: the members that its items show. */
export function boundsOf(tool: Tool, shown: readonly (readonly [string, JsonSchema])[]): ReadonlyMap<string, Bound> {
  const out = new Map<string, Bound>();
  const dates = shown.flatMap(([name, schema]) =>
    /^date(time)?$/.test(fieldClass(name, schema))
      ? [{ field: normal(name), subject: subjectOf(splitWords(name)) }]
      : [],
  );
  if (!dates.length) return out;
  const all = Object.entries(tool.parameters.properties).map(([param, schema]) => ({
    param,
    schema,
    m: marked(param),
  }));
  for (const { param, schema, m } of all) {
    if (!m || tool.places[param] === "path" || tool.places[param] === "header") continue;
    if (schema.type !== "string" && schema.type !== "integer" && schema.type !== "number") continue;
    const about = schema.description ?? "";
    const isDate = /^date(time)?$/.test(fieldClass(param, schema));
    if (SAYS_PAGE.test(about) || !(isDate || (!PAIRED.test(m.mark) && SAYS_DATE.test(about)))) continue;
    if (PAIRED.test(m.mark) && !all.some((o) => o.m && o.m.side !== m.side && o.m.subject === m.subject)) continue;
    const of = (subject: string) => dates.find((d) => d.subject === subject);
    const told = new Set(splitWords(about.replace(/[^A-Za-z]+/g, " ")).map(root));
    const hit = m.subject
      ? of(m.subject)
      : (of(root(m.mark)) ??
        dates.find((d) => d.subject !== "" && d.subject.split(" ").every((w) => told.has(w))) ??
        of("") ??
        (PAIRED.test(m.mark) ? undefined : of("creat")) ??
        (dates.length === 1 ? dates[0] : undefined));
    if (hit) out.set(param, { field: hit.field, side: m.side, open: OPEN.test(m.mark) });
  }
  return out;
}

const DAY = 86_400_000;
/** A moment in milliseconds since 1970, and whether only its day is given: ISO 8601, YYYYMMDD, or seconds or milliseconds. */
function moment(value: Json): { ms: number; day: boolean } | null {
  if (typeof value === "number") return value > 1e8 ? { ms: value > 1e11 ? value : value * 1000, day: false } : null;
  if (typeof value !== "string") return null;
  if (/^\d{9,13}$/.test(value)) return moment(Number(value));
  const iso = /^(\d{4})-?(\d{2})-?(\d{2})(?:[T ](\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?) ?(Z|[+-]\d{2}:?\d{2})?)?$/.exec(
    value,
  );
  if (!iso) return null;
  const ms = Date.parse(`${iso[1]}-${iso[2]}-${iso[3]}T${iso[4] ?? "00:00"}${iso[5] ?? "Z"}`);
  return Number.isNaN(ms) ? null : { ms, day: iso[4] === undefined };
}

/** Whether a date meets a bound's value. A day as the upper bound counts in full. A bound that is no moment bounds nothing. */
export function within(date: Json, limit: Json, bound: Bound): boolean {
  const b = moment(limit);
  if (!b) return true;
  const d = moment(date);
  if (!d) return false;
  if (bound.side === "from") return bound.open ? d.ms > b.ms : d.ms >= b.ms;
  return bound.open ? d.ms < b.ms : d.ms < b.ms + (b.day ? DAY : 1);
}
