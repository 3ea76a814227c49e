import type { FC } from "hono/jsx";
import type { Trajectory, Turn } from "../paraact/types.ts";
import type { ChannelRewards, RewardTerm } from "../rewards/types.ts";
import type { StoredTrajectory } from "../runs/run.ts";
import type { TrajectoryFilter, TrajectoryRow } from "../runs/trajectory-index.ts";
import { toolPath } from "./catalog.tsx";
import { Layout } from "./layout.tsx";
import { Plans } from "./plan.tsx";
import { Block, Plain, Scroll } from "./text.tsx";
import { Timeline } from "./timeline.tsx";
import { filterQuery, Success, trajectoryPath } from "./trajectories.tsx";

const Term: FC<{ term: RewardTerm }> = ({ term }) => (
  <li>
    <code>{term.symbol}</code> <b class="value">{term.value.toFixed(3)}</b> <Plain text={term.reason} />
    {term.parts && term.parts.length > 0 ? (
      <ul>
        {term.parts.map((part) => (
          <Term term={part} />
        ))}
      </ul>
    ) : null}
  </li>
);

/** Each reward by its rule, with the reason why it is what it is. */
export const Rewards: FC<{ rewards: ChannelRewards | null }> = ({ rewards }) =>
  rewards === null ? (
    <p class="soft">No rewards: this benchmark doesn't know the gold plan.</p>
  ) : (
    <>
      <p>
        trajectory <b>{rewards.trajectory.toFixed(3)}</b> · phase <b>{rewards.phase.toFixed(3)}</b> · format{" "}
        <b>{rewards.format.toFixed(3)}</b>
      </p>
      <ul class="terms">
        {rewards.terms.map((term) => (
          <Term term={term} />
        ))}
      </ul>
    </>
  );

const Verdicts: FC<{ trajectory: Trajectory }> = ({ trajectory }) => {
  const v = trajectory.verdicts;
  if (!v) return null;
  return (
    <>
      <p class="label">Verdicts ({v.judge} judge)</p>
      <ul class="terms">
        {(["quality", "faithfulness", "utility"] as const).map((name) => (
          <li>
            {name} <b>{v[name]}</b> <Plain text={v.reasons[name]} />
          </li>
        ))}
      </ul>
    </>
  );
};

const ms = (x: number): string => `${Math.round(x).toLocaleString("en")} ms`;

/** Whether the catalogue at hand has a tool of that name: benchmarks bring tools of their own. */
export type HasTool = (name: string) => boolean;

const ToolLink: FC<{ name: string; query?: string; has: HasTool }> = ({ name, query = "", has }) =>
  has(name) ? (
    <a href={toolPath(name, query)}>
      <Plain text={name} />
    </a>
  ) : (
    <Plain text={name} />
  );

