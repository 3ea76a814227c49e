/**
 * Entry of the WebAssembly module (AssemblyScript). Every thread has its own instance over the one shared memory. A dispatch is a
 * kernel, its arguments and a number of items; threads claim items one by one, so a slow core does less. What an item computes does
 * not depend on who computes it.
 */
import { attention, attentionBackward, pagedAttention } from "./attention";
import { pagedShortConv, shortConv, shortConvBackwardW, shortConvBackwardX } from "./conv";
import { adamw, addRows, axpby, copy, embedBackward, fill, rows, sumSquares, swiglu, swigluBackward } from "./elementwise";
import { dotItem, gemmItem } from "./gemm";
import { DONE, EPOCH, ITEMS, KERNEL, Kernel, MAIN_SLEEPS, STATE } from "./ids";
import { logProbs, logProbsGradient, sample } from "./loss";
import { qkNormRope, qkNormRopeBackward, rmsNorm, rmsNormBackward } from "./norm";
import { thread } from "./simd";

export { init } from "./simd";

// @ts-ignore: AssemblyScript decorator
@external("env", "die")
declare function die(): void;

/** For tests: the main thread holds its item until a worker has claimed one too, so that the failure is a worker's. */
function fail(kernel: i32): void {
  if (thread == 0) {
    while (<i32>atomic.load<u64>(STATE) < 2) {}
    return;
  }
  if (kernel == Kernel.Die) die();
  unreachable();
}

export function run(kernel: i32, item: i32): void {
  switch (kernel) {
    case Kernel.Fill: return fill(item);
    case Kernel.Copy: return copy(item);
    case Kernel.Axpby: return axpby(item);
    case Kernel.SumSquares: return sumSquares(item);
    case Kernel.AddRows: return addRows(item);
    case Kernel.Gemm: return gemmItem(item);
    case Kernel.Dot: return dotItem(item);
    case Kernel.Rows: return rows(item);
    case Kernel.EmbedBackward: return embedBackward(item);
    case Kernel.RmsNorm: return rmsNorm(item);
    case Kernel.RmsNormBackward: return rmsNormBackward(item);
    case Kernel.QkNormRope: return qkNormRope(item);
    case Kernel.QkNormRopeBackward: return qkNormRopeBackward(item);
    case Kernel.Attention: return attention(item);
    case Kernel.AttentionBackward: return attentionBackward(item);
    case Kernel.PagedAttention: return pagedAttention(item);
    case Kernel.Swiglu: return swiglu(item);
    case Kernel.SwigluBackward: return swigluBackward(item);
    case Kernel.ShortConv: return shortConv(item);
    case Kernel.ShortConvBackwardX: return shortConvBackwardX(item);
    case Kernel.ShortConvBackwardW: return shortConvBackwardW(item);
    case Kernel.PagedShortConv: return pagedShortConv(item);
    case Kernel.LogProbs: return logProbs(item);
    case Kernel.LogProbsGradient: return logProbsGradient(item);
    case Kernel.AdamW: return adamw(item);
    case Kernel.Sample: return sample(item);
    default: fail(kernel);
  }
}

/** Runs `items` items on this thread alone. */
export function runAll(kernel: i32, items: i32): void {
  for (let i = 0; i < items; i++) run(kernel, i);
}

/** Claims and runs items of dispatch `epoch` until none is left. */
export function drain(epoch: i32): void {
  const kernel = load<i32>(KERNEL), items = load<i32>(ITEMS);
  for (;;) {
    const state = atomic.load<u64>(STATE);
    if (<i32>(state >> 32) != epoch) return;
    const item = <i32>state;
    if (item >= items) return;
    // The swap succeeds only while this dispatch runs, and it runs until this item is done: kernel, items and arguments are its own.
    if (atomic.cmpxchg<u64>(STATE, state, state + 1) != state) continue;
    run(kernel, item);
    atomic.add<i32>(DONE, 1);
    if (thread != 0 && atomic.load<i32>(MAIN_SLEEPS) != 0) atomic.notify(DONE, 1);
  }
}

/** Spins until the dispatch number differs from `epoch`, or for `turns`; the number then. */
export function spin(epoch: i32, turns: i32): i32 {
  for (let i = 0; i < turns; i++) {
    const now = atomic.load<i32>(EPOCH);
    if (now != epoch) return now;
  }
  return epoch;
}

/** Spins until `items` items are done, or for `turns`; whether they are. */
export function finished(items: i32, turns: i32): bool {
  for (let i = 0; i < turns; i++) if (atomic.load<i32>(DONE) >= items) return true;
  return false;
}
