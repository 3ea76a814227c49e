import { raw } from "hono/html";
import type { FC } from "hono/jsx";
import { stringify } from "yaml";
import type { RunRecord } from "../runs/index-store.ts";
import { duration } from "../runs/progress.ts";
import type { Table } from "../runs/table.ts";
import type { StoredFile } from "./curves.ts";
import { Layout } from "./layout.tsx";
import { Select, Status, when } from "./runs.tsx";
import type { parentOf } from "./settings.ts";
import { HtmlTable } from "./table.tsx";
import { Plain, Pre, Scroll } from "./text.tsx";

export const SMOOTHINGS = [
  { value: "0", label: "none" },
  { value: "0.6", label: "some (0.6)" },
  { value: "0.9", label: "strong (0.9)" },
  { value: "0.97", label: "very strong (0.97)" },
];

/** A chart with its caption; `svg` is what chart.ts drew. */
export const Chart: FC<{ title: string; svg: string }> = ({ title, svg }) => (
  <figure>
    <figcaption>
      <Plain text={title} />
    </figcaption>
    {raw(svg)}
  </figure>
);

export interface LiveProps {
  record: RunRecord;
  charts: { stage: string; title: string; svg: string }[];
  /** How many curves there are; more than `charts` where only the main ones are drawn. */
  curves: number;
  broken: number;
  smooth: string;
}

/** The part of the page that moves while the run trains. */
export const RunLive: FC<LiveProps> = ({ record, charts, curves, broken, smooth }) => (
  <>
    <p>
      <Status status={record.status} />
      {record.current ? ` · making ${record.current.name}` : ""}
      {record.cell ? (
        <>
          {" · cell "}
          <Plain text={record.cell} />
        </>
      ) : null}
      {" · seed "}
      {record.seed} · started {when(record.created)}
      {record.finished ? ` · finished ${when(record.finished)}` : ""}
    </p>
    {record.error ? (
      <p class="failed">
        <Plain text={record.error} />
      </p>
    ) : null}
    {curves === 0 && record.status === "running" ? (
      <p class="soft">No metrics yet: they show here as the first stage writes them.</p>
    ) : null}
    {[...Map.groupBy(charts, (c) => c.stage)].map(([stage, list]) => (
      <section>
        <h3>{stage}</h3>
        <div class="charts">
          {list.map((c) => (
            <Chart title={c.title} svg={c.svg} />
          ))}
        </div>
      </section>
    ))}
    {charts.length < curves ? (
      <p>
        <a href={`/runs/${record.id}?charts=all&smooth=${smooth}`}>All {curves} curves</a>
      </p>
    ) : null}
    {broken > 0 ? <p class="soft">{broken} broken metric lines were left out.</p> : null}
  </>
);

const size = (bytes: number): string =>
  bytes >= 1e6 ? `${(bytes / 1e6).toFixed(1)} MB` : `${(bytes / 1e3).toFixed(1)} kB`;

