/** Execution plans as states (method.md section 2): tools in view, acyclic dependencies, and a flow that respects them. */
import { choice, lazy, literal, type Next, optional, type State } from "./automaton.ts";
import { list } from "./json.ts";

export interface PlanLimits {
  tools: number;
  dependencies: number;
  /** Scheduled occurrences in all, and of one tool. */
  occurrences: number;
  repeats: number;
}

/** An edge between occurrences, each "tool" (scheduled once) or "tool#n". */
interface Edge {
  from: string;
  to: string;
}

function toolOf(reference: string): string {
  return reference.replace(/#\d+$/, "");
}
function ordinal(reference: string): number {
  return Number(/#(\d+)$/.exec(reference)?.[1] ?? 1);
}

/** Whether `a` must stand before `b`, or may not stand after it: over declared edges, and from an occurrence to its tool's next ones. */
function reaches(edges: readonly Edge[], a: string, b: string, seen: Set<string> = new Set()): boolean {
  if (toolOf(a) === toolOf(b) && ordinal(a) <= ordinal(b)) return true;
  if (seen.has(a)) return false;
  seen.add(a);
  return edges.some(
    (e) => toolOf(e.from) === toolOf(a) && ordinal(e.from) >= ordinal(a) && reaches(edges, e.to, b, seen),
  );
}

/** Occurrences of a tool that may be named beside the edges so far: bare and numbered names of one tool are never mixed. */
function references(edges: readonly Edge[], tool: string, limits: PlanLimits): string[] {
  const named = edges.flatMap((e) => [e.from, e.to]).filter((r) => toolOf(r) === tool);
  const numbered = Array.from({ length: limits.repeats }, (_, i) => `${tool}#${i + 1}`);
  if (named.length === 0) return limits.repeats > 1 ? [tool, ...numbered] : [tool];
  return named[0]!.includes("#") ? numbered : [tool];
}

/** How many occurrences of each tool the edges speak of: exactly one for a bare name, no fewer than the highest number otherwise. */
function demanded(edges: readonly Edge[], tool: string): { min: number; max: number | null } {
  const named = edges.flatMap((e) => [e.from, e.to]).filter((r) => toolOf(r) === tool);
  if (named.length === 0) return { min: 1, max: null };
  if (!named[0]!.includes("#")) return { min: 1, max: 1 };
  return { min: Math.max(...named.map(ordinal)), max: null };
}

/** Occurrences that the edges demand in all. */
function demandedTotal(edges: readonly Edge[], tools: readonly string[]): number {
  return tools.reduce((n, t) => n + demanded(edges, t).min, 0);
}

function name(text: string, next: Next): State {
  return literal(JSON.stringify(text), next);
}

function separated(key: string, body: () => State): State {
  return literal(
    ",",
    lazy(`,${key}`, () => optional(" ", lazy(key, body))),
  );
}

/** `"field": ` and then `next`. */
export function field(text: string, next: Next): State {
  return literal(
    `${JSON.stringify(text)}:`,
    lazy(`:${next.key}`, () => optional(" ", next)),
  );
}

/** What a finished plan leaves to the calls of its turn: the tools to call now. */
export type AfterPlan = (tools: string[]) => Next;

/**
 * The tools that a plan's turn calls: its first layer; where `done` occurrences (of the phase's earlier plan) are kept, what is ready
 * behind them.
 */
function callable(layers: readonly string[][], edges: readonly Edge[], done: readonly string[]): string[] {
  const count = new Map<string, number>();
  const occurrences = layers.flatMap((layer, step) =>
    layer.map((tool) => {
      const n = (count.get(tool) ?? 0) + 1;
      count.set(tool, n);
      return { tool, n, step, ref: `${tool}#${n}` };
    }),
  );
  const finished = new Set(done);
  if (!occurrences.some((o) => finished.has(o.ref))) return layers[0] ?? [];
  const ready = occurrences.filter((o) => {
    if (finished.has(o.ref)) return false;
    const sources = edges.filter((e) => toolOf(e.to) === o.tool && ordinal(e.to) === o.n);
    return (
      sources.every((e) => finished.has(`${toolOf(e.from)}#${ordinal(e.from)}`)) &&
      occurrences.every((p) => p.tool !== o.tool || p.step >= o.step || finished.has(p.ref))
    );
  });
  return ready.length > 0 ? ready.map((o) => o.tool) : (layers[0] ?? []);
}

/** From `"available_tools"` to the plan's closing brace. */
export function executionPlan(
  inView: readonly string[],
  limits: PlanLimits,
  done: readonly string[],
  then: AfterPlan,
): State {
  return field(
    "available_tools",
    lazy("p.tools[", () => literal("[", tools([]))),
  );

  function tools(chosen: readonly string[]): Next {
    return lazy(`p.tools${JSON.stringify(chosen)}`, () => {
      const options: State[] = [];
      const open = chosen.length < limits.tools ? inView.filter((t) => !chosen.includes(t)) : [];
      const pick = (): State => choice(open.map((t) => name(t, tools([...chosen, t]))));
      if (chosen.length > 0) {
        options.push(
          literal(
            "]",
            lazy(`p.deps${JSON.stringify(chosen)}`, () =>
              separated(`p.deps1${JSON.stringify(chosen)}`, () => dependencies(chosen)),
            ),
          ),
        );
        if (open.length > 0) options.push(separated(`p.tool+${JSON.stringify(chosen)}`, pick));
      } else options.push(pick());
      return choice(options);
    });
  }

  function dependencies(chosen: readonly string[]): State {
    return field(
      "dependencies",
      lazy(`p.d${JSON.stringify(chosen)}`, () => literal("[", entries(chosen, [], 0))),
    );
  }

  /** Names that may be written beside these edges and the sources of the entry being written. */
  function candidates(chosen: readonly string[], edges: readonly Edge[], taken: readonly string[]): string[] {
    const named = [...edges, ...taken.map((t) => ({ from: t, to: t }))];
    return chosen.flatMap((t) => references(named, t, limits));
  }

  /** Whether an entry from these sources to a target keeps the graph without cycles, new, and small enough to be scheduled. */
  function fits(chosen: readonly string[], edges: readonly Edge[], from: readonly string[], to: string): boolean {
    if (from.some((s) => reaches(edges, to, s) || edges.some((e) => e.from === s && e.to === to))) return false;
    return demandedTotal([...edges, ...from.map((s) => ({ from: s, to }))], chosen) <= limits.occurrences;
  }

  function targets(chosen: readonly string[], edges: readonly Edge[], from: readonly string[]): string[] {
    return candidates(chosen, edges, from).filter((to) => fits(chosen, edges, from, to));
  }

  /** Whether a source can be added to those taken, so that some target is left. */
  function opens(chosen: readonly string[], edges: readonly Edge[], taken: readonly string[], s: string): boolean {
    const from = [...taken, s];
    return !taken.includes(s) && candidates(chosen, edges, from).some((to) => fits(chosen, edges, from, to));
  }

  function sources(chosen: readonly string[], edges: readonly Edge[], taken: readonly string[]): string[] {
    return candidates(chosen, edges, taken).filter((s) => opens(chosen, edges, taken, s));
  }

  function anySource(chosen: readonly string[], edges: readonly Edge[], taken: readonly string[]): boolean {
    return candidates(chosen, edges, taken).some((s) => opens(chosen, edges, taken, s));
  }

  function entries(chosen: readonly string[], edges: readonly Edge[], count: number): Next {
    const key = `${JSON.stringify(chosen)}${JSON.stringify(edges)}${count}`;
    return lazy(`p.e${key}`, () => {
      const options: State[] = [];
      options.push(
        literal(
          "]",
          lazy(`p.f${key}`, () => separated(`p.f1${key}`, () => flow(chosen, edges))),
        ),
      );
      if (count < limits.dependencies && anySource(chosen, edges, [])) {
        const entry = (): State =>
          literal(
            "{",
            lazy(`p.from${key}`, () => field("from", from(chosen, edges, count, []))),
          );
        options.push(count === 0 ? entry() : separated(`p.e+${key}`, entry));
      }
      return choice(options);
    });
  }

  function from(chosen: readonly string[], edges: readonly Edge[], count: number, taken: readonly string[]): Next {
    const key = `${JSON.stringify(chosen)}${JSON.stringify(edges)}${count}${JSON.stringify(taken)}`;
    return lazy(`p.s${key}`, () => {
      const pick = (): State =>
        choice(sources(chosen, edges, taken).map((s) => name(s, from(chosen, edges, count, [...taken, s]))));
      if (taken.length === 0) return literal("[", lazy(`p.s0${key}`, pick));
      const to = (): State =>
        field(
          "to",
          lazy(`p.to${key}`, () =>
            choice(
              targets(chosen, edges, taken).map((t) =>
                name(
                  t,
                  lazy(`p.t${key}${t}`, () =>
                    literal("}", entries(chosen, [...edges, ...taken.map((s) => ({ from: s, to: t }))], count + 1)),
                  ),
                ),
              ),
            ),
          ),
        );
      const options: State[] = [
        literal(
          "]",
          lazy(`p.]${key}`, () => separated(`p.to1${key}`, to)),
        ),
      ];
      if (taken.length < limits.repeats && anySource(chosen, edges, taken)) options.push(separated(`p.s+${key}`, pick));
      return choice(options);
    });
  }

  function flow(chosen: readonly string[], edges: readonly Edge[]): State {
    return field(
      "execution_flow",
      lazy(`p.flow${JSON.stringify([chosen, edges])}`, () => literal("[", layer(chosen, edges, [[]]))),
    );
  }

  /** Tools whose next occurrence may be scheduled in the last of `layers`. */
  function schedulable(chosen: readonly string[], edges: readonly Edge[], layers: readonly string[][]): string[] {
    const all = layers.flat();
    const before = layers.slice(0, -1).flat();
    const count = (t: string, list: readonly string[]): number => list.filter((x) => x === t).length;
    const missing = chosen.reduce((n, t) => n + Math.max(0, demanded(edges, t).min - count(t, all)), 0);
    return chosen.filter((t) => {
      const n = count(t, all) + 1;
      const { min, max } = demanded(edges, t);
      if (n > (max ?? limits.repeats)) return false;
      if (n > min && all.length + missing >= limits.occurrences) return false;
      return edges
        .filter((e) => toolOf(e.to) === t && ordinal(e.to) === n)
        .every((e) => count(toolOf(e.from), before) >= ordinal(e.from));
    });
  }

  function layer(chosen: readonly string[], edges: readonly Edge[], layers: readonly string[][]): Next {
    const key = JSON.stringify([chosen, edges, layers]);
    return lazy(`p.l${key}`, () => {
      const open = literal(
        "{",
        lazy(`p.l{${key}`, () =>
          field(
            "step",
            lazy(`p.l#${key}`, () =>
              literal(
                String(layers.length),
                lazy(`p.l,${key}`, () =>
                  separated(`p.lp${key}`, () =>
                    field(
                      "parallel",
                      lazy(`p.l[${key}`, () => literal("[", parallel(chosen, edges, layers))),
                    ),
                  ),
                ),
              ),
            ),
          ),
        ),
      );
      return open;
    });
  }

  function parallel(chosen: readonly string[], edges: readonly Edge[], layers: readonly string[][]): Next {
    const key = JSON.stringify([chosen, edges, layers]);
    return lazy(`p.p${key}`, () => {
      const last = layers.at(-1)!;
      const open = schedulable(chosen, edges, layers);
      const pick = (): State =>
        choice(open.map((t) => name(t, parallel(chosen, edges, [...layers.slice(0, -1), [...last, t]]))));
      if (last.length === 0) return pick();
      const options: State[] = [
        literal(
          "]",
          lazy(`p.p]${key}`, () => literal("}", more(chosen, edges, layers))),
        ),
      ];
      if (open.length > 0) options.push(separated(`p.p+${key}`, pick));
      return choice(options);
    });
  }

  function more(chosen: readonly string[], edges: readonly Edge[], layers: readonly string[][]): Next {
    const key = JSON.stringify([chosen, edges, layers]);
    return lazy(`p.m${key}`, () => {
      const all = layers.flat();
      const options: State[] = [];
      const complete = chosen.every((t) => all.filter((x) => x === t).length >= demanded(edges, t).min);
      const next = [...layers, []];
      if (complete)
        options.push(
          literal(
            "]",
            lazy(`p.m]${key}`, () => literal("}", then(callable(layers, edges, done)))),
          ),
        );
      if (schedulable(chosen, edges, next).length > 0)
        options.push(separated(`p.l+${key}`, () => layer(chosen, edges, next).state));
      return choice(options);
    });
  }
}

/** `"subgoals": [{"id","subgoal"}, …],` or nothing, then `next`. */
export function optionalSubgoals(max: number, string: (limit: number, next: Next) => State, next: Next): State {
  const comma = lazy(`sg,${next.key}`, () => separated(`sg1${next.key}`, () => next.state));
  const item = (_: number, n: Next): State =>
    literal(
      "{",
      lazy(`sgi${n.key}`, () =>
        field(
          "id",
          lazy(`sgid${n.key}`, () =>
            string(
              8,
              lazy(`sgc${n.key}`, () =>
                separated(`sgs${n.key}`, () =>
                  field(
                    "subgoal",
                    lazy(`sgt${n.key}`, () =>
                      string(
                        120,
                        lazy(`sg}${n.key}`, () => literal("}", n)),
                      ),
                    ),
                  ),
                ),
              ),
            ),
          ),
        ),
      ),
    );
  const subgoals = field(
    "subgoals",
    lazy(`sg[${next.key}`, () =>
      literal(
        "[",
        lazy(`sgl${next.key}`, () => list("sg", { min: 1, max }, "]", item, comma)),
      ),
    ),
  );
  return choice([subgoals, next.state]);
}
