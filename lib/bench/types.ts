/** What every benchmark gives and gets. */
import type { Catalog, Retriever } from "../catalog/types.ts";
import type { Trajectory } from "../paraact/types.ts";
import type { ChannelRewards } from "../rewards/types.ts";
import type { Session, Task } from "../toolenv/types.ts";
import type { CompletenessVerdict } from "./judge.ts";
import type { EpisodeMetrics } from "./metrics.ts";

export type BenchmarkName = "toolenv" | "toolbench" | "apibank";

/** One task of a benchmark, ready to run: a request, an environment, and a scorer. */
export interface BenchTask {
  id: string;
  /** Table group: a shape, or "G1_instruction". */
  group: string;
  request: string;
  /** A fresh environment state for one episode. */
  open(seed: number): Session;
  /** Scores a finished episode and the state that its last session was left in. */
  score(trajectory: Trajectory, session: Session | null): TaskScore | Promise<TaskScore>;
  /** ToolEnv tasks know their gold plan; the scripted policy follows it. Other benchmarks give what they know. */
  gold: Task | null;
}

export interface TaskScore {
  /**
   * 1 where the task succeeded by the benchmark's own measure, 0 where not; null where that measure was not taken (ToolBench without a judge).
   */
  success: number | null;
  scores: Record<string, number>;
  /** Counted kinds of error, e.g. API-Bank's "wrong name". */
  errors?: Record<string, number>;
  /** The reward channels with their reasons, where the benchmark knows the gold plan. */
  rewards?: ChannelRewards;
  /** The judge's verdict on the answer, where one was asked: kept with its model, prompt and date. */
  verdict?: CompletenessVerdict;
}

export interface Benchmark {
  name: BenchmarkName;
  /** True where the project's own sample tasks stand in for missing files; every table says so. */
  sample: boolean;
  /** Which backend answers the calls, e.g. "world", "recorded". */
  backend: string;
  catalog: Catalog;
  retriever: Retriever;
  tasks: BenchTask[];
  /** Reference answers by task id, where the benchmark has them. */
  answers?: ReadonlyMap<string, string>;
  /** Said under each table, e.g. "no judge: no pass rate". */
  notes: string[];
}

/** One row of results: a task run once by one policy. */
export interface TaskOutcome extends EpisodeMetrics {
  benchmark: BenchmarkName;
  group: string;
  task: string;
  /** E.g. "before", "after", "scripted". */
  label: string;
  trial: number;
  success: number | null;
  scores: Record<string, number>;
  errors: Record<string, number>;
  verdict?: CompletenessVerdict;
}
