/** Short spellings of trajectories, for the tests of the rewards. */
import type { Json, JsonObject } from "../catalog/types.ts";
import type { RecordedTurn } from "../paraact/replay.ts";
import { replayEpisode } from "../paraact/replay.ts";
import type { Trajectory } from "../paraact/types.ts";
import type { CallOutcome, FaultKind, Verdicts } from "../toolenv/types.ts";
import type { RewardReference } from "./reference.ts";

/** `find("a b", "c")`: a search turn with one search for each argument, which retrieves the tools named. */
export function find(...found: string[]): RecordedTurn {
  const slots = found.map((_, i) => `slot ${i}`);
  const plan = `<plan>${JSON.stringify({ capacity_slots: slots })}</plan>`;
  return searchTurn(
    plan,
    found.map((tools, i) => [`slot ${i}: ${tools}`, tools]),
  );
}
/** A search turn with its plan block (or "") and [query, tools or failure] pairs. */
export function searchTurn(plan: string, searches: [query: string, found: string][]): RecordedTurn {
  const blocks = searches.map(([query]) => `<search_tool>${query}</search_tool>`);
  return {
    reply: `<think>t</think>${plan}${blocks.join("")}`,
    searches: searches.map(([, found]) =>
      found === "transient" || found === "final" ? found : found.split(" ").filter((name) => name !== ""),
    ),
  };
}

/** A plan block from layers "a b | c" and dependencies "a,b>c". */
export function planBlock(layers: string, dependencies: string[] = [], available?: string[]): string {
  const flow = layers.split("|").map((layer, i) => ({ step: i + 1, parallel: layer.trim().split(" ") }));
  const edges = dependencies.map((d) => ({ from: (d.split(">")[0] ?? "").split(","), to: d.split(">")[1] ?? "" }));
  const tools = available ?? [...new Set(flow.flatMap((s) => s.parallel))];
  return `<plan>${JSON.stringify({ available_tools: tools, dependencies: edges, execution_flow: flow })}</plan>`;
}

/** A call turn from words "a", "a=1", "a=1:not_found", "a:ok!partial" (an injected fault), after a plan block (or ""). */
export function calls(words: string, plan = ""): RecordedTurn {
  const made = words.split(" ").map((word) => {
    const [left = "", result = "ok"] = word.split(":");
    const [name = "", x] = left.split("=");
    const [outcome = "ok", fault] = result.split("!");
    const value: Json = x === undefined ? null : /^\d+$/.test(x) ? Number(x) : x;
    const args: JsonObject = x === undefined ? {} : { x: value };
    return { name, args, outcome: outcome as CallOutcome, fault: (fault as FaultKind | undefined) ?? null };
  });
  const blocks = made.map(({ name, args }) => `<tool_call>${JSON.stringify({ name, arguments: args })}</tool_call>`);
  return {
    reply: `<think>t</think>${plan}${blocks.join("")}`,
    calls: made.map(({ outcome, fault }) => ({ outcome, fault })),
  };
}
export const says = (reply: string): RecordedTurn => ({ reply });
export const answer = (text = "it is 42"): RecordedTurn => says(`<think>t</think><answer>${text}</answer>`);

export const play = (turns: RecordedTurn[], request = "do it"): Promise<Trajectory> =>
  replayEpisode({ taskId: "t", request, policy: "test", turns });

export function verdicts(digits: string, judge: Verdicts["judge"] = "exact"): Verdicts {
  const bit = (i: number): 0 | 1 => (digits[i] === "1" ? 1 : 0);
  return {
    quality: bit(0),
    faithfulness: bit(1),
    utility: bit(2),
    reasons: { quality: "", faithfulness: "", utility: "" },
    judge,
  };
}

/** A reference from "a b" gold tools and edges "a>b". */
export function truth(gold: string, hard: string[] = [], soft: string[] = [], digits = "111"): RewardReference {
  const edge = (text: string) => ({ from: text.split(">")[0] ?? "", to: text.split(">")[1] ?? "" });
  return {
    goldTools: gold.split(" ").filter((t) => t !== ""),
    hard: hard.map(edge),
    soft: soft.map(edge),
    verdicts: verdicts(digits),
  };
}
