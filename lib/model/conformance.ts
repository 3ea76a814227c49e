/** The tests that the model must pass on every engine: PyTorch's figures, and the identities that a correct implementation has. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import { uniform } from "../engine/random.ts";
import { openReferenceEngine } from "../engine/reference/index.ts";
import type { Engine } from "../engine/types.ts";
import { Model, type ModelOptions } from "./model.ts";
import { Optimizer } from "./optimizer.ts";
import { readSafetensors } from "./safetensors.ts";
import type { LossGradient, ModelConfig, PackedBatch } from "./types.ts";

/** Where the numerical references lie: data beside the project, not part of it. */
const REFERENCE = join(process.env.PARAAGENT_SHARED ?? resolve(import.meta.dir, "../../../shared"), "reference");

/** A model of two layers that uses every option: grouped heads, odd sizes, heads × head_dim ≠ hidden size. */
export const SMALL: ModelConfig = {
  architectures: ["Qwen3ForCausalLM"],
  model_type: "qwen3",
  num_hidden_layers: 2,
  hidden_size: 40,
  intermediate_size: 56,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 16,
  vocab_size: 83,
  rope_theta: 10_000,
  rms_norm_eps: 1e-6,
  tie_word_embeddings: true,
  max_position_embeddings: 512,
};
export const SMALL_CONV: ModelConfig = { ...SMALL, tie_word_embeddings: false, short_conv: { q: 2, k: 3 } };

/** Documents of random ids, all rows trained on; target = next id (of the document's own continuation). */
export function randomBatch(lengths: number[], V: number, seed: number): PackedBatch {
  const T = lengths.reduce((a, b) => a + b, 0);
  const id = (i: number) => Math.floor(uniform(seed, i) * V);
  return {
    ids: Int32Array.from({ length: T }, (_, i) => id(i)),
    cumulative: Int32Array.from({ length: lengths.length + 1 }, (_, d) =>
      lengths.slice(0, d).reduce((a, b) => a + b, 0),
    ),
    rows: Int32Array.from({ length: T }, (_, i) => i),
    targets: Int32Array.from({ length: T }, (_, i) => id(i + 1)),
  };
}

/** Mean negative log-likelihood. */
export const meanNll = (lp: Float32Array): LossGradient & { loss: number } => ({
  loss: -lp.reduce((a, b) => a + b, 0) / lp.length,
  dLp: new Float32Array(lp.length).fill(-1 / lp.length),
});

interface Close {
  absolute?: number;
  /** Relative to the largest entry. */
  relative?: number;
}

export function expectClose(
  what: string,
  got: ArrayLike<number>,
  want: ArrayLike<number>,
  { absolute = 0, relative = 0 }: Close,
): void {
  expect(got.length).toBe(want.length);
  let [largest, worst, at] = [0, 0, 0];
  for (let i = 0; i < want.length; i++) {
    largest = Math.max(largest, Math.abs(want[i]!));
    const error = Math.abs(got[i]! - want[i]!);
    if (!(error <= worst)) [worst, at] = [error, i];
  }
  const allowed = absolute + relative * largest;
  if (!(worst <= allowed))
    throw new Error(`${what}[${at}] is ${got[at]}, expected ${want[at]}: off by ${worst}, ${allowed} is allowed`);
}

/** PPO with clipping at 0.2 and 0.001·k3, a mean over all tokens: as the reference files' metadata say. */
function ppo(old: Float32Array, ref: Float32Array, advantage: Float32Array) {
  return (lp: Float32Array) => {
    const dLp = new Float32Array(lp.length);
    let loss = 0;
    for (let i = 0; i < lp.length; i++) {
      const [A, ratio] = [advantage[i]!, Math.exp(lp[i]! - old[i]!)];
      const clipped = Math.min(Math.max(ratio, 0.8), 1.2);
      const d = ref[i]! - lp[i]!;
      loss += (-Math.min(ratio * A, clipped * A) + 0.001 * (Math.exp(d) - d - 1)) / lp.length;
      dLp[i] = ((ratio * A <= clipped * A ? -ratio * A : 0) + 0.001 * (1 - Math.exp(d))) / lp.length;
    }
    return { loss, dLp };
  };
}

