/** Section 5, advantages: what each method does, and what a trainer is told. The figures of the reference are in reference.test.ts. */
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import {
  AdvantageError,
  type AdvantageMethod,
  advantages,
  type ByChannel,
  PAPER_ADVANTAGES,
  standardise,
} from "./advantages.ts";

// The same cases in every run.
fc.configureGlobal({ seed: 2026 });

const METHODS: AdvantageMethod[] = ["gdpo", "grpo", "dr_grpo", "rloo", "reinforce++"];
const flat = (n: number): number[] => new Array<number>(n).fill(0.3);
const only = (trajectory: number[]): ByChannel<number[]> => ({
  trajectory,
  phase: flat(trajectory.length),
  format: flat(trajectory.length),
});
const run = (
  method: AdvantageMethod,
  rewards: ByChannel<number[]>,
  groups: number[],
  weights = PAPER_ADVANTAGES.weights,
) => advantages(rewards, groups, { method, weights, epsilon: 1e-12 });
const mean = (xs: number[]): number => xs.reduce((a, b) => a + b, 0) / xs.length;
const close = (a: number[], b: number[]): void => a.forEach((x, i) => void expect(x).toBeCloseTo(b[i]!, 9));

describe("section 5: the methods", () => {
  const rewards = { trajectory: [0, 2, 1, 1], phase: [0, 0, 0, 0.5], format: [1, 1, 0, 1] };
  test("GDPO: each channel is normalised in its group, weighted, summed, and normalised over the batch", () => {
    const r = Math.SQRT1_2;
    const a = advantages(rewards, [0, 0, 1, 1], { ...PAPER_ADVANTAGES, epsilon: 1e-12 });
    close(a.perChannel.trajectory, [-r, r, 0, 0]);
    close(a.perChannel.phase, [0, 0, -r, r]);
    close(a.perChannel.format, [0, 0, -r, r]);
    close(a.combined, [-r, r, -0.75 * r, 0.75 * r]);
    close(a.values, standardise(a.combined, 1e-12));
  });
  test("GDPO keeps channels apart that a sum would hide", () => {
    // Outcome and format cancel in the sum; GDPO weighs the outcome four times as much.
    const opposed = { trajectory: [1, 0], phase: [0, 0], format: [0, 1] };
    expect(advantages(opposed, [0, 0], { ...PAPER_ADVANTAGES, method: "grpo" }).values).toEqual([0, 0]);
    expect(advantages(opposed, [0, 0]).values[0]).toBeGreaterThan(0.5);
  });
  test("GRPO: the sum, normalised in its group", () =>
    close(
      run("grpo", rewards, [0, 0, 1, 1]).values,
      [-1, 1, -1, 1].map((x) => x * Math.SQRT1_2),
    ));
  test("Dr.GRPO: the sum, centred in its group", () =>
    close(run("dr_grpo", rewards, [0, 0, 1, 1]).values, [-1, 1, -0.75, 0.75]));
  test("RLOO: the sum less the mean of the others", () =>
    close(run("rloo", only([0, 3, 6]), [0, 0, 0]).values, [-4.5, 0, 4.5]));
  test("RLOO is n/(n−1) times Dr.GRPO", () =>
    close(
      run("rloo", only([0, 3, 6]), [0, 0, 0]).values,
      run("dr_grpo", only([0, 3, 6]), [0, 0, 0]).values.map((x) => x * 1.5),
    ));
  test("REINFORCE++: the sum, normalised over the batch, whatever the group", () =>
    close(
      run("reinforce++", only([0, 1, 10, 11]), [0, 0, 1, 1]).values,
      run("reinforce++", only([0, 1, 10, 11]), [0, 1, 2, 3]).values,
    ));
  test("a group of one has mean 0 and std 1", () => {
    close(run("grpo", only([2]), [0]).values, [2.6]);
    close(run("dr_grpo", only([2]), [0]).values, [2.6]);
    close(run("rloo", only([2]), [0]).values, [2.6]);
    close(advantages(only([2]), [0]).perChannel.trajectory, [2 / (1 + 1e-6)]);
  });
  test("a channel of weight 0 is left out, by every method", () => {
    const weights = { trajectory: 1, phase: 0, format: 0 };
    for (const method of METHODS)
      close(
        run(method, { ...rewards, phase: [9, 1, 4, 2] }, [0, 0, 0, 0], weights).values,
        run(method, rewards, [0, 0, 0, 0], weights).values,
      );
  });
  test("groups may lie in any order in the batch", () => {
    for (const method of METHODS) {
      const a = run(method, only([0, 2, 5, 6]), [0, 0, 1, 1]).values;
      const b = run(method, only([0, 5, 2, 6]), [0, 1, 0, 1]).values;
      close(b, [a[0]!, a[2]!, a[1]!, a[3]!]);
    }
  });
});

