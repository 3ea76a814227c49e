/** What an operation that is a verb (approve, cancel, archive …) makes of its entity: the fields that a later read shows changed. */
import type { Json, Tool } from "../catalog/types.ts";
import { fieldClass } from "./fields.ts";
import type { Op, ResourceType } from "./resources.ts";
import { clean, fits } from "./schema.ts";
import { normal, singular, splitWords } from "./words.ts";

/** verb: states that it leads to, best first / states that it ends. */
const STATES: Record<string, string> = {
  abort: "aborted cancelled canceled",
  accept: "accepted approved",
  activate: "active activated enabled / inactive deactivated disabled",
  approve: "approved accepted",
  archive: "archived / unarchived",
  ban: "banned blocked",
  cancel: "cancelled canceled",
  capture: "captured",
  claim: "claimed",
  close: "closed / open opened",
  complete: "completed complete done finished",
  confirm: "confirmed",
  deactivate: "inactive deactivated disabled / active activated enabled",
  decline: "declined rejected",
  disable: "disabled inactive / enabled active",
  enable: "enabled active / disabled inactive",
  finish: "finished completed complete done",
  lock: "locked / unlocked",
  mute: "muted / unmuted",
  pause: "paused / running",
  pin: "pinned",
  publish: "published live / unpublished draft",
  refund: "refunded",
  reject: "rejected declined denied",
  release: "released",
  reopen: "open opened reopened / closed",
  restore: "active restored / deleted archived trashed",
  resume: "running active resumed / paused suspended",
  revoke: "revoked",
  send: "sent",
  ship: "shipped",
  sign: "signed",
  star: "starred",
  start: "running started active / stopped",
  stop: "stopped / running started",
  submit: "submitted",
  subscribe: "subscribed / unsubscribed",
  suspend: "suspended / active",
  unarchive: "active unarchived / archived",
  unlock: "unlocked / locked",
  unmute: "unmuted / muted",
  unpublish: "unpublished draft / published live",
  unsubscribe: "unsubscribed / subscribed",
  unsuspend: "active / suspended",
  verify: "verified",
  void: "voided void",
};

/** The verb that an operation does to its target and nothing else, or null: its path's end, or its name beside the type's own words. */
function verbFor(tool: Tool, op: Op): string | null {
  const parts = (tool.path.split("#")[0] ?? "").split("/");
  const [, stem, tail] = /^(.*?\})?:?([^{}:]*)$/.exec(parts.at(-1) ?? "") ?? [];
  const before = stem ?? parts.at(-2) ?? "";
  const words = splitWords(tail ?? "");
  const [verb] = words;
  if (words.length === 1 && verb && Object.hasOwn(STATES, verb) && before === `{${op.target?.param}}`) return verb;
  const own = new Set([op.target?.type, ...op.scope.map((s) => s.type)].flatMap((t) => t?.split(" ") ?? []));
  const said = splitWords(tool.operation);
  const verbs = said.filter((w) => Object.hasOwn(STATES, w) && !own.has(w));
  const rest = said.filter((w) => !verbs.includes(w));
  const plain = rest.every((w) => own.has(singular(w)) || /^(by|id|the|an?|post|put|patch|api|v\d+)$/.test(w));
  return verbs.length === 1 && plain ? (verbs[0] as string) : null;
}

/** Values by normal field name that an operation sets in its target by what it means; none where it is no such verb. */
export function effectOf(tool: Tool, op: Op, type: ResourceType | undefined): readonly [string, Json][] {
  if (!type || (op.kind !== "action" && op.kind !== "update")) return [];
  const verb = verbFor(tool, op);
  const [gained = [], lost = []] = (verb ? (STATES[verb] as string) : "").split("/").map((s) => s.trim().split(" "));
  // Taking a star off is no star.
  const [now, past] = tool.method === "DELETE" ? [[], gained] : [gained, lost];
  if (!verb) return [];
  const own = new Set(type.name.split(" "));
  const out: [string, Json][] = [];
  const states: { plain: boolean; entry: [string, Json] }[] = [];
  for (const [name, field] of type.fields) {
    const schema = clean(field.schema);
    const words = splitWords(field.name).filter((w) => !own.has(w));
    if (schema.type === "boolean") {
      const flag = words.filter((w) => w !== "is" && w !== "has" && w !== "been").join(" ");
      if (now.includes(flag)) out.push([name, true]);
      else if (past.includes(flag)) out.push([name, false]);
      continue;
    }
    if (words.some((w) => /^(initial|desired|default|previous|target|expected)$/.test(w))) continue;
    if (schema.type !== "string" || fieldClass(field.name, schema) !== "status") continue;
    const plain = words.length === 1;
    const value = schema.enum
      ? now.map((w) => schema.enum?.find((v) => means(v, w))).find((v) => v !== undefined)
      : plain
        ? now[0]
        : undefined;
    if (value !== undefined && fits(value, schema)) states.push({ plain, entry: [name, value] });
  }
  const plain = states.filter((s) => s.plain);
  return [...out, ...(plain.length ? plain : states).map((s) => s.entry)];
}

/** Whether an option of an enum is a state: the word itself, or it after a prefix ("ORDER_STATUS_CANCELLED"). */
function means(option: Json, state: string): boolean {
  if (typeof option !== "string") return false;
  if (normal(option) === state) return true;
  const words = splitWords(option);
  return words.at(-1) === state && !words.some((w) => /^(not|un|non|partially|pending|being|to|auto)$/.test(w));
}
