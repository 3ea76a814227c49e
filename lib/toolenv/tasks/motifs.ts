/** The pieces that tasks are made of: each carries its calls out in a draft and says in English what a person would ask for. */
import type { Json } from "../../catalog/types.ts";
import { at, sameValue } from "../compare.ts";
import { type FieldClass, fieldClass } from "../fields.ts";
import { coerce } from "../render.ts";
import { clean } from "../schema.ts";
import { nameKind } from "../values.ts";
import { humanise, listed, pluralPhrase } from "../words.ts";
import { type Draft, KEPT, roleOf, stop } from "./draft.ts";
import { AWKWARD, argumentLabel, belonging, brand, mention, one, several, spoken } from "./speech.ts";
import { links, nearest, type Offer, type Surface } from "./surface.ts";

/** What one piece asks: sentences without the service's name, each able to follow "In X, ". */
export interface Piece {
  text: string;
  brand: string;
}
type Known = Map<string, { index: number; step: number | null }>;

const pick = <T>(d: Draft, items: readonly T[]): T => (items.length ? d.rng.pick(items) : stop("nothing to pick"));
const PERSONAL =
  /\b(user|customer|contact|member|person|employee|patient|client|player|student|agent|owner|supplier|vendor|candidate|subscriber|worker|driver|guest|attendee|author)\b/;
const its = (type: string) => (PERSONAL.test(type.split(" ").at(-1) ?? "") ? "their" : "its");
const joined = (...parts: string[]) => parts.filter((p) => p !== "").join(" ");
const the = (labels: readonly string[]) => `the ${listed(labels)}`;

/** A function of an object that is found once for each. */
function once<K extends object, V>(find: (of: K, d: Draft) => V): (of: K, d: Draft) => V {
  const known = new WeakMap<K, { v: V }>();
  return (of, d) => {
    let hit = known.get(of);
    if (!hit) {
      hit = { v: find(of, d) };
      known.set(of, hit);
    }
    return hit.v;
  };
}

/** The entity that a step is about, in the user's words. */
function subject(d: Draft, step: number): string {
  const s = d.steps[step]!;
  const target = s.offer.op.target;
  const own = target
    ? mention(s.offer.type, target.key, s.args[target.param] as Json, d.rng)
    : `the ${humanise(s.offer.type)}`;
  return joined(own, s.owners);
}

/** "with name "X" and status active". */
function withValues(d: Draft, step: number): string {
  const s = d.steps[step]!;
  if (!s.stated.length) return "";
  const parts = s.stated.map((v) =>
    v.label === "name" || v.label === "title" ? `${v.label} ${spoken(v.value)}` : `${v.label} ${spoken(v.value)}`,
  );
  return `with ${listed(parts)}`;
}

/** Reads one entity by its identifier. */
export function readOne(d: Draft, s: Surface, most = 3): Piece {
  const offer = pick(d, s.gets);
  const step = d.take(offer);
  const E = subject(d, step);
  const labels = d.ask(step, d.entityPointer(step), d.rng.int(1, most), E).map((a) => a.label);
  const extra = withValues(d, step);
  const of = extra ? `${E} ${extra}` : E;
  const F = the(labels);
  const text =
    labels.length === 1
      ? d.rng.pick([
          `what's ${F} of ${of}?`,
          `can you tell me ${F} of ${of}?`,
          `look up ${of} and tell me ${its(offer.type)} ${labels[0]}.`,
          `I need ${F} of ${of}.`,
          `please check ${F} of ${of}.`,
        ])
      : d.rng.pick([
          `look up ${of} and give me ${its(offer.type)} ${listed(labels)}.`,
          `I need ${F} of ${of}.`,
          `what are ${F} of ${of}?`,
          `can you check ${of} and tell me ${its(offer.type)} ${listed(labels)}?`,
        ]);
  return { text, brand: brand(offer.tool) };
}

/** Items of a list that was read, with the number of the entity that each shows. */
function items(d: Draft, step: number): { pointer: string; index: number; item: Json }[] {
  const s = d.steps[step]!;
  const base = d.entityPointer(step);
  const list = at(s.body, base);
  if (!Array.isArray(list)) return stop("no list");
  const type = d.population(s.offer.tool).type(s.offer.type);
  const name = type.idField ? type.fields.get(type.idField)?.name : undefined;
  if (!name) return stop("list shows no identifiers");
  return list.flatMap((item, i) => {
    const id = item && typeof item === "object" && !Array.isArray(item) ? (item[name] as Json | undefined) : undefined;
    const index = id === undefined ? null : d.entityOf(s.offer.tool, s.offer.type, id);
    return index === null ? [] : [{ pointer: `${base}/${i}`, index, item: item as Json }];
  });
}

/** Lists a collection and asks for one field of every item. */
export function readAll(
  d: Draft,
  s: Surface,
  given: { known?: Known; of?: string } = {},
  offers: readonly Offer[] = s.lists,
): Piece & { noun: string } {
  const offer = pick(
    d,
    offers.filter((o) => o.op.scope.length + o.op.refs.length > 0 || given.known === undefined),
  );
  const step = d.take(offer, {
    ...(given.known ? { known: given.known } : {}),
    optional: given.known ? 0 : Number(d.rng.chance(0.15)),
  });
  const list = at(d.steps[step]!.body, d.entityPointer(step));
  if (!Array.isArray(list) || list.length < 2 || list.length > 5) return stop("too few or too many");
  const fields = d
    .fields(step, `${d.entityPointer(step)}/0`)
    .filter((f) =>
      /^(name|title|person|email|username|status|amount|date|datetime|code|city|phone|company)$/.test(f.cls),
    );
  const telling = fields.filter((f) => !KEPT.test(f.label));
  const label = pick(d, (telling.length ? telling : fields).slice(0, 4)).label;
  const name = fields.find((f) => f.label === label)!.name;
  const others = d.steps.map((_, i) => i).filter((i) => i !== step);
  const owner = given.of ?? d.steps[step]!.owners;
  for (const [i, item] of list.entries()) {
    const value =
      item && typeof item === "object" && !Array.isArray(item) ? (item[name] as Json | undefined) : undefined;
    if (value === undefined || value === null || value === "" || !d.isNews(value, others))
      return stop("a value that says nothing new");
    d.asked.push({
      step,
      pointer: `${d.entityPointer(step)}/${i}/${name.replace(/~/g, "~0").replace(/\//g, "~1")}`,
      label,
      long: `${label} of ${humanise(offer.type)} ${i + 1}`,
      value,
    });
  }
  const nouns = several(offer.type);
  const values = withValues(d, step);
  const which = joined(nouns, owner, values);
  const where = joined(owner, values);
  const text = d.rng.pick([
    `list the ${pluralPhrase(label)} of all ${which}.`,
    where.startsWith("of ")
      ? `I'm after the ${pluralPhrase(label)} of all the ${which}.`
      : `which ${joined(nouns, "are there", where)}? I want their ${pluralPhrase(label)}.`,
    `give me the ${label} of every one of the ${which}.`,
    `I need the ${pluralPhrase(label)} of the ${which}.`,
  ]);
  return { text, brand: brand(offer.tool), noun: nouns };
}

