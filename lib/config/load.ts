/**
 * Loading an experiment: `extends` chains, the chosen size, `--set a.b=c`, then the schema. Errors name file, line and column, what was
 * expected, and the nearest valid key.
 */
import { readFileSync } from "node:fs";
import { dirname, relative, resolve } from "node:path";
import { type Document, isMap, isScalar, LineCounter, type Node, parseDocument } from "yaml";
import { z } from "zod";
import { nearest } from "./nearest.ts";
import { type Experiment, experimentSchema } from "./schema.ts";

/** A wrong experiment: every finding with its place. */
export class ConfigError extends Error {
  override name = "ConfigError";
  constructor(readonly findings: string[]) {
    super(
      findings.length === 1
        ? findings[0]!
        : `${findings.length} things are wrong:\n${findings.map((f) => `  ${f}`).join("\n")}`,
    );
  }
}

type Plain = { [key: string]: unknown };
type Path = (string | number)[];

/** One source of settings: a file's part, or one --set. Later layers win. */
interface Layer {
  value: Plain;
  /** Where a path of the experiment stands in this layer: "file:line:column", or null where the layer does not set it. */
  locate(path: Path, key: boolean): string | null;
}

function isPlain(value: unknown): value is Plain {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Objects merge key by key; anything else replaces. A section that is null at the end is left out (`check`). */
export function merge(low: Plain, high: Plain): Plain {
  const out: Plain = { ...low };
  for (const [key, value] of Object.entries(high)) {
    if (key === "__proto__" || key === "constructor") throw new ConfigError([`"${key}" is not a setting.`]);
    const below = out[key];
    out[key] = isPlain(below) && isPlain(value) ? merge(below, value) : value;
  }
  return out;
}

/** Sets a dotted key: nest("a.b", 1) = {a: {b: 1}}. */
export function nest(dotted: string, value: unknown): Plain {
  const keys = dotted.split(".");
  return keys.reduceRight<unknown>((inner, key) => ({ [key]: inner }), value) as Plain;
}

function readYaml(file: string): { doc: Document; lines: LineCounter; value: Plain } {
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch (error) {
    throw new ConfigError([
      `${file} cannot be read (${(error as NodeJS.ErrnoException).code}). bun run exp list shows the experiments there are.`,
    ]);
  }
  const lines = new LineCounter();
  const doc = parseDocument(text, { lineCounter: lines, prettyErrors: false });
  if (doc.errors.length > 0) {
    throw new ConfigError(
      doc.errors.map((e) => {
        const { line, col } = lines.linePos(e.pos[0]);
        return `${file}:${line}:${col}: not valid YAML: ${e.message}`;
      }),
    );
  }
  const value: unknown = doc.toJS({ maxAliasCount: 100 });
  if (!isPlain(value))
    throw new ConfigError([`${file}:1:1: an experiment is a map of keys, such as "name: quickstart".`]);
  return { doc, lines, value };
}

function fileLayer(file: string, doc: Document, lines: LineCounter, value: Plain, under: Path = []): Layer {
  return {
    value,
    locate(path, key) {
      const full = [...under, ...path];
      let node: unknown = doc.contents;
      let offset: number | null = null;
      for (const part of full) {
        if (isMap(node)) {
          const pair = node.items.find((item) => isScalar(item.key) && String(item.key.value) === String(part));
          if (!pair) return null;
          const at = key ? (pair.key as Node) : ((pair.value as Node | null) ?? (pair.key as Node));
          offset = at.range?.[0] ?? null;
          node = pair.value;
        } else if (typeof part === "number" && node && typeof node === "object" && "items" in node) {
          const item: unknown = (node as { items: unknown[] }).items[part];
          if (item === undefined) return null;
          offset = (item as Node).range?.[0] ?? null;
          node = item;
        } else return null;
      }
      if (offset === null) return null;
      const { line, col } = lines.linePos(offset);
      return `${file}:${line}:${col}`;
    },
  };
}

function setLayer(text: string): Layer {
  const at = text.indexOf("=");
  if (at <= 0) throw new ConfigError([`--set ${text}: write --set key=value, such as --set stages.rl.steps=20`]);
  const dotted = text.slice(0, at).trim();
  const doc = parseDocument(text.slice(at + 1));
  if (doc.errors.length > 0)
    throw new ConfigError([`--set ${text}: the value is not valid YAML: ${doc.errors[0]!.message}`]);
  const value = nest(dotted, doc.toJS());
  const keys = dotted.split(".");
  return {
    value,
    locate: (path) => (path.every((p, i) => i >= keys.length || keys[i] === String(p)) ? `--set ${text}` : null),
  };
}

/** The layers of a file: what it extends first, then itself. */
function fileLayers(file: string, seen: string[] = []): Layer[] {
  const path = resolve(file);
  if (seen.includes(path))
    throw new ConfigError([
      `${file}: extends goes in a circle: ${[...seen, path].map((p) => relative(".", p)).join(" → ")}`,
    ]);
  const shown = relative(".", path) || file;
  const { doc, lines, value } = readYaml(shown);
  const own = fileLayer(shown, doc, lines, value);
  const base = value.extends;
  if (base === undefined) return [own];
  if (typeof base !== "string")
    throw new ConfigError([`${own.locate(["extends"], false)}: extends names another experiment file.`]);
  return [...fileLayers(resolve(dirname(path), base), [...seen, path]), own];
}

/** The schema at a path, to list the keys that are valid there. */
function keysAt(path: Path): string[] {
  let schema: z.ZodType | undefined = experimentSchema;
  const unwrap = (s: z.ZodType | undefined): z.ZodType | undefined => {
    let current: unknown = s;
    while (
      current instanceof z.ZodDefault ||
      current instanceof z.ZodPrefault ||
      current instanceof z.ZodOptional ||
      current instanceof z.ZodNullable
    ) {
      current = current.unwrap();
    }
    return current as z.ZodType | undefined;
  };
  for (const part of path) {
    const at: z.ZodType | undefined = unwrap(schema);
    if (at instanceof z.ZodObject) schema = (at.shape as Record<string, z.ZodType>)[String(part)];
    else if (at instanceof z.ZodRecord) schema = at.valueType as z.ZodType;
    else return [];
  }
  const at = unwrap(schema);
  if (at instanceof z.ZodObject) return Object.keys(at.shape as object);
  if (at instanceof z.ZodRecord && at.keyType instanceof z.ZodEnum) return at.keyType.options.map(String);
  return [];
}

function describe(issue: z.core.$ZodIssue, layers: Layer[]): string[] {
  const place = (path: Path, key: boolean): string => {
    for (let i = layers.length - 1; i >= 0; i--) {
      const found = layers[i]!.locate(path, key);
      if (found) return found;
    }
    // Not set anywhere: the closest parent that is.
    return path.length > 0 ? place(path.slice(0, -1), key) : "the experiment";
  };
  const path = issue.path.map((p) => (typeof p === "symbol" ? String(p) : p));
  const dotted = path.join(".");
  if (issue.code === "unrecognized_keys" || issue.code === "invalid_key") {
    const unknown = issue.code === "unrecognized_keys" ? issue.keys : [String(path.at(-1))];
    const parent = issue.code === "unrecognized_keys" ? path : path.slice(0, -1);
    const valid = keysAt(parent);
    return unknown.map((key) => {
      const close = nearest(key, valid);
      const under = parent.length > 0 ? ` under ${parent.join(".")}` : "";
      return `${place([...parent, key], true)}: unknown key "${key}"${under}${close ? `; did you mean "${close}"?` : "."} Valid: ${valid.join(", ")}`;
    });
  }
  return [`${place(path, false)}: ${dotted || "the experiment"}: ${issue.message}`];
}

/** Merged settings without checking, and the layers for error places. */
function gather(layers: Layer[]): Plain {
  return layers.reduce<Plain>((low, layer) => merge(low, layer.value), {});
}

/** Settings without the sections that a higher layer has set to null, to leave out what a lower one has: stages, benchmarks, the matrix. */
function withoutNulls(settings: Plain, path: string[] = []): Plain {
  const removable = [
    "",
    "stages",
    "stages.evaluate",
    "stages.evaluate.benchmarks",
    "matrix",
    "matrix.cells",
    "model.from",
  ];
  const entries = Object.entries(settings).flatMap(([key, value]): [string, unknown][] => {
    const full = [...path, key].join(".");
    if (value === null && (removable.includes(path.join(".")) || removable.includes(full))) return [];
    return [[key, isPlain(value) && path.length < 3 ? withoutNulls(value, [...path, key]) : value]];
  });
  return Object.fromEntries(entries);
}

/** Checks merged settings; the layers say where each key came from. */
export function check(merged: Plain, layers: Layer[]): Experiment {
  const settings = withoutNulls(merged);
  const parsed = experimentSchema.safeParse(settings);
  if (!parsed.success) throw new ConfigError(parsed.error.issues.flatMap((issue) => describe(issue, layers)));
  const experiment = parsed.data;
  const { hidden, heads, kvHeads } = experiment.model;
  if (heads % kvHeads !== 0)
    throw new ConfigError([`model.heads (${heads}) must be a multiple of model.kvHeads (${kvHeads}).`]);
  if (hidden % 2 !== 0) throw new ConfigError([`model.hidden (${hidden}) must be even.`]);
  const { sft, rl } = experiment.stages;
  if (sft && !experiment.stages.coldstart)
    throw new ConfigError(["stages.sft trains on demonstrations: add stages.coldstart."]);
  if (rl && rl.prompts % rl.miniBatch !== 0) {
    throw new ConfigError([
      `stages.rl.prompts (${rl.prompts}) must be a multiple of stages.rl.miniBatch (${rl.miniBatch}).`,
    ]);
  }
  return experiment;
}

export interface Loaded {
  experiment: Experiment;
  /** The cell of the matrix, "" where there is none. */
  cell: string;
}

/** All cells of an experiment: the matrix's cells × axes × seeds, or the one experiment where it has no matrix. */
export function loadExperiment(file: string, sets: string[] = []): Loaded[] {
  const files = fileLayers(file);
  const setLayers = sets.map(setLayer);
  const before = gather([...files, ...setLayers]);
  const sized = sizeLayers(before, files, setLayers);
  const base = [...files, ...sized, ...setLayers];
  const settings = gather(base);
  const first = check(settings, base);
  const matrix = first.matrix;
  if (!matrix) return [{ experiment: first, cell: "" }];
  const cells: { name: string; layers: Layer[] }[] = Object.entries(matrix.cells ?? { "": {} }).map(
    ([name, value]) => ({
      name,
      layers: name ? [locatedAt(files, ["matrix", "cells", name], value)] : [],
    }),
  );
  let grid = cells;
  for (const [dotted, values] of Object.entries(matrix.axes ?? {})) {
    const short = dotted.split(".").at(-1)!;
    grid = grid.flatMap((cell) =>
      values.map((value) => ({
        name: [cell.name, `${short}=${typeof value === "object" ? JSON.stringify(value) : String(value)}`]
          .filter(Boolean)
          .join(","),
        layers: [...cell.layers, { value: nest(dotted, value), locate: () => `matrix.axes.${dotted}` }],
      })),
    );
  }
  const seedSet = setLayers.some((layer) => "seed" in layer.value);
  const seeds = seedSet ? [first.seed] : (matrix.seeds ?? [first.seed]);
  return grid.flatMap((cell) =>
    seeds.map((seed) => {
      const layers = [...base, ...cell.layers, ...setLayers, { value: { seed }, locate: () => "matrix.seeds" }];
      const { matrix: _, ...rest } = check(gather(layers), layers);
      return { experiment: rest, cell: cell.name };
    }),
  );
}

function locatedAt(files: Layer[], under: Path, value: Plain): Layer {
  return {
    value,
    locate(path, key) {
      for (let i = files.length - 1; i >= 0; i--) {
        const found = files[i]!.locate([...under, ...path], key);
        if (found) return found;
      }
      return null;
    },
  };
}

function sizeLayers(settings: Plain, files: Layer[], setLayers: Layer[]): Layer[] {
  const size = settings.size;
  if (size === undefined) return [];
  const sizes = isPlain(settings.sizes) ? settings.sizes : {};
  const chosen = typeof size === "string" && Object.hasOwn(sizes, size) ? sizes[size] : undefined;
  if (!isPlain(chosen)) {
    const names = Object.keys(sizes);
    const at =
      setLayers.find((l) => "size" in l.value)?.locate(["size"], false) ??
      files.at(-1)!.locate(["size"], false) ??
      "size";
    throw new ConfigError([`${at}: there is no size "${String(size)}" here. Sizes: ${names.join(", ") || "none"}.`]);
  }
  return [locatedAt(files, ["sizes", String(size)], chosen)];
}

/** The JSON Schema of an experiment file, for editors. */
export function experimentJsonSchema(): unknown {
  return z.toJSONSchema(experimentSchema, { io: "input", unrepresentable: "any" });
}
