/** What a trajectory is scored against: the task's gold tools, the true edges between tools, and the verdicts. */
import type { Json } from "../catalog/types.ts";
import { normalName } from "../paraact/json.ts";
import type { Task, ToolCall, Verdicts } from "../toolenv/types.ts";

/** A true dependency between two tools of the task. */
export interface ToolEdge {
  from: string;
  to: string;
  /** Which arguments of `to` take the value, where that is known. */
  arguments?: string[];
}

export interface RewardReference {
  goldTools: string[];
  /** `to` needs a value that only `from`'s response can give in this task. */
  hard: ToolEdge[];
  /** It may. */
  soft: ToolEdge[];
  /** Null only where there is no answer to judge. */
  verdicts: Verdicts | null;
  /** Values that the request states, besides what stands in its text. */
  requestValues?: Json[];
}

/** ToolEnv's task as a reference: edges between calls become edges between their tools; a pair that is hard anywhere is hard. */
export function taskReference(task: Task, verdicts: Verdicts | null): RewardReference {
  const toolOf = new Map(task.calls.map((call) => [call.id, call.tool]));
  const edges = (kind: "hard" | "soft"): ToolEdge[] => {
    const merged = new Map<string, ToolEdge & { arguments: string[] }>();
    for (const edge of task.edges) {
      const from = toolOf.get(edge.from);
      const to = toolOf.get(edge.to);
      if (edge.kind !== kind || from === undefined || to === undefined) continue;
      const known = merged.get(`${from} ${to}`) ?? { from, to, arguments: [] };
      if (!known.arguments.includes(edge.argument)) known.arguments.push(edge.argument);
      merged.set(`${from} ${to}`, known);
    }
    return [...merged.values()];
  };
  const hard = edges("hard");
  const soft = edges("soft").filter((s) => !hard.some((h) => h.from === s.from && h.to === s.to));
  return { goldTools: task.tools, hard, soft, verdicts };
}

const pairKey = (from: string, to: string): string => `${normalName(from)} ${normalName(to)}`;

/** Pairs of tools as a set of keys, to ask `hasPair`. */
export class ToolPairs {
  readonly #keys: Set<string>;
  constructor(edges: ToolEdge[]) {
    this.#keys = new Set(edges.map(({ from, to }) => pairKey(from, to)));
  }
  has(from: string, to: string): boolean {
    return this.#keys.has(pairKey(from, to));
  }
}

/** Every string, number and boolean inside a value. */
export function scalars(value: Json): Json[] {
  if (Array.isArray(value)) return value.flatMap(scalars);
  if (typeof value === "object" && value !== null) return Object.values(value).flatMap(scalars);
  return value === null ? [] : [value];
}

const isWordCharacter = (c: string | undefined): boolean => c !== undefined && /[\p{L}\p{N}]/u.test(c);

/** Whether a text states a value: it occurs in it as a whole word, in any case. */
export function states(text: string, value: Json): boolean {
  const needle = String(value).trim().toLowerCase();
  const hay = text.toLowerCase();
  if (needle === "") return false;
  for (let at = hay.indexOf(needle); at >= 0; at = hay.indexOf(needle, at + 1))
    if (!isWordCharacter(hay[at - 1]) && !isWordCharacter(hay[at + needle.length])) return true;
  return false;
}

/** Whether the value that an edge carries into this call was already in the request: then the call did not have to wait for it. */
export function valueInRequest(call: ToolCall, edge: ToolEdge, request: string, given: Json[]): boolean {
  const carried = edge.arguments ? edge.arguments.map((key) => call.arguments[key] ?? null) : [call.arguments];
  const values = carried.flatMap(scalars);
  return values.length > 0 && values.every((value) => given.includes(value) || states(request, value));
}
