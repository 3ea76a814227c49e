import { describe, expect, setDefaultTimeout, test } from "bun:test";
import type { ObjectSchema, Tool } from "../catalog/types.ts";
import { uniform } from "../engine/random.ts";
import { trainTokenizer } from "../model/bpe.ts";
import { loadTokenizer, qwen3TokenizerDir } from "../model/tokenizer.ts";
import type { Tokenizer } from "../model/types.ts";
import { acceptedReply, parseReply } from "../paraact/parse.ts";
import { planGraph } from "../paraact/plan.ts";
import { renderReply } from "../paraact/render.ts";
import { TAG_TOKENS } from "../paraact/tags.ts";
import { ConstraintError, type ConstraintOptions, replyConstraint } from "./constraint.ts";
import type { ReadValue } from "./grammar/fields.ts";

// Thousands of sampled tokens; a busy machine takes its time.
setDefaultTimeout(120_000);
const corpus = Array.from({ length: 40 }, (_, i) => {
  const city = ["Paris", "Berlin", "Lagos", "Zürich", "東京"][i % 5];
  return `Find the weather forecast for ${city} on day ${i * 37}. {"name":"get_weather_forecast","arguments":{"city":"${city}","day":${i * 37}}}`;
});
const small = await trainTokenizer(corpus, { vocabSize: 330, tags: [...TAG_TOKENS] });

function tool(name: string, properties: ObjectSchema["properties"], required: string[]): Tool {
  const parameters: ObjectSchema = { type: "object", properties, required };
  return {
    id: 0,
    name,
    provider: "p",
    api: "p/a",
    operation: name,
    method: "GET",
    path: "",
    description: name,
    category: null,
    parameters,
    places: {},
    response: null,
    example: null,
    source: "test",
    licence: null,
  };
}
const tools = [
  tool("get_user", { id: { type: "integer", minimum: 1 }, verbose: { type: "boolean" } }, ["id"]),
  tool(
    "get_user_by_name",
    { name: { type: "string", maxLength: 20 }, kind: { type: "string", enum: ["a", "ab", "c"] } },
    ["name", "kind"],
  ),
  tool(
    "list_things",
    {
      tags: { type: "array", items: { type: "string" }, maxItems: 2 },
      filter: { type: "object", properties: { x: { type: "number" } }, required: ["x"] },
      any: {},
    },
    [],
  ),
  tool("ping", {}, []),
];
const short = { think: 20, query: 20, slot: 12, answer: 30, string: 12, entries: 2 };

/** A reply sampled under the masks with random scores; `lean` raises tokens that are rare among the permitted, so that structure is met. */
function sample(
  tokenizer: Tokenizer,
  stop: number,
  seed: number,
  options: Omit<ConstraintOptions, "stopIds">,
): number[] {
  const constraint = replyConstraint(tokenizer, { limits: short, ...options, stopIds: [stop] });
  const ids: number[] = [];
  for (;;) {
    const bits = constraint.allowed();
    if (!bits) throw new Error("a protocol constraint always restricts");
    const allowed: number[] = [];
    bits.forEach((word, w) => {
      for (let x = word; x !== 0; x &= x - 1) allowed.push(w * 32 + 31 - Math.clz32(x & -x));
    });
    expect(allowed.length).toBeGreaterThan(0);
    const specials = allowed.filter((id) => tokenizer.bytes(id).length === 0);
    // Closing tags now and then, any action alike; otherwise any permitted token.
    const from = specials.length > 0 && uniform(seed, ids.length * 2) < 0.5 ? specials : allowed;
    const id = from[Math.floor(uniform(seed, ids.length * 2 + 1) * from.length)]!;
    constraint.accept(id);
    ids.push(id);
    if (id === stop) return ids;
    expect(ids.length).toBeLessThan(3000);
  }
}

