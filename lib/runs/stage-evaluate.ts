import { join } from "node:path";
import { runParadigm } from "../agents/paradigms.ts";
import { randomPolicy } from "../agents/random.ts";
import { retrievalPolicy } from "../agents/retrieval.ts";
import { scriptedPolicy } from "../agents/scripted.ts";
import { evaluate } from "../bench/evaluate.ts";
import { BENCHMARK_FILES, benchmarkFolder, missingFiles } from "../bench/files.ts";
import { goldPolicy } from "../bench/gold.ts";
import { COMPLETENESS_PROMPT_HASH } from "../bench/judge.ts";
import type { Benchmark, BenchmarkName, BenchTask, TaskOutcome } from "../bench/types.ts";
import { ConfigError } from "../config/load.ts";
import type { Experiment } from "../config/schema.ts";
import type { Policy, Trajectory } from "../paraact/types.ts";
import {
  episodeSettings,
  LOCAL_CONCURRENCY,
  localAgent,
  localGenerator,
  narrowed,
  scriptedParadigm,
  taughtParadigm,
} from "./agent.ts";
import { openBenchmark, usesSamples } from "./benchmarks.ts";
import { endpointPolicy } from "./endpoints.ts";
import type { Shared } from "./pipeline.ts";
import { type StoredTrajectory, writeTrajectories } from "./run.ts";
import { openModel } from "./stage-base.ts";
import type { TasksResult } from "./stage-tasks.ts";
import { runStage, type StageRecord } from "./stages.ts";

/** Bumped when the same settings are evaluated differently. */
const VERSION = 2;

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
  /** The agent's where left out. */
  temperature?: number;
}

export type EvaluateResult = { outcomes: TaskOutcome[]; sample: boolean; notes: string[] };

/** Plays one policy over one benchmark. */
export async function evaluateStage(
  shared: Shared,
  tasks: StageRecord<TasksResult> | null,
  plan: EvaluationPlan,
): Promise<StageRecord<EvaluateResult>> {
  const { experiment } = shared.loaded;
  const { agent, world } = experiment;
  const { native, concurrency } = experiment.policy;
  const { benchmark: name, policy, model, label, constrained, limit, trials } = plan;
  const temperature = plan.temperature ?? agent.temperature;
  const { judge, benchmarks } = experiment.stages.evaluate!;
  const { groups, responses } = benchmarks[name] ?? {};
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
        ? { tasks: tasks?.key, world }
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
    // Only what is set and bears on the result, so that results made without it stay valid.
    ...(temperature === agent.temperature ? {} : { temperature }),
    ...(groups ? { groups } : {}),
    ...(responses ? { responses } : {}),
    ...(judge && name === "toolbench" ? { judge: [judge.baseUrl, judge.model, COMPLETENESS_PROMPT_HASH] } : {}),
    ...(policy === "openai" ? { endpoint: [experiment.policy.baseUrl, experiment.policy.model, native] } : {}),
  };
  const record = await runStage<EvaluateResult>({
    name: "evaluate",
    inputs: key,
    seed: experiment.seed,
    progress: shared.progress,
    async run(ctx) {
      const benchmark = await openBenchmark(name, shared, tasks);
      const played = await policyOf(shared, plan, benchmark);
      try {
        const { outcomes, trajectories, rewards } = await evaluate({
          benchmark,
          groups,
          limit,
          label,
          policyFor: played.policyFor,
          play: (episode) => runParadigm(agent.paradigm, episode),
          settings: { ...episodeSettings(agent), ...(policy === "gold" ? { callsNeedRetrieval: false } : {}) },
          temperature,
          trials,
          seed: experiment.seed,
          concurrency: policy === "openai" ? concurrency : LOCAL_CONCURRENCY,
          onDone: (done, total) => ctx.progress.update(done, total, `${name} · ${label}`),
          stopping: () => ctx.stopping || played.broken() !== null,
        }).catch((error: unknown) => {
          throw played.broken() ? incomplete(played.broken()!) : error;
        });
        refuseBroken(played.broken(), trajectories);
        const notes = [...benchmark.notes, ...judgeNotes(outcomes), ...played.notes()];
        const stored = outcomes.map((o, i): StoredTrajectory => {
          const { benchmark, group, label, trial, success } = o;
          return { benchmark, group, label, trial, success, trajectory: trajectories[i]!, rewards: rewards[i] ?? null };
        });
        writeTrajectories(join(ctx.dir, "trajectories.jsonl.gz"), stored);
        return { outcomes, sample: benchmark.sample, notes };
      } finally {
        await played.close();
      }
    },
  });
  return shared.done(record);
}

