import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { conformance } from "../conformance.ts";
import { EngineError, OutOfMemoryError } from "../types.ts";
import { describeBlas } from "./blas.ts";
import { compileKernels, VARIANTS } from "./build.ts";
import { type CpuEngine, openCpuEngine } from "./index.ts";
import { Heap } from "./memory.ts";

const bun = process.execPath;

conformance("cpu", () => openCpuEngine());
conformance("cpu without BLAS", () => openCpuEngine({ blas: "none", threads: 3 }));

describe("the compiled kernels", () => {
  for (const [name, relaxed] of Object.entries(VARIANTS)) {
    test(`${name} is what the source gives`, async () => {
      const kept = await Bun.file(new URL(`./kernels/${name}`, import.meta.url)).bytes();
      expect(Buffer.compare(await compileKernels(relaxed), kept)).toBe(0);
    }, 60_000);
  }
});

describe("BLAS", () => {
  test("is described for the doctor, found or not", () => {
    const { found, tried, how } = describeBlas();
    expect(tried.length).toBeGreaterThan(0);
    expect(how.length).toBeGreaterThan(0);
    expect(found === null).toBe(!tried.some((t) => t.endsWith(": found")));
  });
  test("asked for by a name that is not there gives an error that says so", async () => {
    expect(openCpuEngine({ blas: "libnosuchblas.so" })).rejects.toThrow(/no BLAS at "libnosuchblas.so"/);
  });
});

describe("threads", () => {
  const shapes = { T: 80, C: 96, F: 200, V: 131 };
  /** A few operations whose results meet on one number for each bit that differs. */
  async function run(engine: CpuEngine): Promise<Float32Array> {
    const { T, C, F, V } = shapes;
    const make = (shape: number[], label: string, step: number) => {
      const t = engine.alloc(shape, "f32", label);
      engine.upload(
        t,
        Float32Array.from({ length: t.size }, (_, i) => Math.sin(i * step)),
      );
      return t;
    };
    const [x, w, y] = [make([T, C], "x", 0.37), make([F, C], "w", 0.11), make([T, F], "y", 0)];
    const [dw, head] = [make([F, C], "dw", 0), make([V, F], "head", 0.73)];
    const targets = engine.alloc([T], "i32", "targets");
    const [lp, lse, dLp, dy] = [make([T], "lp", 0), make([T], "lse", 0), make([T], "dLp", 0.2), make([T, F], "dy", 0)];
    engine.matmul(y, x, w, { transB: true });
    engine.logProbs({ lp, lse }, y, head, targets);
    engine.logProbsBackward({ dx: dy, dHead: head }, dLp, { x: y, head, targets, lse });
    engine.matmul(dw, dy, x, { transA: true });
    const result = (await engine.download(dw)) as Float32Array;
    engine.free(x, w, y, dw, head, targets, lp, lse, dLp, dy);
    return result;
  }

  test("the same engine gives the same bits again, and any number of threads the same numbers", async () => {
    const results: Float32Array[] = [];
    for (const threads of [1, 2, 5]) {
      const engine = await openCpuEngine({ blas: "none", threads });
      const first = await run(engine);
      expect(await run(engine)).toEqual(first);
      results.push(first);
      await engine.dispose();
    }
    for (const other of results.slice(1)) {
      for (let i = 0; i < other.length; i++) expect(Math.abs(other[i]! - results[0]![i]!)).toBeLessThan(1e-4);
    }
  });

  test("PARAAGENT_THREADS says how many threads, and nonsense in it is an error that names it", async () => {
    const before = process.env.PARAAGENT_THREADS;
    try {
      process.env.PARAAGENT_THREADS = "3";
      const engine = await openCpuEngine({ blas: "none" });
      expect(engine.info.limits.threads).toBe(3);
      await engine.dispose();
      process.env.PARAAGENT_THREADS = "all";
      expect(openCpuEngine({ blas: "none" })).rejects.toThrow('PARAAGENT_THREADS is "all"');
    } finally {
      if (before === undefined) delete process.env.PARAAGENT_THREADS;
      else process.env.PARAAGENT_THREADS = before;
    }
  });

  test("dispatches of all sizes in close order never take an item of one another", async () => {
    // More threads than cores, so that workers come late: an item run twice, or with the next dispatch's arguments, changes the sums.
    const engine = await openCpuEngine({ blas: "none", threads: 6 });
    const large = engine.alloc([20 * 16384], "f32", "large");
    const parts = [1, 3, 7, 20].map((chunks) => engine.view(large, [chunks * 16384 - 5]));
    const sums = new Float64Array(4);
    for (let i = 0; i < 3000; i++) {
      const which = (i * 7 + (i >> 3)) % 4;
      engine.axpby(parts[which]!, 1, parts[which]!, 0, parts[which]!);
      engine.fill(engine.view(large, [parts[which]!.size]), i % 5);
      sums[which] = (await engine.sumSquares([parts[which]!])) / parts[which]!.size;
      expect(sums[which]).toBe((i % 5) ** 2);
    }
    await engine.dispose();
  }, 60_000);

  test("2,000 steps neither grow the memory nor leave anything behind", async () => {
    const engine = await openCpuEngine({ threads: 2 });
    await run(engine);
    const before = engine.memory();
    for (let i = 0; i < 2000; i++) await run(engine);
    expect(engine.memory()).toEqual(before);
    await engine.dispose();
  }, 60_000);

  test("a worker that traps gives an error, and so does every later operation", async () => {
    const engine = await openCpuEngine({ threads: 2 });
    const t = engine.alloc([8], "f32", "t");
    expect(() => engine.provoke("trap")).toThrow(EngineError);
    expect(() => engine.fill(t, 1)).toThrow(/open a new engine/);
    await engine.dispose();
  });

  test("a worker that dies in the middle of its item gives an error, not a hang", async () => {
    const engine = await openCpuEngine({ threads: 2 });
    expect(() => engine.provoke("die")).toThrow(/worker thread 1 of the cpu engine/);
    expect(engine.sync()).rejects.toThrow(EngineError);
    await engine.dispose();
  });

  test("end with the process, whether or not the engine was disposed of", async () => {
    for (const last of ["", "await engine.dispose();"]) {
      const code = `
        const { openCpuEngine } = await import(${JSON.stringify(new URL("./index.ts", import.meta.url).href)});
        const engine = await openCpuEngine({ threads: 3 });
        const t = engine.alloc([100000], "f32", "t");
        engine.fill(t, 2);
        console.log(await engine.sumSquares([t]));
        ${last}`;
      const child = Bun.spawn([bun, "-e", code], { stdout: "pipe", stderr: "pipe" });
      expect(await child.exited).toBe(0);
      expect((await new Response(child.stdout).text()).trim()).toBe("400000");
    }
  });

  test("a disposed engine says so", async () => {
    const engine = await openCpuEngine({ threads: 2 });
    const t = engine.alloc([8], "f32", "t");
    await engine.dispose();
    expect(() => engine.fill(t, 1)).toThrow(/dispose/);
  });
});

