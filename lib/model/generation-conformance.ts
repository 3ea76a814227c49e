/** The tests that generation must pass on every engine: it samples what the training pass scores, whoever else is in the batch. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { uniform } from "../engine/random.ts";
import type { Engine } from "../engine/types.ts";
import { expectClose, SMALL, SMALL_CONV } from "./conformance.ts";
import { createGenerator, GenerationError, type GeneratorOptions } from "./generator.ts";
import { Model } from "./model.ts";
import type { GenerateRequest, GenerateResult, Generator, ModelConfig, PackedBatch, TokenConstraint } from "./types.ts";

const V = SMALL.vocab_size;
const WORDS = Math.ceil(V / 32);

const prompt = (n: number, seed: number) => Int32Array.from({ length: n }, (_, i) => Math.floor(uniform(seed, i) * V));

const ask = (promptIds: Int32Array, seed: number, more: Partial<GenerateRequest> = {}): GenerateRequest => ({
  promptIds,
  maxNewTokens: 20,
  temperature: 1,
  seed,
  stopIds: [],
  ...more,
});

/** Allows about a third of the vocabulary, another third after each token, and now and then everything. */
function changingConstraint(seed: number): TokenConstraint {
  let [state, steps] = [seed, 0];
  return {
    allowed() {
      if (++steps % 4 === 0) return null;
      const bits = new Uint32Array(WORDS);
      for (let v = 0; v < V; v++) if (uniform(state, v) < 0.33 || v === state % V) bits[v >> 5]! |= 1 << (v & 31);
      return bits;
    },
    accept(id) {
      state = state * 31 + id;
    },
  };
}

/** Lets a generator that is running take a step, or clear up after its last. */
const tick = () => new Promise<void>((done) => setImmediate(done));

/** What the training pass gives for the sampled tokens, under their masks. */
async function scored(
  model: Model,
  promptIds: Int32Array,
  result: GenerateResult,
  temperature = 1,
): Promise<Float32Array> {
  const ids = Int32Array.of(...promptIds, ...result.ids.slice(0, -1));
  const bits = (result.masks ?? []).flatMap((m) => (m ? [...m] : []));
  let row = 0;
  const batch: PackedBatch = {
    ids,
    cumulative: Int32Array.of(0, ids.length),
    rows: Int32Array.from(result.ids, (_, i) => promptIds.length - 1 + i),
    targets: Int32Array.from(result.ids),
    ...(result.masks
      ? { masks: { bits: Uint32Array.from(bits), row: Int32Array.from(result.masks, (m) => (m ? row++ : -1)) } }
      : {}),
  };
  return (await model.logProbs(batch, { temperature })).lp;
}

