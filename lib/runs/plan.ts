/** What an experiment will take before any of it is spent: sizes, tokens, memory, time. Time comes from a short measurement on this machine. */
import { existsSync, readFileSync } from "node:fs";
import { totalmem } from "node:os";
import { join, resolve } from "node:path";
import type { Loaded } from "../config/load.ts";
import type { Experiment } from "../config/schema.ts";
import { openEngine } from "../engine/open.ts";
import type { DeviceRequest, Engine } from "../engine/types.ts";
import { parseModelConfig } from "../model/hub.ts";
import { Model } from "../model/model.ts";
import { Optimizer } from "../model/optimizer.ts";
import { countParameters } from "../model/parameters.ts";
import type { ModelConfig, PackedBatch } from "../model/types.ts";
import { projectRoot } from "./environment.ts";
import { modelConfig } from "./model-config.ts";
import { duration } from "./progress.ts";
import { runId } from "./run.ts";
import type { Table } from "./table.ts";
import type { Progress } from "./types.ts";

export interface PlannedStage {
  run: string;
  stage: string;
  /** What the stage does, in counts. */
  what: string;
  /** Tokens that pass through the model, forward and backward (training) or forward only. */
  tokens: number;
  /** Device bytes at the most. */
  bytes: number;
  seconds: number;
}

export interface Plan {
  stages: PlannedStage[];
  parameters: number;
  /** Floating-point operations a second that training reached here, and on what. */
  measured: { flops: number; device: string };
  notes: string[];
}

/** Tokens of an episode, by shape, where nothing is measured yet: compact lines and full JSON schemas (design: small-model.md). */
const EPISODE_TOKENS = {
  compact: { single: 323, parallel: 647, chain: 604, many: 900 },
  json: { single: 514, parallel: 1058, chain: 974, many: 1500 },
};

function episodeTokens(experiment: Experiment): number {
  const by = EPISODE_TOKENS[experiment.agent.schemas];
  let sum = 0;
  let weight = 0;
  for (const [shape, w] of Object.entries(experiment.tasks.train.shapes)) {
    const tokens = shape === "single" || shape === "parallel" || shape === "chain" ? by[shape] : by.many;
    sum += tokens * w;
    weight += w;
  }
  return weight > 0 ? sum / weight : by.single;
}

/** The configuration that an experiment trains: its model folder's, else its own shape. */
export function plannedConfig(experiment: Experiment): ModelConfig {
  const from = experiment.model.from && resolve(projectRoot, experiment.model.from);
  if (from && existsSync(join(from, "config.json"))) {
    const path = join(from, "config.json");
    return parseModelConfig(JSON.parse(readFileSync(path, "utf8")), path);
  }
  return modelConfig(experiment.model, experiment.model.vocabulary);
}

/** Activations kept for the backward pass, in f32 numbers a token. */
function activationFloats(c: ModelConfig): number {
  const heads = c.num_attention_heads * c.head_dim;
  const kv = c.num_key_value_heads * c.head_dim;
  return (
    c.num_hidden_layers * (4 * c.hidden_size + 2 * (heads + 2 * kv) + heads + 3 * c.intermediate_size) +
    4 * c.hidden_size
  );
}