const OneTurn: FC<{ turn: Turn; i: number; open: boolean; prefix: string; has: HasTool }> = ({
  turn,
  i,
  open,
  prefix,
  has,
}) => (
  <li id={`${prefix}turn-${i + 1}`} class={`turn ${turn.kind}`}>
    <h3>
      {i + 1}. {turn.kind}{" "}
      <span class="soft">
        {ms(turn.startMs)} – {ms(turn.endMs)}
        {turn.searches.length > 0 ? ` · ${turn.searches.length} searches` : ""}
        {turn.calls.length > 0 ? ` · ${turn.calls.length} calls` : ""} · plan {turn.planSlot}
        {turn.planEvent === "none" ? "" : `, ${turn.planEvent}`}
      </span>
    </h3>
    <Block label="Reply" text={turn.reply} open={open} />
    {turn.findings.length > 0 ? (
      <ul class="failed">
        {turn.findings.map((f) => (
          <li>
            <code>{f.code}</code> at {f.at}: <Plain text={f.message} />
          </li>
        ))}
      </ul>
    ) : null}
    {turn.searches.length > 0 ? (
      <ul>
        {turn.searches.map((s) => (
          <li>
            search <Plain text={s.query} /> →{" "}
            {s.failed ? (
              <span class="failed">failed ({s.failed})</span>
            ) : s.retrieved.length === 0 ? (
              "nothing"
            ) : (
              s.retrieved.map((name, at) => (
                <>
                  {at > 0 ? ", " : ""}
                  <ToolLink name={name} query={s.query.slice(0, 500)} has={has} />
                </>
              ))
            )}
          </li>
        ))}
      </ul>
    ) : null}
    {turn.calls.length > 0 ? (
      <div class="calls">
        {turn.calls.map((c) => (
          <div class={`call ${c.outcome}`}>
            <p>
              {c.call ? <ToolLink name={c.call.name} has={has} /> : "a block that holds no call"}{" "}
              <span class={c.outcome === "ok" ? "status done" : "status failed"}>{c.outcome}</span> {c.status} ·{" "}
              {ms(c.latencyMs)}
              {c.fault ? ` · fault ${c.fault}` : ""} · {c.occurrence ?? "outside the plan"}
            </p>
            {c.call ? <Block label="Arguments" text={JSON.stringify(c.call.arguments, null, 1)} open={open} /> : null}
            <Block label="Response" text={c.observation} open={open} />
          </div>
        ))}
      </div>
    ) : null}
    {turn.answer !== null ? <Block label="Answer" text={turn.answer} open={true} /> : null}
    {turn.observation !== "" && turn.calls.length === 0 ? (
      <Block label="Observation" text={turn.observation} open={open} />
    ) : null}
  </li>
);

export const Turns: FC<{ trajectory: Trajectory; open: boolean; prefix?: string; has: HasTool }> = ({
  trajectory,
  open,
  prefix = "",
  has,
}) => (
  <ol class="turns">
    {trajectory.turns.map((turn, i) => (
      <OneTurn turn={turn} i={i} open={open} prefix={prefix} has={has} />
    ))}
  </ol>
);

export const Facts: FC<{ stored: StoredTrajectory; run: string }> = ({ stored: s, run }) => {
  const t = s.trajectory;
  return (
    <p>
      <Success success={s.success} /> {s.benchmark} · {s.group} · <Plain text={s.label} /> · trial {s.trial} ·{" "}
      {t.paradigm} · <Plain text={t.policy} /> · ended: {t.end} · {t.usage.completionTokens} tokens written
      {t.usage.estimated ? " (estimated)" : ""} · {ms(t.makespanMs)} of {ms(t.serialMs)} in series ·{" "}
      <a href={`/runs/${run}`}>{run}</a>
    </p>
  );
};

export interface TrajectoryProps {
  row: TrajectoryRow;
  stored: StoredTrajectory;
  filter: TrajectoryFilter;
  open: boolean;
  beside: Record<"previous" | "next" | "previousFailure" | "nextFailure", TrajectoryRow | null>;
  same: TrajectoryRow[];
  has: HasTool;
}

const KEYS = [
  ["previous", "p", "previous"],
  ["next", "n", "next"],
  ["previousFailure", "F", "previous failure"],
  ["nextFailure", "f", "next failure"],
] as const;

