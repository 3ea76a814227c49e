/** `bun run compare A B …`: runs side by side, with 95 % intervals, paired differences and Holm's correction. */
import { relative } from "node:path";
import { arms, compareTables, groupTables, newestRuns, withBaseline } from "../lib/runs/compare.ts";
import { command } from "../lib/runs/environment.ts";
import { RunIndex, type RunRecord } from "../lib/runs/index-store.ts";
import { publish } from "../lib/runs/publish.ts";
import { resultsRoot } from "../lib/runs/stages.ts";
import { csvTable, latexTable, markdownTable, type Table, terminalRoom, textTable } from "../lib/runs/table.ts";
import { main, UsageError } from "./cli.ts";

const FORMATS: Record<string, (t: Table) => string> = {
  text: (t) => textTable(t, terminalRoom()),
  markdown: markdownTable,
  csv: csvTable,
  latex: latexTable,
};

/**
 * Runs by name: an experiment (the newest run of each cell and seed), <experiment>/<run>, or the start of either that fits one. `older` are
 * runs of the same cell and seed with other settings, which are left out.
 */
function select(index: RunIndex, names: string[]): { runs: RunRecord[]; older: RunRecord[] } {
  const all = index.runs();
  const named = new Map<string, RunRecord>();
  const grouped: RunRecord[] = [];
  for (const name of names) {
    const clean = name.replace(/^results\//, "").replace(/\/$/, "");
    const exact = all.find((r) => r.id === clean);
    if (exact) {
      named.set(exact.id, exact);
      continue;
    }
    const whole = all.filter((r) => r.experiment === clean);
    const fits = whole.length > 0 ? whole : all.filter((r) => r.id.startsWith(clean));
    if (fits.length === 0) {
      throw new UsageError(
        `no run fits "${name}". Runs: ${
          all
            .slice(0, 20)
            .map((r) => r.id)
            .join(", ") || "none yet; make one with bun run quickstart"
        }`,
      );
    }
    grouped.push(...fits.filter((r) => r.status === "done"));
  }
  const { runs, older } = newestRuns(grouped.filter((r) => !named.has(r.id)));
  return { runs: [...named.values(), ...runs], older };
}

await main(
  {
    name: "compare",
    summary: "compares runs: means with 95 % intervals, paired differences over the same tasks, which of them hold",
    usage: ["bun run compare <experiment or run> …", "bun run compare            (lists the runs)"],
    flags: {
      format: { type: "string", default: "text", help: "text, markdown, csv or latex" },
      group: { type: "string", help: "only tasks of this group, such as a shape" },
      label: { type: "string", help: 'only this label, such as scripted or "after SFT"' },
      baseline: {
        type: "string",
        help: 'what differences are taken to: a label, such as "after SFT" (unconstrained and sampled arms to that checkpoint played alike); else the first arm',
      },
      groups: { type: "boolean", help: "one table an arm, by group of tasks" },
      publish: { type: "string", help: "write the tables to results/published/<value>/, with how they were made" },
    },
  },
  async (args) => {
    const format = FORMATS[args.text("format")!];
    if (!format)
      throw new UsageError(`--format takes ${Object.keys(FORMATS).join(", ")}, not "${args.text("format")}".`);
    const index = new RunIndex(resultsRoot());
    if (args.positionals.length === 0) {
      const runs = index.runs();
      const rows = runs.map((r) => [
        r.id,
        r.cell || "–",
        String(r.seed),
        r.status,
        r.created.slice(0, 16).replace("T", " "),
      ]);
      if (!args.json)
        console.log(
          textTable({
            title: "runs",
            columns: ["run", "cell", "seed", "status", "started"],
            rows,
            notes: runs.length ? [] : ["none yet; make one with bun run quickstart"],
          }),
        );
      return { json: { runs } };
    }
    const group = args.text("group");
    const label = args.text("label");
    const chosen = select(index, args.positionals);
    const older = new Set(chosen.older.map((r) => r.id));
    if (older.size > 0)
      args.progress.log(
        `${older.size} older runs of the same cells and seeds with other settings are left out; name them to compare them: ${[...older].slice(0, 5).join(", ")}${older.size > 5 ? " …" : ""}`,
      );
    const runs = chosen.runs.map((record) => ({
      record,
      outcomes: index
        .outcomes(record.id)
        .filter((o) => (group === undefined || o.group === group) && (label === undefined || o.label === label)),
    }));
    const baseline = args.text("baseline");
    const labels = new Set(runs.flatMap((run) => run.outcomes.map((o) => o.label)));
    if (baseline !== undefined && !labels.has(baseline))
      throw new UsageError(`--baseline: no arm is called "${baseline}". Labels here: ${[...labels].join("; ")}`);
    const all = arms(runs);
    const ordered = baseline === undefined ? all : withBaseline(all, baseline);
    const tables = args.on("groups") ? groupTables(ordered) : compareTables(ordered, {}, baseline);
    if (tables.length === 0)
      throw new UsageError(`these runs have no evaluations${group ? ` in group "${group}"` : ""} to compare.`);
    const published = args.text("publish");
    if (published !== undefined) {
      if (!/^[a-z0-9][a-z0-9_-]*$/.test(published))
        throw new UsageError(`--publish takes a folder's name in lower case, such as paradigms, not "${published}".`);
      const folder = publish(published, chosen.runs, tables, command());
      args.progress.log(`written to ${relative(".", folder)}`);
    }
    if (!args.json) console.log(tables.map(format).join("\n\n"));
    return { json: { runs: runs.map((r) => r.record.id), tables } };
  },
);
