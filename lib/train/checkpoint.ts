/**
 * Checkpoints that survive anything: a folder a step, written under another name and renamed when it is whole; the last two and the best are kept; data
 * carries checksums; one that is damaged gives way to the one before it. A checkpoint also holds how far the metrics file had come, so
 * that resuming continues it as if nothing had happened.
 *
 * <dir>/checkpoints/step-000120/  state.json  model/ (Hugging Face's layout)  optimizer.safetensors
 */
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  truncateSync,
} from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { syncFolder, writeAtomic } from "../config/atomic.ts";
import { contentHash } from "../config/hash.ts";
import { loadAdapters, saveAdapters, saveModel } from "../model/hub.ts";
import type { Model } from "../model/model.ts";
import type { Optimizer } from "../model/optimizer.ts";
import { openSafetensors, readSafetensors, writeSafetensors } from "../model/safetensors.ts";
import type { LoadedTokenizer } from "../model/tokenizer.ts";
import type { Progress } from "../runs/types.ts";

/** A checkpoint could not be written, or none of those there can be read. The message names the last good state. */
export class CheckpointError extends Error {
  override name = "CheckpointError";
}

/** Where a stage's metrics lie, beside its checkpoints (runs/stages.ts). */
const METRICS_FILE = "metrics.jsonl";

const Envelope = z.strictObject({
  step: z.int().min(0),
  /** Size of the metrics file when this was written. */
  metricsBytes: z.int().min(0),
  /** The best step so far, whose checkpoint is kept. */
  best: z.int().min(0).nullable(),
  state: z.unknown(),
  checksum: z.string(),
});
type Envelope = z.infer<typeof Envelope>;

/** What a checkpoint is of. */
export interface Trained {
  model: Model;
  optimizer: Optimizer;
  tokenizer: LoadedTokenizer | null;
}

export class Checkpoints<S> {
  #root: string;
  #best: number | null = null;
  #last: string | null = null;