/** Classes of fields by which a thing is known, and failing those, told from others. */
const NAMING = /^(name|title|person|email|username|company)$/;
const NUMBERING = /^(code|hostname|ip|phone)$/;
const COUNTED = /\b(number|reference|serial|sku|barcode)\b/;
/** Adjectives of a thing's own name. */
const OWN_NAME =
  /^(display|full|public|friendly|common|short|official|legal|nick|user|first|last|trade|brand) ?(name|title)$/;

/** Whether the things that a list shows have anything to be known by. */
const findable = once((list: Offer, d) =>
  [...d.population(list.tool).type(list.type).fields.values()].some(({ name, schema }) => {
    const cls = fieldClass(name, clean(schema));
    return NAMING.test(cls) || NUMBERING.test(cls);
  }),
);

/** Lists a collection to find the one that the user knows by name. */
function find(d: Draft, list: Offer, owners: Known = new Map()): { step: number; index: number; E: string } {
  const step = d.take(list, { known: owners });
  const all = items(d, step);
  const candidates = all.flatMap((x) => {
    const fields = d.fields(step, x.pointer);
    const names =
      [NAMING, NUMBERING]
        .map((r) => fields.filter((f) => r.test(f.cls) && (f.cls !== "code" || COUNTED.test(f.label))))
        .find((fs) => fs.length) ?? [];
    // A job is not known by its device's name.
    const f = names.find(
      ({ label }) => !/ (name|title)$/.test(label) || OWN_NAME.test(label) || /^(email|username)$/.test(names[0]!.cls),
    );
    if (!f || typeof f.value !== "string" || /["\n]/.test(f.value)) return [];
    const same = all.filter((y) => y !== x && sameValue((y.item as Record<string, Json>)[f.name] ?? null, f.value));
    return same.length || d.told.some((t) => sameValue(t, f.value)) ? [] : [{ ...x, f }];
  });
  const hit = pick(d, candidates);
  const noun = humanise(list.type);
  const value = String(hit.f.value);
  const called =
    hit.f.cls === "email"
      ? `the ${noun} with the email address ${value}`
      : hit.f.cls === "username"
        ? `the ${noun} with the username ${value}`
        : /^(name|title)$/.test(hit.f.label) || OWN_NAME.test(hit.f.label)
          ? d.rng.pick([`the ${noun} called "${value}"`, `the ${noun} named "${value}"`, `the "${value}" ${noun}`])
          : `the ${noun} whose ${hit.f.label} is ${spoken(value)}`;
  d.told.push(value);
  return { step, index: hit.index, E: joined(called, d.steps[step]!.owners) };
}

const sameOwners = (a: Offer, b: Offer) =>
  a.op.scope.every((s) => s.type === b.type || b.op.scope.some((x) => x.type === s.type));
/** Entities that a step's own arguments name, so that a later call means the same ones. */
function context(d: Draft, step: number, type: string, index: number): Known {
  const s = d.steps[step]!;
  const known: Known = new Map([[type, { index, step }]]);
  for (const r of s.offer.op.scope) {
    const owner = d.population(s.offer.tool).find(r.type, r.key, s.args[r.param] as string | number);
    const from = s.sources[r.param];
    if (owner !== null) known.set(r.type, { index: owner, step: from?.from === "step" ? from.step : null });
  }
  return known;
}

/** Lists with the operation that reads one of their items. */
const pages = once((s: Surface) =>
  s.lists.flatMap((l) => {
    const all = s.gets.filter((g) => g.type === l.type && sameOwners(g, l));
    return nearest(l.tool, all).map((g) => [l, g] as const);
  }),
);

/** Finds an entity by name, then reads what only its own page shows. */
export function findAndRead(d: Draft, s: Surface): Piece {
  const [list, get] = pick(d, pages(s, d));
  const found = find(d, list);
  const step = d.take(get, { known: context(d, found.step, list.type, found.index) });
  const labels = d.ask(step, d.entityPointer(step), d.rng.int(1, 3), found.E).map((a) => a.label);
  const text = d.rng.pick([
    `find ${found.E} and tell me ${its(list.type)} ${listed(labels)}.`,
    `I'm looking for ${found.E}. What ${labels.length > 1 ? "are" : "is"} ${its(list.type)} ${listed(labels)}?`,
    `what ${labels.length > 1 ? "are" : "is"} ${the(labels)} of ${found.E}?`,
    `I need ${the(labels)} of ${found.E}; I don't have the ID.`,
  ]);
  return { text, brand: brand(get.tool) };
}

/** Reads an entity, then the one that it points at. */
export function follow(d: Draft, s: Surface): Piece {
  const from = pick(
    d,
    d.rng.shuffle(s.gets).filter((g) => links(d.catalog, s, g).length),
  );
  const link = pick(d, links(d.catalog, s, from));
  const a = d.take(from);
  const E = subject(d, a);
  const { piece } = followLink(d, a, link, E);
  const own = d.rng.chance(0.35) ? tryAsk(d, a, E) : null;
  return own
    ? {
        ...piece,
        text: `${piece.text.replace(/[.?]$/, "")}, and what's ${the(own)} of the ${humanise(from.type)} itself?`,
      }
    : piece;
}

function tryAsk(d: Draft, step: number, E: string): string[] | null {
  const good = d.fields(step, d.entityPointer(step)).some(
    (f) =>
      f.cls !== "id" &&
      d.isNews(
        f.value,
        d.steps.map((_, i) => i).filter((i) => i !== step),
      ),
  );
  return good ? d.ask(step, d.entityPointer(step), 1, E).map((x) => x.label) : null;
}

function followLink(
  d: Draft,
  a: number,
  link: { field: string; role: string; to: Offer },
  E: string,
): { step: number; piece: Piece } {
  const pointer = `${d.entityPointer(a)}/${link.field}`;
  const value = at(d.steps[a]!.body, pointer);
  if (value === undefined || value === null || d.told.some((t) => sameValue(t, value)))
    return stop("the link is not shown");
  const index = d.entityOf(link.to.tool, link.to.type, value);
  if (index === null) return stop("the link leads nowhere");
  const known = context(d, a, d.steps[a]!.offer.type, d.steps[a]!.index ?? 0);
  known.set(link.to.type, { index, step: a });
  const step = d.take(link.to, { known });
  const role = humanise(link.role);
  const labels = d.ask(step, d.entityPointer(step), d.rng.int(1, 2), `the ${role}`).map((x) => x.label);
  const text = d.rng.pick([
    `what ${labels.length > 1 ? "are" : "is"} ${the(labels)} of the ${role} of ${E}?`,
    `look up ${E} and tell me ${the(labels)} of its ${role}.`,
    `I need ${the(labels)} of the ${role} that ${E} refers to.`,
  ]);
  return { step, piece: { text, brand: brand(link.to.tool) } };
}

/** Creates something. */
export function make(d: Draft, s: Surface): Piece {
  const offer = pick(d, s.creates);
  const step = d.take(offer, { optional: d.rng.int(1, 2) });
  const st = d.steps[step]!;
  if (!st.stated.length) return stop("a create without any value");
  const tail = newId(d, step);
  const text = d.rng.pick([
    `create ${joined(one(offer.type), st.owners, withValues(d, step))}.${tail}`,
    `please add ${joined(one(offer.type), st.owners, withValues(d, step))}.${tail}`,
    `I'd like a new ${joined(humanise(offer.type), st.owners, withValues(d, step))}.${tail}`,
    `set up ${joined(one(offer.type), st.owners, withValues(d, step))}.${tail}`,
  ]);
  return { text, brand: brand(offer.tool) };
}

/** Asks for the identifier of what was made, where the response shows it. */
function newId(d: Draft, step: number): string {
  const s = d.steps[step]!;
  const type = d.population(s.offer.tool).type(s.offer.type);
  const name = type.idField ? type.fields.get(type.idField)?.name : undefined;
  const pointer = `${d.entityPointer(step)}/${name}`;
  const value = name ? at(s.body, pointer) : undefined;
  if (
    value === undefined ||
    value === null ||
    typeof value === "object" ||
    !d.isNews(
      value,
      d.steps.map((_, i) => i).filter((i) => i !== step),
    )
  )
    return "";
  d.asked.push({ step, pointer, label: "ID", long: `ID of the new ${humanise(s.offer.type)}`, value });
  return d.rng.pick([
    ` Tell me the ID of the new ${humanise(s.offer.type)}.`,
    ` I'll need its ID afterwards.`,
    ` What ID did it get?`,
  ]);
}

/** Changes or deletes something that the user can name. */
export function change(d: Draft, s: Surface): Piece {
  const offer = pick(d, [...s.updates, ...s.updates, ...s.deletes]);
  const step = d.take(offer, { optional: offer.op.kind === "update" ? d.rng.int(1, 2) : 0 });
  return { text: changeText(d, step, subject(d, step)), brand: brand(offer.tool) };
}

function changeText(d: Draft, step: number, E: string): string {
  const st = d.steps[step]!;
  if (st.offer.op.kind === "delete")
    return d.rng.pick([`delete ${E}.`, `please remove ${E}.`, `${E} is no longer needed; delete it.`]);
  if (!st.stated.length) return stop("an update without any value");
  const sets = listed(st.stated.map((v) => `the ${v.label} to ${spoken(v.value)}`));
  return d.rng.pick([
    `change ${sets.replace(/^the (.+?) to /, `the $1 of ${E} to `)}.`,
    `update ${E}: set ${sets}.`,
    `for ${E}, please set ${sets}.`,
  ]);
}

/** Finds an entity by name and changes or deletes it. */
export function findAndChange(d: Draft, s: Surface): Piece {
  const pairs = s.lists.flatMap((l) =>
    [...s.updates, ...s.deletes].filter((g) => g.type === l.type && sameOwners(g, l)).map((g) => [l, g] as const),
  );
  const [list, offer] = pick(d, pairs);
  const found = find(d, list);
  const step = d.take(offer, {
    known: context(d, found.step, list.type, found.index),
    optional: offer.op.kind === "update" ? d.rng.int(1, 2) : 0,
  });
  return { text: changeText(d, step, found.E), brand: brand(offer.tool) };
}

/** Operations that take place under an entity of a type. */
const under = (offers: readonly Offer[], type: string) => offers.filter((o) => o.op.scope.at(-1)?.type === type);

/** Lists whose items have at least two things to read: their page, and lists of what belongs to them. */
const centres = once((s: Surface) =>
  s.lists.filter((l) => {
    const below = new Set(under(s.lists, l.type).flatMap((o) => (sameOwners(o, l) ? [o.type] : [])));
    return below.size + Number(s.gets.some((g) => g.type === l.type && sameOwners(g, l))) > 1;
  }),
);
/** Whether an API could start a chain, or a fan-out. */
export const canChain = (s: Surface, d: Draft): boolean =>
  pages(s, d).length > 0 ||
  s.gets.some((g) => links(d.catalog, s, g).length > 0) ||
  s.lists.some((l) => under(s.lists, l.type).length > 0);
export const canFanOut = (s: Surface, d: Draft): boolean => pages(s, d).length > 0 || centres(s, d).length > 0;

/** Finds an entity by name, then asks several things of it at once: its page, and what belongs to it. */
export function fanOut(d: Draft, s: Surface, width: number): Piece {
  const list = pick(d, centres(s, d));
  const own = s.gets.filter((g) => g.type === list.type && sameOwners(g, list));
  const below = d.rng.shuffle(under(s.lists, list.type).filter((o) => sameOwners(o, list)));
  const consumers = [
    ...own.slice(0, 1),
    ...below.filter((o, i) => below.findIndex((x) => x.type === o.type) === i),
  ].slice(0, width);
  if (consumers.length < 2) return stop("nothing to fan out to");
  const found = find(d, list);
  const known = context(d, found.step, list.type, found.index);
  const parts: string[] = [];
  for (const c of consumers) {
    if (c.type === list.type) {
      const step = d.take(c, { known });
      parts.push(
        `${its(list.type)} ${listed(d.ask(step, d.entityPointer(step), d.rng.int(1, 2), found.E).map((a) => a.label))}`,
      );
    } else {
      const before = d.asked.length;
      const piece = readAll(d, s, { known, of: "" }, [c]);
      parts.push(`the ${pluralPhrase(d.asked[before]!.label)} of ${its(list.type)} ${piece.noun}`);
    }
  }
  const text = d.rng.pick([
    `find ${found.E} and tell me ${listed(parts)}.`,
    `I need a few things about ${found.E}: ${listed(parts)}.`,
    `for ${found.E}, give me ${listed(parts)}.`,
  ]);
  return { text, brand: brand(list.tool) };
}

/** Reads every item of a list on its own page. */
export function forEach(d: Draft, s: Surface, most: number): Piece {
  const [list, get] = pick(d, pages(s, d));
  const first = d.take(list);
  const all = items(d, first);
  const whole = at(d.steps[first]!.body, d.entityPointer(first));
  if (all.length < 2 || all.length > most || !Array.isArray(whole) || whole.length !== all.length)
    return stop("too few or too many");
  let label = "";
  for (const x of all) {
    const step = d.take(get, { known: context(d, first, list.type, x.index) });
    const [a] = d.ask(
      step,
      d.entityPointer(step),
      1,
      `${humanise(list.type)} ${spoken(d.steps[step]!.args[get.op.target!.param] as Json)}`,
      label ? new RegExp(`^${label}$`) : undefined,
    );
    if (label && a?.label !== label) return stop("no common field");
    label = a?.label ?? "";
  }
  const owners = d.steps[first]!.owners;
  const noun = humanise(list.type);
  return {
    text: d.rng.pick([
      `for each ${joined(noun, owners)}, tell me the ${label}.`,
      `go through all ${joined(several(list.type), owners)} and give me the ${label} of each one.`,
      `I want the ${label} of every ${joined(noun, owners)}.`,
    ]),
    brand: brand(get.tool),
  };
}

/** Creates something, then something else inside it. */
export function makeInside(d: Draft, s: Surface): Piece {
  const pairs = s.creates.flatMap((a) =>
    under(s.creates, a.type)
      .filter((b) => b.type !== a.type && sameOwners(b, a))
      .map((b) => [a, b] as const),
  );
  const [outer, inner] = pick(d, pairs);
  const a = d.take(outer, { optional: d.rng.int(1, 2) });
  const index = createdIndex(d, a);
  const b = d.take(inner, { known: new Map([...context(d, a, outer.type, index)]), optional: d.rng.int(1, 2) });
  if (!d.steps[a]!.stated.length || !d.steps[b]!.stated.length) return stop("a create without any value");
  const text = `create ${joined(one(outer.type), d.steps[a]!.owners, withValues(d, a))}, ${d.rng.pick(["and then add", "then add", "and once it exists, add"])} ${joined(one(inner.type), "to it", withValues(d, b))}.${newId(d, b)}`;
  return { text, brand: brand(outer.tool) };
}

/** Entities made in a draft are known by the step that made them. */
function createdIndex(d: Draft, step: number): number {
  if (d.steps[step]!.offer.op.kind !== "create") return stop("not a create");
  return 1_000_000;
}

/** Classes whose values make sense in another system. */
const CARRIED = new Set<FieldClass>(
  "email phone company city country country_code first_name last_name person username street postcode hostname date name title timezone url job".split(
    " ",
  ) as FieldClass[],
);

/** Classes of values that the entities of an operation could give to a later call. */
const gives = once((offer: Offer, d): ReadonlySet<FieldClass> => {
  const fields = d.population(offer.tool).type(offer.type).fields.values();
  return new Set([...fields].map((f) => fieldClass(f.name, clean(f.schema))).filter((c) => CARRIED.has(c)));
});

/** Classes of values that a create could take from earlier calls, one for each parameter. */
const takes = once((offer: Offer): readonly FieldClass[] =>
  Object.entries(offer.tool.parameters.properties).flatMap(([param, raw]) => {
    const s = clean(raw);
    const cls = fieldClass(param, s);
    if (s.type !== "string" || s.enum) return [];
    return CARRIED.has(cls) ? [cls] : [];
  }),
);

/** Parameters of a create or an update that could take a value of a class. */
function takers(offer: Offer, cls: FieldClass, value: Json): Taker[] {
  const out: Taker[] = [];
  for (const [param, raw] of Object.entries(offer.tool.parameters.properties)) {
    const s = clean(raw);
    if (
      offer.tool.places[param] === "header" ||
      s.type !== "string" ||
      s.enum ||
      offer.op.target?.param === param ||
      offer.op.scope.some((r) => r.param === param) ||
      offer.op.refs.some((r) => r.param === param)
    )
      continue;
    const own = fieldClass(param, s);
    if (own !== cls || coerce(value, s) === undefined) continue;
    const label = argumentLabel(param, s, value, `${offer.tool.description} ${offer.type}`);
    if (label) out.push({ param, label, names: cls === "name" || cls === "title" });
  }
  return out;
}

/** A parameter that takes a value. `names`: it names the thing. */
interface Taker {
  param: string;
  label: string;
  names: boolean;
}
/** A place in a response whose value can be carried on. */
interface Carry {
  step: number;
  pointer: string;
  value: Json;
  label: string;
  cls: FieldClass;
  E: string;
}
function carries(d: Draft, step: number, pointer: string, E: string): Carry[] {
  const others = d.steps.map((_, i) => i).filter((i) => i !== step);
  return d
    .fields(step, pointer)
    .filter((f) => CARRIED.has(f.cls) && typeof f.value === "string" && d.isNews(f.value, others))
    .map((f) => ({ step, pointer: f.pointer, value: f.value, label: f.label, cls: f.cls, E }));
}

/**
 * Whether somebody would carry a value of an entity of type `from` into one of `type`: between people and companies, things of one
 * kind, or into something that people write about anything (a ticket, a folder). No filter is named after a device.
 */
function alike(c: Carry, from: string, { label, names }: Taker, offer: Offer): boolean {
  const { type } = offer;
  // "Australia" is no ISO code.
  if (CODED.test(c.label) !== CODED.test(label)) return false;
  const same = last(from) === last(type);
  if (c.cls === "name" || c.cls === "title") {
    if (!names || offer.op.kind !== "create") return false;
    if (nameKind(from) !== nameKind(type) || !same) return false;
    return c.label === label || (NAME.test(c.label) && NAME.test(label.replace(`${humanise(type)} `, "")));
  }
  return (
    (same || (party(from) && party(type)) || written(offer)) &&
    (c.label === label || (c.cls !== "date" && !/fax/.test(c.label + label)))
  );
}
const CODED = /\b(iso|code)\b/i;
const NAME = /^((display|friendly|full) )?(name|title|subject|summary|topic)$/;
/** Things that people write about other things. */
const WRITTEN =
  /^(task|ticket|issue|note|comment|card|event|meeting|reminder|todo|case|deal|opportunity|appointment|folder|project)$/;
const PARTY =
  /^(user|customer|contact|member|person|employee|patient|client|player|student|owner|supplier|vendor|candidate|subscriber|worker|driver|guest|attendee|registrant|participant|lead|company|organi[sz]ation|org|account|partner|location|store|shop|office|venue|consumer|recipient|sender|seller|buyer|tenant|merchant|profile|address)$/;

interface Made {
  step: number;
  used: { c: Carry; label: string }[];
  offer: Offer;
}
/** Creates or changes something elsewhere by what earlier steps gave: one value of each group. */
function makeFrom(
  d: Draft,
  groups: readonly Carry[][],
  offers: readonly Offer[],
  /** Entities that are at hand already, for targets in the same API. */
  known: Known = new Map(),
): Made {
  const sources = new Set(
    groups.flat().map((c) => `${d.steps[c.step]!.offer.tool.api} ${d.steps[c.step]!.offer.type}`),
  );
  for (const offer of d.rng.shuffle(offers)) {
    // Nobody makes a second customer with the first one's telephone number.
    if (sources.has(`${offer.tool.api} ${offer.type}`)) continue;
    const taken = new Set<string>();
    const used: (Taker & { c: Carry })[] = [];
    for (const group of groups) {
      const options = d.rng.shuffle(group).flatMap((c) =>
        takers(offer, c.cls, c.value)
          .filter((t) => !taken.has(t.param))
          .map((t) => ({ c, ...t })),
      );
      // One thing has one name, and takes it only where it can take nothing else.
      const fitting = options.filter((o) => alike(o.c, d.steps[o.c.step]!.offer.type, o, offer));
      const hit =
        fitting.find((o) => !o.names) ?? (used.some((u) => u.names) ? undefined : fitting.find((o) => o.names));
      if (!hit) break;
      taken.add(hit.param);
      used.push(hit);
    }
    if (used.length !== groups.length) continue;
    const carried = new Map(
      used.map((u) => [u.param, { step: u.c.step, pointer: u.c.pointer, value: u.c.value }] as const),
    );
    const here = [...known.values()].some((k) => k.step !== null && d.steps[k.step]!.offer.tool.api === offer.tool.api);
    const optional = offer.op.kind === "create" ? d.rng.int(0, 1) : 0;
    const step = d.take(offer, { carried, optional, ...(here ? { known } : {}) });
    return { step, used, offer };
  }
  return stop("nothing can be made from this");
}

const inBrand = (own: string, other: string) => (own === other ? "" : ` in ${other}`);

/** Reads one entity and creates another with a value of it. */
export function carryOver(d: Draft, from: Surface, to: Surface): Piece {
  const offer = pick(d, from.gets);
  const a = d.take(offer);
  const E = subject(d, a);
  const m = makeFrom(d, [carries(d, a, d.entityPointer(a), E)], to.creates);
  const own = brand(offer.tool);
  const label = m.used[0]!.c.label;
  const start = d.rng.pick([
    `look up the ${label} of ${E}, then create`,
    `check the ${label} of ${E} and then create`,
    `get the ${label} of ${E} and use it to create`,
  ]);
  const st = d.steps[m.step]!;
  const as = m.used[0]!.label === label ? `that ${label}` : `it as the ${m.used[0]!.label}`;
  const rest = st.stated.map((v) => `${v.label} ${spoken(v.value)}`);
  return {
    text: `${start}${inBrand(own, brand(m.offer.tool))} ${joined(one(m.offer.type), st.owners)} with ${listed([as, ...rest])}.${newId(d, m.step)}`,
    brand: own,
  };
}

/** What the values of a made or changed thing are: "name "X"" and so on, beside what was carried into it. */
const besides = (d: Draft, step: number) => d.steps[step]!.stated.map((v) => `${v.label} ${spoken(v.value)}`);

/** Creates of an API that take a value of two classes. */
const takers2 = once((s: Surface, d) => s.creates.filter((o) => takes(o, d).length > 1));
const written = ({ op, type }: Offer) => op.kind === "create" && WRITTEN.test(last(type));
const party = (type: string) => PARTY.test(last(type));
const last = (words: string) => words.split(" ").at(-1) ?? "";

/** Lists in which one thing can be found, with what changes it, or creates something in it, by a value from elsewhere. */
const landings = once((s: Surface, d) =>
  s.lists.flatMap((list) =>
    [
      ...s.updates.filter((o) => o.type === list.type),
      ...under(s.creates, list.type).filter((o) => o.type !== list.type),
    ]
      .filter((offer) => sameOwners(offer, list) && takes(offer, d).length > 0)
      .map((offer) => ({ list, offer })),
  ),
);
/** Whether an API can take in what two calls give. */
export const canJoin = (s: Surface, d: Draft): boolean => landings(s, d).length > 0 || rootless(s, d).length > 0;

/** "set the e-mail address of E to …" or "add a note to E with … as its title". */
function landed(d: Draft, m: Made, E: string, value: string): string {
  const { label } = m.used[0] as Made["used"][0];
  if (m.offer.op.kind === "update")
    return d.rng.pick([`set the ${label} of ${E} to ${value}.`, `change the ${label} of ${E} to ${value}.`]);
  const inside = belonging(m.offer.op.scope.at(-1)?.type ?? "");
  const rest = besides(d, m.step);
  const also = rest.length ? `, and with ${listed(rest)}` : "";
  return `create ${one(m.offer.type)} ${inside === "of" ? "for" : inside} ${E} with ${value} as its ${label}${also}.${newId(d, m.step)}`;
}

/** Finds one thing by name and reads a value of another, then changes the first by it or creates something in it. */
export function fanInByValue(d: Draft, s: Surface, from: Surface): Piece {
  const source = pick(
    d,
    from.gets.filter((g) => gives(g, d).size > 0),
  );
  const { list, offer } = pick(
    d,
    landings(s, d).filter(
      (l) =>
        (l.list.type !== source.type || from.api !== s.api) && takes(l.offer, d).some((c) => gives(source, d).has(c)),
    ),
  );
  const a = d.take(source);
  const A = subject(d, a);
  const found = find(d, list);
  const m = makeFrom(
    d,
    [carries(d, a, d.entityPointer(a), A)],
    [offer],
    context(d, found.step, list.type, found.index),
  );
  const own = brand(list.tool);
  const value = `the ${m.used[0]!.c.label} of ${A}${inBrand(own, brand(source.tool))}`;
  return { text: landed(d, m, found.E, value), brand: own };
}

/** Lists of an API in which somebody can be found, to read both their page and what belongs to them. */
const families = once((s: Surface, d) =>
  s.lists.filter(
    (l) =>
      party(l.type) &&
      under(s.lists, l.type).some((o) => !party(o.type) && sameOwners(o, l) && gives(o, d).size > 0) &&
      s.gets.some((g) => g.type === l.type && sameOwners(g, l) && gives(g, d).size > 0),
  ),
);
/** A thing found by name that shows a value for what is found by name inside it. */
const nests = once((s: Surface, d) =>
  s.lists.flatMap((outer) =>
    s.gets
      .filter((g) => g.type === outer.type && sameOwners(g, outer))
      .flatMap((page) =>
        landings(s, d)
          .filter(
            (l) =>
              l.list.op.scope.at(-1)?.type === outer.type &&
              sameOwners(l.list, outer) &&
              takes(l.offer, d).some((c) => gives(page, d).has(c)),
          )
          .map((l) => ({ outer, page, ...l })),
      ),
  ),
);
/** Whether an API could start a diamond. */
export const canStartDiamond = (s: Surface, d: Draft): boolean =>
  rooted(s, d).length > 0 || families(s, d).length > 0 || nests(s, d).length > 0;

/** Finds something by name; reads its own page and finds something in it by name side by side; then sets the one's value there. */
function nestedDiamond(d: Draft, s: Surface): Piece {
  const { outer, page, list, offer } = pick(d, nests(s, d));
  const found = find(d, outer);
  const known = context(d, found.step, outer.type, found.index);
  const a = d.take(page, { known });
  const inner = find(d, list, known);
  known.set(list.type, { index: inner.index, step: inner.step });
  const m = makeFrom(
    d,
    [carries(d, a, d.entityPointer(a), "").filter((c) => !/^(name|title)$/.test(c.cls))],
    [offer],
    known,
  );
  const own = `the ${humanise(outer.type)}'s own ${m.used[0]!.c.label}`;
  const E = `${inner.E} ${belonging(outer.type)} it`;
  return { text: `find ${found.E}, and ${landed(d, m, E, own)}`, brand: brand(outer.tool) };
}

/** Finds somebody, reads their page and what belongs to them, and makes their record elsewhere from both. `draw` gives where. */
function recordOf(d: Draft, s: Surface, draw: () => Surface): Piece {
  const list = pick(d, families(s, d));
  const found = find(d, list);
  const known = context(d, found.step, list.type, found.index);
  const get = pick(
    d,
    s.gets.filter((g) => g.type === list.type && sameOwners(g, list) && gives(g, d).size > 0),
  );
  const a = d.take(get, { known });
  const child = pick(
    d,
    under(s.lists, list.type).filter((o) => !party(o.type) && sameOwners(o, list) && gives(o, d).size > 0),
  );
  const b = d.take(child, { known });
  const kids = at(d.steps[b]!.body, d.entityPointer(b));
  if (!Array.isArray(kids) || kids.length < 1) return stop("no children");
  const which = d.rng.chance(0.7) ? 0 : kids.length - 1;
  const C = `the ${which === 0 ? "first" : "last"} of ${its(list.type)} ${several(child.type)}`;
  const sides = [carries(d, a, d.entityPointer(a), ""), carries(d, b, `${d.entityPointer(b)}/${which}`, C)].map(
    (side) => side.filter((c) => !/^(name|title)$/.test(c.cls)),
  );
  if (sides.some((side) => !side.length)) return stop("nothing to carry");
  const own = brand(d.steps[0]!.offer.tool);
  for (let tries = 0; tries < 30; tries++) {
    const fits = takers2(draw(), d).filter(
      (o) => party(o.type) && sides.every((side) => side.some((c) => takers(o, c.cls, c.value).length > 0)),
    );
    if (!fits.length) continue;
    const m = makeFrom(d, sides, fits, known);
    const whose = m.used.map(
      (u) => `whose ${u.label} is ${u.c.E ? `the ${u.c.label} of ${u.c.E}` : `${its(list.type)} ${u.c.label}`}`,
    );
    const rest = besides(d, m.step);
    const more = rest.length ? `, with ${listed(rest)}` : "";
    const what = joined(one(m.offer.type), d.steps[m.step]!.owners);
    const text = `find ${found.E}. Create${inBrand(own, brand(m.offer.tool))} ${what} ${whose.join(" and ")}${more}.${newId(d, m.step)}`;
    return { text, brand: own };
  }
  return stop("nothing can be made from this");
}

/** Starts from one thing, finds out two more by it side by side, and makes or changes something with both. */
export function diamond(d: Draft, s: Surface, draw: () => Surface): Piece {
  const ways = [
    ...(rooted(s, d).length ? [1, 2].map(() => () => meet(d, s, rooted(s, d))) : []),
    ...(nests(s, d).length ? [() => nestedDiamond(d, s)] : []),
    ...(families(s, d).length ? [() => recordOf(d, s, draw)] : []),
  ];
  return pick(d, ways)();
}

/** Finds an entity by name, then lists what belongs to it. */
export function findChildren(d: Draft, s: Surface): Piece {
  const pairs = s.lists.flatMap((l) =>
    under(s.lists, l.type)
      .filter((b) => b.type !== l.type && sameOwners(b, l))
      .map((b) => [l, b] as const),
  );
  const [list, child] = pick(d, pairs);
  const found = find(d, list);
  const before = d.asked.length;
  const piece = readAll(d, s, { known: context(d, found.step, list.type, found.index), of: "" }, [child]);
  const label = pluralPhrase(d.asked[before]!.label);
  const text = d.rng.pick([
    `find ${found.E} and list the ${label} of ${its(list.type)} ${piece.noun}.`,
    `what are the ${label} of the ${piece.noun} ${belonging(list.type)} ${found.E}?`,
    `which ${piece.noun} are there ${belonging(list.type)} ${found.E}? I want their ${label}.`,
    `I need the ${label} of all ${piece.noun} ${belonging(list.type)} ${found.E}.`,
  ]);
  return { text, brand: brand(child.tool) };
}

/** Finds an entity by name, then creates something in it. */
export function findAndMakeInside(d: Draft, s: Surface): Piece {
  const pairs = s.lists.flatMap((l) =>
    under(s.creates, l.type)
      .filter((b) => b.type !== l.type && sameOwners(b, l))
      .map((b) => [l, b] as const),
  );
  const [list, offer] = pick(d, pairs);
  const found = find(d, list);
  const step = d.take(offer, {
    known: context(d, found.step, list.type, found.index),
    optional: d.rng.int(1, 2),
  });
  if (!d.steps[step]!.stated.length) return stop("a create without any value");
  const what = withValues(d, step);
  const into = belonging(list.type) === "of" ? "to" : belonging(list.type);
  const text = d.rng.pick([
    `add ${joined(one(offer.type), into, found.E, what)}.${newId(d, step)}`,
    `create ${joined(one(offer.type), what, into === "to" ? "for" : into, found.E)}.${newId(d, step)}`,
    `${found.E} needs a new ${joined(humanise(offer.type), what)}; please create it.${newId(d, step)}`,
  ]);
  return { text, brand: brand(offer.tool) };
}

/** An operation that takes two things' identifiers, and where those come from; `root`: where what both are in is found. */
interface Meeting {
  offer: Offer;
  sides: [Offer, Offer];
  root: Offer | null;
}
const inScope = (o: Offer, type: string) => o.op.scope.some((r) => r.type === type);

/** Operations of an API that take two things which are found by name, or made, side by side: at large, or in a third thing. */
const meetings = once((s: Surface, d): readonly Meeting[] =>
  [...s.creates, ...s.updates, ...s.deletes, ...s.gets, ...s.lists].flatMap((offer) => {
    const { target, scope, refs, kind } = offer.op;
    const types = [...(target ? [target] : []), ...[...scope].reverse(), ...refs].map((r) => r.type);
    // A managing and a consuming account would be one and the same; a list of dashboards by a dashboard's ID is none.
    if (new Set(types).size < types.length || (types.includes(offer.type) && target?.type !== offer.type)) return [];
    // What is made for the purpose is neither changed nor read at once.
    const madeFor = (type: string) => (kind === "create" || kind === "update") && type !== target?.type;
    const from = (type: string) => [
      ...s.lists.filter((l) => l.type === type && l !== offer && findable(l, d)),
      ...(madeFor(type) ? s.creates.filter((c) => c.type === type && c !== offer) : []),
    ];
    const pairs = types.flatMap((x, i) => types.slice(i + 1).map((y) => [x, y] as const));
    return pairs.flatMap(([x, y]) => {
      if (target && target.type !== x && target.type !== y) return [];
      return from(x).flatMap((a) =>
        from(y).flatMap((b): Meeting[] => {
          // What is found inside the other is a chain.
          if (inScope(a, y) || inScope(b, x)) return [];
          const owner = a.op.scope.at(-1)?.type;
          const roots =
            owner !== undefined && owner === b.op.scope.at(-1)?.type
              ? [...s.lists.filter((l) => findable(l, d)), ...s.creates].filter(
                  (r) =>
                    r.type === owner &&
                    sameOwners(a, r) &&
                    sameOwners(b, r) &&
                    (r.op.kind === "list" || madeFor(owner)),
                )
              : [];
          const free = [a, b].every((o) => !o.op.scope.length || sameOwners(o, offer));
          return [null, ...roots].flatMap((root) => (root || free ? [{ offer, sides: [a, b], root }] : []));
        }),
      );
    });
  }),
);
const rootless = once((s: Surface, d) => meetings(s, d).filter((m) => !m.root));
const rooted = once((s: Surface, d) => meetings(s, d).filter((m) => m.root));

/** One thing that an operation will take: found by name, or made. `made` says how. */
interface Side {
  type: string;
  step: number;
  index: number;
  E: string;
  made: string;
}
function side(d: Draft, offer: Offer, known: Known): Side {
  const { type } = offer;
  if (offer.op.kind === "list") return { type, made: "", ...find(d, offer, known) };
  const step = d.take(offer, { known, optional: d.rng.int(1, 2) });
  if (!d.steps[step]!.stated.length) return stop("a create without any value");
  const made = `create ${joined(one(type), d.steps[step]!.owners, withValues(d, step))}`;
  return { type, step, index: createdIndex(d, step), E: `the new ${humanise(type)}`, made };
}

/** Finds or makes two things side by side, and does something that takes both. */
function meet(d: Draft, s: Surface, all: readonly Meeting[]): Piece {
  // Operations are drawn first: one with many sources comes no more often than others.
  const offer = pick(d, [...new Set(all.map((m) => m.offer))]);
  const { sides, root } = pick(
    d,
    all.filter((m) => m.offer === offer),
  );
  const top = root && side(d, root, new Map());
  const owners: Known = top ? context(d, top.step, top.type, top.index) : new Map();
  const a = side(d, sides[0], owners);
  const known = context(d, a.step, a.type, a.index);
  for (const [t, k] of owners) known.set(t, k);
  // Both are looked for under the same owners.
  const b = side(d, sides[1], new Map([...known].filter(([t, k]) => k.step === null || owners.has(t))));
  for (const [t, k] of context(d, b.step, b.type, b.index)) if (!known.has(t)) known.set(t, k);
  const last = together(d, s, offer, a, b, known);
  const made = [a.made, b.made].filter((x) => x);
  const rest = made.length ? `${made.join(", and ")}. Then ${last}` : last;
  const text = !top
    ? rest
    : top.made
      ? `${top.made}. In it, ${rest}`
      : made.length || offer.op.kind === "create" || d.rng.chance(0.5)
        ? `find ${top.E}. There, ${rest}`
        : `${rest} Both belong to ${top.E}.`;
  return { text, brand: brand(offer.tool) };
}

/** What is done with two things, in words. */
function together(d: Draft, s: Surface, offer: Offer, a: Side, b: Side, known: Known): string {
  const { op, type } = offer;
  const [own, other] = op.target?.type === b.type ? [b, a] : [a, b];
  const within = inScope(offer, other.type);
  if (op.kind === "list") {
    const [ofA, ofB] = [belonging(a.type), belonging(b.type)];
    const of = ofA === ofB ? `${ofA === "of" ? "for" : ofA} ${a.E} and ${b.E}` : joined(ofA, a.E, ofB, b.E);
    return readAll(d, s, { known, of }, [offer]).text;
  }
  const values = op.kind === "create" ? 1 : op.kind === "update" && within ? d.rng.int(1, 2) : 0;
  const step = d.take(offer, { known, optional: values });
  const st = d.steps[step]!;
  const place = joined(within ? joined(belonging(other.type), other.E) : "", st.owners);
  const role = (type: string) => {
    const ref = op.refs.find((r) => r.type === type);
    return ref ? roleOf(ref) : humanise(type);
  };
  if (op.kind === "create") {
    const inside = op.scope.at(-1)?.type;
    const [outer, ref] = inside === b.type ? [b, a] : [a, b];
    const what = withValues(d, step);
    if (inside !== a.type && inside !== b.type)
      return `create ${joined(one(type), st.owners, what)} for ${a.E} and ${b.E}.${newId(d, step)}`;
    const into = belonging(outer.type) === "in" ? "in" : "to";
    return belonging(ref.type) !== "of" && d.rng.chance(0.5)
      ? `create ${joined(one(type), belonging(outer.type), outer.E, st.owners)} for ${ref.E}${what ? `, ${what}` : ""}.${newId(d, step)}`
      : `add ${joined(one(type), st.owners, what, into, outer.E)}; its ${role(ref.type)} should be ${ref.E}.${newId(d, step)}`;
  }
  if (!within) {
    if (op.kind !== "update" || st.stated.length || AWKWARD.test(role(other.type)))
      return stop("the other thing has no place in the request");
    return d.rng.pick([
      `set the ${role(other.type)} of ${joined(own.E, st.owners)} to ${other.E}.`,
      `update ${joined(own.E, st.owners)}: ${its(own.type)} ${role(other.type)} should be ${other.E}.`,
    ]);
  }
  if (op.kind === "update") return changeText(d, step, joined(own.E, place));
  if (op.kind === "delete") return `remove ${own.E} from ${joined(other.E, st.owners)}.`;
  const labels = d.ask(step, d.entityPointer(step), d.rng.int(1, 2), own.E).map((x) => x.label);
  return `what ${labels.length > 1 ? "are" : "is"} ${the(labels)} of ${joined(own.E, place)}?`;
}

/** Finds or makes two things and does something that takes both. */
export const fanInByName = (d: Draft, s: Surface): Piece => meet(d, s, rootless(s, d));
