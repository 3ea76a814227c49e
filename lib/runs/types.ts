/** Stages, runs, metrics. */

/** Where a stage reports progress. Everything goes to standard error; standard output is for results. */
export interface Progress {
  /** done of total units; `note` is shown beside rate and time left. */
  update(done: number, total: number, note?: string): void;
  log(line: string): void;
}

export interface StageContext {
  /** The stage's own folder; a finished stage is never written again. */
  dir: string;
  seed: number;
  progress: Progress;
  /** One metrics line (JSON). `step` counts within the stage. */
  metric(step: number, values: Record<string, number>): void;
  /** Asked to stop (Ctrl-C): finish the step, write a checkpoint, return. */
  readonly stopping: boolean;
}
