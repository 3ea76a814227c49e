/**
 * The episode: one state machine for every paradigm, the HTTP service and training. `step(reply)` reads a reply, runs its actions side by
 * side, moves the virtual clock by the longest of them, and gives the observation; `runEpisode` drives it with a policy.
 */
import type { Json, Tool } from "../catalog/types.ts";
import { hash2 } from "../engine/random.ts";
import type { CallOutcome, ToolCall } from "../toolenv/types.ts";
import {
  type ControllerState,
  enterTurn,
  offerPlan,
  planSlot,
  readyOccurrences,
  recordTurn,
  startOfEpisode,
} from "./controller.ts";
import { conversation } from "./conversation.ts";
import { type Environment, type SearchResult, searchText } from "./environment.ts";
import { normalName } from "./json.ts";
import { type ParsedReply, parseReply, structureScore } from "./parse.ts";
import { clip, renderResponse, renderTools } from "./render.ts";
import { type EpisodeSettings, PARAACT_SETTINGS } from "./settings.ts";
import type {
  ActionKind,
  CallRecord,
  EndReason,
  Message,
  Policy,
  PolicyReply,
  PolicyRequest,
  SearchRecord,
  Trajectory,
  Turn,
  Usage,
} from "./types.ts";

export { type EpisodeSettings, type Limits, PAPER_LIMITS, PARAACT_SETTINGS } from "./settings.ts";

/** Everything that an episode remembers, as plain data. */
export interface EpisodeState {
  controller: ControllerState;
  turns: Turn[];
  opening: Trajectory["opening"];
  /** Tools shown so far, in order of their first showing. */
  toolsInView: Tool[];
  usage: Usage;
  clockMs: number;
  serialMs: number;
  /** Replies without an action in a row. */
  idle: number;
  end: EndReason | null;
  error: string | null;
}

/** Stepping an episode that has ended. */
export class EpisodeOver extends Error {
  override readonly name = "EpisodeOver";
}

/** Asking for the record of an episode that goes on. */
export class EpisodeRunning extends Error {
  override readonly name = "EpisodeRunning";
}

/** A policy throws this when the conversation no longer fits into its context. */
export class ContextOverflow extends Error {
  override readonly name = "ContextOverflow";
}

/** What the policy said, as `step` takes it: a bare text, or a policy's whole reply. */
export type StepInput = Pick<PolicyReply, "text"> & Partial<Pick<PolicyReply, "tokens" | "usage" | "finish">>;

export interface StepResult {
  turn: Turn;
  /** What the policy reads next; "" at the end. */
  observation: string;
  end: EndReason | null;
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
const sum = (values: number[]): number => values.reduce((a, b) => a + b, 0);

/** One episode, step by step. */
export class Episode {
  readonly settings: EpisodeSettings;
  readonly state: EpisodeState;

  constructor(
    readonly environment: Environment,
    readonly request: string,
    settings: Partial<EpisodeSettings> = {},
  ) {
    this.settings = { ...PARAACT_SETTINGS, ...settings };
    this.state = {
      controller: startOfEpisode(),
      turns: [],
      opening: undefined,
      toolsInView: [],
      usage: { promptTokens: 0, completionTokens: 0, estimated: false },
      clockMs: 0,
      serialMs: 0,
      idle: 0,
      end: null,
      error: null,
    };
  }

  /** What the policy reads now. */
  messages(): Message[] {
    const { turns, opening } = this.state;
    return conversation({
      system: this.settings.system,
      request: this.request,
      turns,
      ...(opening ? { opening } : {}),
    });
  }

  /** What the controller says before the next reply, for a constrained decoder. Nothing where plans are off. */
  outlook(): Pick<PolicyRequest, "planSlots" | "readyTools" | "doneOccurrences"> {
    if (!this.settings.plans) return {};
    const slot = (kind: ActionKind) =>
      planSlot({ kind, mixed: false, state: enterTurn(this.state.controller, kind) }).slot;
    const { live } = enterTurn(this.state.controller, "call");
    return {
      planSlots: { search: slot("search"), call: slot("call") },
      readyTools: live ? readyOccurrences(live).flatMap((o) => (live.status[o.ref] === "open" ? [o.tool] : [])) : [],
      doneOccurrences: live ? live.occurrences.flatMap((o) => (live.status[o.ref] === "ok" ? [o.ref] : [])) : [],
    };
  }

