/** RMSNorm (Zhang & Sennrich 2019), the per-head norm with rotary positions (Su et al. 2021), SwiGLU (Shazeer 2020), AdamW. */
import type { AdamWOptions, Tensor } from "../types.ts";
import { dims, ints, single, sized } from "./tensor.ts";

const rstdOf = (x: Float64Array, eps: number): number =>
  1 / Math.sqrt(x.reduce((s, v) => s + v * v, 0) / x.length + eps);

/** dx += r·(g − x·r²·mean(g·x)) with g = dy·w, and dw += dy·x·r, for one normalised vector. */
function normBackward(
  dx: Float64Array,
  dw: Float64Array,
  dy: Float64Array,
  x: Float64Array,
  w: Float64Array,
  r: number,
): void {
  const n = x.length;
  let dot = 0;
  for (let i = 0; i < n; i++) dot += dy[i]! * w[i]! * x[i]!;
  for (let i = 0; i < n; i++) {
    dx[i]! += r * (dy[i]! * w[i]! - (x[i]! * r * r * dot) / n);
    dw[i]! += dy[i]! * x[i]! * r;
  }
}

/** out[t] = x[t]·rstd[t]·w */
export function rmsNorm(out: Tensor, rstd: Tensor, x: Tensor, w: Tensor, eps: number): void {
  const [T, C] = dims(x, 2);
  sized("rmsNorm", [out, T * C], [rstd, T], [w, C]);
  const [y, r, xs, ws] = [single(out), single(rstd), single(x), single(w)];
  for (let t = 0; t < T; t++) {
    r[t] = rstdOf(xs.subarray(t * C, (t + 1) * C), eps);
    for (let c = 0; c < C; c++) y[t * C + c] = xs[t * C + c]! * r[t]! * ws[c]!;
  }
}

export function rmsNormBackward(dx: Tensor, dw: Tensor, dOut: Tensor, x: Tensor, w: Tensor, rstd: Tensor): void {
  const [T, C] = dims(x, 2);
  sized("rmsNormBackward", [dx, T * C], [dw, C], [dOut, T * C], [w, C], [rstd, T]);
  for (let t = 0; t < T; t++) {
    const row = (a: Tensor) => single(a).subarray(t * C, (t + 1) * C);
    normBackward(row(dx), single(dw), row(dOut), row(x), single(w), single(rstd)[t]!);
  }
}

/** Rotates the pairs (i, i + D/2) of v by sign·position/theta^(2i/D), in place. */
function rotate(v: Float64Array, position: number, theta: number, sign: 1 | -1): void {
  const half = v.length / 2;
  for (let i = 0; i < half; i++) {
    const angle = (sign * position) / theta ** ((2 * i) / v.length);
    const [a, b, cos, sin] = [v[i]!, v[i + half]!, Math.cos(angle), Math.sin(angle)];
    v[i] = a * cos - b * sin;
    v[i + half] = b * cos + a * sin;
  }
}

/** out[t,h] = rotate(x[t,h]·rstd·w, positions[t]) */
export function qkNormRope(out: Tensor, x: Tensor, w: Tensor, positions: Tensor, eps: number, theta: number): void {
  const [T, H, D] = dims(x, 3);
  sized("qkNormRope", [out, T * H * D], [w, D], [positions, T]);
  const [y, xs, ws, position] = [single(out), single(x), single(w), ints(positions)];
  for (let i = 0; i < T * H; i++) {
    const head = xs.slice(i * D, (i + 1) * D);
    const r = rstdOf(head, eps);
    for (let d = 0; d < D; d++) head[d]! *= r * ws[d]!;
    rotate(head, position[Math.floor(i / H)]!, theta, 1);
    y.set(head, i * D);
  }
}

export function qkNormRopeBackward(
  dx: Tensor,
  dw: Tensor,
  dOut: Tensor,
  x: Tensor,
  w: Tensor,
  positions: Tensor,
  eps: number,
  theta: number,
): void {
  const [T, H, D] = dims(x, 3);
  sized("qkNormRopeBackward", [dx, T * H * D], [dw, D], [dOut, T * H * D], [w, D], [positions, T]);
  const [dxs, dy, xs, position] = [single(dx), single(dOut), single(x), ints(positions)];
  for (let i = 0; i < T * H; i++) {
    const head = xs.subarray(i * D, (i + 1) * D);
    const g = dy.slice(i * D, (i + 1) * D);
    rotate(g, position[Math.floor(i / H)]!, theta, -1);
    const d = new Float64Array(D);
    normBackward(d, single(dw), g, head, single(w), rstdOf(head, eps));
    dxs.set(d, i * D);
  }
}

/** out = gate·σ(gate)·up */
export function swiglu(out: Tensor, gate: Tensor, up: Tensor): void {
  sized("swiglu", [gate, out.size], [up, out.size]);
  const [y, g, u] = [single(out), single(gate), single(up)];
  for (let i = 0; i < y.length; i++) y[i] = (g[i]! / (1 + Math.exp(-g[i]!))) * u[i]!;
}

/** dUp = dOut·silu(gate);  dGate = dOut·up·σ·(1 + gate·(1 − σ)) */
export function swigluBackward(dGate: Tensor, dUp: Tensor, dOut: Tensor, gate: Tensor, up: Tensor): void {
  sized("swigluBackward", [dGate, dOut.size], [dUp, dOut.size], [gate, dOut.size], [up, dOut.size]);
  const [dg, du, dy, gs, us] = [single(dGate), single(dUp), single(dOut), single(gate), single(up)];
  for (let i = 0; i < dy.length; i++) {
    const [g, u, s] = [gs[i]!, us[i]!, 1 / (1 + Math.exp(-gs[i]!))];
    du[i] = dy[i]! * g * s;
    dg[i] = dy[i]! * u * s * (1 + g * (1 - s));
  }
}

/** Loshchilov & Hutter 2019, in PyTorch's order of operations. */
export function adamw(param: Tensor, grad: Tensor, m: Tensor, v: Tensor, o: AdamWOptions): void {
  sized("adamw", [grad, param.size], [m, param.size], [v, param.size]);
  const [p, gs, ms, vs] = [single(param), single(grad), single(m), single(v)];
  const [c1, c2] = [1 - o.beta1 ** o.step, 1 - o.beta2 ** o.step];
  for (let i = 0; i < p.length; i++) {
    const g = gs[i]! * o.gradScale;
    ms[i] = o.beta1 * ms[i]! + (1 - o.beta1) * g;
    vs[i] = o.beta2 * vs[i]! + (1 - o.beta2) * g * g;
    p[i] = p[i]! * (1 - o.lr * o.weightDecay) - (o.lr / c1) * (ms[i]! / (Math.sqrt(vs[i]!) / Math.sqrt(c2) + o.eps));
  }
}
