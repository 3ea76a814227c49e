/**
 * The engine interface: the fused operations that a Qwen3-style decoder needs, forward and backward, on opaque tensors.
 * Three engines implement it: `webgpu` (Dawn), `cpu` (WebAssembly + BLAS) and `reference` (plain float64 TypeScript, which the
 * other two are held to by conformance.ts). Everything above (model, training, generation) is written once.
 *
 * Letters in shapes: T tokens of a packed batch, C hidden size, H query heads, K key/value heads, D head dimension, F feed-forward
 * size, V vocabulary, N any width, M rows chosen for the loss, B sequences being decoded, S cache slots, P pages a sequence.
 * All tensors are row-major and contiguous.
 *
 * Operations are enqueued and return at once; `download` and `sync` wait. Outputs are overwritten unless the name of the argument
 * says `accumulate` or the docstring says "+=". Inputs and outputs must not overlap unless said so. Parameter gradients are always "+=".
 * All arithmetic accumulates in f32 or better, and is deterministic: same engine, same adapter, same inputs → same bits.
 */

export type DType = "f32" | "i32" | "u32" | "f16" | "bf16";

export interface Tensor {
  readonly shape: readonly number[];
  readonly dtype: DType;
  /** Number of elements. */
  readonly size: number;
  readonly label: string;
}

/** How documents are packed in a batch of T tokens. Attention never crosses a document. Tensors are i32 [T]. */
export interface Packing {
  /** Index of the first token of the token's document. */
  docStart: Tensor;
  /** One past the last token of the token's document. */
  docEnd: Tensor;
  /** Position within the document, for RoPE. */
  positions: Tensor;
  /** Length of the longest document. */
  maxLength: number;
}

/** Token masks for constrained decoding: allowed tokens as bits, row r at masks[r]. */
export interface TokenMasks {
  /** u32 [R, ceil(V/32)]; bit v%32 of word v/32 set ⇔ token v allowed. */
  bits: Tensor;
  /** i32, one per row of logits: which mask row applies, −1 for none. */
  row: Tensor;
}

/** Paged cache addressing for generation. A slot is page × pageSize + offset. */
export interface PagedContext {
  pageSize: number;
  /** i32 [B, P]: page numbers of each sequence, in order. */
  pageTable: Tensor;
  /** i32 [T]: which sequence each query token belongs to. */
  sequence: Tensor;
  /** i32 [T]: how many cache entries the query token sees, itself included (its position + 1). */
  visible: Tensor;
}

export interface MatmulOptions {
  transA?: boolean;
  transB?: boolean;
  /** out += instead of out =. */
  accumulate?: boolean;
}

export interface AdamWOptions {
  lr: number;
  beta1: number;
  beta2: number;
  eps: number;
  /** Decoupled: param −= lr·weightDecay·param. */
  weightDecay: number;
  /** 1-based, for bias correction. */
  step: number;
  /** The gradient is multiplied by this first (clipping, accumulation). */
  gradScale: number;
}

export interface SampleOptions {
  /** f32 [B]; 0 means greedy. */
  temperature: Tensor;
  /** i32 [B]; 0 means off. */
  topK: Tensor;
  /** f32 [B]; 1 means off. */
  topP: Tensor;
  /** u32 [B, 2]: (seed, counter). The draw is a pure function of the two: one uniform from the hash in engine/random.ts. */
  seeds: Tensor;
  masks?: TokenMasks;
}

export interface EngineInfo {
  kind: "webgpu" | "cpu" | "reference";
  /** E.g. "llvmpipe (LLVM 15.0.6, 256 bits)" or "wasm-simd ×2, OpenBLAS 0.3.21". */
  description: string;
  /** True for a hardware GPU adapter. */
  hardware: boolean;
  features: string[];
  limits: Record<string, number>;
}

export interface Engine {
  readonly info: EngineInfo;
  /** Bytes allocated now and at the most. */
  memory(): { bytes: number; peakBytes: number };

