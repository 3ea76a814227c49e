import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { ConfigError } from "../config/load.ts";
import type { Engine } from "../engine/types.ts";
import { trainTokenizer } from "../model/bpe.ts";
import { loadModelDir, saveModel, weightReader } from "../model/hub.ts";
import { Model } from "../model/model.ts";
import { countParameters } from "../model/parameters.ts";
import type { LoadedTokenizer } from "../model/tokenizer.ts";
import { TAG_TOKENS } from "../paraact/tags.ts";
import { projectRoot } from "./environment.ts";
import { modelConfig } from "./model-config.ts";
import type { Shared } from "./pipeline.ts";
import { type Demos, demoTexts } from "./stage-coldstart.ts";
import { runStage, type StageRecord } from "./stages.ts";

const VERSION = 1;

export type BaseResult = { model: string; parameters: number; vocabulary: number };

/** A model folder with its tokenizer, on the engine. Dispose the model when done. */
export async function openModel(engine: Engine, dir: string): Promise<{ model: Model; tokenizer: LoadedTokenizer }> {
  const found = loadModelDir(dir);
  if (!found.tokenizer)
    throw new ConfigError([
      `${dir} has no tokenizer.json: a model folder holds config.json, safetensors and its tokenizer.`,
    ]);
  return { model: await Model.load(engine, found.config, weightReader(found.weights)), tokenizer: found.tokenizer };
}

/** The model that training starts from: the folder that `model.from` names, else random weights and a vocabulary trained on the demonstrations. */
export async function baseStage(shared: Shared, demos: StageRecord<Demos> | null): Promise<StageRecord<BaseResult>> {
  const { experiment } = shared.loaded;
  const { from: named, ...shape } = experiment.model;
  if (named !== undefined) {
    const from = resolve(projectRoot, named);
    const weights = join(from, "model.safetensors");
    const index = join(from, "model.safetensors.index.json");
    const file = existsSync(weights) ? weights : index;
    if (!existsSync(file)) {
      throw new ConfigError([
        `model.from: ${from} holds no model.safetensors. Put a model in Hugging Face's layout there, or leave model.from out to start from random weights.`,
      ]);
    }
    const hash = createHash("sha256").update(readFileSync(file)).digest("hex");
    const record = await runStage<BaseResult>({
      name: "base",
      inputs: { version: VERSION, from, hash },
      seed: experiment.seed,
      progress: shared.progress,
      async run() {
        const { config } = loadModelDir(from);
        return { model: from, parameters: countParameters(config), vocabulary: config.vocab_size };
      },
    });
    return shared.done(record);
  }
  if (!demos)
    throw new ConfigError([
      "a model without `model.from` needs stages.coldstart: its vocabulary is trained on the demonstrations.",
    ]);
  const record = await runStage<BaseResult>({
    name: "base",
    inputs: { version: VERSION, shape, demos: demos.key, seed: experiment.seed },
    seed: experiment.seed,
    progress: shared.progress,
    async run(ctx) {
      shared.progress.log(`base: training a vocabulary of ${shape.vocabulary} entries …`);
      const tokenizer = await trainTokenizer(demoTexts(demos), {
        vocabSize: shape.vocabulary,
        tags: TAG_TOKENS,
        maxLength: shape.context,
      });
      const config = modelConfig(shape, tokenizer.vocabSize);
      const engine = await shared.engine.get();
      const model = await Model.create(engine, config, experiment.seed);
      const dir = join(ctx.dir, "model");
      await saveModel(dir, { engine, config, parameters: model.parameters, tokenizer });
      model.dispose();
      return { model: dir, parameters: countParameters(config), vocabulary: tokenizer.vocabSize };
    },
  });
  return shared.done(record);
}
