/** Comparing runs: means with 95 % intervals, paired differences over the same tasks, Holm's correction. Never a bare mean. */
import { z } from "zod";
import type { TaskOutcome } from "../bench/types.ts";
import type { RunRecord } from "./index-store.ts";
import { type Difference, difference, holm, type Interval, interval, passAtK, passHatK } from "./statistics.ts";
import type { Table } from "./table.ts";

/** What is compared: outcomes of one label of one experiment cell; several seeds are columns of it. */
export interface Arm {
  name: string;
  benchmark: string;
  sample: boolean;
  /** task → seed → success summed over trials, and how many. */
  success: Map<string, Map<number, { sum: number; n: number }>>;
  outcomes: TaskOutcome[];
}

/** Checkpoints in the order in which they are made, then the policies that need no training. */
const LABELS = ["before", "after pretraining", "after SFT", "after RL"].flatMap((checkpoint) => [
  checkpoint,
  `${checkpoint}, unconstrained`,
  `${checkpoint}, sampled`,
]);
const rank = (label: string): number => (LABELS.indexOf(label) + LABELS.length + 1) % (LABELS.length + 1);

/** The policies that a run evaluates: runs of one cell that evaluate others stand side by side. */
function policiesOf({ config }: RunRecord): unknown {
  const evaluated = z.object({ stages: z.object({ evaluate: z.object({ policies: z.array(z.string()) }) }) });
  return evaluated.safeParse(config).data?.stages.evaluate.policies ?? null;
}

/**
 * The newest run of each experiment, cell and seed, in the order in which they were made: runs of the same cell with other settings can't stand in
 * one arm. `older` are those left out.
 */
export function newestRuns(runs: readonly RunRecord[]): { runs: RunRecord[]; older: RunRecord[] } {
  const byCell = new Map<string, RunRecord>();
  const older: RunRecord[] = [];
  for (const run of [...runs].sort((a, b) => (a.created < b.created ? -1 : a.created > b.created ? 1 : 0))) {
    const key = JSON.stringify([run.experiment, run.cell, run.seed, policiesOf(run)]);
    const before = byCell.get(key);
    if (before) older.push(before);
    byCell.set(key, run);
  }
  return { runs: [...byCell.values()], older };
}

/** Groups outcomes into arms by (experiment, cell, label, benchmark). Runs that differ only in the seed are one arm. */
export function arms(runs: { record: RunRecord; outcomes: TaskOutcome[] }[]): Arm[] {
  const single = new Set(runs.map((r) => r.record.experiment)).size === 1;
  const byKey = new Map<string, Arm>();
  for (const { record, outcomes } of runs) {
    for (const o of [...outcomes].sort((a, b) => rank(a.label) - rank(b.label))) {
      const name = [single ? "" : record.experiment, record.cell, o.label].filter(Boolean).join(" · ");
      const key = `${o.benchmark}\n${name}`;
      let arm = byKey.get(key);
      if (!arm) {
        arm = {
          name,
          benchmark: o.benchmark,
          sample: record.samples.includes(o.benchmark),
          success: new Map(),
          outcomes: [],
        };
        byKey.set(key, arm);
      }
      arm.outcomes.push(o);
      if (o.success === null) continue;
      const seeds = arm.success.get(o.task) ?? new Map<number, { sum: number; n: number }>();
      const cell = seeds.get(record.seed) ?? { sum: 0, n: 0 };
      seeds.set(record.seed, { sum: cell.sum + o.success, n: cell.n + 1 });
      arm.success.set(o.task, seeds);
    }
  }
  return [...byKey.values()].sort((a, b) => (a.benchmark === b.benchmark ? 0 : a.benchmark < b.benchmark ? -1 : 1));
}

function matrix(arm: Arm, tasks: string[], seeds: number[]): number[][] {
  return tasks.map((t) =>
    seeds.map((s) => {
      const cell = arm.success.get(t)?.get(s);
      return cell ? cell.sum / cell.n : Number.NaN;
    }),
  );
}

