/** llama.cpp as the peer of decoding: the benchmark's own model as GGUF in f32, through npm node-llama-cpp in .cache/llama (model/llama.ts). */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { uniform } from "../engine/random.ts";
import { openReferenceEngine } from "../engine/reference/index.ts";
import { SIZES } from "./bench.ts";
import { trainTokenizer } from "./bpe.ts";
import { exportGguf } from "./gguf.ts";
import { saveModel } from "./hub.ts";
import { LLAMA_DIR, LlamaError, llamaInstalled } from "./llama.ts";
import { Model } from "./model.ts";

/** What is used of node-llama-cpp. */
interface Sequence {
  evaluate(
    tokens: number[],
    options: { temperature: number; seed: number; yieldEogToken: true },
  ): AsyncGenerator<number>;
  dispose(): void;
}
interface LlamaModule {
  getLlama(options: { gpu: false; build: "never"; logLevel: "error"; maxThreads: number }): Promise<{
    loadModel(options: { modelPath: string; gpuLayers: 0 }): Promise<{
      createContext(options: { contextSize: number; sequences: number; threads: number; batchSize: number }): Promise<{
        getSequence(): Sequence;
        dispose(): Promise<void>;
      }>;
      dispose(): Promise<void>;
    }>;
  }>;
}
const isLlamaModule = (m: unknown): m is LlamaModule =>
  typeof m === "object" && m !== null && "getLlama" in m && typeof m.getLlama === "function";

export interface LlamaRunner {
  /** Threads that it runs with: as asked, or one where that was faster. */
  threads: number;
  /** Tokens a second of `batch` sequences, prompts of 16 tokens included, as in `engineRunner`. */
  decode(batch: number, tokens: number): Promise<number>;
  close(): Promise<void>;
}

/** A tokenizer of the wanted size, which GGUF needs: merges of seeded nonsense. */
function nonsenseTokenizer(vocabSize: number) {
  const letter = (i: number) => String.fromCharCode(97 + Math.floor(26 * uniform(9, i)));
  const word = (i: number) => Array.from({ length: 6 }, (_, j) => letter(6 * i + j)).join("");
  const words = Array.from({ length: vocabSize }, (_, i) => word(i));
  return trainTokenizer([words.join(" "), words.join(" ")], { vocabSize, tags: [] });
}

/** Size S in llama.cpp on `threads` threads or one, whichever decodes faster now; null where node-llama-cpp is not installed. */
export async function llamaRunner(threads: number): Promise<LlamaRunner | null> {
  if (!llamaInstalled()) return null;
  const module: unknown = await import(join(LLAMA_DIR, "node_modules/node-llama-cpp/dist/index.js"));
  if (!isLlamaModule(module)) throw new LlamaError(`${LLAMA_DIR} does not hold node-llama-cpp 3.21.1`);
  const dir = mkdtempSync(join(tmpdir(), "paraagent-llama-"));
  try {
    const { config } = SIZES.S;
    const engine = await openReferenceEngine();
    const { parameters } = await Model.create(engine, config, 1);
    await saveModel(join(dir, "S"), {
      engine,
      config,
      parameters,
      tokenizer: await nonsenseTokenizer(config.vocab_size),
    });
    await exportGguf(join(dir, "S"), join(dir, "S.gguf"), "f32");
    const llama = await module.getLlama({ gpu: false, build: "never", logLevel: "error", maxThreads: threads });
    const loaded = await llama.loadModel({ modelPath: join(dir, "S.gguf"), gpuLayers: 0 });
    const decode = async (batch: number, tokens: number, threads: number) => {
      const context = await loaded.createContext({
        contextSize: 32 + tokens,
        sequences: batch,
        threads,
        batchSize: 512,
      });
      const sequences = Array.from({ length: batch }, () => context.getSequence());
      const start = performance.now();
      await Promise.all(
        sequences.map(async (sequence, seed) => {
          let left = tokens;
          const prompt = Array.from({ length: 16 }, (_, i) => i + seed);
          for await (const _ of sequence.evaluate(prompt, { temperature: 1, seed, yieldEogToken: true })) {
            if (--left === 0) break;
          }
        }),
      );
      const rate = (1000 * batch * tokens) / (performance.now() - start);
      await context.dispose();
      return rate;
    };
    // Its threads wait by spinning: on a machine that does other work as well, one is many times faster than one a core.
    await decode(1, 4, 1);
    const [one, all] = [await decode(1, 16, 1), await decode(1, 16, threads)];
    const best = all > one ? threads : 1;
    return {
      threads: best,
      decode: (batch, tokens) => decode(batch, tokens, best),
      async close() {
        await loaded.dispose();
        rmSync(dir, { recursive: true });
      },
    };
  } catch (error) {
    rmSync(dir, { recursive: true });
    throw error;
  }
}
