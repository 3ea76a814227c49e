/**
 * ReWOO (Xu et al. 2023): a planner writes all calls before any is made, values of responses as references; a worker makes them one after
 * the other; a solver answers from what came back. Two requests to the policy, whatever the number of calls.
 */
import type { Json, JsonObject } from "../../catalog/types.ts";
import { hash2 } from "../../engine/random.ts";
import { ContextOverflow, type Episode } from "../../paraact/episode.ts";
import { isObject, JsonError, parseJson } from "../../paraact/json.ts";
import { renderReply } from "../../paraact/render.ts";
import { escapeTagsInText } from "../../paraact/tags.ts";
import type { Policy, PolicyReply, Trajectory } from "../../paraact/types.ts";
import { at as atPointer } from "../../toolenv/compare.ts";
import type { ToolCall } from "../../toolenv/types.ts";
import { REWOO_SOLVER } from "../prompts.ts";

const LINE = /^\s*(?:E|#E)(\d+)\s*[=:]\s*(\{.*\})\s*$/;
const REFERENCE = /^#E(\d+)((?:\/[^\s]*)?)$/;

/** The calls that a planner's text states, by number. Lines that are no calls are left out; broken JSON is none. */
export function readBlueprint(text: string): Map<string, ToolCall> {
  const calls = new Map<string, ToolCall>();
  for (const line of text.split("\n")) {
    const match = LINE.exec(line);
    if (!match) continue;
    try {
      const value = parseJson(match[2]!);
      if (isObject(value) && typeof value.name === "string" && isObject(value.arguments)) {
        calls.set(match[1]!, { name: value.name, arguments: value.arguments });
      }
    } catch (error) {
      if (!(error instanceof JsonError)) throw error;
    }
  }
  return calls;
}

/** The first member of that name, however deep. */
function findMember(value: Json, name: string): Json | undefined {
  if (Array.isArray(value)) {
    for (const v of value) {
      const found = findMember(v, name);
      if (found !== undefined) return found;
    }
  } else if (isObject(value)) {
    if (Object.hasOwn(value, name)) return value[name];
    return findMember(Object.values(value), name);
  }
  return undefined;
}

/** Arguments with their references replaced by what the responses hold; a reference that leads nowhere stays as text, and its call fails. */
export function fillReferences(args: JsonObject, bodies: ReadonlyMap<string, Json>): JsonObject {
  const fill = (value: Json, key: string): Json => {
    if (Array.isArray(value)) return value.map((v) => fill(v, key));
    if (isObject(value)) return fillReferences(value, bodies);
    const match = typeof value === "string" ? REFERENCE.exec(value) : null;
    const body = match ? bodies.get(match[1]!) : undefined;
    if (!match || body === undefined) return value;
    return (match[2] ? atPointer(body, match[2]) : findMember(body, key)) ?? value;
  };
  return Object.fromEntries(Object.entries(args).map(([k, v]) => [k, fill(v, k)]));
}

export interface RewooOptions {
  task: { id: string; request: string };
  policy: Policy;
  seed: number;
  temperature: number;
  id: string;
  /** Its tools are in view: ReWOO retrieves once. */
  episode: Episode;
}

export async function runRewoo(options: RewooOptions): Promise<Trajectory> {
  const { episode, policy, task, id, seed, temperature } = options;
  const ask = (system: string, user: string, part: number): Promise<PolicyReply> =>
    policy.reply({
      episode: `${id}/${part}`,
      messages: [
        { role: "system", content: system },
        { role: "user", content: user },
      ],
      toolsInView: episode.state.toolsInView,
      maxNewTokens: episode.tokensLeft(),
      temperature,
      seed: hash2(seed, part),
    });
  try {
    const opening = episode.messages()[1]?.content ?? task.request;
    const plan = await ask(episode.settings.system, opening, 0);
    const blueprint = readBlueprint(plan.text);
    const bodies = new Map<string, Json>();
    let cost: Pick<PolicyReply, "usage"> | Record<never, never> = { usage: plan.usage };
    let evidence = "";
    let think = escapeTagsInText(plan.text);
    for (const [n, call] of blueprint) {
      if (episode.state.end !== null) break;
      const made = { name: call.name, arguments: fillReferences(call.arguments, bodies) };
      const { turn } = await episode.step({
        text: renderReply({ kind: "call", think, plan: null, calls: [made] }),
        ...cost,
      });
      cost = {};
      think = `E${n} of the plan.`;
      const record = turn.calls[0];
      if (record?.outcome === "ok") bodies.set(n, asJson(record.body));
      evidence += `\nE${n} = ${JSON.stringify(made)}\n${record?.observation ?? "not made"}`;
    }
    if (episode.state.end === null) {
      const answer = await ask(REWOO_SOLVER, `${opening}\n${evidence}`, 1);
      const text = answer.text
        .replace(/<think>.*?<\/think>/s, "")
        .replaceAll(/<\/?answer>/g, "")
        .trim();
      const usage = {
        promptTokens: answer.usage.promptTokens + ("usage" in cost ? plan.usage.promptTokens : 0),
        completionTokens: answer.usage.completionTokens + ("usage" in cost ? plan.usage.completionTokens : 0),
        estimated: answer.usage.estimated || plan.usage.estimated,
      };
      await episode.step({
        text: renderReply({
          kind: "answer",
          think: "usage" in cost ? think : "From the evidence.",
          answer: escapeTagsInText(text),
        }),
        usage,
      });
    }
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    episode.stop(error instanceof ContextOverflow ? "context_overflow" : "policy_error", message);
  } finally {
    for (const part of [0, 1]) policy.release?.(`${id}/${part}`);
  }
  if (episode.state.end === null) episode.stop("parse_failure", "the plan held no call, and no answer followed");
  return episode.trajectory({ taskId: task.id, policy: policy.name, seed });
}

function asJson(body: unknown): Json {
  return parseJson(JSON.stringify(body ?? null));
}
