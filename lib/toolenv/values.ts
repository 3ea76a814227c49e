/** Plausible values for fields, from enum, example, format, pattern, bounds, and what the name says. */
import type { Json, JsonSchema } from "../catalog/types.ts";
import { hash2 } from "../engine/random.ts";
import { type FieldClass, fieldClass, formatClass } from "./fields.ts";
import { hashText, KEY, key, Rng } from "./hash.ts";
import { samplePattern } from "./pattern.ts";
import { COLORS, DEPARTMENTS, Persona } from "./persona.ts";
import { fits, hasType, isFree } from "./schema.ts";
import { splitWords } from "./words.ts";

const BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz";
const HEX = "0123456789abcdef";
const draw = (rng: Rng, alphabet: string, n: number) => {
  let out = "";
  for (let i = 0; i < n; i++) out += alphabet[rng.int(0, alphabet.length - 1)];
  return out;
};

export function uuid(rng: Rng): string {
  return `${draw(rng, HEX, 8)}-${draw(rng, HEX, 4)}-4${draw(rng, HEX, 3)}-${draw(rng, "89ab", 1)}${draw(rng, HEX, 3)}-${draw(rng, HEX, 12)}`;
}

/** Whether a text looks like a code rather than words: it has a digit, and no white space. */
const isCode = (text: string) => /\d/.test(text) && !/[\s\\]/.test(text) && text.length <= 48 && !/^https?:/.test(text);

/** A text of the same shape: digits become digits; letters of a code become letters of the same case. */
function reshape(example: string, rng: Rng): string {
  const hex = /^[0-9a-f-]{8,}$/.test(example) ? HEX : null;
  return example.replace(/[0-9]+|[a-z]|[A-Z]/g, (part, at: number) => {
    if (hex) return draw(rng, hex, part.length);
    if (/\d/.test(part))
      return part.length === 1
        ? draw(rng, "123456789", 1)
        : draw(rng, "123456789", 1) + draw(rng, "0123456789", part.length - 1);
    // A short leading prefix ("cus_", "PO-") is part of the format.
    if (/^[A-Za-z]{1,6}[_-]/.test(example) && at < example.search(/[_-]/)) return part;
    return part === part.toLowerCase()
      ? draw(rng, "abcdefghijkmnpqrstuvwxyz", 1)
      : draw(rng, "ABCDEFGHJKLMNPQRSTUVWXYZ", 1);
  });
}

const SEMANTIC = new Set<FieldClass>(
  "email phone first_name last_name person username company job street city region postcode country country_code currency timezone language locale url image_url ip mac hostname color version date datetime time duration".split(
    " ",
  ) as FieldClass[],
);

/** Type names whose `name` is a person's, a company's, a product's, or a machine's. */
const PERSON =
  /\b(user|customer|client|contact|employee|member|person|people|owner|author|agent|patient|driver|guest|candidate|student|teacher|recipient|subscriber|admin|attendee|lead|tester|participant|player|worker|assignee|manager|collaborator|follower|signer|donor|friend|voter)\b/;
const COMPANY =
  /\b(company|organi[sz]ation|vendor|supplier|merchant|tenant|brand|business|partner|account|employer|bank|store|shop|provider|publisher|carrier|org|creditor|legal entity|counterparty|institution|agency|manufacturer)\b/;
const PRODUCT = /\b(product|item|variant|article|good|sku|listing|offer)\b/;
const MACHINE =
  /\b(server|cluster|instance|vm|machine|queue|bucket|database|db|node|pool|host|network|subnet|volume|disk|container|function|gateway|firewall|registry|repository|repo|deployment|pipeline|stack|topic|stream|endpoint|router|switch|environment|namespace|hub|dataset|load balancer|snapshot|backup|vpc|lambda|image|service|factory|vault|zone|fleet|workgroup)\b/;
const FILE = /\b(file|document|attachment|photo|picture|video|upload|asset|recording|export|report)\b/;

