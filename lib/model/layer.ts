/**
 * One decoder layer, forward and backward. Shapes: x, mid [T,C]; q [T,H,D]; k, v [T,K,D]; gate, up, act [T,F].
 *   n1 = norm(x)   q, k, v = n1·Wᵀ   (q, k = conv(q), conv(k))   q, k = rope(norm(q)), rope(norm(k))
 *   mid = x + attention(q, k, v)·Woᵀ     n2 = norm(mid)     out = mid + (silu(n2·Wgᵀ) ⊙ (n2·Wuᵀ))·Wdᵀ
 */
import type { Engine, Packing, Tensor } from "../engine/types.ts";
import type { Adapters } from "./lora.ts";
import { layerName, ModelError } from "./parameters.ts";
import type { ModelConfig, Parameters } from "./types.ts";
import type { Workspace } from "./workspace.ts";

/** What a layer computes with. */
export interface LayerContext {
  engine: Engine;
  config: ModelConfig;
  parameters: Parameters;
  adapters: Adapters | null;
  /** Gradients by parameter name; a parameter without one is frozen. */
  gradients: Parameters;
  workspace: Workspace;
}

/** How the tokens of a step see each other: packed documents, or sequences in a paged cache. */
export interface Sequences {
  positions: Tensor;
  /** Short convolution of the projections of layer `layer`: x, out [T,N]. */
  convolve(layer: number, which: "q" | "k", out: Tensor, x: Tensor, w: Tensor): void;
  attend(layer: number, out: Tensor, lse: Tensor, q: Tensor, k: Tensor, v: Tensor): void;
}

/** Attention and convolution within packed documents. */
export function packedSequences(engine: Engine, c: ModelConfig, packing: Packing): Sequences {
  const scale = 1 / Math.sqrt(c.head_dim);
  return {
    positions: packing.positions,
    convolve: (_layer, _which, out, x, w) => engine.shortConv(out, x, w, packing),
    attend: (_layer, out, lse, q, k, v) => engine.attention(out, lse, q, k, v, packing, scale),
  };
}

/** A parameter by full name. */
export function weight(ctx: LayerContext, name: string): Tensor {
  const found = ctx.parameters.get(name);
  if (!found) throw new ModelError(`the model has no parameter ${name}`);
  return found;
}

/** The gradient of a vector, or, where it is frozen, a sink that nobody reads. */
export function vectorGradient(ctx: LayerContext, name: string): Tensor {
  const own = ctx.gradients.get(name);
  if (own) return own;
  const { shape } = weight(ctx, name);
  return ctx.workspace.table(`sink${shape.length}`, shape[0]!, shape.slice(1), "f32");
}

/** out [T,O] = x [T,I]·Wᵀ (+ out), the adapter's part included. */
function linear(ctx: LayerContext, out: Tensor, x: Tensor, name: string, accumulate = false): void {
  const { engine } = ctx;
  engine.matmul(out, x, weight(ctx, name), { transB: true, accumulate });
  const adapter = ctx.adapters?.of(name);
  if (!adapter) return;
  const u = scaledDown(ctx, x, name);
  engine.matmul(out, u, adapter.b, { transB: true, accumulate: true });
}

/** u [T,rank] = scale·x·Aᵀ */
function scaledDown(ctx: LayerContext, x: Tensor, name: string): Tensor {
  const { a, scale } = ctx.adapters!.of(name)!;
  const u = ctx.workspace.get("lora u", x.shape[0]!, [a.shape[0]!]);
  ctx.engine.matmul(u, x, a, { transB: true });
  ctx.engine.axpby(u, scale, u, 0, u);
  return u;
}

