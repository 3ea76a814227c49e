/**
 * What an API is about, read from its interfaces: resource types, which operation does what to which type, and which
 * parameters and response fields carry whose identifier. Names that differ (projectId, project_id, id under /projects) meet here.
 */
import type { JsonSchema, Tool } from "../catalog/types.ts";
import { fieldClass } from "./fields.ts";
import { clean } from "./schema.ts";
import { normal, singular, splitWords } from "./words.ts";

/** compute: a reading that belongs to no stored entity (a quote, a forecast, a singleton's details). */
export type OpKind = "list" | "get" | "create" | "update" | "delete" | "action" | "compute";

/** A parameter that carries an entity's key. `key` is the entity's field that it is compared with; "" is the identifier. */
export interface KeyRef {
  param: string;
  type: string;
  key: string;
}

export interface Op {
  kind: OpKind;
  /** Resource type in words ("branding theme"), or null where none could be told. */
  type: string | null;
  /** The parameter that says which entity is meant. */
  target: KeyRef | null;
  /** Ancestors in the path, outermost first. */
  scope: KeyRef[];
  /** Other parameters (query, body) that carry identifiers. */
  refs: KeyRef[];
  /** Where the entity, or the list of entities, stands in the response: property names from the root. null: nowhere. */
  at: string[] | null;
  /** Whether `at` is a list. */
  many: boolean;
}

export interface ResourceType {
  /** Singular words, e.g. "branding theme". */
  name: string;
  /** The type whose entities own these, or null. */
  parent: string | null;
  /** Fields of the entity over all operations, by normal name: the richest schema first. The schemas are as the tools have them. */
  fields: Map<string, { name: string; schema: JsonSchema }>;
  /** Field that holds the identifier, or null where responses do not show it. */
  idField: string | null;
  idSchema: JsonSchema;
  /** What the identifier is called: its field, else the parameter that takes it. */
  idName: string;
  /** Other fields that parameters look entities up by. */
  keys: Set<string>;
}

export interface ApiModel {
  api: string;
  types: Map<string, ResourceType>;
  ops: Map<string, Op>;
}

const VERBS: [OpKind, Set<string>][] = [
  ["list", new Set("list search query find browse scan filter lists searches index".split(" "))],
  [
    "get",
    new Set("get fetch retrieve show read describe view lookup info load check detail details getting gets".split(" ")),
  ],
  [
    "create",
    new Set(
      "create add insert new register import upload post open provision allocate submit request generate make start issue creates creating adds".split(
        " ",
      ),
    ),
  ],
  [
    "update",
    new Set(
      "update edit modify patch set put replace change rename move assign configure save updates updating".split(" "),
    ),
  ],
  ["delete", new Set("delete remove destroy purge deregister drop deletes removes deleting".split(" "))],
  [
    "action",
    new Set(
      "cancel send approve reject activate deactivate enable disable archive unarchive restore stop pause resume restart reboot run execute trigger publish unpublish close complete confirm void refund capture verify reset revoke invite join leave lock unlock attach detach associate disassociate tag untag merge transfer sync refresh retry ping test validate copy clone promote rotate release accept decline mark follow unfollow subscribe unsubscribe vote like star pin ship claim finish abort suspend unsuspend sign mute unmute ban".split(
        " ",
      ),
    ),
  ],
];
const CREATES = VERBS[2]?.[1] as Set<string>;
const ACTIONS = VERBS[5]?.[1] as Set<string>;
const ID_SUFFIX = new Set("id ids uuid guid sid key identifier arn uid fk".split(" "));
const KEY_SUFFIX = new Set([
  ...ID_SUFFIX,
  "name",
  "slug",
  "number",
  "code",
  "no",
  "handle",
  "login",
  "email",
  "username",
]);
const ENVELOPE_LIST = new Set(
  "items data results value values records list entries content rows objects elements collection resources hits members edges documents".split(
    " ",
  ),
);
const ENVELOPE_ONE = new Set("data result item resource response record object entity payload body content".split(" "));
/** Placeholders that hold a plain value, not an entity's key. */
const VALUE_CLASSES = new Set(
  "date datetime time language locale currency country country_code latitude longitude year url ip version amount percent paging flag".split(
    " ",
  ),
);

