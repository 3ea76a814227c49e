/** A worker thread: waits for dispatches in the shared memory and claims items of them until it is told to end. */
import { dlopen, FFIType } from "bun:ffi";
import { parentPort, workerData } from "node:worker_threads";
import { instantiate, type Start } from "./instance.ts";
import { DONE, EPOCH, FAILED, FAILURE, MAIN_SLEEPS, QUIT, SLEEPERS, THREAD_IDS } from "./kernels/ids.ts";

/** Turns of the spin before a worker sleeps: some tens of microseconds, as long as the gap between two operations. */
const SPINS = 20_000;

/** This thread's number in the system, so that the main thread can see whether it still lives; 0 where that is not to be had. */
function systemThread(): number {
  if (process.platform !== "linux") return 0;
  try {
    return dlopen("libc.so.6", { gettid: { args: [], returns: FFIType.i32 } }).symbols.gettid();
  } catch {
    return 0;
  }
}

const start: Start = workerData;
const kernels = instantiate(start);
const words = new Int32Array(start.memory.buffer);
words[THREAD_IDS / 4 + start.thread] = systemThread();
// Read before the main thread hears of this worker: a dispatch made right after "ready" must not be taken for an old one.
let epoch = Atomics.load(words, EPOCH / 4);
parentPort?.postMessage("ready");
while (Atomics.load(words, QUIT / 4) === 0) {
  const now = kernels.spin(epoch, SPINS);
  if (now === epoch) {
    Atomics.add(words, SLEEPERS / 4, 1);
    Atomics.wait(words, EPOCH / 4, epoch);
    Atomics.sub(words, SLEEPERS / 4, 1);
    continue;
  }
  epoch = now;
  try {
    kernels.drain(epoch);
  } catch (error) {
    const said = new TextEncoder().encode(error instanceof Error ? error.message : String(error)).slice(0, 1000);
    words[FAILURE / 4] = said.length;
    new Uint8Array(start.memory.buffer).set(said, FAILURE + 4);
    Atomics.store(words, FAILED / 4, start.thread + 1);
    if (Atomics.load(words, MAIN_SLEEPS / 4) === 1) Atomics.notify(words, DONE / 4);
    break;
  }
}
process.exit(0);
