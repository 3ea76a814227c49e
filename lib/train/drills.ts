/**
 * Micro-episodes (design: small-model.md): single skills of the loop, many times in one document, so that tools and responses are read once and
 * asked about often. They are made of demonstrations, without their thoughts and plans: what order a loop has is left to fine-tuning.
 *
 * - query: requests, each answered with the search that finds its tools;
 * - choose: the tools of several tasks in one list, and each task's first calls, with their arguments;
 * - follow: a response, and the call that carries on from it;
 * - lookup: responses, and questions about any of their fields.
 */
import { RESPONSE } from "../agents/solver.ts";
import type { Json } from "../catalog/types.ts";
import { briefAnswer } from "../coldstart/roles.ts";
import { draw, listed, pick } from "../coldstart/wording.ts";
import { hash2 } from "../engine/random.ts";
import { escapeTagsInText } from "../paraact/tags.ts";
import type { Message } from "../paraact/types.ts";
import { factLabel, spoken } from "../toolenv/tasks/speech.ts";
import { humanise, splitWords } from "../toolenv/words.ts";
import { shuffled } from "./batch.ts";

/** A conversation to learn from. */
export interface Lesson {
  messages: readonly Message[];
  /** How many gold calls its task has. */
  calls: number;
  /** What tells its neighbours: the providers of its tools, say. */
  group: string;
}

export const drillKinds = ["query", "choose", "follow", "lookup"] as const;
export type DrillKind = (typeof drillKinds)[number];

/** Lessons that share a document, lines of tools in it, and questions about its responses. */
const TOGETHER = { query: 6, choose: 6, follow: 1, lookup: 1 } as const;
const MOST_LINES = 12;
const MOST_QUESTIONS = 8;
/** Characters of a value that is asked for. */
const LONGEST = 32;
/** Characters of a line of tools that is not called: some have hundreds of parameters. */
const LONG_LINE = 200;

/** What a turn does, without what it says about it. */
function deed(message: Message): Message {
  return { ...message, content: message.content.replace(/<(think|plan)>.*?<\/\1>/gs, "") };
}

const isTools = (m: Message) => m.role === "observation" && m.content.startsWith("<tools>");
const isResponse = (m: Message) => m.role === "observation" && m.content.startsWith("<tool_response>");
const turnWith = (messages: readonly Message[], tag: string) =>
  messages.findIndex((m) => m.role === "assistant" && m.content.includes(tag));

const user = (content: string): Message => ({ role: "user", content });
const system = (lesson: Lesson) => lesson.messages.filter((m) => m.role === "system").slice(0, 1);
const request = (lesson: Lesson) => lesson.messages.filter((m) => m.role === "user").slice(0, 1);

function queryDrill(lessons: readonly Lesson[]): Message[] {
  return lessons.flatMap((lesson) => {
    const at = turnWith(lesson.messages, "<search_tool>");
    return at < 0 ? [] : [...request(lesson), deed(lesson.messages[at]!)];
  });
}

/** The tools of all the lessons in one list: those that are called, and others as far as there is room. */
function chooseDrill(lessons: readonly Lesson[], seed: number): Message[] {
  const wanted = new Set<string>();
  const others = new Set<string>();
  const rounds = lessons.map((lesson) => {
    const at = turnWith(lesson.messages, "<tool_call>");
    const calls = at < 0 ? "" : deed(lesson.messages[at]!).content;
    const lines = lesson.messages.slice(0, at).flatMap((m) => (isTools(m) ? m.content.split("\n").slice(1, -1) : []));
    for (const line of lines) (calls.includes(`"name":"${line.split("(")[0]}"`) ? wanted : others).add(line);
    return calls === "" || lines.length === 0 ? [] : [...request(lesson), deed(lesson.messages[at]!)];
  });
  const own = [...wanted];
  const rest = [...others].filter((line) => !wanted.has(line) && line.length <= LONG_LINE);
  const room = Math.max(0, MOST_LINES - own.length);
  const shown = [...own, ...[...shuffled(rest.length, seed, 1)].slice(0, room).map((i) => rest[i]!)];
  const list = [...shuffled(shown.length, seed, 2)].map((i) => shown[i]!);
  const tools: Message = { role: "observation", content: ["<tools>", ...list, "</tools>"].join("\n") };
  const [first, ...later] = rounds.filter((round) => round.length > 0);
  if (!first) return [];
  // As in an episode the tools stand between the first request and its calls.
  return [first[0]!, tools, ...first.slice(1), ...later.flat()];
}

