/** Tensors of the reference engine: float64 in memory whatever the float type, so that finite differences are exact enough. */
import { type DType, EngineError, type Tensor } from "../types.ts";

export type Data = Float64Array | Int32Array | Uint32Array;

export class RefTensor implements Tensor {
  freed = false;
  constructor(
    readonly shape: readonly number[],
    readonly dtype: DType,
    readonly label: string,
    readonly data: Data,
    /** The tensor that this is a view of. */
    readonly base: RefTensor | null,
  ) {}
  get size(): number {
    return this.data.length;
  }
}

const f32 = new Float32Array(1);
const bits = new Uint32Array(f32.buffer);

/** x rounded to bfloat16 (8 exponent and 7 fraction bits), to nearest, ties to even. */
export function bf16round(x: number): number {
  f32[0] = x;
  if (Number.isNaN(x)) return x;
  const b = bits[0]!;
  bits[0] = (b + 0x7fff + ((b >>> 16) & 1)) & 0xffff0000;
  return f32[0]!;
}

/** What a float tensor of this type stores of x. f32 keeps the float64 value: the reference does not round. */
export function rounded(dtype: DType, x: number): number {
  return dtype === "f16" ? Math.f16round(x) : dtype === "bf16" ? bf16round(x) : x;
}

function owned(t: Tensor): RefTensor {
  if (!(t instanceof RefTensor)) throw new EngineError(`tensor "${t.label}" belongs to another engine`);
  if (t.freed || t.base?.freed) throw new EngineError(`tensor "${t.label}" was used after it had been freed`);
  return t;
}

/** The values of a float tensor of any precision. */
export function floats(t: Tensor): Float64Array {
  const { data } = owned(t);
  if (!(data instanceof Float64Array)) throw new EngineError(`tensor "${t.label}" is ${t.dtype}, a float was expected`);
  return data;
}

/** The values of an f32 tensor (every output is one). */
export function single(t: Tensor): Float64Array {
  if (t.dtype !== "f32") throw new EngineError(`tensor "${t.label}" is ${t.dtype}, f32 was expected`);
  return floats(t);
}

/** The values of an i32 or u32 tensor. */
export function ints(t: Tensor): Int32Array | Uint32Array {
  const { data } = owned(t);
  if (data instanceof Float64Array) throw new EngineError(`tensor "${t.label}" is ${t.dtype}, integers were expected`);
  return data;
}

export const storage = (t: Tensor): Data => owned(t).data;

/** The tensor's dimensions, which must be `rank` many. */
export function dims(t: Tensor, rank: 2): [number, number];
export function dims(t: Tensor, rank: 3): [number, number, number];
export function dims(t: Tensor, rank: number): number[] {
  if (t.shape.length !== rank) {
    throw new EngineError(`tensor "${t.label}" has shape [${t.shape.join(", ")}], ${rank} dimensions were expected`);
  }
  return [...t.shape];
}

/** Checks that tensors have these numbers of elements: [tensor, elements] pairs. */
export function sized(op: string, ...pairs: [Tensor, number][]): void {
  for (const [t, n] of pairs) {
    if (t.size !== n) {
      throw new EngineError(
        `${op}: tensor "${t.label}" has shape [${t.shape.join(", ")}], ${n} elements were expected`,
      );
    }
  }
}