/** Checks one sampled reply against the real parser and everything that the constraint promises. Returns its kind. */
function check(text: string, options: Omit<ConstraintOptions, "stopIds">): string {
  const parsed = parseReply(text);
  expect(parsed.findings).toEqual([]);
  const names = new Set(options.tools.map((t) => t.name));
  if (parsed.plan?.kind === "execution") {
    expect(planGraph(parsed.plan).findings).toEqual([]);
    for (const name of parsed.plan.available_tools) expect(names.has(name)).toBe(true);
    expect(new Set(parsed.plan.available_tools).size).toBe(parsed.plan.available_tools.length);
  }
  if (parsed.plan?.kind === "exploration") expect(parsed.searches.length).toBe(parsed.plan.capacity_slots.length);
  for (const call of parsed.calls) {
    const { properties, required } = options.tools.find((t) => t.name === call?.name)!.parameters;
    for (const key of required) expect(Object.hasOwn(call!.arguments, key)).toBe(true);
    for (const [key, value] of Object.entries(call!.arguments)) {
      const schema = properties[key]!;
      if (schema.enum) expect(schema.enum.includes(value)).toBe(true);
      else if (schema.type === "integer") expect(Number.isSafeInteger(value) && (value as number) >= 0).toBe(true);
      else if (schema.type === "array")
        expect(Array.isArray(value) && value.every((v) => typeof v === "string")).toBe(true);
      else if (schema.type) expect(typeof value === schema.type).toBe(true);
    }
  }
  return `${parsed.kind}${parsed.plan ? "+plan" : ""}`;
}

describe("random logits under the masks", () => {
  test("always give replies without findings, tools in view, arguments of the schema: small vocabulary", () => {
    const seen = new Map<string, number>();
    for (let seed = 0; seed < 200; seed++) {
      const options = { protocol: "paraact" as const, tools };
      const ids = sample(small, small.eosId!, seed, options);
      const kind = check(small.decode(ids.slice(0, -1)), options);
      seen.set(kind, (seen.get(kind) ?? 0) + 1);
    }
    expect([...seen.keys()].sort()).toEqual(["answer", "call", "call+plan", "search", "search+plan"]);
  });

  test("the same with Qwen3's 150,000 tokens, where most tags are spelled out", () => {
    const qwen = loadTokenizer(qwen3TokenizerDir());
    for (let seed = 0; seed < 5; seed++) {
      const options = {
        protocol: "paraact" as const,
        tools,
        slots: { search: "required" as const, call: "required" as const },
      };
      const ids = sample(qwen, qwen.eosId!, seed, options);
      check(qwen.decode(ids.slice(0, -1)), options);
    }
  }, 120_000);

  test("EaE and ETE: one action, no plan", () => {
    for (const protocol of ["eae", "ete"] as const) {
      for (let seed = 0; seed < 40; seed++) {
        const options = { protocol, tools };
        const parsed = parseReply(small.decode(sample(small, small.eosId!, seed, options).slice(0, -1)));
        expect(parsed.findings).toEqual([]);
        expect(parsed.planBlocks).toBe(0);
        expect(parsed.searches.length + parsed.calls.length + parsed.answers.length).toBe(1);
        if (protocol === "ete") expect(parsed.searches.length).toBe(0);
      }
    }
  });
});