/** Registers the tests of generation with bun:test. `open` is called once. */
export function generationConformance(name: string, open: () => Promise<Engine>, timeout = 120_000): void {
  describe(`generation on ${name}`, () => {
    let engine: Engine;
    const models = new Map<ModelConfig, Model>();
    beforeAll(async () => {
      engine = await open();
      // Larger embeddings than at the start of training: distributions that are far from uniform.
      for (const config of [SMALL, SMALL_CONV]) {
        const model = await Model.create(engine, config, 4);
        for (const n of ["model.embed_tokens.weight", "lm_head.weight"]) {
          const tensor = model.parameters.get(n);
          if (tensor) engine.axpby(tensor, 12, tensor, 0, tensor);
        }
        models.set(config, model);
      }
    }, timeout);
    afterAll(async () => {
      for (const model of models.values()) model.dispose();
      await engine?.dispose();
    });
    const check = (what: string, body: () => Promise<void>) => test(what, body, timeout);
    async function using<T>(
      config: ModelConfig,
      options: GeneratorOptions,
      body: (g: Generator, model: Model) => Promise<T>,
    ): Promise<T> {
      const model = models.get(config)!;
      const generator = createGenerator(model, { cacheTokens: 1024, ...options });
      try {
        return await body(generator, model);
      } finally {
        generator.close();
      }
    }
    /** The result of a request that has the generator for itself. */
    const alone = (config: ModelConfig, request: GenerateRequest) => using(config, {}, (g) => g.generate(request));

    for (const [what, config] of [
      ["plain", SMALL],
      ["short convolution", SMALL_CONV],
    ] as const) {
      check(`log-probabilities of sampled tokens equal the training pass's: ${what}`, () =>
        using(config, { maxBatch: 4, maxTokens: 24 }, async (g, model) => {
          const requests = [1, 15, 16, 17, 33, 50].map((n, i) =>
            ask(prompt(n, 40 + i), i, { maxNewTokens: 5 + 7 * i, temperature: [1, 0.6, 1.8][i % 3]! }),
          );
          const results = await Promise.all(requests.map((r) => g.generate(r)));
          for (const [i, r] of results.entries()) {
            expect(r.ids.length).toBe(requests[i]!.maxNewTokens);
            expect(r.finish).toBe("length");
            const { promptIds, temperature } = requests[i]!;
            const want = await scored(model, promptIds, r, temperature);
            expectClose(`sequence ${i}`, r.logprobs, want, { absolute: 1e-4 });
          }
          const { promptTokens, newTokens, reusedTokens } = g.stats();
          expect({ promptTokens, newTokens, reusedTokens }).toEqual({
            promptTokens: 132,
            newTokens: 135,
            reusedTokens: 0,
          });
        }),
      );
    }

    check("greedy decoding takes the largest logit of the full forward pass", () =>
      using(SMALL_CONV, {}, async (g, model) => {
        const p = prompt(19, 50);
        const { ids } = await g.generate(ask(p, 0, { temperature: 0 }));
        const all = Int32Array.of(...p, ...ids);
        const logits = await model.logits(all, Int32Array.of(0, all.length));
        const best = ids.map((_, i) => {
          const row = logits.subarray((p.length - 1 + i) * V, (p.length + i) * V);
          return row.indexOf(row.reduce((a, b) => Math.max(a, b)));
        });
        expect(ids).toEqual(best);
      }),
    );

    check("constrained: only allowed tokens, masks kept, log-probabilities equal the training pass's under them", () =>
      using(SMALL, {}, async (g, model) => {
        const requests = [0, 1, 2].map((i) =>
          ask(prompt(9 + 8 * i, 60 + i), i, i === 1 ? {} : { constraint: changingConstraint(i + 5) }),
        );
        const results = await Promise.all(requests.map((r) => g.generate(r)));
        expect(results[1]!.masks).toBeUndefined();
        for (const [i, r] of results.entries()) {
          expectClose(`sequence ${i}`, r.logprobs, await scored(model, requests[i]!.promptIds, r), { absolute: 1e-4 });
          if (!r.masks) continue;
          expect(r.masks.length).toBe(r.ids.length);
          expect(r.masks.filter((m) => m === null).length).toBe(5);
          for (const [t, mask] of r.masks.entries())
            if (mask) expect((mask[r.ids[t]! >> 5]! >>> (r.ids[t]! & 31)) & 1).toBe(1);
        }
      }),
    );

    check("a sequence's tokens depend on its seed only, not on who else is in the batch", async () => {
      const request = ask(prompt(21, 70), 7);
      const want = await alone(SMALL_CONV, request);
      await using(SMALL_CONV, { maxBatch: 3, maxTokens: 16 }, async (g) => {
        const others = [1, 2, 3, 4].map((i) => g.generate(ask(prompt(13 * i, 71 + i), i, { maxNewTokens: 9 * i })));
        const got = await g.generate(request);
        expect(got.ids).toEqual(want.ids);
        expect((await g.generate({ ...request, seed: 8 })).ids).not.toEqual(want.ids);
        await Promise.all(others);
      });
    });

    check("a group shares its prompt's pages and samples as if each were alone", () =>
      using(SMALL_CONV, {}, async (g) => {
        const p = prompt(37, 80);
        const group = await Promise.all([0, 1, 2, 3].map((seed) => g.generate(ask(p, seed))));
        expect(group.map((r) => r.reusedTokens)).toEqual([0, 32, 32, 32]);
        for (const [seed, r] of group.entries()) expect(r.ids).toEqual((await alone(SMALL_CONV, ask(p, seed))).ids);
        expect(g.stats().reusedTokens).toBe(96);
      }),
    );

    check("an episode's next turn reuses what the last one left", () =>
      using(SMALL, {}, async (g) => {
        let p = prompt(30, 90);
        let reused = 0;
        for (let turn = 0; turn < 3; turn++) {
          const request = ask(p, turn, { keepAs: "episode" });
          const r = await g.generate(request);
          expect(r.reusedTokens).toBe(reused);
          expect(r.ids).toEqual((await alone(SMALL, request)).ids);
          // The last sampled token was never put in.
          reused = 16 * Math.floor((p.length + r.ids.length - 1) / 16);
          p = Int32Array.of(...p, ...r.ids, ...prompt(11, 91 + turn));
        }
        g.release("episode");
      }),
    );

    check("a cache that is too small for all evicts, waits, and gives the same results", async () => {
      const requests = [0, 1, 2, 3, 4, 5, 6, 7].map((i) =>
        ask(prompt(20 + (i % 3) * 17, 100 + (i % 3)), i, { keepAs: `e${i}` }),
      );
      const want = await using(SMALL, {}, (g) => Promise.all(requests.map((r) => g.generate(r))));
      await using(SMALL, { cacheTokens: 96 }, async (g) => {
        for (let round = 0; round < 2; round++) {
          const got = await Promise.all(requests.map((r) => g.generate(r)));
          expect(got.map((r) => r.ids)).toEqual(want.map((r) => r.ids));
        }
        await expect(g.generate(ask(prompt(70, 1), 1, { maxNewTokens: 30 }))).rejects.toThrow(/raise cacheTokens/);
      });
    });

    check("stops: ids, sequences, budgets", () =>
      using(SMALL, {}, async (g) => {
        const p = prompt(12, 110);
        const free = await g.generate(ask(p, 3));
        const at = free.ids.findIndex((id, i) => i >= 6 && free.ids.indexOf(id) === i);
        const stopped = await g.generate(ask(p, 3, { stopIds: [free.ids[at]!] }));
        expect([stopped.ids, stopped.finish]).toEqual([free.ids.slice(0, at + 1), "stop"]);
        const pair = await g.generate(ask(p, 3, { stopSequences: [[V + 1], free.ids.slice(at - 2, at + 1)] }));
        expect([pair.ids, pair.finish]).toEqual([free.ids.slice(0, at + 1), "stop"]);
        expect(await g.generate(ask(p, 3, { maxNewTokens: 0 }))).toEqual({
          ids: [],
          logprobs: [],
          finish: "length",
          reusedTokens: 0,
        });
      }),
    );

    check("aborted sequences reject, and those that shared their unfinished prompt go on", () =>
      using(SMALL, { maxTokens: 16, maxBatch: 8 }, async (g) => {
        const p = prompt(100, 120);
        const [first, queued] = [new AbortController(), new AbortController()];
        const reason = new Error("enough");
        const owner = g.generate(ask(p, 0, { signal: first.signal }));
        const sharer = g.generate(ask(p, 1));
        const never = g.generate(ask(p, 2, { signal: queued.signal }));
        queued.abort(reason);
        setImmediate(() => first.abort(reason));
        const settled = await Promise.allSettled([owner, sharer, never]);
        expect(settled.map((s) => s.status)).toEqual(["rejected", "fulfilled", "rejected"]);
        expect(settled[0]).toEqual({ status: "rejected", reason });
        const result = await sharer;
        expect(result.ids).toEqual((await alone(SMALL, ask(p, 1))).ids);
        expect(result.reusedTokens).toBeLessThan(96);
        await expect(g.generate(ask(p, 3, { signal: first.signal }))).rejects.toBe(reason);
        // All pages are there again: a request that needs the whole cache runs.
        expect((await g.generate(ask(prompt(500, 121), 4, { maxNewTokens: 12 }))).ids.length).toBe(12);
      }),
    );

    check("new weights: nothing computed with the old ones is used", async () => {
      const model = await Model.create(engine, SMALL, 5);
      const generator = createGenerator(model, { cacheTokens: 512 });
      const request = ask(prompt(40, 130), 1);
      const before = await generator.generate(request);
      const pending = generator.generate({ ...request, seed: 2 });
      while (generator.stats().newTokens < 25) await tick();
      const table = model.parameters.get("model.embed_tokens.weight")!;
      engine.axpby(table, -40, table, 0, table);
      generator.invalidate();
      await pending;
      const after = await generator.generate(request);
      expect(after.reusedTokens).toBe(0);
      expect(after.ids).not.toEqual(before.ids);
      expectClose("lp", after.logprobs, await scored(model, request.promptIds, after), { absolute: 1e-4 });
      generator.close();
      model.dispose();
    });

    check("a constraint that allows nothing, or throws, fails its own sequence only", () =>
      using(SMALL, {}, async (g) => {
        const p = prompt(10, 140);
        const nothing = g.generate(
          ask(p, 1, { constraint: { allowed: () => new Uint32Array(WORDS), accept: () => {} } }),
        );
        const broken = g.generate(
          ask(p, 1, {
            constraint: {
              allowed: () => null,
              accept: () => {
                throw new Error("broken");
              },
            },
          }),
        );
        const fine = g.generate(ask(p, 1));
        const settled = await Promise.allSettled([nothing, broken, fine]);
        expect(settled.map((s) => (s.status === "rejected" ? String(s.reason) : s.status))).toEqual([
          "GenerationError: generate: the constraint's mask allows no token after 0 new tokens",
          "Error: broken",
          "fulfilled",
        ]);
      }),
    );

    check("memory is flat over steps and falls back on close; a closed generator refuses", async () => {
      await tick();
      const before = engine.memory().bytes;
      const g = createGenerator(models.get(SMALL_CONV)!, { cacheTokens: 512, maxBatch: 4 });
      let bytes = 0;
      for (let i = 0; i < 6; i++) {
        await Promise.all(
          [0, 1, 2, 3].map((k) =>
            g.generate(ask(prompt(30, 150), i * 4 + k, { constraint: changingConstraint(k), keepAs: "x" })),
          ),
        );
        if (i === 0) bytes = engine.memory().bytes;
        expect(engine.memory().bytes).toBe(bytes);
      }
      const cut = g.generate(ask(prompt(5, 1), 1));
      g.close();
      await expect(cut).rejects.toBeInstanceOf(GenerationError);
      await expect(g.generate(ask(prompt(5, 1), 1))).rejects.toThrow(/closed/);
      await tick();
      await engine.sync();
      expect(engine.memory().bytes).toBe(before);
    });
  });
}
