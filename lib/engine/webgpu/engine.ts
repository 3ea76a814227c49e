/** The engine on Dawn: checks shapes, chooses kernels, records them. See types.ts for what each operation means. */
import {
  type AdamWOptions,
  type DType,
  type Engine,
  EngineError,
  type EngineInfo,
  type MatmulOptions,
  type Packing,
  type PagedContext,
  type SampleOptions,
  type Tensor,
  type TokenMasks,
} from "../types.ts";
import * as attention from "./attention.ts";
import { Context, decode } from "./context.ts";
import { type Device, openDevice } from "./device.ts";
import { each, grid, type Kit, rowWindows, windowOf, withScratch } from "./kit.ts";
import * as losses from "./losses.ts";
import { type Chooser, matmul, type Shape, shapeClass, type Variant, variants } from "./matmul.ts";
import * as norms from "./norms.ts";
import type { KernelTime } from "./profile.ts";
import { bytesOf, dims, elements, expect, GpuTensor, isHalf, own, packHalf } from "./tensor.ts";
import { loadTuning } from "./tune.ts";

/** f32 as the bits of a word. */
const bitsOf = (x: number): number => new Uint32Array(new Float32Array([x]).buffer)[0]!;

export class WebGpuEngine implements Engine {
  readonly info: EngineInfo;
  readonly context: Context;
  readonly kit: Kit;
  /** Measured choices by shape class, from tune.ts. Empty: the adapter kind's default. */
  readonly tuned = new Map<string, Variant>();
  #turns = new Map<string, GpuTensor>();
  #choose: Chooser = (s: Shape) => this.tuned.get(shapeClass(s)) ?? variants(this.kit, s)[0]!;

  constructor(device: Device) {
    this.info = device.info;
    this.context = new Context(device);
    const software = !device.info.hardware;
    const lanes = software ? device.subgroup.min || 4 : 128;
    const { block } = this.context.take(256, "nothing");
    this.kit = {
      context: this.context,
      rowLanes: lanes,
      attentionLanes: software ? lanes : 64,
      // Slices of a head keep a lane's share in registers. They need subgroups, whose lanes add their parts up.
      attentionSlices: software ? 1 : Math.min(8, device.subgroup.min || 1),
      software,
      panels: software && device.subgroup.min > 0 && device.subgroup.min === device.subgroup.max,
      matrix:
        device.matrix && device.subgroup.min === device.subgroup.max && device.info.features.includes("shader-f16")
          ? { ...device.matrix, subgroup: device.subgroup.min }
          : null,
      nothing: new GpuTensor(block, 0, [64], "f32", "nothing", null),
    };
  }

  // ---- tensors ---------------------------------------------------------------------------------------------------------
  memory() {
    return this.context.memory();
  }

  alloc(shape: readonly number[], dtype: DType, label: string): Tensor {
    const size = elements(shape);
    if (!Number.isSafeInteger(size) || size < 0) throw new EngineError(`alloc: "${label}" has shape [${shape}]`);
    const { block, reused } = this.context.take(bytesOf(size, dtype), label);
    const t = new GpuTensor(block, 0, [...shape], dtype, label, null);
    this.context.track(t);
    // New buffers are zero already.
    if (reused && t.bytes > 0) this.context.clear(t);
    return t;
  }

  free(...tensors: Tensor[]): void {
    for (const tensor of tensors) {
      const t = own(tensor);
      if (t.base) throw new EngineError(`free: "${t.label}" is a view; free its owner`);
      t.freed = true;
      this.context.untrack(t);
      this.context.give(t.block);
    }
  }

  view(of: Tensor, shape: readonly number[], offset = 0): Tensor {
    const t = own(of);
    if (offset % 64 !== 0 || offset < 0 || offset + elements(shape) > t.size) {
      throw new EngineError(
        `view: [${shape}] at ${offset} of "${t.label}" [${t.shape}] is outside it or not at a multiple of 64`,
      );
    }
    return windowOf(t, [...shape], offset);
  }

