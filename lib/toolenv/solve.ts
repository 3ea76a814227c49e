/** Following a task's gold plan, and the answer that it leads to: the generator's own check, and the scripted policies' source. */
import type { Catalog, Json } from "../catalog/types.ts";
import { at } from "./compare.ts";
import { type Episode, isPerfect, judgeExact, type MadeCall } from "./judge.ts";
import type { Backend, Fact, GoldCall, Session, Task, Verdicts } from "./types.ts";
import { capital } from "./words.ts";
import { type PlantedFault, World } from "./world.ts";

/** The faults of a task as the world plants them. */
export function plantedFaults(task: Task): PlantedFault[] {
  return Object.entries(task.faults).map(([id, kind]) => {
    const c = task.calls.find((x) => x.id === id);
    if (!c) throw new RangeError(`task ${task.id} plants a fault on ${id}, which is none of its calls`);
    return { name: c.tool, arguments: c.arguments, kind };
  });
}

/** The world of a task, with the task's faults in place, as a backend for episodes. */
export function taskBackend(catalog: Catalog, task: Task, world = new World(catalog, task.worldSeed)): Backend {
  return world.withFaults(plantedFaults(task));
}

/** An answer that states every given fact and nothing else; "Done." where a task asks for none. */
export function goldAnswer(task: Task, facts: readonly Fact[] = task.facts): string {
  if (!facts.length)
    return task.facts.length ? "I could not find that out." : "Done: everything was carried out as you asked.";
  return facts.map((f) => `${capital(`the ${f.label}`)} is ${say(f.value)}.`).join(" ");
}
const say = (v: Json) => (typeof v === "string" ? v : JSON.stringify(v));

/** Carries calls out in the plan's order; a call that a fault hits is tried once more. */
export function follow(catalog: Catalog, session: Session, calls: readonly GoldCall[]): MadeCall[] {
  const made: MadeCall[] = [];
  for (const c of [...calls].sort((a, b) => a.step - b.step)) {
    const tool = catalog.get(c.tool);
    if (!tool) throw new RangeError(`the catalogue has no tool ${c.tool}: the task was made from another one`);
    for (let attempt = 0; attempt < 2; attempt++) {
      const r = session.call(tool, c.arguments);
      if (r instanceof Promise) throw new TypeError("a gold plan is followed in a world, which answers at once");
      made.push({ call: { name: c.tool, arguments: c.arguments }, outcome: r.outcome, body: r.body });
      if (r.outcome !== "transient") break;
    }
  }
  return made;
}

/** Follows a plan (the task's own, or a changed one) in a fresh session and judges the answer. */
export function attempt(
  catalog: Catalog,
  world: World,
  task: Task,
  plan: { calls?: readonly GoldCall[]; answer?: string } = {},
): { verdicts: Verdicts; episode: Episode } {
  const episode = carriedOut(catalog, world, task, plan);
  return { verdicts: judgeExact(task, episode), episode };
}
function carriedOut(
  catalog: Catalog,
  world: World,
  task: Task,
  plan: { calls?: readonly GoldCall[]; answer?: string },
): Episode {
  const session = world.open(1, plantedFaults(task));
  const calls = follow(catalog, session, plan.calls ?? task.calls);
  const episode: Episode = { answer: plan.answer ?? goldAnswer(task), calls, writes: session.writes() };
  session.close();
  return episode;
}

export const perfect = (v: Verdicts): boolean => v.quality === 1 && v.faithfulness === 1 && v.utility === 1;

/** Another value of the same type, for checking that an argument matters. */
export function altered(value: Json): Json {
  if (typeof value === "number") return value + 1;
  if (typeof value === "boolean") return !value;
  if (typeof value === "string")
    return /\d$/.test(value) ? value.slice(0, -1) + String((Number(value.at(-1)) + 1) % 10) : `${value}x`;
  return value;
}

/** Each plan that lacks one call or has one argument changed, with what was done to it. */
export function* mutilated(task: Task): Generator<{ calls: GoldCall[]; what: string }> {
  for (const c of task.calls) {
    yield { calls: task.calls.filter((x) => x !== c), what: `without ${c.id}` };
    for (const [k, v] of Object.entries(c.arguments)) {
      const other = altered(v);
      if (other !== v)
        yield {
          calls: task.calls.map((x) => (x === c ? { ...c, arguments: { ...c.arguments, [k]: other } } : x)),
          what: `${c.id} with another ${k}`,
        };
    }
  }
}

/**
 * Whether a task is exact: its plan scores in full, and without any one call, with any one argument changed, or with any
 * one fact left out of the answer it does not. Returns what is wrong, or null.
 */
export function flaw(catalog: Catalog, world: World, task: Task): string | null {
  const whole = carriedOut(catalog, world, task, {});
  if (!isPerfect(task, whole))
    return `the gold plan falls short: ${Object.values(judgeExact(task, whole).reasons).join(" | ")}`;
  for (const f of task.facts) {
    const call = task.calls.find((c) => c.id === f.source);
    const body = whole.calls.find(
      (m) => m.outcome === "ok" && m.call.name === call?.tool && m.call.arguments === call.arguments,
    )?.body;
    if (body === undefined || at(body, f.pointer) === undefined) return `${f.label} is not where it should be`;
    const without = isPerfect(task, {
      ...whole,
      answer: goldAnswer(
        task,
        task.facts.filter((x) => x !== f),
      ),
    });
    if (without) return `${f.label} may be left out`;
  }
  for (const m of mutilated(task))
    if (isPerfect(task, carriedOut(catalog, world, task, { calls: m.calls }))) return `it can be done ${m.what}`;
  return null;
}
