/**
 * Safetensors (https://huggingface.co/docs/safetensors): 8 bytes of header length, a JSON header, then the tensors' bytes. Reads single files and
 * sharded ones (`*.safetensors.index.json`); every offset is checked against the file before anything is allocated. Writes tensor by
 * tensor, atomically, with a SHA-256 of the data in the metadata.
 */
import {
  closeSync,
  existsSync,
  fstatSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  rmSync,
  statSync,
  writeSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { z } from "zod";
import { writeAtomic } from "../config/atomic.ts";
import { writeAll, writeAtomically } from "./files.ts";
import { elements } from "./parameters.ts";

/** The file is not sound: truncated, overlapping, mislabelled or hostile. The message names file and tensor. */
export class SafetensorsError extends Error {
  override name = "SafetensorsError";
}

export type StoredDType = "f32" | "f16" | "bf16" | "i32";

/** A tensor on the host. f16 and bf16 are widened to f32 in `data`; `dtype` says how they are stored. */
export interface HostTensor {
  dtype: StoredDType;
  shape: number[];
  data: Float32Array | Int32Array;
}

/** A tensor to be written. `data` is asked for when its turn comes, so that one tensor at a time is in memory. */
export interface TensorSource {
  name: string;
  dtype: StoredDType;
  shape: readonly number[];
  data: Float32Array | Int32Array | (() => Promise<Float32Array | Int32Array> | Float32Array | Int32Array);
}

const BYTES: Record<string, number> = {
  ...{ BOOL: 1, U8: 1, I8: 1, F8_E4M3: 1, F8_E5M2: 1, F16: 2, BF16: 2, I16: 2, U16: 2 },
  ...{ F32: 4, I32: 4, U32: 4, F64: 8, I64: 8, U64: 8 },
};
const STORED: Record<string, StoredDType> = { F32: "f32", F16: "f16", BF16: "bf16", I32: "i32" };
const NAMES: Record<StoredDType, string> = { f32: "F32", f16: "F16", bf16: "BF16", i32: "I32" };
const MAX_HEADER = 100_000_000;
const PIECE = 1 << 25;
const CHECKSUM = "sha256";

const Entry = z.strictObject({
  dtype: z.string(),
  shape: z.array(z.int().min(0)),
  data_offsets: z.tuple([z.int().min(0), z.int().min(0)]),
});
const Metadata = z.record(z.string(), z.string());
const Index = z.object({ weight_map: z.record(z.string(), z.string()) });

/** Where a tensor lies. */
interface Place {
  dtype: string;
  shape: number[];
  file: string;
  /** Byte offsets in the file. */
  begin: number;
  end: number;
}

interface Header {
  metadata: Record<string, string>;
  places: Map<string, Place>;
  dataStart: number;
}

function readAt(fd: number, into: Uint8Array, position: number, file: string): void {
  for (let at = 0; at < into.length; ) {
    const n = readSync(fd, into, at, Math.min(into.length - at, PIECE), position + at);
    if (n === 0)
      throw new SafetensorsError(`${file}: ends at byte ${position + at}, before the data its header promises.`);
    at += n;
  }
}

/** Reads and checks a header. Allocates nothing that the file's real size does not cover. */
function readHeader(file: string): Header {
  const fail = (what: string): never => {
    throw new SafetensorsError(`${file}: ${what} Fetch or write the file again.`);
  };
  const fd = openSync(file, "r");
  try {
    const size = fstatSync(fd).size;
    if (size < 8) return fail(`${size} bytes are too few for a safetensors file.`);
    const prefix = new Uint8Array(8);
    readAt(fd, prefix, 0, file);
    const length = new DataView(prefix.buffer).getBigUint64(0, true);
    if (length > BigInt(Math.min(MAX_HEADER, size - 8)))
      return fail(`the header claims ${length} bytes, the file has ${size}.`);
    const bytes = new Uint8Array(Number(length));
    readAt(fd, bytes, 8, file);
    let json: unknown;
    try {
      json = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
    } catch {
      return fail("the header is not JSON.");
    }
    const raw = z.record(z.string(), z.unknown()).safeParse(json);
    if (!raw.success) return fail("the header is not a JSON object.");
    const dataStart = 8 + bytes.length;
    const places = new Map<string, Place>();
    let metadata: Record<string, string> = {};
    for (const [name, value] of Object.entries(raw.data)) {
      if (name === "__metadata__") {
        const parsed = Metadata.safeParse(value);
        if (!parsed.success) return fail("__metadata__ must map strings to strings.");
        metadata = parsed.data;
        continue;
      }
      const parsed = Entry.safeParse(value);
      if (!parsed.success) return fail(`the entry of tensor "${name}" is not {dtype, shape, data_offsets}.`);
      const { dtype, shape, data_offsets } = parsed.data;
      const width = BYTES[dtype];
      if (width === undefined) return fail(`tensor "${name}" has the unknown dtype "${dtype}".`);
      const [begin, end] = data_offsets;
      const wanted = shape.reduce((product, n) => product * BigInt(n), BigInt(width));
      if (end < begin || BigInt(end - begin) !== wanted)
        return fail(
          `tensor "${name}" of shape [${shape}] ${dtype} needs ${wanted} bytes, but spans ${begin} to ${end}.`,
        );
      if (dataStart + end > size)
        return fail(`truncated: tensor "${name}" ends at byte ${dataStart + end} of ${size}.`);
      places.set(name, { dtype, shape, file, begin: dataStart + begin, end: dataStart + end });
    }
    let at = dataStart;
    const ordered = [...places].sort(([, a], [, b]) => a.begin - b.begin || a.end - b.end);
    for (const [name, place] of ordered) {
      if (place.begin !== at)
        return fail(
          `tensor "${name}" ${place.begin < at ? "overlaps the one before it" : "follows a gap"} at byte ${place.begin}.`,
        );
      at = place.end;
    }
    if (at !== size) return fail(`${size - at} bytes after the last tensor belong to none.`);
    return { metadata, places, dataStart };
  } finally {
    closeSync(fd);
  }
}

/** An opened model: names, shapes and dtypes are known, data is read one tensor at a time. */
export interface LazySafetensors {
  /** Metadata of all shards together. */
  metadata: Record<string, string>;
  /** In the order of the files' data. */
  tensors: ReadonlyMap<string, { dtype: string; shape: readonly number[]; bytes: number }>;
  /** Reads one tensor, widened. Throws SafetensorsError for an unknown name or a dtype other than f32, f16, bf16, i32. */
  read(name: string): HostTensor;
  /** Checks the SHA-256 of every file whose metadata has one. Throws SafetensorsError where it differs. */
  verify(): void;
}

/**
 * Opens `path`: a .safetensors file, an index (.safetensors.index.json), or a model directory that has either (model.safetensors).
 * Throws SafetensorsError if a header is unsound, a shard is missing, or the index and the shards disagree.
 */
export function openSafetensors(path: string): LazySafetensors {
  const file = locate(path);
  const places = new Map<string, Place>();
  const metadata: Record<string, string> = {};
  const headers = new Map<string, Header>();
  if (!file.endsWith(".json")) {
    const header = readHeader(file);
    headers.set(file, header);
    Object.assign(metadata, header.metadata);
    for (const [name, place] of header.places) places.set(name, place);
  } else {
    const index = Index.safeParse(parseJson(file));
    if (!index.success) throw new SafetensorsError(`${file}: not a safetensors index (no weight_map of strings).`);
    for (const [name, shard] of Object.entries(index.data.weight_map)) {
      if (basename(shard) !== shard || !shard.endsWith(".safetensors"))
        throw new SafetensorsError(`${file}: "${shard}" is not the name of a shard beside the index.`);
      const shardPath = join(dirname(file), shard);
      let header = headers.get(shardPath);
      if (!header) {
        if (!existsSync(shardPath))
          throw new SafetensorsError(`${shardPath}: missing, but ${basename(file)} names it.`);
        header = readHeader(shardPath);
        headers.set(shardPath, header);
        Object.assign(metadata, header.metadata);
      }
      const place = header.places.get(name);
      if (!place)
        throw new SafetensorsError(`${shardPath}: has no tensor "${name}", which ${basename(file)} places there.`);
      places.set(name, place);
    }
  }
  return {
    metadata,
    tensors: new Map(
      [...places].map(([name, { dtype, shape, begin, end }]) => [name, { dtype, shape, bytes: end - begin }] as const),
    ),
    read(name) {
      const place = places.get(name);
      if (!place) throw new SafetensorsError(`${file}: has no tensor "${name}".`);
      return readTensor(name, place);
    },
    verify() {
      for (const [shard, header] of headers) verifyFile(shard, header);
    },
  };
}

function locate(path: string): string {
  if (!existsSync(path)) throw new SafetensorsError(`${path}: no such file or directory.`);
  if (!statSync(path).isDirectory()) return path;
  for (const name of ["model.safetensors.index.json", "model.safetensors"]) {
    if (existsSync(join(path, name))) return join(path, name);
  }
  throw new SafetensorsError(`${path}: has neither model.safetensors nor model.safetensors.index.json.`);
}

function parseJson(file: string): unknown {
  try {
    return JSON.parse(readFileSync(file, "utf8"));
  } catch (error) {
    throw new SafetensorsError(`${file}: not JSON (${error instanceof Error ? error.message : error}).`);
  }
}

function readTensor(name: string, place: Place): HostTensor {
  const dtype = STORED[place.dtype];
  if (!dtype)
    throw new SafetensorsError(`${place.file}: tensor "${name}" is ${place.dtype}; F32, F16, BF16 and I32 are read.`);
  const fd = openSync(place.file, "r");
  try {
    const size = (place.end - place.begin) / (BYTES[place.dtype] ?? 1);
    const data = dtype === "i32" ? new Int32Array(size) : new Float32Array(size);
    if (dtype === "f32" || dtype === "i32") {
      readAt(fd, new Uint8Array(data.buffer), place.begin, place.file);
    } else {
      const piece = new Uint8Array(Math.min(PIECE, place.end - place.begin));
      for (let at = place.begin; at < place.end; at += piece.length) {
        const bytes = piece.subarray(0, Math.min(piece.length, place.end - at));
        readAt(fd, bytes, at, place.file);
        widen(data, (at - place.begin) / 2, dtype, bytes);
      }
    }
    return { dtype, shape: place.shape, data };
  } finally {
    closeSync(fd);
  }
}

function widen(into: Float32Array | Int32Array, offset: number, dtype: "f16" | "bf16", bytes: Uint8Array): void {
  if (dtype === "f16") {
    into.set(new Float16Array(bytes.buffer, bytes.byteOffset, bytes.length / 2), offset);
    return;
  }
  const halves = new Uint16Array(bytes.buffer, bytes.byteOffset, bytes.length / 2);
  const words = new Uint32Array(into.buffer, into.byteOffset + offset * 4, halves.length);
  for (let i = 0; i < halves.length; i++) words[i] = halves[i]! << 16;
}

/** The bytes of `data` stored as `dtype`, rounded to nearest even. f32 and i32 are a view, not a copy. */
export function encodeTensor(data: Float32Array | Int32Array, dtype: StoredDType): Uint8Array {
  if ((dtype === "i32") !== data instanceof Int32Array)
    throw new SafetensorsError(`${dtype} tensors take ${dtype === "i32" ? "Int32Array" : "Float32Array"}.`);
  if (dtype === "f16") return new Uint8Array(new Float16Array(data).buffer);
  if (dtype !== "bf16") return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  const words = new Uint32Array(data.buffer, data.byteOffset, data.length);
  const halves = new Uint16Array(data.length);
  for (let i = 0; i < words.length; i++) {
    const x = words[i]!;
    // A NaN stays a NaN: rounding could carry it into infinity.
    halves[i] = (x & 0x7fffffff) > 0x7f800000 ? (x >>> 16) | 0x40 : (x + 0x7fff + ((x >>> 16) & 1)) >>> 16;
  }
  return new Uint8Array(halves.buffer);
}

function verifyFile(file: string, header: Header): void {
  const wanted = header.metadata[CHECKSUM];
  if (wanted === undefined) return;
  const hasher = new Bun.CryptoHasher("sha256");
  const fd = openSync(file, "r");
  try {
    const size = fstatSync(fd).size;
    const piece = new Uint8Array(Math.min(PIECE, size - header.dataStart));
    for (let at = header.dataStart; at < size; at += piece.length) {
      const bytes = piece.subarray(0, Math.min(piece.length, size - at));
      readAt(fd, bytes, at, file);
      hasher.update(bytes);
    }
  } finally {
    closeSync(fd);
  }
  if (hasher.digest("hex") !== wanted)
    throw new SafetensorsError(
      `${file}: the data does not match its checksum; the file was damaged. Fetch or write it again.`,
    );
}

/** Reads everything (see `openSafetensors` for what `path` may be), after checking checksums where there are any. */
export function readSafetensors(path: string): { metadata: Record<string, string>; tensors: Map<string, HostTensor> } {
  const file = openSafetensors(path);
  file.verify();
  return { metadata: file.metadata, tensors: new Map([...file.tensors.keys()].map((name) => [name, file.read(name)])) };
}

/**
 * Writes one file, in the order given, one tensor at a time: temporary file, sync, rename. The metadata gains "sha256", of the data
 * section. Throws SafetensorsError if data and shape disagree.
 */
export async function writeSafetensors(
  path: string,
  tensors: readonly TensorSource[],
  metadata: Record<string, string> = {},
): Promise<void> {
  const placeholder = "0".repeat(64);
  const header: Record<string, unknown> = { __metadata__: { ...metadata, [CHECKSUM]: placeholder } };
  let at = 0;
  for (const { name, dtype, shape } of tensors) {
    if (Object.hasOwn(header, name)) throw new SafetensorsError(`${path}: two tensors named "${name}".`);
    const bytes = elements(shape) * (BYTES[NAMES[dtype]] ?? 0);
    header[name] = { dtype: NAMES[dtype], shape, data_offsets: [at, at + bytes] };
    at += bytes;
  }
  let json = new TextEncoder().encode(JSON.stringify(header));
  json = new Uint8Array([...json, ...new Array((8 - (json.length % 8)) % 8).fill(0x20)]);
  const prefix = new Uint8Array(8);
  new DataView(prefix.buffer).setBigUint64(0, BigInt(json.length), true);
  await writeAtomically(path, async (fd) => {
    writeAll(fd, prefix);
    writeAll(fd, json);
    const hasher = new Bun.CryptoHasher("sha256");
    for (const tensor of tensors) {
      const data = typeof tensor.data === "function" ? await tensor.data() : tensor.data;
      if (data.length !== elements(tensor.shape))
        throw new SafetensorsError(
          `${path}: tensor "${tensor.name}" of shape [${tensor.shape}] got ${data.length} values.`,
        );
      const bytes = encodeTensor(data, tensor.dtype);
      writeAll(fd, bytes);
      hasher.update(bytes);
    }
    // The placeholder is the last value of the metadata object, which stands first in the header.
    const offset = 8 + Buffer.from(json).indexOf(`"${CHECKSUM}":"${placeholder}"`) + CHECKSUM.length + 4;
    writeSync(fd, hasher.digest("hex"), offset);
  });
}

/**
 * Writes model.safetensors into `dir`, or shards of at most `maxShardBytes` with model.safetensors.index.json (Hugging Face's names). The
 * index is written last. Returns the file names.
 */
export async function writeSharded(
  dir: string,
  tensors: readonly TensorSource[],
  options: { metadata?: Record<string, string>; maxShardBytes?: number } = {},
): Promise<string[]> {
  const limit = options.maxShardBytes ?? 4e9;
  const metadata = { format: "pt", ...options.metadata };
  const shards: TensorSource[][] = [];
  let room = 0;
  let total = 0;
  for (const tensor of tensors) {
    const bytes = elements(tensor.shape) * (BYTES[NAMES[tensor.dtype]] ?? 0);
    if (shards.length === 0 || bytes > room) {
      shards.push([]);
      room = limit;
    }
    shards.at(-1)?.push(tensor);
    room -= bytes;
    total += bytes;
  }
  if (shards.length <= 1) {
    await writeSafetensors(join(dir, "model.safetensors"), tensors, metadata);
    return removeStale(dir, ["model.safetensors"]);
  }
  const digits = (n: number) => String(n).padStart(5, "0");
  const names = shards.map((_, i) => `model-${digits(i + 1)}-of-${digits(shards.length)}.safetensors`);
  const weightMap: Record<string, string> = {};
  for (const [i, shard] of shards.entries()) {
    await writeSafetensors(join(dir, names[i]!), shard, metadata);
    for (const { name } of shard) weightMap[name] = names[i]!;
  }
  const index = { metadata: { total_size: total }, weight_map: weightMap };
  writeAtomic(join(dir, "model.safetensors.index.json"), `${JSON.stringify(index, null, 2)}\n`);
  return removeStale(dir, [...names, "model.safetensors.index.json"]);
}

/** Another layout's files of an earlier save would win over, or lie beside, what was just written. */
function removeStale(dir: string, written: string[]): string[] {
  for (const name of readdirSync(dir)) {
    if (/^model(-\d+-of-\d+)?\.safetensors(\.index\.json)?$/.test(name) && !written.includes(name))
      rmSync(join(dir, name));
  }
  return written;
}
