/** What holds for every reply and every plan, not only for the ones somebody thought of. */
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import type { Json, JsonObject } from "../catalog/types.ts";
import { hash2 } from "../engine/random.ts";
import { canonicalJson, MAX_JSON_DEPTH, parseJson } from "./json.ts";
import { acceptedReply, parseReply, type Reply, structureScore } from "./parse.ts";
import { longestChains, misplaced, planGraph, readPlan } from "./plan.ts";
import { renderReply } from "./render.ts";
import { holdsTag, TAG_TOKENS } from "./tags.ts";
import type { ExecutionPlan } from "./types.ts";

// The same cases in every run.
fc.configureGlobal({ seed: 2026 });

const text = fc.oneof(
  fc.string({ unit: "binary", maxLength: 12 }),
  fc.constantFrom("a < b", "x\ny", "\\u003c", "<b>", "é", "{}", "</", "🙂"),
);
const word = fc.constantFrom("a", "b", "get_user", "list", "Send");
const value: fc.Arbitrary<Json> = fc.oneof(
  { depthSize: "small", maxDepth: 3 },
  fc.constantFrom<Json>(null, true, false, 0, 1.5, -7, 1e300, "", "<tool_call>", "</answer>", "<|im_end|>"),
  text,
  fc.letrec<{ node: Json }>((tie) => ({
    node: fc.oneof(
      { maxDepth: 3 },
      text,
      fc.array(tie("node"), { maxLength: 3 }),
      fc.dictionary(text, tie("node"), { maxKeys: 3 }),
    ),
  })).node,
);
const args = fc.dictionary(fc.oneof(word, text), value, { maxKeys: 3 }).map((o): JsonObject => ({ ...o }));
const subgoals = fc.option(
  fc.array(fc.record({ id: fc.oneof(word, fc.nat(9)), subgoal: word }), { minLength: 1, maxLength: 2 }),
  { nil: undefined },
);
const withGoals = <P extends object>(plan: fc.Arbitrary<P>) =>
  fc.tuple(plan, subgoals).map(([p, goals]) => (goals ? { ...p, subgoals: goals } : p));

/** A directed acyclic graph on n tools with its minimal layering, from a list of coins. */
interface Dag {
  n: number;
  edges: [number, number][];
}
const dag: fc.Arbitrary<Dag> = fc.integer({ min: 1, max: 7 }).chain((n) =>
  fc.array(fc.boolean(), { minLength: n * n, maxLength: n * n }).map((coins) => ({
    n,
    edges: coins.flatMap((on, i): [number, number][] =>
      on && Math.floor(i / n) < i % n ? [[Math.floor(i / n), i % n]] : [],
    ),
  })),
);
const name = (i: number): string => `tool_${i}`;
/** A plan that puts tool i into step layers[i]. */
function layered({ n, edges }: Dag, layers: number[]): ExecutionPlan {
  const tools = [...Array(n).keys()];
  const targets = tools.filter((i) => edges.some(([, to]) => to === i));
  return {
    kind: "execution",
    available_tools: tools.map(name),
    dependencies: targets.map((i) => ({
      from: edges.filter(([, to]) => to === i).map(([from]) => name(from)),
      to: name(i),
    })),
    execution_flow: [...new Set(layers)]
      .sort((a, b) => a - b)
      .map((layer, s) => ({
        step: s + 1,
        parallel: tools.filter((i) => layers[i] === layer).map(name),
      })),
  };
}
function minimalLayers({ n, edges }: Dag): number[] {
  const layers = new Array<number>(n).fill(1);
  for (const [from, to] of [...edges].sort((a, b) => a[0] - b[0]))
    layers[to] = Math.max(layers[to]!, layers[from]! + 1);
  return layers;
}

const reply: fc.Arbitrary<Reply> = fc.oneof(
  fc.record({
    kind: fc.constant("search" as const),
    think: text,
    plan: fc.option(
      withGoals(
        fc.record({
          kind: fc.constant("exploration" as const),
          capacity_slots: fc.array(word, { minLength: 1, maxLength: 3 }),
        }),
      ),
    ),
    searches: fc.array(word, { minLength: 1, maxLength: 3 }),
  }),
  fc.record({
    kind: fc.constant("call" as const),
    think: text,
    plan: fc.option(withGoals(dag.map((d) => layered(d, minimalLayers(d))))),
    calls: fc.array(fc.record({ name: word, arguments: args }), { minLength: 1, maxLength: 3 }),
  }),
  fc.record({ kind: fc.constant("answer" as const), think: text, answer: text }),
);

