/** Plans as drawn graphs: a column a step, an arrow a dependency, and what became of each occurrence. */
import type { FC } from "hono/jsx";
import type { Edge } from "../paraact/plan.ts";
import type { Trajectory } from "../paraact/types.ts";
import { executionPhases, type PlanWindow } from "../rewards/phase.ts";
import { Scroll } from "./text.tsx";

const BOX = { width: 190, height: 40, gapX: 56, gapY: 14, pad: 10 };

type State = "done" | "carried" | "retried" | "failed" | "not called";

function stateOf(window: PlanWindow, ref: string): { state: State; detail: string } {
  if (window.carried.has(ref)) return { state: "carried", detail: "done before this plan" };
  const calls = window.calls.filter((c) => c.ref === ref);
  if (calls.length === 0) return { state: "not called", detail: "not called" };
  const turns = calls.map((c) => `turn ${c.turn + 1}: ${c.outcome}`).join(", ");
  if (!calls.some((c) => c.outcome === "ok")) return { state: "failed", detail: turns };
  return { state: calls.length > 1 ? "retried" : "done", detail: turns };
}

const cut = (text: string, most: number): string => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

const PlanGraphSvg: FC<{ window: PlanWindow; name: string }> = ({ window, name }) => {
  const { occurrences, declared, implied } = window.graph;
  const steps = [...new Set(occurrences.map((o) => o.step))].sort((a, b) => a - b);
  const place = new Map<string, { x: number; y: number }>();
  let rows = 1;
  for (const [column, step] of steps.entries()) {
    const here = occurrences.filter((o) => o.step === step);
    rows = Math.max(rows, here.length);
    here.forEach((o, row) => {
      place.set(o.ref, {
        x: BOX.pad + column * (BOX.width + BOX.gapX),
        y: 24 + row * (BOX.height + BOX.gapY),
      });
    });
  }
  const width = 2 * BOX.pad + steps.length * BOX.width + (steps.length - 1) * BOX.gapX;
  const height = 24 + rows * (BOX.height + BOX.gapY);
  const edge = ([from, to]: Edge, kind: string) => {
    const [a, b] = [place.get(from), place.get(to)];
    if (!a || !b) return null;
    const [x1, y1, x2, y2] = [a.x + BOX.width, a.y + BOX.height / 2, b.x, b.y + BOX.height / 2];
    const bend = (x1 + x2) / 2;
    return (
      <g class={`edge ${kind}`}>
        <path d={`M${x1},${y1} C${bend},${y1} ${bend},${y2} ${x2 - 6},${y2}`}>
          <title>{`${from} → ${to} (${kind})`}</title>
        </path>
        <path class="head" d={`M${x2},${y2} l-8,-4 v8 z`} />
      </g>
    );
  };
  return (
    <svg
      class="plan"
      width={width}
      height={height}
      viewBox={`0 0 ${width} ${height}`}
      role="img"
      aria-label={`${name}: ${occurrences.map((o) => `${o.ref} in step ${o.step}, ${stateOf(window, o.ref).state}`).join("; ")}`}
    >
      {steps.map((step, column) => (
        <text class="tick" x={BOX.pad + column * (BOX.width + BOX.gapX)} y={14}>{`step ${step}`}</text>
      ))}
      {declared.map((e) => edge(e, "declared"))}
      {implied.map((e) => edge(e, "implied"))}
      {occurrences.map((o) => {
        const { x, y } = place.get(o.ref)!;
        const { state, detail } = stateOf(window, o.ref);
        return (
          <g class={`node ${state.replace(" ", "-")}`}>
            <rect x={x} y={y} width={BOX.width} height={BOX.height} rx={6}>
              <title>{`${o.ref}: ${detail}`}</title>
            </rect>
            <text x={x + 8} y={y + 17}>
              {cut(o.ref, 29)}
            </text>
            <text class="tick" x={x + 8} y={y + 32}>
              {cut(`${state}${state === "failed" || state === "retried" ? ` · ${detail}` : ""}`, 34)}
            </text>
          </g>
        );
      })}
    </svg>
  );
};

/** Every execution plan that was followed, in order. */
export const Plans: FC<{ trajectory: Trajectory }> = ({ trajectory }) => {
  const windows = executionPhases(trajectory).flatMap((phase, p) =>
    phase.map((window, w) => ({
      window,
      name: `execution phase ${p + 1}${phase.length > 1 ? `, plan ${w + 1}` : ""}`,
    })),
  );
  if (windows.length === 0) return <p class="soft">No execution plan was accepted.</p>;
  return (
    <>
      {windows.map(({ window, name }) => (
        <>
          <p class="label">{name}</p>
          <Scroll label={`Plan of ${name}`}>
            <PlanGraphSvg window={window} name={name} />
          </Scroll>
        </>
      ))}
    </>
  );
};
