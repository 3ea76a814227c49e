import type { FC } from "hono/jsx";
import type { Table } from "../runs/table.ts";

/** The same table that `bun run compare` prints. */
export const HtmlTable: FC<{ table: Table }> = ({ table }) => (
  <section>
    <h2>{table.title}</h2>
    {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling region must be reachable by keyboard (WCAG 2.1.1) */}
    <section class="scroll" tabindex={0} aria-label={table.title}>
      <table>
        <thead>
          <tr>
            {table.columns.map((c) => (
              <th scope="col">{c}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {table.rows.map((row) => (
            <tr>
              {row.map((cell, i) => (
                <td class={i > 0 && /^[−+<]?\d/.test(cell) ? "number" : ""}>{cell}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
    {table.notes.map((n) => (
      <p class="soft">{n}</p>
    ))}
  </section>
);
