import { afterEach, expect, test } from "bun:test";
import { createServer, type Server } from "node:net";
import { ZmtpSocket } from "./zmtp.ts";

let server: Server | null = null;
afterEach(() => server?.close());

/** A peer that greets, says READY, and hands over all bytes that come after the other side's READY. */
function peer(send: Buffer[]): Promise<{ port: number; came: Promise<Buffer> }> {
  return new Promise((resolve) => {
    const { promise, resolve: done } = Promise.withResolvers<Buffer>();
    server = createServer((socket) => {
      let bytes = Buffer.alloc(0);
      let greeted = false;
      socket.write(
        Buffer.concat([
          Buffer.from([0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 0]),
          Buffer.from("NULL".padEnd(20, "\0")),
          Buffer.alloc(32),
        ]),
      );
      socket.on("data", (chunk) => {
        bytes = Buffer.concat([bytes, chunk as Buffer]);
        if (!greeted && bytes.length >= 64) {
          greeted = true;
          expect(bytes.subarray(12, 16).toString()).toBe("NULL");
          bytes = bytes.subarray(64);
          const ready = Buffer.concat([Buffer.from([5]), Buffer.from("READY")]);
          // In pieces, as a network may.
          for (const part of [Buffer.from([4, ready.length]), ready, ...send]) socket.write(part);
        }
        const end = greeted && bytes[0] === 4 ? 2 + bytes[1]! : 0;
        if (end > 0 && bytes.length > end) done(bytes.subarray(end));
      });
    }).listen(0, "127.0.0.1", () => {
      const address = server?.address();
      resolve({ port: address && typeof address === "object" ? address.port : 0, came: promise });
    });
  });
}

test("messages of several frames come whole, long ones too, however they are cut", async () => {
  const long = Buffer.alloc(70_000, "x");
  const head = Buffer.alloc(9);
  head[0] = 2;
  head.writeBigUInt64BE(70_000n, 1);
  const { port } = await peer([
    Buffer.from([1, 2]),
    Buffer.from("ab"),
    head.subarray(0, 4),
    head.subarray(4),
    long.subarray(0, 100),
    long.subarray(100),
  ]);
  const { promise, resolve } = Promise.withResolvers<Buffer[]>();
  const socket = await ZmtpSocket.open(port, "DEALER", resolve);
  const parts = await promise;
  expect(parts.map((p) => p.length)).toEqual([2, 70_000]);
  expect(parts[0]!.toString()).toBe("ab");
  socket.close();
});

test("what is sent has the frames of the standard; a subscriber subscribes to everything", async () => {
  const { port, came } = await peer([]);
  const socket = await ZmtpSocket.open(port, "DEALER", () => {});
  socket.send([Buffer.from("a"), Buffer.alloc(300, "b")]);
  const bytes = await came;
  expect([...bytes.subarray(0, 3)]).toEqual([1, 1, 97]);
  socket.close();
  server?.close();
  const other = await peer([]);
  const subscriber = await ZmtpSocket.open(other.port, "SUB", () => {});
  expect([...(await other.came)]).toEqual([0, 1, 1]);
  subscriber.close();
});

test("nobody at the port is an error that names it", async () => {
  await expect(ZmtpSocket.open(1, "SUB", () => {})).rejects.toThrow("port 1");
});
