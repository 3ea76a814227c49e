/** `bun run notebooks`: executes the notebooks from start to end in Deno's Jupyter kernel; copies with their outputs go to results/notebooks/. */
import { existsSync, mkdirSync, readdirSync, readFileSync } from "node:fs";
import { basename, join, resolve } from "node:path";
import { z } from "zod";
import { writeAtomic } from "../lib/config/atomic.ts";
import { projectRoot } from "../lib/runs/environment.ts";
import { resultsRoot } from "../lib/runs/stages.ts";
import { main, UsageError } from "./cli.ts";
import { Kernel } from "./notebooks/kernel.ts";

const DENO_VERSION = "2.9.6";
const Notebook = z.looseObject({
  cells: z.array(z.looseObject({ cell_type: z.string(), source: z.union([z.string(), z.array(z.string())]) })),
});

/** A cell failed: which, and how. */
class CellError extends Error {
  override name = "CellError";
}

/** Deno from the PATH, DENO, or npm's package in .cache/deno (92 MB, put there on first use). */
function deno(log: (line: string) => void): string {
  const found = process.env.DENO ?? Bun.which("deno");
  if (found) return found;
  const folder = join(projectRoot, ".cache", "deno");
  const binary = join(folder, "node_modules", ".bin", "deno");
  if (existsSync(binary)) return binary;
  log(`installing Deno ${DENO_VERSION} from npm into ${folder} (92 MB, once) …`);
  mkdirSync(folder, { recursive: true });
  writeAtomic(join(folder, "package.json"), '{"private": true}\n');
  const run = Bun.spawnSync(
    ["npm", "install", "--no-audit", "--no-fund", "--save-exact", "--prefix", folder, `deno@${DENO_VERSION}`],
    { stdout: "ignore", stderr: "pipe" },
  );
  if (!run.success || !existsSync(binary))
    throw new UsageError(
      `Deno could not be installed: ${run.stderr.toString().trim().slice(-500)}. Install it yourself and name it: DENO=/path/to/deno bun run notebooks`,
    );
  return binary;
}

await main(
  {
    name: "notebooks",
    summary: "executes the notebooks from start to end in Deno's Jupyter kernel",
    usage: ["bun run notebooks", "bun run notebooks quickstart rewards --out /tmp/executed"],
    flags: {
      out: { type: "string", help: "folder for the copies with outputs (default: results/notebooks)" },
      timeout: { type: "string", default: "300", help: "seconds that one cell may take" },
    },
  },
  async (args) => {
    const folder = join(projectRoot, "notebooks");
    const known = readdirSync(folder)
      .filter((f) => f.endsWith(".ipynb"))
      .sort();
    const chosen = (args.positionals.length === 0 ? known : args.positionals).map((name) =>
      existsSync(name) ? resolve(name) : join(folder, `${basename(name, ".ipynb")}.ipynb`),
    );
    const unknown = chosen.find((f) => !existsSync(f));
    if (unknown) throw new UsageError(`there is no notebook ${unknown}. Notebooks: ${known.join(", ")}`);
    const out = args.text("out") ?? join(resultsRoot(), "notebooks");
    const timeoutMs = 1000 * args.number("timeout", { min: 1 })!;
    const binary = deno((line) => args.progress.log(line));
    mkdirSync(out, { recursive: true });
    const done: { notebook: string; cells: number; seconds: number; copy: string }[] = [];
    for (const path of chosen) {
      const started = Date.now();
      const name = basename(path);
      const notebook = Notebook.parse(JSON.parse(readFileSync(path, "utf8")));
      const kernel = await Kernel.start([binary, "jupyter", "--kernel", "--conn"], folder, {
        DENO_DIR: join(projectRoot, ".cache", "deno", "dir"),
        DENO_NO_UPDATE_CHECK: "1",
        PARAAGENT_RESULTS: resultsRoot(),
        NO_COLOR: "1",
      });
      let count = 0;
      try {
        for (const [i, cell] of notebook.cells.entries()) {
          if (cell.cell_type !== "code") continue;
          const source = Array.isArray(cell.source) ? cell.source.join("") : cell.source;
          const { outputs, error } = await kernel.execute(source, timeoutMs);
          Object.assign(cell, { outputs, execution_count: ++count });
          args.progress.update(i + 1, notebook.cells.length, name);
          if (error !== null) throw new CellError(`${name}, cell ${i + 1} failed:\n${source}\n\n${error}`);
        }
      } finally {
        kernel.close();
        writeAtomic(join(out, name), `${JSON.stringify(notebook, null, 1)}\n`);
      }
      done.push({ notebook: name, cells: count, seconds: (Date.now() - started) / 1000, copy: join(out, name) });
    }
    if (!args.json)
      for (const d of done) console.log(`${d.notebook}: ${d.cells} cells in ${d.seconds.toFixed(1)} s → ${d.copy}`);
    return { json: { notebooks: done } };
  },
);
