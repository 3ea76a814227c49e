/**
 * The one owner of Dawn. Everything odd about running it under Bun is handled here:
 *
 * - Bun crashes once the object that `create()` returned is collected, even while a device lives: all are held in globalThis for life.
 * - `process.env.X = …` does not reach the Vulkan loader: libc's setenv is called, before the instance is made.
 * - The drivers that scripts/vulkan.sh fetched are found without the user setting anything, and never hide the system's own.
 * - Whatever is awaited, Dawn's binding asks for it in a loop over setImmediate, and takes a core from a software adapter's own threads.
 * - `requestAdapter` names one adapter only. A `create()` with an adapter name that cannot be lists them all, by its error.
 */
import { dlopen } from "bun:ffi";
import { existsSync, mkdirSync } from "node:fs";
import { join, resolve } from "node:path";
import { z } from "zod";
import { type EngineInfo, NoEngineError } from "../types.ts";

/** Where scripts/vulkan.sh puts the drivers, where Dawn's log and the tuner's measurements go. */
export const cacheDirectory = resolve(import.meta.dir, "../../../.cache");

type Create = (options: string[]) => GPU;
type Environment = "system" | "software";

interface Held {
  /** Every object that `create()` returned, for the life of the process. */
  gpus: GPU[];
  create?: Create;
}
declare global {
  // `var` is what makes a property of globalThis that lives as long as the process.
  var __paraagentDawn: Held | undefined;
}
const held: Held = (globalThis.__paraagentDawn ??= { gpus: [] });

// ---- environment -----------------------------------------------------------------------------------------------------
const cstring = (s: string) => Buffer.from(s + "\0");

function libc() {
  const name = process.platform === "darwin" ? "libSystem.B.dylib" : "libc.so.6";
  return dlopen(name, {
    setenv: { args: ["cstring", "cstring", "i32"], returns: "i32" },
    unsetenv: { args: ["cstring"], returns: "i32" },
    open: { args: ["cstring", "i32", "i32"], returns: "i32" },
    dup: { args: ["i32"], returns: "i32" },
    dup2: { args: ["i32", "i32"], returns: "i32" },
    close: { args: ["i32"], returns: "i32" },
  }).symbols;
}

/** Driver descriptions of ours that are there, and the system's software ones. */
function softwareDrivers(): string[] {
  const ours = [join(cacheDirectory, "vulkan/lvp_icd.json"), join(cacheDirectory, "swiftshader/swiftshader_icd.json")];
  const arch = process.arch === "arm64" ? "aarch64" : "x86_64";
  const dirs = ["/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/etc/vulkan/icd.d"];
  // The system's lavapipe counts only where ours is not there: Dawn refuses old ones.
  const systems = dirs.flatMap((d) => [join(d, `lvp_icd.${arch}.json`), join(d, "lvp_icd.json")]);
  const found = ours.filter((f) => existsSync(f));
  if (!found.some((f) => f.includes("lvp_icd"))) found.push(...systems.filter((f) => existsSync(f)).slice(0, 1));
  return found;
}

const preset = process.env.VK_DRIVER_FILES ?? process.env.VK_ICD_FILENAMES;

/**
 * Prepares the process's environment for the next `create()`. `system` sees what the system has (or what the user set in VK_DRIVER_FILES);
 * `software` sees software drivers only, so that on a machine with a GPU one can still be asked for.
 */
