/**
 * Generation with continuous batching over a paged cache. Pending calls of `generate` run together, one step at a time: every sequence adds its
 * next token, and prompts are computed in chunks in between. Full pages are found again by the tokens they hold, so that a
 * group's rollouts share their prompt, and an episode's next turn begins where the last one ended (but for its unfilled last page, which is computed again).
 */
import type { PagedContext, Tensor, TokenMasks } from "../engine/types.ts";
import type { Sequences } from "./layer.ts";
import type { Model } from "./model.ts";
import { PAGE_SIZE, type Page, PageCache, ROOT } from "./pages.ts";
import type { GenerateRequest, GenerateResult, Generator, ModelConfig, TokenConstraint } from "./types.ts";
import { Workspace } from "./workspace.ts";

/** A request that cannot run, or a generator that was closed under it. */
export class GenerationError extends Error {
  override name = "GenerationError";
}

export interface GeneratorOptions {
  /** Sequences that run together at most. Default 64. */
  maxBatch?: number;
  /** Tokens of one step at most: how large a piece of a prompt is computed between two tokens of the others. Default 512. */
  maxTokens?: number;
  /** Tokens that the cache holds. Default: maxBatch full contexts, less where that is over 1 GiB or more than the device binds at once. */
  cacheTokens?: number;
  /** Milliseconds, for the statistics. Default performance.now. */
  now?: () => number;
}

interface Sequence {
  request: GenerateRequest;
  /** Prompt, then what was sampled. */
  tokens: number[];
  /** How many of the tokens are in the cache. */
  computed: number;
  pages: Page[];
  /** Identity of the prefix that each full page ends. */
  prefixes: number[];
  /** Pages that this sequence may come to hold. */
  mostPages: number;
  result: GenerateResult;
  ended: boolean;
  /** The weights changed since it began: what it computed is nobody else's. */
  stale: boolean;
  resolve: (result: GenerateResult) => void;
  reject: (error: unknown) => void;
  unlisten: () => void;
}

/** A token to be computed in this step. */
interface Planned {
  sequence: Sequence;
  position: number;
}

/** Bytes of one token in the caches of one layer: keys, values, and with a short convolution the projections before it. */
function layerBytes(c: ModelConfig): number {
  const [q, k] = [c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim];
  return 4 * (2 * k + (c.short_conv?.q ? q : 0) + (c.short_conv?.k ? k : 0));
}

function defaultCacheTokens({ engine, config: c }: Model, maxBatch: number): number {
  const widest = 4 * c.head_dim * (c.short_conv?.q ? c.num_attention_heads : c.num_key_value_heads);
  const bindable = (engine.info.limits.maxStorageBufferBindingSize ?? Infinity) / widest;
  const fits = Math.min(2 ** 30 / (c.num_hidden_layers * layerBytes(c)), bindable);
  return PAGE_SIZE * Math.max(1, Math.floor(Math.min(maxBatch * c.max_position_embeddings, fits) / PAGE_SIZE));
}

export function createGenerator(model: Model, options: GeneratorOptions = {}): Generator {
  return new PagedGenerator(model, options);
}

class PagedGenerator implements Generator {
  #model: Model;
  #maxBatch: number;
  #maxTokens: number;
  #now: () => number;
  #pages: PageCache;
  /** Per layer: keys, values, and with a short convolution the projections before it. [slots, width] each. */
  #caches: { k: Tensor; v: Tensor; q0: Tensor | null; k0: Tensor | null }[];
  #tokenSpace: Workspace;
  #rowSpace: Workspace;
  #waiting: Sequence[] = [];
  #running: Sequence[] = [];
  #looping = false;
  #closed = false;
  #stats = { promptTokens: 0, reusedTokens: 0, newTokens: 0, steps: 0, seconds: 0 };

