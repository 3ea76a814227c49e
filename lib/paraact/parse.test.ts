/** Section 2, "A ParaAct turn": what a reply may be, and what the parser finds where it is not. */
import { describe, expect, test } from "bun:test";
import { acceptedReply, parseReply, structureScore } from "./parse.ts";

const T = "<think>t</think>";
const SEARCH = '<plan>{"capacity_slots":["a"]}</plan><search_tool>a: do it</search_tool>';
const CALL = '<tool_call>{"name":"a","arguments":{}}</tool_call>';
const EXEC =
  '<plan>{"available_tools":["a"],"dependencies":[],"execution_flow":[{"step":1,"parallel":["a"]}]}</plan>' + CALL;
const ANSWER = "<answer>x</answer>";

const accepted: [why: string, reply: string][] = [
  ["think, exploration plan, one search", T + SEARCH],
  ["several searches", `${T + SEARCH}<search_tool>b: do that</search_tool>`],
  ["searches without a plan", `${T}<search_tool>q</search_tool>`],
  ["think, execution plan, one call", T + EXEC],
  ["several calls", T + EXEC + CALL],
  ["calls without a plan", T + CALL],
  ["an answer", T + ANSWER],
  ["white space between the blocks", `\n ${T} \t\n${SEARCH}\r\n`],
  ["an empty think block and an empty answer", "<think></think><answer></answer>"],
  ["a tag of some other language in an answer", `${T}<answer>a <b>bold</b> < c</answer>`],
  [
    "nested JSON, closing brackets and escaped tags in arguments",
    `${T}<tool_call>{"name":"a","arguments":{"x":{"y":["}]","\\u003c/tool_call>"]}}}</tool_call>`,
  ],
  [
    "two parallel calls with nested objects",
    `${T}<tool_call>{"name":"a","arguments":{"x":{}}}</tool_call>\n<tool_call>{"name":"a","arguments":{"x":[{}]}}</tool_call>`,
  ],
  [
    "subgoals with ids as text or number",
    `${T}<plan>{"subgoals":[{"id":"g","subgoal":"s"},{"id":2,"subgoal":"s"}],"capacity_slots":["a"]}</plan><search_tool>q</search_tool>`,
  ],
];
/** `§` marks the place that the finding must name; it is taken out before parsing. */
const refused: [why: string, reply: string, code: string][] = [
  ["nothing", "§", "no-action"],
  ["no action", `§${T}`, "no-action"],
  ["no think block", `§${ANSWER}`, "no-think"],
  ["think after the action", `${ANSWER}§${T}`, "think-misplaced"],
  ["think after the plan", `<plan>{"capacity_slots":["a"]}</plan>§${T}<search_tool>q</search_tool>`, "think-misplaced"],
  ["two think blocks", `${T}§${T}${ANSWER}`, "extra-think"],
  ["two answers", `${T + ANSWER}§${ANSWER}`, "extra-answer"],
  ["searches and calls", `${T + SEARCH}§${CALL}`, "mixed-actions"],
  ["calls and an answer", `${T + CALL}§${ANSWER}`, "mixed-actions"],
  ["text before the blocks", `§Sure! ${T}${ANSWER}`, "text-outside-tags"],
  ["text between the blocks", `${T} §so ${ANSWER}`, "text-outside-tags"],
  ["text after the blocks", `${T + ANSWER}§.`, "text-outside-tags"],
  ["a tag in capitals is text", `§<Think>t</Think>${ANSWER}`, "text-outside-tags"],
  ["an unclosed think block", `§<think>t${ANSWER}`, "unclosed-tag"],
  ["an unclosed answer", `${T}§<answer>x`, "unclosed-tag"],
  ["a call broken off by the next", `${T}§<tool_call>{"name":"a"${CALL}`, "unclosed-tag"],
  ["a closing tag alone", `${T}§</plan>${ANSWER}`, "stray-closing-tag"],
  ["a tag inside think", `<think>I §<answer> now</think>${ANSWER}`, "tag-inside-think"],
  ["a forged observation", `${T}§<tool_response>{}</tool_response>${ANSWER}`, "forged-observation"],
  ["forged tools", `${T}§<tools></tools>${ANSWER}`, "forged-observation"],
  ["an empty query", `${T}§<search_tool> </search_tool>`, "empty-query"],
  ["a call that is not JSON", `${T}<tool_call>{"name":"a" §"arguments":{}}</tool_call>`, "json-syntax"],
  ["a call with a trailing comma", `${T}<tool_call>{"name":"a","arguments":{},§}</tool_call>`, "json-syntax"],
  ["single quotes", `${T}<tool_call>{§'name':'a','arguments':{}}</tool_call>`, "json-syntax"],
  ["an unknown escape", `${T}<tool_call>{"name":§"\\x","arguments":{}}</tool_call>`, "json-syntax"],
  ["text after the JSON", `${T}<tool_call>{"name":"a","arguments":{}} §ok</tool_call>`, "json-syntax"],
  ["an empty call", `${T}<tool_call>§</tool_call>`, "json-syntax"],
  ["a key given twice", `${T}<tool_call>{"name":"a",§"name":"b","arguments":{}}</tool_call>`, "json-duplicate-key"],
  [
    "an integer that a double rounds",
    `${T}<tool_call>{"name":"a","arguments":{"x":§12345678901234567890}}</tool_call>`,
    "json-number",
  ],
  ["a number out of range", `${T}<tool_call>{"name":"a","arguments":{"x":§1e999}}</tool_call>`, "json-number"],
  ["JSON that is too deep", `${T}<tool_call>${"[".repeat(64)}§[</tool_call>`, "json-depth"],
  ["a call without a name", `${T}§<tool_call>{"arguments":{}}</tool_call>`, "call-shape"],
  ["a call with arguments as text", `${T}§<tool_call>{"name":"a","arguments":"{}"}</tool_call>`, "call-shape"],
  ["a call that is a list", `${T}§<tool_call>[]</tool_call>`, "call-shape"],
  ["a call with another key", `${T}§<tool_call>{"name":"a","arguments":{},"id":1}</tool_call>`, "call-unknown-key"],
  ["two plans", `${T}<plan>{"capacity_slots":["a"]}</plan>§${SEARCH}`, "extra-plan"],
  [
    "a plan after the searches",
    `${T}<search_tool>q</search_tool>§<plan>{"capacity_slots":["a"]}</plan>`,
    "plan-after-action",
  ],
  ["a plan with an answer", `${T}§<plan>{"capacity_slots":["a"]}</plan>${ANSWER}`, "plan-without-action"],
  ["an exploration plan with calls", `${T}§<plan>{"capacity_slots":["a"]}</plan>${CALL}`, "plan-wrong-kind"],
  ["an execution plan with searches", `${T}§${EXEC.replace(CALL, "")}<search_tool>q</search_tool>`, "plan-wrong-kind"],
  ["a plan that is no JSON", `${T}<plan>§first a, then b</plan>${CALL}`, "json-syntax"],
  ["a plan that is not consistent", `${T}§${EXEC.replace('["a"],"dep', '["b"],"dep')}`, "plan-tool-unlisted"],
];

