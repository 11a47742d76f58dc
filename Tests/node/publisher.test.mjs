// Publishers, and the state of a stream with keys.

import assert from "node:assert/strict";
import { once } from "node:events";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { test } from "node:test";

import { Closed, connect, Invalid, NotAllowed, Reason } from "streamd";

import { numbers, serve, soon, take, texts } from "./daemon.mjs";

const daemon = await serve();

function check(name, body) {
  test(name, { timeout: 60_000 }, async (t) => {
    const connection = await connect({ socket: daemon.socket });
    t.after(() => connection.close());
    await body(connection, t);
  });
}

async function newestId(connection) {
  await connection.publish("notes", "before");
  return (await connection.get("notes")).id;
}

/**
 * A stream that accepts no value, because a subscription has not taken its events. Returns a function that takes them.
 */
async function stall(connection) {
  const subscription = connection.subscribe("full", { from: "new", credit: 1, marker: true });
  await subscription.next();
  const filler = connection.publisher("full");
  while (filler.write("x")) await new Promise(setImmediate);
  return { subscription, filler };
}

check("a pipeline ends once every value is in the stream", async (connection) => {
  const from = await newestId(connection), publisher = connection.publisher("notes");
  await pipeline(Readable.from(numbers(3000)), publisher);
  assert.equal(publisher.confirmed, 3000n);
  assert.deepEqual(texts(await take(connection.subscribe("notes", { from }), 3000)), numbers(3000));
});

check("write() holds back while a stream has no space, and goes on when it has", async (connection) => {
  const { subscription, filler } = await stall(connection);
  assert.equal(filler.writableNeedDrain, true);
  let drained = false;
  filler.once("drain", () => (drained = true));
  while (!drained) await subscription.next();
  filler.destroy();
});

check("a flush is for the values before it, also if others follow at once", async (connection) => {
  const from = await newestId(connection), publisher = connection.publisher("notes");
  assert.equal(publisher.confirmed, 0n);
  await publisher.flush();
  const flushes = [];
  for (const value of numbers(500)) {
    publisher.write(value);
    if (value % 100 === 0) flushes.push(publisher.flush().then(() => publisher.confirmed >= BigInt(value)));
  }
  assert.deepEqual(await Promise.all(flushes), [true, true, true, true, true]);
  publisher.end("last");
  await once(publisher, "finish");
  assert.equal(publisher.confirmed, 501n);
  assert.deepEqual(texts(await take(connection.subscribe("notes", { from }), 501)), [...numbers(500), "last"]);
});

check("the values of a name have numbers, which another publisher of the name continues", async (connection) => {
  const first = connection.publisher("notes", { name: "numbered" });
  assert.equal(first.confirmed, null);
  await first.flush();
  assert.equal(first.confirmed, 0n);
  for (const value of numbers(5000)) if (!first.write(value)) await once(first, "drain");
  await first.flush();
  assert.equal(first.confirmed, 5000n);
  first.end();
  await once(first, "close");
  const second = connection.publisher("notes", { name: Buffer.from("numbered") });
  second.write("more");
  await second.flush();
  assert.equal(second.confirmed, 5001n);
  second.destroy();
});

check("a name that another connection has is waited for", async (connection, t) => {
  const other = await connect({ socket: daemon.socket });
  t.after(() => other.close());
  const former = other.publisher("notes", { name: "shared" });
  await former.flush();
  const next = connection.publisher("notes", { name: "shared" }), flushed = next.flush();
  former.destroy();
  await flushed;
  next.destroy();
});

check("a refused publisher has the event error, and its flush and its pipeline fail", async (connection) => {
  const publisher = connection.publisher("guarded");
  publisher.write("x");
  const [error] = await once(publisher, "error");
  assert.ok(error instanceof NotAllowed && error.reason === Reason.MAY_NOT_WRITE);
  assert.equal(publisher.destroyed, true);
  await assert.rejects(publisher.flush(), NotAllowed);
  const flushing = connection.publisher("guarded", { name: "x" });
  flushing.write("x");
  await assert.rejects(flushing.flush(), NotAllowed);
  await assert.rejects(pipeline(Readable.from(["x"]), connection.publisher("guarded")), NotAllowed);
});

check("a value that is too large fails with its number, and the values before it are in the stream", async (connection) => {
  const publisher = connection.publisher("small");
  for (const value of ["1", "2", "x".repeat(100_000), "4"]) publisher.write(value);
  await assert.rejects(publisher.flush(), (error) => error instanceof Invalid && /value 3/.test(error.message));
  assert.deepEqual(texts(await take(connection.subscribe("small", { last: 2 }), 2)), ["1", "2"]);
  const huge = connection.publisher("notes");
  huge.on("error", () => {});
  huge.write(Buffer.alloc(16 << 20));
  await assert.rejects(huge.flush(), Invalid);
});

check("an abort ends a publisher and a publication", async (connection) => {
  const { subscription, filler } = await stall(connection);
  await assert.rejects(connection.publish("full", "x", { signal: soon() }), { name: "AbortError" });
  const publisher = connection.publisher("full", { signal: soon() });
  publisher.write("x");
  const [error] = await once(publisher, "error");
  assert.equal(error.name, "AbortError");
  await assert.rejects(connection.publish("notes", "x", { signal: AbortSignal.abort() }), { name: "AbortError" });
  filler.destroy();
  const flushing = connection.publisher("full");
  flushing.write("x");
  const flushed = flushing.flush();
  flushing.destroy();
  await assert.rejects(flushed, Closed);
  await subscription.return();
});

check("a state is a snapshot, then changes and removals", async (connection) => {
  for (const [symbol, n] of [["A", 1], ["B", 1], ["A", 2], ["C", 1]]) await connection.publish("quotes", { symbol, n });
  await connection.publish("quotes", { symbol: "C", delisted: true });
  const states = connection.state("quotes"), { value: first } = await states.next();
  assert.equal(first.type, "snapshot");
  assert.deepEqual([...first.state].map(([key, event]) => [key, event.json().n]), [["B", 1], ["A", 2]]);
  await connection.publish("quotes", { symbol: "B", n: 2 });
  await connection.publish("quotes", { symbol: "A", delisted: true });
  const [change, removal] = await take(states, 2);
  assert.deepEqual([change.type, change.key, change.event.json().n, removal.type, removal.key], ["change", "B", 2, "removal", "A"]);
  await states.return();
});

check("a state whose changes were missed is taken again", async (connection) => {
  for (const symbol of "AB") await connection.publish("table", { symbol, n: 0 });
  const states = connection.state("table", { credit: 1 });
  assert.equal((await states.next()).value.state.size, 2);
  for (let n = 1; n <= 20; n++) await connection.publish("table", { symbol: "A", n });
  let element;
  do element = (await states.next()).value; while (element.type === "change");
  assert.deepEqual([element.type, element.state.get("A").json().n, element.state.get("B").json().n], ["snapshot", 20, 0]);
  await connection.publish("table", { symbol: "B", n: 1 });
  assert.equal((await states.next()).value.key, "B");
  await states.return();
});

check("the key of a state may be a pointer or a function", async (connection) => {
  for (const key of ["/symbol", (event) => event.json().symbol]) {
    const { value } = await connection.state("quotes", { key, tombstone: "/delisted" }).next();
    assert.deepEqual([...value.state.keys()], ["B"]);
  }
  await assert.rejects(connection.state("notes").next(), (error) => error.reason === Reason.NO_STATE);
  await assert.rejects(connection.state("nothing").next(), { name: "NoSuchStream" });
  await assert.rejects(connection.state("quotes", { key: "symbol" }).next(), Invalid);
});