/** An endpoint or a server failed for good: what was answered is kept, and no result is made of the rest. */
export class EvaluationIncomplete extends Error {
  override name = "EvaluationIncomplete";
}

function incomplete(cause: Error): EvaluationIncomplete {
  return new EvaluationIncomplete(
    `the evaluation can't go on: ${cause.message}. Nothing is scored. Answers so far are kept: the same command goes on without asking for them again.`,
    { cause },
  );
}

/** Episodes that ended because someone else's machine did are no result of the policy. */
function refuseBroken(fault: Error | null, trajectories: readonly Trajectory[]): void {
  if (fault) throw incomplete(fault);
  const broken = trajectories.filter((t) => t.end === "environment_error");
  if (broken.length > 0)
    throw incomplete(new Error(`${broken.length} of ${trajectories.length} episodes broke: ${broken[0]!.error}`));
}

/** Failed verdicts are said: they are in no average. */
function judgeNotes(outcomes: readonly TaskOutcome[]): string[] {
  const verdicts = outcomes.flatMap((o) => o.verdict ?? []);
  if (verdicts.length === 0) return [];
  const failed = verdicts.filter((v) => v.verdict === "failed").length;
  const days = [...new Set(verdicts.flatMap((v) => v.date?.slice(0, 10) ?? []))].sort();
  return [
    `${verdicts.length - failed} of ${verdicts.length} verdicts, given ${days.join(", ") || "without asking"}${failed > 0 ? `; ${failed} FAILED and are counted nowhere` : ""}`,
  ];
}

interface Played {
  policyFor(task: BenchTask): Policy;
  /** The fault that keeps the policy from answering at all, or null. */
  broken(): Error | null;
  notes(): string[];
  close(): Promise<void>;
}

const simple = (policyFor: (task: BenchTask) => Policy): Played => ({
  policyFor,
  broken: () => null,
  notes: () => [],
  close: async () => {},
});

async function policyOf(shared: Shared, plan: EvaluationPlan, benchmark: Benchmark): Promise<Played> {
  const { agent, seed } = shared.loaded.experiment;
  switch (plan.policy) {
    case "local": {
      const engine = await shared.engine.get();
      const { model, tokenizer } = await openModel(engine, plan.model!.result.model);
      const generator = localGenerator(model);
      const policy = localAgent(generator, { model, tokenizer }, agent, plan.constrained);
      return {
        ...simple(() => policy),
        async close() {
          generator.close();
          model.dispose();
        },
      };
    }
    case "scripted": {
      const golds = benchmark.tasks.flatMap((t) => (t.gold ? [t.gold] : []));
      const paradigm = scriptedParadigm(taughtParadigm(agent.paradigm));
      const { catalog } = benchmark;
      const policy = narrowed(scriptedPolicy(paradigm, golds, { catalog }), agent.actionsPerTurn);
      return simple(() => policy);
    }
    case "gold":
      return simple((task) => {
        if (!task.gold) throw new ConfigError([`${benchmark.name} knows no gold calls of task ${task.id}.`]);
        return goldPolicy(task.gold, benchmark.answers?.get(task.id));
      });
    case "retrieval": {
      const policy = retrievalPolicy();
      return simple(() => policy);
    }
    case "random": {
      const policy = randomPolicy(seed);
      return simple(() => policy);
    }
    case "openai": {
      const { policy, broken, used } = endpointPolicy(shared.loaded.experiment);
      return { ...simple(() => policy), broken, notes: () => [`policy: ${used()}`] };
    }
  }
}