/** Operations a second of training steps, on a model narrow enough to be measured in seconds. */
async function measure(engine: Engine): Promise<number> {
  const config = modelConfig(
    { layers: 2, hidden: 256, feedForward: 768, heads: 4, kvHeads: 2, headDim: 64, context: 512, shortConv: null },
    2048,
  );
  const T = engine.info.kind === "reference" || /llvmpipe|swiftshader/i.test(engine.info.description) ? 128 : 1024;
  const model = await Model.create(engine, config, 1);
  const optimizer = new Optimizer(engine, model.trainable());
  const at = Int32Array.from({ length: T }, (_, i) => i);
  const ids = at.map((i) => (i * 7919) % 2048);
  const batch: PackedBatch = { ids, cumulative: Int32Array.of(0, T), rows: at.slice(0, -1), targets: ids.slice(1) };
  const step = async () => {
    model.zeroGrad();
    await model.forwardBackward(batch, (lp) => ({ dLp: lp.map(() => -1 / lp.length) }));
    await optimizer.step(1e-4);
    await engine.sync();
  };
  await step();
  const times: number[] = [];
  for (let i = 0; i < 3; i++) {
    const started = performance.now();
    await step();
    times.push(performance.now() - started);
  }
  model.dispose();
  const median = times.sort((a, b) => a - b)[1]!;
  return (6 * countParameters(config) * T) / (median / 1000);
}

/** Dense bf16 operations a second of one H200 by its data sheet, and the share of them that training is taken to reach. */
const H200 = { flops: 989e12, share: 0.3, count: 8 };
/** A plan that takes longer than this is not for one machine. */
const LONG_SECONDS = 48 * 3600;

/** What the largest stage needs, where this machine has less, and what a plan that is too long for it would take on the paper's machines. */
function needs(stages: readonly PlannedStage[], flops: number): string[] {
  const largest = stages.reduce((a, b) => (b.bytes > a.bytes ? b : a), stages[0]!);
  const seconds = stages.reduce((s, x) => s + x.seconds, 0);
  const notes: string[] = [];
  if (largest.bytes > totalmem()) {
    notes.push(
      `NEEDS ${bytesText(largest.bytes)} of memory for ${largest.stage}, and this machine has ${bytesText(totalmem())}: it does not run here. Smaller: model.* , stages.*.microTokens`,
    );
  }
  if (seconds > LONG_SECONDS) {
    const there = (seconds * flops) / (H200.count * H200.flops * H200.share);
    notes.push(
      `NEEDS ${(seconds * flops).toExponential(1)} operations: about ${duration(there * 1000)} on ${H200.count} × H200 at ${100 * H200.share} % of their bf16 peak (${H200.flops / 1e12} TFLOP/s each), and more in truth, since rollouts decode token by token. Training on several GPUs is left to an engine made for it: bun run export writes its data`,
    );
  }
  return notes;
}

