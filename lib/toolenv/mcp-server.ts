/**
 * The environment as an MCP server, for desktop clients and other agents: `search_tools`, `call_tool`, and every tool that a
 * search has found as a tool of its own. Each connection has its own session of the world.
 */
import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { WebStandardStreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/webStandardStreamableHttp.js";
import {
  CallToolRequestSchema,
  type CallToolResult,
  ErrorCode,
  ListToolsRequestSchema,
  McpError,
  type Tool as McpTool,
} from "@modelcontextprotocol/sdk/types.js";
import type { Hono } from "hono";
import { z } from "zod";
import type { Catalog, Json, JsonObject, Retriever, Tool } from "../catalog/types.ts";
import { shown } from "./service.ts";
import type { Backend, Session } from "./types.ts";

export interface McpOptions {
  catalog: Catalog;
  retriever: Retriever;
  backend: Backend;
  /** Found tools that a connection shows as tools of its own at most; the oldest make room. 0: none. */
  direct?: number;
}

const searchArguments = z.strictObject({ query: z.string().max(2000), k: z.int().min(1).max(20).default(3) });
const callArguments = z.strictObject({
  name: z.string().max(200),
  arguments: z.record(z.string(), z.json()).default({}),
});

const FIXED: McpTool[] = [
  {
    name: "search_tools",
    description:
      "Search the catalogue of tools by what a tool must do. Gives the best matches with their names, descriptions and parameters.",
    inputSchema: {
      type: "object",
      properties: {
        query: { type: "string", description: "What the tool must do, in plain words." },
        k: { type: "integer", minimum: 1, maximum: 20, description: "How many tools (3)." },
      },
      required: ["query"],
    },
  },
  {
    name: "call_tool",
    description: "Call a tool of the catalogue by its name, with arguments as its parameters say.",
    inputSchema: {
      type: "object",
      properties: {
        name: { type: "string", description: "Name of the tool, as a search showed it." },
        arguments: { type: "object", description: "Its arguments." },
      },
      required: ["name"],
    },
  },
];

const asText = (value: Json, isError = false): CallToolResult => ({
  content: [{ type: "text", text: JSON.stringify(value) }],
  ...(isError ? { isError } : {}),
});

/** One connection's server. */
export function mcpServer(options: McpOptions, seed = 0): { server: Server; session: Session } {
  const { catalog, retriever, backend, direct = 16 } = options;
  const session = backend.open(seed);
  const found = new Map<string, Tool>();
  const server = new Server(
    { name: "paraagent-toolenv", version: "0.1.0" },
    { capabilities: { tools: { listChanged: true } } },
  );
  server.setRequestHandler(ListToolsRequestSchema, () => ({
    tools: [
      ...FIXED,
      ...[...found.values()].map((t) => ({
        name: t.name,
        description: t.description,
        inputSchema: t.parameters as unknown as McpTool["inputSchema"],
      })),
    ],
  }));
  const call = async (name: string, args: JsonObject): Promise<CallToolResult> => {
    const tool = catalog.get(name.trim().toLowerCase());
    if (!tool) throw new McpError(ErrorCode.InvalidParams, `no tool is named ${name.slice(0, 80)}: search for it`);
    const r = await session.call(tool, args);
    return asText(r.body, r.outcome !== "ok");
  };
  server.setRequestHandler(CallToolRequestSchema, async (request) => {
    const { name, arguments: args = {} } = request.params;
    if (name === "search_tools") {
      const { query, k } = parsed(searchArguments, args);
      const hits = retriever.search(query, k).map((h) => h.tool);
      if (direct > 0) {
        for (const t of hits) {
          found.delete(t.name);
          found.set(t.name, t);
          if (found.size > direct) found.delete(found.keys().next().value as string);
        }
        await server.sendToolListChanged();
      }
      return asText(hits.map(shown));
    }
    if (name === "call_tool") {
      const inner = parsed(callArguments, args);
      return call(inner.name, inner.arguments as JsonObject);
    }
    return call(name, args as JsonObject);
  });
  server.onclose = () => session.close();
  return { server, session };
}

function parsed<S extends z.ZodType>(schema: S, value: unknown): z.infer<S> {
  const r = schema.safeParse(value);
  if (r.success) return r.data;
  const issue = r.error.issues[0];
  throw new McpError(ErrorCode.InvalidParams, `${issue?.path.join(".") || "arguments"}: ${issue?.message}`);
}

/** Serves one client over standard input and output, until it goes. */
export async function serveStdio(options: McpOptions): Promise<void> {
  const { server } = mcpServer(options);
  const closed = new Promise<void>((resolve) => {
    const before = server.onclose;
    server.onclose = () => {
      before?.();
      resolve();
    };
  });
  await server.connect(new StdioServerTransport());
  process.stdin.once("end", () => void server.close());
  await closed;
}

/** Adds the streamable HTTP transport at /mcp: one session a connection, at most `most` of them; one idle for `idleMs` of the clock `now` may go. */
export function mountMcp(
  app: Hono,
  options: McpOptions,
  now: () => number,
  { most = 200, idleMs = 15 * 60_000 } = {},
): void {
  const open = new Map<string, { transport: WebStandardStreamableHTTPServerTransport; touched: number }>();
  app.all("/mcp", async (c) => {
    const id = c.req.header("mcp-session-id");
    const known = id === undefined ? undefined : open.get(id);
    if (known) {
      known.touched = now();
      return known.transport.handleRequest(c.req.raw);
    }
    if (id !== undefined) return c.json({ error: "no such MCP session, or it has expired: connect anew" }, 404);
    // Clients that vanish do not say goodbye.
    for (const [sid, s] of open)
      if (s.touched < now() - idleMs) {
        open.delete(sid);
        await s.transport.close();
      }
    if (open.size >= most) return c.json({ error: `${most} MCP sessions are open, which is the limit` }, 503);
    const transport: WebStandardStreamableHTTPServerTransport = new WebStandardStreamableHTTPServerTransport({
      sessionIdGenerator: () => crypto.randomUUID(),
      onsessioninitialized: (sid) => void open.set(sid, { transport, touched: now() }),
      onsessionclosed: (sid) => void open.delete(sid),
    });
    const { server } = mcpServer(options, open.size);
    await server.connect(transport);
    return transport.handleRequest(c.req.raw);
  });
}
