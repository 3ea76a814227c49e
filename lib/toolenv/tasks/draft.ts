/** A task being made: calls that have been carried out in a fresh session, where each argument came from, and what is asked. */
import type { Catalog, Json, JsonObject, Tool } from "../../catalog/types.ts";
import { canonicalJson } from "../../config/hash.ts";
import { at, isOrdinary, type Scalar, sameValue, scalars } from "../compare.ts";
import { type FieldClass, fieldClass } from "../fields.ts";
import { contentId, type Rng } from "../hash.ts";
import { Persona } from "../persona.ts";
import type { Population } from "../population.ts";
import { coerce, freeValue } from "../render.ts";
import type { KeyRef, Op } from "../resources.ts";
import { clean } from "../schema.ts";
import type { Session, Task, Write } from "../types.ts";
import { humanise, normal, splitWords } from "../words.ts";
import type { World } from "../world.ts";
import { argumentLabel, belonging, factLabel, mention } from "./speech.ts";
import type { Offer } from "./surface.ts";

/** Where an argument's value comes from: the user's words, or a place in an earlier response. */
export type Source = { from: "user" } | { from: "step"; step: number; pointer: string };

export interface Step {
  offer: Offer;
  args: JsonObject;
  sources: Record<string, Source>;
  body: Json;
  /** Number of the entity that the call is about, where there is one. */
  index: number | null;
  /** Owners in words, innermost first: "in account a_3". "" where there is none to say. */
  owners: string;
  /** Values that the user states: label and value. */
  stated: { label: string; value: Json; param: string }[];
}
export interface Asked {
  step: number;
  pointer: string;
  /** "status", "creation date". */
  label: string;
  /** "status of invoice 5": for the answer. */
  long: string;
  value: Json;
}

/** Thrown where a draft leads nowhere; the generator tries another. */
export class DeadEnd extends Error {}
export const stop = (why: string): never => {
  throw new DeadEnd(why);
};

/** A task of this content: its id is the content's hash. */
export const withId = (body: Omit<Task, "id">): Task => ({
  id: contentId(JSON.parse(JSON.stringify(body)) as Json),
  ...body,
});

const PERSON =
  /\b(user|customer|contact|member|person|employee|patient|client|player|student|candidate|subscriber|worker|driver|guest|attendee|author)$/;

export class Draft {
  readonly steps: Step[] = [];
  readonly asked: Asked[] = [];
  /** Values that the request states. */
  readonly told: Json[] = [];
  readonly world: World;
  readonly rng: Rng;
  readonly catalog: Catalog;
  readonly #session: Session;

  constructor(world: World, rng: Rng) {
    this.world = world;
    this.catalog = world.catalog;
    this.rng = rng;
    this.#session = world.open(0);
  }

  writes(): Write[] {
    return this.#session.writes();
  }

  population(tool: Tool): Population {
    return this.world.population(tool.api);
  }

