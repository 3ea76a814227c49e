import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TaskOutcome } from "../bench/types.ts";
import { RunIndex, type RunRecord } from "../runs/index-store.ts";
import { webApp } from "./app.tsx";

const root = mkdtempSync(join(tmpdir(), "paraagent-web-"));
afterAll(() => rmSync(root, { recursive: true }));

const hostile = `<script>alert(1)</script>\u202e"'&`;
const record: RunRecord = {
  id: "demo/s1-abc",
  experiment: "demo",
  cell: hostile,
  seed: 1,
  status: "done",
  error: null,
  created: "2026-01-02T03:04:05Z",
  finished: null,
  config: { name: hostile },
  environment: {},
  stages: [{ name: "sft", key: "k", elapsedMs: 1500, cached: false }],
  samples: [],
};
const outcome = (task: string, success: number): TaskOutcome => ({
  benchmark: "toolenv",
  group: "single",
  task,
  label: "after",
  trial: 0,
  success,
  scores: {},
  errors: {},
  turns: 3,
  toolCalls: 1,
  searches: 1,
  tokens: 50,
  makespanMs: 5,
  serialMs: 5,
  phases: 2,
  width: 1,
  faultsMet: 0,
  faultsRecovered: 0,
  end: "answered",
});

beforeAll(() => {
  const index = new RunIndex(root);
  mkdirSync(join(root, "demo/s1-abc"), { recursive: true });
  mkdirSync(join(root, "stages/sft-k"), { recursive: true });
  writeFileSync(
    join(root, "stages/sft-k/metrics.jsonl"),
    '{"stage":"sft","step":1,"time":0,"loss":3}\n{"stage":"sft","step":2,"time":1,"loss":2.5}\n{"stage":"sft","st',
  );
  index.put(record);
  index.putOutcomes(record.id, [outcome("a", 1), outcome("b", 0), outcome("c", 1)]);
  index.close();
});

const get = (path: string, host = "localhost:4173") => webApp(root).request(path, { headers: { host } });

describe("pages", () => {
  test("the list names the run and shows hostile text as text", async () => {
    const html = await (await get("/")).text();
    expect(html).toContain("/runs/demo/s1-abc");
    expect(html).not.toContain("<script>");
    expect(html).toContain("&lt;script&gt;");
  });
  test("a run shows its table with an interval, its curve, and leaves a half-written line out", async () => {
    const html = await (await get("/runs/demo/s1-abc")).text();
    expect(html).toMatch(/66\.7 \[/);
    expect(html).toContain("sft · loss");
    expect(html).toContain("1 broken metric lines");
    expect(html).not.toContain("<script>");
  });
  test("unknown runs and pages are 404, ids cannot leave the results folder", async () => {
    for (const path of ["/runs/demo/none", "/runs/..%2f..%2fetc/passwd", "/runs/demo/..%2f..%2f..", "/nope"]) {
      expect((await get(path)).status).toBe(404);
    }
  });
  test("only loopback names are answered, and a strict policy is sent", async () => {
    expect((await get("/", "evil.example")).status).toBe(403);
    const response = await get("/");
    expect(response.headers.get("content-security-policy")).toContain("default-src 'none'");
  });
  test("a deleted index is rebuilt from the run folders", async () => {
    writeFileSync(join(root, "demo/s1-abc/run.json"), JSON.stringify(record));
    rmSync(join(root, "index.sqlite"));
    rmSync(join(root, "index.sqlite-wal"), { force: true });
    rmSync(join(root, "index.sqlite-shm"), { force: true });
    expect(await (await get("/")).text()).toContain("demo/s1-abc");
  });
});