/** The step that the reference files took, at lr 1e-3. */
const PYTORCH_STEP = { beta1: 0.9, beta2: 0.95, eps: 1e-8, weightDecay: 0.1, maxNorm: 1 };

interface ReferenceFile {
  config: ModelConfig;
  metadata: Record<string, string>;
  floats(name: string): Float32Array;
  /** Tensors under a prefix, by parameter name. */
  group(prefix: string): Map<string, Float32Array>;
  batch: PackedBatch;
  /** The entries of a [B,T] tensor at the trained rows. */
  atRows(name: string): Float32Array;
}

function openReference(path: string): ReferenceFile {
  const { metadata, tensors } = readSafetensors(path);
  const floats = (name: string): Float32Array => {
    const data = tensors.get(name)?.data;
    if (!(data instanceof Float32Array)) throw new Error(`${path} has no float tensor ${name}`);
    return data;
  };
  const number = (key: string) => Number(metadata[key]);
  const config: ModelConfig = {
    ...SMALL,
    num_hidden_layers: number("num_hidden_layers"),
    hidden_size: number("hidden_size"),
    intermediate_size: number("intermediate_size"),
    num_attention_heads: number("num_attention_heads"),
    num_key_value_heads: number("num_key_value_heads"),
    head_dim: number("head_dim"),
    vocab_size: number("vocab_size"),
    rope_theta: number("rope_theta"),
    rms_norm_eps: number("rms_norm_eps"),
    tie_word_embeddings: metadata.tie_word_embeddings === "True",
  };
  const { data: all, shape } = tensors.get("ids")!;
  const [B, T] = [shape[0]!, shape[1]! - 1];
  const ids = Int32Array.from({ length: B * T }, (_, i) => all[Math.floor(i / T) * (T + 1) + (i % T)]!);
  const next = Int32Array.from({ length: B * T }, (_, i) => all[Math.floor(i / T) * (T + 1) + (i % T) + 1]!);
  const rows = Int32Array.from(ids.keys()).filter((i) => floats("loss_mask")[i] === 1);
  return {
    config,
    metadata,
    floats,
    group: (prefix) =>
      new Map([...tensors.keys()].filter((n) => n.startsWith(prefix)).map((n) => [n.slice(prefix.length), floats(n)])),
    batch: {
      ids,
      cumulative: Int32Array.from({ length: B + 1 }, (_, b) => b * T),
      rows,
      targets: rows.map((r) => next[r]!),
    },
    atRows: (name) => Float32Array.from(rows, (r) => floats(name)[r]!),
  };
}

