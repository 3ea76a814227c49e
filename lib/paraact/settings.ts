/** How an episode is played: limits, and what a paradigm allows. */
import { PARAACT_SYSTEM } from "./prompt.ts";
import type { SchemaStyle } from "./render.ts";

/** Bounds of an episode. Figures marked † in method.md are the paper's. */
export interface Limits {
  /** † */
  turns: number;
  /** Tools shown for one search. † */
  toolsPerSearch: number;
  /** Tools shown in one turn over all its searches: each search's best first. */
  toolsPerTurn: number;
  /** Actions dispatched in one turn; the rest is refused. One for the flat paradigms. */
  actionsPerTurn: number;
  /** Characters of one response that the policy sees. */
  responseChars: number;
  /** † */
  newTokensPerTurn: number;
  /** † */
  newTokens: number;
  /** Prompt and reply together. † (16,000 and 10,240) */
  contextTokens: number;
  /** Replies without an action in a row that end the episode. */
  repliesWithoutAction: number;
}

export const PAPER_LIMITS: Limits = {
  turns: 15,
  toolsPerSearch: 3,
  toolsPerTurn: 24,
  actionsPerTurn: 16,
  responseChars: 4000,
  newTokensPerTurn: 1536,
  newTokens: 10_240,
  contextTokens: 26_240,
  repliesWithoutAction: 2,
};

/** How an episode is played. The defaults are ParaAct's. */
export interface EpisodeSettings {
  paradigm: string;
  system: string;
  /** Whether the plan controller is on; without it every plan is forbidden. */
  plans: boolean;
  /** Whether the policy may search. */
  searches: boolean;
  /** Whether a tool must have been shown by a search before it may be called. */
  callsNeedRetrieval: boolean;
  schemaStyle: SchemaStyle;
  limits: Limits;
}

export const PARAACT_SETTINGS: EpisodeSettings = {
  paradigm: "paraact",
  system: PARAACT_SYSTEM,
  plans: true,
  searches: true,
  callsNeedRetrieval: true,
  schemaStyle: "json",
  limits: PAPER_LIMITS,
};
