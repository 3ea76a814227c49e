/**
 * Chat completions from any OpenAI-compatible endpoint, made safe for experiments: bounded concurrency, retries with backoff and jitter, timeouts, a
 * token budget, and a response cache on disk, so that a run can be repeated and continued. Streaming is off. The key comes from the environment
 * and appears in no log, result, cache entry or error.
 */
import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import OpenAI, { APIConnectionError, APIError } from "openai";
import type { ChatCompletionMessageParam, ChatCompletionTool } from "openai/resources/chat/completions";
import { z } from "zod";
import { writeAtomic } from "../../config/atomic.ts";
import { uniform } from "../../engine/random.ts";
import type { Usage } from "../../paraact/types.ts";

/** The environment variable with the key is not set. */
export class MissingKey extends Error {
  override name = "MissingKey";
}
/** The endpoint refused, or went on failing after all retries. */
export class EndpointError extends Error {
  override name = "EndpointError";
  constructor(
    message: string,
    readonly status: number | null,
  ) {
    super(message);
  }
}
/** The next request would exceed the token budget. */
export class BudgetExceeded extends Error {
  override name = "BudgetExceeded";
}

export interface EndpointOptions {
  baseURL: string;
  model: string;
  /** Name of the environment variable that holds the key; null for a server that asks for none. */
  keyVariable: string | null;
  /** Requests in flight at once. */
  concurrency?: number;
  /** Attempts after the first. */
  retries?: number;
  timeoutMs?: number;
  /** Prompt and completion tokens in all; cached answers are free. */
  tokenBudget?: number;
  /** Folder of the response cache; none where left out. */
  cacheDir?: string;
  /** Fields that go into every request as they are, e.g. {"chat_template_kwargs": …}. */
  extra?: Record<string, unknown>;
  /** For tests: time and waiting. */
  sleep?: (ms: number) => Promise<void>;
  now?: () => number;
  env?: Record<string, string | undefined>;
}

export interface ChatRequest {
  messages: ChatCompletionMessageParam[];
  maxTokens: number;
  temperature: number;
  seed: number;
  tools?: ChatCompletionTool[];
  parallelToolCalls?: boolean;
}

const Answer = z.object({
  id: z.string().nullish(),
  model: z.string().nullish(),
  choices: z
    .array(
      z.object({
        finish_reason: z.string().nullish(),
        message: z.object({
          content: z.string().nullish(),
          reasoning_content: z.string().nullish(),
          reasoning: z.string().nullish(),
          tool_calls: z
            .array(
              z.object({ id: z.string().nullish(), function: z.object({ name: z.string(), arguments: z.string() }) }),
            )
            .nullish(),
        }),
      }),
    )
    .min(1),
  usage: z.object({ prompt_tokens: z.number(), completion_tokens: z.number() }).nullish(),
});

/** What a model said. */
export interface Completion {
  content: string;
  /** The reasoning that some servers split off, or "". */
  reasoning: string;
  toolCalls: { name: string; arguments: string }[];
  finish: "stop" | "length";
  usage: Usage;
  /** The model as the server names it, and when it answered (ISO 8601), for results that must say which model judged. */
  model: string;
  date: string;
  cached: boolean;
}

const Cached = z.object({ answer: Answer, date: z.string() });

export interface EndpointStats extends Usage {
  requests: number;
  cached: number;
  retries: number;
  waitedMs: number;
}

export interface ChatEndpoint {
  readonly model: string;
  complete(request: ChatRequest): Promise<Completion>;
  stats(): EndpointStats;
}

/** About four characters a token: for servers that report no usage, and always marked as an estimate. */
export function estimateTokens(text: string): number {
  return Math.ceil(text.length / 4);
}

const MAX_WAIT_MS = 60_000;

