import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { appendFileSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { arms, compareTables } from "../runs/compare.ts";
import { RunIndex } from "../runs/index-store.ts";
import { csvTable } from "../runs/table.ts";
import { webApp } from "./app.tsx";
import { lineChart, smoothed, thinned } from "./chart.ts";
import { differences } from "./settings.ts";
import { HOSTILE, seedCatalog, seedResults } from "./testdata/seed.ts";

const root = mkdtempSync(join(tmpdir(), "paraagent-web-"));
const catalog = join(root, "catalog.sqlite");
let ids: string[] = [];
let app: ReturnType<typeof webApp>;
afterAll(() => rmSync(root, { recursive: true }));

beforeAll(async () => {
  [ids] = await Promise.all([
    seedResults(join(root, "results"), { runs: 8, each: 30, hostileBytes: 1_000_000 }),
    seedCatalog(catalog),
  ]);
  app = webApp(join(root, "results"), { catalog, watchMs: 5 });
});

const get = (path: string, headers: Record<string, string> = {}) =>
  app.request(path, { headers: { host: "localhost:4173", ...headers } });
const page = async (path: string): Promise<string> => {
  const response = await get(path);
  expect([path, response.status]).toEqual([path, 200]);
  return response.text();
};
const post = (path: string, form: Record<string, string>, headers: Record<string, string> = {}) =>
  app.request(path, {
    method: "POST",
    headers: { host: "localhost:4173", "content-type": "application/x-www-form-urlencoded", ...headers },
    body: new URLSearchParams(form).toString(),
  });
const tokenOf = async (path: string): Promise<string> =>
  /name="token" value="([^"]+)"/.exec(await page(path))?.[1] ?? "";
const count = (html: string, pattern: RegExp): number => [...html.matchAll(pattern)].length;