/** dx [T,I] = dOut [T,O]·W (+ dx); dW [O,I] += dOutᵀ·x; for an adapter dB += dOutᵀ·u, du = scale·dOut·B, dA += duᵀ·x, dx += du·A. */
function linearBackward(
  ctx: LayerContext,
  dx: Tensor,
  dOut: Tensor,
  x: Tensor,
  name: string,
  accumulate = false,
): void {
  const { engine } = ctx;
  engine.matmul(dx, dOut, weight(ctx, name), { accumulate });
  const dW = ctx.gradients.get(name);
  if (dW) engine.matmul(dW, dOut, x, { transA: true, accumulate: true });
  const adapter = ctx.adapters?.of(name);
  if (!adapter) return;
  const [dA, dB] = ["A", "B"].map((which) => ctx.gradients.get(name.replace(/\.weight$/, `.lora_${which}.weight`))!);
  engine.matmul(dB!, dOut, scaledDown(ctx, x, name), { transA: true, accumulate: true });
  const du = ctx.workspace.get("lora du", x.shape[0]!, [adapter.a.shape[0]!]);
  engine.matmul(du, dOut, adapter.b);
  engine.axpby(du, adapter.scale, du, 0, du);
  engine.matmul(dA!, du, x, { transA: true, accumulate: true });
  engine.matmul(dx, du, adapter.a, { accumulate: true });
}

/** The activations of a layer, by slot: layers that share a slot share memory. */
function activations({ workspace, config: c }: LayerContext, slot: number, T: number) {
  const get = (name: string, ...inner: number[]) => workspace.get(`${slot}.${name}`, T, inner);
  const [C, F, H, K, D] = [
    c.hidden_size,
    c.intermediate_size,
    c.num_attention_heads,
    c.num_key_value_heads,
    c.head_dim,
  ];
  return {
    n1: get("n1", C),
    rstd1: get("rstd1"),
    /** Projections, before convolution. */
    q0: get("q0", H * D),
    k0: get("k0", K * D),
    v0: get("v", K * D),
    /** After convolution: the projections themselves where there is none. */
    qc: get(c.short_conv?.q ? "qc" : "q0", H * D),
    kc: get(c.short_conv?.k ? "kc" : "k0", K * D),
    qc3: get(c.short_conv?.q ? "qc" : "q0", H, D),
    kc3: get(c.short_conv?.k ? "kc" : "k0", K, D),
    /** After norm and rotation. */
    q: get("q", H, D),
    k: get("k", K, D),
    v: get("v", K, D),
    att: get("att", H * D),
    att3: get("att", H, D),
    lse: get("lse", H),
    mid: get("mid", C),
    n2: get("n2", C),
    rstd2: get("rstd2"),
    gate: get("gate", F),
    up: get("up", F),
    act: get("act", F),
  };
}

/** x → out [T,C]; out may be x where the input is not needed again. Activations go to `slot`. */
export function layerForward(
  ctx: LayerContext,
  layer: number,
  slot: number,
  out: Tensor,
  x: Tensor,
  seq: Sequences,
): void {
  attentionForward(ctx, layer, slot, x, seq);
  const { engine } = ctx;
  const a = activations(ctx, slot, x.shape[0]!);
  engine.copy(out, a.mid);
  linear(ctx, out, a.act, layerName(layer, "mlp.down_proj"), true);
}

/** Everything of the forward pass but the layer's output: what the backward pass needs. */
function attentionForward(ctx: LayerContext, layer: number, slot: number, x: Tensor, seq: Sequences): void {
  const { engine, config: c } = ctx;
  const a = activations(ctx, slot, x.shape[0]!);
  const w = (part: string) => weight(ctx, layerName(layer, part));
  const project = (to: Tensor, from: Tensor, part: string) => linear(ctx, to, from, layerName(layer, part));
  engine.rmsNorm(a.n1, a.rstd1, x, w("input_layernorm"), c.rms_norm_eps);
  project(a.q0, a.n1, "self_attn.q_proj");
  project(a.k0, a.n1, "self_attn.k_proj");
  project(a.v0, a.n1, "self_attn.v_proj");
  if (c.short_conv?.q) seq.convolve(layer, "q", a.qc, a.q0, w("self_attn.q_conv"));
  if (c.short_conv?.k) seq.convolve(layer, "k", a.kc, a.k0, w("self_attn.k_conv"));
  engine.qkNormRope(a.q, a.qc3, w("self_attn.q_norm"), seq.positions, c.rms_norm_eps, c.rope_theta);
  engine.qkNormRope(a.k, a.kc3, w("self_attn.k_norm"), seq.positions, c.rms_norm_eps, c.rope_theta);
  seq.attend(layer, a.att3, a.lse, a.q, a.k, a.v);
  engine.copy(a.mid, x);
  linear(ctx, a.mid, a.att, layerName(layer, "self_attn.o_proj"), true);
  engine.rmsNorm(a.n2, a.rstd2, a.mid, w("post_attention_layernorm"), c.rms_norm_eps);
  project(a.gate, a.n2, "mlp.gate_proj");
  project(a.up, a.n2, "mlp.up_proj");
  engine.swiglu(a.act, a.gate, a.up);
}

