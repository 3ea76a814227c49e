/**
 * API-Bank Level 3 (Li et al. 2023): 50 tasks whose tools must be found. Success: every gold call is matched one to one by a call with the same name and
 * equal arguments; extra calls and outputs are ignored (method.md section 7).
 */
import { z } from "zod";
import { bm25 } from "../catalog/bm25.ts";
import { memoryCatalog } from "../catalog/memory.ts";
import type { Json, JsonObject, JsonSchema, Tool } from "../catalog/types.ts";
import { canonicalJson, contentHash } from "../config/hash.ts";
import type { Trajectory } from "../paraact/types.ts";
import type { CallResult, GoldCall, GoldEdge, Session, Task } from "../toolenv/types.ts";
import { calculate } from "./calculate.ts";
import { rougeL } from "./text.ts";
import type { Benchmark, BenchTask, TaskScore } from "./types.ts";

const callSchema = z.object({
  api_name: z.string(),
  input: z.record(z.string(), z.json()),
  output: z.object({ output: z.json().optional(), exception: z.string().nullish() }).loose(),
});
const foundSchema = z.object({
  name: z.string(),
  description: z.string(),
  input_parameters: z.record(z.string(), z.object({ type: z.string(), description: z.string().default("") })),
  output_parameters: z
    .record(z.string(), z.object({ type: z.string(), description: z.string().default("") }))
    .default({}),
});
export const apiBankSchema = z.array(
  z.object({ requirement: z.string(), response: z.string(), apis: z.array(callSchema) }),
);
type ApiBankTask = z.infer<typeof apiBankSchema>[number];

const TYPES: Record<string, JsonSchema["type"]> = {
  str: "string",
  string: "string",
  int: "integer",
  integer: "integer",
  float: "number",
  number: "number",
  bool: "boolean",
  list: "array",
  dict: "object",
};

/** "QueryMeeting" → "query_meeting": API-Bank's names made callable. The reverse is the tool's `operation`. */
export function callableName(name: string): string {
  return name.replace(/([a-z0-9])([A-Z])/g, "$1_$2").toLowerCase();
}

