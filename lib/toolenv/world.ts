/**
 * A world answers calls from the tools' own interfaces: deterministic given (catalogue, seed), stateful within a session,
 * and consistent between calls. See `resources.ts` for what it knows of an API, `population.ts` for what exists in it.
 */
import type { Catalog, Json, JsonObject, JsonSchema, Tool } from "../catalog/types.ts";
import { canonicalJson } from "../config/hash.ts";
import { hash2 } from "../engine/random.ts";
import { effectOf } from "./effects.ts";
import { drawFault, drawLatency, type FaultRates, faultBody, NO_FAULTS, TIMEOUT_MS } from "./faults.ts";
import { fieldClass } from "./fields.ts";
import { hashText, KEY, key } from "./hash.ts";
import { Persona } from "./persona.ts";
import { CREATED, Population } from "./population.ts";
import { type Bound, boundsOf, within } from "./ranges.ts";
import {
  coerce,
  compileEntity,
  ENTITY,
  ENVELOPE,
  type Fill,
  fill,
  fillMember,
  hasContent,
  LISTED,
  type Plan,
} from "./render.ts";
import { type ApiModel, analyse, type KeyRef, type Op } from "./resources.ts";
import { type Check, Checks, clean, typeOf } from "./schema.ts";
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
const KEPT_ENTITIES = 60_000;

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

function frozen(v: Json): Json {
  if (v !== null && typeof v === "object") {
    for (const x of Object.values(v)) frozen(x as Json);
    Object.freeze(v);
  }
  return v;
}

export interface WorldOptions {
  /** Chance of each fault at the first attempt of any call; none by default. */
  faults?: FaultRates;
  /** How many answers are kept, to calls of sessions that have changed nothing before: rollouts ask the same again and again. 20,000. */
  remember?: number;
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
  readonly #facts = new WeakMap<Population, Map<string, ToolFacts>>();

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

