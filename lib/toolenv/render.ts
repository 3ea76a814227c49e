/** From a response schema to a response: a plan compiled once per tool, filled from an entity each time. */
import type { Json, JsonObject, JsonSchema } from "../catalog/types.ts";
import { fieldClass } from "./fields.ts";
import { key, Rng } from "./hash.ts";
import { Persona } from "./persona.ts";
import type { Population } from "./population.ts";
import { type ApiModel, referredType } from "./resources.ts";
import { clean, fits } from "./schema.ts";
import { type Look, lookOf, scalar } from "./values.ts";
import { normal, singular, splitWords } from "./words.ts";

/** How one value of a response is made. */
export type Plan =
  | { kind: "id"; type: string; schema: JsonSchema }
  | { kind: "key"; type: string; field: string; schema: JsonSchema }
  | { kind: "ref"; field: string; type: string; schema: JsonSchema }
  /** `first`: the schema that the field has where its type is first shown, which decides the value wherever this one allows it. */
  | {
      kind: "scalar";
      name: string;
      type: string;
      schema: JsonSchema;
      look: Look;
      first: { schema: JsonSchema; look: Look } | null;
    }
  | { kind: "object"; members: Member[]; embeds: { field: string; type: string } | null; schema: JsonSchema }
  | { kind: "array"; item: Plan; low: number; high: number; embeds: string | null }
  /** Nothing, or an empty object or list. */
  | { kind: "fixed"; value: null | JsonObject | Json[] };
export interface Member {
  name: string;
  normal: string;
  plan: Plan;
  required: boolean;
}

/** How much of a schema a response shows: models read these. */
interface Limits {
  members: number;
  nested: number;
  depth: number;
  /** Whether tokens of further pages are shown. */
  paging?: boolean;
}
/** What stands around an entity or a list. */
export const ENVELOPE: Limits = { members: 14, nested: 6, depth: 2, paging: true };
export const ENTITY: Limits = { members: 14, nested: 6, depth: 2 };
export const LISTED: Limits = { members: 8, nested: 4, depth: 1 };

const RANK: Record<string, number> = {
  id: 0,
  name: 1,
  title: 1,
  status: 2,
  person: 3,
  email: 3,
  amount: 3,
  currency: 4,
  date: 4,
  category: 4,
  datetime: 5,
  count: 5,
  phone: 5,
  city: 5,
  company: 4,
  code: 3,
  flag: 6,
  rating: 5,
  percent: 5,
  text: 7,
  other: 8,
  url: 9,
  duration: 6,
  first_name: 3,
  last_name: 3,
  username: 3,
  version: 5,
};

/** Whether a schema says anything of the value. */
export const hasContent = (s: JsonSchema) => s.type !== undefined || s.enum !== undefined;

/** Members that a response shows: the required ones, then those that say most, in the schema's own order. */
function choose(s: JsonSchema, most: number, depth: number, paging: boolean): string[] {
  const names = Object.keys(s.properties ?? {});
  const required = new Set(s.required ?? []);
  const score = (n: string, i: number): number => {
    const p = s.properties?.[n] as JsonSchema;
    if (required.has(n)) return -1;
    if (p.writeOnly || !hasContent(p)) return 99;
    if (p.type === "object") return p.properties && depth > 0 ? 7 + i / 1000 : 99;
    if (p.type === "array")
      return p.items && hasContent(p.items) && (depth > 0 || p.items.type !== "object") ? 10 + i / 1000 : 99;
    const cls = fieldClass(n, p);
    if (cls === "paging" && paging) return 3;
    if (cls === "secret" || cls === "paging" || n.startsWith("@") || n.startsWith("_")) return 98;
    return (RANK[cls] ?? 6) + i / 1000;
  };
  const ranked = names.map((n, i) => [n, score(n, i)] as const).sort((a, b) => a[1] - b[1]);
  const keep = new Set(ranked.filter(([, x], i) => x < 0 || (i < most && x < 98)).map(([n]) => n));
  return names.filter((n) => keep.has(n));
}

/** Compiles the plan of an entity's schema. `type`: the resource type that it shows, or null. */
export function compileEntity(
  raw: JsonSchema,
  type: string | null,
  model: ApiModel,
  limits: Limits,
  words: string,
): Plan {
  const s = clean(raw);
  if (s.type === "object" || s.properties)
    return compileObject(s, type, model, limits.members, limits, limits.depth, words);
  return compileValue("value", s, null, model, limits, limits.depth, words);
}

