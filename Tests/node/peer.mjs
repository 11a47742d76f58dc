// A peer that speaks as little of RSocket as a test wants: it collects the frames of its client, and sends bytes.

import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

export const SETUP = 1, KEEPALIVE = 3, REQUEST_STREAM = 6, REQUEST_N = 8, CANCEL = 9, PAYLOAD = 10, ERROR = 11;
export const RESPOND = 0x80, NEXT_WITH_METADATA = 0x120;

/** A frame with its length. */
export function frame(id, type, flags, ...parts) {
  const body = Buffer.concat(parts), head = Buffer.alloc(9);
  head.writeUIntBE(6 + body.length, 0, 3);
  head.writeUInt32BE(id, 3);
  head.writeUInt16BE(type << 10 | flags, 7);
  return Buffer.concat([head, body]);
}

export function u32(number) {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(number);
  return bytes;
}

/** A PAYLOAD with the metadata of an event. */
export function event(id, number, data) {
  const metadata = Buffer.alloc(19);
  metadata.writeUIntBE(16, 0, 3);
  metadata.writeBigUInt64BE(BigInt(number), 3);
  return frame(id, PAYLOAD, NEXT_WITH_METADATA, metadata, data);
}

class Guest {
  frames = [];
  #waiting = new Set();
  #unread = Buffer.alloc(0);

  constructor(socket) {
    this.socket = socket;
    socket.on("data", (bytes) => this.#read(bytes));
    socket.on("error", () => {});
    this.closed = once(socket, "close");
  }

  #read(bytes) {
    this.#unread = Buffer.concat([this.#unread, bytes]);
    while (this.#unread.length >= 3 && this.#unread.length >= 3 + this.#unread.readUIntBE(0, 3)) {
      const end = 3 + this.#unread.readUIntBE(0, 3), head = this.#unread.readUInt16BE(7);
      const seen = { id: this.#unread.readUInt32BE(3), type: head >> 10, flags: head & 0x3ff, body: this.#unread.subarray(9, end) };
      this.#unread = this.#unread.subarray(end);
      this.frames.push(seen);
      if (seen.type === KEEPALIVE && seen.flags & RESPOND) this.socket.write(frame(0, KEEPALIVE, 0, seen.body));
    }
    for (const look of this.#waiting) look();
  }

  /** The first frame of a type with an id above `after`, once it is there. */
  frame(type, after = -1) {
    return new Promise((resolve) => {
      const look = () => {
        const found = this.frames.find((each) => each.type === type && each.id > after);
        if (!found) return;
        this.#waiting.delete(look);
        resolve(found);
      };
      this.#waiting.add(look);
      look();
    });
  }

  /** The credit that the client has granted. */
  get granted() {
    const grants = this.frames.filter(({ type }) => type === REQUEST_STREAM || type === REQUEST_N);
    return grants.reduce((sum, { body }) => sum + body.readUInt32BE(0), 0);
  }
}

/** A listener on a Unix socket, for a test `t`. `guest()` returns the next connection. */
export async function listen(t, greet = (socket) => new Guest(socket)) {
  const folder = await mkdtemp(join(tmpdir(), "streamd-peer-")), guests = [], waiting = [], sockets = new Set();
  const server = createServer((socket) => {
    sockets.add(socket);
    const guest = greet(socket);
    if (waiting.length > 0) waiting.shift()(guest);
    else guests.push(guest);
  });
  server.listen(join(folder, "socket"));
  await once(server, "listening");
  t.after(async () => {
    server.close();
    for (const socket of sockets) socket.destroy();
    await rm(folder, { recursive: true });
  });
  return { socket: join(folder, "socket"), guest: () => guests.shift() ?? new Promise((resolve) => waiting.push(resolve)) };
}
