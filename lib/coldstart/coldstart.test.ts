import { afterAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { encodeConversation } from "../agents/chat.ts";
import { type ConstraintOptions, replyConstraint } from "../agents/constraint.ts";
import { readValues, requestOf } from "../agents/local.ts";
import { type Paradigm, runParadigm } from "../agents/paradigms.ts";
import { randomPolicy } from "../agents/random.ts";
import { retrievalPolicy } from "../agents/retrieval.ts";
import { scriptedPolicy } from "../agents/scripted.ts";
import { judgeTrajectory, TaskWorlds } from "../bench/worlds.ts";
import { trainTokenizer } from "../model/bpe.ts";
import { environment } from "../paraact/environment.ts";
import { PAPER_LIMITS } from "../paraact/episode.ts";
import { PARAACT_SYSTEM_SHORT } from "../paraact/prompt.ts";
import { TAG_TOKENS } from "../paraact/tags.ts";
import type { Message, Policy } from "../paraact/types.ts";
import { taskReference } from "../rewards/reference.ts";
import { scoreTrajectory } from "../rewards/score.ts";
import { generateTasks } from "../toolenv/tasks.ts";
import { fiveProviders } from "../toolenv/testdata/providers.ts";
import { World } from "../toolenv/world.ts";
import { exportDemonstrations } from "./export.ts";
import { verify } from "./verify.ts";
import { type DemonstrationOptions, writeDemonstrations } from "./write.ts";

// Worlds and tasks are really made; a busy machine takes its time.
setDefaultTimeout(120_000);
const { dir, catalog, remove } = await fiveProviders("coldstart");
afterAll(remove);
const retriever = catalog.bm25();
const worlds = new TaskWorlds(catalog);
const tasks = [
  ...generateTasks(catalog, new World(catalog, 1), { split: "train", seed: 3, count: 24, faults: 0.3, retriever }),
];

async function play(policy: Policy, paradigm: Paradigm) {
  return Promise.all(
    tasks.map(async (task) => {
      const session = worlds.open(task, 5);
      const trajectory = await runParadigm(paradigm, {
        task,
        policy,
        seed: 5,
        temperature: 0,
        settings: {},
        open: () => environment({ catalog, retriever, session }),
        id: task.id,
      });
      const verdicts = judgeTrajectory(task, trajectory, session);
      return { task, trajectory, verdicts, rewards: scoreTrajectory(trajectory, taskReference(task, verdicts)) };
    }),
  );
}
const mean = (values: number[]): number => values.reduce((a, b) => a + b, 0) / values.length;
const won = (r: Awaited<ReturnType<typeof play>>): number =>
  mean(r.map(({ verdicts: v }) => (v.quality + v.faithfulness + v.utility === 3 ? 1 : 0)));

const scripted = {
  paraact: await play(scriptedPolicy("paraact", tasks, { catalog }), "paraact"),
  eae: await play(scriptedPolicy("eae", tasks, { catalog }), "eae"),
  ete: await play(scriptedPolicy("ete", tasks, { catalog }), "ete"),
};

describe("scripted solver", () => {
  test("ParaAct: the full reward on all three channels, faults met and recovered", () => {
    for (const { task, rewards } of scripted.paraact) {
      expect({ id: task.id, trajectory: rewards.trajectory, phase: rewards.phase, format: rewards.format }).toEqual({
        id: task.id,
        trajectory: 2,
        phase: 0.5,
        format: 1,
      });
    }
    expect(scripted.paraact.some((r) => r.trajectory.turns.some((t) => t.calls.some((c) => c.fault)))).toBe(true);
  });

  test("EaE solves them too, in more turns and more time; ETE only what one retrieval shows", () => {
    expect(won(scripted.eae)).toBe(1);
    const turns = (p: keyof typeof scripted): number => mean(scripted[p].map((r) => r.trajectory.turns.length));
    const time = (p: keyof typeof scripted): number => mean(scripted[p].map((r) => r.trajectory.makespanMs));
    expect(turns("eae")).toBeGreaterThan(turns("paraact"));
    expect(time("eae")).toBeGreaterThan(time("paraact"));
    for (const { trajectory, task, verdicts } of scripted.ete) {
      const shown = new Set(trajectory.opening?.searches.flatMap((s) => s.retrieved));
      expect(verdicts.quality).toBe(task.tools.every((t) => shown.has(t)) ? 1 : 0);
      expect(trajectory.turns.every((t) => t.kind !== "search")).toBe(true);
    }
  });

  test("values that only a response gives are read from it: where the response lacks them, the call is not made", async () => {
    const task = tasks.find((t) => t.shape === "chain")!;
    const session = worlds.open(task, 5);
    const inner = environment({ catalog, retriever, session });
    const source = task.edges.find((e) => e.kind === "hard")!;
    const hidden = task.calls.find((c) => c.id === source.from)!.tool;
    const trajectory = await runParadigm("paraact", {
      task,
      policy: scriptedPolicy("paraact", tasks, { catalog }),
      seed: 5,
      temperature: 0,
      settings: {},
      open: () => ({
        ...inner,
        async call(tool, args) {
          const result = await inner.call(tool, args);
          return tool.name === hidden ? { ...result, body: {} } : result;
        },
      }),
      id: "hidden",
    });
    const target = task.calls.find((c) => c.id === source.to)!.tool;
    expect(trajectory.turns.flatMap((t) => t.calls).some((c) => c.call?.name === target)).toBe(false);
  });
});

test("the baselines end their episodes without an error, far below the solver", async () => {
  for (const policy of [randomPolicy(1), retrievalPolicy()]) {
    for (const paradigm of ["paraact", "eae"] as const) {
      const results = await play(policy, paradigm);
      expect(results.every((r) => r.trajectory.end === "answered")).toBe(true);
      expect(results.every((r) => r.trajectory.turns.every((t) => t.findings.length === 0))).toBe(true);
      expect(won(results)).toBeLessThan(0.3);
    }
  }
});

const settings = { system: PARAACT_SYSTEM_SHORT, schemaStyle: "compact" as const, limits: PAPER_LIMITS };
const base: DemonstrationOptions = { tasks, catalog, retriever, open: (t, s) => worlds.open(t, s), seed: 1, settings };
const many = await writeDemonstrations({ ...base, perTask: 6, roles: { detours: 0.7 } });

describe("cold start", () => {
  test("kept and dropped add up, every detour occurs, and the same options give the same bytes", async () => {
    const { report, demonstrations } = many;
    expect(report.kept + Object.values(report.dropped).reduce((a, b) => a + b, 0)).toBe(report.played);
    expect(report.kept).toBe(demonstrations.length);
    expect(report.kept / report.played).toBeGreaterThan(0.9);
    for (const count of Object.values(report.detours)) expect(count).toBeGreaterThan(0);
    const again = await writeDemonstrations({ ...base, perTask: 6, roles: { detours: 0.7 } });
    expect(JSON.stringify(again)).toBe(JSON.stringify(many));
  });

  test("detours are what they are called", () => {
    const of = (detour: string) => many.demonstrations.filter((d) => d.detour === detour);
    const kinds = (d: (typeof many.demonstrations)[number]) => d.trajectory.turns.map((t) => t.kind);
    for (const d of of("miss")) expect(kinds(d).filter((k) => k === "search").length).toBeGreaterThan(0);
    expect(of("miss").some((d) => kinds(d)[0] === "search" && kinds(d)[1] === "search")).toBe(true);
    for (const d of of("revise")) expect(d.trajectory.turns.some((t) => t.planEvent === "revise")).toBe(true);
    for (const d of of("alternate")) expect(kinds(d).join(" ")).toMatch(/call( call)* (search|call)/);
    expect(of("slip").some((d) => d.trajectory.turns.some((t) => t.calls.some((c) => c.outcome === "invalid")))).toBe(
      true,
    );
  });

  test("wording varies", () => {
    const openings = new Set(many.demonstrations.map((d) => d.messages[2]!.content.split("</think>")[0]));
    expect(openings.size).toBeGreaterThan(many.demonstrations.length / 6);
  });

  test("variants: a single agent takes no detour; without recovery nothing failed on the way; EaE and ETE write no plan", async () => {
    const single = await writeDemonstrations({ ...base, roles: { mode: "single", detours: 1 } });
    expect(single.report.detours.none).toBe(single.report.kept);
    const smooth = await writeDemonstrations({ ...base, recovery: false });
    expect(smooth.report.recovered).toBe(0);
    expect(
      smooth.demonstrations.flatMap((d) => d.trajectory.turns.flatMap((t) => t.calls)).every((c) => c.outcome === "ok"),
    ).toBe(true);
    for (const paradigm of ["eae", "ete"] as const) {
      const flat = await writeDemonstrations({ ...base, paradigm });
      expect(flat.report.kept).toBeGreaterThan(0);
      for (const { trajectory } of flat.demonstrations) {
        for (const t of trajectory.turns) expect(t.searches.length + t.calls.length).toBeLessThanOrEqual(1);
        expect(trajectory.turns.some((t) => t.plan)).toBe(false);
      }
    }
  });

  test("a model may play instead of the roles; what it gets wrong is dropped", async () => {
    const good = await writeDemonstrations({ ...base, player: scriptedPolicy("paraact", tasks, { catalog }) });
    expect(good.report.kept).toBeGreaterThan(tasks.length * 0.9);
    const bad = await writeDemonstrations({ ...base, player: randomPolicy(1) });
    expect(bad.report.kept / bad.report.played).toBeLessThan(0.3);
    expect(Object.values(bad.report.dropped).reduce((a, b) => a + b, 0)).toBe(bad.report.played - bad.report.kept);
  });

  test("the verifier finds what is spoilt", () => {
    const { task, trajectory, detour } = many.demonstrations.find(
      (d) => d.detour === "none" && d.task.edges.length > 0,
    )!;
    const verdicts = trajectory.verdicts!;
    const check = (changed: Partial<typeof trajectory>) => {
      const t = { ...trajectory, ...changed };
      return (
        verify({ task, trajectory: t, verdicts, rewards: scoreTrajectory(t, taskReference(task, verdicts)), detour })
          ?.check ?? null
      );
    };
    expect(check({})).toBeNull();
    expect(check({ end: "turn_limit" })).toBe("format");
    const calls = trajectory.turns.filter((t) => t.kind === "call");
    expect(check({ turns: trajectory.turns.filter((t) => t !== calls.at(-1)) })).toBe("execution");
    const blind = trajectory.turns.map((t) => ({ ...t, searches: t.searches.map((s) => ({ ...s, retrieved: [] })) }));
    expect(check({ turns: blind })).toBe("grounding");
    const twice = trajectory.turns.flatMap((t) => (t === calls.at(-1) ? [t, t, t] : [t]));
    expect(check({ turns: twice })).toBe("minimality");
    const wrong = { ...verdicts, quality: 0 as const };
    const rewards = scoreTrajectory(trajectory, taskReference(task, verdicts));
    expect(verify({ task, trajectory, verdicts: wrong, rewards, detour })?.check).toBe("answer");
  });

  /** Replays demonstrations and holds each reply, token by token, against the constraint that the loop's request gives. Returns how many there were. */
  async function permitted(
    demonstrations: typeof many.demonstrations,
    more: (messages: readonly Message[]) => Partial<ConstraintOptions>,
  ): Promise<number> {
    const texts = demonstrations.flatMap((d) => d.messages.map((m) => m.content));
    const tokenizer = await trainTokenizer(texts, { vocabSize: 1024, tags: [...TAG_TOKENS] });
    let checked = 0;
    const reader = (replies: string[]): Policy => ({
      name: "replay",
      async reply(request) {
        const text = replies[request.messages.filter((m) => m.role === "assistant").length]!;
        const { ids, actionMask } = encodeConversation([{ role: "assistant", content: text }], tokenizer);
        const constraint = replyConstraint(tokenizer, {
          protocol: "paraact",
          tools: request.toolsInView,
          stopIds: [tokenizer.eosId!],
          slots: request.planSlots!,
          ready: request.readyTools!,
          done: request.doneOccurrences!,
          ...more(request.messages),
        });
        for (const [k, id] of ids.entries()) if (actionMask[k] === 1) constraint.accept(id);
        checked++;
        return { text, finish: "stop", usage: { promptTokens: 0, completionTokens: 0, estimated: true } };
      },
    });
    for (const { trajectory, task, detour } of demonstrations) {
      if (detour === "slip") continue;
      const session = worlds.open(task, trajectory.seed);
      const again = await runParadigm("paraact", {
        task,
        policy: reader(trajectory.turns.map((t) => t.reply)),
        seed: trajectory.seed,
        temperature: 0,
        settings,
        open: () => environment({ catalog, retriever, session }),
        id: task.id,
      });
      expect(again.error).toBeNull();
      expect(again.end).toBe("answered");
    }
    return checked;
  }

  test("every demonstration without a slip (a missing argument) is permitted, token by token, by the constraint that decoding will use", async () => {
    expect(await permitted(many.demonstrations, () => ({}))).toBeGreaterThan(300);
  });

  test("brief ones also where arguments and answers are whole values", async () => {
    const brief = await writeDemonstrations({ ...base, perTask: 2, roles: { detours: 0.2, wording: "brief" } });
    const whole = (messages: readonly Message[]) => ({
      whole: { request: requestOf(messages), read: readValues(messages) },
    });
    expect(await permitted(brief.demonstrations, whole)).toBeGreaterThan(50);
  });

  test("exports: ShareGPT and OpenAI messages hold every message", () => {
    const demos = many.demonstrations.slice(0, 3);
    const read = (name: string): Record<string, unknown>[] =>
      readFileSync(join(dir, name), "utf8")
        .trim()
        .split("\n")
        .map((l) => JSON.parse(l) as Record<string, unknown>);
    exportDemonstrations(join(dir, "s.jsonl"), demos, "sharegpt");
    exportDemonstrations(join(dir, "o.jsonl"), demos, "openai");
    expect(read("s.jsonl").map((d) => (d.conversations as { value: string }[]).map((c) => c.value))).toEqual(
      demos.map((d) => d.messages.slice(1).map((m) => m.content)),
    );
    expect(read("o.jsonl").map((d) => (d.messages as { content: string }[]).map((m) => m.content))).toEqual(
      demos.map((d) => d.messages.map((m) => m.content)),
    );
  });
});