/** A name for an entity of a type, the type in words. */
export function entityName(words: string, p: Persona): string {
  return (NAMERS[nameKind(words)]?.[1] ?? ((x: Persona) => x.proper))(p);
}
/** What kind of name the entities of a type have (a person's, a company's, a machine's …), as a number; -1: a proper name. */
export function nameKind(words: string): number {
  let kind = kinds.get(words);
  if (kind === undefined) {
    // The last word says what it is: a user group is a group. "job title" and the like need both.
    const last = words.split(" ").at(-1) ?? "";
    const type = /^(item|title|entity|balancer|name)$/.test(last) ? words : last;
    kind = NAMERS.findIndex(([r]) => r.test(type));
    if (kinds.size > 20_000) kinds.clear();
    kinds.set(words, kind);
  }
  return kind;
}
type Namer = (p: Persona) => string;
const kinds = new Map<string, number>();
const NAMERS: [RegExp, Namer][] = [
  [PERSON, (p) => p.person],
  [COMPANY, (p) => p.company],
  [PRODUCT, (p) => p.product],
  [/\b(city|town|location|place|venue|office|warehouse|airport|station|stop|district)\b/, (p) => p.place.city],
  [/\b(position|vacancy|posting|job title)\b/, (p) => p.job],
  [/\bcountry\b/, (p) => p.place.country],
  [/\b(recipe|meal|dish|menu item)\b/, (p) => p.work("dish")],
  [/\b(song|track)\b/, (p) => p.work("song")],
  [/\balbum\b/, (p) => p.work("album")],
  [/\b(artist|band)\b/, (p) => p.work("artist")],
  [/\bbook\b/, (p) => p.work("book")],
  [FILE, (p) => `${p.proper.toLowerCase().replace(/ /g, "-")}.${p.rng("ext").pick(["pdf", "docx", "xlsx", "csv"])}`],
  [MACHINE, (p) => p.slug],
];

/** A date or a moment in the form that the schema asks for. */
function moment(name: string, s: JsonSchema, p: Persona, dateOnly: boolean): Json {
  const words = splitWords(name).join(" ");
  const ms = p.moment(words);
  if (s.type === "integer" || s.type === "number") {
    const millis =
      /milli|\bms\b/i.test(`${words} ${s.description ?? ""}`) || (typeof s.example === "number" && s.example > 1e11);
    return millis ? ms : Math.floor(ms / 1000);
  }
  const iso = new Date(ms).toISOString();
  if (s.format === "date" || dateOnly) return iso.slice(0, 10);
  return `${iso.slice(0, 19)}Z`;
}

