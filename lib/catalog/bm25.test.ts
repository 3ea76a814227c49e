import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { BM25_SETTINGS, Bm25Index, bm25, type SearchText, searchFields } from "./bm25.ts";
import { memoryCatalog } from "./memory.ts";
import { STOP_WORDS, stem, tokens, words } from "./tokens.ts";
import type { Tool } from "./types.ts";

function tool(id: number, name: string, description: string, parameters: string[] = [], api = "example.com"): Tool {
  return {
    id,
    name,
    provider: api,
    api,
    operation: name,
    method: "GET",
    path: "",
    description,
    category: null,
    parameters: {
      type: "object",
      properties: Object.fromEntries(parameters.map((p) => [p, { type: "string" as const }])),
      required: [],
    },
    places: Object.fromEntries(parameters.map((p) => [p, "query" as const])),
    response: null,
    example: null,
    source: "test",
    licence: null,
  };
}

/** BM25F as its definition says, over words and their stems, with no index and no early stop. */
function plainScores(list: SearchText[], query: string): number[] {
  const both = (field: string[]) => field.flatMap((w) => [stem(w), `=${w}`]);
  const fields = list.map((text) => searchFields(text).map(both));
  const { k1, weights, b } = BM25_SETTINGS;
  const average = [0, 1, 2, 3].map((f) => Math.max(fields.reduce((a, x) => a + x[f]!.length, 0) / list.length, 1e-9));
  return fields.map((own) => {
    let score = 0;
    for (const term of new Set(both(words(query)))) {
      const df = fields.filter((x) => x.some((f) => f.includes(term))).length;
      if (df === 0) continue;
      const idf = Math.log(1 + (list.length - df + 0.5) / (df + 0.5));
      let tf = 0;
      for (let f = 0; f < 4; f++) {
        const count = own[f]!.filter((w) => w === term).length;
        tf += (weights[f]! * count) / (1 - b[f]! + (b[f]! * own[f]!.length) / average[f]!);
      }
      score += (idf * tf * (k1 + 1)) / (k1 + tf);
    }
    return score;
  });
}

const word = fc.constantFrom(
  "list",
  "get",
  "user",
  "invoice",
  "send",
  "mail",
  "rare",
  "weather",
  "city",
  "pet",
  "delete",
  "order",
  "b1",
  "zürich",
  "lists",
  "listing",
  "cities",
  "orders",
  "sending",
);
const text = fc.array(word, { maxLength: 8 }).map((w) => w.join(" "));
const texts = fc.array(
  fc.record({
    name: text,
    description: text,
    api: text,
    category: fc.option(text),
    parameters: fc.array(word, { maxLength: 4 }),
  }),
  { minLength: 1, maxLength: 60 },
);

