import type { FC } from "hono/jsx";

const W = 320;
const H = 140;
const PAD = { left: 44, right: 8, top: 8, bottom: 20 };

const label = (x: number): string =>
  Math.abs(x) >= 1000 || (x !== 0 && Math.abs(x) < 0.01) ? x.toExponential(1) : String(Number(x.toPrecision(3)));

/** One metric over its steps, as an inline SVG drawn on the server. Points that are not finite are left out. */
export const LineChart: FC<{ title: string; points: { x: number; y: number }[] }> = ({ title, points }) => {
  const shown = points.filter((p) => Number.isFinite(p.x) && Number.isFinite(p.y));
  if (shown.length === 0) return <></>;
  const xs = shown.map((p) => p.x);
  const ys = shown.map((p) => p.y);
  const [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const sx = (x: number) => PAD.left + ((x - x0) / (x1 - x0 || 1)) * (W - PAD.left - PAD.right);
  const sy = (y: number) => H - PAD.bottom - ((y - y0) / (y1 - y0 || 1)) * (H - PAD.top - PAD.bottom);
  const path = shown.map((p, i) => `${i === 0 ? "M" : "L"}${sx(p.x).toFixed(1)},${sy(p.y).toFixed(1)}`).join("");
  const last = shown.at(-1)!;
  return (
    <figure>
      <figcaption>
        {title} <span class="soft">last {label(last.y)}</span>
      </figcaption>
      <svg
        viewBox={`0 0 ${W} ${H}`}
        role="img"
        aria-label={`${title}: from ${label(shown[0]!.y)} to ${label(last.y)} over ${shown.length} points`}
      >
        <line class="axis" x1={PAD.left} x2={W - PAD.right} y1={H - PAD.bottom} y2={H - PAD.bottom} />
        <line class="axis" x1={PAD.left} x2={PAD.left} y1={PAD.top} y2={H - PAD.bottom} />
        <text x={PAD.left - 4} y={PAD.top + 8} text-anchor="end">
          {label(y1)}
        </text>
        <text x={PAD.left - 4} y={H - PAD.bottom} text-anchor="end">
          {label(y0)}
        </text>
        <text x={PAD.left} y={H - 6}>
          {label(x0)}
        </text>
        <text x={W - PAD.right} y={H - 6} text-anchor="end">
          {label(x1)}
        </text>
        <path class="line" d={path} />
      </svg>
    </figure>
  );
};
