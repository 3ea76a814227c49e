import { listAdapters, openEngine } from "../engine/open.ts";
import { type DeviceRequest, type Engine, NoEngineError } from "../engine/types.ts";

/** Opens the engine when a stage first needs it, and keeps it for the run: stages from the cache need none. */
export class EngineHolder {
  #engine: Engine | null = null;
  #kind: string | null = null;
  constructor(readonly request: DeviceRequest) {}

  async get(): Promise<Engine> {
    this.#engine ??= await openEngine(this.request);
    return this.#engine;
  }

  /**
   * What computes, as part of the key of a stage that depends on it: results are the same bits only on the same kind of engine. Does not
   * start the engine.
   */
  async kind(): Promise<string> {
    if (this.request !== "auto") return this.request;
    this.#kind ??= await listAdapters().then(
      (adapters) => (adapters.some((a) => a.hardware) ? "gpu" : "cpu"),
      (error: unknown) => {
        if (error instanceof NoEngineError) return "cpu";
        throw error;
      },
    );
    return this.#kind;
  }

  get opened(): Engine | null {
    return this.#engine;
  }

  async dispose(): Promise<void> {
    await this.#engine?.dispose();
    this.#engine = null;
  }
}
