import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { readSafetensors } from "../model/safetensors.ts";

const root = mkdtempSync(join(tmpdir(), "killed-"));
afterAll(() => rmSync(root, { recursive: true }));

/** Runs the learning run in `dir`, and kills it (-9) once it has printed `lines` lines. Returns what it printed. */
async function run(dir: string, lines = Number.POSITIVE_INFINITY): Promise<string[]> {
  const child = Bun.spawn([process.execPath, join(import.meta.dir, "testdata", "killed-run.ts"), dir], {
    stderr: "ignore",
  });
  const printed: string[] = [];
  const decoder = new TextDecoder();
  let rest = "";
  for await (const bytes of child.stdout) {
    const parts = (rest + decoder.decode(bytes, { stream: true })).split("\n");
    rest = parts.pop()!;
    printed.push(...parts);
    if (printed.length >= lines) child.kill("SIGKILL");
  }
  await child.exited;
  return printed;
}

function outcome(dir: string) {
  const clocked = /tokensPerSecond|Share$/;
  return ["sft", "rl"].map((stage) => ({
    weights: [...readSafetensors(join(dir, stage, "last")).tensors],
    best: [...readSafetensors(join(dir, stage, "model")).tensors],
    metrics: readFileSync(join(dir, stage, "metrics.jsonl"), "utf8")
      .trim()
      .split("\n")
      .map((line) => Object.entries(JSON.parse(line)).filter(([name]) => !clocked.test(name))),
  }));
}

test("killed at any moment and started again, a learning run comes to the same bits and the same metrics", async () => {
  const [whole, parts] = [join(root, "whole"), join(root, "parts")];
  const undisturbed = await run(whole);
  expect(undisturbed.at(-1)).toBe("done");
  let kills = 0;
  let last: string | undefined;
  // Each life does a few steps more than it repeats; the last is not disturbed.
  for (const lines of [1, 3, 2, 5, 4, 12, 13]) {
    last = (await run(parts, lines)).at(-1);
    if (last === "done") break;
    kills++;
  }
  if (last !== "done") expect((await run(parts)).at(-1)).toBe("done");
  expect(kills).toBeGreaterThanOrEqual(5);
  expect(outcome(parts)).toEqual(outcome(whole));
}, 120_000);