describe("parse(render(x)) = x", () => {
  test("for every reply", () => {
    fc.assert(
      fc.property(reply, (x) => {
        const parsed = parseReply(renderReply(x));
        expect(acceptedReply(parsed)).toEqual(x);
        expect(structureScore(parsed).score).toBe(1);
      }),
      { numRuns: 3000 },
    );
  });
  test("what JSON holds cannot forge a tag", () => {
    fc.assert(
      fc.property(args, (a) => {
        const written = renderReply({ kind: "call", think: "", plan: null, calls: [{ name: "a", arguments: a }] });
        expect(holdsTag(written.slice("<think></think><tool_call>".length, -"</tool_call>".length))).toBe(false);
      }),
      { numRuns: 1000 },
    );
  });
});

/** The tokens of a JSON text in sorted order, strings decoded: equal for texts that differ in white space, escapes and key order only. */
function jsonTokens(json: string): string[] {
  const tokens = json.match(/"(?:[^"\\]|\\.)*"|[^\s"{}[\]:,]+|[{}[\]:,]/gs) ?? [];
  return tokens
    .map((t) => (t.startsWith('"') ? `"${JSON.parse(t)}` : Number.isNaN(Number(t)) ? t : `${Number(t)}`))
    .sort();
}
/** A reply cut into its tags and what is between them, white space around blocks and inside JSON apart: independent of the parser. */
function essence(written: string): string[] {
  const pieces = written.split(/(<\/?(?:think|plan|search_tool|tool_call|answer)>)/);
  return pieces.flatMap((piece, i) => {
    const before = pieces[i - 1] ?? "";
    if (before === "<plan>" || before === "<tool_call>") return jsonTokens(piece);
    const inside = ["<think>", "<search_tool>", "<answer>"].includes(before);
    return inside || piece.trim() !== "" ? [piece] : [];
  });
}

/** Seeded damage to a reply: cuts, repeats, moves, insertions of tags and of what JSON is made of. */
function mutate(source: string, other: string, seed: number): string {
  const draw = (i: number, n: number): number => hash2(seed, i) % n;
  const bits = [
    ...TAG_TOKENS,
    '"',
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\\",
    "<",
    ">",
    "/",
    " ",
    "\n",
    "x",
    "1",
    "e999",
    "null",
    "\ud800",
    '"name":"a",',
    ',"arguments":{}',
  ];
  let t = source;
  const rounds = 1 + draw(0, 3);
  for (let r = 0; r < rounds; r++) {
    const k = 10 * (r + 1);
    const [a, b] = [draw(k, t.length + 1), draw(k + 1, t.length + 1)].sort((x, y) => x - y) as [number, number];
    const near = Math.min(b, a + draw(k + 2, 12));
    switch (draw(k + 3, 6)) {
      case 0:
        t = t.slice(0, a) + t.slice(near);
        break;
      case 1:
        t = t.slice(0, b) + t.slice(a);
        break;
      case 2:
        t = t.slice(0, a) + bits[draw(k + 4, bits.length)] + t.slice(a);
        break;
      case 3:
        t = t.slice(0, a) + other.slice(draw(k + 4, other.length));
        break;
      case 4:
        t = t.slice(0, a) + t.slice(near, b) + t.slice(a, near) + t.slice(b);
        break;
      default:
        t = t.slice(0, a) + bits[draw(k + 4, bits.length)] + t.slice(Math.min(t.length, a + 1));
    }
  }
  return t;
}

describe("100,000 mutated replies", () => {
  test("never make the parser throw, and it never accepts what the renderer could not have written", () => {
    const seeds = fc.sample(reply, { numRuns: 500, seed: 4 }).map(renderReply);
    let accepted = 0;
    const codes = new Set<string>();
    for (let i = 0; i < 100_000; i++) {
      const source = seeds[i % seeds.length]!;
      const mutated = mutate(source, seeds[(i * 7 + 1) % seeds.length]!, i);
      const parsed = parseReply(mutated);
      const read = acceptedReply(parsed);
      if ((read === null) !== parsed.findings.length > 0) throw new Error(`neither accepted nor explained: ${mutated}`);
      for (const finding of parsed.findings) {
        codes.add(finding.code);
        if (finding.at < 0 || finding.at > mutated.length) throw new Error(`finding outside the reply: ${mutated}`);
      }
      if (read === null) continue;
      accepted++;
      // toEqual on every one of them would dominate the run time.
      if (essence(renderReply(read)).join("\0") !== essence(mutated).join("\0"))
        throw new Error(`wrongly accepted: ${mutated}`);
    }
    expect(accepted).toBeGreaterThan(5000);
    expect(accepted).toBeLessThan(60_000);
    expect(codes.size).toBeGreaterThan(20);
  }, 300_000);
  test("random text neither", () => {
    const soup = fc
      .array(fc.oneof(fc.constantFrom(...TAG_TOKENS), text), { maxLength: 12 })
      .map((parts) => parts.join(""));
    fc.assert(
      fc.property(soup, (s) => void parseReply(s)),
      { numRuns: 3000 },
    );
  });
  test("long hostile text is read without a deep stack", () => {
    for (const unit of ["<think>", "<tool_call>", "[", '{"a":', "\\", '"', "</plan>"])
      for (const head of ["", "<think>t</think><tool_call>", '<think>t</think><tool_call>{"name":"']) {
        const parsed = parseReply(head + unit.repeat(20_000) + (head ? "</tool_call>" : ""));
        expect(parsed.findings.length).toBeGreaterThan(0);
      }
  });
});