function prepare(environment: Environment): void {
  if (process.platform !== "linux") return;
  const c = libc();
  const set = (k: string, v: string) => c.setenv(cstring(k), cstring(v), 1);
  if (!process.env.XDG_RUNTIME_DIR) {
    const dir = join(cacheDirectory, "run");
    mkdirSync(dir, { recursive: true, mode: 0o700 });
    set("XDG_RUNTIME_DIR", dir);
  }
  if (environment === "software" && preset === undefined) set("VK_DRIVER_FILES", softwareDrivers().join(":"));
  else if (preset === undefined) c.unsetenv(cstring("VK_DRIVER_FILES"));
  // A machine without the Vulkan loader: the one that came with SwiftShader, found by its name once it is loaded.
  const loader = join(cacheDirectory, "swiftshader/libvulkan.so.1");
  const dirs = [
    "/usr/lib",
    "/usr/lib64",
    "/lib",
    `/usr/lib/${process.arch === "arm64" ? "aarch64" : "x86_64"}-linux-gnu`,
  ];
  if (existsSync(loader) && !dirs.some((d) => existsSync(join(d, "libvulkan.so.1")))) preload(loader);
  // Libraries that a newer lavapipe needs and the system lacks lie beside it.
  const beside = join(cacheDirectory, "vulkan/lib");
  for (const lib of ["libdrm.so.2", "libLLVM.so.19.1", "libLLVM-19.so.1", "libLLVM-17.so.1"]) {
    if (existsSync(join(beside, lib))) preload(join(beside, lib));
  }
}

const preloaded = new Set<string>();
function preload(library: string): void {
  if (preloaded.has(library)) return;
  preloaded.add(library);
  // Resolves by soname for whatever asks for it later. RTLD_NOW | RTLD_GLOBAL.
  dlopen("libc.so.6", { dlopen: { args: ["cstring", "i32"], returns: "ptr" } }).symbols.dlopen(cstring(library), 0x102);
}

/** Runs `action` with the process's standard error in .cache/dawn.log: Dawn prints warnings about drivers that nobody asked for. */
async function quietly<T>(action: () => T | Promise<T>): Promise<T> {
  if (process.platform !== "linux") return await action();
  const c = libc();
  mkdirSync(cacheDirectory, { recursive: true });
  const log = c.open(cstring(join(cacheDirectory, "dawn.log")), 0o2101, 0o644); // O_WRONLY | O_CREAT | O_APPEND
  if (log < 0) return await action();
  const saved = c.dup(2);
  c.dup2(log, 2);
  c.close(log);
  try {
    return await action();
  } finally {
    c.dup2(saved, 2);
    c.close(saved);
  }
}

async function create(environment: Environment, options: string[]): Promise<GPU> {
  if (!held.create) {
    // Imported late, so that the cpu engine runs where Dawn's binary does not load.
    const dawn = await import("webgpu").catch((error: unknown) => {
      throw new NoEngineError(
        `Dawn (npm package webgpu) does not load on ${process.platform}-${process.arch}: ${error}`,
      );
    });
    Object.assign(globalThis, dawn.globals);
    held.create = dawn.create;
  }
  prepare(environment);
  const gpu = held.create(options);
  held.gpus.push(gpu);
  return gpu;
}

/** The longest sleep between two looks whether what is awaited is done, and the part of the time waited so far that a sleep may take. */
const NAP = { milliseconds: 0.2, part: 1 / 8 };
let naps = false;

/**
 * From now on Dawn's loop sleeps between its turns: short waits stay short, long ones leave the core to who computes. Dawn looks setImmediate
 * up in globalThis at each turn and passes a native function; other callers get what they always got.
 */
function napWhileWaiting(): void {
  if (naps) return;
  naps = true;
  const never = new Int32Array(new SharedArrayBuffer(4));
  let [since, last] = [0, 0];
  const afterNap = (turn: () => void) => (): void => {
    const now = performance.now();
    if (now - last > 1) since = now;
    const sleep = Math.min(NAP.milliseconds, (now - since) * NAP.part);
    if (sleep > 0.02) Atomics.wait(never, 0, 0, sleep);
    last = performance.now();
    turn();
  };
  globalThis.setImmediate = new Proxy(globalThis.setImmediate, {
    apply(schedule, self, [turn, ...rest]: [() => void, ...unknown[]]) {
      const dawns = /\{\s*\[native code\]\s*\}$/.test(Function.prototype.toString.call(turn));
      return Reflect.apply(schedule, self, [dawns ? afterNap(turn) : turn, ...rest]);
    },
  });
}

