/**
 * Qwen3-style decoder over any engine: parameters by Hugging Face name, forward and hand-written backward passes over packed documents. Activations
 * live in a workspace that is planned for the most tokens seen and reused through views, so that a steady state allocates nothing.
 */
import type { Engine, Packing, Tensor, TokenMasks } from "../engine/types.ts";
import {
  type LayerContext,
  layerBackward,
  layerForward,
  layerRecompute,
  packedSequences,
  type Sequences,
  vectorGradient,
  weight,
} from "./layer.ts";
import { Adapters, type LoraOptions } from "./lora.ts";
import {
  EMBEDDING,
  FINAL_NORM,
  headName,
  initialValues,
  loadParameters,
  ModelError,
  type ParameterKind,
  type ParameterSpec,
  parameterSpecs,
} from "./parameters.ts";
import type { LossGradient, ModelConfig, PackedBatch, Parameters } from "./types.ts";
import { Workspace } from "./workspace.ts";

export interface ModelOptions {
  /** How matrices and embeddings are kept on the device; vectors are f32 always. Default f32. */
  dtype?: "f32" | "f16" | "bf16";
  /** Keep each layer's input only, and compute the layer again in the backward pass: about a third slower, memory of one layer. */
  recompute?: boolean;
  /** Low-rank adapters: all else is frozen. */
  lora?: LoraOptions;
}

export interface TrainableParameter {
  name: string;
  kind: ParameterKind;
  value: Tensor;
  gradient: Tensor;
}

/** How a batch is scored. */
export interface ScoreOptions {
  /** False leaves the adapters out. */
  adapted?: boolean;
  /** Logits are divided by it, as in sampling. Default 1; more than 0, else ModelError. */
  temperature?: number;
}

/** Log-probabilities of the batch's targets, and the entropies of the (masked) distributions they come from. [M] each, in order of rows. */
export interface Scores {
  lp: Float32Array;
  entropy: Float32Array;
}

interface OnDevice {
  T: number;
  M: number;
  packing: Packing;
  ids: Tensor;
  rows: Tensor;
  targets: Tensor;
  masks: TokenMasks | undefined;
  temperature: number;
}

export class Model {
  /** Gradients by name; empty until training begins. */
  readonly gradients: Parameters = new Map();
  #workspace: Workspace;
  #adapters: Adapters | null = null;
  #recompute: boolean;
  /** Forward and backward share the workspace: one pass at a time, in order of the calls. */
  #turn: Promise<unknown> = Promise.resolve();

  private constructor(
    readonly engine: Engine,
    readonly config: ModelConfig,
    readonly parameters: Parameters,
    options: ModelOptions,
  ) {
    this.#workspace = new Workspace(engine, "activations");
    this.#recompute = options.recompute ?? false;
    if (options.lora) this.#adapters = new Adapters(engine, config, options.lora);
  }

  /** A new model, initialised from the seed. */
  static create(engine: Engine, config: ModelConfig, seed: number, options: ModelOptions = {}): Promise<Model> {
    return Model.load(engine, config, (spec) => initialValues(config, spec, seed), options);
  }

  /** A model whose parameters `read` gives, asked one at a time (so that one tensor at a time is on the host). */
  static async load(
    engine: Engine,
    config: ModelConfig,
    read: (spec: ParameterSpec) => Float32Array | Promise<Float32Array>,
    options: ModelOptions = {},
  ): Promise<Model> {
    return new Model(engine, config, await loadParameters(engine, config, read, options.dtype ?? "f32"), options);
  }

  /** A model from host arrays by Hugging Face name. Throws ModelError where one is missing. */
  static fromArrays(
    engine: Engine,
    config: ModelConfig,
    arrays: ReadonlyMap<string, { data: Float32Array | Int32Array } | Float32Array>,
    options: ModelOptions = {},
  ): Promise<Model> {
    const read = ({ name }: ParameterSpec) => {
      const found = arrays.get(name);
      const data = found instanceof Float32Array ? found : found?.data;
      if (!(data instanceof Float32Array))
        throw new ModelError(`parameter ${name} is missing, or is not made of floats`);
      return data;
    };
    return Model.load(engine, config, read, options);
  }

  get adapters(): Adapters | null {
    return this.#adapters;
  }

  /** What training changes, with its gradients (allocated on first use): the adapters if there are any, else everything. */
  trainable(): TrainableParameter[] {
    const specs = this.#adapters?.specs ?? parameterSpecs(this.config);
    const values = this.#adapters?.parameters ?? this.parameters;
    return specs.map(({ name, kind, shape }) => {
      let gradient = this.gradients.get(name);
      if (!gradient) this.gradients.set(name, (gradient = this.engine.alloc(shape, "f32", `gradient of ${name}`)));
      return { name, kind, value: values.get(name)!, gradient };
    });
  }

