/**
 * Numbers of the kernels and the layout of the control block, read by both sides: TypeScript (`threads.ts`) and AssemblyScript
 * (`index.ts` beside this). Byte addresses in the shared memory unless said otherwise.
 */
export enum Kernel {
  Fill,
  Copy,
  Axpby,
  SumSquares,
  AddRows,
  Gemm,
  Dot,
  Rows,
  EmbedBackward,
  RmsNorm,
  RmsNormBackward,
  QkNormRope,
  QkNormRopeBackward,
  Attention,
  AttentionBackward,
  PagedAttention,
  Swiglu,
  SwigluBackward,
  ShortConv,
  ShortConvBackwardX,
  ShortConvBackwardW,
  PagedShortConv,
  LogProbs,
  LogProbsGradient,
  AdamW,
  Sample,
  /** For tests: a worker that claims an item traps, or ends without a word; the main thread waits for one to do so. */
  Trap,
  Die,
}

/** Storage types as the kernels number them. */
export enum Storage {
  F32,
  BF16,
  F16,
}

/** u64: the number of the dispatch in the upper half, the next unclaimed item in the lower. */
export const STATE: i32 = 64;
/** i32: the upper half of STATE; workers wait on it. */
export const EPOCH: i32 = 68;
/** i32: items of this dispatch that are done. */
export const DONE: i32 = 128;
/** i32: items of this dispatch. */
export const ITEMS: i32 = 192;
/** i32: the kernel of this dispatch. */
export const KERNEL: i32 = 196;
/** i32: workers asleep on EPOCH. */
export const SLEEPERS: i32 = 256;
/** i32: 1 while the main thread sleeps on DONE. */
export const MAIN_SLEEPS: i32 = 320;
/** i32: 1 + number of the thread whose kernel failed, 0 for none. */
export const FAILED: i32 = 384;
/** i32: 1 when the workers are to end. */
export const QUIT: i32 = 448;
/** The arguments of this dispatch: 64 words, i32 or f32. */
export const ARGS: i32 = 512;
/** i32 [256]: operating-system thread ids of the workers, 0 where unknown. */
export const THREAD_IDS: i32 = 1024;
/** u32 length and up to 1,020 bytes of UTF-8: what the failed kernel said. */
export const FAILURE: i32 = 2048;
/** First byte that tensors may use. */
export const HEAP: i32 = 4096;

/** Bytes of scratch that each thread owns. */
export const SCRATCH_BYTES: i32 = 3145728;
/** Rows of queries that one attention item handles, and keys in one step of it. */
export const QUERY_BLOCK: i32 = 64;
export const KEY_BLOCK: i32 = 512;