describe("section 2: a reply is think, then exactly one kind of action", () => {
  for (const [why, reply] of accepted)
    test(`accepted: ${why}`, () => {
      expect(parseReply(reply).findings).toEqual([]);
      expect(acceptedReply(parseReply(reply))).not.toBeNull();
    });
  for (const [why, marked, code] of refused)
    test(`found: ${why} → ${code}`, () => {
      const parsed = parseReply(marked.replace("§", ""));
      expect(parsed.findings.map((f) => [f.code, f.at])).toContainEqual([code, marked.indexOf("§")]);
      expect(acceptedReply(parsed)).toBeNull();
    });
});

describe("section 2: a turn that mixes kinds of action is dispatched as search before call before answer", () => {
  test("search before call", () =>
    expect(parseReply(T + CALL + SEARCH)).toMatchObject({ kind: "search", mixed: true }));
  test("call before answer", () => expect(parseReply(T + ANSWER + CALL)).toMatchObject({ kind: "call", mixed: true }));
  test("one kind alone", () => expect(parseReply(T + ANSWER)).toMatchObject({ kind: "answer", mixed: false }));
});

describe("nothing is repaired silently", () => {
  test("an unclosed call is not dispatched", () => {
    const parsed = parseReply(`${T}<tool_call>{"name":"a","arguments":{}}`);
    expect(parsed.calls).toEqual([]);
    expect(parsed.kind).toBe("none");
  });
  test("an unreadable call keeps its place as null", () => {
    const parsed = parseReply(`${T}<tool_call>oops</tool_call>${CALL}`);
    expect(parsed.calls).toEqual([null, { name: "a", arguments: {} }]);
  });
  test("what stands inside a think block is never an action", () => {
    expect(parseReply(`<think>${CALL}</think>${ANSWER}`)).toMatchObject({ kind: "answer", calls: [] });
  });
  test("a key named __proto__ is data", () => {
    const [call] = parseReply(`${T}<tool_call>{"name":"a","arguments":{"__proto__":{"x":1}}}</tool_call>`).calls;
    expect(Object.keys(call?.arguments ?? {})).toEqual(["__proto__"]);
  });
});

describe("section 4: s_structure of a turn", () => {
  const cases: [score: number, why: string, reply: string][] = [
    [1, "think, then searches", T + SEARCH],
    [1, "think, then calls", T + CALL],
    [1, "think, then one answer", T + ANSWER],
    [1, "an invalid plan is the plan slot's matter", `${T}<plan>no</plan><search_tool>q</search_tool>`],
    [1, "a second think block before the searches", T + T + SEARCH],
    [0, "searches without a think block", SEARCH],
    [0, "think only after the calls", CALL + T],
    [0, "two kinds of action", T + CALL + ANSWER],
    [0, "no action", T],
    [0, "text outside the tags", `ok ${T}${SEARCH}`],
    [0, "text after an answer", `${T}${ANSWER} bye`],
    [0, "an unclosed tag", `${T}<answer>x`],
    [0, "a call without an arguments object", `${T}<tool_call>{"name":"a"}</tool_call>`],
    [0, "one broken call among good ones", `${T}${CALL}<tool_call>{</tool_call>`],
    [0.5, "an answer without a think block", ANSWER],
    [0.5, "an answer before its think block", ANSWER + T],
    [0, "an answer with two think blocks", T + T + ANSWER],
    [0, "two answers", T + ANSWER + ANSWER],
    [0, "an answer without think and with text outside", `so ${ANSWER}`],
  ];
  for (const [score, why, reply] of cases)
    test(`${score}: ${why}`, () => expect(structureScore(parseReply(reply)).score).toBe(score as 0 | 0.5 | 1));
});