/** The last call that follows a response, with the tools, and every response before it. */
function followDrill([lesson]: readonly Lesson[]): Message[] {
  const { messages } = lesson!;
  const last = messages.findLastIndex((m) => m.role === "assistant" && m.content.includes("<tool_call>"));
  const before = messages.slice(0, Math.max(0, last));
  if (!before.some(isResponse)) return [];
  return [...request(lesson!), ...before.filter((m) => isTools(m) || isResponse(m)), deed(messages[last]!)];
}

/** A question about fields, and its answer. */
interface Question {
  labels: string[];
  /** "of 17", where it has to be said which response is meant. */
  of: string;
  values: Json[];
}

type Field = { label: string; value: Json };

/** What can be asked of an object and of the objects in it, by label. Labels that fit two fields are left out. */
function fieldsOf(value: Json, depth = 0): Field[] {
  if (typeof value !== "object" || value === null || Array.isArray(value) || depth > 2) return [];
  const all = Object.entries(value).flatMap(([name, field]): Field[] => {
    if (typeof field === "object") return fieldsOf(field, depth + 1);
    // What nobody would ask for is looked up in the same way.
    const label = factLabel(name, {}, field, name) ?? humanise(splitWords(name).join(" "));
    return label && String(field).length <= LONGEST ? [{ label, value: field }] : [];
  });
  return all.filter((f) => all.filter((g) => g.label === f.label).length === 1);
}

/** The first list of two or more objects in a value. */
function listOf(value: Json, depth = 0): Json[] | null {
  if (typeof value !== "object" || value === null || depth > 2) return null;
  if (Array.isArray(value)) return value.length > 1 && typeof value[0] === "object" ? value : null;
  for (const field of Object.values(value)) {
    const found = listOf(field, depth + 1);
    if (found) return found;
  }
  return null;
}

/** An identifier that an object states. */
function identifierOf(value: Json): string | null {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return null;
  for (const [name, field] of Object.entries(value)) {
    if (/(^|[a-z_])(id|Id|ID)$/.test(name) && (typeof field === "string" || typeof field === "number"))
      return String(field);
    const inner = identifierOf(field);
    if (inner) return inner;
  }
  return null;
}

/** Questions about a list: a field of all, and a field of the one that another field names. */
function listQuestions(list: readonly Json[], seed: number): Question[] {
  const rows = list.map((row) => fieldsOf(row));
  const shared = (rows[0] ?? []).filter((f) => rows.every((row) => row.some((g) => g.label === f.label)));
  return shared.flatMap(({ label }, i): Question[] => {
    const values = rows.map((row) => row.find((f) => f.label === label)!.value);
    const key = shared[(i + 1) % shared.length]!.label;
    const at = draw(seed, `row ${i}`) % rows.length;
    const named = rows.map((row) => row.find((f) => f.label === key)!.value);
    const alone = key !== label && named.filter((v) => v === named[at]).length === 1;
    return [
      { labels: [label], of: " of all", values: [values] },
      ...(alone
        ? [{ labels: [label], of: ` of the one whose ${key} is ${spoken(named[at]!)}`, values: [values[at]!] }]
        : []),
    ];
  });
}

