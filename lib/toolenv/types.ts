/** The environment's data: calls, results, tasks, verdicts. See shared design: toolenv.md. */
import type { Json, JsonObject, Tool } from "../catalog/types.ts";

export interface ToolCall {
  name: string;
  arguments: JsonObject;
}

/**
 * What became of a call, as the rewards see it.
 * - ok: success.
 * - not_found: a definitive "no such resource" (404). Final.
 * - unavailable: a definitive "tool unavailable". Final.
 * - transient: a fault that a retry may cure (rate limit, timeout, 5xx, partial result, stale page).
 * - invalid: not executed: unknown tool, or arguments that the schema refuses (400). Final for the same call.
 */
export type CallOutcome = "ok" | "not_found" | "unavailable" | "transient" | "invalid";

export type FaultKind = "rate_limit" | "timeout" | "server_error" | "partial" | "stale_page" | "changed_schema";

export interface CallResult {
  outcome: CallOutcome;
  /** HTTP-like status, e.g. 200, 400, 404, 429, 503. */
  status: number;
  /** What the agent reads. On failure an object with an `error` message that says which field and what it expects. */
  body: Json;
  /** Virtual time that the call took. Nothing sleeps. */
  latencyMs: number;
  /** Set where the fault injector made this result what it is. */
  fault: FaultKind | null;
}

/** The state of one episode in a backend: its own overlay of writes. */
export interface Session {
  /** Answers one call of a tool. Never throws for a bad call: that is a result. */
  call(tool: Tool, args: JsonObject): CallResult | Promise<CallResult>;
  /** Changes made by this session, in canonical order, for verdicts on the final state. */
  writes(): Write[];
  close(): void;
}

export interface Write {
  kind: "create" | "update" | "delete" | "action";
  /** Resource type, e.g. "googleapis.com/calendar:event". */
  resource: string;
  /** Identifier of the entity. */
  id: string;
  /** Values set by the call, without generated ones. */
  values: JsonObject;
}

/** Something that answers calls: the world, a recorded cache, a simulator model, an MCP server. */
export interface Backend {
  readonly name: string;
  /** A fresh session. `seed` distinguishes fault and latency draws of episodes; entities depend on the world's seed only. */
  open(seed: number): Session;
}

export type Shape = "single" | "parallel" | "chain" | "diamond" | "fan_in" | "fan_out" | "mixed";

/** A node of a task graph: one gold call. Arguments are concrete values of the task's world. */
export interface GoldCall {
  /** Occurrence id, e.g. "get_user#1". */
  id: string;
  tool: string;
  arguments: JsonObject;
  /** 1-based step of the minimal layering. */
  step: number;
}

/** An edge between gold calls. hard: `to` needs a value that only `from`'s response gives; soft: it may. */
export interface GoldEdge {
  from: string;
  to: string;
  kind: "hard" | "soft";
  /** Which argument of `to` takes the value, and where in `from`'s response it stands (JSON pointer). */
  argument: string;
  pointer: string;
}

/** One fact that the answer must hold. */
export interface Fact {
  /** Occurrence id of the gold call whose response gives it. */
  source: string;
  /** JSON pointer into that response's body. */
  pointer: string;
  /** What it is, in words, e.g. "the status of the invoice". */
  label: string;
  value: Json;
  /** Accepted spellings besides comparison by value (numbers, dates, money, names). */
  accepted: string[];
}

export interface Task {
  /** Hash of the content. */
  id: string;
  shape: Shape;
  /** What the user asks, plain English. */
  request: string;
  /** Seed of the world that the task lives in. */
  worldSeed: number;
  /** Distinct gold tool names. */
  tools: string[];
  providers: string[];
  calls: GoldCall[];
  edges: GoldEdge[];
  facts: Fact[];
  /** Expected writes; empty for read-only tasks. */
  writes: Write[];
  /** Faults that the task plants on the path: occurrence id → kind, hit on the first attempt only. */
  faults: Record<string, FaultKind>;
  /** Search query per gold tool that finds it within the top 10 ("what the tool must do"). */
  queries: Record<string, string>;
  /** Look-alikes of each gold tool, nearest first: its query finds them too, and they cannot do what it does. Benchmarks name none. */
  distractors?: Record<string, string[]>;
  split: "train" | "heldout";
}

/** Three binary verdicts (method.md section 4). */
export interface Verdicts {
  quality: 0 | 1;
  faithfulness: 0 | 1;
  utility: 0 | 1;
  /** Why each is what it is, in words, for the browser. */
  reasons: { quality: string; faithfulness: string; utility: string };
  /** Who judged: the exact checker, or a model. A judge that failed is neutral and marked. */
  judge: "exact" | "model" | "failed";
}
