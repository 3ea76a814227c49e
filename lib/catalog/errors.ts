/** The catalogue's own kinds of error. Each says what, where, and what to do. */

/** There is no catalogue at the path. */
export class CatalogMissingError extends Error {
  override name = "CatalogMissingError";
  constructor(readonly path: string) {
    super(
      `no catalogue at ${path}: build it with "bun run catalog build" (about half a minute), or set PARAAGENT_CATALOG`,
    );
  }
}

/** The file is there and is not a catalogue of this version. */
export class CatalogFormatError extends Error {
  override name = "CatalogFormatError";
  constructor(path: string, reason: string) {
    super(`${path} is not a readable catalogue (${reason}): rebuild it with "bun run catalog build"`);
  }
}

/** A source file or server gave something that cannot be read at all. Nothing of it was taken. */
export class SourceError extends Error {
  override name = "SourceError";
  constructor(
    readonly source: string,
    readonly reason: string,
  ) {
    super(`${source}: ${reason}`);
  }
}

/** Something in a source that could not be mapped. The rest of the source was taken. */
export interface Problem {
  file: string;
  tool: string | null;
  field: string | null;
  reason: string;
}

/** The catalogue has no tool of that name. */
export class ToolMissingError extends Error {
  override name = "ToolMissingError";
  constructor(tool: string, path: string, near: readonly string[]) {
    super(`no tool named ${tool} in ${path}${near.length > 0 ? `; near it: ${near.join(", ")}` : ""}`);
  }
}

/** A retriever's optional parts are not there. */
export class RetrieverMissingError extends Error {
  override name = "RetrieverMissingError";
  constructor(retriever: string, reason: string) {
    super(
      `the ${retriever} retriever cannot be loaded (${reason}): run "npm install" with optional dependencies, or use bm25`,
    );
  }
}
