/**
 * The experiment schema: one YAML file is one experiment. Every key is here, with its default; an unknown key is an error.
 * Figures marked † in the design are the paper's; experiments/presets/paper.yaml sets them.
 */
import { z } from "zod";

const count = z.int().min(0);
const share = z.number().min(0).max(1);
const positive = z.number().positive();

export const shapeNames = ["single", "parallel", "chain", "diamond", "fan_in", "fan_out", "mixed"] as const;
export const retrieverNames = ["bm25", "fts5", "dense", "fused"] as const;
export const paradigmNames = ["paraact", "eae", "ete", "rewoo", "reflexion", "dfsdt"] as const;
export const advantageNames = ["gdpo", "grpo", "dr_grpo", "rloo", "reinforce++"] as const;
export const policyNames = ["local", "scripted", "retrieval", "random", "openai", "gold"] as const;
export const benchmarkNames = ["toolenv", "toolbench", "apibank"] as const;

const shapes = z
  .partialRecord(z.enum(shapeNames), z.number().min(0))
  .describe("Weights of the task shapes; a shape that is left out is not drawn.");

const taskSpec = z.strictObject({
  count: count.describe("How many tasks."),
  seed: count.default(1),
  shapes: shapes.default({ single: 1, parallel: 1, chain: 1 }),
  maxCalls: z.int().min(1).max(6).default(6),
  writes: share.default(0.2).describe("Share of tasks that create, update or delete something."),
  faults: share.default(0).describe("Share of tasks with a fault planted on the path."),
  crossProvider: share.default(0.2).describe("Share of multi-call tasks over several providers."),
  maxResponse: z
    .int()
    .min(100)
    .optional()
    .describe("Longest response of a gold call, in characters: tasks that a small model can read."),
  plainQueries: z
    .boolean()
    .default(false)
    .describe(
      "Only tasks whose tools are found by plain words for what is asked, without words of their descriptions.",
    ),
  withinTop: z.int().min(1).max(10).default(10).describe("A task's own query finds each of its tools this far up."),
});

const schedule = {
  lr: positive.describe("Peak learning rate."),
  warmup: share.describe("Share of the steps that warm up."),
};

const model = z.strictObject({
  from: z
    .string()
    .optional()
    .describe("A model folder in Hugging Face's layout to start from; random weights where it is left out."),
  vocabulary: z
    .int()
    .min(512)
    .default(2048)
    .describe("Entries of the tokenizer that is trained where `from` is left out."),
  layers: z.int().min(1).default(4),
  hidden: z.int().min(8).default(192),
  feedForward: z.int().min(8).default(512),
  heads: z.int().min(1).default(3),
  kvHeads: z.int().min(1).default(1),
  headDim: z.int().min(8).default(64),
  context: z.int().min(64).default(2048),
  shortConv: z
    .strictObject({ q: z.int().min(0).max(8), k: z.int().min(0).max(8) })
    .nullable()
    .default({ q: 2, k: 3 })
    .describe("Taps of the causal convolutions on queries and keys; null is plain Qwen3."),
});

const agent = z.strictObject({
  paradigm: z.enum(paradigmNames).default("paraact"),
  retriever: z.enum(retrieverNames).default("bm25"),
  k: z.int().min(1).max(20).default(3).describe("Tools shown for each search."),
  maxTurns: z.int().min(1).default(15),
  maxNewTokens: z.int().min(1).default(1536).describe("New tokens a turn."),
  maxTrajectoryTokens: z.int().min(1).default(10240),
  prompt: z.enum(["full", "short"]).default("full"),
  schemas: z
    .enum(["json", "compact"])
    .default("json")
    .describe("How tools are shown: full JSON schemas, or one short line."),
  responseChars: z.int().min(50).default(2000).describe("A response longer than this is clipped for the reader."),
  actionsPerTurn: z
    .int()
    .min(1)
    .optional()
    .describe(
      "Searches or calls that one turn may hold at evaluation and in RL; 16 where left out, always 1 in flat paradigms.",
    ),
  constrained: z.boolean().default(true).describe("Schema-constrained decoding."),
  extractive: z
    .boolean()
    .default(false)
    .describe("Constrained decoding also takes numbers, and every word of an answer, from what was read."),
  wholeValues: z
    .boolean()
    .default(false)
    .describe(
      'Constrained decoding takes arguments as whole values of what was read, each once a call, and gives answers the form "label: value, value; label: value.", lists whole. For requests that quote what they name, as ToolEnv\'s do.',
    ),
  temperature: z.number().min(0).default(0).describe("At evaluation; RL samples at its own."),
});

