/** What the notebooks share: reading results and the catalogue's files from Deno, and showing charts and tables. No Bun API is used here. */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { gunzipSync } from "node:zlib";
import type { TaskOutcome } from "../lib/bench/types.ts";
import type { RunRecord } from "../lib/runs/index-store.ts";
import type { StoredTrajectory } from "../lib/runs/run.ts";
import type { MetricLine } from "../lib/runs/stages.ts";
import { markdownTable, type Table } from "../lib/runs/table.ts";

export type { RunRecord, StoredTrajectory, TaskOutcome };

/** PARAAGENT_RESULTS, else results/ beside this folder. */
export const resultsRoot = resolve(process.env.PARAAGENT_RESULTS ?? join(import.meta.dirname!, "..", "results"));

/** JSON lines; a half-written last line is left out. */
function lines<T>(text: string): T[] {
  return text.split("\n").flatMap((line) => {
    try {
      return line === "" ? [] : [JSON.parse(line) as T];
    } catch {
      return [];
    }
  });
}

const read = (path: string): string => (existsSync(path) ? readFileSync(path, "utf8") : "");

/** Finished runs, newest first; of one experiment where named. */
export function runs(experiment?: string): RunRecord[] {
  if (!existsSync(resultsRoot)) return [];
  const out: RunRecord[] = [];
  for (const name of readdirSync(resultsRoot)) {
    if (name === "stages" || name === "notebooks" || (experiment !== undefined && name !== experiment)) continue;
    const folder = join(resultsRoot, name);
    for (const run of name.includes(".") ? [] : readdirSync(folder)) {
      const [record] = [read(join(folder, run, "run.json"))].filter(Boolean).map((t) => JSON.parse(t) as RunRecord);
      if (record?.status === "done") out.push(record);
    }
  }
  return out.sort((a, b) => (a.created < b.created ? 1 : -1));
}

export const outcomes = (run: RunRecord): TaskOutcome[] =>
  lines<TaskOutcome>(read(join(resultsRoot, run.id, "outcomes.jsonl")));

export function trajectories(run: RunRecord): StoredTrajectory[] {
  const path = join(resultsRoot, run.id, "trajectories.jsonl.gz");
  return existsSync(path) ? lines(new TextDecoder().decode(gunzipSync(readFileSync(path)))) : [];
}

/** Metric → points, of one stage of a run. */
export function curves(run: RunRecord, stage: string): Map<string, { x: number; y: number }[]> {
  const byName = new Map<string, { x: number; y: number }[]>();
  for (const s of run.stages.filter((s) => s.name === stage))
    for (const line of lines<MetricLine>(read(join(resultsRoot, "stages", `${s.name}-${s.key}`, "metrics.jsonl"))))
      for (const [name, value] of Object.entries(line)) {
        if (typeof value !== "number" || name === "step" || name === "time") continue;
        const points = byName.get(name) ?? [];
        points.push({ x: line.step, y: value });
        byName.set(name, points);
      }
  return byName;
}

/** Tasks of the newest task stage of a run. */
export function tasks<T>(run: RunRecord, split: "train" | "heldout"): T[] {
  const stage = run.stages.find((s) => s.name === "tasks");
  return stage ? lines<T>(read(join(resultsRoot, "stages", `tasks-${stage.key}`, `${split}.jsonl`))) : [];
}

const COLOURS = ["#1f6fc4", "#c1560a", "#2b8a4b", "#b3365f", "#7650c7", "#0d8390", "#8a6d00", "#6b6f78"];

/** Charts (SVG text of lib/web/chart.ts or of Observable Plot) side by side, on a light card. */
export function show(...charts: string[]): unknown {
  const colours = COLOURS.map((c, i) => `--c${i}:${c}`).join(";");
  const cards = charts.map((svg) => `<div style="display:inline-block;margin:4px">${svg}</div>`).join("");
  return html(`<div style="background:#fff;color:#444;padding:6px;--line:#ddd;${colours}">${cards}</div>`);
}

/** Something that Jupyter shows as HTML. */
export const html = (text: string): unknown => ({ [Symbol.for("Jupyter.display")]: () => ({ "text/html": text }) });

/** Something that Jupyter shows as Markdown. */
export const markdown = (text: string): unknown => ({
  [Symbol.for("Jupyter.display")]: () => ({ "text/markdown": text, "text/plain": text }),
});

export const table = (t: Table): unknown => markdown(markdownTable(t));

/** What to do where there is nothing to read yet. */
export const missing = (what: string, command: string): unknown =>
  markdown(`**No ${what} yet.** Make some with \`${command}\`, then run this notebook again.`);
