import type { FC } from "hono/jsx";
import type { RunRecord } from "../runs/index-store.ts";
import { duration } from "../runs/progress.ts";
import { Layout } from "./layout.tsx";

/** All runs, newest first. */
export const RunsPage: FC<{ runs: RunRecord[] }> = ({ runs }) => (
  <Layout title="Runs">
    {runs.length === 0 ? (
      <p>
        There are no runs yet. Make one with <code>bun run quickstart</code>.
      </p>
    ) : (
      <div class="scroll">
        <table>
          <thead>
            <tr>
              {["Run", "Cell", "Seed", "Status", "Started", "Stages took"].map((c) => (
                <th scope="col">{c}</th>
              ))}
            </tr>
          </thead>
          <tbody>
            {runs.map((r) => (
              <tr>
                <td>
                  <a href={`/runs/${r.id}`}>{r.id}</a>
                </td>
                <td>{r.cell || "–"}</td>
                <td class="number">{r.seed}</td>
                <td class={r.status === "failed" ? "failed" : ""}>{r.status}</td>
                <td>{r.created.slice(0, 16).replace("T", " ")}</td>
                <td class="number">{duration(r.stages.reduce((s, x) => s + x.elapsedMs, 0))}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    )}
  </Layout>
);
