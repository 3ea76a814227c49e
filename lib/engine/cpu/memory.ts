/** One shared WebAssembly memory and who uses which part of it. */
import { OutOfMemoryError } from "../types.ts";
import { HEAP } from "./kernels/ids.ts";

const PAGE = 65536;
const MAX_PAGES = 65536;
const align = (bytes: number) => Math.max(64, Math.ceil(bytes / 64) * 64);

/** A stretch of memory; `fresh` where nobody has written to it yet, so that it is zero. */
export interface Block {
  ptr: number;
  bytes: number;
  fresh: boolean;
}

/**
 * Best-fit allocator with coalescing over a growing memory of at most 4 GiB (32-bit WebAssembly addresses). Blocks are aligned to 64 bytes.
 * A workload whose shapes repeat finds its blocks again and never grows.
 */
export class Heap {
  readonly memory = new WebAssembly.Memory({ initial: 16, maximum: MAX_PAGES, shared: true });
  #free: { ptr: number; bytes: number }[] = [];
  #top = HEAP;
  #live = new Map<number, { bytes: number; label: string }>();
  #bytes = 0;
  #peak = 0;

  get usage(): { bytes: number; peakBytes: number } {
    return { bytes: this.#bytes, peakBytes: this.#peak };
  }

  /** The live blocks, largest first. */
  owners(): { label: string; bytes: number }[] {
    return [...this.#live.values()].sort((a, b) => b.bytes - a.bytes);
  }

  take(size: number, label: string): Block {
    const bytes = align(size);
    let best = -1;
    for (let i = 0; i < this.#free.length; i++) {
      const room = this.#free[i]!.bytes;
      if (room >= bytes && (best < 0 || room < this.#free[best]!.bytes)) best = i;
    }
    let block: Block;
    if (best >= 0) {
      const hole = this.#free[best]!;
      block = { ptr: hole.ptr, bytes, fresh: false };
      if (hole.bytes === bytes) this.#free.splice(best, 1);
      else this.#free[best] = { ptr: hole.ptr + bytes, bytes: hole.bytes - bytes };
    } else {
      block = { ptr: this.#top, bytes, fresh: true };
      this.#reserve(this.#top + bytes, bytes, label);
      this.#top += bytes;
    }
    this.#live.set(block.ptr, { bytes, label });
    this.#bytes += bytes;
    this.#peak = Math.max(this.#peak, this.#bytes);
    return block;
  }

  give(ptr: number): void {
    const owner = this.#live.get(ptr);
    if (!owner) throw new Error(`no block at ${ptr}`);
    this.#live.delete(ptr);
    this.#bytes -= owner.bytes;
    let at = 0;
    for (let high = this.#free.length; at < high; ) {
      const middle = (at + high) >> 1;
      if (this.#free[middle]!.ptr < ptr) at = middle + 1;
      else high = middle;
    }
    const block = { ptr, bytes: owner.bytes };
    const [before, after] = [this.#free[at - 1], this.#free[at]];
    const joinsAfter = after !== undefined && ptr + block.bytes === after.ptr;
    if (joinsAfter) block.bytes += after.bytes;
    if (before && before.ptr + before.bytes === ptr) {
      before.bytes += block.bytes;
      if (joinsAfter) this.#free.splice(at, 1);
    } else {
      this.#free.splice(at, joinsAfter ? 1 : 0, block);
    }
  }

  #reserve(end: number, bytes: number, label: string): void {
    const have = this.memory.buffer.byteLength;
    if (end <= have) return;
    // Some more than needed, so that growing stays rare.
    const wanted = Math.ceil(end / PAGE);
    const pages = Math.min(MAX_PAGES, Math.max(wanted, Math.ceil((have * 1.25) / PAGE)));
    try {
      if (wanted > MAX_PAGES) throw new RangeError("a 32-bit WebAssembly memory ends at 4 GiB");
      this.memory.grow(pages - have / PAGE);
    } catch (cause) {
      const mib = (n: number) => `${(n / 2 ** 20).toFixed(1)} MiB`;
      const largest = this.owners()
        .slice(0, 5)
        .map((o) => `${o.label} ${mib(o.bytes)}`);
      throw new OutOfMemoryError(
        `no room for "${label}" (${mib(bytes)}): ${mib(this.#bytes)} in use, of the 4 GiB that the cpu engine can address; largest: ${largest.join(", ")}. ` +
          "Lower the tokens of a batch, the sequences decoded at once or the cache's pages, turn on recomputation, use bf16 weights or LoRA, or take a GPU.",
        { cause },
      );
    }
  }
}
