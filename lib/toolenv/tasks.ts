/**
 * Tasks that need exactly the tools that they name (toolenv.md section 4): calls that fit together are found by data flow
 * between real operations, carried out in a world, put into a person's words, and kept only where the exact judge agrees
 * that every call, argument and fact matters.
 */
import type { Catalog, Json, JsonObject, Retriever, Tool } from "../catalog/types.ts";
import { canonicalJson } from "../config/hash.ts";
import { sameValue, scalars } from "./compare.ts";
import { hashText, key, Rng } from "./hash.ts";
import { type Op, referredType } from "./resources.ts";
import { flaw } from "./solve.ts";
import { DeadEnd, Draft, stop, withId } from "./tasks/draft.ts";
import type { Piece } from "./tasks/motifs.ts";
import * as motif from "./tasks/motifs.ts";
import { brand } from "./tasks/speech.ts";
import { type Offer, type Surface, surfaceOf } from "./tasks/surface.ts";
import type { Fact, FaultKind, GoldCall, GoldEdge, Shape, Task } from "./types.ts";
import { capital, humanise, pluralPhrase, splitWords } from "./words.ts";
import { apiModel, type World } from "./world.ts";

export interface TaskSpec {
  split: "train" | "heldout";
  seed: number;
  count: number;
  /** Weights of the shapes; one that is left out is not drawn. */
  shapes?: Partial<Record<Shape, number>>;
  maxCalls?: number;
  /** Share of tasks that create, update or delete something, where the shape leaves it open. */
  writes?: number;
  /** Share of tasks with a fault planted on the path. */
  faults?: number;
  /** Share of multi-call tasks over several providers. */
  crossProvider?: number;
  /** Longest response of a gold call, in characters of JSON: tasks that small models can read. */
  maxResponse?: number;
  /** Finds the gold tools: a task is kept only where each is among the first `withinTop` (10) of its query. */
  retriever: Retriever;
  withinTop?: number;
  /** Only tools that plain words for what is asked find ("get invoice details by ID in Acme"), not their own descriptions. */
  plainQueries?: boolean;
}

/** One provider in this many is held out. */
const HELD_OUT_ONE_IN = 6;
/** Held-out providers are told by a hash of their name, so that the split needs no list and never moves. */
export function splitOf(provider: string): "train" | "heldout" {
  return hashText(`split ${provider}`) % HELD_OUT_ONE_IN === 0 ? "heldout" : "train";
}

/** Thrown where a catalogue has too little to make tasks from. */
export class TaskShortage extends Error {
  override readonly name = "TaskShortage";
}

const SHAPES: Record<Shape, number> = {
  single: 2,
  parallel: 2,
  chain: 3,
  fan_out: 2,
  fan_in: 1,
  diamond: 0.5,
  mixed: 2,
};
/** Most that one provider gives to a set, while others have something left: a share of the tasks, or this many. */
const SHARE = 0.06;
const FEW = 5;

/** Places of a row of tasks that share a pool of APIs. */
const WINDOW = 2500;
/** APIs of one pool at most: what is read of them stays in memory. */
const POOL = 320;

/**
 * Draws APIs of one split, from pools as large as the set needs: few tasks need few APIs read. A provider is drawn by the
 * root of the number of its APIs, and not at all once it has given its share: large ones do not fill a set.
 */
