/**
 * Kernels from their .wgsl files. A file is plain WGSL but for comments at its head:
 *
 *     //! use NAME, …     puts kernels/NAME.wgsl before it (reduce: the workgroup's sums; rope; masks)
 *     //! typed NAME, …   the storage type of that input is chosen at run time: TYPE_NAME, load_NAME(i), and load_NAME4(i) for
 *                         four elements from a multiple of 4
 *     //! matrix          needs subgroup matrices
 *     //! subgroups       needs subgroups
 *     //! inplace         each invocation reads only the elements that it writes, so an input may be the output itself
 *
 * var<PER_LANE> is memory of each lane's own, indexed by mine(i, lane) and SPREAD times as long as what a lane holds: private on GPUs, which keep
 * it in registers; workgroup memory on software adapters, whose compilers would unroll every loop over a private array, for minutes. HEAD is the
 * head dimension: the constant D on GPUs; on software adapters the parameter d, of at most D, so that one compilation serves all sizes.
 * STEPS is the number of vec4s of a head that a lane goes through, likewise.
 *
 * Sizes come in as WGSL constants. Uniform parameters and bindings are read off the source, so that they are written down once.
 */
import { EngineError } from "../types.ts";
import type { Device } from "./device.ts";
import adamw from "./kernels/adamw.wgsl" with { type: "text" };
import attention from "./kernels/attention.wgsl" with { type: "text" };
import attention_backward_kv from "./kernels/attention_backward_kv.wgsl" with { type: "text" };
import attention_backward_q from "./kernels/attention_backward_q.wgsl" with { type: "text" };
import attention_delta from "./kernels/attention_delta.wgsl" with { type: "text" };
import axpby from "./kernels/axpby.wgsl" with { type: "text" };
import column_partials from "./kernels/column_partials.wgsl" with { type: "text" };
import column_total from "./kernels/column_total.wgsl" with { type: "text" };
import embed from "./kernels/embed.wgsl" with { type: "text" };
import embed_backward from "./kernels/embed_backward.wgsl" with { type: "text" };
import embed_chain from "./kernels/embed_chain.wgsl" with { type: "text" };
import fill from "./kernels/fill.wgsl" with { type: "text" };
import gather_rows from "./kernels/gather_rows.wgsl" with { type: "text" };
import log_probs_gradient from "./kernels/log_probs_gradient.wgsl" with { type: "text" };
import log_probs_step from "./kernels/log_probs_step.wgsl" with { type: "text" };
import masks from "./kernels/masks.wgsl" with { type: "text" };
import matmul_dot from "./kernels/matmul_dot.wgsl" with { type: "text" };
import matmul_matrix from "./kernels/matmul_matrix.wgsl" with { type: "text" };
import matmul_naive from "./kernels/matmul_naive.wgsl" with { type: "text" };
import matmul_pack from "./kernels/matmul_pack.wgsl" with { type: "text" };
import matmul_panel from "./kernels/matmul_panel.wgsl" with { type: "text" };
import matmul_tile from "./kernels/matmul_tile.wgsl" with { type: "text" };
import narrow from "./kernels/narrow.wgsl" with { type: "text" };
import paged_attention from "./kernels/paged_attention.wgsl" with { type: "text" };
import paged_short_conv from "./kernels/paged_short_conv.wgsl" with { type: "text" };
import poke_half from "./kernels/poke_half.wgsl" with { type: "text" };
import qk_norm_rope from "./kernels/qk_norm_rope.wgsl" with { type: "text" };
import qk_norm_rope_backward from "./kernels/qk_norm_rope_backward.wgsl" with { type: "text" };
import reduce from "./kernels/reduce.wgsl" with { type: "text" };
import reduce_subgroup from "./kernels/reduce_subgroup.wgsl" with { type: "text" };
import reduce_subgroups from "./kernels/reduce_subgroups.wgsl" with { type: "text" };
import rms_norm from "./kernels/rms_norm.wgsl" with { type: "text" };
import rms_norm_backward from "./kernels/rms_norm_backward.wgsl" with { type: "text" };
import rope from "./kernels/rope.wgsl" with { type: "text" };
import sample from "./kernels/sample.wgsl" with { type: "text" };
import scatter_rows from "./kernels/scatter_rows.wgsl" with { type: "text" };
import short_conv from "./kernels/short_conv.wgsl" with { type: "text" };
import short_conv_backward from "./kernels/short_conv_backward.wgsl" with { type: "text" };
import short_conv_weight from "./kernels/short_conv_weight.wgsl" with { type: "text" };
import slices from "./kernels/slices.wgsl" with { type: "text" };
import sum_squares from "./kernels/sum_squares.wgsl" with { type: "text" };
import swiglu from "./kernels/swiglu.wgsl" with { type: "text" };
import swiglu_backward from "./kernels/swiglu_backward.wgsl" with { type: "text" };
import widen from "./kernels/widen.wgsl" with { type: "text" };

