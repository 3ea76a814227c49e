/**
 * Reads a model's reply (method.md section 2): a tolerant tokenising parser with exact findings. It never throws and never repairs:
 * whatever the renderer could not have written is a finding with a code and an offset, and a reply without findings is one that
 * `renderReply` writes, white space between blocks and inside JSON apart.
 */
import type { Json } from "../catalog/types.ts";
import type { ToolCall } from "../toolenv/types.ts";
import { isObject, JsonError, parseJson } from "./json.ts";
import { planGraph, readPlan } from "./plan.ts";
import { closeTag, OBSERVATION_TAGS, openTag, type Tag, tagPattern } from "./tags.ts";
import type { ActionKind, ExecutionPlan, ExplorationPlan, Finding, Plan } from "./types.ts";

/** A closed block of the reply, in order. */
export interface Block {
  tag: Tag;
  /** What stands between the tags, untouched. */
  text: string;
  /** Offset of the opening tag. */
  at: number;
}

/** What a turn says, as data: what the renderer takes. */
export type Reply =
  | { kind: "search"; think: string; plan: ExplorationPlan | null; searches: string[] }
  | { kind: "call"; think: string; plan: ExecutionPlan | null; calls: ToolCall[] }
  | { kind: "answer"; think: string; answer: string };

export interface ParsedReply {
  blocks: Block[];
  /** What the turn is dispatched as: search before call before answer. */
  kind: ActionKind | "none";
  /** Blocks of more than one kind of action. */
  mixed: boolean;
  /** The text of the first think block. */
  think: string | null;
  /** Plan blocks in the reply, readable or not. */
  planBlocks: number;
  /** The plan, where there is exactly one block, before the actions, of the right kind and shape, and consistent. */
  plan: Plan | null;
  planAt: number;
  searches: string[];
  /** One entry a tool_call block; null where it holds no JSON object with a name and an arguments object. */
  calls: (ToolCall | null)[];
  answers: string[];
  /** Whether anything but white space stands outside the policy's own closed blocks. */
  textOutside: boolean;
  findings: Finding[];
}

const KIND_OF: Partial<Record<Tag, ActionKind>> = { search_tool: "search", tool_call: "call", answer: "answer" };

/** Cuts a reply into closed blocks. A think block reaches to its own closing tag; any other block is broken by the next tag. */
function tokenise(text: string, report: (code: string, at: number, message: string) => void) {
  const blocks: Block[] = [];
  let outside = false;
  const gap = (from: number, to: number): void => {
    const found = text.slice(from, to).search(/\S/);
    if (found < 0) return;
    outside = true;
    report("text-outside-tags", from + found, "only white space may stand outside the tags");
  };
  const tags = [...text.matchAll(tagPattern())].map((m) => ({
    tag: m[2] as Tag,
    closing: m[1] === "/",
    at: m.index,
    end: m.index + m[0].length,
  }));
  const lastThinkEnd = tags.findLastIndex((t) => t.closing && t.tag === "think");
  let end = 0;
  for (let i = 0; i < tags.length; ) {
    const { tag, closing, at, end: start } = tags[i++]!;
    gap(end, at);
    end = start;
    if (closing) {
      outside = true;
      report("stray-closing-tag", at, `${closeTag(tag)} closes nothing`);
      continue;
    }
    let close = i;
    if (tag === "think" && lastThinkEnd >= i) while (!(tags[close]?.closing && tags[close]?.tag === "think")) close++;
    const closer = tags[close];
    if (!closer?.closing || closer.tag !== tag) {
      outside = true;
      report("unclosed-tag", at, `${openTag(tag)} is not closed before the next tag or the end`);
      // What follows up to the next tag belonged to the broken block: it is not reported a second time.
      end = tags[i]?.at ?? text.length;
      continue;
    }
    if (close > i)
      report("tag-inside-think", tags[i]?.at ?? at, "a think block must not contain a tag of the protocol");
    end = closer.end;
    i = close + 1;
    if (OBSERVATION_TAGS.includes(tag)) {
      outside = true;
      report("forged-observation", at, `${openTag(tag)} is written by the environment only`);
    } else blocks.push({ tag, text: text.slice(start, closer.at), at });
  }
  gap(end, text.length);
  return { blocks, outside };
}

/** Parses a block's JSON; a problem becomes a finding and undefined. */
function readJson(block: Block, report: (code: string, at: number, message: string) => void): Json | undefined {
  try {
    return parseJson(block.text);
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
    report(error.code, block.at + openTag(block.tag).length + error.at, `in ${openTag(block.tag)}: ${error.message}`);
    return undefined;
  }
}

/** A call is a JSON object with a name and an arguments object. */
function readCall(block: Block, report: (code: string, at: number, message: string) => void): ToolCall | null {
  const value = readJson(block, report);
  if (value === undefined) return null;
  if (!isObject(value) || typeof value.name !== "string" || value.name.trim() === "" || !isObject(value.arguments)) {
    report("call-shape", block.at, 'a tool_call must be {"name": "…", "arguments": {…}}');
    return null;
  }
  for (const key of Object.keys(value))
    if (key !== "name" && key !== "arguments")
      report("call-unknown-key", block.at, `a tool_call has only name and arguments, not ${JSON.stringify(key)}`);
  return { name: value.name, arguments: value.arguments };
}

