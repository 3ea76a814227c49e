/** The fused output projection: log-probabilities of targets and their gradient, in chunks of rows and of the vocabulary. */
import type { Tensor, TokenMasks } from "../types.ts";
import { each, grid, type Kit, windowOf, withScratch } from "./kit.ts";
import { type Chooser, matmul } from "./matmul.ts";
import { dims, expect, type GpuTensor, own } from "./tensor.ts";

/** Elements of the chunk of logits that is held at a time: 16 MiB. */
const chunkElements = 2 ** 22;
const chunkRows = 512;

interface Chunk {
  firstRow: number;
  rows: number;
  first: number;
  columns: number;
  last: boolean;
}

/** Rows outside, vocabulary inside. Firsts are multiples of 128, so that windows on tensors of any type are aligned. */
function* chunks(kit: Kit, m: number, v: number, head: GpuTensor): Generator<Chunk> {
  const rows = Math.min(chunkRows, m);
  const width = head.size / v;
  const most = (kit.context.limits.maxStorageBufferBindingSize ?? 2 ** 27) / 4;
  const fits = Math.max(128, Math.floor(most / width / 128) * 128);
  const columns = Math.min(v, fits, Math.floor(chunkElements / rows / 128) * 128);
  for (let firstRow = 0; firstRow < m; firstRow += rows) {
    for (let first = 0; first < v; first += columns) {
      yield {
        firstRow,
        rows: Math.min(rows, m - firstRow),
        first,
        columns: Math.min(columns, v - first),
        last: first + columns >= v,
      };
    }
  }
}

const maskTensors = (kit: Kit, masks: TokenMasks | undefined) => ({
  mask_bits: masks ? own(masks.bits) : kit.nothing,
  mask_row: masks ? own(masks.row) : kit.nothing,
});
const wordsOf = (masks: TokenMasks | undefined): number => masks?.bits.shape[1] ?? 0;

function checkMasks(op: string, masks: TokenMasks | undefined, m: number, v: number): void {
  if (!masks) return;
  const [r] = dims(op, masks.bits, 2);
  expect(op, "u32", [masks.bits, r * Math.ceil(v / 32)]);
  expect(op, "i32", [masks.row, m]);
}

export function logProbs(
  kit: Kit,
  choose: Chooser,
  out: { lp: Tensor; lse: Tensor; entropy?: Tensor },
  x: Tensor,
  head: Tensor,
  targets: Tensor,
  masks?: TokenMasks,
): void {
  const op = "logProbs";
  const [m, c] = dims(op, x, 2);
  const [v] = dims(op, head, 2);
  expect(
    op,
    "f32",
    [x, m * c],
    [out.lp, m],
    [out.lse, m],
    ...(out.entropy ? [[out.entropy, m] as [Tensor, number]] : []),
  );
  expect(op, ["f32", "f16", "bf16"], [head, v * c]);
  expect(op, "i32", [targets, m]);
  checkMasks(op, masks, m, v);
  const rowsHeld = Math.min(chunkRows, m);
  const held = Math.min(rowsHeld * v, chunkElements);
  withScratch(
    kit,
    [
      { shape: [held], label: "logits chunk" },
      { shape: [rowsHeld, 4], label: "log-probability states" },
      { shape: [out.entropy ? 1 : m], label: "entropy" },
    ],
    (logits, states, spare) => {
      if (!logits || !states || !spare) return;
      for (const k of chunks(kit, m, v, own(head))) {
        const part = windowOf(logits, [k.rows, k.columns], 0);
        matmul(
          kit,
          choose,
          part,
          windowOf(own(x), [k.rows, c], k.firstRow * c),
          windowOf(own(head), [k.columns, c], k.first * c),
          { transB: true },
        );
        kit.context.run({
          kernel: "log_probs_step",
          constants: {
            WG: kit.rowLanes,
            MASKED: masks !== undefined,
            LAST: k.last,
            ENTROPY: out.entropy !== undefined,
          },
          tensors: {
            logits: part,
            targets: own(targets),
            ...maskTensors(kit, masks),
            states,
            lp: own(out.lp),
            lse: own(out.lse),
            entropy: out.entropy ? own(out.entropy) : spare,
          },
          params: { rows: k.rows, columns: k.columns, first: k.first, first_row: k.firstRow, words: wordsOf(masks) },
          groups: grid(k.rows),
        });
      }
    },
  );
}

export function logProbsBackward(
  kit: Kit,
  choose: Chooser,
  grads: { dx: Tensor; dHead?: Tensor },
  dLp: Tensor,
  saved: { x: Tensor; head: Tensor; targets: Tensor; lse: Tensor },
  masks?: TokenMasks,
): void {
  const op = "logProbsBackward";
  const [m, c] = dims(op, saved.x, 2);
  const [v] = dims(op, saved.head, 2);
  expect(op, "f32", [saved.x, m * c], [grads.dx, m * c], [dLp, m], [saved.lse, m]);
  if (grads.dHead) expect(op, "f32", [grads.dHead, v * c]);
  expect(op, ["f32", "f16", "bf16"], [saved.head, v * c]);
  expect(op, "i32", [saved.targets, m]);
  checkMasks(op, masks, m, v);
  const held = Math.min(Math.min(chunkRows, m) * v, chunkElements);
  withScratch(kit, [{ shape: [held], label: "logits chunk" }], (logits) => {
    if (!logits) return;
    for (const k of chunks(kit, m, v, own(saved.head))) {
      const part = windowOf(logits, [k.rows, k.columns], 0);
      const x = windowOf(own(saved.x), [k.rows, c], k.firstRow * c);
      const head = windowOf(own(saved.head), [k.columns, c], k.first * c);
      matmul(kit, choose, part, x, head, { transB: true });
      each(
        kit,
        {
          kernel: "log_probs_gradient",
          constants: { MASKED: masks !== undefined },
          tensors: {
            d_lp: own(dLp),
            lse: own(saved.lse),
            targets: own(saved.targets),
            ...maskTensors(kit, masks),
            logits: part,
          },
          params: { columns: k.columns, first: k.first, first_row: k.firstRow, words: wordsOf(masks) },
        },
        k.rows * k.columns,
      );
      matmul(kit, choose, windowOf(own(grads.dx), [k.rows, c], k.firstRow * c), part, head, {
        accumulate: k.first > 0,
      });
      if (grads.dHead) {
        const dHead = windowOf(own(grads.dHead), [k.columns, c], k.first * c);
        matmul(kit, choose, dHead, part, x, { transA: true, accumulate: true });
      }
    }
  });
}

export { checkMasks, maskTensors, wordsOf };
