import { expect, test } from "bun:test";
import { openCpuEngine } from "../engine/cpu/index.ts";
import { growth, memoryCurve } from "./bench-memory.ts";

test("training keeps the engine's memory flat, and what leaks is told of", async () => {
  const engine = await openCpuEngine();
  const points = await memoryCurve(engine, 64);
  expect(points.map((p) => p.step)).toEqual([1, 8, 16, 24, 32, 40, 48, 56, 64]);
  const of = (what: "engineBytes" | "peakBytes") => new Set(points.slice(1).map((p) => p[what]));
  expect([of("engineBytes").size, of("peakBytes").size]).toEqual([1, 1]);
  const flat = points.map((p) => ({ ...p, heapBytes: 1, rssBytes: 1 }));
  expect(growth(flat)).toBeNull();
  flat[7]!.heapBytes = 2 ** 21;
  expect(growth(flat)).toBe("heapBytes went from 1 at step 8 to 2097152 at step 56");
  const leaking = await memoryCurve(engine, 64, () => void engine.alloc([64], "f32", "a leak"));
  expect(growth(leaking)).toMatch(/^engineBytes went from \d+ at step 8 to \d+ at step 16$/);
  await engine.dispose();
});
