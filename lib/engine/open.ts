/** Opens the engine that a device request names. Engines are imported when they are used. */
import { type DeviceRequest, type Engine, NoEngineError } from "./types.ts";
import { type AdapterEntry, listAdapters } from "./webgpu/device.ts";

export { type AdapterEntry, listAdapters };

/**
 * `auto`: a hardware adapter through Dawn, else the cpu engine (a software adapter is never picked by itself). `gpu` and `software` take an
 * adapter of that kind, `gpu:NAME` and `software:NAME` the one whose name contains NAME. Throws NoEngineError saying what was found.
 */
export async function openEngine(request: DeviceRequest): Promise<Engine> {
  switch (request) {
    case "reference":
      return (await import("./reference/index.ts")).openReferenceEngine();
    case "cpu":
      return (await import("./cpu/index.ts")).openCpuEngine();
    case "auto": {
      const adapters = await listAdapters().catch((error: unknown) => {
        // Dawn's binary does not load on every platform that Bun runs on; the cpu engine does.
        if (error instanceof NoEngineError) return [];
        throw error;
      });
      return openEngine(adapters.some((a) => a.hardware) ? "gpu" : "cpu");
    }
    default:
      return (await import("./webgpu/engine.ts")).openWebGpuEngine(request);
  }
}
