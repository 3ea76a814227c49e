import { expect, test } from "bun:test";
import { openReferenceEngine } from "../engine/reference/index.ts";
import { meanNll, randomBatch, referenceConformance, SMALL, SMALL_CONV } from "./conformance.ts";
import { Model } from "./model.ts";
import { GradientError, Optimizer } from "./optimizer.ts";
import { countParameters } from "./parameters.ts";

referenceConformance("reference", openReferenceEngine);

const TINY = {
  ...SMALL_CONV,
  hidden_size: 6,
  intermediate_size: 5,
  head_dim: 4,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  vocab_size: 7,
};

for (const [name, config, lora, temperature] of [
  ["short convolution, untied", TINY, undefined, 1],
  ["plain, tied, temperature 0.6", { ...TINY, short_conv: undefined, tie_word_embeddings: true }, undefined, 0.6],
  ["adapters", TINY, { rank: 2, alpha: 3, targets: ["k_proj", "up_proj", "down_proj"], seed: 1 }, 1],
] as const) {
  test(`every gradient is the derivative of the loss: ${name}`, async () => {
    const engine = await openReferenceEngine();
    const options = lora ? { lora: { ...lora, targets: [...lora.targets] } } : {};
    const model = await Model.create(engine, config, 2, options);
    const batch = randomBatch([5, 1, 3], 7, 21);
    const weights = batch.rows.map((_, i) => (i % 4) - 1);
    const loss = async () =>
      (await model.logProbs(batch, { temperature })).lp.reduce((s, lp, i) => s + weights[i]! * lp, 0);
    // Embeddings near 0 would make the first norm's curvature larger than any step.
    const embedding = engine.values(model.parameters.get("model.embed_tokens.weight")!);
    embedding.forEach((v, i) => {
      embedding[i] = 25 * v;
    });
    for (const p of model.trainable()) if (p.name.includes("lora_B")) engine.values(p.value).fill(0.3);
    await model.forwardBackward(batch, () => ({ dLp: Float32Array.from(weights) }), { temperature });
    for (const { name: n, value, gradient } of model.trainable()) {
      const [v, g] = [engine.values(value), engine.values(gradient)];
      for (let i = 0; i < v.length; i += Math.ceil(v.length / 5)) {
        const kept = v[i]!;
        // Log-probabilities come back as f32: a wide step keeps their rounding below the tolerance.
        const h = 1e-3;
        v[i] = kept + h;
        const up = await loss();
        v[i] = kept - h;
        const down = await loss();
        v[i] = kept;
        const error = Math.abs((up - down) / (2 * h) - g[i]!);
        expect({ n, i, off: error > 2e-3 + 2e-3 * Math.abs(g[i]!) ? error : 0 }).toEqual({ n, i, off: 0 });
      }
    }
  });
}

test("a gradient that is not finite stops the step, names the parameter and changes nothing", async () => {
  const engine = await openReferenceEngine();
  const model = await Model.create(engine, SMALL, 1);
  const optimizer = new Optimizer(engine, model.trainable());
  await model.forwardBackward(randomBatch([4], 83, 1), meanNll);
  engine.values(model.gradients.get("model.norm.weight")!)[3] = Number.NaN;
  const before = await model.arrays();
  await expect(optimizer.step(1e-3)).rejects.toThrow(/model\.norm\.weight/);
  await expect(optimizer.step(1e-3)).rejects.toBeInstanceOf(GradientError);
  expect(await model.arrays()).toEqual(before);
  expect(optimizer.steps).toBe(0);
});

test("wrong batches, weights and configurations are refused with a reason", async () => {
  const engine = await openReferenceEngine();
  const model = await Model.create(engine, SMALL, 1);
  const batch = randomBatch([4], 83, 1);
  await expect(model.logProbs({ ...batch, ids: Int32Array.of(0, 1, 2, 83) })).rejects.toThrow(
    /83 is outside the vocabulary/,
  );
  await expect(model.logProbs({ ...batch, rows: Int32Array.of(0, 1, 1, 2) })).rejects.toThrow(/row 1 is given twice/);
  await expect(model.logProbs({ ...batch, cumulative: Int32Array.of(0, 3) })).rejects.toThrow(/from 0 to 4/);
  await expect(model.logProbs(batch, { temperature: 0 })).rejects.toThrow(/temperature 0: .* above 0/);
  await expect(Model.fromArrays(engine, SMALL, new Map())).rejects.toThrow(/embed_tokens.*missing/);
  await expect(Model.create(engine, { ...SMALL, num_key_value_heads: 3 }, 1)).rejects.toThrow(/4 heads do not divide/);
  await expect(
    Model.create(engine, SMALL, 1, { lora: { rank: 2, alpha: 2, targets: ["x_proj"], seed: 1 } }),
  ).rejects.toThrow(/"x_proj"/);
  // A refused batch leaves the model usable.
  expect((await model.logProbs(batch)).lp.length).toBe(4);
});

test("the number of parameters of Qwen3-0.6B", () => {
  const qwen = {
    ...SMALL,
    num_hidden_layers: 28,
    hidden_size: 1024,
    intermediate_size: 3072,
    num_attention_heads: 16,
    num_key_value_heads: 8,
    head_dim: 128,
    vocab_size: 151_936,
  };
  expect(countParameters(qwen)).toBe(596_049_920);
});
