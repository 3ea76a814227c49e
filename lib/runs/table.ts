/** Plain tables: terminal, Markdown, CSV and LaTeX from the same rows. */

export interface Table {
  title: string;
  columns: string[];
  rows: string[][];
  /** Said under the table. */
  notes: string[];
}

const numeric = /^[−+<-]?\d|^–$|^n\/a/;

/** The columns in blocks that fit into `room`; each block begins with the first column, and holds one other at least. */
function blocks(widths: readonly number[], room: number): number[][] {
  const out: number[][] = [];
  let used = 0;
  widths.forEach((w, i) => {
    if (i === 0) return;
    if (out.length === 0 || used + 2 + w > room) {
      out.push([0]);
      used = widths[0]!;
    }
    out.at(-1)!.push(i);
    used += 2 + w;
  });
  return out.length > 0 ? out : [widths.map((_, i) => i)];
}

/** For the terminal. A table wider than `room` columns is printed in blocks, each with the first column. */
export function textTable({ title, columns, rows, notes }: Table, room = Infinity): string {
  const length = (s: string) => Bun.stringWidth(s);
  const width = columns.map((c, i) => Math.max(length(c), ...rows.map((r) => length(r[i] ?? ""))));
  const right = columns.map((_, i) => rows.length > 0 && rows.every((r) => numeric.test(r[i] ?? "")));
  const cell = (s: string, i: number) => {
    const pad = " ".repeat(width[i]! - length(s));
    return right[i] ? pad + s : s + pad;
  };
  const parts = blocks(width, room).map((chosen) => {
    const line = (cells: string[]) =>
      chosen
        .map((i) => cell(cells[i] ?? "", i))
        .join("  ")
        .trimEnd();
    return [line(columns), chosen.map((i) => "─".repeat(width[i]!)).join("──"), ...rows.map(line)].join("\n");
  });
  return [title, parts.join("\n\n"), ...notes.map((n) => `  ${n}`)].join("\n");
}

/** Columns of the terminal that standard output goes to; without bound where it goes to a file or a pipe. */
export function terminalRoom(): number {
  return process.stdout.isTTY ? process.stdout.columns : Infinity;
}

export function markdownTable({ title, columns, rows, notes }: Table): string {
  const cell = (s: string) => s.replaceAll("|", "\\|");
  return [
    `**${title}**`,
    "",
    `| ${columns.map(cell).join(" | ")} |`,
    `| ${columns.map(() => "---").join(" | ")} |`,
    ...rows.map((r) => `| ${r.map(cell).join(" | ")} |`),
    ...(notes.length > 0 ? ["", ...notes] : []),
  ].join("\n");
}

/** RFC 4180. Cells that a spreadsheet would run as a formula get a leading apostrophe. */
export function csvTable({ columns, rows }: Table): string {
  const cell = (s: string) => {
    const safe = /^[=@\t\r]/.test(s) || (/^[+-]/.test(s) && Number.isNaN(Number(s))) ? `'${s}` : s;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return [columns, ...rows].map((r) => r.map(cell).join(",")).join("\r\n");
}

const TEX: Record<string, string> = {
  "&": "\\&",
  "%": "\\%",
  $: "\\$",
  "#": "\\#",
  _: "\\_",
  "{": "\\{",
  "}": "\\}",
  "~": "\\textasciitilde{}",
  "^": "\\textasciicircum{}",
  "\\": "\\textbackslash{}",
  "−": "$-$",
  "–": "--",
  "±": "$\\pm$",
};

export function latexTable({ title, columns, rows, notes }: Table): string {
  const cell = (s: string) => s.replace(/[&%$#_{}~^\\−–±]/g, (c) => TEX[c]!);
  return [
    "\\begin{table}",
    `\\caption{${cell(title)}}`,
    `\\begin{tabular}{${"l".repeat(columns.length)}}`,
    `${columns.map(cell).join(" & ")} \\\\ \\hline`,
    ...rows.map((r) => `${r.map(cell).join(" & ")} \\\\`),
    "\\end{tabular}",
    ...notes.map((n) => `% ${n}`),
    "\\end{table}",
  ].join("\n");
}
