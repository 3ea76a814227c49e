/** What every verb shares: flags, --help, --json, exit statuses (0 done, 1 failed, 2 wrong use), progress on standard error. */
import { parseArgs } from "node:util";
import { nearest } from "../lib/config/nearest.ts";
import { terminalProgress } from "../lib/runs/progress.ts";
import type { Progress } from "../lib/runs/types.ts";

/** Wrong use of a verb: exit status 2, with what to type instead. */
export class UsageError extends Error {
  override name = "UsageError";
}

export interface Flag {
  type: "string" | "boolean";
  short?: string;
  multiple?: boolean;
  default?: string | boolean;
  /** Shown in --help. */
  help: string;
}

export interface Verb {
  /** E.g. "catalog". */
  name: string;
  summary: string;
  /** Lines such as `bun run catalog search "<query>" --k 3`. */
  usage: string[];
  flags?: Record<string, Flag>;
}

export interface Args {
  positionals: string[];
  json: boolean;
  progress: Progress;
  /** The flag's text, or undefined where it was not given and has no default. */
  text(flag: string): string | undefined;
  texts(flag: string): string[];
  on(flag: string): boolean;
  /** A number within bounds, else a UsageError that names the flag. */
  number(flag: string, bounds?: { min?: number; max?: number; integer?: boolean }): number | undefined;
}

const COMMON: Record<string, Flag> = {
  json: { type: "boolean", help: "one JSON object on standard output, everything else on standard error" },
  help: { type: "boolean", short: "h", help: "this text" },
};

function helpText(verb: Verb): string {
  const flags = Object.entries({ ...verb.flags, ...COMMON });
  const left = flags.map(
    ([name, f]) => `--${name}${f.short ? `, -${f.short}` : ""}${f.type === "string" ? " <value>" : ""}`,
  );
  const width = Math.max(...left.map((s) => s.length));
  const rows = flags.map(([, f], i) => {
    const fallback = f.default !== undefined ? ` (default ${f.default})` : "";
    return `  ${left[i]!.padEnd(width)}  ${f.help}${fallback}`;
  });
  return `${verb.name}: ${verb.summary}\n\nUsage:\n${verb.usage.map((u) => `  ${u}`).join("\n")}\n\nOptions:\n${rows.join("\n")}\n`;
}

function parse(verb: Verb, argv: string[]): Args & { help: boolean } {
  const flags: Record<string, Flag> = { ...verb.flags, ...COMMON };
  const names = Object.keys(flags);
  for (const arg of argv) {
    if (arg === "--") break;
    const name = /^--([^=]+)/.exec(arg)?.[1];
    if (name !== undefined && !(name in flags)) {
      const close = nearest(name, names);
      throw new UsageError(
        `${verb.name} has no option --${name}${close ? `; did you mean --${close}?` : ""} See: bun run ${verb.name} --help`,
      );
    }
  }
  const options = Object.fromEntries(
    Object.entries(flags).map(([name, f]) => [
      name,
      {
        type: f.type,
        ...(f.short ? { short: f.short } : {}),
        ...(f.multiple ? { multiple: true } : {}),
        ...(f.default !== undefined ? { default: f.default } : {}),
      },
    ]),
  );
  let parsed: { values: Record<string, unknown>; positionals: string[] };
  try {
    parsed = parseArgs({ args: argv, options, allowPositionals: true, strict: true });
  } catch (error) {
    throw new UsageError(`${verb.name}: ${(error as Error).message} See: bun run ${verb.name} --help`);
  }
  const { values, positionals } = parsed;
  const text = (flag: string): string | undefined => {
    const value = values[flag];
    return typeof value === "string" ? value : undefined;
  };
  const json = values.json === true;
  return {
    positionals,
    json,
    help: values.help === true,
    progress: terminalProgress(process.stderr),
    text,
    texts: (flag) => {
      const value = values[flag];
      return Array.isArray(value) ? value.map(String) : typeof value === "string" ? [value] : [];
    },
    on: (flag) => values[flag] === true,
    number: (flag, bounds = {}) => {
      const raw = text(flag);
      if (raw === undefined) return undefined;
      const value = Number(raw);
      const bad =
        raw.trim() === "" ||
        !Number.isFinite(value) ||
        (bounds.integer !== false && !Number.isInteger(value)) ||
        (bounds.min !== undefined && value < bounds.min) ||
        (bounds.max !== undefined && value > bounds.max);
      if (bad) {
        const kind = bounds.integer !== false ? "a whole number" : "a number";
        const from = bounds.min !== undefined ? ` of at least ${bounds.min}` : "";
        const to = bounds.max !== undefined ? ` and at most ${bounds.max}` : "";
        throw new UsageError(`--${flag} takes ${kind}${from}${to}, not "${raw}".`);
      }
      return value;
    },
  };
}

/**
 * Runs a verb: `run` prints for people (standard output) unless args.json is set, and returns the object that --json prints.
 * The process exits 0, or 1 with `error: …` on standard error, or 2 for wrong use. `exit` in the result overrides 0.
 */
export async function main(verb: Verb, run: (args: Args) => Promise<{ json: unknown; exit?: number }>): Promise<never> {
  const argv = process.argv.slice(2);
  const json = argv.includes("--json");
  try {
    const args = parse(verb, argv);
    if (args.help) {
      process.stdout.write(helpText(verb));
      process.exit(0);
    }
    const result = await run(args);
    if (args.json) process.stdout.write(`${JSON.stringify(result.json)}\n`);
    process.exit(result.exit ?? 0);
  } catch (error) {
    const kind = error instanceof Error ? error.name : "Error";
    const message = explain(error);
    process.stderr.write(`error: ${message}\n`);
    const unexplained = error instanceof Error && message === error.message;
    if (unexplained && (kind === "Error" || kind === "TypeError" || kind === "RangeError")) {
      // Neither one of our own error classes nor one explained above: a fault of ours, so the stack helps whoever reports it.
      process.stderr.write(`${error instanceof Error ? (error.stack ?? "") : ""}\n`);
    }
    if (json) process.stdout.write(`${JSON.stringify({ error: message, kind })}\n`);
    process.exit(kind === "UsageError" || kind === "ConfigError" ? 2 : 1);
  }
}

/** An error's message, with a way out for the system errors that users meet. */
export function explain(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const code = (error as NodeJS.ErrnoException).code;
  const path = (error as NodeJS.ErrnoException).path;
  const where = path ? ` at ${path}` : "";
  if (code === "ENOSPC" || /disk is full|No space left|SQLITE_FULL/i.test(error.message)) {
    return `the disk is full${where}. What was finished is kept; free some space (or name a folder on another disk: PARAAGENT_RESULTS for results, PARAAGENT_CATALOG for the catalogue) and run the same command again: it goes on from there. (${error.message})`;
  }
  if (code === "EACCES" || code === "EROFS") {
    return `no permission to write${where}. Choose a folder you own with PARAAGENT_RESULTS, or change its permissions. (${error.message})`;
  }
  return error.message;
}
