import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { normaliseSchema, PARAMETER_LIMITS, Resolver } from "./schema.ts";
import type { JsonSchema } from "./types.ts";

const plain = (raw: unknown, root: unknown = {}) => normaliseSchema(raw, new Resolver(root), "request");

function nodes(s: JsonSchema): number {
  const below = [...Object.values(s.properties ?? {}), ...(s.items ? [s.items] : [])];
  if (typeof s.additionalProperties === "object") below.push(s.additionalProperties);
  return 1 + below.reduce((n, x) => n + nodes(x), 0);
}

describe("hostile schemas", () => {
  test("a reference bomb stays within its budget", () => {
    const schemas: Record<string, unknown> = {};
    for (let i = 0; i < 40; i++) {
      const next = { $ref: `#/s/L${i + 1}` };
      schemas[`L${i}`] = {
        type: "object",
        properties: Object.fromEntries(Array.from({ length: 30 }, (_, k) => [`p${k}`, next])),
      };
    }
    const out = normaliseSchema({ $ref: "#/s/L0" }, new Resolver({ s: schemas }), "request");
    expect(nodes(out)).toBeLessThanOrEqual(PARAMETER_LIMITS.nodes + 40);
    expect(Object.keys(out.properties!).length).toBeGreaterThan(0);
  });

  test("an allOf bomb, references that bite their tails, and arrays nested a thousand deep end", () => {
    const bomb: Record<string, unknown> = {};
    for (let i = 0; i < 30; i++) bomb[`A${i}`] = { allOf: Array.from({ length: 20 }, () => ({ $ref: `#/A${i + 1}` })) };
    plain({ $ref: "#/A0" }, bomb);
    expect(plain({ $ref: "#/a" }, { a: { $ref: "#/b" }, b: { $ref: "#/a" } })).toEqual({ type: "object" });
    let deep: unknown = { type: "string" };
    for (let i = 0; i < 1000; i++) deep = { type: "array", items: deep };
    expect(JSON.stringify(plain(deep)).length).toBeLessThan(1000);
    expect(plain({ $ref: "#" }, { $ref: "#" }).type).toBe("object");
  });

  test("prototype keys are neither followed nor set", () => {
    expect(plain({ $ref: "#/constructor/prototype" }, {})).toEqual({});
    const raw = JSON.parse(
      '{"type":"object","properties":{"__proto__":{"type":"string"},"constructor":{"type":"string"},"ok":{"type":"string"}},"required":["__proto__","ok"]}',
    );
    const out = plain(raw);
    expect(Object.keys(out.properties!)).toEqual(["ok", "constructor"]);
    expect(out.required).toEqual(["ok"]);
    expect(Object.getPrototypeOf(out.properties)).toBe(Object.prototype);
  });

  test("a schema of 100 KB is cut to its limits, required properties first", () => {
    const properties = Object.fromEntries(
      Array.from({ length: 1500 }, (_, i) => [`property_${i}`, { type: "string", description: "words ".repeat(20) }]),
    );
    const out = plain({ type: "object", properties, required: ["property_1400", "property_7"] });
    expect(Object.keys(out.properties!).length).toBe(30);
    expect(Object.keys(out.properties!).slice(0, 2)).toEqual(["property_7", "property_1400"]);
    expect(out.required).toEqual(["property_7", "property_1400"]);
  });

  test("no JSON whatever makes it throw", () => {
    const keys = fc.constantFrom(
      "type",
      "properties",
      "items",
      "allOf",
      "oneOf",
      "anyOf",
      "enum",
      "required",
      "$ref",
      "default",
      "pattern",
      "format",
      "minimum",
      "additionalProperties",
      "x",
      "__proto__",
    );
    const { value } = fc.letrec((tie) => ({
      value: fc.oneof(
        { maxDepth: 5 },
        fc.constantFrom<unknown>("object", "array", "#/x", "#", "(", null, 3, -1, true, "string", "integer"),
        tie("list"),
        tie("object"),
      ),
      list: fc.array(tie("value"), { maxLength: 4 }),
      object: fc.dictionary(keys, tie("value"), { maxKeys: 5 }),
    }));
    fc.assert(
      fc.property(value, (raw) => {
        const out = normaliseSchema(raw, new Resolver({ x: raw }), "response");
        expect(JSON.stringify(out).length).toBeLessThan(200_000);
      }),
      { seed: 5, numRuns: 1500 },
    );
  });
});