/** The kind that an operation's words speak for, and where the verb stands. */
export function verbOf(words: readonly string[]): { kind: OpKind; at: number } | null {
  for (let i = 0; i < words.length; i++)
    for (const [kind, verbs] of VERBS) if (verbs.has(words[i] as string)) return { kind, at: i };
  return null;
}

const typeName = (words: readonly string[]): string => {
  const w = words.filter((x) => !/^(v?\d+|api|rest|json|the|all|by|id|ids)$/.test(x));
  return [...w.slice(0, -1), singular(w.at(-1) ?? "")].join(" ").trim();
};

/** Words of a key parameter without its suffix, and the suffix: "projectId" → [["project"], "id"]. */
function keyParts(param: string): { stem: string[]; suffix: string } {
  const words = splitWords(param);
  const last = words.at(-1) ?? "";
  return KEY_SUFFIX.has(last) ? { stem: words.slice(0, -1), suffix: last } : { stem: words, suffix: "" };
}

interface Segment {
  text: string;
  param: string | null;
}
/** Path without version and prefix segments; a trailing ":verb" becomes a segment of its own. */
function segments(path: string): Segment[] {
  const out: Segment[] = [];
  for (const part of path.split("#")[0]?.split("/") ?? []) {
    if (!part || /^(v\d+([._]\d+)*(alpha|beta)?\d*|api|rest|\d+(\.\d+)*|public|latest|index\.php)$/i.test(part))
      continue;
    const whole = /^\{\+?([^}]+)\}(?:\.[a-z]+)?$/.exec(part);
    if (whole) {
      out.push({ text: part, param: whole[1] as string });
      continue;
    }
    const custom = /^\{\+?([^}]+)\}:([A-Za-z]+)$/.exec(part) ?? /^([^{}:]+):([A-Za-z]+)$/.exec(part);
    if (custom) {
      out.push(
        part.startsWith("{") ? { text: part, param: custom[1] as string } : { text: custom[1] as string, param: null },
      );
      out.push({ text: custom[2] as string, param: null });
      continue;
    }
    out.push({ text: part.replace(/\.(json|xml|do|php)$/, ""), param: /\{([^}]+)\}/.exec(part)?.[1] ?? null });
  }
  return out;
}

const isEntity = (s: JsonSchema | undefined): s is JsonSchema =>
  (s?.type === "object" || s?.type === undefined) && Object.keys(s?.properties ?? {}).length > 0;

/** Finds the entity or the list of entities in a response schema. */
export function locate(
  root: JsonSchema,
  type: string | null,
  depth = 0,
): { at: string[]; many: boolean; entity: JsonSchema } | null {
  if (root.type === "array" && isEntity(root.items)) return { at: [], many: true, entity: root.items };
  if (!isEntity(root)) return null;
  const props = Object.entries(root.properties ?? {});
  const own = type ? normal(type) : "";
  const hasId = props.some(([k]) => /^(id|uuid|guid|sid|_id)$/i.test(k) || (own && normal(k) === `${own}id`));
  const lists = props.filter(([, s]) => s.type === "array" && isEntity(s.items));
  const matches = (k: string) =>
    own !== "" && (normal(singular(k.toLowerCase())) === own || own.endsWith(normal(singular(k.toLowerCase()))));
  const named =
    lists.find(([k]) => matches(k)) ?? (hasId ? undefined : lists.find(([k]) => ENVELOPE_LIST.has(k.toLowerCase())));
  const only = !hasId && lists.length === 1 && props.length <= 7 ? lists[0] : undefined;
  const list = named && (!hasId || props.length <= 6) ? named : only;
  if (list) return { at: [list[0]], many: true, entity: list[1].items as JsonSchema };
  if (depth < 2 && !hasId) {
    const inner =
      props.find(([k, s]) => isEntity(s) && matches(k)) ??
      props.find(([k, s]) => (ENVELOPE_ONE.has(k.toLowerCase()) || ENVELOPE_LIST.has(k.toLowerCase())) && isEntity(s));
    const found = inner && (inner[1].properties?.id || props.length <= 8) ? locate(inner[1], type, depth + 1) : null;
    if (inner && found) return { ...found, at: [inner[0], ...found.at] };
    // Some wrap every list item or answer once more under a property of another name; one object among few is the entity.
    const objects = props.filter(([, s]) => isEntity(s) && Object.keys(s.properties ?? {}).length > 2);
    if (objects.length === 1 && props.length <= 3) {
      const [k, s] = objects[0] as [string, JsonSchema];
      const deeper = locate(s, type, depth + 1);
      if (deeper) return { ...deeper, at: [k, ...deeper.at] };
    }
  }
  return { at: [], many: false, entity: root };
}

