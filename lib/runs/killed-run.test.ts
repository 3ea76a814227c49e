/** A whole experiment killed with -9 at twenty random moments. Minutes of computing: PARAAGENT_FULL=1 bun test lib/runs/killed-run.test.ts */
import { afterAll, expect, test } from "bun:test";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { uniform } from "../engine/random.ts";
import { projectRoot } from "./environment.ts";

const full = process.env.PARAAGENT_FULL === "1";
const KILLS = 20;
/** The learning run, short. */
const SHORT = [
  "exp",
  "run",
  join(projectRoot, "experiments/learning.yaml"),
  ...["tasks.train.count=40", "tasks.heldout.count=12", "stages.sft.epochs=2", "stages.sft.evaluateEvery=2"],
  ...["stages.rl.steps=6", "stages.rl.prompts=2", "stages.rl.miniBatch=2", "stages.rl.group=4"],
  ...["stages.rl.evaluateEvery=3", "stages.evaluate.unconstrained=false", "matrix.seeds=[1]"],
].flatMap((word) => (word.includes("=") ? ["--set", word] : [word]));

const root = mkdtempSync(join(tmpdir(), "killed-run-"));
afterAll(() => rmSync(root, { recursive: true }));

function start(results: string) {
  return Bun.spawn([process.execPath, "run", "--silent", ...SHORT], {
    cwd: projectRoot,
    env: { ...process.env, PARAAGENT_RESULTS: results },
    stdout: "ignore",
    stderr: "ignore",
  });
}

/** Everything that a run says of its result: outcomes, and the metrics of each stage without what a clock gives. */
function outcome(results: string) {
  const [run] = readdirSync(join(results, "learning"));
  const clocked = /^time$|tokensPerSecond|Share$/;
  const stages = readdirSync(join(results, "stages")).sort();
  return {
    outcomes: readFileSync(join(results, "learning", run!, "outcomes.jsonl"), "utf8"),
    metrics: stages.map((name) => {
      const path = join(results, "stages", name, "metrics.jsonl");
      const lines = existsSync(path) ? readFileSync(path, "utf8").trim().split("\n").filter(Boolean) : [];
      return [name, lines.map((l) => Object.entries(JSON.parse(l)).filter(([key]) => !clocked.test(key)))];
    }),
  };
}

test.if(full)(
  "killed at twenty random moments and started again, an experiment comes to the same outcomes and metrics",
  async () => {
    const whole = join(root, "whole");
    const started = Date.now();
    expect(await start(whole).exited).toBe(0);
    const seconds = (Date.now() - started) / 1000;
    const undisturbed = outcome(whole);
    // A run that comes to its end between two kills is compared, and another is begun, until twenty kills are done.
    let kills = 0;
    let runs = 0;
    while (kills < KILLS) {
      const parts = join(root, `parts-${runs++}`);
      for (let ended = false; !ended; ) {
        const child = start(parts);
        const moment = 1000 * uniform(7, kills) * (seconds / 3);
        const timer = kills < KILLS ? setTimeout(() => child.kill("SIGKILL"), moment) : undefined;
        ended = (await child.exited) === 0;
        clearTimeout(timer);
        if (!ended) kills++;
      }
      expect(outcome(parts)).toEqual(undisturbed);
    }
    console.log(`${kills} kills over ${runs} runs of ${seconds.toFixed(0)} s`);
  },
  3_600_000,
);
