/** Every paradigm under one name, on the same episodes and policies (method.md section 1; ReWOO, Reflexion and DFSDT as baselines). */

import { Episode, type EpisodeSettings, PAPER_LIMITS, playEpisode, runEpisode } from "../paraact/episode.ts";
import { PARAACT_SYSTEM, PARAACT_SYSTEM_SHORT } from "../paraact/prompt.ts";
import type { Trajectory } from "../paraact/types.ts";
import { runDfsdt } from "./paradigms/dfsdt.ts";
import { runReflexion } from "./paradigms/reflexion.ts";
import { runRewoo } from "./paradigms/rewoo.ts";
import type { ParadigmOptions } from "./paradigms/types.ts";
import {
  DFSDT_SYSTEM,
  DFSDT_SYSTEM_SHORT,
  EAE_SYSTEM,
  EAE_SYSTEM_SHORT,
  ETE_SYSTEM,
  ETE_SYSTEM_SHORT,
  REWOO_PLANNER,
} from "./prompts.ts";

export const PARADIGMS = ["paraact", "eae", "ete", "rewoo", "reflexion", "dfsdt"] as const;
export type Paradigm = (typeof PARADIGMS)[number];
export type { ParadigmOptions };

/**
 * The settings of a paradigm over what all share. "short" prompts are a line, for tiny trained models; the default follows the given system
 * prompt.
 */
export function paradigmSettings(
  name: Paradigm,
  shared: Partial<EpisodeSettings> = {},
  prompt: "full" | "short" = shared.system === PARAACT_SYSTEM_SHORT ? "short" : "full",
): Partial<EpisodeSettings> {
  const say = (full: string, short: string): string => (prompt === "full" ? full : short);
  const limits = { ...PAPER_LIMITS, ...shared.limits };
  const flat = { ...shared, paradigm: name, plans: false, limits: { ...limits, actionsPerTurn: 1 } };
  switch (name) {
    case "paraact":
      return {
        ...shared,
        paradigm: name,
        plans: true,
        searches: true,
        system: say(PARAACT_SYSTEM, PARAACT_SYSTEM_SHORT),
      };
    case "eae":
    case "reflexion":
      return { ...flat, searches: true, system: say(EAE_SYSTEM, EAE_SYSTEM_SHORT) };
    case "dfsdt":
      return { ...flat, searches: true, system: say(DFSDT_SYSTEM, DFSDT_SYSTEM_SHORT) };
    case "ete":
      return { ...flat, searches: false, system: say(ETE_SYSTEM, ETE_SYSTEM_SHORT) };
    case "rewoo":
      return { ...flat, searches: false, system: REWOO_PLANNER };
  }
}

/**
 * Plays a task in a paradigm. Like runEpisode it never rejects for what a policy or an environment does wrong: that is the trajectory's end.
 * Usage and virtual time cover everything that was done, abandoned attempts and branches included.
 */
export async function runParadigm(name: Paradigm, options: ParadigmOptions): Promise<Trajectory> {
  const settings = paradigmSettings(name, options.settings);
  const own = { ...options, settings };
  switch (name) {
    case "paraact":
    case "eae":
      return runEpisode({ ...own, environment: options.open() });
    case "ete": {
      const episode = await openedEpisode(own);
      const { policy, id, seed, temperature, task } = own;
      await playEpisode(episode, { policy, id, seed, temperature });
      return episode.trajectory({ taskId: task.id, policy: policy.name, seed });
    }
    case "rewoo":
      return runRewoo({ ...own, episode: await openedEpisode(own) });
    case "reflexion":
      return runReflexion(own);
    case "dfsdt":
      return runDfsdt(own);
  }
}

/** An episode whose tools are retrieved once, by the request. */
async function openedEpisode(options: ParadigmOptions): Promise<Episode> {
  const episode = new Episode(options.open(), options.task.request, options.settings);
  try {
    await episode.open([options.task.request]);
  } catch (error) {
    episode.stop("environment_error", error instanceof Error ? error.message : String(error));
  }
  return episode;
}
