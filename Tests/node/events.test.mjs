// Subscriptions, the newest event, errors, and what an end leaves behind.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { getEventListeners, once } from "node:events";
import { test } from "node:test";
import { inspect } from "node:util";

import {
  Closed, connect, ConnectionLost, Invalid, LimitExceeded, NoSuchStream, NotAllowed, NotSupported, Reason, Rejected, StreamError,
  StreamEvent,
} from "streamd";

import { numbers, serve, soon, take, texts, TOKEN } from "./daemon.mjs";

const daemon = await serve({ listens: true });

/** A test with a connection of its own. */
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

async function send(connection, values) {
  const publisher = connection.publisher("notes");
  for (const value of values) publisher.write(value);
  await publisher.flush();
  publisher.end();
}

check("an event has its id, its time, and its data as bytes, text and JSON", async (connection) => {
  const before = Date.now(), from = await newestId(connection);
  await connection.publish("notes", { price: 1.5, name: "€" });
  const [event] = await take(connection.subscribe("notes", { from }), 1);
  assert.ok(event instanceof StreamEvent);
  assert.deepEqual([event.kind, event.stream, event.id, event.gap, event.leftOut], ["event", "notes", from + 1n, 0, 0]);
  assert.ok(event.date.getTime() >= before - 1000 && event.date.getTime() === Number(event.time / 1000n));
  assert.deepEqual(event.json(), { price: 1.5, name: "€" });
  assert.equal(event.text(), '{"price":1.5,"name":"€"}');
  assert.ok(Buffer.isBuffer(event.data) && event.data === event.data && event.data.length === 26);
  assert.match(inspect(event), /StreamEvent .*id: \d+n.*data: <Buffer/s);
});

check("values are text, bytes, or what JSON has", async (connection) => {
  const from = await newestId(connection);
  const values = ["é", Buffer.from([0, 255]), new Uint8Array([1, 2]).buffer, { a: [1] }, [2], 3, true];
  await send(connection, values);
  const events = await take(connection.subscribe("notes", { from }), values.length);
  const expected = ["é", [0, 255], [1, 2], '{"a":[1]}', "[2]", "3", "true"].map((value) => Buffer.from(value));
  assert.deepEqual(events.map((event) => event.data), expected);
  await assert.rejects(connection.publish("notes", undefined), TypeError);
  await assert.rejects(connection.publish("notes", () => {}), TypeError);
});

check("a loop has stored events, then new ones, and ends with its stream", async (connection) => {
  const from = await newestId(connection), seen = [];
  await send(connection, numbers(5000));
  for await (const event of connection.subscribe("notes", { from, credit: 3 })) {
    seen.push(event.text());
    if (seen.length === 5000) await send(connection, ["new"]);
    if (seen.length === 5001) break;
  }
  assert.deepEqual(seen, [...numbers(5000), "new"]);
  const finite = connection.subscribe("count");
  assert.equal((await take(finite, 9)).length, 3);
  assert.deepEqual(await finite.next(), { done: true, value: undefined });
});

check("break, return, throw, an abort and destroy cancel the request", async (connection) => {
  const leave = [
    async () => { for await (const _ of connection.subscribe("notes")) break; },
    async () => { await connection.subscribe("never").return(); },
    async () => { await assert.rejects(connection.subscribe("never").throw(new Error("thrown")), /thrown/); },
    async () => { await assert.rejects(connection.subscribe("never", { signal: soon() }).next(), { name: "AbortError" }); },
    async () => { await assert.rejects(connection.get("never", { signal: soon() }), { name: "AbortError" }); },
    async () => { assert.equal(await connection.get("never", { wait: 1 }), null); },
    async () => { await assert.rejects(connection.get("never", { wait: Infinity, signal: soon() }), { name: "AbortError" }); },
    async () => { connection.subscribe("never").toReadable().destroy(); },
    async () => { await connection.subscribe("never").toWeb().cancel(); },
    async () => { connection.publisher("never").destroy(); },
    async () => { connection.publisher("never", { name: "x" }).destroy(); },
  ];
  await connection.publish("notes", "x");
  for (let turn = 0; turn < 5; turn++) await Promise.all(leave.map((each) => each())); // of the 16 requests that may be open
  assert.equal((await connection.get("notes")).text(), "x");
});

