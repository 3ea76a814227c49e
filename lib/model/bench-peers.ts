/** Peers of the benchmarks that are processes of their own: PyTorch and jax-js, each a server on standard input in scripts/bench/. */
import { existsSync } from "node:fs";
import { resolve } from "node:path";

const root = resolve(import.meta.dir, "../..");
export const JAX_ENTRY = resolve(root, ".cache/jaxjs/node_modules/@jax-js/jax/dist/index.js");
export const JAX_INSTALL = "npm install --prefix .cache/jaxjs @jax-js/jax@0.1.25";
export const TORCH_INSTALL = "apt-get install python3-torch (Debian; for /usr/bin/python3)";

/** A peer's process ended or answered something else: what it wrote last. */
export class PeerError extends Error {
  override name = "PeerError";
}

export interface Peer {
  /** Asks a line such as `train S 1`; the rate that comes back. Throws PeerError. */
  ask(line: string): Promise<number>;
  close(): Promise<void>;
}

function childPeer(command: string[]): Peer {
  const child = Bun.spawn(command, { cwd: root, stdin: "pipe", stdout: "pipe", stderr: "pipe" });
  const lines = child.stdout.pipeThrough(new TextDecoderStream()).getReader();
  const errors = new Response(child.stderr).text();
  return {
    async ask(line) {
      child.stdin.write(`${line}\n`);
      child.stdin.flush();
      let text = "";
      while (!text.includes("\n")) {
        const { done, value } = await lines.read();
        if (done)
          throw new PeerError(`"${line}": ${command.join(" ")} ended: ${(await errors).trim() || "no message"}`);
        text += value;
      }
      const answer: unknown = JSON.parse(text);
      if (!answer || typeof answer !== "object" || !("rate" in answer))
        throw new PeerError(`"${line}": ${command.join(" ")} answered ${text}`);
      return Number(answer.rate);
    },
    async close() {
      child.stdin.end();
      await child.exited;
    },
  };
}

/** PyTorch on the CPU: `train SIZE STEPS`, `forward SIZE STEPS`, `decode SIZE BATCH TOKENS` in tokens a second. Null where Python has no torch. */
export function torchPeer(python = "/usr/bin/python3"): Peer | null {
  if (!existsSync(python) || Bun.spawnSync([python, "-c", "import torch"]).exitCode !== 0) return null;
  return childPeer([python, "scripts/bench/torch_train.py"]);
}

/** jax-js on `wasm` or on the WebGPU adapter of a device request: `train SIZE STEPS` in tokens a second, `matmul N` in GFLOP/s. Null where it is not installed. */
export function jaxPeer(backend: string): Peer | null {
  return existsSync(JAX_ENTRY) ? childPeer([process.execPath, "scripts/bench/jax.ts", backend]) : null;
}
