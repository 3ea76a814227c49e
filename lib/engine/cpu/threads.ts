/** The engine's threads: the main one, which dispatches and takes a share, and the workers. */
import { existsSync } from "node:fs";
import { Worker } from "node:worker_threads";
import { EngineError } from "../types.ts";
import { instantiate, type Kernels, type Start } from "./instance.ts";
import {
  ARGS,
  DONE,
  EPOCH,
  FAILED,
  FAILURE,
  ITEMS,
  KERNEL,
  type Kernel,
  MAIN_SLEEPS,
  QUIT,
  SLEEPERS,
  STATE,
  THREAD_IDS,
} from "./kernels/ids.ts";

/** Turns of the spin on the workers' last items before the main thread sleeps. */
const SPINS = 100_000;
/** How long the main thread sleeps before it looks whether the workers live. */
const LOOK_MS = 250;
/** Without a way to look, how long no item may end before the workers are taken for dead. */
const PATIENCE_MS = 120_000;

/** Lower half of the state: more than any number of items. */
const CLOSED = 0x7fffffffn;

const words = new Int32Array(1);
const floats = new Float32Array(words.buffer);
/** The bits of x as f32, for an argument that a kernel reads with argF. */
export function f32(x: number): number {
  floats[0] = x;
  return words[0]!;
}

export class Threads {
  readonly count: number;
  readonly #kernels: Kernels;
  readonly #words: Int32Array;
  readonly #state: BigUint64Array;
  readonly #args: Int32Array;
  readonly #workers: Worker[] = [];
  #epoch = 0;
  #failure: EngineError | null = null;
  #closing = false;

  private constructor(starts: Start[]) {
    const [main] = starts;
    if (!main) throw new EngineError("the cpu engine needs at least one thread");
    this.count = starts.length;
    this.#kernels = instantiate(main);
    const { buffer } = main.memory;
    this.#words = new Int32Array(buffer, 0, 1024);
    this.#state = new BigUint64Array(buffer, STATE, 1);
    this.#args = new Int32Array(buffer, ARGS, 64);
  }

  /** starts[0] is the main thread's. Resolves when every worker is ready. */
  static async open(starts: Start[]): Promise<Threads> {
    const threads = new Threads(starts);
    await Promise.all(starts.slice(1).map((start) => threads.#addWorker(start)));
    return threads;
  }

  #addWorker(start: Start): Promise<void> {
    return new Promise((resolve, reject) => {
      const worker = new Worker(new URL("./worker.ts", import.meta.url), { workerData: start });
      const lost = (what: string) => {
        if (this.#closing) return;
        this.#failure ??= new EngineError(`worker thread ${start.thread} of the cpu engine ${what}; open a new engine`);
        reject(this.#failure);
      };
      worker.on("message", () => {
        worker.unref();
        resolve();
      });
      worker.on("error", (error: Error) => lost(`failed: ${error.message}`));
      worker.on("exit", () => lost("ended"));
      this.#workers.push(worker);
    });
  }

  /** Throws where a worker has failed since. */
  check(): void {
    if (this.#failure) throw this.#failure;
  }

  /**
   * Runs a kernel's items on all threads, and returns when they are done. Arguments are integers, or floats through `f32`.
   * @throws EngineError when a thread traps or dies.
   */
  run(kernel: Kernel, items: number, args: readonly number[]): void {
    if (this.#failure) throw this.#failure;
    // Nothing of the last dispatch can be claimed from here on: a late worker might see the new number of items with the old state.
    Atomics.store(this.#state, 0, (BigInt(this.#epoch >>> 0) << 32n) | CLOSED);
    for (let i = 0; i < args.length; i++) this.#args[i] = args[i]!;
    if (items <= 1 || this.count === 1) {
      this.#kernels.runAll(kernel, items);
      return;
    }
    const w = this.#words;
    this.#epoch = (this.#epoch + 1) | 0;
    w[KERNEL / 4] = kernel;
    w[ITEMS / 4] = items;
    Atomics.store(w, DONE / 4, 0);
    Atomics.store(this.#state, 0, BigInt(this.#epoch >>> 0) << 32n);
    if (Atomics.load(w, SLEEPERS / 4) > 0) Atomics.notify(w, EPOCH / 4, items - 1);
    this.#kernels.drain(this.#epoch);
    if (!this.#kernels.finished(items, SPINS)) this.#await(items);
  }

  #await(items: number): void {
    const w = this.#words;
    Atomics.store(w, MAIN_SLEEPS / 4, 1);
    let patience = PATIENCE_MS;
    for (;;) {
      const done = Atomics.load(w, DONE / 4);
      if (done >= items) break;
      const failed = Atomics.load(w, FAILED / 4);
      if (failed > 0) this.#fail(failed - 1, this.#said());
      if (Atomics.wait(w, DONE / 4, done, LOOK_MS) !== "timed-out") {
        patience = PATIENCE_MS;
        continue;
      }
      patience -= LOOK_MS;
      for (let t = 1; t < this.count; t++) {
        const id = w[THREAD_IDS / 4 + t]!;
        if (id > 0 && !existsSync(`/proc/self/task/${id}`)) this.#fail(t, "died");
        if (id === 0 && patience <= 0) this.#fail(t, `has not answered for ${PATIENCE_MS / 1000} s`);
      }
    }
    Atomics.store(w, MAIN_SLEEPS / 4, 0);
  }

  #said(): string {
    const bytes = new Uint8Array(this.#words.buffer, FAILURE + 4, this.#words[FAILURE / 4]!).slice();
    return `failed: ${new TextDecoder().decode(bytes)}`;
  }

  #fail(thread: number, what: string): never {
    this.#failure = new EngineError(`worker thread ${thread} of the cpu engine ${what}; open a new engine`);
    Atomics.store(this.#words, MAIN_SLEEPS / 4, 0);
    throw this.#failure;
  }

  /** Ends the workers. Every later call throws. */
  close(): void {
    this.#closing = true;
    this.#failure ??= new EngineError("the cpu engine was used after dispose()");
    Atomics.store(this.#words, QUIT / 4, 1);
    Atomics.add(this.#words, EPOCH / 4, 1);
    Atomics.notify(this.#words, EPOCH / 4);
    for (const worker of this.#workers) void worker.terminate();
  }
}