/** Static segments between the last placeholder before a collection and the collection itself: what tells two collections of one noun apart. */
function qualifier(segs: readonly Segment[], at: number): string {
  const words: string[] = [];
  for (let i = at - 1; i >= 0 && !segs[i]?.param; i--) words.unshift(segs[i]?.text.toLowerCase() ?? "");
  return words.join("/");
}

/**
 * Nouns that several collections of an API share (/linode/instances, /databases/mysql/instances): each that can be listed or
 * added to under its own path is a type of its own, named after what stands before it.
 */
function sharedNouns(tools: readonly Tool[]): Map<string, Set<string>> {
  const out = new Map<string, Set<string>>();
  for (const tool of tools) {
    if ((tool.method !== "GET" && tool.method !== "POST") || tool.path.includes("#")) continue;
    const segs = segments(tool.path);
    if (segs.length === 0 || segs.at(-1)?.param) continue;
    const noun = typeName(splitWords(segs.at(-1)?.text ?? ""));
    const set = out.get(noun) ?? new Set<string>();
    set.add(qualifier(segs, segs.length - 1));
    out.set(noun, set);
  }
  for (const [noun, set] of out) if (set.size < 2) out.delete(noun);
  return out;
}
function qualified(noun: string, before: string, shared: ReadonlyMap<string, ReadonlySet<string>>): string {
  if (before === "" || !shared.get(noun)?.has(before)) return noun;
  const last = typeName(splitWords(before.split("/").at(-1) ?? ""));
  return last === "" || noun.startsWith(`${last} `) ? noun : `${last} ${noun}`;
}

