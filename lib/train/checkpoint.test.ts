import { afterAll, expect, setDefaultTimeout, test } from "bun:test";
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { z } from "zod";
import { writeAtomic } from "../config/atomic.ts";
import { Optimizer } from "../model/optimizer.ts";
import { CheckpointError, Checkpoints, readTrained, writeTrained } from "./checkpoint.ts";
import { recordedContext, testEngine, tinyModel } from "./testdata/tiny.ts";

setDefaultTimeout(60_000);

const root = mkdtempSync(join(tmpdir(), "checkpoint-"));
afterAll(() => rmSync(root, { recursive: true }));
const State = z.strictObject({ cursor: z.number() });

const setUp = () => {
  const ctx = recordedContext(mkdtempSync(join(root, "run-")));
  return { ctx, open: () => new Checkpoints(ctx.dir, State, ctx.progress) };
};
/** A folder's content is one file with the step in it, checked on the way back. */
const put = (step: number) => async (folder: string) => {
  mkdirSync(join(folder, "model"));
  writeFileSync(join(folder, "model", "data"), String(step));
};
async function restore(
  checkpoints: Checkpoints<z.infer<typeof State>>,
): Promise<{ step: number; data: string; cursor: number } | null> {
  let data = "";
  const found = await checkpoints.restore(async (folder) => {
    data = readFileSync(join(folder, "model", "data"), "utf8");
    if (!/^\d+$/.test(data)) throw new Error("data is broken");
  });
  return found && { step: found.step, data, cursor: found.state.cursor };
}

test("the last two and the best are kept, and the newest comes back", async () => {
  const { ctx, open } = setUp();
  const checkpoints = open();
  expect(await restore(checkpoints)).toBeNull();
  for (const step of [1, 2, 3, 4, 5]) await checkpoints.save(step, put(step), { cursor: step * 10 }, step === 2);
  expect(readdirSync(join(ctx.dir, "checkpoints")).sort()).toEqual(["step-000002", "step-000004", "step-000005"]);
  const again = open();
  expect(await restore(again)).toEqual({ step: 5, data: "5", cursor: 50 });
  expect(again.bestStep).toBe(2);
  expect(readFileSync(join(again.publish(2, "model"), "data"), "utf8")).toBe("2");
  expect(again.lastGood).toEndWith("step-000005");
});

test("a damaged newest checkpoint gives way to the one before, with a warning", async () => {
  const damages: ((folder: string) => void)[] = [
    (folder) => writeFileSync(join(folder, "model", "data"), "x"),
    (folder) => rmSync(join(folder, "state.json")),
    (folder) => truncateSync(join(folder, "state.json"), 20),
    (folder) => {
      const file = join(folder, "state.json");
      writeFileSync(file, readFileSync(file, "utf8").replace('"cursor":2', '"cursor":7'));
    },
  ];
  for (const damage of damages) {
    const { ctx, open } = setUp();
    const checkpoints = open();
    await checkpoints.save(1, put(1), { cursor: 1 });
    await checkpoints.save(2, put(2), { cursor: 2 });
    damage(join(ctx.dir, "checkpoints", "step-000002"));
    expect(await restore(open())).toEqual({ step: 1, data: "1", cursor: 1 });
    expect(ctx.lines.join("\n")).toMatch(/warning: .*step-000002 is damaged .*going on from .*step-000001/);
    damage(join(ctx.dir, "checkpoints", "step-000001"));
  }
});

test("going back from a damaged best finds the best that was before it", async () => {
  const { ctx, open } = setUp();
  const checkpoints = open();
  for (const step of [1, 2, 3, 4]) await checkpoints.save(step, put(step), { cursor: step }, step === 1 || step === 4);
  rmSync(join(ctx.dir, "checkpoints", "step-000004", "state.json"));
  const again = open();
  expect(await restore(again)).toEqual({ step: 3, data: "3", cursor: 3 });
  expect(again.bestStep).toBe(1);
  expect(readFileSync(join(again.publish(1, "model"), "data"), "utf8")).toBe("1");
});

