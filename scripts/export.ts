/**
 * `bun run export <run, stage folder or model folder> --format …`: what was made here, in other tools' formats. Models as GGUF (llama.cpp,
 * Ollama, LM Studio) and safetensors (Transformers, vLLM); demonstrations as ShareGPT and OpenAI messages; tasks as verl's Parquet.
 */
import { existsSync, readFileSync, statSync } from "node:fs";
import { basename, join, resolve } from "node:path";
import { writeAtomic } from "../lib/config/atomic.ts";
import { type Experiment, experimentSchema } from "../lib/config/schema.ts";
import { exportGguf, ollamaModelfile } from "../lib/model/gguf.ts";
import { convertModelDir, loadModelDir, weightReader } from "../lib/model/hub.ts";
import { compareWithLlama } from "../lib/model/llama.ts";
import { countParameters } from "../lib/model/parameters.ts";
import type { Message } from "../lib/paraact/types.ts";
import { episodeSettings } from "../lib/runs/agent.ts";
import { type RunRecord, readOutcomes, runFolder } from "../lib/runs/index-store.ts";
import { jsonLines, readJsonLines } from "../lib/runs/jsonl.ts";
import { modelCard } from "../lib/runs/model-card.ts";
import { resultsRoot } from "../lib/runs/stages.ts";
import type { Task } from "../lib/toolenv/types.ts";
import { toOpenAi, toShareGpt, verlParquet } from "../lib/train/export.ts";
import { type Args, main, UsageError } from "./cli.ts";

const FORMATS = ["gguf", "safetensors", "model", "sharegpt", "openai", "verl"] as const;
type Format = (typeof FORMATS)[number];
const GGUF_TYPES = ["f32", "f16", "q8_0"] as const;
const SAFETENSORS_TYPES = ["f32", "f16", "bf16"] as const;
/** Where a run's model is looked for, the furthest trained first. */
const MODEL_STAGES = ["rl", "sft", "pretrain", "base"];

/** A run's record, or null where the argument is a folder that is not one. */
function runOf(source: string): RunRecord | null {
  const folder = existsSync(source) ? source : runFolder(resultsRoot(), source);
  const file = join(folder, "run.json");
  if (existsSync(file)) return JSON.parse(readFileSync(file, "utf8")) as RunRecord;
  if (existsSync(source)) return null;
  throw new UsageError(
    `export: ${source} is neither a folder nor a run of ${resultsRoot()}. List runs with: bun run compare`,
  );
}

/** The folder of a run's stage, among those named, that holds `file`. */
function stageFolder(run: RunRecord, stages: readonly string[], file: string): string {
  for (const name of stages) {
    const stage = run.stages.findLast((s) => s.name === name);
    const folder = stage && join(resultsRoot(), "stages", `${stage.name}-${stage.key}`);
    if (folder && existsSync(join(folder, file))) return folder;
  }
  const there = run.stages.map((s) => s.name).join(", ") || "none";
  throw new UsageError(
    `export: run ${run.id} has no ${file} in its stages ${stages.join(", ")} (its stages: ${there}).`,
  );
}

function modelDir(source: string, stage: string | undefined): string {
  const run = runOf(source);
  if (run) return join(stageFolder(run, stage ? [stage] : MODEL_STAGES, join("model", "config.json")), "model");
  return existsSync(join(source, "config.json")) ? source : join(source, "model");
}

function dataFile(source: string, stage: string, file: string): string {
  if (existsSync(source) && statSync(source).isFile()) return source;
  const run = runOf(source);
  return join(run ? stageFolder(run, [stage], file) : source, file);
}

function chosenType<T extends string>(args: Args, types: readonly T[]): T {
  const text = args.text("type") ?? "f32";
  const type = types.find((t) => t === text);
  if (!type)
    throw new UsageError(`--type for --format ${args.text("format")} is one of ${types.join(", ")}, not "${text}".`);
  return type;
}

async function exportModel(args: Args, source: string, format: "gguf" | "safetensors", name: string): Promise<object> {
  const dir = modelDir(source, args.text("stage"));
  if (format === "safetensors") {
    const type = chosenType(args, SAFETENSORS_TYPES);
    const out = resolve(args.text("out") ?? join("data", "exports", name));
    const maxShardBytes = args.number("shard-bytes", { min: 1 });
    await convertModelDir(dir, out, {
      dtype: type,
      ...(maxShardBytes ? { maxShardBytes } : {}),
    });
    return { format, type, model: dir, out };
  }
  const type = chosenType(args, GGUF_TYPES);
  const out = resolve(args.text("out") ?? join("data", "exports", `${name}.${type}.gguf`));
  const { bytes } = await exportGguf(dir, out, type, name);
  args.progress.log(`llama.cpp: llama-cli -m ${out}`);
  const modelfile = `${out}.Modelfile`;
  writeAtomic(modelfile, ollamaModelfile(basename(out), loadModelDir(dir).config.max_position_embeddings));
  args.progress.log(`Ollama: ollama create ${name} -f ${modelfile} && ollama run ${name}`);
  return {
    format,
    type,
    model: dir,
    out,
    modelfile,
    bytes,
    ...(args.on("check") ? { check: await checkGguf(dir, out) } : {}),
  };
}

/** llama.cpp against our cpu engine, over the vocabulary's own words. */
async function checkGguf(dir: string, gguf: string): Promise<object> {
  const { openEngine } = await import("../lib/engine/open.ts");
  const { Model } = await import("../lib/model/model.ts");
  const { config, weights, tokenizer } = loadModelDir(dir);
  const engine = await openEngine("cpu");
  const model = await Model.load(engine, config, weightReader(weights));
  const sample = 'Find the weather for Paris on 2026-03-14, then book {"seats": [1, 2], "name": "Ada"}.\n'.repeat(8);
  const ids = tokenizer!.encode(sample).slice(0, Math.min(256, config.max_position_embeddings - 8));
  const result = await compareWithLlama(model, tokenizer!, gguf, { ids, texts: [sample] });
  await engine.dispose();
  return result;
}

