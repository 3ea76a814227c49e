/**
 * The trajectories of all runs, in results/index.sqlite: what lists filter by, and where each lies in its run's trajectories.jsonl.gz.
 * The files are the truth. A file that is new or has changed is read again; one that is gone takes its rows with it.
 */
import type { Database, SQLQueryBindings } from "bun:sqlite";
import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { episodeMetrics } from "../bench/metrics.ts";
import type { StoredTrajectory } from "./run.ts";

export const TRAJECTORY_TABLES = `
CREATE TABLE IF NOT EXISTS trajectory_files (run TEXT PRIMARY KEY REFERENCES runs(id) ON DELETE CASCADE, stamp TEXT NOT NULL, broken INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS trajectories (
  id INTEGER PRIMARY KEY, run TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE, n INTEGER NOT NULL, benchmark TEXT NOT NULL, grp TEXT NOT NULL,
  label TEXT NOT NULL, task TEXT NOT NULL, trial INTEGER NOT NULL, paradigm TEXT NOT NULL, policy TEXT NOT NULL, ended TEXT NOT NULL, success REAL,
  turns INTEGER NOT NULL, calls INTEGER NOT NULL, width REAL NOT NULL, makespan REAL NOT NULL, faults TEXT NOT NULL,
  trajectory REAL, phase REAL, format REAL, request TEXT NOT NULL, start INTEGER NOT NULL, bytes INTEGER NOT NULL, UNIQUE (run, n)
) STRICT;
CREATE INDEX IF NOT EXISTS trajectories_by_task ON trajectories(benchmark, task);
CREATE VIRTUAL TABLE IF NOT EXISTS trajectory_text USING fts5(text, content='', contentless_delete=1);
CREATE TRIGGER IF NOT EXISTS trajectory_gone AFTER DELETE ON trajectories BEGIN DELETE FROM trajectory_text WHERE rowid = old.id; END;
`;

/** One row of a list. */
export interface TrajectoryRow {
  id: number;
  run: string;
  /** Line of the run's file, from 0. */
  n: number;
  benchmark: string;
  group: string;
  label: string;
  task: string;
  trial: number;
  paradigm: string;
  policy: string;
  ended: string;
  success: number | null;
  turns: number;
  calls: number;
  width: number;
  makespan: number;
  /** Kinds of fault met, "|" around each; "" for none. */
  faults: string;
  trajectory: number | null;
  phase: number | null;
  format: number | null;
  /** The start of the request. */
  request: string;
}

export const REWARD_CHANNELS = ["trajectory", "phase", "format"] as const;

export interface TrajectoryFilter {
  run?: string | undefined;
  benchmark?: string | undefined;
  group?: string | undefined;
  label?: string | undefined;
  paradigm?: string | undefined;
  success?: "yes" | "no" | "unmeasured" | undefined;
  /** A kind of fault, "any" or "none". */
  fault?: string | undefined;
  channel?: (typeof REWARD_CHANNELS)[number] | undefined;
  min?: number | undefined;
  max?: number | undefined;
  /** Words that request, replies, tool names or answer must all hold; the last may be a beginning. */
  text?: string | undefined;
}

/** Counted values of the columns that lists filter by. */
export type TrajectoryFacets = Record<
  "benchmark" | "group" | "label" | "paradigm" | "fault",
  { value: string; count: number }[]
>;

const COLUMNS =
  'id, run, n, benchmark, grp AS "group", label, task, trial, paradigm, policy, ended, success, turns, calls, width, makespan, faults, trajectory, phase, format, request';
const REQUEST_SHOWN = 300;
const TEXT_INDEXED = 20_000;
/** Decompressed files kept for reading single trajectories, in bytes. */
const KEPT_BYTES = 256 * 2 ** 20;

export class TrajectoryIndex {
  readonly #db: Database;
  readonly #root: string;
  readonly #files = new Map<string, { stamp: string; bytes: Uint8Array }>();
  #facets: { version: string; facets: Map<string, TrajectoryFacets> } = { version: "", facets: new Map() };
  #changes = 0;

  constructor(db: Database, root: string) {
    this.#db = db;
    this.#root = root;
    db.run(TRAJECTORY_TABLES);
  }

  #path(run: string): string {
    return join(this.#root, run, "trajectories.jsonl.gz");
  }

