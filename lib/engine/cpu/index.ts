/**
 * The CPU engine: WebAssembly SIMD kernels on all cores over one shared memory, matrix products by the system's BLAS where there is one.
 * Operations run when they are called and are done when they return; only the interface is asynchronous.
 */
import { ptr as addressOf } from "bun:ffi";
import { cpus } from "node:os";
import { dims, sized } from "../reference/tensor.ts";
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
import { type Blas, findBlas, useOneThread } from "./blas.ts";
import type { Start } from "./instance.ts";
import { KEY_BLOCK, Kernel, QUERY_BLOCK, SCRATCH_BYTES, Storage } from "./kernels/ids.ts";
import { Heap } from "./memory.ts";
import { f32, Threads } from "./threads.ts";

export { describeBlas } from "./blas.ts";

const BYTES: Record<DType, number> = { f32: 4, i32: 4, u32: 4, f16: 2, bf16: 2 };
const STORAGE: Record<DType, Storage> = {
  f32: Storage.F32,
  i32: Storage.F32,
  u32: Storage.F32,
  bf16: Storage.BF16,
  f16: Storage.F16,
};

/** Elements of an item of an elementwise kernel: 64 KiB, which stays in a core's cache and outlasts the hand-over. */
const CHUNK = 16384;
/** Multiplications that an item should have at least, so that handing it over costs little. */
const ITEM_WORK = 1 << 19;
/**
 * Up to so many rows a product streams the weights once (kernels/gemm.ts dotItem, at most its MOST_ROWS): without BLAS; beside one, which is
 * faster from four rows on, for f32 weights, and for f16 and bf16 ones, which it would need widened first.
 */
const FEW_ROWS = { none: 64, blas: 3, blasHalf: 24 };
/** Bytes of logits held at once by the fused projection, for small and for large vocabularies. */
const LOGIT_BYTES = { small: 16 << 20, large: 64 << 20, from: 32768 };
/** Bytes of f16 or bf16 weights widened at once. */
const WIDEN_BYTES = 32 << 20;
/** The most rows of partial sums of a weight's gradient. */
const PARTIALS = 32;

class CpuTensor implements Tensor {
  freed = false;
  constructor(
    readonly shape: readonly number[],
    readonly dtype: DType,
    readonly label: string,
    readonly size: number,
    /** Byte address. */
    readonly ptr: number,
    readonly base: CpuTensor | null,
    readonly owner: CpuEngine,
  ) {}
}

export interface CpuOptions {
  /** Threads, the main one included; PARAAGENT_THREADS by default, else as many as cores. Their number may change the last bits of sums. */
  threads?: number;
  /** A BLAS library's file or soname, "auto" for the first one found, "none" for the WebAssembly product. */
  blas?: "auto" | "none" | (string & {});
}

/** A function of one multiply-add that rounds once: (1 + 2⁻¹²)² − (1 + 2⁻¹¹) is 2⁻²⁴ fused, 0 rounded twice. */
const PROBE = Uint8Array.from([
  ...[0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, 1, 8, 1, 0x60, 3, 0x7d, 0x7d, 0x7d, 1, 0x7d, 3, 2, 1, 0, 7, 5, 1, 1, 0x66, 0, 0],
  ...[
    10, 20, 1, 18, 0, 0x20, 0, 0xfd, 0x13, 0x20, 1, 0xfd, 0x13, 0x20, 2, 0xfd, 0x13, 0xfd, 0x85, 0x02, 0xfd, 0x1f, 0,
    0x0b,
  ],
]);

/** Whether the runtime has relaxed SIMD and really fuses; where it multiplies and adds, the plain build gives the same bits. */
function fusesMultiplyAdd(): boolean {
  if (!WebAssembly.validate(PROBE)) return false;
  const { f } = new WebAssembly.Instance(new WebAssembly.Module(PROBE)).exports;
  const x = 1 + 2 ** -12;
  return typeof f === "function" && f(x, x, -(1 + 2 ** -11)) !== 0;
}

const MOST_THREADS = 255;

/** PARAAGENT_THREADS, for several runs side by side on one machine, else as many as cores. */
function defaultThreads(): number {
  const set = process.env.PARAAGENT_THREADS;
  if (!set) return Math.min(MOST_THREADS, cpus().length);
  const threads = Number(set);
  if (Number.isInteger(threads) && threads >= 1 && threads <= MOST_THREADS) return threads;
  throw new EngineError(
    `PARAAGENT_THREADS is "${set}": give a whole number from 1 to ${MOST_THREADS}, or leave it unset`,
  );
}

/**
 * Opens the engine. Throws EngineError where PARAAGENT_THREADS is no number, or where a BLAS asked for by name does not load or computes wrongly.
 * @example const engine = await openCpuEngine({ threads: 2 });
 */
export async function openCpuEngine(options: CpuOptions = {}): Promise<CpuEngine> {
  const threads = options.threads ?? defaultThreads();
  const wanted = options.blas ?? "auto";
  const found = wanted === "none" ? { blas: null, tried: [] } : findBlas(wanted === "auto" ? undefined : [wanted]);
  if (!found.blas && wanted !== "auto" && wanted !== "none") {
    throw new EngineError(`no BLAS at "${wanted}": ${found.tried.join("; ")}`);
  }
  const fused = fusesMultiplyAdd();
  const file = Bun.file(new URL(`./kernels/${fused ? "kernels-fma" : "kernels"}.wasm`, import.meta.url));
  const module = new WebAssembly.Module(await file.arrayBuffer());
  const open = async (blas: Blas | null) => {
    if (blas) useOneThread(blas.library);
    const heap = new Heap();
    const base = addressOf(new Uint8Array(heap.memory.buffer));
    const starts = Array.from({ length: threads }, (_, thread): Start => {
      const scratch = heap.take(SCRATCH_BYTES, `scratch of thread ${thread}`).ptr;
      return { module, memory: heap.memory, base, thread, scratch, library: blas?.library ?? null };
    });
    return new CpuEngine(heap, await Threads.open(starts), blas, fused);
  };
  const engine = await open(found.blas);
  if (!found.blas || (await multipliesRight(engine))) return engine;
  await engine.dispose();
  if (wanted === "auto") return open(null);
  throw new EngineError(
    `the BLAS at "${wanted}" gives wrong products on this processor (for OpenBLAS, try another OPENBLAS_CORETYPE)`,
  );
}

