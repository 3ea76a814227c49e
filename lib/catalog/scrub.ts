/** Strings shaped like live secrets never enter the catalogue, whatever the source's authors left in their examples. */
import type { Json } from "./types.ts";

export const SCRUBBED = "[removed]";

const SECRETS: RegExp[] = [
  /\b(?:AKIA|ASIA)[0-9A-Z]{16}\b/g, // AWS access key ids
  /\bgh[opsur]_[A-Za-z0-9]{20,}\b/g, // GitHub tokens
  /\bgithub_pat_[A-Za-z0-9_]{20,}\b/g,
  /\bxox[abeprs]-[A-Za-z0-9-]{8,}/g, // Slack tokens
  /-----BEGIN [A-Z0-9 ]*(?:KEY|CERTIFICATE)[A-Z ]*-----(?:[\s\S]*?-----END [A-Z0-9 ]*-----|[\s\S]*)/g, // PEM blocks
  /\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?/g, // JSON Web Tokens
  /\b[rs]k_(?:live|test)_[A-Za-z0-9]{10,}\b/g, // Stripe keys
  /\bAIza[0-9A-Za-z_-]{35}\b/g, // Google API keys
  /\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}/g, // SendGrid keys
];
const MAY_HOLD_SECRET = /A[KS]IA|gh[opsur]_|github_pat_|xox[abeprs]-|-----BEGIN|eyJ|[rs]k_(?:live|test)_|AIza|SG\./;

/** The text with each string shaped like a secret replaced by SCRUBBED. */
export function scrubText(text: string): string {
  if (!MAY_HOLD_SECRET.test(text)) return text;
  let out = text;
  for (const pattern of SECRETS) out = out.replace(pattern, SCRUBBED);
  return out;
}

/** The JSON value with every string in it scrubbed, keys too. Returns the same object where nothing was found. */
export function scrubJson<T extends Json>(value: T): T {
  if (typeof value === "string") return scrubText(value) as T;
  if (typeof value !== "object" || value === null) return value;
  const text = JSON.stringify(value);
  if (text === undefined || !MAY_HOLD_SECRET.test(text)) return value;
  return JSON.parse(text, (_key, v: unknown) => (typeof v === "string" ? scrubText(v) : v)) as T;
}