/** Builds the model of one API from its tools, in the order given. Deterministic: no draw is made. */
export function analyse(api: string, tools: readonly Tool[]): ApiModel {
  const types = new Map<string, ResourceType>();
  const ops = new Map<string, Op>();
  const paramSchemas = new Map<string, JsonSchema[]>();
  const parents = new Map<string, Map<string, number>>();
  const typeOf = (name: string): ResourceType => {
    let t = types.get(name);
    if (!t) {
      t = {
        name,
        parent: null,
        fields: new Map(),
        idField: null,
        idSchema: { type: "string" },
        idName: "id",
        keys: new Set(),
      };
      types.set(name, t);
    }
    return t;
  };
  const drafts: { tool: Tool; op: Op; entity: JsonSchema | null; suffixes: Map<string, string> }[] = [];

  const shared = sharedNouns(tools);
  for (const tool of tools) {
    const draft = firstLook(tool, shared);
    const located = tool.response ? locate(tool.response, draft.type) : null;
    const op: Op = { ...draft, refs: [], at: located?.at ?? null, many: located?.many ?? false };
    settleKind(tool, op, located !== null);
    // A list below a placeholder at the path's end belongs to that entity; it is not one entity of the type.
    if (op.kind === "list" && op.target) {
      if (!op.scope.includes(op.target)) op.scope.push(op.target);
      op.target = null;
    }
    drafts.push({ tool, op, entity: located?.entity ?? null, suffixes: new Map() });
    for (const ref of [...op.scope, ...(op.target ? [op.target] : [])]) {
      typeOf(ref.type);
      const list = paramSchemas.get(ref.type) ?? [];
      const schema = tool.parameters.properties[ref.param];
      if (schema && list.length < 8) list.push(schema);
      if (list.length === 1) typeOf(ref.type).idName = ref.param;
      paramSchemas.set(ref.type, list);
    }
    if (op.type) {
      typeOf(op.type);
      const owner = op.scope.at(-1);
      if (owner && owner.type !== op.type && op.kind !== "compute") {
        const counts = parents.get(op.type) ?? new Map<string, number>();
        counts.set(owner.type, (counts.get(owner.type) ?? 0) + 1);
        parents.set(op.type, counts);
      }
    }
  }

  // Fields: what get shows first, then lists, then the answers of writes; the first schema of a name stands.
  const order: OpKind[] = ["get", "list", "create", "update", "action"];
  for (const kind of order)
    for (const d of drafts)
      if (d.op.kind === kind && d.op.type && d.entity && (kind !== "action" || d.op.target?.type === d.op.type))
        for (const [name, schema] of Object.entries(d.entity.properties ?? {})) {
          const fields = typeOf(d.op.type).fields;
          if (!fields.has(normal(name))) fields.set(normal(name), { name, schema });
        }
  for (const [name, counts] of [...parents].sort(([a], [b]) => (a < b ? -1 : 1))) {
    const best = [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
    for (const [candidate] of best) {
      let up: string | null = candidate;
      let depth = 0;
      while (up && up !== name && depth++ < 20) up = types.get(up)?.parent ?? null;
      if (up === null) {
        typeOf(name).parent = candidate;
        break;
      }
    }
  }
  for (const t of types.values()) settleId(t, paramSchemas.get(t.name) ?? []);
  for (const d of drafts) {
    settleKeys(d.op, types);
    if (d.op.kind !== "compute" || d.op.type === null) findRefs(d.tool, d.op, types);
    else findRefs(d.tool, d.op, types);
    ops.set(d.tool.name, d.op);
  }
  return { api, types, ops };
}

/** Type, scope and target by path and operation name; the kind is a first guess. */
function firstLook(tool: Tool, shared: ReadonlyMap<string, ReadonlySet<string>>): Omit<Op, "refs" | "at" | "many"> {
  const segs = segments(tool.path);
  const words = splitWords(tool.operation);
  const statics = segs.filter((s) => !s.param);
  const rpc =
    !segs.some((s) => s.param) &&
    (tool.method === "CALL" || tool.path.includes("#") || verbOf(splitWords(statics.at(-1)?.text ?? "")) !== null);
  if (rpc || segs.length === 0) return rpcLook(tool, words);
  const scope: KeyRef[] = [];
  let pending: string[] = [];
  for (const [i, s] of segs.entries()) {
    if (!s.param) {
      pending = splitWords(s.text);
      continue;
    }
    const schema = tool.parameters.properties[s.param];
    const before = pending;
    pending = [];
    if (!schema || schema.enum || VALUE_CLASSES.has(fieldClass(s.param, schema))) continue;
    const { stem } = keyParts(s.param);
    const collection = qualified(typeName(before), i > 0 ? qualifier(segs, i - 1) : "", shared);
    const generic = stem.length === 0 || /^(resource|item|object|entity|target|parent|name)$/.test(stem.join(" "));
    const same = collection !== "" && singular(stem.at(-1) ?? "") === collection.split(" ").at(-1);
    const followed = Boolean(segs[i + 1]?.param);
    const type =
      collection &&
      (generic || same || (!followed && collection.length > 1 && before.at(-1) !== singular(before.at(-1) ?? "")))
        ? collection
        : typeName(stem) || collection;
    if (type) scope.push({ param: s.param, type, key: "" });
  }
  const last = segs.at(-1) as Segment;
  if (last.param) {
    const target = scope.at(-1)?.param === last.param ? (scope.pop() as KeyRef) : null;
    const named = target?.param === "parent" || target?.param === "name" ? typeName(operationNoun(words)) : "";
    if (target && named) target.type = named;
    return {
      kind: "get",
      type: target?.type ?? (typeName(splitWords(statics.at(-1)?.text ?? "")) || null),
      target,
      scope,
    };
  }
  const lastWords = splitWords(last.text);
  const before = segs.at(-2);
  // /campaigns/{id}/pause: what is done to the entity before it.
  if (
    before?.param &&
    tool.method !== "GET" &&
    lastWords[0] &&
    (ACTIONS.has(lastWords[0]) || (lastWords.length === 1 && CREATES.has(lastWords[0])))
  ) {
    const target = scope.at(-1)?.param === before.param ? (scope.pop() as KeyRef) : null;
    return { kind: "action", type: target?.type ?? null, target, scope };
  }
  const verb = verbOf(lastWords);
  const noun = verb ? lastWords.filter((_, i) => i !== verb.at) : lastWords;
  const bare = typeName(noun.length ? noun : splitWords(statics.at(-2)?.text ?? ""));
  const type = (noun.length ? qualified(bare, qualifier(segs, segs.length - 1), shared) : bare) || null;
  return { kind: verb?.kind ?? "list", type, target: null, scope };
}

/** "projects_locations_nfs_shares_create" → ["nfs", "shares"] is not told apart from its prefix; the last noun will do. */
function operationNoun(words: readonly string[]): string[] {
  const verb = verbOf(words);
  const rest = verb ? (verb.at === 0 ? words.slice(1) : words.slice(0, verb.at)) : [...words];
  return rest.slice(-1);
}

function rpcLook(tool: Tool, words: readonly string[]): Omit<Op, "refs" | "at" | "many"> {
  const verb = verbOf(words);
  let noun = verb
    ? verb.at === 0 || verb.at < words.length - 1
      ? words.slice(verb.at + 1)
      : words.slice(0, verb.at)
    : [...words];
  const stop = noun.findIndex((w) => /^(by|for|from|in|with|to|of|on|as|and)$/.test(w));
  if (stop > 0) noun = noun.slice(0, stop);
  const type = typeName(noun) || null;
  let target: KeyRef | null = null;
  if (type) {
    const own = normal(type);
    const lastWord = type.split(" ").at(-1) ?? "";
    for (const param of tool.parameters.required.length
      ? tool.parameters.required
      : Object.keys(tool.parameters.properties)) {
      const schema = tool.parameters.properties[param];
      if (
        !schema ||
        (schema.type !== undefined && schema.type !== "string" && schema.type !== "integer") ||
        schema.enum
      )
        continue;
      const { stem, suffix } = keyParts(param);
      const s = normal(stem.join(""));
      if ((s === own || s === lastWord || (s === "" && suffix !== "name")) && (suffix !== "" || s === own)) {
        target = { param, type, key: "" };
        break;
      }
    }
  }
  const kind = verb?.kind ?? "compute";
  return { kind, type, target: kind === "create" || kind === "list" ? null : target, scope: [] };
}

/** Decides the kind from method, name and the response's form. */
function settleKind(tool: Tool, op: Op, located: boolean): void {
  const words = splitWords(tool.operation);
  const verb = verbOf(words)?.kind ?? null;
  const endsInPlaceholder = op.kind === "get" && op.target !== null;
  switch (tool.method) {
    case "GET":
    case "HEAD":
      if (op.many) op.kind = "list";
      else if (op.target) op.kind = "get";
      else op.kind = located || tool.response ? "compute" : "list";
      return;
    case "DELETE":
      // DELETE /gists/{id}/star takes the star off; the gist stays.
      if (op.kind === "action") return;
      op.kind = op.target ? "delete" : "action";
      if (!op.target && op.scope.length) op.target = op.scope.pop() ?? null;
      if (op.kind === "action" && op.target) op.type = op.target.type;
      return;
    case "PUT":
    case "PATCH":
      op.kind = "update";
      if (!op.target && op.scope.length) {
        op.target = op.scope.pop() ?? null;
        if (op.target && op.at?.length === 0 && op.type !== op.target.type) op.at = null;
        op.type = op.target?.type ?? op.type;
      }
      return;
    default: {
      if (op.kind === "action") return;
      if (endsInPlaceholder) {
        op.kind = verb === "delete" || verb === "action" ? verb : verb === "get" ? "get" : "update";
        return;
      }
      const reading = verb === "list" || verb === "get";
      if (reading) {
        op.kind = op.many ? "list" : op.target ? "get" : "compute";
        return;
      }
      if ((verb === "delete" || verb === "update") && op.target) op.kind = verb;
      else if (verb === "action") op.kind = "action";
      else if (verb === "create" || (op.kind === "list" && op.type)) op.kind = "create";
      else op.kind = op.target ? "action" : "compute";
      if (op.kind === "create" && op.many) op.many = op.at !== null && op.many;
    }
  }
}

function settleId(t: ResourceType, params: JsonSchema[]): void {
  const own = normal(t.name);
  const tail = normal(t.name.split(" ").at(-1) ?? "");
  const wanted = [
    "id",
    `${own}id`,
    `${tail}id`,
    "uuid",
    "guid",
    "sid",
    `${own}uuid`,
    `${own}guid`,
    `${own}sid`,
    `${own}key`,
    "key",
    `${own}arn`,
    "arn",
    `${own}name`,
    "slug",
    "code",
    "number",
    "name",
    `${own}number`,
    `${own}code`,
  ];
  for (const w of wanted) {
    const f = t.fields.get(w);
    if (
      f &&
      !f.schema.enum &&
      (f.schema.type === "string" || f.schema.type === "integer" || f.schema.type === "number")
    ) {
      t.idField = w;
      break;
    }
  }
  const field = t.idField ? t.fields.get(t.idField)?.schema : undefined;
  if (t.idField) t.idName = t.fields.get(t.idField)?.name ?? t.idName;
  const bound = (s: JsonSchema | undefined) =>
    s !== undefined &&
    (s.type === "integer" || s.pattern !== undefined || s.format !== undefined || s.example !== undefined);
  const whole = params.find((p) => p.type === "integer" || p.type === "number");
  // Where a parameter takes numbers only, the identifier is a number, however the response spells it.
  if (whole && field?.type !== "integer" && field?.type !== "number") {
    t.idSchema = clean({ ...whole, type: "integer" });
    return;
  }
  t.idSchema = clean(
    (bound(field) ? field : params.find((p) => bound(p) && (p.type === "string" || p.type === "integer"))) ??
      field ??
      params.find((p) => p.type === "string" || p.type === "integer") ?? { type: "string" },
  );
}

/** Which field of the entity a path or target parameter is compared with. */
function settleKeys(op: Op, types: Map<string, ResourceType>): void {
  op.scope = op.scope.filter((r) => keyParts(r.param).suffix !== "email" || types.get(r.type)?.fields.has("email"));
  for (const ref of [...op.scope, ...(op.target ? [op.target] : [])]) {
    const t = types.get(ref.type);
    if (!t) continue;
    const { suffix } = keyParts(ref.param);
    if (suffix === "" || ID_SUFFIX.has(suffix)) continue;
    const field = [normal(ref.param), suffix].find((k) => t.fields.has(k));
    if (!field || field === t.idField) continue;
    const schema = t.fields.get(field)?.schema;
    if (!schema || schema.enum || (schema.type !== "string" && schema.type !== "integer")) continue;
    ref.key = field;
    t.keys.add(field);
  }
}

/** The known type that a field's or parameter's name points at, or null. */
export function referredType(name: string, schema: JsonSchema, types: Map<string, ResourceType>): string | null {
  if (schema.enum || (schema.type !== "string" && schema.type !== "integer" && schema.type !== "number")) return null;
  const { stem, suffix } = keyParts(name);
  if (suffix !== "" && !ID_SUFFIX.has(suffix)) return null;
  if (!stem.length) return null;
  if (suffix === "" && !/\b(id|identifier|uuid|guid)\b/i.test(schema.description ?? "")) return null;
  for (let i = 0; i < stem.length; i++) {
    const t = typeName(stem.slice(i));
    if (types.has(t)) return t;
  }
  return null;
}

function findRefs(tool: Tool, op: Op, types: Map<string, ResourceType>): void {
  const taken = new Set([...op.scope.map((r) => r.param), op.target?.param]);
  for (const [param, schema] of Object.entries(tool.parameters.properties)) {
    if (taken.has(param) || tool.places[param] === "header" || tool.places[param] === "path") continue;
    const type = referredType(param, schema, types);
    if (!type) continue;
    // A number can't name what is named by a word.
    const named = types.get(type)?.idSchema.type;
    if ((schema.type === "integer" || schema.type === "number") && named === "string") continue;
    // The identifier of what is being made or read is the caller's to choose, unless it says which entity is meant.
    if (type === op.type && op.kind !== "list" && op.kind !== "compute") {
      if (!op.target && op.kind !== "create") op.target = { param, type, key: "" };
      continue;
    }
    op.refs.push({ param, type, key: "" });
  }
}