  /** What one step computes with, in the given workspace; `adapted` false leaves the adapters out (the reference policy of a LoRA run). */
  context(workspace: Workspace, adapted = true): LayerContext {
    const { engine, config, parameters, gradients } = this;
    return { engine, config, parameters, gradients, adapters: adapted ? this.#adapters : null, workspace };
  }

  /** Scores the batch's targets. */
  logProbs(batch: PackedBatch, { adapted, temperature }: ScoreOptions = {}): Promise<Scores> {
    return this.#inTurn(async () => {
      const ctx = this.context(this.#workspace, adapted);
      const on = this.#upload(batch, temperature);
      if (on.M === 0) return { lp: new Float32Array(0), entropy: new Float32Array(0) };
      this.#layers(ctx, on, false);
      return this.#head(ctx, on, this.#workspace.get("x0", on.T, [this.config.hidden_size])).scores;
    });
  }

  /**
   * Scores the batch, asks `loss` for the derivative by each log-probability, and adds the gradients that follow into `gradients`. Returns the
   * scores and what `loss` returned.
   */
  forwardBackward<G extends LossGradient>(
    batch: PackedBatch,
    loss: (lp: Float32Array, entropy: Float32Array) => G,
    { temperature }: Pick<ScoreOptions, "temperature"> = {},
  ): Promise<Scores & { loss: G }> {
    return this.#inTurn(async () => {
      this.trainable();
      const ctx = this.context(this.#workspace);
      const on = this.#upload(batch, temperature);
      if (on.M === 0) {
        const none = { lp: new Float32Array(0), entropy: new Float32Array(0) };
        return { ...none, loss: loss(none.lp, none.entropy) };
      }
      this.#layers(ctx, on, true);
      const head = this.#head(ctx, on, this.#residual(on.T, this.config.num_hidden_layers));
      const scores = await head.scores;
      const value = loss(scores.lp, scores.entropy);
      if (value.dLp.length !== on.M)
        throw new ModelError(`the loss gave ${value.dLp.length} derivatives for ${on.M} rows`);
      this.#backward(ctx, on, value.dLp);
      return { ...scores, loss: value };
    });
  }

  /** Logits of every token, [T,V] on the host: for tests, export checks and small inputs. */
  logits(ids: Int32Array, cumulative: Int32Array): Promise<Float32Array> {
    return this.#inTurn(async () => {
      const { engine, config: c } = this;
      const ctx = this.context(this.#workspace);
      const on = this.#upload({ ids, cumulative, rows: new Int32Array(0), targets: new Int32Array(0) });
      this.#layers(ctx, on, false);
      const x = this.#workspace.get("x0", on.T, [c.hidden_size]);
      const out = engine.alloc([on.T, c.vocab_size], "f32", "logits");
      this.projectLogits(ctx, out, x);
      const host = Float32Array.from(await engine.download(out));
      engine.free(out);
      return host;
    });
  }

  /** out [M,V] = norm(x)·headᵀ, x [M,C] the last layer's output. */
  projectLogits(ctx: LayerContext, out: Tensor, x: Tensor): void {
    const M = x.shape[0]!;
    const normed = ctx.workspace.get("head n", M, [this.config.hidden_size]);
    this.engine.rmsNorm(
      normed,
      ctx.workspace.get("head rstd", M),
      x,
      weight(ctx, FINAL_NORM),
      this.config.rms_norm_eps,
    );
    this.engine.matmul(out, normed, weight(ctx, headName(this.config)), { transB: true });
  }

  /** x [T,C] = the last layer's output for these ids; every layer's activations overwrite the last one's. */
  forwardInPlace(ctx: LayerContext, x: Tensor, ids: Tensor, sequences: Sequences): void {
    this.engine.embed(x, weight(ctx, EMBEDDING), ids);
    for (let l = 0; l < this.config.num_hidden_layers; l++) layerForward(ctx, l, 0, x, x, sequences);
  }

  zeroGrad(): void {
    for (const gradient of this.gradients.values()) this.engine.fill(gradient, 0);
  }

  /** √Σ g² over all gradients. */
  async gradNorm(): Promise<number> {
    return Math.sqrt(await this.engine.sumSquares([...this.gradients.values()]));
  }

  /** Folds the adapters into the matrices, and goes on without them. */
  async mergeAdapters(): Promise<void> {
    if (!this.#adapters) throw new ModelError("mergeAdapters: the model has no adapters");
    this.#adapters.mergeInto(this.parameters);
    await this.engine.sync();
    this.#freeGradients();
    this.#adapters.dispose();
    this.#adapters = null;
  }

  /** The parameters on the host, by name, without adapters. */
  async arrays(): Promise<Map<string, Float32Array>> {
    const all = new Map<string, Float32Array>();
    for (const [name, tensor] of this.parameters) all.set(name, Float32Array.from(await this.engine.download(tensor)));
    return all;
  }

  dispose(): void {
    this.#freeGradients();
    this.#workspace.dispose();
    this.#adapters?.dispose();
    this.engine.free(...this.parameters.values());
    this.parameters.clear();
  }

  #freeGradients(): void {
    this.engine.free(...this.gradients.values());
    this.gradients.clear();
  }

  #inTurn<T>(pass: () => Promise<T>): Promise<T> {
    const result = this.#turn.then(pass);
    this.#turn = result.catch(() => {});
    return result;
  }

  /** The input of layer `l` in training, [T,C]; index num_hidden_layers is the last one's output. */
  #residual(T: number, l: number): Tensor {
    return this.#workspace.get(`x${l}`, T, [this.config.hidden_size]);
  }

  #upload(batch: PackedBatch, temperature = 1): OnDevice {
    const { engine } = this;
    const ws = this.#workspace;
    checkBatch(batch, this.config.vocab_size);
    if (!(temperature > 0 && temperature < Infinity))
      throw new ModelError(
        `temperature ${temperature}: scores need one above 0 (greedy decoding has no probabilities)`,
      );
    const [T, M] = [batch.ids.length, batch.rows.length];
    ws.reserve(T);
    const put = (name: string, data: Int32Array): Tensor => {
      const tensor = ws.get(name, data.length, [], "i32");
      if (data.length > 0) engine.upload(tensor, data);
      return tensor;
    };
    let masks: TokenMasks | undefined;
    if (batch.masks && M > 0) {
      const words = Math.ceil(this.config.vocab_size / 32);
      const bits = ws.table("mask bits", Math.max(1, batch.masks.bits.length / words), [words], "u32");
      if (batch.masks.bits.length > 0) engine.upload(bits, batch.masks.bits);
      masks = { bits, row: put("mask row", batch.masks.row) };
    }
    const { docStart, docEnd, positions, maxLength } = documents(batch.cumulative);
    const packing = {
      docStart: put("doc start", docStart),
      docEnd: put("doc end", docEnd),
      positions: put("positions", positions),
      maxLength,
    };
    return {
      T,
      M,
      packing,
      masks,
      temperature,
      ids: put("ids", batch.ids),
      rows: put("rows", batch.rows),
      targets: put("targets", batch.targets),
    };
  }

  #layers(ctx: LayerContext, on: OnDevice, keep: boolean): void {
    const sequences = packedSequences(this.engine, this.config, on.packing);
    const x = this.#residual(on.T, 0);
    if (!keep) {
      this.forwardInPlace(ctx, x, on.ids, sequences);
      return;
    }
    this.engine.embed(x, weight(ctx, EMBEDDING), on.ids);
    for (let l = 0; l < this.config.num_hidden_layers; l++) {
      layerForward(ctx, l, this.#slot(l), this.#residual(on.T, l + 1), this.#residual(on.T, l), sequences);
    }
  }

  #slot(layer: number): number {
    return this.#recompute ? 0 : layer;
  }

  /** The tensors of the output projection, [M] rows: gathered x, its norm, and the scores. */
  #headTensors(M: number) {
    const get = (name: string, ...inner: number[]) => this.#workspace.get(`head ${name}`, M, inner);
    const C = this.config.hidden_size;
    return {
      x: get("x", C),
      n: get("n", C),
      rstd: get("rstd"),
      lp: get("lp"),
      lse: get("lse"),
      entropy: get("entropy"),
    };
  }

  #head(ctx: LayerContext, on: OnDevice, x: Tensor): { scores: Promise<Scores> } {
    const { engine, config: c } = this;
    const h = this.#headTensors(on.M);
    engine.gatherRows(h.x, x, on.rows);
    engine.rmsNorm(h.n, h.rstd, h.x, weight(ctx, FINAL_NORM), c.rms_norm_eps);
    // (n/T)·headᵀ are the logits divided by T; the backward pass finds n/T where it looks for n.
    if (on.temperature !== 1) engine.axpby(h.n, 1 / on.temperature, h.n, 0, h.n);
    engine.logProbs(h, h.n, weight(ctx, headName(c)), on.targets, on.masks);
    const scores = Promise.all([engine.download(h.lp), engine.download(h.entropy)]);
    return {
      scores: scores.then(([lp, entropy]) => ({ lp: Float32Array.from(lp), entropy: Float32Array.from(entropy) })),
    };
  }

  #backward(ctx: LayerContext, on: OnDevice, dLpHost: Float32Array): void {
    const { engine, config: c } = this;
    const h = this.#headTensors(on.M);
    const get = (name: string, ...inner: number[]) => this.#workspace.get(`d.head ${name}`, on.M, inner);
    const [dLp, dn, dx] = [get("lp"), get("n", c.hidden_size), get("x", c.hidden_size)];
    engine.upload(dLp, dLpHost);
    const dHead = ctx.gradients.get(headName(c));
    const saved = { x: h.n, head: weight(ctx, headName(c)), targets: on.targets, lse: h.lse };
    engine.logProbsBackward(dHead ? { dx: dn, dHead } : { dx: dn }, dLp, saved, on.masks);
    if (on.temperature !== 1) engine.axpby(dn, 1 / on.temperature, dn, 0, dn);
    engine.fill(dx, 0);
    engine.rmsNormBackward(dx, vectorGradient(ctx, FINAL_NORM), dn, h.x, weight(ctx, FINAL_NORM), h.rstd);
    const running = this.#workspace.get("d.x", on.T, [c.hidden_size]);
    engine.scatterRows(running, dx, on.rows);
    const sequences = packedSequences(engine, c, on.packing);
    for (let l = c.num_hidden_layers - 1; l >= 0; l--) {
      const x = this.#residual(on.T, l);
      // The last layer's activations are still there.
      if (this.#recompute && l < c.num_hidden_layers - 1) layerRecompute(ctx, l, 0, x, sequences);
      layerBackward(ctx, l, this.#slot(l), running, x, on.packing);
    }
    const dEmbedding = ctx.gradients.get(EMBEDDING);
    if (dEmbedding) engine.embedBackward(dEmbedding, running, on.ids);
  }
}