function argumentType(text: string): JsonSchema["type"] {
  return TYPES[text.toLowerCase().replace(/\(.*$/, "").trim()] ?? "string";
}

/** Values are equal by what they say: numbers and their spellings, strings up to case and outer space, lists and objects member by member. */
export function equalValue(a: Json | undefined, b: Json | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  if (Array.isArray(a) && Array.isArray(b)) return a.length === b.length && a.every((x, i) => equalValue(x, b[i]));
  if (
    typeof a === "object" &&
    a !== null &&
    typeof b === "object" &&
    b !== null &&
    !Array.isArray(a) &&
    !Array.isArray(b)
  ) {
    const keys = new Set([...Object.keys(a), ...Object.keys(b)]);
    return [...keys].every((k) => equalValue(a[k], b[k]));
  }
  if (typeof a === "object" || typeof b === "object") return canonicalJson(a) === canonicalJson(b);
  const x = String(a).trim();
  const y = String(b).trim();
  if (x === y) return true;
  const [m, n] = [Number(x), Number(y)];
  return x !== "" && y !== "" && !Number.isNaN(m) && m === n;
}

function equalArguments(a: JsonObject, b: JsonObject): boolean {
  const keys = new Set([...Object.keys(a), ...Object.keys(b)]);
  return [...keys].every((k) => equalValue(a[k], b[k]));
}

interface Recorded {
  name: string;
  input: JsonObject;
  output: Json;
}

function goldCalls(task: ApiBankTask): Recorded[] {
  return task.apis
    .filter((a) => a.api_name !== "ToolSearcher")
    .map((a) => ({ name: callableName(a.api_name), input: a.input, output: a.output.output ?? null }));
}

/** The tools that the gold searches found, required parameters being those that every gold call of the tool gives. */
function collectTools(tasks: ApiBankTask[], source: string): Tool[] {
  const found = new Map<string, z.infer<typeof foundSchema>>();
  const calls = tasks.flatMap(goldCalls);
  for (const api of tasks.flatMap((t) => t.apis)) {
    if (api.api_name !== "ToolSearcher") continue;
    const listed = Array.isArray(api.output.output) ? api.output.output : [api.output.output];
    for (const entry of listed) {
      const parsed = foundSchema.safeParse(entry);
      if (parsed.success) found.set(parsed.data.name, parsed.data);
    }
  }
  return [...found.values()]
    .sort((a, b) => (a.name < b.name ? -1 : 1))
    .map((f, id) => {
      const name = callableName(f.name);
      const own = calls.filter((c) => c.name === name);
      const properties: Record<string, JsonSchema> = {};
      for (const [key, p] of Object.entries(f.input_parameters)) {
        const type = argumentType(p.type);
        properties[key] = { ...(type ? { type } : {}), description: p.description };
      }
      return {
        id,
        name,
        provider: "api-bank",
        api: "api-bank",
        operation: f.name,
        method: "CALL",
        path: "",
        description: f.description,
        category: null,
        parameters: {
          type: "object",
          properties,
          required: Object.keys(properties).filter((k) => own.length > 0 && own.every((c) => k in c.input)),
        },
        places: Object.fromEntries(Object.keys(properties).map((k) => [k, "argument" as const])),
        response: null,
        example: null,
        source,
        licence: "Apache-2.0",
      } satisfies Tool;
    });
}

/** Answers from the recorded calls; computes pure functions; otherwise the tool's not-found error. */
class RecordedSession implements Session {
  constructor(readonly recorded: Recorded[]) {}
  call(tool: Tool, args: JsonObject): CallResult {
    const latencyMs = 200;
    const missing = tool.parameters.required.filter((k) => !(k in args));
    if (missing.length > 0) {
      return {
        outcome: "invalid",
        status: 400,
        body: { error: `missing: ${missing.join(", ")}` },
        latencyMs,
        fault: null,
      };
    }
    const same = this.recorded.find((r) => r.name === tool.name && equalArguments(r.input, args));
    if (same) return { outcome: "ok", status: 200, body: same.output, latencyMs, fault: null };
    if (tool.name === "calculator") {
      const value = calculate(String(args.formula ?? ""));
      if (value === null) {
        return {
          outcome: "invalid",
          status: 400,
          body: { error: "formula: numbers, + - * / and brackets" },
          latencyMs,
          fault: null,
        };
      }
      return { outcome: "ok", status: 200, body: value, latencyMs, fault: null };
    }
    const given = Object.entries(args).map(([k, v]) => `${k} ${JSON.stringify(v)}`);
    return {
      outcome: "not_found",
      status: 404,
      body: { error: `${tool.operation}: nothing found for ${given.join(", ")}` },
      latencyMs,
      fault: null,
    };
  }
  writes() {
    return [];
  }
  close() {}
}

/** Gold calls layered by data flow: a call waits for those whose output holds one of its values that the request lacks. */
function goldTask(task: ApiBankTask, tools: Map<string, Tool>): Task {
  const recorded = goldCalls(task);
  const seen = new Map<string, number>();
  const calls: GoldCall[] = recorded.map((r) => {
    const n = (seen.get(r.name) ?? 0) + 1;
    seen.set(r.name, n);
    return { id: `${r.name}#${n}`, tool: r.name, arguments: r.input, step: 1 };
  });
  const edges: GoldEdge[] = [];
  calls.forEach((to, j) => {
    for (const [argument, value] of Object.entries(to.arguments)) {
      for (const part of leaves(value)) {
        if (part.length < 2 || task.requirement.includes(part)) continue;
        for (let i = 0; i < j; i++) {
          const out = JSON.stringify(recorded[i]!.output);
          if (!out.includes(part)) continue;
          to.step = Math.max(to.step, calls[i]!.step + 1);
          if (!edges.some((e) => e.from === calls[i]!.id && e.to === to.id)) {
            edges.push({ from: calls[i]!.id, to: to.id, kind: "soft", argument, pointer: "" });
          }
        }
      }
    }
  });
  const names = [...new Set(recorded.map((r) => r.name))];
  return {
    id: contentHash(task).slice(0, 16),
    shape: calls.length === 1 ? "single" : edges.length === 0 ? "parallel" : "mixed",
    request: task.requirement.trim(),
    worldSeed: 0,
    tools: names,
    providers: ["api-bank"],
    calls,
    edges,
    facts: [],
    writes: [],
    faults: {},
    queries: Object.fromEntries(names.map((n) => [n, tools.get(n)?.description ?? n])),
    split: "heldout",
  };
}

function leaves(value: Json): string[] {
  if (Array.isArray(value)) return value.flatMap(leaves);
  if (typeof value === "object" && value !== null) return Object.values(value).flatMap(leaves);
  if (typeof value === "string" && /^[\d\s+*/().-]+$/.test(value)) return value.match(/\d+(?:\.\d+)?/g) ?? [];
  return value === null ? [] : [String(value)];
}

/** Scores calls against the gold calls, one to one; counts no call, wrong name and wrong input as the kinds of error. */
export function scoreApiBank(
  gold: Recorded[],
  made: { name: string; arguments: JsonObject }[],
  answer: string,
  reference: string,
): TaskScore {
  const free = made.map((m) => m);
  let matched = 0;
  const errors: Record<string, number> = { noCall: 0, wrongName: 0, wrongInput: 0 };
  const open: Recorded[] = [];
  for (const g of gold) {
    const at = free.findIndex((m) => m.name === g.name && equalArguments(m.arguments, g.input));
    if (at < 0) open.push(g);
    else {
      free.splice(at, 1);
      matched++;
    }
  }
  for (const g of open) {
    const at = free.findIndex((m) => m.name === g.name);
    if (at >= 0) {
      errors.wrongInput!++;
      free.splice(at, 1);
    } else if (free.length > 0) {
      errors.wrongName!++;
      free.shift();
    } else errors.noCall!++;
  }
  return {
    success: matched === gold.length ? 1 : 0,
    scores: { apiAccuracy: gold.length === 0 ? 1 : matched / gold.length, rougeL: rougeL(answer, reference) },
    errors,
  };
}

/** The benchmark over parsed task data. `answers` holds the reference answers that the gold policy replays. */
export function apiBank(
  data: unknown,
  options: { sample: boolean; source: string },
): Benchmark & { answers: Map<string, string> } {
  const tasks = apiBankSchema.parse(data);
  const tools = collectTools(tasks, options.source);
  const byName = new Map(tools.map((t) => [t.name, t]));
  const recorded = tasks.flatMap(goldCalls);
  const answers = new Map<string, string>();
  const benchTasks = tasks.map((task, i): BenchTask => {
    const gold = goldTask(task, byName);
    const id = `${String(i).padStart(2, "0")}-${gold.id}`;
    gold.id = id;
    answers.set(id, task.response);
    const own = goldCalls(task);
    return {
      id,
      group: `${own.length} calls`,
      request: gold.request,
      gold,
      open: () => new RecordedSession([...own, ...recorded]),
      score: (trajectory: Trajectory) => {
        const made = trajectory.turns.flatMap((t) => t.calls.flatMap((c) => (c.call ? [c.call] : [])));
        return scoreApiBank(own, made, trajectory.answer ?? "", task.response);
      },
    };
  });
  return {
    name: "apibank",
    sample: options.sample,
    backend: "recorded calls",
    catalog: memoryCatalog(tools),
    retriever: bm25(tools),
    tasks: benchTasks,
    answers,
    notes: ["success: every gold call matched one to one, same name, equal arguments; extra calls are ignored"],
  };
}