describe("the inverted index", () => {
  test("finds what the definition of BM25F ranks best, whatever is cut", () => {
    fc.assert(
      fc.property(texts, fc.array(word, { maxLength: 12 }), fc.integer({ min: 1, max: 12 }), (list, query, k) => {
        const index = Bm25Index.build("h", list);
        const got = index.search(query.join(" "), k);
        const plain = plainScores(list, query.join(" "));
        const best = plain.map((score, id) => ({ id, score })).filter((x) => x.score > 0);
        best.sort((x, y) => y.score - x.score || x.id - y.id);
        expect(got.length).toBe(Math.min(k, best.length));
        got.forEach((hit, i) => {
          expect(hit.score).toBeCloseTo(best[i]!.score, 3);
          expect(hit.score).toBeCloseTo(plain[hit.id]!, 3);
        });
      }),
      { seed: 7, numRuns: 300 },
    );
  });

  test("an early stop gives the same tools and scores as a search for everything", () => {
    const list: SearchText[] = Array.from({ length: 3000 }, (_, i) => ({
      name: `tool ${i % 7 === 0 ? "common" : "usual"} ${i % 97 === 0 ? "seldom" : "often"}`,
      description: `does ${i % 3 === 0 ? "alpha" : "beta"} with number ${i % 501} ${i === 1234 ? "unicorn" : ""}`,
      api: `api${i % 11}`,
      category: null,
      parameters: ["id", i % 2 === 0 ? "limit" : "offset"],
    }));
    const index = Bm25Index.build("h", list);
    for (const query of [
      "unicorn alpha tool id limit",
      "seldom common beta number 42",
      "tool id",
      "unicorn",
      "often usual alpha alpha offset",
    ]) {
      const all = index.search(query, list.length);
      for (const k of [1, 3, 10, 50]) expect(index.search(query, k)).toEqual(all.slice(0, k));
    }
    expect(index.search("unicorn alpha tool id limit", 1)[0]!.id).toBe(1234);
  });

  test("scores of all tools, and what each word adds to one, agree with the search", () => {
    fc.assert(
      fc.property(texts, text, (list, query) => {
        const index = Bm25Index.build("h", list);
        const scores = index.scores(query);
        const found = new Map(index.search(query, list.length).map((hit) => [hit.id, hit.score]));
        for (let id = 0; id < list.length; id++) {
          expect(scores[id]!).toBeCloseTo(found.get(id) ?? 0, 6);
          const sum = index.explain(query, id).reduce((s, term) => s + term.adds, 0);
          expect(sum).toBeCloseTo(scores[id]!, 6);
        }
      }),
      { seed: 11, numRuns: 100 },
    );
  });

  test("ties go to the lower id", () => {
    const retriever = bm25([0, 1, 2, 3].map((i) => tool(i, `same_${i}`, "the very same words")));
    expect(retriever.search("very same words", 3).map((h) => h.tool.id)).toEqual([0, 1, 2]);
  });

  test("survives a trip through a file, and refuses another catalogue's or a damaged one", () => {
    fc.assert(
      fc.property(texts, text, (list, query) => {
        const index = Bm25Index.build("hash", list);
        const bytes = index.encode();
        const back = Bm25Index.decode(bytes, "hash", list.length);
        if (typeof back === "string") throw new Error(back);
        expect(back.search(query, 5)).toEqual(index.search(query, 5));
        expect(Bm25Index.decode(bytes, "other", list.length)).toBe("another catalogue's index");
        expect(Bm25Index.decode(bytes, "hash", list.length + 1)).toBe("another catalogue's index");
        expect(Bm25Index.decode(bytes.slice(0, -4), "hash", list.length)).toBe("cut off");
        const bent = bytes.slice();
        bent[bent.length - 1]! ^= 1;
        expect(Bm25Index.decode(bent, "hash", list.length)).toBe("damaged");
      }),
      { seed: 11, numRuns: 60 },
    );
  });

  test("any string is a query", () => {
    const retriever = bm25([
      tool(0, "get_weather", "Weather of a city", ["city"]),
      tool(1, "wetter_holen", "Wetter für Zürich"),
    ]);
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), (q) => {
        expect(retriever.search(q, 2).length).toBeLessThanOrEqual(2);
      }),
      { seed: 3, numRuns: 300 },
    );
    expect(retriever.search("the of and to", 3)).toEqual([]);
    expect(retriever.search("ZÜRICH?!", 1)[0]!.tool.id).toBe(1);
    expect(retriever.search("weather", 0)).toEqual([]);
  });

  test("an empty catalogue has an index", () => {
    expect(bm25([]).search("anything", 3)).toEqual([]);
  });
});

describe("words", () => {
  test("camel and snake case part, stop words go, forms of a word meet", () => {
    expect(tokens("listUserInvoices of_the user's HTTPServer")).toEqual(tokens("list user invoice user httpserver"));
    for (const [a, b] of [
      ["cities", "city"],
      ["boxes", "box"],
      ["sending", "send"],
      ["cancelled", "cancel"],
      ["stopped", "stop"],
      ["created", "create"],
      ["invoices", "invoice"],
    ]) {
      expect(stem(a!)).toBe(stem(b!));
    }
    for (const w of ["status", "analysis", "address", "bus"]) expect(stem(w)).toBe(w === "address" ? "address" : w);
    expect(STOP_WORDS.has("list")).toBe(false);
  });
});

describe("a catalogue in memory", () => {
  test("gives ids by place, refuses names that are taken or unusable", () => {
    const c = memoryCatalog([tool(5, "b_tool", "second"), tool(9, "a_tool", "first", [], "other.org")]);
    expect(c.tools.map((t) => t.id)).toEqual([0, 1]);
    expect(c.get("a_tool")!.description).toBe("first");
    expect(c.providers()).toEqual(["example.com", "other.org"]);
    expect(c.byProvider("other.org").map((t) => t.name)).toEqual(["a_tool"]);
    expect(() => memoryCatalog([tool(0, "x", "a"), tool(1, "x", "b")])).toThrow("two tools are named x");
    expect(() => memoryCatalog([tool(0, "X y", "a")])).toThrow("not 1–64 characters");
    expect(c.hash).not.toBe(memoryCatalog([...c.tools].reverse()).hash);
  });
});