// ---- adapters --------------------------------------------------------------------------------------------------------
export interface AdapterEntry {
  /** Dawn's name of it, e.g. "llvmpipe (LLVM 15.0.6, 256 bits)". */
  name: string;
  backend: string;
  hardware: boolean;
  environment: Environment;
}

const software = /llvmpipe|lavapipe|swiftshader|software|microsoft basic render/i;

async function names(environment: Environment): Promise<{ backend: string; name: string }[]> {
  try {
    const gpu = await create(environment, ["adapter=list the adapters"]);
    await gpu.requestAdapter();
    return [];
  } catch (error) {
    if (error instanceof NoEngineError) throw error;
    return [...String(error).matchAll(/backend: '([^']*)', name: '([^']*)'/g)].map((m) => ({
      backend: m[1]!,
      name: m[2]!,
    }));
  }
}

let listed: Promise<AdapterEntry[]> | undefined;

/** All adapters that Dawn finds, hardware first; software drivers that scripts/vulkan.sh fetched included. */
export function listAdapters(): Promise<AdapterEntry[]> {
  listed ??= quietly(async () => {
    const found: AdapterEntry[] = [];
    for (const environment of ["system", "software"] as const) {
      if (environment === "software" && (process.platform !== "linux" || preset !== undefined)) continue;
      for (const a of await names(environment)) {
        if (a.backend === "null" || /opengl/i.test(a.backend)) continue;
        const hardware = !software.test(a.name);
        if (!found.some((f) => f.name === a.name)) found.push({ ...a, hardware, environment });
      }
    }
    // Hardware first; of the software ones, lavapipe first: it is several times faster than SwiftShader.
    const rank = (a: AdapterEntry) => (a.hardware ? 0 : /llvmpipe/i.test(a.name) ? 1 : 2);
    return found.sort((a, b) => rank(a) - rank(b));
  });
  return listed;
}

// ---- device ----------------------------------------------------------------------------------------------------------
/** What an engine uses of an adapter, where it is there. */
const wantedFeatures: GPUFeatureName[] = ["shader-f16", "subgroups", "timestamp-query"];
const subgroupMatrix = "chromium-experimental-subgroup-matrix";

export interface Device {
  gpu: GPUDevice;
  info: EngineInfo;
  adapter: AdapterEntry;
  /** Lanes of a subgroup, smallest and largest; 0 where the adapter has no subgroups. */
  subgroup: { min: number; max: number };
  /** Sizes of f16 subgroup matrices with f32 sums, where the adapter has them. */
  matrix: { m: number; n: number; k: number } | null;
}

type Request = "gpu" | "software" | `gpu:${string}` | `software:${string}`;

/**
 * The adapter that a request names: `gpu` takes hardware only, `software` software only, `gpu:NAME` and `software:NAME` the first whose name
 * contains NAME. Throws NoEngineError that says what was found.
 */
export async function openAdapter(request: Request): Promise<{ adapter: GPUAdapter; entry: AdapterEntry }> {
  const all = await listAdapters();
  const [kind, ...rest] = request.split(":");
  const part = rest.join(":").toLowerCase();
  const entry = all.find((a) => a.hardware === (kind === "gpu") && a.name.toLowerCase().includes(part));
  if (!entry) {
    const seen = all.map((a) => `"${a.name}" (${a.backend}, ${a.hardware ? "hardware" : "software"})`).join(", ");
    const advice =
      kind === "gpu"
        ? "Check the driver (Vulkan on Linux, e.g. `vulkaninfo --summary`), or use device: cpu."
        : "Run scripts/vulkan.sh to fetch a software driver, or use device: cpu.";
    throw new NoEngineError(`No adapter for device "${request}". Dawn found: ${seen || "none"}. ${advice}`);
  }
  const adapter = await quietly(async () => {
    const gpu = await create(entry.environment, [
      `adapter=${entry.name}`,
      `backend=${entry.backend}`,
      // Subgroup matrices are behind this. Checks of memory access are kept: it only unlocks features.
      "enable-dawn-features=allow_unsafe_apis",
    ]);
    return await gpu.requestAdapter({ powerPreference: "high-performance" });
  });
  if (!adapter)
    throw new NoEngineError(`Dawn listed the adapter "${entry.name}" and then refused it; see .cache/dawn.log.`);
  return { adapter, entry };
}

