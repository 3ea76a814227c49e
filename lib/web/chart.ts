/**
 * Charts as SVG text, drawn by Observable Plot over linkedom's document. Both are loaded when the first chart is asked for. Colours are the
 * style sheet's variables, and nothing is left inline that a strict content-security policy would refuse.
 */
import type { Markish, PlotOptions } from "@observablehq/plot";
import { Recent } from "./cache.ts";
import { shownMarks } from "./marks.ts";

export interface Point {
  x: number;
  y: number;
}
export interface Series {
  name: string;
  points: Point[];
}

/** Colours that the style sheet names, --c0 … --c7; further series go round. */
export const COLOURS = 8;
const colour = (i: number): string => `var(--c${i % COLOURS})`;

type Plotting = { Plot: typeof import("@observablehq/plot"); document: Document };
let loading: Promise<Plotting> | null = null;

/** Loads the libraries; called early by the server so that the first page does not wait. */
export function loadPlotting(): Promise<Plotting> {
  loading ??= (async () => {
    const [Plot, { parseHTML }] = await Promise.all([import("@observablehq/plot"), import("linkedom")]);
    return { Plot, document: parseHTML("<!doctype html><html></html>").document as unknown as Document };
  })();
  return loading;
}

const ENTITIES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
const escaped = (text: string): string => shownMarks(text).replace(/[&<>"]/g, (c) => ENTITIES[c]!);

const drawn = new Recent<string>(1000);

async function draw(key: unknown, label: string, options: (plot: Plotting["Plot"]) => PlotOptions): Promise<string> {
  const { Plot, document } = await loadPlotting();
  return drawn.get(JSON.stringify([label, key]), () => {
    const svg = Plot.plot({ document, ...options(Plot) });
    svg.querySelector("style")?.remove();
    for (const node of [svg, ...svg.querySelectorAll("*")])
      for (const name of ["style", "class", "aria-label", "aria-hidden", "aria-description"])
        node.removeAttribute(name);
    svg.setAttribute("class", "chart");
    svg.setAttribute("role", "img");
    // linkedom leaves < and & in attributes as they are: what a run is called goes in here, escaped.
    return svg.outerHTML.replace("<svg ", () => `<svg aria-label="${escaped(label)}" `);
  });
}

/**
 * Exponential moving average without the bias of its start (Kingma and Ba 2015, section 3): weight of what came before, 0 … <1; 0 gives the values
 * as they are.
 */
export function smoothed(points: Point[], weight: number): Point[] {
  let sum = 0;
  let norm = 0;
  return points.map(({ x, y }) => {
    sum = weight * sum + (1 - weight) * y;
    norm = weight * norm + (1 - weight);
    return { x, y: sum / norm };
  });
}

/** At most about `most` points: the lowest and the highest of each stretch stay, so that no spike is lost. */
export function thinned(points: Point[], most: number): Point[] {
  if (points.length <= most) return points;
  const stretch = Math.ceil((2 * points.length) / most);
  const out: Point[] = [];
  for (let i = 0; i < points.length; i += stretch) {
    const part = points.slice(i, i + stretch);
    const low = part.reduce((a, b) => (b.y < a.y ? b : a));
    const high = part.reduce((a, b) => (b.y > a.y ? b : a));
    out.push(...(low === high ? [low] : low.x < high.x ? [low, high] : [high, low]));
  }
  return out;
}

const POINTS = 300;
const short = (x: number): string =>
  Math.abs(x) >= 10_000 || (x !== 0 && Math.abs(x) < 0.001) ? x.toExponential(1) : String(Number(x.toPrecision(3)));

/** Lines over steps: the values as they are, faint, and smoothed, full. Points that are not finite are left out; "" where none is left. */
export async function lineChart(o: {
  title: string;
  series: Series[];
  smooth: number;
  width?: number;
  height?: number;
}): Promise<string> {
  const series = o.series
    .map((s, i) => {
      const raw = s.points.filter((p) => Number.isFinite(p.x) && Number.isFinite(p.y));
      return { i, raw: thinned(raw, POINTS), smooth: thinned(smoothed(raw, o.smooth), POINTS), last: raw.at(-1) };
    })
    .filter((s) => s.last !== undefined);
  if (series.length === 0) return "";
  const range = series.length === 1 ? `, last ${short(series[0]!.last!.y)}` : `, ${series.length} runs`;
  return draw(series, `${o.title}: line chart over steps${range}`, (Plot) => {
    const marks: Markish[] = [Plot.gridY({ stroke: "var(--line)", strokeOpacity: 1 })];
    for (const { i, raw, smooth } of series) {
      const at = { x: "x", y: "y", stroke: colour(i) } as const;
      if (o.smooth > 0) marks.push(Plot.lineY(raw, { ...at, strokeOpacity: 0.35, strokeWidth: 1 }));
      if (smooth.length === 1) marks.push(Plot.dot(smooth, { ...at, r: 3 }));
      else marks.push(Plot.lineY(smooth, { ...at, strokeWidth: 1.75 }));
    }
    return {
      width: o.width ?? 340,
      height: o.height ?? 170,
      marginLeft: 48,
      marginBottom: 36,
      marginRight: 12,
      x: { label: "step", ticks: 5, tickFormat: short },
      y: { label: null, ticks: 5, tickFormat: short },
      marks,
    };
  });
}

/** Means with their intervals, one row an arm, on a percent scale. */
export async function intervalChart(o: {
  title: string;
  arms: { name: string; mean: number; low: number; high: number }[];
}): Promise<string> {
  if (o.arms.length === 0) return "";
  const label = `${o.title}: success with 95 % intervals. ${o.arms.map((a) => `${a.name} ${(100 * a.mean).toFixed(1)} %`).join(", ")}`;
  return draw(o.arms, label, (Plot) => {
    const rows = o.arms.map((a, i) => ({
      ...a,
      row: `${i + 1}`,
      colour: colour(i),
      mean: 100 * a.mean,
      low: 100 * a.low,
      high: 100 * a.high,
    }));
    return {
      width: 680,
      height: 56 + 22 * rows.length,
      marginBottom: 36,
      marginLeft: 24,
      x: { label: "success %", domain: [0, 100] },
      y: { label: null, domain: rows.map((r) => r.row) },
      marks: [
        Plot.gridX({ stroke: "var(--line)", strokeOpacity: 1 }),
        ...rows.map((r) => Plot.ruleY([r], { y: "row", x1: "low", x2: "high", stroke: r.colour, strokeWidth: 2 })),
        ...rows.map((r) => Plot.dot([r], { y: "row", x: "mean", fill: r.colour, r: 4.5 })),
      ],
    };
  });
}

/** One bar a row, longest first as given: what took how long. */
export async function barChart(o: {
  title: string;
  unit: string;
  bars: { name: string; value: number }[];
}): Promise<string> {
  if (o.bars.length === 0) return "";
  return draw(
    o.bars,
    `${o.title}: ${o.bars.map((b) => `${b.name} ${short(b.value)} ${o.unit}`).join(", ")}`,
    (Plot) => ({
      width: 680,
      height: 56 + 22 * o.bars.length,
      marginBottom: 36,
      marginLeft: 110,
      x: { label: o.unit },
      y: { label: null, domain: o.bars.map((_, i) => i), tickFormat: (i: number) => o.bars[i]?.name ?? "" },
      marks: [
        Plot.gridX({ stroke: "var(--line)", strokeOpacity: 1 }),
        Plot.barX(
          o.bars.map((b, i) => ({ ...b, i })),
          { x: "value", y: "i", fill: colour(0) },
        ),
      ],
    }),
  );
}

/** Loads the libraries and draws a few times, so that the first page need not wait for either. */
export async function warmUp(): Promise<void> {
  const points = Array.from({ length: 200 }, (_, x) => ({ x, y: x % 7 }));
  for (let i = 0; i < 8; i++) {
    await lineChart({ title: `warm-up ${i}`, smooth: 0.5, series: [{ name: "warm-up", points }] });
    await new Promise((resolve) => setTimeout(resolve, 0));
  }
}
