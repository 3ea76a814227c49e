/** The tools of a live MCP server. A server that fails, or that is not ready and lists nothing, is an error after a few tries: never an empty catalogue. */
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import type { Transport } from "@modelcontextprotocol/sdk/shared/transport.js";
import { SourceError } from "./errors.ts";
import { type ImportResult, importDocument } from "./formats.ts";
import { snakeCase } from "./naming.ts";

export type McpServer = { kind: "stdio"; command: string; args: string[] } | { kind: "http"; url: string };

export interface McpOptions {
  /** Tries in all. */
  tries?: number;
  /** Milliseconds between tries, doubled each time. */
  waitMs?: number;
  /** Milliseconds that one request may take. */
  timeoutMs?: number;
}

/** The words of a command line; quotes hold words together. */
export function splitCommand(line: string): string[] {
  return [...line.matchAll(/"((?:[^"\\]|\\.)*)"|'([^']*)'|(\S+)/g)].map(
    (m) => m[1]?.replace(/\\(.)/g, "$1") ?? m[2] ?? m[3] ?? "",
  );
}

export function serverLabel(server: McpServer): string {
  return server.kind === "http" ? server.url : `mcp:${[server.command, ...server.args].join(" ")}`;
}

function transportOf(server: McpServer): Transport {
  if (server.kind === "stdio")
    return new StdioClientTransport({ command: server.command, args: server.args, stderr: "ignore" });
  return new StreamableHTTPClientTransport(new URL(server.url)) as Transport;
}

async function listOnce(server: McpServer, timeout: number): Promise<{ name: string; tools: unknown[] }> {
  const client = new Client({ name: "paraagent", version: "0.1.0" });
  try {
    await client.connect(transportOf(server), { timeout });
    const tools: unknown[] = [];
    let cursor: string | undefined;
    do {
      const page = await client.listTools(cursor === undefined ? {} : { cursor }, { timeout });
      tools.push(...page.tools);
      cursor = page.nextCursor;
      if (tools.length > 100_000) throw new Error("lists more than 100,000 tools");
    } while (cursor !== undefined);
    if (tools.length === 0) throw new Error("lists no tools (perhaps it is not ready)");
    return { name: client.getServerVersion()?.name ?? "", tools };
  } finally {
    await client.close();
  }
}

/** Asks a live server for all its tools, page by page. Throws SourceError after the last try. */
export async function importMcp(
  server: McpServer,
  provider: string | null,
  options: McpOptions = {},
): Promise<ImportResult> {
  const { tries = 3, waitMs = 500, timeoutMs = 30_000 } = options;
  const label = serverLabel(server);
  let reason = "";
  for (let attempt = 0; attempt < tries; attempt++) {
    if (attempt > 0) await new Promise((resolve) => setTimeout(resolve, waitMs * 2 ** (attempt - 1)));
    try {
      const { name, tools } = await listOnce(server, timeoutMs);
      const host = server.kind === "http" ? new URL(server.url).hostname : "";
      return importDocument(
        tools,
        label,
        "mcp",
        provider ?? (snakeCase(name).replaceAll("_", "-") || host || server.kind),
      );
    } catch (e) {
      reason = (e as Error).message;
    }
  }
  throw new SourceError(label, `no tools after ${tries} tries: ${reason}`);
}
