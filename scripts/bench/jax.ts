/**
 * A peer of `bun run bench engine`: the same decoder in jax-js (npm @jax-js/jax in .cache/jaxjs), float32, whole step under its jit. A server on
 * standard input as torch_train.py: `train SIZE STEPS` is answered by one JSON line with tokens a second, `matmul N` with GFLOP/s.
 *     echo "train XS 2" | bun scripts/bench/jax.ts wasm
 * The backend is `wasm` (threads where Worker is there, as in Bun) or a device request such as `software`: jax-js asks navigator.gpu for its
 * adapter, and gets the one that our engine would take.
 */
import { uniform } from "../../lib/engine/random.ts";
import { openAdapter } from "../../lib/engine/webgpu/device.ts";
import { randomBatch, SIZES } from "../../lib/model/bench.ts";
import { JAX_ENTRY } from "../../lib/model/bench-peers.ts";

/** What is used of jax-js. Passing an array gives it away; `ref` keeps it. */
interface Arr {
  ref: Arr;
  add(x: Arr | number): Arr;
  sub(x: Arr | number): Arr;
  mul(x: Arr | number): Arr;
  div(x: Arr | number): Arr;
  neg(): Arr;
  reshape(shape: number[]): Arr;
  data(): Promise<Float32Array>;
  dispose(): void;
}
type Tree = Arr | Tree[] | { [name: string]: Tree };
interface Jax {
  init(device: string): Promise<string[]>;
  defaultDevice(device: string): void;
  jit<A extends Tree[], R>(f: (...args: A) => R): (...args: A) => R;
  valueAndGrad<A extends Tree[]>(f: (...args: A) => Arr): (...args: A) => [Arr, A[0]];
  blockUntilReady(tree: Tree): Promise<unknown>;
  tree: {
    ref<T extends Tree>(tree: T): T;
    map<T extends Tree>(f: (x: Arr) => Arr, tree: T): T;
    leaves(tree: Tree): Arr[];
    structure(tree: Tree): object;
    unflatten<T extends Tree>(structure: object, leaves: Arr[]): T;
  };
  nn: Record<"silu" | "logSoftmax", (x: Arr) => Arr> & {
    oneHot(x: Arr, classes: number): Arr;
    dotProductAttention(q: Arr, k: Arr, v: Arr, options: { isCausal: true }): Arr;
  };
  numpy: Record<"sqrt" | "square" | "reciprocal" | "transpose" | "zerosLike", (x: Arr) => Arr> & {
    array(values: Float32Array | Int32Array | number, options?: { shape: number[] }): Arr;
    mean(x: Arr, axis: number | null, options?: { keepdims: boolean }): Arr;
    sum(x: Arr, axis?: number): Arr;
    minimum(x: Arr, y: number): Arr;
    matmul(a: Arr, b: Arr): Arr;
    take(x: Arr, at: Arr, axis: number): Arr;
    split(x: Arr, parts: number, axis: number): Arr[];
    concatenate(parts: Arr[], axis: number): Arr;
  };
}
const isJax = (m: unknown): m is Jax => typeof m === "object" && m !== null && "valueAndGrad" in m && "jit" in m;

const backend = process.argv[2] ?? "wasm";
const jax: unknown = await import(JAX_ENTRY);
if (!isJax(jax)) throw new Error(`${JAX_ENTRY} is not jax-js`);
const { numpy: np, nn, tree, jit, valueAndGrad, blockUntilReady } = jax;
if (backend !== "wasm") {
  const { adapter } = await openAdapter(backend === "gpu" ? "gpu" : `software:${backend.split(":")[1] ?? ""}`);
  Object.defineProperty(navigator, "gpu", { value: { requestAdapter: async () => adapter } });
}
const device = backend === "wasm" ? "wasm" : "webgpu";
const made = await jax.init(device);
if (!made.includes(device)) throw new Error(`jax-js made no ${device} backend, only ${made.join(", ")}`);
jax.defaultDevice(device);

let seed = 0;
function fresh(...shape: number[]): Arr {
  const own = ++seed;
  const n = shape.reduce((a, b) => a * b);
  return np.array(
    Float32Array.from({ length: n }, (_, i) => 0.07 * (uniform(own, i) - 0.5)),
    { shape },
  );
}

