import { expect, test } from "bun:test";
import fc from "fast-check";
import { openCatalog } from "../catalog/store.ts";
import type { Json, JsonObject } from "../catalog/types.ts";
import { canonicalJson } from "../config/hash.ts";
import { at } from "./compare.ts";
import { FAULT_KINDS } from "./faults.ts";
import { Rng } from "./hash.ts";
import { coerce } from "./render.ts";
import { Checks, clean, fits } from "./schema.ts";
import { realSample, shop, validArguments } from "./testdata/sample.ts";
import type { CallResult } from "./types.ts";
import { normal } from "./words.ts";
import { checkArguments, checkResponse, World } from "./world.ts";

const catalog = shop();
const world = new World(catalog, 11);
const FULL = process.env.PARAAGENT_FULL === "1";

function calls(w: World = world, seed = 0, faults: Parameters<World["open"]>[1] = []) {
  const session = w.open(seed, faults);
  const call = (name: string, args: JsonObject): CallResult => session.call(w.catalog.get(name)!, args);
  return { session, call };
}
const get = (r: CallResult, pointer: string): Json => at(r.body, pointer) ?? null;

test("a list shows entities that get finds, and both say the same of them", () => {
  const { call } = calls();
  const list = call("list_customers", {});
  expect(list.outcome).toBe("ok");
  const items = get(list, "/data") as JsonObject[];
  expect(items.length).toBeGreaterThan(1);
  for (const item of items) {
    const one = call("get_customer", { id: item.id as number });
    expect(one.body).toEqual(item);
    for (const o of call("list_orders", { customer_id: item.id as number }).body as JsonObject[]) {
      const whole = get(call("get_order", { orderId: o.id as string }), "/order") as JsonObject;
      expect(whole.customer_id).toBe(item.id as number);
      for (const k of Object.keys(o)) expect(whole[k]).toEqual(o[k] as Json);
    }
  }
});

test("create, get, update, list, delete: the session remembers", () => {
  const { call, session } = calls();
  const made = call("create_customer", { name: "Ada Byron", email: "ada@example.org" });
  expect(made.status).toBe(201);
  const id = get(made, "/id") as number;
  expect(get(call("get_customer", { id }), "/name")).toBe("Ada Byron");
  expect(get(call("update_customer", { customerId: id, city: "Ghent" }), "/city")).toBe("Ghent");
  expect(get(call("get_customer", { id }), "/email")).toBe("ada@example.org");
  expect((get(call("list_customers", { city: "Ghent" }), "/data") as JsonObject[]).map((c) => c.id)).toContain(id);
  const order = call("create_order", { customer_id: id, title: "Engine", total: 12.5 });
  expect(get(order, "/customer_id")).toBe(id);
  expect((call("list_orders", { customer_id: id }).body as JsonObject[]).map((o) => o.title)).toEqual(["Engine"]);
  expect(call("delete_customer", { id }).outcome).toBe("ok");
  expect(call("get_customer", { id }).status).toBe(404);
  expect(call("update_customer", { customerId: id, city: "x" }).outcome).toBe("not_found");
  expect(
    session
      .writes()
      .map((w) => w.kind)
      .sort(),
  ).toEqual(["create", "create", "delete", "update"]);
  expect(session.writes().find((w) => w.kind === "update")?.values).toEqual({ city: "Ghent" });
});

