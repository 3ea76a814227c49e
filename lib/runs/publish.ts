/** Result tables that are committed: results/published/<experiment>/, with the command, the commit and the machine that made them. */
import { join } from "node:path";
import { writeAtomic } from "../config/atomic.ts";
import { projectRoot } from "./environment.ts";
import type { RunRecord } from "./index-store.ts";
import { csvTable, markdownTable, type Table } from "./table.ts";

/** The text of a record's field, or null where it has none. */
function field(record: RunRecord, ...path: string[]): string | null {
  let here: unknown = record.environment;
  for (const key of path) here = typeof here === "object" && here !== null ? Reflect.get(here, key) : undefined;
  return typeof here === "string" || typeof here === "number" ? String(here) : null;
}

/** The distinct values of a field over the runs. */
const distinct = (runs: readonly RunRecord[], ...path: string[]): string[] => [
  ...new Set(runs.flatMap((r) => field(r, ...path) ?? [])),
];

/** The page: how the tables were made, then the tables. */
export function publishedPage(
  name: string,
  runs: readonly RunRecord[],
  tables: readonly Table[],
  compare: string,
): string {
  const commands = distinct(runs, "command");
  const cpu = distinct(runs, "machine", "cpu").map(
    (c) => `${c} × ${distinct(runs, "machine", "cores").join(", ")} cores`,
  );
  const days = [...new Set(runs.map((r) => r.created.slice(0, 10)))].sort();
  return [
    `# ${name}`,
    "",
    "Made by these commands, never edited by hand:",
    "",
    "```sh",
    ...(commands.length > 0 ? commands : ["# the runs do not say which command made them"]),
    compare,
    "```",
    "",
    `- commit: ${distinct(runs, "commit").join(", ") || "unknown"} (+changes: files of the working tree differed from it); stages whose inputs are the same may come from the cache of an earlier one`,
    `- machine: ${cpu.join("; ") || "unknown"}, ${distinct(runs, "machine", "platform").join("; ")}`,
    `- engine: ${distinct(runs, "engine", "description").join("; ") || "none was opened, or its results came from the stage cache"}`,
    `- bun ${distinct(runs, "bun").join(", ")}; ${days.join(", ")}; ${runs.length} runs`,
    "",
    ...tables.flatMap((t) => [markdownTable(t), ""]),
    "Runs:",
    "",
    ...runs.map((r) => `- ${r.id} (seed ${r.seed})`),
    "",
  ].join("\n");
}

/** Writes the page and one CSV file a table; returns the folder. */
export function publish(
  name: string,
  runs: readonly RunRecord[],
  tables: readonly Table[],
  compare: string,
  root = join(projectRoot, "results/published"),
): string {
  const folder = join(root, name);
  writeAtomic(join(folder, "results.md"), publishedPage(name, runs, tables, compare));
  for (const [i, table] of tables.entries()) {
    const slug =
      table.title
        .toLowerCase()
        .replaceAll(/[^a-z0-9]+/g, "-")
        .replaceAll(/^-|-$/g, "") || String(i);
    writeAtomic(join(folder, `${slug}.csv`), `${csvTable(table)}\r\n`);
  }
  return folder;
}
