/**
 * The machine room of the WebGPU engine: pooled buffers, pipelines made from .wgsl files, and a recorder that batches dispatches into few
 * submissions. Operations (ops/*.ts) say which kernel, with which constants, tensors and parameters; nothing here knows what they mean.
 */
import { EngineError, OutOfMemoryError } from "../types.ts";
import type { Device } from "./device.ts";
import { type Access, assemble, type KernelName, type Layout } from "./kernels.ts";
import { Profiler } from "./profile.ts";
import { type Block, type GpuTensor, packHalf, unpackHalf } from "./tensor.ts";

/** Dispatches between submissions: enough to hide the cost of one, few enough that the device starts early. */
const maxBatch = 128;
const maxBindGroups = 8192;
const bufferTypes = { read: "read-only-storage", read_write: "storage", uniform: "uniform" } as const;

export interface Dispatch {
  kernel: KernelName;
  /** WGSL constants that the kernel is built with. */
  constants?: Record<string, number | boolean>;
  /** Storage types of packed operands by alias name, e.g. { b: "bf16" }. */
  types?: Record<string, string>;
  /** Tensors by the name of the kernel's binding. */
  tensors: Record<string, GpuTensor>;
  /** The fields of the kernel's uniform struct P. */
  params: Record<string, number>;
  /** Workgroups, one number a dimension. */
  groups: readonly number[];
}

interface Pipeline {
  pipeline: GPUComputePipeline;
  bindLayout: GPUBindGroupLayout;
  layout: Layout;
  name: string;
  id: number;
}

export class Context {
  readonly device: GPUDevice;
  readonly limits: Record<string, number>;
  readonly profiler: Profiler | null;
  #failure: Error | null = null;
  #closing = false;
  // Buffers.
  #nextBlock = 1;
  #free = new Map<number, Block[]>();
  #liveBytes = 0;
  #pooledBytes = 0;
  #peakBytes = 0;
  #live = new Set<GpuTensor>();
  #staging = new Map<number, GPUBuffer[]>();
  // Pipelines.
  #pipelines = new Map<string, Pipeline>();
  #bindLayouts = new Map<string, GPUBindGroupLayout>();
  #bindGroups = new Map<string, GPUBindGroup>();
  // Recorder.
  #encoder: GPUCommandEncoder | null = null;
  #pass: GPUComputePassEncoder | null = null;
  #batched = 0;
  #align: number;
  #uniformStride: number;
  #uniformHost: ArrayBuffer;
  #uniformBuffer: GPUBuffer;
  /** Dispatches since the engine was opened. */
  dispatches = 0;