describe("memory", () => {
  test("blocks are found again, joined and aligned", () => {
    const heap = new Heap();
    const blocks = [100, 5000, 64, 1, 70000].map((n) => heap.take(n, "b"));
    const top = blocks.at(-1)!.ptr + 70016;
    for (const b of blocks) expect(b.ptr % 64).toBe(0);
    for (const i of [3, 1, 4, 0, 2]) heap.give(blocks[i]!.ptr);
    expect(heap.usage.bytes).toBe(0);
    const whole = heap.take(top - blocks[0]!.ptr, "whole");
    expect(whole).toEqual({ ptr: blocks[0]!.ptr, bytes: top - blocks[0]!.ptr, fresh: false });
  });

  test("running out names the tensor, what is in use and what to lower", async () => {
    const engine = await openCpuEngine({ threads: 1 });
    engine.alloc([1 << 20], "f32", "small one");
    const all = () => engine.alloc([1 << 30], "f32", "too large");
    expect(all).toThrow(OutOfMemoryError);
    expect(all).toThrow(/"too large" \(4096\.0 MiB\).*small one 4\.0 MiB.*recomputation/);
    await engine.dispose();
  });
});

describe("arguments", () => {
  let engine: CpuEngine;
  beforeAll(async () => {
    engine = await openCpuEngine({ threads: 2 });
  });
  afterAll(() => engine.dispose());

  test("ids outside the table are refused, and nothing is written", () => {
    const [table, out] = [engine.alloc([5, 8], "f32", "table"), engine.alloc([2, 8], "f32", "out")];
    const ids = engine.alloc([2], "i32", "ids");
    engine.upload(ids, Int32Array.of(4, 5));
    expect(() => engine.embed(out, table, ids)).toThrow(/embed: "ids"\[1\] is 5, not in \[0, 5\)/);
  });
  test("shapes that do not fit are named", () => {
    const [a, b, c] = [
      engine.alloc([2, 3], "f32", "a"),
      engine.alloc([4, 3], "f32", "b"),
      engine.alloc([2, 5], "f32", "c"),
    ];
    expect(() => engine.matmul(c, a, b, { transB: true })).toThrow(/"c" \[2,5\], a "a" \[2,3\], b "b" \[4,3\]ᵀ/);
  });
  test("tensors of another engine and freed tensors are refused", async () => {
    const other = await openCpuEngine({ threads: 1 });
    const foreign = other.alloc([4], "f32", "foreign");
    expect(() => engine.fill(foreign, 0)).toThrow(/another engine/);
    const mine = engine.alloc([4], "f32", "mine");
    engine.free(mine);
    expect(() => engine.fill(mine, 0)).toThrow(/freed/);
    await other.dispose();
  });
});
