/** Opening the benchmarks that an experiment evaluates on, with the retriever, the responses and the judge that it names. */
import { mkdirSync } from "node:fs";
import { dirname } from "node:path";
import OpenAI from "openai";
import { apiBank } from "../bench/apibank.ts";
import { BENCHMARK_FILES, benchmarkFolder, missingFiles, readBenchmarkFile } from "../bench/files.ts";
import apiBankSamples from "../bench/samples/apibank.json";
import toolbenchSamples from "../bench/samples/toolbench.json";
import { type BackendOf, readToolbench, toolBench, toolbenchSchema } from "../bench/toolbench.ts";
import { toolEnvBenchmark } from "../bench/toolenv.ts";
import type { Benchmark, BenchmarkName } from "../bench/types.ts";
import { virtualBackend } from "../bench/virtual.ts";
import { faultRates, TaskWorlds } from "../bench/worlds.ts";
import { retrieverOf as namedRetriever, type RetrieverName, toolList } from "../catalog/retrievers.ts";
import { defaultCatalogPath } from "../catalog/store.ts";
import type { JsonObject } from "../catalog/types.ts";
import { ConfigError } from "../config/load.ts";
import type { Experiment } from "../config/schema.ts";
import { modelBackend, simulatorPromptHash } from "../toolenv/backends/model.ts";
import { Recording, replay } from "../toolenv/backends/recorded.ts";
import type { Backend } from "../toolenv/types.ts";
import { World } from "../toolenv/world.ts";
import { judgeEndpoint } from "./endpoints.ts";
import type { Shared } from "./pipeline.ts";
import { retrieverOf } from "./retriever.ts";
import { readTasks, type TasksResult } from "./stage-tasks.ts";
import type { StageRecord } from "./stages.ts";
import type { Progress } from "./types.ts";

type BenchmarkSettings = NonNullable<NonNullable<Experiment["stages"]["evaluate"]>["benchmarks"][BenchmarkName]>;
export type ResponsesSettings = NonNullable<BenchmarkSettings["responses"]>;

/** The benchmark's files are missing, and the project's samples stand in. */
export function usesSamples(benchmark: BenchmarkName, data: string | undefined): boolean {
  return benchmark !== "toolenv" && missingFiles(benchmark, benchmarkFolder(data)).length > 0;
}

/** The backend of ToolBench's calls by an experiment's settings. Its name, which goes into the result, says who answers. */
export function responsesBackend(settings: ResponsesSettings | undefined): BackendOf {
  return (catalog, originalOf) => {
    const { kind, url, model, recording, offline } = settings ?? { kind: "world" as const, offline: false };
    const need = (name: "url" | "model", value: string | undefined): string => {
      if (value) return value;
      throw new ConfigError([`responses.${name}: the responses "${kind}" need it.`]);
    };
    const make = (): Backend => {
      switch (kind) {
        case "world":
          return new World(catalog, 1);
        case "server":
          return virtualBackend({
            url: need("url", url),
            catalog,
            originalOf,
            ...(process.env.TOOLBENCH_KEY ? { key: process.env.TOOLBENCH_KEY } : {}),
          });
        case "model":
          return modelBackend({
            client: new OpenAI({
              baseURL: need("url", url),
              apiKey: process.env.SIMULATOR_API_KEY ?? process.env.OPENAI_API_KEY ?? "none",
              maxRetries: 5,
              logLevel: "off",
            }),
            model: need("model", model),
            catalog,
          });
      }
    };
    const backend = make();
    if (!recording) {
      if (offline) throw new ConfigError(["responses.offline: name the file to answer from with responses.recording."]);
      return backend;
    }
    mkdirSync(dirname(recording), { recursive: true });
    const source: JsonObject = kind === "model" ? { model: model ?? "", prompt: simulatorPromptHash } : {};
    const recorded = replay(new Recording(recording), backend, source, !offline);
    return {
      name: `${backend.name}, recorded in ${recording}${offline ? " (offline)" : ""}`,
      open: (seed) => recorded.open(seed),
    };
  };
}

/** The benchmark with the named retriever over its own tools. */
async function searchedBy(benchmark: Benchmark, name: RetrieverName, progress: Progress): Promise<Benchmark> {
  if (name === "bm25") return benchmark;
  const { catalog } = benchmark;
  const tools = Array.from({ length: catalog.size }, (_, id) => catalog.byId(id));
  const from = toolList(tools, dirname(defaultCatalogPath()));
  const retriever = await namedRetriever(name, from, (done, of) => progress.update(done, of, "tools embedded"));
  return { ...benchmark, retriever };
}

/** Opens a benchmark. The two public ones fall back to the project's samples where their files are missing. */
export async function openBenchmark(
  name: BenchmarkName,
  shared: Shared,
  tasks: StageRecord<TasksResult> | null,
): Promise<Benchmark> {
  const { experiment } = shared.loaded;
  const settings = experiment.stages.evaluate?.benchmarks[name];
  const { retriever } = experiment.agent;
  if (settings?.responses && name !== "toolbench")
    throw new ConfigError([`stages.evaluate.benchmarks.${name}.responses: only toolbench takes other responses.`]);
  const folder = benchmarkFolder(shared.data);
  const sample = usesSamples(name, shared.data);
  switch (name) {
    case "toolenv":
      return toolEnvBenchmark({
        tasks: readTasks(tasks!, "heldout"),
        catalog: shared.catalog,
        retriever: await retrieverOf(shared.catalog, retriever, shared.progress),
        worlds: new TaskWorlds(shared.catalog, faultRates(experiment.world.faultRate)),
      });
    case "toolbench": {
      const groups = sample
        ? [{ group: "samples", queries: toolbenchSchema.parse(toolbenchSamples) }]
        : readToolbench(folder);
      const judge = judgeEndpoint(experiment);
      const opened = toolBench(groups, responsesBackend(settings?.responses), {
        sample,
        ...(judge ? { judge } : {}),
      });
      return searchedBy(opened, retriever, shared.progress);
    }
    case "apibank": {
      const file = BENCHMARK_FILES.find((f) => f.benchmark === "apibank")!;
      const opened = apiBank(sample ? apiBankSamples : readBenchmarkFile(file, folder), {
        sample,
        source: sample ? "samples" : file.path,
      });
      return searchedBy(opened, retriever, shared.progress);
    }
  }
}