const coldstart = z.strictObject({
  mode: z.enum(["multi", "single"]).default("multi").describe("Cooperating roles, or one agent."),
  detours: share.default(0.15).describe("Share of demonstrations with a miss, a retry or a revised plan."),
  wording: z
    .enum(["varied", "brief"])
    .default("varied")
    .describe("How the roles speak: in many ways, or, for models of a few million parameters, as briefly as can be."),
  recovery: z.boolean().default(true).describe("Keep demonstrations in which something failed and was mended."),
  perTask: z.int().min(1).default(1).describe("Demonstrations of each task, with other wordings and detours."),
});

const sft = z.strictObject({
  ...schedule,
  epochs: z.int().min(1).default(3),
  batchTokens: z.int().min(64).default(4096).describe("Tokens a step."),
  microTokens: z.int().min(64).default(2048).describe("Tokens a micro-batch; memory grows with it."),
  cutoff: z.int().min(16).default(20000).describe("Longest conversation, in tokens."),
  weightDecay: z.number().min(0).default(0.1),
  optimizer: z.enum(["adamw", "muon"]).default("adamw"),
  clip: positive.default(1),
  evaluateEvery: z.int().min(1).default(50),
  maxSteps: z.int().min(1).optional(),
});

const pretrain = z.strictObject({
  ...schedule,
  tokens: z.int().min(1000).describe("Tokens in all."),
  batchTokens: z.int().min(64).default(4096),
  microTokens: z.int().min(64).default(4096),
  cutoff: z.int().min(16).default(1024).describe("Longer documents are left out."),
  weightDecay: z.number().min(0).default(0.1),
  optimizer: z.enum(["adamw", "muon"]).default("muon"),
  clip: positive.default(1),
  evaluateEvery: z.int().min(1).default(100),
  copying: share.default(0.04).describe("Share of the tokens that warm up copying, before anything else."),
  singles: share.default(0.3).describe("Share of the tokens on which only single calls are seen, after the copying."),
  mix: z
    .strictObject({
      whole: share.default(0.7),
      query: share.default(0.03),
      choose: share.default(0.15),
      follow: share.default(0.02),
      lookup: share.default(0.1),
    })
    .prefault({})
    .describe("How the tokens after the copying are shared out: whole conversations, and each kind of micro-episode."),
  renaming: z
    .strictObject({ from: share.default(0.04), share: share.default(0.65), recall: share.default(0.08) })
    .prefault({})
    .describe(
      "From this share of the tokens on, rare words are exchanged consistently in this share of the documents.",
    ),
  minRatio: share.default(0.1).describe("Learning rate at the end, as a share of the peak."),
});

const rl = z.strictObject({
  ...schedule,
  shape: z
    .enum(["constant", "linear", "cosine"])
    .optional()
    .describe("The learning rate after the warm-up: constant where left out, else down to zero at the last step."),
  steps: z.int().min(1),
  prompts: z.int().min(1).default(8).describe("Prompts a batch."),
  group: z.int().min(1).default(8).describe("Rollouts a prompt."),
  miniBatch: z.int().min(1).default(4).describe("Prompts a mini-batch."),
  epochs: z.int().min(1).default(2),
  temperature: positive.default(1),
  clip: positive.default(0.2),
  kl: z.number().min(0).default(0.001),
  advantage: z.enum(advantageNames).default("gdpo"),
  weights: z
    .strictObject({
      trajectory: z.number().default(1),
      phase: z.number().default(0.5),
      format: z.number().default(0.25),
    })
    .prefault({}),
  rewards: z
    .strictObject({
      scheme: z
        .enum(["paraagent", "toolrl"])
        .default("paraagent")
        .describe("The three channels, or ToolRL's one reward."),
      outcomeGate: z.boolean().default(true).describe("R_phase counts only as far as the task succeeds."),
      lambda: z.number().min(0).optional().describe("Weight of the format penalty; the paper's 1 where left out."),
      beta: z.number().min(0).optional().describe("Weight of the mean cascade; the paper's 0.5 where left out."),
    })
    .optional()
    .describe("Ablations of the rewards; the paper's where left out. To leave out a channel set its weight to 0."),
  optimizer: z.enum(["adamw", "muon"]).optional().describe("AdamW where left out."),
  aggregate: z
    .enum(["token", "trajectory", "constant"])
    .optional()
    .describe(
      "What the loss is a mean over: all action tokens of the batch (the paper's, where left out), trajectories of each one's mean (long failures do not outweigh short successes), or trajectories over a constant length (Dr.GRPO).",
    ),
  epsilon: positive
    .optional()
    .describe("Added to the standard deviations that rewards are divided by; the paper's 1e-6 where left out."),
  renaming: share
    .optional()
    .describe(
      "Share of the prompts that are played under other names: rare words of tools and values are exchanged one to one, so that providers that the model has read are new to it.",
    ),
  constrained: share
    .optional()
    .describe(
      "Share of the prompts that are played with schema-constrained decoding: all or none, as agent.constrained says, where left out. Under masks alone nothing is learnt of what they forbid.",
    ),
  dynamicSampling: z.boolean().default(false),
  microTokens: z.int().min(64).default(2048),
  evaluateEvery: z.int().min(1).optional(),
});

