/** Writes demonstrations: the roles really play each task in its world, and the verifier keeps what is right (method.md section 5). */
import { runParadigm } from "../agents/paradigms.ts";
import { type ScriptedParadigm, scriptedPolicy } from "../agents/scripted.ts";
import { judgeTrajectory } from "../bench/worlds.ts";
import type { Catalog, Retriever } from "../catalog/types.ts";
import { hash2 } from "../engine/random.ts";
import { conversation } from "../paraact/conversation.ts";
import { environment } from "../paraact/environment.ts";
import type { EpisodeSettings } from "../paraact/episode.ts";
import type { Message, Policy, Trajectory } from "../paraact/types.ts";
import { taskReference } from "../rewards/reference.ts";
import { scoreTrajectory } from "../rewards/score.ts";
import type { Session, Task } from "../toolenv/types.ts";
import { type Detour, defaultRoles, detourOf, type RoleOptions, rolesVoice } from "./roles.ts";
import { type Problem, verify } from "./verify.ts";

export interface Demonstration {
  task: Task;
  paradigm: ScriptedParadigm;
  detour: Detour;
  trajectory: Trajectory;
  /** The conversation as a policy reads it: what training encodes. */
  messages: Message[];
}

export interface DemonstrationOptions {
  tasks: Iterable<Task>;
  catalog: Catalog;
  retriever: Retriever;
  /** A fresh state of a task's world with its planted faults (bench/worlds.ts: TaskWorlds.open). */
  open: (task: Task, seed: number) => Session;
  seed: number;
  paradigm?: ScriptedParadigm;
  /** How episodes are shown: prompt, schema style, limits. Paradigm keys are set here. */
  settings?: Partial<EpisodeSettings>;
  roles?: Partial<RoleOptions>;
  /** Plays instead of the scripted roles, e.g. a model behind an endpoint; the verifier is the same. */
  player?: Policy;
  /** False leaves out every demonstration in which a call failed or a search missed (an ablation). */
  recovery?: boolean;
  /** Demonstrations of each task, with other wordings and detours. */
  perTask?: number;
  onDone?: (done: number, kept: number) => void;
}

export interface ColdStartReport {
  played: number;
  kept: number;
  /** Check and reason → how many. */
  dropped: Record<string, number>;
  /** One example of each reason. */
  examples: Record<string, { task: string; detail: string }>;
  detours: Record<Detour, number>;
  /** Kept demonstrations in which something failed and was mended. */
  recovered: number;
  /** Kept, by shape. */
  shapes: Record<string, number>;
}

/** Whether something went wrong on the way: a call failed, or a search found no tool that was needed. */
function stumbled(trajectory: Trajectory): boolean {
  const searches = trajectory.turns.filter((t) => t.kind === "search");
  const refined = trajectory.turns.some((t, i) => t.kind === "search" && trajectory.turns[i - 1]?.kind === "search");
  return (
    refined ||
    searches.some((t) => t.searches.some((s) => s.retrieved.length === 0)) ||
    trajectory.turns.some((t) => t.calls.some((c) => c.outcome !== "ok"))
  );
}

/**
 * Plays every task and keeps the demonstrations that the verifier passes. The same options give the same bytes. EaE and ETE demonstrations are
 * the same tasks by the same roles, one action a turn.
 */
export async function writeDemonstrations(
  options: DemonstrationOptions,
): Promise<{ demonstrations: Demonstration[]; report: ColdStartReport }> {
  const paradigm = options.paradigm ?? "paraact";
  const roles: RoleOptions = { ...defaultRoles, ...options.roles };
  const report: ColdStartReport = {
    played: 0,
    kept: 0,
    dropped: {},
    examples: {},
    detours: { none: 0, miss: 0, slip: 0, revise: 0, alternate: 0 },
    recovered: 0,
    shapes: {},
  };
  const demonstrations: Demonstration[] = [];
  const drop = (
    task: Task,
    { check, reason, detail }: Problem | { check: "ablation"; reason: string; detail: string },
  ): void => {
    const name = `${check}: ${reason}`;
    report.dropped[name] = (report.dropped[name] ?? 0) + 1;
    report.examples[name] ??= { task: task.id, detail };
  };
  for (const task of options.tasks) {
    for (let copy = 0; copy < (options.perTask ?? 1); copy++) {
      const seed = hash2(
        hash2(options.seed, Number.parseInt(task.id.replace(/[^0-9a-f]/g, "").slice(0, 7), 16) || 0),
        copy,
      );
      // Only ParaAct's scripted roles take detours; a model takes its own.
      const own: RoleOptions = paradigm === "paraact" && !options.player ? roles : { ...roles, detours: 0 };
      const detour = detourOf(task, own, seed);
      const policy = options.player ?? {
        ...scriptedPolicy(paradigm, [task], { voiceOf: () => rolesVoice(task, own, seed, options.catalog) }),
        name: `coldstart-${roles.mode}`,
      };
      const session = options.open(task, seed);
      try {
        const trajectory = await runParadigm(paradigm, {
          task,
          policy,
          seed,
          temperature: options.player ? 1 : 0,
          settings: options.settings ?? {},
          open: () => environment({ catalog: options.catalog, retriever: options.retriever, session }),
          id: `${task.id}/${copy}`,
        });
        trajectory.verdicts = judgeTrajectory(task, trajectory, session);
        const rewards = scoreTrajectory(trajectory, taskReference(task, trajectory.verdicts));
        report.played++;
        const problem = verify({ task, trajectory, rewards, verdicts: trajectory.verdicts, detour });
        if (problem) drop(task, problem);
        else if (options.recovery === false && stumbled(trajectory)) {
          drop(task, { check: "ablation", reason: "recovery is left out", detail: "" });
        } else {
          report.kept++;
          report.detours[detour]++;
          report.shapes[task.shape] = (report.shapes[task.shape] ?? 0) + 1;
          if (stumbled(trajectory)) report.recovered++;
          demonstrations.push({ task, paradigm, detour, trajectory, messages: conversation(trajectory) });
        }
      } finally {
        session.close();
      }
      options.onDone?.(report.played, report.kept);
    }
  }
  return { demonstrations, report };
}
