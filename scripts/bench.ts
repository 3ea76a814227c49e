/** `bun run bench engine|toolenv`: speed on this machine, side by side with what else is installed, as ratios with their spread. */
import { writeAtomic } from "../lib/config/atomic.ts";
import { benchAttention, benchBandwidth, benchMatmul, type Rates } from "../lib/engine/bench.ts";
import { openCpuEngine } from "../lib/engine/cpu/index.ts";
import { openEngine } from "../lib/engine/open.ts";
import type { DeviceRequest, Engine } from "../lib/engine/types.ts";
import { WebGpuEngine } from "../lib/engine/webgpu/engine.ts";
import { decoderShapes, saveTuning, tune, tunePath } from "../lib/engine/webgpu/tune.ts";
import { type BenchRow, engineRunner, interleave, SIZES } from "../lib/model/bench.ts";
import { llamaRunner } from "../lib/model/bench-llama.ts";
import { growth, memoryCurve } from "../lib/model/bench-memory.ts";
import { JAX_INSTALL, jaxPeer, TORCH_INSTALL, torchPeer } from "../lib/model/bench-peers.ts";
import { LLAMA_INSTALL } from "../lib/model/llama.ts";
import { loadTokenizer, qwen3TokenizerDir } from "../lib/model/tokenizer.ts";
import { renderTool } from "../lib/paraact/render.ts";
import { environment } from "../lib/runs/environment.ts";
import { ensureCatalog } from "../lib/runs/pipeline.ts";
import { type Table, textTable } from "../lib/runs/table.ts";
import { benchToolenv } from "../lib/toolenv/bench.ts";
import { type Args, main, UsageError } from "./cli.ts";

const figures = (x: [number, number, number], digits = x[0] < 20 ? 2 : 0): string =>
  `${x[0].toFixed(digits)} [${x[1].toFixed(digits)}, ${x[2].toFixed(digits)}]`;

function rateTable(title: string, rows: (Rates & { of?: string })[]): Table {
  return {
    title,
    columns: ["work", "variant", "median", "least", "most", "unit"],
    rows: rows.map((r) => [r.of ?? title, r.name, r.median.toFixed(2), r.least.toFixed(2), r.most.toFixed(2), r.unit]),
    notes: [],
  };
}

function modelTable({ rows, notes }: { rows: BenchRow[]; notes: string[] }, ours: string): Table {
  return {
    title: `models, ${ours}`,
    columns: ["work", "unit", "ours", "peer", "peer's", "ours ÷ peer"],
    rows: rows.map((r) => [
      r.work,
      r.unit,
      figures(r.ours),
      r.peerName ?? "–",
      r.peer ? figures(r.peer) : r.peerName ? "not installed" : "–",
      r.ratio ? figures(r.ratio, 2) : "–",
    ]),
    notes: ["median [least, most] of runs that took turns; only the ratios carry over to other machines", ...notes],
  };
}

/** Whole training, forward and decoding steps of the engine, beside the peers that are installed. */
async function modelRows(args: Args, engine: Engine): Promise<{ rows: BenchRow[]; notes: string[] }> {
  const runs = args.number("runs", { min: 1 })!;
  const only = args.texts("only");
  const wanted = (work: string) => only.length === 0 || only.some((o) => work.includes(o));
  const { kind, hardware, limits } = engine.info;
  const cpu = kind === "cpu";
  const ours = engineRunner(engine);
  const torch = cpu ? torchPeer() : null;
  const llama = cpu && wanted("decode S") ? await llamaRunner(limits.threads!) : null;
  const jax = jaxPeer(cpu ? "wasm" : args.text("device")!);
  const peers = {
    PyTorch: { there: torch, install: TORCH_INSTALL },
    "llama.cpp": { there: llama, install: LLAMA_INSTALL },
    "jax-js": { there: jax, install: JAX_INSTALL },
  };
  const notes = new Set<string>();
  if (llama) notes.add(`llama.cpp decodes on ${llama.threads} of ${limits.threads} threads, which was faster`);
  const rows: BenchRow[] = [];
  const measure = async (
    work: string,
    one: () => Promise<number>,
    peerName: keyof typeof peers | null = null,
    other: (() => Promise<number>) | null | undefined = null,
    unit = "tokens/s",
  ) => {
    if (!wanted(work)) return;
    if (peerName && !other) notes.add(`${peerName} is not installed; get it with: ${peers[peerName].install}`);
    args.progress.log(`${work}${peerName && other ? ` beside ${peerName}` : ""} …`);
    rows.push(await interleave(work, unit, one, peerName, other ?? null, runs));
  };
  const asked = (peer: typeof torch, line: string) => peer && (() => peer.ask(line));
  /** Training, forward and decoding of one size; the peers are CPU programs. */
  const size = async (name: "S" | "M" | "XS", works: ("train" | "forward" | 16 | 1)[]) => {
    for (const work of works) {
      const peer = cpu ? "PyTorch" : null;
      if (work === "train")
        await measure(`train ${name}`, () => ours.train(name, 1), peer, asked(torch, `train ${name} 1`));
      else if (work === "forward")
        await measure(`forward ${name}`, () => ours.forward(name, 2), peer, asked(torch, `forward ${name} 2`));
      else {
        const decode = () => ours.decode(name, work, 64);
        const title = `decode ${name}, batch ${work}`;
        await measure(title, decode, peer, asked(torch, `decode ${name} ${work} 64`));
        if (cpu) await measure(title, decode, "llama.cpp", llama && (() => llama.decode(work, 64)));
      }
    }
  };
  if (cpu || hardware) {
    await size("S", ["train", "forward", 16, 1]);
    await size("M", ["train"]);
  } else await size("XS", ["forward", 16, 1]);
  // A step each, for a second's work.
  await measure("train XS", () => ours.train("XS", 1), "jax-js", asked(jax, "train XS 1"));
  await measure("matmul 512", () => ours.matmul(512), "jax-js", asked(jax, "matmul 512"), "GFLOP/s");
  await torch?.close();
  await llama?.close();
  await jax?.close();
  return { rows, notes: [...notes] };
}