function seedsOf(arm: Arm): number[] {
  return [...new Set([...arm.success.values()].flatMap((m) => [...m.keys()]))].sort((a, b) => a - b);
}

export function armInterval(arm: Arm): Interval | null {
  if (arm.success.size === 0) return null;
  return interval(matrix(arm, [...arm.success.keys()].sort(), seedsOf(arm)));
}

/** b − a over the tasks and seeds that both have; null where they share none. */
export function armDifference(a: Arm, b: Arm): Difference | null {
  const tasks = [...a.success.keys()].filter((t) => b.success.has(t)).sort();
  const inB = new Set(seedsOf(b));
  const seeds = seedsOf(a).filter((s) => inB.has(s));
  if (tasks.length === 0 || seeds.length === 0) return null;
  return difference(matrix(b, tasks, seeds), matrix(a, tasks, seeds));
}

const percent = (x: number): string => (Number.isNaN(x) ? "n/a" : (100 * x).toFixed(1));
const minus = (x: number): string => (Number.isNaN(x) ? "n/a" : `${x < 0 ? "−" : "+"}${Math.abs(100 * x).toFixed(1)}`);

/**
 * Mean of a measure with 1.96 standard errors, over tasks: the runs of one task (trials, seeds) are averaged first, since they are not
 * independent. "n/a" as the half-width where there is one task.
 */
function average(outcomes: TaskOutcome[], value: (o: TaskOutcome) => number | undefined): string {
  const byTask = new Map<string, { sum: number; n: number }>();
  for (const o of outcomes) {
    const v = value(o);
    if (v === undefined || Number.isNaN(v)) continue;
    const { sum, n } = byTask.get(o.task) ?? { sum: 0, n: 0 };
    byTask.set(o.task, { sum: sum + v, n: n + 1 });
  }
  const values = [...byTask.values()].map(({ sum, n }) => sum / n);
  if (values.length === 0) return "–";
  const m = values.reduce((a, b) => a + b, 0) / values.length;
  const half =
    values.length > 1
      ? 1.96 * Math.sqrt(values.reduce((s, v) => s + (v - m) ** 2, 0) / (values.length - 1) / values.length)
      : Number.NaN;
  const digits = Math.abs(m) >= 100 ? 0 : Math.abs(m) >= 10 ? 1 : 2;
  return `${m.toFixed(digits)} ±${Number.isNaN(half) ? "n/a" : half.toFixed(digits)}`;
}

/** What every table reports of an arm's episodes besides success (method.md section 7). */
function measures(outcomes: TaskOutcome[], scoreNames: readonly string[]): string[] {
  return [
    ...scoreNames.map((s) => average(outcomes, (o) => o.scores[s])),
    average(outcomes, (o) => o.turns),
    average(outcomes, (o) => o.searches),
    average(outcomes, (o) => o.toolCalls),
    average(outcomes, (o) => o.tokens),
    average(outcomes, (o) => o.phases),
    average(outcomes, (o) => (o.toolCalls > 0 ? o.width : undefined)),
    average(outcomes, (o) => o.makespanMs / 1000),
    average(outcomes, (o) => (o.serialMs > 0 ? o.makespanMs / o.serialMs : undefined)),
    average(outcomes, (o) => (o.faultsMet > 0 ? o.faultsRecovered / o.faultsMet : undefined)),
  ];
}

const MEASURES = [
  "turns",
  "searches",
  "calls",
  "tokens",
  "phases",
  "width",
  "makespan s",
  "makespan/serial",
  "faults recovered",
];

const HALF_WIDTHS = "± is 1.96 standard errors over tasks (normal approximation); [ ] is the bootstrap's 95 %";

const RUNS_NOTE = "pass@k, pass^k: one, or all, of k runs of a task succeed; runs are trials and seeds alike";

function scoreNamesOf(all: readonly Arm[]): string[] {
  return [...new Set(all.flatMap((a) => a.outcomes.flatMap((o) => Object.keys(o.scores))))].sort();
}

