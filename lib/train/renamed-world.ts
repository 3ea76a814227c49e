/**
 * Episodes under other names: RL on the providers that a small model has read in its demonstrations rewards remembering. Here the words of
 * a prompt's world are exchanged one to one, tools and values alike, between the environment and the policy: what the policy reads and writes is all in the
 * new names, what the world executes and what is scored in its own. See renaming.ts, which does the same to documents.
 */
import { EAE_SYSTEM, ETE_SYSTEM } from "../agents/prompts.ts";
import type { Catalog, Json, JsonSchema, Tool } from "../catalog/types.ts";
import type { Environment } from "../paraact/environment.ts";
import { PARAACT_SYSTEM } from "../paraact/prompt.ts";
import type { Trajectory } from "../paraact/types.ts";
import type { Task } from "../toolenv/types.ts";
import { Naming, type NamingWords, namingWords, RARE } from "./renaming.ts";

/** The words of the tasks, of requests, values, and the tools that solve them or look alike; `rare`: the share of tasks that a rare word is in at most. */
export function taskWords(
  tasks: readonly Task[],
  catalog: Pick<Catalog, "get">,
  pieces: readonly string[],
  rare = RARE,
): NamingWords {
  const texts = tasks.map((task) => {
    const names = [...task.tools, ...Object.values(task.distractors ?? {}).flat()];
    const shown = names.flatMap((name) => {
      const tool = catalog.get(name);
      return tool ? [tool.name, tool.description, ...Object.keys(tool.parameters.properties)] : [];
    });
    return [task.request, JSON.stringify([task.calls, task.facts]), ...shown].join("\n");
  });
  // The words of the protocol are nobody's new name.
  return namingWords(texts, pieces, rare, [PARAACT_SYSTEM, EAE_SYSTEM, ETE_SYSTEM]);
}

/** Every string of a value, and its keys. */
function mapped(value: Json, word: (text: string) => string): Json {
  if (typeof value === "string") return word(value);
  if (Array.isArray(value)) return value.map((inner) => mapped(inner, word));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [word(key), mapped(inner, word)]));
}

/** Keys of a trajectory below which keys are a tool's, not the record's own. */
const TOOLS_OWN = ["arguments", "body"];

/** Keys of a trajectory whose values are its own words. */
const RECORDS_OWN = [
  "kind",
  "planSlot",
  "planEvent",
  "outcome",
  "fault",
  "failed",
  "code",
  "end",
  "paradigm",
  "policy",
];

/** Every string of a record that a tool or the policy gave it, but no key and no word of its own. */
function mappedRecord(value: Json, word: (text: string) => string): Json {
  if (Array.isArray(value)) return value.map((inner) => mappedRecord(inner, word));
  if (value === null || typeof value !== "object") return mapped(value, word);
  return Object.fromEntries(
    Object.entries(value).map(([key, inner]) => [
      key,
      RECORDS_OWN.includes(key) ? inner : (TOOLS_OWN.includes(key) ? mapped : mappedRecord)(inner, word),
    ]),
  );
}

/** Without lengths and patterns: they are of the old names, and the world checks them there. */
function schemaUnder(schema: JsonSchema, word: (text: string) => string): JsonSchema {
  const { minLength: _, maxLength: __, pattern: ___, ...rest } = schema;
  const { description, properties, required, items, enum: values, const: only } = rest;
  return {
    ...rest,
    ...(description === undefined ? {} : { description: word(description) }),
    ...(properties === undefined
      ? {}
      : {
          properties: Object.fromEntries(
            Object.entries(properties).map(([key, inner]) => [word(key), schemaUnder(inner, word)]),
          ),
        }),
    ...(required === undefined ? {} : { required: required.map(word) }),
    ...(items === undefined ? {} : { items: schemaUnder(items, word) }),
    ...(values === undefined ? {} : { enum: values.map((value) => mapped(value, word)) }),
    ...(only === undefined ? {} : { const: mapped(only, word) }),
  };
}

/** One prompt's world under other names. A pure function of its words, share and seed. */
export class RenamedWorld {
  readonly #naming: Naming;
  /** By the tool's own name, so that all rollouts of the prompt see the same objects; and back. */
  readonly #shown = new Map<string, Tool>();
  readonly #own = new Map<string, Tool>();

  constructor(words: NamingWords, share: number, seed: number) {
    this.#naming = new Naming(words, share, seed);
  }

  readonly #to = (text: string) => this.#naming.to(text);
  readonly #back = (text: string) => this.#naming.back(text);

  request(text: string): string {
    return this.#to(text);
  }

  environment(inner: Environment): Environment {
    return {
      tool: (name) => {
        const tool = this.#own.get(name) ?? inner.tool(this.#back(name));
        return tool && this.#tool(tool);
      },
      search: async (query, k) => {
        const found = await inner.search(this.#back(query), k);
        return { ...found, tools: found.tools.map((tool) => this.#tool(tool)) };
      },
      call: async (tool, args) => {
        const own = this.#own.get(tool.name) ?? tool;
        const result = await inner.call(own, mapped(args, this.#back) as typeof args);
        return { ...result, body: mapped(result.body, this.#to) };
      },
    };
  }

  /** An episode in the world's own names, for scoring. The sampled tokens, which are in the new ones, are left out. */
  original(trajectory: Trajectory): Trajectory {
    const { turns, ...rest } = trajectory;
    const bare = { ...rest, turns: turns.map(({ tokens: _, ...turn }) => turn) };
    return mappedRecord(bare as unknown as Json, this.#back) as unknown as Trajectory;
  }

  #tool(tool: Tool): Tool {
    const known = this.#shown.get(tool.name);
    if (known) return known;
    const shown: Tool = {
      ...tool,
      name: this.#to(tool.name),
      description: this.#to(tool.description),
      parameters: schemaUnder(tool.parameters, this.#to) as Tool["parameters"],
      places: Object.fromEntries(Object.entries(tool.places).map(([key, place]) => [this.#to(key), place])),
    };
    this.#shown.set(tool.name, shown);
    this.#own.set(shown.name, tool);
    return shown;
  }
}
