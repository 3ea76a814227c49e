import { describe, expect, test } from "bun:test";
import { uniform } from "../engine/random.ts";
import { difference, holm, interval, passAtK, passHatK, signFlip } from "./statistics.ts";

/** Standard normal draws by Box–Muller from the counter-based generator. */
function normal(seed: number): () => number {
  let counter = 0;
  return () => {
    const u = 1 - uniform(seed, counter++);
    const v = uniform(seed, counter++);
    return Math.sqrt(-2 * Math.log(u)) * Math.cos(2 * Math.PI * v);
  };
}

/** Share of simulated experiments whose 95 % interval holds the true mean. */
function coverage(draw: (experiment: number) => number[][], truth: number, experiments: number): number {
  let held = 0;
  for (let e = 0; e < experiments; e++) {
    const { low, high } = interval(draw(e), { seed: e + 7, replicates: 400, possible: [-9, 9] });
    if (low <= truth && truth <= high) held++;
  }
  return held / experiments;
}

describe("bootstrap interval", () => {
  test("covers the true success rate in 93 to 97 % of experiments (100 tasks, one seed)", () => {
    const covered = coverage(
      (e) => Array.from({ length: 100 }, (_, t) => [uniform(e + 1, t) < 0.4 ? 1 : 0]),
      0.4,
      2000,
    );
    expect(covered).toBeGreaterThanOrEqual(0.93);
    expect(covered).toBeLessThanOrEqual(0.97);
  });

  test("covers a mean over tasks and seeds in 93 to 97 % of experiments (60 tasks, 8 seeds, both vary)", () => {
    const covered = coverage(
      (e) => {
        const z = normal(e + 1);
        const seedEffect = Array.from({ length: 8 }, () => 0.1 * z());
        return Array.from({ length: 60 }, () => {
          const task = z();
          return seedEffect.map((s) => 0.5 + task + s + 0.2 * z());
        });
      },
      0.5,
      1500,
    );
    expect(covered).toBeGreaterThanOrEqual(0.93);
    expect(covered).toBeLessThanOrEqual(0.97);
  });

  test("all alike is not certain: 0 of 8 has the upper bound of Clopper and Pearson, 0.369", () => {
    const { mean, low, high } = interval(Array.from({ length: 8 }, () => [0]));
    expect([mean, low]).toEqual([0, 0]);
    expect(high).toBeCloseTo(0.369, 3);
  });

  test("a single task has no interval", () => {
    expect(interval([[1]]).low).toBeNaN();
  });

  test("missing values do not count", () => {
    expect(
      interval([
        [1, Number.NaN],
        [0, 1],
      ]).mean,
    ).toBeCloseTo(2 / 3);
  });
});

describe("paired difference", () => {
  const base = Array.from({ length: 80 }, (_, t) => [uniform(3, t) < 0.3 ? 1 : 0]);
  test("a clear gain excludes zero", () => {
    const better = base.map((row, t) => [row[0] === 1 || t % 2 === 0 ? 1 : 0]);
    const d = difference(better, base);
    expect(d.low).toBeGreaterThan(0);
    expect(d.p).toBeLessThan(0.01);
  });
  test("equal results give no difference, and still not certainty: 80 tasks leave room for 1 − 0.025^(1/80) of the range", () => {
    const d = difference(base, base);
    expect([d.mean, d.p]).toEqual([0, 1]);
    expect(d.high).toBeCloseTo(2 * (1 - 0.025 ** (1 / 80)), 12);
    expect(d.low).toBeCloseTo(-d.high, 12);
  });
  test("three tasks that all improve do not make a small p: 2 of 8 sign patterns are as extreme", () => {
    expect(difference([[1], [1], [1]], [[0], [0], [0]]).p).toBeCloseTo(0.25, 12);
  });
  test("under no difference the sign-flip p-value is below 5 % in about 5 % of experiments", () => {
    let small = 0;
    for (let e = 0; e < 1000; e++) {
      const d = Array.from({ length: 30 }, (_, t) => Math.floor(3 * uniform(e + 1, t)) - 1);
      if (signFlip(d, e) < 0.05) small++;
    }
    expect(small).toBeGreaterThan(15);
    expect(small).toBeLessThan(70);
  }, 60_000);
});

describe("Holm", () => {
  test("worked example", () => {
    const adjusted = holm([0.01, 0.04, 0.03, 0.005]);
    [0.03, 0.06, 0.06, 0.02].forEach((p, i) => {
      expect(adjusted[i]).toBeCloseTo(p, 10);
    });
  });
  test("NaN is passed over", () => {
    expect(holm([Number.NaN, 0.02])[1]).toBe(0.02);
  });
});

describe("k runs", () => {
  test("pass@k and pass^k by counting subsets", () => {
    // n = 4, c = 2: of the 6 pairs, 5 hold a right run and 1 holds two.
    expect(passAtK(4, 2, 2)).toBeCloseTo(5 / 6, 12);
    expect(passHatK(4, 2, 2)).toBeCloseTo(1 / 6, 12);
    expect(passAtK(4, 0, 2)).toBe(0);
    expect(passHatK(4, 4, 4)).toBe(1);
    expect(passAtK(2, 1, 3)).toBeNaN();
  });
});
