/** results/index.sqlite: all runs and their outcomes, for comparing and browsing. The run folders are the truth; the index is rebuilt from them. */
import { Database } from "bun:sqlite";
import { existsSync, mkdirSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import type { TaskOutcome } from "../bench/types.ts";
import { TrajectoryIndex } from "./trajectory-index.ts";

export type RunStatus = "running" | "done" | "failed" | "stopped";

/** run.json of a run folder. */
export interface RunRecord {
  /** "<experiment>/<run>", also the folder under results/. */
  id: string;
  experiment: string;
  cell: string;
  seed: number;
  status: RunStatus;
  /** What went wrong, for failed runs. */
  error: string | null;
  /** ISO 8601 times. */
  created: string;
  finished: string | null;
  /** Resolved settings. */
  config: unknown;
  /** Versions, machine, adapter, commit. */
  environment: Record<string, unknown>;
  /** Stage name → key, milliseconds, whether it came from the cache. */
  stages: { name: string; key: string; elapsedMs: number; cached: boolean }[];
  /** The stage that is being made, while the run is running. */
  current?: { name: string; key: string } | null;
  /** True where a benchmark's own files were missing and the project's samples stood in. */
  samples: string[];
}

const SCHEMA = `
CREATE TABLE IF NOT EXISTS runs (
  id TEXT PRIMARY KEY, experiment TEXT NOT NULL, cell TEXT NOT NULL, seed INTEGER NOT NULL, status TEXT NOT NULL,
  created TEXT NOT NULL, finished TEXT, record TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS outcomes (
  run TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE, benchmark TEXT NOT NULL, label TEXT NOT NULL, grp TEXT NOT NULL,
  task TEXT NOT NULL, trial INTEGER NOT NULL, success REAL, outcome TEXT NOT NULL,
  PRIMARY KEY (run, benchmark, label, task, trial)
) STRICT;
CREATE INDEX IF NOT EXISTS outcomes_by_run ON outcomes(run, benchmark, label);
PRAGMA user_version = 1;
`;

interface OutcomeRow {
  outcome: string;
}

export class RunIndex {
  #db: Database;
  /** The runs' trajectories, for lists and single ones. */
  readonly trajectories: TrajectoryIndex;

  /** Opens or makes the index of a results folder; a broken file is set aside and rebuilt from the run folders. */
  constructor(readonly root: string) {
    mkdirSync(root, { recursive: true });
    const path = join(root, "index.sqlite");
    const fresh = !existsSync(path);
    this.#db = new Database(path, { create: true });
    // Before the journal mode: changing that needs the file alone, which another process may have just made.
    this.#db.run("PRAGMA busy_timeout = 10000");
    this.#db.run("PRAGMA journal_mode = WAL");
    this.#db.run("PRAGMA foreign_keys = ON");
    this.#db.run(SCHEMA);
    this.trajectories = new TrajectoryIndex(this.#db, root);
    if (fresh) this.rebuild();
  }

  put(record: RunRecord): void {
    this.#db
      .query(
        `INSERT INTO runs (id, experiment, cell, seed, status, created, finished, record) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
         ON CONFLICT(id) DO UPDATE SET status = ?5, finished = ?7, record = ?8`,
      )
      .run(
        record.id,
        record.experiment,
        record.cell,
        record.seed,
        record.status,
        record.created,
        record.finished,
        JSON.stringify(record),
      );
  }

  /** Replaces the outcomes of a run, all or nothing. */
  putOutcomes(run: string, outcomes: TaskOutcome[]): void {
    const insert = this.#db.query("INSERT OR REPLACE INTO outcomes VALUES (?, ?, ?, ?, ?, ?, ?, ?)");
    this.#db.transaction(() => {
      this.#db.query("DELETE FROM outcomes WHERE run = ?").run(run);
      for (const o of outcomes) {
        insert.run(run, o.benchmark, o.label, o.group, o.task, o.trial, o.success, JSON.stringify(o));
      }
    })();
  }

  runs(): RunRecord[] {
    return this.#db
      .query<{ record: string }, []>("SELECT record FROM runs ORDER BY created DESC, id")
      .all()
      .map((row) => JSON.parse(row.record) as RunRecord);
  }

  run(id: string): RunRecord | null {
    const row = this.#db.query<{ record: string }, [string]>("SELECT record FROM runs WHERE id = ?").get(id);
    return row ? (JSON.parse(row.record) as RunRecord) : null;
  }

  outcomes(run: string): TaskOutcome[] {
    return this.#db
      .query<OutcomeRow, [string]>(
        "SELECT outcome FROM outcomes WHERE run = ? ORDER BY benchmark, label, grp, task, trial",
      )
      .all(run)
      .map((row) => JSON.parse(row.outcome) as TaskOutcome);
  }

  outcomeCount(run: string): number {
    return this.#db.query<{ c: number }, [string]>("SELECT count(*) AS c FROM outcomes WHERE run = ?").get(run)!.c;
  }

  remove(run: string): void {
    this.#db.query("DELETE FROM runs WHERE id = ?").run(run);
  }

  /** Reads every run folder again. Folders without a readable run.json are passed over and returned. */
  rebuild(): string[] {
    const skipped: string[] = [];
    for (const folder of runFolders(this.root)) {
      try {
        const record = JSON.parse(readFileSync(join(folder, "run.json"), "utf8")) as RunRecord;
        this.put(record);
        this.putOutcomes(record.id, readOutcomes(folder));
        this.trajectories.sync(record.id);
      } catch {
        skipped.push(folder);
      }
    }
    return skipped;
  }

  close(): void {
    this.#db.close();
  }
}

/** Folders <root>/<experiment>/<run> that hold a run.json. */
export function runFolders(root: string): string[] {
  const folders: string[] = [];
  for (const experiment of readdirSync(root, { withFileTypes: true })) {
    if (!experiment.isDirectory() || experiment.name === "stages") continue;
    for (const run of readdirSync(join(root, experiment.name), { withFileTypes: true })) {
      const folder = join(root, experiment.name, run.name);
      if (run.isDirectory() && existsSync(join(folder, "run.json"))) folders.push(folder);
    }
  }
  return folders.sort();
}

/** outcomes.jsonl of a run folder; lines that are not JSON are left out. */
export function readOutcomes(folder: string): TaskOutcome[] {
  const path = join(folder, "outcomes.jsonl");
  if (!existsSync(path)) return [];
  const outcomes: TaskOutcome[] = [];
  for (const line of readFileSync(path, "utf8").split("\n")) {
    if (line === "") continue;
    try {
      outcomes.push(JSON.parse(line) as TaskOutcome);
    } catch {
      // A line cut off by a kill: the stage that wrote it runs again and writes it whole.
    }
  }
  return outcomes;
}

/** The results folder of a run id; ids that leave the results folder are refused. */
export function runFolder(root: string, id: string): string {
  if (!/^[A-Za-z0-9][\w.,=+-]*\/[A-Za-z0-9][\w.,=+-]*$/.test(id) || id.includes("..")) {
    throw new UnknownRunError(
      `"${id}" is not the name of a run. A run is named <experiment>/<run>, as bun run compare lists them.`,
    );
  }
  return join(root, dirname(id), id.slice(id.indexOf("/") + 1));
}

/** No run of that name. */
export class UnknownRunError extends Error {
  override name = "UnknownRunError";
}
