import { afterAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ConfigError, loadExperiment } from "./load.ts";
import { editDistance, nearest } from "./nearest.ts";

const dir = mkdtempSync(join(tmpdir(), "paraagent-config-"));
afterAll(() => rmSync(dir, { recursive: true }));
const BASE = `name: demo
tasks:
  train: { count: 10 }
  heldout: { count: 5 }
stages:
  coldstart: {}
  sft: { lr: 0.001, warmup: 0.1 }
sizes:
  small:
    tasks: { train: { count: 2 } }
`;
function file(name: string, text: string): string {
  const path = join(dir, name);
  writeFileSync(path, text);
  return path;
}
function failure(run: () => unknown): string {
  try {
    run();
  } catch (error) {
    expect(error).toBeInstanceOf(ConfigError);
    return (error as Error).message;
  }
  throw new Error("it was accepted");
}
const base = file("base.yaml", BASE);
const only = (sets: string[] = [], path = base) => loadExperiment(path, sets)[0]!.experiment;

describe("loading", () => {
  test("defaults are filled in", () => {
    expect(only().agent.k).toBe(3);
    expect(only().stages.sft?.epochs).toBe(3);
  });
  test("--set overrides a nested key and parses its value as YAML", () => {
    expect(only(["tasks.train.shapes={single: 2}"]).tasks.train.shapes).toEqual({ single: 2 } as never);
    expect(only(["agent.k=5"]).agent.k).toBe(5);
  });
  test("size chooses a set of overrides, and --set wins over it", () => {
    expect(only(["size=small"]).tasks.train.count).toBe(2);
    expect(only(["size=small", "tasks.train.count=7"]).tasks.train.count).toBe(7);
  });
  test("extends builds on another file", () => {
    const child = file("child.yaml", "extends: ./base.yaml\nname: child\nagent: { k: 4 }\n");
    expect(only([], child).name).toBe("child");
    expect(only([], child).tasks.train.count).toBe(10);
    expect(only([], child).agent.k).toBe(4);
  });
  test("a matrix is cells × axes × seeds", () => {
    const grid = file(
      "grid.yaml",
      `extends: ./base.yaml
name: grid
matrix:
  cells: { a: { agent: { k: 1 } }, b: { agent: { k: 5 } } }
  axes: { agent.maxTurns: [2, 4] }
  seeds: [1, 2, 3]
`,
    );
    const all = loadExperiment(grid);
    expect(all.length).toBe(12);
    expect(new Set(all.map((l) => l.cell))).toEqual(
      new Set(["a,maxTurns=2", "a,maxTurns=4", "b,maxTurns=2", "b,maxTurns=4"]),
    );
    expect(
      all
        .filter((l) => l.cell === "b,maxTurns=4")
        .map((l) => [l.experiment.agent.k, l.experiment.agent.maxTurns, l.experiment.seed]),
    ).toEqual([
      [5, 4, 1],
      [5, 4, 2],
      [5, 4, 3],
    ]);
    expect(loadExperiment(grid, ["seed=9"]).map((l) => l.experiment.seed)).toEqual([9, 9, 9, 9]);
  });
});

describe("errors name the place and the way out", () => {
  test("an unknown key: file, line, column, nearest key", () => {
    const path = file("typo.yaml", BASE.replace("heldout:", "heldoutt:"));
    const message = failure(() => loadExperiment(path));
    expect(message).toMatch(/typo\.yaml:4:3: unknown key "heldoutt" under tasks; did you mean "heldout"\?/);
  });
  test("a key of an extended file is placed there", () => {
    file("bad-parent.yaml", `${BASE}agent:\n  kk: 3\n`);
    const child = file("of-bad.yaml", "extends: ./bad-parent.yaml\nname: child\n");
    expect(failure(() => loadExperiment(child))).toMatch(
      /bad-parent\.yaml:\d+:3: unknown key "kk" under agent; did you mean "k"/,
    );
  });
  test("a wrong value: file, line, column, what was expected", () => {
    const path = file("value.yaml", BASE.replace("count: 10", "count: ten"));
    expect(failure(() => loadExperiment(path))).toMatch(/value\.yaml:3:19: tasks\.train\.count: .*expected number/i);
  });
  test("a wrong value from --set names the flag", () => {
    expect(failure(() => only(["agent.k=0"]))).toMatch(/^--set agent\.k=0: agent\.k: /);
    expect(failure(() => only(["agnt.k=1"]))).toMatch(/unknown key "agnt"; did you mean "agent"/);
  });
  test("a shape that does not exist", () => {
    expect(failure(() => only(["tasks.train.shapes={sngle: 1}"]))).toMatch(/sngle.*did you mean "single"/s);
  });
  test("a missing size lists the sizes", () => {
    expect(failure(() => only(["size=tiny"]))).toMatch(/no size "tiny".*small/);
  });
  test("broken YAML, a missing file, a circle of extends, a list", () => {
    expect(failure(() => loadExperiment(file("broken.yaml", "name: [a\n")))).toMatch(
      /broken\.yaml:\d+:\d+: not valid YAML/,
    );
    expect(failure(() => loadExperiment(join(dir, "nowhere.yaml")))).toMatch(/cannot be read.*exp list/);
    file("x.yaml", "extends: ./y.yaml\n");
    expect(failure(() => loadExperiment(file("y.yaml", "extends: ./x.yaml\n")))).toMatch(/goes in a circle/);
    expect(failure(() => loadExperiment(file("list.yaml", "- a\n")))).toMatch(/is a map of keys/);
  });
  test("settings that contradict each other", () => {
    expect(failure(() => only(["model.heads=3", "model.kvHeads=2"]))).toMatch(/multiple/);
    expect(failure(() => only(["stages.rl={steps: 1, lr: 1e-5, warmup: 0, prompts: 3, miniBatch: 2}"]))).toMatch(
      /multiple/,
    );
  });
  test("__proto__ is not a setting", () => {
    expect(failure(() => loadExperiment(file("proto.yaml", `${BASE}__proto__: { polluted: 1 }\n`)))).toMatch(
      /__proto__/,
    );
    expect(({} as { polluted?: number }).polluted).toBeUndefined();
  });
});

test("nearest words", () => {
  expect(editDistance("kitten", "sitting")).toBe(3);
  expect(editDistance("ab", "ba")).toBe(1);
  expect(nearest("tempratur", ["temperature", "template"])).toBe("temperature");
  expect(nearest("zzz", ["temperature"])).toBeNull();
});