/** Computes a layer's activations again from its input (recomputation instead of keeping them). */
export const layerRecompute = attentionForward;

/**
 * dx [T,C]: in, the gradient by the layer's output; out, by its input x. Gradients of parameters are added to. Destroys the slot's
 * gate and up.
 */
export function layerBackward(
  ctx: LayerContext,
  layer: number,
  slot: number,
  dx: Tensor,
  x: Tensor,
  packing: Packing,
): void {
  const { engine, config: c, workspace } = ctx;
  const T = x.shape[0]!;
  const [C, F, H, K, D] = [
    c.hidden_size,
    c.intermediate_size,
    c.num_attention_heads,
    c.num_key_value_heads,
    c.head_dim,
  ];
  const a = activations(ctx, slot, T);
  const scratch = (name: string, ...inner: number[]) => workspace.get(`d.${name}`, T, inner);
  const w = (part: string) => weight(ctx, layerName(layer, part));
  const dw = (part: string) => vectorGradient(ctx, layerName(layer, part));
  const unproject = (d: Tensor, dOut: Tensor, from: Tensor, part: string, accumulate = false) =>
    linearBackward(ctx, d, dOut, from, layerName(layer, part), accumulate);
  const dn = scratch("n", C);

  // Feed-forward: dx is the gradient by the output, and by mid through the residual.
  const dAct = scratch("act", F);
  unproject(dAct, dx, a.act, "mlp.down_proj");
  engine.swigluBackward(a.gate, a.up, dAct, a.gate, a.up);
  unproject(dn, a.gate, a.n2, "mlp.gate_proj");
  unproject(dn, a.up, a.n2, "mlp.up_proj", true);
  engine.rmsNormBackward(dx, dw("post_attention_layernorm"), dn, a.mid, w("post_attention_layernorm"), a.rstd2);

  // Attention.
  unproject(scratch("att", H * D), dx, a.att, "self_attn.o_proj");
  const grads = { dq: scratch("q", H, D), dk: scratch("k", K, D), dv: scratch("v", K, D) };
  engine.attentionBackward(
    grads,
    scratch("att", H, D),
    { q: a.q, k: a.k, v: a.v, out: a.att3, lse: a.lse },
    packing,
    1 / Math.sqrt(D),
  );
  const [eps, theta] = [c.rms_norm_eps, c.rope_theta];
  engine.qkNormRopeBackward(
    scratch("q0", H, D),
    dw("self_attn.q_norm"),
    grads.dq,
    a.qc3,
    w("self_attn.q_norm"),
    packing.positions,
    eps,
    theta,
  );
  engine.qkNormRopeBackward(
    scratch("k0", K, D),
    dw("self_attn.k_norm"),
    grads.dk,
    a.kc3,
    w("self_attn.k_norm"),
    packing.positions,
    eps,
    theta,
  );
  let [dq0, dk0] = [scratch("q0", H * D), scratch("k0", K * D)];
  if (c.short_conv?.q) {
    engine.shortConvBackward(scratch("q", H * D), dw("self_attn.q_conv"), dq0, a.q0, w("self_attn.q_conv"), packing);
    dq0 = scratch("q", H * D);
  }
  if (c.short_conv?.k) {
    engine.shortConvBackward(scratch("k", K * D), dw("self_attn.k_conv"), dk0, a.k0, w("self_attn.k_conv"), packing);
    dk0 = scratch("k", K * D);
  }
  unproject(dn, dq0, a.n1, "self_attn.q_proj");
  unproject(dn, dk0, a.n1, "self_attn.k_proj", true);
  unproject(dn, scratch("v", K * D), a.n1, "self_attn.v_proj", true);
  engine.rmsNormBackward(dx, dw("input_layernorm"), dn, x, w("input_layernorm"), a.rstd1);
}
