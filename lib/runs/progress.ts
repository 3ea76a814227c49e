import type { Progress } from "./types.ts";

/** "950 ms", "12 s", "3 min 5 s", "1 h 4 min". */
export function duration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = Math.round(ms / 1000);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  return `${Math.floor(s / 3600)} h ${Math.round((s % 3600) / 60)} min`;
}

/**
 * Progress on a terminal (one line rewritten in place) or in a log (a line every five seconds): done of total, rate, time left.
 * `label` stands before each line.
 */
export function terminalProgress(
  stream: { isTTY?: boolean; write(text: string): unknown },
  label = "",
  now: () => number = Date.now,
): Progress {
  /** Where the present count began: a new total, or a smaller count, is a new one. */
  let first: { at: number; done: number; total: number } | null = null;
  let last = 0;
  let printed = -Infinity;
  let open = false;
  const prefix = label ? `${label}: ` : "";
  return {
    update(done, total, note) {
      const at = now();
      if (!first || first.total !== total || done < last) first = { at, done, total };
      last = done;
      const finished = done >= total;
      if (at - printed < (stream.isTTY ? 100 : 5000) && !(finished && stream.isTTY)) return;
      printed = at;
      const rate = (done - first.done) / Math.max(1e-3, (at - first.at) / 1000);
      const parts = [`${done}/${total}`];
      if (rate > 0) parts.push(`${rate >= 10 ? rate.toFixed(0) : rate.toFixed(2)}/s`);
      if (rate > 0 && !finished) parts.push(`${duration(((total - done) / rate) * 1000)} left`);
      if (note) parts.push(note);
      const line = `${prefix}${parts.join(" · ")}`;
      if (stream.isTTY) {
        stream.write(`\r\x1b[2K${line}`);
        open = true;
        if (finished) {
          stream.write("\n");
          open = false;
        }
      } else stream.write(`${line}\n`);
    },
    log(text) {
      if (open) stream.write("\r\x1b[2K");
      open = false;
      stream.write(`${prefix}${text}\n`);
    },
  };
}