const sources = {
  adamw,
  attention,
  attention_backward_kv,
  attention_delta,
  attention_backward_q,
  axpby,
  column_partials,
  column_total,
  embed,
  embed_backward,
  embed_chain,
  fill,
  gather_rows,
  log_probs_gradient,
  log_probs_step,
  matmul_dot,
  matmul_matrix,
  matmul_naive,
  matmul_pack,
  matmul_panel,
  matmul_tile,
  narrow,
  paged_attention,
  paged_short_conv,
  poke_half,
  qk_norm_rope,
  qk_norm_rope_backward,
  rms_norm,
  rms_norm_backward,
  sample,
  scatter_rows,
  short_conv,
  short_conv_backward,
  short_conv_weight,
  sum_squares,
  swiglu,
  swiglu_backward,
  widen,
};
export type KernelName = keyof typeof sources;

const preludes: Record<string, string> = { reduce, rope, masks, slices };

/** How an input is bound: read-only, as written too, or as the output of that name. */
export type Access = Binding["access"] | { same: string };

export interface Binding {
  binding: number;
  name: string;
  access: "read" | "read_write" | "uniform";
}
export interface Layout {
  bindings: Binding[];
  params: { name: string; type: "u32" | "i32" | "f32" }[];
  /** Size of the uniform struct, rounded to 16. */
  paramBytes: number;
  inplace: boolean;
  matrix: boolean;
  subgroups: boolean;
  uses: string[];
  typed: string[];
}

const layouts = new Map<KernelName, Layout>();
const list = (source: string, word: string): string[] =>
  [...source.matchAll(new RegExp(`^//! ${word} (.*)$`, "gm"))].flatMap((m) => m[1]!.split(",").map((s) => s.trim()));

function layout(name: KernelName): Layout {
  const known = layouts.get(name);
  if (known) return known;
  const source = sources[name];
  const struct = /struct P \{([^}]*)\}/.exec(source)?.[1] ?? "";
  const params = [...struct.matchAll(/(\w+): (u32|i32|f32)/g)].map((m) => ({
    name: m[1]!,
    type: m[2] as "u32" | "i32" | "f32",
  }));
  const bindings = [
    ...source.matchAll(/@binding\(([1-9]\d*)\) var<(?:storage, )?(read|read_write|uniform)> (\w+):/g),
  ].map((m) => ({ binding: Number(m[1]), access: m[2] as Binding["access"], name: m[3]! }));
  const made: Layout = {
    bindings,
    params,
    paramBytes: Math.max(16, Math.ceil(params.length / 4) * 16),
    inplace: /^\/\/! inplace$/m.test(source),
    matrix: /^\/\/! matrix$/m.test(source),
    subgroups: /^\/\/! subgroups$/m.test(source),
    uses: list(source, "use"),
    typed: list(source, "typed"),
  };
  layouts.set(name, made);
  return made;
}

/** Storage type and readers of a typed input. i is the element; the x4 forms need i to be a multiple of 4. */
function readers(name: string, type: string): { storage: string; code: string } {
  const head = (suffix: string, result: string) => `fn load_${name}${suffix}(i: u32) -> ${result}`;
  const bf = (w: string) => `vec2f(bitcast<f32>(${w} << 16u), bitcast<f32>(${w} & 0xffff0000u))`;
  const pair = (w: string) => (type.startsWith("bf16") ? bf(w) : `unpack2x16float(${w})`);
  let storage: string;
  let one: string;
  let four: string;
  switch (type) {
    case "f32":
      storage = "f32";
      one = `return ${name}[i];`;
      four = `return vec4f(${[0, 1, 2, 3].map((c) => `${name}[i + ${c}u]`).join(", ")});`;
      break;
    case "f32x4":
      storage = "vec4f";
      one = `return ${name}[i / 4u][i % 4u];`;
      four = `return ${name}[i / 4u];`;
      break;
    case "f16":
    case "bf16":
      storage = "u32";
      one = `let w = ${name}[i / 2u]; let pair = ${pair("w")}; return select(pair.x, pair.y, (i & 1u) == 1u);`;
      four = `let w = vec2u(${name}[i / 2u], ${name}[i / 2u + 1u]); return vec4f(${pair("w.x")}, ${pair("w.y")});`;
      break;
    case "f16x4":
    case "bf16x4":
      storage = "vec2u";
      one = `let w = ${name}[i / 4u][(i / 2u) % 2u]; let pair = ${pair("w")}; return select(pair.x, pair.y, (i & 1u) == 1u);`;
      four = `let w = ${name}[i / 4u]; return vec4f(${pair("w.x")}, ${pair("w.y")});`;
      break;
    default:
      throw new EngineError(`no storage type "${type}"`);
  }
  const code = `${head("", "f32")} { ${one} }\n${head("4", "vec4f")} { ${four} }\n`;
  return { storage, code };
}