  /** Reads the file of a run again where it has changed since it was read last. Lines that are not trajectories are counted and left out. */
  sync(run: string): void {
    const stamp = stampOf(this.#path(run));
    const known = this.#db
      .query<{ stamp: string }, [string]>("SELECT stamp FROM trajectory_files WHERE run = ?")
      .get(run);
    if ((known?.stamp ?? "") === stamp) return;
    const lines = stamp === "" ? [] : linesOf(this.#read(run, stamp));
    const insert = this.#db.query(
      `INSERT INTO trajectories VALUES (${Array.from({ length: 23 }, () => "?").join(", ")})`,
    );
    const text = this.#db.query("INSERT INTO trajectory_text (rowid, text) VALUES (?, ?)");
    this.#db.transaction(() => {
      this.#db.query("DELETE FROM trajectories WHERE run = ?").run(run);
      let broken = 0;
      lines.forEach(({ start, bytes, line }, n) => {
        const stored = parseStored(line());
        if (!stored) {
          broken++;
          return;
        }
        const { trajectory: t, rewards } = stored;
        const m = episodeMetrics(t);
        const { lastInsertRowid } = insert.run(
          null,
          run,
          n,
          stored.benchmark,
          stored.group,
          stored.label,
          t.taskId,
          stored.trial,
          t.paradigm,
          t.policy,
          t.end,
          stored.success,
          m.turns,
          m.toolCalls,
          m.width,
          m.makespanMs,
          faultsOf(stored),
          rewards?.trajectory ?? null,
          rewards?.phase ?? null,
          rewards?.format ?? null,
          t.request.slice(0, REQUEST_SHOWN),
          start,
          bytes,
        );
        text.run(lastInsertRowid, searchable(stored));
      });
      if (stamp === "") this.#db.query("DELETE FROM trajectory_files WHERE run = ?").run(run);
      else this.#db.query("INSERT OR REPLACE INTO trajectory_files VALUES (?, ?, ?)").run(run, stamp, broken);
    })();
    this.#changes++;
  }

  /** sync() over runs; a file that cannot be read is passed over and returned with the reason. */
  syncAll(runs: string[]): { run: string; reason: string }[] {
    return runs.flatMap((run) => {
      try {
        this.sync(run);
        return [];
      } catch (error) {
        return [{ run, reason: error instanceof Error ? error.message : String(error) }];
      }
    });
  }

  /** Rows that fit, in the order of the index. */
  list(filter: TrajectoryFilter, page: { limit: number; offset: number }): { rows: TrajectoryRow[]; total: number } {
    const { where, values } = condition(filter);
    const total = this.#db
      .query<{ c: number }, SQLQueryBindings[]>(`SELECT count(*) AS c FROM trajectories WHERE ${where}`)
      .get(...values)!.c;
    const rows = this.#db
      .query<TrajectoryRow, SQLQueryBindings[]>(
        `SELECT ${COLUMNS} FROM trajectories WHERE ${where} ORDER BY id LIMIT ? OFFSET ?`,
      )
      .all(...values, page.limit, page.offset);
    return { rows, total };
  }

  /** The nearest row before or after one that fits. */
  beside(id: number, filter: TrajectoryFilter, way: "next" | "previous"): TrajectoryRow | null {
    const { where, values } = condition(filter);
    return this.#db
      .query<TrajectoryRow, SQLQueryBindings[]>(
        `SELECT ${COLUMNS} FROM trajectories WHERE id ${way === "next" ? ">" : "<"} ? AND ${where} ORDER BY id ${way === "next" ? "ASC" : "DESC"} LIMIT 1`,
      )
      .get(id, ...values);
  }

  row(run: string, n: number): TrajectoryRow | null {
    return this.#db
      .query<TrajectoryRow, [string, number]>(`SELECT ${COLUMNS} FROM trajectories WHERE run = ? AND n = ?`)
      .get(run, n);
  }

  /** Other trajectories of the same task, for setting two side by side. */
  sameTask(row: TrajectoryRow, limit: number): TrajectoryRow[] {
    return this.#db
      .query<TrajectoryRow, [string, string, number, string, number]>(
        `SELECT ${COLUMNS} FROM trajectories WHERE benchmark = ? AND task = ? AND id <> ? ORDER BY run <> ?, id LIMIT ?`,
      )
      .all(row.benchmark, row.task, row.id, row.run, limit);
  }

  /** Values to filter by, of one run or of all, most frequent first. */
  facets(run?: string): TrajectoryFacets {
    const version = `${this.#db.query<{ data_version: number }, []>("PRAGMA data_version").get()!.data_version}.${this.#changes}`;
    if (this.#facets.version !== version) this.#facets = { version, facets: new Map() };
    const known = this.#facets.facets.get(run ?? "");
    if (known) return known;
    const counts = { benchmark: tally(), group: tally(), label: tally(), paradigm: tally(), fault: tally() };
    const rows = this.#db
      .query<
        { benchmark: string; grp: string; label: string; paradigm: string; faults: string; c: number },
        SQLQueryBindings[]
      >(
        `SELECT benchmark, grp, label, paradigm, faults, count(*) AS c FROM trajectories ${run === undefined ? "" : "WHERE run = ?"} GROUP BY 1, 2, 3, 4, 5`,
      )
      .all(...(run === undefined ? [] : [run]));
    for (const r of rows) {
      counts.benchmark.add(r.benchmark, r.c);
      counts.group.add(r.grp, r.c);
      counts.label.add(r.label, r.c);
      counts.paradigm.add(r.paradigm, r.c);
      for (const kind of r.faults.split("|").filter(Boolean)) counts.fault.add(kind, r.c);
    }
    const facets = Object.fromEntries(
      Object.entries(counts).map(([name, t]) => [name, t.list()]),
    ) as unknown as TrajectoryFacets;
    this.#facets.facets.set(run ?? "", facets);
    return facets;
  }

  /** A whole trajectory. Null where its file is gone or has changed since it was indexed. */
  read(row: TrajectoryRow): StoredTrajectory | null {
    const at = this.#db
      .query<{ start: number; bytes: number; stamp: string }, [number]>(
        "SELECT start, bytes, stamp FROM trajectories JOIN trajectory_files USING (run) WHERE id = ?",
      )
      .get(row.id);
    if (!at || stampOf(this.#path(row.run)) !== at.stamp) return null;
    const bytes = this.#read(row.run, at.stamp).subarray(at.start, at.start + at.bytes);
    return parseStored(new TextDecoder().decode(bytes));
  }

  /** The decompressed file, from the few that are kept. */
  #read(run: string, stamp: string): Uint8Array {
    const known = this.#files.get(run);
    this.#files.delete(run);
    const file =
      known?.stamp === stamp ? known : { stamp, bytes: Bun.gunzipSync(readFileSync(this.#path(run))) as Uint8Array };
    this.#files.set(run, file);
    let kept = [...this.#files.values()].reduce((sum, f) => sum + f.bytes.length, 0);
    for (const [oldest, f] of this.#files) {
      if (kept <= KEPT_BYTES || oldest === run) break;
      this.#files.delete(oldest);
      kept -= f.bytes.length;
    }
    return file.bytes;
  }
}

/** Size and time of change, "" where there is no file. */
function stampOf(path: string): string {
  const stat = statSync(path, { throwIfNoEntry: false });
  return stat ? `${stat.size}-${stat.mtimeMs}` : "";
}

function linesOf(bytes: Uint8Array): { start: number; bytes: number; line: () => string }[] {
  const lines: { start: number; bytes: number; line: () => string }[] = [];
  const decoder = new TextDecoder();
  for (let start = 0; start < bytes.length; ) {
    const found = bytes.indexOf(10, start);
    const end = found < 0 ? bytes.length : found;
    const from = start;
    if (end > start) lines.push({ start, bytes: end - start, line: () => decoder.decode(bytes.subarray(from, end)) });
    start = end + 1;
  }
  return lines;
}

function parseStored(line: string): StoredTrajectory | null {
  try {
    const stored = JSON.parse(line) as StoredTrajectory;
    return Array.isArray(stored?.trajectory?.turns) ? stored : null;
  } catch {
    // A line that a killed process left half-written.
    return null;
  }
}

function faultsOf({ trajectory }: StoredTrajectory): string {
  const kinds = new Set(trajectory.turns.flatMap((t) => t.calls.flatMap((c) => (c.fault ? [c.fault] : []))));
  return kinds.size === 0 ? "" : `|${[...kinds].sort().join("|")}|`;
}

/** What the search over trajectories looks at: the task, the request, the tools, what was written and answered. */
function searchable({ trajectory: t }: StoredTrajectory): string {
  const replies = t.turns.map((turn) => turn.reply).join("\n");
  return `${t.taskId}\n${t.request}\n${t.answer ?? ""}\n${replies}`.slice(0, TEXT_INDEXED);
}

function tally() {
  const counts = new Map<string, number>();
  return {
    add: (value: string, n: number) => void counts.set(value, (counts.get(value) ?? 0) + n),
    list: () =>
      [...counts]
        .map(([value, count]) => ({ value, count }))
        .sort((a, b) => b.count - a.count || (a.value < b.value ? -1 : 1)),
  };
}

/** Words as FTS5 reads them, quoted, so that no text is an operator; the last is a beginning. Null without words. */
function matchOf(text: string): string | null {
  const words = text.match(/[\p{L}\p{N}]+/gu) ?? [];
  return words.length === 0 ? null : `${words.map((w) => `"${w}"`).join(" AND ")}*`;
}

function condition(f: TrajectoryFilter): { where: string; values: SQLQueryBindings[] } {
  const parts: string[] = ["1"];
  const values: SQLQueryBindings[] = [];
  const add = (sql: string, ...bound: SQLQueryBindings[]) => {
    parts.push(sql);
    values.push(...bound);
  };
  for (const [column, value] of [
    ["run", f.run],
    ["benchmark", f.benchmark],
    ["grp", f.group],
    ["label", f.label],
    ["paradigm", f.paradigm],
  ] as const)
    if (value !== undefined) add(`${column} = ?`, value);
  if (f.success === "yes") add("success >= 1");
  if (f.success === "no") add("success < 1");
  if (f.success === "unmeasured") add("success IS NULL");
  if (f.fault === "any") add("faults <> ''");
  else if (f.fault === "none") add("faults = ''");
  else if (f.fault !== undefined) add("instr(faults, ?) > 0", `|${f.fault}|`);
  const channel = f.channel ?? "trajectory";
  if (f.min !== undefined) add(`${channel} >= ?`, f.min);
  if (f.max !== undefined) add(`${channel} <= ?`, f.max);
  const match = f.text === undefined ? null : matchOf(f.text);
  if (match !== null) add("id IN (SELECT rowid FROM trajectory_text WHERE trajectory_text MATCH ?)", match);
  return { where: parts.join(" AND "), values };
}
