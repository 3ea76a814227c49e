import { expect, test } from "bun:test";
import fc from "fast-check";
import { openReferenceEngine } from "../engine/reference/index.ts";
import { SMALL } from "./conformance.ts";
import { generationConformance } from "./generation-conformance.ts";
import { createGenerator } from "./generator.ts";
import { Model } from "./model.ts";
import { type Page, PageCache, ROOT } from "./pages.ts";

generationConformance("reference", openReferenceEngine);

test("requests that cannot run are refused with a reason", async () => {
  const engine = await openReferenceEngine();
  const g = createGenerator(await Model.create(engine, SMALL, 1), { cacheTokens: 64 });
  const base = { promptIds: Int32Array.of(1), maxNewTokens: 1, temperature: 1, seed: 1, stopIds: [] };
  await expect(g.generate({ ...base, promptIds: new Int32Array(0) })).rejects.toThrow(/prompt is empty/);
  await expect(g.generate({ ...base, promptIds: Int32Array.of(83) })).rejects.toThrow(/outside the vocabulary of 83/);
  await expect(g.generate({ ...base, maxNewTokens: 512 })).rejects.toThrow(/exceed the model's 512 positions/);
});

test("an engine that fails rejects what was pending, and the generator works again after", async () => {
  const engine = await openReferenceEngine();
  const g = createGenerator(await Model.create(engine, SMALL, 1), { cacheTokens: 128 });
  const request = {
    promptIds: Int32Array.from({ length: 40 }, (_, i) => i),
    maxNewTokens: 3,
    temperature: 1,
    seed: 1,
    stopIds: [],
  };
  const want = await g.generate(request);
  const { sample } = engine;
  engine.sample = () => {
    throw new Error("device lost");
  };
  await expect(Promise.all([g.generate(request), g.generate(request)])).rejects.toThrow("device lost");
  engine.sample = sample;
  const again = await g.generate(request);
  expect(again.ids).toEqual(want.ids);
  expect(again.reusedTokens).toBe(0);
});

test("page cache: pages are never used twice nor lost, and what is found is what was put there", () => {
  const op = fc.record({ kind: fc.constantFrom("start", "grow", "end", "keep", "unkeep", "clear"), pick: fc.nat(20) });
  fc.assert(
    fc.property(fc.array(op, { maxLength: 200 }), (ops) => {
      const cache = new PageCache(9);
      /** What is in each page: the whole prefix, as the generator would have computed it. */
      const contents = new Map<Page, string>();
      let generation = 0;
      const live: { pages: Page[]; parents: number[]; text: string }[] = [];
      for (const { kind, pick } of ops) {
        const s = live[pick % Math.max(1, live.length)];
        if (kind === "start") live.push({ pages: [], parents: [], text: "" });
        else if (kind === "grow" && s) {
          const [parent, tokens] = [s.parents.at(-1) ?? ROOT, [pick % 3]];
          const found = s.parents.length === s.pages.length ? cache.find(parent, tokens) : undefined;
          const text = `${s.text},${tokens}`;
          if (found) {
            expect(contents.get(found)).toBe(`${generation}${text}`);
            s.pages.push(found);
            s.parents.push(found.id);
          } else if (cache.available > 0) {
            const page = cache.take();
            page.ready = true;
            contents.set(page, `${generation}${text}`);
            s.parents.push(cache.register(page, parent, tokens));
            s.pages.push(page);
          } else continue;
          s.text = text;
        } else if (kind === "end" && s) {
          for (const page of s.pages.toReversed()) cache.drop(page);
          live.splice(live.indexOf(s), 1);
        } else if (kind === "keep" && s) cache.keep(`k${pick % 3}`, s.pages);
        else if (kind === "unkeep") cache.unkeep(`k${pick % 3}`);
        else if (kind === "clear") {
          cache.clear();
          generation++;
          // The generator lets no sequence register after its weights changed.
          for (const old of live.splice(0)) for (const page of old.pages.toReversed()) cache.drop(page);
        }
        const used = new Set(live.flatMap((l) => l.pages));
        expect(cache.available + used.size).toBe(cache.size);
        for (const page of used) expect(page.refs).toBe(live.filter((l) => l.pages.includes(page)).length);
      }
    }),
    { seed: 1, numRuns: 200 },
  );
});

test("kept pages are evicted after the others, the least recently used first", () => {
  const cache = new PageCache(4);
  const chain = (token: number) => {
    const page = cache.take();
    page.ready = true;
    cache.register(page, ROOT, [token]);
    return page;
  };
  const [a, b, c, d] = [chain(1), chain(2), chain(3), chain(4)];
  cache.keep("episode", [a!]);
  for (const page of [a, c, b, d]) cache.drop(page!);
  const found = (token: number) => {
    const page = cache.find(ROOT, [token]);
    if (page) cache.drop(page);
    return page !== undefined;
  };
  const taken = [cache.take(), cache.take(), cache.take()];
  expect(taken.map((p) => p.number)).toEqual([c!.number, b!.number, d!.number]);
  expect([1, 2, 3, 4].map(found)).toEqual([true, false, false, false]);
  cache.take();
  expect(found(1)).toBe(false);
  expect(cache.available).toBe(0);
});