const common = `const LOWEST = -3.4028234e38;
fn flat(wid: vec3u, nwg: vec3u) -> u32 { return wid.x + wid.y * nwg.x; }
`;

/** The whole WGSL of a kernel and its bindings as they are after folding inputs into outputs. */
function kernel(
  name: KernelName,
  constants: Record<string, number | boolean>,
  types: Record<string, string>,
  access: Record<string, Access>,
  shifts: Record<string, number>,
  device: Device,
): { code: string; bindings: Binding[] } {
  const { bindings, uses, typed, matrix, subgroups: wants } = layout(name);
  let body: string = sources[name];
  const kept: Binding[] = [];
  for (const b of bindings) {
    const how = access[b.name] ?? b.access;
    if (typeof how === "object") {
      body = body
        .replace(new RegExp(`^@group\\(0\\) @binding\\(${b.binding}\\).*\\n`, "m"), "")
        .replace(new RegExp(`\\b${b.name}\\[`, "g"), `${how.same}[`);
    } else {
      if (how !== b.access)
        body = body.replace(
          `@binding(${b.binding}) var<storage, read>`,
          `@binding(${b.binding}) var<storage, read_write>`,
        );
      kept.push({ ...b, access: how });
    }
  }
  let head = common;
  for (const [key, value] of Object.entries(constants)) {
    head += `const ${key} = ${typeof value === "boolean" ? value : `${value}u`};\n`;
  }
  const software = !device.info.hardware;
  body = body
    .replaceAll(/\bHEAD\b/g, software ? "p.d" : "D")
    .replaceAll(/\bSTEPS\b/g, software ? "(p.d / STRIDE)" : "SLICE");
  if (body.includes("PER_LANE")) {
    body = body.replaceAll("PER_LANE", software ? "workgroup" : "private");
    head += software
      ? "const SPREAD = WG;\nfn mine(i: u32, lane: u32) -> u32 { return i * WG + lane; }\n"
      : "const SPREAD = 1u;\nfn mine(i: u32, lane: u32) -> u32 { return i; }\n";
  }
  for (const t of typed) {
    const { storage, code } = readers(t, types[t] ?? "f32");
    body = body.replace(`TYPE_${t}`, storage);
    head += code;
  }
  const { min, max } = device.subgroup;
  const lanes = Number(constants.WG ?? 0);
  let subgroups = wants;
  for (const [name, bytes] of Object.entries(shifts)) {
    const element = new RegExp(`> ${name}: array<(\\w+)>`).exec(body)?.[1];
    if (!element) continue; // Folded into an output, which is shifted itself.
    const size = { f32: 4, i32: 4, u32: 4, vec2u: 8, vec4f: 16 }[element];
    if (size === undefined) throw new EngineError(`a view of ${element} elements at byte ${bytes} cannot be bound`);
    const at = new RegExp(`\\b${name}\\[`, "g");
    body = body.replace(at, `${name}[${bytes / size}u + `);
    head = head.replace(at, `${name}[${bytes / size}u + `);
  }
  for (const u of uses) {
    if (u === "reduce" && min > 0 && min === max && lanes % min === 0) {
      subgroups = true;
      head += lanes === min ? reduce_subgroup : `const SUBGROUP = ${min}u;\n${reduce_subgroups}`;
      continue;
    }
    if (u === "slices") {
      const shared = Number(constants.SLICES);
      subgroups ||= shared > 1;
      const steps = [1, 2, 4].filter((n) => n < shared).map((n) => `y += subgroupShuffleXor(y, ${n}u);`);
      head += slices.replace("SHUFFLES", `var y = x; ${steps.join(" ")} return y;`);
      continue;
    }
    const prelude = preludes[u];
    if (prelude === undefined) throw new EngineError(`kernel ${name} uses "${u}", which is not there`);
    head += prelude;
  }
  // Every lane of the workgroup takes part wherever a sum is called; the compiler cannot see it.
  let enables = subgroups ? "enable subgroups;\ndiagnostic(off, subgroup_uniformity);\n" : "";
  if (matrix) {
    enables = "enable f16;\nenable subgroups;\nenable chromium_experimental_subgroup_matrix;\n";
    enables += "diagnostic(off, chromium.subgroup_matrix_uniformity);\n";
  }
  return { code: enables + head + body, bindings: kept };
}

/** All sources, to tell whether they changed. */
export const sourcesText = (): string =>
  [...Object.values(sources), ...Object.values(preludes), reduce_subgroup, reduce_subgroups].join("\n");

export const assemble = { layout, kernel };
