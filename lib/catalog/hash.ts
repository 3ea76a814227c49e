/** The content hash: SHA-256 over the tools in order. The same tools give the same hash on every machine. */
import type { Tool } from "./types.ts";

/** Digest of everything in a tool but its id and name (names are given last, when all tools are known). */
export function toolDigest(tool: Omit<Tool, "id" | "name">): string {
  return new Bun.CryptoHasher("sha256")
    .update(
      JSON.stringify([
        tool.provider,
        tool.api,
        tool.operation,
        tool.method,
        tool.path,
        tool.description,
        tool.category,
        tool.parameters,
        tool.places,
        tool.response,
        tool.example,
        tool.source,
        tool.licence,
      ]),
    )
    .digest("hex");
}

/** The catalogue's hash from its tools' names and digests, in id order. */
export function catalogHash(names: Iterable<string>, digests: readonly string[]): string {
  const hasher = new Bun.CryptoHasher("sha256");
  let i = 0;
  for (const name of names) hasher.update(`${name} ${digests[i++]}\n`);
  return hasher.digest("hex");
}