/** Bytes over the steps of training; fails where they grow. */
async function memoryBench(args: Args): Promise<unknown> {
  const engine = await openEngine(args.text("device") as DeviceRequest);
  const steps = args.number("steps", { min: 16, integer: true })!;
  const points = await memoryCurve(engine, steps, (p) => args.progress.update(p.step, steps, "memory"));
  const mib = (bytes: number) => (bytes / 2 ** 20).toFixed(2);
  const rows = points.map((p) =>
    [p.step, ...[p.engineBytes, p.peakBytes, p.heapBytes, p.rssBytes].map(mib)].map(String),
  );
  const columns = ["step", "engine, MiB", "its peak", "JavaScript", "process"];
  if (!args.json)
    console.log(textTable({ title: `memory in training, ${engine.info.description}`, columns, rows, notes: [] }));
  const grew = growth(points);
  await engine.dispose();
  if (grew) throw new Error(`Memory is not flat over ${steps} training steps: ${grew}.`);
  return { engine: engine.info, points, environment: environment(engine.info) };
}

async function engineBench(args: Args): Promise<unknown> {
  if (args.on("memory")) return memoryBench(args);
  const device = args.text("device") as DeviceRequest;
  const noBlas = args.on("no-blas");
  if (noBlas && device !== "cpu") throw new UsageError("--no-blas needs --device cpu.");
  const engine = await (noBlas ? openCpuEngine({ blas: "none" }) : openEngine(device));
  const { info } = engine;
  const tables: Table[] = [];
  if (args.on("tune")) {
    if (!(engine instanceof WebGpuEngine))
      throw new UsageError(`--tune needs a WebGPU device; ${device} is ${info.kind}.`);
    args.progress.log("tuning matrix products for this adapter …");
    const s = SIZES.S;
    const c = s.config;
    const [qSize, kvSize] = [c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim];
    const shapes = {
      tokens: s.T * s.B,
      hidden: c.hidden_size,
      feedForward: c.intermediate_size,
      qSize,
      kvSize,
      vocabulary: c.vocab_size,
    };
    await tune(engine, decoderShapes({ ...shapes, type: "f32" }));
    saveTuning(info, engine.tuned);
    args.progress.log(`kept in ${tunePath(info)}; used from now on`);
  }
  const rounds = args.number("runs", { min: 1 })!;
  const sizes = [
    { m: 512, n: 512, k: 512 },
    { m: 512, n: 768, k: 256, transB: true },
    { m: 256, n: 768, k: 512, transA: true },
  ];
  args.progress.log(`matrix products on ${info.description} …`);
  const matmul = await benchMatmul(engine, sizes, rounds);
  tables.push(
    rateTable(
      "matmul",
      matmul.flatMap((b) =>
        b.rates.map((r) => ({ ...r, of: `${b.m}×${b.n}×${b.k}${b.transA ? " Aᵀ" : ""}${b.transB ? " Bᵀ" : ""}` })),
      ),
    ),
  );
  args.progress.log("attention and bandwidth …");
  const attention = await benchAttention(engine, undefined, rounds);
  const bandwidth = await benchBandwidth(engine, undefined, rounds);
  tables.push(rateTable("attention, 512 tokens", attention), rateTable("memory", bandwidth));
  let kernels: unknown = null;
  if (args.on("profile")) {
    if (!(engine instanceof WebGpuEngine))
      throw new UsageError(`--profile needs a WebGPU device (such as --device software); ${device} is ${info.kind}.`);
    kernels = await engine.profile(async () => {
      await benchMatmul(engine, sizes, 1);
      await benchAttention(engine, undefined, 1);
    });
  }
  const models = await modelRows(args, engine);
  tables.push(modelTable(models, info.description));
  await engine.dispose();
  if (!args.json) {
    console.log(tables.map((table) => textTable(table)).join("\n\n"));
    if (kernels) console.log(JSON.stringify(kernels, null, 1));
  }
  return {
    engine: info,
    matmul,
    attention,
    bandwidth,
    ...models,
    kernels,
    environment: environment(info),
  };
}

