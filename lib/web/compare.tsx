import type { FC } from "hono/jsx";
import type { RunRecord } from "../runs/index-store.ts";
import type { Table } from "../runs/table.ts";
import { COLOURS } from "./chart.ts";
import { Layout } from "./layout.tsx";
import { Chart, SMOOTHINGS } from "./run.tsx";
import { Select, Status } from "./runs.tsx";
import { HtmlTable } from "./table.tsx";
import { Plain, Scroll } from "./text.tsx";

export const FORMATS = { csv: "CSV", md: "Markdown", tex: "LaTeX" } as const;

export interface CompareProps {
  all: RunRecord[];
  chosen: RunRecord[];
  tables: Table[];
  intervals: { benchmark: string; svg: string; arms: string[] }[];
  charts: { title: string; svg: string }[];
  group: string;
  groups: string[];
  metric: string;
  metrics: string[];
  smooth: string;
  /** The query without what a link adds. */
  search: string;
  note: string | null;
}

const Legend: FC<{ names: string[] }> = ({ names }) => (
  <ol class="legend">
    {names.map((name, i) => (
      <li>
        <span class={`swatch s${i % COLOURS}`} aria-hidden="true"></span> <Plain text={name} />
      </li>
    ))}
  </ol>
);

/** Chosen runs side by side: the numbers of `bun run compare`, and their curves over each other. */
export const ComparePage: FC<CompareProps> = (p) => {
  const { all, chosen, tables, intervals, charts, search } = p;
  const picked = new Set(chosen.map((r) => r.id));
  return (
    <Layout title="Compare" here="/compare">
      {p.note ? <p class="failed">{p.note}</p> : null}
      <details open={chosen.length === 0}>
        <summary>
          Choose runs <span class="soft">({chosen.length} chosen)</span>
        </summary>
        {all.length === 0 ? (
          <p>
            There are no runs yet. Make one with <code>bun run quickstart</code>.
          </p>
        ) : (
          <form method="get" action="/compare">
            <button type="submit">Compare</button>
            <Scroll label="Runs to choose from">
              <ul class="choices">
                {all.map((r) => (
                  <li>
                    <label class="check">
                      <input type="checkbox" name="run" value={r.id} checked={picked.has(r.id)} />
                      <span>
                        {r.id} <Status status={r.status} /> <Plain text={r.cell} />
                      </span>
                    </label>
                  </li>
                ))}
              </ul>
            </Scroll>
          </form>
        )}
      </details>
      {chosen.length === 0 ? null : (
        <>
          <form class="filters" method="get" action="/compare">
            {chosen.map((r) => (
              <input type="hidden" name="run" value={r.id} />
            ))}
            <Select
              name="group"
              label="Tasks"
              value={p.group}
              all="all"
              options={p.groups.map((value) => ({ value }))}
            />
            <Select
              name="metric"
              label="Curves"
              value={p.metric}
              all="the main ones"
              options={p.metrics.map((value) => ({ value }))}
            />
            <Select name="smooth" label="Smoothing" value={p.smooth} options={SMOOTHINGS} />
            <button type="submit">Show</button>
          </form>
          {tables.length === 0 ? (
            <p>These runs have no evaluations{p.group ? ` of ${p.group}` : ""} to compare.</p>
          ) : (
            <p class="links">
              Download the tables:
              {Object.entries(FORMATS).map(([ending, name]) => (
                <a href={`/compare.${ending}?${search}`}>{name}</a>
              ))}
            </p>
          )}
          {tables.length > 0 ? <h2>Results</h2> : null}
          {tables.map((table, i) => (
            <>
              <HtmlTable table={table} />
              {intervals[i] && intervals[i].svg !== "" ? (
                <>
                  <Chart title={`${intervals[i].benchmark}: success with 95 % intervals`} svg={intervals[i].svg} />
                  <Legend names={intervals[i].arms} />
                </>
              ) : null}
            </>
          ))}
          {charts.length > 0 ? (
            <>
              <h2>Curves</h2>
              <Legend names={chosen.map((r) => `${r.id}${r.cell ? ` · ${r.cell}` : ""}`)} />
              <div class="charts">
                {charts.map((c) => (
                  <Chart title={c.title} svg={c.svg} />
                ))}
              </div>
            </>
          ) : null}
        </>
      )}
    </Layout>
  );
};