const responses = z
  .strictObject({
    kind: z
      .enum(["world", "model", "server"])
      .default("world")
      .describe("Our world, an OpenAI-compatible model as simulator, or StableToolBench's own server (/virtual)."),
    url: z.string().optional().describe("Address of the model's server, or of StableToolBench's."),
    model: z.string().optional(),
    recording: z
      .string()
      .optional()
      .describe("A file of recorded responses: known calls are answered from it, others are added."),
    offline: z.boolean().default(false).describe("Answer from the recording only; a call that it lacks is an error."),
  })
  .describe("Who answers ToolBench's calls; part of the result.");

const evaluate = z.strictObject({
  benchmarks: z
    .partialRecord(
      z.enum(benchmarkNames),
      z.strictObject({
        limit: z.int().min(1).optional().describe("The first n tasks, spread over the groups; all where left out."),
        groups: z.array(z.string()).min(1).optional().describe("Only tasks of these groups, such as G1_tool or chain."),
        responses: responses.optional(),
      }),
    )
    .default({ toolenv: {} }),
  policies: z.array(z.enum(policyNames)).default(["local"]),
  trials: z.int().min(1).default(1).describe("Runs of each task, for pass@k and pass^k."),
  unconstrained: z.boolean().default(false).describe("Also evaluate the local model without constrained decoding."),
  sampled: z
    .int()
    .min(1)
    .optional()
    .describe("Also play the local model at RL's temperature, so many runs of each task: the policy that RL trains."),
  judge: z
    .strictObject({
      baseUrl: z.string(),
      model: z.string(),
      concurrency: z.int().min(1).default(8),
    })
    .optional()
    .describe(
      "Judge of ToolBench's pass rate; without one there is no pass rate. Its key: JUDGE_API_KEY, else OPENAI_API_KEY.",
    ),
});

export const stageNames = ["coldstart", "pretrain", "sft", "rl", "evaluate"] as const;

/** Keys that an override set (a size, a matrix cell) may hold: any part of the experiment, checked after it is merged. */
const overrides = z.record(z.string(), z.unknown());

export const experimentSchema = z.strictObject({
  name: z.string().regex(/^[a-z0-9][a-z0-9_-]*$/, "lower-case letters, digits, - and _"),
  description: z.string().default(""),
  extends: z.string().optional().describe("Another experiment file, relative to this one, to build on."),
  seed: count.default(1),
  device: z
    .string()
    .regex(
      /^(auto|cpu|gpu|software|reference|gpu:.+|software:.+)$/,
      "auto, cpu, gpu, software, reference, gpu:<name> or software:<name>",
    )
    .default("auto"),
  size: z.string().optional().describe("One of `sizes`."),
  sizes: z.record(z.string(), overrides).default({}).describe("Named sets of overrides, chosen by `size`."),
  world: z
    .strictObject({ seed: count.default(1), faultRate: share.default(0) })
    .prefault({})
    .describe("The simulated world: its seed, and the share of calls that a random fault hits."),
  tasks: z.strictObject({ train: taskSpec, heldout: taskSpec }),
  model: model.prefault({}),
  agent: agent.prefault({}),
  policy: z
    .strictObject({
      baseUrl: z.string().optional(),
      model: z.string().optional(),
      concurrency: z.int().min(1).default(8),
      native: z.boolean().default(false).describe("Native function calling instead of the text protocol."),
    })
    .prefault({})
    .describe("The OpenAI-compatible endpoint of the policy `openai`; its key comes from OPENAI_API_KEY."),
  stages: z.strictObject({
    coldstart: coldstart.optional(),
    pretrain: pretrain
      .optional()
      .describe("Trains a base model from random weights on micro-episodes and demonstrations of training providers."),
    sft: sft.optional(),
    rl: rl.optional(),
    evaluate: evaluate.optional(),
  }),
  crossCheck: z
    .strictObject({ steps: z.int().min(1).default(3), device: z.string().default("software") })
    .optional()
    .describe("Train a few steps on a second engine as well, and compare the losses."),
  matrix: z
    .strictObject({
      cells: z.record(z.string(), overrides).optional().describe("Named cells, each a set of overrides."),
      axes: z
        .record(z.string(), z.array(z.unknown()).min(1))
        .optional()
        .describe("Dotted key → values; the grid is their product."),
      seeds: z.array(count).min(1).optional(),
    })
    .optional(),
});

export type Experiment = z.infer<typeof experimentSchema>;
export type TaskSpecConfig = Experiment["tasks"]["train"];
