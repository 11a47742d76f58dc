// driver.mjs FOLDER: the Node package in this folder, as README.md beside this file describes a driver.

import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const streamd = await import(pathToFileURL(`${process.argv[2]}/index.js`));

const KINDS = [
  [streamd.NoSuchStream, "not-found"],
  [streamd.NotAllowed, "access-denied"],
  [streamd.NotSupported, "not-supported"],
  [streamd.LimitExceeded, "limit"],
  [streamd.Rejected, "rejected"],
  [streamd.Invalid, "invalid"],
  [streamd.Lagged, "lagged"],
  [streamd.Canceled, "canceled"],
  [streamd.SourceFailed, "source-failed"],
  [streamd.ConnectionLost, "connection-lost"],
  [streamd.ProtocolError, "protocol"],
];

const objects = new Map();

function encoded(data) {
  const digits = (byte) => byte.charCodeAt(0).toString(16).padStart(2, "0");
  return Buffer.from(data).toString("latin1").replace(/[^0-9A-Za-z]/g, (byte) => `%${digits(byte)}`);
}

function decoded(text) {
  return Buffer.from(text.replace(/%(..)/g, (_, digits) => String.fromCharCode(parseInt(digits, 16))), "latin1");
}

function failure(verb, error) {
  const [, kind] = KINDS.find(([type]) => error instanceof type) ?? [null, "other"];
  return `${verb} kind=${kind}${error.reason ? ` reason=${error.reason}` : ""} sentence=${encoded(error.message)}`;
}

function described(event) {
  const data = event.kind === "marker" ? "" : ` data=${encoded(event.data)}`;
  return `${event.kind} id=${event.id} time=${event.time} left_out=${event.leftOut} gap=${event.gap ?? "unknown"}${data}`;
}

/** A time as RFC 3339 has it, with its microseconds. */
function timeOf(microseconds) {
  const seconds = new Date(Number(microseconds / 1000n)).toISOString().slice(0, -4);
  return `${seconds}${String(microseconds % 1_000_000n).padStart(6, "0")}Z`.replace(/\.?(\d{6}Z)$/, ".$1");
}

/** The options that say where to begin. */
function beginning(from, number) {
  switch (from) {
    case "id": return { from: number };
    case "time": return { from: timeOf(number) };
    case "ago": return { from: `-${(number + 999n) / 1000n}ms` };
    case "last": return { last: number };
    default: return { from };
  }
}

/** A promise, or "nothing" after a time in milliseconds. */
async function within(promise, wait) {
  let timer;
  const late = new Promise((resolve) => (timer = setTimeout(resolve, wait, "nothing")));
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** A subscription, with the call of next() that no reply has had, and how it ended. */
class Reader {
  constructor(subscription) {
    this.subscription = subscription;
    this.end = null;
    this.pending = null;
  }

  async next(wait) {
    if (this.end) return this.end;
    this.pending ??= this.subscription.next().then(
      ({ done, value }) => (done ? "end kind=complete" : described(value)), (error) => failure("end", error));
    const reply = await within(this.pending, wait);
    if (reply !== "nothing") this.pending = null;
    if (reply.startsWith("end")) this.end = reply;
    return reply;
  }

  close() {
    return this.subscription.return();
  }
}

/** A publisher, with a flush that is not over, and how it failed. */
class Sender {
  constructor(publisher) {
    this.publisher = publisher;
    this.failure = null;
    this.flushing = null;
    publisher.on("error", (error) => (this.failure = error));
  }

  publish(data) {
    if (this.failure) throw this.failure;
    this.publisher.write(data);
    return "ok";
  }

  async finish(wait) {
    this.flushing ??= this.publisher.flush().then(() => "ok", (error) => failure("error", error));
    const reply = await within(this.flushing, wait);
    if (reply !== "nothing") this.flushing = null;
    return reply;
  }

  close() {
    this.publisher.destroy();
  }
}

function give(verb) {
  return ({ connection, stream, wait }) =>
    within(objects.get(String(connection))[verb](String(stream)).then(() => "ok"), Number(wait));
}

const commands = {
  async connect({ connection, address, token }) {
    objects.set(String(connection), await streamd.connect({ socket: String(address), token, keepalive: 300 }));
    return "ok";
  },

  subscribe({ subscription, connection, stream, from = "replay", since = "0", window, where, marker, reconnect, on_lag: onLag }) {
    const options = {
      ...beginning(String(from), BigInt(since)), credit: Number(window), where: where && String(where),
      marker: marker !== undefined, reconnect: reconnect !== undefined, onLag: onLag && String(onLag),
    };
    objects.set(String(subscription), new Reader(objects.get(String(connection)).subscribe(String(stream), options)));
    return "ok";
  },

  next: ({ subscription, wait }) => objects.get(String(subscription)).next(Number(wait)),

  async get({ connection, stream, wait }) {
    const event = await objects.get(String(connection)).get(String(stream), { wait: Number(wait) });
    return event ? described(event) : "nothing";
  },

  publisher({ publisher, connection, stream, name }) {
    objects.set(String(publisher), new Sender(objects.get(String(connection)).publisher(String(stream), { name })));
    return "ok";
  },

  publish: ({ publisher, data }) => objects.get(String(publisher)).publish(data),

  finish: ({ publisher, wait }) => objects.get(String(publisher)).finish(Number(wait)),

  confirmed({ publisher }) {
    const { confirmed } = objects.get(String(publisher)).publisher;
    return confirmed === null ? "nothing" : `number number=${confirmed}`;
  },

  make: give("make"),
  forget: give("forget"),

  async ask({ connection, stream, data, wait }) {
    const made = objects.get(String(connection)).request(String(stream), data);
    return within(made.then((name) => `made data=${encoded(name)}`), Number(wait));
  },

  async close(words) {
    const [number] = Object.values(words).map(String);
    await objects.get(number).close();
    objects.delete(number);
    return "ok";
  },
};

async function answer(line) {
  const [verb, ...pairs] = line.split(" ");
  const words = Object.fromEntries(pairs.map((pair) => pair.split("=")).map(([key, value]) => [key, decoded(value)]));
  try {
    return await commands[verb](words);
  } catch (error) {
    if (!(error instanceof streamd.StreamError)) throw error;
    return failure("error", error);
  }
}

process.stdout.write("conformance 1 last confirmed keepalive token reasons commands answers\n");
for await (const line of createInterface({ input: process.stdin })) {
  if (line === "quit") {
    process.stdout.write("ok\n");
    break;
  }
  process.stdout.write(`${await answer(line)}\n`);
}
for (const object of objects.values()) object.close();
process.stdin.destroy();
