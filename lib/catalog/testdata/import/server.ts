/** An MCP server over stdio with two pages of tools; "empty" lists none, "crash" ends at once. */
import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { ListToolsRequestSchema } from "@modelcontextprotocol/sdk/types.js";

const mode = process.argv[2];
if (mode === "crash") process.exit(3);
const server = new Server({ name: "Test Notes", version: "1.0.0" }, { capabilities: { tools: {} } });
const tool = (name: string) => ({
  name,
  description: `The tool ${name} of the test server.`,
  inputSchema: { type: "object" as const, properties: { text: { type: "string" } }, required: ["text"] },
});
server.setRequestHandler(ListToolsRequestSchema, (request) => {
  if (mode === "empty") return { tools: [] };
  return request.params?.cursor === "2" ? { tools: [tool("second")] } : { tools: [tool("first")], nextCursor: "2" };
});
await server.connect(new StdioServerTransport());
