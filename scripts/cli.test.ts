import { afterAll, describe, expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { writeAtomic } from "../lib/config/atomic.ts";
import { explain } from "./cli.ts";

const dir = mkdtempSync(join(tmpdir(), "paraagent-cli-"));
afterAll(() => rmSync(dir, { recursive: true }));
const root = join(import.meta.dir, "..");

function run(...args: string[]): { code: number; out: string; err: string } {
  const child = Bun.spawnSync([process.execPath, ...args], {
    cwd: root,
    env: { ...process.env, PARAAGENT_RESULTS: join(dir, "results") },
  });
  return { code: child.exitCode, out: child.stdout.toString(), err: child.stderr.toString() };
}

describe("a verb", () => {
  test("--help prints usage and options on standard output, status 0", () => {
    const { code, out } = run("scripts/compare.ts", "--help");
    expect(code).toBe(0);
    expect(out).toContain("Usage:");
    expect(out).toContain("--json");
  });
  test("an unknown option is wrong use: status 2 and the nearest one", () => {
    const { code, err } = run("scripts/compare.ts", "--fromat", "csv");
    expect(code).toBe(2);
    expect(err).toContain("did you mean --format?");
  });
  test("a wrong key in an experiment is wrong use: status 2, file, line, column, nearest key", () => {
    const file = join(dir, "typo.yaml");
    writeFileSync(file, "name: typo\ntasks:\n  train: { count: 1 }\n  heldout: { cuont: 1 }\nstages: {}\n");
    const { code, err } = run("scripts/exp.ts", "show", file);
    expect(code).toBe(2);
    expect(err).toMatch(/typo\.yaml:4:14: unknown key "cuont" under tasks\.heldout; did you mean "count"\?/);
  });
  test("--json gives one JSON object on standard output, also for an error", () => {
    expect(JSON.parse(run("scripts/compare.ts", "--json").out)).toEqual({ runs: [] });
    const failed = run("scripts/exp.ts", "show", "nowhere", "--json");
    expect(JSON.parse(failed.out)).toMatchObject({ kind: "ConfigError" });
  });
  test("every experiment that ships is valid, and is listed", () => {
    const { code, out } = run("scripts/exp.ts", "list", "--json");
    expect(code).toBe(0);
    const files = (JSON.parse(out) as { experiments: { file: string }[] }).experiments.map((e) => e.file);
    expect(files).toContain("experiments/quickstart.yaml");
  });
});

test.skipIf(process.getuid?.() !== 0 || process.platform !== "linux")(
  "a full disk: one clear message, no half file left",
  () => {
    const mount = join(dir, "small");
    mkdirSync(mount);
    expect(Bun.spawnSync(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", mount]).success).toBe(true);
    try {
      let message = "";
      try {
        writeAtomic(join(mount, "big"), new Uint8Array(1 << 20));
      } catch (error) {
        message = explain(error);
      }
      expect(message).toMatch(/^the disk is full.*PARAAGENT_RESULTS/);
      expect(readdirSync(mount)).toEqual([]);
    } finally {
      Bun.spawnSync(["umount", mount]);
    }
  },
);
