import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { memoryCatalog } from "./memory.ts";
import { cutJson, rapidType, templateSchema, toolbenchTools } from "./toolbench.ts";

const entry = (more: object) => ({
  category_name: "Travel",
  tool_name: "Fly Now",
  api_name: "Find Flights",
  api_description: "Finds flights.",
  required_parameters: [],
  optional_parameters: [],
  method: "GET",
  ...more,
});
const p = (name: string, type: string, more: object = {}) => ({ name, type, description: "", default: "", ...more });

describe("ToolBench's api_list", () => {
  test("types in RapidAPI's words become JSON Schema's", () => {
    const { tools, problems } = toolbenchTools([
      entry({
        required_parameters: [
          p("from", "STRING", { description: "IATA code", default: "LHR" }),
          p("day", "DATE (YYYY-MM-DD)"),
          p("at", "TIME (24-hour HH:MM)"),
        ],
        optional_parameters: [
          p("seats", "NUMBER", { default: "2" }),
          p("direct", "BOOLEAN", { default: "true" }),
          p("cabin", "ENUM"),
          p("tags", "ARRAY"),
          p("extra", "OBJECT"),
          p("file", "BINARY"),
          p("odd", "GEOPOINT"),
        ],
      }),
    ]);
    const tool = tools[0]!;
    expect(tool.parameters.properties).toEqual({
      from: { type: "string", description: "IATA code", default: "LHR" },
      day: { type: "string", format: "date" },
      at: { type: "string", pattern: "^([01]\\d|2[0-3]):[0-5]\\d$" },
      seats: { type: "number", default: 2 },
      direct: { type: "boolean", default: true },
      cabin: { type: "string" },
      tags: { type: "array" },
      extra: { type: "object" },
      file: { type: "string", format: "binary" },
      odd: { type: "string" },
    });
    expect(tool.parameters.required).toEqual(["from", "day", "at"]);
    expect(problems).toEqual([
      {
        file: "toolbench",
        tool: "find_flights_for_fly_now",
        field: "odd",
        reason: 'unknown type "GEOPOINT": taken as a string',
      },
    ]);
    expect(rapidType(7)).toBeNull();
  });

  test("a default that is no value of its type is left out and reported", () => {
    const { tools, problems } = toolbenchTools([
      entry({ optional_parameters: [p("page", "NUMBER", { default: "first" })] }),
    ]);
    expect(tools[0]!.parameters.properties.page).toEqual({ type: "number" });
    expect(problems[0]).toMatchObject({ field: "page" });
  });

  test("recorded templates become response schemas, cut-off ones as far as they go", () => {
    expect(
      templateSchema({
        a: "str",
        n: "int",
        x: "float",
        list: ["list of int with length 3"],
        deep: [{ ok: "bool", _list_length: 50 }],
        none: "NoneType",
        empty: "empty list",
      }),
    ).toEqual({
      type: "object",
      properties: {
        a: { type: "string" },
        n: { type: "integer" },
        x: { type: "number" },
        list: { type: "array", items: { type: "integer" } },
        deep: { type: "array", items: { type: "object", properties: { ok: { type: "boolean" } } } },
        none: { nullable: true },
        empty: { type: "array" },
      },
    });
    expect(cutJson('{"a": "str", "b": [{"c": "in,t", "d": "st')).toEqual({ a: "str", b: [{ c: "in,t" }] });
    expect(cutJson('{"a')).toBeNull();
    const { tools, problems } = toolbenchTools([entry({ template_response: '{"a": "str", "b": {"c": "int", "d"' })]);
    expect(tools[0]!.response).toEqual({
      type: "object",
      properties: { a: { type: "string" }, b: { type: "object", properties: { c: { type: "integer" } } } },
    });
    expect(problems[0]!.reason).toContain("cut off");
  });

  test("names are callable, unique and reversible, whatever the tools are called", () => {
    const name = fc.oneof(
      fc.string({ unit: "grapheme", minLength: 1, maxLength: 80 }),
      fc.constantFrom("Get User", "get_user", "GET USER!", "获取", "👋"),
    );
    fc.assert(
      fc.property(
        fc.array(fc.record({ category_name: name, tool_name: name, api_name: name }), { maxLength: 30 }),
        (list) => {
          const { tools, nameOf, originalOf } = toolbenchTools(list);
          memoryCatalog(tools); // throws where a name is not unique or not callable
          for (const e of list) {
            const called = nameOf(e.tool_name, e.api_name, e.category_name)!;
            expect(originalOf(called)).toEqual({ category: e.category_name, tool: e.tool_name, api: e.api_name });
            expect(nameOf(e.tool_name, e.api_name)).not.toBeNull();
          }
        },
      ),
      { seed: 4 },
    );
    expect(toolbenchTools([]).nameOf("a", "b")).toBeNull();
  });

  test("the same API twice is one tool; no entry is reported and left out", () => {
    const { tools, problems } = toolbenchTools([
      entry({}),
      entry({}),
      { tool_name: 3 },
      null,
      entry({ category_name: "Other" }),
    ]);
    expect(tools.length).toBe(2);
    expect(problems.map((x) => x.tool)).toEqual(["entry 2", "entry 3"]);
  });
});
