/** Documents packed into micro-batches: no padding, attention never crosses a document, and the same order for the same seed. */
import { hash2 } from "../engine/random.ts";
import type { PackedBatch } from "../model/types.ts";

/** A conversation as training data. */
export interface Document {
  ids: Int32Array;
  /** 1 where the id is trained on. Same length. */
  actionMask: Uint8Array;
  /** By index in `ids`: the token mask that the id was sampled under. */
  masks?: ReadonlyMap<number, Uint32Array>;
}

/** Numbers of a document that the loss needs, by index in `ids`, e.g. log-probabilities. */
export type PerToken = Float32Array;

/** A permutation of 0 … n−1 that depends on the seed and the epoch only (Fisher–Yates). */
export function shuffled(n: number, seed: number, epoch: number): Int32Array {
  const order = Int32Array.from({ length: n }, (_, i) => i);
  const stream = hash2(seed, epoch);
  for (let i = n - 1; i > 0; i--) {
    const j = Math.floor((hash2(stream, i) / 2 ** 32) * (i + 1));
    [order[i], order[j]] = [order[j]!, order[i]!];
  }
  return order;
}

/** Tokens of a document that a loss is taken on: actions that have a token before them. */
export function lossTokens(document: Document): number {
  let n = 0;
  for (let i = 1; i < document.actionMask.length; i++) n += document.actionMask[i]!;
  return n;
}

/** Cuts a list into steps of about `batchTokens` tokens, in order: a step ends before the document that would exceed it. */
export function splitSteps(lengths: readonly number[], order: Iterable<number>, batchTokens: number): number[][] {
  const steps: number[][] = [];
  let room = 0;
  for (const i of order) {
    if (steps.length === 0 || lengths[i]! > room) {
      steps.push([]);
      room = batchTokens;
    }
    steps.at(-1)!.push(i);
    room -= lengths[i]!;
  }
  return steps;
}

/**
 * Packs documents into micro-batches of at most `microTokens` tokens (a longer document stands alone): first fit, longest first, so that
 * few are needed. Deterministic; every document is in exactly one.
 */
export function packMicroBatches(
  lengths: readonly number[],
  members: readonly number[],
  microTokens: number,
): number[][] {
  const sorted = [...members].sort((a, b) => lengths[b]! - lengths[a]! || a - b);
  const bins: { members: number[]; room: number }[] = [];
  for (const i of sorted) {
    let bin = bins.find((candidate) => candidate.room >= lengths[i]!);
    if (!bin) bins.push((bin = { members: [], room: microTokens }));
    bin.members.push(i);
    bin.room -= lengths[i]!;
  }
  return bins.map((bin) => bin.members);
}

/** One micro-batch of whole documents. Its loss rows run over the documents in order, then over each one's action tokens. */
export function pack(documents: readonly Document[]): PackedBatch {
  const total = documents.reduce((n, document) => n + document.ids.length, 0);
  const loss = documents.reduce((n, document) => n + lossTokens(document), 0);
  const ids = new Int32Array(total);
  const cumulative = new Int32Array(documents.length + 1);
  const rows = new Int32Array(loss);
  const targets = new Int32Array(loss);
  const maskRow = new Int32Array(loss).fill(-1);
  const maskIndex = new Map<Uint32Array, number>();
  let at = 0;
  let row = 0;
  for (const [d, document] of documents.entries()) {
    ids.set(document.ids, at);
    for (let i = 1; i < document.ids.length; i++) {
      if (document.actionMask[i] !== 1) continue;
      rows[row] = at + i - 1;
      targets[row] = document.ids[i]!;
      const mask = document.masks?.get(i);
      if (mask) {
        if (!maskIndex.has(mask)) maskIndex.set(mask, maskIndex.size);
        maskRow[row] = maskIndex.get(mask)!;
      }
      row++;
    }
    at += document.ids.length;
    cumulative[d + 1] = at;
  }
  if (maskIndex.size === 0) return { ids, cumulative, rows, targets };
  const words = maskIndex.keys().next().value!.length;
  const bits = new Uint32Array(maskIndex.size * words);
  for (const [mask, index] of maskIndex) bits.set(mask, index * words);
  return { ids, cumulative, rows, targets, masks: { bits, row: maskRow } };
}

/** Per-token numbers of the documents of a micro-batch, in the order of its loss rows. [M] */
export function gatherLossRows(documents: readonly Document[], values: readonly PerToken[]): Float32Array {
  const out: number[] = [];
  for (const [d, document] of documents.entries()) {
    for (let i = 1; i < document.ids.length; i++) if (document.actionMask[i] === 1) out.push(values[d]![i]!);
  }
  return Float32Array.from(out);
}

/** The inverse: numbers by loss row back to the documents' tokens, 0 where there is no loss. */
export function scatterLossRows(documents: readonly Document[], rows: Float32Array): PerToken[] {
  let at = 0;
  return documents.map((document) => {
    const out = new Float32Array(document.ids.length);
    for (let i = 1; i < document.ids.length; i++) if (document.actionMask[i] === 1) out[i] = rows[at++]!;
    return out;
  });
}