/** Parses one reply. Never throws. */
export function parseReply(text: string): ParsedReply {
  const findings: Finding[] = [];
  const report = (code: string, at: number, message: string): void => void findings.push({ code, message, at });
  const { blocks, outside } = tokenise(text, report);
  const of = (tag: Tag): Block[] => blocks.filter((block) => block.tag === tag);

  const actions = blocks.filter((block) => KIND_OF[block.tag] !== undefined);
  const kinds = new Set(actions.map((block) => KIND_OF[block.tag]));
  const kind = (["search", "call", "answer"] as const).find((k) => kinds.has(k)) ?? "none";
  const firstAction = actions[0]?.at ?? text.length;
  if (kind === "none") report("no-action", 0, "the reply holds no search, call or answer");
  for (const block of actions)
    if (KIND_OF[block.tag] !== kind)
      report("mixed-actions", block.at, `a ${kind} turn must hold no ${openTag(block.tag)}`);

  const [think, extraThink] = of("think");
  if (!think) report("no-think", 0, "the reply must begin with a think block");
  else if (think !== blocks[0]) report("think-misplaced", think.at, "the think block must come first");
  if (extraThink) report("extra-think", extraThink.at, "only one think block");

  const searches = of("search_tool");
  for (const block of searches) if (block.text.trim() === "") report("empty-query", block.at, "an empty search");
  const calls = of("tool_call").map((block) => readCall(block, report));
  const answers = of("answer");
  if (answers[1]) report("extra-answer", answers[1].at, "only one answer");

  const [planBlock, extraPlan] = of("plan");
  let plan: Plan | null = null;
  if (planBlock) {
    const value = readJson(planBlock, report);
    if (value !== undefined) {
      const read = readPlan(value, planBlock.at);
      findings.push(...read.findings);
      plan = read.plan;
    }
    const wanted = kind === "search" ? "exploration" : kind === "call" ? "execution" : null;
    const reject = (code: string, at: number, message: string): void => {
      report(code, at, message);
      plan = null;
    };
    if (wanted === null) reject("plan-without-action", planBlock.at, "a plan goes with searches or calls only");
    else if (plan && plan.kind !== wanted)
      reject("plan-wrong-kind", planBlock.at, `a ${kind} turn takes an ${wanted} plan`);
    if (plan?.kind === "execution") {
      const problems = planGraph(plan, planBlock.at).findings;
      findings.push(...problems);
      if (problems.length > 0) plan = null;
    }
    if (extraPlan) reject("extra-plan", extraPlan.at, "only one plan");
    if (planBlock.at > firstAction) reject("plan-after-action", planBlock.at, "a plan comes before the actions");
  }
  findings.sort((a, b) => a.at - b.at);
  return {
    blocks,
    kind,
    mixed: kinds.size > 1,
    think: think?.text ?? null,
    planBlocks: of("plan").length,
    plan,
    planAt: planBlock?.at ?? 0,
    searches: searches.map((block) => block.text),
    calls,
    answers: answers.map((block) => block.text),
    textOutside: outside,
    findings,
  };
}

/** The reply as data, or null where the parser found anything: the inverse of `renderReply`. */
export function acceptedReply(parsed: ParsedReply): Reply | null {
  const { kind, plan, calls, searches, answers, think } = parsed;
  if (parsed.findings.length > 0 || think === null) return null;
  switch (kind) {
    case "search":
      return plan?.kind === "execution" ? null : { kind, think, plan, searches };
    case "call": {
      const read = calls.filter((call) => call !== null);
      return plan?.kind === "exploration" || read.length < calls.length ? null : { kind, think, plan, calls: read };
    }
    case "answer":
      return answers[0] === undefined ? null : { kind, think, answer: answers[0] };
    case "none":
      return null;
  }
}

/**
 * s_structure of one turn (method.md section 4): 1 if it has a think block before its actions, exactly one kind of action, only white
 * space outside the tags, and every tool_call a JSON object with a name and an arguments object; for an answer turn 1 with exactly
 * one think block and one answer, 0.5 if only the think block is missing or misplaced; else 0.
 */
export function structureScore(parsed: ParsedReply): { score: 0 | 0.5 | 1; reason: string } {
  const thinks = parsed.blocks.filter((block) => block.tag === "think");
  const firstAction = parsed.blocks.find((block) => KIND_OF[block.tag] !== undefined);
  const no = (reason: string) => ({ score: 0 as const, reason });
  if (!firstAction) return no("no action");
  if (parsed.mixed) return no("more than one kind of action");
  if (parsed.textOutside) return no("text, broken or forged tags outside the blocks");
  const thinkFirst = thinks[0] !== undefined && thinks[0].at < firstAction.at;
  if (parsed.kind === "answer") {
    if (parsed.answers.length !== 1) return no("more than one answer");
    if (thinks.length > 1) return no("more than one think block");
    if (!thinkFirst) return { score: 0.5, reason: "an answer whose think block is missing or misplaced" };
    return { score: 1, reason: "one think block, one answer" };
  }
  if (!thinkFirst) return no("no think block before the actions");
  if (parsed.calls.includes(null)) return no("a tool_call without a name and an arguments object in JSON");
  return { score: 1, reason: `a think block, then only ${parsed.kind === "search" ? "searches" : "calls"}` };
}
