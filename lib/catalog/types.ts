/** The catalogue's data: tool interfaces as plain objects. */

/** Any JSON value. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type JsonObject = { [key: string]: Json };

/** The subset of JSON Schema (2020-12) that normalised tools use. Other keywords are kept where they are harmless. */
export interface JsonSchema {
  type?: "object" | "array" | "string" | "number" | "integer" | "boolean" | "null";
  description?: string;
  properties?: Record<string, JsonSchema>;
  required?: string[];
  items?: JsonSchema;
  enum?: Json[];
  const?: Json;
  default?: Json;
  example?: Json;
  format?: string;
  pattern?: string;
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  minItems?: number;
  maxItems?: number;
  additionalProperties?: boolean | JsonSchema;
  nullable?: boolean;
  readOnly?: boolean;
  writeOnly?: boolean;
}

/** A tool's parameters: always an object schema, `properties` and `required` always there. */
export interface ObjectSchema extends JsonSchema {
  type: "object";
  properties: Record<string, JsonSchema>;
  required: string[];
}

export type ParameterPlace = "path" | "query" | "header" | "body" | "argument";

/** One tool interface. `name` is what an agent calls: unique in its catalogue, [a-z0-9_], 1–64 characters. */
export interface Tool {
  /** Dense row number in the catalogue, 0 … n-1. Not stable between catalogues; `name` is. */
  id: number;
  /** Unique callable name. The operation's own name where no other API has it, else `<operation>_for_<api>`. */
  name: string;
  /** Who offers it, e.g. "googleapis.com". Splits never part a provider. */
  provider: string;
  /** The API within the provider, e.g. "googleapis.com/calendar". */
  api: string;
  /** The operation's own name in snake case, e.g. "events_delete". */
  operation: string;
  /** HTTP method in upper case, or "CALL" where the source has none (MCP, function lists). */
  method: string;
  /** URL path with {placeholders}, or "" where the source has none. */
  path: string;
  /** Plain text, one paragraph. */
  description: string;
  category: string | null;
  parameters: ObjectSchema;
  /** Where each parameter travels. Same keys as parameters.properties. */
  places: Record<string, ParameterPlace>;
  /** Schema of the successful response, or null where the source gives none. */
  response: JsonSchema | null;
  /** A recorded example of the successful response, where the source has a short one. */
  example: Json | null;
  /** Provenance: which file or server it came from, and the name of the licence of that interface. */
  source: string;
  licence: string | null;
}

export interface SearchHit {
  tool: Tool;
  /** Higher is better. Comparable within one query only. */
  score: number;
}

/** A search over a catalogue. BM25, dense, fused and FTS5 retrievers are behind it. */
export interface Retriever {
  readonly name: string;
  /** The k best tools, best first, ties broken by tool id. Any string is a query; one without matches gives []. */
  search(query: string, k: number): SearchHit[];
}

/** Read access to a set of tools. The SQLite store and the in-memory benchmark catalogues are behind it. */
export interface Catalog {
  /** Content hash, the same for the same tools on every machine. */
  readonly hash: string;
  readonly size: number;
  get(name: string): Tool | null;
  byId(id: number): Tool;
  /** Providers in sorted order. */
  providers(): string[];
  /** Every API with its provider and how many tools it has, sorted by provider, then API. Reads no tool. */
  apis(): readonly { provider: string; api: string; tools: number }[];
  /** Tools of one provider, in id order. */
  byProvider(provider: string): Tool[];
  /** Tools of one API, in id order. */
  byApi(api: string): Tool[];
  close(): void;
}
