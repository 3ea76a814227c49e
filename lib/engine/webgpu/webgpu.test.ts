/**
 * The conformance suite on lavapipe (scripts/vulkan.sh fetches it), and with PARAAGENT_SWIFTSHADER=1 on SwiftShader, which takes a minute. Without a software adapter the suite is skipped with a word about it, but
 * not where CI=true: there it fails, so that a machine that lost its driver does not look green.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { conformance } from "../conformance.ts";
import { uniform } from "../random.ts";
import { openReferenceEngine } from "../reference/index.ts";
import { type Engine, EngineError, NoEngineError, OutOfMemoryError, type Tensor } from "../types.ts";
import { listAdapters, openDevice, openNullDevice } from "./device.ts";
import { openWebGpuEngine, WebGpuEngine } from "./engine.ts";
import { runVariant, shapeClass, type Variant, variants } from "./matmul.ts";
import { own } from "./tensor.ts";
import { loadTuning, saveTuning, tune } from "./tune.ts";

const adapters = await listAdapters();
const has = (name: string) => adapters.some((a) => !a.hardware && a.name.toLowerCase().includes(name));

if (has("llvmpipe")) {
  conformance("webgpu on lavapipe", () => openWebGpuEngine("software:llvmpipe"));
  describe("webgpu engine", ownTests);
} else {
  describe("webgpu on lavapipe", () => {
    const run = process.env.CI === "true" ? test : test.skip;
    run("needs a software Vulkan driver: run scripts/vulkan.sh", () => {
      throw new Error(
        `No lavapipe. Dawn found: ${adapters.map((a) => a.name).join(", ") || "nothing"}. Run scripts/vulkan.sh.`,
      );
    });
  });
}

if (process.env.PARAAGENT_SWIFTSHADER === "1") {
  conformance("webgpu on SwiftShader", () => openWebGpuEngine("software:swiftshader"));
}

/** The same seeded data on whatever engine. */
function make(engine: Engine, shape: number[], seed: number): Tensor {
  const t = engine.alloc(shape, "f32", `t${seed}`);
  engine.upload(
    t,
    Float32Array.from({ length: t.size }, (_, i) => uniform(seed, i) - 0.5),
  );
  return t;
}
function ints(engine: Engine, values: number[]): Tensor {
  const t = engine.alloc([values.length], "i32", "ints");
  engine.upload(t, Int32Array.from(values));
  return t;
}

describe("webgpu kernels for GPUs", () => {
  // The null backend has 8 storage buffers a stage: attention's backward kernels and the sampler, which need 9, are left out.
  test("the variants that a GPU would use pass Dawn's checks", async () => {
    const engine = new WebGpuEngine(await openNullDevice());
    const [t, heads, kvHeads, width] = [70, 4, 2, 96];
    const f32 = (...shape: number[]) => own(engine.alloc(shape, "f32", "x"));
    const index = (n: number) => own(engine.alloc([n], "i32", "i"));
    const kernels = new Set<string>();
    for (const type of ["f32", "f16", "bf16"] as const) {
      for (const [m, n, k] of [
        [1, 40, 64],
        [65, 40, 64],
        [65, 33, 17],
      ] as const) {
        for (const [transA, transB] of [
          [false, false],
          [false, true],
          [true, false],
        ] as const) {
          const shape = { m, n, k, transA, transB, type };
          for (const v of variants(engine.kit, shape)) {
            kernels.add(v.kernel);
            runVariant(engine.kit, v, f32(m, n), f32(m, k), own(engine.alloc([n * k], type, "b")), shape, n, transA);
          }
        }
      }
    }
    expect([...kernels].sort()).toEqual(["dot", "matrix", "tile"]);
    const packing = { docStart: index(t), docEnd: index(t), positions: index(t), maxLength: t };
    for (const d of [16, 32, 128]) {
      const [q, k, v, out] = [f32(t, heads, d), f32(t, kvHeads, d), f32(t, kvHeads, d), f32(t, heads, d)];
      const lse = f32(t, heads);
      engine.attention(out, lse, q, k, v, packing, 1);
      const paged = {
        pageSize: 16,
        pageTable: own(engine.alloc([2, 4], "i32", "p")),
        sequence: index(t),
        visible: index(t),
      };
      engine.pagedAttention(out, q, f32(128, kvHeads * d), f32(128, kvHeads * d), paged, 1);
      engine.qkNormRope(out, q, f32(d), packing.positions, 1e-6, 1e6);
    }
    engine.rmsNorm(f32(t, width), f32(t), f32(t, width), f32(width), 1e-6);
    engine.rmsNormBackward(f32(t, width), f32(width), f32(t, width), f32(t, width), f32(width), f32(t));
    engine.logProbs({ lp: f32(t), lse: f32(t), entropy: f32(t) }, f32(t, width), f32(200, width), index(t));
    await engine.sync();
    await engine.dispose();
  }, 120_000);
});

