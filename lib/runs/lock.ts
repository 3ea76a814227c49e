import { closeSync, mkdirSync, openSync, readFileSync, rmSync, writeSync } from "node:fs";
import { join } from "node:path";

/** Another living process works in this folder. */
export class FolderBusyError extends Error {
  override name = "FolderBusyError";
}

function alive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

/** When a process started, in clock ticks since boot (Linux), so that a pid used again by another process is not taken for its owner. */
function startTicks(pid: number): string | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    return stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19] ?? null;
  } catch {
    // No /proc on this system, or the process is gone: the pid alone decides.
    return null;
  }
}

function owner(file: string): { pid: number; ticks: string | null } | null {
  try {
    const parsed = JSON.parse(readFileSync(file, "utf8")) as { pid?: unknown; ticks?: unknown };
    return typeof parsed.pid === "number"
      ? { pid: parsed.pid, ticks: typeof parsed.ticks === "string" ? parsed.ticks : null }
      : null;
  } catch {
    // Half-written by a process that was killed, or just removed.
    return null;
  }
}

/**
 * Takes the folder's lock, and returns what gives it back. A lock left by a dead process is taken over.
 * @throws FolderBusyError where a living process holds it.
 */
export function lockFolder(dir: string): () => void {
  mkdirSync(dir, { recursive: true });
  const file = join(dir, "lock.json");
  for (let attempt = 0; attempt < 3; attempt++) {
    try {
      const fd = openSync(file, "wx");
      writeSync(fd, JSON.stringify({ pid: process.pid, ticks: startTicks(process.pid) }));
      closeSync(fd);
      return () => rmSync(file, { force: true });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
      const held = owner(file);
      if (held && alive(held.pid) && (held.ticks === null || held.ticks === startTicks(held.pid))) {
        throw new FolderBusyError(
          `${dir} is in use by process ${held.pid}. Wait until it is done, or stop it (kill ${held.pid}) and run the same command again: it goes on from the last checkpoint.`,
        );
      }
      rmSync(file, { force: true });
    }
  }
  throw new FolderBusyError(`${dir} is being taken by several processes at once. Run the command again.`);
}