async function toolenvBench(args: Args): Promise<unknown> {
  const catalog = await ensureCatalog(args.progress);
  const tokenizer = loadTokenizer(qwen3TokenizerDir());
  args.progress.log("calls, tasks, searches …");
  const result = benchToolenv({
    catalog,
    retriever: catalog.bm25(),
    render: (tool) => renderTool(tool, "json"),
    count: (text) => tokenizer.encode(text).length,
    now: () => performance.now(),
    cpu: () => {
      const { user, system } = process.cpuUsage();
      return (user + system) / 1000;
    },
  });
  catalog.close();
  if (!args.json) {
    const rows = [
      ["tools", String(result.tools)],
      [
        "calls a second",
        `${result.callsPerSecond} (${result.callsPerCpuSecond} per second of processor time), warm, ${result.calledTools} tools of ${result.calledApis} APIs`,
      ],
      ["  no answer kept", `${result.workedOutPerCpuSecond} per second of processor time`],
      ...Object.entries(result.byKind).map(([kind, k]) => [
        `  ${kind}`,
        `${k.callsPerCpuSecond} per second of processor time, ${k.tools} tools`,
      ]),
      [
        "first call of a tool",
        `median ${result.firstCallMs.median.toFixed(2)} ms, p99 ${result.firstCallMs.p99.toFixed(1)} ms`,
      ],
      [
        "tasks a second of processor time",
        `${result.tasksPerCpuSecond.warm} (${result.tasksPerCpuSecond.cold} for the first 200, whose APIs are read on the way)`,
      ],
      ["search", `median ${result.searchMs.median.toFixed(2)} ms, p99 ${result.searchMs.p99.toFixed(2)} ms`],
      ["tokens of a tool's schema (Qwen3)", `median ${result.schemaTokens.median}, p95 ${result.schemaTokens.p95}`],
    ];
    console.log(textTable({ title: "toolenv", columns: ["what", "figure"], rows, notes: [] }));
  }
  return { ...result, environment: environment(null) };
}

await main(
  {
    name: "bench",
    summary: "measures speed on this machine, beside what else is installed",
    usage: [
      "bun run bench engine [--device cpu]",
      "bun run bench engine --memory [--steps 2000]",
      "bun run bench toolenv",
    ],
    flags: {
      device: { type: "string", default: "auto", help: "engine: auto, cpu, gpu, software" },
      runs: { type: "string", default: "5", help: "runs of each subject, which take turns" },
      only: {
        type: "string",
        multiple: true,
        help: 'engine: of training, forward and decoding only what holds this, such as "train S"',
      },
      "no-blas": { type: "boolean", help: "engine, cpu: our own matrix products instead of the system's BLAS" },
      tune: {
        type: "boolean",
        help: "engine, WebGPU: first measure which kernel is fastest for each shape on this adapter, and keep it",
      },
      memory: { type: "boolean", help: "engine: only whether training keeps memory flat; exits with 1 where it grows" },
      steps: { type: "string", default: "2000", help: "engine --memory: training steps" },
      profile: { type: "boolean", help: "engine, WebGPU: time per kernel" },
      out: { type: "string", help: "also write the JSON there, such as results/bench/name.json" },
    },
  },
  async (args) => {
    const [what] = args.positionals;
    const result = what === "engine" ? await engineBench(args) : what === "toolenv" ? await toolenvBench(args) : null;
    if (result === null)
      throw new UsageError(`bench takes engine or toolenv${what ? `, not "${what}"` : ""}. See: bun run bench --help`);
    const out = args.text("out");
    if (out) writeAtomic(out, `${JSON.stringify(result, null, 1)}\n`);
    return { json: result };
  },
);
