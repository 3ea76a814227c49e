/** A trajectory on the virtual clock: phases as bands, the actions of a turn side by side below each other. */
import type { FC } from "hono/jsx";
import type { Trajectory, Turn } from "../paraact/types.ts";

const LEFT = 8;
const WIDTH = 960;
const TOP = 42;
const LANE = 18;
/** What takes no virtual time is still seen. */
const THINNEST = 5;

interface Action {
  label: string;
  state: "ok" | "transient" | "final" | "search";
  startMs: number;
  endMs: number;
}

function actionsOf(turn: Turn): Action[] {
  return [
    ...turn.searches.map(
      (s): Action => ({
        label: `search: ${s.query}${s.failed ? ` (failed: ${s.failed})` : ` → ${s.retrieved.length} tools`}`,
        state: s.failed === null ? "search" : s.failed,
        startMs: turn.startMs,
        endMs: turn.startMs + s.latencyMs,
      }),
    ),
    ...turn.calls.map(
      (c): Action => ({
        label: `${c.occurrence ?? c.call?.name ?? "unreadable call"}: ${c.outcome}, status ${c.status}${c.fault ? `, fault ${c.fault}` : ""}`,
        state: c.outcome === "ok" ? "ok" : c.outcome === "transient" ? "transient" : "final",
        startMs: turn.startMs,
        endMs: turn.startMs + c.latencyMs,
      }),
    ),
  ];
}

const ms = (x: number): string => `${Math.round(x).toLocaleString("en")} ms`;
const cut = (text: string, most: number): string => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

/** Maximal runs of turns of one kind, with where they stand in the picture. */
function phases(turns: Turn[]): { kind: string; from: number; to: number }[] {
  const out: { kind: string; from: number; to: number }[] = [];
  turns.forEach((t, i) => {
    const last = out.at(-1);
    if (last && (last.kind === t.kind || t.kind === "none")) last.to = i;
    else out.push({ kind: t.kind, from: i, to: i });
  });
  return out;
}

export const Timeline: FC<{ trajectory: Trajectory; untilMs?: number; prefix?: string }> = (props) => {
  const { trajectory, prefix = "" } = props;
  const { turns } = trajectory;
  const until = Math.max(1, props.untilMs ?? 0, trajectory.makespanMs, ...turns.map((t) => t.endMs));
  const x = (t: number): number => LEFT + (t / until) * (WIDTH - 2 * LEFT);
  const lists = turns.map(actionsOf);
  const lanes = Math.max(1, ...lists.map((l) => l.length));
  const height = TOP + lanes * LANE + 26;
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((share) => share * until);
  const bands = phases(turns).map((p) => {
    const start = x(turns[p.from]!.startMs);
    return { ...p, start, width: Math.max(THINNEST, x(turns[p.to]!.endMs) - start) };
  });
  const summary = `${turns.length} turns in ${ms(trajectory.makespanMs)} of virtual time, ${ms(trajectory.serialMs)} one after the other`;
  return (
    // biome-ignore lint/a11y/useSemanticElements: links within a picture; a fieldset would be a form's
    <svg class="timeline" viewBox={`0 0 ${WIDTH} ${height}`} role="group" aria-label={`Time line: ${summary}`}>
      {bands.map((b) => (
        <g class={`band ${b.kind}`}>
          <rect x={b.start} y={0} width={b.width} height={height - 20}>
            <title>{`${b.kind}, turns ${b.from + 1} to ${b.to + 1}`}</title>
          </rect>
          {b.width > 46 ? (
            <text x={b.start + 4} y={13}>
              {b.kind}
            </text>
          ) : null}
        </g>
      ))}
      {turns.map((turn, i) => {
        const start = x(turn.startMs);
        return (
          <a href={`#${prefix}turn-${i + 1}`}>
            <line class="turn" x1={start} x2={start} y1={18} y2={height - 20} />
            {(turns[i - 1]?.startMs ?? -1) < turn.startMs || i === 0 ? (
              <text x={start + 3} y={32}>
                {i + 1}
              </text>
            ) : null}
            {lists[i]!.map((a, lane) => {
              const width = Math.max(THINNEST, x(a.endMs) - x(a.startMs));
              const room = Math.floor((width - 8) / 6);
              return (
                <g class={`action ${a.state}`}>
                  <rect x={x(a.startMs)} y={TOP + lane * LANE} width={width} height={LANE - 4} rx={3}>
                    <title>{`${cut(a.label, 300)}, ${ms(a.endMs - a.startMs)}`}</title>
                  </rect>
                  {room > 3 ? (
                    <text x={x(a.startMs) + 4} y={TOP + lane * LANE + 11}>
                      {cut(a.label, room)}
                    </text>
                  ) : null}
                </g>
              );
            })}
          </a>
        );
      })}
      {ticks.map((t, i) => (
        <text class="tick" x={x(t)} y={height - 5} text-anchor={i === 0 ? "start" : i === 4 ? "end" : "middle"}>
          {ms(t)}
        </text>
      ))}
    </svg>
  );
};