describe("JSON", () => {
  test("is read as JSON.parse reads it", () => {
    fc.assert(
      fc.property(value, (v) => expect(parseJson(JSON.stringify(v, null, 1))).toEqual(JSON.parse(JSON.stringify(v)))),
      { numRuns: 1000 },
    );
  });
  test("and refused where JSON.parse refuses it", () => {
    fc.assert(
      fc.property(value, fc.nat(), (v, seed) => {
        const damaged = mutate(JSON.stringify(v), "x", seed);
        let valid = true;
        try {
          JSON.parse(damaged);
        } catch {
          valid = false;
        }
        if (!valid) expect(() => parseJson(damaged)).toThrow();
      }),
      { numRuns: 2000 },
    );
  });
  test("canonical text is the same for any order of keys", () => {
    fc.assert(
      fc.property(args, (a) =>
        expect(canonicalJson(a)).toBe(canonicalJson(Object.fromEntries(Object.entries(a).reverse()))),
      ),
    );
    expect(canonicalJson({ b: 1, a: [2, { d: 1, c: null }] })).toBe('{"a":[2,{"c":null,"d":1}],"b":1}');
    expect(() => parseJson("[".repeat(MAX_JSON_DEPTH) + "]".repeat(MAX_JSON_DEPTH))).not.toThrow();
  });
});

describe("layering", () => {
  test("any plan's minimal layering is accepted", () => {
    fc.assert(
      fc.property(dag, (d) => {
        const plan = layered(d, minimalLayers(d));
        const { graph, findings } = planGraph(plan);
        expect(findings).toEqual([]);
        expect(misplaced(graph.occurrences, graph.declared)).toEqual([]);
        const { kind: _, ...json } = plan;
        expect(readPlan(parseJson(JSON.stringify(json)), 0).findings).toEqual([]);
      }),
      { numRuns: 1000 },
    );
  });
  test("any strictly deeper or shallower one is not", () => {
    fc.assert(
      fc.property(
        dag,
        fc.array(fc.integer({ min: 1, max: 7 }), { minLength: 7, maxLength: 7 }),
        fc.nat(6),
        fc.boolean(),
        (d, steps, at, wild) => {
          const minimal = minimalLayers(d);
          // Either any steps at all, or the minimal ones with a single tool moved.
          const moved = minimal.map((step, i) => (i === at % d.n ? (steps[0] ?? 1) : step));
          const plan = layered(d, wild ? steps.slice(0, d.n) : moved);
          const stepOf = new Map(plan.execution_flow.flatMap((s) => s.parallel.map((tool) => [tool, s.step] as const)));
          const different = minimal.some((step, i) => step !== stepOf.get(name(i)));
          const occurrences = planGraph({ ...plan, dependencies: [] }).graph.occurrences;
          const edges = d.edges.map(([from, to]) => [`${name(from)}#1`, `${name(to)}#1`] as const);
          expect(misplaced(occurrences, edges).length > 0).toBe(different);
        },
      ),
      { numRuns: 3000 },
    );
  });
  test("the longest chain is the one found by trying all paths", () => {
    fc.assert(
      fc.property(dag, (d) => {
        const longest = (i: number): number =>
          1 + Math.max(0, ...d.edges.filter(([, to]) => to === i).map(([from]) => longest(from)));
        const chains = longestChains(
          [...Array(d.n).keys()].map(name),
          d.edges.map(([a, b]) => [name(a), name(b)] as const),
        );
        expect([...Array(d.n).keys()].map((i) => chains?.get(name(i)))).toEqual([...Array(d.n).keys()].map(longest));
      }),
      { numRuns: 300 },
    );
  });
});
