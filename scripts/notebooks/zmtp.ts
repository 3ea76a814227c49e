/**
 * As much of ZeroMQ's wire protocol (ZMTP 3.0, RFC 23, NULL mechanism) as a Jupyter client needs: one DEALER or SUB socket over TCP to one peer.
 * The zeromq package is native and does not load in Bun (libuv calls that Bun lacks).
 */
import { connect, type Socket } from "node:net";

export type SocketType = "DEALER" | "SUB";

/** The peer is no ZMTP 3 peer, or went away. */
export class ZmtpError extends Error {
  override name = "ZmtpError";
}

const GREETING = Buffer.concat([
  Buffer.from([0xff, 0, 0, 0, 0, 0, 0, 0, 0x01, 0x7f, 3, 0]),
  Buffer.from("NULL".padEnd(20, "\0"), "latin1"),
  Buffer.alloc(32),
]);
const MORE = 1;
const LONG = 2;
const COMMAND = 4;

function frame(flags: number, body: Uint8Array): Buffer {
  if (body.length <= 255) return Buffer.concat([Buffer.from([flags, body.length]), body]);
  const head = Buffer.alloc(9);
  head[0] = flags | LONG;
  head.writeBigUInt64BE(BigInt(body.length), 1);
  return Buffer.concat([head, body]);
}

function ready(type: SocketType): Buffer {
  const property = (name: string, value: string) => {
    const length = Buffer.alloc(4);
    length.writeUInt32BE(value.length);
    return Buffer.concat([Buffer.from([name.length]), Buffer.from(name), length, Buffer.from(value)]);
  };
  const identity = type === "DEALER" ? [property("Identity", "")] : [];
  return Buffer.concat([Buffer.from([5]), Buffer.from("READY"), property("Socket-Type", type), ...identity]);
}

export class ZmtpSocket {
  readonly #socket: Socket;
  #bytes = Buffer.alloc(0);
  #greeted = false;
  #parts: Buffer[] = [];

  private constructor(socket: Socket, type: SocketType, opened: () => void, onMessage: (parts: Buffer[]) => void) {
    this.#socket = socket;
    socket.write(GREETING);
    socket.on("data", (chunk: Buffer) => {
      this.#bytes = Buffer.concat([this.#bytes, chunk]);
      if (!this.#greeted) {
        if (this.#bytes.length < 64) return;
        this.#bytes = this.#bytes.subarray(64);
        this.#greeted = true;
        socket.write(frame(COMMAND, ready(type)));
      }
      for (let next = this.#take(); next; next = this.#take()) {
        if (next.flags & COMMAND) {
          if (next.body.subarray(1, 6).toString() !== "READY") continue;
          if (type === "SUB") socket.write(frame(0, Buffer.from([1])));
          opened();
          continue;
        }
        this.#parts.push(next.body);
        if (next.flags & MORE) continue;
        const parts = this.#parts;
        this.#parts = [];
        onMessage(parts);
      }
    });
  }

  /** Connects and shakes hands. A SUB socket subscribes to everything. Throws ZmtpError where nobody answers. */
  static open(
    port: number,
    type: SocketType,
    onMessage: (parts: Buffer[]) => void,
    onClose: (why: string) => void = () => {},
  ): Promise<ZmtpSocket> {
    return new Promise((resolve, reject) => {
      const socket = connect({ host: "127.0.0.1", port });
      socket.on("error", (e) => reject(new ZmtpError(`no ZMTP peer at port ${port}: ${e.message}`)));
      socket.on("close", () => onClose(`the peer at port ${port} closed`));
      socket.once("connect", () => {
        const opened = new ZmtpSocket(socket, type, () => resolve(opened), onMessage);
      });
    });
  }

  /** One whole frame, if it has come. */
  #take(): { flags: number; body: Buffer } | null {
    const bytes = this.#bytes;
    const flags = bytes[0];
    if (flags === undefined) return null;
    const head = flags & LONG ? 9 : 2;
    if (bytes.length < head) return null;
    const length = flags & LONG ? Number(bytes.readBigUInt64BE(1)) : bytes[1]!;
    if (bytes.length < head + length) return null;
    this.#bytes = bytes.subarray(head + length);
    return { flags, body: bytes.subarray(head, head + length) };
  }

  send(parts: Uint8Array[]): void {
    this.#socket.write(Buffer.concat(parts.map((p, i) => frame(i < parts.length - 1 ? MORE : 0, p))));
  }

  close(): void {
    this.#socket.destroy();
  }
}
