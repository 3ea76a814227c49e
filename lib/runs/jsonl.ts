import { readFileSync } from "node:fs";

/** Whole JSON lines of a file that was written atomically: a broken line is an error with its number. */
export function readJsonLines<T>(path: string): T[] {
  return readFileSync(path, "utf8")
    .split("\n")
    .flatMap((line, i) => {
      if (line === "") return [];
      try {
        return [JSON.parse(line) as T];
      } catch {
        throw new SyntaxError(
          `${path}:${i + 1}: not a JSON line. Delete the folder it is in, and run again: the stage is made anew.`,
        );
      }
    });
}

export function jsonLines(values: Iterable<unknown>): string {
  let text = "";
  for (const value of values) text += `${JSON.stringify(value)}\n`;
  return text;
}