check("a signal has no listeners once what it was for is over", async (connection) => {
  const { signal } = new AbortController();
  (await connect({ socket: daemon.socket, signal })).close();
  await connection.publish("notes", "x", { signal });
  await connection.get("notes", { signal });
  for await (const _ of connection.subscribe("notes", { signal })) break;
  for await (const _ of connection.subscribe("count", { signal }));
  await assert.rejects(connection.subscribe("nothing", { signal }).next(), NoSuchStream);
  for await (const _ of connection.state("quotes", { signal })) break;
  await connection.make("rooms/x", { signal });
  assert.equal(getEventListeners(signal, "abort").length, 0);
});

check("waits for events that overlap are answered in order, and each but the first has no error", async (connection) => {
  const from = await newestId(connection), subscription = connection.subscribe("notes", { from });
  const waits = [subscription.next(), subscription.next(), subscription.next()];
  await send(connection, numbers(2));
  assert.deepEqual(texts((await Promise.all(waits.slice(0, 2))).map(({ value }) => value)), numbers(2));
  await subscription.return();
  assert.deepEqual(await waits[2], { done: true, value: undefined });
  const refused = connection.subscribe("nothing"), both = await Promise.allSettled([refused.next(), refused.next()]);
  assert.deepEqual(both.map(({ status }) => status), ["rejected", "fulfilled"]);
});

check("a subscription begins with the last events, after an id, since a time, or with what is new", async (connection) => {
  const from = await newestId(connection);
  await send(connection, numbers(6));
  const [, second] = await take(connection.subscribe("notes", { from }), 2);
  const first = async (options) => texts(await take(connection.subscribe("notes", options), 1))[0];
  assert.equal(await first({ last: 2 }), "5");
  assert.equal(await first({ last: 4n }), "3");
  assert.equal(await first({}), "4");
  assert.equal(await first({ from: "latest" }), "6");
  assert.equal(await first({ from: second.id }), "3");
  const [since] = await take(connection.subscribe("notes", { from: second.date }), 1);
  assert.ok(since.date >= second.date && since.id <= second.id);
  assert.ok(await first({ from: "-1h" }));
  const fresh = connection.subscribe("notes", { from: "new", marker: true });
  assert.equal((await fresh.next()).value.kind, "marker");
  await connection.publish("notes", "7");
  assert.equal((await fresh.next()).value.text(), "7");
});

check("a filter leaves events out and counts them; its text is not rounded", async (connection) => {
  const from = await newestId(connection), big = "9007199254740993";
  await send(connection, ['{"n":1}', '{"n":2}', '{"n":3}', `{"n":${big}}`, '{"n":9007199254740992}']);
  const [one, three] = await take(connection.subscribe("notes", { from, where: { "/n": { in: [1, 3] } } }), 2);
  assert.deepEqual([three.id - one.id, three.leftOut, three.gap], [2n, 1, 0]);
  const [exact, marker] = await take(connection.subscribe("notes", { from, where: `{"/n": ${big}}`, marker: true }), 2);
  assert.deepEqual([exact.text(), marker.kind, marker.leftOut, marker.data.length], [`{"n":${big}}`, "marker", 1, 0]);
});

check("a gap has its number", async (connection) => {
  await connection.publish("brief", "1");
  const { id: from } = await connection.get("brief");
  for (const number of numbers(9, 2)) await connection.publish("brief", number);
  const [event, next] = await take(connection.subscribe("brief", { from }), 2);
  assert.deepEqual([event.text(), event.gap, next.gap], ["7", 5, 0]);
  const failing = connection.subscribe("brief", { from, onLag: "latest" });
  assert.equal((await failing.next()).value.text(), "7");
});

check("the newest event of a key", async (connection) => {
  for (const n of [1, 2]) for (const symbol of ["A", "B", 7]) await connection.publish("quotes", { symbol, n });
  assert.deepEqual((await connection.get("quotes", { key: "A" })).json(), { symbol: "A", n: 2 });
  assert.deepEqual((await connection.get("quotes", { key: 7 })).json(), { symbol: 7, n: 2 });
  await assert.rejects(connection.get("quotes", { key: "Z" }), { name: "NoSuchStream", reason: Reason.NO_KEY });
});

check("a large event comes whole", async (connection) => {
  const page = Buffer.alloc(1_000_000, "0123456789abc");
  await connection.publish("pages", page);
  const event = await connection.get("pages");
  assert.ok(event.data.equals(page));
  const [same] = await take(connection.subscribe("pages", { from: "latest" }), 1);
  assert.ok(same.data.equals(page));
});

