/** Large files that appear whole or not at all, written piece by piece; small ones go through config/atomic.ts. */
import { closeSync, fsyncSync, mkdirSync, openSync, renameSync, rmSync, writeSync } from "node:fs";
import { dirname } from "node:path";
import { syncFolder } from "../config/atomic.ts";

/** Writes all of `bytes` at the file's position, in pieces that every platform's write call takes. */
export function writeAll(fd: number, bytes: Uint8Array): void {
  for (let at = 0; at < bytes.length; ) at += writeSync(fd, bytes, at, Math.min(bytes.length - at, 1 << 26));
}

/**
 * Calls `write` with an open temporary file, syncs it and renames it to `path`; parent directories are made. Readers see the old file or the
 * new one. Whatever fails passes through, and the temporary file is gone.
 */
export async function writeAtomically(path: string, write: (fd: number) => void | Promise<void>): Promise<void> {
  const temporary = `${path}.${process.pid}.tmp`;
  mkdirSync(dirname(path), { recursive: true });
  const fd = openSync(temporary, "w+");
  try {
    try {
      await write(fd);
      fsyncSync(fd);
    } finally {
      closeSync(fd);
    }
    renameSync(temporary, path);
  } catch (error) {
    rmSync(temporary, { force: true });
    throw error;
  }
  syncFolder(dirname(path));
}