/** The first run of a kernel on a machine compiles it. */
const timeout = 120_000;

/** What is particular to this engine: limits, windows on tensors above them, errors, reuse of memory, the tuner, other kinds' variants. */
function ownTests() {
  let engine: WebGpuEngine;
  beforeAll(async () => {
    engine = await openWebGpuEngine("software:llvmpipe");
  });
  afterAll(() => engine.dispose());

  /** An engine on an adapter whose binding limit seems to be that small. */
  async function limited(bytes: number): Promise<WebGpuEngine> {
    const device = await openDevice("software:llvmpipe");
    const limits = { ...device.info.limits, maxStorageBufferBindingSize: bytes };
    return new WebGpuEngine({ ...device, info: { ...device.info, limits } });
  }

  test(
    "an adapter that is not there is an error that says what is",
    async () => {
      const error = await openDevice("software:no such driver").catch((e: unknown) => e);
      expect(error).toBeInstanceOf(NoEngineError);
      expect(String(error)).toContain("llvmpipe");
    },
    timeout,
  );

  test(
    "tensors above the binding limit work in windows where rows can be told apart",
    async () => {
      const small = await limited(2 ** 16);
      const reference = await openReferenceEngine();
      const [v, c, t] = [601, 40, 9]; // the table has 96,160 bytes
      const run = async (e: Engine) => {
        const table = make(e, [v, c], 1);
        const ids = ints(e, [0, 600, 407, 408, 3, 0, 384, 511, 512]);
        const [x, out, logits] = [make(e, [t, c], 2), e.alloc([t, c], "f32", "out"), e.alloc([t, v], "f32", "logits")];
        e.embed(out, table, ids);
        e.matmul(logits, x, table, { transB: true });
        const dTable = make(e, [v, c], 3);
        e.embedBackward(dTable, x, ids);
        const [lp, lse] = [e.alloc([t], "f32", "lp"), e.alloc([t], "f32", "lse")];
        e.logProbs({ lp, lse }, x, table, ids);
        const [dx, dHead] = [e.alloc([t, c], "f32", "dx"), make(e, [v, c], 4)];
        e.logProbsBackward({ dx, dHead }, lse, { x, head: table, targets: ids, lse });
        const sum = e.alloc([v, c], "f32", "sum");
        e.axpby(sum, 2, table, -1, dTable);
        const halves = e.alloc([v, 2 * c], "bf16", "halves");
        const wide = make(e, [v, 2 * c], 5);
        e.copy(halves, wide);
        e.copy(wide, halves);
        const squares = await e.sumSquares([sum, wide]);
        const all: number[] = [squares];
        for (const r of [out, logits, dTable, lp, lse, dx, dHead, sum, wide]) all.push(...(await e.download(r)));
        return all;
      };
      const [got, want] = [await run(small), await run(reference)];
      expect(got.length).toBe(want.length);
      for (const [i, w] of want.entries()) expect(Math.abs(got[i]! - w)).toBeLessThan(2e-5 * Math.max(1, Math.abs(w)));
      await small.dispose();
    },
    timeout,
  );

  test(
    "a tensor above the binding limit elsewhere is refused by name and limit",
    async () => {
      const small = await limited(2 ** 16);
      const [big, w, rstd] = [
        small.alloc([400, 64], "f32", "hidden states"),
        small.alloc([64], "f32", "w"),
        small.alloc([400], "f32", "rstd"),
      ];
      const call = () => small.rmsNorm(big, rstd, make(small, [400, 64], 1), w, 1e-6);
      expect(call).toThrow(OutOfMemoryError);
      expect(call).toThrow(/"t1" has 102400 bytes.*maxStorageBufferBindingSize is 65536.*In use.*hidden states/);
      await small.dispose();
    },
    timeout,
  );

  test(
    "an allocation above the buffer limit names the tensor, the limit and what lowers it",
    () => {
      const call = () => engine.alloc([2 ** 31], "f32", "key cache");
      expect(call).toThrow(OutOfMemoryError);
      expect(call).toThrow(/"key cache" needs 8589934592 bytes.*maxBufferSize.*generation\.cachePages/);
    },
    timeout,
  );

  test(
    "use after free, of a foreign tensor, of wrong sizes and after dispose are errors",
    async () => {
      const [x, y] = [make(engine, [4], 1), make(engine, [5], 2)];
      expect(() => engine.axpby(x, 1, x, 1, y)).toThrow(/axpby: tensor "t2" has shape \[5\].*4 elements of f32/);
      const foreign = (await openReferenceEngine()).alloc([4], "f32", "theirs");
      expect(() => engine.axpby(x, 1, x, 1, foreign)).toThrow(/"theirs" belongs to another engine/);
      engine.free(y);
      expect(() => engine.fill(y, 1)).toThrow(/"t2" was used after it had been freed/);
      const other = await openWebGpuEngine("software:llvmpipe");
      await other.dispose();
      expect(() => other.alloc([1], "f32", "late")).toThrow(EngineError);
    },
    timeout,
  );

  test(
    "an input that overlaps the output is refused, the same tensor in place is not",
    async () => {
      const base = make(engine, [256], 1);
      const [low, high, all] = [
        engine.view(base, [128], 0),
        engine.view(base, [128], 128),
        engine.view(base, [128], 64),
      ];
      expect(() => engine.axpby(low, 1, all, 1, high)).toThrow(/overlap/);
      const before = await engine.download(base);
      engine.axpby(low, 2, low, 1, high);
      const after = await engine.download(base);
      for (let i = 0; i < 128; i++) expect(after[i]).toBeCloseTo(2 * before[i]! + before[128 + i]!, 5);
      expect(after.subarray(128)).toEqual(before.subarray(128));
    },
    timeout,
  );

  test(
    "steady state allocates nothing: repeated steps reuse their buffers",
    async () => {
      const step = async () => {
        const [x, w] = [make(engine, [33, 64], 1), make(engine, [96, 64], 2)];
        const out = engine.alloc([33, 96], "f32", "out");
        engine.matmul(out, x, w, { transB: true });
        const dw = engine.alloc([96, 64], "f32", "dw");
        engine.matmul(dw, out, x, { transA: true });
        const norm = await engine.sumSquares([dw]);
        engine.free(x, w, out, dw);
        return norm;
      };
      const norm = await step();
      const peak = engine.memory().peakBytes;
      const { device } = engine.context;
      const create = device.createBuffer;
      let created = 0;
      device.createBuffer = function (...args) {
        created++;
        return create.apply(this, args);
      };
      for (let i = 0; i < 20; i++) expect(await step()).toBe(norm);
      device.createBuffer = create;
      expect(created).toBe(0);
      expect(engine.memory().peakBytes).toBe(peak);
    },
    timeout,
  );

  test(
    "a freed tensor's memory is zero when it is handed out again",
    async () => {
      const x = make(engine, [777], 1);
      engine.free(x);
      const y = engine.alloc([777], "f32", "again");
      expect((await engine.download(y)).every((v) => v === 0)).toBe(true);
      engine.free(y);
    },
    timeout,
  );

  test(
    "memory() counts what is live",
    () => {
      const before = engine.memory().bytes;
      const x = engine.alloc([1000, 1000], "f32", "x");
      expect(engine.memory().bytes - before).toBeGreaterThanOrEqual(4_000_000);
      expect(engine.memory().peakBytes).toBeGreaterThanOrEqual(engine.memory().bytes);
      engine.free(x);
      expect(engine.memory().bytes).toBe(before);
    },
    timeout,
  );

  test(
    "a kernel that fails on the device surfaces at the next wait",
    async () => {
      const other = await openWebGpuEngine("software:llvmpipe");
      other.context.device.createBuffer({ size: 4, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.STORAGE });
      const error = await other.sync().catch((e: unknown) => e);
      expect(error).toBeInstanceOf(EngineError);
      expect(String(error)).toContain("refused");
      await other.dispose();
    },
    timeout,
  );

  test(
    "profile() gives the calls and the time of each kernel",
    async () => {
      const x = make(engine, [4096], 1);
      const times = await engine.profile(() => {
        for (let i = 0; i < 200; i++) engine.axpby(x, 0.5, x, 0.5, x);
      });
      expect(times.map((t) => [t.kernel, t.calls])).toEqual([["axpby", 200]]);
      expect(times[0]!.milliseconds).toBeGreaterThan(0);
      engine.free(x);
    },
    timeout,
  );

  test(
    "the tuner checks every variant, its choices are kept and dropped with another adapter",
    async () => {
      const shapes = [
        { m: 5, n: 37, k: 41, transA: false, transB: true, type: "bf16" },
        { m: 33, n: 20, k: 65, transA: true, transB: false, type: "f32" },
      ];
      const measured = await tune(engine, shapes, 1);
      expect(measured.map((m) => m.times.length)).toEqual([3, 2]);
      const path = join(tmpdir(), `paraagent-tune-${process.pid}.json`);
      saveTuning(engine.info, engine.tuned, path);
      expect([...loadTuning(engine.info, path).keys()].sort()).toEqual(shapes.map(shapeClass).sort());
      expect(loadTuning({ ...engine.info, description: "another" }, path).size).toBe(0);
      rmSync(path);
      engine.tuned.clear();
    },
    timeout,
  );

  test(
    "the tiled product of GPUs computes the same on awkward shapes",
    async () => {
      // A small tile: every other size is the same source, and a software driver takes long to compile the large ones.
      const tile: Variant = { kernel: "tile", bm: 16, bn: 16, bk: 8, tm: 4, tn: 4 };
      const reference = await openReferenceEngine();
      const compute = async (e: Engine, m: number, n: number, k: number, transA: boolean, transB: boolean) => {
        const [a, b, out] = [
          make(e, transA ? [k, m] : [m, k], 1),
          make(e, transB ? [n, k] : [k, n], 2),
          make(e, [m, n], 3),
        ];
        e.matmul(out, a, b, { transA, transB, accumulate: true });
        const data = await e.download(out);
        e.free(a, b, out);
        return data;
      };
      for (const [m, n, k, transA, transB] of [
        [35, 33, 17, true, false],
        [36, 20, 24, false, true],
      ] as const) {
        engine.tuned.set(shapeClass({ m, n, k, transA, transB, type: "f32" }), tile);
        const got = await compute(engine, m, n, k, transA, transB);
        const want = await compute(reference, m, n, k, transA, transB);
        for (const [i, w] of want.entries()) expect(Math.abs(got[i]! - w)).toBeLessThan(1e-5);
      }
      engine.tuned.clear();
    },
    timeout,
  );
}