/** Kinds of error that the benchmark counts, summed over the arm's episodes. */
function errorNote(arm: Arm): string[] {
  const counts = new Map<string, number>();
  for (const o of arm.outcomes)
    for (const [kind, n] of Object.entries(o.errors)) counts.set(kind, (counts.get(kind) ?? 0) + n);
  const said = [...counts].filter(([, n]) => n > 0).map(([kind, n]) => `${kind} ${n}`);
  return said.length > 0 ? [`errors of ${arm.name}: ${said.join(", ")}`] : [];
}

/** A comparison in which nothing ever succeeds compares nothing, whatever its intervals. */
function floorNote(here: readonly Arm[]): string[] {
  const measured = here.filter((a) => a.success.size > 0);
  const floor = measured.filter((a) => a.outcomes.every((o) => !o.success));
  if (floor.length < 2) return [];
  return [
    `${floor.length === measured.length ? "no arm" : `${floor.length} of ${measured.length} arms never`} succeed${floor.length === measured.length ? "s" : ""} at a single task: of those this table shows no difference, only that the setting is too small or too hard for them`,
  ];
}

function titleOf(benchmark: string, here: readonly Arm[]): string {
  return `${benchmark}${here.some((a) => a.sample) ? " (SAMPLE TASKS of this project, not the benchmark)" : ""}`;
}

function successCell(arm: Arm): string {
  const value = armInterval(arm);
  return value ? `${percent(value.mean)} [${percent(value.low)}, ${percent(value.high)}]` : "not measured";
}

/** An arm's episodes of one group. */
function ofGroup(arm: Arm, group: string): Arm {
  const outcomes = arm.outcomes.filter((o) => o.group === group);
  const tasks = new Set(outcomes.map((o) => o.task));
  return { ...arm, outcomes, success: new Map([...arm.success].filter(([task]) => tasks.has(task))) };
}

/** One table an arm and benchmark: a row a group of tasks, then all. */
export function groupTables(all: Arm[], notes: Record<string, string[]> = {}): Table[] {
  return all.map((arm) => {
    const scoreNames = scoreNamesOf([arm]);
    const groups = [...new Set(arm.outcomes.map((o) => o.group))].sort();
    const parts = [...groups.map((g) => ({ name: g, part: ofGroup(arm, g) })), { name: "all", part: arm }];
    const withPass = passColumns(arm);
    return {
      title: `${titleOf(arm.benchmark, [arm])} · ${arm.name}`,
      columns: [
        "group",
        "tasks",
        "success % [95 %]",
        ...(withPass ? [`pass@${withPass.n} / pass^${withPass.n} %`] : []),
        ...scoreNames,
        ...MEASURES,
      ],
      rows: parts.map(({ name, part }) => {
        const pass = passColumns(part);
        return [
          name,
          String(new Set(part.outcomes.map((o) => o.task)).size),
          successCell(part),
          ...(withPass ? [pass ? `${pass.at} / ${pass.hat}` : "–"] : []),
          ...measures(part.outcomes, scoreNames),
        ];
      }),
      notes: [HALF_WIDTHS, ...(withPass ? [RUNS_NOTE] : []), ...errorNote(arm), ...(notes[arm.benchmark] ?? [])],
    };
  });
}

/** Each task's runs: whether they succeed. */
function runsOf(arm: Arm): Map<string, number[]> {
  const byTask = new Map<string, number[]>();
  for (const o of arm.outcomes) {
    if (o.success !== null) byTask.set(o.task, [...(byTask.get(o.task) ?? []), o.success >= 1 ? 1 : 0]);
  }
  return byTask;
}

/** The most runs that every task of an arm has; 0 without tasks. */
function fewestRuns(arm: Arm): number {
  const runs = [...runsOf(arm).values()].map((v) => v.length);
  return runs.length === 0 ? 0 : Math.min(...runs);
}

/** pass@k and pass^k where every task was run k times or more; null where k is less than 2. */
function passColumns(arm: Arm, k = fewestRuns(arm)): { n: number; at: string; hat: string } | null {
  const byTask = runsOf(arm);
  if (k < 2 || fewestRuns(arm) < k) return null;
  const over = (f: (n: number, c: number, k: number) => number) =>
    percent(
      [...byTask.values()].reduce(
        (s, v) =>
          s +
          f(
            v.length,
            v.reduce((a, b) => a + b, 0),
            k,
          ),
        0,
      ) / byTask.size,
    );
  return { n: k, at: over(passAtK), hat: over(passHatK) };
}

