/**
 * What a perfect agent knows and sees: the gold plan of a task (which tools, which calls, which values depend on which), and what the
 * conversation has shown so far. Values that only a response can give are read from the responses, never from the gold.
 * Pure functions of task and messages; the scripted policies and the cold start's roles stand on them.
 */
import type { Json, JsonObject, Tool } from "../catalog/types.ts";
import { callIdentity, canonicalJson, isObject } from "../paraact/json.ts";
import { type ParsedReply, parseReply } from "../paraact/parse.ts";
import type { ExecutionPlan, Message } from "../paraact/types.ts";
import { at as atPointer } from "../toolenv/compare.ts";
import type { Fact, GoldCall, Task, ToolCall } from "../toolenv/types.ts";

/** One turn as its reader knows it. */
export interface Exchange {
  reply: ParsedReply;
  /** One entry a call, in order. */
  responses: { name: string; result: Json }[];
}

/** A response in an observation, its JSON as group 1. */
export const RESPONSE = /<tool_response>(.*?)<\/tool_response>/gs;

/** The turns of a conversation, read back from its text alone. */
export function readExchanges(messages: readonly Message[]): Exchange[] {
  const exchanges: Exchange[] = [];
  for (const message of messages) {
    if (message.role === "assistant") exchanges.push({ reply: parseReply(message.content), responses: [] });
    const last = exchanges.at(-1);
    if (message.role !== "observation" || !last) continue;
    for (const [, text] of message.content.matchAll(RESPONSE)) {
      const value: unknown = JSON.parse(text ?? "");
      const { name, result } = value as { name: string; result: Json };
      last.responses.push({ name, result });
    }
  }
  return exchanges;
}

/** Whether a response is a failure: an object with an `error` message, or one that warns that it holds only part of the answer. */
export function isFailure(result: Json): boolean {
  if (!isObject(result)) return false;
  const part = Object.hasOwn(result, "partial") || Object.hasOwn(result, "payload");
  return typeof result.error === "string" || (typeof result.warning === "string" && part);
}

/** Where a task stands after some turns. */
export interface Standing {
  task: Task;
  exchanges: Exchange[];
  inView: ReadonlyMap<string, Tool>;
  /** Bodies of the gold calls that have succeeded. */
  results: Map<string, Json>;
  /** Gold calls made so far that failed, by id. */
  failures: Map<string, number>;
  /** Calls of each tool that are none of the gold ones (slips). */
  strays: Map<string, number>;
  /** Gold calls that succeeded in the present execution phase. */
  inPhase: GoldCall[];
  /** Gold calls of the last turn that failed. */
  justFailed: GoldCall[];
}

/** An identifier in the type that the argument takes: responses write some as numbers that parameters take as strings, and the reverse. */
function asTyped(value: Json, like: Json | undefined): Json {
  if (typeof like === "string" && typeof value === "number") return String(value);
  if (typeof like === "number" && typeof value === "string" && value.trim() !== "" && Number.isFinite(Number(value)))
    return Number(value);
  return value;
}

/** Arguments of a gold call with what hard edges carry taken from the responses; null while a value is not there. */
export function resolvedCall(task: Task, call: GoldCall, results: ReadonlyMap<string, Json>): ToolCall | null {
  const args: JsonObject = { ...call.arguments };
  for (const edge of task.edges) {
    if (edge.to !== call.id || edge.kind !== "hard") continue;
    const value = atPointer(results.get(edge.from), edge.pointer);
    if (value === undefined) return null;
    args[edge.argument] = asTyped(value, call.arguments[edge.argument]);
  }
  return { name: call.tool, arguments: args };
}

/** Whether a success shows all that the task takes from it; a partial or stale page may not. */
function shows(task: Task, call: GoldCall, body: Json): boolean {
  const pointers = [
    ...task.edges.filter((e) => e.from === call.id && e.kind === "hard").map((e) => e.pointer),
    ...task.facts.filter((f) => f.source === call.id).map((f) => f.pointer),
  ];
  return typeof body === "string" || pointers.every((p) => atPointer(body, p) !== undefined);
}

/** Reads the conversation: which gold calls have been made, and with what success. */
export function standing(task: Task, messages: readonly Message[], toolsInView: readonly Tool[]): Standing {
  const s: Standing = {
    task,
    exchanges: readExchanges(messages),
    inView: new Map(toolsInView.map((t) => [t.name, t])),
    results: new Map(),
    failures: new Map(),
    strays: new Map(),
    inPhase: [],
    justFailed: [],
  };
  for (const { reply, responses } of s.exchanges) {
    if (reply.kind !== "call") s.inPhase = [];
    s.justFailed = [];
    const before = new Map(s.results);
    for (const [i, call] of reply.calls.entries()) {
      const body = responses[i]?.result;
      if (!call || body === undefined) continue;
      const gold = task.calls.find((g) => {
        if (s.results.has(g.id) || s.justFailed.includes(g) || g.tool !== call.name) return false;
        const wanted = resolvedCall(task, g, before);
        return wanted !== null && callIdentity(wanted) === callIdentity(call);
      });
      if (!gold) s.strays.set(call.name, (s.strays.get(call.name) ?? 0) + 1);
      else if (isFailure(body) || !shows(task, gold, body)) {
        s.failures.set(gold.id, (s.failures.get(gold.id) ?? 0) + 1);
        s.justFailed.push(gold);
      } else {
        s.results.set(gold.id, body);
        s.inPhase.push(gold);
      }
    }
  }
  return s;
}

