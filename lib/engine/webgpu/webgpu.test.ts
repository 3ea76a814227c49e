/**
 * The conformance suite on lavapipe (scripts/vulkan.sh fetches it), and with PARAAGENT_SWIFTSHADER=1 on SwiftShader, which takes a minute. Without a software adapter the suite is skipped with a word about it, but
 * not where CI=true: there it fails, so that a machine that lost its driver does not look green.
 */
import { describe, test } from "bun:test";
import { conformance } from "../conformance.ts";
import { listAdapters } from "./device.ts";
import { openWebGpuEngine } from "./engine.ts";

const adapters = await listAdapters();
const has = (name: string) => adapters.some((a) => !a.hardware && a.name.toLowerCase().includes(name));

if (has("llvmpipe")) {
  conformance("webgpu on lavapipe", () => openWebGpuEngine("software:llvmpipe"));
} else {
  describe("webgpu on lavapipe", () => {
    const run = process.env.CI === "true" ? test : test.skip;
    run("needs a software Vulkan driver: run scripts/vulkan.sh", () => {
      throw new Error(
        `No lavapipe. Dawn found: ${adapters.map((a) => a.name).join(", ") || "nothing"}. Run scripts/vulkan.sh.`,
      );
    });
  });
}

if (process.env.PARAAGENT_SWIFTSHADER === "1") {
  conformance("webgpu on SwiftShader", () => openWebGpuEngine("software:swiftshader"));
}