describe("what the loop knows narrows the masks", () => {
  test("no tools in view: neither calls nor execution plans", () => {
    for (let seed = 0; seed < 40; seed++) {
      const options = { protocol: "paraact" as const, tools: [] };
      expect(check(small.decode(sample(small, small.eosId!, seed, options).slice(0, -1)), options)).not.toContain(
        "call",
      );
    }
  });

  test("plan slots: required, forbidden", () => {
    for (let seed = 0; seed < 60; seed++) {
      const options = {
        protocol: "paraact" as const,
        tools,
        slots: { search: "forbidden" as const, call: "required" as const },
      };
      expect(["answer", "search", "call+plan"]).toContain(
        check(small.decode(sample(small, small.eosId!, seed, options).slice(0, -1)), options),
      );
    }
  });

  test("ready occurrences: one call each, in any order", () => {
    for (let seed = 0; seed < 60; seed++) {
      const options = {
        protocol: "paraact" as const,
        tools,
        slots: { search: "required" as const, call: "forbidden" as const },
        ready: ["ping", "get_user", "ping"],
      };
      const parsed = parseReply(small.decode(sample(small, small.eosId!, seed, options).slice(0, -1)));
      if (parsed.kind === "call") expect(parsed.calls.map((c) => c!.name).sort()).toEqual(["get_user", "ping", "ping"]);
    }
  });

  test("a turn's calls are those of its new plan's first step", () => {
    let checked = 0;
    for (let seed = 0; seed < 120; seed++) {
      const parsed = parseReply(
        small.decode(sample(small, small.eosId!, seed, { protocol: "paraact", tools }).slice(0, -1)),
      );
      if (parsed.plan?.kind !== "execution") continue;
      checked++;
      expect(parsed.calls.map((c) => c!.name).sort()).toEqual([...parsed.plan.execution_flow[0]!.parallel].sort());
    }
    expect(checked).toBeGreaterThan(5);
  });

  test("copied strings are runs of whole words of what was read", () => {
    const read = 'Please find Ada Lovelace, code ab-12, C:\\q\n{"id":"x_9","q":"a \\"quoted\\" thing"}';
    let checked = 0;
    for (let seed = 0; seed < 200; seed++) {
      const options = {
        protocol: "paraact" as const,
        tools: tools.slice(1, 2),
        copyFrom: read,
        slots: { search: "required" as const, call: "forbidden" as const },
      };
      for (const call of parseReply(small.decode(sample(small, small.eosId!, seed, options).slice(0, -1))).calls) {
        checked++;
        const written = JSON.stringify(call!.arguments.name).slice(1, -1);
        const ends = (i: number): boolean => !/\w\w/.test(read.slice(Math.max(0, i - 1), i + 1));
        const places = [...read].map((_, i) => i).filter((i) => read.startsWith(written, i));
        expect(places.some((i) => ends(i) && ends(i + written.length))).toBe(true);
      }
    }
    expect(checked).toBeGreaterThan(20);
  });
});

describe("extraction", () => {
  const shaped = tool(
    "find",
    {
      id: { type: "string", format: "uuid" },
      code: { type: "string", minLength: 6, maxLength: 8 },
      n: { type: "integer", minimum: 10 },
    },
    ["id", "code", "n"],
  );
  const id = "1f0c7c8e-6f0e-4c55-9d2e-0a1b2c3d4e5f";
  const read = `Find ${id} with code AB-1234 on page 7 of 42 (cost 12.5).`;
  const options = {
    protocol: "paraact" as const,
    tools: [shaped],
    copyFrom: read,
    answerWords: ["Total", "12.5", "EUR", "42", "Zürich", "2025-04-19T21:39:58Z"],
    slots: { search: "required" as const, call: "forbidden" as const },
  };

  test("numbers and shaped strings are those of the context that the schema allows", () => {
    const seen = { ids: new Set<unknown>(), codes: new Set<unknown>(), numbers: new Set<unknown>() };
    for (let seed = 0; seed < 150; seed++) {
      for (const call of parseReply(small.decode(sample(small, small.eosId!, seed, options).slice(0, -1))).calls) {
        seen.ids.add(call!.arguments.id);
        seen.codes.add(call!.arguments.code);
        seen.numbers.add(call!.arguments.n);
      }
    }
    expect([...seen.ids]).toEqual([id]);
    for (const code of seen.codes) {
      expect(read).toContain(String(code));
      expect(String(code).length).toBeGreaterThanOrEqual(6);
      expect(String(code).length).toBeLessThanOrEqual(8);
    }
    expect([...seen.codes]).toContain("AB-1234");
    expect([...seen.numbers]).toEqual([42]);
  });

  test("answers hold only words that were read", () => {
    const known = new Set(options.answerWords.flatMap((w) => [w, w.charAt(0).toLowerCase() + w.slice(1)]));
    const own = new Set("It is done ID not found and the of I could find empty true false".split(" "));
    let checked = 0;
    for (let seed = 0; seed < 200; seed++) {
      const text = small.decode(sample(small, small.eosId!, seed, options).slice(0, -1));
      const { answers, findings } = parseReply(text);
      expect(findings).toEqual([]);
      for (const word of answers.flatMap((answer) => answer.split(" "))) {
        checked++;
        const plain = word.replace(/[.,;:]$/, "");
        const bare = [word, plain, plain.replace(/s$/, "")];
        const either = (set: ReadonlySet<string>) =>
          bare.some(
            (w) =>
              set.has(w) ||
              set.has(w.charAt(0).toUpperCase() + w.slice(1)) ||
              set.has(w.charAt(0).toLowerCase() + w.slice(1)),
          );
        expect([word, either(known) || either(own)]).toEqual([word, true]);
      }
    }
    expect(checked).toBeGreaterThan(50);
  });

  test("without a number in the context any that the schema allows can be written", () => {
    const none = {
      ...options,
      copyFrom: `Find ${id} code AB-1234.`,
      tools: [tool("n", { n: { type: "integer" } }, ["n"])],
    };
    const calls = Array.from({ length: 40 }, (_, seed) =>
      parseReply(small.decode(sample(small, small.eosId!, seed, none).slice(0, -1))),
    ).flatMap((r) => r.calls);
    expect(calls.length).toBeGreaterThan(0);
    for (const call of calls) expect(Number.isSafeInteger(call!.arguments.n)).toBe(true);
  });
});