/** The arms with those of a label before the others: what differences are taken to. */
export function withBaseline(all: readonly Arm[], label: string): Arm[] {
  const own = (arm: Arm) => arm.outcomes.some((o) => o.label === label);
  return [...all.filter(own), ...all.filter((arm) => !own(arm))];
}

/** How an arm was played, as its label says behind the checkpoint: ", unconstrained", ", sampled", or nothing for greedy decoding under masks. */
const manner = (arm: Arm): string => /, (unconstrained|sampled)$/.exec(arm.outcomes[0]?.label ?? "")?.[0] ?? "";

/**
 * What an arm's difference is taken to: the first arm; with a `baseline`, the first of that label that was played in the arm's own manner, so that a
 * difference is one of training and not of decoding. Null for a baseline itself.
 */
function baselineOf(arm: Arm, here: readonly Arm[], baseline: string | undefined): Arm | null {
  const alike = here.find((a) => a.outcomes[0]?.label === `${baseline}${manner(arm)}`);
  const base = alike ?? here[0]!;
  return base === arm ? null : base;
}

/**
 * One table a benchmark: each arm with its interval, the difference to the first arm (or to those of the label `baseline`, each to the one that was
 * played alike), and what it cost.
 */
export function compareTables(all: Arm[], notes: Record<string, string[]> = {}, baseline?: string): Table[] {
  const tables: Table[] = [];
  for (const benchmark of new Set(all.map((a) => a.benchmark))) {
    const here = all.filter((a) => a.benchmark === benchmark);
    const differences = here.map((arm) => {
      const base = baselineOf(arm, here, baseline);
      return base && armDifference(base, arm);
    });
    const adjusted = holm(differences.map((d) => d?.p ?? Number.NaN));
    const scoreNames = scoreNamesOf(here);
    // One k for all arms that have runs enough.
    const k = Math.min(...here.map(fewestRuns).filter((n) => n > 1));
    const passes = here.map((arm) => (Number.isFinite(k) ? passColumns(arm, k) : null));
    const withPass = passes.some((p) => p !== null);
    const rows = here.map((arm, i) => {
      const value = armInterval(arm);
      const d = differences[i];
      const holds = d && !Number.isNaN(d.low) && (d.low > 0 || d.high < 0) && adjusted[i]! < 0.05;
      return [
        arm.name,
        successCell(arm),
        d ? `${minus(d.mean)} [${minus(d.low)}, ${minus(d.high)}]${holds ? " *" : ""}` : "–",
        d ? (Number.isNaN(adjusted[i]!) ? "n/a" : adjusted[i]! < 0.001 ? "<0.001" : adjusted[i]!.toFixed(3)) : "–",
        ...(withPass ? [passes[i] ? `${passes[i]!.at} / ${passes[i]!.hat}` : "–"] : []),
        ...measures(arm.outcomes, scoreNames),
        String(value ? `${value.tasks}×${value.seeds}` : new Set(arm.outcomes.map((o) => o.task)).size),
      ];
    });
    tables.push({
      title: titleOf(benchmark, here),
      columns: [
        "arm",
        "success % [95 %]",
        baseline === undefined ? "difference to the first" : `difference to ${baseline}, played alike`,
        "p (Holm)",
        ...(withPass ? [`pass@${k} / pass^${k} %`] : []),
        ...scoreNames,
        ...MEASURES,
        "tasks×seeds",
      ],
      rows,
      notes: [
        HALF_WIDTHS,
        ...(withPass ? [RUNS_NOTE] : []),
        ...floorNote(here),
        ...(here.length > 1 ? ["* the paired difference excludes zero and holds after Holm's correction"] : []),
        ...(notes[benchmark] ?? []),
      ],
    });
  }
  return tables;
}