function trainer(name: keyof typeof SIZES) {
  const { config: c, T, B } = SIZES[name];
  const [C, H, K, D, V] = [c.hidden_size, c.num_attention_heads, c.num_key_value_heads, c.head_dim, c.vocab_size];
  const one = (n: number) => np.array(new Float32Array(n).fill(1), { shape: [n] });
  const layer = () => ({
    ...{ n1: one(C), n2: one(C), qn: one(D), kn: one(D) },
    ...{ q: fresh(C, H * D), k: fresh(C, K * D), v: fresh(C, K * D), o: fresh(H * D, C) },
    ...{ gate: fresh(C, c.intermediate_size), up: fresh(C, c.intermediate_size), down: fresh(c.intermediate_size, C) },
  });
  const layers = Array.from({ length: c.num_hidden_layers }, layer);
  let weights = { embed: fresh(V, C), final: one(C), layers };
  type Weights = typeof weights;
  const angles = Float32Array.from({ length: (T * D) / 2 }, (_, i) => {
    const half = D / 2;
    return Math.floor(i / half) / c.rope_theta ** ((2 * (i % half)) / D);
  });
  const [cos, sin] = [Math.cos, Math.sin].map((f) => np.array(angles.map(f), { shape: [T, 1, D / 2] })) as [Arr, Arr];
  const norm = (x: Arr, w: Arr) => {
    const square = np.mean(np.square(x.ref), -1, { keepdims: true });
    return x.mul(np.reciprocal(np.sqrt(square.add(c.rms_norm_eps)))).mul(w);
  };
  const rotate = (x: Arr) => {
    const [a, b] = np.split(x, 2, -1) as [Arr, Arr];
    const first = a.ref.mul(cos.ref).sub(b.ref.mul(sin.ref));
    return np.concatenate([first, b.mul(cos.ref).add(a.mul(sin.ref))], -1);
  };
  const loss = (p: Weights, ids: Arr, wanted: Arr) => {
    let x = np.take(p.embed.ref, ids, 0);
    for (const l of p.layers) {
      const n = norm(x.ref, l.n1);
      const q = rotate(norm(np.matmul(n.ref, l.q).reshape([B, T, H, D]), l.qn));
      const k = rotate(norm(np.matmul(n.ref, l.k).reshape([B, T, K, D]), l.kn));
      const v = np.matmul(n, l.v).reshape([B, T, K, D]);
      const attended = nn.dotProductAttention(q, k, v, { isCausal: true }).reshape([B, T, H * D]);
      x = x.add(np.matmul(attended, l.o));
      const m = norm(x.ref, l.n2);
      x = x.add(np.matmul(nn.silu(np.matmul(m.ref, l.gate)).mul(np.matmul(m, l.up)), l.down));
    }
    const logits = np.matmul(norm(x, p.final), np.transpose(p.embed)).reshape([B * T, V]);
    return np.mean(np.sum(nn.logSoftmax(logits).mul(wanted), -1), null).neg();
  };
  const structure = tree.structure(tree.ref(weights));
  // Clipping to a norm of 1 and AdamW, as in the peers. c1, c2: 1/(1 − β^step).
  const step = jit((p: Weights, m: Weights, v: Weights, ids: Arr, targets: Arr, c1: Arr, c2: Arr) => {
    const [value, gradient] = valueAndGrad(loss)(tree.ref(p), ids, nn.oneHot(targets, V));
    const grads = tree.leaves(gradient);
    const squares = grads.map((g) => np.sum(np.square(g.ref))).reduce((a, b) => a.add(b));
    const clip = np.minimum(np.reciprocal(np.sqrt(squares)), 1);
    const [ps, ms, vs] = [p, m, v].map((t) => tree.leaves(t)) as [Arr[], Arr[], Arr[]];
    for (const [i, gradient] of grads.entries()) {
      const g = gradient.mul(clip.ref);
      ms[i] = ms[i]!.mul(0.9).add(g.ref.mul(0.1));
      vs[i] = vs[i]!.mul(0.95).add(np.square(g).mul(0.05));
      const root = np.sqrt(vs[i]!.ref.mul(c2.ref)).add(1e-8);
      ps[i] = ps[i]!.mul(1 - 1e-5).sub(ms[i]!.ref.mul(c1.ref).div(root).mul(1e-4));
    }
    for (const x of [clip, c1, c2]) x.dispose();
    return [value, ...[ps, ms, vs].map((leaves) => tree.unflatten<Weights>(structure, leaves))] as const;
  });
  const batch = randomBatch(SIZES[name]);
  const [ids, targets] = [np.array(batch.ids, { shape: [B, T] }), np.array(batch.targets, { shape: [B * T] })];
  let [m, v] = [weights, weights].map((w) => tree.map((x) => np.zerosLike(x.ref), w)) as [Weights, Weights];
  let taken = 0;
  return async (steps: number): Promise<number> => {
    const start = performance.now();
    for (let i = 0; i < steps; i++) {
      taken++;
      const [c1, c2] = [np.array(1 / (1 - 0.9 ** taken)), np.array(1 / (1 - 0.95 ** taken))];
      const [value, ...rest] = step(weights, m, v, ids.ref, targets.ref, c1, c2);
      [weights, m, v] = rest as [Weights, Weights, Weights];
      await blockUntilReady([weights, m, v]);
      const [nats] = await value.data();
      if (!(nats! < 2 * Math.log(V))) throw new Error(`jax-js: a loss of ${nats}`);
    }
    return (1000 * steps * B * T) / (performance.now() - start);
  };
}

function product(n: number) {
  const [a, b] = [fresh(n, n), fresh(n, n)];
  const multiply = jit((x: Arr, y: Arr) => np.matmul(x, y));
  return async () => {
    const start = performance.now();
    const c = multiply(a.ref, b.ref);
    await blockUntilReady(c);
    c.dispose();
    return (2 * n ** 3) / 1e6 / (performance.now() - start);
  };
}

const known = new Map<string, (times: number) => Promise<number>>();
for await (const line of console) {
  const [what, size = "", times] = line.split(" ");
  if (!what) continue;
  const key = `${what} ${size}`;
  if (!known.has(key)) known.set(key, what === "train" ? trainer(size as keyof typeof SIZES) : product(Number(size)));
  console.log(JSON.stringify({ rate: await known.get(key)!(Number(times ?? 1)) }));
}
process.exit(0);
