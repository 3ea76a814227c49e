/** `bun run show <run>`: what a run's policies did, task by task; --task prints one trajectory whole, with each reward and its reason. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import type { RewardTerm } from "../lib/rewards/types.ts";
import { RunIndex, runFolder, UnknownRunError } from "../lib/runs/index-store.ts";
import { readTrajectories, type StoredTrajectory } from "../lib/runs/run.ts";
import { resultsRoot } from "../lib/runs/stages.ts";
import { textTable } from "../lib/runs/table.ts";
import { main, UsageError } from "./cli.ts";

function terms(list: RewardTerm[], depth = 1): string[] {
  return list.flatMap((t) => [
    `${"  ".repeat(depth)}${t.symbol} = ${t.value.toFixed(3)}  ${t.reason}`,
    ...terms(t.parts ?? [], depth + 1),
  ]);
}

function transcript(s: StoredTrajectory): string {
  const { trajectory: t } = s;
  const lines = [
    `${s.benchmark} · ${s.group} · ${s.label} · trial ${s.trial} · task ${t.taskId}`,
    "",
    `request: ${t.request}`,
  ];
  for (const [i, turn] of t.turns.entries()) {
    lines.push(
      "",
      `── turn ${i + 1} · ${turn.kind} · ${Math.round(turn.startMs)}–${Math.round(turn.endMs)} ms · plan ${turn.planSlot}, ${turn.planEvent}`,
    );
    lines.push(turn.reply);
    for (const f of turn.findings) lines.push(`  ! ${f.code} at ${f.at}: ${f.message}`);
    if (turn.observation) lines.push(turn.observation);
  }
  lines.push(
    "",
    `end: ${t.end}${t.error ? ` (${t.error})` : ""}; success ${s.success ?? "not measured"}; makespan ${Math.round(t.makespanMs)} ms of ${Math.round(t.serialMs)} ms in series`,
  );
  if (t.verdicts) for (const [name, reason] of Object.entries(t.verdicts.reasons)) lines.push(`  ${name}: ${reason}`);
  if (s.rewards) lines.push("rewards:", ...terms(s.rewards.terms));
  return lines.join("\n");
}

await main(
  {
    name: "show",
    summary: "the trajectories of a run: a list, or one whole",
    usage: [
      'bun run show <experiment>/<run> [--benchmark toolenv] [--label "after RL"] [--failed]',
      "bun run show <experiment>/<run> --task <id>",
    ],
    flags: {
      task: { type: "string", help: "print this task's trajectories whole (the start of its id is enough)" },
      benchmark: { type: "string", help: "only this benchmark" },
      label: { type: "string", help: 'only this label, such as "after RL"' },
      failed: { type: "boolean", help: "only tasks that failed" },
    },
  },
  async (args) => {
    const root = resultsRoot();
    const index = new RunIndex(root);
    const [name] = args.positionals;
    if (name === undefined)
      throw new UsageError("name a run: bun run show <experiment>/<run>. bun run compare lists the runs.");
    const id = name.replace(/^results\//, "").replace(/\/$/, "");
    const record = index.run(id) ?? index.runs().find((r) => r.id.startsWith(id)) ?? null;
    if (!record) throw new UnknownRunError(`there is no run "${id}". bun run compare lists the runs.`);
    const path = join(runFolder(root, record.id), "trajectories.jsonl.gz");
    if (!existsSync(path)) throw new UnknownRunError(`${record.id} has no trajectories (status ${record.status}).`);
    const [task, benchmark, label] = [args.text("task"), args.text("benchmark"), args.text("label")];
    const list = readTrajectories(path).filter(
      (s) =>
        (task === undefined || s.trajectory.taskId.startsWith(task)) &&
        (benchmark === undefined || s.benchmark === benchmark) &&
        (label === undefined || s.label === label) &&
        (!args.on("failed") || s.success === 0),
    );
    if (list.length === 0) throw new UsageError("no trajectory fits these filters.");
    if (!args.json) {
      if (task !== undefined) console.log(list.map(transcript).join("\n\n"));
      else {
        const rows = list.map((s) => [
          s.trajectory.taskId,
          s.benchmark,
          s.group,
          s.label,
          s.success === null ? "–" : String(s.success),
          String(s.trajectory.turns.length),
          s.trajectory.end,
          s.trajectory.request.slice(0, 60),
        ]);
        console.log(
          textTable({
            title: record.id,
            columns: ["task", "benchmark", "group", "label", "success", "turns", "end", "request"],
            rows,
            notes: [`bun run show ${record.id} --task <id> prints one whole`],
          }),
        );
      }
    }
    return { json: { run: record.id, trajectories: list } };
  },
);
