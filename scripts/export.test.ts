import { afterAll, expect, setDefaultTimeout, test } from "bun:test";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parquetReadObjects } from "hyparquet";
import { openCpuEngine } from "../lib/engine/cpu/index.ts";
import { trainTokenizer } from "../lib/model/bpe.ts";
import { loadModelDir, saveModel } from "../lib/model/hub.ts";
import { Model } from "../lib/model/model.ts";
import { tinyConfig } from "../lib/train/testdata/tiny.ts";

setDefaultTimeout(60_000);
const dir = mkdtempSync(join(tmpdir(), "export-"));
afterAll(() => rmSync(dir, { recursive: true }));

/** A results folder with one run, whose stages hold a model, demonstrations and tasks. */
const results = join(dir, "results");
const stage = (name: string) => join(results, "stages", `${name}-k1`);
for (const folder of [stage("sft"), stage("coldstart"), stage("tasks"), join(results, "demo", "r1")])
  mkdirSync(folder, { recursive: true });
const tokenizer = await trainTokenizer(["a small text"], { vocabSize: 262, tags: ["<think>", "</think>"] });
const config = { ...tinyConfig, vocab_size: tokenizer.vocabSize };
const model = await Model.create(await openCpuEngine(), config, 1);
await saveModel(join(stage("sft"), "model"), { ...model, tokenizer });
const messages = [
  { role: "system", content: "act" },
  { role: "user", content: "hello" },
  { role: "assistant", content: "<answer>hi</answer>" },
];
writeFileSync(join(stage("coldstart"), "demonstrations.jsonl"), `${JSON.stringify({ messages })}\n`);
writeFileSync(
  join(stage("tasks"), "train.jsonl"),
  `${JSON.stringify({ id: "t1", shape: "single", split: "train", request: "hello" })}\n`,
);
const stages = ["tasks", "coldstart", "sft"].map((name) => ({ name, key: "k1", elapsedMs: 1, cached: false }));
const task = { count: 1 };
const config_ = { name: "demo", tasks: { train: task, heldout: task }, agent: { prompt: "short" }, stages: {} };
writeFileSync(join(results, "demo", "r1", "run.json"), JSON.stringify({ id: "demo/r1", config: config_, stages }));

function run(...args: string[]) {
  const child = Bun.spawnSync([process.execPath, join(import.meta.dir, "export.ts"), ...args], {
    env: { ...process.env, PARAAGENT_RESULTS: results },
    cwd: dir,
  });
  return { code: child.exitCode, out: child.stdout.toString(), err: child.stderr.toString() };
}

test("a run's model becomes GGUF and safetensors", () => {
  const gguf = run("demo/r1", "--format", "gguf", "--type", "f16", "--json");
  expect(gguf.code).toBe(0);
  expect(gguf.err).toContain("ollama create r1");
  const { out, bytes, modelfile } = JSON.parse(gguf.out);
  const ollama = readFileSync(modelfile, "utf8");
  expect(ollama).toStartWith("FROM ./r1.f16.gguf\nTEMPLATE ");
  expect(ollama).toContain(`PARAMETER stop "<|im_end|>"\n`);
  expect(ollama).toContain(`num_ctx ${config.max_position_embeddings}\n`);
  expect(readFileSync(out).length).toBe(bytes);
  expect(out).toEndWith("data/exports/r1.f16.gguf");
  const saved = run("demo/r1", "--format", "safetensors", "--type", "bf16", "--out", "bf16");
  expect(saved.code).toBe(0);
  expect(loadModelDir(join(dir, "bf16")).weights.tensors.get("model.norm.weight")!.dtype).toBe("BF16");
  expect(loadModelDir(join(dir, "bf16")).config).toEqual(config);
});

test("a run's demonstrations and tasks become ShareGPT, OpenAI messages and Parquet", async () => {
  expect(run("demo/r1", "--format", "sharegpt", "--out", "demo.json").code).toBe(0);
  expect(JSON.parse(readFileSync(join(dir, "demo.json"), "utf8"))[0].conversations.length).toBe(2);
  expect(run(stage("coldstart"), "--format", "openai", "--out", "demo.jsonl").code).toBe(0);
  expect(JSON.parse(readFileSync(join(dir, "demo.jsonl"), "utf8")).messages.length).toBe(3);
  expect(run("demo/r1", "--format", "verl", "--out", "train.parquet").code).toBe(0);
  const bytes = readFileSync(join(dir, "train.parquet"));
  const file = new Uint8Array(bytes).buffer;
  expect((await parquetReadObjects({ file }))[0]).toMatchObject({ ability: "tool_use", extra_info: { task_id: "t1" } });
});

test("wrong use says what is wrong, and exits with 2", () => {
  const cases: [string[], RegExp][] = [
    [[], /takes one run/],
    [["demo/r1"], /--format is one of gguf/],
    [["demo/r1", "--format", "gguf", "--type", "bf16"], /--type for --format gguf is one of f32, f16, q8_0/],
    [
      ["demo/r1", "--format", "gguf", "--stage", "rl"],
      /no model.config.json in its stages rl \(its stages: tasks, coldstart, sft\)/,
    ],
    [["demo/none", "--format", "gguf"], /neither a folder nor a run/],
  ];
  for (const [args, message] of cases) {
    const { code, err } = run(...args);
    expect(err).toMatch(message);
    expect(code).toBe(2);
  }
  const help = run("--help");
  expect(help.code).toBe(0);
  expect(help.out).toContain("--shard-bytes");
  expect(existsSync(join(dir, "data", "exports", "none.f32.gguf"))).toBe(false);
});
