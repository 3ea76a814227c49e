/** The run folder results/<experiment>/<run>/: resolved settings, environment, outcomes, trajectories, and what became of it. */
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { stringify } from "yaml";
import type { TaskOutcome } from "../bench/types.ts";
import { writeAtomic } from "../config/atomic.ts";
import { contentHash } from "../config/hash.ts";
import type { Loaded } from "../config/load.ts";
import type { Trajectory } from "../paraact/types.ts";
import type { ChannelRewards } from "../rewards/types.ts";
import { environment } from "./environment.ts";
import { RunIndex, type RunRecord } from "./index-store.ts";
import { resultsRoot, type StageRecord } from "./stages.ts";

/** Equal settings give the same run: running again goes on with it, and changes nothing where all is done. */
export function runId(loaded: Loaded): string {
  const { experiment, cell } = loaded;
  const clean = cell.replace(/[^\w.=,+-]+/g, "_").replace(/^[^A-Za-z0-9]+/, "");
  const name = [clean.slice(0, 60), `s${experiment.seed}`, contentHash(experiment).slice(0, 8)]
    .filter(Boolean)
    .join("-");
  return `${experiment.name}/${name}`;
}

export interface StoredTrajectory {
  benchmark: string;
  group: string;
  label: string;
  trial: number;
  success: number | null;
  trajectory: Trajectory;
  /** Each reward with its rule and reason, where the benchmark knows the gold plan. */
  rewards: ChannelRewards | null;
}

/** A run being made. Every change is on disk, whole, when the method returns. */
export class Run {
  readonly dir: string;
  readonly record: RunRecord;
  #index: RunIndex;

  constructor(loaded: Loaded) {
    const root = resultsRoot();
    const id = runId(loaded);
    this.dir = join(root, id);
    mkdirSync(this.dir, { recursive: true });
    this.#index = new RunIndex(root);
    const before = this.#read();
    this.record = {
      id,
      experiment: loaded.experiment.name,
      cell: loaded.cell,
      seed: loaded.experiment.seed,
      status: "running",
      error: null,
      created: before?.created ?? new Date().toISOString(),
      finished: null,
      config: loaded.experiment,
      environment: environment(null),
      stages: [],
      samples: [],
    };
    writeAtomic(join(this.dir, "experiment.yaml"), stringify(loaded.experiment));
    this.#save();
  }

  #read(): RunRecord | null {
    const path = join(this.dir, "run.json");
    if (!existsSync(path)) return null;
    try {
      return JSON.parse(readFileSync(path, "utf8")) as RunRecord;
    } catch {
      // Broken by hand or by a failing disk: the run is written anew.
      return null;
    }
  }

  #save(): void {
    writeAtomic(join(this.dir, "run.json"), JSON.stringify(this.record, null, 1));
    this.#index.put(this.record);
  }

  /** Says which stage is being made, so that it can be watched. */
  starts(name: string, key: string): void {
    this.record.current = { name, key };
    this.#save();
  }

  stage(stage: StageRecord<unknown>): void {
    const entry = { name: stage.name, key: stage.key, elapsedMs: stage.elapsedMs, cached: stage.cached };
    this.record.stages.push(entry);
    this.record.current = null;
    this.#save();
  }

  set(values: Partial<Pick<RunRecord, "environment" | "samples">>): void {
    Object.assign(this.record, values);
    this.#save();
  }

  outcomes(outcomes: TaskOutcome[]): void {
    writeAtomic(join(this.dir, "outcomes.jsonl"), outcomes.map((o) => `${JSON.stringify(o)}\n`).join(""));
    this.#index.putOutcomes(this.record.id, outcomes);
  }

  trajectories(list: StoredTrajectory[]): void {
    writeTrajectories(join(this.dir, "trajectories.jsonl.gz"), list);
    this.#index.trajectories.sync(this.record.id);
  }

  finish(status: "done" | "failed" | "stopped", error: string | null = null): void {
    this.record.status = status;
    this.record.current = null;
    this.record.error = error;
    this.record.finished = new Date().toISOString();
    this.#save();
    this.#index.close();
  }
}

/** Trajectories as gzip-compressed JSON lines. */
export function writeTrajectories(path: string, list: StoredTrajectory[]): void {
  writeAtomic(path, Bun.gzipSync(new TextEncoder().encode(list.map((t) => `${JSON.stringify(t)}\n`).join(""))));
}

export function readTrajectories(path: string): StoredTrajectory[] {
  if (!existsSync(path)) return [];
  const text = new TextDecoder().decode(Bun.gunzipSync(readFileSync(path)));
  return text.split("\n").flatMap((line) => (line === "" ? [] : [JSON.parse(line) as StoredTrajectory]));
}