/** A model folder to start other experiments from, with its card. */
async function exportWithCard(args: Args, source: string): Promise<object> {
  const run = runOf(source);
  if (!run) throw new UsageError("--format model takes a run, whose figures go into the model's card.");
  const stage =
    MODEL_STAGES.find((s) => s === args.text("stage")) ??
    MODEL_STAGES.find((s) => run.stages.some((x) => x.name === s))!;
  const dir = join(stageFolder(run, [stage], join("model", "config.json")), "model");
  const out = resolve(args.text("out") ?? join("models", run.experiment));
  await convertModelDir(dir, out, { dtype: chosenType(args, SAFETENSORS_TYPES) });
  const { config } = loadModelDir(out);
  const bytes = statSync(join(out, "model.safetensors")).size;
  const note = args.text("note");
  const outcomes = readOutcomes(runFolder(resultsRoot(), run.id));
  const card = modelCard(run, outcomes, {
    config,
    parameters: countParameters(config),
    bytes,
    stage,
    ...(note ? { note } : {}),
  });
  writeAtomic(join(out, "README.md"), card);
  return { format: "model", model: dir, out, bytes };
}

async function exportData(args: Args, source: string, format: "sharegpt" | "openai", name: string): Promise<object> {
  const file = dataFile(source, "coldstart", "demonstrations.jsonl");
  const demonstrations = readJsonLines<{ messages: Message[] }>(file);
  const shareGpt = format === "sharegpt";
  const out = resolve(args.text("out") ?? join("data", "exports", `${name}.${format}.${shareGpt ? "json" : "jsonl"}`));
  writeAtomic(
    out,
    shareGpt
      ? JSON.stringify(
          demonstrations.map((d) => toShareGpt(d.messages)),
          null,
          1,
        )
      : jsonLines(demonstrations.map((d) => toOpenAi(d.messages))),
  );
  return { format, source: file, out, conversations: demonstrations.length };
}

async function exportTasks(args: Args, source: string, name: string): Promise<object> {
  const split = args.text("split") ?? "train";
  if (split !== "train" && split !== "heldout") throw new UsageError(`--split is train or heldout, not "${split}".`);
  const file = dataFile(source, "tasks", `${split}.jsonl`);
  const run = runOf(source);
  const agent: Experiment["agent"] = run
    ? experimentSchema.parse(run.config).agent
    : experimentSchema.shape.agent.parse(undefined);
  const { system } = episodeSettings(agent);
  const tasks = readJsonLines<Task>(file);
  const out = resolve(args.text("out") ?? join("data", "exports", `${name}.${split}.parquet`));
  const rows = tasks.map((task) => ({
    ...{
      taskId: task.id,
      shape: task.shape,
      split: task.split,
      system,
      request: task.request,
      task: JSON.stringify(task),
    },
  }));
  writeAtomic(out, verlParquet(rows));
  return { format: "verl", source: file, out, tasks: tasks.length };
}

await main(
  {
    name: "export",
    summary: "models, demonstrations and tasks in other tools' formats",
    usage: [
      "bun run export <experiment>/<run> --format gguf --type q8_0",
      "bun run export <model folder> --format safetensors --type bf16 --out my-model",
      "bun run export <experiment>/<run> --format model --out models/base      (a model folder with its card)",
      "bun run export <experiment>/<run> --format sharegpt      (or openai: the demonstrations)",
      "bun run export <experiment>/<run> --format verl --split train      (the RL tasks, as Parquet)",
    ],
    flags: {
      format: { type: "string", help: FORMATS.join(", ") },
      type: {
        type: "string",
        help: "precision of the weights: f32, f16, q8_0 (gguf) or f32, f16, bf16 (safetensors); f32 if left out",
      },
      out: { type: "string", help: "where to write; under data/exports if left out" },
      stage: {
        type: "string",
        help: "which stage's model: rl, sft, pretrain or base; the furthest trained if left out",
      },
      note: { type: "string", help: "what a model's card should say besides its figures" },
      split: { type: "string", help: "tasks for verl: train (if left out) or heldout" },
      "shard-bytes": { type: "string", help: "largest safetensors shard, in bytes" },
      check: {
        type: "boolean",
        help: "compare the GGUF file with llama.cpp's own results (needs node-llama-cpp in .cache/llama)",
      },
    },
  },
  async (args) => {
    const [source, extra] = args.positionals;
    const format = FORMATS.find((f) => f === args.text("format"));
    if (!source || extra)
      throw new UsageError("export takes one run, stage folder or model folder. See: bun run export --help");
    if (!format) throw new UsageError(`--format is one of ${FORMATS.join(", ")}. See: bun run export --help`);
    const name = basename(resolve(source)).replace(/[^\w.-]+/g, "-");
    const done = await write(args, source, format, name);
    if (!args.json)
      for (const [key, value] of Object.entries(done))
        process.stdout.write(`${key}: ${typeof value === "object" ? JSON.stringify(value) : value}\n`);
    return { json: done };
  },
);

function write(args: Args, source: string, format: Format, name: string): Promise<object> {
  switch (format) {
    case "gguf":
    case "safetensors":
      return exportModel(args, source, format, name);
    case "model":
      return exportWithCard(args, source);
    case "sharegpt":
    case "openai":
      return exportData(args, source, format, name);
    case "verl":
      return exportTasks(args, source, name);
  }
}
