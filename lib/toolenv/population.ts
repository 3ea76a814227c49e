/** The entities of one API in one world: which exist, whose they are, and the identifiers that name them. Nothing is stored. */
import type { JsonSchema } from "../catalog/types.ts";
import { key, Rng } from "./hash.ts";
import { Persona } from "./persona.ts";
import type { ApiModel, ResourceType } from "./resources.ts";
import { clean } from "./schema.ts";
import { identifier, scalar } from "./values.ts";
import { normal } from "./words.ts";

/** Entities made by an episode have numbers from here on. */
export const CREATED = 1_000_000;
/** Children of one parent by depth of the type: at most as many as the stride, two or more where it can be. */
const STRIDE = [0, 5, 3, 2];
const stride = (depth: number) => STRIDE[depth] ?? 1;

/** Keys of a type's entities, both ways. */
interface Table {
  byIndex: Map<number, string | number>;
  byKey: Map<string, number>;
}

export class Population {
  readonly model: ApiModel;
  readonly seed: number;
  readonly #depth = new Map<string, number>();
  readonly #members = new Map<string, number[]>();
  readonly #under = new Map<string, readonly number[]>();
  readonly #personas = new Map<string, Persona[]>();
  /** By type, then by key field. */
  readonly #tables = new Map<string, Map<string, Table>>();

  constructor(model: ApiModel, worldSeed: number) {
    this.model = model;
    this.seed = key(worldSeed, model.api);
  }

  type(name: string): ResourceType {
    const t = this.model.types.get(name);
    if (!t) throw new RangeError(`${this.model.api} has no resource type "${name}"`);
    return t;
  }

  #depthOf(name: string): number {
    let d = this.#depth.get(name);
    if (d === undefined) {
      const parent = this.type(name).parent;
      d = parent === null ? 0 : this.#depthOf(parent) + 1;
      this.#depth.set(name, d);
    }
    return d;
  }

  /** Numbers of the entities that exist from the start, in order. */
  members(name: string): number[] {
    let all = this.#members.get(name);
    if (!all) {
      const parent = this.type(name).parent;
      if (parent === null) all = Array.from({ length: 3 + (key(this.seed, name) % 3) }, (_, i) => i);
      else {
        const width = stride(this.#depthOf(name));
        all = this.members(parent).flatMap((p) =>
          Array.from({ length: this.#brood(name, p, width) }, (_, j) => p * width + j),
        );
      }
      this.#members.set(name, all);
    }
    return all;
  }

  #brood(name: string, parent: number, width: number): number {
    return Math.min(width, 2 + (key(this.seed, name, parent) % Math.max(1, width - 1)));
  }

  /** The number of the ancestor of type `ancestor`, or null where that type is not above this one. */
  ancestor(name: string, index: number, ancestor: string): number | null {
    let type: string | null = name;
    let at = index;
    while (type !== null && type !== ancestor) {
      const parent: string | null = this.type(type).parent;
      if (parent !== null) at = Math.floor(at / stride(this.#depthOf(type)));
      type = parent;
    }
    return type === null ? null : at;
  }

  /** The entity of type `to` that field `field` of an entity points at. */
  reference(name: string, index: number, field: string, to: string): number {
    if (index < CREATED) {
      const up = this.ancestor(name, index, to);
      if (up !== null && to !== name) return up;
    }
    const all = this.members(to);
    const at = key(this.seed, name, index, normal(field), to) % all.length;
    // Nothing is its own parent.
    return all[to === name && all[at] === index ? (at + 1) % all.length : at] as number;
  }

  /** Entities of a type under an owner of another type: its children, or a small set where it is no ancestor. */
  under(name: string, owner: string, ownerIndex: number): readonly number[] {
    const id = `${name}|${owner}|${ownerIndex}`;
    let found = this.#under.get(id);
    if (!found) {
      found = this.#findUnder(name, owner, ownerIndex);
      this.#under.set(id, found);
    }
    return found;
  }
  #findUnder(name: string, owner: string, ownerIndex: number): readonly number[] {
    const all = this.members(name);
    if (owner === name) return all;
    if (this.#isAncestor(name, owner)) return all.filter((i) => this.ancestor(name, i, owner) === ownerIndex);
    const n = Math.min(all.length, 2 + (key(this.seed, "under", name, owner, ownerIndex) % 3));
    const start = key(this.seed, "from", name, owner, ownerIndex) % all.length;
    return Array.from({ length: n }, (_, i) => all[(start + i) % all.length] as number).sort((a, b) => a - b);
  }

  #isAncestor(name: string, owner: string): boolean {
    for (let t: string | null = this.type(name).parent; t !== null; t = this.type(t).parent)
      if (t === owner) return true;
    return false;
  }

  persona(name: string, index: number): Persona {
    if (index >= CREATED) return new Persona(key(this.seed, "entity", name, index));
    let list = this.#personas.get(name);
    if (!list) {
      list = [];
      this.#personas.set(name, list);
    }
    return (list[index] ??= new Persona(key(this.seed, "entity", name, index)));
  }

  /** The value that names an entity by its identifier (`field` "") or by another key. Distinct within a type. */
  keyOf(name: string, index: number, field: string): string | number {
    const table = this.#table(name, field);
    const known = table.byIndex.get(index);
    if (known !== undefined) return known;
    for (let tries = 0; ; tries++) {
      const v = this.#drawKey(name, index, field, tries);
      if (!table.byKey.has(String(v)) || tries > 50) return v;
    }
  }

  /** The number of the entity that a key names, or null. */
  find(name: string, field: string, value: string | number): number | null {
    return this.#table(name, field).byKey.get(String(value)) ?? null;
  }

  #table(name: string, field: string): Table {
    let own = this.#tables.get(name);
    if (!own) {
      own = new Map();
      this.#tables.set(name, own);
    }
    let table = own.get(field);
    if (!table) {
      table = { byIndex: new Map(), byKey: new Map() };
      for (const i of this.members(name))
        for (let tries = 0; tries < 60; tries++) {
          const v = this.#drawKey(name, i, field, tries);
          if (table.byKey.has(String(v))) continue;
          table.byIndex.set(i, v);
          table.byKey.set(String(v), i);
          break;
        }
      own.set(field, table);
    }
    return table;
  }

  #drawKey(name: string, index: number, field: string, tries: number): string | number {
    const t = this.type(name);
    const schema: JsonSchema = field === "" ? t.idSchema : clean(t.fields.get(field)?.schema ?? { type: "string" });
    const spelled = field === "" ? t.idName : (t.fields.get(field)?.name ?? field);
    if (field !== "" || /name$/i.test(spelled)) {
      const v = scalar(
        spelled,
        schema,
        name,
        tries === 0 ? this.persona(name, index) : new Persona(key(this.seed, name, index, tries)),
      );
      if (typeof v === "string" || typeof v === "number") return v;
    }
    return identifier(
      spelled,
      schema,
      name,
      key(this.model.api, name),
      new Rng(key(this.seed, "id", name, index, tries)),
    );
  }
}
