/** The card of a model that a run trained: what it is, what it read, how it learnt, what it scores. Every figure is read from the run. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { TaskOutcome } from "../bench/types.ts";
import type { Experiment } from "../config/schema.ts";
import type { ModelConfig } from "../model/types.ts";
import { type DrillKind, drillKinds } from "../train/drills.ts";
import { arms, compareTables, groupTables } from "./compare.ts";
import type { RunRecord } from "./index-store.ts";
import { duration } from "./progress.ts";
import type { SkillsResult } from "./stage-skills.ts";
import { readMetrics, resultsRoot } from "./stages.ts";
import { markdownTable } from "./table.ts";

/** Rows of the loss curve. */
const ROWS = 12;

function stageFile(record: RunRecord, name: string, file: string): string | null {
  const stage = record.stages.findLast((s) => s.name === name);
  return stage ? join(resultsRoot(), "stages", `${stage.name}-${stage.key}`, file) : null;
}

/** The result and the time of a stage, or null where the run has none of that name. */
function stageResult(record: RunRecord, name: string): { elapsedMs: number; result: Record<string, unknown> } | null {
  const path = stageFile(record, name, "done.json");
  return path ? JSON.parse(readFileSync(path, "utf8")) : null;
}

function lossCurve(record: RunRecord, stage: string): string[] {
  const path = stageFile(record, stage, "metrics.jsonl");
  if (!path) return [];
  const { lines } = readMetrics(path);
  const trained = lines.filter((l) => typeof l.loss === "number");
  const held = lines.filter((l) => typeof l.heldoutLoss === "number");
  const shown = held.filter((_, i) => i % Math.ceil(held.length / ROWS) === 0 || i === held.length - 1);
  const near = (step: number) => {
    const part = trained.filter((l) => l.step > step - 50 && l.step <= step);
    return part.length > 0 ? (part.reduce((s, l) => s + Number(l.loss), 0) / part.length).toFixed(3) : "–";
  };
  return [
    "| step | tokens | training loss (mean of 50 steps) | loss on documents left out |",
    "|---|---|---|---|",
    ...shown.map((l) => {
      const tokens = trained.findLast((t) => t.step <= l.step)?.tokens ?? 0;
      return `| ${l.step} | ${Number(tokens).toLocaleString("en")} | ${near(l.step)} | ${Number(l.heldoutLoss).toFixed(3)} |`;
    }),
  ];
}

const SKILLS: Record<DrillKind, string> = {
  query: "the searches for a request",
  choose: "the first calls of a request, out of up to twelve tools, with their arguments",
  follow: "the call that carries on from a response",
  lookup: "fields of responses that are asked for",
};

/** What a base model can do on held-out providers. */
function skillTable(record: RunRecord): string[] {
  const measured = stageResult(record, "skills")?.result.skills as SkillsResult["skills"] | undefined;
  if (!measured) return [];
  const rows = drillKinds.flatMap((kind) => {
    const skill = measured[kind];
    return skill
      ? [
          `| ${kind}: ${SKILLS[kind]} | ${skill.turns} | ${(100 * skill.probability).toFixed(1)} % | ${skill.loss.toFixed(3)} |`,
        ]
      : [];
  });
  return [
    "Skills, each turn after the right turns before it; right: the mean probability of the whole turn, to the letter.",
    "",
    "| skill | turns | right | loss, nats a token |",
    "|---|---|---|---|",
    ...rows,
    "",
  ];
}

/** Markdown. `stage`: the stage whose model it is. */
export function modelCard(
  record: RunRecord,
  outcomes: readonly TaskOutcome[],
  model: { config: ModelConfig; parameters: number; bytes: number; stage: string; note?: string },
): string {
  const e = record.config as Experiment;
  const { config } = model;
  const demos = stageResult(record, "coldstart")?.result.report as
    | { kept: number; shapes: Record<string, number> }
    | undefined;
  const trained = stageResult(record, model.stage);
  const environment = record.environment as { machine?: { cpu?: string; cores?: number }; commit?: string };
  const of = arms([{ record, outcomes: [...outcomes] }]);
  const shape = Object.entries(demos?.shapes ?? {}).map(([name, n]) => `${n} ${name}`);
  const conv = config.short_conv
    ? `, short causal convolutions on queries (${config.short_conv.q} taps) and keys (${config.short_conv.k} taps)`
    : "";
  return [
    `# ${e.name}: a model of ${(model.parameters / 1e6).toFixed(2)} million parameters`,
    "",
    `${e.description}. Written by \`bun run export ${record.id} --format model\`; every figure is read from that run.`,
    "",
    `- **Architecture**: Qwen3, ${config.num_hidden_layers} layers, width ${config.hidden_size}, ${config.num_attention_heads} heads of ${config.head_dim} (${config.num_key_value_heads} for keys and values), feed-forward ${config.intermediate_size}, vocabulary ${config.vocab_size}, tied embeddings${conv}; ${(model.bytes / 2 ** 20).toFixed(1)} MiB`,
    `- **Data**: ${demos?.kept ?? 0} scripted demonstrations (${shape.join(", ")}) of ToolEnv tasks whose providers are in the training split; no held-out provider, nothing of ToolBench or API-Bank. ${e.model.from === undefined ? "Vocabulary trained on the same" : `Weights and vocabulary start as those of ${e.model.from}`}`,
    `- **Training**: stage \`${model.stage}\`, seed ${record.seed}, ${Number(trained?.result.steps ?? 0).toLocaleString("en")} steps, ${Number(trained?.result.tokens ?? 0).toLocaleString("en")} tokens, ${duration(trained?.elapsedMs ?? 0)} (of the last process, if it was resumed) on ${environment.machine?.cpu ?? "an unknown machine"} × ${environment.machine?.cores ?? "?"} cores`,
    `- **Use**: \`model.from\` of an experiment. It reads \`prompt: short\` and \`schemas: compact\` and speaks as \`wording: brief\`. Made for learning experiments, not for real requests`,
    ...(model.note ? [`- **Note**: ${model.note}`] : []),
    `- commit ${environment.commit ?? "unknown"}, ${record.created.slice(0, 10)}`,
    "",
    "## Loss",
    "",
    ...lossCurve(record, model.stage),
    "",
    "## On providers that it has never seen",
    "",
    ...skillTable(record),
    ...compareTables(of).flatMap((t) => [markdownTable(t), ""]),
    ...groupTables(of).flatMap((t) => [markdownTable(t), ""]),
  ].join("\n");
}