describe("whole values", () => {
  const lookup = tool(
    "lookup",
    {
      account: { type: "integer" },
      id: { type: "string" },
      note: { type: "string" },
      short: { type: "string", maxLength: 1 },
      rate: { type: "number", maximum: 1 },
      tags: { type: "array", items: { type: "integer", minimum: 100 } },
    },
    ["account", "id"],
  );
  const request =
    'On ACME, look up item i-17 named "Ada Lovelace" of account 42 and list the names and end dates of its owners.';
  const read: ReadValue[] = [
    { text: "i-17", response: 0, member: "/id" },
    { text: "Ada", response: 0, member: "/owners/name" },
    { text: "Grace, H.", response: 0, member: "/owners/name" },
    { text: "Ada", response: 0, member: "/owners/name" },
    { text: "2025-01-02", response: 0, member: "/ended" },
    { text: "open", response: 1, member: "/status" },
  ];
  const options = {
    protocol: "paraact" as const,
    tools: [lookup],
    copyFrom: request,
    whole: { request, read },
    slots: { search: "required" as const, call: "forbidden" as const },
    limits: { ...short, answer: 120 },
  };
  const replies = Array.from({ length: 250 }, (_, seed) =>
    parseReply(small.decode(sample(small, small.eosId!, seed, options).slice(0, -1))),
  );

  test("arguments are whole values of the request or the responses, each once a call; what nothing fits is left out", () => {
    const calls = replies.flatMap((r) => r.calls);
    expect(calls.length).toBeGreaterThan(50);
    const values = ["Ada Lovelace", "ACME", "i-17", "42", "Ada", "Grace, H.", "2025-01-02", "open"];
    const used = { id: new Set<unknown>(), note: new Set<unknown>() };
    for (const call of calls) {
      const { account, id, note, ...rest } = call!.arguments;
      expect(account).toBe(42);
      const texts = [id, ...(note === undefined ? [] : [note])];
      for (const text of texts) expect(values).toContain(text as string);
      // The account is required, and 42 the only number.
      expect(new Set(texts).size).toBe(texts.length);
      used.id.add(id);
      used.note.add(note);
      expect(rest).toEqual({});
    }
    expect(used.id.size).toBeGreaterThan(3);
    expect(used.note.size).toBeGreaterThan(3);
  });

  test("answers are labels of the request and whole values, as often as they were read, lists to their end", () => {
    const answers = replies.flatMap((r) => r.answers);
    expect(answers.length).toBeGreaterThan(50);
    expect(new Set(answers).size).toBeGreaterThan(10);
    const group = /^([^:]+): (.+)$/;
    const said = ["not found", "Ada, Grace, H., Ada", "2025-01-02", "open"];
    for (const answer of answers) {
      if (answer === "It is done.") continue;
      expect(answer.endsWith(".")).toBe(true);
      const groups = answer
        .slice(0, -1)
        .split("; ")
        .map((g) => group.exec(g)!.slice(1));
      for (const [label, values] of groups) {
        expect(/^(?:[\w-]+ )*[\w-]+$/.test(label!)).toBe(true);
        // What is left of the values when whole ones are taken away; a list at the end of the room may be cut.
        let rest = `${values}, `;
        for (const value of said) rest = rest.replace(`${value}, `, "");
        expect([answer, rest.replace(/^(?:Ada, )?(?:Grace, H\., )?$/, "")]).toEqual([answer, ""]);
      }
    }
    expect(answers.some((a) => a.includes("Ada, Grace, H., Ada"))).toBe(true);
    expect(answers.some((a) => a.includes("i-17."))).toBe(false);
  });

  test("runs of the request's words, also in the other number; pieces, repeats and made-up labels are refused", () => {
    const accepts = (answer: string) => {
      const constraint = replyConstraint(small, { ...options, stopIds: [small.eosId!] });
      try {
        for (const id of small.encode(`<think>x</think><answer>${answer}</answer>`, { special: true }))
          constraint.accept(id);
        return true;
      } catch (error) {
        expect(error).toBeInstanceOf(ConstraintError);
        return false;
      }
    };
    expect(accepts("name: Ada, Grace, H., Ada; end date: 2025-01-02.")).toBe(true);
    expect(accepts("end dates: not found.")).toBe(true);
    expect(accepts("It is done.")).toBe(true);
    for (const wrong of [
      ...["name: Ada.", "name: Grace, H..", "name: Ada, Ada, Grace, H..", "end date: 2025.", "name: open, open."],
      ...["end date: 2025-01-02; end date: open.", "status: open.", "dates end: open.", "item: i-17.", "account: 42."],
      ...["name: Ada, Grace, H., Ada; end date: Ada.", "name:", ""],
    ])
      expect([wrong, accepts(wrong)]).toEqual([wrong, false]);
  });
});

