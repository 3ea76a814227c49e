import { createHash } from "node:crypto";

/** JSON with sorted keys and no spaces: equal values give equal text. `undefined` members are left out. */
export function canonicalJson(value: unknown): string {
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map((v) => canonicalJson(v === undefined ? null : v)).join(",")}]`;
  const members = value as Record<string, unknown>;
  const keys = Object.keys(members);
  if (keys.length > 1) keys.sort();
  let out = "{";
  for (const k of keys)
    if (members[k] !== undefined)
      out += `${out.length > 1 ? "," : ""}${JSON.stringify(k)}:${canonicalJson(members[k])}`;
  return `${out}}`;
}

/** SHA-256 of the canonical JSON, in hex. */
export function contentHash(value: unknown): string {
  return createHash("sha256").update(canonicalJson(value)).digest("hex");
}
