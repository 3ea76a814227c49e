/** `bun run compare A B …`: runs side by side, with 95 % intervals, paired differences and Holm's correction. */
import { arms, compareTables } from "../lib/runs/compare.ts";
import { RunIndex, type RunRecord } from "../lib/runs/index-store.ts";
import { resultsRoot } from "../lib/runs/stages.ts";
import { csvTable, latexTable, markdownTable, type Table, terminalRoom, textTable } from "../lib/runs/table.ts";
import { main, UsageError } from "./cli.ts";

const FORMATS: Record<string, (t: Table) => string> = {
  text: (t) => textTable(t, terminalRoom()),
  markdown: markdownTable,
  csv: csvTable,
  latex: latexTable,
};

/** Runs by name: an experiment (all its runs), <experiment>/<run>, or the start of either that fits one. */
function select(index: RunIndex, names: string[]): RunRecord[] {
  const all = index.runs();
  const chosen = new Map<string, RunRecord>();
  for (const name of names) {
    const clean = name.replace(/^results\//, "").replace(/\/$/, "");
    let fits = all.filter((r) => r.id === clean || r.experiment === clean);
    if (fits.length === 0) fits = all.filter((r) => r.id.startsWith(clean));
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
    for (const r of fits) chosen.set(r.id, r);
  }
  return [...chosen.values()];
}

await main(
  {
    name: "compare",
    summary: "compares runs: means with 95 % intervals, paired differences over the same tasks, which of them hold",
    usage: ["bun run compare <experiment or run> …", "bun run compare            (lists the runs)"],
    flags: {
      format: { type: "string", default: "text", help: "text, markdown, csv or latex" },
      group: { type: "string", help: "only tasks of this group, such as a shape" },
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
    const runs = select(index, args.positionals).map((record) => ({
      record,
      outcomes: index.outcomes(record.id).filter((o) => group === undefined || o.group === group),
    }));
    const tables = compareTables(arms(runs));
    if (tables.length === 0)
      throw new UsageError(`these runs have no evaluations${group ? ` in group "${group}"` : ""} to compare.`);
    if (!args.json) console.log(tables.map(format).join("\n\n"));
    return { json: { runs: runs.map((r) => r.record.id), tables } };
  },
);
