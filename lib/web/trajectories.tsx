import type { FC } from "hono/jsx";
import {
  REWARD_CHANNELS,
  type TrajectoryFacets,
  type TrajectoryFilter,
  type TrajectoryRow,
} from "../runs/trajectory-index.ts";
import { Layout } from "./layout.tsx";
import { Select } from "./runs.tsx";
import { Plain, Scroll, Short } from "./text.tsx";

export const PAGE = 50;

/** Parameters of a list's address. Empty ones ask for nothing; numbers that are none, too. */
export function readFilter(query: (name: string) => string | undefined): TrajectoryFilter {
  const text = (name: string) => query(name) || undefined;
  const number = (name: string) => {
    const value = query(name);
    return value === undefined || value.trim() === "" || Number.isNaN(Number(value)) ? undefined : Number(value);
  };
  return {
    run: text("run"),
    benchmark: text("benchmark"),
    group: text("group"),
    label: text("label"),
    paradigm: text("paradigm"),
    success: (["yes", "no", "unmeasured"] as const).find((s) => s === query("success")),
    fault: text("fault"),
    channel: REWARD_CHANNELS.find((c) => c === query("channel")),
    min: number("min"),
    max: number("max"),
    text: text("q"),
  };
}

/** The address's query of a filter. */
export function filterQuery(f: TrajectoryFilter, more: Record<string, string> = {}): string {
  const { text, ...rest } = f;
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries({ ...rest, q: text, ...more }))
    if (value !== undefined && value !== "") params.set(name, String(value));
  const query = params.toString();
  return query === "" ? "" : `?${query}`;
}

export const trajectoryPath = (row: Pick<TrajectoryRow, "run" | "n">): string =>
  `/runs/${row.run}/trajectories/${row.n}`;

export const Success: FC<{ success: number | null }> = ({ success }) =>
  success === null ? (
    <span class="soft">not measured</span>
  ) : (
    <span class={success >= 1 ? "status done" : "status failed"}>
      {success >= 1 ? "success" : success > 0 ? `${success.toFixed(2)}` : "failure"}
    </span>
  );

const number = (x: number | null): string => (x === null ? "–" : x.toFixed(2));

export interface ListProps {
  rows: TrajectoryRow[];
  total: number;
  offset: number;
  filter: TrajectoryFilter;
}

export const TrajectoryList: FC<ListProps> = ({ rows, total, offset, filter }) => (
  <>
    <p class="soft" aria-live="polite">
      {total === 0
        ? "No trajectory fits."
        : `${(offset + 1).toLocaleString("en")}–${(offset + rows.length).toLocaleString("en")} of ${total.toLocaleString("en")}`}
    </p>
    {rows.length === 0 ? null : (
      <Scroll label="Trajectories">
        <table>
          <thead>
            <tr>
              {[
                "Request",
                "Result",
                "Benchmark",
                "Group",
                "Label",
                "Paradigm",
                "Turns",
                "Calls",
                "Width",
                "Trajectory",
                "Phase",
                "Format",
                "Faults",
                "Ended",
                ...(filter.run === undefined ? ["Run"] : []),
              ].map((c) => (
                <th scope="col">{c}</th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map((r) => (
              <tr>
                <td class="wide">
                  <a href={`${trajectoryPath(r)}${filterQuery(filter)}`}>
                    <Short text={r.request || r.task} most={90} />
                  </a>
                </td>
                <td>
                  <Success success={r.success} />
                </td>
                <td>{r.benchmark}</td>
                <td>{r.group}</td>
                <td>
                  <Plain text={r.label} />
                </td>
                <td>{r.paradigm}</td>
                <td class="number">{r.turns}</td>
                <td class="number">{r.calls}</td>
                <td class="number">{r.width.toFixed(1)}</td>
                <td class="number">{number(r.trajectory)}</td>
                <td class="number">{number(r.phase)}</td>
                <td class="number">{number(r.format)}</td>
                <td>{r.faults.split("|").filter(Boolean).join(", ") || "–"}</td>
                <td>{r.ended}</td>
                {filter.run === undefined ? (
                  <td>
                    <a href={`/runs/${r.run}`}>{r.run}</a>
                  </td>
                ) : null}
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    )}
    <nav class="pages" aria-label="Pages">
      {offset > 0 ? (
        <a
          rel="prev"
          data-key="p"
          href={`/trajectories${filterQuery(filter, { from: String(Math.max(0, offset - PAGE)) })}`}
        >
          previous {PAGE}
        </a>
      ) : null}
      {offset + rows.length < total ? (
        <a rel="next" data-key="n" href={`/trajectories${filterQuery(filter, { from: String(offset + PAGE) })}`}>
          next {PAGE}
        </a>
      ) : null}
    </nav>
  </>
);

const counted = (list: { value: string; count: number }[]) =>
  list.map(({ value, count }) => ({ value, label: `${value || "(none)"} (${count.toLocaleString("en")})` }));

export const TrajectoriesPage: FC<ListProps & { facets: TrajectoryFacets; problems: string[] }> = (props) => {
  const { filter: f, facets, problems } = props;
  return (
    <Layout title={f.run === undefined ? "Trajectories" : `Trajectories of ${f.run}`} here="/trajectories">
      {problems.map((p) => (
        <p class="failed">{p}</p>
      ))}
      <form class="filters" method="get" action="/trajectories" data-live="#list">
        {f.run === undefined ? null : <input type="hidden" name="run" value={f.run} />}
        <label>
          Words in request, replies, answer
          <input type="search" name="q" value={f.text ?? ""} data-key="/" />
        </label>
        <Select
          name="benchmark"
          label="Benchmark"
          value={f.benchmark ?? ""}
          all="all"
          options={counted(facets.benchmark)}
        />
        <Select name="group" label="Shape or group" value={f.group ?? ""} all="all" options={counted(facets.group)} />
        <Select name="label" label="Label" value={f.label ?? ""} all="all" options={counted(facets.label)} />
        <Select
          name="paradigm"
          label="Paradigm"
          value={f.paradigm ?? ""}
          all="all"
          options={counted(facets.paradigm)}
        />
        <Select
          name="success"
          label="Result"
          value={f.success ?? ""}
          all="any"
          options={[
            { value: "yes", label: "success" },
            { value: "no", label: "failure" },
            { value: "unmeasured", label: "not measured" },
          ]}
        />
        <Select
          name="fault"
          label="Faults"
          value={f.fault ?? ""}
          all="any or none"
          options={[{ value: "any", label: "some" }, { value: "none" }, ...counted(facets.fault)]}
        />
        <Select
          name="channel"
          label="Reward"
          value={f.channel ?? "trajectory"}
          options={REWARD_CHANNELS.map((value) => ({ value }))}
        />
        <label>
          at least
          <input type="number" step="any" name="min" value={f.min === undefined ? "" : String(f.min)} />
        </label>
        <label>
          at most
          <input type="number" step="any" name="max" value={f.max === undefined ? "" : String(f.max)} />
        </label>
        <button type="submit">Show</button>
        <a href={f.run === undefined ? "/trajectories" : `/trajectories?run=${encodeURIComponent(f.run)}`}>clear</a>
      </form>
      <div id="list">
        <TrajectoryList {...props} />
      </div>
    </Layout>
  );
};