check("errors are classes, with the daemon's reason and sentence", async (connection) => {
  const refused = async (action, kind, reason, message) => assert.rejects(action, (error) => {
    assert.ok(error instanceof kind && error instanceof StreamError && error.name === kind.name, error);
    assert.equal(error.reason, reason);
    return message.test(error.message);
  });
  await refused(connection.get("nothing"), NoSuchStream, Reason.NO_STREAM, /no stream named "nothing"/);
  await refused(connection.subscribe("private").next(), NotAllowed, Reason.MAY_NOT_READ, /may not read/);
  await refused(connection.publish("guarded", "x"), NotAllowed, Reason.MAY_NOT_WRITE, /may not write/);
  await refused(connection.publish("count", "x"), NotSupported, Reason.TAKES_NO_VALUES, /does not accept values/);
  await refused(connection.subscribe("notes", { from: 10n ** 18n }).next(), Invalid, Reason.UNKNOWN_POSITION, /no event/);
  await refused(connection.publish("small", Buffer.alloc(100_000)), Invalid, Reason.TOO_LARGE, /too large/);
  const all = Array.from({ length: 16 }, () => connection.subscribe("never", { marker: true }));
  await Promise.all(all.map((each) => each.next()));
  await refused(connection.get("never"), LimitExceeded, Reason.TOO_MANY_REQUESTS, /./);
  assert.ok(new NoSuchStream("") instanceof Rejected);
});

check("arguments that cannot be valid throw at once", async (connection) => {
  for (const options of [
    { credit: 0 }, { credit: 1.5 }, { credit: 2 ** 31 }, { last: 0 }, { last: -1 }, { from: -1 }, { from: 2n ** 64n },
    { from: 0.5 }, { where: "{" }, { where: "[]" }, { where: '{},"from":0' }, { onLag: "wait" },
  ]) assert.throws(() => connection.subscribe("notes", options), Invalid, inspect(options));
  assert.throws(() => connection.subscribe("notes", { last: 1, from: "new" }), TypeError);
  assert.throws(() => connection.subscribe("notes", { from: new Date(NaN) }), RangeError);
  for (const name of ["", "n".repeat(256), undefined]) assert.throws(() => connection.subscribe(name), Invalid);
  for (const name of ["", "n".repeat(49)]) assert.throws(() => connection.publisher("notes", { name }), Invalid);
  await assert.rejects(connection.get(""), Invalid);
  for (const options of [
    { socket: "relative/path" }, { socket: "host" }, { socket: "tcp:h:0" }, { port: 0 }, { token: "" }, { keepalive: 0 },
  ]) await assert.rejects(connect(options), Invalid, inspect(options));
});

check("events come as a readable stream of Node and of the Web", async (connection) => {
  const from = await newestId(connection), seen = [];
  await send(connection, numbers(20));
  for await (const event of connection.subscribe("notes", { from, credit: 2 }).toReadable()) {
    if (seen.push(event.text()) === 20) break;
  }
  const web = connection.subscribe("notes", { from }).toWeb().getReader();
  for (let count = 0; count < 20; count++) seen.push((await web.read()).value.text());
  await web.cancel();
  assert.deepEqual(seen, [...numbers(20), ...numbers(20)]);
  await assert.rejects(connection.subscribe("nothing").toWeb().getReader().read(), NoSuchStream);
  const [error] = await once(connection.subscribe("nothing").toReadable().resume(), "error");
  assert.ok(error instanceof NoSuchStream);
});

check("a pattern has the events of all streams that fit, with their names and its position", async (connection) => {
  await connection.publish("rooms/p-a", "1");
  const subscription = connection.subscribe("rooms/p-*", { from: "-1h", marker: true });
  const [first, marker] = await take(subscription, 2);
  assert.deepEqual([first.text(), first.stream, marker.kind, marker.stream], ["1", "rooms/p-a", "marker", "rooms/p-*"]);
  await connection.publish("rooms/p-b", "2");
  const [second] = await take(subscription, 1);
  assert.deepEqual([second.text(), second.stream, second.gap], ["2", "rooms/p-b", 0]);
  await connection.publish("rooms/p-a", "3");
  const again = connection.subscribe("rooms/p-*", { from: second.position });
  for await (const { stream } of again) if (stream === "rooms/p-a") break;
  const one = await connection.get("rooms/p-a");
  assert.equal(one.position, one.id);
});

