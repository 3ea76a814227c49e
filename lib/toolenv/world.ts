/**
 * A world answers calls from the tools' own interfaces: deterministic given (catalogue, seed), stateful within a session,
 * and consistent between calls. See `resources.ts` for what it knows of an API, `population.ts` for what exists in it.
 */
import type { Catalog, Json, JsonObject, Tool } from "../catalog/types.ts";
import { drawFault, drawLatency, type FaultRates, faultBody, TIMEOUT_MS } from "./faults.ts";
import { fieldClass } from "./fields.ts";
import { canonical, hashText, key } from "./hash.ts";
import { Persona } from "./persona.ts";
import { CREATED, Population } from "./population.ts";
import { coerce, compileEntity, ENTITY, type Fill, fill, hasContent, LISTED, type Plan } from "./render.ts";
import { type ApiModel, analyse, type KeyRef, locate, type Op } from "./resources.ts";
import { Checks, clean, typeOf } from "./schema.ts";
import type { Backend, CallResult, FaultKind, Session, ToolCall, Write } from "./types.ts";
import { normal, splitWords } from "./words.ts";

/** What the analysis of a catalogue's APIs gives; shared by all worlds over it. */
interface Knowledge {
  models: Map<string, ApiModel>;
  plans: Map<string, Plans>;
  checks: Checks;
}
interface Plans {
  entity: Plan | null;
  envelope: { plan: Plan; at: string[]; many: boolean } | null;
}
const knowledge = new WeakMap<Catalog, Knowledge>();
/** APIs and compiled tools kept at a time; the oldest go first. */
const KEPT_MODELS = 400;
const KEPT_PLANS = 8000;

function known(catalog: Catalog): Knowledge {
  let k = knowledge.get(catalog);
  if (!k) {
    k = { models: new Map(), plans: new Map(), checks: new Checks() };
    knowledge.set(catalog, k);
  }
  return k;
}
function remember<T>(map: Map<string, T>, id: string, most: number, make: () => T): T {
  let v = map.get(id);
  if (v === undefined) {
    v = make();
    if (map.size >= most) map.delete(map.keys().next().value as string);
    map.set(id, v);
  }
  return v;
}

/** The model of an API of a catalogue, analysed once. */
export function apiModel(catalog: Catalog, api: string): ApiModel {
  return remember(known(catalog).models, api, KEPT_MODELS, () => analyse(api, catalog.byApi(api)));
}

/** Checks a call's arguments: findings in words, each with the field's name; none means valid. */
export function checkArguments(catalog: Catalog, tool: Tool, args: JsonObject): string[] {
  return known(catalog).checks.get(`${tool.name}?`, tool.parameters, true)(args);
}

/** Checks a response against the tool's own schema; tools without one accept anything. */
export function checkResponse(catalog: Catalog, tool: Tool, body: Json): string[] {
  return tool.response ? known(catalog).checks.get(`${tool.name}!`, tool.response, false)(body) : [];
}

export interface WorldOptions {
  /** Chance of each fault at the first attempt of any call; none by default. */
  faults?: FaultRates;
}
/** A fault that a task plants on one call's first attempt. */
export interface PlantedFault extends ToolCall {
  kind: FaultKind;
}

export class World implements Backend {
  readonly name = "world";
  readonly catalog: Catalog;
  readonly seed: number;
  readonly options: WorldOptions;
  readonly #populations = new Map<string, Population>();

  constructor(catalog: Catalog, seed: number, options: WorldOptions = {}) {
    this.catalog = catalog;
    this.seed = seed;
    this.options = options;
  }

  /** A fresh session: the world as it is from the start. `planted` faults hit the first attempt of the calls that they name. */
  open(seed: number, planted: readonly PlantedFault[] = []): WorldSession {
    return new WorldSession(this, seed, planted);
  }

  /** The same world as a backend whose sessions all have these faults planted. */
  withFaults(planted: readonly PlantedFault[]): Backend {
    return { name: this.name, open: (seed) => this.open(seed, planted) };
  }