/** Old OpenBLAS builds compute wrongly on some processors: a product of small integers, which f32 holds exactly, tells. */
async function multipliesRight(engine: CpuEngine): Promise<boolean> {
  const [M, N, K] = [67, 71, 131];
  const [a, b] = [engine.alloc([M, K], "f32", "check a"), engine.alloc([N, K], "f32", "check b")];
  const c = engine.alloc([M, N], "f32", "check c");
  const whole = (n: number, step: number) => Float32Array.from({ length: n }, (_, i) => ((i * step) % 17) - 8);
  const [x, y] = [whole(M * K, 7), whole(N * K, 5)];
  engine.upload(a, x);
  engine.upload(b, y);
  engine.matmul(c, a, b, { transB: true });
  const z = await engine.download(c);
  engine.free(a, b, c);
  for (let m = 0; m < M; m++) {
    for (let n = 0; n < N; n++) {
      let sum = 0;
      for (let k = 0; k < K; k++) sum += x[m * K + k]! * y[n * K + k]!;
      if (z[m * N + n] !== sum) return false;
    }
  }
  return true;
}

const product = (shape: readonly number[]) => shape.reduce((n, d) => n * d, 1);
const ceilDiv = (a: number, b: number) => Math.ceil(a / b);

/** A matrix in memory. */
interface Matrix {
  ptr: number;
  /** Elements from row to row. */
  ld: number;
}

export class CpuEngine implements Engine {
  readonly info: EngineInfo;
  readonly #heap: Heap;
  readonly #threads: Threads;
  readonly #blas: boolean;
  /** cos and sin of RoPE by "theta/D": [positions, D], the first half cos. */
  readonly #rope = new Map<string, { ptr: number; positions: number }>();
  #buffer: ArrayBufferLike;
  #ints: Int32Array;

  constructor(heap: Heap, threads: Threads, blas: Blas | null, fused: boolean) {
    this.#heap = heap;
    this.#threads = threads;
    this.#blas = blas !== null;
    this.#buffer = heap.memory.buffer;
    this.#ints = new Int32Array(this.#buffer);
    this.info = {
      kind: "cpu",
      description: `wasm-simd ×${threads.count}${blas ? `, ${blas.name}` : ""}`,
      hardware: false,
      features: ["f16", "bf16", ...(fused ? ["fma"] : []), ...(blas ? ["blas"] : [])],
      limits: { threads: threads.count, memoryBytes: 2 ** 32, vocabulary: (SCRATCH_BYTES - (1 << 20)) / 8 },
    };
  }

  memory() {
    return this.#heap.usage;
  }

  // ---- tensors ---------------------------------------------------------------------------------------------------------

  alloc(shape: readonly number[], dtype: DType, label: string): Tensor {
    this.#threads.check();
    const size = product(shape);
    if (!Number.isSafeInteger(size) || size < 0) throw new EngineError(`alloc: "${label}" has shape [${shape}]`);
    const block = this.#take(size * BYTES[dtype], label);
    const tensor = new CpuTensor([...shape], dtype, label, size, block.ptr, null, this);
    if (!block.fresh) this.#zero(block.ptr, block.bytes);
    return tensor;
  }

  free(...tensors: Tensor[]): void {
    for (const t of tensors) {
      const tensor = this.#own(t);
      if (tensor.base) throw new EngineError(`free: "${t.label}" is a view; free its owner`);
      tensor.freed = true;
      this.#heap.give(tensor.ptr);
    }
  }

  view(of: Tensor, shape: readonly number[], offset = 0): Tensor {
    const base = this.#own(of);
    const size = product(shape);
    if (offset % 64 !== 0 || offset < 0 || offset + size > of.size) {
      throw new EngineError(
        `view: [${shape}] at ${offset} of "${of.label}" [${of.shape}] is outside it or not at a multiple of 64`,
      );
    }
    const ptr = base.ptr + offset * BYTES[of.dtype];
    return new CpuTensor([...shape], of.dtype, of.label, size, ptr, base.base ?? base, this);
  }

  upload(to: Tensor, data: Float32Array | Int32Array | Uint32Array): void {
    this.#threads.check();
    sized("upload", [to, data.length]);
    const { ptr, dtype, size } = this.#own(to);
    const fits =
      dtype === "i32"
        ? data instanceof Int32Array
        : dtype === "u32"
          ? data instanceof Uint32Array
          : data instanceof Float32Array;
    if (!fits) throw new EngineError(`upload: "${to.label}" is ${dtype}, the data is ${data.constructor.name}`);
    if (data instanceof Int32Array) this.#view(Int32Array, ptr, size).set(data);
    else if (data instanceof Uint32Array) this.#view(Uint32Array, ptr, size).set(data);
    else if (dtype === "f32") this.#view(Float32Array, ptr, size).set(data);
    else this.#narrow(ptr, dtype, data);
  }