/** Every question that can be asked about the responses of an observation. */
function questionsOf(observation: string, seed: number): Question[] {
  const results = [...observation.matchAll(RESPONSE)].flatMap(([, text]): Json[] => {
    try {
      return [(JSON.parse(text!) as { result?: Json }).result ?? null];
    } catch {
      return []; // Cut short: what is left out cannot be asked about.
    }
  });
  return results.flatMap((result, r) => {
    const list = listOf(result);
    if (list) return results.length === 1 ? listQuestions(list, seed) : [];
    const id = identifierOf(result);
    if (results.length > 1 && id === null) return [];
    const of = results.length > 1 ? ` of ${id}` : "";
    const fields = fieldsOf(result);
    const order = [...shuffled(fields.length, seed, r)].map((i) => fields[i]!);
    const questions: Question[] = [];
    for (let i = 0; i < order.length; ) {
      const some = order.slice(i, i + 1 + (draw(seed, `many ${r} ${i}`) % 3));
      questions.push({ labels: some.map((f) => f.label), of, values: some.map((f) => f.value) });
      i += some.length;
    }
    return questions;
  });
}

function asked({ labels, of }: Question, seed: number, purpose: string): string {
  const what = `${listed(labels)}${of}`;
  const are = labels.length > 1 ? "are" : "is";
  return escapeTagsInText(
    pick(
      [
        `What ${are} the ${what}?`,
        `Tell me the ${what}.`,
        `I need the ${what}.`,
        `Give me the ${what}.`,
        `And the ${what}?`,
      ],
      seed,
      purpose,
    ),
  );
}

/** In the words of demonstrations: label and value. */
function answered({ labels, values }: Question): Message {
  const said = briefAnswer(labels.map((label, i) => [label, [values[i]!]]));
  return { role: "assistant", content: `<answer>${escapeTagsInText(said)}</answer>` };
}

/** The responses of a lesson, its own question, and others about them. */
function lookupDrill([lesson]: readonly Lesson[], seed: number): Message[] {
  const { messages } = lesson!;
  const responses = messages.filter(isResponse);
  const last = messages.at(-1)!;
  if (responses.length === 0 || !last.content.includes("<answer>")) return [];
  const questions = responses.flatMap((m) => questionsOf(m.content, seed));
  const order = [...shuffled(questions.length, seed, 9)].slice(0, MOST_QUESTIONS).map((i) => questions[i]!);
  const more = order.flatMap((q, i) => [user(asked(q, seed, `ask ${i}`)), answered(q)]);
  return [...request(lesson!), ...responses, deed(last), ...more];
}

/** Goes round a list in a new order each time, for ever. */
export function* around<T>(items: readonly T[], seed: number): Generator<T> {
  for (let pass = 0; items.length > 0; pass++) for (const i of shuffled(items.length, seed, pass)) yield items[i]!;
}

const makers: Record<DrillKind, (lessons: readonly Lesson[], seed: number) => Message[]> = {
  query: queryDrill,
  choose: chooseDrill,
  follow: followDrill,
  lookup: lookupDrill,
};

/** Micro-episodes of one kind, for ever, or none where no lesson serves. A pure function of its arguments. */
export function* drills(kind: DrillKind, lessons: readonly Lesson[], seed: number): Generator<readonly Message[]> {
  const groups = Map.groupBy(lessons, (lesson) => lesson.group);
  let n = 0;
  let fruitless = 0;
  for (const lesson of around(lessons, seed)) {
    const own = hash2(seed, n++);
    // Neighbours of the same providers are the hardest to tell apart; every third document mixes them.
    const among = draw(own, "mixed") % 3 === 0 ? lessons : groups.get(lesson.group)!;
    const others = Array.from({ length: TOGETHER[kind] - 1 }, (_, i) => among[draw(own, `other ${i}`) % among.length]!);
    const made = makers[kind]([...new Set([lesson, ...others])], own);
    fruitless = made.length > 0 ? 0 : fruitless + 1;
    if (made.length > 0) yield [...system(lesson), ...made];
    else if (fruitless >= lessons.length) return;
  }
}
