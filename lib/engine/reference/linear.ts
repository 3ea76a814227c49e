/** Matrix products, embedding, row selection, and the fused output projection, as equations. */
import { EngineError, type MatmulOptions, type Tensor, type TokenMasks } from "../types.ts";
import { dims, floats, ints, single, sized } from "./tensor.ts";

/** out[m,n] = Σ_k op(a)[m,k]·op(b)[k,n] (+ out[m,n]) */
export function matmul(out: Tensor, a: Tensor, b: Tensor, options: MatmulOptions = {}): void {
  const [M, N] = dims(out, 2);
  const [a0, a1] = dims(a, 2);
  const [b0, b1] = dims(b, 2);
  const K = options.transA ? a0 : a1;
  const fits = (options.transA ? a1 : a0) === M && (options.transB ? b0 : b1) === N && (options.transB ? b1 : b0) === K;
  if (!fits) {
    throw new EngineError(
      `matmul: out "${out.label}" [${out.shape}], a "${a.label}" [${a.shape}]${options.transA ? "ᵀ" : ""}, b "${b.label}" [${b.shape}]${options.transB ? "ᵀ" : ""} do not fit`,
    );
  }
  const [y, x, w] = [single(out), single(a), floats(b)];
  const [am, ak] = options.transA ? [1, M] : [K, 1];
  const [bk, bn] = options.transB ? [1, K] : [N, 1];
  for (let m = 0; m < M; m++) {
    for (let n = 0; n < N; n++) {
      let sum = options.accumulate ? y[m * N + n]! : 0;
      for (let k = 0; k < K; k++) sum += x[m * am + k * ak]! * w[k * bk + n * bn]!;
      y[m * N + n] = sum;
    }
  }
}

/** out[t] = table[ids[t]] */
export function embed(out: Tensor, table: Tensor, ids: Tensor): void {
  const [T, C] = dims(out, 2);
  const [V] = dims(table, 2);
  sized("embed", [table, V * C], [ids, T]);
  const [y, w, id] = [single(out), floats(table), ints(ids)];
  for (let t = 0; t < T; t++) for (let c = 0; c < C; c++) y[t * C + c] = w[id[t]! * C + c]!;
}

/** dTable[ids[t]] += dOut[t] */
export function embedBackward(dTable: Tensor, dOut: Tensor, ids: Tensor): void {
  const [T, C] = dims(dOut, 2);
  const [V] = dims(dTable, 2);
  sized("embedBackward", [dTable, V * C], [ids, T]);
  const [dw, dy, id] = [single(dTable), single(dOut), ints(ids)];
  for (let t = 0; t < T; t++) for (let c = 0; c < C; c++) dw[id[t]! * C + c]! += dy[t * C + c]!;
}

/** out[m] = x[rows[m]] */
export function gatherRows(out: Tensor, x: Tensor, rows: Tensor): void {
  const [M, C] = dims(out, 2);
  sized("gatherRows", [rows, M], [x, dims(x, 2)[0] * C]);
  const [y, v, row] = [single(out), single(x), ints(rows)];
  for (let m = 0; m < M; m++) for (let c = 0; c < C; c++) y[m * C + c] = v[row[m]! * C + c]!;
}

/** out = 0; out[rows[m]] = x[m] */
export function scatterRows(out: Tensor, x: Tensor, rows: Tensor): void {
  const [M, C] = dims(x, 2);
  sized("scatterRows", [rows, M], [out, dims(out, 2)[0] * C]);
  const [y, v, row] = [single(out), single(x), ints(rows)];
  y.fill(0);
  for (let m = 0; m < M; m++) for (let c = 0; c < C; c++) y[row[m]! * C + c] = v[m * C + c]!;
}

/** allowed(r, v): whether token v may stand in logits row r. */
export function maskReader(masks: TokenMasks | undefined): (r: number, v: number) => boolean {
  if (!masks) return () => true;
  const words = dims(masks.bits, 2)[1];
  const [bits, row] = [ints(masks.bits), ints(masks.row)];
  return (r, v) => row[r]! < 0 || ((bits[row[r]! * words + (v >> 5)]! >>> (v & 31)) & 1) === 1;
}

/** p[v] = exp(x·head[v] − lse) of one row; 0 where masked. Also the logits themselves. */
function softmaxRow(
  x: Float64Array,
  head: Float64Array,
  V: number,
  C: number,
  m: number,
  allowed: (v: number) => boolean,
) {
  const logits = new Float64Array(V);
  let max = -Infinity;
  for (let v = 0; v < V; v++) {
    let sum = 0;
    for (let c = 0; c < C; c++) sum += x[m * C + c]! * head[v * C + c]!;
    logits[v] = sum;
    if (allowed(v) && sum > max) max = sum;
  }
  let total = 0;
  for (let v = 0; v < V; v++) if (allowed(v)) total += Math.exp(logits[v]! - max);
  const lse = max + Math.log(total);
  return { logits, lse, p: logits.map((l, v) => (allowed(v) ? Math.exp(l - lse) : 0)) };
}

/** lp[m] = logits[m,target] − lse[m];  entropy[m] = lse − Σ_v p·logits */
export function logProbs(
  out: { lp: Tensor; lse: Tensor; entropy?: Tensor },
  x: Tensor,
  head: Tensor,
  targets: Tensor,
  masks?: TokenMasks,
): void {
  const [M, C] = dims(x, 2);
  const [V] = dims(head, 2);
  sized("logProbs", [head, V * C], [targets, M], [out.lp, M], [out.lse, M]);
  if (out.entropy) sized("logProbs", [out.entropy, M]);
  const [xs, w, target, may] = [single(x), floats(head), ints(targets), maskReader(masks)];
  for (let m = 0; m < M; m++) {
    const { logits, lse, p } = softmaxRow(xs, w, V, C, m, (v) => may(m, v));
    single(out.lp)[m] = logits[target[m]!]! - lse;
    single(out.lse)[m] = lse;
    if (out.entropy) single(out.entropy)[m] = lse - p.reduce((sum, q, v) => sum + q * logits[v]!, 0);
  }
}

/** dLogits[m,v] = dLp[m]·(1[v = target] − p[m,v]);  dx = dLogits·head;  dHead += dLogitsᵀ·x */
export function logProbsBackward(
  grads: { dx: Tensor; dHead?: Tensor },
  dLp: Tensor,
  saved: { x: Tensor; head: Tensor; targets: Tensor; lse: Tensor },
  masks?: TokenMasks,
): void {
  const [M, C] = dims(saved.x, 2);
  const [V] = dims(saved.head, 2);
  sized("logProbsBackward", [grads.dx, M * C], [dLp, M], [saved.targets, M], [saved.lse, M]);
  if (grads.dHead) sized("logProbsBackward", [grads.dHead, V * C]);
  const [x, w, target, may] = [single(saved.x), floats(saved.head), ints(saved.targets), maskReader(masks)];
  const [dx, dw, g] = [single(grads.dx), grads.dHead && single(grads.dHead), single(dLp)];
  dx.fill(0);
  for (let m = 0; m < M; m++) {
    const { p } = softmaxRow(x, w, V, C, m, (v) => may(m, v));
    for (let v = 0; v < V; v++) {
      const d = g[m]! * ((v === target[m] ? 1 : 0) - p[v]!);
      for (let c = 0; c < C; c++) {
        dx[m * C + c]! += d * w[v * C + c]!;
        if (dw) dw[v * C + c]! += d * x[m * C + c]!;
      }
    }
  }
}
