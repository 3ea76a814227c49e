/** `bun run fetch-benchmarks`: downloads the benchmark files at their pinned commits from GitHub, and checks their hashes. */
import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { BENCHMARK_FILES, BenchmarkFileError, benchmarkFolder } from "../lib/bench/files.ts";
import { writeAtomic } from "../lib/config/atomic.ts";
import { main } from "./cli.ts";

const sha256 = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");

async function download(url: string): Promise<Uint8Array> {
  let last = "";
  for (let attempt = 1; attempt <= 3; attempt++) {
    try {
      const response = await fetch(url, { signal: AbortSignal.timeout(60_000) });
      if (response.ok) return new Uint8Array(await response.arrayBuffer());
      last = `HTTP ${response.status}`;
      if (response.status === 404) break;
    } catch (error) {
      last = (error as Error).message;
    }
  }
  throw new BenchmarkFileError(
    `${url} could not be fetched (${last}). Check the network or a proxy (HTTPS_PROXY), and run again: files already there are kept. ` +
      "Without them the project's own sample tasks are used, and labelled so.",
  );
}

await main(
  {
    name: "fetch-benchmarks",
    summary: "downloads ToolBench's queries and API-Bank's Level 3 at pinned commits, and checks their hashes",
    usage: ["bun run fetch-benchmarks [--data <folder>]"],
    flags: {
      data: { type: "string", help: "where to put them: else PARAAGENT_DATA, else data/benchmarks" },
      from: {
        type: "string",
        default: "https://raw.githubusercontent.com",
        help: "the host to fetch from, for mirrors",
      },
    },
  },
  async (args) => {
    const folder = benchmarkFolder(args.text("data"));
    const files: { path: string; state: "kept" | "fetched" }[] = [];
    for (const [i, file] of BENCHMARK_FILES.entries()) {
      const path = join(folder, file.path);
      if (existsSync(path) && sha256(readFileSync(path)) === file.sha256) files.push({ path, state: "kept" });
      else {
        const bytes = await download(`${args.text("from")}/${file.repository}/${file.commit}/${file.remote}`);
        const hash = sha256(bytes);
        if (hash !== file.sha256) {
          throw new BenchmarkFileError(
            `${file.repository} ${file.remote} at ${file.commit}: SHA-256 ${hash}, expected ${file.sha256}. Nothing was written; a proxy may have changed it.`,
          );
        }
        writeAtomic(path, bytes);
        files.push({ path, state: "fetched" });
      }
      args.progress.update(i + 1, BENCHMARK_FILES.length, file.path);
    }
    if (!args.json) for (const f of files) console.log(`${f.state.padEnd(8)} ${f.path}`);
    return { json: { folder, files } };
  },
);