  /** Tokens that the next reply may have. */
  tokensLeft(): number {
    const { newTokens, newTokensPerTurn } = this.settings.limits;
    return Math.max(0, Math.min(newTokensPerTurn, newTokens - this.state.usage.completionTokens));
  }

  /** Ends the episode from outside, e.g. because the policy failed. */
  stop(end: EndReason, error: string | null = null): void {
    if (this.state.end !== null) return;
    this.state.end = end;
    this.state.error = error;
  }

  /** Searches before the first turn (ETE): the tools follow the request in the first message. */
  async open(queries: string[]): Promise<void> {
    if (this.state.turns.length > 0) throw new EpisodeOver("open an episode before its first step");
    const { searches, observation } = await this.#search(queries, true);
    this.#advance(searches.map((s) => s.latencyMs));
    this.state.opening = { searches, observation };
  }

  /** Takes the policy's next reply. Throws EpisodeOver after the end; anything that goes wrong inside ends the episode instead. */
  async step(input: StepInput): Promise<StepResult> {
    const { state, settings } = this;
    if (state.end !== null) throw new EpisodeOver(`the episode has ended: ${state.end}`);
    const parsed = parseReply(input.text);
    const findings = [...parsed.findings];

    // The controller: which plan was due, and what becomes of the one that came.
    const kind = parsed.kind;
    let controller = enterTurn(state.controller, kind);
    const slot = settings.plans ? planSlot({ kind, mixed: parsed.mixed, state: controller }).slot : "forbidden";
    // A plan in a reply that is no turn of the protocol (structure 0) is not a valid plan: so the reference "text outside the tags in a search turn".
    const plan = structureScore(parsed).score > 0 ? parsed.plan : null;
    const offer = offerPlan(controller, { plan, offered: parsed.planBlocks > 0, slot });
    controller = offer.state;
    if (offer.event === "rejected" && slot === "forbidden")
      findings.push({ code: "plan-forbidden", message: "no plan is allowed in this turn", at: parsed.planAt });
    if (offer.event === "none" && slot === "required")
      findings.push({ code: "plan-missing", message: "this turn needs a plan", at: 0 });

    const turn: Turn = {
      reply: input.text,
      kind,
      planSlot: slot,
      planEvent: offer.event,
      plan,
      findings,
      searches: [],
      calls: [],
      answer: null,
      observation: "",
      startMs: state.clockMs,
      endMs: state.clockMs,
      ...(input.tokens ? { tokens: input.tokens } : {}),
    };
    try {
      await this.#act(turn, parsed, kind);
    } catch (error) {
      this.stop("environment_error", messageOf(error));
    }
    const recorded = recordTurn(controller, turn);
    for (const [i, call] of turn.calls.entries()) call.occurrence = recorded.occurrences[i] ?? null;
    state.controller = recorded.state;
    state.turns.push(turn);
    this.#advance([...turn.searches, ...turn.calls].map((action) => action.latencyMs));
    turn.endMs = state.clockMs;
    this.#count(input);
    state.idle = kind === "none" ? state.idle + 1 : 0;
    this.#checkLimits(turn, input);
    if (state.end !== null) turn.observation = "";
    return { turn, observation: turn.observation, end: state.end };
  }

