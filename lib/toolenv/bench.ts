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
  /** Calls a second in one process with catalogue look-ups: wall clock, and per second of processor time. */
  callsPerSecond: number;
  callsPerCpuSecond: number;
  /** The first call of a tool: its API analysed, its plan compiled. Milliseconds, median and 99th percentile. */
  firstCallMs: { median: number; p99: number };
  tasksPerSecond: number;
  searchMs: { median: number; p99: number };
  /** Tokens of a tool as agents see it. */
  schemaTokens: { median: number; p95: number };
}

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
 * Measures with a clock in milliseconds that is passed in. `render`: a tool as agents see it; `count`: tokens of a text.
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
  const first: number[] = [];
  const good: { name: string; args: JsonObject }[] = [];
  while (good.length < 1500 && first.length < 6000) {
    const tool = catalog.byId(rng.int(0, catalog.size - 1));
    const start = now();
    const args = someArguments(world, tool, rng);
    const result = world.open(0).call(tool, args);
    first.push(now() - start);
    if (result.outcome === "ok") good.push({ name: tool.name, args });
  }
  const pass = () => {
    for (const g of good) world.open(2).call(catalog.get(g.name) as Tool, g.args);
  };
  pass();
  let rounds = 0;
  const [wall, used] = [now(), cpu()];
  while (now() - wall < 4000) {
    pass();
    rounds++;
  }
  const calls = rounds * good.length;
  const [wallMs, cpuMs] = [now() - wall, cpu() - used];

  let tasks = 0;
  // The first hundred read their APIs; the rest shows the pace of a long run.
  const source = generateTasks(catalog, world, { split: "train", seed: 3, count: 400, retriever });
  for (let i = 0; i < 100; i++) source.next();
  const begun = now();
  for (const _ of source) tasks++;
  const taskMs = now() - begun;

  const searches: number[] = [];
  for (let i = 0; i < 500; i++) {
    const query = catalog
      .byId(rng.int(0, catalog.size - 1))
      .description.split(" ")
      .slice(0, 12)
      .join(" ");
    const start = now();
    retriever.search(query, 3);
    searches.push(now() - start);
  }
  const tokens = Array.from({ length: 400 }, () =>
    parts.count(parts.render(catalog.byId(rng.int(0, catalog.size - 1)))),
  );
  for (const list of [first, searches, tokens]) list.sort((a, b) => a - b);
  const round = (x: number) => Math.round(x * 1000) / 1000;
  return {
    tools: catalog.size,
    callsPerSecond: Math.round((calls / wallMs) * 1000),
    callsPerCpuSecond: Math.round((calls / cpuMs) * 1000),
    firstCallMs: { median: round(at(first, 0.5)), p99: round(at(first, 0.99)) },
    tasksPerSecond: round((tasks / taskMs) * 1000),
    searchMs: { median: round(at(searches, 0.5)), p99: round(at(searches, 0.99)) },
    schemaTokens: { median: at(tokens, 0.5), p95: at(tokens, 0.95) },
  };
}
