import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { PLAN_RULES } from "../lib/paraact/controller.ts";
import { planRulesPage } from "./docs.ts";

test("docs/plan-rules.md is what the code prints (bun scripts/docs.ts writes it)", () => {
  expect(readFileSync(join(import.meta.dir, "../docs/plan-rules.md"), "utf8")).toBe(planRulesPage());
  const rows = planRulesPage()
    .split("\n")
    .filter((line) => line.endsWith("` |"));
  expect(rows.map((row) => /`(.+)` \|$/.exec(row)?.[1])).toEqual(PLAN_RULES.map((rule) => rule.id));
});