test("in real interfaces get finds what was created, and nothing after it was deleted", () => {
  const many = FULL ? openCatalog() : realSample().catalog;
  const w = new World(many, 19);
  const rng = new Rng(37);
  const tried = { got: 0, gone: 0 };
  for (const { api } of FULL ? rng.shuffle(many.apis()).slice(0, 600) : many.apis()) {
    const tools = many.byApi(api).map((tool) => ({ tool, op: w.op(tool) }));
    for (const { tool, op } of tools.filter((t) => t.op.kind === "create" && t.op.type !== null)) {
      const args = validArguments(w, tool, rng);
      const session = w.open(1);
      if (session.call(tool, args).outcome !== "ok") continue;
      const made = session.writes().find((x) => x.kind === "create" && x.resource.endsWith(`:${op.type}`));
      if (!made) continue;
      /** The same entity's operations of a kind whose other arguments the create's owners give. */
      const on = (kind: "get" | "delete") =>
        tools.flatMap(({ tool: t, op: o }) => {
          if (o.kind !== kind || o.type !== op.type || o.target?.type !== op.type || o.target.key !== "") return [];
          const given: JsonObject = {};
          const id = coerce(made.id, clean(t.parameters.properties[o.target.param] ?? {}));
          if (id === undefined) return [];
          given[o.target.param] = id;
          for (const r of o.scope) {
            const same = op.scope.find((x) => x.type === r.type && x.key === r.key);
            if (same) given[r.param] = args[same.param] as Json;
          }
          return t.parameters.required.every((p) => p in given) && checkArguments(many, t, given).length === 0
            ? [{ t, given }]
            : [];
        });
      const reads = on("get");
      for (const { t, given } of reads) {
        expect([t.name, given, session.call(t, given).outcome]).toEqual([t.name, given, "ok"]);
        tried.got++;
      }
      const [drop] = on("delete");
      if (!drop || session.call(drop.t, drop.given).outcome !== "ok") continue;
      for (const { t, given } of reads) {
        expect([t.name, given, session.call(t, given).status]).toEqual([t.name, given, 404]);
        tried.gone++;
      }
    }
  }
  expect([tried.got > (FULL ? 500 : 20), tried.gone > (FULL ? 200 : 10)]).toEqual([true, true]);
  console.log(`get after create ${tried.got} times, 404 after delete ${tried.gone} times`);
}, 600_000);

test("two sessions never see each other's writes", () => {
  fc.assert(
    fc.property(
      fc.array(fc.tuple(fc.boolean(), fc.string({ minLength: 1, maxLength: 8 })), { minLength: 1, maxLength: 12 }),
      (steps) => {
        const both = [calls(), calls()] as const;
        const names = [new Set<string>(), new Set<string>()] as const;
        for (const [second, name] of steps) {
          const i = second ? 1 : 0;
          both[i].call("create_customer", { name: `own ${i} ${name}` });
          names[i].add(`own ${i} ${name}`);
        }
        for (const i of [0, 1] as const) {
          const listed = get(both[i].call("list_customers", { limit: 20 }), "/data") as JsonObject[];
          const own = listed.map((c) => String(c.name)).filter((n) => n.startsWith("own "));
          expect(own.every((n) => n.startsWith(`own ${i} `))).toBe(true);
          expect(both[i].session.writes().length).toBe(steps.filter(([s]) => (s ? 1 : 0) === i).length);
        }
      },
    ),
    { seed: 1, numRuns: 60 },
  );
});

test("lists filter, sort and page", () => {
  const { call } = calls();
  const all = get(call("list_customers", { limit: 20 }), "/data") as JsonObject[];
  const sorted = get(call("list_customers", { limit: 20, sort: "-name" }), "/data") as JsonObject[];
  expect(sorted.map((c) => c.name)).toEqual(
    all
      .map((c) => String(c.name))
      .sort()
      .reverse(),
  );
  const first = get(call("list_customers", { limit: 2 }), "/data") as JsonObject[];
  const second = get(call("list_customers", { limit: 2, page: 2 }), "/data") as JsonObject[];
  expect([...first, ...second]).toEqual(all.slice(0, first.length + second.length));
  expect(get(call("list_customers", { limit: 1 }), "/total")).toBe(all.length);
  expect(get(call("list_customers", { limit: 1 }), "/next_token")).not.toBeNull();
  const city = all[0]!.city as string;
  for (const c of get(call("list_customers", { city }), "/data") as JsonObject[]) expect(c.city).toBe(city);
  expect(get(call("list_customers", { city: "Atlantis" }), "/data")).toEqual([]);
  expect(get(call("list_customers", { page: -3 }), "/data")).toEqual(all.slice(0, 5));
  expect(
    (get(call("list_customers", { q: String(all[1]!.name) }), "/data") as JsonObject[]).map((c) => c.id),
  ).toContain(all[1]!.id as number);
});

