/**
 * A language model as the simulator (the paper's way), over any OpenAI-compatible server. Arguments are checked before the
 * model is asked, and its answer against the tool's response schema: what it gets wrong twice is a fault, never a fact.
 */
import type OpenAI from "openai";
import type { Catalog, Json, JsonObject, Tool } from "../../catalog/types.ts";
import { drawLatency } from "../faults.ts";
import { contentId, hashText, key } from "../hash.ts";
import type { Backend, CallResult, Session, Write } from "../types.ts";
import { apiModel, callKey, checkArguments, checkResponse } from "../world.ts";

export const SIMULATOR_PROMPT = `You play the server behind a web API. You are given one operation's interface, the calls that this client has made so far with your answers, and the next call.
Answer as that server would, with one JSON object {"status": <HTTP status>, "body": <response body>} and nothing else.
- The body follows the response schema where there is one. Keep it short: lists of two to five items, only fields that matter.
- Be consistent with your earlier answers: what was created exists, what was deleted is gone, an identifier always names the same thing.
- Invent realistic values. Answer 404 with {"error": "..."} for an identifier that cannot exist, 400 for a request that makes no sense.`;

/** Hash of the simulator's prompt, kept with what it answered. */
export const simulatorPromptHash = contentId(SIMULATOR_PROMPT);

export interface SimulatorOptions {
  client: OpenAI;
  model: string;
  catalog: Catalog;
  temperature?: number;
  /** Earlier calls of the session that the model is shown. */
  memory?: number;
}

const interfaceOf = (tool: Tool): JsonObject => ({
  name: tool.name,
  method: tool.method,
  path: tool.path,
  description: tool.description,
  parameters: tool.parameters as unknown as Json,
  response: tool.response as unknown as Json,
});

/** The JSON object in a model's answer; null where there is none. */
function readAnswer(text: string): { status: number; body: Json } | null {
  const bare = text.replace(/^\s*```(?:json)?\s*|\s*```\s*$/g, "");
  try {
    const value: unknown = JSON.parse(bare);
    if (typeof value !== "object" || value === null || !("body" in value)) return null;
    const status = "status" in value && typeof value.status === "number" ? value.status : 200;
    return { status, body: value.body as Json };
  } catch {
    return null;
  }
}

export function modelBackend(options: SimulatorOptions): Backend {
  return { name: `model:${options.model}`, open: (seed) => new ModelSession(options, seed) };
}

class ModelSession implements Session {
  readonly #options: SimulatorOptions;
  readonly #seed: number;
  readonly #history: { call: string; answer: Json }[] = [];
  readonly #writes: Write[] = [];
  constructor(options: SimulatorOptions, seed: number) {
    this.#options = options;
    this.#seed = seed;
  }

  async call(tool: Tool, args: JsonObject): Promise<CallResult> {
    const { catalog } = this.#options;
    const id = callKey(tool.name, args);
    const latencyMs = drawLatency(tool.name, key(this.#seed, hashText(id), this.#history.length));
    const done = (
      outcome: CallResult["outcome"],
      status: number,
      body: Json,
      fault: CallResult["fault"] = null,
    ): CallResult => ({ outcome, status, body, latencyMs, fault });
    const findings = checkArguments(catalog, tool, args);
    if (findings.length)
      return done("invalid", 400, { error: `invalid arguments for ${tool.name}: ${findings.join("; ")}` });
    let complaint = "";
    for (let tries = 0; tries < 2; tries++) {
      let text: string;
      try {
        text = await this.#ask(tool, args, complaint);
      } catch (error) {
        return done(
          "transient",
          503,
          { error: `the simulator did not answer: ${(error as Error).message}` },
          "server_error",
        );
      }
      const answer = readAnswer(text);
      if (!answer) {
        complaint = 'Your answer was not one JSON object {"status": ..., "body": ...}.';
        continue;
      }
      if (answer.status === 404) return done("not_found", 404, answer.body);
      if (answer.status >= 400 && answer.status < 500) return done("invalid", answer.status, answer.body);
      if (answer.status >= 500) return done("transient", answer.status, answer.body, "server_error");
      const wrong = checkResponse(catalog, tool, answer.body);
      if (wrong.length) {
        complaint = `Your body did not follow the response schema: ${wrong.slice(0, 5).join("; ")}.`;
        continue;
      }
      this.#history.push({ call: id, answer: answer.body });
      this.#note(tool, args, answer.body);
      return done("ok", answer.status, answer.body);
    }
    return done("transient", 502, { error: `the simulator's answer could not be used: ${complaint}` }, "server_error");
  }

  async #ask(tool: Tool, args: JsonObject, complaint: string): Promise<string> {
    const { client, model, temperature = 0, memory = 12 } = this.#options;
    const seen = this.#history.slice(-memory).map((h) => `${h.call}\n→ ${JSON.stringify(h.answer)}`);
    const user = [
      `Interface:\n${JSON.stringify(interfaceOf(tool))}`,
      seen.length ? `Calls so far:\n${seen.join("\n")}` : "No calls so far.",
      `Next call:\n${tool.name} ${JSON.stringify(args)}`,
      complaint,
    ]
      .filter(Boolean)
      .join("\n\n");
    const reply = await client.chat.completions.create({
      model,
      temperature,
      seed: this.#seed,
      messages: [
        { role: "system", content: SIMULATOR_PROMPT },
        { role: "user", content: user },
      ],
    });
    return reply.choices[0]?.message.content ?? "";
  }

  /** What changed, as far as the interface tells: a model's world has no state of its own to compare. */
  #note(tool: Tool, args: JsonObject, body: Json): void {
    const op = apiModel(this.#options.catalog, tool.api).ops.get(tool.name);
    if (!op || op.kind === "get" || op.kind === "list" || op.kind === "compute") return;
    const id = op.target
      ? args[op.target.param]
      : body !== null && typeof body === "object" && !Array.isArray(body)
        ? body.id
        : undefined;
    this.#writes.push({
      kind: op.kind,
      resource: `${tool.api}:${op.type ?? "item"}`,
      id: typeof id === "string" || typeof id === "number" ? String(id) : "",
      values: args,
    });
  }

  writes(): Write[] {
    return structuredClone(this.#writes);
  }
  close(): void {}
}
