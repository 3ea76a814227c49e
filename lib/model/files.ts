/** Files that appear whole or not at all: a temporary name beside the target, synced, then renamed. */
import { closeSync, fsyncSync, mkdirSync, openSync, renameSync, rmSync, writeSync } from "node:fs";
import { dirname } from "node:path";

/** A file could not be written or read. The message names it and says what to do. */
export class StorageError extends Error {
  override name = "StorageError";
}

/** Writes all of `bytes` at the file's position, in pieces that every platform's write call takes. */
export function writeAll(fd: number, bytes: Uint8Array): void {
  for (let at = 0; at < bytes.length; ) at += writeSync(fd, bytes, at, Math.min(bytes.length - at, 1 << 26));
}

/** Syncs a directory's entries, so that a rename in it outlives a power cut. */
export function syncDirectory(dir: string): void {
  const fd = openSync(dir, "r");
  try {
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}

/**
 * Calls `write` with an open temporary file, syncs it and renames it to `path`; parent directories are made. Readers see the old file or the
 * new one. Throws StorageError (and removes the temporary file) if the disk refuses; whatever `write` throws otherwise passes through.
 */
export async function writeAtomically(path: string, write: (fd: number) => void | Promise<void>): Promise<void> {
  const temporary = `${path}.${process.pid}.tmp`;
  try {
    mkdirSync(dirname(path), { recursive: true });
    const fd = openSync(temporary, "w+");
    try {
      await write(fd);
      fsyncSync(fd);
    } finally {
      closeSync(fd);
    }
    renameSync(temporary, path);
    syncDirectory(dirname(path));
  } catch (error) {
    rmSync(temporary, { force: true });
    throw storageError(error, path);
  }
}

/** Turns a file system's error into a StorageError that says what to do; other errors come back as they are. */
export function storageError(error: unknown, path: string): unknown {
  if (!(error instanceof Error) || !("code" in error)) return error;
  if (error.code === "ENOSPC" || error.code === "EDQUOT" || error.code === "EFBIG")
    return new StorageError(`${path}: the disk is full. Nothing was replaced; free some space and run again.`, {
      cause: error,
    });
  if (error.code === "EACCES" || error.code === "EPERM" || error.code === "EROFS")
    return new StorageError(`${path}: may not be written (${error.code}). Check the folder's owner and rights.`, {
      cause: error,
    });
  return error;
}

/** `writeAtomically` for a small text. */
export function writeTextAtomically(path: string, text: string): Promise<void> {
  return writeAtomically(path, (fd) => writeAll(fd, new TextEncoder().encode(text)));
}