/** A value of a schema for a field that belongs to no stored entity; an argument, for instance. */
export function freeValue(
  name: string,
  raw: JsonSchema,
  words: string,
  persona: Persona,
  population: Population,
): Json {
  const plan = compileValue(name, clean(raw), null, population.model, ENTITY, ENTITY.depth, words);
  return fill(plan, { population, type: null, index: 0, persona, overlay: () => undefined, idOf: () => "" });
}

function compileObject(
  s: JsonSchema,
  type: string | null,
  model: ApiModel,
  most: number,
  limits: Limits,
  depth: number,
  words: string,
): Plan {
  const required = new Set(s.required ?? []);
  const members = choose(s, most, depth, limits.paging ?? false).map((name): Member => {
    const own = s.properties?.[name] as JsonSchema;
    return {
      name,
      normal: normal(name),
      required: required.has(name),
      plan: compileValue(name, own, type, model, limits, depth, words),
    };
  });
  return { kind: "object", members, embeds: null, schema: s };
}

function compileValue(
  name: string,
  own: JsonSchema,
  type: string | null,
  model: ApiModel,
  limits: Limits,
  depth: number,
  words: string,
): Plan {
  const t = type ? model.types.get(type) : undefined;
  const n = normal(name);
  if (own.type === "object") {
    if (!own.properties) return { kind: "fixed", value: {} };
    const member = singular(splitWords(name).join(" "));
    const embeds =
      t &&
      model.types.has(member) &&
      member !== type &&
      Object.keys(own.properties).some((k) => /^(id|uuid|name|key)$/i.test(k))
        ? member
        : null;
    const inner = compileObject(
      own,
      embeds,
      model,
      depth > 0 ? limits.nested : 0,
      limits,
      depth - 1,
      embeds ?? `${member}`,
    );
    return inner.kind === "object" && embeds ? { ...inner, embeds: { field: name, type: embeds } } : inner;
  }
  if (own.type === "array") {
    const items = own.items ?? {};
    const member = splitWords(name)
      .map((w, i, all) => (i === all.length - 1 ? singular(w) : w))
      .join(" ");
    const embeds =
      t && items.type === "object" && items.properties && model.types.has(member) && member !== type ? member : null;
    const low = own.minItems ?? (hasContent(items) && depth >= 0 ? 1 : 0);
    const high = Math.min(own.maxItems ?? 2, Math.max(low, hasContent(items) && depth >= 0 ? 2 : 0));
    const item =
      items.type === "object" && items.properties
        ? compileObject(items, embeds, model, depth > 0 ? limits.nested : 0, limits, depth - 1, member)
        : compileValue(singular(name), items, null, model, limits, depth - 1, words);
    if (!hasContent(items) && low === 0) return { kind: "fixed", value: [] };
    return { kind: "array", item, low, high, embeds };
  }
  if (!hasContent(own)) return { kind: "fixed", value: null };
  if (t && type) {
    if (n === t.idField) return { kind: "id", type, schema: own };
    if (t.keys.has(n)) return { kind: "key", type, field: n, schema: own };
    const to = referredType(name, own, model.types);
    // "core_network_arn" of a core network is its own; "parent_location_id" of a location is another's.
    const itself = to === type && normal(name).startsWith(normal(type));
    if (to && !itself) return { kind: "ref", field: name, type: to, schema: own };
    const raw = t.fields.get(n)?.schema;
    const first = raw && clean(raw);
    const other = first && first !== own && hasContent(first) && first.type !== "object" && first.type !== "array";
    return {
      kind: "scalar",
      name,
      type: words,
      schema: own,
      look: lookOf(name, own),
      first: other ? { schema: first, look: lookOf(name, first) } : null,
    };
  }
  return { kind: "scalar", name, type: words, schema: own, look: lookOf(name, own), first: null };
}

/** What a fill needs besides the plan. */
export interface Fill {
  population: Population;
  type: string | null;
  index: number;
  persona: Persona;
  /** Values that the episode set, by normal field name; and whether the entity is gone. */
  overlay(type: string, index: number): ReadonlyMap<string, Json> | undefined;
  /** Identifier of an entity, which an episode may have made. */
  idOf(type: string, index: number, field: string): string | number;
}