test("when all are damaged, that is an error and not a fresh start", async () => {
  const { ctx, open } = setUp();
  await open().save(1, put(1), { cursor: 1 });
  writeFileSync(join(ctx.dir, "checkpoints", "step-000001", "model", "data"), "x");
  expect(restore(open())).rejects.toThrow(/no checkpoint can be read.*Remove/);
});

test("metrics after the checkpoint are cut off, so that resumed steps are not told twice", async () => {
  const { ctx, open } = setUp();
  const metrics = join(ctx.dir, "metrics.jsonl");
  ctx.metric(1, { loss: 3 });
  const checkpoints = open();
  await checkpoints.save(1, put(1), { cursor: 1 });
  ctx.metric(2, { loss: 2 });
  appendFileSync(metrics, '{"step":3,"lo');
  await restore(open());
  expect(readFileSync(metrics, "utf8")).toBe('{"step":1,"loss":3}\n');
  rmSync(join(ctx.dir, "checkpoints"), { recursive: true });
  expect(await restore(open())).toBeNull();
  expect(readFileSync(metrics, "utf8")).toBe("");
});

test("a killed write leaves nothing that counts, and a folder of the same step is replaced", async () => {
  const { ctx, open } = setUp();
  await open().save(1, put(1), { cursor: 1 });
  mkdirSync(join(ctx.dir, "checkpoints", "step-000002.tmp"));
  expect(await restore(open())).toEqual({ step: 1, data: "1", cursor: 1 });
  expect(existsSync(join(ctx.dir, "checkpoints", "step-000002.tmp"))).toBe(false);
  await open().save(1, put(9), { cursor: 4 });
  expect(await restore(open())).toEqual({ step: 1, data: "9", cursor: 4 });
});

test.skipIf(!existsSync("/dev/full"))(
  "a full disk is a clear error that names the last good state, which is untouched",
  async () => {
    const { ctx, open } = setUp();
    const checkpoints = open();
    await checkpoints.save(1, put(1), { cursor: 1 });
    const full = async () => writeFileSync("/dev/full", "more than fits");
    const error = await checkpoints.save(2, full, { cursor: 2 }).catch((e: unknown) => e);
    expect(error).toBeInstanceOf(CheckpointError);
    expect(String(error)).toMatch(/step 2 could not be written: the disk is full.*last good state is .*step-000001/);
    expect(readdirSync(join(ctx.dir, "checkpoints"))).toEqual(["step-000001"]);
    expect(await restore(open())).toEqual({ step: 1, data: "1", cursor: 1 });
  },
);

test("weights and optimiser come back to the bit, and one changed bit is noticed", async () => {
  const engine = await testEngine();
  const make = async (seed: number) => {
    const model = await tinyModel(engine, seed);
    return { model, tokenizer: null, optimizer: new Optimizer(engine, model.trainable()) };
  };
  const [one, other] = [await make(1), await make(2)];
  for (const { gradient } of one.model.trainable()) engine.fill(gradient, 0.25);
  await one.optimizer.step(0.01);
  const folder = mkdtempSync(join(root, "trained-"));
  await writeTrained(folder, one);
  readTrained(folder, other);
  expect(await other.model.arrays()).toEqual(await one.model.arrays());
  expect(await other.optimizer.export()).toEqual(await one.optimizer.export());
  expect(other.optimizer.steps).toBe(1);
  for (const file of ["model/model.safetensors", "optimizer.safetensors"]) {
    const path = join(folder, file);
    const bytes = readFileSync(path);
    bytes[bytes.length - 3]! ^= 8;
    writeAtomic(path, bytes);
    expect(() => readTrained(folder, other)).toThrow(/does not match its checksum/);
    bytes[bytes.length - 3]! ^= 8;
    writeAtomic(path, bytes);
  }
});
