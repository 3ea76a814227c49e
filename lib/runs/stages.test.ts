import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { appendFileSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { writeAtomic } from "../config/atomic.ts";
import { canonicalJson, contentHash } from "../config/hash.ts";
import { FolderBusyError, lockFolder } from "./lock.ts";
import { terminalProgress } from "./progress.ts";
import { readMetrics, runStage } from "./stages.ts";
import type { Progress } from "./types.ts";

const root = mkdtempSync(join(tmpdir(), "paraagent-stages-"));
const quiet: Progress = { update() {}, log() {} };
const before = process.env.PARAAGENT_RESULTS;
beforeAll(() => {
  process.env.PARAAGENT_RESULTS = root;
});
afterAll(() => {
  if (before === undefined) delete process.env.PARAAGENT_RESULTS;
  else process.env.PARAAGENT_RESULTS = before;
  rmSync(root, { recursive: true });
});

const stage = (inputs: unknown, run: () => Promise<number>) =>
  runStage({ name: "demo", inputs, seed: 1, progress: quiet, run });

describe("stage cache", () => {
  test("equal inputs run once, whatever the order of their keys; others run apart", async () => {
    let runs = 0;
    const count = async () => ++runs;
    const first = await stage({ a: 1, b: [2] }, count);
    const second = await stage({ b: [2], a: 1 }, count);
    const third = await stage({ a: 1, b: [3] }, count);
    expect([first.result, second.result, third.result]).toEqual([1, 1, 2]);
    expect([first.cached, second.cached]).toEqual([false, true]);
    expect(second.dir).toBe(first.dir);
  });

  test("a stage that fails is not done, and runs again", async () => {
    await expect(stage({ fail: 1 }, () => Promise.reject(new Error("no")))).rejects.toThrow("no");
    expect((await stage({ fail: 1 }, async () => 5)).result).toBe(5);
  });

  test("a broken done.json is not taken for a result", async () => {
    const record = await stage({ broken: 1 }, async () => 1);
    writeFileSync(join(record.dir, "done.json"), '{"elapsedMs": 3, "res');
    expect((await stage({ broken: 1 }, async () => 2)).result).toBe(2);
  });

  test("two at once on one stage: one runs it, the other takes its result", async () => {
    let runs = 0;
    const slow = async () => {
      runs++;
      await Promise.resolve();
      return 7;
    };
    // The lock is between processes; within one process the second waits for the folder too.
    const [a, b] = await Promise.all([stage({ both: 1 }, slow), stage({ both: 1 }, slow)]);
    expect([a.result, b.result, runs]).toEqual([7, 7, 1]);
  });

  test("kill -9 in a stage: metrics keep whole lines, the lock is taken over, the stage goes on", async () => {
    const script = join(root, "victim.ts");
    writeFileSync(
      script,
      `import { runStage } from ${JSON.stringify(join(import.meta.dir, "stages.ts"))};
       await runStage({ name: "killed", inputs: 1, seed: 1, progress: { update() {}, log() {} }, run: async (ctx) => {
         ctx.metric(1, { loss: 2 });
         process.kill(process.pid, "SIGKILL");
         await new Promise(() => {});
       } });`,
    );
    const child = Bun.spawnSync([process.execPath, script], { env: { ...process.env, PARAAGENT_RESULTS: root } });
    expect(child.signalCode).toBe("SIGKILL");
    const again = await runStage({
      name: "killed",
      inputs: 1,
      seed: 1,
      progress: quiet,
      run: async (ctx) => {
        expect(readMetrics(join(ctx.dir, "metrics.jsonl")).lines.length).toBe(1);
        ctx.metric(2, { loss: 1 });
        return 3;
      },
    });
    expect(again.result).toBe(3);
    const path = join(again.dir, "metrics.jsonl");
    appendFileSync(path, '{"stage":"killed","st');
    expect(readMetrics(path)).toMatchObject({ broken: 1, lines: [{ step: 1 }, { step: 2 }] });
  });
});

describe("lock", () => {
  test("a living owner keeps it; once given back it is free", () => {
    const dir = join(root, "locked");
    const unlock = lockFolder(dir);
    expect(() => lockFolder(dir)).toThrow(FolderBusyError);
    unlock();
    lockFolder(dir)();
    expect(existsSync(join(dir, "lock.json"))).toBe(false);
  });
  test("a half-written lock of a killed process is taken over", () => {
    const dir = join(root, "half");
    lockFolder(dir)();
    writeFileSync(join(dir, "lock.json"), '{"pi');
    lockFolder(dir)();
  });
});

test("atomic write replaces whole files", () => {
  const path = join(root, "deep/file.txt");
  writeAtomic(path, "one");
  writeAtomic(path, "two");
  expect(readFileSync(path, "utf8")).toBe("two");
});

test("canonical JSON sorts keys, drops undefined, and tells types apart", () => {
  expect(canonicalJson({ b: 1, a: [undefined, null], c: undefined })).toBe('{"a":[null,null],"b":1}');
  expect(contentHash({ a: 1 })).not.toBe(contentHash({ a: "1" }));
});

test("progress shows rate and time left", () => {
  let at = 0;
  let text = "";
  const progress = terminalProgress({ isTTY: true, write: (s) => (text += s) }, "sft", () => at);
  progress.update(0, 100);
  at = 10_000;
  progress.update(20, 100, "loss 1.5");
  expect(text).toContain("sft: 20/100 · 2.00/s · 40 s left · loss 1.5");
});
