import type { Environment } from "../../paraact/environment.ts";
import type { EpisodeSettings } from "../../paraact/episode.ts";
import type { Policy, Trajectory } from "../../paraact/types.ts";

/** How a paradigm plays a task. */
export interface ParadigmOptions {
  task: { id: string; request: string };
  policy: Policy;
  seed: number;
  temperature: number;
  /** What all paradigms share: limits, how schemas are shown. Prompts, plans and searches are the paradigm's own. */
  settings: Partial<EpisodeSettings>;
  /** A fresh state of the task's environment, always the same one: paradigms that retry or branch open several. The last is the final state. */
  open: () => Environment;
  /** Unique among episodes that run at once. */
  id: string;
  /** Reflexion: attempts, and who says whether one succeeded (default: the policy checks itself). */
  trials?: number;
  succeeded?: (trajectory: Trajectory) => boolean | Promise<boolean>;
  /** DFSDT: branches of a step, and steps that the policy is asked for in all. */
  width?: number;
  maxNodes?: number;
}
