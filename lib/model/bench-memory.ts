/** Whether training keeps memory flat: bytes over the steps of a small model, batches of changing sizes. */
import { hash2, uniform } from "../engine/random.ts";
import type { Engine } from "../engine/types.ts";
import { modelSize } from "./bench.ts";
import { Model } from "./model.ts";
import { Optimizer } from "./optimizer.ts";

export interface MemoryPoint {
  step: number;
  /** Held by the engine's tensors, and the most so far. */
  engineBytes: number;
  peakBytes: number;
  /** JavaScript's heap and what it holds outside, after a garbage collection. */
  heapBytes: number;
  /** Of the whole process: the allocators' leftovers come and go by tens of MiB. */
  rssBytes: number;
}

/** What may be added between the second reading and the last. Over 1,750 steps 1 MiB is 600 bytes a step, 32 MiB 19 KiB. */
const SLACK = { engineBytes: 0, peakBytes: 0, heapBytes: 2 ** 20, rssBytes: 2 ** 25 };

/** Trains a decoder of 40,000 parameters for `steps` steps, and reads memory at nine of them, the first and the last among them. */
export async function memoryCurve(
  engine: Engine,
  steps: number,
  told: (point: MemoryPoint) => void = () => {},
): Promise<MemoryPoint[]> {
  const { config, T } = modelSize(2, 32, 64, 2, 1, 128, 64, 1);
  const model = await Model.create(engine, config, 1);
  const optimizer = new Optimizer(engine, model.trainable());
  const points: MemoryPoint[] = [];
  for (let step = 1; step <= steps; step++) {
    // Eight sizes in no order, the largest first: what is kept for each, such as bind groups, is there by the second reading.
    const n = step === 1 ? T : (T / 8) * (1 + Math.floor(8 * uniform(1, step)));
    const ids = Int32Array.from({ length: n }, (_, i) => Math.floor(config.vocab_size * uniform(hash2(2, step), i)));
    const cumulative = Int32Array.of(0, 1 + (step % 7), n);
    model.zeroGrad();
    await model.forwardBackward({ ids, cumulative, rows: Int32Array.from(ids.keys()), targets: ids }, (lp) => ({
      dLp: new Float32Array(lp.length).fill(-1 / n),
    }));
    await optimizer.step(1e-3);
    if (step > 1 && step % Math.ceil(steps / 8) !== 0 && step !== steps) continue;
    await engine.sync();
    Bun.gc(true);
    const { bytes, peakBytes } = engine.memory();
    const { heapUsed, rss } = process.memoryUsage();
    points.push({ step, engineBytes: bytes, peakBytes, heapBytes: heapUsed, rssBytes: rss });
    told(points.at(-1)!);
  }
  optimizer.dispose();
  model.dispose();
  return points;
}

/** What grew after the second reading by more than its slack, or null. */
export function growth(points: readonly MemoryPoint[]): string | null {
  const [from, ...after] = points.slice(1) as [MemoryPoint, ...MemoryPoint[]];
  for (const what of ["engineBytes", "peakBytes", "heapBytes", "rssBytes"] as const) {
    const grown = after.find((p) => p[what] > from[what] + SLACK[what]);
    if (grown) return `${what} went from ${from[what]} at step ${from.step} to ${grown[what]} at step ${grown.step}`;
  }
  return null;
}