  #narrow(ptr: number, dtype: DType, data: Float32Array): void {
    const size = data.length;
    const wide = this.#take(size * 4, "upload");
    this.#view(Float32Array, wide.ptr, size).set(data);
    this.#copy(ptr, wide.ptr, size, STORAGE[dtype], Storage.F32);
    this.#heap.give(wide.ptr);
  }

  async download(from: Tensor): Promise<Float32Array | Int32Array | Uint32Array> {
    this.#threads.check();
    const { ptr, dtype, size } = this.#own(from);
    if (dtype === "i32") return new Int32Array(this.#view(Int32Array, ptr, size));
    if (dtype === "u32") return new Uint32Array(this.#view(Uint32Array, ptr, size));
    if (dtype === "f32") return new Float32Array(this.#view(Float32Array, ptr, size));
    const wide = this.#take(size * 4, "download");
    this.#copy(wide.ptr, ptr, size, Storage.F32, STORAGE[dtype]);
    const data = new Float32Array(this.#view(Float32Array, wide.ptr, size));
    this.#heap.give(wide.ptr);
    return data;
  }

  async sync(): Promise<void> {
    this.#threads.check();
  }

  async dispose(): Promise<void> {
    this.#threads.close();
  }

  /** For tests of failure: runs a kernel that traps, or ends its thread, on a worker. */
  provoke(what: "trap" | "die"): void {
    this.#run(what === "trap" ? Kernel.Trap : Kernel.Die, 2 * this.#threads.count, []);
  }

  // ---- elementwise -----------------------------------------------------------------------------------------------------

  fill(out: Tensor, value: number): void {
    const { ptr, dtype, size } = this.#own(out);
    if (dtype === "i32") this.#view(Int32Array, ptr, size).fill(value);
    else if (dtype === "u32") this.#view(Uint32Array, ptr, size).fill(value);
    else if (dtype === "f32") this.#fill(ptr, size, value);
    else if (size > 0) {
      this.#narrow(ptr, dtype, Float32Array.of(value));
      const halves = this.#view(Uint16Array, ptr, size);
      halves.fill(halves[0]!);
    }
  }

  copy(out: Tensor, x: Tensor): void {
    sized("copy", [out, x.size]);
    const [to, from] = [this.#own(out), this.#own(x)];
    const whole = (d: DType) => d === "i32" || d === "u32";
    if (
      to.dtype !== from.dtype &&
      (whole(to.dtype) || whole(from.dtype) || (to.dtype !== "f32" && from.dtype !== "f32"))
    ) {
      throw new EngineError(`copy: "${x.label}" is ${x.dtype}, "${out.label}" is ${out.dtype}`);
    }
    this.#copy(to.ptr, from.ptr, to.size, STORAGE[to.dtype], STORAGE[from.dtype]);
  }

  axpby(out: Tensor, a: number, x: Tensor, b: number, y: Tensor): void {
    sized("axpby", [x, out.size], [y, out.size]);
    const args = [this.#f32(out), f32(a), this.#f32(x), f32(b), this.#f32(y), out.size, CHUNK];
    this.#run(Kernel.Axpby, ceilDiv(out.size, CHUNK), args);
  }

  async sumSquares(tensors: Tensor[]): Promise<number> {
    let total = 0;
    for (const t of tensors) {
      const items = ceilDiv(t.size, CHUNK);
      const partial = this.#take(items * 8, "sumSquares");
      this.#run(Kernel.SumSquares, items, [this.#f32(t), t.size, CHUNK, partial.ptr]);
      for (const x of this.#view(Float64Array, partial.ptr, items)) total += x;
      this.#heap.give(partial.ptr);
    }
    return total;
  }

  // ---- matrix products, embeddings -------------------------------------------------------------------------------------

  matmul(out: Tensor, a: Tensor, b: Tensor, options: MatmulOptions = {}): void {
    const { transA = false, transB = false, accumulate = false } = options;
    const [M, N] = dims(out, 2);
    const [a0, a1] = dims(a, 2);
    const [b0, b1] = dims(b, 2);
    const K = transA ? a0 : a1;
    if ((transA ? a1 : a0) !== M || (transB ? b0 : b1) !== N || (transB ? b1 : b0) !== K) {
      const name = (t: Tensor, trans: boolean) => `"${t.label}" [${t.shape}]${trans ? "ᵀ" : ""}`;
      throw new EngineError(`matmul: out ${name(out, false)}, a ${name(a, transA)}, b ${name(b, transB)} do not fit`);
    }
    const left = { ptr: this.#f32(a), ld: a1 };
    this.#product(transA, transB, M, N, K, left, this.#float(b), { ptr: this.#f32(out), ld: N }, accumulate);
  }

  embed(out: Tensor, table: Tensor, ids: Tensor): void {
    const [T, C] = dims(out, 2);
    const [V] = dims(table, 2);
    sized("embed", [table, V * C], [ids, T]);
    this.#rows("embed", this.#f32(out), this.#float(table), ids, T, C, V, false);
  }

  embedBackward(dTable: Tensor, dOut: Tensor, ids: Tensor): void {
    const [T, C] = dims(dOut, 2);
    const [V] = dims(dTable, 2);
    sized("embedBackward", [dTable, V * C], [ids, T]);
    const at = this.#indices("embedBackward", ids, V);
    const items = T * C < CHUNK ? 1 : Math.min(V, 4 * this.#threads.count);
    const per = ceilDiv(V, items);
    this.#run(Kernel.EmbedBackward, ceilDiv(V, per), [this.#f32(dTable), this.#f32(dOut), at, T, C, V, per]);
  }

  gatherRows(out: Tensor, x: Tensor, rows: Tensor): void {
    const [M, C] = dims(out, 2);
    const [T] = dims(x, 2);
    sized("gatherRows", [rows, M], [x, T * C]);
    this.#f32(x);
    this.#rows("gatherRows", this.#f32(out), this.#own(x), rows, M, C, T, false);
  }

  scatterRows(out: Tensor, x: Tensor, rows: Tensor): void {
    const [M, C] = dims(x, 2);
    const [T] = dims(out, 2);
    sized("scatterRows", [rows, M], [out, T * C]);
    this.#f32(x);
    this.#fill(this.#f32(out), out.size, 0);
    this.#rows("scatterRows", this.#f32(out), this.#own(x), rows, M, C, T, true);
  }

  // ---- norms -----------------------------------------------------------------------------------------------------------

  rmsNorm(out: Tensor, rstd: Tensor, x: Tensor, w: Tensor, eps: number): void {
    const [T, C] = dims(x, 2);
    sized("rmsNorm", [out, T * C], [w, C], [rstd, T]);
    const per = this.#rowsAnItem(T, C);
    const args = [this.#f32(out), this.#f32(rstd), this.#f32(x), this.#f32(w), T, C, per, f32(eps)];
    this.#run(Kernel.RmsNorm, ceilDiv(T, per), args);
  }

  rmsNormBackward(dx: Tensor, dw: Tensor, dOut: Tensor, x: Tensor, w: Tensor, rstd: Tensor): void {
    const [T, C] = dims(x, 2);
    sized("rmsNormBackward", [dx, T * C], [dw, C], [dOut, T * C], [w, C], [rstd, T]);
    const per = Math.max(ceilDiv(T, PARTIALS), this.#rowsAnItem(T, C));
    this.#withPartials(this.#f32(dw), C, ceilDiv(T, per), (partial, items) => {
      const saved = [this.#f32(dOut), this.#f32(x), this.#f32(w), this.#f32(rstd)];
      this.#run(Kernel.RmsNormBackward, items, [this.#f32(dx), partial, ...saved, T, C, per]);
    });
  }

  qkNormRope(out: Tensor, x: Tensor, w: Tensor, positions: Tensor, eps: number, theta: number): void {
    const [T, H, D] = dims(x, 3);
    sized("qkNormRope", [out, T * H * D], [w, D], [positions, T]);
    const table = this.#ropeTable("qkNormRope", positions, theta, D);
    const per = this.#rowsAnItem(T, H * D);
    const args = [this.#f32(out), this.#f32(x), this.#f32(w), this.#integers(positions), table, T, H, D, per, f32(eps)];
    this.#run(Kernel.QkNormRope, ceilDiv(T, per), args);
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
    const [T, H, D] = dims(x, 3);
    sized("qkNormRopeBackward", [dx, T * H * D], [dw, D], [dOut, T * H * D], [w, D], [positions, T]);
    const table = this.#ropeTable("qkNormRopeBackward", positions, theta, D);
    const per = Math.max(ceilDiv(T, PARTIALS), this.#rowsAnItem(T, H * D));
    this.#withPartials(this.#f32(dw), D, ceilDiv(T, per), (partial, items) => {
      const saved = [this.#f32(dOut), this.#f32(x), this.#f32(w), this.#integers(positions), table];
      this.#run(Kernel.QkNormRopeBackward, items, [this.#f32(dx), partial, ...saved, T, H, D, per, f32(eps)]);
    });
  }

  // ---- attention -------------------------------------------------------------------------------------------------------

  attention(out: Tensor, lse: Tensor, q: Tensor, k: Tensor, v: Tensor, packing: Packing, scale: number): void {
    const [T, H, D] = dims(q, 3);
    const [, K] = dims(k, 3);
    sized("attention", [out, T * H * D], [lse, T * H], [k, T * K * D], [v, T * K * D]);
    const blocks: number[] = [];
    for (const [start, end] of this.#documents("attention", packing, T)) {
      for (let q0 = start; q0 < end; q0 += QUERY_BLOCK) blocks.push(q0, Math.min(q0 + QUERY_BLOCK, end), start);
    }
    this.#withTable(blocks, (table) => {
      const args = [
        table,
        this.#f32(q),
        this.#f32(k),
        this.#f32(v),
        this.#f32(out),
        this.#f32(lse),
        H,
        K,
        D,
        f32(scale),
      ];
      this.#run(Kernel.Attention, (blocks.length / 3) * H, args);
    });
  }

  attentionBackward(
    grads: { dq: Tensor; dk: Tensor; dv: Tensor },
    dOut: Tensor,
    saved: { q: Tensor; k: Tensor; v: Tensor; out: Tensor; lse: Tensor },
    packing: Packing,
    scale: number,
  ): void {
    const [T, H, D] = dims(saved.q, 3);
    const [, K] = dims(saved.k, 3);
    const { dq, dk, dv } = grads;
    sized("attentionBackward", [dq, T * H * D], [dk, T * K * D], [dv, T * K * D], [dOut, T * H * D]);
    sized("attentionBackward", [saved.k, T * K * D], [saved.v, T * K * D], [saved.out, T * H * D], [saved.lse, T * H]);
    // The n-th stretches of keys of all documents run together: the later ones add to the same dq.
    const rounds: number[][] = [];
    for (const [start, end] of this.#documents("attentionBackward", packing, T)) {
      for (let k0 = start, round = 0; k0 < end; k0 += KEY_BLOCK, round++) {
        (rounds[round] ??= []).push(end, start, k0, Math.min(k0 + KEY_BLOCK, end));
      }
    }
    const tensors = [saved.q, saved.k, saved.v, saved.out, saved.lse, dOut, dq, dk, dv].map((t) => this.#f32(t));
    for (const stretches of rounds) {
      this.#withTable(stretches, (table) => {
        this.#run(Kernel.AttentionBackward, (stretches.length / 4) * K, [table, ...tensors, H, K, D, f32(scale)]);
      });
    }
  }

  // ---- elementwise of the model ----------------------------------------------------------------------------------------

  swiglu(out: Tensor, gate: Tensor, up: Tensor): void {
    sized("swiglu", [gate, out.size], [up, out.size]);
    const args = [this.#f32(out), this.#f32(gate), this.#f32(up), out.size, CHUNK];
    this.#run(Kernel.Swiglu, ceilDiv(out.size, CHUNK), args);
  }

  swigluBackward(dGate: Tensor, dUp: Tensor, dOut: Tensor, gate: Tensor, up: Tensor): void {
    const n = dOut.size;
    sized("swigluBackward", [dGate, n], [dUp, n], [gate, n], [up, n]);
    const args = [...[dGate, dUp, dOut, gate, up].map((t) => this.#f32(t)), n, CHUNK];
    this.#run(Kernel.SwigluBackward, ceilDiv(n, CHUNK), args);
  }

  shortConv(out: Tensor, x: Tensor, w: Tensor, packing: Packing): void {
    const [T, N] = dims(x, 2);
    const [, taps] = dims(w, 2);
    sized("shortConv", [out, T * N], [w, N * taps], [packing.docStart, T]);
    const per = this.#rowsAnItem(T, N);
    const args = [this.#f32(out), this.#f32(x), this.#f32(w), this.#integers(packing.docStart), T, N, taps, per];
    this.#run(Kernel.ShortConv, ceilDiv(T, per), args);
  }

  shortConvBackward(dx: Tensor, dw: Tensor, dOut: Tensor, x: Tensor, w: Tensor, packing: Packing): void {
    const [T, N] = dims(x, 2);
    const [, taps] = dims(w, 2);
    sized("shortConvBackward", [dx, T * N], [dw, N * taps], [dOut, T * N], [w, N * taps], [packing.docEnd, T]);
    const per = this.#rowsAnItem(T, N);
    const [start, end] = [this.#integers(packing.docStart), this.#integers(packing.docEnd)];
    const [dy, xs, ws] = [this.#f32(dOut), this.#f32(x), this.#f32(w)];
    this.#run(Kernel.ShortConvBackwardX, ceilDiv(T, per), [this.#f32(dx), dy, ws, end, T, N, taps, per]);
    const columns = T * N < CHUNK ? N : 16;
    this.#run(Kernel.ShortConvBackwardW, ceilDiv(N, columns), [this.#f32(dw), dy, xs, start, T, N, taps, columns]);
  }

  // ---- loss ------------------------------------------------------------------------------------------------------------

  logProbs(
    out: { lp: Tensor; lse: Tensor; entropy?: Tensor },
    x: Tensor,
    head: Tensor,
    targets: Tensor,
    masks?: TokenMasks,
  ): void {
    const [M, C] = dims(x, 2);
    const [V] = dims(head, 2);
    sized("logProbs", [head, V * C], [targets, M], [out.lp, M], [out.lse, M]);
    if (out.entropy) sized("logProbs", [out.entropy, M]);
    const ends = [this.#f32(out.lp), this.#f32(out.lse), out.entropy ? this.#f32(out.entropy) : 0];
    this.#overLogits("logProbs", Kernel.LogProbs, x, head, targets, ends, masks, () => {});
  }

  logProbsBackward(
    grads: { dx: Tensor; dHead?: Tensor },
    dLp: Tensor,
    saved: { x: Tensor; head: Tensor; targets: Tensor; lse: Tensor },
    masks?: TokenMasks,
  ): void {
    const [M, C] = dims(saved.x, 2);
    const [V] = dims(saved.head, 2);
    sized("logProbsBackward", [saved.head, V * C], [grads.dx, M * C], [dLp, M], [saved.targets, M], [saved.lse, M]);
    if (grads.dHead) sized("logProbsBackward", [grads.dHead, V * C]);
    const [x, dx, dHead] = [this.#f32(saved.x), this.#f32(grads.dx), grads.dHead && this.#f32(grads.dHead)];
    const ends = [this.#f32(dLp), this.#f32(saved.lse), 0];
    const { head, targets } = saved;
    this.#overLogits(
      "logProbsBackward",
      Kernel.LogProbsGradient,
      saved.x,
      head,
      targets,
      ends,
      masks,
      (d, row, rows) => {
        const here = { ptr: dx + row * C * 4, ld: C };
        this.#product(false, false, rows, C, V, { ptr: d, ld: V }, this.#float(head), here, false);
        if (dHead === undefined) return;
        this.#gemm(
          true,
          false,
          V,
          C,
          rows,
          { ptr: d, ld: V },
          { ptr: x + row * C * 4, ld: C },
          { ptr: dHead, ld: C },
          true,
        );
      },
    );
  }

  // ---- optimiser -------------------------------------------------------------------------------------------------------

  adamw(param: Tensor, grad: Tensor, m: Tensor, v: Tensor, options: AdamWOptions): void {
    const n = param.size;
    sized("adamw", [grad, n], [m, n], [v, n]);
    const { lr, beta1, beta2, eps, weightDecay, step, gradScale } = options;
    const rate = lr / (1 - beta1 ** step);
    const root = 1 / Math.sqrt(1 - beta2 ** step);
    const numbers = [gradScale, beta1, beta2, rate, root, eps, 1 - lr * weightDecay, 1 - beta1, 1 - beta2].map(f32);
    const args = [...[param, grad, m, v].map((t) => this.#f32(t)), n, CHUNK, ...numbers];
    this.#run(Kernel.AdamW, ceilDiv(n, CHUNK), args);
  }

  // ---- generation ------------------------------------------------------------------------------------------------------

  cacheWrite(cache: Tensor, x: Tensor, slots: Tensor): void {
    const [T, N] = dims(x, 2);
    const [S] = dims(cache, 2);
    sized("cacheWrite", [slots, T], [cache, S * N]);
    this.#f32(x);
    this.#rows("cacheWrite", this.#f32(cache), this.#own(x), slots, T, N, S, true);
  }

  pagedAttention(out: Tensor, q: Tensor, kCache: Tensor, vCache: Tensor, context: PagedContext, scale: number): void {
    const [T, H, D] = dims(q, 3);
    const [S, KD] = dims(kCache, 2);
    sized("pagedAttention", [out, T * H * D], [vCache, S * KD]);
    const K = KD / D;
    const [paged, pages] = this.#paged("pagedAttention", context, T, S);
    const args = [
      this.#f32(out),
      this.#f32(q),
      this.#f32(kCache),
      this.#f32(vCache),
      ...paged,
      pages,
      context.pageSize,
    ];
    this.#run(Kernel.PagedAttention, T * K, [...args, H, K, D, f32(scale)]);
  }

  pagedShortConv(out: Tensor, xCache: Tensor, w: Tensor, context: PagedContext): void {
    const [T, N] = dims(out, 2);
    const [, taps] = dims(w, 2);
    const [S] = dims(xCache, 2);
    sized("pagedShortConv", [w, N * taps], [xCache, S * N]);
    const [paged, pages] = this.#paged("pagedShortConv", context, T, S);
    const per = this.#rowsAnItem(T, N);
    const args = [this.#f32(out), this.#f32(xCache), this.#f32(w), ...paged, T, N, taps, pages, context.pageSize, per];
    this.#run(Kernel.PagedShortConv, ceilDiv(T, per), args);
  }

  sample(ids: Tensor, lp: Tensor, logits: Tensor, options: SampleOptions): void {
    const [B, V] = dims(logits, 2);
    const { temperature, topK, topP, seeds } = options;
    sized("sample", [ids, B], [lp, B], [temperature, B], [topK, B], [topP, B], [seeds, 2 * B]);
    const most = this.info.limits.vocabulary!;
    if (V > most)
      throw new EngineError(`sample: ${V} tokens in the vocabulary, the cpu engine samples from up to ${most}`);
    const [bits, row, words] = this.#masks("sample", options.masks, B, V);
    const settings = [this.#f32(temperature), this.#integers(topK), this.#f32(topP), this.#integers(seeds)];
    this.#run(Kernel.Sample, B, [
      ...[this.#integers(ids), this.#f32(lp), this.#f32(logits), V],
      ...settings,
      ...[bits, row, words],
    ]);
  }

  // ---- how operations are carried out ------------------------------------------------------------------------------------

  #run(kernel: Kernel, items: number, args: readonly number[]): void {
    this.#threads.run(kernel, items, args);
  }

  /** The tensor, if it is this engine's and lives. */
  #own(t: Tensor): CpuTensor {
    if (!(t instanceof CpuTensor) || t.owner !== this)
      throw new EngineError(`tensor "${t.label}" belongs to another engine`);
    if (t.freed || t.base?.freed) throw new EngineError(`tensor "${t.label}" was used after it had been freed`);
    return t;
  }
  /** Address of an f32 tensor. */
  #f32(t: Tensor): number {
    if (t.dtype !== "f32") throw new EngineError(`tensor "${t.label}" is ${t.dtype}, f32 was expected`);
    return this.#own(t).ptr;
  }
  #float(t: Tensor): CpuTensor {
    if (t.dtype === "i32" || t.dtype === "u32") {
      throw new EngineError(`tensor "${t.label}" is ${t.dtype}, a float was expected`);
    }
    return this.#own(t);
  }
  /** Address of an i32 or u32 tensor. */
  #integers(t: Tensor): number {
    if (t.dtype !== "i32" && t.dtype !== "u32") {
      throw new EngineError(`tensor "${t.label}" is ${t.dtype}, integers were expected`);
    }
    return this.#own(t).ptr;
  }

  #take(bytes: number, label: string) {
    const block = this.#heap.take(bytes, label);
    if (this.#heap.memory.buffer !== this.#buffer) {
      this.#buffer = this.#heap.memory.buffer;
      this.#ints = new Int32Array(this.#buffer);
    }
    return block;
  }

  #view<T>(of: new (buffer: ArrayBufferLike, offset: number, length: number) => T, ptr: number, length: number): T {
    return new of(this.#buffer, ptr, length);
  }

  #fill(ptr: number, n: number, value: number): void {
    this.#run(Kernel.Fill, ceilDiv(n, CHUNK), [ptr, n, CHUNK, f32(value)]);
  }
  #zero(ptr: number, bytes: number): void {
    this.#fill(ptr, bytes / 4, 0);
  }
  #copy(to: number, from: number, n: number, toStorage: Storage, fromStorage: Storage): void {
    this.#run(Kernel.Copy, ceilDiv(n, CHUNK), [to, from, n, CHUNK, toStorage, fromStorage]);
  }

  /** Rows of n elements in an item of a row kernel. */
  #rowsAnItem(rows: number, n: number): number {
    return Math.max(1, Math.min(rows, Math.ceil(CHUNK / Math.max(1, n))));
  }

  /** Address of an index tensor whose entries all lie in [0, limit). */
  #indices(op: string, t: Tensor, limit: number): number {
    const ptr = this.#integers(t);
    for (let i = 0; i < t.size; i++) {
      const x = this.#ints[ptr / 4 + i]!;
      if (x < 0 || x >= limit) throw new EngineError(`${op}: "${t.label}"[${i}] is ${x}, not in [0, ${limit})`);
    }
    return ptr;
  }

  #rows(
    op: string,
    out: number,
    x: CpuTensor,
    ids: Tensor,
    rows: number,
    n: number,
    limit: number,
    scatter: boolean,
  ): void {
    const at = this.#indices(op, ids, limit);
    const per = this.#rowsAnItem(rows, n);
    this.#run(Kernel.Rows, ceilDiv(rows, per), [out, x.ptr, at, rows, n, per, scatter ? 1 : 0, STORAGE[x.dtype]]);
  }

  /** Lets `work` write [items, n] partial sums, then adds them to `into` in order. */
  #withPartials(into: number, n: number, items: number, work: (partial: number, items: number) => void): void {
    const partial = this.#take(items * n * 4, "partial sums");
    work(partial.ptr, items);
    const columns = items * n < CHUNK ? n : ceilDiv(ceilDiv(n, this.#threads.count), 16) * 16;
    this.#run(Kernel.AddRows, ceilDiv(n, columns), [into, partial.ptr, items, n, columns]);
    this.#heap.give(partial.ptr);
  }

  #withTable(entries: readonly number[], work: (table: number) => void): void {
    if (entries.length === 0) return;
    const table = this.#take(entries.length * 4, "table");
    this.#ints.set(entries, table.ptr / 4);
    work(table.ptr);
    this.#heap.give(table.ptr);
  }

  /** [start, end) of each document. */
  #documents(op: string, packing: Packing, T: number): [number, number][] {
    sized(op, [packing.docStart, T], [packing.docEnd, T]);
    const [starts, ends] = [this.#integers(packing.docStart) / 4, this.#integers(packing.docEnd) / 4];
    const documents: [number, number][] = [];
    for (let t = 0; t < T; ) {
      const [start, end] = [this.#ints[starts + t]!, this.#ints[ends + t]!];
      if (start !== t || end <= t || end > T) {
        throw new EngineError(
          `${op}: token ${t} begins a document, the packing says [${start}, ${end}) of ${T} tokens`,
        );
      }
      documents.push([start, end]);
      t = end;
    }
    return documents;
  }

  /** Addresses of page table, sequences and visible counts, checked, and the pages a sequence. */
  #paged(op: string, context: PagedContext, T: number, S: number): [number[], number] {
    const [B, P] = dims(context.pageTable, 2);
    sized(op, [context.sequence, T], [context.visible, T]);
    const sequence = this.#indices(op, context.sequence, B);
    const visible = this.#integers(context.visible);
    const table = this.#integers(context.pageTable);
    const { pageSize } = context;
    const longest = new Map<number, number>();
    for (let t = 0; t < T; t++) {
      const [s, n] = [this.#ints[sequence / 4 + t]!, this.#ints[visible / 4 + t]!];
      if (n < 1 || n > P * pageSize)
        throw new EngineError(`${op}: token ${t} sees ${n} entries of ${P} pages of ${pageSize}`);
      longest.set(s, Math.max(longest.get(s) ?? 0, n));
    }
    for (const [s, n] of longest) {
      for (let i = 0; i < ceilDiv(n, pageSize); i++) {
        const page = this.#ints[table / 4 + s * P + i]!;
        if (page < 0 || page * pageSize + Math.min(pageSize, n - i * pageSize) > S) {
          throw new EngineError(
            `${op}: page ${i} of sequence ${s} is ${page}, the cache has ${S} slots of ${pageSize} a page`,
          );
        }
      }
    }
    return [[table, sequence, visible], P];
  }

  /** Addresses of mask bits and rows, and words a mask; zeros where there are none. */
  #masks(op: string, masks: TokenMasks | undefined, rows: number, V: number): [number, number, number] {
    if (!masks) return [0, 0, 0];
    const [R, words] = dims(masks.bits, 2);
    sized(op, [masks.row, rows], [masks.bits, R * ceilDiv(V, 32)]);
    const row = this.#integers(masks.row);
    for (let i = 0; i < rows; i++) {
      const r = this.#ints[row / 4 + i]!;
      if (r >= R) throw new EngineError(`${op}: row ${i} asks for mask ${r} of ${R}`);
    }
    return [this.#integers(masks.bits), row, words];
  }

  /** Address of the table of RoPE's cos and sin for all positions given, made in float64 when a position is first seen. */
  #ropeTable(op: string, positions: Tensor, theta: number, D: number): number {
    if (D % 2 !== 0) throw new EngineError(`${op}: the head dimension ${D} is odd`);
    const at = this.#integers(positions) / 4;
    let most = 0;
    for (let i = 0; i < positions.size; i++) {
      const p = this.#ints[at + i]!;
      if (p < 0) throw new EngineError(`${op}: "${positions.label}"[${i}] is ${p}`);
      if (p > most) most = p;
    }
    const key = `${theta}/${D}`;
    const have = this.#rope.get(key);
    if (have && have.positions > most) return have.ptr;
    if (have) this.#heap.give(have.ptr);
    const count = Math.max(512, 2 ** Math.ceil(Math.log2(most + 1)));
    const { ptr } = this.#take(count * D * 4, `RoPE table of ${count} positions`);
    const table = this.#view(Float32Array, ptr, count * D);
    for (let p = 0; p < count; p++) {
      for (let i = 0; i < D / 2; i++) {
        const angle = p / theta ** ((2 * i) / D);
        table[p * D + i] = Math.cos(angle);
        table[p * D + D / 2 + i] = Math.sin(angle);
      }
    }
    this.#rope.set(key, { ptr, positions: count });
    return ptr;
  }

  /** out [M,N] = op(a)·op(b) (+ out), all f32, in tiles over the threads. */
  #gemm(
    transA: boolean,
    transB: boolean,
    M: number,
    N: number,
    K: number,
    a: Matrix,
    b: Matrix,
    out: Matrix,
    add: boolean,
  ): void {
    if (M === 0 || N === 0) return;
    if (K === 0) {
      if (!add) this.#fill(out.ptr, (M - 1) * out.ld + N, 0);
      return;
    }
    const [tileM, tileN] = this.#tiles(M, N, K);
    const across = ceilDiv(N, tileN);
    this.#run(Kernel.Gemm, ceilDiv(M, tileM) * across, [
      ...[transA ? 1 : 0, transB ? 1 : 0, M, N, K, a.ptr, a.ld, b.ptr, b.ld],
      ...[f32(add ? 1 : 0), out.ptr, out.ld, f32(1), tileM, tileN, across],
    ]);
  }

  /** Tiles for a product: a multiple of the threads, twice as many where there is work, cut so that the least is packed twice. */
  #tiles(M: number, N: number, K: number): [number, number] {
    const threads = this.#threads.count;
    const work = M * N * K;
    if (threads === 1 || work < 2 * ITEM_WORK) return [M, N];
    const wanted = Math.min(Math.floor(work / ITEM_WORK), work > 64 * threads * ITEM_WORK ? 2 * threads : threads);
    let best: [number, number] = [M, N];
    let least = Infinity;
    for (let down = 1; down <= wanted; down++) {
      const across = ceilDiv(wanted, down);
      const tileM = Math.min(M, ceilDiv(ceilDiv(M, down), 8) * 8);
      const tileN = Math.min(N, ceilDiv(ceilDiv(N, across), 8) * 8);
      const items = ceilDiv(M, tileM) * ceilDiv(N, tileN);
      // Rounds of the busiest thread, and what is packed.
      const cost = ceilDiv(items, threads) * (tileM * tileN * K + 8 * K * (tileM + tileN));
      if (cost < least) [least, best] = [cost, [tileM, tileN]];
    }
    return best;
  }

  /** As #gemm, b a tensor of any float type; few rows by streaming the weights, f16 and bf16 widened a stretch at a time. */
  #product(
    transA: boolean,
    transB: boolean,
    M: number,
    N: number,
    K: number,
    a: Matrix,
    b: CpuTensor,
    out: Matrix,
    add: boolean,
  ): void {
    const storage = STORAGE[b.dtype];
    const halves = storage !== Storage.F32;
    const few = !this.#blas ? FEW_ROWS.none : halves ? FEW_ROWS.blasHalf : FEW_ROWS.blas;
    if (transB && !transA && M <= few && out.ld === N) {
      const per = Math.max(4, Math.ceil(Math.max(ITEM_WORK / 4 / (M * K), N / (4 * this.#threads.count)) / 4) * 4);
      this.#run(Kernel.Dot, ceilDiv(N, per), [M, N, K, a.ptr, b.ptr, out.ptr, per, storage, add ? 1 : 0]);
      return;
    }
    const ld = transB ? K : N;
    if (!halves) {
      this.#gemm(transA, transB, M, N, K, a, { ptr: b.ptr, ld }, out, add);
      return;
    }
    // Rows of b are columns of the output (transB) or terms of its sums.
    const rows = transB ? N : K;
    const per = Math.max(1, Math.min(rows, Math.floor(WIDEN_BYTES / 4 / Math.max(1, ld))));
    const wide = this.#take(per * ld * 4, "widened weights");
    if (K === 0) this.#gemm(transA, transB, M, N, K, a, { ptr: wide.ptr, ld }, out, add);
    for (let r = 0; r < rows; r += per) {
      const n = Math.min(per, rows - r);
      this.#copy(wide.ptr, b.ptr + r * ld * 2, n * ld, Storage.F32, storage);
      const w = { ptr: wide.ptr, ld };
      if (transB) {
        this.#gemm(transA, true, M, n, K, a, w, { ptr: out.ptr + r * 4, ld: out.ld }, add);
      } else {
        const from = { ptr: a.ptr + (transA ? r * a.ld : r) * 4, ld: a.ld };
        this.#gemm(transA, false, M, N, n, from, w, out, add || r > 0);
      }
    }
    this.#heap.give(wide.ptr);
  }

  /** Makes the logits of a stretch of rows at a time, runs a softmax kernel on them, then `use(logits, first row, rows)`. */
  #overLogits(
    op: string,
    kernel: Kernel,
    x: Tensor,
    head: Tensor,
    targets: Tensor,
    ends: number[],
    masks: TokenMasks | undefined,
    use: (logits: number, row: number, rows: number) => void,
  ): void {
    const [M, C] = dims(x, 2);
    const [V] = dims(head, 2);
    if (M === 0) return;
    const wanted = this.#indices(op, targets, V);
    const [bits, maskRow, words] = this.#masks(op, masks, M, V);
    const budget = V > LOGIT_BYTES.from ? LOGIT_BYTES.large : LOGIT_BYTES.small;
    const per = Math.min(M, Math.max(16, Math.floor(budget / (64 * V)) * 16));
    const logits = this.#take(per * V * 4, "logits");
    const rowsAnItem = this.#rowsAnItem(per, V);
    for (let row = 0; row < M; row += per) {
      const rows = Math.min(per, M - row);
      const here = { ptr: this.#f32(x) + row * C * 4, ld: C };
      this.#product(false, true, rows, V, C, here, this.#float(head), { ptr: logits.ptr, ld: V }, false);
      const args = [logits.ptr, V, wanted, ...ends, bits, maskRow, words, rowsAnItem, rows, row];
      this.#run(kernel, ceilDiv(rows, rowsAnItem), args);
      use(logits.ptr, row, rows);
    }
    this.#heap.give(logits.ptr);
  }
}
