/** Failures and delays that a world injects, from seeds: the same episode meets the same ones. */
import type { Json, JsonObject } from "../catalog/types.ts";
import { hashText, key, Rng } from "./hash.ts";
import type { FaultKind } from "./types.ts";
import { splitWords } from "./words.ts";

export const FAULT_KINDS: readonly FaultKind[] = [
  "rate_limit",
  "timeout",
  "server_error",
  "partial",
  "stale_page",
  "changed_schema",
];

/** Chance of each fault at the first attempt of a call. A retry of the same call succeeds. */
export type FaultRates = Partial<Record<FaultKind, number>>;

/** The rates of a world in which nothing fails by chance. */
export const NO_FAULTS: FaultRates = {};

/** Virtual time after which a call without an answer is given up. */
export const TIMEOUT_MS = 10_000;

/** Draws the fault of a call's first attempt, or null. */
export function drawFault(rates: FaultRates, seed: number): FaultKind | null {
  if (rates === NO_FAULTS) return null;
  let x = new Rng(key(seed, "fault")).unit();
  for (const kind of FAULT_KINDS) if ((x -= rates[kind] ?? 0) < 0) return kind;
  return null;
}

const latencies = new Map<string, { median: number; sigma: number }>();

/** Milliseconds that one call takes: log-normal about a median of the tool's own, 60 to 900 ms. */
export function drawLatency(tool: string, seed: number): number {
  let own = latencies.get(tool);
  if (!own) {
    const r = new Rng(hashText(tool));
    own = { median: 60 * 15 ** r.unit(), sigma: 0.2 + 0.3 * r.unit() };
    if (latencies.size > 20_000) latencies.clear();
    latencies.set(tool, own);
  }
  const { median, sigma } = own;
  const r = new Rng(seed);
  const normal = Math.sqrt(-2 * Math.log(1 - r.unit())) * Math.cos(2 * Math.PI * r.unit());
  return Math.round(Math.min(median * Math.exp(sigma * normal), TIMEOUT_MS) * 10) / 10;
}

const camel = (name: string) =>
  splitWords(name)
    .map((w, i) => (i ? w.charAt(0).toUpperCase() + w.slice(1) : w))
    .join("");
const snake = (name: string) => splitWords(name).join("_");

/** Member names in the other convention: what a client sees when a server changes its schema under it. */
function renamed(value: Json): Json {
  if (Array.isArray(value)) return value.map(renamed);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(
    Object.entries(value).map(([k, v]) => [/_/.test(k) ? camel(k) : `x_${snake(k)}`, renamed(v)]),
  );
}

/** The first half of every list. */
function halved(value: Json): Json {
  if (Array.isArray(value)) return value.slice(0, Math.floor(value.length / 2)).map(halved);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(
    Object.entries(value).map(([k, v], i, all) => [k, i < Math.max(1, all.length / 2) ? halved(v) : null]),
  );
}

/**
 * What a faulty call answers. `answer` gives the true body where the fault still shows part of it; it is not asked for by
 * faults that leave the call unexecuted (rate limit, timeout, server error, stale page), so that a retried write happens once.
 */
export function faultBody(kind: FaultKind, seed: number, answer: () => Json): { status: number; body: JsonObject } {
  const r = new Rng(key(seed, "fault body"));
  switch (kind) {
    case "rate_limit": {
      const seconds = r.int(1, 8);
      return {
        status: 429,
        body: { error: `rate limit reached; try the same call again after ${seconds} s`, retry_after: seconds },
      };
    }
    case "timeout":
      return {
        status: 504,
        body: { error: "the server did not answer in time; nothing was done; the same call may be tried again" },
      };
    case "server_error":
      return {
        status: r.pick([500, 502, 503]),
        body: { error: "internal error of the server; nothing was done; the same call may be tried again" },
      };
    case "stale_page":
      return { status: 409, body: { error: "the data behind this page has changed; ask for it again" } };
    case "partial":
      return {
        status: 206,
        body: {
          warning: "partial result: the server stopped early; ask again for the whole",
          partial: halved(answer()),
        },
      };
    case "changed_schema":
      return {
        status: 200,
        body: {
          warning: "unexpected format: the answer does not follow the documented schema; ask again",
          schema_version: `${r.int(2, 9)}-preview`,
          payload: renamed(halved(answer())),
        },
      };
  }
}