  /** The record of an ended episode (`stop` ends one early). Verdicts and rewards come later. */
  trajectory(who: { taskId: string; policy: string; seed: number }): Trajectory {
    const { state, settings } = this;
    if (state.end === null)
      throw new EpisodeRunning("the episode has not ended; step it to its end, or stop it with a reason");
    return {
      ...who,
      paradigm: settings.paradigm,
      system: settings.system,
      request: this.request,
      ...(state.opening ? { opening: state.opening } : {}),
      turns: state.turns,
      end: state.end,
      error: state.error,
      answer: state.turns.at(-1)?.answer ?? null,
      usage: state.usage,
      makespanMs: state.clockMs,
      serialMs: state.serialMs,
      verdicts: null,
    };
  }

  async #act(turn: Turn, parsed: ParsedReply, kind: ActionKind | "none"): Promise<void> {
    const limit = this.settings.limits.actionsPerTurn;
    switch (kind) {
      case "search": {
        const { searches, observation } = await this.#search(parsed.searches, this.settings.searches);
        turn.searches = searches;
        turn.observation = observation;
        return;
      }
      case "call": {
        turn.calls = await Promise.all(parsed.calls.map((call, i) => this.#call(call, i < limit)));
        turn.observation = turn.calls.map((call) => call.observation).join("\n");
        return;
      }
      case "answer":
        turn.answer = parsed.answers[0] ?? null;
        return;
      case "none": {
        const problem = parsed.findings[0]?.message ?? "no action";
        turn.observation = renderResponse("protocol", { error: `No action was taken: ${problem}.` }, 1000);
      }
    }
  }

  /** All searches at once. Each shows its best tools; the turn's limit is shared rank by rank, and no tool is shown twice in a turn. */
  async #search(queries: string[], allowed: boolean): Promise<{ searches: SearchRecord[]; observation: string }> {
    const { limits, schemaStyle } = this.settings;
    const found = await Promise.all(
      queries.map((query, i): SearchResult | Promise<SearchResult> => {
        if (allowed && i < limits.actionsPerTurn)
          return this.environment.search(searchText(query), limits.toolsPerSearch);
        return { tools: [], failed: "final", latencyMs: 0 };
      }),
    );
    const shown = new Map<string, Tool>();
    for (let rank = 0; rank < limits.toolsPerSearch; rank++)
      for (const { tools } of found) {
        const tool = tools[rank];
        if (tool && shown.size < limits.toolsPerTurn) shown.set(tool.name, tool);
      }
    const searches = queries.map((query, i): SearchRecord => {
      const { tools, failed, latencyMs } = found[i] ?? { tools: [], failed: "final", latencyMs: 0 };
      return { query, retrieved: tools.map((t) => t.name).filter((name) => shown.has(name)), failed, latencyMs };
    });
    const notes = searches.flatMap(({ query, retrieved, failed }, i) => {
      const reason = !allowed
        ? "searching is not part of this task"
        : i >= limits.actionsPerTurn
          ? `only ${limits.actionsPerTurn} actions a turn`
          : failed === "transient"
            ? "the search failed for now; it may be repeated"
            : failed === "final"
              ? "the search failed"
              : retrieved.length === 0
                ? "no tool found"
                : null;
      return reason === null ? [] : [{ query: clip(query, 200), error: reason }];
    });
    const inOrder = new Set(found.flatMap(({ tools }) => tools.map((t) => t.name)));
    const lines = [...inOrder].flatMap((name) => shown.get(name) ?? []);
    const known = new Set(this.state.toolsInView.map((t) => t.name));
    this.state.toolsInView.push(...lines.filter((t) => !known.has(t.name)));
    return { searches, observation: renderTools(lines, notes, schemaStyle) };
  }

