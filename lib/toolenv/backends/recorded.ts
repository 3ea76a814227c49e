/**
 * Responses kept in a file, so that a run can be repeated against another implementation, or without the server that answered.
 * One JSON line a response: (backend, tool, canonical arguments, state before the call, attempt) → result.
 */
import { appendFileSync, existsSync, readFileSync, truncateSync } from "node:fs";
import { z } from "zod";
import type { Json, JsonObject, Tool } from "../../catalog/types.ts";
import { canonicalJson } from "../../config/hash.ts";
import { contentId } from "../hash.ts";
import type { Backend, CallResult, Session } from "../types.ts";
import { callKey } from "../world.ts";

const result = z.strictObject({
  outcome: z.enum(["ok", "not_found", "unavailable", "transient", "invalid"]),
  status: z.number(),
  body: z.json(),
  latencyMs: z.number(),
  fault: z.enum(["rate_limit", "timeout", "server_error", "partial", "stale_page", "changed_schema"]).nullable(),
});
const line = z.strictObject({
  key: z.string(),
  tool: z.string(),
  arguments: z.record(z.string(), z.json()),
  /** Hash of the changes that the session had made before the call. */
  state: z.string(),
  attempt: z.int(),
  result,
  /** Who answered, and when: a verdict can be traced to its source. */
  source: z.record(z.string(), z.json()),
});
type Line = z.infer<typeof line>;

/** A damaged record, with its line. */
export class RecordingError extends Error {
  override readonly name = "RecordingError";
}

/** A file of recorded responses. A last line that was cut off while it was written is dropped; any other damage is an error. */
export class Recording {
  readonly path: string;
  readonly #known = new Map<string, CallResult>();
  constructor(path: string) {
    this.path = path;
    if (!existsSync(path)) return;
    const text = readFileSync(path, "utf8");
    const whole = text.lastIndexOf("\n") + 1;
    if (whole < text.length) truncateSync(path, Buffer.byteLength(text.slice(0, whole)));
    for (const [i, row] of text.slice(0, whole).split("\n").entries()) {
      if (row === "") continue;
      let read: ReturnType<typeof line.safeParse>;
      try {
        read = line.safeParse(JSON.parse(row));
      } catch (error) {
        throw new RecordingError(
          `${path}:${i + 1}: not JSON (${(error as Error).message}); delete the line or the file`,
        );
      }
      if (!read.success)
        throw new RecordingError(
          `${path}:${i + 1}: ${read.error.issues[0]?.path.join(".")}: ${read.error.issues[0]?.message}; delete the line or the file`,
        );
      this.#known.set(read.data.key, read.data.result as CallResult);
    }
  }
  get size(): number {
    return this.#known.size;
  }
  get(key: string): CallResult | undefined {
    return this.#known.get(key);
  }
  add(entry: Line): void {
    this.#known.set(entry.key, entry.result as CallResult);
    appendFileSync(this.path, `${JSON.stringify(entry)}\n`);
  }
}

/** Counts attempts of a call in a session, and gives each its key. */
class Keys {
  readonly #seen = new Map<string, number>();
  readonly #salt: string;
  constructor(salt: string) {
    this.#salt = salt;
  }
  next(tool: Tool, args: JsonObject, state: string): { key: string; attempt: number } {
    const id = `${state} ${callKey(tool.name, args)}`;
    const attempt = (this.#seen.get(id) ?? 0) + 1;
    this.#seen.set(id, attempt);
    return { key: contentId([this.#salt, id, attempt]), attempt };
  }
}
const stateOf = (session: Session): string =>
  contentId(JSON.parse(canonicalJson(session.writes() as unknown as Json)) as Json);

/** A backend whose responses are written down as they come. `source` says who answered: a world's seed, a model's name and prompt hash. */
export function recording(backend: Backend, to: Recording, source: JsonObject = {}): Backend {
  return {
    name: backend.name,
    open(seed) {
      const session = backend.open(seed);
      const keys = new Keys(`${backend.name} ${canonicalJson(source)} ${seed}`);
      return {
        async call(tool, args) {
          const state = stateOf(session);
          const { key, attempt } = keys.next(tool, args, state);
          const answer = await session.call(tool, args);
          if (!to.get(key)) to.add({ key, tool: tool.name, arguments: args, state, attempt, result: answer, source });
          return answer;
        },
        writes: () => session.writes(),
        close: () => session.close(),
      };
    },
  };
}

/** A call that a recording lacks. */
export class NotRecorded extends Error {
  override readonly name = "NotRecorded";
}

/**
 * Answers from a recording. `like`: the backend that was recorded, or a world over the same catalogue, which keeps the state
 * (its answers are not shown). A call that was never recorded throws NotRecorded, unless `live` is on: then it is answered and added.
 */
export function replay(from: Recording, like: Backend, source: JsonObject = {}, live = false): Backend {
  return {
    name: like.name,
    open(seed) {
      const session = like.open(seed);
      const keys = new Keys(`${like.name} ${canonicalJson(source)} ${seed}`);
      return {
        async call(tool, args) {
          const state = stateOf(session);
          const { key, attempt } = keys.next(tool, args, state);
          const known = from.get(key);
          if (!known && !live)
            throw new NotRecorded(
              `${from.path} holds no response to ${tool.name} ${canonicalJson(args)} in this state; record it, or replay with live answers`,
            );
          // The state moves on as it did when the response was recorded.
          const moved = !known || like.name === "world" ? await session.call(tool, args) : null;
          if (known) return known;
          const answer = moved as CallResult;
          from.add({ key, tool: tool.name, arguments: args, state, attempt, result: answer, source });
          return answer;
        },
        writes: () => session.writes(),
        close: () => session.close(),
      };
    },
  };
}