function text(cls: FieldClass, name: string, s: JsonSchema, type: string, p: Persona, rng: Rng): string | null {
  switch (cls) {
    case "email":
      return p.email;
    case "phone":
      return p.phone;
    case "first_name":
      return p.first;
    case "last_name":
      return p.last;
    case "person":
      return new Persona(key(p.seed, name)).person;
    case "username":
      return p.username;
    case "company":
      return p.company;
    case "job":
      return p.job;
    case "street":
      return p.street;
    case "city":
      return p.place.city;
    case "region":
      return (s.maxLength ?? 9) <= 3 || /two|2.letter|code|abbrev/i.test(s.description ?? "")
        ? p.place.regionCode
        : p.place.region;
    case "postcode":
      return p.postcode;
    case "country":
      return (s.maxLength ?? 9) <= 3 || /\b(code|ISO|alpha-2|two.letter)\b/i.test(s.description ?? "")
        ? p.place.code
        : p.place.country;
    case "country_code":
      return p.place.code;
    case "latitude":
      return String(p.place.lat);
    case "longitude":
      return String(p.place.lon);
    case "currency":
      return p.place.currency;
    case "timezone":
      return p.place.zone;
    case "language":
      return rng.pick(["en", "fr", "de", "es", "pt", "nl", "it"]);
    case "locale":
      return rng.pick(["en-US", "fr-FR", "de-DE", "es-ES", "pt-BR", "nl-NL"]);
    case "url":
      return `https://${p.domain}/${splitWords(type).join("-") || "item"}/${draw(rng, BASE36, 6)}`;
    case "image_url":
      return `https://cdn.${p.domain}/img/${draw(rng, BASE36, 8)}.png`;
    case "ip":
      return s.format === "ipv6" ? `2001:db8::${draw(rng, HEX, 4)}` : `203.0.113.${rng.int(1, 254)}`;
    case "mac":
      return Array.from({ length: 6 }, () => draw(rng, HEX, 2)).join(":");
    case "hostname":
      return `${rng.pick(["www", "app", "mail", "shop"])}.${p.domain}`;
    case "color":
      return /hex|#/i.test(`${name} ${s.description ?? ""}`) ? `#${draw(rng, HEX, 6)}` : rng.pick(COLORS);
    case "version":
      return `${rng.int(1, 9)}.${rng.int(0, 14)}.${rng.int(0, 9)}`;
    case "status":
      return rng.pick(["active", "pending", "completed", "on_hold", "cancelled", "draft"]);
    case "name":
    case "title": {
      const words = splitWords(name)
        .filter((w) => w !== "name" && w !== "display" && w !== "title")
        .join(" ");
      return entityName(words || (cls === "title" && !MACHINE.test(type) && !PERSON.test(type) ? "" : type), p);
    }
    case "text":
      return p.sentence;
    case "file":
      return `${p.slug}.${rng.pick(["pdf", "csv", "png", "txt"])}`;
    case "path":
      return `/${rng.pick(["data", "shared", "reports", "archive"])}/${p.slug}`;
    case "mime":
      return rng.pick(["application/pdf", "image/png", "text/plain", "application/json"]);
    case "tag":
      return p.tag;
    case "category":
      return /department|category|group/.test(name.toLowerCase()) ? rng.pick(DEPARTMENTS) : null;
    case "code":
      return draw(rng, "ABCDEFGHJKLMNPQRSTUVWXYZ", 3) + draw(rng, "0123456789", 5);
    case "arn":
      return `arn:aws:${rng.pick(["s3", "ec2", "iam", "sns"])}:us-east-1:${draw(rng, "123456789", 12)}:${splitWords(type).join("-") || "resource"}/${draw(rng, BASE36, 8)}`;
    case "secret":
      return draw(rng, BASE36, 24);
    case "amount":
      return (rng.int(500, 250_000) / 100).toFixed(2);
    case "percent":
      return String(rng.int(1, 99));
    case "count":
      return String(rng.int(2, 40));
    case "duration":
      return s.format === "google-duration"
        ? `${rng.int(5, 3600)}s`
        : /ISO|^PT/i.test(`${s.description ?? ""}${s.format ?? ""}`)
          ? `PT${rng.int(5, 59)}M`
          : `${rng.int(5, 240)}`;
    case "time":
      return `${String(rng.int(7, 19)).padStart(2, "0")}:${rng.pick(["00", "15", "30", "45"])}:00`;
    case "id":
      if (/slug|handle/i.test(name)) return p.proper.toLowerCase().replace(/ /g, "-");
      return /uuid|guid/i.test(`${name} ${s.format ?? ""} ${s.description ?? ""}`) ? uuid(rng) : draw(rng, BASE36, 10);
    default:
      return null;
  }
}

function number(cls: FieldClass, s: JsonSchema, p: Persona, rng: Rng): number {
  const whole = s.type === "integer";
  const raw = ((): number => {
    switch (cls) {
      case "latitude":
        return p.place.lat;
      case "longitude":
        return p.place.lon;
      case "percent":
        return (s.maximum ?? 100) <= 1 ? rng.int(1, 99) / 100 : rng.int(1, 99);
      case "rating":
        return rng.int(1, 5);
      case "year":
        return rng.int(2019, 2025);
      case "amount":
        return rng.int(500, 250_000) / 100;
      case "id":
        return rng.int(10_000, 9_999_999);
      case "bytes":
        return rng.int(2_000, 8_000_000);
      case "pixels":
        return rng.int(4, 40) * 40;
      case "duration":
        return rng.int(5, 240);
      case "paging":
        return rng.int(1, 3);
      case "count":
        return rng.int(2, 60);
      default:
        return whole ? rng.int(2, 900) : rng.int(20, 90_000) / 100;
    }
  })();
  const low = s.minimum ?? Number.NEGATIVE_INFINITY;
  const high = s.maximum ?? Number.POSITIVE_INFINITY;
  let v = whole ? Math.round(raw) : raw;
  if (v < low || v > high) {
    const a = Number.isFinite(low) ? low : high - 100;
    const b = Number.isFinite(high) ? Math.min(high, a + 1e6) : a + 100;
    v = whole ? rng.int(Math.ceil(a), Math.floor(b)) : Math.round((a + rng.unit() * (b - a)) * 100) / 100;
    if (v < low || v > high) v = a;
  }
  return v;
}

