/**
 * Stages are keyed by a hash of their inputs: equal inputs share one folder, results/stages/<name>-<key>. A stage is done once done.json is there
 * (written last, atomically); before that its folder holds what it needs to resume.
 */
import { appendFileSync, existsSync, mkdirSync, readFileSync, truncateSync } from "node:fs";
import { join, resolve } from "node:path";
import { writeAtomic } from "../config/atomic.ts";
import { contentHash } from "../config/hash.ts";
import { FolderBusyError, lockFolder } from "./lock.ts";
import { duration } from "./progress.ts";
import type { Progress, StageContext } from "./types.ts";

/** The user asked to stop (Ctrl-C); what was finished is kept. */
export class StoppedError extends Error {
  override name = "StoppedError";
}

/** The results folder: PARAAGENT_RESULTS, else ./results. */
export function resultsRoot(): string {
  return resolve(process.env.PARAAGENT_RESULTS ?? "results");
}

export interface StageRecord<T> {
  name: string;
  key: string;
  dir: string;
  /** Milliseconds that the stage took when it ran; 0 rows were spent where `cached`. */
  elapsedMs: number;
  cached: boolean;
  result: T;
}

export interface MetricLine {
  stage: string;
  step: number;
  /** Seconds since the stage (re)started. */
  time: number;
  [metric: string]: number | string;
}

/** Metric lines of a file; a last line that a killed process left half-written is left out, and so is any line that is not JSON. */
export function readMetrics(path: string): { lines: MetricLine[]; broken: number } {
  if (!existsSync(path)) return { lines: [], broken: 0 };
  const lines: MetricLine[] = [];
  let broken = 0;
  for (const text of readFileSync(path, "utf8").split("\n")) {
    if (text === "") continue;
    try {
      lines.push(JSON.parse(text) as MetricLine);
    } catch {
      broken++;
    }
  }
  return { lines, broken };
}

let stopping = false;
let handlersOn = false;

/** First Ctrl-C (or SIGTERM): stages finish their step, write a checkpoint and return. Second: at once. */
export function stopOnSignal(progress: Progress): void {
  if (handlersOn) return;
  handlersOn = true;
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    process.on(signal, () => {
      if (stopping) process.exit(130);
      stopping = true;
      progress.log("stopping after this step; what is finished is kept. Once more to stop at once.");
    });
  }
}

let onStart: ((name: string, key: string) => void) | null = null;

/** Calls back whenever this process begins to make a stage (not where it is taken from the cache). Null ends it. */
export function watchStages(callback: ((name: string, key: string) => void) | null): void {
  onStart = callback;
}

export interface StageOptions<T> {
  name: string;
  /** All that the result depends on: settings, seeds, keys of the stages before, the version of the stage's code. */
  inputs: unknown;
  seed: number;
  progress: Progress;
  run(ctx: StageContext): Promise<T>;
}

/** Runs a stage, or returns what it gave before. The result must be JSON. */
export async function runStage<T>(options: StageOptions<T>): Promise<StageRecord<T>> {
  const key = contentHash({ stage: options.name, inputs: options.inputs }).slice(0, 16);
  const dir = join(resultsRoot(), "stages", `${options.name}-${key}`);
  const done = join(dir, "done.json");
  const finished = (): StageRecord<T> | null => {
    if (!existsSync(done)) return null;
    let parsed: { elapsedMs: number; result: T };
    try {
      parsed = JSON.parse(readFileSync(done, "utf8")) as { elapsedMs: number; result: T };
    } catch {
      options.progress.log(`${done} is broken; the stage ${options.name} is run again.`);
      return null;
    }
    return { name: options.name, key, dir, elapsedMs: parsed.elapsedMs, cached: true, result: parsed.result };
  };
  const before = finished();
  if (before) {
    options.progress.log(`${options.name}: unchanged, taken from ${key}`);
    return before;
  }
  if (stopping) throw new StoppedError("stopped before the next stage. Run the same command again to go on.");
  const unlock = await acquire(dir, options.name, options.progress);
  try {
    // Another process may have finished it while this one waited for the folder.
    const meanwhile = finished();
    if (meanwhile) return meanwhile;
    mkdirSync(dir, { recursive: true });
    writeAtomic(join(dir, "inputs.json"), JSON.stringify(options.inputs, null, 1));
    onStart?.(options.name, key);
    const started = Date.now();
    const metrics = join(dir, "metrics.jsonl");
    repairTail(metrics);
    const ctx: StageContext = {
      dir,
      seed: options.seed,
      progress: options.progress,
      metric(step, values) {
        const line = { stage: options.name, step, time: (Date.now() - started) / 1000, ...values };
        appendFileSync(metrics, `${JSON.stringify(line)}\n`);
      },
      get stopping() {
        return stopping;
      },
    };
    const result = await options.run(ctx);
    if (stopping)
      throw new StoppedError(`stopped in ${options.name}; its state is kept. Run the same command again to go on.`);
    const elapsedMs = Date.now() - started;
    writeAtomic(done, JSON.stringify({ elapsedMs, result }));
    options.progress.log(`${options.name}: done in ${duration(elapsedMs)}`);
    return { name: options.name, key, dir, elapsedMs, cached: false, result };
  } finally {
    unlock();
  }
}

/** Cuts a half-written last line, so that what is appended next starts on a line of its own. */
function repairTail(path: string): void {
  if (!existsSync(path)) return;
  const bytes = readFileSync(path);
  const end = bytes.lastIndexOf(10) + 1;
  if (end !== bytes.length) truncateSync(path, end);
}

async function acquire(dir: string, name: string, progress: Progress): Promise<() => void> {
  let told = false;
  for (;;) {
    try {
      return lockFolder(dir);
    } catch (error) {
      if (!(error instanceof FolderBusyError)) throw error;
      if (stopping) throw new StoppedError("stopped while waiting for another process.");
      if (!told) progress.log(`${name}: another process is running this stage; waiting for it. (${error.message})`);
      told = true;
      await Bun.sleep(500);
    }
  }
}
