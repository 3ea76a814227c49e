/**
 * Low-rank adapters (Hu et al. 2021): a frozen matrix W [out,in] acts as W + (alpha/rank)·B·A with A [rank,in], B [out,rank]. Names follow PEFT,
 * so that its loaders read what `exportAdapters` gives.
 */
import type { Engine, Tensor } from "../engine/types.ts";
import { ModelError, normals, type ParameterSpec, parameterSpecs, seedFor } from "./parameters.ts";
import type { ModelConfig, Parameters } from "./types.ts";

export interface LoraOptions {
  rank: number;
  alpha: number;
  /** Projections to adapt in every layer, e.g. ["q_proj", "v_proj"]. */
  targets: string[];
  seed: number;
}

export interface Adapter {
  a: Tensor;
  b: Tensor;
  scale: number;
}

const PREFIX = "base_model.model.";
const pairName = (weight: string, which: "A" | "B") => weight.replace(/\.weight$/, `.lora_${which}.weight`);

/** The adapters of a model: A starts as N(0, 1/fan-in), B as 0, so that the model is unchanged at first. */
export class Adapters {
  readonly specs: ParameterSpec[] = [];
  readonly parameters: Parameters = new Map();
  #byWeight = new Map<string, Adapter>();

  constructor(
    readonly engine: Engine,
    config: ModelConfig,
    readonly options: LoraOptions,
  ) {
    const { rank, alpha, targets, seed } = options;
    if (!Number.isSafeInteger(rank) || rank < 1)
      throw new ModelError(`lora: rank must be a positive integer, got ${rank}`);
    const matrices = parameterSpecs(config).filter((s) => s.kind === "matrix");
    for (const target of targets) {
      if (!matrices.some((s) => s.name.endsWith(`.${target}.weight`))) {
        throw new ModelError(
          `lora: no matrix is named "${target}"; there are q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj`,
        );
      }
    }
    for (const { name, shape } of matrices) {
      if (!targets.some((t) => name.endsWith(`.${t}.weight`))) continue;
      const [out, width] = [shape[0]!, shape[1]!];
      const a = this.#add(pairName(name, "A"), [rank, width]);
      engine.upload(a, normals(rank * width, 1 / Math.sqrt(width), seedFor(seed, name)));
      const b = this.#add(pairName(name, "B"), [out, rank]);
      this.#byWeight.set(name, { a, b, scale: alpha / rank });
    }
  }

  #add(name: string, shape: number[]): Tensor {
    const tensor = this.engine.alloc(shape, "f32", name);
    this.specs.push({ name, shape, kind: "adapter" });
    this.parameters.set(name, tensor);
    return tensor;
  }

  /** The adapter of a matrix, by the matrix's name. */
  of(weight: string): Adapter | undefined {
    return this.#byWeight.get(weight);
  }

  /** Adds every adapter to its matrix: W += scale·B·A. The adapters are spent: dispose of them after. */
  mergeInto(parameters: Parameters): void {
    const { engine } = this;
    for (const [name, { a, b, scale }] of this.#byWeight) {
      const weight = parameters.get(name);
      if (!weight) throw new ModelError(`lora: the model has no ${name} to merge into`);
      const scaled = engine.alloc(b.shape, "f32", "lora merge B");
      engine.axpby(scaled, scale, b, 0, b);
      if (weight.dtype === "f32") {
        engine.matmul(weight, scaled, a, { accumulate: true });
      } else {
        const wide = engine.alloc(weight.shape, "f32", "lora merge W");
        engine.copy(wide, weight);
        engine.matmul(wide, scaled, a, { accumulate: true });
        engine.copy(weight, wide);
        engine.free(wide);
      }
      engine.free(scaled);
    }
  }

  /** The adapters under PEFT's names, and PEFT's adapter_config.json. */
  async export(): Promise<{
    tensors: Map<string, { shape: readonly number[]; data: Float32Array }>;
    config: Record<string, unknown>;
  }> {
    const tensors = new Map<string, { shape: readonly number[]; data: Float32Array }>();
    for (const [name, tensor] of this.parameters) {
      tensors.set(PREFIX + name, { shape: tensor.shape, data: Float32Array.from(await this.engine.download(tensor)) });
    }
    const { rank, alpha, targets } = this.options;
    return {
      tensors,
      config: {
        peft_type: "LORA",
        task_type: "CAUSAL_LM",
        r: rank,
        lora_alpha: alpha,
        lora_dropout: 0,
        bias: "none",
        target_modules: targets,
      },
    };
  }

  /** Reads back what `export` gave. Throws ModelError on a missing tensor. */
  import(tensors: ReadonlyMap<string, { data: Float32Array | Int32Array }>): void {
    for (const [name, tensor] of this.parameters) {
      const found = tensors.get(PREFIX + name);
      if (!found || found.data.length !== tensor.size) {
        throw new ModelError(
          `lora: ${PREFIX + name} with ${tensor.size} values is ${found ? `${found.data.length} long` : "missing"} in the adapter file`,
        );
      }
      this.engine.upload(tensor, found.data);
    }
  }

  dispose(): void {
    this.engine.free(...this.parameters.values());
  }
}
