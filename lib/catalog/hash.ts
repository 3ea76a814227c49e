/** The content hash: SHA-256 over the tools in order. The same tools give the same hash on every machine. */
import type { Tool } from "./types.ts";

/** A tool's JSON parts as the store keeps them. */
export interface ToolJson {
  parameters: string;
  places: string;
  response: string | null;
  example: string | null;
}

export function toolJson(tool: Pick<Tool, "parameters" | "places" | "response" | "example">): ToolJson {
  return {
    parameters: JSON.stringify(tool.parameters),
    places: JSON.stringify(tool.places),
    response: tool.response === null ? null : JSON.stringify(tool.response),
    example: tool.example === null ? null : JSON.stringify(tool.example),
  };
}

/** Digest of everything in a tool but its id and name (names are given last, when all tools are known). */
export function toolDigest(tool: Omit<Tool, "id" | "name">, json: ToolJson = toolJson(tool)): string {
  const { provider, api, operation, method, path, description, category, source, licence } = tool;
  const narrow = JSON.stringify([provider, api, operation, method, path, description, category, source, licence]);
  return new Bun.CryptoHasher("sha256")
    .update(`${narrow}\n${json.parameters}\n${json.places}\n${json.response}\n${json.example}`)
    .digest("hex");
}

/** The catalogue's hash from its tools' names and digests, in id order. */
export function catalogHash(names: Iterable<string>, digests: readonly string[]): string {
  const hasher = new Bun.CryptoHasher("sha256");
  let i = 0;
  for (const name of names) hasher.update(`${name} ${digests[i++]}\n`);
  return hasher.digest("hex");
}