  /** `schema` is that of the trainer's own state (counters, data position). Leftovers of a killed write are removed. */
  constructor(
    readonly dir: string,
    readonly schema: z.ZodType<S>,
    readonly progress: Pick<Progress, "log">,
    readonly keep = 2,
  ) {
    this.#root = join(dir, "checkpoints");
    mkdirSync(this.#root, { recursive: true });
    for (const name of readdirSync(this.#root))
      if (name.endsWith(".tmp")) rmSync(join(this.#root, name), { recursive: true, force: true });
  }

  /** The last state that is whole on disk, in words for an error. */
  get lastGood(): string {
    return this.#last ?? "none: nothing had been saved yet";
  }

  get bestStep(): number | null {
    return this.#best;
  }

  /** The model directory of a step's checkpoint. */
  modelDir(step: number): string {
    return join(this.#root, folderName(step), "model");
  }

  /**
   * Writes the state after `step` steps; with `best`, this one is kept as the best so far. `write` fills the folder. Throws CheckpointError,
   * having changed nothing, where the disk refuses.
   */
  async save(step: number, write: (folder: string) => Promise<void>, state: S, best = false): Promise<void> {
    const target = join(this.#root, folderName(step));
    const temporary = `${target}.tmp`;
    const metrics = join(this.dir, METRICS_FILE);
    const body = {
      step,
      metricsBytes: existsSync(metrics) ? statSync(metrics).size : 0,
      best: best ? step : this.#best,
      state,
    };
    try {
      rmSync(temporary, { recursive: true, force: true });
      mkdirSync(temporary);
      await write(temporary);
      writeAtomic(join(temporary, "state.json"), JSON.stringify({ ...body, checksum: contentHash(body) }));
      rmSync(target, { recursive: true, force: true });
      renameSync(temporary, target);
      syncFolder(this.#root);
    } catch (error) {
      rmSync(temporary, { recursive: true, force: true });
      const code = error instanceof Error && "code" in error ? String(error.code) : "";
      if (!/^(ENOSPC|EDQUOT|EFBIG|EIO|EROFS|EACCES)$/.test(code)) throw error;
      const why = /^(ENOSPC|EDQUOT)$/.test(code) ? "the disk is full" : `the disk answered ${code}`;
      throw new CheckpointError(
        `the checkpoint of step ${step} could not be written: ${why}. The last good state is ${this.lastGood}; make room and run the same command again, it goes on from there.`,
        { cause: error },
      );
    }
    this.#best = body.best;
    this.#last = target;
    this.#prune();
  }

  /**
   * Finds the newest whole checkpoint, lets `read` restore from its folder, and cuts the metrics file back to it. Returns null where there is none (the
   * metrics file is emptied then). A damaged one is passed over with a warning; throws CheckpointError if all are damaged.
   */
  async restore(read: (folder: string) => Promise<void>): Promise<{ step: number; state: S } | null> {
    const metrics = join(this.dir, METRICS_FILE);
    const steps = this.#steps();
    const problems: string[] = [];
    for (const step of steps.toReversed()) {
      const folder = join(this.#root, folderName(step));
      try {
        const envelope = readEnvelope(folder);
        const state = this.schema.parse(envelope.state);
        await read(folder);
        for (const problem of problems) this.progress.log(`warning: ${problem}; going on from ${folder}`);
        for (const newer of steps.filter((s) => s > step))
          rmSync(join(this.#root, folderName(newer)), { recursive: true, force: true });
        this.#best = envelope.best;
        this.#last = folder;
        if (existsSync(metrics)) truncateSync(metrics, Math.min(envelope.metricsBytes, statSync(metrics).size));
        return { step: envelope.step, state };
      } catch (error) {
        problems.push(`${folder} is damaged (${error instanceof Error ? error.message : error})`);
      }
    }
    if (problems.length > 0)
      throw new CheckpointError(
        `no checkpoint can be read: ${problems.join("; ")}. Remove ${this.#root} to start again.`,
      );
    if (existsSync(metrics)) truncateSync(metrics, 0);
    return null;
  }

  /** Copies a step's model to `<dir>/<name>` (a model directory), whole or not at all, and returns its path. */
  publish(step: number, name: string): string {
    const target = join(this.dir, name);
    const temporary = `${target}.tmp`;
    rmSync(temporary, { recursive: true, force: true });
    cpSync(this.modelDir(step), temporary, { recursive: true });
    rmSync(target, { recursive: true, force: true });
    renameSync(temporary, target);
    syncFolder(this.dir);
    return target;
  }

  /** Removes all but the newest and what these call the best, so that going back to one of them finds its best too. */
  #prune(): void {
    const steps = this.#steps();
    const kept = new Set(steps.slice(-this.keep));
    for (const step of [...kept]) {
      const state = Envelope.safeParse(parseOrNull(join(this.#root, folderName(step), "state.json")));
      if (state.success && state.data.best !== null) kept.add(state.data.best);
    }
    for (const step of steps)
      if (!kept.has(step)) rmSync(join(this.#root, folderName(step)), { recursive: true, force: true });
  }

  /** Steps that have a folder, oldest first. */
  #steps(): number[] {
    return readdirSync(this.#root)
      .flatMap((name) => /^step-(\d+)$/.exec(name)?.[1] ?? [])
      .map(Number)
      .sort((a, b) => a - b);
  }
}

const folderName = (step: number) => `step-${String(step).padStart(6, "0")}`;

function parseOrNull(file: string): unknown {
  try {
    return JSON.parse(readFileSync(file, "utf8"));
  } catch {
    return null;
  }
}

function readEnvelope(folder: string): Envelope {
  const envelope = Envelope.parse(JSON.parse(readFileSync(join(folder, "state.json"), "utf8")));
  const { checksum, ...body } = envelope;
  if (contentHash(body) !== checksum) throw new CheckpointError("state.json does not match its checksum");
  return envelope;
}

/** Writes weights (to the bit), adapters and optimiser state into a checkpoint's folder. */
export async function writeTrained(folder: string, { model, optimizer, tokenizer }: Trained): Promise<void> {
  await saveModel(join(folder, "model"), { ...model, tokenizer }, { dtype: "as is" });
  if (model.adapters) await saveAdapters(join(folder, "model"), model.adapters);
  const state = [...(await optimizer.export())].map(([name, data]) => ({ name, shape: [data.length], data }));
  await writeSafetensors(
    join(folder, "optimizer.safetensors"),
    state.map((s) => ({ ...s, dtype: "f32" as const })),
  );
}

/** Restores what `writeTrained` wrote, after checking its checksums. Throws SafetensorsError or ModelError. */
export function readTrained(folder: string, { model, optimizer }: Omit<Trained, "tokenizer">): void {
  const weights = openSafetensors(join(folder, "model"));
  weights.verify();
  const { tensors } = readSafetensors(join(folder, "optimizer.safetensors"));
  const state = new Map<string, Float32Array>();
  for (const [name, { data }] of tensors) if (data instanceof Float32Array) state.set(name, data);
  for (const [name, tensor] of model.parameters) model.engine.upload(tensor, weights.read(name).data);
  if (model.adapters) loadAdapters(join(folder, "model"), model.adapters);
  optimizer.import(state);
}