/** Start, end and position of every token, from cumulative lengths. */
function documents(cumulative: Int32Array): {
  docStart: Int32Array;
  docEnd: Int32Array;
  positions: Int32Array;
  maxLength: number;
} {
  const T = cumulative.at(-1)!;
  const [docStart, docEnd, positions] = [new Int32Array(T), new Int32Array(T), new Int32Array(T)];
  let maxLength = 0;
  for (let d = 0; d + 1 < cumulative.length; d++) {
    const [start, end] = [cumulative[d]!, cumulative[d + 1]!];
    docStart.fill(start, start, end);
    docEnd.fill(end, start, end);
    for (let t = start; t < end; t++) positions[t] = t - start;
    maxLength = Math.max(maxLength, end - start);
  }
  return { docStart, docEnd, positions, maxLength };
}

/** Refuses a batch that a kernel would read out of bounds with. Throws ModelError. */
function checkBatch(batch: PackedBatch, V: number): void {
  const { ids, cumulative, rows, targets, masks } = batch;
  const T = ids.length;
  const fail = (what: string): never => {
    throw new ModelError(`batch: ${what}`);
  };
  if (T === 0) fail("no tokens");
  if (cumulative[0] !== 0 || cumulative.at(-1) !== T) fail(`cumulative lengths must run from 0 to ${T}`);
  for (let d = 1; d < cumulative.length; d++)
    if (cumulative[d]! <= cumulative[d - 1]!) fail(`document ${d - 1} is empty`);
  if (targets.length !== rows.length) fail(`${rows.length} rows but ${targets.length} targets`);
  for (const id of ids) if (id < 0 || id >= V) fail(`id ${id} is outside the vocabulary of ${V}`);
  for (const id of targets) if (id < 0 || id >= V) fail(`target ${id} is outside the vocabulary of ${V}`);
  const seen = new Uint8Array(T);
  for (const row of rows) {
    if (row < 0 || row >= T || seen[row])
      fail(`row ${row} is ${row < 0 || row >= T ? `outside the ${T} tokens` : "given twice"}`);
    seen[row] = 1;
  }
  if (masks) {
    const words = Math.ceil(V / 32);
    if (masks.row.length !== rows.length || masks.bits.length % words !== 0)
      fail("masks do not fit the rows or the vocabulary");
    for (const r of masks.row)
      if (r < -1 || r >= masks.bits.length / words) fail(`mask row ${r} of ${masks.bits.length / words}`);
  }
}