  constructor(readonly opened: Device) {
    this.device = opened.gpu;
    this.limits = opened.info.limits;
    this.profiler = opened.info.features.includes("timestamp-query") ? new Profiler(this.device) : null;
    this.#align = this.limits.minStorageBufferOffsetAlignment ?? 256;
    this.#uniformStride = Math.max(64, this.limits.minUniformBufferOffsetAlignment ?? 256);
    this.#uniformHost = new ArrayBuffer(this.#uniformStride * maxBatch);
    this.#uniformBuffer = this.device.createBuffer({
      label: "parameters",
      size: this.#uniformHost.byteLength,
      usage: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST,
    });
    this.device.addEventListener("uncapturederror", (event) => {
      event.preventDefault();
      const { error } = event;
      this.fail(
        error instanceof GPUOutOfMemoryError
          ? new OutOfMemoryError(`The device ran out of memory: ${error.message}. ${this.inUse()}`)
          : new EngineError(`The device refused an operation: ${error.message}`),
      );
    });
    this.device.lost.then((lost) => {
      if (!this.#closing) this.fail(new EngineError(`The device was lost (${lost.reason}): ${lost.message}`));
    });
  }

  // ---- failures --------------------------------------------------------------------------------------------------------
  /** Keeps the first failure; it is thrown by whatever comes next. */
  fail(error: Error): void {
    this.#failure ??= error;
  }
  check(): void {
    if (this.#closing) throw new EngineError("The engine was used after it had been disposed of.");
    if (this.#failure) throw this.#failure;
  }

  // ---- memory ----------------------------------------------------------------------------------------------------------
  memory() {
    return { bytes: this.#liveBytes, peakBytes: this.#peakBytes, pooledBytes: this.#pooledBytes };
  }

  /** What holds memory now, the largest first, and what lowers it; for messages. */
  inUse(): string {
    const mib = (n: number) => `${(n / 2 ** 20).toFixed(1)} MiB`;
    const top = [...this.#live].sort((a, b) => b.bytes - a.bytes).slice(0, 6);
    return (
      `In use: ${mib(this.#liveBytes)} in ${this.#live.size} tensors` +
      (top.length ? ` (largest: ${top.map((t) => `"${t.label}" ${mib(t.bytes)}`).join(", ")})` : "") +
      ". Lower it with fewer tokens a micro-batch (train.microBatchTokens), recomputation of layers (train.recompute)," +
      " LoRA instead of full fine-tuning, or fewer cache pages (generation.cachePages)."
    );
  }

  /** A buffer of at least that many bytes, from the pool where one fits. Sizes are rounded so that near sizes share. */
  take(bytes: number, label: string): { block: Block; reused: boolean } {
    this.check();
    const size = roundUp(bytes);
    const most = this.limits.maxBufferSize ?? 2 ** 28;
    if (size > most) {
      throw new OutOfMemoryError(
        `Tensor "${label}" needs ${bytes} bytes; the adapter's limit maxBufferSize is ${most}. ${this.inUse()}`,
      );
    }
    const pooled = this.#free.get(size)?.pop();
    this.#liveBytes += size;
    if (pooled) {
      this.#pooledBytes -= size;
      return { block: pooled, reused: true };
    }
    this.device.pushErrorScope("out-of-memory");
    const buffer = this.device.createBuffer({
      label,
      size,
      usage: GPUBufferUsage.STORAGE | GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST,
    });
    void this.device.popErrorScope().then(
      (error) => {
        if (!error) return;
        this.fail(new OutOfMemoryError(`No memory for tensor "${label}" (${bytes} bytes). ${this.inUse()}`));
      },
      () => {}, // The device is gone; `lost` says so.
    );
    this.#peakBytes = Math.max(this.#peakBytes, this.#liveBytes + this.#pooledBytes);
    return { block: { id: this.#nextBlock++, buffer, bytes: size }, reused: false };
  }
  give(block: Block): void {
    const list = this.#free.get(block.bytes) ?? [];
    list.push(block);
    this.#free.set(block.bytes, list);
    this.#liveBytes -= block.bytes;
    this.#pooledBytes += block.bytes;
  }
  /** Gives pooled buffers back to the device. */
  trim(): void {
    if (this.#pooledBytes === 0) return;
    this.flush();
    for (const list of this.#free.values()) for (const block of list) block.buffer.destroy();
    this.#free.clear();
    this.#bindGroups.clear();
    this.#pooledBytes = 0;
  }
  track(t: GpuTensor): void {
    this.#live.add(t);
  }
  untrack(t: GpuTensor): void {
    this.#live.delete(t);
  }

  // ---- recording -------------------------------------------------------------------------------------------------------
  #passEncoder(): GPUComputePassEncoder {
    this.#encoder ??= this.device.createCommandEncoder();
    this.#pass ??= this.#encoder.beginComputePass();
    return this.#pass;
  }
  #bareEncoder(): GPUCommandEncoder {
    this.#pass?.end();
    this.#pass = null;
    this.#encoder ??= this.device.createCommandEncoder();
    return this.#encoder;
  }

  /** Submits what was recorded. */
  flush(): void {
    if (!this.#encoder) return;
    this.#pass?.end();
    this.#pass = null;
    if (this.#batched > 0) {
      this.device.queue.writeBuffer(this.#uniformBuffer, 0, this.#uniformHost, 0, this.#batched * this.#uniformStride);
    }
    this.profiler?.resolve(this.#encoder);
    this.device.queue.submit([this.#encoder.finish()]);
    this.profiler?.submitted();
    this.#encoder = null;
    this.#batched = 0;
  }

  clear(t: GpuTensor): void {
    this.#bareEncoder().clearBuffer(t.block.buffer, t.byteOffset, t.bytes);
  }
  copyBytes(to: GpuTensor, from: GpuTensor): void {
    if (to.block === from.block) throw new EngineError(`copy: "${to.label}" and "${from.label}" share memory`);
    this.#bareEncoder().copyBufferToBuffer(
      from.block.buffer,
      from.byteOffset,
      to.block.buffer,
      to.byteOffset,
      to.bytes,
    );
  }

  run(d: Dispatch): void {
    this.check();
    if (d.groups.some((g) => g === 0)) return;
    const pipeline = this.#pipeline(d);
    const group = this.#bindGroup(pipeline, d);
    const profiled = this.profiler?.active ?? false;
    if (profiled) this.#bareEncoder();
    const slot = this.#batched * this.#uniformStride;
    writeParams(this.#uniformHost, slot, pipeline.layout, d);
    const pass = profiled
      ? (this.#encoder ??= this.device.createCommandEncoder()).beginComputePass(this.profiler?.stamp(pipeline.name))
      : this.#passEncoder();
    pass.setPipeline(pipeline.pipeline);
    pass.setBindGroup(0, group, [slot]);
    pass.dispatchWorkgroups(d.groups[0] ?? 1, d.groups[1] ?? 1, d.groups[2] ?? 1);
    if (profiled) pass.end();
    this.dispatches++;
    if (++this.#batched === maxBatch) this.flush();
  }

  // ---- pipelines -------------------------------------------------------------------------------------------------------
  /**
   * How each tensor is bound. WebGPU forbids one buffer as read-only and written in one dispatch, even in disjoint windows: then the input
   * is bound as written too. An input that is the output itself is folded into it, where the kernel says that each invocation
   * reads only what it writes (`//! inplace`). A view that starts where the adapter can bind nothing (packed halves at 128 bytes, where it wants
   * 256) is bound from further down, and the kernel is built to start behind.
   */
  #access(
    d: Dispatch,
    layout: Layout,
  ): { access: Record<string, Access>; shifts: Record<string, number>; key: string } {
    const access: Record<string, Access> = {};
    const shifts: Record<string, number> = {};
    let key = "";
    const outputs = layout.bindings.filter((b) => b.access === "read_write");
    for (const b of layout.bindings) {
      const t = d.tensors[b.name];
      if (!t) throw new EngineError(`kernel ${d.kernel}: no tensor for binding "${b.name}"`);
      const shift = t.byteOffset % this.#align;
      if (shift > 0) {
        shifts[b.name] = shift;
        key += `|${b.name}+${shift}`;
      }
      if (b.access !== "read") {
        access[b.name] = b.access;
        continue;
      }
      let chosen: Access = "read";
      for (const o of outputs) {
        const out = d.tensors[o.name];
        if (!out || out.block !== t.block) continue;
        if (out.byteOffset === t.byteOffset && out.bytes === t.bytes && layout.inplace) chosen = { same: o.name };
        else if (out.byteOffset < t.byteOffset + t.bytes && t.byteOffset < out.byteOffset + out.bytes) {
          throw new EngineError(`kernel ${d.kernel}: input "${t.label}" and output "${out.label}" overlap`);
        } else if (chosen === "read") chosen = "read_write";
      }
      access[b.name] = chosen;
      if (chosen !== "read") key += `|${b.name}=${chosen === "read_write" ? "rw" : chosen.same}`;
    }
    return { access, shifts, key };
  }

  #pipeline(d: Dispatch): Pipeline {
    const layout = assemble.layout(d.kernel);
    const { access, shifts, key: accessKey } = this.#access(d, layout);
    let key: string = d.kernel;
    for (const k in d.constants) key += `;${k}=${d.constants[k]}`;
    for (const k in d.types) key += `;${k}:${d.types[k]}`;
    key += accessKey;
    const known = this.#pipelines.get(key);
    if (known) return known;

    const { code, bindings } = assemble.kernel(d.kernel, d.constants ?? {}, d.types ?? {}, access, shifts, this.opened);
    const bindKey = bindings.map((b) => `${b.binding}${b.access}`).join();
    let bindLayout = this.#bindLayouts.get(bindKey);
    if (!bindLayout) {
      bindLayout = this.device.createBindGroupLayout({
        entries: [
          { binding: 0, visibility: GPUShaderStage.COMPUTE, buffer: { type: "uniform", hasDynamicOffset: true } },
          ...bindings.map((b) => ({
            binding: b.binding,
            visibility: GPUShaderStage.COMPUTE,
            buffer: { type: bufferTypes[b.access] },
          })),
        ],
      });
      this.#bindLayouts.set(bindKey, bindLayout);
    }
    this.device.pushErrorScope("validation");
    const module = this.device.createShaderModule({ label: key, code });
    const pipeline = this.device.createComputePipeline({
      label: key,
      layout: this.device.createPipelineLayout({ bindGroupLayouts: [bindLayout] }),
      compute: { module, entryPoint: "main" },
    });
    void this.device.popErrorScope().then(
      (error) => {
        // The cause, in place of what followed from it and may have been reported before.
        if (error) this.#failure = new EngineError(`Kernel ${key} does not build: ${error.message}`);
      },
      () => {}, // The device is gone; `lost` says so.
    );
    const made: Pipeline = {
      pipeline,
      bindLayout,
      layout: { ...layout, bindings },
      name: d.kernel,
      id: this.#pipelines.size,
    };
    this.#pipelines.set(key, made);
    return made;
  }

  #bindGroup(p: Pipeline, d: Dispatch): GPUBindGroup {
    let key = `${p.id}`;
    const most = this.limits.maxStorageBufferBindingSize ?? 2 ** 27;
    for (const b of p.layout.bindings) {
      const t = d.tensors[b.name]!;
      key += `,${t.block.id}:${t.byteOffset}:${t.bytes}`;
    }
    const known = this.#bindGroups.get(key);
    if (known) return known;
    const entries: GPUBindGroupEntry[] = [
      { binding: 0, resource: { buffer: this.#uniformBuffer, offset: 0, size: p.layout.paramBytes } },
    ];
    for (const b of p.layout.bindings) {
      const t = d.tensors[b.name]!;
      if (t.bytes > most) {
        throw new OutOfMemoryError(
          `${d.kernel}: tensor "${t.label}" has ${t.bytes} bytes; the adapter's limit maxStorageBufferBindingSize is ${most}. ${this.inUse()}`,
        );
      }
      const offset = t.byteOffset - (t.byteOffset % this.#align);
      // Whole vec4s, so that kernels which read four at a time may read the last ones; buffers are rounded up for it.
      const size = Math.min(Math.ceil((t.byteOffset + t.bytes - offset) / 16) * 16, t.block.bytes - offset);
      entries.push({ binding: b.binding, resource: { buffer: t.block.buffer, offset, size } });
    }
    if (this.#bindGroups.size >= maxBindGroups) this.#bindGroups.clear();
    const group = this.device.createBindGroup({ layout: p.bindLayout, entries });
    this.#bindGroups.set(key, group);
    return group;
  }

  // ---- host ↔ device ---------------------------------------------------------------------------------------------------
  upload(t: GpuTensor, data: Float32Array | Int32Array | Uint32Array): void {
    this.check();
    this.flush();
    const half = t.dtype === "f16" || t.dtype === "bf16";
    const bytes =
      half && data instanceof Float32Array
        ? packHalf(t.dtype as "f16" | "bf16", data)
        : new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    // In parts: one write of gigabytes would be held twice.
    const part = 2 ** 26;
    for (let at = 0; at < bytes.length; at += part) {
      const size = Math.min(part, bytes.length - at);
      this.device.queue.writeBuffer(t.block.buffer, t.byteOffset + at, bytes.subarray(at, at + size));
    }
  }

  /** The tensors' bytes, in one wait. */
  async download(tensors: GpuTensor[]): Promise<ArrayBuffer[]> {
    this.check();
    const total = tensors.reduce((n, t) => n + t.bytes, 0);
    const size = roundUp(Math.max(total, 4));
    const staging =
      this.#staging.get(size)?.pop() ??
      this.device.createBuffer({ label: "readback", size, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
    const encoder = this.#bareEncoder();
    let at = 0;
    for (const t of tensors) {
      encoder.copyBufferToBuffer(t.block.buffer, t.byteOffset, staging, at, t.bytes);
      at += t.bytes;
    }
    this.flush();
    try {
      await staging.mapAsync(GPUMapMode.READ, 0, Math.max(total, 4));
    } catch (error) {
      this.check();
      throw new EngineError(`Reading "${tensors[0]?.label}" back failed: ${error}`);
    }
    const mapped = staging.getMappedRange(0, Math.max(total, 4));
    at = 0;
    const out = tensors.map((t) => {
      const bytes = mapped.slice(at, at + t.bytes);
      at += t.bytes;
      return bytes;
    });
    staging.unmap();
    if (size <= 2 ** 24) {
      const list = this.#staging.get(size) ?? [];
      list.push(staging);
      this.#staging.set(size, list);
    } else staging.destroy();
    this.check();
    return out;
  }

  async sync(): Promise<void> {
    this.check();
    this.flush();
    await this.device.queue.onSubmittedWorkDone();
    // Errors of what was submitted have reached their scopes once a scope pushed now is popped.
    this.device.pushErrorScope("validation");
    await this.device.popErrorScope();
    this.check();
  }

  async dispose(): Promise<void> {
    if (this.#closing) return;
    this.flush();
    this.#closing = true;
    await this.device.queue.onSubmittedWorkDone().catch(() => {}); // A lost device has nothing left to wait for.
    this.device.destroy();
    for (const t of this.#live) t.freed = true;
    this.#live.clear();
    this.#free.clear();
    this.#pipelines.clear();
    this.#bindGroups.clear();
    this.#liveBytes = this.#pooledBytes = 0;
  }
}

/** Sizes are rounded to 16 bytes, then to an eighth of their power of two, so that a pool of them is reused. */
function roundUp(bytes: number): number {
  const step = bytes <= 1024 ? 256 : 2 ** Math.max(8, Math.floor(Math.log2(bytes)) - 3);
  return Math.max(256, Math.ceil(bytes / step) * step);
}

function writeParams(host: ArrayBuffer, offset: number, layout: Layout, d: Dispatch): void {
  const view = new DataView(host, offset, layout.paramBytes);
  layout.params.forEach(({ name, type }, i) => {
    const value = d.params[name];
    if (value === undefined) throw new EngineError(`kernel ${d.kernel}: no value for parameter "${name}"`);
    if (type === "f32") view.setFloat32(i * 4, value, true);
    else if (type === "i32") view.setInt32(i * 4, value, true);
    else view.setUint32(i * 4, value, true);
  });
}

/** Data of a downloaded tensor in the type that the interface promises. */
export function decode(t: GpuTensor, bytes: ArrayBuffer): Float32Array | Int32Array | Uint32Array {
  switch (t.dtype) {
    case "f32":
      return new Float32Array(bytes);
    case "i32":
      return new Int32Array(bytes);
    case "u32":
      return new Uint32Array(bytes);
    case "f16":
    case "bf16":
      return unpackHalf(t.dtype, bytes, t.size);
  }
}
