/** Drops tools that say what another says already. Keeps 64-bit hashes only. */
import type { Reason } from "./filters.ts";
import type { Draft } from "./openapi.ts";

/** A path without its version parts and parameter names: "/v2.1/users/{id}" → "/users/{}". */
export function versionFreePath(path: string): string {
  return path
    .replace(/\{[^}]*\}/g, "{}")
    .split("/")
    .filter((p) => !/^v?\d+(?:\.\d+){0,3}(?:[-_.]?(?:alpha|beta|preview|p)\d*)?$/i.test(p))
    .join("/")
    .replace(/\/+$/, "")
    .toLowerCase();
}

/** The words of a text, lower case, sorted: equal for texts that use the same words as often. */
export function bagOfWords(text: string): string {
  return (text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? []).sort().join(" ");
}

export class Deduper {
  #seen = new Set<bigint>();

  /** True where the key is new. */
  #add(kind: string, ...parts: string[]): boolean {
    const key = Bun.hash(`${kind}\0${parts.join("\0")}`) as bigint;
    if (this.#seen.has(key)) return false;
    this.#seen.add(key);
    return true;
  }

  /** Asked before the parameters are read. */
  path(api: string, method: string, path: string): Reason | null {
    return this.#add("path", api, method, versionFreePath(path)) ? null : "duplicate_path";
  }

  /** The reason why a tool is a duplicate of one seen before, or null; then it counts as seen. */
  tool(tool: Draft): Reason | null {
    const names = Object.keys(tool.parameters.properties).sort().join(" ");
    if (!this.#add("interface", tool.description.toLowerCase(), names)) return "duplicate_interface";
    return this.#add("words", tool.provider, bagOfWords(tool.description)) ? null : "duplicate_words";
  }
}
