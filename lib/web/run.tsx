import type { FC } from "hono/jsx";
import { stringify } from "yaml";
import type { RunRecord } from "../runs/index-store.ts";
import { duration } from "../runs/progress.ts";
import type { MetricLine } from "../runs/stages.ts";
import type { Table } from "../runs/table.ts";
import { LineChart } from "./chart.tsx";
import { Layout } from "./layout.tsx";
import { HtmlTable } from "./table.tsx";

/** One run: results, curves, stages, environment, settings. */
export const RunPage: FC<{ record: RunRecord; tables: Table[]; metrics: MetricLine[]; broken: number }> = (props) => {
  const { record, tables, metrics, broken } = props;
  const curves = new Map<string, { x: number; y: number }[]>();
  for (const line of metrics) {
    for (const [name, value] of Object.entries(line)) {
      if (typeof value !== "number" || name === "step" || name === "time") continue;
      const key = `${line.stage} · ${name}`;
      const points = curves.get(key) ?? [];
      points.push({ x: line.step, y: value });
      curves.set(key, points);
    }
  }
  return (
    <Layout title={record.id}>
      <p>
        <span class={record.status === "failed" ? "failed" : ""}>{record.status}</span>
        {record.cell ? ` · cell ${record.cell}` : ""} · seed {record.seed} · started{" "}
        {record.created.slice(0, 16).replace("T", " ")}
      </p>
      {record.error ? <p class="failed">{record.error}</p> : null}
      {tables.map((table) => (
        <HtmlTable table={table} />
      ))}
      {curves.size > 0 ? <h2>Curves</h2> : null}
      {broken > 0 ? <p class="soft">{broken} broken metric lines were left out.</p> : null}
      <div class="charts">
        {[...curves].map(([title, points]) => (
          <LineChart title={title} points={points} />
        ))}
      </div>
      <h2>Stages</h2>
      <div class="scroll">
        <table>
          <thead>
            <tr>
              {["Stage", "Key", "Took", "Cached"].map((c) => (
                <th scope="col">{c}</th>
              ))}
            </tr>
          </thead>
          <tbody>
            {record.stages.map((s) => (
              <tr>
                <td>{s.name}</td>
                <td>{s.key}</td>
                <td class="number">{duration(s.elapsedMs)}</td>
                <td>{s.cached ? "yes" : "no"}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <details>
        <summary>Settings</summary>
        <pre>{stringify(record.config)}</pre>
      </details>
      <details>
        <summary>Environment</summary>
        <pre>{stringify(record.environment)}</pre>
      </details>
    </Layout>
  );
};
