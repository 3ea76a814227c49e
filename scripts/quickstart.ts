/**
 * `bun run quickstart`: experiments/quickstart.yaml from nothing to a result: builds the catalogue, makes a small ToolEnv, writes demonstrations,
 * trains a small model (SFT, then RL), evaluates before and after. What is unchanged is taken from the cache; it can be stopped at any moment.
 */
import { join, relative } from "node:path";
import { loadExperiment } from "../lib/config/load.ts";
import { projectRoot } from "../lib/runs/environment.ts";
import { runExperiment } from "../lib/runs/pipeline.ts";
import { terminalRoom, textTable } from "../lib/runs/table.ts";
import { main } from "./cli.ts";

await main(
  {
    name: "quickstart",
    summary: "the whole system in one command: catalogue, demonstrations, SFT, RL, evaluation before and after",
    usage: [
      "bun run quickstart",
      "bun run quickstart --set size=small        (a minute or two, to see that everything works)",
    ],
    flags: {
      set: { type: "string", multiple: true, help: "override a key of experiments/quickstart.yaml" },
      data: { type: "string", help: "folder of the benchmark files" },
    },
  },
  async (args) => {
    const [loaded] = loadExperiment(join(projectRoot, "experiments/quickstart.yaml"), args.texts("set"));
    const run = await runExperiment(loaded!, {
      progress: args.progress,
      ...(args.text("data") ? { data: args.text("data")! } : {}),
    });
    if (!args.json) {
      console.log(run.tables.map((t) => textTable(t, terminalRoom())).join("\n\n"));
      for (const chart of run.charts) console.log(`\n${chart}`);
      console.log(
        [
          "",
          `run: ${relative(".", run.dir)}`,
          "",
          "Next:",
          "  bun run serve                                                          look at it in a browser",
          "  bun run exp run experiments/quickstart.yaml --set seed=2               a second seed",
          "  bun run compare quickstart                                             runs side by side",
          "  bun run toolenv tasks --n 5                                            what the tasks look like",
        ].join("\n"),
      );
    }
    return { json: run };
  },
);
