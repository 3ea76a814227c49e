/** Figures of the environment, for `bun run bench toolenv`: calls, tasks and searches, and the size of a rendered tool. */
import type { Catalog, JsonObject, Retriever, Tool } from "../catalog/types.ts";
import { Rng } from "./hash.ts";
import { Persona } from "./persona.ts";
import { coerce, freeValue } from "./render.ts";
import { clean } from "./schema.ts";
import { generateTasks } from "./tasks.ts";
import { World } from "./world.ts";

export interface ToolenvFigures {
  tools: number;
  /** Distinct tools and APIs that the measured calls are of, drawn evenly from the catalogue's APIs. */
  calledTools: number;
  calledApis: number;
  /** Warm calls in one process with catalogue look-ups, each in a fresh session and made before, as in a group of rollouts: wall clock, and per second of processor time. */
  callsPerSecond: number;
  callsPerCpuSecond: number;
  /** The same per second of processor time where no answer is kept: each is worked out anew. */
  workedOutPerCpuSecond: number;
  /** With answers kept, per second of processor time, by what the operation does. */
  byKind: Record<string, { tools: number; callsPerCpuSecond: number }>;
  /** The first call of a tool: its API read and analysed, its plan compiled. Milliseconds of the wall clock. */
  firstCallMs: { median: number; p99: number };
  /** Tasks a second of processor time: the first ones, whose APIs are read and analysed on the way, and the ones after. */
  tasksPerCpuSecond: { cold: number; warm: number };
  searchMs: { median: number; p99: number };
  /** Tokens of a tool as agents see it. */
  schemaTokens: { median: number; p95: number };
}

/** How much of the catalogue the calls are drawn from: fewer APIs than a world keeps analysed, and some tools of each. */
const APIS = 120;
const TOOLS_PER_API = 20;

const at = (sorted: readonly number[], q: number) =>
  sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] ?? 0;

/** Random valid arguments of a tool that name existing entities. */
function someArguments(world: World, tool: Tool, rng: Rng): JsonObject {
  const op = world.op(tool);
  const population = world.population(tool.api);
  const refs = new Map([...op.scope, ...(op.target ? [op.target] : []), ...op.refs].map((r) => [r.param, r]));
  const args: JsonObject = {};
  for (const name of tool.parameters.required) {
    const schema = clean(tool.parameters.properties[name] ?? {});
    const ref = refs.get(name);
    const id = ref
      ? coerce(population.keyOf(ref.type, rng.pick(population.members(ref.type)), ref.key), schema)
      : undefined;
    args[name] = id ?? freeValue(name, schema, op.type ?? "item", new Persona(rng.bits()), population);
  }
  return args;
}

/**
 * Measures with clocks in milliseconds that are passed in: the wall's, and the processor time of the process with all its threads. `render`: a tool as agents see it; `count`: tokens of a text.
 * The figures are of this machine and its load: the processor-time figure is the steadier one.
 */
export function benchToolenv(parts: {
  catalog: Catalog;
  retriever: Retriever;
  render: (tool: Tool) => string;
  count: (text: string) => number;
  now: () => number;
  cpu: () => number;
}): ToolenvFigures {
  const { catalog, retriever, now, cpu } = parts;
  const rng = new Rng(1);
  const world = new World(catalog, 1);
  const apis = new Set<string>();
  for (let i = 0; i < 4000 && apis.size < APIS; i++) apis.add(catalog.byId(rng.int(0, catalog.size - 1)).api);
  const tools = rng.shuffle([...apis].flatMap((api) => rng.shuffle(catalog.byApi(api)).slice(0, TOOLS_PER_API)));
  const first: number[] = [];
  const good: { name: string; args: JsonObject; kind: string }[] = [];
  for (const tool of tools) {
    const start = now();
    const args = someArguments(world, tool, rng);
    const result = world.open(0).call(tool, args);
    first.push(now() - start);
    if (result.outcome === "ok") good.push({ name: tool.name, args, kind: world.op(tool).kind });
  }
  /** Calls all of them over and over, after two rounds unmeasured, for that much processor time. */
  const measure = (calls: typeof good, ms: number, of = world): { perSecond: number; perCpuSecond: number } => {
    const pass = () => {
      for (const g of calls) of.open(2).call(catalog.get(g.name) as Tool, g.args);
    };
    pass();
    pass();
    const [wall, used] = [now(), cpu()];
    let n = 0;
    while (cpu() - used < ms) {
      pass();
      n += calls.length;
    }
    return {
      perSecond: Math.round((n / (now() - wall)) * 1000),
      perCpuSecond: Math.round((n / (cpu() - used)) * 1000),
    };
  };
  const all = measure(good, 3000);
  const forgetful = measure(good, 2000, new World(catalog, 1, { remember: 0 }));
  const byKind: ToolenvFigures["byKind"] = {};
  for (const kind of [...new Set(good.map((g) => g.kind))].sort()) {
    const own = good.filter((g) => g.kind === kind);
    byKind[kind] = { tools: own.length, callsPerCpuSecond: measure(own, 300).perCpuSecond };
  }

  // The set is large, as in training; only its start is made: what comes first pays for reading the APIs.
  const source = generateTasks(catalog, world, { split: "train", seed: 3, count: 2500, retriever });
  const pace = (most: number, ms: number): number => {
    const used = cpu();
    let n = 0;
    while (n < most && cpu() - used < ms && !source.next().done) n++;
    return Math.round((n / (cpu() - used)) * 10_000) / 10;
  };
  const cold = pace(200, 15_000);
  const warm = pace(500, 15_000);

  const searches: number[] = [];
  for (let i = 0; i < 1000; i++) {
    const query = catalog
      .byId(rng.int(0, catalog.size - 1))
      .description.split(" ")
      .slice(0, 12)
      .join(" ");
    const start = now();
    retriever.search(query, 3);
    searches.push(now() - start);
  }
  const tokens = Array.from({ length: 1000 }, () =>
    parts.count(parts.render(catalog.byId(rng.int(0, catalog.size - 1)))),
  );
  for (const list of [first, searches, tokens]) list.sort((a, b) => a - b);
  const round = (x: number) => Math.round(x * 1000) / 1000;
  return {
    tools: catalog.size,
    calledTools: good.length,
    calledApis: apis.size,
    callsPerSecond: all.perSecond,
    callsPerCpuSecond: all.perCpuSecond,
    workedOutPerCpuSecond: forgetful.perCpuSecond,
    byKind,
    firstCallMs: { median: round(at(first, 0.5)), p99: round(at(first, 0.99)) },
    tasksPerCpuSecond: { cold, warm },
    searchMs: { median: round(at(searches, 0.5)), p99: round(at(searches, 0.99)) },
    schemaTokens: { median: at(tokens, 0.5), p95: at(tokens, 0.95) },
  };
}
