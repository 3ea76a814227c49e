/** One thread's instance of the kernels over the shared memory. */
import { loadSgemm } from "./blas.ts";

/** What a thread needs to begin. */
export interface Start {
  module: WebAssembly.Module;
  memory: WebAssembly.Memory;
  /** Address of the memory's first byte in the process, for BLAS. */
  base: number;
  thread: number;
  /** Its scratch, SCRATCH_BYTES long. */
  scratch: number;
  /** The BLAS to load, null for the WebAssembly product. */
  library: string | null;
}

/** Exports of kernels/index.ts. */
export interface Kernels {
  init(scratch: number, thread: number, blas: number): void;
  run(kernel: number, item: number): void;
  runAll(kernel: number, items: number): void;
  drain(epoch: number): void;
  spin(epoch: number, turns: number): number;
  finished(items: number, turns: number): number;
}

export function instantiate(start: Start): Kernels {
  const sgemm = start.library ? loadSgemm(start.library, start.base) : () => {};
  const env = { memory: start.memory, sgemm, die: () => process.exit(1) };
  const kernels = new WebAssembly.Instance(start.module, { env }).exports as unknown as Kernels;
  kernels.init(start.scratch, start.thread, start.library ? 1 : 0);
  return kernels;
}
