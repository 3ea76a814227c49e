/** Tensors of the WebGPU engine: a window on a pooled buffer. f16 and bf16 are packed in pairs into u32 words. */
import { type DType, EngineError, type Tensor } from "../types.ts";

export interface Block {
  readonly id: number;
  readonly buffer: GPUBuffer;
  readonly bytes: number;
}

export class GpuTensor implements Tensor {
  freed = false;
  readonly size: number;
  constructor(
    readonly block: Block,
    readonly byteOffset: number,
    readonly shape: readonly number[],
    readonly dtype: DType,
    readonly label: string,
    /** The tensor that this is a view of. */
    readonly base: GpuTensor | null,
  ) {
    this.size = elements(shape);
  }
  /** Bytes that a kernel may touch: whole words. */
  get bytes(): number {
    return bytesOf(this.size, this.dtype);
  }
}

export const elements = (shape: readonly number[]): number => shape.reduce((a, b) => a * b, 1);
export const isHalf = (dtype: DType): boolean => dtype === "f16" || dtype === "bf16";
export const bytesOf = (size: number, dtype: DType): number => (isHalf(dtype) ? Math.ceil(size / 2) * 4 : size * 4);

/** The engine's own tensor behind the interface, alive. */
export function own(t: Tensor): GpuTensor {
  if (!(t instanceof GpuTensor)) throw new EngineError(`tensor "${t.label}" belongs to another engine`);
  if (t.freed || t.base?.freed) throw new EngineError(`tensor "${t.label}" was used after it had been freed`);
  return t;
}

const shown = (t: Tensor) => `tensor "${t.label}" has shape [${t.shape.join(", ")}] and type ${t.dtype}`;

/** Checks the type and the number of elements of tensors. */
export function expect(op: string, dtypes: DType | readonly DType[], ...pairs: [Tensor, number][]): void {
  for (const [t, n] of pairs) {
    const ok = typeof dtypes === "string" ? t.dtype === dtypes : dtypes.includes(t.dtype);
    if (!ok || t.size !== n) throw new EngineError(`${op}: ${shown(t)}; ${n} elements of ${dtypes} were expected`);
  }
}

/** The dimensions of a tensor of that rank. */
export function dims(op: string, t: Tensor, rank: 2): [number, number];
export function dims(op: string, t: Tensor, rank: 3): [number, number, number];
export function dims(op: string, t: Tensor, rank: number): number[] {
  if (t.shape.length !== rank) throw new EngineError(`${op}: ${shown(t)}; ${rank} dimensions were expected`);
  return [...t.shape];
}

// ---- half precision on the host ----------------------------------------------------------------------------------------
/** Packs to 16-bit floats, nearest even; the last word of an odd number is filled with 0. */
export function packHalf(dtype: "f16" | "bf16", data: Float32Array): Uint8Array<ArrayBuffer> {
  const words = new Uint16Array(Math.ceil(data.length / 2) * 2);
  if (dtype === "f16") new Float16Array(words.buffer).set(data);
  else {
    const bits = new Uint32Array(data.buffer, data.byteOffset, data.length);
    for (let i = 0; i < bits.length; i++) {
      const b = bits[i]!;
      // NaN stays NaN: rounding up would carry it into infinity or zero.
      words[i] = (b & 0x7fffffff) > 0x7f800000 ? (b >>> 16) | 0x40 : (b + 0x7fff + ((b >>> 16) & 1)) >>> 16;
    }
  }
  return new Uint8Array(words.buffer);
}

export function unpackHalf(dtype: "f16" | "bf16", bytes: ArrayBuffer, size: number): Float32Array<ArrayBuffer> {
  if (dtype === "f16") return new Float32Array(new Float16Array(bytes, 0, size));
  const words = new Uint16Array(bytes, 0, size);
  const out = new Uint32Array(size);
  for (let i = 0; i < size; i++) out[i] = words[i]! << 16;
  return new Float32Array(out.buffer);
}
