import { afterAll, expect, setDefaultTimeout, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { loadModelDir, weightReader } from "../model/hub.ts";
import { Model } from "../model/model.ts";
import { readSafetensors } from "../model/safetensors.ts";
import { DivergedError, documentsLoss, runSft, type SftOptions, TrainingDataError } from "./sft.ts";
import { countingDocuments, recordedContext, testEngine, tinyConfig, tinyModel } from "./testdata/tiny.ts";

setDefaultTimeout(60_000);
const root = mkdtempSync(join(tmpdir(), "sft-"));
afterAll(() => rmSync(root, { recursive: true }));
const freshDir = () => mkdtempSync(join(root, "run-"));
const engine = await testEngine();

async function optionsWith(change: Partial<SftOptions> = {}): Promise<SftOptions> {
  return {
    model: await tinyModel(engine),
    tokenizer: null,
    train: countingDocuments(40, 1),
    heldout: countingDocuments(10, 2),
    lr: 0.02,
    warmup: 0.1,
    epochs: 3,
    batchTokens: 64,
    microTokens: 40,
    cutoff: 64,
    weightDecay: 0.1,
    optimizer: "adamw",
    clip: 1,
    evaluateEvery: 8,
    ...change,
  };
}

const weightsOf = (modelDir: string) =>
  new Map([...readSafetensors(modelDir).tensors].map(([name, { data }]) => [name, data]));

/** The metrics file without what a clock says. */
const metricsOf = (dir: string) =>
  readFileSync(join(dir, "metrics.jsonl"), "utf8")
    .trim()
    .split("\n")
    .map((line) => ({ ...JSON.parse(line), tokensPerSecond: 0 }));

test("a small model learns the documents, and the held-out ones with them", async () => {
  const ctx = recordedContext(freshDir());
  const result = await runSft(await optionsWith({ epochs: 12 }), ctx);
  expect(result.end).toBe("finished");
  expect(result.heldout!.first).toBeGreaterThan(3);
  expect(result.heldout!.best).toBeLessThan(0.5);
  expect(result.trainLoss!).toBeLessThan(0.5);
  const losses = ctx.metrics.filter((m) => m.values.loss !== undefined);
  expect(losses.length).toBe(result.steps);
  expect(losses[0]!.values.loss!).toBeGreaterThan(3);
  const { config, weights } = loadModelDir(result.model);
  const best = await Model.load(engine, config, weightReader(weights));
  expect(await documentsLoss(best, countingDocuments(10, 2), 64)).toBeCloseTo(result.heldout!.best, 5);
});

test("only action tokens are learnt: changing what follows the last action changes nothing", async () => {
  const extended = countingDocuments(40, 1).map(({ ids, actionMask }, i) => ({
    ids: Int32Array.from([...ids, i % 24, (i * 7) % 24]),
    actionMask: Uint8Array.from([...actionMask, 0, 0]),
  }));
  const changed = extended.map(({ ids, actionMask }) => ({
    ids: ids.map((id, i) => (i >= ids.length - 2 ? 23 - id : id)),
    actionMask,
  }));
  const [a, b] = [freshDir(), freshDir()];
  const one = await runSft(await optionsWith({ train: extended, epochs: 1 }), recordedContext(a));
  const two = await runSft(await optionsWith({ train: changed, epochs: 1 }), recordedContext(b));
  expect(weightsOf(one.last)).toEqual(weightsOf(two.last));
});

test("accumulated micro-batches give the step of one batch", async () => {
  const step = async (microTokens: number) => {
    const dir = freshDir();
    return weightsOf((await runSft(await optionsWith({ microTokens, maxSteps: 2 }), recordedContext(dir))).last);
  };
  const [small, large] = [await step(12), await step(64)];
  const largest = (a: ArrayLike<number>, b: ArrayLike<number>) =>
    Math.max(...Array.from(a, (x, i) => Math.abs(x - b[i]!)));
  // Two AdamW steps move a weight by up to 0.04; where a gradient is near zero, f32 noise is a part of it.
  for (const [name, data] of large) expect(largest(data, small.get(name)!)).toBeLessThan(1e-4);
});

for (const optimizer of ["adamw", "muon"] as const) {
  test(`stopped and resumed, ${optimizer} comes to the same bits and the same metrics`, async () => {
    const [whole, parts] = [freshDir(), freshDir()];
    const undisturbed = await runSft(await optionsWith({ optimizer }), recordedContext(whole));
    for (const stopAt of [3, 11]) {
      const stopped = await runSft(await optionsWith({ optimizer }), recordedContext(parts, { stopAt }));
      expect(stopped).toMatchObject({ end: "asked_to_stop", steps: stopAt });
    }
    const resumed = await runSft(await optionsWith({ optimizer }), recordedContext(parts));
    expect({ ...resumed, model: "", last: "" }).toEqual({ ...undisturbed, model: "", last: "" });
    expect(weightsOf(resumed.last)).toEqual(weightsOf(undisturbed.last));
    expect(weightsOf(resumed.model)).toEqual(weightsOf(undisturbed.model));
    expect(metricsOf(parts)).toEqual(metricsOf(whole));
    // Run once more, it has nothing left to do and says the same.
    expect({
      ...(await runSft(await optionsWith({ optimizer }), recordedContext(parts))),
      model: "",
      last: "",
    }).toEqual({ ...undisturbed, model: "", last: "" });
  });
}

test("low-rank adapters learn beside weights that stay, and resume to the same bits", async () => {
  const adapted = async () =>
    optionsWith({
      model: await Model.create(engine, tinyConfig, 1, {
        lora: { rank: 4, alpha: 8, targets: ["q_proj", "v_proj", "down_proj"], seed: 2 },
      }),
    });
  const [whole, parts] = [freshDir(), freshDir()];
  const undisturbed = await runSft(await adapted(), recordedContext(whole));
  expect(undisturbed.heldout!.best).toBeLessThan(undisturbed.heldout!.first);
  expect(weightsOf(undisturbed.last)).toEqual(await (await tinyModel(engine)).arrays());
  await runSft(await adapted(), recordedContext(parts, { stopAt: 5 }));
  const resumed = await runSft(await adapted(), recordedContext(parts));
  const adaptersOf = (dir: string) => weightsOf(join(dir, "adapter", "adapter_model.safetensors"));
  expect(adaptersOf(resumed.last)).toEqual(adaptersOf(undisturbed.last));
  expect(JSON.parse(readFileSync(join(resumed.last, "adapter", "adapter_config.json"), "utf8"))).toMatchObject({
    peft_type: "LORA",
    r: 4,
  });
});

test("another seed takes the documents in another order", async () => {
  const one = await runSft(await optionsWith({ epochs: 1 }), recordedContext(freshDir(), { seed: 1 }));
  const two = await runSft(await optionsWith({ epochs: 1 }), recordedContext(freshDir(), { seed: 2 }));
  expect(weightsOf(one.last)).not.toEqual(weightsOf(two.last));
});

test("when the held-out loss stops falling, training stops and the best weights are kept", async () => {
  const unlike = countingDocuments(6, 3).map(({ ids, actionMask }) => ({
    ids: ids.map((id, i) => (actionMask[i] ? 39 - id : id)),
    actionMask,
  }));
  const ctx = recordedContext(freshDir());
  const result = await runSft(await optionsWith({ heldout: unlike, epochs: 40, patience: 2, evaluateEvery: 4 }), ctx);
  expect(result.end).toBe("early_stop");
  expect(result.steps).toBeLessThan(result.planned);
  expect(result.bestStep).toBe(result.steps - 8);
  const { config, weights } = loadModelDir(result.model);
  const best = await Model.load(engine, config, weightReader(weights));
  expect(await documentsLoss(best, unlike, 64)).toBeCloseTo(result.heldout!.best, 5);
});

test("a loss that is no number stops the run and names the last good state", async () => {
  const dir = freshDir();
  const error = await runSft(await optionsWith({ lr: 1e30, clip: 1e30, warmup: 0 }), recordedContext(dir)).catch(
    (e: unknown) => e,
  );
  expect(error).toBeInstanceOf(DivergedError);
  expect(String(error)).toContain(join(dir, "checkpoints", "step-000000"));
  expect(String(error)).toContain("Lower lr");
});

test("nothing to learn from is an error, cut documents are counted", async () => {
  const silent = countingDocuments(4, 1).map((d) => ({ ...d, actionMask: new Uint8Array(d.ids.length) }));
  expect(runSft(await optionsWith({ train: silent }), recordedContext(freshDir()))).rejects.toThrow(TrainingDataError);
  const ctx = recordedContext(freshDir());
  const result = await runSft(await optionsWith({ cutoff: 5, epochs: 1 }), ctx);
  expect(result.cut).toBeGreaterThan(5);
  expect(ctx.lines.join("\n")).toContain(`${result.cut} documents were cut to 5 tokens`);
});