test("a reply that the renderer writes is permitted token by token; a forbidden token is an error", () => {
  const text = renderReply({
    kind: "call",
    think: "the second needs the first's id",
    plan: {
      kind: "execution",
      subgoals: [{ id: "S1", subgoal: "find them" }],
      available_tools: ["get_user_by_name", "get_user"],
      dependencies: [
        { from: ["get_user_by_name#1"], to: "get_user#1" },
        { from: ["get_user_by_name#2"], to: "get_user#2" },
      ],
      execution_flow: [
        { step: 1, parallel: ["get_user_by_name", "get_user_by_name"] },
        { step: 2, parallel: ["get_user", "get_user"] },
      ],
    },
    calls: [
      { name: "get_user_by_name", arguments: { name: "Ada <think> é", kind: "ab" } },
      { name: "get_user_by_name", arguments: { kind: "c", name: "Bob" } },
    ],
  });
  expect(acceptedReply(parseReply(text))).not.toBeNull();
  const constraint = replyConstraint(small, { protocol: "paraact", tools, stopIds: [small.eosId!] });
  for (const id of [...small.encode(text, { special: true }), small.eosId!]) {
    expect(constraint.allowed()![id >>> 5]! & (1 << (id & 31))).not.toBe(0);
    constraint.accept(id);
  }
  const other = replyConstraint(small, { protocol: "paraact", tools, stopIds: [small.eosId!] });
  expect(() => other.accept(small.specials.get("<answer>")!)).toThrow(ConstraintError);
});