/** One trajectory: time line, plan, rewards, and the whole text. */
export const TrajectoryPage: FC<TrajectoryProps> = ({ row, stored, filter, open, beside, same, has }) => {
  const { trajectory: t, rewards } = stored;
  const query = (more: Record<string, string> = {}) => filterQuery(filter, more);
  return (
    <Layout title={`Task ${t.taskId}`} here="/trajectories">
      <nav class="pages" aria-label="Other trajectories">
        <a href={`/trajectories${query()}`} data-key="l">
          list <kbd>l</kbd>
        </a>
        {KEYS.map(([where, key, name]) => {
          const to = beside[where];
          return to ? (
            <a href={`${trajectoryPath(to)}${query(open ? { open: "yes" } : {})}`} data-key={key}>
              {name} <kbd>{key}</kbd>
            </a>
          ) : (
            <span class="soft">
              {name} <kbd>{key}</kbd>
            </span>
          );
        })}
        <a href={`${trajectoryPath(row)}${query(open ? {} : { open: "yes" })}`} data-key="o">
          {open ? "fold" : "unfold"} all <kbd>o</kbd>
        </a>
      </nav>
      <Facts stored={stored} run={row.run} />
      <Block label="Request" text={t.request} open={true} />
      {t.answer === null ? null : <Block label="Answer" text={t.answer} open={true} />}
      {t.error === null ? null : (
        <p class="failed">
          <Plain text={t.error} />
        </p>
      )}
      <h2>Time line</h2>
      <Scroll label="Time line">
        <Timeline trajectory={t} />
      </Scroll>
      <p class="legend-line soft">
        <span class="swatch ok" aria-hidden="true"></span> ok <span class="swatch search" aria-hidden="true"></span>{" "}
        search <span class="swatch transient" aria-hidden="true"></span> passing fault{" "}
        <span class="swatch final" aria-hidden="true"></span> failed for good
      </p>
      <h2>Plan</h2>
      <Plans trajectory={t} />
      <h2>Rewards</h2>
      <Rewards rewards={rewards} />
      <Verdicts trajectory={t} />
      {same.length > 0 ? (
        <details>
          <summary>Same task elsewhere, side by side ({same.length})</summary>
          <ul>
            {same.map((o) => (
              <li>
                <a
                  href={`/pair?a=${encodeURIComponent(`${row.run}:${row.n}`)}&b=${encodeURIComponent(`${o.run}:${o.n}`)}`}
                >
                  {o.paradigm} · <Plain text={o.label} /> · trial {o.trial} · {o.run}
                </a>{" "}
                <Success success={o.success} />
              </li>
            ))}
          </ul>
        </details>
      ) : null}
      <h2>Turns</h2>
      {t.opening ? <Block label="Searched before the first turn" text={t.opening.observation} open={open} /> : null}
      <Turns trajectory={t} open={open} has={has} />
      <Block label="System prompt" text={t.system} />
    </Layout>
  );
};

/** Two trajectories of one task side by side, on one scale of time. */
export const PairPage: FC<{
  sides: { row: TrajectoryRow; stored: StoredTrajectory }[];
  open: boolean;
  toggle: string;
  has: HasTool;
}> = ({ sides, open, toggle, has }) => {
  const untilMs = Math.max(...sides.map((s) => s.stored.trajectory.makespanMs));
  return (
    <Layout title="Side by side" here="/trajectories">
      {new Set(sides.map((s) => s.row.task)).size > 1 ? (
        <p class="failed">These are trajectories of different tasks.</p>
      ) : null}
      <Block label="Request" text={sides[0]!.stored.trajectory.request} open={true} />
      <nav class="pages" aria-label="View">
        <a href={toggle} data-key="o">
          {open ? "fold" : "unfold"} all <kbd>o</kbd>
        </a>
      </nav>
      <div class="pair">
        {sides.map(({ row, stored }, i) => (
          <section aria-label={`${i === 0 ? "left" : "right"}: ${row.paradigm} ${row.label}`}>
            <h2>
              <a href={trajectoryPath(row)}>
                {row.paradigm} · <Plain text={row.label} />
              </a>
            </h2>
            <Facts stored={stored} run={row.run} />
            <Scroll label={`Time line ${i + 1}`}>
              <Timeline trajectory={stored.trajectory} untilMs={untilMs} prefix={`s${i}-`} />
            </Scroll>
            <Plans trajectory={stored.trajectory} />
            {stored.trajectory.answer === null ? null : (
              <Block label="Answer" text={stored.trajectory.answer} open={true} />
            )}
            <Rewards rewards={stored.rewards} />
            <Turns trajectory={stored.trajectory} open={open} prefix={`s${i}-`} has={has} />
          </section>
        ))}
      </div>
    </Layout>
  );
};