/** Plans every run of an experiment. Stages that runs share are counted once. */
export async function planExperiment(all: Loaded[], progress: Progress): Promise<Plan> {
  const first = all[0]!.experiment;
  progress.log(`measuring training on device ${first.device} …`);
  const engine = await openEngine(first.device as DeviceRequest);
  const flops = await measure(engine);
  const device = engine.info.description;
  await engine.dispose();
  const stages: PlannedStage[] = [];
  const notes = [
    "time is extrapolated from a short training measurement on this machine, and tokens from typical episodes; both are estimates",
  ];
  const seen = new Set<string>();
  for (const loaded of all) {
    const e = loaded.experiment;
    const config = plannedConfig(e);
    if (e.model.from && !existsSync(resolve(projectRoot, e.model.from, "config.json"))) {
      notes.push(
        `${e.model.from} is not on this machine: put the model there before running. The shape is the experiment's own.`,
      );
    }
    const parameters = countParameters(config);
    const tokensEach = Math.min(episodeTokens(e), e.agent.maxTrajectoryTokens);
    const forward = (tokens: number) => (2 * parameters * tokens) / flops;
    const train = (tokens: number) => 3 * forward(tokens);
    const state = 16 * parameters;
    const add = (stage: string, key: unknown, what: string, tokens: number, bytes: number, seconds: number) => {
      const id = JSON.stringify([stage, key]);
      if (seen.has(id)) return;
      seen.add(id);
      stages.push({ run: runId(loaded), stage, what, tokens, bytes, seconds });
    };
    const { coldstart, pretrain, sft, rl, evaluate } = e.stages;
    const shared = [e.seed, e.tasks, e.world, e.agent];
    if (coldstart) {
      add("coldstart", [shared, coldstart], `${e.tasks.train.count} demonstrations`, 0, 0, e.tasks.train.count / 200);
    }
    if (pretrain) {
      const { tokens, batchTokens, microTokens } = pretrain;
      add(
        "pretrain",
        [shared, coldstart, pretrain, e.model],
        `${Math.ceil(tokens / batchTokens)} steps of ${batchTokens} tokens`,
        tokens,
        state + 4 * activationFloats(config) * microTokens,
        train(tokens),
      );
    }
    if (sft) {
      const perEpoch = e.tasks.train.count * Math.min(tokensEach, sft.cutoff);
      const steps = Math.min(sft.maxSteps ?? Infinity, Math.ceil((perEpoch * sft.epochs) / sft.batchTokens));
      const tokens = Math.min(perEpoch * sft.epochs, steps * sft.batchTokens);
      const bytes = state + 4 * activationFloats(config) * sft.microTokens;
      add(
        "sft",
        [shared, coldstart, sft, e.model],
        `${steps} steps of ${sft.batchTokens} tokens`,
        tokens,
        bytes,
        train(tokens),
      );
    }
    if (rl) {
      const rollouts = rl.steps * rl.prompts * rl.group;
      const tokens = rollouts * tokensEach;
      const bytes = state + 4 * parameters + 4 * activationFloats(config) * rl.microTokens;
      const what = `${rl.steps} steps × ${rl.prompts} prompts × ${rl.group} rollouts`;
      // Rollouts decode one token at a time: about three times a forward pass of the same tokens; then reference scores and the epochs.
      add(
        "rl",
        [shared, coldstart, sft, rl, e.model],
        what,
        tokens,
        bytes,
        4 * forward(tokens) + rl.epochs * train(tokens),
      );
    }
    if (evaluate) {
      const sizes = { toolenv: e.tasks.heldout.count, toolbench: 765, apibank: 50 } as const;
      let tasks = 0;
      for (const [name, options] of Object.entries(evaluate.benchmarks)) {
        tasks += Math.min(options?.limit ?? Infinity, sizes[name as keyof typeof sizes]);
      }
      const times = 1 + (pretrain ? 1 : 0) + (sft ? 1 : 0) + (rl ? 1 : 0);
      const runs = evaluate.trials * (evaluate.unconstrained ? 2 : 1) + (evaluate.sampled ?? 0);
      const tokens = tasks * runs * times * tokensEach;
      add(
        "evaluate",
        [shared, e.stages, e.model],
        `${tasks} tasks, ${times} checkpoints, ${runs} runs of each`,
        tokens,
        4 * parameters,
        3 * forward(tokens),
      );
    }
  }
  notes.push(...needs(stages, flops));
  return {
    stages,
    parameters: countParameters(plannedConfig(first)),
    measured: { flops, device },
    notes: [...new Set(notes)],
  };
}

const bytesText = (n: number): string =>
  n === 0 ? "–" : n >= 2 ** 30 ? `${(n / 2 ** 30).toFixed(1)} GiB` : `${Math.ceil(n / 2 ** 20)} MiB`;

export function planTable(plan: Plan): Table {
  const total = plan.stages.reduce((s, x) => s + x.seconds, 0);
  return {
    title: `plan: ${(plan.parameters / 1e6).toFixed(2)} M parameters on ${plan.measured.device} (${(plan.measured.flops / 1e9).toFixed(1)} GFLOP/s measured in training)`,
    columns: ["run", "stage", "what", "tokens", "memory", "time"],
    rows: plan.stages.map((s) => [
      s.run,
      s.stage,
      s.what,
      s.tokens ? Math.round(s.tokens).toLocaleString("en") : "–",
      bytesText(s.bytes),
      duration(s.seconds * 1000),
    ]),
    notes: [`about ${duration(total * 1000)} in all`, ...plan.notes],
  };
}
