/** What every benchmark reports of an episode, besides its own scores (method.md section 7). */
import type { Trajectory } from "../paraact/types.ts";

export interface EpisodeMetrics {
  turns: number;
  toolCalls: number;
  searches: number;
  tokens: number;
  makespanMs: number;
  serialMs: number;
  /** Maximal runs of turns with the same kind of action. */
  phases: number;
  /** Mean number of calls in turns with calls; 0 without calls. */
  width: number;
  /** Calls that a fault hit, and how many of their tools were called with success later. */
  faultsMet: number;
  faultsRecovered: number;
  end: string;
}

export function episodeMetrics(trajectory: Trajectory): EpisodeMetrics {
  const { turns } = trajectory;
  const calling = turns.filter((t) => t.calls.length > 0);
  const calls = turns.flatMap((t, turn) => t.calls.map((c) => ({ ...c, turn })));
  const faulted = calls.filter((c) => c.fault !== null);
  return {
    turns: turns.length,
    toolCalls: calls.length,
    searches: turns.reduce((n, t) => n + t.searches.length, 0),
    tokens: trajectory.usage.completionTokens,
    makespanMs: trajectory.makespanMs,
    serialMs: trajectory.serialMs,
    phases: turns.filter((t, i) => t.kind !== "none" && t.kind !== turns[i - 1]?.kind).length,
    width: calling.length === 0 ? 0 : calls.length / calling.length,
    faultsMet: faulted.length,
    faultsRecovered: faulted.filter((f) =>
      calls.some((c) => c.turn > f.turn && c.outcome === "ok" && c.call?.name === f.call?.name),
    ).length,
    end: trajectory.end,
  };
}
