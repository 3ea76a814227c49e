/** A live MCP server as the backend: its tools are called for real. Nothing is undone when a session closes. */
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import type { Transport } from "@modelcontextprotocol/sdk/shared/transport.js";
import { type CallToolResult, ErrorCode, McpError } from "@modelcontextprotocol/sdk/types.js";
import { originalName } from "../../catalog/formats.ts";
import type { McpServer } from "../../catalog/mcp.ts";
import type { Json, JsonObject, Tool } from "../../catalog/types.ts";
import type { Backend, CallResult, Session, Write } from "../types.ts";
import { normal } from "../words.ts";

export interface LiveOptions {
  /** Milliseconds that one call may take. */
  timeoutMs?: number;
  /** Milliseconds since some moment: how long calls took. */
  now: () => number;
}

/** Connects once; every session of the backend uses the connection. Close it with `close`. */
export async function mcpBackend(
  server: McpServer | Transport,
  options: LiveOptions,
): Promise<Backend & { close(): Promise<void> }> {
  const client = new Client({ name: "paraagent", version: "0.1.0" });
  await client.connect(transportOf(server));
  // A catalogue spells names in snake case; the server wants its own spelling.
  const names = new Map<string, string>();
  let cursor: string | undefined;
  do {
    const page = await client.listTools(cursor === undefined ? {} : { cursor });
    for (const t of page.tools) names.set(normal(t.name), t.name);
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  return { name: "mcp", open: () => new LiveSession(client, names, options), close: () => client.close() };
}

function transportOf(server: McpServer | Transport): Transport {
  if (!("kind" in server)) return server;
  if (server.kind === "stdio")
    return new StdioClientTransport({ command: server.command, args: server.args, stderr: "ignore" });
  return new StreamableHTTPClientTransport(new URL(server.url)) as Transport;
}

/** Text blocks as JSON where they are JSON; structured content as it is. */
function bodyOf(result: CallToolResult): Json {
  if (result.structuredContent !== undefined) return result.structuredContent as Json;
  const texts = result.content.flatMap((c) => (c.type === "text" ? [c.text] : []));
  const read = (text: string): Json => {
    try {
      return JSON.parse(text) as Json;
    } catch {
      return text;
    }
  };
  return texts.length === 1 ? read(texts[0] as string) : texts.map(read);
}

class LiveSession implements Session {
  readonly #client: Client;
  readonly #names: ReadonlyMap<string, string>;
  readonly #options: LiveOptions;
  constructor(client: Client, names: ReadonlyMap<string, string>, options: LiveOptions) {
    this.#client = client;
    this.#names = names;
    this.#options = options;
  }

  async call(tool: Tool, args: JsonObject): Promise<CallResult> {
    const start = this.#options.now();
    const done = (outcome: CallResult["outcome"], status: number, body: Json): CallResult => ({
      outcome,
      status,
      body,
      latencyMs: this.#options.now() - start,
      fault: null,
    });
    const name = originalName(tool.source) ?? this.#names.get(normal(tool.operation));
    if (name === undefined) return done("unavailable", 404, { error: `the server has no tool ${tool.operation}` });
    try {
      const result = (await this.#client.callTool({ name, arguments: args }, undefined, {
        timeout: this.#options.timeoutMs ?? 60_000,
      })) as CallToolResult;
      const body = bodyOf(result);
      if (!result.isError) return done("ok", 200, body);
      const text = JSON.stringify(body);
      if (/not.?found|no such|404|does not exist|\bno [\w ]+ with\b/i.test(text))
        return done("not_found", 404, { error: body });
      if (/invalid|required|missing|must be|expected|validation/i.test(text))
        return done("invalid", 400, { error: body });
      return done("unavailable", 500, { error: body });
    } catch (error) {
      if (error instanceof McpError && error.code === ErrorCode.InvalidParams)
        return done("invalid", 400, { error: error.message });
      if (error instanceof McpError && error.code === ErrorCode.MethodNotFound)
        return done("unavailable", 404, { error: error.message });
      return done("transient", 503, { error: error instanceof Error ? error.message : String(error) });
    }
  }
  /** What a foreign server changed is not known. */
  writes(): Write[] {
    return [];
  }
  close(): void {}
}
