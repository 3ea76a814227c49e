/** A results folder for tests: any number of runs with curves, outcomes and trajectories, played through the real protocol and scored by the real rules. */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { episodeMetrics } from "../../bench/metrics.ts";
import type { TaskOutcome } from "../../bench/types.ts";
import { buildCatalog } from "../../catalog/build.ts";
import { hash2 } from "../../engine/random.ts";
import { replayEpisode } from "../../paraact/replay.ts";
import { scoreTrajectory } from "../../rewards/score.ts";
import { answer, calls, find, planBlock, truth, verdicts } from "../../rewards/testing.ts";
import { RunIndex, type RunRecord, type RunStatus } from "../../runs/index-store.ts";
import { type StoredTrajectory, writeTrajectories } from "../../runs/run.ts";

/** What hostile text looks like: markup, a script, controls that turn text around, quotes. */
export const HOSTILE = `<script>window.hacked=1</script><img src=x onerror=alert(1)>\u202eevil\u202c "'&</pre></textarea>`;

/** A small catalogue of a few real interfaces. */
export async function seedCatalog(path: string): Promise<void> {
  await buildCatalog({ path, only: (file) => /^(spotify|asana|box)\.com\.json$/.test(file) });
}

/** Uniform in [0, 1), from numbers alone. */
const draw = (...at: number[]): number => at.reduce((h, x) => hash2(h, x), 17) / 2 ** 32;

const LABELS = ["before", "after SFT", "after RL"];
const PARADIGMS = ["paraact", "eae"];

/** Trajectories of several shapes, good and bad. Latencies let parallel calls overlap. */
async function templates(): Promise<StoredTrajectory[]> {
  const late = (turn: ReturnType<typeof calls>, ...ms: number[]) => ({
    ...turn,
    calls: turn.calls?.map((c, i) => ({ ...c, latencyMs: ms[i % ms.length] ?? 100 })) ?? [],
  });
  const list: {
    shape: string;
    digits: string;
    gold: string;
    edges: string[];
    turns: Parameters<typeof replayEpisode>[0]["turns"];
  }[] = [
    {
      shape: "single",
      digits: "111",
      gold: "get_user",
      edges: [],
      turns: [
        find("get_user"),
        late(calls("get_user=7", planBlock("get_user")), 240),
        answer("The user is called Ada Lovelace."),
      ],
    },
    {
      shape: "parallel",
      digits: "111",
      gold: "get_user get_invoice get_weather",
      edges: [],
      turns: [
        find("get_user", "get_invoice", "get_weather"),
        late(
          calls("get_user=1 get_invoice=2 get_weather=3", planBlock("get_user get_invoice get_weather")),
          320,
          120,
          560,
        ),
        answer("The invoice is open, and it rains in Zürich."),
      ],
    },
    {
      shape: "diamond",
      digits: "101",
      gold: "find_order get_user get_invoice send_mail",
      edges: ["find_order>get_user", "find_order>get_invoice", "get_user>send_mail", "get_invoice>send_mail"],
      turns: [
        find("find_order get_user", "get_invoice send_mail"),
        late(
          calls(
            "find_order=9:transient!rate_limit",
            planBlock("find_order | get_user get_invoice | send_mail", [
              "find_order>get_user",
              "find_order>get_invoice",
              "get_user,get_invoice>send_mail",
            ]),
          ),
          90,
        ),
        late(calls("find_order=9"), 210),
        late(calls("get_user=4 get_invoice=5"), 180, 450),
        late(calls("send_mail=6"), 130),
        answer("The mail is sent."),
      ],
    },
    {
      shape: "chain",
      digits: "000",
      gold: "find_order get_invoice",
      edges: ["find_order>get_invoice"],
      turns: [
        find("find_order", "get_invoice"),
        late(
          calls(
            "find_order=1:not_found get_invoice=2:invalid",
            planBlock("find_order | get_invoice", ["find_order>get_invoice"]),
          ),
          150,
          60,
        ),
        answer("I could not find it."),
      ],
    },
    {
      shape: "fan_out",
      digits: "000",
      gold: "list_orders get_order",
      edges: ["list_orders>get_order"],
      turns: [{ reply: "I will just answer." }, find("list_orders"), answer("Three orders.")],
    },
  ];
  const out: StoredTrajectory[] = [];
  for (const t of list) {
    const trajectory = await replayEpisode({
      taskId: t.shape,
      request: `Please do the ${t.shape} thing for me.`,
      policy: "local",
      turns: t.turns,
    });
    trajectory.verdicts = {
      ...verdicts(t.digits),
      reasons: {
        quality: "every fact is there",
        faithfulness: "each fact was observed",
        utility: "nothing else was asked",
      },
    };
    trajectory.system = "Find tools, call them in parallel, answer.";
    const reference = { ...truth(t.gold, t.edges), verdicts: trajectory.verdicts };
    out.push({
      benchmark: "toolenv",
      group: t.shape,
      label: "after",
      trial: 0,
      success: t.digits === "000" ? 0 : 1,
      trajectory,
      rewards: scoreTrajectory(trajectory, reference),
    });
  }
  return out;
}

