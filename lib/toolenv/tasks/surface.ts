/** What an API offers to tasks: the operations whose interface a person's request can fill. */
import type { Catalog, Tool } from "../../catalog/types.ts";
import { fieldClass } from "../fields.ts";
import { type Op, referredType, verbOf } from "../resources.ts";
import { clean } from "../schema.ts";
import { singular, splitWords } from "../words.ts";
import { apiModel } from "../world.ts";
import { AWKWARD, readable } from "./speech.ts";

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

/** Last words of types that name a thing; other words ("internal", "following", "unapply") make no sense as "the …". */
const THINGS = new Set(
  `absence account achievement activity actor ad address adjustment admin agent agreement aircraft airline airport alarm album alert alias allele allergy
allocation amendment annotation announcement answer app appliance applicant application appointment archive area article artifact artist assessment
asset assignment assistant asteroid attachment attendee attraction audit author award backup badge bank barcode baseline basket beacon beneficiary bid
bike bill blob blueprint bond book booking bookmark bot bounty branch brand bridge broadcast broker bucket budget bug build builder building bundle
calendar call camera campaign candidate card carrier cart case category center certificate certification challenge channel chapter charge charger
chart chat city claim classroom client clinic cluster codespace collaborator collection column comment commit commitment community company component
compound conference connection connector consumer contact container contract contractor conversation cost counterparty country coupon course court
creator credit currency customer cycle dashboard database dataset deal dealer deduction delegate delivery department deploy deployment depot design
destination detector developer device directory discount discussion disease disk dispute district division doctor document domain door draft drive
driver droplet employee employer encounter endpoint enrollment enterprise entry envelope environment episode estimate event exam exchange expense
experience experiment facility factory family farm fax feature feed file filter finding firewall fleet flight folder follower food forecast fork form
forwarder framework function fund gadget gallery game gateway gene genre geofence gist glossary goal grade group guest guide gym habit hierarchy
holiday host hotel image immunization inbox incident individual industry ingredient inspection installation instance institution instrument insurer
integration interface interview inventory invitation invite invoice issue issuer job journal lab label language launch lawyer layer lead leaderboard
league lease leave ledger lesson license listener listing loan locality location lock logo machine mailbox manager mandate mapping marketplace match
material matter meal media medication meeting member membership menu merchant message meter migration milestone mission model moderator module
molecule monitor monster mortgage movie namespace network newsletter node note notification nutrient observation offer office opportunity order org
organisation organization organizer outpost owner package page parcel part participant partition partner party pathway patient payment
payout payslip period person photo phrase pickup pipeline place placement plan planet player playlist plugin podcast policy poll pool port portfolio
position post posting premium prescription preset printer priority privilege procedure product profile program project promotion prompt property
proposal protein provider proxy publication publisher pump purchase question questionnaire queue quiz quotation quote rate rating realm receipt recipe
recipient recommendation record recording recovery redirect refund region registrant registry release rental reply repo report repository requirement
reservation resolution restaurant review reviewer reward ride role room route router routine rover ruleset runner sample satellite scenario scene
schedule scheduler school scooter score scout season section segment seller sender sensor series server service settlement shift shipment shop
signature site sitemap skill slice slide snapshot snippet song space species sport stack star statement station step stock stop store story strain
strategy stream student study subaccount submission subnet subnetwork subscriber subscription subuser suggestion supplier survey switch table tag tank
tariff task tax teacher team teammate template tenant term tester theme thermostat thread thumbnail ticker ticket timeline timer timesheet topic
topology tour tournament track trade train training transaction transfer translation trash tree trial trigger trip trunk tunnel tweet unit user
vacancy variable variant vault vehicle vendor venue vessel video violation volume vote voucher vpc wallet warehouse watchlist webhook webinar website
widget wishlist word workflow workforce workgroup workload workout workspace zone`.split(/\s+/),
);

const UPLOADED = /\b(file|image|photo|picture|attachment|logo|thumbnail|blob|signature|recording|video|artifact)$/;

/** Words for owners that are not things by themselves. */
const OWNERS = new Set(
  "org msp realm app repo vpc business wiki list dag job schedule crate series set map event identity".split(" "),
);

const mentions = (text: string, type: string): boolean => {
  const words = new Set(splitWords(text.replace(/[^A-Za-z0-9]/g, " ")).flatMap((w) => [w, singular(w)]));
  const folded = [...words].join("");
  return type.split(" ").every((w) => words.has(w) || folded.includes(w));
};

