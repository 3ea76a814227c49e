/** ParaAct's data: replies, plans, turns, trajectories. See shared design: method.md sections 2 and 3. */
import type { Tool } from "../catalog/types.ts";
import type { CallOutcome, FaultKind, ToolCall, Verdicts } from "../toolenv/types.ts";

export type ActionKind = "search" | "call" | "answer";

export interface Subgoal {
  /** As written: models number their subgoals as often as they name them. */
  id: string | number;
  subgoal: string;
}
export interface ExplorationPlan {
  kind: "exploration";
  subgoals?: Subgoal[];
  capacity_slots: string[];
}
export interface Dependency {
  from: string[];
  to: string;
}
export interface ExecutionPlan {
  kind: "execution";
  subgoals?: Subgoal[];
  available_tools: string[];
  dependencies: Dependency[];
  execution_flow: { step: number; parallel: string[] }[];
}
export type Plan = ExplorationPlan | ExecutionPlan;

/** What a parser or checker found wrong, and where. */
export interface Finding {
  /** Stable code, e.g. "unclosed-tag", "text-outside-tags", "plan-step-gap". */
  code: string;
  message: string;
  /** Character offset in the reply. */
  at: number;
}

/** Whether a turn had to have a plan (method.md section 3's table). */
export type PlanSlot = "required" | "optional" | "forbidden";

export interface SearchRecord {
  /** As written: "slot: what the tool must do". */
  query: string;
  /** Names of the tools found, best first. Empty where nothing matched. */
  retrieved: string[];
  failed: "transient" | "final" | null;
  latencyMs: number;
}
export interface CallRecord {
  /** As written; null where the block held no JSON object with a name and an arguments object. */
  call: ToolCall | null;
  outcome: CallOutcome;
  status: number;
  /** The response as the agent saw it (clipped rendering). */
  observation: string;
  /** Response body before clipping, for evidence; absent in imported traces. */
  body?: unknown;
  fault: FaultKind | null;
  /** Occurrence of the live plan that this call was matched to, or null where it lies outside the plan. */
  occurrence: string | null;
  latencyMs: number;
}

/** One turn: the policy's reply and what the environment did with it. */
export interface Turn {
  reply: string;
  kind: ActionKind | "none";
  planSlot: PlanSlot;
  /** What the controller made of the turn's plan. */
  planEvent: "none" | "accepted" | "revise" | "restart" | "rejected";
  plan: Plan | null;
  findings: Finding[];
  searches: SearchRecord[];
  calls: CallRecord[];
  answer: string | null;
  /** What the policy reads next. "" on the last turn. */
  observation: string;
  /** Virtual clock at the start and the end of the turn: a turn takes as long as its longest parallel action. */
  startMs: number;
  endMs: number;
  /** Sampled token ids and their log-probabilities, where the policy is a local model; masks as in PolicyReply, never written to disk. */
  tokens?: { ids: number[]; logprobs: number[]; masks?: (Uint32Array | null)[] };
}

/** Why an episode ended. */
export type EndReason =
  | "answered"
  | "turn_limit"
  | "token_limit"
  | "context_overflow"
  | "parse_failure"
  | "environment_error"
  | "policy_error";

export interface Usage {
  promptTokens: number;
  completionTokens: number;
  /** True where a server left usage out and the numbers are estimates. */
  estimated: boolean;
}

export interface Trajectory {
  taskId: string;
  paradigm: string;
  policy: string;
  seed: number;
  system: string;
  request: string;
  /** What a paradigm searched before the first turn (ETE), and how the policy read it: it follows the request. */
  opening?: { searches: SearchRecord[]; observation: string };
  turns: Turn[];
  end: EndReason;
  /** For the end reasons that are errors: what happened. */
  error: string | null;
  answer: string | null;
  usage: Usage;
  /** Virtual time of the critical path, and of the same actions one after the other. */
  makespanMs: number;
  serialMs: number;
  verdicts: Verdicts | null;
}

/** A message of the conversation that a policy reads. */
export interface Message {
  role: "system" | "user" | "assistant" | "observation";
  content: string;
  /** Assistant messages of a local model: the ids that were sampled. Never re-encoded. */
  tokens?: number[];
}

/** What a policy is asked. */
export interface PolicyRequest {
  /** Stable id of the episode, so that a policy can keep a cache between turns. */
  episode: string;
  messages: Message[];
  /** Tools shown so far in this episode: what a constrained decoder may name. */
  toolsInView: Tool[];
  /** What the plan controller says before this turn: whether a plan must, may or must not stand before searches and before calls. */
  planSlots?: { search: PlanSlot; call: PlanSlot };
  /** Tools of the live plan's ready occurrences, one entry an occurrence; absent or empty where no plan is live. */
  readyTools?: string[];
  /** Occurrences of the live plan that have succeeded ("tool#k"): a second plan of the phase that keeps them goes on behind them. */
  doneOccurrences?: string[];
  maxNewTokens: number;
  temperature: number;
  seed: number;
}

export interface PolicyReply {
  text: string;
  /**
   * Local models only: the sampled ids (the end-of-turn id included), the log-probability of each under the sampling distribution, and,
   * where decoding was constrained, the mask that each was sampled under (null: free).
   */
  tokens?: { ids: number[]; logprobs: number[]; masks?: (Uint32Array | null)[] };
  /** "stop": the model ended its turn; "length": the token budget ran out. */
  finish: "stop" | "length";
  usage: Usage;
}

/** One policy serves many episodes at once: `reply` is called concurrently, and a local model batches what is pending. */
export interface Policy {
  readonly name: string;
  reply(request: PolicyRequest): Promise<PolicyReply>;
  /** The episode is over: caches for it may go. */
  release?(episode: string): void;
  close?(): Promise<void>;
}
