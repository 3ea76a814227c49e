/** A Jupyter kernel as a child process, and a client for it (Jupyter's messaging protocol 5.3). */
import { createHmac } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { z } from "zod";
import { ZmtpSocket } from "./zmtp.ts";

/** The kernel did not start, or ended in the middle. */
export class KernelError extends Error {
  override name = "KernelError";
}

const Header = z.looseObject({ msg_type: z.string(), msg_id: z.string().optional() });
const Content = z.record(z.string(), z.unknown());

interface Message {
  type: string;
  /** Id of the request that this belongs to. */
  parent: string | null;
  content: Record<string, unknown>;
}

/** An output as notebook files hold it (nbformat 4). */
export type Output = { output_type: string } & Record<string, unknown>;

const DELIMITER = "<IDS|MSG>";

function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.on("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      server.close(() =>
        address && typeof address === "object" ? resolve(address.port) : reject(new Error("no port")),
      );
    });
  });
}

export class Kernel {
  readonly #key: string;
  readonly #folder: string;
  readonly #session = crypto.randomUUID();
  #process: ReturnType<typeof Bun.spawn> | null = null;
  #shell: ZmtpSocket | null = null;
  #iopub: ZmtpSocket | null = null;
  #listener: ((message: Message) => void) | null = null;

  private constructor() {
    this.#key = crypto.randomUUID();
    this.#folder = mkdtempSync(join(tmpdir(), "paraagent-kernel-"));
  }

  /** Starts `command` with the path of a connection file behind it, in folder `cwd`. */
  static async start(command: string[], cwd: string, env: Record<string, string>): Promise<Kernel> {
    const kernel = new Kernel();
    const [shell, iopub, control, stdin, hb] = await Promise.all(Array.from({ length: 5 }, freePort));
    const file = join(kernel.#folder, "connection.json");
    writeFileSync(
      file,
      JSON.stringify({
        transport: "tcp",
        ip: "127.0.0.1",
        shell_port: shell,
        iopub_port: iopub,
        control_port: control,
        stdin_port: stdin,
        hb_port: hb,
        key: kernel.#key,
        signature_scheme: "hmac-sha256",
      }),
      { mode: 0o600 },
    );
    const child = Bun.spawn([...command, file], {
      cwd,
      env: { ...process.env, ...env },
      stdin: "ignore",
      stdout: "ignore",
      stderr: "pipe",
    });
    kernel.#process = child;
    const said = new Response(child.stderr).text();
    const lost = child.exited.then(async (code) => {
      throw new KernelError(`the kernel ended with status ${code}: ${(await said).trim().slice(-2000)}`);
    });
    lost.catch(() => {});
    const onMessage = (parts: Buffer[]) => {
      const message = kernel.#read(parts);
      if (message) kernel.#listener?.(message);
    };
    const open = async (port: number, type: "DEALER" | "SUB"): Promise<ZmtpSocket> => {
      for (let tries = 0; ; tries++) {
        try {
          return await ZmtpSocket.open(port, type, onMessage);
        } catch (error) {
          // It listens once it has started.
          if (tries >= 200) throw error;
          await Bun.sleep(100);
        }
      }
    };
    try {
      kernel.#iopub = await Promise.race([open(iopub!, "SUB"), lost]);
      kernel.#shell = await Promise.race([open(shell!, "DEALER"), lost]);
      await Promise.race([kernel.#ask("kernel_info_request", {}), lost]);
    } catch (error) {
      kernel.close();
      throw error;
    }
    return kernel;
  }

  #sign(parts: string[]): string {
    const hmac = createHmac("sha256", this.#key);
    for (const p of parts) hmac.update(p);
    return hmac.digest("hex");
  }

  #read(parts: Buffer[]): Message | null {
    const at = parts.findIndex((p) => p.toString() === DELIMITER);
    const [signature, ...rest] = parts.slice(at + 1, at + 6).map((p) => p.toString());
    if (at < 0 || rest.length < 4 || signature !== this.#sign(rest)) return null;
    const [header, parent, , content] = rest.map((text) => JSON.parse(text) as unknown);
    return {
      type: Header.parse(header).msg_type,
      parent: z.looseObject({ msg_id: z.string().optional() }).parse(parent).msg_id ?? null,
      content: Content.parse(content),
    };
  }

  /** Sends a request and resolves once its reply has come and the kernel is idle again. */
  #ask(type: string, content: unknown, onOutput: (m: Message) => void = () => {}): Promise<Message> {
    const id = crypto.randomUUID();
    const parts = [
      {
        msg_id: id,
        session: this.#session,
        username: "paraagent",
        date: new Date().toISOString(),
        msg_type: type,
        version: "5.3",
      },
      {},
      {},
      content,
    ].map((x) => JSON.stringify(x));
    return new Promise((resolve) => {
      let reply: Message | null = null;
      let idle = type === "kernel_info_request";
      this.#listener = (m) => {
        if (m.parent !== id) return;
        if (m.type === type.replace("_request", "_reply")) reply = m;
        else if (m.type === "status") idle ||= m.content.execution_state === "idle";
        else onOutput(m);
        if (reply && idle) resolve(reply);
      };
      this.#shell!.send([DELIMITER, this.#sign(parts), ...parts].map((p) => Buffer.from(p)));
    });
  }

  /** Executes a cell. `error` is null where it succeeded. Rejects with KernelError where the kernel ends, or after `timeoutMs`. */
  async execute(code: string, timeoutMs: number): Promise<{ outputs: Output[]; error: string | null }> {
    const outputs: Output[] = [];
    const done = this.#ask(
      "execute_request",
      { code, silent: false, store_history: true, user_expressions: {}, allow_stdin: false, stop_on_error: true },
      (m) => {
        const { content } = m;
        if (m.type === "stream") outputs.push({ output_type: "stream", name: content.name, text: content.text });
        if (m.type === "display_data" || m.type === "execute_result")
          outputs.push({
            output_type: m.type,
            data: content.data,
            metadata: content.metadata ?? {},
            ...(m.type === "execute_result" ? { execution_count: content.execution_count } : {}),
          });
        if (m.type === "error")
          outputs.push({
            output_type: "error",
            ename: content.ename,
            evalue: content.evalue,
            traceback: content.traceback,
          });
      },
    );
    let timer: ReturnType<typeof setTimeout> | undefined;
    const ended = this.#process!.exited.then((code) => {
      throw new KernelError(`the kernel ended with status ${code}`);
    });
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new KernelError(`no end after ${timeoutMs / 1000} s`)), timeoutMs);
    });
    ended.catch(() => {});
    try {
      const reply = await Promise.race([done, ended, late]);
      const { status, ename, evalue, traceback } = reply.content;
      const trace = Array.isArray(traceback) ? traceback.join("\n") : "";
      const error = status === "ok" ? null : trace || `${ename}: ${evalue}`;
      return { outputs, error };
    } finally {
      clearTimeout(timer);
    }
  }

  close(): void {
    this.#shell?.close();
    this.#iopub?.close();
    this.#process?.kill();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}
