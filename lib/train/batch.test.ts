import { expect, test } from "bun:test";
import fc from "fast-check";
import { uniform } from "../engine/random.ts";
import {
  type Document,
  gatherLossRows,
  lossTokens,
  pack,
  packMicroBatches,
  scatterLossRows,
  shuffled,
  splitSteps,
} from "./batch.ts";

function documentOf(length: number, seed: number): Document {
  return {
    ids: Int32Array.from({ length }, (_, i) => Math.floor(uniform(seed, i) * 1000)),
    actionMask: Uint8Array.from({ length }, (_, i) => (uniform(seed + 1, i) < 0.5 ? 1 : 0)),
  };
}

const lengthsArbitrary = fc.array(fc.integer({ min: 1, max: 60 }), { minLength: 1, maxLength: 30 });

test("a permutation depends on seed and epoch only", () => {
  expect([...shuffled(100, 3, 0)].sort((a, b) => a - b)).toEqual(Array.from({ length: 100 }, (_, i) => i));
  expect(shuffled(100, 3, 0)).toEqual(shuffled(100, 3, 0));
  expect(shuffled(100, 3, 0)).not.toEqual(shuffled(100, 3, 1));
  expect(shuffled(100, 3, 0)).not.toEqual(shuffled(100, 4, 0));
  // Every place is equally likely, within what 2,000 draws show.
  const first = new Array(5).fill(0);
  for (let epoch = 0; epoch < 2000; epoch++) first[shuffled(5, 11, epoch)[0]!]++;
  for (const count of first) expect(Math.abs(count - 400)).toBeLessThan(90);
});

test("every document lands in one step and one micro-batch, within the budgets", () => {
  fc.assert(
    fc.property(lengthsArbitrary, fc.integer({ min: 1, max: 80 }), (lengths, budget) => {
      const all = lengths.map((_, i) => i);
      const steps = splitSteps(lengths, all, budget);
      expect(steps.flat()).toEqual(all);
      const micro = packMicroBatches(lengths, all, budget);
      expect(micro.flat().sort((a, b) => a - b)).toEqual(all);
      for (const group of [...steps, ...micro]) {
        expect(group.length).toBeGreaterThan(0);
        const total = group.reduce((n, i) => n + lengths[i]!, 0);
        if (group.length > 1) expect(total).toBeLessThanOrEqual(budget);
      }
    }),
    { seed: 1, numRuns: 200 },
  );
});

test("rows point at the token before each action, within its document", () => {
  fc.assert(
    fc.property(lengthsArbitrary, (lengths) => {
      const documents = lengths.map((length, i) => documentOf(length, i * 2));
      const batch = pack(documents);
      expect(batch.cumulative.at(-1)).toBe(batch.ids.length);
      expect(batch.rows.length).toBe(documents.reduce((n, d) => n + lossTokens(d), 0));
      const wanted: [number, number][] = [];
      documents.forEach((document, d) => {
        document.actionMask.forEach((on, i) => {
          if (on === 1 && i > 0) wanted.push([batch.cumulative[d]! + i - 1, document.ids[i]!]);
        });
      });
      expect([...batch.rows].map((row, m) => [row, batch.targets[m]!] as [number, number])).toEqual(wanted);
    }),
    { seed: 2, numRuns: 100 },
  );
});

test("per-token numbers survive the way to loss rows and back", () => {
  const documents = [documentOf(9, 1), documentOf(1, 2), documentOf(14, 3)];
  const values = documents.map((d, k) =>
    Float32Array.from(d.ids, (_, i) => (i > 0 && d.actionMask[i] ? k + i / 100 : 0)),
  );
  const rows = gatherLossRows(documents, values);
  expect(rows.length).toBe(pack(documents).rows.length);
  expect(scatterLossRows(documents, rows)).toEqual(values);
});

test("masks go with their tokens, and equal ones are stored once", () => {
  const a = new Uint32Array([1, 2]);
  const b = new Uint32Array([3, 4]);
  const first: Document = {
    ids: new Int32Array([5, 6, 7, 8]),
    actionMask: new Uint8Array([0, 1, 1, 1]),
    masks: new Map([
      [1, a],
      [3, b],
    ]),
  };
  const second: Document = {
    ids: new Int32Array([5, 6]),
    actionMask: new Uint8Array([0, 1]),
    masks: new Map([[1, a]]),
  };
  const { masks } = pack([first, second]);
  expect(masks?.row).toEqual(new Int32Array([0, -1, 1, 0]));
  expect(masks?.bits).toEqual(new Uint32Array([1, 2, 3, 4]));
  expect(pack([{ ids: new Int32Array([1, 2]), actionMask: new Uint8Array([0, 1]) }]).masks).toBeUndefined();
});
