import { afterAll, expect, setDefaultTimeout, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { encodePrompt } from "../agents/chat.ts";
import { localPolicy } from "../agents/local.ts";
import { createGenerator } from "../model/generator.ts";
import { Model } from "../model/model.ts";
import { Optimizer } from "../model/optimizer.ts";
import { readSafetensors } from "../model/safetensors.ts";
import type { Policy, Trajectory } from "../paraact/types.ts";
import { type RlEnvironment, type RlOptions, type RlTask, runRl } from "./rl.ts";
import { toRollout } from "./rollouts.ts";
import { DivergedError } from "./sft.ts";
import { config, environment, tasks, tokenizer } from "./testdata/letters.ts";
import { countingDocuments, recordedContext, testEngine } from "./testdata/tiny.ts";
import { isOneStep, score, update } from "./update.ts";

setDefaultTimeout(60_000);
const root = mkdtempSync(join(tmpdir(), "rl-"));
afterAll(() => rmSync(root, { recursive: true }));
const freshDir = () => mkdtempSync(join(root, "run-"));
const engine = await testEngine();
async function optionsWith(change: Partial<RlOptions<RlTask>> = {}): Promise<RlOptions<RlTask>> {
  const model = await Model.create(engine, config, 3);
  const generator = createGenerator(model, { maxBatch: 16, cacheTokens: 4096 });
  return {
    model,
    tokenizer,
    generator,
    policy: localPolicy({ generator, tokenizer, contextTokens: 256 }),
    environment,
    ...{
      steps: 4,
      prompts: 2,
      group: 4,
      miniBatch: 1,
      epochs: 1,
      lr: 0.02,
      warmup: 0,
      temperature: 1,
      clip: 0.2,
      kl: 0.001,
    },
    advantage: "gdpo",
    weights: { trajectory: 1, phase: 0.5, format: 0.25 },
    dynamicSampling: false,
    microTokens: 200,
    evaluateEvery: 3,
    checkpointEvery: 1,
    ...change,
  };
}

const weightsOf = (dir: string) => new Map([...readSafetensors(dir).tensors].map(([name, { data }]) => [name, data]));
const clocked = /tokensPerSecond|Share$/;
const metricsOf = (dir: string) =>
  readFileSync(join(dir, "metrics.jsonl"), "utf8")
    .trim()
    .split("\n")
    .map((line) => Object.fromEntries(Object.entries(JSON.parse(line)).filter(([name]) => !clocked.test(name))));

test("rewards rise, and every step says how it went", async () => {
  const ctx = recordedContext(freshDir());
  const result = await runRl(
    await optionsWith({ lr: 0.1, steps: 10, miniBatch: 2, group: 8, evaluateEvery: 10, evaluationTemperature: 1 }),
    ctx,
  );
  const steps = ctx.metrics.filter((m) => m.values.rewardTrajectory !== undefined);
  expect(steps.length).toBe(10);
  const rewards = steps.map((m) => m.values.rewardTrajectory!);
  expect(rewards[0]!).toBeLessThan(0.65);
  expect((rewards[8]! + rewards[9]!) / 2).toBeGreaterThan(0.75);
  expect(result.heldout!.last.rewardTrajectory!).toBeGreaterThan(result.heldout!.first.rewardTrajectory!);
  for (const { values } of steps) {
    const names = [
      "rewardPhase",
      "rewardFormat",
      "success",
      "turns",
      "kl",
      "entropy",
      "clipFraction",
      "ratio",
      "loss",
      "gradNorm",
      "flat/phase",
      "driftMean",
    ];
    for (const name of names) expect(values[name]).toBeNumber();
    expect(values["flat/phase"]).toBe(1);
    expect(values.driftMax!).toBeLessThan(1e-4);
    expect(values.rolloutShare! + values.rewardShare! + values.updateShare!).toBeCloseTo(1, 9);
  }
  expect(steps[0]!.values.ratio).toBeCloseTo(1, 6);
  expect(steps[0]!.values.kl).toBeCloseTo(0, 6);
  expect(steps.at(-1)!.values.kl!).toBeGreaterThan(0.001);
  expect(result).toMatchObject({ end: "finished", steps: 10, drawn: 20, episodes: 160 });
});

test("stopped and resumed it comes to the same weights and the same metrics", async () => {
  const [whole, parts] = [freshDir(), freshDir()];
  const undisturbed = await runRl(await optionsWith({ epochs: 2 }), recordedContext(whole));
  expect(await runRl(await optionsWith({ epochs: 2 }), recordedContext(parts, { stopAt: 1 }))).toMatchObject({
    end: "asked_to_stop",
    steps: 1,
  });
  expect(await runRl(await optionsWith({ epochs: 2 }), recordedContext(parts, { stopAt: 3 }))).toMatchObject({
    end: "asked_to_stop",
    steps: 3,
  });
  const resumed = await runRl(await optionsWith({ epochs: 2 }), recordedContext(parts));
  expect({ ...resumed, model: "", last: "" }).toEqual({ ...undisturbed, model: "", last: "" });
  expect(weightsOf(resumed.last)).toEqual(weightsOf(undisturbed.last));
  expect(metricsOf(parts)).toEqual(metricsOf(whole));
});

test("with adapters, the policy without them is the reference", async () => {
  const model = await Model.create(engine, config, 3, {
    lora: { rank: 8, alpha: 32, targets: ["q_proj", "o_proj", "down_proj"], seed: 4 },
  });
  const generator = createGenerator(model, { maxBatch: 16, cacheTokens: 4096 });
  const policy = localPolicy({ generator, tokenizer, contextTokens: 256 });
  const ctx = recordedContext(freshDir());
  await runRl(await optionsWith({ model, generator, policy, steps: 3, lr: 0.05, miniBatch: 2 }), ctx);
  const kl = ctx.metrics.flatMap((m) => m.values.kl ?? []);
  expect(kl[0]!).toBeLessThan(1e-6);
  expect(kl[2]!).toBeGreaterThan(1e-3);
  for (const { values } of ctx.metrics) if (values.driftMax !== undefined) expect(values.driftMax).toBeLessThan(1e-4);
});

test("at other temperatures, the training pass scores what was sampled", async () => {
  for (const temperature of [0.6, 1.5]) {
    const ctx = recordedContext(freshDir());
    await runRl(await optionsWith({ temperature, steps: 2, miniBatch: 2, lr: 0.05 }), ctx);
    const steps = ctx.metrics.filter((m) => m.values.driftMax !== undefined);
    expect(steps.length).toBe(2);
    for (const { values } of steps) expect(values.driftMax!).toBeLessThan(1e-4);
    // Also against the reference policy, which the first step's weights still are.
    expect(steps[0]!.values.ratio).toBeCloseTo(1, 5);
    expect(steps[0]!.values.kl).toBeCloseTo(0, 6);
  }
});

test("groups that all score the same are counted, warned of, and teach nothing", async () => {
  const flat = { ...environment, score: () => ({ trajectory: 1, phase: 0, format: 1, terms: [] }) };
  const ctx = recordedContext(freshDir());
  const options = await optionsWith({ environment: flat, steps: 2 });
  const before = await options.model.arrays();
  await runRl(options, ctx);
  expect(await options.model.arrays()).toEqual(before);
  expect(ctx.lines.join("\n")).toContain("NOTHING IS LEARNT");
  expect(ctx.lines.join("\n")).toContain('warning "flat groups": 2 of 2 steps');
  expect(ctx.metrics.find((m) => m.step === 1)!.values["flat/all"]).toBe(1);
});

test("dynamic sampling replaces groups without signal, within its bound", async () => {
  const half = {
    ...environment,
    score: (task: RlTask, trajectory: Trajectory) =>
      task.shape === "single" ? { trajectory: 1, phase: 0, format: 1, terms: [] } : environment.score(task, trajectory),
  };
  const ctx = recordedContext(freshDir());
  const result = await runRl(await optionsWith({ environment: half, steps: 2, dynamicSampling: true }), ctx);
  expect(result.drawn).toBeGreaterThan(4);
  expect(result.drawn).toBeLessThanOrEqual(12);
  for (const { values } of ctx.metrics.filter((m) => m.values.loss !== undefined)) expect(values["flat/all"]).toBe(0);
});

test("broken episodes are left out and counted; if all break, the reason is told", async () => {
  let played = 0;
  const breaking: RlEnvironment<RlTask> = {
    ...environment,
    async play(task, player) {
      const trajectory = await environment.play(task, player);
      return player.id.endsWith("/0") && ++played
        ? { ...trajectory, end: "environment_error", error: "socket closed" }
        : trajectory;
    },
  };
  const ctx = recordedContext(freshDir());
  await runRl(await optionsWith({ environment: breaking, steps: 1 }), ctx);
  expect(ctx.metrics.find((m) => m.step === 1)!.values.failed).toBe(2);
  const dead: RlEnvironment<RlTask> = {
    ...environment,
    play: async (task, player) => ({
      ...(await environment.play(task, player)),
      turns: [],
      end: "environment_error",
      error: "socket closed",
    }),
  };
  expect(runRl(await optionsWith({ environment: dead }), recordedContext(freshDir()))).rejects.toThrow(
    /every episode broke.*socket closed/,
  );
});

test("a policy that runs away from its reference stops the run", async () => {
  const error = await runRl(
    await optionsWith({ lr: 1, maxKl: 0.5, steps: 8, evaluateEvery: 8 }),
    recordedContext(freshDir()),
  ).catch((e: unknown) => e);
  expect(error).toBeInstanceOf(DivergedError);
  expect(String(error)).toMatch(/KL to the reference policy|not finite|loss is/);
  expect(String(error)).toContain("last good state is");
});

test("log-probabilities that do not match the training pass are told", async () => {
  const options = await optionsWith({ steps: 1 });
  const inner = options.policy;
  const policy: Policy = {
    ...inner,
    async reply(request) {
      const reply = await inner.reply(request);
      return { ...reply, tokens: { ...reply.tokens!, logprobs: reply.tokens!.logprobs.map((lp) => lp - 0.25) } };
    },
  };
  const ctx = recordedContext(freshDir());
  await runRl({ ...options, policy }, ctx);
  expect(ctx.metrics.find((m) => m.step === 1)!.values.driftMean).toBeCloseTo(0.25, 4);
  expect(ctx.lines.join("\n")).toMatch(/WARNING: log-probabilities at sampling and in training differ by up to 2.5e-1/);
});

test("masks of constrained decoding are used again in training: the probabilities agree, and without them they would not", async () => {
  const run = async (keepMasks: boolean) => {
    const options = await optionsWith({ steps: 2, miniBatch: 2 });
    const generator = createGenerator(options.model, { maxBatch: 16, cacheTokens: 4096 });
    const even = new Uint32Array(Math.ceil(config.vocab_size / 32)).fill(0x55555555);
    const policy: Policy = {
      name: "constrained",
      async reply({ messages, maxNewTokens, temperature, seed }) {
        let n = 0;
        const constraint = { allowed: () => (n % 3 === 2 ? null : even), accept: () => void n++ };
        const promptIds = encodePrompt(messages, tokenizer);
        const { masks, ...result } = await generator.generate({
          promptIds,
          maxNewTokens,
          temperature,
          seed,
          stopIds: [],
          constraint,
        });
        const tokens = { ...result, ...(keepMasks && masks ? { masks } : {}) };
        return {
          text: tokenizer.decode(result.ids),
          tokens,
          finish: "length",
          usage: { promptTokens: 0, completionTokens: 4, estimated: false },
        };
      },
    };
    const ctx = recordedContext(freshDir());
    await runRl({ ...options, generator, policy }, ctx);
    const steps = ctx.metrics.filter((m) => m.values.loss !== undefined);
    return {
      drift: Math.max(...steps.map((m) => m.values.driftMax!)),
      ratio: steps[0]!.values.ratio,
      lines: ctx.lines.join("\n"),
    };
  };
  const [kept, lost] = [await run(true), await run(false)];
  expect(kept.drift).toBeLessThan(1e-4);
  expect(kept.ratio).toBeCloseTo(1, 5);
  // Half of the vocabulary was forbidden: unmasked, the log-probabilities are about log 2 lower.
  expect(lost.drift).toBeGreaterThan(0.5);
  expect(lost.lines).toContain("WARNING: log-probabilities");
});

test("a batch that is one PPO step scores itself: the weights are those of a scoring pass before it", async () => {
  const documents = countingDocuments(8, 5);
  const run = async (scoredBefore: boolean) => {
    const options = await optionsWith({ prompts: 4, miniBatch: 4, microTokens: 40 });
    expect(isOneStep(options)).toBe(true);
    const before = await score(options.model, documents, 40, { temperature: 1 });
    const optimizer = new Optimizer(engine, options.model.trainable(), { kind: "muon", weightDecay: 0, maxNorm: 1 });
    const groups = [0, 2, 4, 6].map((i) => [i, i + 1]);
    const advantages = { values: documents.map((_, i) => (i % 2 ? 1 : -0.5)) };
    const old = scoredBefore ? before.lp : null;
    const updated = await update(
      options,
      { documents, groups, advantages, old, reference: before.lp },
      optimizer,
      0.02,
    );
    return { before, updated, weights: await options.model.arrays() };
  };
  const [two, one] = [await run(true), await run(false)];
  expect(one.weights).toEqual(two.weights);
  expect(one.updated).toEqual(two.updated);
  expect(one.updated.scored.lp).toEqual(one.before.lp);
  expect(one.updated.scored.entropy).toBeCloseTo(one.before.entropy, 6);
  expect(one.updated.ratio).toBeCloseTo(1, 6);
});

test("wrong use is refused with the reason", async () => {
  const ctx = recordedContext(freshDir());
  expect(runRl(await optionsWith({ temperature: 0 }), ctx)).rejects.toThrow(/temperature 0: .* above 0/);
  expect(runRl(await optionsWith({ group: 1 }), ctx)).rejects.toThrow(/no baseline/);
  expect(runRl(await optionsWith({ environment: { ...environment, tasks: [] } }), ctx)).rejects.toThrow(/no tasks/);
});

test("a rollout is what was sampled, also where its text has another encoding", async () => {
  const options = await optionsWith();
  const ids = [..."say"].map((letter) => tokenizer.encode(letter)[0]!);
  expect(tokenizer.encode("say")).not.toEqual(ids);
  const played = await environment.play(tasks[0]!, {
    policy: options.policy,
    id: "x",
    seed: 1,
    prompt: 1,
    temperature: 1,
  });
  const mask = new Uint32Array(9).fill(7);
  played.turns[0]!.tokens = { ids, logprobs: [-1, -2, -3], masks: [null, mask, null] };
  const rollout = toRollout(played, environmentRewards, tokenizer);
  const actions = [...rollout.ids].filter((_, i) => rollout.actionMask[i] === 1);
  expect(actions.slice(0, 3)).toEqual(ids);
  expect(actions.length).toBe(3 + played.turns[1]!.tokens!.ids.length);
  const first = rollout.actionMask.indexOf(1);
  expect([...rollout.logprobs.slice(first, first + 3)]).toEqual([-1, -2, -3]);
  expect([...rollout.masks!]).toEqual([[first + 1, mask]]);
  delete played.turns[1]!.tokens;
  expect(() => toRollout(played, environmentRewards, tokenizer)).toThrow(/turn 2 has no sampled ids/);
});
const environmentRewards = { trajectory: 0, phase: 0, format: 0, terms: [] };
