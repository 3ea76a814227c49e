/** The reference engine: every operation in plain float64 TypeScript. Slow, exact, and what the other engines are held to. */
import { uniform } from "../random.ts";
import { type DType, type Engine, EngineError, type EngineInfo, type SampleOptions, type Tensor } from "../types.ts";
import * as attention from "./attention.ts";
import * as linear from "./linear.ts";
import * as norms from "./norms.ts";
import { sampleRow } from "./sample.ts";
import { type Data, dims, floats, ints, RefTensor, rounded, single, sized, storage } from "./tensor.ts";

export class ReferenceEngine implements Engine {
  readonly info: EngineInfo = {
    kind: "reference",
    description: "float64 TypeScript",
    hardware: false,
    features: ["f16", "bf16"],
    limits: {},
  };
  #bytes = 0;
  #peak = 0;

  memory() {
    return { bytes: this.#bytes, peakBytes: this.#peak };
  }

  alloc(shape: readonly number[], dtype: DType, label: string): Tensor {
    const size = shape.reduce((n, d) => n * d, 1);
    if (!Number.isSafeInteger(size) || size < 0) throw new EngineError(`alloc: "${label}" has shape [${shape}]`);
    const data: Data =
      dtype === "i32" ? new Int32Array(size) : dtype === "u32" ? new Uint32Array(size) : new Float64Array(size);
    this.#bytes += data.byteLength;
    this.#peak = Math.max(this.#peak, this.#bytes);
    return new RefTensor([...shape], dtype, label, data, null);
  }

  free(...tensors: Tensor[]): void {
    for (const t of tensors) {
      const bytes = storage(t).byteLength;
      if (!(t instanceof RefTensor) || t.base) throw new EngineError(`free: "${t.label}" is a view; free its owner`);
      t.freed = true;
      this.#bytes -= bytes;
    }
  }

  view(of: Tensor, shape: readonly number[], offset = 0): Tensor {
    const size = shape.reduce((n, d) => n * d, 1);
    if (offset % 64 !== 0 || offset < 0 || offset + size > of.size) {
      throw new EngineError(
        `view: [${shape}] at ${offset} of "${of.label}" [${of.shape}] is outside it or not at a multiple of 64`,
      );
    }
    const data = storage(of).subarray(offset, offset + size);
    const base = of instanceof RefTensor ? (of.base ?? of) : null;
    return new RefTensor([...shape], of.dtype, of.label, data, base);
  }

  upload(to: Tensor, data: Float32Array | Int32Array | Uint32Array): void {
    sized("upload", [to, data.length]);
    const into = storage(to);
    const right =
      into instanceof Int32Array
        ? data instanceof Int32Array
        : into instanceof Uint32Array
          ? data instanceof Uint32Array
          : data instanceof Float32Array;
    if (!right) throw new EngineError(`upload: "${to.label}" is ${to.dtype}, the data is ${data.constructor.name}`);
    for (let i = 0; i < into.length; i++) into[i] = rounded(to.dtype, data[i]!);
  }

  async download(from: Tensor): Promise<Float32Array | Int32Array | Uint32Array> {
    const data = storage(from);
    return data instanceof Float64Array ? Float32Array.from(data) : data.slice();
  }

  /** The live values of a float tensor, unrounded: for finite differences. */
  values(of: Tensor): Float64Array {
    return floats(of);
  }

  async sync(): Promise<void> {}
  async dispose(): Promise<void> {}

  fill(out: Tensor, value: number): void {
    storage(out).fill(rounded(out.dtype, value));
  }

  copy(out: Tensor, x: Tensor): void {
    sized("copy", [out, x.size]);
    const [to, from] = [floats(out), floats(x)];
    for (let i = 0; i < to.length; i++) to[i] = rounded(out.dtype, from[i]!);
  }

  axpby(out: Tensor, a: number, x: Tensor, b: number, y: Tensor): void {
    sized("axpby", [x, out.size], [y, out.size]);
    const [to, xs, ys] = [single(out), single(x), single(y)];
    for (let i = 0; i < to.length; i++) to[i] = a * xs[i]! + b * ys[i]!;
  }

  async sumSquares(tensors: Tensor[]): Promise<number> {
    let sum = 0;
    for (const t of tensors) for (const v of single(t)) sum += v * v;
    return sum;
  }

  matmul = linear.matmul;
  embed = linear.embed;
  embedBackward = linear.embedBackward;
  gatherRows = linear.gatherRows;
  scatterRows = linear.scatterRows;
  logProbs = linear.logProbs;
  logProbsBackward = linear.logProbsBackward;
  rmsNorm = norms.rmsNorm;
  rmsNormBackward = norms.rmsNormBackward;
  qkNormRope = norms.qkNormRope;
  qkNormRopeBackward = norms.qkNormRopeBackward;
  swiglu = norms.swiglu;
  swigluBackward = norms.swigluBackward;
  adamw = norms.adamw;
  attention = attention.attention;
  attentionBackward = attention.attentionBackward;
  shortConv = attention.shortConv;
  shortConvBackward = attention.shortConvBackward;
  cacheWrite = attention.cacheWrite;
  pagedAttention = attention.pagedAttention;
  pagedShortConv = attention.pagedShortConv;

  sample(ids: Tensor, lp: Tensor, logits: Tensor, options: SampleOptions): void {
    const [B, V] = dims(logits, 2);
    sized(
      "sample",
      [ids, B],
      [lp, B],
      [options.temperature, B],
      [options.topK, B],
      [options.topP, B],
      [options.seeds, 2 * B],
    );
    const may = linear.maskReader(options.masks);
    const seeds = ints(options.seeds);
    for (let b = 0; b < B; b++) {
      const row = sampleRow(single(logits).subarray(b * V, (b + 1) * V), {
        temperature: single(options.temperature)[b]!,
        topK: ints(options.topK)[b]!,
        topP: single(options.topP)[b]!,
        u: uniform(seeds[2 * b]!, seeds[2 * b + 1]!),
        allowed: (v) => may(b, v),
      });
      ints(ids)[b] = row.id;
      single(lp)[b] = row.lp;
    }
  }
}

export async function openReferenceEngine(): Promise<ReferenceEngine> {
  return new ReferenceEngine();
}