describe("section 5: groups whose rollouts all score the same carry no signal", () => {
  test("they are counted by channel, and over all used channels", () => {
    const rewards = { trajectory: [1, 1, 1, 2], phase: [0, 0, 0, 0], format: [1, 0, 1, 1] };
    const { diagnostics } = advantages(rewards, [0, 0, 1, 1]);
    expect(diagnostics).toMatchObject({
      groups: 2,
      flatShare: { trajectory: 0.5, phase: 1, format: 0.5 },
      flatInAll: 0,
    });
    const outcomeOnly = { ...PAPER_ADVANTAGES, weights: { trajectory: 1, phase: 0.5, format: 0 } };
    expect(advantages(rewards, [0, 0, 1, 1], outcomeOnly).diagnostics.flatInAll).toBe(0.5);
  });
  test("a group of one is not flat", () => {
    expect(advantages(only([1, 2, 2]), [0, 1, 1]).diagnostics.flatShare.trajectory).toBe(1);
    expect(advantages(only([1]), [0]).diagnostics.flatShare.trajectory).toBeNull();
  });
  test("their advantages are 0", () => {
    for (const method of METHODS)
      close(advantages(only([0.1, 0.1, 0.1]), [0, 0, 0], { ...PAPER_ADVANTAGES, method }).values, [0, 0, 0]);
  });
  test("correlation of channels", () => {
    const rewards = { trajectory: [1, 2, 3], phase: [3, 2, 1], format: [1, 1, 1] };
    const { correlation } = advantages(rewards, [0, 0, 0]).diagnostics;
    expect(correlation["trajectory-phase"]).toBeCloseTo(-1, 9);
    expect(correlation["trajectory-format"]).toBeNull();
  });
});

describe("for any batch", () => {
  const batch = fc.array(
    fc.record({
      g: fc.nat(3),
      t: fc.double({ min: -2, max: 2, noNaN: true }),
      p: fc.double({ min: 0, max: 1, noNaN: true }),
      f: fc.constantFrom(0, 0.5, 1),
    }),
    { minLength: 1, maxLength: 24 },
  );
  test("values are finite; within a group the relative methods sum to 0; the batch-normalised have mean 0", () => {
    fc.assert(
      fc.property(batch, (xs) => {
        const rewards = { trajectory: xs.map((x) => x.t), phase: xs.map((x) => x.p), format: xs.map((x) => x.f) };
        const groups = xs.map((x) => x.g);
        for (const method of METHODS) {
          const { values } = advantages(rewards, groups, { ...PAPER_ADVANTAGES, method });
          expect(values.every(Number.isFinite)).toBe(true);
          if (method === "gdpo" || method === "reinforce++") {
            if (xs.length > 1) expect(Math.abs(mean(values))).toBeLessThan(1e-6);
          } else
            for (const g of new Set(groups)) {
              const own = values.filter((_, i) => groups[i] === g);
              if (own.length > 1) expect(Math.abs(mean(own))).toBeLessThan(1e-6);
            }
        }
      }),
      { numRuns: 500 },
    );
  });
  test("an empty batch gives empty results", () => expect(advantages(only([]), []).values).toEqual([]));
  test("rewards that do not fit are errors that say where", () => {
    expect(() => advantages(only([1, 2]), [0])).toThrow(AdvantageError);
    expect(() => advantages(only([1, Number.NaN]), [0, 0])).toThrow("trajectory reward 1 is NaN");
  });
});