  constructor(model: Model, options: GeneratorOptions) {
    const { engine, config: c } = model;
    this.#model = model;
    this.#maxBatch = options.maxBatch ?? 64;
    this.#maxTokens = Math.max(options.maxTokens ?? 512, this.#maxBatch);
    this.#now = options.now ?? (() => performance.now());
    const tokens = options.cacheTokens ?? defaultCacheTokens(model, this.#maxBatch);
    this.#pages = new PageCache(Math.ceil(tokens / PAGE_SIZE));
    const cache = (what: string, heads: number) =>
      engine.alloc([this.#pages.size * PAGE_SIZE, heads * c.head_dim], "f32", `${what} cache (cacheTokens)`);
    this.#caches = Array.from({ length: c.num_hidden_layers }, () => ({
      k: cache("key", c.num_key_value_heads),
      v: cache("value", c.num_key_value_heads),
      q0: c.short_conv?.q ? cache("query convolution", c.num_attention_heads) : null,
      k0: c.short_conv?.k ? cache("key convolution", c.num_key_value_heads) : null,
    }));
    this.#tokenSpace = new Workspace(engine, "generation");
    this.#tokenSpace.reserve(this.#maxTokens);
    this.#rowSpace = new Workspace(engine, "sampling");
    this.#rowSpace.reserve(this.#maxBatch);
  }

  generate(request: GenerateRequest): Promise<GenerateResult> {
    const { promise, resolve, reject } = Promise.withResolvers<GenerateResult>();
    const refusal = this.#refuse(request);
    if (refusal) {
      reject(refusal);
      return promise;
    }
    const result: GenerateResult = {
      ids: [],
      logprobs: [],
      finish: "length",
      reusedTokens: 0,
      ...(request.constraint ? { masks: [] } : {}),
    };
    if (request.maxNewTokens === 0) return Promise.resolve(result);
    const tokens = Array.from(request.promptIds);
    const mostPages = Math.ceil((tokens.length + request.maxNewTokens - 1) / PAGE_SIZE);
    const sequence: Sequence = {
      request,
      tokens,
      computed: 0,
      pages: [],
      prefixes: [],
      mostPages,
      result,
      ended: false,
      stale: false,
      resolve,
      reject,
      unlisten: () => {},
    };
    const { signal } = request;
    if (signal) {
      const abort = () => this.#end(sequence, signal.reason);
      signal.addEventListener("abort", abort, { once: true });
      sequence.unlisten = () => signal.removeEventListener("abort", abort);
    }
    this.#waiting.push(sequence);
    if (!this.#looping) void this.#loop();
    return promise;
  }

  release(keepAs: string): void {
    this.#pages.unkeep(keepAs);
  }

  invalidate(): void {
    for (const s of this.#running) s.stale = true;
    this.#pages.clear();
  }

  stats() {
    return { ...this.#stats };
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#endAll(new GenerationError("the generator was closed"));
    if (!this.#looping) this.#dispose();
  }

  #refuse(request: GenerateRequest): unknown {
    const { promptIds, maxNewTokens, signal } = request;
    const c = this.#model.config;
    const total = promptIds.length + maxNewTokens;
    if (signal?.aborted) return signal.reason;
    if (this.#closed) return new GenerationError("the generator was closed");
    if (promptIds.length === 0) return new GenerationError("generate: the prompt is empty");
    if (promptIds.some((id) => id < 0 || id >= c.vocab_size)) {
      return new GenerationError(`generate: the prompt has ids outside the vocabulary of ${c.vocab_size}`);
    }
    if (total > c.max_position_embeddings) {
      return new GenerationError(
        `generate: ${promptIds.length} prompt and ${maxNewTokens} new tokens exceed the model's ${c.max_position_embeddings} positions`,
      );
    }
    if (Math.ceil((total - 1) / PAGE_SIZE) > this.#pages.size) {
      return new GenerationError(
        `generate: ${total} tokens do not fit in the cache of ${this.#pages.size * PAGE_SIZE}; raise cacheTokens or lower maxNewTokens`,
      );
    }
    return null;
  }

  async #loop(): Promise<void> {
    this.#looping = true;
    try {
      // Calls made together with the one that woke the loop run in its first step.
      await Promise.resolve();
      while (this.#waiting.length + this.#running.length > 0) {
        const start = this.#now();
        await this.#step();
        this.#stats.seconds += (this.#now() - start) / 1000;
        // Engines whose results are there at once would otherwise starve timers and sockets.
        await new Promise<void>((resume) => setImmediate(resume));
      }
    } catch (error) {
      this.#endAll(error);
      this.#pages.clear();
    } finally {
      this.#looping = false;
      if (this.#closed) this.#dispose();
    }
  }

  async #step(): Promise<void> {
    this.#admit();
    const planned = this.#plan();
    if (planned.length === 0) return;
    const sampled = this.#sampling(planned);
    const { ids, lp } = this.#enqueue(planned, sampled);
    this.#stats.steps++;
    if (!ids || !lp) {
      await this.#model.engine.sync();
      return;
    }
    const { engine } = this.#model;
    const [hostIds, hostLp] = await Promise.all([engine.download(ids), engine.download(lp)]);
    for (const [i, { sequence }] of sampled.entries()) {
      if (!sequence.ended) this.#accept(sequence, hostIds[i]!, hostLp[i]!);
    }
  }

  // ---- scheduling ------------------------------------------------------------------------------------------------------

  /** Starts waiting sequences, in order, while there is room for all that they may need. */
  #admit(): void {
    let promised = this.#running.reduce((sum, s) => sum + s.mostPages - s.pages.length, 0);
    while (this.#waiting.length > 0 && this.#running.length < this.#maxBatch) {
      const s = this.#waiting[0]!;
      this.#findPrefix(s);
      const needed = s.mostPages - s.pages.length;
      if (promised + needed > this.#pages.available) {
        // It waits for the running ones to end. With none running it fits: everything is idle then, and `#refuse` has seen its size.
        for (const page of s.pages.splice(0)) this.#pages.drop(page);
        s.prefixes = [];
        return;
      }
      promised += needed;
      this.#claimPrompt(s);
      promised -= needed - (s.mostPages - s.pages.length);
      this.#waiting.shift();
      this.#running.push(s);
      this.#stats.promptTokens += s.request.promptIds.length;
    }
  }

  #tokensOfPage(s: Sequence, page: number): number[] {
    return s.tokens.slice(page * PAGE_SIZE, (page + 1) * PAGE_SIZE);
  }

  /** Full pages of the prompt that can be shared: its last token must be computed in any case, for the first logits. */
  #sharablePages(s: Sequence): number {
    return Math.floor((s.request.promptIds.length - 1) / PAGE_SIZE);
  }