/** How long a server asks to wait: retry-after-ms, or retry-after in seconds or as a date (RFC 9110 section 10.2.3). Null if it does not say. */
export function retryAfterMs(headers: Headers | undefined, now: number): number | null {
  const ms = Number(headers?.get("retry-after-ms") ?? Number.NaN);
  if (ms >= 0) return Math.min(ms, MAX_WAIT_MS);
  const value = headers?.get("retry-after");
  if (!value) return null;
  const wait = /^\d+(\.\d+)?$/.test(value) ? Number(value) * 1000 : Date.parse(value) - now;
  return Number.isNaN(wait) ? null : Math.min(Math.max(0, wait), MAX_WAIT_MS);
}

/** Whether another attempt may succeed. A used-up quota answers 429 too, for good. */
function retryable(error: unknown): boolean {
  // Not the server's own answer: a dropped connection (before or within the body), a timeout, a malformed body.
  if (error instanceof APIConnectionError || !(error instanceof APIError)) return true;
  if (error.code === "insufficient_quota") return false;
  return error.status === 408 || error.status === 409 || error.status === 429 || (error.status ?? 0) >= 500;
}

function describe(error: unknown): string {
  if (error instanceof z.ZodError) return `malformed answer: ${z.prettifyError(error).replace(/\s*\n\s*/g, " ")}`;
  if (error instanceof SyntaxError) return `the answer is no JSON: ${error.message}`;
  return error instanceof Error ? error.message : String(error);
}

