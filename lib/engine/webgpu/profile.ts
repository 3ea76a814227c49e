/** Time per kernel by timestamp queries. While active, each dispatch has a pass of its own, so that its ends can be stamped. */

const slots = 128;

export interface KernelTime {
  kernel: string;
  calls: number;
  milliseconds: number;
}

export class Profiler {
  active = false;
  #device: GPUDevice;
  #set: GPUQuerySet | null = null;
  #names: string[] = [];
  #reading: { buffer: GPUBuffer; names: string[] } | null = null;
  #pending: Promise<void>[] = [];
  #times = new Map<string, { calls: number; nanoseconds: number }>();

  constructor(device: GPUDevice) {
    this.#device = device;
  }

  /** The descriptor of a pass that is stamped under that name. The recorder submits at the latest when all slots are used. */
  stamp(name: string): GPUComputePassDescriptor {
    this.#set ??= this.#device.createQuerySet({ type: "timestamp", count: slots * 2 });
    const i = this.#names.push(name) - 1;
    return {
      timestampWrites: { querySet: this.#set, beginningOfPassWriteIndex: i * 2, endOfPassWriteIndex: i * 2 + 1 },
    };
  }

  /** Called before a submission is finished, with its encoder. */
  resolve(encoder: GPUCommandEncoder): void {
    if (!this.#set || this.#names.length === 0) return;
    const size = this.#names.length * 16;
    const resolved = this.#device.createBuffer({ size, usage: GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC });
    const buffer = this.#device.createBuffer({ size, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
    encoder.resolveQuerySet(this.#set, 0, this.#names.length * 2, resolved, 0);
    encoder.copyBufferToBuffer(resolved, 0, buffer, 0, size);
    this.#reading = { buffer, names: this.#names };
    this.#names = [];
  }

  /** Called after it was submitted. */
  submitted(): void {
    const reading = this.#reading;
    if (!reading) return;
    this.#reading = null;
    this.#pending.push(
      reading.buffer.mapAsync(GPUMapMode.READ).then(() => {
        const stamps = new BigUint64Array(reading.buffer.getMappedRange());
        reading.names.forEach((name, i) => {
          const time = this.#times.get(name) ?? { calls: 0, nanoseconds: 0 };
          time.calls++;
          time.nanoseconds += Number(stamps[i * 2 + 1]! - stamps[i * 2]!);
          this.#times.set(name, time);
        });
        reading.buffer.destroy();
      }),
    );
  }

  /** The times so far, longest first; starts anew. */
  async take(): Promise<KernelTime[]> {
    await Promise.all(this.#pending.splice(0));
    const times = [...this.#times].map(([kernel, t]) => ({
      kernel,
      calls: t.calls,
      milliseconds: t.nanoseconds / 1e6,
    }));
    this.#times.clear();
    return times.sort((a, b) => b.milliseconds - a.milliseconds);
  }
}
