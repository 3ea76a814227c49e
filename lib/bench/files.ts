/** Where benchmark files are: --data, else PARAAGENT_DATA, else ./data/benchmarks. None is part of the project; `bun run fetch-benchmarks` gets them. */
import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";

export interface BenchmarkFile {
  benchmark: "toolbench" | "apibank";
  /** Path under the data folder. */
  path: string;
  /** GitHub repository, commit, and path there. */
  repository: string;
  commit: string;
  remote: string;
  sha256: string;
}

const TOOLBENCH = {
  benchmark: "toolbench",
  repository: "THUNLP-MT/StableToolBench",
  commit: "aa4ed9f4737ad98bd706663f01d63623c3427812",
} as const;
const toolbench = (name: string, sha256: string): BenchmarkFile => ({
  ...TOOLBENCH,
  path: `toolbench/${name}.json`,
  remote: `solvable_queries/test_instruction/${name}.json`,
  sha256,
});

/** Every file, pinned by commit and hash. Both benchmarks are Apache-2.0. */
export const BENCHMARK_FILES: BenchmarkFile[] = [
  toolbench("G1_category", "123cb9073c8b6e6473df91c8a51170277087e1c263eba2eb6077170edbe849c3"),
  toolbench("G1_instruction", "500aa0105ed451538448f6ea04f10661536b013f3e1a293840fe401688160e7c"),
  toolbench("G1_tool", "05d0c180bbec9d060fd267cc79399bda05beddd0a6d0de68b5488926a9029a1a"),
  toolbench("G2_category", "71e18112f7940934f159d623b1c2b4740b1b4dc58a0b596c63b8151abbf8267e"),
  toolbench("G2_instruction", "82d569cd0fc8fc742a15a3011fb5cd6a8b11e0a5b344c884602347439f43cad7"),
  toolbench("G3_instruction", "f923d1a9452646bd1a415b266117d90675d0f8fc04cf014db58d3cd78c25634f"),
  {
    benchmark: "apibank",
    path: "apibank/level-3.json",
    repository: "AlibabaResearch/DAMO-ConvAI",
    commit: "5d5a2d40b2e6b6998a06961cc43ad0a8c069b153",
    remote: "api-bank/test-data/level-3.json",
    sha256: "29542493a302915303d5d67f868282ddda46fa15ba059a4bcf38c6687be29d55",
  },
];

/** A benchmark file is missing or is not the pinned one. */
export class BenchmarkFileError extends Error {
  override name = "BenchmarkFileError";
}

export function benchmarkFolder(data?: string): string {
  return resolve(data ?? process.env.PARAAGENT_DATA ?? join("data", "benchmarks"));
}

/** Which of a benchmark's files are not in the folder. */
export function missingFiles(benchmark: "toolbench" | "apibank", folder: string): string[] {
  return BENCHMARK_FILES.filter((f) => f.benchmark === benchmark && !existsSync(join(folder, f.path))).map(
    (f) => f.path,
  );
}

/** Reads one pinned file and checks its hash. Throws BenchmarkFileError with what to do. */
export function readBenchmarkFile(file: BenchmarkFile, folder: string): unknown {
  const path = join(folder, file.path);
  if (!existsSync(path)) {
    throw new BenchmarkFileError(
      `${path} is missing. Get it with: bun run fetch-benchmarks (or name its folder with --data or PARAAGENT_DATA).`,
    );
  }
  const bytes = readFileSync(path);
  const hash = createHash("sha256").update(bytes).digest("hex");
  if (hash !== file.sha256) {
    throw new BenchmarkFileError(
      `${path} is not the pinned file: SHA-256 ${hash}, expected ${file.sha256}. Delete it and run: bun run fetch-benchmarks`,
    );
  }
  return JSON.parse(bytes.toString("utf8"));
}