class Apis {
  readonly #catalog: Catalog;
  readonly #spec: TaskSpec;
  readonly #given = new Map<string, number>();
  #most: number;
  #window = -1;
  #pool = new Map<string, string[]>();
  #open: string[] = [];
  #weights: number[] = [];
  constructor(catalog: Catalog, spec: TaskSpec) {
    this.#catalog = catalog;
    this.#spec = spec;
    this.#most = Math.max(FEW, Math.ceil(SHARE * spec.count));
    if (!catalog.size) throw new TaskShortage("the catalogue is empty: build or import one first");
  }
  /** Moves on to the pool of a place in the row. */
  at(place: number): void {
    const window = Math.floor(place / WINDOW);
    if (window === this.#window) return;
    this.#window = window;
    const { split, seed, count } = this.#spec;
    const rng = new Rng(key(seed, split, "pool", window));
    // Few APIs can fill a diamond: a set with many of them needs a larger pool.
    const rare = (this.#spec.shapes ?? SHAPES).diamond ?? 0;
    const share = rare / Object.values(this.#spec.shapes ?? SHAPES).reduce((a, b) => a + b, 0);
    const most = Math.min(POOL, 32 + Math.ceil(count / 3) + Math.ceil(200 * share));
    const left = Map.groupBy(
      this.#catalog.apis().filter((a) => splitOf(a.provider) === split),
      (a) => a.provider,
    );
    if (!left.size) throw new TaskShortage(`no provider of this catalogue is in the ${split} split`);
    this.#pool = new Map();
    for (let i = 0; i < most && left.size; i++) {
      const providers = [...left.keys()];
      const sizes = [...left.values()].map((own) => Math.sqrt(own.reduce((n, a) => n + a.tools, 0)));
      const provider = providers[rng.weighted(sizes)] as string;
      const own = left.get(provider) ?? [];
      const [taken] = own.splice(rng.weighted(own.map((a) => a.tools)), 1);
      if (!own.length) left.delete(provider);
      this.#pool.set(provider, [...(this.#pool.get(provider) ?? []), taken?.api as string]);
    }
    this.#settle();
  }
  /** Counts a task's providers. */
  used(providers: readonly string[]): void {
    this.#started.hits++;
    for (const p of providers) this.#given.set(p, (this.#given.get(p) ?? 0) + 1);
    this.#settle();
  }
  /** Raises the share where those that have given theirs may be the ones that a place needs. */
  relax(): void {
    if (this.#open.length < this.#pool.size) this.#most = Math.ceil(this.#most * 1.02);
    this.#settle();
  }
  #settle(): void {
    const open = () => [...this.#pool.keys()].filter((p) => (this.#given.get(p) ?? 0) < this.#most);
    while (!open().length) this.#most = Math.ceil(this.#most * 1.02);
    this.#open = open();
    this.#weights = this.#open.map((p) => Math.sqrt(this.#pool.get(p)?.length ?? 0));
  }
  /** An API of the pool; one that suits, where the pool has any. */
  draw(rng: Rng, suits: (s: Surface) => boolean = () => true): Surface {
    const one = () => {
      const provider = this.#open[rng.weighted(this.#weights)] as string;
      return surfaceOf(this.#catalog, rng.pick(this.#pool.get(provider) as string[]));
    };
    let s = one();
    for (let i = 0; i < 20 && !suits(s); i++) s = one();
    if (suits(s)) return s;
    const all = rng.shuffle(this.#open.flatMap((p) => this.#pool.get(p) as string[]));
    return all.map((api) => surfaceOf(this.#catalog, api)).find(suits) ?? stop(BARREN);
  }
  /** An API to start a shape with: not one that has been tried often and given little. */
  start(shape: Shape, rng: Rng, suits: (s: Surface) => boolean): Surface {
    const luck = (api: string) => this.#luck.get(`${shape} ${api}`) ?? { tries: 0, hits: 0 };
    const s = this.draw(rng, (x) => luck(x.api).tries < PATIENCE * (1 + luck(x.api).hits) && suits(x));
    const { tries, hits } = luck(s.api);
    this.#started = { tries: tries + 1, hits };
    this.#luck.set(`${shape} ${s.api}`, this.#started);
    return s;
  }
  readonly #luck = new Map<string, { tries: number; hits: number }>();
  #started = { tries: 0, hits: 0 };
}
/** Tries at a shape for each task of it that an API has given, and one more. */
const PATIENCE = 80;
/** Why a try ends where no API suits: more tries at the place would end the same way. */
const BARREN = "no API suits";

/** Tries at one task before its place is given to another shape. */
const TRIES = 250;

/**
 * Writes tasks one by one, in an order that the spec alone decides: the same catalogue, world and spec give the same bytes.
 * No provider is in both splits. Throws TaskShortage where the catalogue gives too few.
 */
export function* generateTasks(catalog: Catalog, world: World, spec: TaskSpec): Generator<Task> {
  const weights = Object.entries(spec.shapes ?? SHAPES).filter(([, w]) => w > 0) as [Shape, number][];
  const apis = new Apis(catalog, spec);
  const seen = new Set<string>();
  /** Tasks made so far by the tools that they take: a set is not filled with one kind. */
  const kinds = new Map<string, number>();
  const alike = 1 + Math.floor(spec.count / 2500);
  let given = 0;
  for (let n = 0, dry = 0; given < spec.count; n++, dry++) {
    if (dry > 40)
      throw new TaskShortage(
        `only ${given} of ${spec.count} tasks could be made for split ${spec.split} with shapes ${weights.map(([s]) => s).join(", ")}: the catalogue gives no more`,
      );
    apis.at(n);
    const slot = new Rng(key(spec.seed, spec.split, n));
    const shape = weights[slot.weighted(weights.map(([, w]) => w))]?.[0] as Shape;
    const wish: Wish = {
      shape,
      writes: slot.chance(spec.writes ?? 0.2),
      cross: slot.chance(spec.crossProvider ?? 0.2),
      fault: slot.chance(spec.faults ?? 0),
    };
    for (let a = 0; a < TRIES; a++) {
      const task = tryTask(catalog, world, spec, apis, wish, new Rng(key(spec.seed, spec.split, n, a)));
      if (task === BARREN) break;
      if (!task || seen.has(task.id)) continue;
      const kind = task.calls.map((c) => c.tool).join(" ");
      if ((kinds.get(kind) ?? 0) >= alike + Math.floor(a / 100)) continue;
      kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
      seen.add(task.id);
      apis.used(task.providers);
      dry = -1;
      given++;
      yield task;
      break;
    }
    if (dry >= 0) apis.relax();
  }
}

/** What one place in the row of tasks is for. */
interface Wish {
  shape: Shape;
  writes: boolean;
  cross: boolean;
  fault: boolean;
}

/** One try at a task; null where it leads nowhere, BARREN where others would not either. */
function tryTask(
  catalog: Catalog,
  world: World,
  spec: TaskSpec,
  apis: Apis,
  wish: Wish,
  rng: Rng,
): Task | typeof BARREN | null {
  const draft = new Draft(world, rng);
  try {
    const pieces = build(draft, wish, apis);
    if (draft.steps.length > (spec.maxCalls ?? 6)) stop("too many calls");
    const longest = spec.maxResponse ?? Number.POSITIVE_INFINITY;
    if (draft.steps.some((s) => JSON.stringify(s.body).length > longest)) stop("a response is too long");
    return finish(draft, pieces, wish, spec, catalog, world);
  } catch (error) {
    if (error instanceof DeadEnd) return error.message === BARREN ? BARREN : null;
    throw error;
  }
}

/** What an API has to offer to start a shape. */
const canRead = (s: Surface): boolean => s.gets.length + s.lists.length > 0;
const SUITS: Record<Shape, (s: Surface, d: Draft) => boolean> = {
  single: canRead,
  parallel: canRead,
  chain: motif.canChain,
  fan_out: motif.canFanOut,
  fan_in: motif.canJoin,
  diamond: motif.canStartDiamond,
  mixed: motif.canChain,
};

function build(d: Draft, wish: Wish, apis: Apis): Piece[] {
  const { rng } = d;
  const { shape, writes, cross } = wish;
  const suits = SUITS[shape];
  const s = apis.start(shape, rng, (x) => suits(x, d));
  const other = () => (cross ? apis.draw(rng, canRead) : s);
  const one = (from: Surface): Piece =>
    writes && rng.chance(0.7)
      ? rng.pick([motif.make, motif.change])(d, from)
      : rng.pick([motif.readOne, motif.readOne, motif.readAll])(d, from);
  const chain = (): Piece => {
    if (!writes) return rng.pick([motif.findAndRead, motif.findChildren, motif.follow])(d, s);
    return rng.pick([
      motif.findAndChange,
      motif.findAndMakeInside,
      motif.makeInside,
      (x: Draft, y: Surface) => motif.carryOver(x, y, cross ? apis.draw(rng) : y),
    ])(d, s);
  };
  switch (shape) {
    case "single":
      return [one(s)];
    case "parallel":
      return Array.from({ length: rng.pick([2, 2, 2, 3, 3, 4]) }, () => one(other()));
    case "chain":
      return [chain()];
    case "fan_out":
      return [rng.chance(0.7) ? motif.fanOut(d, s, rng.int(2, 3)) : motif.forEach(d, s, 4)];
    case "fan_in":
      // What joins is the rare part: the others are drawn to go with it.
      return [
        rng.pick([
          () => motif.fanInByName(d, s),
          () => motif.fanInByValue(d, s, rng.chance(0.5) ? s : apis.draw(rng)),
        ])(),
      ];
    case "diamond":
      return [motif.diamond(d, s, () => (cross || rng.chance(0.6) ? apis.draw(rng) : s))];
    case "mixed":
      return rng.chance(0.5)
        ? [chain(), one(other())]
        : rng.chance(0.5)
          ? [one(other()), chain()]
          : [motif.fanOut(d, s, 2), one(other())];
  }
}

/** From a draft to a task: names, layers, edges, words; then the checks that keep or drop it. */
function finish(d: Draft, pieces: readonly Piece[], wish: Wish, spec: TaskSpec, catalog: Catalog, world: World): Task {
  const { rng } = d;
  const { shape } = wish;
  const layers: number[] = [];
  d.steps.forEach((s, i) => {
    layers[i] =
      1 + Math.max(0, ...Object.values(s.sources).map((x) => (x.from === "step" ? (layers[x.step] as number) : 0)));
  });
  const order = d.steps.map((_, i) => i).sort((a, b) => (layers[a] as number) - (layers[b] as number) || a - b);
  const counts = new Map<string, number>();
  const ids: string[] = [];
  for (const i of order) {
    const name = (d.steps[i] as (typeof d.steps)[number]).offer.tool.name;
    counts.set(name, (counts.get(name) ?? 0) + 1);
    ids[i] = `${name}#${counts.get(name)}`;
  }
  const calls: GoldCall[] = order.map((i) => {
    const s = d.steps[i] as (typeof d.steps)[number];
    const { name, parameters } = s.offer.tool;
    return { id: ids[i] as string, tool: name, arguments: asShown(s.args, parameters), step: layers[i] as number };
  });
  if (new Set(calls.map((c) => canonicalJson([c.tool, c.arguments]))).size !== calls.length)
    stop("the same call twice");
  const edges = edgesOf(d, ids, layers);
  if (shapeOf(calls, edges) !== shape) stop("another shape");
  const facts: Fact[] = d.asked.map((a) => ({
    source: ids[a.step] as string,
    pointer: a.pointer,
    label: a.long,
    value: a.value,
    accepted: [],
  }));
  const request = compose(pieces, rng);
  for (const s of d.steps)
    for (const [param, source] of Object.entries(s.sources))
      if (source.from === "user" && !request.includes(String(s.args[param]))) stop("a value is not told");
  const tools = [...new Set(calls.map((c) => c.tool))];
  if (tools.some((t) => request.includes(t) && t.includes("_"))) stop("the request names a tool");
  const queries: Record<string, string> = {};
  const distractors: Record<string, string[]> = {};
  for (const i of order) {
    const { offer } = d.steps[i] as (typeof d.steps)[number];
    const slot = slotFor(offer, spec) ?? stop("the tool cannot be found");
    queries[offer.tool.name] ??= slot.query;
    distractors[offer.tool.name] ??= lookAlikes(catalog, offer, slot.others, tools);
  }
  const faults: Record<string, FaultKind> = {};
  if (wish.fault) {
    const i = rng.pick(order);
    const kind = (d.steps[i] as (typeof d.steps)[number]).offer.op.kind;
    faults[ids[i] as string] = rng.pick<FaultKind>(
      kind === "list"
        ? ["rate_limit", "timeout", "server_error", "partial", "stale_page", "changed_schema"]
        : kind === "get"
          ? ["rate_limit", "timeout", "server_error", "partial", "changed_schema"]
          : ["rate_limit", "timeout", "server_error"],
    );
  }
  const body = {
    shape,
    request,
    worldSeed: world.seed,
    tools,
    providers: [...new Set(order.map((i) => (d.steps[i] as (typeof d.steps)[number]).offer.tool.provider))],
    calls,
    edges,
    facts,
    writes: d.writes(),
    faults,
    queries,
    distractors,
    split: spec.split,
  };
  const task = withId(body);
  const wrong = flaw(catalog, world, task);
  if (wrong) stop(wrong);
  return task;
}

/** Arguments in the order in which the tool shows its parameters, the required ones first. */
function asShown(args: JsonObject, { properties, required }: Tool["parameters"]): JsonObject {
  const order = [...required, ...Object.keys(properties)];
  const place = ([name]: [string, Json]) => (order.includes(name) ? order.indexOf(name) : order.length);
  return Object.fromEntries(Object.entries(args).sort((a, b) => place(a) - place(b)));
}

/** Hard edges where a value is carried; soft ones where an earlier response happens to show what a later call is told. */
function edgesOf(d: Draft, ids: readonly string[], layers: readonly number[]): GoldEdge[] {
  const out: GoldEdge[] = [];
  d.steps.forEach((s, to) => {
    for (const [argument, source] of Object.entries(s.sources)) {
      if (source.from === "step")
        out.push({
          from: ids[source.step] as string,
          to: ids[to] as string,
          kind: "hard",
          argument,
          pointer: source.pointer,
        });
      const value = s.args[argument] as Json;
      if (typeof value === "boolean" || String(value).length < 4) continue;
      d.steps.forEach((a, from) => {
        if ((layers[from] as number) >= (layers[to] as number) || (source.from === "step" && source.step === from))
          return;
        const own = Object.values(a.args).some((v) => sameValue(v, value));
        const hit = own
          ? undefined
          : scalars(a.body).find((x) => x.value !== null && String(x.value) === String(value));
        if (hit && !out.some((e) => e.from === ids[from] && e.to === ids[to]))
          out.push({ from: ids[from] as string, to: ids[to] as string, kind: "soft", argument, pointer: hit.pointer });
      });
    }
  });
  return out;
}

/** The shape of a task graph by its hard edges. */
export function shapeOf(calls: readonly GoldCall[], edges: readonly GoldEdge[]): Shape {
  const pairs = new Set(edges.filter((e) => e.kind === "hard").map((e) => `${e.from} ${e.to}`));
  const from = new Map<string, string[]>();
  const to = new Map<string, string[]>();
  for (const p of pairs) {
    const [a, b] = p.split(" ") as [string, string];
    from.set(a, [...(from.get(a) ?? []), b]);
    to.set(b, [...(to.get(b) ?? []), a]);
  }
  const out = (id: string) => from.get(id)?.length ?? 0;
  const into = (id: string) => to.get(id)?.length ?? 0;
  if (calls.length === 1) return "single";
  if (!pairs.size) return "parallel";
  const roots = calls.filter((c) => !into(c.id));
  const ends = calls.filter((c) => !out(c.id));
  const connected = calls.every((c) => into(c.id) + out(c.id) > 0);
  if (!connected) return "mixed";
  if (roots.length === 1 && calls.every((c) => out(c.id) <= 1 && into(c.id) <= 1)) return "chain";
  if (roots.length === 1 && ends.length === calls.length - 1) return "fan_out";
  if (ends.length === 1 && roots.length === calls.length - 1) return "fan_in";
  if (roots.length === 1 && ends.length === 1 && calls.some((c) => into(c.id) > 1)) return "diamond";
  return "mixed";
}

/** Puts pieces into one message, as a person might write it. */
function compose(pieces: readonly Piece[], rng: Rng): string {
  const start = (p: Piece): string => {
    const imperative = !/^(what|which|can|I)\b/.test(p.text);
    const options = [
      `In ${p.brand}, ${p.text}`,
      `In ${p.brand}, ${p.text}`,
      `I'm working in ${p.brand}. ${capital(p.text)}`,
      `This is about ${p.brand}: ${p.text}`,
      `On ${p.brand}, ${p.text}`,
    ];
    if (imperative)
      options.push(
        `Using ${p.brand}, ${p.text}`,
        `Could you help me with ${p.brand}? ${capital(p.text)}`,
        `For ${p.brand}: ${p.text}`,
      );
    else options.push(`A question about ${p.brand}: ${p.text}`, `I have a question about ${p.brand}: ${p.text}`);
    return rng.pick(options);
  };
  const follow = (p: Piece, before: Piece, word: string): string => {
    if (p.brand !== before.brand) return `${word} in ${p.brand}, ${p.text}`;
    return `${word} ${p.text}`;
  };
  const [first, ...rest] = pieces as [Piece, ...Piece[]];
  const hello = rng.chance(0.12) ? rng.pick(["Hi! ", "Hello, I need some help. ", "Hi there. "]) : "";
  if (!rest.length) return hello + start(first);
  if (rest.length >= 2 && rng.chance(0.5)) {
    const numbered = pieces.map(
      (p, i) => `${i + 1}) ${i === 0 || p.brand !== pieces[i - 1]?.brand ? `in ${p.brand}, ` : ""}${p.text}`,
    );
    return `${hello}${rng.pick(["I have a few things to sort out:", "A few things, please:", "Please take care of these:"])} ${numbered.join(" ")}`;
  }
  const words = rng.shuffle(["Also,", "Besides that,", "Then, separately,", "One more thing:", "And"]);
  return hello + [start(first), ...rest.map((p, i) => follow(p, pieces[i] as Piece, words[i] as string))].join(" ");
}

const VERBS = {
  list: "list",
  get: "get",
  create: "create",
  update: "update",
  delete: "delete",
  action: "run",
  compute: "get",
} as const;

/** A search that finds an operation's tool, and the other tools that it finds. */
interface Slot {
  query: string;
  others: readonly Tool[];
}
/** Slots by offer, which belongs to one catalogue, and by what is asked of them: a retriever answers the same every time. */
const slotCache = new WeakMap<Retriever, WeakMap<Offer, Map<string, Slot | null>>>();

/** A search that finds an operation's tool, or null: what the tool must do, in plain words first. */
function slotFor(offer: Offer, { retriever, withinTop = 10, plainQueries = false }: TaskSpec): Slot | null {
  const byOffer = slotCache.get(retriever) ?? new WeakMap<Offer, Map<string, Slot | null>>();
  slotCache.set(retriever, byOffer);
  const known = byOffer.get(offer) ?? new Map<string, Slot | null>();
  byOffer.set(offer, known);
  const kind = `${withinTop} ${plainQueries}`;
  let slot = known.get(kind);
  if (slot === undefined) known.set(kind, (slot = findSlot(offer, retriever, withinTop, plainQueries)));
  return slot;
}

function findSlot(offer: Offer, retriever: Retriever, top: number, plainOnly: boolean): Slot | null {
  const own = (tool: Tool) => tool.name === offer.tool.name;
  for (const query of queriesFor(offer, plainOnly)) {
    const hits = retriever.search(query, 10).map((h) => h.tool);
    if (hits.slice(0, top).some(own)) return { query, others: hits.filter((t) => !own(t)) };
  }
  return null;
}

function queriesFor({ tool, op, type }: Offer, plainOnly: boolean): string[] {
  const noun = op.kind === "list" ? pluralPhrase(humanise(type)) : humanise(type);
  const owner = op.scope.at(-1);
  const plain = `${VERBS[op.kind]} ${noun}${owner && owner.type !== type ? ` of ${humanise(owner.type)}` : ""}${op.kind === "get" ? " details by ID" : ""} in ${brand(tool)}`;
  if (plainOnly) return [plain];
  const sentence = (tool.description.split(/[.;]\s/)[0] ?? "").split(" ").slice(0, 14).join(" ");
  return [plain, `${sentence} in ${brand(tool)}`, `${splitWords(tool.operation).join(" ")} ${brand(tool)}`];
}

/** Look-alikes that a task records for each of its tools, at most. */
const LOOK_ALIKES = 3;
/**
 * Tools that a slot's words find as well, nearest first, and that cannot do what it is for: of another API, whose world is
 * another, or of this one about another type, or for writing where it reads and the reverse.
 */
function lookAlikes(catalog: Catalog, offer: Offer, others: readonly Tool[], gold: readonly string[]): string[] {
  const reads = (kind: Op["kind"]) => kind === "list" || kind === "get" || kind === "compute";
  const unlike = (t: Tool) => {
    if (t.api !== offer.tool.api) return true;
    const { ops, types } = apiModel(catalog, t.api);
    const op = ops.get(t.name);
    if (op === undefined) return false;
    // A subscription names its user: its page may show the very ID that the list of users was for.
    const fields = [...(types.get(op.type ?? "")?.fields.values() ?? [])];
    if (fields.some((f) => referredType(f.name, f.schema, types) === offer.type)) return false;
    // "company vendor" shows vendors as well.
    const apart = op.type !== null && !op.type.split(" ").some((w) => offer.type.split(" ").includes(w));
    return apart || reads(op.kind) !== reads(offer.op.kind);
  };
  return others
    .filter((t) => !gold.includes(t.name) && unlike(t))
    .slice(0, LOOK_ALIKES)
    .map((t) => t.name);
}
