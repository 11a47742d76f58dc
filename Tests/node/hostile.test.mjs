// What a peer may do that is not streamd, or does not keep to the protocol; and the credit and memory of a
// subscription.

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

import { connect, ConnectionLost, LimitExceeded, NotAllowed, ProtocolError, Reason } from "streamd";

import { soon, take } from "./daemon.mjs";
import { CANCEL, ERROR, event, frame, KEEPALIVE, listen, PAYLOAD, REQUEST_N, REQUEST_STREAM, RESPOND, u32 } from "./peer.mjs";

setFlagsFromString("--expose-gc");
const gc = runInNewContext("gc"), time = { timeout: 60_000 }, data = Buffer.alloc(64, "x");

/** A subscription at a peer: its side of the connection, the subscription, and the id of its request. */
async function meet(t, options = {}) {
  const peer = await listen(t), connecting = connect({ socket: peer.socket });
  const guest = await peer.guest(), connection = await connecting;
  t.after(() => connection.close());
  const subscription = connection.subscribe("s", options);
  const { id } = await guest.frame(REQUEST_STREAM);
  return { peer, guest, connection, subscription, id };
}

test("a server of another protocol is not streamd, whatever it sends", time, async (t) => {
  const greetings = [
    "HTTP/1.1 400 Bad Request\r\n\r\n", "220 mail ESMTP\r\n", "SSH-2.0-OpenSSH\r\n", Buffer.alloc(1000), Buffer.alloc(1000, 0xff),
    frame(0, 1, 0), frame(0, 0x3f, 0), frame(2, PAYLOAD, 0x20), frame(7, PAYLOAD, 0x20),
    Buffer.from([0xff, 0xff, 0xff, 0, 0, 0, 7, 0, 0]), // a large length
  ];
  for (const greeting of greetings) {
    const peer = await listen(t, (socket) => socket.on("error", () => {}).write(greeting));
    await assert.rejects(connect({ socket: peer.socket }), ProtocolError, String(greeting));
  }
});

test("a peer that closes, or never answers, is an error or an abort", time, async (t) => {
  const closing = await listen(t, (socket) => socket.end());
  await assert.rejects(connect({ socket: closing.socket }), ConnectionLost);
  const silent = await listen(t, (socket) => socket);
  await assert.rejects(connect({ socket: silent.socket, signal: soon(20) }), { name: "AbortError" });
});

test("a refusal of the connection is an error of connect() with its reason", time, async (t) => {
  const kinds = [[Reason.TOO_MANY_CONNECTIONS, LimitExceeded], [Reason.INVALID_TOKEN, NotAllowed], [0, ConnectionLost]];
  for (const [reason, kind] of kinds) {
    const refusal = frame(0, ERROR, 0, u32(reason ? 0x3 << 16 | reason : 0x3), Buffer.from("a\u001b[2Jb"));
    const peer = await listen(t, (socket) => socket.on("error", () => {}).end(refusal));
    await assert.rejects(connect({ socket: peer.socket }), (error) =>
      error instanceof kind && error.reason === (reason || null) && error.message === "a [2Jb");
  }
});

test("a frame that no server may send ends everything with a ProtocolError", time, async (t) => {
  const metadata = Buffer.concat([Buffer.from([0, 0, 15]), Buffer.alloc(15)]);
  const tooMany = (id) => Buffer.concat([event(id, 1, data), event(id, 2, data), event(id, 3, data)]); // than are taken
  const violations = [
    (id) => frame(id, PAYLOAD, 0), (id) => frame(id, PAYLOAD, 0x20, data), (id) => frame(id, PAYLOAD, 0x120, metadata),
    (id) => frame(id, PAYLOAD, 0x120, Buffer.from([0, 1, 0])), (id) => frame(id, PAYLOAD, 0x120, Buffer.from([0])),
    (id) => frame(id, ERROR, 0), (id) => frame(id, REQUEST_N, 0), (id) => frame(id, REQUEST_N, 0, u32(0)),
    () => frame(0, KEEPALIVE, 0),
    (id) => frame(id + 2, PAYLOAD, 0x20), (id) => frame(id + 1, CANCEL, 0), () => Buffer.from([0, 0, 2, 1, 2, 0, 0, 0, 0]),
    tooMany,
  ];
  for (const violation of violations) {
    const { guest, subscription, id } = await meet(t, { credit: 2 });
    const waits = Promise.allSettled(Array.from({ length: violation === tooMany ? 0 : 3 }, () => subscription.next()));
    guest.socket.write(violation(id));
    await guest.closed;
    const results = [...await waits, ...await Promise.allSettled([0, 0, 0].map(() => subscription.next()))];
    assert.ok(results.some(({ reason }) => reason instanceof ProtocolError), String(violation));
    assert.ok(guest.frames.some(({ type, body }) => type === ERROR && body.readUInt32BE(0) === 0x101));
  }
});

test("random bytes, alone or after a frame, harm nothing", time, async (t) => {
  for (let turn = 0; turn < 50; turn++) {
    const { guest, subscription, id } = await meet(t, { reconnect: false });
    const number = () => randomBytes(2).readUInt16BE(), garbage = Array.from(
      { length: 20 }, () => frame(id, number() & 0x3f, number() & 0x3ff, randomBytes(turn)));
    guest.socket.end(Buffer.concat([event(id, 1, data), ...garbage, randomBytes(100)]));
    const results = await Promise.allSettled([subscription.next(), subscription.next()]);
    assert.equal(results.length, 2);
    await subscription.return();
  }
});