  upload(to: Tensor, data: Float32Array | Int32Array | Uint32Array): void {
    const t = own(to);
    const right =
      t.dtype === "i32"
        ? data instanceof Int32Array
        : t.dtype === "u32"
          ? data instanceof Uint32Array
          : data instanceof Float32Array;
    if (!right) throw new EngineError(`upload: "${t.label}" is ${t.dtype}, the data is ${data.constructor.name}`);
    if (data.length !== t.size) {
      throw new EngineError(`upload: "${t.label}" [${t.shape}] has ${t.size} elements, the data ${data.length}`);
    }
    if (!isHalf(t.dtype) || t.base === null || t.size % 2 === 0 || !(data instanceof Float32Array)) {
      this.context.upload(t, data);
      return;
    }
    const even = windowOf(t, [t.size - 1], 0);
    if (even.size > 0) this.context.upload(even, data.subarray(0, even.size));
    this.#poke(t, data[even.size]!);
  }

  /** Sets the last element of a packed view of odd size, and leaves the other half of its word alone. */
  #poke(t: GpuTensor, value: number): void {
    const bits = halfBits(t.dtype, value);
    const word = (t.size - 1) / 2;
    this.context.run({
      kernel: "poke_half",
      tensors: { out: windowOf(t, [word + 1], 0, "u32") },
      params: { word, bits },
      groups: [1],
    });
  }

  async download(from: Tensor): Promise<Float32Array | Int32Array | Uint32Array> {
    const t = own(from);
    const [bytes] = await this.context.download([t]);
    return decode(t, bytes!);
  }

  sync(): Promise<void> {
    return this.context.sync();
  }
  dispose(): Promise<void> {
    return this.context.dispose();
  }

  /** Time per kernel of what `action` enqueues, by timestamp queries. Throws where the adapter has none. */
  async profile(action: () => void | Promise<void>): Promise<KernelTime[]> {
    const { profiler } = this.context;
    if (!profiler) throw new EngineError(`profile: the adapter "${this.info.description}" has no timestamp queries`);
    this.context.flush();
    profiler.active = true;
    try {
      await action();
      await this.sync();
      return await profiler.take();
    } finally {
      profiler.active = false;
    }
  }

  // ---- elementwise -----------------------------------------------------------------------------------------------------
  fill(out: Tensor, value: number): void {
    const t = own(out);
    this.context.check();
    const odd = isHalf(t.dtype) && t.base !== null && t.size % 2 === 1;
    if (odd) this.#poke(t, value);
    const words = windowOf(t, [odd ? (t.size - 1) / 2 : t.bytes / 4], 0, "u32");
    if (words.size === 0) return;
    if (value === 0 && !Object.is(value, -0)) {
      this.context.clear(words);
      return;
    }
    let bits = t.dtype === "i32" ? value | 0 : value;
    if (t.dtype === "f32") bits = bitsOf(value);
    if (isHalf(t.dtype)) bits = halfBits(t.dtype, value) * 0x10001;
    each(this.kit, { kernel: "fill", tensors: { out: words }, params: { bits: bits >>> 0 } }, words.size);
  }

  copy(out: Tensor, x: Tensor): void {
    const [to, from] = [own(out), own(x)];
    if (to.size !== from.size)
      throw new EngineError(`copy: "${to.label}" [${to.shape}] from "${from.label}" [${from.shape}]`);
    if (to.size === 0) return;
    const odd = isHalf(to.dtype) && to.base !== null && to.size % 2 === 1;
    if (to.dtype === from.dtype && odd) {
      // Through f32 and back, which is exact, for the sake of the last word's other half.
      withScratch(this.kit, [{ shape: [to.size], label: "copy in f32" }], (wide) => {
        this.copy(wide!, from);
        this.copy(to, wide!);
      });
    } else if (to.dtype === from.dtype && to.block !== from.block) {
      this.context.check();
      this.context.copyBytes(to, from);
    } else if (to.dtype === "f32") {
      each(this.kit, { kernel: "widen", types: { x: from.dtype }, tensors: { x: from, out: to }, params: {} }, to.size);
    } else if (isHalf(to.dtype) && from.dtype === "f32") {
      each(
        this.kit,
        { kernel: "narrow", constants: { F16: to.dtype === "f16" }, tensors: { x: from, out: to }, params: {} },
        to.size,
        2,
      );
    } else throw new EngineError(`copy: "${from.label}" is ${from.dtype}, "${to.label}" is ${to.dtype}`);
  }

  axpby(out: Tensor, a: number, x: Tensor, b: number, y: Tensor): void {
    expect("axpby", "f32", [out, out.size], [x, out.size], [y, out.size]);
    each(this.kit, { kernel: "axpby", tensors: { x: own(x), y: own(y), out: own(out) }, params: { a, b } }, out.size);
  }

  async sumSquares(tensors: Tensor[]): Promise<number> {
    const lanes = this.kit.rowLanes;
    const parts: { t: GpuTensor; groups: number }[] = [];
    for (const tensor of tensors) {
      expect("sumSquares", "f32", [tensor, tensor.size]);
      const t = own(tensor);
      const step = Math.min(
        2 ** 24,
        2 ** Math.floor(Math.log2((this.context.limits.maxStorageBufferBindingSize ?? 2 ** 27) / 4)),
      );
      for (let at = 0; at < t.size; at += step) {
        const n = Math.min(step, t.size - at);
        parts.push({ t: windowOf(t, [n], at), groups: Math.min(256, Math.ceil(n / (lanes * 32))) });
      }
    }
    const total = parts.reduce((n, p) => n + p.groups, 0);
    if (total === 0) return 0;
    const reading = withScratch(this.kit, [{ shape: [total], label: "partial sums of squares" }], (partials) => {
      let first = 0;
      for (const { t, groups } of parts) {
        this.context.run({
          kernel: "sum_squares",
          constants: { WG: lanes },
          tensors: { x: t, partials: partials! },
          params: { n: t.size, first },
          groups: [groups],
        });
        first += groups;
      }
      return this.context.download([partials!]);
    });
    return new Float32Array((await reading)[0]!).reduce((sum, x) => sum + x, 0);
  }

  // ---- products and rows -----------------------------------------------------------------------------------------------
  matmul(out: Tensor, a: Tensor, b: Tensor, options: MatmulOptions = {}): void {
    matmul(this.kit, this.#choose, own(out), own(a), own(b), options);
  }

  embed(out: Tensor, table: Tensor, ids: Tensor): void {
    const [v, width] = dims("embed", table, 2);
    expect("embed", "i32", [ids, ids.size]);
    expect("embed", "f32", [out, ids.size * width]);
    expect("embed", ["f32", "f16", "bf16"], [table, v * width]);
    for (const { first, rows, window } of rowWindows(this.kit, "embed", own(table))) {
      this.context.run({
        kernel: "embed",
        types: { table: table.dtype },
        tensors: { table: window, ids: own(ids), out: own(out) },
        params: { n: out.size, width, first, rows },
        groups: grid(Math.ceil(out.size / 64)),
      });
    }
  }

  embedBackward(dTable: Tensor, dOut: Tensor, ids: Tensor): void {
    const op = "embedBackward";
    const [v, width] = dims(op, dTable, 2);
    const t = ids.size;
    expect(op, "i32", [ids, t]);
    expect(op, "f32", [dOut, t * width], [dTable, v * width]);
    withScratch(this.kit, [{ shape: [t, 2], label: "token chains", dtype: "u32" }], (chain) => {
      this.context.run({
        kernel: "embed_chain",
        tensors: { ids: own(ids), chain: chain! },
        params: { t },
        groups: grid(Math.ceil(t / 64)),
      });
      for (const { first, rows, window } of rowWindows(this.kit, op, own(dTable))) {
        this.context.run({
          kernel: "embed_backward",
          tensors: { d_out: own(dOut), ids: own(ids), chain: chain!, d_table: window },
          params: { n: t * width, t, width, first, rows },
          groups: grid(Math.ceil((t * width) / 64)),
        });
      }
    });
  }

  gatherRows(out: Tensor, x: Tensor, rows: Tensor): void {
    this.#rows("gatherRows", "gather_rows", out, x, rows);
  }
  scatterRows(out: Tensor, x: Tensor, rows: Tensor): void {
    this.fill(out, 0);
    this.#rows("scatterRows", "scatter_rows", out, x, rows);
  }
  cacheWrite(cache: Tensor, x: Tensor, slots: Tensor): void {
    this.#rows("cacheWrite", "scatter_rows", cache, x, slots);
  }
  #rows(op: string, kernel: "gather_rows" | "scatter_rows", out: Tensor, x: Tensor, rows: Tensor): void {
    const whole = kernel === "gather_rows" ? x : out;
    const part = kernel === "gather_rows" ? out : x;
    const width = whole.size / (whole.shape[0] || 1);
    expect(op, "i32", [rows, rows.size]);
    expect(op, "f32", [part, rows.size * width], [whole, whole.size]);
    const n = rows.size * width;
    this.context.run({
      kernel,
      tensors: { x: own(x), rows: own(rows), out: own(out) },
      params: { n, width },
      groups: grid(Math.ceil(n / 64)),
    });
  }

  // ---- model -----------------------------------------------------------------------------------------------------------
  rmsNorm(out: Tensor, rstd: Tensor, x: Tensor, w: Tensor, eps: number): void {
    norms.rmsNorm(this.kit, out, rstd, x, w, eps);
  }
  rmsNormBackward(dx: Tensor, dw: Tensor, dOut: Tensor, x: Tensor, w: Tensor, rstd: Tensor): void {
    norms.rmsNormBackward(this.kit, dx, dw, dOut, x, w, rstd);
  }

  /** RoPE's frequencies, made once for a head size and base. */
  #ropeTurns = (d: number, theta: number): GpuTensor => {
    const key = `${d}/${theta}`;
    const known = this.#turns.get(key);
    if (known) return known;
    const t = own(this.alloc([d / 2, 2], "u32", `RoPE frequencies, D ${d}, theta ${theta}`));
    this.context.upload(t, norms.ropeTurns(d, theta));
    this.#turns.set(key, t);
    return t;
  };
  qkNormRope(out: Tensor, x: Tensor, w: Tensor, positions: Tensor, eps: number, theta: number): void {
    norms.qkNormRope(this.kit, this.#ropeTurns, out, x, w, positions, eps, theta);
  }
  qkNormRopeBackward(
    dx: Tensor,
    dw: Tensor,
    dOut: Tensor,
    x: Tensor,
    w: Tensor,
    positions: Tensor,
    eps: number,
    theta: number,
  ): void {
    norms.qkNormRopeBackward(this.kit, this.#ropeTurns, dx, dw, dOut, x, w, positions, eps, theta);
  }

  attention(out: Tensor, lse: Tensor, q: Tensor, k: Tensor, v: Tensor, packing: Packing, scale: number): void {
    attention.attention(this.kit, out, lse, q, k, v, packing, scale);
  }
  attentionBackward(
    grads: { dq: Tensor; dk: Tensor; dv: Tensor },
    dOut: Tensor,
    saved: { q: Tensor; k: Tensor; v: Tensor; out: Tensor; lse: Tensor },
    packing: Packing,
    scale: number,
  ): void {
    attention.attentionBackward(this.kit, grads, dOut, saved, packing, scale);
  }

  swiglu(out: Tensor, gate: Tensor, up: Tensor): void {
    expect("swiglu", "f32", [out, out.size], [gate, out.size], [up, out.size]);
    each(
      this.kit,
      { kernel: "swiglu", tensors: { gate: own(gate), up: own(up), out: own(out) }, params: {} },
      out.size,
    );
  }
  swigluBackward(dGate: Tensor, dUp: Tensor, dOut: Tensor, gate: Tensor, up: Tensor): void {
    const n = dOut.size;
    expect("swigluBackward", "f32", [dOut, n], [dGate, n], [dUp, n], [gate, n], [up, n]);
    const tensors = { d_out: own(dOut), gate: own(gate), up: own(up), d_gate: own(dGate), d_up: own(dUp) };
    each(this.kit, { kernel: "swiglu_backward", tensors, params: {} }, n);
  }

  shortConv(out: Tensor, x: Tensor, w: Tensor, packing: Packing): void {
    attention.shortConv(this.kit, out, x, w, packing);
  }
  shortConvBackward(dx: Tensor, dw: Tensor, dOut: Tensor, x: Tensor, w: Tensor, packing: Packing): void {
    attention.shortConvBackward(this.kit, dx, dw, dOut, x, w, packing);
  }

  logProbs(
    out: { lp: Tensor; lse: Tensor; entropy?: Tensor },
    x: Tensor,
    head: Tensor,
    targets: Tensor,
    masks?: TokenMasks,
  ): void {
    losses.logProbs(this.kit, this.#choose, out, x, head, targets, masks);
  }
  logProbsBackward(
    grads: { dx: Tensor; dHead?: Tensor },
    dLp: Tensor,
    saved: { x: Tensor; head: Tensor; targets: Tensor; lse: Tensor },
    masks?: TokenMasks,
  ): void {
    losses.logProbsBackward(this.kit, this.#choose, grads, dLp, saved, masks);
  }

  // ---- optimiser -------------------------------------------------------------------------------------------------------
  adamw(param: Tensor, grad: Tensor, m: Tensor, v: Tensor, o: AdamWOptions): void {
    const n = param.size;
    expect("adamw", "f32", [param, n], [grad, n], [m, n], [v, n]);
    each(
      this.kit,
      {
        kernel: "adamw",
        tensors: { grad: own(grad), weight: own(param), m: own(m), v: own(v) },
        params: {
          beta1: o.beta1,
          c1: 1 - o.beta1,
          beta2: o.beta2,
          c2: 1 - o.beta2,
          eps: o.eps,
          step: o.lr / (1 - o.beta1 ** o.step),
          root: 1 / Math.sqrt(1 - o.beta2 ** o.step),
          keep: 1 - o.lr * o.weightDecay,
          grad_scale: o.gradScale,
        },
      },
      n,
    );
  }

  // ---- generation ------------------------------------------------------------------------------------------------------
  pagedAttention(out: Tensor, q: Tensor, kCache: Tensor, vCache: Tensor, context: PagedContext, scale: number): void {
    attention.pagedAttention(this.kit, out, q, kCache, vCache, context, scale);
  }
  pagedShortConv(out: Tensor, xCache: Tensor, w: Tensor, context: PagedContext): void {
    attention.pagedShortConv(this.kit, out, xCache, w, context);
  }

  sample(ids: Tensor, lp: Tensor, logits: Tensor, o: SampleOptions): void {
    const [rows, columns] = dims("sample", logits, 2);
    expect("sample", "f32", [logits, rows * columns], [lp, rows], [o.temperature, rows], [o.topP, rows]);
    expect("sample", "i32", [ids, rows], [o.topK, rows]);
    expect("sample", "u32", [o.seeds, rows * 2]);
    losses.checkMasks("sample", o.masks, rows, columns);
    this.context.run({
      kernel: "sample",
      constants: { WG: this.kit.rowLanes, MASKED: o.masks !== undefined },
      tensors: {
        logits: own(logits),
        temperature: own(o.temperature),
        top_k: own(o.topK),
        top_p: own(o.topP),
        seeds: own(o.seeds),
        ...losses.maskTensors(this.kit, o.masks),
        ids: own(ids),
        lp: own(lp),
      },
      params: { rows, columns, words: losses.wordsOf(o.masks) },
      groups: grid(rows),
    });
  }
}

/** The 16 bits of a value in f16 or bf16. */
function halfBits(dtype: DType, value: number): number {
  const bytes = packHalf(dtype === "f16" ? "f16" : "bf16", new Float32Array([value]));
  return new Uint16Array(bytes.buffer)[0]!;
}

/**
 * Opens an adapter through Dawn, with the choices that tune.ts measured and kept for it unless `tuned` is false.
 * Throws NoEngineError where there is no adapter as asked for.
 */
export async function openWebGpuEngine(
  request: Parameters<typeof openDevice>[0],
  options: { tuned?: boolean } = {},
): Promise<WebGpuEngine> {
  const engine = new WebGpuEngine(await openDevice(request));
  // Bun sets NODE_ENV in its test runner, where only fixed defaults may be used.
  if (options.tuned ?? process.env.NODE_ENV !== "test") {
    for (const [shape, variant] of loadTuning(engine.info)) engine.tuned.set(shape, variant);
  }
  return engine;
}
