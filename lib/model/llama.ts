/**
 * An independent check of what was exported: llama.cpp, through npm node-llama-cpp in a folder of its own (.cache/llama; it is large, and
 * nothing else needs it), computes the same next-token probabilities and the same tokens.
 */
import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import type { Model } from "./model.ts";
import type { LoadedTokenizer } from "./tokenizer.ts";

export const LLAMA_DIR = resolve(import.meta.dir, "../../.cache/llama");
export const LLAMA_INSTALL =
  "npm install --prefix .cache/llama --omit=optional node-llama-cpp@3.21.1 @node-llama-cpp/linux-x64@3.21.1";

/** node-llama-cpp is not there, or not what it was. */
export class LlamaError extends Error {
  override name = "LlamaError";
}

const entry = join(LLAMA_DIR, "node_modules/node-llama-cpp/dist/index.js");
export const llamaInstalled = () => existsSync(entry);

/** What is used of node-llama-cpp. */
interface LlamaModule {
  getLlama(options: { gpu: false; build: "never"; logLevel: "error" }): Promise<{
    loadModel(options: { modelPath: string; gpuLayers: 0 }): Promise<{
      createContext(options: {
        contextSize: number;
        threads: 1;
        flashAttention: false;
        experimentalKvCacheKeyType: "F32";
        experimentalKvCacheValueType: "F32";
      }): Promise<{
        getSequence(): {
          controlledEvaluate(
            input: [number, { generateNext: { probabilities: true } }][],
          ): Promise<({ next: { probabilities?: ReadonlyMap<number, number> } } | undefined)[]>;
        };
      }>;
      tokenize(text: string, specialTokens: boolean): ArrayLike<number>;
      dispose(): Promise<void>;
    }>;
  }>;
}
function isLlamaModule(module: unknown): module is LlamaModule {
  return typeof module === "object" && module !== null && "getLlama" in module && typeof module.getLlama === "function";
}

export interface LlamaComparison {
  positions: number;
  /** Largest difference of a next-token probability over all positions and tokens. */
  largestDifference: number;
  /** Texts that llama.cpp splits into other tokens than our tokenizer. */
  differentTexts: string[];
}

/**
 * Runs `ids` through llama.cpp on `ggufPath` and through `model`, which must have the same weights, and compares the probabilities of every next
 * token at every position; also compares the tokens of `texts` (without special tokens). Throws LlamaError where node-llama-cpp is not installed.
 */
export async function compareWithLlama(
  model: Model,
  tokenizer: LoadedTokenizer,
  ggufPath: string,
  input: { ids: readonly number[]; texts: readonly string[] },
): Promise<LlamaComparison> {
  if (!llamaInstalled()) throw new LlamaError(`node-llama-cpp is not installed. Install it with: ${LLAMA_INSTALL}`);
  const module: unknown = await import(entry);
  if (!isLlamaModule(module))
    throw new LlamaError(`${entry} is not the node-llama-cpp that this was written for (3.21.1).`);
  const { ids } = input;
  const llama = await module.getLlama({ gpu: false, build: "never", logLevel: "error" });
  const theirs = await llama.loadModel({ modelPath: ggufPath, gpuLayers: 0 });
  try {
    const context = await theirs.createContext({
      contextSize: ids.length + 8,
      // Several wait for each other by spinning, for minutes on a busy machine.
      threads: 1,
      flashAttention: false,
      // Its cache is f16 by default, which alone moves probabilities by 1e-3.
      experimentalKvCacheKeyType: "F32",
      experimentalKvCacheValueType: "F32",
    });
    const found = await context
      .getSequence()
      .controlledEvaluate(ids.map((id) => [id, { generateNext: { probabilities: true } }]));
    const logits = await model.logits(Int32Array.from(ids), Int32Array.of(0, ids.length));
    const vocabulary = model.config.vocab_size;
    let largestDifference = 0;
    for (let t = 0; t < ids.length; t++) {
      const ours = softmax(logits.subarray(t * vocabulary, (t + 1) * vocabulary));
      const probabilities = found[t]?.next.probabilities;
      if (!probabilities) throw new LlamaError(`llama.cpp gave no probabilities at position ${t}.`);
      // node-llama-cpp's softmax adds up hundreds of small terms to 1 in float: its probabilities sum to 1 only to 1e-5. Their ratios are right.
      const total = probabilities.values().reduce((a, b) => a + b, 0);
      if (Math.abs(total - 1) > 1e-4)
        throw new LlamaError(`llama.cpp's probabilities at position ${t} sum to ${total}.`);
      // What is left out of the map has a probability of zero.
      for (const [id, p] of ours.entries())
        largestDifference = Math.max(largestDifference, Math.abs(p - (probabilities.get(id) ?? 0) / total));
    }
    const differentTexts = input.texts.filter(
      (text) => tokenizer.encode(text).join() !== Array.from(theirs.tokenize(text, false)).join(),
    );
    return { positions: ids.length, largestDifference, differentTexts };
  } finally {
    await theirs.dispose();
  }
}

function softmax(logits: Float32Array): Float64Array {
  const largest = logits.reduce((a, b) => Math.max(a, b));
  const exp = Float64Array.from(logits, (x) => Math.exp(x - largest));
  const sum = exp.reduce((a, b) => a + b);
  return exp.map((x) => x / sum);
}