/** Puts `runs` runs with `each` trajectories in a results folder; the first is still running, and one trajectory of it is hostile. */
export async function seedResults(
  root: string,
  o: { runs: number; each: number; hostileBytes?: number },
): Promise<string[]> {
  const base = await templates();
  const ids: string[] = [];
  const index = new RunIndex(root);
  const curve = (stage: string, steps: number, run: number): string =>
    Array.from({ length: steps }, (_, i) => {
      const noise = (k: number) => draw(run, i, k) - 0.5;
      const values =
        stage === "sft"
          ? {
              loss: 4 * Math.exp(-i / 60) + 0.4 + 0.3 * noise(1),
              lr: 1e-3 * Math.min(1, i / 20),
              gradNorm: 1 + noise(2),
            }
          : {
              rewardTrajectory: 0.2 + 0.5 * (1 - Math.exp(-i / 80)) + 0.1 * noise(3),
              rewardPhase: 0.3 + i / 900 + 0.1 * noise(4),
              rewardFormat: 0.8 + 0.1 * noise(5),
              success: Math.min(1, 0.1 + i / 400 + 0.1 * noise(6)),
              kl: i / 5000,
              entropy: 1.5 - i / 400,
              turns: 4 + noise(7),
              width: 1.5 + 0.3 * noise(8),
              flatTrajectory: Math.max(0, 0.3 + 0.2 * noise(9)),
            };
      return `${JSON.stringify({ stage, step: i + 1, time: i, ...values })}\n`;
    }).join("");
  for (let run = 0; run < o.runs; run++) {
    const experiment = ["quickstart", "paradigms", "advantages", "faults"][run % 4]!;
    const status: RunStatus = run === 0 ? "running" : run % 17 === 5 ? "failed" : run % 23 === 7 ? "stopped" : "done";
    const id = `${experiment}/cell${Math.floor(run / 12)}-s${(run % 3) + 1}-${hash2(3, run).toString(16)}`;
    ids.push(id);
    const stages = ["sft", "rl"].map((name, i) => ({
      name,
      key: hash2(run, i).toString(16),
      elapsedMs: 1000 * (60 + 400 * draw(run, i)),
      cached: run % 5 === 0,
    }));
    for (const s of stages) {
      const dir = join(root, "stages", `${s.name}-${s.key}`);
      mkdirSync(dir, { recursive: true });
      writeFileSync(join(dir, "metrics.jsonl"), curve(s.name, 200, run) + (run === 0 ? '{"stage":"rl","st' : ""));
    }
    const list = Array.from({ length: o.each }, (_, n): StoredTrajectory => {
      const b = base[Math.floor(draw(run, n) * base.length)]!;
      const hostile = run === 0 && n === 0;
      const text = hostile ? `${HOSTILE} ${"long ".repeat((o.hostileBytes ?? 1_000_000) / 5)}` : null;
      const turns = b.trajectory.turns.map((t, i) => (text !== null && i === 0 ? { ...t, reply: text } : t));
      return {
        ...b,
        label: LABELS[n % 3]!,
        trajectory: {
          ...b.trajectory,
          turns,
          taskId: `task-${b.group}-${n % 40}`,
          paradigm: PARADIGMS[run % 2]!,
          request: text ?? `${b.trajectory.request} Number ${n}, for customer ${hash2(run, n) % 1000}.`,
        },
      };
    });
    const record: RunRecord = {
      id,
      experiment,
      cell: run === 0 ? HOSTILE : `cell${Math.floor(run / 12)}`,
      seed: (run % 3) + 1,
      status,
      error: status === "failed" ? "DivergedError: the loss is NaN in step 12." : null,
      created: new Date(Date.UTC(2026, 0, 1) + run * 3_600_000).toISOString(),
      finished: status === "running" ? null : new Date(Date.UTC(2026, 0, 1) + run * 3_600_000 + 600_000).toISOString(),
      config: { name: experiment, seed: (run % 3) + 1, stages: { rl: { lr: 1e-5 * (1 + (run % 3)) } } },
      environment: { paraagent: "0.1.0", engine: { kind: "cpu" } },
      stages: status === "running" ? stages.slice(0, 1) : stages,
      ...(status === "running" ? { current: { name: "rl", key: stages[1]!.key } } : {}),
      samples: [],
    };
    const dir = join(root, id);
    mkdirSync(dir, { recursive: true });
    writeFileSync(join(dir, "run.json"), JSON.stringify(record));
    if (run === 1) writeFileSync(join(dir, "slurm-1.out"), `started\n${HOSTILE}\n`);
    index.put(record);
    if (o.each > 0) {
      writeTrajectories(join(dir, "trajectories.jsonl.gz"), list);
      const outcomes = list.map(
        (s, n): TaskOutcome => ({
          benchmark: "toolenv",
          group: s.group,
          task: `task-${n}`,
          label: s.label,
          trial: 0,
          success: s.success,
          scores: {},
          errors: {},
          ...episodeMetrics(s.trajectory),
        }),
      );
      writeFileSync(join(dir, "outcomes.jsonl"), outcomes.map((x) => `${JSON.stringify(x)}\n`).join(""));
      index.putOutcomes(id, outcomes);
    }
  }
  index.trajectories.syncAll(ids);
  index.close();
  return ids;
}
