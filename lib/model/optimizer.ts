/**
 * AdamW (Loshchilov & Hutter 2019) with global-norm clipping, and Muon (Jordan et al. 2024) for matrices. Matrices, embeddings and adapters decay;
 * norms and convolution taps do not. Weights kept in f16 or bf16 have f32 masters here, which are what is updated.
 */
import type { Engine, Tensor } from "../engine/types.ts";
import type { TrainableParameter } from "./model.ts";
import { ModelError } from "./parameters.ts";

export interface OptimizerOptions {
  kind: "adamw" | "muon";
  beta1: number;
  beta2: number;
  eps: number;
  weightDecay: number;
  /** Clip the gradient to this global norm; 0 is off. */
  maxNorm: number;
  /** Muon: momentum, and how much smaller or larger its step is than AdamW's at the same learning rate. */
  muonMomentum: number;
}

export const OPTIMIZER_DEFAULTS: OptimizerOptions = {
  kind: "adamw",
  beta1: 0.9,
  beta2: 0.95,
  eps: 1e-8,
  weightDecay: 0.1,
  maxNorm: 1,
  muonMomentum: 0.95,
};

/** The gradient is infinite or not a number: the step was not taken. */
export class GradientError extends Error {
  override name = "GradientError";
}

interface Slot extends TrainableParameter {
  /** The f32 weights: the parameter itself, or the master of a half-precision one. */
  master: Tensor;
  /** AdamW's first and second moments, or Muon's momentum alone. */
  m: Tensor;
  v: Tensor | null;
}

export class Optimizer {
  readonly options: OptimizerOptions;
  #slots: Slot[];
  #step = 0;
  #scratch: NewtonSchulz | null = null;