/** Registers the tests against shared/reference and the model's identities with bun:test. `open` is called once. */
export function referenceConformance(name: string, open: () => Promise<Engine>, timeout = 120_000): void {
  describe(`the model on ${name}`, () => {
    let engine: Engine;
    beforeAll(async () => {
      engine = await open();
    }, timeout);
    afterAll(async () => {
      await engine?.dispose();
    });
    const check = (what: string, body: () => Promise<void>) => test(what, body, timeout);

    async function using(
      config: ModelConfig,
      options: ModelOptions,
      body: (model: Model) => Promise<void>,
      seed = 1,
    ): Promise<void> {
      const model = await Model.create(engine, config, seed, options);
      await body(model);
      model.dispose();
    }
    const gradients = async (model: Model) => {
      const all = new Map<string, Float32Array>();
      for (const [n, g] of model.gradients) all.set(n, Float32Array.from(await engine.download(g)));
      return all;
    };

    for (const file of ["qwen3-even", "qwen3-odd"]) {
      const path = join(REFERENCE, `${file}.safetensors`);
      if (!existsSync(path)) {
        if (process.env.CI === "true")
          check(`${file}: PyTorch's figures`, async () => expect(path).toBe("a file that exists"));
        else {
          console.warn(`skipped: ${path} is not there (set PARAAGENT_SHARED to the folder that holds reference/)`);
          test.skip(`${file}: PyTorch's figures`, () => {});
        }
        continue;
      }
      check(`${file}: logits, loss, gradients and one AdamW step agree with PyTorch`, async () => {
        const r = openReference(path);
        const model = await Model.fromArrays(engine, r.config, r.group("param."));
        expectClose("logits", await model.logits(r.batch.ids, r.batch.cumulative), r.floats("logits"), {
          absolute: 1e-4,
        });
        const { loss } = await model.forwardBackward(r.batch, meanNll);
        expect(Math.abs(loss.loss - Number(r.metadata.sft_loss))).toBeLessThan(1e-4);
        for (const [n, g] of await gradients(model)) expectClose(n, g, r.floats(`sft_grad.${n}`), { relative: 1e-3 });
        const optimizer = new Optimizer(engine, model.trainable(), PYTORCH_STEP);
        const { gradNorm, clip } = await optimizer.step(1e-3);
        expect(Math.abs(gradNorm / Number(r.metadata.sft_grad_norm) - 1)).toBeLessThan(1e-4);
        // The first step is lr·g/(|g| + eps): where g is near eps (a few entries of 10,000) it shows the gradient's f32 noise, not the
        // step. There the step is compared by the next test, on PyTorch's own gradients.
        for (const [n, w] of await model.arrays()) {
          const [want, g] = [r.floats(`sft_after.${n}`), r.floats(`sft_grad.${n}`)];
          const clear = [...want.keys()].filter((i) => Math.abs(g[i]! * clip) > 10 * PYTORCH_STEP.eps || g[i] === 0);
          expect(want.length - clear.length).toBeLessThanOrEqual(want.length / 500);
          const at = (from: Float32Array) => clear.map((i) => from[i]!);
          expectClose(n, at(w), at(want), { absolute: 2e-5 });
        }
        optimizer.dispose();
        model.dispose();
      });
      check(`${file}: an AdamW step on PyTorch's gradients gives PyTorch's weights`, async () => {
        const r = openReference(path);
        const model = await Model.fromArrays(engine, r.config, r.group("param."));
        for (const { name: n, gradient } of model.trainable()) engine.upload(gradient, r.floats(`sft_grad.${n}`));
        const optimizer = new Optimizer(engine, model.trainable(), PYTORCH_STEP);
        await optimizer.step(1e-3);
        for (const [n, w] of await model.arrays()) expectClose(n, w, r.floats(`sft_after.${n}`), { absolute: 2e-5 });
        optimizer.dispose();
        model.dispose();
      });
      check(`${file}: the RL loss and its gradients agree with PyTorch`, async () => {
        const r = openReference(path);
        const model = await Model.fromArrays(engine, r.config, r.group("sft_after."));
        const { lp, loss } = await model.forwardBackward(
          r.batch,
          ppo(r.atRows("rl_old_logprobs"), r.atRows("rl_ref_logprobs"), r.atRows("rl_advantages")),
        );
        expectClose("log-probabilities", lp, r.atRows("rl_logprobs"), { absolute: 1e-4 });
        expect(Math.abs(loss.loss - Number(r.metadata.rl_loss))).toBeLessThan(1e-4);
        for (const [n, g] of await gradients(model)) expectClose(n, g, r.floats(`rl_grad.${n}`), { relative: 1e-3 });
        model.dispose();
      });
    }

    check("packed documents score as each alone", () =>
      using(SMALL_CONV, {}, async (model) => {
        const [a, b] = [randomBatch([13], 83, 5), randomBatch([1], 83, 6)];
        const both: PackedBatch = {
          ids: Int32Array.of(...a.ids, ...b.ids, ...a.ids),
          cumulative: Int32Array.of(0, 13, 14, 27),
          rows: Int32Array.from({ length: 27 }, (_, i) => i),
          targets: Int32Array.of(...a.targets, ...b.targets, ...a.targets),
        };
        const alone = [(await model.logProbs(a)).lp, (await model.logProbs(b)).lp];
        const { lp, entropy } = await model.logProbs(both);
        expectClose("lp", lp, [...alone[0]!, ...alone[1]!, ...alone[0]!], { absolute: 1e-5 });
        expect(entropy.every((h) => h > 0 && h <= Math.log(83))).toBe(true);
      }),
    );

    check("padding after a document changes nothing before it: scores and gradients", () =>
      using(SMALL_CONV, {}, async (model) => {
        const batch = randomBatch([9], 83, 7);
        const bare = await model.forwardBackward(batch, meanNll);
        const want = await gradients(model);
        model.zeroGrad();
        const padded: PackedBatch = {
          ...batch,
          ids: Int32Array.of(...batch.ids, 0, 0, 0, 0, 0),
          cumulative: Int32Array.of(0, 14),
        };
        const got = await model.forwardBackward(padded, meanNll);
        expectClose("lp", got.lp, bare.lp, { absolute: 1e-5 });
        for (const [n, g] of await gradients(model)) expectClose(n, g, want.get(n)!, { relative: 1e-4 });
      }),
    );

    check("gradients of two micro-batches add up to those of one batch", () =>
      using(SMALL, {}, async (model) => {
        const sum = (lp: Float32Array) => ({ dLp: new Float32Array(lp.length).fill(-1) });
        await model.forwardBackward(randomBatch([11, 6], 83, 8), sum);
        const want = await gradients(model);
        model.zeroGrad();
        const whole = randomBatch([11, 6], 83, 8);
        for (const [from, to] of [
          [0, 11],
          [11, 17],
        ] as const) {
          const part: PackedBatch = {
            ids: whole.ids.slice(from, to),
            cumulative: Int32Array.of(0, to - from),
            rows: Int32Array.from({ length: to - from }, (_, i) => i),
            targets: whole.targets.slice(from, to),
          };
          await model.forwardBackward(part, sum);
        }
        for (const [n, g] of await gradients(model)) expectClose(n, g, want.get(n)!, { relative: 1e-4 });
      }),
    );

    check("some rows, in any order, give the gradients that weights of zero on the others give", () =>
      using(SMALL, {}, async (model) => {
        const batch = randomBatch([12], 83, 9);
        await model.forwardBackward(batch, (lp) => ({ dLp: lp.map((_, i) => (i % 3 === 0 ? -1 : 0)) }));
        const want = await gradients(model);
        model.zeroGrad();
        const rows = Int32Array.of(9, 0, 6, 3);
        await model.forwardBackward({ ...batch, rows, targets: rows.map((r) => batch.targets[r]!) }, (lp) => ({
          dLp: lp.map(() => -1),
        }));
        for (const [n, g] of await gradients(model)) expectClose(n, g, want.get(n)!, { relative: 1e-4 });
        model.zeroGrad();
        await model.forwardBackward({ ...batch, rows: new Int32Array(0), targets: new Int32Array(0) }, (lp) => ({
          dLp: lp,
        }));
        expect(await model.gradNorm()).toBe(0);
      }),
    );

    check("recomputation gives the same bits", async () => {
      const batch = randomBatch([10, 7], 83, 10);
      let want = new Map<string, Float32Array>();
      for (const recompute of [false, true]) {
        await using(SMALL_CONV, { recompute }, async (model) => {
          await model.forwardBackward(batch, meanNll);
          if (!recompute) want = await gradients(model);
          else for (const [n, g] of await gradients(model)) expect({ n, g }).toEqual({ n, g: want.get(n)! });
        });
      }
    });

    for (const kind of ["adamw", "muon"] as const) {
      check(
        `${kind}: two runs give the same bits, learn, keep memory flat, and a restored run goes on the same`,
        async () => {
          const batch = randomBatch([16, 15], 83, 11);
          const runs: Map<string, Float32Array>[] = [];
          for (let run = 0; run < 3; run++) {
            await using(SMALL_CONV, {}, async (model) => {
              let m = model;
              let optimizer = new Optimizer(engine, m.trainable(), { kind });
              const losses: number[] = [];
              let bytes = 0;
              for (let step = 0; step < 8; step++) {
                m.zeroGrad();
                losses.push((await m.forwardBackward(batch, meanNll)).loss.loss);
                await optimizer.step(5e-3);
                if (step === 1) bytes = engine.memory().bytes;
                if (step > 1) expect(engine.memory().bytes).toBe(bytes);
                if (run === 2 && step === 3) {
                  const [weights, state] = [await m.arrays(), await optimizer.export()];
                  const fresh = await Model.fromArrays(engine, m.config, weights);
                  optimizer.dispose();
                  if (m !== model) m.dispose();
                  m = fresh;
                  optimizer = new Optimizer(engine, m.trainable(), { kind });
                  optimizer.import(state);
                  m.zeroGrad();
                  await m.forwardBackward(batch, meanNll);
                  bytes = engine.memory().bytes;
                }
              }
              expect(losses.at(-1)!).toBeLessThan(losses[0]! - 0.3);
              runs.push(await m.arrays());
              optimizer.dispose();
              if (m !== model) m.dispose();
            });
          }
          expect(runs[1]).toEqual(runs[0]!);
          // The reference engine keeps float64 between steps, which a checkpoint in f32 does not hold.
          if (engine.info.kind !== "reference") expect(runs[2]).toEqual(runs[0]!);
        },
      );
    }

    check("weights kept in bf16 train through f32 masters", () =>
      using(SMALL, { dtype: "bf16" }, async (model) => {
        const batch = randomBatch([20], 83, 12);
        const optimizer = new Optimizer(engine, model.trainable());
        const losses: number[] = [];
        for (let step = 0; step < 6; step++) {
          model.zeroGrad();
          losses.push((await model.forwardBackward(batch, meanNll)).loss.loss);
          await optimizer.step(2e-3);
        }
        expect(losses.at(-1)!).toBeLessThan(losses[0]! - 0.1);
        expect([...(await optimizer.export()).keys()]).toContain("master.model.embed_tokens.weight");
        optimizer.dispose();
      }),
    );

    check("masked rows: probabilities are renormalised over the allowed tokens", () =>
      using(SMALL, {}, async (model) => {
        const batch = randomBatch([6], 83, 13);
        const words = 3;
        const bits = new Uint32Array(2 * words);
        for (let v = 0; v < 83; v += 5) bits[v >> 5]! |= 1 << (v & 31);
        for (const [i, t] of batch.targets.entries()) if (i % 2 === 0) bits[t >> 5]! |= 1 << (t & 31);
        bits[words + (batch.targets[1]! >> 5)]! |= 1 << (batch.targets[1]! & 31);
        const row = Int32Array.of(0, 1, 0, -1, 0, -1);
        const logits = await model.logits(batch.ids, batch.cumulative);
        const want = Array.from(batch.targets, (target, i) => {
          const allowed = (v: number) => row[i]! < 0 || ((bits[row[i]! * words + (v >> 5)]! >>> (v & 31)) & 1) === 1;
          const line = logits.subarray(i * 83, (i + 1) * 83);
          return line[target]! - Math.log(line.reduce((s, l, v) => s + (allowed(v) ? Math.exp(l) : 0), 0));
        });
        const { lp } = await model.forwardBackward({ ...batch, masks: { bits, row } }, meanNll);
        expectClose("lp", lp, want, { absolute: 1e-4 });
        expect(Math.abs(lp[1]!)).toBeLessThan(1e-5);
      }),
    );

    check(
      "at a temperature: scores and gradients are those of the float64 reference, masked rows included",
      async () => {
        const batch = randomBatch([14, 9], 83, 16);
        const bits = new Uint32Array(batch.targets.length * 3);
        for (const [i, target] of batch.targets.entries())
          for (let v = 0; v < 83; v++) if (v === target || (v + i) % 3 > 0) bits[3 * i + (v >> 5)]! |= 1 << (v & 31);
        const masks = { bits, row: batch.targets.map((_, i) => (i % 2 ? i : -1)) };
        const exact = await Model.create(await openReferenceEngine(), SMALL_CONV, 6);
        // Larger embeddings than at the start of training: distributions that are far from uniform.
        for (const n of ["model.embed_tokens.weight", "lm_head.weight"]) {
          const tensor = exact.parameters.get(n)!;
          exact.engine.axpby(tensor, 12, tensor, 0, tensor);
        }
        const model = await Model.fromArrays(engine, SMALL_CONV, await exact.arrays());
        const logits = await model.logits(batch.ids, batch.cumulative);
        for (const temperature of [0.5, 1.7]) {
          for (const m of [model, exact]) m.zeroGrad();
          const got = await model.forwardBackward({ ...batch, masks }, meanNll, { temperature });
          const want = await exact.forwardBackward({ ...batch, masks }, meanNll, { temperature });
          expectClose("lp", got.lp, want.lp, { absolute: 1e-4 });
          expectClose("entropy", got.entropy, want.entropy, { absolute: 1e-4 });
          for (const [n, gradient] of exact.gradients) {
            const [found, value] = [
              await engine.download(model.gradients.get(n)!),
              await exact.engine.download(gradient),
            ];
            expectClose(n, found, value, { absolute: 1e-6, relative: 1e-3 });
          }
          // By hand, from the logits of the first row, which has no mask.
          const line = Float64Array.from(logits.subarray(0, 83), (x) => x / temperature);
          const byHand = line[batch.targets[0]!]! - Math.log(line.reduce((s, x) => s + Math.exp(x), 0));
          expectClose("by hand", [got.lp[0]!], [byHand], { absolute: 1e-4 });
        }
        model.dispose();
      },
    );

    check("adapters: unchanged at first, trained alone, merged equals unmerged, read back", async () => {
      const lora = { rank: 4, alpha: 8, targets: ["q_proj", "v_proj", "o_proj", "gate_proj", "down_proj"], seed: 3 };
      const batch = randomBatch([14, 9], 83, 14);
      for (const dtype of ["f32", "bf16"] as const) {
        await using(SMALL, { lora, dtype }, async (model) => {
          const base = (await model.logProbs(batch, { adapted: false })).lp;
          expectClose("untrained", (await model.logProbs(batch)).lp, base, { absolute: 1e-6 });
          const weights = await model.arrays();
          const optimizer = new Optimizer(engine, model.trainable());
          for (let step = 0; step < 4; step++) {
            model.zeroGrad();
            await model.forwardBackward(batch, meanNll);
            await optimizer.step(1e-2);
          }
          expect(await model.arrays()).toEqual(weights);
          expect((await model.logProbs(batch, { adapted: false })).lp).toEqual(base);
          const adapted = (await model.logProbs(batch)).lp;
          expect(meanNll(adapted).loss).toBeLessThan(meanNll(base).loss - 0.05);
          const saved = await model.adapters!.export();
          const again = await Model.fromArrays(engine, SMALL, weights, { lora, dtype });
          again.adapters!.import(saved.tensors);
          expect((await again.logProbs(batch)).lp).toEqual(adapted);
          again.dispose();
          optimizer.dispose();
          await model.mergeAdapters();
          expectClose("merged", (await model.logProbs(batch)).lp, adapted, { absolute: dtype === "f32" ? 1e-4 : 0.05 });
        });
      }
    });

    check("memory falls back when a model is disposed of", async () => {
      const before = engine.memory().bytes;
      await using(SMALL_CONV, {}, async (model) => {
        await model.forwardBackward(randomBatch([7], 83, 15), meanNll);
        await model.forwardBackward(randomBatch([170], 83, 15), meanNll);
      });
      expect(engine.memory().bytes).toBe(before);
    });
  });
}