  // ---- tensors -------------------------------------------------------------------------------------------------------
  /** A zeroed tensor. Throws OutOfMemoryError naming the tensor, what is in use, and which settings lower it. */
  alloc(shape: readonly number[], dtype: DType, label: string): Tensor;
  free(...tensors: Tensor[]): void;
  /** A window on the same memory: `shape` at element `offset` of `of`. Not freed apart. offset must be a multiple of 64 elements. */
  view(of: Tensor, shape: readonly number[], offset?: number): Tensor;
  /** f32, i32, u32 as they are; f16 and bf16 tensors take and give Float32Array (rounded to nearest even on upload). */
  upload(to: Tensor, data: Float32Array | Int32Array | Uint32Array): void;
  download(from: Tensor): Promise<Float32Array | Int32Array | Uint32Array>;
  /** Waits until everything enqueued is done; throws what went wrong since (validation, device loss, out of memory). */
  sync(): Promise<void>;
  dispose(): Promise<void>;

  // ---- elementwise ---------------------------------------------------------------------------------------------------
  fill(out: Tensor, value: number): void;
  /** out = x, same size. f32 ↔ f32, or f16/bf16 → f32 widening, or f32 → f16/bf16 rounding. */
  copy(out: Tensor, x: Tensor): void;
  /** out = a·x + b·y; out may be x or y. f32. */
  axpby(out: Tensor, a: number, x: Tensor, b: number, y: Tensor): void;
  /** Σ x² over all given tensors, in one readback. For the global gradient norm. */
  sumSquares(tensors: Tensor[]): Promise<number>;

  // ---- model, forward and backward -----------------------------------------------------------------------------------
  /**
   * out [M,N] = op(a)·op(b) (+ out). a is [M,K] or, with transA, [K,M]; b is [K,N] or, with transB, [N,K] (Hugging Face's weight
   * layout: y = x·Wᵀ is transB). b may be f16 or bf16; a and out are f32.
   */
  matmul(out: Tensor, a: Tensor, b: Tensor, options?: MatmulOptions): void;
  /** out [T,C] = table[ids[t]]. table [V,C], f32 or f16/bf16. */
  embed(out: Tensor, table: Tensor, ids: Tensor): void;
  /** dTable [V,C] += rows of dOut [T,C], in token order (deterministic). */
  embedBackward(dTable: Tensor, dOut: Tensor, ids: Tensor): void;
  /** out [M,C] = x[rows[m]]; x [T,C], rows i32 [M]. */
  gatherRows(out: Tensor, x: Tensor, rows: Tensor): void;
  /** out [T,C] = 0, then out[rows[m]] = x[m]; rows distinct. */
  scatterRows(out: Tensor, x: Tensor, rows: Tensor): void;
  /** out[t] = x[t]·rstd[t]·w, rstd[t] = 1/√(mean(x[t]²)+eps). x, out [T,C]; w [C]; rstd [T]. */
  rmsNorm(out: Tensor, rstd: Tensor, x: Tensor, w: Tensor, eps: number): void;
  /** dx [T,C] += ; dw [C] +=. */
  rmsNormBackward(dx: Tensor, dw: Tensor, dOut: Tensor, x: Tensor, w: Tensor, rstd: Tensor): void;
  /**
   * Per-head RMSNorm with weight w [D], then rotate-half RoPE. x, out [T,H,D]; positions i32 [T].
   * RoPE: angle = position / theta^(2i/D), i < D/2; (x₁,x₂) = halves; out = (x₁cos − x₂sin, x₂cos + x₁sin).
   */
  qkNormRope(out: Tensor, x: Tensor, w: Tensor, positions: Tensor, eps: number, theta: number): void;
  /** dx [T,H,D] overwritten; dw [D] +=. */
  qkNormRopeBackward(
    dx: Tensor,
    dw: Tensor,
    dOut: Tensor,
    x: Tensor,
    w: Tensor,
    positions: Tensor,
    eps: number,
    theta: number,
  ): void;
  /**
   * Causal attention within documents, in O(T) memory. q, out [T,H,D]; k, v [T,K,D]; lse [T,H] = log Σ exp(scores).
   * Query head h reads key/value head floor(h·K/H). scale multiplies the scores.
   */
  attention(out: Tensor, lse: Tensor, q: Tensor, k: Tensor, v: Tensor, packing: Packing, scale: number): void;
  /** dq, dk, dv overwritten. */
  attentionBackward(
    grads: { dq: Tensor; dk: Tensor; dv: Tensor },
    dOut: Tensor,
    saved: { q: Tensor; k: Tensor; v: Tensor; out: Tensor; lse: Tensor },
    packing: Packing,
    scale: number,
  ): void;
  /** out = silu(gate)·up, all [T,F]. */
  swiglu(out: Tensor, gate: Tensor, up: Tensor): void;
  /** dGate, dUp overwritten; dGate may be gate and dUp may be up. */
  swigluBackward(dGate: Tensor, dUp: Tensor, dOut: Tensor, gate: Tensor, up: Tensor): void;
  /**
   * Causal depthwise convolution within documents, with residual: out[t] = x[t] + Σ_{j<taps} w[n,j]·x[t−j], terms before the
   * document's start are 0. x, out [T,N]; w [N,taps].
   */
  shortConv(out: Tensor, x: Tensor, w: Tensor, packing: Packing): void;
  /** dx overwritten; dw [N,taps] +=. */
  shortConvBackward(dx: Tensor, dw: Tensor, dOut: Tensor, x: Tensor, w: Tensor, packing: Packing): void;
  /**
   * Fused output projection and log-probability; never holds [M,V]. logits = x·headᵀ (x [M,C], head [V,C]), restricted to the
   * allowed tokens where masks are given; lp[m] = logits[m,targets[m]] − lse[m]; lse [M]; entropy [M] if given.
   */
  logProbs(
    out: { lp: Tensor; lse: Tensor; entropy?: Tensor },
    x: Tensor,
    head: Tensor,
    targets: Tensor,
    masks?: TokenMasks,
  ): void;
  /**
   * Backward of logProbs: with g = dLp [M] (any loss of the log-probabilities: SFT has −weight, RL what the surrogate gives),
   * dLogits[m,v] = g[m]·(1[v = target] − p[m,v]); dx [M,C] overwritten; dHead [V,C] +=, left out where absent (a frozen head).
   */
  logProbsBackward(
    grads: { dx: Tensor; dHead?: Tensor },
    dLp: Tensor,
    saved: { x: Tensor; head: Tensor; targets: Tensor; lse: Tensor },
    masks?: TokenMasks,
  ): void;