  constructor(
    readonly engine: Engine,
    trainable: TrainableParameter[],
    options: Partial<OptimizerOptions> = {},
  ) {
    this.options = { ...OPTIMIZER_DEFAULTS, ...options };
    this.#slots = trainable.map((p) => {
      const own = (what: string) => engine.alloc(p.value.shape, "f32", `${what} of ${p.name}`);
      const master = p.value.dtype === "f32" ? p.value : own("master");
      if (master !== p.value) engine.copy(master, p.value);
      const muon = this.options.kind === "muon" && p.kind === "matrix";
      return { ...p, master, m: own("momentum"), v: muon ? null : own("second moment") };
    });
    const muon = this.#slots.filter((s) => !s.v);
    if (muon.length > 0)
      this.#scratch = new NewtonSchulz(
        engine,
        muon.map((s) => s.value.shape),
      );
  }

  /** Steps taken. */
  get steps(): number {
    return this.#step;
  }

  /**
   * One step on the gradients, which are multiplied by `gradScale` first (1 over the number of accumulated micro-batches, say). Returns the
   * global norm before clipping, and the factor that clipping put on. Throws GradientError, changing nothing, if it is not finite.
   */
  async step(lr: number, gradScale = 1): Promise<{ gradNorm: number; clip: number }> {
    const { engine, options: o } = this;
    const gradNorm = gradScale * Math.sqrt(await engine.sumSquares(this.#slots.map((s) => s.gradient)));
    if (!Number.isFinite(gradNorm)) throw new GradientError(await this.#whichGradient());
    const clip = o.maxNorm > 0 ? Math.min(1, o.maxNorm / (gradNorm + 1e-6)) : 1;
    const step = ++this.#step;
    for (const s of this.#slots) {
      const weightDecay = s.kind === "vector" ? 0 : o.weightDecay;
      if (s.v) {
        engine.adamw(s.master, s.gradient, s.m, s.v, {
          lr,
          beta1: o.beta1,
          beta2: o.beta2,
          eps: o.eps,
          weightDecay,
          step,
          gradScale: gradScale * clip,
        });
      } else {
        this.#muon(s, lr, gradScale * clip, weightDecay);
      }
      if (s.master !== s.value) engine.copy(s.value, s.master);
    }
    return { gradNorm, clip };
  }

  /**
   * m = μ·m + g; update = orthogonal(g + μ·m) (Nesterov), scaled by 0.2·√max(rows, columns) so that its entries are about as large as
   * AdamW's (Liu et al. 2025) and one learning rate serves both.
   */
  #muon(s: Slot, lr: number, gradScale: number, weightDecay: number): void {
    const { engine } = this;
    const [rows, columns] = [s.value.shape[0]!, s.value.shape[1]!];
    const mu = this.options.muonMomentum;
    engine.axpby(s.m, mu, s.m, gradScale, s.gradient);
    const update = this.#scratch!.orthogonal(rows, columns, (x) => engine.axpby(x, gradScale, s.gradient, mu, s.m));
    engine.axpby(s.master, 1 - lr * weightDecay, s.master, -lr * 0.2 * Math.sqrt(Math.max(rows, columns)), update);
  }

  async #whichGradient(): Promise<string> {
    for (const s of this.#slots) {
      if (!Number.isFinite(await this.engine.sumSquares([s.gradient]))) {
        return `the gradient of ${s.name} is not finite at step ${this.#step + 1}; lower the learning rate, or look at the batch`;
      }
    }
    return `the gradient's norm is not finite at step ${this.#step + 1}`;
  }

  #stateTensors(): [string, Tensor][] {
    return this.#slots.flatMap((s) => {
      const all: [string, Tensor][] = [[`momentum.${s.name}`, s.m]];
      if (s.v) all.push([`variance.${s.name}`, s.v]);
      if (s.master !== s.value) all.push([`master.${s.name}`, s.master]);
      return all;
    });
  }

  /** The state, for a checkpoint: moments, masters, and the number of steps as "step". */
  async export(): Promise<Map<string, Float32Array>> {
    const state = new Map<string, Float32Array>([["step", Float32Array.of(this.#step)]]);
    for (const [name, tensor] of this.#stateTensors())
      state.set(name, Float32Array.from(await this.engine.download(tensor)));
    return state;
  }

  /** Restores what `export` gave. Throws ModelError if it is of another model or kind of optimiser. */
  import(state: ReadonlyMap<string, Float32Array>): void {
    const step = state.get("step")?.[0];
    if (step === undefined) throw new ModelError("optimizer state: no step count");
    for (const [name, tensor] of this.#stateTensors()) {
      const data = state.get(name);
      if (data?.length !== tensor.size) {
        throw new ModelError(
          `optimizer state: ${name} should have ${tensor.size} values, ${data ? `has ${data.length}` : "is missing"}`,
        );
      }
      this.engine.upload(tensor, data);
    }
    this.#step = step;
  }

  dispose(): void {
    for (const s of this.#slots)
      this.engine.free(s.m, ...(s.v ? [s.v] : []), ...(s.master === s.value ? [] : [s.master]));
    this.#slots = [];
    this.#scratch?.dispose();
  }
}

/** Five steps of the quintic Newton–Schulz iteration with Jordan's coefficients: X ← aX + (b·A + c·A²)X, A = XXᵀ on the shorter side. */
class NewtonSchulz {
  #x: Tensor;
  #y: Tensor;
  #ones: Tensor;
  #rstd: Tensor;
  #gram: [Tensor, Tensor];

  constructor(
    readonly engine: Engine,
    shapes: (readonly number[])[],
  ) {
    const largest = Math.max(...shapes.map((s) => s[0]! * s[1]!));
    const side = Math.max(...shapes.map((s) => Math.min(s[0]!, s[1]!)));
    const own = (n: number, what: string) => engine.alloc([n], "f32", `muon ${what}`);
    [this.#x, this.#y, this.#ones, this.#rstd] = [
      own(largest, "x"),
      own(largest, "y"),
      own(largest, "ones"),
      own(1, "rstd"),
    ];
    this.#gram = [own(side * side, "gram"), own(side * side, "gram squared")];
    engine.fill(this.#ones, 1);
  }

  /** `write` fills a [rows, columns] matrix; returns the nearest semi-orthogonal one (roughly), valid until the next call. */
  orthogonal(rows: number, columns: number, write: (x: Tensor) => void): Tensor {
    const { engine } = this;
    const n = rows * columns;
    const wide = rows <= columns;
    const side = Math.min(rows, columns);
    let [x, y] = [engine.view(this.#y, [rows, columns]), engine.view(this.#x, [rows, columns])];
    const [a, a2] = [engine.view(this.#gram[0], [side, side]), engine.view(this.#gram[1], [side, side])];
    write(x);
    // The norm of the flattened matrix divides by its root mean square: times 1/√n that is its Frobenius norm, without a readback.
    engine.rmsNorm(
      engine.view(this.#x, [1, n]),
      this.#rstd,
      engine.view(this.#y, [1, n]),
      engine.view(this.#ones, [n]),
      1e-20,
    );
    engine.axpby(y, 1 / Math.sqrt(n), y, 0, y);
    [x, y] = [y, x];
    for (let i = 0; i < 5; i++) {
      engine.matmul(a, x, x, wide ? { transB: true } : { transA: true });
      engine.matmul(a2, a, a);
      engine.axpby(a2, -4.775, a, 2.0315, a2);
      if (wide) engine.matmul(y, a2, x);
      else engine.matmul(y, x, a2);
      engine.axpby(y, 3.4445, x, 1, y);
      [x, y] = [y, x];
    }
    return x;
  }

  dispose(): void {
    this.engine.free(this.#x, this.#y, this.#ones, this.#rstd, ...this.#gram);
  }
}
