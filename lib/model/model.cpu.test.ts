/** The whole model and generation on the cpu engine, with the system's BLAS (where there is one) and without. */
import { openCpuEngine } from "../engine/cpu/index.ts";
import { referenceConformance } from "./conformance.ts";
import { generationConformance } from "./generation-conformance.ts";

for (const blas of ["auto", "none"]) {
  referenceConformance(`cpu, BLAS ${blas}`, () => openCpuEngine({ blas }));
  generationConformance(`cpu, BLAS ${blas}`, () => openCpuEngine({ blas }));
}