  // ---- optimiser -----------------------------------------------------------------------------------------------------
  /** AdamW as in PyTorch (eps outside the bias-corrected root). All f32, same size. */
  adamw(param: Tensor, grad: Tensor, m: Tensor, v: Tensor, options: AdamWOptions): void;

  // ---- generation ----------------------------------------------------------------------------------------------------
  /** cache[slots[t]] = x[t]. cache f32 [S,N]; x [T,N]; slots i32 [T]. */
  cacheWrite(cache: Tensor, x: Tensor, slots: Tensor): void;
  /** As `attention`, keys and values read through the page table. q, out [T,H,D]; caches [S, K·D]. Prefill and decode alike. */
  pagedAttention(out: Tensor, q: Tensor, kCache: Tensor, vCache: Tensor, context: PagedContext, scale: number): void;
  /** As `shortConv`, inputs (the current token included) read from a cache [S,N] through the page table. out [T,N]. */
  pagedShortConv(out: Tensor, xCache: Tensor, w: Tensor, context: PagedContext): void;
  /**
   * Samples one token a row. logits f32 [B,V]; ids i32 [B]; lp f32 [B]: log-probability of the sampled token under the softmax of
   * logits restricted to the mask, divided by temperature (temperature 0: under temperature 1), before top-k and top-p.
   * The rule, the same in every engine: greedy takes the largest allowed logit, the lowest id of equals. Else top-k keeps the logits
   * ≥ the k-th largest; of these top-p keeps the logits ≥ the largest threshold at which the kept mass reaches topP of the mass
   * left by top-k (ties stay). Then, over the kept tokens in order of id, the first whose cumulative mass exceeds u·(kept mass).
   */
  sample(ids: Tensor, lp: Tensor, logits: Tensor, options: SampleOptions): void;
}

/** The device ran out of memory, or a tensor exceeds a limit of the adapter. */
export class OutOfMemoryError extends Error {
  override name = "OutOfMemoryError";
}
/** No engine as asked for: what was tried, what each answered, and what to do. */
export class NoEngineError extends Error {
  override name = "NoEngineError";
}
/** The device was lost, or an operation was used wrongly. */
export class EngineError extends Error {
  override name = "EngineError";
}

/**
 * What a user may ask for. auto: a hardware adapter, else cpu. gpu: a hardware adapter or an error. software: a software Vulkan adapter by
 * name of the driver where given ("software:llvmpipe"). reference: float64, slow.
 */
export type DeviceRequest = "auto" | "cpu" | "gpu" | "software" | "reference" | `software:${string}` | `gpu:${string}`;