describe("trust", () => {
  test("hostile text of every page is text, its hidden marks are shown, and no page has anything inline", async () => {
    const hostileRun = `/runs/${ids[0]}`;
    for (const path of [
      "/",
      hostileRun,
      `${hostileRun}/trajectories/0?open=yes`,
      `/trajectories?run=${encodeURIComponent(ids[0]!)}`,
      `/compare?run=${ids[0]}&run=${ids[4]}`,
      `/pair?a=${ids[0]}:0&b=${ids[1]}:1`,
      `/runs/${ids[1]}/logs/run/slurm-1.out`,
      `/?q=${encodeURIComponent(HOSTILE)}`,
      `/trajectories?q=${encodeURIComponent(HOSTILE)}&label=${encodeURIComponent(HOSTILE)}`,
      `/catalog?q=${encodeURIComponent(HOSTILE)}&provider=${encodeURIComponent(HOSTILE)}`,
    ]) {
      const html = await page(path);
      expect(html).not.toContain("<script>");
      expect(html).not.toContain("<img");
      expect(html).not.toMatch(/ style=| on\w+="|<style/);
      expect(html.replace(/value="[^"]*"/g, "")).not.toMatch(/\u202e/);
    }
    const html = await page(`${hostileRun}/trajectories/0`);
    expect(html).toContain("&lt;script&gt;");
    expect(html).toContain("U+202E");
    expect(html.length).toBeGreaterThan(1_000_000);
  });
  test("a strict policy is sent, and only loopback and named hosts are answered", async () => {
    const policy = (await get("/")).headers.get("content-security-policy") ?? "";
    expect(policy).toContain("default-src 'none'");
    expect(policy).not.toContain("unsafe");
    expect((await app.request("/", { headers: { host: "evil.example" } })).status).toBe(403);
    expect((await app.request("/", { headers: { host: "" } })).status).toBe(403);
    const named = webApp(join(root, "results"), { hosts: ["box.lan"] });
    expect((await named.request("/", { headers: { host: "box.lan:80" } })).status).toBe(200);
  });
  test("ids cannot leave the results folder; what is unknown is 404", async () => {
    writeFileSync(join(root, "secret.log"), "secret");
    for (const path of [
      "/runs/quickstart/none",
      "/runs/..%2f..%2fetc/passwd",
      "/runs/quickstart/..%2f..%2f..",
      `/runs/${ids[1]}/logs/run/..%2f..%2f..%2fsecret.log`,
      `/runs/${ids[1]}/logs/..%2f..%2f/secret.log`,
      `/runs/${ids[1]}/trajectories/99999`,
      "/pair?a=..%2f..%2fetc:0&b=x",
      "/catalog/tools/none",
      "/nope",
    ])
      expect([path, (await get(path)).status]).toEqual([path, 404]);
  });
  test("a deletion and a call need this server's token and origin", async () => {
    const path = `/runs/${ids[7]}/delete`;
    const token = await tokenOf(path);
    expect((await post(path, {})).status).toBe(403);
    expect((await post(path, { token: "x".repeat(token.length) })).status).toBe(403);
    expect((await post(path, { token }, { origin: "http://evil.example" })).status).toBe(403);
    expect((await post(path, { token }, { "sec-fetch-site": "cross-site" })).status).toBe(403);
    expect(existsSync(join(root, "results", ids[7]!))).toBe(true);
    expect((await post("/catalog/tools/get_album", { seed: "1" })).status).toBe(403);
    const done = await post(path, { token }, { origin: "http://localhost:4173", "sec-fetch-site": "same-origin" });
    expect(done.status).toBe(303);
    expect(existsSync(join(root, "results", ids[7]!))).toBe(false);
    expect((await get(`/runs/${ids[7]}`)).status).toBe(404);
    expect((await get(`/runs/${ids[7]}/trajectories/1`)).status).toBe(404);
    expect(await page("/trajectories")).not.toContain(ids[7]!);
  });
});

describe("runs", () => {
  test("filters, orders and groups", async () => {
    expect(count(await page("/?experiment=faults"), /name="run"/g)).toBe(1);
    expect(count(await page("/?status=running"), /name="run"/g)).toBe(1);
    expect(count(await page("/?q=paradigms cell0"), /name="run"/g)).toBe(2);
    const grouped = await page("/?group=yes&sort=name");
    expect(count(grouped, /scope="rowgroup"/g)).toBe(4);
    const order = [...grouped.matchAll(/name="run" value="([^"]+)"/g)].map((m) => m[1]);
    expect(order).toEqual([...order].sort());
  });
  test("a run has its table with an interval, raw and smoothed curves, stages, log, and leaves a half-written line out", async () => {
    const html = await page(`/runs/${ids[0]}?smooth=0.9`);
    expect(html).toMatch(/\d \[\d/);
    expect(html).toContain("sft · loss: line chart");
    expect(html).toContain("rl · rewardTrajectory: line chart");
    expect(html).toContain("2 broken metric lines");
    expect(html).toContain(`data-events="/runs/${ids[0]}/events"`);
    const chart = /<svg[^>]*sft · loss.*?<\/svg>/s.exec(html)?.[0] ?? "";
    expect(count(chart, /stroke="var\(--c0\)"/g)).toBe(2);
    const every = await page(`/runs/${ids[1]}?charts=all`);
    expect(count(every, /<figure>/g)).toBe(13);
    expect(every).toContain("slurm-1.out");
    expect(await page(`/runs/${ids[1]}/logs/run/slurm-1.out`)).toContain("started");
  });
  test("settings are shown with where they differ from the parent", () => {
    const parent = { name: "a", stages: { rl: { lr: 1, steps: 2 } }, list: [1] };
    expect(differences({ name: "b", stages: { rl: { lr: 3, steps: 2 } }, list: [1], more: true }, parent)).toEqual([
      { key: "more", here: "true", there: null },
      { key: "stages.rl.lr", here: "3", there: "1" },
    ]);
  });
  test("a running run sends an event for each change, and an end", async () => {
    const [path, id] = [join(root, "results"), ids[0]!];
    const index = new RunIndex(path);
    const record = index.run(id)!;
    const response = await get(`/runs/${id}/events`);
    const reader = response.body!.getReader();
    let text = "";
    const until = async (pattern: RegExp) => {
      while (!pattern.test(text)) {
        const { value, done } = await reader.read();
        if (done) break;
        text += new TextDecoder().decode(value);
      }
      expect(text).toMatch(pattern);
      text = "";
    };
    await until(/event: change/);
    appendFileSync(
      join(path, "stages", `rl-${record.current!.key}`, "metrics.jsonl"),
      '\n{"stage":"rl","step":201,"time":1,"success":1}\n',
    );
    await until(/event: change/);
    index.put({ ...record, status: "done", current: null });
    await until(/event: end\ndata: done/);
    expect((await reader.read()).done).toBe(true);
    index.put(record);
    index.close();
  });
  test("a deleted index is rebuilt from the run folders, trajectories too", async () => {
    const copy = mkdtempSync(join(tmpdir(), "paraagent-web-"));
    const [id] = await seedResults(copy, { runs: 1, each: 5, hostileBytes: 100 });
    for (const end of ["", "-wal", "-shm"]) rmSync(join(copy, `index.sqlite${end}`), { force: true });
    const index = new RunIndex(copy);
    expect(index.run(id!)?.id).toBe(id!);
    expect(index.trajectories.list({}, { limit: 9, offset: 0 }).total).toBe(5);
    index.close();
    rmSync(copy, { recursive: true });
  });
});

describe("compare", () => {
  test("the page and the downloads have the numbers of bun run compare", async () => {
    const index = new RunIndex(join(root, "results"));
    const chosen = [ids[1]!, ids[5]!];
    const runs = index.runs().filter((r) => chosen.includes(r.id));
    const tables = compareTables(arms(runs.map((record) => ({ record, outcomes: index.outcomes(record.id) }))));
    const query = chosen.map((id) => `run=${id}`).join("&");
    const html = await page(`/compare?${query}&smooth=0.6`);
    for (const cell of tables.flatMap((t) => t.rows.map((r) => r[1]!))) expect(html).toContain(cell);
    expect(html).toContain("success with 95 % intervals");
    expect(html).toContain("rl · success: line chart over steps, 2 runs");
    const csv = await get(`/compare.csv?${query}`);
    expect(csv.headers.get("content-disposition")).toContain("attachment");
    expect(await csv.text()).toBe(`${tables.map(csvTable).join("\n\n")}\n`);
    expect(await page(`/compare.md?${query}`)).toContain("| arm |");
    expect(await page(`/compare.tex?${query}`)).toContain("\\begin{tabular}");
    index.close();
  });
  test("a run that is gone is said, not fatal", async () => {
    expect(await page(`/compare?run=${ids[1]}&run=demo/gone`)).toContain("Not there (any more): demo/gone");
  });
});

describe("trajectories", () => {
  const total = (html: string): number => {
    const text = /of ([\d,]+)<\/p>/.exec(html)?.[1] ?? (html.includes("No trajectory fits") ? "0" : "");
    return Number(text.replaceAll(",", ""));
  };
  test("filters narrow as they say", async () => {
    const index = new RunIndex(join(root, "results"));
    const all = index.trajectories.list({}, { limit: 1000, offset: 0 }).rows;
    const check = async (query: string, fits: (r: (typeof all)[number]) => boolean) =>
      expect([query, total(await page(`/trajectories?${query}`))]).toEqual([query, all.filter(fits).length]);
    await check("", () => true);
    await check("benchmark=toolenv&group=chain", (r) => r.group === "chain");
    await check("success=no", (r) => r.success === 0);
    await check("success=yes&paradigm=eae", (r) => r.success === 1 && r.paradigm === "eae");
    await check("fault=rate_limit", (r) => r.faults.includes("rate_limit"));
    await check("fault=none", (r) => r.faults === "");
    await check("channel=phase&min=0.5", (r) => (r.phase ?? -1) >= 0.5);
    await check("channel=format&max=0.9", (r) => (r.format ?? 9) <= 0.9);
    await check(`run=${encodeURIComponent(ids[2]!)}&label=before`, (r) => r.run === ids[2] && r.label === "before");
    await check("q=diamond customer", (r) => /diamond/.test(r.request) && /customer/.test(r.request));
    await check('q="* )(', () => true);
    await check("success=unmeasured", () => false);
    index.close();
  });
  test("one shows its time line, plan with states, rewards with reasons, and its failures are next to each other", async () => {
    const index = new RunIndex(join(root, "results"));
    const { rows } = index.trajectories.list({ group: "diamond" }, { limit: 2, offset: 0 });
    const failures = index.trajectories.list({ success: "no" }, { limit: 1000, offset: 0 }).rows;
    const html = await page(`/runs/${rows[0]!.run}/trajectories/${rows[0]!.n}`);
    expect(html).toContain('class="timeline"');
    expect(html).toContain("band call");
    expect(html).toContain("fault rate_limit");
    expect(html).toContain("find_order#1 in step 1, retried");
    expect(html).toContain("get_user#1 → send_mail#1 (declared)");
    expect(html).toContain("every fact is there");
    expect(html).toMatch(/<code>[^<]*<\/code> <b class="value">/);
    const next = failures.find((f) => f.id > rows[0]!.id)!;
    const link = new RegExp(`href="/runs/${next.run.replace(/[.+]/g, "\\$&")}/trajectories/${next.n}" data-key="f"`);
    expect(html).toMatch(link);
    index.close();
  });
  test("two of one task stand side by side", async () => {
    const html = await page(`/pair?a=${ids[0]}:3&b=${ids[1]}:3`);
    expect(count(html, /class="timeline"/g)).toBe(2);
  });
  test("a file that changed is read again; one that is broken is said", async () => {
    const file = join(root, "results", ids[6]!, "trajectories.jsonl.gz");
    const before = readFileSync(file);
    const cut = new TextDecoder().decode(Bun.gunzipSync(before)).slice(0, -40);
    writeFileSync(file, Bun.gzipSync(new TextEncoder().encode(cut)));
    expect(total(await page(`/trajectories?run=${ids[6]}`))).toBe(29);
    writeFileSync(file, "not gzip");
    expect(await page("/trajectories")).toContain(`The trajectories of ${ids[6]} cannot be read`);
    rmSync(file);
    expect(total(await page(`/trajectories?run=${ids[6]}`))).toBe(0);
    writeFileSync(file, before);
    expect(total(await page(`/trajectories?run=${ids[6]}`))).toBe(30);
  });
});

describe("catalogue", () => {
  test("search, facets and explained scores", async () => {
    const html = await page("/catalog?q=create+a+playlist");
    expect(html).toContain("best first by BM25F");
    expect(html).toMatch(/<code><bdi>playlist<\/bdi><\/code>.*adds/);
    const narrowed = await page("/catalog?q=create&provider=asana.com");
    expect(count(narrowed, /class="soft">asana.com<\/span>/g)).toBeGreaterThan(0);
    expect(narrowed).not.toContain('class="soft">spotify.com</span>');
    expect(await page("/catalog?q=zzzzqqq")).toContain("0 of");
    expect(await page("/catalog?from=20")).toContain('rel="prev"');
  });
  test("a tool has its schema, its data flow, and a form whose first values name what exists", async () => {
    const search = await page("/catalog?q=get+a+task&provider=asana.com");
    const path = /href="(\/catalog\/tools\/get_task[^"?]*)/.exec(search)?.[1] ?? "/catalog/tools/get_task";
    const html = await page(`${path}?q=get+a+task`);
    expect(html).toContain("of the resource");
    expect(html).toContain("Given by");
    expect(html).toMatch(/rank \d/);
    const fields = [...html.matchAll(/name="(p\.[^"]+)"[^>]*? value="([^"]*)"/g)].map((m) => [m[1]!, m[2]!] as const);
    const answered = await post(path, { ...Object.fromEntries(fields), seed: "1", token: await tokenOf(path) });
    const body = await answered.text();
    expect(body).toMatch(/status done">ok<\/span> 200/);
    const wrong = await post(path, { "p.task_gid": HOSTILE, seed: "1", token: await tokenOf(path) });
    const text = await wrong.text();
    expect(text).toMatch(/not_found|invalid/);
    expect(text).not.toContain("<script>");
  });
  test("without a catalogue the page says how to make one", async () => {
    const without = webApp(join(root, "results"), { catalog: join(root, "none.sqlite") });
    const response = await without.request("/catalog", { headers: { host: "localhost" } });
    expect(response.status).toBe(503);
    expect(await response.text()).toContain("bun run catalog build");
  });
});

describe("charts", () => {
  test("smoothing is unbiased at its start, thinning keeps the extremes", () => {
    const points = Array.from({ length: 5000 }, (_, x) => ({ x, y: x === 3210 ? 99 : 1 }));
    expect(smoothed(points.slice(0, 5), 0.9).map((p) => p.y)).toEqual(
      [1, 1, 1, 1, 1].map((y) => expect.closeTo(y, 9) as unknown as number),
    );
    const thin = thinned(points, 300);
    expect(thin.length).toBeLessThanOrEqual(300);
    expect(thin).toContainEqual({ x: 3210, y: 99 });
  });
  test("points that are not finite are left out, hostile names are escaped", async () => {
    const svg = await lineChart({
      title: HOSTILE,
      smooth: 0,
      series: [
        {
          name: HOSTILE,
          points: [
            { x: 1, y: Number.NaN },
            { x: 2, y: 1 },
            { x: 3, y: 2 },
          ],
        },
      ],
    });
    expect(svg).not.toContain("<script");
    expect(svg).toContain('role="img"');
    expect(await lineChart({ title: "t", smooth: 0, series: [{ name: "s", points: [{ x: 1, y: Number.NaN }] }] })).toBe(
      "",
    );
  });
});
