/** The replies of ParaAct, EaE and ETE as states (method.md section 2). */
import type { Tool } from "../../catalog/types.ts";
import type { PlanSlot } from "../../paraact/types.ts";
import {
  type CopySource,
  choice,
  ended,
  lazy,
  literal,
  type Next,
  optional,
  type State,
  special,
  text,
} from "./automaton.ts";
import { type Lexicon, words } from "./extract.ts";
import { type FieldSource, fields } from "./fields.ts";
import { freeString, type JsonGrammar, members } from "./json.ts";
import { executionPlan, field, optionalSubgoals, type PlanLimits } from "./plan.ts";
import { plainText } from "./text.ts";
import type { TokenTrie } from "./trie.ts";

export interface ReplyLimits extends PlanLimits {
  /** Characters of a think block, a query, a slot or subgoal, an answer, a string argument. */
  think: number;
  query: number;
  slot: number;
  answer: number;
  string: number;
  /** Slots and subgoals of a plan, searches or calls of a turn without a plan. */
  slots: number;
  actions: number;
  /** Entries of an array argument, and the depth of values whose schema says nothing. */
  entries: number;
  depth: number;
}

export const defaultLimits: ReplyLimits = {
  think: 400,
  query: 160,
  slot: 80,
  answer: 2400,
  string: 200,
  slots: 6,
  actions: 8,
  entries: 6,
  depth: 2,
  tools: 6,
  dependencies: 8,
  occurrences: 10,
  repeats: 8,
};

export interface ReplyOptions {
  trie: TokenTrie;
  specials: ReadonlyMap<string, number>;
  /** Ids that end the turn. */
  stopIds: readonly number[];
  protocol: "paraact" | "eae" | "ete";
  tools: readonly Tool[];
  /** ParaAct: what the controller says of a plan before searches and before calls; both optional by default. */
  slots: { search: PlanSlot; call: PlanSlot };
  /** ParaAct: tools of the live plan's ready occurrences, which calls without a new plan are then held to; null: any tool in view. */
  ready: readonly string[] | null;
  /** ParaAct: occurrences of the live plan that have succeeded. */
  done: readonly string[];
  copy: CopySource | null;
  /** Numbers are copied as strings are, and answers are made of these words. */
  extract: Lexicon | null;
  /** Arguments are these whole values, and answers labels and values of these. */
  whole: { values: readonly string[]; answer: FieldSource } | null;
  limits: ReplyLimits;
}

