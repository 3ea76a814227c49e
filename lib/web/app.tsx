/** The results browser: pages rendered on the server, no external request, loopback and named hosts only. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { Hono } from "hono";
import { secureHeaders } from "hono/secure-headers";
import { arms, compareTables } from "../runs/compare.ts";
import { RunIndex, runFolder, UnknownRunError } from "../runs/index-store.ts";
import { type MetricLine, readMetrics } from "../runs/stages.ts";
import { Layout } from "./layout.tsx";
import { RunPage } from "./run.tsx";
import { RunsPage } from "./runs.tsx";

/** @param root the results folder. @param hosts host names answered besides loopback: a page elsewhere must not reach this server by DNS rebinding. */
export function webApp(root: string, hosts: string[] = []): Hono {
  const index = new RunIndex(root);
  const app = new Hono();
  const allowed = new Set(["localhost", "127.0.0.1", "[::1]", ...hosts]);

  app.use(async (c, next) => {
    const host = (c.req.header("host") ?? "").replace(/:\d+$/, "");
    if (!allowed.has(host))
      return c.text(
        `This server answers to ${[...allowed].join(", ")} only. Allow a name with: bun run serve --host-name ${host}\n`,
        403,
      );
    await next();
  });
  app.use(
    secureHeaders({
      contentSecurityPolicy: {
        defaultSrc: ["'none'"],
        styleSrc: ["'self'"],
        imgSrc: ["'self'"],
        formAction: ["'self'"],
        baseUri: ["'none'"],
        frameAncestors: ["'none'"],
      },
      xFrameOptions: "DENY",
    }),
  );

  app.get(
    "/style.css",
    () =>
      new Response(Bun.file(join(import.meta.dir, "style.css")), {
        headers: { "content-type": "text/css; charset=utf-8" },
      }),
  );
  app.get("/", (c) => c.html(<RunsPage runs={index.runs()} />));
  app.get("/runs/:experiment/:run", (c) => {
    const id = `${c.req.param("experiment")}/${c.req.param("run")}`;
    const folder = runFolder(root, id);
    const record = index.run(id);
    if (!record || !existsSync(folder))
      throw new UnknownRunError(`There is no run "${id}" in ${root}. It may have been deleted.`);
    const metrics: MetricLine[] = [];
    let broken = 0;
    for (const stage of record.stages) {
      const read = readMetrics(join(root, "stages", `${stage.name}-${stage.key}`, "metrics.jsonl"));
      metrics.push(...read.lines);
      broken += read.broken;
    }
    const tables = compareTables(arms([{ record, outcomes: index.outcomes(id) }]));
    return c.html(<RunPage record={record} tables={tables} metrics={metrics} broken={broken} />);
  });

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
    if (error instanceof UnknownRunError) return c.html(problem("Not found", error.message), 404);
    console.error(error);
    return c.html(problem("Something went wrong", "The server's terminal shows the error."), 500);
  });
  return app;
}
