import { join } from "node:path";
import { runParadigm } from "../agents/paradigms.ts";
import { randomPolicy } from "../agents/random.ts";
import { retrievalPolicy } from "../agents/retrieval.ts";
import { scriptedPolicy } from "../agents/scripted.ts";
import { apiBank } from "../bench/apibank.ts";
import { evaluate } from "../bench/evaluate.ts";
import { BENCHMARK_FILES, benchmarkFolder, missingFiles, readBenchmarkFile } from "../bench/files.ts";
import apiBankSamples from "../bench/samples/apibank.json";
import toolbenchSamples from "../bench/samples/toolbench.json";
import { readToolbench, toolBench, toolbenchSchema } from "../bench/toolbench.ts";
import { toolEnvBenchmark } from "../bench/toolenv.ts";
import type { Benchmark, BenchmarkName, BenchTask, TaskOutcome } from "../bench/types.ts";
import { TaskWorlds } from "../bench/worlds.ts";
import { ConfigError } from "../config/load.ts";
import type { Experiment } from "../config/schema.ts";
import type { Policy } from "../paraact/types.ts";
import { World } from "../toolenv/world.ts";
import { episodeSettings, LOCAL_CONCURRENCY, localAgent, scriptedParadigm } from "./agent.ts";
import type { Shared } from "./pipeline.ts";
import { retrieverOf } from "./retriever.ts";
import { type StoredTrajectory, writeTrajectories } from "./run.ts";
import { openModel } from "./stage-base.ts";
import { readTasks, type TasksResult } from "./stage-tasks.ts";
import { runStage, type StageRecord } from "./stages.ts";

const VERSION = 1;

export interface EvaluationPlan {
  benchmark: BenchmarkName;
  policy: Exclude<Experiment["stages"]["evaluate"], undefined>["policies"][number];
  /** What the result is called, e.g. "after SFT". */
  label: string;
  /** The stage whose model plays, for the local policy. */
  model: StageRecord<{ model: string }> | null;
  constrained: boolean;
  limit: number | undefined;
  trials: number;
}

export type EvaluateResult = { outcomes: TaskOutcome[]; sample: boolean; notes: string[] };

/** The benchmark's files are there, or the project's samples stand in. */
export function usesSamples(benchmark: BenchmarkName, data: string | undefined): boolean {
  return benchmark !== "toolenv" && missingFiles(benchmark, benchmarkFolder(data)).length > 0;
}

/** Opens one of the two public benchmarks, or its samples where the files are missing. */
export function openBenchmark(name: "toolbench" | "apibank", data: string | undefined): Benchmark {
  const folder = benchmarkFolder(data);
  const sample = usesSamples(name, data);
  if (name === "toolbench") {
    const groups = sample
      ? [{ group: "samples", queries: toolbenchSchema.parse(toolbenchSamples) }]
      : readToolbench(folder);
    return toolBench(groups, (catalog) => new World(catalog, 1), { sample });
  }
  const file = BENCHMARK_FILES.find((f) => f.benchmark === "apibank")!;
  return apiBank(sample ? apiBankSamples : readBenchmarkFile(file, folder), {
    sample,
    source: sample ? "samples" : file.path,
  });
}

/** Plays one policy over one benchmark. */
export async function evaluateStage(
  shared: Shared,
  tasks: StageRecord<TasksResult>,
  plan: EvaluationPlan,
): Promise<StageRecord<EvaluateResult>> {
  const { experiment } = shared.loaded;
  const { agent, world } = experiment;
  const { benchmark: name, policy, model, label, constrained, limit, trials } = plan;
  const sample = usesSamples(name, shared.data);
  if (sample) {
    shared.progress.log(
      `${name}: ${missingFiles(name as "toolbench" | "apibank", benchmarkFolder(shared.data)).join(", ")} not in ${benchmarkFolder(shared.data)}; the project's own SAMPLE tasks stand in. Get the files with: bun run fetch-benchmarks`,
    );
  }
  const key = {
    version: VERSION,
    benchmark: name,
    data:
      name === "toolenv"
        ? { tasks: tasks.key, world }
        : sample
          ? "samples"
          : BENCHMARK_FILES.filter((f) => f.benchmark === name).map((f) => f.sha256),
    policy,
    label,
    model: model?.key ?? null,
    constrained,
    device: model ? await shared.engine.kind() : null,
    agent,
    limit,
    trials,
    seed: experiment.seed,
  };
  const record = await runStage<EvaluateResult>({
    name: "evaluate",
    inputs: key,
    seed: experiment.seed,
    progress: shared.progress,
    async run(ctx) {
      const benchmark = name === "toolenv" ? await toolEnv(shared, tasks) : openBenchmark(name, shared.data);
      const played = await policyOf(shared, plan, benchmark);
      try {
        const { outcomes, trajectories, rewards } = await evaluate({
          benchmark,
          limit,
          label,
          policyFor: played.policyFor,
          play: (episode) => runParadigm(agent.paradigm, episode),
          settings: episodeSettings(agent),
          temperature: agent.temperature,
          trials,
          seed: experiment.seed,
          concurrency: LOCAL_CONCURRENCY,
          onDone: (done, total) => ctx.progress.update(done, total, `${name} · ${label}`),
          stopping: () => ctx.stopping,
        });
        const stored = outcomes.map((o, i): StoredTrajectory => {
          const { benchmark, group, label, trial, success } = o;
          return { benchmark, group, label, trial, success, trajectory: trajectories[i]!, rewards: rewards[i] ?? null };
        });
        writeTrajectories(join(ctx.dir, "trajectories.jsonl.gz"), stored);
        return { outcomes, sample: benchmark.sample, notes: benchmark.notes };
      } finally {
        await played.close();
      }
    },
  });
  return shared.done(record);
}

async function toolEnv(shared: Shared, tasks: StageRecord<TasksResult>): Promise<Benchmark> {
  const { experiment } = shared.loaded;
  return toolEnvBenchmark({
    tasks: readTasks(tasks, "heldout"),
    catalog: shared.catalog,
    retriever: await retrieverOf(shared.catalog, experiment.agent.retriever, shared.progress),
    worlds: new TaskWorlds(shared.catalog),
  });
}

interface Played {
  policyFor(task: BenchTask): Policy;
  close(): Promise<void>;
}

const nothing = async (): Promise<void> => {};

async function policyOf(shared: Shared, plan: EvaluationPlan, benchmark: Benchmark): Promise<Played> {
  const { agent, seed } = shared.loaded.experiment;
  switch (plan.policy) {
    case "local": {
      const engine = await shared.engine.get();
      const { model, tokenizer } = await openModel(engine, plan.model!.result.model);
      const { policy, generator } = localAgent(model, tokenizer, agent, plan.constrained);
      return {
        policyFor: () => policy,
        async close() {
          generator.close();
          model.dispose();
        },
      };
    }
    case "scripted":
    case "gold": {
      const golds = benchmark.tasks.flatMap((t) => (t.gold ? [t.gold] : []));
      const policy = scriptedPolicy(scriptedParadigm(agent.paradigm), golds);
      return { policyFor: () => policy, close: nothing };
    }
    case "retrieval": {
      const policy = retrievalPolicy();
      return { policyFor: () => policy, close: nothing };
    }
    case "random": {
      const policy = randomPolicy(seed);
      return { policyFor: () => policy, close: nothing };
    }
    case "openai":
      throw new ConfigError(["the policy openai is not wired into experiments yet."]);
  }
}
