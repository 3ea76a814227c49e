/** The worlds that ToolEnv tasks live in: one per seed, with the faults that a task plants. */
import type { Catalog, Json } from "../catalog/types.ts";
import type { Trajectory } from "../paraact/types.ts";
import { FAULT_KINDS, type FaultRates } from "../toolenv/faults.ts";
import { judgeExact, type MadeCall } from "../toolenv/judge.ts";
import type { Session, Task, Verdicts } from "../toolenv/types.ts";
import { type PlantedFault, World } from "../toolenv/world.ts";

/** A share of calls that a fault hits, spread evenly over the kinds. */
export function faultRates(share: number): FaultRates {
  return share > 0 ? Object.fromEntries(FAULT_KINDS.map((kind) => [kind, share / FAULT_KINDS.length])) : {};
}

export class TaskWorlds {
  #worlds = new Map<number, World>();
  constructor(
    readonly catalog: Catalog,
    readonly faults: FaultRates = {},
  ) {}

  /** A fresh state of the task's world, its planted faults in place. */
  open(task: Task, seed: number): Session {
    let world = this.#worlds.get(task.worldSeed);
    if (!world) {
      world = new World(this.catalog, task.worldSeed, { faults: this.faults });
      this.#worlds.set(task.worldSeed, world);
    }
    const planted = Object.entries(task.faults).map(([occurrence, kind]): PlantedFault => {
      const call = task.calls.find((c) => c.id === occurrence)!;
      return { name: call.tool, arguments: call.arguments, kind };
    });
    return world.open(seed, planted);
  }
}

/** The exact verdicts on an episode, from the calls it made, what they showed, and what it changed. */
export function judgeTrajectory(task: Task, trajectory: Trajectory, session: Session | null): Verdicts {
  const calls = trajectory.turns.flatMap((turn) =>
    turn.calls.flatMap((c): MadeCall[] =>
      c.call ? [{ call: c.call, outcome: c.outcome, body: (c.body ?? null) as Json }] : [],
    ),
  );
  return judgeExact(task, { answer: trajectory.answer, calls, writes: session?.writes() ?? [] });
}
