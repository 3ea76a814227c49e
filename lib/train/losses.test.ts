import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { uniform } from "../engine/random.ts";
import { readSafetensors } from "../model/safetensors.ts";
import { type PolicyLossInput, type PolicyLossOptions, ppoLoss, sftLoss, tokenWeight } from "./losses.ts";
import { learningRate } from "./schedule.ts";

const referenceDir = process.env.PARAAGENT_REFERENCE ?? "/work/shared/reference";

for (const name of ["even", "odd"]) {
  const path = join(referenceDir, `qwen3-${name}.safetensors`);
  test.skipIf(!existsSync(path))(`PPO with KL gives the reference's numbers (${name})`, () => {
    const { metadata, tensors } = readSafetensors(path);
    const mask = tensors.get("loss_mask")!.data;
    const masked = (tensor: string) => new Float32Array(tensors.get(tensor)!.data).filter((_, i) => mask[i] !== 0);
    const lp = masked("rl_logprobs");
    const result = ppoLoss(
      {
        lp,
        old: masked("rl_old_logprobs"),
        reference: masked("rl_ref_logprobs"),
        advantages: masked("rl_advantages"),
        weights: new Float32Array(lp.length).fill(1 / lp.length),
      },
      { clip: 0.2, kl: 0.001 },
    );
    expect(Math.abs(result.loss - Number(metadata.rl_loss))).toBeLessThan(1e-6);
    expect(Math.abs(result.policy - Number(metadata.rl_pg_loss))).toBeLessThan(1e-6);
    expect(Math.abs(result.kl - Number(metadata.rl_kl))).toBeLessThan(1e-6);
    expect(Math.abs(result.clipFraction - Number(metadata.rl_clip_fraction))).toBeLessThan(1e-6);
  });

  test.skipIf(!existsSync(path))(`SFT gives the reference's loss from its logits (${name})`, () => {
    const { metadata, tensors } = readSafetensors(path);
    const logits = tensors.get("logits")!;
    const vocabulary = logits.shape.at(-1)!;
    const [, width] = tensors.get("ids")!.shape as [number, number];
    const mask = tensors.get("loss_mask")!.data;
    const lp: number[] = [];
    mask.forEach((on, i) => {
      if (on === 0) return;
      const row = [...logits.data.subarray(i * vocabulary, (i + 1) * vocabulary)];
      const target = tensors.get("ids")!.data[Math.floor(i / (width - 1)) * width + (i % (width - 1)) + 1]!;
      lp.push(row[target]! - Math.log(row.reduce((sum, x) => sum + Math.exp(x), 0)));
    });
    expect(Math.abs(sftLoss(Float32Array.from(lp), lp.length).loss - Number(metadata.sft_loss))).toBeLessThan(1e-5);
  });
}

/** A random batch with ratios on both sides of the clip range, both signs of advantage, and a few outliers. */
function randomInput(n: number, seed: number): PolicyLossInput {
  const draw = (stream: number, scale: number) =>
    Float32Array.from({ length: n }, (_, i) => scale * (uniform(seed * 7 + stream, i) - 0.5));
  const lp = draw(0, 2).map((x) => x - 3);
  return {
    lp,
    old: draw(1, 1).map((x, i) => lp[i]! + x),
    reference: draw(2, 3).map((x, i) => lp[i]! + (i % 17 === 0 ? 30 : i % 13 === 0 ? 3.5 : x)),
    advantages: draw(3, 4),
    weights: draw(4, 0.2).map((x) => x + 0.2),
  };
}

const variants: PolicyLossOptions[] = [
  { clip: 0.2, kl: 0 },
  { clip: 0.2, kl: 0.05 },
  { clip: 0.2, clipHigh: 0.28, kl: 0.001 },
  { clip: 0.1, dualClip: 1.2, kl: 0.01 },
];