  /** Numbers of the entities that an operation's owners and target are, given some; dead end where they do not fit together. */
  #entities(pop: Population, op: Op, fixed: ReadonlyMap<string, number>): Map<KeyRef, number> {
    const out = new Map<KeyRef, number>();
    const inner = op.scope.at(-1);
    let target = op.target ? fixed.get(op.target.type) : undefined;
    let below: { type: string; index: number } | null = null;
    const ownerOf = (type: string, index: number, owner: string): number => {
      const up = pop.ancestor(type, index, owner);
      if (up !== null && type !== owner) return up;
      return pop.members(owner).find((o) => pop.under(type, owner, o).includes(index)) ?? stop("no owner");
    };
    if (inner) {
      const index: number =
        fixed.get(inner.type) ??
        (target !== undefined && op.target
          ? ownerOf(op.target.type, target, inner.type)
          : this.rng.pick(pop.members(inner.type)));
      out.set(inner, index);
      below = { type: inner.type, index };
      if (
        op.target &&
        target !== undefined &&
        index < 1_000_000 &&
        !pop.under(op.target.type, inner.type, index).includes(target)
      )
        stop("target is elsewhere");
    }
    if (op.target) {
      const pool =
        inner && below && below.type !== op.target.type
          ? pop.under(op.target.type, below.type, below.index)
          : pop.members(op.target.type);
      target ??= pool.length ? this.rng.pick(pool) : stop("nobody home");
      out.set(op.target, target);
    }
    for (const r of [...op.scope].reverse().slice(1)) {
      if (!below) break;
      const index = fixed.get(r.type) ?? ownerOf(below.type, below.index, r.type);
      if (below.index < 1_000_000 && !pop.under(below.type, r.type, index).includes(below.index))
        stop("owner does not fit");
      out.set(r, index);
      below = { type: r.type, index };
    }
    return out;
  }

  /**
   * Carries an operation out. `known`: entities that earlier steps found, by type. `carried`: argument values that earlier
   * responses give. Everything else is drawn and told by the user; `optional` of the optional arguments are stated as well.
   */
  take(
    offer: Offer,
    given: {
      known?: Map<string, { index: number; step: number | null }>;
      carried?: Map<string, { step: number; pointer: string; value: Json }>;
      optional?: number;
    } = {},
  ): number {
    const { tool, op } = offer;
    const pop = this.population(tool);
    const known = given.known ?? new Map();
    const fixed = new Map([...known].map(([t, k]) => [t, k.index] as const));
    const args: JsonObject = {};
    const sources: Record<string, Source> = {};
    const owners: string[] = [];
    const stated: Step["stated"] = [];
    const entities = this.#entities(pop, op, fixed);
    const set = (ref: KeyRef, index: number, own: boolean) => {
      const schema = clean(tool.parameters.properties[ref.param] ?? {});
      const before = known.get(ref.type);
      const fromStep = before && before.index === index && before.step !== null ? before.step : null;
      let source: Source = { from: "user" };
      let raw: Json = index < 1_000_000 ? pop.keyOf(ref.type, index, ref.key) : "";
      if (fromStep !== null) {
        const place = this.#findKey(fromStep, ref, index, raw);
        if (!place) stop("the earlier response does not show the key");
        else {
          source = { from: "step", step: fromStep, pointer: place.pointer };
          raw = place.value;
          // What the user says already needs no earlier call.
          if (this.told.some((t) => sameValue(t, place.value))) stop("the key is told");
        }
      }
      const value = coerce(raw, schema);
      if (value === undefined) return stop("the key does not fit the parameter");
      args[ref.param] = value;
      sources[ref.param] = source;
      if (source.from === "user") {
        this.told.push(value);
        // What an earlier call was told is not said again.
        if (!own && !before) owners.push(`${belonging(ref.type)} ${mention(ref.type, ref.key, value, this.rng)}`);
      }
    };
    for (const [ref, index] of entities) set(ref, index, ref === op.target);
    // Owners were visited innermost first, the target in between: the words keep that order.
    const persona = new Persona(this.rng.bits());
    for (const ref of op.refs) {
      if (!tool.parameters.required.includes(ref.param) && !known.has(ref.type)) continue;
      const index = known.get(ref.type)?.index ?? this.rng.pick(pop.members(ref.type));
      set(ref, index, true);
      if (sources[ref.param]?.from === "user")
        stated.push({ label: roleOf(ref), value: args[ref.param] as Json, param: ref.param });
    }
    if (new Set(stated.map((v) => v.label)).size < stated.length) stop("two values under one word");
    const free = Object.keys(tool.parameters.properties).filter(
      (p) =>
        !(p in args) &&
        tool.places[p] !== "header" &&
        !op.scope.some((r) => r.param === p) &&
        op.target?.param !== p &&
        !op.refs.some((r) => r.param === p),
    );
    for (const [param, c] of given.carried ?? []) {
      args[param] = c.value;
      sources[param] = { from: "step", step: c.step, pointer: c.pointer };
    }
    let extra = given.optional ?? 0;
    const required = new Set(tool.parameters.required);
    const ordered = [...free.filter((p) => required.has(p)), ...this.rng.shuffle(free.filter((p) => !required.has(p)))];
    for (const param of ordered) {
      if (param in args) continue;
      const schema = clean(tool.parameters.properties[param] ?? {});
      const must = required.has(param);
      if (
        !must &&
        (extra <= 0 ||
          // Nobody turns one person into another.
          (op.kind === "update" && PERSON.test(offer.type) && /name|person/.test(fieldClass(param, schema))) ||
          schema.readOnly ||
          schema.type === "object" ||
          schema.type === "array" ||
          schema.type === "boolean" ||
          schema.type === undefined)
      )
        continue;
      const value = freeValue(param, schema, offer.type, persona, pop);
      const label = argumentLabel(param, schema, value, `${tool.description} ${offer.type}`);
      if (
        !label ||
        // In an address the state is a region, which a "state" by itself is not.
        (label === "state" && !schema.enum && free.some((p) => /city|country|zip|postal/i.test(p))) ||
        // The login of what is no person is the caller's own.
        (label === "login" && !PERSON.test(offer.type)) ||
        stated.some((s) => s.label === label || sameValue(s.value, value)) ||
        (typeof value === "string" && !coerceable(value))
      ) {
        if (must) stop(`nobody would state ${param}`);
        continue;
      }
      args[param] = value;
      sources[param] = { from: "user" };
      // "a chat message with message …" is said better.
      const same = humanise(offer.type).split(" ").at(-1) === label;
      stated.push({ label: same && fieldClass(param, schema) === "text" ? "text" : label, value, param });
      this.told.push(value);
      if (!must) extra--;
    }
    const result = this.#session.call(tool, args);
    if (result instanceof Promise || result.outcome !== "ok")
      return stop(`the call was refused: ${canonicalJson(result instanceof Promise ? null : result.body)}`);
    const index = op.target ? (entities.get(op.target) ?? null) : null;
    this.steps.push({ offer, args, sources, body: result.body, index, owners: owners.join(" "), stated });
    return this.steps.length - 1;
  }

  /** Where an earlier response shows the key of an entity. */
  #findKey(step: number, ref: KeyRef, index: number, value: Json): { pointer: string; value: Json } | null {
    const s = this.steps[step] as Step;
    if (index >= 1_000_000) {
      const entity = this.entityPointer(step);
      const model = this.population(s.offer.tool).type(ref.type);
      for (const x of scalars(at(s.body, entity) ?? null, entity))
        if (x.value !== null && normal(x.pointer.split("/").at(-1) ?? "") === (model.idField ?? "id"))
          return { pointer: x.pointer, value: x.value };
      return null;
    }
    const found = this.#scalars(step).filter((x) => x.value !== null && String(x.value) === String(value));
    // The identifier where the entity shows it; failing that, the place that is least deep.
    const own = ref.key === "" ? (this.population(s.offer.tool).model.types.get(ref.type)?.idField ?? "id") : ref.key;
    const rank = (pointer: string) =>
      pointer.split("/").length + (normal(pointer.split("/").at(-1) ?? "") === own ? 0 : 100);
    const best = found.sort((a, b) => rank(a.pointer) - rank(b.pointer))[0];
    return best?.value != null ? { pointer: best.pointer, value: best.value } : null;
  }

  /** Pointer of the entity in a step's body. */
  entityPointer(step: number): string {
    const at = (this.steps[step] as Step).offer.op.at ?? [];
    return at.map((p) => `/${p.replace(/~/g, "~0").replace(/\//g, "~1")}`).join("");
  }

  /** Number of the entity that a value in a body names. */
  entityOf(tool: Tool, type: string, value: Json): number | null {
    return typeof value === "string" || typeof value === "number" ? this.population(tool).find(type, "", value) : null;
  }

  /** Fields of an object in a body that people ask for: label, pointer, value, class. */
  fields(
    step: number,
    pointer: string,
  ): { name: string; label: string; pointer: string; value: Json; cls: FieldClass }[] {
    const s = this.steps[step] as Step;
    const entity = at(s.body, pointer);
    if (entity === null || typeof entity !== "object" || Array.isArray(entity) || entity === undefined) return [];
    const type = this.population(s.offer.tool).type(s.offer.type);
    const near = `${s.offer.tool.description} ${s.offer.type}`;
    const out: { name: string; label: string; pointer: string; value: Json; cls: FieldClass }[] = [];
    for (const [name, value] of Object.entries(entity)) {
      const raw = type.fields.get(normal(name))?.schema;
      if (!raw) continue;
      const schema = clean(raw);
      const label = factLabel(name, schema, value as Json, `${near} ${schema.description ?? ""}`);
      // The domain of a domain is no question.
      if (label && label !== humanise(s.offer.type).split(" ").at(-1))
        out.push({
          name,
          label: shorten(label, s.offer.type),
          pointer: `${pointer}/${name.replace(/~/g, "~0").replace(/\//g, "~1")}`,
          value: value as Json,
          cls: fieldClass(name, schema),
        });
    }
    return out.filter((f, i) => out.findIndex((g) => g.label === f.label) === i);
  }

  /** Whether a value is new to the reader: neither told, nor shown by the given steps, nor asked for already. */
  isNews(value: Json, shownBy: readonly number[]): boolean {
    if (this.told.some((t) => sameValue(t, value)) || this.asked.some((a) => sameValue(a.value, value))) return false;
    // Nobody asks for the last name of the user called "Gordon Fay", or at gordon.fay@….
    const words = (v: Json) => (typeof v === "string" ? v.toLowerCase().split(/[^\p{L}\p{N}]+/u) : []);
    if (typeof value === "string" && this.told.some((t) => words(t).includes(value.toLowerCase()))) return false;
    for (const i of shownBy)
      for (const x of this.#scalars(i)) if (x.value !== null && sameValue(x.value, value)) return false;
    return true;
  }

  readonly #shown: Scalar[][] = [];
  /** What a step's response shows. */
  #scalars(step: number): readonly Scalar[] {
    return (this.#shown[step] ??= scalars((this.steps[step] as Step).body));
  }

  /** Asks for up to `n` fields of a step's entity that no other step shows. Dead end where there is none. */
  ask(step: number, pointer: string, n: number, of: string, prefer?: RegExp): Asked[] {
    const others = this.steps.map((_, i) => i).filter((i) => i !== step);
    const good = this.rng.shuffle(
      this.fields(step, pointer).filter((f) => f.cls !== "id" && this.isNews(f.value, others)),
    );
    // When a record was written is asked for last.
    const worth = (label: string) => 2 * Number(prefer?.test(label) ?? false) - Number(KEPT.test(label));
    good.sort((a, b) => worth(b.label) - worth(a.label));
    const out: Asked[] = [];
    for (const f of good) {
      if (out.length >= n || (out.length > 0 && KEPT.test(f.label) && !this.rng.chance(0.3))) break;
      if (
        !this.isNews(f.value, others) ||
        (f.label === "currency" && !good.some((g) => /amount|price|total|balance/.test(g.label)))
      )
        continue;
      const a: Asked = { step, pointer: f.pointer, label: f.label, long: `${f.label} of ${of}`, value: f.value };
      out.push(a);
      this.asked.push(a);
    }
    if (!out.length) stop("nothing to ask for");
    return out;
  }
}

/** Dates of the record and not of the thing. */
export const KEPT = /^(creation|last update) date$/;
/** Whether a stated text can be said in a sentence and read back. */
const coerceable = (text: string) => !/["\n]/.test(text) && text.trim() === text && text !== "";

/** What an owner or a reference is to the call: "managing account" for the parameter managing_account. */
export function roleOf({ param, type }: KeyRef): string {
  const words = splitWords(param).filter((w) => !/^(id|ids|uuid|guid|sid|key)$/.test(w));
  return humanise(words.length > 1 && words.join(" ").endsWith(` ${type}`) ? words.join(" ") : type);
}

/** "customer name" of a customer is its name; the number of an order is a count, so "order number" stays. */
function shorten(label: string, type: string): string {
  const own = humanise(type);
  const rest = label.startsWith(`${own} `) ? label.slice(own.length + 1) : label;
  return /^(number|code|type|date|count|total|rate)$/.test(rest) ? label : rest;
}

export const ordinaryType = (type: string): boolean => splitWords(type).every((w) => isOrdinary(w));
