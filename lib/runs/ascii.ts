import type { MetricLine } from "./stages.ts";

const BARS = "▁▂▃▄▅▆▇█";

/** A metric over its steps as a line of bars, at most 60 wide (means of neighbours), with its first and last value. Null without data. */
export function lossChart(title: string, lines: MetricLine[], metric: string): string | null {
  const values = lines.flatMap((l) => (typeof l[metric] === "number" && Number.isFinite(l[metric]) ? [l[metric]] : []));
  if (values.length < 2) return null;
  const width = Math.min(60, values.length);
  const means = Array.from({ length: width }, (_, i) => {
    const part = values.slice(Math.floor((i * values.length) / width), Math.floor(((i + 1) * values.length) / width));
    return part.reduce((a, b) => a + b, 0) / part.length;
  });
  const low = Math.min(...means);
  const span = Math.max(...means) - low || 1;
  const bars = means.map((m) => BARS[Math.round(((m - low) / span) * (BARS.length - 1))]).join("");
  return `${title}\n  ${bars}\n  ${values[0]!.toFixed(3)} → ${values.at(-1)!.toFixed(3)}`;
}
