import type { FC } from "hono/jsx";
import type { RunRecord } from "../runs/index-store.ts";
import { duration } from "../runs/progress.ts";
import { Layout } from "./layout.tsx";
import { shownMarks } from "./marks.ts";
import { Scroll, Short } from "./text.tsx";

export const STATUSES = ["running", "done", "failed", "stopped"] as const;
const SORTS = {
  started: { name: "newest first", by: (a, b) => (a.created < b.created ? 1 : a.created > b.created ? -1 : 0) },
  oldest: { name: "oldest first", by: (a, b) => (a.created > b.created ? 1 : a.created < b.created ? -1 : 0) },
  name: { name: "by name", by: (a, b) => (a.id < b.id ? -1 : 1) },
  status: { name: "by status", by: (a, b) => STATUSES.indexOf(a.status) - STATUSES.indexOf(b.status) },
  took: { name: "longest first", by: (a, b) => took(b) - took(a) },
} satisfies Record<string, { name: string; by: (a: RunRecord, b: RunRecord) => number }>;

export interface RunsQuery {
  text: string;
  experiment: string;
  status: string;
  sort: string;
  group: boolean;
}

const took = (r: RunRecord): number => r.stages.reduce((sum, s) => sum + s.elapsedMs, 0);
export const when = (iso: string): string => iso.slice(0, 16).replace("T", " ");

/** The runs that a query asks for, in its order. */
export function chosenRuns(runs: RunRecord[], q: RunsQuery): RunRecord[] {
  const words = q.text.toLowerCase().split(/\s+/).filter(Boolean);
  const sort = q.sort in SORTS ? SORTS[q.sort as keyof typeof SORTS] : SORTS.started;
  return runs
    .filter(
      (r) =>
        (q.experiment === "" || r.experiment === q.experiment) &&
        (q.status === "" || r.status === q.status) &&
        words.every((w) => `${r.id} ${r.cell}`.toLowerCase().includes(w)),
    )
    .sort(sort.by);
}

export const Status: FC<{ status: string }> = ({ status }) => <span class={`status ${status}`}>{status}</span>;

/** A labelled select; "" is its first choice. */
export const Select: FC<{
  name: string;
  label: string;
  value: string;
  options: { value: string; label?: string }[];
  all?: string;
}> = ({ name, label, value, options, all }) => (
  <label>
    {label}
    <select name={name}>
      {all === undefined ? null : <option value="">{all}</option>}
      {options.map((o) => (
        <option value={o.value} selected={o.value === value}>
          {shownMarks(o.label ?? o.value)}
        </option>
      ))}
      {value !== "" && !options.some((o) => o.value === value) ? (
        <option value={value} selected>
          {shownMarks(value)}
        </option>
      ) : null}
    </select>
  </label>
);

const Rows: FC<{ runs: RunRecord[] }> = ({ runs }) => (
  <>
    {runs.map((r) => (
      <tr>
        <td>
          <input type="checkbox" name="run" value={r.id} form="chosen" aria-label={`choose ${r.id}`} />
        </td>
        <td>
          <a href={`/runs/${r.id}`}>{r.id}</a>
        </td>
        <td>
          <Short text={r.cell || "–"} most={48} />
        </td>
        <td class="number">{r.seed}</td>
        <td>
          <Status status={r.status} />
        </td>
        <td>{when(r.created)}</td>
        <td class="number">{duration(took(r))}</td>
        <td>
          <a href={`/runs/${r.id}/delete`} aria-label={`delete ${r.id}`}>
            delete
          </a>
        </td>
      </tr>
    ))}
  </>
);

export const RunsList: FC<{ runs: RunRecord[]; total: number; group: boolean }> = ({ runs, total, group }) => {
  const byExperiment = Map.groupBy(runs, (r) => r.experiment);
  return (
    <>
      <p class="soft" aria-live="polite">
        {runs.length === total ? `${total} runs` : `${runs.length} of ${total} runs`}
        {group ? ` in ${byExperiment.size} experiments` : ""}
      </p>
      <Scroll label="Runs">
        <table>
          <thead>
            <tr>
              {["Compare", "Run", "Cell", "Seed", "Status", "Started", "Stages took", "Delete"].map((c) => (
                <th scope="col">{c}</th>
              ))}
            </tr>
          </thead>
          {group ? (
            [...byExperiment].map(([experiment, list]) => (
              <tbody>
                <tr class="group">
                  <th scope="rowgroup" colspan={8}>
                    {experiment}{" "}
                    <span class="soft">
                      {list.length} runs ·{" "}
                      {STATUSES.flatMap((s) => {
                        const n = list.filter((r) => r.status === s).length;
                        return n > 0 ? [`${n} ${s}`] : [];
                      }).join(", ")}{" "}
                      ·{" "}
                    </span>
                    <a href={`/compare?experiment=${encodeURIComponent(experiment)}`}>compare all</a>
                  </th>
                </tr>
                <Rows runs={list} />
              </tbody>
            ))
          ) : (
            <tbody>
              <Rows runs={runs} />
            </tbody>
          )}
        </table>
      </Scroll>
    </>
  );
};

/** All runs: filtered, sorted, grouped; some chosen for comparing. */
export const RunsPage: FC<{ all: RunRecord[]; query: RunsQuery }> = ({ all, query }) => (
  <Layout title="Runs" here="/">
    {all.length === 0 ? (
      <p>
        There are no runs yet. Make one with <code>bun run quickstart</code>.
      </p>
    ) : (
      <>
        <form class="filters" method="get" action="/" data-live="#list">
          <label>
            Name or cell
            <input type="search" name="q" value={query.text} data-key="/" />
          </label>
          <Select
            name="experiment"
            label="Experiment"
            value={query.experiment}
            all="all"
            options={[...new Set(all.map((r) => r.experiment))].sort().map((value) => ({ value }))}
          />
          <Select
            name="status"
            label="Status"
            value={query.status}
            all="any"
            options={STATUSES.map((value) => ({ value }))}
          />
          <Select
            name="sort"
            label="Order"
            value={query.sort}
            options={Object.entries(SORTS).map(([value, s]) => ({ value, label: s.name }))}
          />
          <label class="check">
            <input type="checkbox" name="group" value="yes" checked={query.group} />
            group by experiment
          </label>
          <button type="submit">Show</button>
        </form>
        <form id="chosen" method="get" action="/compare">
          <button type="submit">Compare chosen runs</button>
        </form>
        <div id="list">
          <RunsList runs={chosenRuns(all, query)} total={all.length} group={query.group} />
        </div>
      </>
    )}
  </Layout>
);

/** What is deleted, and the button that does it. */
export const DeletePage: FC<{ record: RunRecord; files: number; bytes: number; token: string }> = (props) => {
  const { record, files, bytes, token } = props;
  return (
    <Layout title={`Delete ${record.id}?`}>
      <p>
        The folder of this run ({files} files, {(bytes / 1e6).toFixed(1)} MB: its settings, outcomes and trajectories)
        is removed from disk. It can't be brought back. What its stages made ({record.stages.length} stages, shared with
        other runs) stays: running the same experiment again takes it from there.
      </p>
      {record.status === "running" ? (
        <p class="failed">
          This run says that it is running. Stop it first, unless it was killed: it would write its folder anew.
        </p>
      ) : null}
      <form method="post" action={`/runs/${record.id}/delete`} class="buttons">
        <input type="hidden" name="token" value={token} />
        <button type="submit" class="danger">
          Delete this run
        </button>
        <a href={`/runs/${record.id}`}>Keep it</a>
      </form>
    </Layout>
  );
};
