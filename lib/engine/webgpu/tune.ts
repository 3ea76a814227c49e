/**
 * Measures the variants of the matrix product on this adapter, once per shape class, and keeps the choice in .cache/tune/. Nothing is measured while
 * a model runs: which variant is used would then depend on the moment, and with it the bits of a run. Off in tests: every adapter kind has
 * a fixed default.
 */
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { z } from "zod";
import { uniform } from "../random.ts";
import { EngineError, type EngineInfo } from "../types.ts";
import { cacheDirectory } from "./device.ts";
import type { WebGpuEngine } from "./engine.ts";
import { sourcesText } from "./kernels.ts";
import { runVariant, type Shape, shapeClass, type Variant, variants } from "./matmul.ts";
import { own } from "./tensor.ts";

const size = z.number().int().positive();
const variantSchema = z.discriminatedUnion("kernel", [
  z.object({ kernel: z.literal("naive") }),
  z.object({ kernel: z.literal("panel"), rows: size }),
  z.object({ kernel: z.literal("dot"), rows: size }),
  z.object({ kernel: z.literal("matrix") }),
  z.object({ kernel: z.literal("tile"), bm: size, bn: size, bk: size, tm: size, tn: size }),
]);
const fileSchema = z.object({ adapter: z.string(), kernels: z.string(), choices: z.record(z.string(), variantSchema) });

const kernelsHash = (): string => createHash("sha256").update(sourcesText()).digest("hex").slice(0, 16);

/** Where the choices for an adapter are kept. */
export function tunePath(info: EngineInfo): string {
  return join(cacheDirectory, "tune", `${info.description.replace(/[^\w.-]+/g, "-")}.json`);
}

/** The kept choices; none where there are none, or where the kernels have changed since. */
export function loadTuning(info: EngineInfo, path = tunePath(info)): Map<string, Variant> {
  if (!existsSync(path)) return new Map();
  const parsed = fileSchema.safeParse(JSON.parse(readFileSync(path, "utf8")));
  if (!parsed.success)
    throw new EngineError(`${path} is not a tuning file; remove it. ${z.prettifyError(parsed.error)}`);
  const { adapter, kernels, choices } = parsed.data;
  return adapter === info.description && kernels === kernelsHash() ? new Map(Object.entries(choices)) : new Map();
}

export function saveTuning(info: EngineInfo, choices: Map<string, Variant>, path = tunePath(info)): void {
  mkdirSync(dirname(path), { recursive: true });
  const sorted = Object.fromEntries([...choices].sort(([a], [b]) => (a < b ? -1 : 1)));
  const text = JSON.stringify({ adapter: info.description, kernels: kernelsHash(), choices: sorted }, null, 2);
  writeFileSync(`${path}.tmp`, text + "\n");
  renameSync(`${path}.tmp`, path);
}

export interface Measured {
  shape: Shape;
  /** Best time of each variant, in ms, fastest first. */
  times: { variant: Variant; milliseconds: number }[];
}

/**
 * Measures the variants for these shapes by turns, checks each against the plain kernel, and has the engine use the fastest from now on.
 * Throws EngineError where a variant computes something else: then the adapter's compiler is at fault, and it must not be used unseen.
 */
export async function tune(engine: WebGpuEngine, shapes: Shape[], rounds = 5): Promise<Measured[]> {
  const out: Measured[] = [];
  const done = new Set<string>();
  for (const s of shapes) {
    const key = shapeClass(s);
    if (done.has(key)) continue;
    done.add(key);
    out.push(await measure(engine, s, rounds));
    engine.tuned.set(key, out.at(-1)!.times[0]!.variant);
  }
  return out;
}

async function measure(engine: WebGpuEngine, s: Shape, rounds: number): Promise<Measured> {
  const make = (n: number, dtype: "f32" | "f16" | "bf16", label: string, seed: number) => {
    const t = engine.alloc([n], dtype, label);
    engine.upload(
      t,
      Float32Array.from({ length: n }, (_, i) => uniform(seed, i) - 0.5),
    );
    return own(t);
  };
  const type = s.type === "f16" || s.type === "bf16" ? s.type : "f32";
  const [a, b] = [make(s.m * s.k, "f32", "tuning a", 1), make(s.k * s.n, type, "tuning b", 2)];
  const result = own(engine.alloc([s.m * s.n], "f32", "tuning out"));
  const run = (v: Variant) => runVariant(engine.kit, v, result, a, b, s, s.n, false);
  try {
    run({ kernel: "naive" });
    const want = await engine.download(result);
    const times = variants(engine.kit, s).map((variant) => ({ variant, milliseconds: Number.POSITIVE_INFINITY }));
    for (const { variant } of times) {
      engine.fill(result, 0);
      run(variant);
      const got = await engine.download(result);
      const bound = 1e-5 * Math.sqrt(s.k) + 1e-6;
      const wrong = want.findIndex((w, i) => !(Math.abs(got[i]! - w) <= bound));
      if (wrong >= 0 && variant.kernel === "matrix") {
        // Experimental in Dawn, and drivers differ: not used where it is not right.
        console.warn(
          `${engine.info.description}: subgroup matrices give ${got[wrong]} for ${want[wrong]}; not used for ${shapeClass(s)}`,
        );
        times.splice(
          times.findIndex((t) => t.variant === variant),
          1,
        );
        break;
      }
      if (wrong >= 0) {
        throw new EngineError(
          `${engine.info.description} computes matmul ${shapeClass(s)} wrongly with ${JSON.stringify(variant)}: element ${wrong} is ${got[wrong]}, not ${want[wrong]}`,
        );
      }
    }
    for (let round = 0; round < rounds; round++) {
      for (const t of times) {
        const start = performance.now();
        run(t.variant);
        await engine.sync();
        t.milliseconds = Math.min(t.milliseconds, performance.now() - start);
      }
    }
    return { shape: s, times: times.sort((x, y) => x.milliseconds - y.milliseconds) };
  } finally {
    engine.free(a, b, result);
  }
}

/** The products of one training step of a decoder of these sizes, for `tune`. */
export function decoderShapes(c: {
  tokens: number;
  hidden: number;
  feedForward: number;
  qSize: number;
  kvSize: number;
  vocabulary: number;
  type: string;
}): Shape[] {
  const widths: [number, number][] = [
    [c.qSize, c.hidden],
    [c.kvSize, c.hidden],
    [c.hidden, c.qSize],
    [c.feedForward, c.hidden],
    [c.hidden, c.feedForward],
    [Math.min(c.vocabulary, 8192), c.hidden],
  ];
  return widths.flatMap(([n, k]) => [
    { m: c.tokens, n, k, transA: false, transB: true, type: c.type },
    { m: c.tokens, n: k, k: n, transA: false, transB: false, type: c.type },
    { m: n, n: k, k: c.tokens, transA: true, transB: false, type: "f32" },
    { m: 1, n, k, transA: false, transB: true, type: c.type },
    { m: 16, n, k, transA: false, transB: true, type: c.type },
  ]);
}