check("streams of templates are made and forgotten", async (connection) => {
  await connection.make("rooms/kitchen");
  await connection.make("rooms/kitchen");
  await connection.publish("rooms/hall", "warm");
  await connection.forget("rooms/kitchen");
  await assert.rejects(connection.forget("rooms/kitchen"), NoSuchStream);
  await assert.rejects(connection.make("notes"), { name: "NotSupported", reason: Reason.NO_EFFECT });
  await assert.rejects(connection.make('rooms/"\\\n'), NoSuchStream);
  const used = connection.subscribe("few/a", { marker: true });
  await used.next();
  await assert.rejects(connection.make("few/b"), (error) => error.reason === Reason.TOO_MANY_STREAMS);
});

check("a request makes the stream of its answer", async (connection) => {
  const name = await connection.request("answers", "hello");
  assert.match(name, /^answers\/[a-z2-7]{26}$/);
  assert.equal(await connection.request("answers/a", Buffer.from("hello")), "answers/a");
  await assert.rejects(take(connection.subscribe(name), 1), { name: "SourceFailed", message: /could not connect/ });
  await assert.rejects(connection.request("answers/a", "other"), { name: "NotSupported", reason: Reason.OTHER_REQUEST });
  await assert.rejects(connection.request("rooms", "hello"), NoSuchStream);
  await assert.rejects(connection.request("answers", ""), TypeError);
});

test("a token says over TCP who the user is, and a wrong one is refused", { timeout: 60_000 }, async () => {
  const { port } = daemon, host = "127.0.0.1";
  const alice = await connect({ host, port, token: TOKEN });
  assert.equal((await take(alice.subscribe("private"), 1)).length, 1);
  alice.close();
  const stranger = await connect({ socket: `tcp:127.0.0.1:${port}` });
  await assert.rejects(stranger.get("private"), NotAllowed);
  stranger.close();
  await assert.rejects(connect({ host, port, token: "wrong-0123456789" }), (error) =>
    error instanceof NotAllowed && error.reason === Reason.INVALID_TOKEN);
});

test("$STREAMD_SOCKET is the default, and a daemon that is not there is an error", { timeout: 60_000 }, async () => {
  process.env.STREAMD_SOCKET = `unix:${daemon.socket}`;
  (await connect()).close();
  process.env.STREAMD_SOCKET = "/nowhere/socket";
  await assert.rejects(connect(), (error) => {
    assert.ok(error instanceof ConnectionLost);
    assert.match(error.message, /nowhere.*ENOENT/);
    return error.cause.code === "ENOENT";
  });
  await assert.rejects(connect({ socket: daemon.socket, signal: AbortSignal.abort() }), { name: "AbortError" });
});

check("a closed connection ends what was made from it, and makes nothing", async (connection) => {
  const subscription = connection.subscribe("never"), named = connection.publisher("never", { name: "x" });
  const waits = [subscription.next(), connection.get("never"), named.flush()], publisher = connection.publisher("never");
  connection.close();
  connection.close();
  for (const { reason } of await Promise.allSettled(waits)) assert.ok(reason instanceof Closed);
  if (!publisher.closed) await once(publisher, "close");
  assert.throws(() => connection.subscribe("notes"), Closed);
  assert.throws(() => connection.publisher("notes"), Closed);
  await assert.rejects(connection.get("notes"), Closed);
  await assert.rejects(publisher.flush(), Closed);
  assert.deepEqual(await subscription.next(), { done: true, value: undefined });
});

test("a program ends by itself after close(), whatever it had open", { timeout: 60_000 }, async () => {
  const program = `
    import { connect } from "streamd";
    const connection = await connect({ socket: process.argv[1] });
    const waits = [connection.subscribe("never").next(), connection.get("never", { wait: 1e6 }), connection.state("quotes").next()];
    connection.publisher("never", { name: "exit" }).write("x");
    connection.subscribe("never").toReadable().on("error", () => {}).resume();
    await connection.get("$streams");
    connection.close();
    console.log((await Promise.allSettled(waits)).length);
  `;
  const child = spawn(process.execPath, ["--input-type=module", "--eval", program, daemon.socket]); // in the folder of the test
  let said = "";
  for (const output of [child.stdout, child.stderr]) output.on("data", (bytes) => (said += bytes));
  const [code] = await once(child, "close");
  assert.deepEqual([said, code], ["3\n", 0]);
});
