/** `bun run eval toolbench|apibank|toolenv`: a policy on a benchmark, scored by group with intervals, and stored as a run. */
import { relative } from "node:path";
import { benchmarkNames, paradigmNames, policyNames, retrieverNames } from "../lib/config/schema.ts";
import { evaluationOf } from "../lib/runs/evaluation.ts";
import { runExperiment } from "../lib/runs/pipeline.ts";
import { terminalRoom, textTable } from "../lib/runs/table.ts";
import { type Args, main, UsageError } from "./cli.ts";

/** One of the names that are valid, or a UsageError that lists them. */
function oneOf<T extends string>(names: readonly T[], value: string | undefined, what: string): T {
  const found = names.find((n) => n === value);
  if (found === undefined)
    throw new UsageError(`${what} takes one of ${names.join(", ")}${value === undefined ? "" : `, not "${value}"`}.`);
  return found;
}

const given = <K extends string, V>(key: K, value: V | undefined): Partial<Record<K, V>> =>
  (value === undefined ? {} : { [key]: value }) as Partial<Record<K, V>>;

function request(args: Args) {
  const benchmark = oneOf(benchmarkNames, args.positionals[0], "bun run eval");
  const policy = oneOf(policyNames, args.text("policy"), "--policy");
  const paradigm = oneOf(paradigmNames, args.text("paradigm"), "--paradigm");
  const [url, model] = [args.text("url"), args.text("model")];
  if (policy === "local" && model === undefined)
    throw new UsageError("--policy local needs --model DIR: a folder in Hugging Face's layout.");
  const [judgeUrl, judgeModel] = [args.text("judge-url"), args.text("judge-model")];
  if ((judgeUrl === undefined) !== (judgeModel === undefined))
    throw new UsageError("a judge needs both --judge-url and --judge-model.");
  const kind = args.text("responses");
  const recording = args.text("recording");
  const responses =
    kind !== undefined || recording !== undefined || args.on("offline")
      ? {
          kind: oneOf(["world", "model", "server"] as const, kind ?? "world", "--responses"),
          offline: args.on("offline"),
          ...given("url", args.text("responses-url")),
          ...given("model", args.text("responses-model")),
          ...given("recording", recording),
        }
      : undefined;
  const short = policy === "local" && args.text("prompt") === "short";
  const positive = { min: 1 };
  return evaluationOf({
    benchmark,
    policy,
    agent: {
      paradigm,
      retriever: oneOf(retrieverNames, args.text("retriever"), "--retriever"),
      ...given("k", args.number("k", positive)),
      ...given("maxTurns", args.number("turns", positive)),
      ...given("actionsPerTurn", args.number("width", positive)),
      ...given("temperature", args.number("temperature", { min: 0, integer: false })),
      // Small models of this project read one-line prompts and schemas.
      ...(short ? { prompt: "short" as const, schemas: "compact" as const } : {}),
    },
    endpoint: {
      native: args.on("native"),
      concurrency: args.number("concurrency", positive) ?? 16,
      ...given("baseUrl", url),
      ...(policy === "openai" ? given("model", model) : {}),
    },
    ...(policy === "local" ? given("model", model) : {}),
    ...(judgeUrl && judgeModel
      ? { judge: { baseUrl: judgeUrl, model: judgeModel, concurrency: args.number("concurrency", positive) ?? 16 } }
      : {}),
    ...given("responses", responses),
    ...given("limit", args.number("limit", positive)),
    ...given("groups", args.text("groups")?.split(",")),
    ...given("trials", args.number("trials", positive)),
    ...given("seed", args.number("seed", { min: 0 })),
    ...given("device", args.text("device")),
    ...given("tasks", args.number("tasks", positive)),
    ...given("faultRate", args.number("faults", { min: 0, max: 1, integer: false })),
  });
}

await main(
  {
    name: "eval",
    summary: "evaluates a policy on ToolBench (765 queries), API-Bank Level 3 (50 tasks), or ToolEnv's held-out tasks",
    usage: [
      "bun run eval toolbench --policy scripted",
      "bun run eval apibank --policy gold",
      "bun run eval toolenv --policy retrieval --trials 4 --faults 0.2",
      "bun run eval toolbench --policy openai --url http://127.0.0.1:8000/v1 --model Qwen/Qwen3-4B --concurrency 16",
      "bun run eval toolbench --policy openai … --judge-url https://… --judge-model …      (with a pass rate)",
      "bun run eval apibank --policy local --model results/stages/rl-…/model --prompt short",
    ],
    flags: {
      policy: { type: "string", default: "scripted", help: policyNames.join(", ") },
      paradigm: { type: "string", default: "paraact", help: paradigmNames.join(", ") },
      model: { type: "string", help: "local: the model's folder; openai: the model's name at the server" },
      url: {
        type: "string",
        help: "openai: the server's address; OPENAI_BASE_URL where left out. Key: OPENAI_API_KEY",
      },
      native: { type: "boolean", help: "openai: native function calling instead of the text protocol" },
      concurrency: { type: "string", help: "openai and judge: requests in flight at once (default 16)" },
      limit: { type: "string", help: "the first n tasks, spread over the groups" },
      groups: { type: "string", help: "only these groups, such as G1_tool,G3_instruction" },
      trials: { type: "string", help: "runs of each task, for pass@k and pass^k (default 1)" },
      temperature: { type: "string", help: "sampling temperature (default 0)" },
      seed: { type: "string", help: "seed of episodes (default 1)" },
      turns: { type: "string", help: "turns at most (default 15)" },
      k: { type: "string", help: "tools shown for each search (default 3)" },
      width: { type: "string", help: "searches or calls a turn at most (default 16)" },
      retriever: { type: "string", default: "bm25", help: retrieverNames.join(", ") },
      prompt: { type: "string", default: "full", help: "local: full, or short for this project's small models" },
      device: { type: "string", help: "local: auto, cpu, gpu, software … (default auto)" },
      tasks: { type: "string", help: "toolenv: held-out tasks that are made (default 200)" },
      faults: { type: "string", help: "toolenv: share of calls that a fault hits (default 0)" },
      responses: {
        type: "string",
        help: "toolbench: world (default), model (a simulator), server (StableToolBench's)",
      },
      "responses-url": { type: "string", help: "address of the simulator model or of StableToolBench's server" },
      "responses-model": { type: "string", help: "the simulator model's name" },
      recording: { type: "string", help: "toolbench: file of recorded responses: read, and added to" },
      offline: { type: "boolean", help: "toolbench: answer from the recording only" },
      "judge-url": { type: "string", help: "toolbench: the judge's server. Key: JUDGE_API_KEY, else OPENAI_API_KEY" },
      "judge-model": { type: "string", help: "toolbench: the judge's model; without a judge there is no pass rate" },
      data: { type: "string", help: "folder of the benchmark files (bun run fetch-benchmarks)" },
    },
  },
  async (args) => {
    const run = await runExperiment(request(args), {
      progress: args.progress,
      ...given("data", args.text("data")),
    });
    if (!args.json) {
      console.log(run.groups.map((t) => textTable(t, terminalRoom())).join("\n\n"));
      console.log(
        `\nrun: ${relative(".", run.dir)}\nNext:\n  bun run show ${run.id}\n  bun run compare ${run.id.split("/")[0]}`,
      );
    }
    return { json: run };
  },
);