const Files: FC<{ title: string; files: StoredFile[]; link?: (f: StoredFile) => string }> = ({
  title,
  files,
  link,
}) => (
  <Scroll label={title}>
    <table>
      <thead>
        <tr>
          {["Stage", "Name", "Size", "Changed"].map((c) => (
            <th scope="col">{c}</th>
          ))}
        </tr>
      </thead>
      <tbody>
        {files.map((f) => (
          <tr>
            <td>{f.stage}</td>
            <td>{link ? <a href={link(f)}>{f.name}</a> : f.name}</td>
            <td class="number">{size(f.bytes)}</td>
            <td>{when(f.changed)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  </Scroll>
);

export interface RunProps {
  live: LiveProps;
  tables: Table[];
  all: boolean;
  stageChart: string;
  files: { checkpoints: StoredFile[]; logs: StoredFile[] };
  parent: ReturnType<typeof parentOf>;
  trajectories: number;
  siblings: number;
}

/** One run: results, curves, stages, files, settings, environment. */
export const RunPage: FC<RunProps> = ({ live, tables, all, stageChart, files, parent, trajectories, siblings }) => {
  const { record } = live;
  const running = record.status === "running";
  return (
    <Layout title={record.id} here="/" {...(running ? { refresh: 15 } : {})}>
      <p class="links">
        <a href={`/trajectories?run=${encodeURIComponent(record.id)}`}>{trajectories} trajectories</a>
        <a href={`/compare?experiment=${encodeURIComponent(record.experiment)}`}>
          compare with the {siblings} others of {record.experiment}
        </a>
        <a href={`/runs/${record.id}/delete`}>delete</a>
      </p>
      {tables.length > 0 ? <h2>Results</h2> : null}
      {tables.map((table) => (
        <HtmlTable table={table} />
      ))}
      <h2>Progress and curves</h2>
      <form class="filters" method="get" action={`/runs/${record.id}`} data-live="#live">
        <Select name="smooth" label="Smoothing" value={live.smooth} options={SMOOTHINGS} />
        <label class="check">
          <input type="checkbox" name="charts" value="all" checked={all} />
          every metric
        </label>
        <button type="submit">Show</button>
      </form>
      <div id="live" data-events={running ? `/runs/${record.id}/events` : undefined}>
        <RunLive {...live} />
      </div>
      <h2>Stages</h2>
      {record.stages.length === 0 ? <p class="soft">None is finished yet.</p> : null}
      {stageChart === "" ? null : <Chart title="Time a stage took when it ran" svg={stageChart} />}
      {record.stages.length === 0 ? null : (
        <Scroll label="Stages">
          <table>
            <thead>
              <tr>
                {["Stage", "Key", "Took", "From the cache"].map((c) => (
                  <th scope="col">{c}</th>
                ))}
              </tr>
            </thead>
            <tbody>
              {record.stages.map((s) => (
                <tr>
                  <td>{s.name}</td>
                  <td>
                    <code>{s.key}</code>
                  </td>
                  <td class="number">{duration(s.elapsedMs)}</td>
                  <td>{s.cached ? "yes" : "no"}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
      <h2>Checkpoints</h2>
      {files.checkpoints.length === 0 ? (
        <p class="soft">This run's stages have none.</p>
      ) : (
        <Files title="Checkpoints" files={files.checkpoints} />
      )}
      <h2>Logs</h2>
      {files.logs.length === 0 ? (
        <p class="soft">
          No log files. Progress goes to the terminal's standard error; a launcher's logs show here as *.log, *.out and
          *.err.
        </p>
      ) : (
        <Files title="Logs" files={files.logs} link={(f) => `/runs/${record.id}/logs/${f.stage}/${f.name}`} />
      )}
      <h2>Settings</h2>
      {parent.name === null ? (
        <p class="soft">{parent.reason}</p>
      ) : parent.differences.length === 0 ? (
        <p>
          The same as <code>{parent.name}</code>.
        </p>
      ) : (
        <details open={parent.differences.length <= 15}>
          <summary>
            {parent.differences.length} differences from <code>{parent.name}</code>
          </summary>
          <Scroll label="Differences from the parent experiment">
            <table>
              <thead>
                <tr>
                  {["Key", "Here", "There"].map((c) => (
                    <th scope="col">{c}</th>
                  ))}
                </tr>
              </thead>
              <tbody>
                {parent.differences.map((d) => (
                  <tr>
                    <th scope="row">
                      <code>{d.key}</code>
                    </th>
                    <td>
                      <Plain text={d.here ?? "–"} />
                    </td>
                    <td>
                      <Plain text={d.there ?? "–"} />
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </Scroll>
        </details>
      )}
      <Fold label="Resolved settings (YAML)" text={stringify(record.config)} />
      <h2>Environment</h2>
      <Fold label="Versions, machine, adapter, commit" text={stringify(record.environment)} />
    </Layout>
  );
};

const Fold: FC<{ label: string; text: string }> = ({ label, text }) => (
  <details>
    <summary>{label}</summary>
    <Pre label={label} text={text} />
  </details>
);

/** The end of a log file. */
export const LogPage: FC<{ run: string; name: string; text: string; cut: boolean }> = ({ run, name, text, cut }) => (
  <Layout title={`${name} of ${run}`}>
    <p class="links">
      <a href={`/runs/${run}`}>the run</a>
    </p>
    {cut ? <p class="soft">Only the last 256 kB are shown.</p> : null}
    <Pre label={name} text={text} />
  </Layout>
);