/** A call that failed this often is given up. */
export const MAX_TRIES = 4;

/** Gold calls that wait for another, by hard edges. */
function predecessors(task: Task, call: GoldCall): string[] {
  return task.edges.filter((e) => e.to === call.id && e.kind === "hard").map((e) => e.from);
}

/** Gold calls that can still succeed: not done, not given up, nor behind one that is, their tools in view or still to be found. */
export function openCalls(s: Standing, unfound: ReadonlySet<string> = new Set()): GoldCall[] {
  const lost = new Set<string>();
  const open: GoldCall[] = [];
  for (const call of inOrder(s.task)) {
    if (s.results.has(call.id)) continue;
    const before = predecessors(s.task, call);
    const unreadable = before.every((id) => s.results.has(id)) && resolvedCall(s.task, call, s.results) === null;
    if (
      (s.failures.get(call.id) ?? 0) >= MAX_TRIES ||
      unfound.has(call.tool) ||
      unreadable ||
      before.some((id) => lost.has(id))
    )
      lost.add(call.id);
    else open.push(call);
  }
  return open;
}

/** Open calls whose values are all known. */
export function readyCalls(s: Standing, open: readonly GoldCall[]): ToolCall[] {
  return open.flatMap((call) => {
    if (!predecessors(s.task, call).every((id) => s.results.has(id))) return [];
    return resolvedCall(s.task, call, s.results) ?? [];
  });
}

/** Step of each gold call: the longest chain of hard edges that ends in it. Edges run forward in the order of `inOrder`. */
function depths(task: Task): Map<string, number> {
  const depth = new Map<string, number>();
  const of = (call: GoldCall): number => {
    const known = depth.get(call.id);
    if (known !== undefined) return known;
    const before = task.calls.filter((c) => predecessors(task, call).includes(c.id));
    const d = 1 + Math.max(0, ...before.map(of));
    depth.set(call.id, d);
    return d;
  };
  task.calls.forEach(of);
  return depth;
}

/** Gold calls in an order that respects the hard edges; within a step in the task's own order. */
export function inOrder(task: Task): GoldCall[] {
  const depth = depths(task);
  return [...task.calls].sort((a, b) => depth.get(a.id)! - depth.get(b.id)!);
}

/**
 * The plan of some gold calls and of those `done` in the same phase: minimal layers by the hard edges among them, which it declares.
 */
export function planOf(task: Task, calls: readonly GoldCall[], done: readonly GoldCall[]): ExecutionPlan {
  const all = [...done, ...calls];
  const ids = new Set(all.map((c) => c.id));
  const inner = task.edges.filter((e) => e.kind === "hard" && ids.has(e.from) && ids.has(e.to));
  const step = new Map<string, number>();
  for (const call of inOrder(task).filter((c) => ids.has(c.id))) {
    const before = inner.filter((e) => e.to === call.id).map((e) => step.get(e.from) ?? 0);
    step.set(call.id, 1 + Math.max(0, ...before));
  }
  const layers: GoldCall[][] = [];
  for (const call of inOrder(task).filter((c) => ids.has(c.id))) (layers[step.get(call.id)! - 1] ??= []).push(call);
  // Occurrences of one tool in a layer are told apart as the controller does it: what is done keeps its number, the rest by arguments.
  const key = (c: GoldCall): string => (done.includes(c) ? `0 ${done.indexOf(c)}` : `1 ${canonicalJson(c.arguments)}`);
  const count = new Map<string, number>();
  const reference = new Map<string, string>();
  for (const call of layers.flatMap((layer) => [...layer].sort((a, b) => (key(a) < key(b) ? -1 : 1)))) {
    const n = (count.get(call.tool) ?? 0) + 1;
    count.set(call.tool, n);
    reference.set(call.id, `${call.tool}#${n}`);
  }
  const name = (id: string): string => {
    const ref = reference.get(id)!;
    const tool = ref.slice(0, ref.lastIndexOf("#"));
    return count.get(tool) === 1 ? tool : ref;
  };
  return {
    kind: "execution",
    available_tools: [...new Set(layers.flat().map((call) => call.tool))],
    dependencies: layers.flat().flatMap((call) => {
      const from = [...new Set(inner.filter((e) => e.to === call.id).map((e) => name(e.from)))];
      return from.length > 0 ? [{ from, to: name(call.id) }] : [];
    }),
    execution_flow: layers.map((layer, i) => ({ step: i + 1, parallel: layer.map((c) => c.tool) })),
  };
}

/** What the responses say of each fact; undefined where its call never succeeded or its text was cut. */
export function knownFacts(s: Standing): { fact: Fact; value: Json | undefined }[] {
  return s.task.facts.map((fact) => ({ fact, value: atPointer(s.results.get(fact.source), fact.pointer) }));
}