  /** One call. Only tools of the catalogue, and by default only those that a search has shown, reach the environment. */
  async #call(call: ToolCall | null, withinLimit: boolean): Promise<CallRecord> {
    const { limits, callsNeedRetrieval } = this.settings;
    const name = normalName(call?.name ?? "");
    const record = (outcome: CallOutcome, status: number, body: Json, latencyMs: number): CallRecord => ({
      call,
      outcome,
      status,
      observation: renderResponse(name, body, limits.responseChars),
      body,
      fault: null,
      occurrence: null,
      latencyMs,
    });
    const refuse = (status: number, error: string): CallRecord => record("invalid", status, { error }, 0);
    if (!call) return refuse(400, 'This tool_call is not a JSON object {"name": "...", "arguments": {...}}.');
    if (!withinLimit) return refuse(429, `Not executed: only ${limits.actionsPerTurn} action(s) a turn.`);
    const tool = this.environment.tool(name);
    if (!tool) return refuse(404, `There is no tool named ${name}. Call only tools that a search has shown.`);
    if (callsNeedRetrieval && !this.state.toolsInView.some((t) => t.name === tool.name))
      return refuse(403, `No search has shown the tool ${name} yet. Search for it first.`);
    const result = await this.environment.call(tool, call.arguments);
    return { ...record(result.outcome, result.status, result.body, result.latencyMs), fault: result.fault };
  }

  /** A turn takes as long as its longest action; one after the other they would take their sum. */
  #advance(latenciesMs: number[]): void {
    this.state.clockMs += Math.max(0, ...latenciesMs);
    this.state.serialMs += sum(latenciesMs);
  }

  #count(input: StepInput): void {
    const { usage } = this.state;
    usage.promptTokens += input.usage?.promptTokens ?? 0;
    usage.completionTokens += input.usage?.completionTokens ?? input.tokens?.ids.length ?? 0;
    usage.estimated ||= input.usage?.estimated ?? false;
  }

  #checkLimits(turn: Turn, input: StepInput): void {
    const { limits } = this.settings;
    const context = (input.usage?.promptTokens ?? 0) + (input.usage?.completionTokens ?? 0);
    if (turn.answer !== null) this.stop("answered");
    else if (this.state.idle >= limits.repliesWithoutAction)
      this.stop("parse_failure", turn.findings.map((f) => `${f.code} at ${f.at}: ${f.message}`).join("; "));
    else if (this.tokensLeft() === 0) this.stop("token_limit");
    else if (context >= limits.contextTokens)
      this.stop(
        "context_overflow",
        `the last turn read and wrote ${context} tokens; the limit is ${limits.contextTokens}`,
      );
    else if (this.state.turns.length >= limits.turns) this.stop("turn_limit");
  }
}

/** Asks the policy until the episode ends. Exposed for paradigms that prepare an episode themselves (ETE's `open`). */
export async function playEpisode(
  episode: Episode,
  player: { policy: Policy; id: string; seed: number; temperature: number },
): Promise<void> {
  const { policy, id, seed, temperature } = player;
  try {
    while (episode.state.end === null) {
      const reply = await policy.reply({
        episode: id,
        messages: episode.messages(),
        toolsInView: [...episode.state.toolsInView],
        ...episode.outlook(),
        maxNewTokens: episode.tokensLeft(),
        temperature,
        seed: hash2(seed, episode.state.turns.length),
      });
      await episode.step(reply);
    }
  } catch (error) {
    if (error instanceof EpisodeOver) throw error;
    episode.stop(error instanceof ContextOverflow ? "context_overflow" : "policy_error", messageOf(error));
  } finally {
    policy.release?.(id);
  }
}

export interface EpisodeOptions {
  task: { id: string; request: string };
  policy: Policy;
  environment: Environment;
  /** Distinguishes rollouts of one task; also the seed of the policy's sampling. */
  seed: number;
  temperature?: number;
  settings?: Partial<EpisodeSettings>;
  /** Unique among episodes that run at once. Default: task and seed. */
  id?: string;
}

/**
 * Plays one episode of a task with a policy. Never rejects for what a policy or an environment does wrong: that is the trajectory's end
 * reason and its error text.
 */
export async function runEpisode(options: EpisodeOptions): Promise<Trajectory> {
  const { task, policy, seed, temperature = 1 } = options;
  const episode = new Episode(options.environment, task.request, options.settings);
  await playEpisode(episode, { policy, id: options.id ?? `${task.id}/${seed}`, seed, temperature });
  return episode.trajectory({ taskId: task.id, policy: policy.name, seed });
}
