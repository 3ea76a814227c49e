/** Plain tables: terminal, Markdown, CSV and LaTeX from the same rows. */

export interface Table {
  title: string;
  columns: string[];
  rows: string[][];
  /** Said under the table. */
  notes: string[];
}

const numeric = /^[−+<]?\d|^–$|^n\/a/;

export function textTable({ title, columns, rows, notes }: Table): string {
  const width = columns.map((c, i) => Math.max(c.length, ...rows.map((r) => (r[i] ?? "").length)));
  const right = columns.map((_, i) => rows.every((r) => numeric.test(r[i] ?? "")));
  const line = (cells: string[]) =>
    cells
      .map((c, i) => (right[i] && rows.length > 0 ? c.padStart(width[i]!) : c.padEnd(width[i]!)))
      .join("  ")
      .trimEnd();
  const rule = width.map((w) => "─".repeat(w)).join("──");
  return [title, line(columns), rule, ...rows.map(line), ...notes.map((n) => `  ${n}`)].join("\n");
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