/** Members of an enum that mean something: UNSPECIFIED and the like only where there is nothing else. */
export function realOptions(options: readonly Json[]): Json[] {
  const good = options.filter(
    (v) =>
      v !== null && v !== "" && !(typeof v === "string" && /unspecified|unknown|invalid|^none$|deprecated/i.test(v)),
  );
  return good.length ? good : options.filter((v) => v !== null);
}

/**
 * A scalar value of a cleaned schema for the field `name` of an entity of `type` (in words).
 * The same persona gives the same value for the same name. Objects and arrays are the caller's.
 */
export function scalar(name: string, s: JsonSchema, type: string, p: Persona, look: Look = lookOf(name, s)): Json {
  const rng = new Rng(hash2(hash2(KEY, p.seed), look.name));
  if (s.enum) return rng.pick(look.options);
  if (s.type === "boolean") return rng.chance(0.5);
  if (s.type === "null") return null;
  const { cls } = look;
  if (s.type === "number" || s.type === "integer") {
    if (cls === "datetime" && s.maximum === undefined) return moment(name, s, p, false);
    return number(cls, s, p, rng);
  }
  return textValue(look, name, s, type, p, rng);
}

/** What a field's name and schema say, found once. */
export interface Look {
  /** Hash of the name. */
  name: number;
  cls: FieldClass;
  /** What to pick from, where the schema has an enum. */
  options: readonly Json[];
  /** An example that is a code: values take its form. */
  code: string | null;
  uuid: boolean;
  /** Whether any text fits the schema. */
  free: boolean;
}
const looks = new WeakMap<JsonSchema, Map<string, Look>>();
export function lookOf(name: string, s: JsonSchema): Look {
  let byName = looks.get(s);
  if (!byName) {
    byName = new Map();
    looks.set(s, byName);
  }
  let look = byName.get(name);
  if (!look) {
    const cls = fieldClass(name, s);
    const options = s.enum ? realOptions(s.enum) : [];
    look = {
      name: hashText(name.toLowerCase()),
      cls,
      options: options.length ? options : (s.enum ?? []),
      code: typeof s.example === "string" && isCode(s.example) && !SEMANTIC.has(cls) ? s.example : null,
      uuid: s.format === "uuid" || s.format === "guid" || /\{8\}.*\{4\}.*\{12\}/.test(s.pattern ?? ""),
      free: isFree(s),
    };
    byName.set(name, look);
  }
  return look;
}

