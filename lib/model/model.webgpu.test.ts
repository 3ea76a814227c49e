/** The whole model and generation through Dawn on a software adapter. lib/engine/webgpu/webgpu.test.ts says what a missing driver means. */
import { listAdapters } from "../engine/webgpu/device.ts";
import { openWebGpuEngine } from "../engine/webgpu/engine.ts";
import { referenceConformance } from "./conformance.ts";
import { generationConformance } from "./generation-conformance.ts";

const adapters = await listAdapters();
if (adapters.some((a) => !a.hardware && a.name.toLowerCase().includes("llvmpipe"))) {
  referenceConformance("webgpu on lavapipe", () => openWebGpuEngine("software:llvmpipe"));
  generationConformance("webgpu on lavapipe", () => openWebGpuEngine("software:llvmpipe"));
}
