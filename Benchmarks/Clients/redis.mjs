// redis.mjs FOLDER SOCKET COUNT: starts redis-server in a folder, publishes so many messages of 64 bytes by another process, and reads
// them as read.mjs reads events: one by one, in a loop. Prints the seconds from the first message to the last. The socket is that of
// streamd, and not used. The parser only finds messages of this size, which favours redis.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { connect } from "node:net";

const [folder, , number, form] = process.argv.slice(2), path = `${folder}/redis.sock`, count = Number(number), data = "x".repeat(64);
const head = Buffer.from("*3\r\n$7\r\nmessage\r\n$1\r\nb\r\n$64\r\n"), size = head.length + data.length + 2;

async function publish() {
  const block = Buffer.from(`*3\r\n$7\r\nPUBLISH\r\n$1\r\nb\r\n$64\r\n${data}\r\n`.repeat(100)), socket = connect(path);
  socket.resume();
  for (let sent = 0; sent < count; sent += 100) if (!socket.write(block)) await once(socket, "drain");
  socket.end();
}

async function* messages(socket) {
  let rest = Buffer.alloc(0);
  for await (const chunk of socket) {
    const bytes = rest.length > 0 ? Buffer.concat([rest, chunk]) : chunk;
    let at = 0;
    for (; at + size <= bytes.length; at += size) yield bytes.subarray(at + head.length, at + size - 2);
    rest = bytes.subarray(at);
  }
}

async function subscribed() {
  for (;;) {
    const socket = connect(path);
    try {
      await once(socket, "connect");
      socket.write("SUBSCRIBE b\r\n");
      await once(socket, "readable");
      socket.read();
      return socket;
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 20)); // it does not listen yet
    }
  }
}

async function read() {
  const words = ["--port", "0", "--unixsocket", path, "--save", "", "--client-output-buffer-limit", "pubsub 0 0 0"];
  const server = spawn("redis-server", words, { stdio: "ignore" });
  try {
    const socket = await subscribed();
    spawn(process.execPath, [import.meta.url.slice("file://".length), folder, "", number, "publish"], { stdio: "inherit" });
    let received = 0, start;
    for await (const message of messages(socket)) {
      start ??= performance.now();
      if (message.length !== 64) throw new Error(`a message of ${message.length} bytes`);
      if (++received === count) break;
    }
    console.log((performance.now() - start) / 1000);
  } finally {
    server.kill();
  }
}

await (form === "publish" ? publish() : read());
