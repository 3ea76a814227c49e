/** A catalogue of five real providers for tests, built as `bun run catalog build` builds all. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buildCatalog } from "../../catalog/build.ts";
import { openCatalog } from "../../catalog/store.ts";

/** The catalogue, its folder, and what removes the folder. */
export async function fiveProviders(name: string) {
  const dir = mkdtempSync(join(tmpdir(), `${name}-`));
  const path = join(dir, "catalog.sqlite");
  await buildCatalog({
    path,
    only: (file) => /^(mailchimp|evetech|agco-ats|velopayments|asana)\.(com|net)\b/.test(file),
  });
  return { dir, catalog: openCatalog(path), remove: () => rmSync(dir, { recursive: true }) };
}
