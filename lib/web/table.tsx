import type { FC } from "hono/jsx";
import type { Table } from "../runs/table.ts";
import { Plain, Scroll } from "./text.tsx";

/** The same table that `bun run compare` prints. */
export const HtmlTable: FC<{ table: Table }> = ({ table }) => (
  <section>
    <h3>{table.title}</h3>
    <Scroll label={table.title}>
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
                <td class={i > 0 && /^[−+<]?\d/.test(cell) ? "number" : ""}>
                  <Plain text={cell} />
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
    {table.notes.map((n) => (
      <p class="soft">{n}</p>
    ))}
  </section>
);