function textValue(look: Look, name: string, s: JsonSchema, type: string, p: Persona, rng: Rng): string {
  const { cls } = look;
  const ok = (v: Json | undefined): v is string =>
    typeof v === "string" && (look.free || s.type === undefined || fits(v, s));
  const example = typeof s.example === "string" ? s.example : undefined;
  if (look.code) {
    const shaped = reshape(look.code, rng);
    if (ok(shaped)) return shaped;
  }
  if (look.uuid) {
    const id = uuid(rng);
    for (const v of [id, id.toUpperCase()]) if (ok(v)) return v;
  }
  if (cls === "datetime" && (s.minLength !== undefined || s.maxLength !== undefined || s.pattern)) {
    // The lengths of a moment: seconds, milliseconds, with an offset.
    const iso = String(moment(name, { ...s, type: "string" }, p, false)).slice(0, 19);
    for (const tail of ["Z", ".000Z", "+00:00", ".000+00:00", ".000000Z", ""]) if (ok(iso + tail)) return iso + tail;
  }
  const meant =
    cls === "date" || cls === "datetime"
      ? String(moment(name, { ...s, type: "string" }, p, cls === "date"))
      : text(cls, name, s, type, p, rng);
  if (meant !== null && ok(meant)) return meant;
  // Names of things in systems with rules for names: a short one with hyphens meets most of them.
  if (s.pattern && (cls === "name" || cls === "title" || cls === "id" || cls === "other") && ok(p.slug)) return p.slug;
  if (s.pattern) {
    const drawn = samplePattern(s.pattern, rng, s.minLength, s.maxLength);
    if (ok(drawn ?? undefined)) return drawn as string;
  }
  const formatted = formatClass(s.format);
  const asFormat = formatted && formatted !== cls ? text(formatted, name, s, type, p, rng) : null;
  if (asFormat !== null && ok(asFormat)) return asFormat;
  if (example !== undefined && example.length <= 120 && ok(example)) return example;
  if (typeof s.default === "string" && s.default && s.default.length <= 60 && ok(s.default)) return s.default;
  const base = meant ?? rng.pick([p.slug, p.tag, p.proper]);
  const fitted = fitLength(base, s, rng);
  if (ok(fitted)) return fitted;
  // Whatever else binds it (a format with a length), a plain run of letters is the last resort.
  const run = draw(rng, BASE36, Math.max(s.minLength ?? 1, Math.min(8, s.maxLength ?? 8)));
  return ok(run) ? run : (example ?? run);
}

function fitLength(base: string, s: JsonSchema, rng: Rng): string {
  let v = base;
  if (s.maxLength !== undefined && v.length > s.maxLength)
    v = v.slice(0, s.maxLength).trim() || draw(rng, BASE36, s.maxLength);
  if (s.minLength !== undefined && v.length < s.minLength) v += draw(rng, BASE36, s.minLength - v.length);
  return v;
}

/**
 * An identifier for entity number `index` of a population, in the style of its schema, or of its API where that is open.
 * `style` is a key of the API and type; `rng` of the entity.
 */
export function identifier(name: string, s: JsonSchema, type: string, style: number, rng: Rng): string | number {
  if (s.type === "integer" || s.type === "number") return number("id", { ...s, type: "integer" }, new Persona(0), rng);
  const about = `${name} ${s.format ?? ""} ${s.description ?? ""}`;
  const example = typeof s.example === "string" && isCode(s.example) ? s.example : undefined;
  const candidates: (() => string | null)[] = [];
  if (/\barn\b|arn$/i.test(name) || /\barn:|^\^?arn/.test(s.pattern ?? ""))
    candidates.push(
      () =>
        `arn:aws:${splitWords(type)[0] ?? "s3"}:us-east-1:${draw(rng, "123456789", 12)}:${splitWords(type).join("-") || "item"}/${draw(rng, BASE36, 8)}`,
    );
  if (s.pattern) candidates.push(() => samplePattern(s.pattern ?? "", rng, s.minLength, s.maxLength));
  if (s.format === "uuid" || s.format === "guid" || /uuid|guid/i.test(about))
    candidates.unshift(
      () => uuid(rng),
      () => uuid(rng).toUpperCase(),
    );
  if (example) candidates.push(() => reshape(example, rng));
  const initials = (
    splitWords(type)
      .map((w) => w[0])
      .join("") || "x"
  ).slice(0, 3);
  const styles: (() => string)[] = [
    () => `${initials}_${draw(rng, BASE36, 8)}`,
    () => `${initials.toUpperCase()}-${draw(rng, "123456789", 1)}${draw(rng, "0123456789", 5)}`,
    () => draw(rng, "123456789", 1) + draw(rng, "0123456789", 6),
    () => `${initials}-${draw(rng, HEX, 8)}`,
    () => uuid(rng),
  ];
  candidates.push(styles[style % styles.length] as () => string, styles[1] as () => string);
  for (const candidate of candidates) {
    const v = candidate();
    if (v !== null && (s.type === undefined || fits(v, s))) return v;
  }
  return fitLength(draw(rng, BASE36, 10), s, rng);
}

/** Whether a value can stand where a schema wants one, as it is. */
export function usable(value: Json | undefined, s: JsonSchema): value is Json {
  return value !== undefined && hasType(value, s.type) && fits(value, s);
}
