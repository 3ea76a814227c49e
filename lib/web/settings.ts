/** What a run's settings were made from, and where they differ. */
import { existsSync, readFileSync, statSync } from "node:fs";
import { join, relative, resolve, sep } from "node:path";
import { loadExperiment } from "../config/load.ts";
import { projectRoot } from "../runs/environment.ts";
import type { RunRecord } from "../runs/index-store.ts";

export interface Difference {
  key: string;
  /** YAML flow text; null where the key is not there. */
  here: string | null;
  there: string | null;
}

type Parent = { name: string; differences: Difference[] } | { name: null; reason: string };

const isPlain = (v: unknown): v is Record<string, unknown> => typeof v === "object" && v !== null && !Array.isArray(v);

/** Leaves of nested settings by dotted key. */
function leaves(value: unknown, at = "", out = new Map<string, string>()): Map<string, string> {
  if (isPlain(value) && Object.keys(value).length > 0)
    for (const [key, inner] of Object.entries(value)) leaves(inner, at ? `${at}.${key}` : key, out);
  else out.set(at, JSON.stringify(value));
  return out;
}

/** Keys whose values differ, in order. What only says which experiment it is, is no difference. */
export function differences(here: unknown, there: unknown): Difference[] {
  const [a, b] = [leaves(here), leaves(there)];
  return [...new Set([...a.keys(), ...b.keys()])]
    .filter((key) => a.get(key) !== b.get(key) && !/^(name|description|extends|matrix|sizes)(\.|$)/.test(key))
    .sort()
    .map((key) => ({ key, here: a.get(key) ?? null, there: b.get(key) ?? null }));
}

const found = new Map<string, { file: string; mtime: number }>();

/** Experiment files of the project by the name that they give themselves. */
function fileOf(name: string, folder: string): string | null {
  if (!existsSync(folder)) return null;
  const before = found.get(name);
  if (before && (statSync(before.file, { throwIfNoEntry: false })?.mtimeMs ?? 0) === before.mtime) return before.file;
  for (const path of new Bun.Glob("**/*.yaml").scanSync({ cwd: folder })) {
    const file = join(folder, path);
    // Its name stands at the start of a line; the whole is parsed only once it is found.
    if (/^name:[ \t]*["']?([\w-]+)/m.exec(readFileSync(file, "utf8"))?.[1] !== name) continue;
    found.set(name, { file, mtime: statSync(file).mtimeMs });
    return file;
  }
  return null;
}

const known = new Map<string, { mtime: number; value: Parent }>();

/**
 * Where a run differs from the experiment that its file extends; where it extends none, from the file as it is (so that sizes, cells and --set show).
 * Only files under `folder` are read.
 */
export function parentOf(record: RunRecord, folder = join(projectRoot, "experiments")): Parent {
  const file = fileOf(record.experiment, folder);
  if (!file) return { name: null, reason: `No file in experiments/ is named ${record.experiment} now.` };
  const config = isPlain(record.config) ? record.config : {};
  const base = typeof config.extends === "string" ? resolve(file, "..", config.extends) : file;
  if (!base.startsWith(folder + sep)) return { name: null, reason: "The parent lies outside experiments/." };
  const mtime = statSync(base, { throwIfNoEntry: false })?.mtimeMs ?? 0;
  const cached = known.get(record.id);
  if (cached && cached.mtime === mtime) return cached.value;
  const name = relative(join(folder, ".."), base);
  let value: Parent;
  try {
    const [first] = loadExperiment(base);
    value = { name, differences: differences(config, first?.experiment) };
  } catch (error) {
    value = { name: null, reason: `${name}: ${error instanceof Error ? error.message : String(error)}` };
  }
  known.set(record.id, { mtime, value });
  return value;
}