test("a list holds exactly the items within the dates that are asked for", () => {
  const { call } = calls();
  const list = (args: JsonObject) => get(call("list_customers", { limit: 20, ...args }), "/data") as JsonObject[];
  for (const created_at of ["2024-02-29T23:59:59Z", "2026-03-01T00:00:00Z"])
    call("create_customer", { name: `of ${created_at.slice(0, 4)}`, created_at });
  const all = list({});
  const moments = all.map((c) => String(c.created_at));
  expect(new Set(moments).size).toBeGreaterThan(3);
  fc.assert(
    fc.property(
      fc.constantFrom(...moments),
      fc.constantFrom(...moments),
      fc.integer({ min: -90_000, max: 90_000 }),
      (a, b, seconds) => {
        const after = new Date(Date.parse(a) + seconds * 1000).toISOString();
        const until = b.slice(0, 10);
        const wanted = all.filter(
          (c) => Date.parse(String(c.created_at)) > Date.parse(after) && String(c.created_at).slice(0, 10) <= until,
        );
        expect(list({ created_after: after, created_until: until })).toEqual(wanted);
      },
    ),
    { seed: 1, numRuns: 100 },
  );
  expect(list({ created_after: moments[0] as string }).map((c) => c.created_at)).not.toContain(moments[0] as string);
});

test("in real interfaces lists honour date ranges, and still validate", () => {
  const { catalog: many } = realSample();
  const w = new World(many, 3);
  const rng = new Rng(8);
  let narrowed = 0;
  for (let i = 0; i < many.size; i++) {
    const t = many.byId(i);
    const { bounds, fewest, op } = w.facts(t);
    if (!bounds.size || fewest || [...bounds.keys()].some((k) => t.parameters.required.includes(k))) continue;
    const plain = validArguments(w, t, rng);
    for (const k of Object.keys(plain)) if (!t.parameters.required.includes(k)) delete plain[k];
    const items = (args: JsonObject) => {
      const r = w.open(0).call(t, args);
      // Owners that do not belong together.
      if (r.outcome === "not_found") return [];
      expect([t.name, r.outcome, checkResponse(many, t, r.body)]).toEqual([t.name, "ok", []]);
      return at(r.body, (op.at ?? []).map((p) => `/${p}`).join("")) as JsonObject[];
    };
    const all = items(plain);
    for (const [param, { field, side }] of bounds) {
      const name = Object.keys(all[0] ?? {}).find((k) => normal(k) === field);
      const value = name === undefined ? undefined : all[all.length >> 1]?.[name];
      const schema = clean(t.parameters.properties[param]!);
      if (name === undefined || value === undefined || value === null || !fits(value, schema)) continue;
      const found = items({ ...plain, [param]: value });
      const on = (item: JsonObject) => String(item[name]).slice(0, 19);
      for (const item of found)
        expect([
          t.name,
          param,
          side === "from" ? on(item) >= on({ [name]: value }) : on(item) <= on({ [name]: value }),
        ]).toEqual([t.name, param, true]);
      if (found.length < all.length) narrowed++;
    }
  }
  expect(narrowed).toBeGreaterThan(10);
}, 600_000);

test("what an action means is what a later read shows", () => {
  const { call, session } = calls();
  const open = (call("list_customers", { limit: 20 }).body as JsonObject).data as JsonObject[];
  const [o] = open.flatMap(
    (c) => call("list_orders", { customer_id: c.id as number, status: "paid" }).body as JsonObject[],
  );
  const order = { orderId: o!.id as string };
  expect(get(call("cancel_order", { ...order, reason: "late" }), "/order/status")).toBe("cancelled");
  expect(get(call("get_order", order), "/order/status")).toBe("cancelled");
  const of = o!.customer_id as number;
  expect(
    (call("list_orders", { customer_id: of, status: "cancelled" }).body as JsonObject[]).map((x) => x.id),
  ).toContain(order.orderId);
  expect(session.writes().map((x) => [x.kind, x.values])).toEqual([["action", { reason: "late" }]]);
});