/** The start state of a reply. */
export function replyGrammar(o: ReplyOptions): State {
  const { limits } = o;
  const g: JsonGrammar = {
    trie: o.trie,
    limits: { string: limits.string, entries: limits.entries, depth: limits.depth },
    copy: o.copy,
    extract: o.extract !== null,
    whole: o.whole?.values ?? null,
  };
  const byName = new Map(o.tools.map((t) => [t.name, t]));

  /** A tag is its own token where the vocabulary has it, else its characters. */
  function tag(name: string, next: Next): State {
    const id = o.specials.get(name);
    return id === undefined ? literal(name, next) : special([id], next);
  }
  /** Up to two line breaks between blocks. */
  function gap(next: Next): Next {
    return lazy(`g${next.key}`, () =>
      optional(
        "\n",
        lazy(`h${next.key}`, () => optional("\n", next)),
      ),
    );
  }
  function block(name: string, limit: number, next: Next): State {
    const body = lazy(`b.${name}${next.key}`, () =>
      text(
        o.trie,
        plainText,
        limit,
        lazy(`b/${name}${next.key}`, () => tag(`</${name}>`, next)),
      ),
    );
    return tag(
      `<${name}>`,
      lazy(`g1${body.key}`, () => optional("\n", body)),
    );
  }
  const stop = special(o.stopIds, ended);
  function answer(): State {
    const { extract } = o;
    const source = o.whole?.answer;
    if (source)
      return tag(
        "<answer>",
        lazy("b.fields", () =>
          fields(
            source,
            limits.answer,
            lazy("b/fields", () => tag("</answer>", gap(stop))),
          ),
        ),
      );
    if (!extract) return block("answer", limits.answer, gap(stop));
    const end = lazy("b/extract", () => tag("</answer>", gap(stop)));
    return tag(
      "<answer>",
      lazy("b.extract", () => words(extract, limits.answer, end)),
    );
  }

  /** `min` to `max` blocks, then the end of the turn. */
  function repeat(id: string, min: number, max: number, one: (next: Next) => State): State {
    const from = (n: number): Next =>
      lazy(`${id}${n}/${min}-${max}`, () => {
        const options: State[] = [];
        if (n >= min) options.push(stop);
        if (n < max) options.push(one(gap(from(n + 1))));
        return choice(options);
      });
    return from(0).state;
  }
  const search = (next: Next): State => block("search_tool", limits.query, next);

  function call(names: readonly string[], then: (name: string) => Next): State {
    const open = lazy(`c.open${names.join(",")}`, () =>
      literal(
        "{",
        lazy(`c.n${names.join(",")}`, () =>
          field(
            "name",
            lazy(`c.name${names.join(",")}`, () =>
              choice([...new Set(names)].map((n) => literal(JSON.stringify(n), callArguments(n, then(n))))),
            ),
          ),
        ),
      ),
    );
    return tag(
      "<tool_call>",
      lazy(`g1${open.key}`, () => optional("\n", open)),
    );
  }
  function callArguments(name: string, then: Next): Next {
    const close = lazy(`c.close;${then.key}`, () =>
      literal(
        "}",
        lazy(`c.tag;${then.key}`, () =>
          optional(
            "\n",
            lazy(`c./;${then.key}`, () => tag("</tool_call>", then)),
          ),
        ),
      ),
    );
    const body = lazy(`c.body.${name};${then.key}`, () => members(g, byName.get(name)!.parameters, close));
    return lazy(`c.args.${name};${then.key}`, () =>
      literal(
        ",",
        lazy(`c.a1.${name};${then.key}`, () =>
          optional(
            " ",
            lazy(`c.a2.${name};${then.key}`, () => field("arguments", body)),
          ),
        ),
      ),
    );
  }
  /** One call of each of these tools, in any order. */
  function callsOf(names: readonly string[]): Next {
    return lazy(`cs${names.join(",")}`, () => {
      if (names.length === 0) return stop;
      return call(names, (n) => {
        const at = names.indexOf(n);
        return gap(callsOf(names.filter((_, i) => i !== at)));
      });
    });
  }
  /** One to `max` calls of any of these tools. */
  function anyCalls(names: readonly string[], max: number, n = 0): Next {
    return lazy(`ca${max}/${n}`, () => {
      const options: State[] = [];
      if (n > 0) options.push(stop);
      if (n < max) options.push(call(names, () => gap(anyCalls(names, max, n + 1))));
      return choice(options);
    });
  }

  function slotPlan(): State {
    const item = (_: number, n: Next): State => freeString(g, limits.slot, n);
    // One search a slot: the list's end knows how many there were.
    const slots = (n: number): Next =>
      lazy(`sl${n}`, () => {
        const done = lazy(`sl}${n}`, () =>
          literal("}", closePlan(gap(lazy(`se${n}`, () => repeat(`s${n}.`, n, n, search))))),
        );
        const options: State[] = [];
        if (n > 0) options.push(literal("]", done));
        if (n < limits.slots) {
          const one = lazy(`sl1${n}`, () => item(n, slots(n + 1)));
          options.push(
            n === 0
              ? one.state
              : literal(
                  ",",
                  lazy(`sl,${n}`, () => optional(" ", one)),
                ),
          );
        }
        return choice(options);
      });
    return field(
      "capacity_slots",
      lazy("sl[", () => literal("[", slots(0))),
    );
  }
  function closePlan(next: Next): Next {
    return lazy(`pc;${next.key}`, () =>
      optional(
        "\n",
        lazy(`p/;${next.key}`, () => tag("</plan>", next)),
      ),
    );
  }
  function plan(kinds: { search: boolean; call: boolean }): State {
    const key = `${kinds.search}${kinds.call}`;
    const body = lazy(`pb${key}`, () => {
      const options: State[] = [];
      if (kinds.search) options.push(slotPlan());
      if (kinds.call)
        options.push(executionPlan([...byName.keys()], limits, o.done, (layer) => closePlan(gap(callsOf(layer)))));
      return choice(options);
    });
    const open = lazy(`p{${key}`, () =>
      literal(
        "{",
        lazy(`p0${key}`, () => optionalSubgoals(limits.slots, (limit, n) => freeString(g, limit, n), body)),
      ),
    );
    return tag(
      "<plan>",
      lazy(`g1${open.key}`, () => optional("\n", open)),
    );
  }

  function actions(): State {
    const options: State[] = [answer()];
    const names = [...byName.keys()];
    if (o.protocol === "paraact") {
      const withPlan = {
        search: o.slots.search !== "forbidden",
        call: o.slots.call !== "forbidden" && names.length > 0,
      };
      if (withPlan.search || withPlan.call) options.push(plan(withPlan));
      if (o.slots.search !== "required") options.push(repeat("s", 1, limits.actions, search));
      if (o.slots.call !== "required" && names.length > 0) {
        const ready = o.ready?.filter((n) => byName.has(n));
        if (!ready) options.push(anyCalls(names, limits.actions).state);
        else if (ready.length > 0) options.push(callsOf(ready).state);
      }
    } else {
      if (o.protocol === "eae") options.push(repeat("s", 1, 1, search));
      if (names.length > 0) options.push(anyCalls(names, 1).state);
    }
    return choice(options);
  }
  return block("think", limits.think, gap(lazy("actions", actions)));
}