describe("dialects", () => {
  test.each([
    [
      { type: ["null", "integer"], minimum: 2 },
      { type: "integer", nullable: true, minimum: 2 },
    ],
    [{ type: "dict" }, { type: "object" }],
    [
      { type: "float", default: "1.5" },
      { type: "number", default: 1.5 },
    ],
    [
      { type: "tuple", items: [{ type: "integer" }, { type: "string" }] },
      { type: "array", items: { type: "integer" } },
    ],
    [{ type: "any" }, {}],
    [{ type: "file" }, { type: "string", format: "binary" }],
    [{ const: "fixed" }, { enum: ["fixed"], type: "string" }],
    [
      { type: "integer", exclusiveMinimum: 0, exclusiveMaximum: 10 },
      { type: "integer", minimum: 1, maximum: 9 },
    ],
    [
      { type: "integer", minimum: 0, exclusiveMinimum: true },
      { type: "integer", minimum: 1 },
    ],
    [
      { type: "string", enum: [1, 2, "2", null] },
      { type: "string", nullable: true, enum: ["1", "2"] },
    ],
    [
      { type: "string", enum: ["a", "b"], default: "c", example: "b" },
      { type: "string", enum: ["a", "b"], example: "b" },
    ],
    [
      { anyOf: [{ type: "null" }, { type: "string", format: "uuid" }] },
      { type: "string", format: "uuid", nullable: true },
    ],
    [
      {
        oneOf: [
          { type: "string", enum: ["a"] },
          { type: "string", enum: ["b", "c"] },
        ],
      },
      { type: "string", enum: ["a", "b", "c"] },
    ],
    [{ additionalProperties: { type: "integer" } }, { type: "object", additionalProperties: { type: "integer" } }],
    [{ type: "string", pattern: "(?<x", minLength: 5, maxLength: 2 }, { type: "string" }],
    [
      { type: "string", pattern: "^[A-Z]{3}$", example: "eur", default: "EUR" },
      { type: "string", pattern: "^[A-Z]{3}$", default: "EUR" },
    ],
  ] as [unknown, JsonSchema][])("%j", (raw, expected) => {
    expect(plain(raw)).toEqual(expected);
  });

  test("a long enumeration becomes an example and is told of", () => {
    const out = plain({
      type: "string",
      enum: Array.from({ length: 180 }, (_, i) => `C${i}`),
      description: "Currency.",
    });
    expect(out).toEqual({
      type: "string",
      description: "Currency. One of 180 values, such as C0, C1, C2, C3.",
      example: "C0",
    });
  });

  test("allOf is merged, its requirements added", () => {
    const out = plain(
      { allOf: [{ $ref: "#/base" }, { properties: { b: { type: "integer" } }, required: ["b"] }] },
      { base: { type: "object", properties: { a: { type: "string" } }, required: ["a"] } },
    );
    expect(out).toEqual({
      type: "object",
      properties: { a: { type: "string" }, b: { type: "integer" } },
      required: ["a", "b"],
    });
  });

  test("secrets in defaults, examples and enumerations are removed", () => {
    const key = `AKIA${"ABCDEFGHIJKLMNOP"}`;
    expect(
      JSON.stringify(
        plain({
          type: "object",
          properties: { k: { type: "string", example: key, description: `like ${key}` }, e: { enum: [key] } },
        }),
      ),
    ).not.toContain(key);
  });
});