test("each variant's gradient is the slope of its loss", () => {
  for (const [v, options] of variants.entries()) {
    const input = randomInput(60, v + 1);
    const { dLp } = ppoLoss(input, options);
    for (let m = 0; m < 60; m++) {
      const h = 2 ** -12;
      const at = (delta: number) =>
        ppoLoss({ ...input, lp: input.lp.map((x, i) => (i === m ? Math.fround(x + delta) : x)) }, options);
      const slopes = [at(h), at(-h), at(0)].map((r) => r.loss);
      const [right, left] = [(slopes[0]! - slopes[2]!) / h, (slopes[2]! - slopes[1]!) / h];
      // Beside a kink of the clip the two slopes differ, and the gradient is one of them.
      const error = Math.min(
        Math.abs(dLp[m]! - right),
        Math.abs(dLp[m]! - left),
        Math.abs(dLp[m]! - (left + right) / 2),
      );
      expect(error).toBeLessThan(2e-3 * Math.max(1, Math.abs(dLp[m]!)));
    }
  }
});

test("on policy, the gradient is −A and nothing is clipped", () => {
  const input = randomInput(20, 9);
  const result = ppoLoss({ ...input, old: input.lp, reference: input.lp }, { clip: 0.2, kl: 0.1 });
  expect(result.clipFraction).toBe(0);
  expect(result.kl).toBe(0);
  expect(result.dLp).toEqual(input.advantages.map((a, i) => -a * input.weights[i]!));
});

test("a token far outside the clip range gets no gradient in the direction it already went", () => {
  const one = (ratio: number, advantage: number) =>
    ppoLoss(
      {
        lp: new Float32Array([Math.log(ratio) - 1]),
        old: new Float32Array([-1]),
        reference: null,
        advantages: new Float32Array([advantage]),
        weights: new Float32Array([1]),
      },
      { clip: 0.2, kl: 0 },
    );
  expect(one(1.5, 1)).toMatchObject({ clipFraction: 1, dLp: new Float32Array([0]) });
  expect(one(0.5, -1)).toMatchObject({ clipFraction: 1, dLp: new Float32Array([0]) });
  expect(one(1.5, -1).dLp[0]).toBeCloseTo(1.5, 5);
  expect(one(0.5, 1).dLp[0]).toBeCloseTo(-0.5, 5);
});

test("losses of micro-batches add up to the batch's", () => {
  const whole = randomInput(50, 4);
  const part = (from: number, to: number): PolicyLossInput => ({
    lp: whole.lp.slice(from, to),
    old: whole.old.slice(from, to),
    reference: whole.reference!.slice(from, to),
    advantages: whole.advantages.slice(from, to),
    weights: whole.weights.slice(from, to),
  });
  const options = { clip: 0.2, kl: 0.01 };
  const [a, b, all] = [part(0, 21), part(21, 50), whole].map((input) => ppoLoss(input, options));
  for (const key of ["loss", "policy", "kl", "clipFraction", "ratio"] as const)
    expect(a![key] + b![key]).toBeCloseTo(all![key], 10);
  expect([...a!.dLp, ...b!.dLp]).toEqual([...all!.dLp]);
  expect(sftLoss(new Float32Array([-1, -3]), 4).loss + sftLoss(new Float32Array([-2, -6]), 4).loss).toBe(3);
});

test("token weights of the three aggregates", () => {
  const batch = { tokens: 30, trajectories: 2, maxLength: 40 };
  expect(tokenWeight("token", 10, batch)).toBe(1 / 30);
  expect(tokenWeight("trajectory", 10, batch)).toBe(1 / 20);
  expect(tokenWeight("constant", 10, batch)).toBe(1 / 80);
});

test("the learning rate warms up, peaks once, and falls as asked", () => {
  const cosine = { lr: 1, warmup: 0.1, steps: 100, shape: "cosine" as const };
  const rates = Array.from({ length: 100 }, (_, step) => learningRate(step, cosine));
  expect(rates[0]).toBeCloseTo(0.1, 12);
  expect(rates[9]).toBe(1);
  expect(rates[10]).toBe(1);
  expect(rates[55]).toBeCloseTo(0.5, 12);
  for (let step = 11; step < 100; step++) expect(rates[step]!).toBeLessThan(rates[step - 1]!);
  expect(rates[99]!).toBeGreaterThan(0);
  expect(learningRate(99, { ...cosine, minRatio: 0.1 })).toBeGreaterThan(0.1);
  expect(learningRate(50, { ...cosine, shape: "constant" })).toBe(1);
  expect(learningRate(55, { ...cosine, shape: "linear" })).toBeCloseTo(0.5, 12);
  expect(learningRate(0, { ...cosine, warmup: 0 })).toBe(1);
});