  population(api: string): Population {
    return remember(this.#populations, api, KEPT_MODELS, () => new Population(apiModel(this.catalog, api), this.seed));
  }

  op(tool: Tool): Op {
    const op = apiModel(this.catalog, tool.api).ops.get(tool.name);
    if (!op) throw new RangeError(`tool ${tool.name} is not part of ${tool.api} in this catalogue`);
    return op;
  }

  plans(tool: Tool, op: Op): Plans {
    return remember(known(this.catalog).plans, tool.name, KEPT_PLANS, () =>
      makePlans(tool, op, apiModel(this.catalog, tool.api)),
    );
  }
}

/** Compiles how a tool's response is made: its entity, and the envelope around it. */
function makePlans(tool: Tool, op: Op, model: ApiModel): Plans {
  const words = op.type ?? splitWords(tool.operation).join(" ");
  const limits = op.many ? LISTED : ENTITY;
  const schema = tool.response ? clean(tool.response) : null;
  const located = tool.response ? locate(tool.response, op.type) : null;
  const of = op.kind === "compute" ? null : op.type;
  if (schema && located && op.at) {
    const entity = compileEntity(located.entity, of, model, limits, words);
    if (op.at.length === 0) return { entity, envelope: { plan: entity, at: [], many: op.many } };
    return { entity, envelope: { plan: compileEntity(schema, null, model, ENTITY, words), at: op.at, many: op.many } };
  }
  if (schema && hasContent(schema) && (schema.type !== "object" || Object.keys(schema.properties ?? {}).length > 0))
    return { entity: null, envelope: { plan: compileEntity(schema, null, model, ENTITY, words), at: [], many: false } };
  // No schema: the fields that the type has elsewhere, or a name and a status.
  const type = of ? model.types.get(of) : undefined;
  if (!type) return { entity: null, envelope: null };
  const properties = Object.fromEntries([...type.fields.values()].map((f) => [f.name, f.schema]));
  const bare = {
    type: "object" as const,
    properties: { id: type.idSchema, name: { type: "string" as const }, status: { type: "string" as const } },
  };
  const entity = compileEntity(
    type.fields.size ? { type: "object", properties } : bare,
    of,
    model,
    { members: 8, nested: 3, depth: 1 },
    words,
  );
  if (!type.fields.size && entity.kind === "object" && entity.members[0])
    entity.members[0].plan = { kind: "id", type: type.name, schema: type.idSchema };
  return { entity, envelope: null };
}

const PAGING =
  /^(limit|per ?page|page ?size|max( ?results| ?records| ?items)?|count|top|rows|size|results ?per ?page|page ?limit)$/;
const OFFSET = /^(offset|skip|start|start ?index|start ?at)$/;
const PAGE = /^(page|page ?(number|no|num|index))$/;
const TOKEN = /^(next ?token|page ?token|cursor|marker|starting ?after|continuation ?token|next)$/;
const SORT = /^(sort|sort ?by|order ?by|sort ?field|order)$/;
const DIRECTION = /^(direction|sort ?order|sort ?dir(ection)?|order|ordering)$/;
const SEARCH =
  /^(q|query|search|keyword|keywords|term|search ?term|search ?text|text|filter ?text|name ?contains|search ?query)$/;
const DEFAULT_PAGE = 5;

interface Made {
  type: string;
  index: number;
  id: string | number;
  scope: { type: string; index: number }[];
}

class WorldSession implements Session {
  readonly #world: World;
  readonly #seed: number;
  readonly #planted = new Map<string, FaultKind>();
  readonly #attempts = new Map<string, number>();
  readonly #values = new Map<string, Map<string, Json>>();
  readonly #deleted = new Set<string>();
  readonly #made = new Map<string, Made[]>();
  #writes: Write[] = [];
  #closed = false;

  constructor(world: World, seed: number, planted: readonly PlantedFault[]) {
    this.#world = world;
    this.#seed = seed;
    for (const p of planted) this.#planted.set(callKey(p.name, p.arguments), p.kind);
  }

