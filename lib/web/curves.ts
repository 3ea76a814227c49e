/** Metric files of stages as curves. Files are read again only where they have changed. */
import { existsSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import type { RunRecord } from "../runs/index-store.ts";
import { type MetricLine, readMetrics } from "../runs/stages.ts";
import { Recent } from "./cache.ts";
import type { Point } from "./chart.ts";

export interface Curve {
  stage: string;
  metric: string;
  points: Point[];
}

const files = new Recent<{ lines: MetricLine[]; broken: number }>(400);

/** Stages of a run: those that are done, and the one that is being made. */
export function stageFolders(root: string, record: RunRecord): { name: string; key: string; dir: string }[] {
  const current = record.status === "running" && record.current ? [record.current] : [];
  return [...record.stages, ...current]
    .filter((s) => /^[\w-]+$/.test(s.name) && /^\w+$/.test(s.key))
    .map(({ name, key }) => ({ name, key, dir: join(root, "stages", `${name}-${key}`) }));
}

/** What changes when a run moves on: sizes and times of its metric files and its record. */
export function runVersion(root: string, record: RunRecord): string {
  return [
    record.status,
    record.stages.length,
    ...stageFolders(root, record).map(({ dir }) => stamp(join(dir, "metrics.jsonl"))),
  ].join(" ");
}

const stamp = (path: string): string => {
  const stat = statSync(path, { throwIfNoEntry: false });
  return stat ? `${stat.size}-${stat.mtimeMs}` : "";
};

/** All curves of a run, in the order in which the metrics were first written. Values that are not finite are left out. */
export function curvesOf(root: string, record: RunRecord): { curves: Curve[]; broken: number } {
  const byName = new Map<string, Curve>();
  let broken = 0;
  for (const { name, dir } of stageFolders(root, record)) {
    const path = join(dir, "metrics.jsonl");
    const read = files.get(`${path} ${stamp(path)}`, () => readMetrics(path));
    broken += read.broken;
    for (const line of read.lines) {
      if (typeof line?.step !== "number") continue;
      for (const [metric, value] of Object.entries(line)) {
        if (typeof value !== "number" || metric === "step" || metric === "time") continue;
        const key = `${name} · ${metric}`;
        let curve = byName.get(key);
        if (!curve) byName.set(key, (curve = { stage: name, metric, points: [] }));
        curve.points.push({ x: line.step, y: value });
      }
    }
  }
  return { curves: [...byName.values()], broken };
}

/** What is looked at first, by the names that training gives its metrics. */
const FIRST = [
  /^loss$/i,
  /^(heldout|validation)/i,
  /^reward_?trajectory$/i,
  /^reward_?phase$/i,
  /^reward_?format$/i,
  /success/i,
  /^kl/i,
  /entropy/i,
  /turns/i,
  /width/i,
  /flat/i,
];
const rank = (metric: string): number => {
  const at = FIRST.findIndex((pattern) => pattern.test(metric));
  return at < 0 ? FIRST.length : at;
};
export const mainCurves = (curves: Curve[], most: number): Curve[] =>
  curves
    .map((curve, i) => ({ curve, i }))
    .sort((a, b) => rank(a.curve.metric) - rank(b.curve.metric) || a.i - b.i)
    .slice(0, most)
    .sort((a, b) => a.i - b.i)
    .map(({ curve }) => curve);

export interface StoredFile {
  stage: string;
  name: string;
  bytes: number;
  changed: string;
}

/** Checkpoint folders, and log files, of a run's stages. */
export function filesOf(root: string, record: RunRecord): { checkpoints: StoredFile[]; logs: StoredFile[] } {
  const checkpoints: StoredFile[] = [];
  const logs: StoredFile[] = [];
  const entry = (stage: string, name: string, path: string): StoredFile[] => {
    const stat = statSync(path, { throwIfNoEntry: false });
    if (!stat) return [];
    const bytes = stat.isDirectory() ? folderBytes(path) : stat.size;
    return [{ stage, name, bytes, changed: stat.mtime.toISOString() }];
  };
  const places = [
    ...stageFolders(root, record).map((s) => ({ stage: `${s.name}-${s.key}`, dir: s.dir })),
    { stage: "run", dir: join(root, record.id) },
  ];
  for (const { stage, dir } of places) {
    for (const name of list(join(dir, "checkpoints")))
      if (/^step-\d+$/.test(name)) checkpoints.push(...entry(stage, name, join(dir, "checkpoints", name)));
    for (const name of ["model", "last"])
      if (existsSync(join(dir, name))) checkpoints.push(...entry(stage, name, join(dir, name)));
    for (const name of list(dir))
      if (/^[\w.-]+\.(log|out|err)$/.test(name)) logs.push(...entry(stage, name, join(dir, name)));
  }
  return { checkpoints, logs };
}

const list = (dir: string): string[] => (existsSync(dir) ? readdirSync(dir).sort() : []);

/** Bytes of all files below a folder; what vanishes meanwhile counts nothing. */
export function folderBytes(dir: string): number {
  return readdirSync(dir, { recursive: true, withFileTypes: true }).reduce(
    (sum, f) => sum + (f.isFile() ? (statSync(join(f.parentPath, f.name), { throwIfNoEntry: false })?.size ?? 0) : 0),
    0,
  );
}