/** The device of the adapter that the request names, with all of the adapter's limits and the features that the engine uses. */
export async function openDevice(request: Request): Promise<Device> {
  const { adapter, entry } = await openAdapter(request);
  if (!entry.hardware) napWhileWaiting();
  const features = [...adapter.features].filter((f) =>
    [...wantedFeatures, subgroupMatrix].includes(f as GPUFeatureName),
  );
  const limits: Record<string, number> = {};
  for (const key in adapter.limits) {
    const value = adapter.limits[key as keyof GPUSupportedLimits];
    if (typeof value === "number") limits[key] = value;
  }
  const gpu = await adapter.requestDevice({
    label: "paraagent",
    requiredFeatures: features as GPUFeatureName[],
    requiredLimits: limits,
  });
  const { info } = adapter;
  return {
    gpu,
    adapter: entry,
    subgroup: features.includes("subgroups")
      ? { min: info.subgroupMinSize, max: info.subgroupMaxSize }
      : { min: 0, max: 0 },
    matrix: features.includes(subgroupMatrix) ? matrixSize(info) : null,
    info: {
      kind: "webgpu",
      description: `${entry.name}${info.description && !info.description.includes(entry.name) ? `, ${info.description}` : ""}`,
      hardware: entry.hardware,
      features,
      limits,
    },
  };
}

/** The f16 × f16 → f32 configuration that a tile of 32×32 is made of, from Dawn's list (an experimental property of the adapter's info). */
function matrixSize(info: GPUAdapterInfo): Device["matrix"] {
  if (!("subgroupMatrixConfigs" in info)) return null;
  const configs = z
    .array(
      z.object({
        componentType: z.string(),
        resultComponentType: z.string(),
        M: z.number(),
        N: z.number(),
        K: z.number(),
      }),
    )
    .safeParse(info.subgroupMatrixConfigs);
  const found = configs.data?.find(
    (c) =>
      c.componentType === "f16" &&
      c.resultComponentType === "f32" &&
      32 % c.M === 0 &&
      32 % c.N === 0 &&
      16 % c.K === 0,
  );
  return found ? { m: found.M, n: found.N, k: found.K } : null;
}

/**
 * A device of Dawn's null backend, which checks and builds everything and computes nothing: for tests of kernel variants that no adapter at hand
 * can run. It poses as a GPU with subgroups of 32 and subgroup matrices of 16×16×16.
 */
export async function openNullDevice(): Promise<Device> {
  const gpu = await create("system", ["backend=null", "enable-dawn-features=allow_unsafe_apis"]);
  const adapter = await gpu.requestAdapter();
  if (!adapter) throw new NoEngineError("Dawn has no null backend");
  const features = [...wantedFeatures, subgroupMatrix];
  const device = await adapter.requestDevice({
    requiredFeatures: features as GPUFeatureName[],
  });
  const known: Record<string, number> = {};
  for (const key in device.limits) {
    const value = device.limits[key as keyof GPUSupportedLimits];
    if (typeof value === "number") known[key] = value;
  }
  return {
    gpu: device,
    adapter: { name: "null", backend: "null", hardware: true, environment: "system" },
    subgroup: { min: 32, max: 32 },
    matrix: { m: 16, n: 16, k: 16 },
    info: { kind: "webgpu", description: "Dawn's null backend", hardware: true, features, limits: known },
  };
}