test("frames that come byte by byte, or in fragments, are whole", time, async (t) => {
  const { guest, subscription, id } = await meet(t);
  const large = randomBytes(300), whole = event(id, 2, large);
  const fragments = [frame(id, PAYLOAD, 0x1a0, whole.subarray(9, 100)), frame(id, PAYLOAD, 0xa0, whole.subarray(100, 200)),
    frame(id, PAYLOAD, 0x20, whole.subarray(200))];
  guest.socket.setNoDelay(true);
  const bytes = Buffer.concat([event(id, 1, data), ...fragments, frame(id, PAYLOAD, 0x40)]);
  const taking = take(subscription, 3);
  for (const byte of bytes) await new Promise((resolve) => guest.socket.write(Buffer.from([byte]), resolve));
  const [one, other, ...none] = await taking;
  assert.deepEqual([one.data, other.data, one.id, other.id, none.length], [data, large, 1n, 2n, 0]);
});

test("a client grants no more than was taken and its credit", time, async (t) => {
  for (const credit of [1, 2, 7, 256]) {
    const { guest, subscription, id } = await meet(t, { credit });
    let sent = 0, taken = 0;
    while (taken < 3 * credit + 5) {
      assert.ok(guest.granted <= taken + credit, `${guest.granted} granted, ${taken} taken`);
      while (sent < guest.granted) guest.socket.write(event(id, ++sent, data));
      const { value } = await subscription.next();
      assert.equal(value.id, BigInt(++taken));
      if (sent === taken) while (guest.granted === sent) await new Promise(setImmediate);
    }
    assert.ok(guest.granted > taken);
  }
});

test("after a loss a client asks for what it has not received, and leaves out what it has", time, async (t) => {
  const { peer, guest, subscription, id } = await meet(t, { from: 4, credit: 8 });
  guest.socket.write(Buffer.concat([event(id, 5, data), event(id, 6, data)]));
  await take(subscription, 1);
  guest.socket.destroy();
  const again = await peer.guest(), { id: next, body } = await again.frame(REQUEST_STREAM);
  assert.match(body.toString("latin1"), /"from":6,/);
  assert.equal(body.readUInt32BE(0), 7); // one is untaken
  again.socket.write(Buffer.concat([event(next, 6, data), event(next, 7, data)]));
  assert.deepEqual((await take(subscription, 2)).map((each) => each.id), [6n, 7n]);
});

test("a daemon of the last release, which gives no reasons, is understood by its codes", time, async (t) => {
  const { guest, subscription, id } = await meet(t);
  guest.socket.write(Buffer.concat([event(id, 1, data), frame(id, ERROR, 0, u32(0x203), Buffer.from("streamd is stopping"))]));
  await take(subscription, 1);
  const { id: next, body } = await guest.frame(REQUEST_STREAM, id);
  assert.match(body.toString("latin1"), /"from":1,/);
  guest.socket.write(frame(next, ERROR, 0, u32(0x202), Buffer.from('no stream named "s"')));
  await assert.rejects(subscription.next(), { name: "Rejected", reason: null, message: 'no stream named "s"' });
});

test("a peer that asks for answers without end, and does not read them, is lost", time, async (t) => {
  const peer = await listen(t, (socket) => socket.on("error", () => {}).pause());
  const connecting = connect({ socket: peer.socket }), socket = await peer.guest();
  const flood = frame(0, KEEPALIVE, RESPOND, Buffer.alloc(65_000));
  socket.write(flood);
  const connection = await connecting, waiting = connection.subscribe("s", { reconnect: false }).next();
  const pour = () => { while (!socket.destroyed && socket.write(flood)); };
  socket.on("drain", pour);
  pour();
  await assert.rejects(waiting, ConnectionLost);
  connection.close();
});

test("an event of more than 64 MiB is a violation before it is whole", time, async (t) => {
  const { guest, subscription, id } = await meet(t, { reconnect: false });
  const part = frame(id, PAYLOAD, 0xa0, Buffer.alloc(8 << 20)), failing = assert.rejects(subscription.next(), ProtocolError);
  for (let count = 0; count < 9; count++) guest.socket.write(part);
  await failing;
});

test("memory stays as it is over 200,000 events", time, async (t) => {
  const { guest, subscription, id } = await meet(t, { credit: 1000 });
  let sent = 0, received = 0, before = 0;
  const used = () => {
    gc();
    const { heapUsed, arrayBuffers } = process.memoryUsage();
    return heapUsed + arrayBuffers;
  };
  const block = Buffer.concat(Array.from({ length: 500 }, (_, index) => event(id, index + 1, data))); // half of the credit
  const send = () => {
    for (; sent < guest.granted; sent += 500) guest.socket.write(block);
  };
  guest.socket.on("data", send);
  send();
  for await (const each of subscription) {
    received++;
    assert.ok(each.data.length === 64);
    if (received === 50_000) before = used();
    if (received === 200_000) break;
  }
  const grown = used() - before;
  assert.ok(grown < 16 << 20, `it has grown by ${grown} bytes`);
  await guest.frame(CANCEL);
});
