/** `bun run exp list|show|plan|run|resume`: experiments as YAML, from settings to results. */
import { existsSync, readdirSync } from "node:fs";
import { join, relative } from "node:path";
import { stringify } from "yaml";
import { writeAtomic } from "../lib/config/atomic.ts";
import { ConfigError, experimentJsonSchema, type Loaded, loadExperiment } from "../lib/config/load.ts";
import { nearest } from "../lib/config/nearest.ts";
import { projectRoot } from "../lib/runs/environment.ts";
import { runExperiment } from "../lib/runs/pipeline.ts";
import { planExperiment, planTable } from "../lib/runs/plan.ts";
import { runId } from "../lib/runs/run.ts";
import { resultsRoot } from "../lib/runs/stages.ts";
import { terminalRoom, textTable } from "../lib/runs/table.ts";
import { type Args, main, UsageError } from "./cli.ts";

function experimentFiles(): string[] {
  const root = join(projectRoot, "experiments");
  return readdirSync(root, { recursive: true, encoding: "utf8" })
    .filter((f) => /\.ya?ml$/.test(f))
    .sort()
    .map((f) => join(root, f));
}

/** An experiment by path, or by its name under experiments/ with or without .yaml. */
function find(name: string | undefined, verb: string): string {
  if (name === undefined)
    throw new UsageError(
      `name an experiment: bun run exp ${verb} experiments/quickstart.yaml. bun run exp list shows them.`,
    );
  if (existsSync(name)) return name;
  const files = experimentFiles();
  const short = (f: string) => relative(join(projectRoot, "experiments"), f).replace(/\.ya?ml$/, "");
  const wanted = name.replace(/^experiments\//, "").replace(/\.ya?ml$/, "");
  const found = files.find((f) => short(f) === wanted) ?? files.find((f) => short(f).endsWith(`/${wanted}`));
  if (found) return found;
  const close = nearest(wanted, files.map(short));
  throw new ConfigError([
    `there is no experiment "${name}"${close ? `; did you mean experiments/${close}.yaml?` : "."} There are: ${files.map(short).join(", ")}.`,
  ]);
}

/** A run's folder or id, back to its settings: the experiment.yaml that it keeps. */
function resumable(name: string): string {
  const path = join(resultsRoot(), name.replace(/^results\//, ""), "experiment.yaml");
  if (!existsSync(path))
    throw new UsageError(`there is no run "${name}" to resume in ${resultsRoot()}. bun run compare lists the runs.`);
  return path;
}

async function runAll(all: Loaded[], args: Args): Promise<{ json: unknown; exit?: number }> {
  const runs = [];
  for (const [i, loaded] of all.entries()) {
    if (all.length > 1) args.progress.log(`— ${i + 1} of ${all.length}: ${runId(loaded)}`);
    runs.push(
      await runExperiment(loaded, {
        progress: args.progress,
        ...(args.text("data") ? { data: args.text("data")! } : {}),
      }),
    );
  }
  if (!args.json) {
    for (const run of runs)
      console.log(
        `${run.tables.map((t) => textTable(t, terminalRoom())).join("\n\n")}\n\nrun: ${relative(".", run.dir)}`,
      );
    console.log(`\nNext:\n  bun run compare ${all[0]!.experiment.name}\n  bun run serve`);
  }
  return { json: all.length === 1 ? { ...runs[0]! } : { runs } };
}

await main(
  {
    name: "exp",
    summary: "experiments: list them, show the resolved settings, plan, run, go on with a run",
    usage: [
      "bun run exp list",
      "bun run exp show <experiment> [--set key=value …]",
      "bun run exp plan <experiment> [--set key=value …]",
      "bun run exp run <experiment> [--set key=value …]",
      "bun run exp resume <experiment>/<run>",
      "bun run exp schema        (writes experiments/schema.json for editors)",
    ],
    flags: {
      set: {
        type: "string",
        multiple: true,
        help: "override a key: --set stages.rl.steps=20; may be given several times",
      },
      data: { type: "string", help: "folder of the benchmark files" },
    },
  },
  async (args) => {
    const [verb, name] = args.positionals;
    const sets = args.texts("set");
    switch (verb) {
      case "list": {
        const rows = experimentFiles().map((file) => {
          const all = loadExperiment(file);
          return {
            file: relative(".", file),
            name: all[0]!.experiment.name,
            cells: all.length,
            description: all[0]!.experiment.description,
          };
        });
        if (!args.json) {
          console.log(
            textTable({
              title: "experiments",
              columns: ["file", "runs", "what"],
              rows: rows.map((r) => [r.file, String(r.cells), r.description]),
              notes: [],
            }),
          );
        }
        return { json: { experiments: rows } };
      }
      case "show": {
        const all = loadExperiment(find(name, "show"), sets);
        if (!args.json)
          console.log(
            all
              .map((l) => `# ${runId(l)}${l.cell ? ` (cell ${l.cell})` : ""}\n${stringify(l.experiment)}`)
              .join("---\n"),
          );
        return { json: { runs: all.map((l) => ({ id: runId(l), ...l })) } };
      }
      case "plan": {
        const plan = await planExperiment(loadExperiment(find(name, "plan"), sets), args.progress);
        if (!args.json) console.log(textTable(planTable(plan)));
        return { json: plan };
      }
      case "run":
        return runAll(loadExperiment(find(name, "run"), sets), args);
      case "resume": {
        if (name === undefined)
          throw new UsageError("name a run: bun run exp resume <experiment>/<run>. bun run compare lists the runs.");
        return runAll(loadExperiment(resumable(name), sets), args);
      }
      case "schema": {
        const path = join(projectRoot, "experiments/schema.json");
        writeAtomic(path, `${JSON.stringify(experimentJsonSchema(), null, 2)}\n`);
        if (!args.json) console.log(relative(".", path));
        return { json: { path } };
      }
      default: {
        const close = verb ? nearest(verb, ["list", "show", "plan", "run", "resume", "schema"]) : null;
        throw new UsageError(
          `exp takes list, show, plan, run, resume or schema${verb ? `, not "${verb}"${close ? `; did you mean ${close}?` : ""}` : ""}. See: bun run exp --help`,
        );
      }
    }
  },
);
