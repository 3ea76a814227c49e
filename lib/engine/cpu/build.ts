/**
 * Compiles kernels/*.ts (AssemblyScript) to the two WebAssembly files beside them: `bun lib/engine/cpu/build.ts`. They are kept in the
 * repository, so that running needs no compiler; cpu.test.ts checks that they are what the source gives.
 */
import asc from "assemblyscript/asc";

/** With and without relaxed SIMD's fused multiply-add. */
export const VARIANTS = { "kernels.wasm": false, "kernels-fma.wasm": true } as const;

/** The bytes of one variant. Throws with the compiler's messages. */
export async function compileKernels(relaxed: boolean): Promise<Uint8Array> {
  const outputs = new Map<string, Uint8Array>();
  const result = await asc.main(
    [
      "index.ts",
      ...["--outFile", "out.wasm", "--optimizeLevel", "3", "--noAssert", "--runtime", "stub"],
      ...["--importMemory", "--sharedMemory", "--initialMemory", "1", "--maximumMemory", "65536"],
      ...["--enable", "simd", "--enable", "threads", ...(relaxed ? ["--enable", "relaxed-simd"] : [])],
    ],
    {
      readFile: async (name: string) => {
        const file = Bun.file(new URL(`./kernels/${name}`, import.meta.url));
        return (await file.exists()) ? await file.text() : null;
      },
      writeFile: (name: string, contents: Uint8Array | string) => {
        outputs.set(name, typeof contents === "string" ? new TextEncoder().encode(contents) : contents.slice());
      },
      listFiles: () => [],
    },
  );
  const bytes = outputs.get("out.wasm");
  if (result.error || !bytes) throw new Error(`the kernels do not compile: ${result.stderr.toString()}`);
  return bytes;
}

if (import.meta.main) {
  for (const [name, relaxed] of Object.entries(VARIANTS)) {
    const bytes = await compileKernels(relaxed);
    await Bun.write(new URL(`./kernels/${name}`, import.meta.url), bytes);
    console.log(`${name}: ${bytes.length} bytes`);
  }
}