/** An endpoint. Throws MissingKey at once if its variable is not set. */
export function chatEndpoint(options: EndpointOptions): ChatEndpoint {
  const env = options.env ?? process.env;
  const key = options.keyVariable === null ? null : env[options.keyVariable];
  if (key === undefined || key === "") {
    throw new MissingKey(
      `The environment variable ${options.keyVariable} is not set: export the key for ${options.baseURL} in it.`,
    );
  }
  const sleep = options.sleep ?? ((ms: number) => Bun.sleep(ms));
  const now = options.now ?? Date.now;
  const client = new OpenAI({
    apiKey: key ?? "none",
    baseURL: options.baseURL,
    maxRetries: 0,
    timeout: options.timeoutMs ?? 120_000,
    logLevel: "off",
  });
  /** Nothing that is shown or kept may hold the key, not even what a server echoes. */
  const redact = (text: string): string => (key === null ? text : text.replaceAll(key, "[key]"));
  const stats: EndpointStats = {
    requests: 0,
    cached: 0,
    retries: 0,
    waitedMs: 0,
    promptTokens: 0,
    completionTokens: 0,
    estimated: false,
  };
  let reserved = 0;

  // A counting semaphore: who finds no place waits for the next to be freed.
  let free = options.concurrency ?? 8;
  const waiting: (() => void)[] = [];
  async function withPlace<T>(work: () => Promise<T>): Promise<T> {
    if (free > 0) free--;
    else await new Promise<void>((resolve) => waiting.push(resolve));
    try {
      return await work();
    } finally {
      const next = waiting.shift();
      if (next) next();
      else free++;
    }
  }

  function body(
    request: ChatRequest,
  ): Record<string, unknown> & { model: string; messages: ChatCompletionMessageParam[] } {
    return {
      ...options.extra,
      model: options.model,
      messages: request.messages,
      max_tokens: request.maxTokens,
      temperature: request.temperature,
      seed: request.seed,
      ...(request.tools?.length
        ? { tools: request.tools, parallel_tool_calls: request.parallelToolCalls ?? true }
        : {}),
    };
  }

  async function ask(request: ChatRequest): Promise<z.infer<typeof Answer>> {
    for (let attempt = 0; ; attempt++) {
      try {
        stats.requests++;
        const response = await client.chat.completions.create({ ...body(request), stream: false });
        return Answer.parse(response);
      } catch (error) {
        const status = error instanceof APIError ? (error.status ?? null) : null;
        if (!retryable(error) || attempt >= (options.retries ?? 5)) {
          const after = attempt > 0 ? ` after ${attempt + 1} attempts` : "";
          throw new EndpointError(redact(`${options.baseURL} (${options.model})${after}: ${describe(error)}`), status);
        }
        const asked = error instanceof APIError ? retryAfterMs(error.headers, now()) : null;
        // Exponential backoff with jitter between half and the whole, so that many clients don't return together.
        const backoff = Math.min(MAX_WAIT_MS, 500 * 2 ** attempt) * (0.5 + 0.5 * uniform(request.seed, attempt));
        const wait = asked === null ? backoff : asked + 250 * uniform(request.seed, attempt);
        stats.retries++;
        stats.waitedMs += wait;
        await sleep(wait);
      }
    }
  }

  function cachePath(request: ChatRequest): string | null {
    if (!options.cacheDir) return null;
    const hash = createHash("sha256")
      .update(JSON.stringify([options.baseURL, body(request)]))
      .digest("hex");
    return join(options.cacheDir, hash.slice(0, 2), `${hash}.json`);
  }

  /** A cache entry, or null where there is none or it can't be read: the cache is no truth, a broken entry is asked for again. */
  function fromCache(path: string): z.infer<typeof Cached> | null {
    if (!existsSync(path)) return null;
    try {
      return Cached.parse(JSON.parse(readFileSync(path, "utf8")));
    } catch {
      return null;
    }
  }

  function read(answer: z.infer<typeof Answer>, request: ChatRequest, date: string, cached: boolean): Completion {
    const { message, finish_reason } = answer.choices[0]!;
    const toolCalls = (message.tool_calls ?? []).map((c) => c.function);
    const content = message.content ?? "";
    const reasoning = message.reasoning_content ?? message.reasoning ?? "";
    const written = content + reasoning + toolCalls.map((c) => c.name + c.arguments).join("");
    const usage: Usage = answer.usage
      ? { promptTokens: answer.usage.prompt_tokens, completionTokens: answer.usage.completion_tokens, estimated: false }
      : {
          promptTokens: estimateTokens(JSON.stringify([request.messages, request.tools ?? []])),
          completionTokens: estimateTokens(written),
          estimated: true,
        };
    return {
      content,
      reasoning,
      toolCalls,
      finish: finish_reason === "length" ? "length" : "stop",
      usage,
      model: answer.model ?? options.model,
      date,
      cached,
    };
  }

  async function fetchAnswer(request: ChatRequest, path: string | null): Promise<Completion> {
    const claim = estimateTokens(JSON.stringify(request.messages)) + request.maxTokens;
    const spent = stats.promptTokens + stats.completionTokens;
    if (options.tokenBudget !== undefined && spent + reserved + claim > options.tokenBudget) {
      throw new BudgetExceeded(
        `The budget of ${options.tokenBudget} tokens has ${options.tokenBudget - spent - reserved} left, the next request may take ${claim}. Raise tokenBudget or run fewer tasks.`,
      );
    }
    reserved += claim;
    try {
      const answer = await withPlace(() => ask(request));
      const date = new Date(now()).toISOString();
      const completion = read(answer, request, date, false);
      stats.promptTokens += completion.usage.promptTokens;
      stats.completionTokens += completion.usage.completionTokens;
      stats.estimated ||= completion.usage.estimated;
      if (path) await writeAtomic(path, redact(JSON.stringify({ request: body(request), answer, date })));
      return completion;
    } finally {
      reserved -= claim;
    }
  }

  const pending = new Map<string, Promise<Completion>>();
  return {
    model: options.model,
    async complete(request) {
      const path = cachePath(request);
      if (!path) return fetchAnswer(request, null);
      const hit = fromCache(path);
      if (hit) {
        stats.cached++;
        return read(hit.answer, request, hit.date, true);
      }
      // The same request at the same time is asked once.
      let flight = pending.get(path);
      if (!flight) {
        flight = fetchAnswer(request, path).finally(() => pending.delete(path));
        pending.set(path, flight);
      }
      return flight;
    },
    stats: () => ({ ...stats }),
  };
}
