/** What an API offers to tasks: the operations whose interface a person's request can fill. */
import type { Catalog, Tool } from "../../catalog/types.ts";
import { fieldClass } from "../fields.ts";
import { type Op, referredType } from "../resources.ts";
import { clean } from "../schema.ts";
import { singular, splitWords } from "../words.ts";
import { apiModel } from "../world.ts";
import { readable } from "./speech.ts";

export interface Offer {
  tool: Tool;
  op: Op;
  type: string;
}
export interface Surface {
  api: string;
  gets: Offer[];
  lists: Offer[];
  creates: Offer[];
  updates: Offer[];
  deletes: Offer[];
}

/** Types that read badly or mean nothing to a person. */
const DULL =
  /\b(token|session|log|metadata|schema|config|configuration|setting|option|property|parameter|header|field|value|key|credential|secret|version|info|information|detail|data|status|state|result|resource|object|entity|item|element|self|me|me|health|ping|batch|bulk|count|default|definition|operation|v\d|test|attribute|extension|type|metrics|metric|stat|statistics|statistic|summary|search|query|request|response|link|permission|capability|content|list|preview|usage|iam policy|etag|callback|xml|json|action|body|record set|navigation|property|oauth|auth|login|logout|index)$/;

const mentions = (text: string, type: string): boolean => {
  const words = new Set(splitWords(text.replace(/[^A-Za-z0-9]/g, " ")).flatMap((w) => [w, singular(w)]));
  const folded = [...words].join("");
  return type.split(" ").every((w) => words.has(w) || folded.includes(w));
};

/** Whether a person could fill the operation and would see the point of it. */
function offer(tool: Tool, op: Op): Offer | null {
  const type = op.target?.type ?? op.type;
  if (!type || type !== op.type || DULL.test(type) || type.length < 3 || op.scope.length > 2) return null;
  const near = `${tool.description} ${tool.operation.replace(/_/g, " ")}`;
  if (!readable(type, tool.description) || !mentions(near, type)) return null;
  if (
    /deprecat|internal use|do not use|beta only|webhook payload|bulk|batch|multiple|asynchron/i.test(tool.description)
  )
    return null;
  const keys = new Set([...op.scope, ...(op.target ? [op.target] : [])].map((r) => r.param));
  const refs = new Map(op.refs.map((r) => [r.param, r]));
  let asked = op.scope.length;
  for (const param of tool.parameters.required) {
    const s = clean(tool.parameters.properties[param] ?? {});
    if (keys.has(param)) {
      if (s.type !== undefined && s.type !== "string" && s.type !== "integer" && s.type !== "number") return null;
      continue;
    }
    if (tool.places[param] === "header") return null;
    if (refs.has(param)) {
      asked++;
      continue;
    }
    if (s.type === "object" || s.type === "array" || s.type === undefined || s.type === "boolean") return null;
    const cls = fieldClass(param, s);
    if (
      cls === "secret" ||
      cls === "paging" ||
      cls === "path" ||
      cls === "arn" ||
      (cls === "id" && !s.enum) ||
      (cls === "other" && s.type === "string" && !s.enum)
    )
      return null;
    asked++;
  }
  if (asked > 4) return null;
  for (const r of op.scope)
    if (!readable(r.type, tool.description + " " + tool.path.replace(/[{}/_-]/g, " ")) || r.type.length < 3)
      return null;
  return { tool, op, type };
}

const surfaces = new WeakMap<Catalog, Map<string, Surface>>();

/** The surface of one API. Kept for the catalogue's lifetime: it is small. */
export function surfaceOf(catalog: Catalog, api: string): Surface {
  let byApi = surfaces.get(catalog);
  if (!byApi) {
    byApi = new Map();
    surfaces.set(catalog, byApi);
  }
  let s = byApi.get(api);
  if (!s) {
    s = { api, gets: [], lists: [], creates: [], updates: [], deletes: [] };
    const model = apiModel(catalog, api);
    for (const tool of catalog.byApi(api)) {
      const op = model.ops.get(tool.name);
      const o = op ? offer(tool, op) : null;
      if (!op || !o) continue;
      const shown = tool.response !== null && op.at !== null;
      if (op.kind === "get" && op.target && shown && !op.many) s.gets.push(o);
      else if (op.kind === "list" && shown && op.many) s.lists.push(o);
      else if (op.kind === "create" && tool.method === "POST" && !op.many) s.creates.push(o);
      else if (op.kind === "update" && op.target) s.updates.push(o);
      else if (op.kind === "delete" && op.target) s.deletes.push(o);
    }
    byApi.set(api, s);
  }
  return s;
}

/** Fields of a type that point at another type which can be read by its identifier. */
export function links(catalog: Catalog, surface: Surface, from: Offer): { field: string; role: string; to: Offer }[] {
  const model = apiModel(catalog, surface.api);
  const type = model.types.get(from.type);
  const out: { field: string; role: string; to: Offer }[] = [];
  for (const f of type?.fields.values() ?? []) {
    const to = referredType(f.name, f.schema, model.types);
    if (!to || to === from.type) continue;
    const stem = splitWords(f.name)
      .filter((w) => !/^(id|uuid|guid|sid|key|uid|fk)$/.test(w))
      .join(" ");
    for (const g of surface.gets)
      if (
        g.type === to &&
        g.op.target?.key === "" &&
        g.op.scope.every((s) => from.op.scope.some((x) => x.type === s.type))
      )
        out.push({ field: f.name, role: stem || to, to: g });
  }
  return out;
}
