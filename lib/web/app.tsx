/** The results browser: pages rendered on the server, no external request, loopback and named hosts only. */
import { closeSync, existsSync, openSync, readdirSync, readSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { type Context, Hono } from "hono";
import { streamSSE } from "hono/streaming";
import { CatalogFormatError, CatalogMissingError } from "../catalog/errors.ts";
import { armInterval, arms, compareTables } from "../runs/compare.ts";
import { RunIndex, type RunRecord, runFolder, UnknownRunError } from "../runs/index-store.ts";
import { csvTable, latexTable, markdownTable, type Table } from "../runs/table.ts";
import type { TrajectoryRow } from "../runs/trajectory-index.ts";
import { Recent } from "./cache.ts";
import { CatalogPage, ToolPage } from "./catalog.tsx";
import { CatalogView, readField } from "./catalog-view.ts";
import { barChart, intervalChart, lineChart } from "./chart.ts";
import { ComparePage } from "./compare.tsx";
import { type Curve, curvesOf, filesOf, folderBytes, mainCurves, runVersion, stageFolders } from "./curves.ts";
import { Layout } from "./layout.tsx";
import { type LiveProps, LogPage, RunPage } from "./run.tsx";
import { DeletePage, RunsPage } from "./runs.tsx";
import { ForeignRequestError, onlyHosts, ownForm, strictPolicy } from "./security.ts";
import { parentOf } from "./settings.ts";
import { PAGE, readFilter, TrajectoriesPage } from "./trajectories.tsx";
import { PairPage, TrajectoryPage } from "./trajectory.tsx";

export interface WebOptions {
  /** Host names answered besides loopback. */
  hosts?: string[];
  /** The catalogue's file; the default one where not given. */
  catalog?: string;
  /** How often a running run's files are looked at, milliseconds. */
  watchMs?: number;
}

/** What is not there: its page says what is. */
class NotFoundError extends Error {
  override name = "NotFoundError";
}

/** Runs that a comparison takes at most: more is no picture, and the bootstrap takes seconds. */
const MOST_COMPARED = 24;
const MAIN_CURVES = 9;
const LOG_BYTES = 256 * 1024;

/** @param root the results folder. */
export function webApp(root: string, options: WebOptions = {}): Hono {
  const index = new RunIndex(root);
  const token = crypto.randomUUID();
  const app = new Hono();
  let view: CatalogView | null = null;
  const catalog = () => (view ??= new CatalogView(options.catalog));
  const hasTool = (name: string): boolean => {
    try {
      return catalog().catalog.get(name) !== null;
    } catch (error) {
      // No catalogue: names stay names.
      if (error instanceof CatalogMissingError || error instanceof CatalogFormatError) return false;
      throw error;
    }
  };
  const tables = new Recent<Table[]>(100);

  app.use(onlyHosts(options.hosts ?? []), strictPolicy);
  for (const [path, type] of [
    ["style.css", "text/css"],
    ["script.js", "text/javascript"],
    ["icon.svg", "image/svg+xml"],
  ] as const)
    app.get(
      `/${path}`,
      () =>
        new Response(Bun.file(join(import.meta.dir, path)), {
          headers: { "content-type": `${type}; charset=utf-8`, "cache-control": "no-cache" },
        }),
    );

  const runOf = (c: Context): RunRecord => {
    const id = `${c.req.param("experiment")}/${c.req.param("run")}`;
    const folder = runFolder(root, id);
    const record = index.run(id);
    if (!record || !existsSync(folder))
      throw new UnknownRunError(`There is no run "${id}" in ${root}. It may have been deleted.`);
    return record;
  };
  const tablesOf = (records: RunRecord[], group: string): Table[] => {
    const key = JSON.stringify([group, records.map((r) => [r.id, r.finished, r.status, index.outcomeCount(r.id)])]);
    return tables.get(key, () => compareTables(arms(withOutcomes(records, group))));
  };
  const withOutcomes = (records: RunRecord[], group: string) =>
    records.map((record) => ({
      record,
      outcomes: index.outcomes(record.id).filter((o) => group === "" || o.group === group),
    }));
  const smoothing = (c: Context): number => {
    const value = Number(c.req.query("smooth") ?? "0");
    return value >= 0 && value < 1 ? value : 0;
  };

  app.get("/", (c) =>
    c.html(
      <RunsPage
        all={index.runs()}
        query={{
          text: c.req.query("q") ?? "",
          experiment: c.req.query("experiment") ?? "",
          status: c.req.query("status") ?? "",
          sort: c.req.query("sort") ?? "started",
          group: c.req.query("group") === "yes",
        }}
      />,
    ),
  );

  const liveProps = async (record: RunRecord, smooth: number, all: boolean): Promise<LiveProps> => {
    const { curves, broken } = curvesOf(root, record);
    const shown = all ? curves : mainCurves(curves, MAIN_CURVES);
    const charts = await Promise.all(
      shown.map(async ({ stage, metric, points }) => ({
        stage,
        title: metric,
        svg: await lineChart({ title: `${stage} · ${metric}`, series: [{ name: metric, points }], smooth }),
      })),
    );
    return {
      record,
      charts: charts.filter((x) => x.svg !== ""),
      curves: curves.length,
      broken,
      smooth: String(smooth),
    };
  };
  app.get("/runs/:experiment/:run", async (c) => {
    const record = runOf(c);
    const all = c.req.query("charts") === "all";
    index.trajectories.syncAll([record.id]);
    const bars = record.stages.map((s) => ({ name: s.name, value: s.elapsedMs / 1000 }));
    return c.html(
      <RunPage
        live={await liveProps(record, smoothing(c), all)}
        tables={tablesOf([record], "")}
        all={all}
        stageChart={bars.length > 1 ? await barChart({ title: "Stage times", unit: "seconds", bars }) : ""}
        files={filesOf(root, record)}
        parent={parentOf(record)}
        trajectories={index.trajectories.list({ run: record.id }, { limit: 0, offset: 0 }).total}
        siblings={index.runs().filter((r) => r.experiment === record.experiment).length - 1}
      />,
    );
  });
  app.get("/runs/:experiment/:run/events", (c) => {
    const { id } = runOf(c);
    return streamSSE(c, async (stream) => {
      let last = "";
      let open = true;
      stream.onAbort(() => {
        open = false;
      });
      while (open) {
        const record = index.run(id);
        if (record?.status !== "running") {
          await stream.writeSSE({ event: "end", data: record?.status ?? "deleted" });
          return;
        }
        const version = runVersion(root, record);
        if (version !== last) await stream.writeSSE({ event: "change", data: version });
        else await stream.write(": still here\n\n");
        last = version;
        await stream.sleep(options.watchMs ?? 1000);
      }
    });
  });
  app.get("/runs/:experiment/:run/logs/:stage/:name", (c) => {
    const record = runOf(c);
    const [stage, name] = [c.req.param("stage"), c.req.param("name")];
    const log = filesOf(root, record).logs.find((f) => f.stage === stage && f.name === name);
    const dir =
      stage === "run"
        ? join(root, record.id)
        : stageFolders(root, record).find((s) => `${s.name}-${s.key}` === stage)?.dir;
    if (!log || dir === undefined) throw new NotFoundError(`${record.id} has no log ${stage}/${name}.`);
    const { text, cut } = tail(join(dir, name), LOG_BYTES);
    return c.html(<LogPage run={record.id} name={name} text={text} cut={cut} />);
  });
  app.get("/runs/:experiment/:run/delete", (c) => {
    const record = runOf(c);
    const folder = runFolder(root, record.id);
    const files = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((f) => f.isFile()).length;
    return c.html(<DeletePage record={record} files={files} bytes={folderBytes(folder)} token={token} />);
  });
  app.post("/runs/:experiment/:run/delete", async (c) => {
    await ownForm(c, token);
    const record = runOf(c);
    rmSync(runFolder(root, record.id), { recursive: true, force: true });
    index.remove(record.id);
    return c.redirect("/", 303);
  });

  const compared = (c: Context): { chosen: RunRecord[]; note: string | null } => {
    const ids = new Set(c.req.queries("run") ?? []);
    const experiment = c.req.query("experiment");
    const all = index.runs().filter((r) => ids.has(r.id) || r.experiment === experiment);
    const chosen = all.slice(0, MOST_COMPARED);
    const missing = [...ids].filter((id) => !all.some((r) => r.id === id));
    const notes = [
      ...(all.length > chosen.length
        ? [`${all.length} runs are chosen; the newest ${MOST_COMPARED} are compared. bun run compare takes them all.`]
        : []),
      ...(missing.length > 0 ? [`Not there (any more): ${missing.slice(0, 5).join(", ")}`] : []),
    ];
    return { chosen, note: notes.join(" ") || null };
  };
  app.get("/compare", async (c) => {
    const { chosen, note } = compared(c);
    const group = c.req.query("group") ?? "";
    const smooth = smoothing(c);
    const metric = c.req.query("metric") ?? "";
    const list = tablesOf(chosen, group);
    const all = arms(withOutcomes(chosen, group));
    const intervals = await Promise.all(
      [...new Set(all.map((a) => a.benchmark))].map(async (benchmark) => {
        const here = all.filter((a) => a.benchmark === benchmark);
        const known = here.flatMap((a) => {
          const value = armInterval(a);
          return value ? [{ name: a.name, mean: value.mean, low: value.low, high: value.high }] : [];
        });
        return {
          benchmark,
          svg: await intervalChart({ title: benchmark, arms: known }),
          arms: known.map((a) => a.name),
        };
      }),
    );
    const curves = chosen.map((r) => ({ id: r.id, curves: curvesOf(root, r).curves }));
    const names = [...new Set(curves.flatMap((x) => x.curves.map(curveName)))];
    const some = new Map(curves.flatMap((x) => x.curves.map((curve) => [curveName(curve), curve])));
    const shown = metric === "" ? mainCurves([...some.values()], 6).map(curveName) : names.filter((n) => n === metric);
    const charts = await Promise.all(
      shown.map(async (title) => ({
        title,
        svg: await lineChart({
          title,
          smooth,
          width: 460,
          height: 220,
          series: curves.map(({ id, curves }) => ({
            name: id,
            points: curves.find((curve) => curveName(curve) === title)?.points ?? [],
          })),
        }),
      })),
    );
    const search = new URLSearchParams([...chosen.map((r) => ["run", r.id]), ...(group ? [["group", group]] : [])]);
    return c.html(
      <ComparePage
        all={index.runs()}
        chosen={chosen}
        tables={list}
        intervals={intervals}
        charts={charts.filter((x) => x.svg !== "")}
        group={group}
        groups={[...new Set(chosen.flatMap((r) => index.outcomes(r.id).map((o) => o.group)))].sort()}
        metric={metric}
        metrics={names}
        smooth={String(smooth)}
        search={search.toString()}
        note={note}
      />,
    );
  });
  for (const [ending, type, write] of [
    ["csv", "text/csv", csvTable],
    ["md", "text/markdown", markdownTable],
    ["tex", "application/x-tex", latexTable],
  ] as const)
    app.get(`/compare.${ending}`, (c) => {
      const { chosen } = compared(c);
      const text = tablesOf(chosen, c.req.query("group") ?? "")
        .map(write)
        .join("\n\n");
      c.header("content-type", `${type}; charset=utf-8`);
      c.header("content-disposition", `attachment; filename="compare.${ending}"`);
      return c.body(`${text}\n`);
    });

  app.get("/trajectories", (c) => {
    const filter = readFilter((name) => c.req.query(name));
    const offset = Math.max(0, Math.floor(Number(c.req.query("from") ?? "0")) || 0);
    const problems = index.trajectories
      .syncAll(filter.run === undefined ? index.runs().map((r) => r.id) : index.run(filter.run) ? [filter.run] : [])
      .map((p) => `The trajectories of ${p.run} cannot be read: ${p.reason}`);
    const { rows, total } = index.trajectories.list(filter, { limit: PAGE, offset });
    const facets = index.trajectories.facets(filter.run);
    return c.html(
      <TrajectoriesPage
        rows={rows}
        total={total}
        offset={offset}
        filter={filter}
        facets={facets}
        problems={problems}
      />,
    );
  });
  const stored = (run: string, n: number) => {
    index.trajectories.syncAll(index.run(run) ? [run] : []);
    const row = Number.isSafeInteger(n) ? index.trajectories.row(run, n) : null;
    const stored = row ? index.trajectories.read(row) : null;
    if (!row || !stored)
      throw new NotFoundError(`There is no trajectory ${n} of ${run}. The run may have been deleted.`);
    return { row, stored };
  };
  app.get("/runs/:experiment/:run/trajectories/:n{[0-9]+}", (c) => {
    const { row, stored: found } = stored(runOf(c).id, Number(c.req.param("n")));
    const filter = readFilter((name) => c.req.query(name));
    const beside = (way: "next" | "previous", failure: boolean): TrajectoryRow | null =>
      index.trajectories.beside(row.id, failure ? { ...filter, success: "no" } : filter, way);
    return c.html(
      <TrajectoryPage
        row={row}
        stored={found}
        filter={filter}
        open={c.req.query("open") === "yes"}
        beside={{
          previous: beside("previous", false),
          next: beside("next", false),
          previousFailure: beside("previous", true),
          nextFailure: beside("next", true),
        }}
        same={index.trajectories.sameTask(row, 40)}
        has={hasTool}
      />,
    );
  });
  app.get("/pair", (c) => {
    const side = (name: "a" | "b") => {
      const [run = "", n = ""] = (c.req.query(name) ?? "").split(":");
      return stored(run, n === "" ? Number.NaN : Number(n));
    };
    const open = c.req.query("open") === "yes";
    const params = new URLSearchParams({ a: c.req.query("a") ?? "", b: c.req.query("b") ?? "" });
    if (!open) params.set("open", "yes");
    return c.html(<PairPage sides={[side("a"), side("b")]} open={open} toggle={`/pair?${params}`} has={hasTool} />);
  });

  app.get("/catalog", (c) => {
    const query = {
      text: (c.req.query("q") ?? "").slice(0, 1000),
      provider: c.req.query("provider") ?? "",
      category: c.req.query("category") ?? "",
      offset: Math.max(0, Math.floor(Number(c.req.query("from") ?? "0")) || 0),
    };
    const answer = catalog().search(query);
    return c.html(<CatalogPage query={query} answer={answer} size={catalog().catalog.size} />);
  });
  const toolPage = (c: Context, form: Record<string, string> | null) => {
    const { catalog: tools } = catalog();
    const name = c.req.param("name") ?? "";
    const tool = tools.get(name);
    if (!tool) throw new NotFoundError(`There is no tool "${name}" in this catalogue.`);
    const text = (c.req.query("q") ?? "").slice(0, 1000);
    const asked = Number(form?.seed ?? "1");
    const seed = Number.isInteger(asked) && asked >= 0 && asked <= 0xffffffff ? asked : 1;
    const fields = Object.entries(tool.parameters.properties);
    const values = form
      ? Object.fromEntries(fields.map(([p]) => [p, form[`p.${p}`] ?? ""]))
      : catalog().sample(tool, seed);
    const args = Object.fromEntries(
      fields.flatMap(([p, schema]) => (values[p] ? [[p, readField(values[p], schema)] as const] : [])),
    );
    return c.html(
      <ToolPage
        tool={tool}
        flow={catalog().flow(tool)}
        size={tools.size}
        text={text}
        why={text.trim() ? catalog().explain(text, tool.id) : null}
        token={token}
        seed={seed}
        values={values}
        called={form ? catalog().call(tool, args, seed) : null}
      />,
    );
  };
  app.get("/catalog/tools/:name", (c) => toolPage(c, null));
  app.post("/catalog/tools/:name", async (c) => toolPage(c, await ownForm(c, token)));

  const problem = (title: string, text: string) => (
    <Layout title={title}>
      <p>{text}</p>
      <p>
        <a href="/">All runs</a>
      </p>
    </Layout>
  );
  app.notFound((c) => c.html(problem("Not found", `There is no page ${c.req.path}.`), 404));
  app.onError((error, c) => {
    if (error instanceof UnknownRunError || error instanceof NotFoundError)
      return c.html(problem("Not found", error.message), 404);
    if (error instanceof ForeignRequestError) return c.html(problem("Refused", error.message), 403);
    if (error instanceof CatalogMissingError || error instanceof CatalogFormatError)
      return c.html(problem("No catalogue", error.message), 503);
    console.error(error);
    return c.html(problem("Something went wrong", "The server's terminal shows the error."), 500);
  });
  return app;
}

const curveName = (curve: Curve): string => `${curve.stage} · ${curve.metric}`;

/** The end of a text file. */
function tail(path: string, most: number): { text: string; cut: boolean } {
  const size = statSync(path).size;
  const start = Math.max(0, size - most);
  const file = openSync(path, "r");
  try {
    const bytes = new Uint8Array(size - start);
    const read = readSync(file, bytes, 0, bytes.length, start);
    return { text: new TextDecoder().decode(bytes.subarray(0, read)), cut: start > 0 };
  } finally {
    closeSync(file);
  }
}