  readonly #answers = new Map<string, Json>();
  /** The body that a call gets in a session that has changed nothing before, where it was made already. Frozen, since it is shared. */
  remembered(id: string): Json | undefined {
    return this.#answers.get(id);
  }
  remember(id: string, body: Json): Json {
    const most = this.options.remember ?? 20_000;
    if (most <= 0) return body;
    if (this.#answers.size >= most) this.#answers.delete(this.#answers.keys().next().value as string);
    this.#answers.set(id, frozen(body));
    return body;
  }

  readonly #filled = new Map<Plan, Map<string, Json>>();
  #filledCount = 0;
  /**
   * An entity as a plan shows it, for sessions that have changed nothing of it. Made once and frozen, since it is shared by all.
   */
  shared(plan: Plan, id: string, make: () => Json): Json {
    let byId = this.#filled.get(plan);
    if (!byId) {
      byId = new Map();
      this.#filled.set(plan, byId);
    }
    let v = byId.get(id);
    if (v === undefined) {
      if (++this.#filledCount > KEPT_ENTITIES) {
        this.#filled.clear();
        this.#filled.set(plan, byId);
        byId.clear();
        this.#filledCount = 1;
      }
      v = frozen(make());
      byId.set(id, v);
    }
    return v;
  }

  population(api: string): Population {
    return remember(this.#populations, api, KEPT_MODELS, () => new Population(apiModel(this.catalog, api), this.seed));
  }

  op(tool: Tool): Op {
    const op = apiModel(this.catalog, tool.api).ops.get(tool.name);
    if (!op) throw new RangeError(`tool ${tool.name} is not part of ${tool.api} in this catalogue`);
    return op;
  }

  /** What calls of a tool need to know, found at its first call. */
  facts(tool: Tool): ToolFacts {
    const population = this.population(tool.api);
    let byName = this.#facts.get(population);
    if (!byName) {
      byName = new Map();
      this.#facts.set(population, byName);
    }
    let facts = byName.get(tool.name);
    if (!facts) {
      facts = makeFacts(this.catalog, tool, population);
      byName.set(tool.name, facts);
    }
    return facts;
  }
}

/** What calls of one tool need to know. */
interface ToolFacts {
  op: Op;
  population: Population;
  check: Check;
  plans(): Plans;
  /** The cleaned response schema, or null. */
  response: JsonSchema | null;
  /** Members of the response that speak of the call itself. */
  settled: { name: string; role: Settled; schema: JsonSchema; required: boolean }[];
  /** Parameters that name owners, the target or other entities: they filter nothing. */
  keys: ReadonlySet<string>;
  /** Parameters of a list that bound a date of its items. */
  bounds: ReadonlyMap<string, Bound>;
  /** Values that a call sets in its target by what it means: cancelled, archived … */
  effect: readonly [string, Json][];
  /** Parameters that are values of the entity. */
  isValue(param: string): boolean;
  /** Whether calls change nothing. */
  reads: boolean;
  /** Whether any parameter is a header: those do not decide the answer. */
  headers: boolean;
  fewest: number;
  most: number;
}

function makeFacts(catalog: Catalog, tool: Tool, population: Population): ToolFacts {
  const op = population.model.ops.get(tool.name);
  if (!op) throw new RangeError(`tool ${tool.name} is not part of ${tool.api} in this catalogue`);
  const response = tool.response ? clean(tool.response) : null;
  const required = new Set(response?.required ?? []);
  const path = new Set([...op.scope.map((r) => r.param), op.target?.param]);
  const k = known(catalog);
  const plans = () => remember(k.plans, tool.name, KEPT_PLANS, () => makePlans(tool, op, population.model));
  let list: JsonSchema | undefined = response ?? undefined;
  for (const name of plans().envelope?.at ?? []) list = list?.properties?.[name];
  return {
    op,
    population,
    check: k.checks.get(`${tool.name}?`, tool.parameters, true),
    plans,
    response,
    settled: Object.entries(response?.properties ?? {}).flatMap(([name, schema]) => {
      const role = settledRole(name);
      return role === null ? [] : [{ name, role, schema, required: required.has(name) }];
    }),
    keys: new Set([...op.scope, ...op.refs].map((r) => r.param)),
    bounds: op.kind === "list" ? boundsOf(tool, shownBy(plans().entity)) : new Map(),
    effect: effectOf(tool, op, op.target ? population.model.types.get(op.target.type) : undefined),
    isValue: (param) => !path.has(param) && tool.places[param] !== "header",
    reads: op.kind === "list" || op.kind === "get" || op.kind === "compute",
    headers: Object.values(tool.places).includes("header"),
    fewest: list?.minItems ?? 0,
    most: list?.maxItems ?? 100,
  };
}

/** Scalar members that a plan shows, with their schemas. */
function shownBy(plan: Plan | null): [string, JsonSchema][] {
  if (plan?.kind !== "object") return [];
  return plan.members.flatMap(({ name, plan: p }) => (p.kind === "scalar" ? [[name, p.schema]] : []));
}

/** A plan without what stands at a path: that is made apart. */
function around(plan: Plan, at: readonly string[]): Plan {
  const [first, ...rest] = at;
  if (plan.kind !== "object" || first === undefined) return plan;
  return {
    ...plan,
    members: plan.members.map((m) =>
      m.name !== first ? m : { ...m, plan: rest.length ? around(m.plan, rest) : { kind: "fixed", value: null } },
    ),
  };
}

/** Compiles how a tool's response is made: its entity, and the envelope around it. */
function makePlans(tool: Tool, op: Op, model: ApiModel): Plans {
  const words = op.type ?? splitWords(tool.operation).join(" ");
  const limits = op.many ? LISTED : ENTITY;
  const schema = tool.response ? clean(tool.response) : null;
  // Where the analysis found the entity: its type may have been settled after that.
  let found: JsonSchema | undefined = schema ?? undefined;
  for (const name of op.at ?? []) found = found?.properties?.[name];
  if (op.many) found = found?.items;
  const of = op.kind === "compute" ? null : op.type;
  if (schema && found && op.at) {
    const entity = compileEntity(found, of, model, limits, words);
    if (op.at.length === 0) return { entity, envelope: { plan: entity, at: [], many: op.many } };
    return {
      entity,
      envelope: { plan: around(compileEntity(schema, null, model, ENVELOPE, words), op.at), at: op.at, many: op.many },
    };
  }
  if (schema && hasContent(schema) && (schema.type !== "object" || Object.keys(schema.properties ?? {}).length > 0))
    return {
      entity: null,
      envelope: { plan: compileEntity(schema, null, model, ENVELOPE, words), at: [], many: false },
    };
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

/** What an argument of a list is about, by its words. */
type Role = "size" | "offset" | "page" | "token" | "sort" | "direction" | "search";
const ROLES: [Role, RegExp][] = [
  [
    "size",
    /^(limit|per ?page|page ?size|max( ?results| ?records| ?items)?|count|top|rows|size|results ?per ?page|page ?limit)$/,
  ],
  ["offset", /^(offset|skip|start|start ?index|start ?at)$/],
  ["page", /^(page|page ?(number|no|num|index))$/],
  ["token", /^(next ?token|page ?token|cursor|marker|starting ?after|continuation ?token|next)$/],
  ["sort", /^(sort|sort ?by|order ?by|sort ?field|order)$/],
  ["direction", /^(direction|sort ?order|sort ?dir(ection)?|ordering)$/],
  [
    "search",
    /^(q|query|search|keyword|keywords|term|search ?term|search ?text|text|filter ?text|name ?contains|search ?query)$/,
  ],
];
const roles = new Map<string, Role | null>();
function roleOf(param: string): Role | null {
  let role = roles.get(param);
  if (role === undefined) {
    const words = splitWords(param).join(" ");
    role = ROLES.find(([, r]) => r.test(words))?.[0] ?? null;
    roles.set(param, role);
  }
  return role;
}
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
    const draw = hash2(hash2(hash2(KEY, this.#seed), hashText(id)), attempt);
    const facts = this.#world.facts(tool);
    const latencyMs = drawLatency(tool.name, draw);
    const refuse = (outcome: "invalid" | "not_found", status: number, error: string): CallResult => ({
      outcome,
      status,
      body: { error },
      latencyMs,
      fault: null,
    });

    // What was asked before, and can't have changed, is not worked out again.
    const reads = facts.reads && this.untouched;
    const before = reads ? this.#world.remembered(id) : undefined;
    if (before !== undefined) {
      const fault = this.#fault(id, attempt, draw);
      if (!fault) return { outcome: "ok", status: 200, body: before, latencyMs, fault: null };
      return faulty(fault, draw, latencyMs, () => before);
    }
    const findings = facts.check(args);
    if (findings.length)
      return refuse("invalid", 400, `invalid arguments for ${tool.name}: ${findings.slice(0, 5).join("; ")}`);
    const call = new Call(this.#world, this, tool, facts, args, id);
    const missing = call.missing();
    if (missing) return refuse("not_found", 404, missing);

    const fault = this.#fault(id, attempt, draw);
    if (fault) {
      // A write is never half done: faults that show part of an answer turn into a refusal for it.
      const kind = call.writes() && (fault === "partial" || fault === "changed_schema") ? "server_error" : fault;
      return faulty(kind, draw, latencyMs, () => call.answer());
    }
    const conflict = call.conflict();
    if (conflict) return refuse("invalid", 409, conflict);
    const status = call.op.kind === "create" ? 201 : 200;
    const body = reads ? this.#world.remember(id, call.answer()) : call.answer();
    return { outcome: "ok", status, body, latencyMs, fault: null };
  }

  /** The fault that hits an attempt, or null: only the first can meet one. */
  #fault(id: string, attempt: number, draw: number): FaultKind | null {
    if (attempt > 1) return null;
    return this.#planted.get(id) ?? drawFault(this.#world.options.faults ?? NO_FAULTS, draw);
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

  /** Whether the session has changed nothing at all yet. */
  get untouched(): boolean {
    return this.#writes.length === 0;
  }

  /** Whether the session has set values of no entity but this one. */
  touchesOnly(api: string, type: string, index: number): boolean {
    return this.#values.size === 0 || (this.#values.size === 1 && this.#values.has(`${api}|${type}|${index}`));
  }

  write(w: Write): void {
    this.#writes.push(w);
  }
  made(api: string, type: string): readonly Made[] {
    return this.#made.size === 0 ? [] : (this.#made.get(`${api}|${type}`) ?? []);
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

function faulty(kind: FaultKind, draw: number, latencyMs: number, answer: () => Json): CallResult {
  const { status, body } = faultBody(kind, draw, answer);
  return { outcome: "transient", status, body, latencyMs: kind === "timeout" ? TIMEOUT_MS : latencyMs, fault: kind };
}

/** Identity of a call: name and arguments with sorted keys (method.md section 2). */
export function callKey(name: string, args: JsonObject): string {
  return `${name} ${canonicalJson(args)}`;
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
  readonly #facts: ToolFacts;
  readonly #id: string;
  readonly #first: boolean;
  readonly #population: Population;
  readonly #scope: { type: string; index: number }[] = [];
  #target: number | null = null;

  constructor(world: World, session: WorldSession, tool: Tool, facts: ToolFacts, args: JsonObject, id: string) {
    this.#world = world;
    this.#session = session;
    this.#tool = tool;
    this.#facts = facts;
    this.#args = args;
    this.#id = id;
    this.#first = session.untouched;
    this.op = facts.op;
    this.#population = facts.population;
  }

  /** The arguments, with sorted keys. */
  get #said(): string {
    return this.#id.slice(this.#tool.name.length + 1);
  }

  /** Details of this very call: the same for the same arguments, headers apart. */
  #own(): Persona {
    const said = this.#facts.headers ? canonicalJson(this.#meaningful()) : this.#said;
    return new Persona(key(this.#world.seed, this.#tool.name, said));
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
        return this.#body(null, this.#own());
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
          this.#session.set(this.#tool.api, op.target.type, this.#target, [
            ...flat(values, op.target.type),
            ...this.#facts.effect,
          ]);
        }
        const id =
          this.#target !== null && op.target ? String(this.#idOf(op.target.type, this.#target, "")) : this.#scopeId();
        this.#session.write({
          kind: op.kind,
          resource: this.#resource(op.kind === "action" ? `${type} ${this.#tool.operation}` : type),
          id,
          values,
        });
        return this.#bodyOnce(this.#target, this.#target === null ? this.#own() : null);
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
          return this.#bodyOnce(null, this.#own());
        }
        const body = this.#bodyOnce(this.#target, null);
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
    const out: JsonObject = {};
    for (const k of Object.keys(this.#args)) if (this.#facts.isValue(k)) out[k] = this.#args[k] as Json;
    return out;
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
      return this.#bodyOnce(null, this.#own());
    }
    const made = this.#session.made(api, type);
    const index = CREATED + (key(hashText(this.#said), made.filter((m) => m.index >= CREATED).length) % 1_000_000_000);
    const given = this.#givenId();
    const id = (given && asKey(this.#args[given])) || this.#population.keyOf(type, index, "");
    this.#session.addMade(api, { type, index, id, scope: [...this.#scope] });
    this.#session.set(api, type, index, flat(values, type));
    this.#session.write({ kind: "create", resource: this.#resource(type), id: String(id), values });
    return this.#bodyOnce(index, null);
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

  /** An entity as a plan shows it. The value may be shared: nobody changes it. */
  #shown(plan: Plan, type: string, index: number): Json {
    const api = this.#tool.api;
    const f = this.#fillOf(type, index, this.#population.persona(type, index));
    if (index >= CREATED || !this.#session.touchesOnly(api, type, index)) return fill(plan, f);
    let id = String(index);
    for (const r of this.op.scope) id += `|${this.#args[r.param]}`;
    const owners = this.#owners(type);
    const base = this.#world.shared(plan, id, () =>
      fill(plan, { ...f, overlay: (t, i) => (i === index ? this.#owners(t) : undefined) }),
    );
    const set = this.#session.overlay(api, type, index);
    return set ? (patched(base, plan, set, owners) ?? fill(plan, f)) : base;
  }

  /** What the path says of the entity: its owners' identifiers stand in its fields. */
  #owners(type: string): Map<string, Json> | undefined {
    if (!this.op.scope.length || type !== this.op.type) return undefined;
    const out = new Map<string, Json>();
    for (const r of this.op.scope)
      if (this.#args[r.param] !== undefined) out.set(normal(r.param), this.#args[r.param] as Json);
    return out;
  }

  /** The body of a write. The first write of a session shows the same for the same call. */
  #bodyOnce(index: number | null, persona: Persona | null): Json {
    if (!this.#first) return this.#body(index, persona);
    return this.#world.remembered(this.#id) ?? this.#world.remember(this.#id, this.#body(index, persona));
  }

  /** A body around one entity, or around details drawn for this very call. */
  #body(index: number | null, persona: Persona | null): Json {
    const plans = this.#facts.plans();
    const type = index === null ? null : (this.op.target?.type ?? this.op.type);
    const shows = type !== null && (type === this.op.type || this.op.kind === "get");
    const own = persona ?? (type !== null && index !== null ? this.#population.persona(type, index) : this.#own());
    if (!plans.envelope) {
      const id: JsonObject = type !== null && index !== null ? { id: this.#idOf(type, index, "") } : {};
      if (this.op.kind === "delete") return { ...id, deleted: true };
      if (plans.entity && index !== null && this.op.kind !== "action")
        return type === null ? { status: "ok" } : this.#shown(plans.entity, type, index);
      return { ...id, status: "ok" };
    }
    const { plan, at, many } = plans.envelope;
    if (shows && type !== null && index !== null && plans.entity) {
      const entity = this.#shown(plans.entity, type, index);
      if (at.length === 0) return many ? [entity] : this.#settle(isObject(entity) ? { ...entity } : entity, null);
      const around = this.#own();
      return place(this.#settle(fill(plan, this.#fillOf(null, 0, around)), null), at, many ? [entity] : entity);
    }
    const echo = this.#echo();
    const f: Fill = { ...this.#fillOf(null, 0, own), overlay: () => echo };
    if (at.length === 0 && !many) return this.#settle(fillEchoed(plan, f, echo), null);
    const entity = plans.entity ? fillEchoed(plans.entity, f, echo) : {};
    if (at.length === 0) return [entity];
    return place(this.#settle(fill(plan, f), null), at, many ? [entity] : entity);
  }

  /** Arguments by normal name: what a reading says back of its question. */
  #echo(): Map<string, Json> {
    return new Map(Object.entries(this.#args).map(([k, v]) => [normal(k), v]));
  }

  #list(): Json {
    const plans = this.#facts.plans();
    const api = this.#tool.api;
    const type = this.op.type;
    if (!type || !plans.entity) {
      const own = this.#own();
      if (!plans.envelope) return { items: [], total: 0 };
      const { at, many, plan } = plans.envelope;
      if (at.length === 0 && many)
        return Array.from({ length: Math.min(2, this.#facts.most) }, (_, i) =>
          fill(plan, this.#fillOf(null, 0, new Persona(key(own.seed, i)))),
        );
      const body = this.#settle(fill(plan, this.#fillOf(null, 0, own)), null);
      if (!plans.entity || !many) return body;
      const item = fill(plans.entity, this.#fillOf(null, 0, own));
      return place(
        body,
        at,
        Array.from({ length: Math.max(1, this.#facts.fewest) }, () => item),
      );
    }
    const existing: readonly number[] = this.#scope.length
      ? this.#scope
          .map((s): readonly number[] =>
            s.index < 0 || s.index >= CREATED ? [] : this.#population.under(type, s.type, s.index),
          )
          .reduce((a, b) => (a.length && b.length ? a.filter((x) => b.includes(x)) : []))
      : this.#population.members(type);
    const made = this.#session
      .made(api, type)
      .filter((m) => this.#scope.every((s) => !m.scope.some((x) => x.type === s.type && x.index !== s.index)));
    let found = [...existing, ...made.map((m) => m.index)].filter((i) => !this.#session.isDeleted(api, type, i));
    const least = this.#facts.fewest;
    if (found.length < least) found = [...this.#population.members(type)];
    for (let i = 0; found.length > 0 && found.length < least; i++) found.push(found[i] as number);
    const whole = plans.entity;
    const show = (index: number) => this.#shown(whole, type, index);
    if (!this.#looks()) return this.#page(found.length, (from, to) => found.slice(from, to).map(show), plans);
    const unfiltered = found.map(show);
    let items = this.#sort(this.#filter(unfiltered));
    // A schema that wants items gets them: such lists cannot say "nothing found".
    const fewest = this.#facts.fewest;
    for (const item of unfiltered) if (items.length < fewest) items = [...items, item];
    return this.#page(items.length, (from, to) => items.slice(from, to), plans);
  }

  /** Whether any argument filters or sorts: only then has every entity to be looked at. */
  #looks(): boolean {
    const skip = this.#facts.keys;
    return Object.keys(this.#args).some(
      (k) => !skip.has(k) && this.#tool.places[k] !== "header" && this.#tool.places[k] !== "path" && !this.#pages(k),
    );
  }
  /** An argument's role. "start" with an "end" is a time. */
  #role(param: string): Role | null {
    if (this.#facts.bounds.has(param)) return null;
    if (param.toLowerCase() === "start" && "end" in this.#tool.parameters.properties) return null;
    return roleOf(param);
  }
  /** Whether an argument is about pages. */
  #pages(param: string): boolean {
    const role = this.#role(param);
    return role !== null && role !== "sort" && role !== "direction" && role !== "search";
  }

  /** Values of the arguments that play a role. */
  #of(role: Role): Json[] {
    const out: Json[] = [];
    for (const k in this.#args)
      if (this.#role(k) === role && this.#tool.places[k] !== "path") out.push(this.#args[k] as Json);
    return out;
  }

  #filter(items: Json[]): Json[] {
    const skip = this.#facts.keys;
    let out = items;
    for (const [param, value] of Object.entries(this.#args)) {
      if (skip.has(param) || this.#tool.places[param] === "header" || this.#tool.places[param] === "path") continue;
      const role = this.#role(param);
      if (role !== null && role !== "search") continue;
      if (role === "search" && typeof value === "string") {
        const hits = out.filter((item) => texts(item).some((t) => t.toLowerCase().includes(value.toLowerCase())));
        // Free text that no field holds: what a full-text search would rank first.
        out = hits.length
          ? hits
          : out.filter((item, i) => i === 0 || key(canonicalJson(item), value) % 3 === 0).slice(0, 3);
        continue;
      }
      const bound = this.#facts.bounds.get(param);
      if (bound) {
        out = out.filter((item) => within(memberOf(item, bound.field) ?? null, value, bound));
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
    const by = this.#of("sort").find((v) => typeof v === "string");
    if (typeof by !== "string") return items;
    const field = normal(by.replace(/^[-+]/, "").replace(/[\s:]+(asc|desc)(ending)?$/i, ""));
    if (!items.some((i) => memberOf(i, field) !== undefined)) return items;
    const direction = [...this.#of("direction"), ...this.#of("sort")].some(
      (v) => typeof v === "string" && /^desc/i.test(v),
    );
    const down = by.startsWith("-") || /[\s:]desc/i.test(by) || direction;
    const sorted = [...items].sort((a, b) => {
      const x = memberOf(a, field) ?? null;
      const y = memberOf(b, field) ?? null;
      return typeof x === "number" && typeof y === "number" ? x - y : compare(String(x), String(y));
    });
    return down ? sorted.reverse() : sorted;
  }

  /** One page of `total` items, which `take` gives from one number up to another. */
  #page(total: number, take: (from: number, to: number) => Json[], plans: Plans): Json {
    const size = firstNumber(this.#of("size")) ?? DEFAULT_PAGE;
    const fewest = this.#facts.fewest;
    const limit = Math.max(Math.min(Math.max(1, Math.floor(size)), 20, this.#facts.most), fewest);
    const page = firstNumber(this.#of("page"));
    const token = this.#of("token")
      .map((v) => /^pg(\d+)$/.exec(String(v))?.[1])
      .find((v) => v !== undefined);
    const skipped = firstNumber(this.#of("offset"));
    const asked =
      token !== undefined ? Number(token) : (skipped ?? (page !== undefined && page > 1 ? (page - 1) * limit : 0));
    const offset = Math.max(0, fewest ? Math.min(Math.floor(asked), total - fewest) : Math.floor(asked));
    const shown = take(offset, offset + limit);
    const next = offset + limit < total ? offset + limit : null;
    if (!plans.envelope) return { items: shown, total, ...(next === null ? {} : { next_token: `pg${next}` }) };
    const { plan, at } = plans.envelope;
    if (at.length === 0) return shown;
    const own = this.#own();
    return place(
      this.#settle(fill(plan, this.#fillOf(null, 0, own)), {
        total,
        shown: shown.length,
        limit,
        offset,
        next,
      }),
      at,
      shown,
    );
  }

  /** Envelope members that speak of the call itself: success, no errors, how many there are, where the next page is. */
  #settle(body: Json, list: Page | null): Json {
    if (!isObject(body)) return body;
    for (const { name, role, schema, required } of this.#facts.settled) {
      if (!Object.hasOwn(body, name)) continue;
      const wanted = settled(role, body[name] as Json, list);
      if (wanted === undefined) continue;
      const v = wanted === "omit" ? undefined : coerce(wanted, schema);
      if (v !== undefined) body[name] = v;
      else if (!required) delete body[name];
    }
    return body;
  }
}

/** What a member of an envelope speaks of, by its words. */
type Settled =
  | "success"
  | "errors"
  | "code"
  | "status"
  | "total"
  | "more"
  | "token"
  | "link"
  | "limit"
  | "offset"
  | "page"
  | "pages";
const SETTLED: [Settled, RegExp][] = [
  ["success", /^(success|ok|succeeded|is success|is successful|successful|valid|acknowledged)$/],
  ["errors", /^(errors?|error (message|code|details|description)|warnings?|fault|exception|validation errors)$/],
  ["code", /^(status code|code|http status|response code)$/],
  ["status", /^status$/],
  [
    "total",
    /^(total|total (count|results|items|records|elements|size|rows|entries|hits)|num (results|found|items)|count|records? (total|count)|result count|total num|odata count)$/,
  ],
  ["more", /^(has more|more|has next|has next page|has more items|is truncated|truncated|has additional results)$/],
  ["token", /(next|continuation|page) ?(page)? ?(token|cursor|marker)$|^(cursor|marker|next|next cursor)$/],
  ["link", /^(next|previous|prev|first|last) ?(page)? ?(url|uri|link)?$|odata next link/],
  ["limit", /^(limit|per page|page size|max results)$/],
  ["offset", /^(offset|skip|start|start index)$/],
  ["page", /^(page|current page|page number)$/],
  ["pages", /^(total pages|pages|page count|last page)$/],
];
const settledRoles = new Map<string, Settled | null>();

interface Page {
  total: number;
  shown: number;
  limit: number;
  offset: number;
  next: number | null;
}
function settledRole(name: string): Settled | null {
  let role = settledRoles.get(name);
  if (role === undefined) {
    const words = splitWords(name).join(" ");
    role = SETTLED.find(([, r]) => r.test(words))?.[0] ?? null;
    settledRoles.set(name, role);
  }
  return role;
}
function settled(role: Settled, now: Json, list: Page | null): Json | undefined {
  if (role === "success") return typeof now === "boolean" ? true : undefined;
  if (role === "errors") return Array.isArray(now) ? [] : "omit";
  if (role === "code" || role === "status") return typeof now === "number" ? 200 : undefined;
  if (!list) return undefined;
  switch (role) {
    case "total":
      return typeof now === "number" ? list.total : undefined;
    case "more":
      return list.next !== null;
    case "token":
      return list.next === null ? "omit" : `pg${list.next}`;
    case "link":
      return "omit";
    case "limit":
      return list.limit;
    case "offset":
      return list.offset;
    case "page":
      return Math.floor(list.offset / list.limit) + 1;
    case "pages":
      return Math.max(1, Math.ceil(list.total / list.limit));
  }
}

/** Fills a plan, of no stored entity, whose top members may say the call's arguments back. */
function fillEchoed(plan: Plan, f: Fill, echo: ReadonlyMap<string, Json>): Json {
  if (plan.kind !== "object") return fill(plan, f);
  const body: JsonObject = {};
  for (const m of plan.members) {
    const said = echo.get(m.normal);
    const s = plan.schema.properties?.[m.name];
    const v = said !== undefined && s ? coerce(said, s) : undefined;
    body[m.name] = v !== undefined && typeof v !== "object" ? v : fillMember(m, f);
  }
  return body;
}

/** An unchanged entity with the values that an episode set in it; null where it has to be made anew. */
function patched(
  base: Json,
  plan: Plan,
  set: ReadonlyMap<string, Json>,
  owners: ReadonlyMap<string, Json> | undefined,
): Json | null {
  if (plan.kind !== "object" || plan.embeds || !isObject(base)) return null;
  const out = { ...base };
  for (const m of plan.members) {
    const said = m.plan.kind === "id" ? undefined : set.get(m.normal);
    const schema = plan.schema.properties?.[m.name];
    if (said === undefined || !schema) continue;
    const taken = coerce(said, schema);
    if (taken !== undefined) out[m.name] = taken;
    else if (owners?.has(m.normal)) return null;
  }
  return out;
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
const isObject = (v: Json): v is JsonObject => v !== null && typeof v === "object" && !Array.isArray(v);
function texts(value: Json): string[] {
  if (typeof value === "string") return [value];
  if (value === null || typeof value !== "object") return [];
  return (Array.isArray(value) ? value : Object.values(value)).flatMap(texts);
}
function firstNumber(found: readonly Json[]): number | undefined {
  for (const v of found) {
    const n = typeof v === "number" ? v : typeof v === "string" && /^\d+$/.test(v) ? Number(v) : undefined;
    if (n !== undefined) return n;
  }
  return undefined;
}
