/** Search through SQLite's FTS5: nothing to load, tens of milliseconds a query. For the browser and one-off searches. */
import { Database } from "bun:sqlite";
import { searchFields, searchText } from "./bm25.ts";
import { stemOf, tokens } from "./tokens.ts";
import type { Retriever, Tool } from "./types.ts";

/** The texts are stored as the words of tokens.ts, stemmed, so that both indexes agree on what a word is. */
export const FTS_TABLE =
  "CREATE VIRTUAL TABLE fts USING fts5 (name, description, rest, content = '', tokenize = 'unicode61 remove_diacritics 0');";

/** bm25's weights of name, description and the rest (API, category, parameter names). */
const WEIGHTS = "4.0, 1.0, 0.3";

/** The three columns of a tool, from the words of its fields. */
export function ftsColumns(fields: readonly string[][]): [string, string, string] {
  const [name = [], description = [], ...rest] = fields.map((field) => field.map(stemOf));
  return [name.join(" "), description.join(" "), rest.flat().join(" ")];
}

/** A query in FTS5's syntax: quoted words joined by OR, so that no text can be read as an operator; null where no word is left. */
export function ftsQuery(query: string): string | null {
  const words = [...new Set(tokens(query))];
  return words.length === 0 ? null : words.map((w) => `"${w}"`).join(" OR ");
}

export function ftsRetriever(db: Database, byId: (id: number) => Tool): Retriever {
  const select = db.query<{ id: number; score: number }, [string, number]>(
    `SELECT rowid AS id, -bm25(fts, ${WEIGHTS}) AS score FROM fts WHERE fts MATCH ? ORDER BY score DESC, rowid LIMIT ?`,
  );
  return {
    name: "fts5",
    search(query, k) {
      const match = ftsQuery(query);
      return match === null || k <= 0 ? [] : select.all(match, k).map(({ id, score }) => ({ tool: byId(id), score }));
    },
  };
}

/** FTS5 over any array of tools, in a database in memory. Their ids must be their places in the array. */
export function fts(tools: readonly Tool[]): Retriever {
  const db = new Database(":memory:");
  db.exec(FTS_TABLE);
  const insert = db.prepare("INSERT INTO fts (rowid, name, description, rest) VALUES (?, ?, ?, ?)");
  tools.forEach((tool, id) => {
    insert.run(id, ...ftsColumns(searchFields(searchText(tool))));
  });
  return ftsRetriever(db, (id) => tools[id]!);
}