/** Whether a person could fill the operation and would see the point of it. */
function offer(tool: Tool, op: Op): Offer | null {
  const type = op.target?.type ?? op.type;
  if (
    !type ||
    type !== op.type ||
    !THINGS.has(type.split(" ").at(-1) ?? "") ||
    DULL.test(type) ||
    type.length < 3 ||
    op.scope.length > 2
  )
    return null;
  if (op.scope.some((r) => r.type === type)) return null;
  // What an operation does must be what the words of a request will say: created, changed, deleted.
  const verb = verbOf(splitWords(tool.operation));
  const word = verb ? splitWords(tool.operation)[verb.at] : undefined;
  if (
    op.kind === "create" &&
    word !== undefined &&
    !/^(creates?|adds?|insert|new|post|register|set|put|creating)$/.test(word)
  )
    return null;
  if (
    op.kind === "update" &&
    word !== undefined &&
    !/^(updates?|modify|edit|patch|change|put|set|replace|save|updating|rename|configure)$/.test(word)
  )
    return null;
  // A POST without a verb may be a look-up.
  if (op.kind === "create" && word === undefined && !/\b(creat|add|new\b|regist|insert|post)/i.test(tool.description))
    return null;
  // A file or a picture is uploaded; words alone do not make one.
  if (op.kind === "create" && UPLOADED.test(type)) return null;
  if (op.kind === "delete" && word !== undefined && !/^(deletes?|removes?|destroy|del|deleting)$/.test(word))
    return null;
  if (op.target && splitWords(tool.operation).includes("all")) return null;
  // "remove case track" stops following a case and removes none.
  if (op.kind === "delete" && verb) {
    const said = splitWords(tool.operation).slice(verb.at + 1);
    const end = said.findIndex((w) => /^(by|from|in|of|for|with|id|v\d+)$/.test(w));
    const noun = (end < 0 ? said : said.slice(0, end)).at(-1);
    if (noun !== undefined && !type.split(" ").includes(singular(noun))) return null;
  }
  const first = type.split(" ")[0] ?? "";
  if (
    type.includes(" ") &&
    (AWKWARD.test(type) || /^(other|last|new|my|give)$/.test(first) || verbOf([first]) !== null)
  )
    return null;
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
    if (tool.places[param] === "header" || /format|extension|media.?type|content.?type|response.?type/i.test(param))
      return null;
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
    if (
      /\b(or|and|with|by|of)\b/.test(r.type) ||
      !(THINGS.has(r.type.split(" ").at(-1) ?? "") || OWNERS.has(r.type)) ||
      !readable(r.type, tool.description + " " + tool.path.replace(/[{}/_-]/g, " ")) ||
      r.type.length < 3
    )
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

/** Of several operations on one type those beside a tool by their paths: a volume group's snapshot is not read as a database's. */
export function nearest(tool: Tool, offers: readonly Offer[]): Offer[] {
  const path = tool.path.split("/");
  const shared = offers.map((o) => {
    const i = o.tool.path.split("/").findIndex((part, j) => part !== path[j]);
    return i < 0 ? path.length : i;
  });
  const most = Math.max(...shared);
  return offers.filter((_, i) => shared[i] === most);
}

/** Fields of a type that point at another type which can be read by its identifier. */
export function links(catalog: Catalog, surface: Surface, from: Offer): readonly Link[] {
  let found = linkCache.get(from);
  if (!found) {
    found = findLinks(catalog, surface, from);
    linkCache.set(from, found);
  }
  return found;
}
interface Link {
  field: string;
  role: string;
  to: Offer;
}
/** By offer, which belongs to one surface of one catalogue. */
const linkCache = new WeakMap<Offer, readonly Link[]>();
function findLinks(catalog: Catalog, surface: Surface, from: Offer): Link[] {
  const model = apiModel(catalog, surface.api);
  const type = model.types.get(from.type);
  const out: Link[] = [];
  for (const f of type?.fields.values() ?? []) {
    const to = referredType(f.name, f.schema, model.types);
    if (!to || to === from.type) continue;
    const stem = splitWords(f.name)
      .filter((w) => !/^(id|uuid|guid|sid|key|uid|fk)$/.test(w))
      .join(" ");
    const fitting = surface.gets.filter(
      (g) =>
        g.type === to &&
        g.op.target?.key === "" &&
        g.op.scope.every((s) => from.op.scope.some((x) => x.type === s.type)),
    );
    for (const g of nearest(from.tool, fitting)) out.push({ field: f.name, role: stem || to, to: g });
  }
  return out;
}
