import { existsSync, readFileSync } from "node:fs";
import { arch, cpus, platform, release, totalmem } from "node:os";
import { basename, join, resolve } from "node:path";
import type { EngineInfo } from "../engine/types.ts";

/** The project's folder, wherever the command was started. */
export const projectRoot = resolve(import.meta.dir, "../..");

/** The commit that HEAD names, with "+changes" where tracked files differ; null outside a git checkout. */
export function commit(): string | null {
  if (!existsSync(join(projectRoot, ".git"))) return null;
  const git = (...args: string[]) => {
    const run = Bun.spawnSync(["git", ...args], { cwd: projectRoot, stdout: "pipe", stderr: "ignore" });
    return run.success ? run.stdout.toString().trim() : null;
  };
  try {
    const head = git("rev-parse", "HEAD");
    return head === null ? null : head + (git("status", "--porcelain", "--untracked-files=no") ? "+changes" : "");
  } catch {
    // git is not installed: the commit is unknown, and the record says null.
    return null;
  }
}

/** The command that this process is, as the user typed it; keys are in no argument. */
export function command(): string {
  const [, script = "", ...args] = process.argv;
  const quoted = args.map((a) => (/^[\w@%+=:,./-]+$/.test(a) ? a : `'${a.replaceAll("'", "'\\''")}'`));
  return ["bun run", basename(script, ".ts"), ...quoted].join(" ");
}

/** Versions, machine, adapter, commit, command: what a run was made with. */
export function environment(engine: EngineInfo | null): Record<string, unknown> {
  const packages = JSON.parse(readFileSync(join(projectRoot, "package.json"), "utf8")) as {
    version: string;
    dependencies: Record<string, string>;
  };
  return {
    paraagent: packages.version,
    commit: commit(),
    command: command(),
    bun: Bun.version,
    dependencies: packages.dependencies,
    machine: {
      platform: `${platform()} ${release()} ${arch()}`,
      cpu: cpus()[0]?.model ?? "unknown",
      cores: cpus().length,
      memoryGiB: Math.round(totalmem() / 2 ** 30),
    },
    engine: engine ? { kind: engine.kind, description: engine.description, features: engine.features } : null,
  };
}
