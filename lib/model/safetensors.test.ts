import { afterAll, expect, setDefaultTimeout, test } from "bun:test";
import {
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
import fc from "fast-check";
import {
  encodeTensor,
  openSafetensors,
  readSafetensors,
  SafetensorsError,
  writeSafetensors,
  writeSharded,
} from "./safetensors.ts";

setDefaultTimeout(60_000);

const dir = mkdtempSync(join(tmpdir(), "safetensors-"));
afterAll(() => rmSync(dir, { recursive: true }));

/** A file with this header and data, whatever they say. */
function forge(name: string, header: unknown, data: Uint8Array, length?: bigint): string {
  const json = new TextEncoder().encode(typeof header === "string" ? header : JSON.stringify(header));
  const prefix = new Uint8Array(8);
  new DataView(prefix.buffer).setBigUint64(0, length ?? BigInt(json.length), true);
  const path = join(dir, name);
  writeFileSync(path, Buffer.concat([prefix, json, data]));
  return path;
}

test("written tensors are read back in every dtype, with metadata", async () => {
  const path = join(dir, "all.safetensors");
  const values = new Float32Array([1, -2.5, 0, -0, 65504, 2 ** -14]);
  await writeSafetensors(
    path,
    [
      { name: "a.f32", dtype: "f32", shape: [2, 3], data: new Float32Array([1e-38, 0.1, -1, 2, 3, Infinity]) },
      { name: "b.f16", dtype: "f16", shape: [6], data: values },
      { name: "c.bf16", dtype: "bf16", shape: [3, 2], data: async () => values.map((x) => (x === 65504 ? 65280 : x)) },
      { name: "d.i32", dtype: "i32", shape: [], data: new Int32Array([-7]) },
      { name: "empty", dtype: "f32", shape: [0, 4], data: new Float32Array(0) },
    ],
    { step: "12", note: 'quotes " and ünïcode' },
  );
  const { metadata, tensors } = readSafetensors(path);
  expect(metadata.step).toBe("12");
  expect(metadata.note).toBe('quotes " and ünïcode');
  expect([...tensors.keys()]).toEqual(["a.f32", "b.f16", "c.bf16", "d.i32", "empty"]);
  expect(tensors.get("a.f32")).toEqual({
    dtype: "f32",
    shape: [2, 3],
    data: new Float32Array([1e-38, 0.1, -1, 2, 3, Infinity]),
  });
  expect(tensors.get("b.f16")?.data).toEqual(values);
  expect(tensors.get("c.bf16")?.data).toEqual(new Float32Array([1, -2.5, 0, -0, 65280, 2 ** -14]));
  expect(tensors.get("d.i32")?.data).toEqual(new Int32Array([-7]));
  expect(readdirSync(dir).filter((name) => name.endsWith(".tmp"))).toEqual([]);
});

/** Numerical references of another writer; not part of the project. */
const reference = join(process.env.PARAAGENT_REFERENCE ?? "/work/shared/reference", "qwen3-even.safetensors");

test.skipIf(!existsSync(reference))("the reference files of another writer are read: shapes, values, metadata", () => {
  const file = openSafetensors(reference);
  expect(Object.keys(file.metadata).length).toBeGreaterThan(5);
  const ids = file.read("ids");
  expect(ids.data).toBeInstanceOf(Int32Array);
  expect(ids.data.length).toBe(ids.shape[0]! * ids.shape[1]!);
});

test("bf16 rounds to nearest even, and NaN stays NaN", () => {
  const bits = (x: number) => new Uint16Array(encodeTensor(new Float32Array([x]), "bf16").buffer)[0]!;
  const fromBits = (word: number) => new Float32Array(new Uint32Array([word]).buffer)[0]!;
  expect(bits(fromBits(0x3f808000))).toBe(0x3f80);
  expect(bits(fromBits(0x3f818000))).toBe(0x3f82);
  expect(bits(fromBits(0x3f808001))).toBe(0x3f81);
  expect(bits(fromBits(0x7f7fffff))).toBe(0x7f80);
  expect(bits(Number.NaN) & 0x7fff).toBeGreaterThan(0x7f80);
});

test("every value that bf16 or f16 can hold survives a round trip", () => {
  const all = Uint16Array.from({ length: 65536 }, (_, i) => i).filter((x) => (x & 0x7f80) !== 0x7f80);
  const wide = new Float32Array(Uint32Array.from(all, (x) => x << 16).buffer);
  expect(new Uint16Array(encodeTensor(wide, "bf16").buffer)).toEqual(all);
  const halves = Uint16Array.from({ length: 65536 }, (_, i) => i).filter((x) => (x & 0x7c00) !== 0x7c00);
  const f16 = Float32Array.from(new Float16Array(halves.buffer));
  expect(new Uint16Array(encodeTensor(f16, "f16").buffer)).toEqual(halves);
});

test("shards and their index hold what one file would, and replace an older layout", async () => {
  const folder = join(dir, "sharded");
  mkdirSync(folder);
  const sources = Array.from({ length: 5 }, (_, i) => ({
    name: `t${i}`,
    dtype: "f32" as const,
    shape: [10],
    data: new Float32Array(10).fill(i),
  }));
  expect(await writeSharded(folder, sources)).toEqual(["model.safetensors"]);
  const names = await writeSharded(folder, sources, { maxShardBytes: 80 });
  expect(names).toEqual([
    "model-00001-of-00003.safetensors",
    "model-00002-of-00003.safetensors",
    "model-00003-of-00003.safetensors",
    "model.safetensors.index.json",
  ]);
  expect(readdirSync(folder).sort()).toEqual([...names].sort());
  const { tensors } = readSafetensors(folder);
  for (const { name, data } of sources) expect(tensors.get(name)?.data).toEqual(data);
  rmSync(join(folder, names[1]!));
  expect(() => readSafetensors(folder)).toThrow(/00002-of-00003.safetensors: missing/);
  await writeSharded(folder, sources);
  expect(readSafetensors(folder).tensors.size).toBe(5);
});

test("hostile and damaged headers are refused with the reason", () => {
  const data = new Uint8Array(16);
  const t = (begin: number, end: number, shape: unknown = [(end - begin) / 4], dtype = "F32") => ({
    dtype,
    shape,
    data_offsets: [begin, end],
  });
  const cases: [string, unknown, RegExp][] = [
    ["overlap", { a: t(0, 12), b: t(8, 16) }, /"b" overlaps/],
    ["gap", { a: t(0, 4), b: t(8, 16) }, /"b" follows a gap/],
    ["tail", { a: t(0, 8) }, /8 bytes after the last tensor/],
    ["beyond", { a: t(0, 1 << 20) }, /truncated: tensor "a"/],
    ["huge shape", { a: t(0, 16, [2 ** 40, 2 ** 40]) }, /needs/],
    ["wrap-around shape", { a: t(0, 16, [2 ** 32, 2 ** 31, 2]) }, /needs/],
    ["negative", { a: t(0, 16, [-4, -1]) }, /"a" is not/],
    ["backwards", { a: t(16, 0, [0]) }, /"a"/],
    ["fraction", { a: t(0, 16, [1.5]) }, /"a" is not/],
    ["dtype", { a: t(0, 16, [4], "F33") }, /unknown dtype "F33"/],
    ["extra key", { a: { ...t(0, 16), more: 1 } }, /"a" is not/],
    ["metadata", { __metadata__: { step: 3 }, a: t(0, 16) }, /__metadata__/],
    ["array", [1], /not a JSON object/],
    ["no JSON", "{oops", /not JSON/],
  ];
  for (const [name, header, message] of cases) {
    const path = forge(`${name}.safetensors`, header, data);
    expect(() => readSafetensors(path)).toThrow(message);
    expect(() => readSafetensors(path)).toThrow(SafetensorsError);
  }
  expect(() => readSafetensors(forge("length", "{}", data, 2n ** 60n))).toThrow(/claims 1152921504606846976 bytes/);
  writeFileSync(join(dir, "short"), "abc");
  expect(() => readSafetensors(join(dir, "short"))).toThrow(/too few/);
  expect(() => readSafetensors(join(dir, "absent"))).toThrow(/no such file/);
  writeFileSync(join(dir, "climb.safetensors.index.json"), JSON.stringify({ weight_map: { a: "../all.safetensors" } }));
  expect(() => openSafetensors(join(dir, "climb.safetensors.index.json"))).toThrow(/not the name of a shard/);
});

test("an unread dtype is refused only when it is asked for", () => {
  const header = {
    a: { dtype: "I64", shape: [1], data_offsets: [0, 8] },
    b: { dtype: "F32", shape: [2], data_offsets: [8, 16] },
  };
  const file = openSafetensors(forge("i64.safetensors", header, new Uint8Array(16)));
  expect(file.read("b").data).toEqual(new Float32Array(2));
  expect(() => file.read("a")).toThrow(/"a" is I64/);
});

test("a file cut at any byte, or with one bit changed in its data, is refused", async () => {
  const path = join(dir, "cut.safetensors");
  await writeSafetensors(path, [{ name: "w", dtype: "f32", shape: [8], data: new Float32Array(8).fill(1.5) }]);
  const whole = readFileSync(path);
  fc.assert(
    fc.property(fc.integer({ min: 0, max: whole.length - 1 }), (length) => {
      writeFileSync(path, whole);
      truncateSync(path, length);
      expect(() => readSafetensors(path)).toThrow(SafetensorsError);
    }),
    { seed: 7, numRuns: 60 },
  );
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 32 * 8 - 1 }), (bit) => {
      const bytes = Buffer.from(whole);
      bytes[whole.length - 32 + (bit >> 3)]! ^= 1 << (bit & 7);
      writeFileSync(path, bytes);
      expect(() => readSafetensors(path)).toThrow(/checksum/);
    }),
    { seed: 7, numRuns: 40 },
  );
});

test("a failed write leaves the old file and no temporary one", async () => {
  const path = join(dir, "kept.safetensors");
  await writeSafetensors(path, [{ name: "w", dtype: "f32", shape: [2], data: new Float32Array([1, 2]) }]);
  const before = readFileSync(path);
  const wrong = writeSafetensors(path, [{ name: "w", dtype: "f32", shape: [3], data: new Float32Array(2) }]);
  await expect(wrong).rejects.toThrow(/got 2 values/);
  const failing = writeSafetensors(path, [
    { name: "w", dtype: "f32", shape: [1], data: () => Promise.reject(new Error("device lost")) },
  ]);
  await expect(failing).rejects.toThrow("device lost");
  expect(readFileSync(path)).toEqual(before);
  expect(readdirSync(dir).filter((name) => name.endsWith(".tmp"))).toEqual([]);
});