  #findPrefix(s: Sequence): void {
    for (let i = 0; i < this.#sharablePages(s); i++) {
      const page = this.#pages.find(s.prefixes.at(-1) ?? ROOT, this.#tokensOfPage(s, i));
      if (!page) break;
      s.pages.push(page);
      s.prefixes.push(page.id);
    }
  }

  /** Takes the rest of the prompt's full pages, to be found by others at once: they wait until this sequence has computed them. */
  #claimPrompt(s: Sequence): void {
    while (s.pages.length < this.#sharablePages(s)) {
      const page = this.#pages.take();
      page.owner = s;
      const tokens = this.#tokensOfPage(s, s.pages.length);
      s.prefixes.push(this.#pages.register(page, s.prefixes.at(-1) ?? ROOT, tokens));
      s.pages.push(page);
    }
  }

  /** Chooses the tokens of the next step: first the next token of each sequence that decodes, then prompts in order. */
  #plan(): Planned[] {
    const planned: Planned[] = [];
    const pending = (s: Sequence) => s.tokens.length - s.computed;
    const decoding = this.#running.filter((s) => s.result.ids.length > 0);
    for (const s of [...decoding, ...this.#running.filter((r) => r.result.ids.length === 0)]) {
      while (pending(s) > 0 && planned.length < this.#maxTokens && this.#skipShared(s)) {
        const index = Math.floor(s.computed / PAGE_SIZE);
        const page = (s.pages[index] ??= this.#pages.take());
        const end = Math.min(s.tokens.length, (index + 1) * PAGE_SIZE, s.computed + this.#maxTokens - planned.length);
        for (; s.computed < end; s.computed++) planned.push({ sequence: s, position: s.computed });
        // Within a step all keys are written before any are read: what is planned counts as there.
        if (s.computed === (index + 1) * PAGE_SIZE) this.#filled(s, index, page);
      }
    }
    return planned;
  }

  /** Moves past shared pages that are there; false while another sequence still has to compute the next one. */
  #skipShared(s: Sequence): boolean {
    while (s.computed % PAGE_SIZE === 0) {
      const page = s.pages[s.computed / PAGE_SIZE];
      if (!page || page.owner === s) return true;
      if (!page.ready) {
        if (page.owner && this.#running.some((r) => r === page.owner)) return false;
        // Its owner ended before it came to it.
        page.owner = s;
        return true;
      }
      s.computed += PAGE_SIZE;
      s.result.reusedTokens += PAGE_SIZE;
      this.#stats.reusedTokens += PAGE_SIZE;
    }
    return true;
  }

  #filled(s: Sequence, index: number, page: Page): void {
    page.ready = true;
    page.owner = null;
    if (s.prefixes.length === index && !s.stale) {
      s.prefixes.push(this.#pages.register(page, s.prefixes.at(-1) ?? ROOT, this.#tokensOfPage(s, index)));
    }
  }

  /** The planned tokens that are the last of their sequence: the next one is sampled after them. */
  #sampling(planned: Planned[]): (Planned & { row: number })[] {
    return planned.flatMap((p, row) => (p.position === p.sequence.tokens.length - 1 ? [{ ...p, row }] : []));
  }

  // ---- device ----------------------------------------------------------------------------------------------------------

  #upload(space: Workspace, name: string, data: Int32Array | Float32Array | Uint32Array, inner: number[] = []): Tensor {
    const dtype = data instanceof Int32Array ? "i32" : data instanceof Uint32Array ? "u32" : "f32";
    const tensor = space.get(name, data.length / inner.reduce((n, d) => n * d, 1), inner, dtype);
    this.#model.engine.upload(tensor, data);
    return tensor;
  }

  #enqueue(planned: Planned[], sampled: { sequence: Sequence; row: number }[]): { ids?: Tensor; lp?: Tensor } {
    const { engine, config: c } = this.#model;
    const space = this.#tokenSpace;
    const batch = [...new Set(planned.map((p) => p.sequence))];
    const indexOf = new Map(batch.map((s, i) => [s, i]));
    const widest = Math.max(...batch.map((s) => s.pages.length));
    const pageTable = new Int32Array(batch.length * widest);
    for (const [b, s] of batch.entries())
      for (const [p, page] of s.pages.entries()) pageTable[b * widest + p] = page.number;
    const table = space.table("page table", batch.length, [widest], "i32");
    engine.upload(table, pageTable);
    const each = (name: string, value: (p: Planned) => number) =>
      this.#upload(space, name, Int32Array.from(planned, value));
    const context: PagedContext = {
      pageSize: PAGE_SIZE,
      pageTable: table,
      sequence: each("sequence", (p) => indexOf.get(p.sequence)!),
      visible: each("visible", (p) => p.position + 1),
    };
    const slots = each(
      "slots",
      (p) => p.sequence.pages[Math.floor(p.position / PAGE_SIZE)]!.number * PAGE_SIZE + (p.position % PAGE_SIZE),
    );
    const positions = each("positions", (p) => p.position);
    const ids = each("ids", (p) => p.sequence.tokens[p.position]!);
    const x = space.get("x", planned.length, [c.hidden_size]);
    const ctx = this.#model.context(space);
    this.#model.forwardInPlace(ctx, x, ids, this.#sequences(positions, slots, context));
    if (sampled.length === 0) return {};
    const rows = this.#rowSpace;
    const last = rows.get("x", sampled.length, [c.hidden_size]);
    engine.gatherRows(
      last,
      x,
      this.#upload(
        rows,
        "rows",
        Int32Array.from(sampled, (s) => s.row),
      ),
    );
    const logits = rows.get("logits", sampled.length, [c.vocab_size]);
    this.#model.projectLogits(this.#model.context(rows), logits, last);
    return this.#sample(
      logits,
      sampled.map((s) => s.sequence),
    );
  }

  /** Attention and convolution through the cache. */
  #sequences(positions: Tensor, slots: Tensor, context: PagedContext): Sequences {
    const { engine, config: c } = this.#model;
    const scale = 1 / Math.sqrt(c.head_dim);
    const width = c.num_key_value_heads * c.head_dim;
    return {
      positions,
      convolve: (layer, which, out, x, w) => {
        const cache = which === "q" ? this.#caches[layer]!.q0! : this.#caches[layer]!.k0!;
        engine.cacheWrite(cache, x, slots);
        engine.pagedShortConv(out, cache, w, context);
      },
      attend: (layer, out, _lse, q, k, v) => {
        const cache = this.#caches[layer]!;
        engine.cacheWrite(cache.k, engine.view(k, [k.shape[0]!, width]), slots);
        engine.cacheWrite(cache.v, engine.view(v, [v.shape[0]!, width]), slots);
        engine.pagedAttention(out, q, cache.k, cache.v, context, scale);
      },
    };
  }

  #sample(logits: Tensor, batch: Sequence[]): { ids: Tensor; lp: Tensor } {
    const rows = this.#rowSpace;
    const put = (name: string, data: Int32Array | Float32Array | Uint32Array, inner: number[] = []) =>
      this.#upload(rows, name, data, inner);
    const [ids, lp] = [rows.get("ids", batch.length, [], "i32"), rows.get("lp", batch.length)];
    const masks = this.#masks(batch);
    this.#model.engine.sample(ids, lp, logits, {
      temperature: put(
        "temperature",
        Float32Array.from(batch, (s) => s.request.temperature),
      ),
      topK: put(
        "top k",
        Int32Array.from(batch, (s) => s.request.topK ?? 0),
      ),
      topP: put(
        "top p",
        Float32Array.from(batch, (s) => s.request.topP ?? 1),
      ),
      seeds: put("seeds", Uint32Array.from(batch.flatMap((s) => [s.request.seed >>> 0, s.result.ids.length])), [2]),
      ...(masks ? { masks } : {}),
    });
    return { ids, lp };
  }

  /** The constraints' masks, kept with the results. A constraint that allows nothing ends its sequence with an error. */
  #masks(batch: Sequence[]): TokenMasks | null {
    const words = Math.ceil(this.#model.config.vocab_size / 32);
    const found: Uint32Array[] = [];
    const row = Int32Array.from(batch, (s) => {
      if (!s.request.constraint || s.ended) return -1;
      const allowed = this.#guarded(s, (constraint) => constraint.allowed());
      if (s.ended || allowed === undefined) return -1;
      if (allowed && (allowed.length !== words || allowed.every((w) => w === 0))) {
        const what =
          allowed.length === words ? "allows no token" : `has ${allowed.length} words, the vocabulary needs ${words}`;
        this.#end(
          s,
          new GenerationError(`generate: the constraint's mask ${what} after ${s.result.ids.length} new tokens`),
        );
        return -1;
      }
      const copy = allowed ? allowed.slice() : null;
      s.result.masks!.push(copy);
      return copy ? found.push(copy) - 1 : -1;
    });
    if (found.length === 0) return null;
    const bits = new Uint32Array(found.length * words);
    for (const [i, mask] of found.entries()) bits.set(mask, i * words);
    const tensor = this.#rowSpace.table("masks", found.length, [words], "u32");
    this.#model.engine.upload(tensor, bits);
    return { bits: tensor, row: this.#upload(this.#rowSpace, "mask row", row) };
  }

  /** Calls the sequence's constraint; an error in it ends this sequence alone. */
  #guarded<T>(s: Sequence, call: (constraint: TokenConstraint) => T): T | undefined {
    try {
      return s.request.constraint && call(s.request.constraint);
    } catch (error) {
      this.#end(s, error);
      return undefined;
    }
  }

  // ---- ends ------------------------------------------------------------------------------------------------------------

  #accept(s: Sequence, id: number, lp: number): void {
    const { result, request } = s;
    result.ids.push(id);
    result.logprobs.push(lp);
    s.tokens.push(id);
    this.#stats.newTokens++;
    this.#guarded(s, (constraint) => constraint.accept(id));
    if (s.ended) return;
    const ends = (stop: number[]) =>
      stop.length > 0 && stop.every((t, i) => result.ids[result.ids.length - stop.length + i] === t);
    if (request.stopIds.includes(id) || request.stopSequences?.some(ends)) result.finish = "stop";
    else if (result.ids.length < request.maxNewTokens) return;
    if (request.keepAs !== undefined) this.#pages.keep(request.keepAs, s.pages);
    this.#end(s);
  }

  /** Takes a sequence out; its promise settles. */
  #end(s: Sequence, ...failure: [] | [unknown]): void {
    if (s.ended) return;
    s.ended = true;
    s.unlisten();
    this.#waiting = this.#waiting.filter((w) => w !== s);
    this.#running = this.#running.filter((r) => r !== s);
    // Pages that were not computed are taken over by whoever shares them; deepest first, so that a prefix outlives what follows it.
    for (const page of s.pages.toReversed()) this.#pages.drop(page);
    if (failure.length > 0) s.reject(failure[0]);
    else s.resolve(s.result);
  }

  #endAll(error: unknown): void {
    for (const s of [...this.#running, ...this.#waiting]) this.#end(s, error);
  }

  #dispose(): void {
    for (const { k, v, q0, k0 } of this.#caches)
      this.#model.engine.free(k, v, ...(q0 ? [q0] : []), ...(k0 ? [k0] : []));
    this.#caches = [];
    this.#tokenSpace.dispose();
    this.#rowSpace.dispose();
  }
}