test("in real interfaces actions change what they mean, and reads after them validate", () => {
  const { catalog: many } = realSample();
  const w = new World(many, 3);
  const rng = new Rng(9);
  let shown = 0;
  for (let i = 0; i < many.size; i++) {
    const t = many.byId(i);
    const { effect, op } = w.facts(t);
    const get = many
      .byApi(t.api)
      .find(
        (g) =>
          w.op(g).kind === "get" && w.op(g).target?.type === op.target?.type && w.op(g).target?.key === op.target?.key,
      );
    if (!effect.length || !get || !op.target) continue;
    const session = w.open(0);
    const args = validArguments(w, t, rng);
    if (session.call(t, args).outcome !== "ok") continue;
    const ids = Object.fromEntries(
      w.op(get).scope.flatMap((s, j) => (op.scope[j] ? [[s.param, args[op.scope[j]!.param]!]] : [])),
    );
    const read = session.call(get, { ...ids, [w.op(get).target!.param]: args[op.target.param]! });
    if (read.outcome !== "ok") continue;
    expect([get.name, checkResponse(many, get, read.body)]).toEqual([get.name, []]);
    const entity = at(read.body, (w.op(get).at ?? []).map((p) => `/${p}`).join("")) as JsonObject;
    for (const [field, value] of effect)
      for (const [k, v] of Object.entries(entity)) {
        if (normal(k) !== field) continue;
        expect([t.name, k, v]).toEqual([t.name, k, value]);
        shown++;
      }
  }
  expect(shown).toBeGreaterThan(5);
}, 600_000);

test("unknown identifiers are 404, of any form", () => {
  const { call } = calls();
  for (const id of ["../../etc/passwd", "ord_nope", "", "%00", "a".repeat(5000)])
    expect(call("get_order", { orderId: id }).outcome).toBe("not_found");
  expect(call("list_orders", { customer_id: 1 }).outcome).toBe("not_found");
  expect((call("get_customer", { id: 5 }).body as JsonObject).error).toContain("id 5");
});

test("a closed session refuses calls", () => {
  const { call, session } = calls();
  session.close();
  expect(() => call("list_customers", {})).toThrow("closed");
});

test("a reading says its question back and gives the same answer again", () => {
  const a = calls().call("get_quote", { city: "Ghent", weight: 2 });
  const b = calls(new World(catalog, 11)).call("get_quote", { weight: 2, city: "Ghent" });
  expect(a.body).toEqual(b.body);
  expect(get(a, "/city")).toBe("Ghent");
});

test("each fault hits the first attempt, shows as transient, and a retry succeeds", () => {
  for (const kind of FAULT_KINDS) {
    const { call } = calls(world, 1, [{ name: "list_customers", arguments: {}, kind }]);
    const first = call("list_customers", {});
    expect([first.outcome, first.fault]).toEqual(["transient", kind]);
    if (kind === "rate_limit") expect((first.body as JsonObject).retry_after).toBeGreaterThan(0);
    expect(call("list_customers", {}).body).toEqual(calls().call("list_customers", {}).body);
  }
  const { call, session } = calls(world, 1, [{ name: "create_customer", arguments: { name: "A" }, kind: "timeout" }]);
  expect(call("create_customer", { name: "A" }).outcome).toBe("transient");
  expect(session.writes()).toEqual([]);
  expect(call("create_customer", { name: "A" }).outcome).toBe("ok");
  expect(session.writes().length).toBe(1);
});

test("fault rates are met, and latencies are positive and seeded", () => {
  const stormy = new World(catalog, 11, { faults: { server_error: 0.2, rate_limit: 0.1 } });
  let hits = 0;
  for (let seed = 0; seed < 1000; seed++) {
    const r = calls(stormy, seed).call("get_quote", { city: "Ghent", weight: 1 });
    if (r.fault) hits++;
    expect(r.latencyMs).toBeGreaterThan(0);
    expect(calls(stormy, seed).call("get_quote", { city: "Ghent", weight: 1 })).toEqual(r);
  }
  expect(hits).toBeGreaterThan(230);
  expect(hits).toBeLessThan(370);
});

test("the same seed gives the same bytes in any order of calls", () => {
  const { catalog: many } = realSample();
  const rng = new Rng(5);
  const picks = Array.from({ length: FULL ? 3000 : 400 }, () => many.byId(rng.int(0, many.size - 1)));
  const there = new World(many, 3);
  const reads = picks.filter((t) => t.method === "GET").map((t) => ({ t, args: validArguments(there, t, rng) }));
  const back = new World(many, 3);
  const a = reads.map(({ t, args }) => canonicalJson(there.open(1).call(t, args).body));
  const b = [...reads].reverse().map(({ t, args }) => canonicalJson(back.open(2).call(t, args).body));
  expect(b.reverse()).toEqual(a);
}, 600_000);

