/**
 * Plays recorded replies through the episode's own core, with recorded results in place of an environment: for traces of other
 * implementations, and for scoring a trajectory again.
 */
import type { Json, Tool } from "../catalog/types.ts";
import type { CallOutcome, FaultKind } from "../toolenv/types.ts";
import type { Environment } from "./environment.ts";
import { Episode, type EpisodeSettings, PAPER_LIMITS } from "./episode.ts";
import { parseReply } from "./parse.ts";
import type { Trajectory } from "./types.ts";

/** A reply, and what its actions gave, in the order of its blocks. */
export interface RecordedTurn {
  reply: string;
  /** For each search the tools found, or how it failed. */
  searches?: (string[] | "transient" | "final")[];
  /** For each readable call. */
  calls?: { outcome: CallOutcome; body?: Json; fault?: FaultKind | null; latencyMs?: number }[];
}

/** The record of a trace does not fit its replies. */
export class ReplayError extends Error {
  override readonly name = "ReplayError";
}

const STATUS: Record<CallOutcome, number> = { ok: 200, not_found: 404, unavailable: 410, transient: 503, invalid: 400 };

/** A tool of which only the name is known. */
const namedTool = (name: string): Tool => ({
  id: 0,
  name,
  provider: "",
  api: "",
  operation: name,
  method: "CALL",
  path: "",
  description: "",
  category: null,
  parameters: { type: "object", properties: {}, required: [] },
  places: {},
  response: null,
  example: null,
  source: "recorded trace",
  licence: null,
});

/**
 * Replays a trace. A trace that stops without an answer ends with `end` ("turn_limit" by default). Throws ReplayError where a turn's record
 * does not fit its blocks, or the trace goes on after its end.
 */
export async function replayEpisode(
  trace: {
    taskId: string;
    request: string;
    policy: string;
    seed?: number;
    turns: RecordedTurn[];
    end?: Trajectory["end"];
  },
  settings: Partial<EpisodeSettings> = {},
): Promise<Trajectory> {
  let turn: RecordedTurn | undefined;
  let search = 0;
  let call = 0;
  const environment: Environment = {
    tool: namedTool,
    search: () => {
      const found = turn?.searches?.[search++];
      if (found === undefined) throw new ReplayError("no record of this search");
      const failed = typeof found === "string" ? found : null;
      return { tools: typeof found === "string" ? [] : found.map(namedTool), failed, latencyMs: 0 };
    },
    call: () => {
      const made = turn?.calls?.[call++];
      if (!made) throw new ReplayError("no record of this call");
      const { outcome, body = null, fault = null, latencyMs = 0 } = made;
      return { outcome, status: STATUS[outcome], body, fault, latencyMs };
    },
  };
  const most = Number.MAX_SAFE_INTEGER;
  const limits = { ...PAPER_LIMITS, turns: most, toolsPerSearch: most, toolsPerTurn: most, repliesWithoutAction: most };
  const longest = Math.max(1, ...trace.turns.flatMap((t) => (t.searches ?? []).map((s) => s.length)));
  const episode = new Episode(environment, trace.request, {
    callsNeedRetrieval: false,
    ...settings,
    limits: settings.limits ?? { ...limits, toolsPerSearch: longest, actionsPerTurn: most },
  });
  for (const [i, recorded] of trace.turns.entries()) {
    [turn, search, call] = [recorded, 0, 0];
    if (episode.state.end !== null) throw new ReplayError(`turn ${i + 1} comes after the end (${episode.state.end})`);
    await episode.step({ text: recorded.reply });
    if (episode.state.end === "environment_error") {
      const { searches, calls } = parseReply(recorded.reply);
      throw new ReplayError(
        `turn ${i + 1} has ${searches.length} searches, ${calls.length} calls: ${episode.state.error}`,
      );
    }
    const { searches = [], calls = [] } = recorded;
    if (search < searches.length || call < calls.length)
      throw new ReplayError(`turn ${i + 1} has more records than blocks`);
  }
  episode.stop(trace.end ?? "turn_limit");
  return episode.trajectory({ taskId: trace.taskId, policy: trace.policy, seed: trace.seed ?? 0 });
}
