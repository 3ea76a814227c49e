/**
 * ToolBench in StableToolBench's form (Guo et al. 2024): 765 solvable queries in six groups, over the benchmark's own catalogue of 2,490 APIs.
 * Scores without a judge: gold-tool hit ratio, call precision, call validity, redundant calls. The pass rate needs a judge; without one
 * `success` is null and nothing is printed in its place (method.md section 7).
 */
import { z } from "zod";
import type { ChatEndpoint } from "../agents/openai/client.ts";
import { bm25 } from "../catalog/bm25.ts";
import { memoryCatalog } from "../catalog/memory.ts";
import { type ToolbenchTools, toolbenchTools } from "../catalog/toolbench.ts";
import type { Catalog, Json, Tool } from "../catalog/types.ts";
import { canonicalJson, contentHash } from "../config/hash.ts";
import type { Trajectory } from "../paraact/types.ts";
import type { Backend, GoldCall, Task } from "../toolenv/types.ts";
import { BENCHMARK_FILES, readBenchmarkFile } from "./files.ts";
import { COMPLETENESS_PROMPT_HASH, completenessPoints, judgeCompleteness } from "./judge.ts";
import type { Benchmark, BenchTask, TaskScore } from "./types.ts";

const parameterSchema = z.looseObject({ name: z.string() });
export const toolbenchSchema = z.array(
  z.object({
    query: z.string(),
    query_id: z.union([z.number(), z.string()]),
    api_list: z.array(
      z.looseObject({
        tool_name: z.string(),
        api_name: z.string(),
        required_parameters: z.array(parameterSchema).default([]),
        optional_parameters: z.array(parameterSchema).default([]),
      }),
    ),
    "relevant APIs": z.array(z.tuple([z.string(), z.string()])),
  }),
);
type Query = z.infer<typeof toolbenchSchema>[number];

/** Reads the six groups. */
export function readToolbench(folder: string): { group: string; queries: Query[] }[] {
  return BENCHMARK_FILES.filter((f) => f.benchmark === "toolbench").map((file) => ({
    group: file.path.replace(/^.*\/|\.json$/g, ""),
    queries: toolbenchSchema.parse(readBenchmarkFile(file, folder)),
  }));
}

/** Scores of an episode against the gold tools, none of which needs a judge; `success` is left open. */
export function scoreToolbench(gold: readonly string[], trajectory: Trajectory): TaskScore {
  const calls = trajectory.turns.flatMap((t) => t.calls);
  const named = calls.flatMap((c) =>
    c.call ? [{ name: c.call.name, key: canonicalJson(c.call), valid: c.outcome !== "invalid" }] : [],
  );
  const called = new Set(named.map((c) => c.name));
  const hit = gold.filter((g) => called.has(g)).length;
  const distinct = new Set(named.map((c) => c.key)).size;
  return {
    success: null,
    scores: {
      hitRatio: gold.length === 0 ? 1 : hit / gold.length,
      precision: called.size === 0 ? 0 : hit / called.size,
      validity: calls.length === 0 ? 0 : named.filter((c) => c.valid).length / calls.length,
      redundant: named.length - distinct,
      answered: trajectory.end === "answered" ? 1 : 0,
    },
  };
}

/** A value for a parameter without one in the request: its default, else by type. */
function fallback(tool: Tool, name: string): Json {
  const schema = tool.parameters.properties[name];
  if (schema?.default !== undefined && schema.default !== "") return schema.default;
  if (schema?.enum?.[0] !== undefined) return schema.enum[0];
  switch (schema?.type) {
    case "integer":
    case "number":
      return 1;
    case "boolean":
      return true;
    case "array":
      return [];
    case "object":
      return {};
    default:
      return schema?.format === "date" ? "2024-01-01" : "example";
  }
}

/** What is known of the solution: the gold tools, each called once with its defaults. ToolBench has no gold arguments. */
function goldTask(query: Query, names: string[], catalog: Catalog, id: string): Task {
  const calls = names.flatMap((name): GoldCall[] => {
    const tool = catalog.get(name);
    if (!tool) return [];
    return [
      {
        id: `${name}#1`,
        tool: name,
        arguments: Object.fromEntries(tool.parameters.required.map((p) => [p, fallback(tool, p)])),
        step: 1,
      },
    ];
  });
  return {
    id,
    shape: calls.length > 1 ? "parallel" : "single",
    request: query.query,
    worldSeed: 0,
    tools: names,
    providers: [...new Set(names.map((n) => catalog.get(n)?.provider ?? ""))],
    calls,
    edges: [],
    facts: [],
    writes: [],
    faults: {},
    queries: Object.fromEntries(
      names.map((n) => [n, `${catalog.get(n)?.provider ?? ""} ${catalog.get(n)?.description ?? n}`]),
    ),
    split: "heldout",
  };
}

/** The same scores with the judge's verdict: `success` is the pass score (1, 0.5 or 0), `strict` counts a clear pass only. */
async function judged(score: TaskScore, trajectory: Trajectory, judge: ChatEndpoint): Promise<TaskScore> {
  const verdict = await judgeCompleteness(trajectory.request, trajectory.answer, judge);
  const points = completenessPoints(verdict.verdict);
  if (points === null) return { ...score, verdict, errors: { judgeFailed: 1 } };
  return { ...score, success: points, scores: { ...score.scores, strict: points === 1 ? 1 : 0 }, verdict };
}

export type BackendOf = (catalog: Catalog, originalOf: ToolbenchTools["originalOf"]) => Backend;

/**
 * The benchmark over parsed groups, its calls answered by `backendOf`'s backend. With a judge there is a pass rate; without one `success`
 * is null and the notes say so.
 */
export function toolBench(
  groups: { group: string; queries: Query[] }[],
  backendOf: BackendOf,
  options: { sample: boolean; judge?: ChatEndpoint },
): Benchmark {
  const lists = groups.flatMap((g) => g.queries.flatMap((q) => q.api_list));
  const { tools, nameOf, originalOf } = toolbenchTools(lists);
  const catalog = memoryCatalog(tools);
  const backend = backendOf(catalog, originalOf);
  const { judge } = options;
  const tasks = groups.flatMap(({ group, queries }) =>
    queries.map((query): BenchTask => {
      const id = `${group}-${query.query_id}-${contentHash(query.query).slice(0, 6)}`;
      const names = [...new Set(query["relevant APIs"].flatMap(([tool, api]) => nameOf(tool, api) ?? []))];
      return {
        id,
        group,
        request: query.query,
        open: (seed) => backend.open(seed),
        score: (trajectory) => {
          const score = scoreToolbench(names, trajectory);
          return judge ? judged(score, trajectory, judge) : score;
        },
        gold: goldTask(query, names, catalog, id),
      };
    }),
  );
  return {
    name: "toolbench",
    sample: options.sample,
    backend: backend.name,
    catalog,
    retriever: bm25(tools),
    tasks,
    notes: [
      judge
        ? `success: pass rate (pass 1, unsure 0.5, fail 0) by ${judge.model}, prompt ${COMPLETENESS_PROMPT_HASH}; strict: clear passes only; every verdict is in outcomes.jsonl`
        : "no judge was asked: there is no pass rate; hitRatio, precision and validity are counted from the calls",
      `calls answered by: ${backend.name}`,
    ],
  };
}
