/**
 * StableToolBench's own server as a backend (Guo et al. 2024): POST /virtual with category, tool, API and input as they stand in ToolBench; it
 * answers {error, response} from its cache, the real API or its simulator. Our callable names go back to the originals.
 */
import { z } from "zod";
import type { Catalog, Json, JsonObject, Tool } from "../catalog/types.ts";
import type { Backend, CallResult, Session } from "../toolenv/types.ts";
import { checkArguments } from "../toolenv/world.ts";

const answerSchema = z.object({ error: z.json().optional(), response: z.json().optional() });

export interface VirtualOptions {
  /** Address of the server, with or without /virtual. */
  url: string;
  catalog: Catalog;
  /** What a callable name stands for (catalog/toolbench.ts). */
  originalOf(name: string): { category: string; tool: string; api: string } | null;
  /** ToolBench's key, where the server passes calls on to the real APIs. */
  key?: string;
  timeoutMs?: number;
  attempts?: number;
  sleep?: (ms: number) => Promise<void>;
  now?: () => number;
}

/** The server did not answer, for all attempts: the run stops, and no result is made of it. */
export class ResponsesUnreachable extends Error {
  override name = "ResponsesUnreachable";
}

/** Text that is JSON is taken as that. */
function unwrapped(value: Json | undefined): Json {
  if (typeof value !== "string") return value ?? null;
  try {
    return JSON.parse(value) as Json;
  } catch {
    return value;
  }
}

/** The backend; its latencies are the server's own. Arguments that the schema refuses don't reach the server. */
export function virtualBackend(options: VirtualOptions): Backend {
  const url = options.url.replace(/\/+$/, "").replace(/(\/virtual)?$/, "/virtual");
  const sleep = options.sleep ?? ((ms: number) => Bun.sleep(ms));
  const now = options.now ?? (() => performance.now());
  const attempts = options.attempts ?? 5;

  async function post(body: JsonObject): Promise<z.infer<typeof answerSchema>> {
    let problem = "";
    for (let attempt = 0; attempt < attempts; attempt++) {
      if (attempt > 0) await sleep(Math.min(30_000, 500 * 2 ** attempt));
      try {
        const response = await fetch(url, {
          method: "POST",
          headers: { "content-type": "application/json" },
          body: JSON.stringify(body),
          signal: AbortSignal.timeout(options.timeoutMs ?? 120_000),
        });
        if (response.ok) return answerSchema.parse(await response.json());
        problem = `status ${response.status}`;
        if (response.status < 500 && response.status !== 429 && response.status !== 408) break;
      } catch (error) {
        problem = error instanceof Error ? error.message : String(error);
      }
    }
    throw new ResponsesUnreachable(
      `${url} does not answer (${problem}). Start StableToolBench's server, or use other responses: --responses world`,
    );
  }

  function session(): Session {
    return {
      async call(tool: Tool, args: JsonObject): Promise<CallResult> {
        const findings = checkArguments(options.catalog, tool, args);
        if (findings.length > 0) {
          const error = `invalid arguments for ${tool.name}: ${findings.join("; ")}`;
          return { outcome: "invalid", status: 400, body: { error }, latencyMs: 0, fault: null };
        }
        const original = options.originalOf(tool.name);
        if (!original) throw new Error(`${tool.name} is not of ToolBench's catalogue`);
        const started = now();
        const { error, response } = await post({
          category: original.category,
          tool_name: original.tool,
          api_name: original.api,
          tool_input: JSON.stringify(args),
          strip: "",
          toolbench_key: options.key ?? "",
        });
        const latencyMs = now() - started;
        if (error === undefined || error === null || error === "" || error === false)
          return { outcome: "ok", status: 200, body: unwrapped(response), latencyMs, fault: null };
        const said = typeof error === "string" ? error : JSON.stringify(error);
        const passing = /rate.?limit|too many requests|time.?out/i.test(said);
        return {
          outcome: passing ? "transient" : "unavailable",
          status: passing ? 429 : 502,
          body: { error: said },
          latencyMs,
          fault: null,
        };
      },
      writes: () => [],
      close() {},
    };
  }
  return { name: `server:${url}`, open: session };
}