test("every successful response validates against the tool's own schema", () => {
  const many = FULL ? openCatalog() : realSample().catalog;
  const w = new World(many, 17);
  const rng = new Rng(23);
  const wrong: string[] = [];
  let ok = 0;
  for (let i = 0; i < (FULL ? 5000 : 500); i++) {
    const t = many.byId(rng.int(0, many.size - 1));
    for (let k = 0; k < 3; k++) {
      const args = validArguments(w, t, rng);
      const r = w.open(k).call(t, args);
      if (r.outcome !== "ok") continue;
      ok++;
      const findings = checkResponse(many, t, r.body);
      if (findings.length) wrong.push(`${t.name}: ${findings[0]}`);
    }
  }
  expect(wrong).toEqual([]);
  expect(ok).toBeGreaterThan(FULL ? 9000 : 900);
}, 600_000);

test("every invalid argument is refused with the field's name", () => {
  const many = FULL ? openCatalog() : realSample().catalog;
  const w = new World(many, 17);
  const rng = new Rng(29);
  let tried = 0;
  for (let i = 0; i < (FULL ? 3000 : 150); i++) {
    const t = many.byId(rng.int(0, many.size - 1));
    const args = validArguments(w, t, rng);
    for (const [name, schema] of Object.entries(t.parameters.properties)) {
      const s = clean(schema);
      if (s.type === undefined) continue;
      const bad: Json =
        s.type === "string" ? 7 : s.type === "boolean" || s.type === "integer" || s.type === "number" ? "x" : 3;
      const r = w.open(0).call(t, { ...args, [name]: bad });
      expect([t.name, r.outcome, r.status]).toEqual([t.name, "invalid", 400]);
      // A call with several faults names the first five.
      const said = String((r.body as JsonObject).error);
      if (checkArguments(many, t, args).length === 0) expect(said).toContain(`"${name}"`);
      tried++;
    }
    for (const name of t.parameters.required) {
      const { [name]: _, ...rest } = args;
      const r = w.open(0).call(t, rest);
      expect(r.outcome).toBe("invalid");
      expect(String((r.body as JsonObject).error)).toContain(`"${name}" is required`);
    }
    expect(String((w.open(0).call(t, { ...args, no_such_argument: 1 }).body as JsonObject).error)).toContain(
      "no_such_argument",
    );
  }
  expect(tried).toBeGreaterThan(100);
}, 600_000);

test("the quick check agrees with ajv", () => {
  const { catalog: many } = realSample();
  const w = new World(many, 2);
  const rng = new Rng(31);
  const checks = new Checks();
  for (let i = 0; i < 120; i++) {
    const t = many.byId(rng.int(0, many.size - 1));
    const args = validArguments(w, t, rng);
    const spoiled = Object.fromEntries(Object.entries(args).map(([k, v]) => [k, rng.chance(0.3) ? [v, "x"] : v]));
    for (const value of [args, spoiled]) {
      const quick = fits(value, clean(t.parameters), true);
      // A refusal is ajv's own: the quick check only ever says yes by itself.
      expect(checks.slow(t.parameters, true)(value)).toBe(quick);
    }
  }
}, 120_000);

test("a schema that refers to no end, or is a bomb of levels, costs nothing", () => {
  let deep: JsonObject = { type: "string" };
  for (let i = 0; i < 400; i++)
    deep = { type: "object", properties: { a: deep, b: { type: "array", items: { type: "object", properties: {} } } } };
  const bomb = shop();
  const tool = { ...bomb.get("get_quote")!, response: deep as never };
  const catalogWith = { ...bomb, byApi: () => [tool], get: () => tool };
  const r = new World(catalogWith, 1).open(0).call(tool, { city: "Ghent", weight: 1 });
  expect(r.outcome).toBe("ok");
  expect(JSON.stringify(r.body).length).toBeLessThan(5000);
});
