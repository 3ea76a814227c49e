/** Writes the documents under docs/ that are printed from the code: `bun scripts/docs.ts`. A test holds the files to it. */
import { join } from "node:path";
import { writeAtomic } from "../lib/config/atomic.ts";
import { PLAN_BUDGET, planRulesTable } from "../lib/paraact/controller.ts";

/** docs/plan-rules.md. */
export function planRulesPage(): string {
  return `# When a turn has to have a plan

Printed from \`PLAN_RULES\` in \`lib/paraact/controller.ts\` by \`bun scripts/docs.ts\`, never edited by hand. The first rule that applies decides.

${planRulesTable()}

A phase is a maximal run of turns with one kind of action: searching is exploration, calling is execution. The budget is ${PLAN_BUDGET} accepted plans a
phase, the first and one refresh. A plan that is missing where it is required, or there where it is forbidden, costs the turn the plan's part
of R_step_format; a forbidden or invalid plan never becomes the live one.
`;
}

if (import.meta.main) {
  const path = join(import.meta.dir, "../docs/plan-rules.md");
  writeAtomic(path, planRulesPage());
  console.log(path);
}