  /** Answers one call. Never throws for a bad call: that is a result with an `error` that says which field and what it expects. */
  call(tool: Tool, args: JsonObject): CallResult {
    if (this.#closed) throw new Error("this session is closed; open another one");
    const id = callKey(tool.name, args);
    const attempt = (this.#attempts.get(id) ?? 0) + 1;
    this.#attempts.set(id, attempt);
    const draw = key(this.#seed, hashText(id), attempt);
    const latencyMs = drawLatency(tool.name, draw);
    const refuse = (outcome: "invalid" | "not_found", status: number, error: string): CallResult => ({
      outcome,
      status,
      body: { error },
      latencyMs,
      fault: null,
    });

    const findings = checkArguments(this.#world.catalog, tool, args);
    if (findings.length)
      return refuse("invalid", 400, `invalid arguments for ${tool.name}: ${findings.slice(0, 5).join("; ")}`);
    const call = new Call(this.#world, this, tool, args);
    const missing = call.missing();
    if (missing) return refuse("not_found", 404, missing);

    const fault = attempt === 1 ? (this.#planted.get(id) ?? drawFault(this.#world.options.faults ?? {}, draw)) : null;
    if (fault) {
      // A write is never half done: faults that show part of an answer turn into a refusal for it.
      const kind = call.writes() && (fault === "partial" || fault === "changed_schema") ? "server_error" : fault;
      const { status, body } = faultBody(kind, draw, () => call.answer());
      return {
        outcome: "transient",
        status,
        body,
        latencyMs: kind === "timeout" ? TIMEOUT_MS : latencyMs,
        fault: kind,
      };
    }
    const conflict = call.conflict();
    if (conflict) return refuse("invalid", 409, conflict);
    const status = call.op.kind === "create" ? 201 : 200;
    return { outcome: "ok", status, body: call.answer(), latencyMs, fault: null };
  }

  writes(): Write[] {
    return this.#writes
      .map((w, i) => ({ w, i }))
      .sort((a, b) => compare(a.w.resource, b.w.resource) || compare(a.w.id, b.w.id) || a.i - b.i)
      .map(({ w }) => structuredClone(w));
  }

  close(): void {
    this.#closed = true;
  }

  // What follows is for the calls of this session.

  write(w: Write): void {
    this.#writes.push(w);
  }
  made(api: string, type: string): Made[] {
    return this.#made.get(`${api}|${type}`) ?? [];
  }
  addMade(api: string, m: Made): void {
    const at = `${api}|${m.type}`;
    const list = this.#made.get(at);
    if (list) list.push(m);
    else this.#made.set(at, [m]);
  }
  isDeleted(api: string, type: string, index: number): boolean {
    return this.#deleted.size > 0 && this.#deleted.has(`${api}|${type}|${index}`);
  }
  markDeleted(api: string, type: string, index: number): void {
    this.#deleted.add(`${api}|${type}|${index}`);
  }
  overlay(api: string, type: string, index: number): ReadonlyMap<string, Json> | undefined {
    return this.#values.size ? this.#values.get(`${api}|${type}|${index}`) : undefined;
  }
  set(api: string, type: string, index: number, values: Iterable<[string, Json]>): void {
    const at = `${api}|${type}|${index}`;
    const kept = this.#values.get(at) ?? new Map<string, Json>();
    for (const [k, v] of values) kept.set(k, v);
    this.#values.set(at, kept);
  }
}

/** Identity of a call: name and arguments with sorted keys (method.md section 2). */
export function callKey(name: string, args: JsonObject): string {
  return `${name} ${canonical(args)}`;
}
const compare = (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0);
const asKey = (v: Json | undefined): string | number | null =>
  typeof v === "string" || typeof v === "number" ? v : null;

/** One call being answered. */
class Call {
  readonly op: Op;
  readonly #world: World;
  readonly #session: WorldSession;
  readonly #tool: Tool;
  readonly #args: JsonObject;
  readonly #population: Population;
  readonly #scope: { type: string; index: number }[] = [];
  #target: number | null = null;

  constructor(world: World, session: WorldSession, tool: Tool, args: JsonObject) {
    this.#world = world;
    this.#session = session;
    this.#tool = tool;
    this.#args = args;
    this.op = world.op(tool);
    this.#population = world.population(tool.api);
  }

  /** Resolves every identifier of the call; the message names the first that is unknown. */
  missing(): string | null {
    const unknown = (ref: KeyRef) => `no ${ref.type} with ${ref.param} ${JSON.stringify(this.#args[ref.param])}`;
    for (const ref of this.op.scope) {
      const index = this.#resolve(ref);
      if (index === undefined) continue;
      if (index === null || !this.#within(ref.type, index)) return unknown(ref);
      this.#scope.push({ type: ref.type, index });
    }
    for (const ref of this.op.refs) {
      const index = this.#resolve(ref);
      // A filter by something unknown finds nothing; a write or a reading that refers to it is refused.
      if (index === null && this.op.kind !== "list") return unknown(ref);
      if (index !== undefined && this.op.kind === "list") this.#scope.push({ type: ref.type, index: index ?? -1 });
    }
    if (this.op.target) {
      const index = this.#resolve(this.op.target);
      if (index === null || (index !== undefined && !this.#within(this.op.target.type, index)))
        return unknown(this.op.target);
      this.#target = index ?? null;
    }
    return null;
  }

  /** Number of the entity that a parameter names; undefined: not given; null: unknown. */
  #resolve(ref: KeyRef): number | null | undefined {
    const value = asKey(this.#args[ref.param]);
    if (value === null) return undefined;
    const api = this.#tool.api;
    for (const m of this.#session.made(api, ref.type)) {
      const own =
        ref.key === ""
          ? m.id
          : asKey(
              this.#session.overlay(api, ref.type, m.index)?.get(ref.key) ??
                this.#population.keyOf(ref.type, m.index, ref.key),
            );
      if (String(own) === String(value) && !this.#session.isDeleted(api, ref.type, m.index)) return m.index;
    }
    let index = this.#population.find(ref.type, ref.key, value);
    if (index === null && ref.key !== "") index = this.#population.find(ref.type, "", value);
    return index !== null && this.#session.isDeleted(api, ref.type, index) ? null : index;
  }

  /** Whether an entity is among those of the innermost owner that the call names. */
  #within(type: string, index: number): boolean {
    const owner = this.#scope.at(-1);
    if (!owner || owner.type === type) return true;
    if (index >= CREATED) {
      const m = this.#session.made(this.#tool.api, type).find((x) => x.index === index);
      return m === undefined || m.scope.every((s) => s.type !== owner.type || s.index === owner.index);
    }
    if (owner.index >= CREATED) return false;
    return this.#population.under(type, owner.type, owner.index).includes(index);
  }

  writes(): boolean {
    return (
      this.op.kind === "create" || this.op.kind === "update" || this.op.kind === "delete" || this.op.kind === "action"
    );
  }

  /** A create whose own identifier is taken. */
  conflict(): string | null {
    if (this.op.kind !== "create" || !this.op.type) return null;
    const id = this.#givenId();
    if (!id) return null;
    const taken = this.#resolve({ param: id, type: this.op.type, key: "" });
    return typeof taken === "number"
      ? `"${id}" ${JSON.stringify(this.#args[id])} is taken: a ${this.op.type} with it exists`
      : null;
  }

  /** The parameter in which the caller chooses the new entity's identifier, or null. */
  #givenId(): string | null {
    const t = this.op.type ? this.#population.model.types.get(this.op.type) : undefined;
    if (!t) return null;
    for (const param of Object.keys(this.#args))
      if (normal(param) === t.idField && this.#tool.places[param] !== "header" && asKey(this.#args[param]) !== null)
        return param;
    return null;
  }

  /** Carries the call out and gives its body. */
  answer(): Json {
    const { op } = this;
    switch (op.kind) {
      case "compute":
        return this.#body(null, new Persona(key(this.#world.seed, this.#tool.name, canonical(this.#meaningful()))));
      case "list":
        return this.#list();
      case "get":
        return this.#body(this.#target, null);
      case "create":
        return this.#create();
      case "update":
      case "action": {
        const type = op.target?.type ?? op.type ?? "action";
        const values = this.#values();
        if (this.#target !== null && op.target) {
          this.#session.set(this.#tool.api, op.target.type, this.#target, flat(values, op.target.type));
        }
        const id =
          this.#target !== null && op.target ? String(this.#idOf(op.target.type, this.#target, "")) : this.#scopeId();
        this.#session.write({
          kind: op.kind,
          resource: this.#resource(op.kind === "action" ? `${type} ${this.#tool.operation}` : type),
          id,
          values,
        });
        return this.#body(
          this.#target,
          this.#target === null
            ? new Persona(key(this.#world.seed, this.#tool.name, canonical(this.#meaningful())))
            : null,
        );
      }
      case "delete": {
        const type = op.target?.type ?? op.type ?? "item";
        if (this.#target === null) {
          this.#session.write({
            kind: "delete",
            resource: this.#resource(type),
            id: this.#scopeId(),
            values: this.#values(),
          });
          return this.#body(null, new Persona(key(this.#world.seed, this.#tool.name, canonical(this.#meaningful()))));
        }
        const body = this.#body(this.#target, null);
        this.#session.write({
          kind: "delete",
          resource: this.#resource(type),
          id: String(this.#idOf(type, this.#target, "")),
          values: {},
        });
        this.#session.markDeleted(this.#tool.api, type, this.#target);
        return body;
      }
    }
  }

  #resource(type: string): string {
    return `${this.#tool.api}:${type}`;
  }
  #scopeId(): string {
    return this.#scope.map((s) => String(this.#idOf(s.type, s.index, ""))).join("/") || "self";
  }

  /** Arguments that are values of the entity: no headers, no owners, not the identifier of the target. */
  #values(): JsonObject {
    const skip = new Set([...this.op.scope.map((r) => r.param), this.op.target?.param]);
    return Object.fromEntries(
      Object.entries(this.#args).filter(([k]) => !skip.has(k) && this.#tool.places[k] !== "header"),
    );
  }
  #meaningful(): JsonObject {
    return Object.fromEntries(Object.entries(this.#args).filter(([k]) => this.#tool.places[k] !== "header"));
  }

  #create(): Json {
    const api = this.#tool.api;
    const type = this.op.type;
    const values = this.#values();
    if (!type) {
      this.#session.write({ kind: "create", resource: this.#resource("item"), id: this.#scopeId(), values });
      return this.#body(null, new Persona(key(this.#world.seed, this.#tool.name, canonical(this.#meaningful()))));
    }
    const made = this.#session.made(api, type);
    const index =
      CREATED + (key(hashText(canonical(this.#args)), made.filter((m) => m.index >= CREATED).length) % 1_000_000_000);
    const given = this.#givenId();
    const id = (given && asKey(this.#args[given])) || this.#population.keyOf(type, index, "");
    this.#session.addMade(api, { type, index, id, scope: [...this.#scope] });
    this.#session.set(api, type, index, flat(values, type));
    this.#session.write({ kind: "create", resource: this.#resource(type), id: String(id), values });
    return this.#body(index, null);
  }

  #idOf(type: string, index: number, field: string): string | number {
    if (index >= CREATED) {
      const m = this.#session.made(this.#tool.api, type).find((x) => x.index === index);
      if (m && field === "") return m.id;
      const said = asKey(this.#session.overlay(this.#tool.api, type, index)?.get(field));
      if (said !== null) return said;
    }
    return this.#population.keyOf(type, index, field);
  }

  #fillOf(type: string | null, index: number, persona: Persona): Fill {
    return {
      population: this.#population,
      type,
      index,
      persona,
      overlay: (t, i) => {
        const set = this.#session.overlay(this.#tool.api, t, i);
        const owners = i === index ? this.#owners(t) : undefined;
        return owners?.size ? new Map([...owners, ...(set ?? [])]) : set;
      },
      idOf: (t, i, f) => this.#idOf(t, i, f),
    };
  }

  /** What the path says of the entity: its owners' identifiers stand in its fields. */
  #owners(type: string): Map<string, Json> | undefined {
    if (!this.op.scope.length || type !== this.op.type) return undefined;
    const out = new Map<string, Json>();
    for (const r of this.op.scope)
      if (this.#args[r.param] !== undefined) out.set(normal(r.param), this.#args[r.param] as Json);
    return out;
  }

  /** A body around one entity, or around details drawn for this very call. */
  #body(index: number | null, persona: Persona | null): Json {
    const plans = this.#world.plans(this.#tool, this.op);
    const type = index === null ? null : (this.op.target?.type ?? this.op.type);
    const shows = type !== null && (type === this.op.type || this.op.kind === "get");
    const own =
      persona ??
      (type !== null && index !== null
        ? this.#population.persona(type, index)
        : new Persona(key(this.#world.seed, this.#tool.name, canonical(this.#meaningful()))));
    if (!plans.envelope) {
      const id: JsonObject = type !== null && index !== null ? { id: this.#idOf(type, index, "") } : {};
      if (this.op.kind === "delete") return { ...id, deleted: true };
      if (plans.entity && index !== null && this.op.kind !== "action")
        return fill(plans.entity, this.#fillOf(type, index, own));
      return { ...id, status: "ok" };
    }
    const { plan, at, many } = plans.envelope;
    const echo = this.#echo();
    const f = this.#fillOf(shows ? type : null, index ?? 0, own);
    const withEcho: Fill = shows ? f : { ...f, overlay: () => echo };
    if (at.length === 0 && !many) return this.#settle(fillEchoed(plan, withEcho, shows ? undefined : echo), null);
    const entity = plans.entity ? fillEchoed(plans.entity, withEcho, shows ? undefined : echo) : {};
    if (at.length === 0) return [entity];
    return place(this.#settle(fill(plan, { ...f, type: null }), null), at, many ? [entity] : entity);
  }

  /** Arguments by normal name: what a reading says back of its question. */
  #echo(): Map<string, Json> {
    return new Map(Object.entries(this.#args).map(([k, v]) => [normal(k), v]));
  }

  #list(): Json {
    const plans = this.#world.plans(this.#tool, this.op);
    const api = this.#tool.api;
    const type = this.op.type;
    if (!type || !plans.entity) {
      const own = new Persona(key(this.#world.seed, this.#tool.name, canonical(this.#meaningful())));
      if (!plans.envelope) return { items: [], total: 0 };
      const { at, many, plan } = plans.envelope;
      if (at.length === 0 && many)
        return Array.from({ length: Math.min(2, this.#mostItems([])) }, (_, i) =>
          fill(plan, this.#fillOf(null, 0, new Persona(key(own.seed, i)))),
        );
      return this.#settle(fill(plans.envelope.plan, this.#fillOf(null, 0, own)), null);
    }
    let found = this.#scope.length
      ? this.#scope
          .map((s) => (s.index < 0 ? [] : s.index >= CREATED ? [] : this.#population.under(type, s.type, s.index)))
          .reduce((a, b) => (a.length && b.length ? a.filter((x) => b.includes(x)) : []))
      : this.#population.members(type);
    const made = this.#session
      .made(api, type)
      .filter((m) => this.#scope.every((s) => !m.scope.some((x) => x.type === s.type && x.index !== s.index)));
    found = [...found, ...made.map((m) => m.index)].filter((i) => !this.#session.isDeleted(api, type, i));
    const whole = plans.entity;
    let items = found.map((index) => fill(whole, this.#fillOf(type, index, this.#population.persona(type, index))));
    const unfiltered = items;
    items = this.#filter(items);
    items = this.#sort(items);
    // A schema that wants items gets them: such lists cannot say "nothing found".
    if (items.length < this.#fewestItems(plans.envelope?.at ?? [])) items = this.#padded(items, unfiltered, plans);
    return this.#page(items, plans);
  }

  /** Words of an argument's name without signs. */
  #argumentsBy(test: RegExp): [string, Json][] {
    return Object.entries(this.#args).filter(
      ([k]) => test.test(splitWords(k).join(" ")) && this.#tool.places[k] !== "path",
    );
  }

  #filter(items: Json[]): Json[] {
    const skip = new Set([...this.op.scope.map((r) => r.param), ...this.op.refs.map((r) => r.param)]);
    let out = items;
    for (const [param, value] of Object.entries(this.#args)) {
      const words = splitWords(param).join(" ");
      if (skip.has(param) || this.#tool.places[param] === "header" || this.#tool.places[param] === "path") continue;
      if (
        PAGING.test(words) ||
        OFFSET.test(words) ||
        PAGE.test(words) ||
        TOKEN.test(words) ||
        SORT.test(words) ||
        DIRECTION.test(words)
      )
        continue;
      if (SEARCH.test(words) && typeof value === "string") {
        const hits = out.filter((item) => texts(item).some((t) => t.toLowerCase().includes(value.toLowerCase())));
        // Free text that no field holds: what a full-text search would rank first.
        out = hits.length
          ? hits
          : out.filter((item, i) => i === 0 || key(canonical(item), value) % 3 === 0).slice(0, 3);
        continue;
      }
      const wanted = (Array.isArray(value) ? value : [value]).map((v) => String(v).toLowerCase());
      const name = normal(param);
      const cls = fieldClass(param, this.#tool.parameters.properties[param] ?? {});
      const shown = out.map((item) => memberOf(item, name));
      if (!shown.some((v) => v !== undefined)) continue;
      out = out.filter((_, i) => {
        const v = shown[i];
        if (v === undefined || v === null || typeof v === "object") return false;
        const text = String(v).toLowerCase();
        return wanted.some((w) =>
          cls === "name" || cls === "title" || cls === "person" ? text.includes(w) : text === w,
        );
      });
    }
    return out;
  }

  #sort(items: Json[]): Json[] {
    const by = this.#argumentsBy(SORT).find(([, v]) => typeof v === "string")?.[1];
    if (typeof by !== "string") return items;
    const field = normal(by.replace(/^[-+]/, "").replace(/[\s:]+(asc|desc)(ending)?$/i, ""));
    if (!items.some((i) => memberOf(i, field) !== undefined)) return items;
    const direction = this.#argumentsBy(DIRECTION).some(([, v]) => typeof v === "string" && /^desc/i.test(v));
    const down = by.startsWith("-") || /[\s:]desc/i.test(by) || direction;
    const sorted = [...items].sort((a, b) => {
      const x = memberOf(a, field) ?? null;
      const y = memberOf(b, field) ?? null;
      return typeof x === "number" && typeof y === "number" ? x - y : compare(String(x), String(y));
    });
    return down ? sorted.reverse() : sorted;
  }

  #page(items: Json[], plans: Plans): Json {
    const size = firstNumber(this.#argumentsBy(PAGING)) ?? DEFAULT_PAGE;
    const limit = Math.min(Math.max(1, Math.floor(size)), 20, this.#mostItems(plans.envelope?.at ?? []));
    const page = firstNumber(this.#argumentsBy(PAGE));
    const token = this.#argumentsBy(TOKEN)
      .map(([, v]) => /^pg(\d+)$/.exec(String(v))?.[1])
      .find((v) => v !== undefined);
    const offset = Math.max(
      0,
      Math.floor(
        token !== undefined
          ? Number(token)
          : (firstNumber(this.#argumentsBy(OFFSET)) ?? (page !== undefined && page > 1 ? (page - 1) * limit : 0)),
      ),
    );
    const shown = items.slice(offset, Math.max(offset + limit, offset + this.#fewestItems(plans.envelope?.at ?? [])));
    const next = offset + limit < items.length ? offset + limit : null;
    if (!plans.envelope)
      return { items: shown, total: items.length, ...(next === null ? {} : { next_token: `pg${next}` }) };
    const { plan, at } = plans.envelope;
    if (at.length === 0) return shown;
    const own = new Persona(key(this.#world.seed, this.#tool.name, canonical(this.#meaningful())));
    return place(
      this.#settle(fill(plan, this.#fillOf(null, 0, own)), {
        total: items.length,
        shown: shown.length,
        limit,
        offset,
        next,
      }),
      at,
      shown,
    );
  }

  #fewestItems(at: readonly string[]): number {
    return this.#listSchema(at)?.minItems ?? 0;
  }
  #listSchema(at: readonly string[]) {
    let s = this.#tool.response ? clean(this.#tool.response) : undefined;
    for (const name of at) s = s?.properties?.[name];
    return s;
  }
  #padded(items: Json[], pool: Json[], plans: Plans): Json[] {
    const type = this.op.type;
    const out = [...items];
    const more = [
      ...pool,
      ...(type && plans.entity ? this.#population.members(type) : []).map((i) =>
        fill(plans.entity as Plan, this.#fillOf(type, i, this.#population.persona(type as string, i))),
      ),
    ];
    const wanted = this.#fewestItems(plans.envelope?.at ?? []);
    for (let i = 0; out.length < wanted && more.length; i++) out.push(more[i % more.length] as Json);
    return out;
  }

  /** How many items the response's schema allows in the list at a path. */
  #mostItems(at: readonly string[]): number {
    return this.#listSchema(at)?.maxItems ?? 100;
  }

  /** Envelope members that speak of the call itself: success, no errors, how many there are, where the next page is. */
  #settle(
    body: Json,
    list: { total: number; shown: number; limit: number; offset: number; next: number | null } | null,
  ): Json {
    const schema = this.#tool.response ? clean(this.#tool.response) : undefined;
    if (body === null || typeof body !== "object" || Array.isArray(body) || !schema?.properties) return body;
    const required = new Set(schema.required ?? []);
    for (const name of Object.keys(body)) {
      const s = schema.properties[name];
      if (!s) continue;
      const words = splitWords(name).join(" ");
      const wanted = settled(words, body[name] as Json, list);
      if (wanted === undefined) continue;
      const v = wanted === "omit" ? undefined : coerce(wanted, s);
      if (v !== undefined) body[name] = v;
      else if (!required.has(name)) delete body[name];
    }
    return body;
  }
}

function settled(
  words: string,
  now: Json,
  list: { total: number; shown: number; limit: number; offset: number; next: number | null } | null,
): Json | undefined {
  if (
    /^(success|ok|succeeded|is success|is successful|successful|valid|acknowledged)$/.test(words) &&
    typeof now === "boolean"
  )
    return true;
  if (/^(errors?|error (message|code|details|description)|warnings?|fault|exception|validation errors)$/.test(words))
    return Array.isArray(now) ? [] : "omit";
  if (/^(status code|code|http status|response code)$/.test(words) && typeof now === "number") return 200;
  if (words === "status" && typeof now === "number") return 200;
  if (!list) return undefined;
  if (
    /^(total|total (count|results|items|records|elements|size|rows|entries|hits)|num (results|found|items)|count|records? (total|count)|result count|total num|odata count)$/.test(
      words,
    ) &&
    typeof now === "number"
  )
    return list.total;
  if (
    /^(has more|more|has next|has next page|has more items|is truncated|truncated|has additional results)$/.test(words)
  )
    return list.next !== null;
  if (/(next|continuation|page) ?(page)? ?(token|cursor|marker)$|^(cursor|marker|next|next cursor)$/.test(words))
    return list.next === null ? "omit" : `pg${list.next}`;
  if (/^(next|previous|prev|first|last) ?(page)? ?(url|uri|link)?$|odata next link/.test(words)) return "omit";
  if (/^(limit|per page|page size|max results)$/.test(words)) return list.limit;
  if (/^(offset|skip|start|start index)$/.test(words)) return list.offset;
  if (/^(page|current page|page number)$/.test(words)) return Math.floor(list.offset / list.limit) + 1;
  if (/^(total pages|pages|page count|last page)$/.test(words)) return Math.max(1, Math.ceil(list.total / list.limit));
  return undefined;
}

/** Fills a plan whose top members may say the call's arguments back. */
function fillEchoed(plan: Plan, f: Fill, echo: Map<string, Json> | undefined): Json {
  const body = fill(plan, f);
  if (!echo || plan.kind !== "object" || body === null || typeof body !== "object" || Array.isArray(body)) return body;
  for (const m of plan.members) {
    const said = echo.get(m.normal);
    const s = plan.schema.properties?.[m.name];
    const v = said !== undefined && s ? coerce(said, s) : undefined;
    if (v !== undefined && typeof v !== "object") body[m.name] = v;
  }
  return body;
}

/** Puts a value at a path of member names; objects on the way are made where they are not there. */
function place(root: Json, at: readonly string[], value: Json): Json {
  const [first, ...rest] = at;
  if (first === undefined) return value;
  const out: JsonObject = root !== null && typeof root === "object" && !Array.isArray(root) ? root : {};
  out[first] = place(out[first] ?? null, rest, value);
  return out;
}

/** Values by normal name; the members of a wrapper named like the type ("customer": {...}) are values too. */
function flat(values: JsonObject, type: string): [string, Json][] {
  const out: [string, Json][] = [];
  const wrapper = normal(type);
  for (const [k, v] of Object.entries(values)) {
    if (
      typeOf(v) === "object" &&
      (normal(k) === wrapper || wrapper.endsWith(normal(k)) || k === "data" || k === "body")
    )
      for (const [inner, w] of Object.entries(v as JsonObject)) out.push([normal(inner), w]);
    out.push([normal(k), v]);
  }
  return out;
}

function memberOf(item: Json, name: string): Json | undefined {
  if (item === null || typeof item !== "object" || Array.isArray(item)) return undefined;
  for (const k of Object.keys(item)) if (normal(k) === name) return item[k];
  return undefined;
}
function texts(value: Json): string[] {
  if (typeof value === "string") return [value];
  if (value === null || typeof value !== "object") return [];
  return (Array.isArray(value) ? value : Object.values(value)).flatMap(texts);
}
function firstNumber(found: [string, Json][]): number | undefined {
  for (const [, v] of found) {
    const n = typeof v === "number" ? v : typeof v === "string" && /^\d+$/.test(v) ? Number(v) : undefined;
    if (n !== undefined) return n;
  }
  return undefined;
}
