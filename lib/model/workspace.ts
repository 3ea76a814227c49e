/** Memory for activations: allocated once for the most tokens that were asked for, then reused through views. */
import type { DType, Engine, Tensor } from "../engine/types.ts";
import { elements } from "./parameters.ts";

export class Workspace {
  #tensors = new Map<string, Tensor>();
  /** The latest view of each name and inner shape: a step of the same size as the last makes no objects at all. */
  #views = new Map<string, Tensor>();
  #capacity = 0;

  constructor(
    readonly engine: Engine,
    readonly label: string,
  ) {}

  /** Makes room for tensors of this many rows. Frees everything and starts again where that is more than before. */
  reserve(rows: number): void {
    if (rows <= this.#capacity) return;
    this.dispose();
    this.#capacity = Math.ceil(rows / 64) * 64;
  }

  /** A tensor [rows, ...inner] by name. The same name is the same memory; contents last until the name is written again. */
  get(name: string, rows: number, inner: readonly number[] = [], dtype: DType = "f32"): Tensor {
    const key = inner.length > 1 ? `${name}/${inner.length}` : name;
    const last = this.#views.get(key);
    if (last && last.shape[0] === rows) return last;
    let tensor = this.#tensors.get(name);
    if (!tensor) {
      tensor = this.engine.alloc([Math.max(this.#capacity, rows), elements(inner)], dtype, `${this.label} ${name}`);
      this.#tensors.set(name, tensor);
    }
    const view = this.engine.view(tensor, [rows, ...inner]);
    this.#views.set(key, view);
    return view;
  }

  /** As `get`, for tables whose rows are not bounded by the tokens: grows by doubling. */
  table(name: string, rows: number, inner: readonly number[], dtype: DType): Tensor {
    const size = rows * elements(inner);
    let tensor = this.#tensors.get(name);
    if (!tensor || tensor.size < size) {
      const room = Math.max(size, 2 * (tensor?.size ?? 0));
      if (tensor) this.engine.free(tensor);
      tensor = this.engine.alloc([room], dtype, `${this.label} ${name}`);
      this.#tensors.set(name, tensor);
    }
    return this.engine.view(tensor, [rows, ...inner]);
  }

  dispose(): void {
    this.engine.free(...this.#tensors.values());
    this.#tensors.clear();
    this.#views.clear();
    this.#capacity = 0;
  }
}