/** A value as a schema wants it: a number as digits, digits as a number; undefined where it cannot be. */
export function coerce(value: Json, s: JsonSchema): Json | undefined {
  if (fits(value, s)) return value;
  if (typeof value === "number" && (s.type === "string" || s.type === undefined) && fits(String(value), s))
    return String(value);
  if (typeof value === "string" && (s.type === "integer" || s.type === "number") && /^-?\d+(\.\d+)?$/.test(value)) {
    const n = Number(value);
    return Number.isSafeInteger(n) || s.type === "number" ? (fits(n, s) ? n : undefined) : undefined;
  }
  return undefined;
}

const isObject = (v: Json): v is JsonObject => v !== null && typeof v === "object" && !Array.isArray(v);

export function fill(plan: Plan, f: Fill, root = true): Json {
  switch (plan.kind) {
    case "fixed":
      return Array.isArray(plan.value) ? [...plan.value] : isObject(plan.value) ? { ...plan.value } : plan.value;
    case "id":
    case "key": {
      const v = coerce(f.idOf(plan.type, f.index, plan.kind === "id" ? "" : plan.field), plan.schema);
      return v ?? scalar(plan.kind === "id" ? "id" : plan.field, plan.schema, plan.type, f.persona);
    }
    case "ref": {
      const to = f.type ? f.population.reference(f.type, f.index, plan.field, plan.type) : 0;
      const v = f.type ? coerce(f.idOf(plan.type, to, ""), plan.schema) : undefined;
      return v ?? scalar(plan.field, plan.schema, f.type ?? "", f.persona);
    }
    case "scalar": {
      // The same field shows the same value wherever its type appears, spelled as this schema wants it.
      const { first, look } = plan;
      if (first) {
        const v = scalar(plan.name, first.schema, plan.type, f.persona, first.look);
        const shared = look.free && typeof v === "string" ? v : coerce(v, plan.schema);
        if (shared !== undefined && shared !== null) return shared;
      }
      return scalar(plan.name, plan.schema, plan.type, f.persona, look);
    }
    case "object": {
      const to =
        plan.embeds && f.type ? f.population.reference(f.type, f.index, plan.embeds.field, plan.embeds.type) : null;
      const inner: Fill =
        to !== null && plan.embeds
          ? { ...f, type: plan.embeds.type, index: to, persona: f.population.persona(plan.embeds.type, to) }
          : f;
      const set = inner.type && (root || to !== null) ? f.overlay(inner.type, inner.index) : undefined;
      const out: JsonObject = {};
      for (const m of plan.members) {
        const said = set?.get(m.normal);
        const as = said !== undefined && m.plan.kind !== "id" ? memberSchema(plan.schema, m.name) : undefined;
        const taken = said !== undefined && as ? coerce(said, as) : undefined;
        if (taken !== undefined) out[m.name] = taken;
        else out[m.name] = fillMember(m, inner);
      }
      return out;
    }
    case "array": {
      const rng = new Rng(key(f.persona.seed, plan.low, plan.high));
      const n = rng.int(plan.low, plan.high);
      const out: Json[] = [];
      const pool = plan.embeds && f.type && f.index < 1_000_000 ? f.population.under(plan.embeds, f.type, f.index) : [];
      for (let i = 0; i < n; i++) {
        const at = plan.embeds ? pool[i] : undefined;
        if (plan.embeds && at === undefined && i >= plan.low) break;
        out.push(
          at !== undefined && plan.embeds
            ? fill(
                plan.item,
                { ...f, type: plan.embeds, index: at, persona: f.population.persona(plan.embeds, at) },
                false,
              )
            : fill(plan.item, { ...f, persona: nestedPersona(f.persona, `item ${i}`) }, false),
        );
      }
      return out;
    }
  }
}

/** A member of an object that is filled so. */
export function fillMember(m: Member, f: Fill): Json {
  const own = m.plan.kind === "object" && !m.plan.embeds;
  return fill(m.plan, own ? { ...f, persona: nestedPersona(f.persona, m.normal) } : f, false);
}

/** The same entity's nested details keep its person, place and dates; plain objects get a persona of their own. */
function nestedPersona(p: Persona, name: string): Persona {
  return new Persona(key(p.seed, name));
}

function memberSchema(s: JsonSchema, name: string): JsonSchema | undefined {
  return s.properties?.[name];
}
