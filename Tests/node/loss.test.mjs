// Losses of the connection: the daemon is killed and stopped.

import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";

import { Canceled, connect, ConnectionLost } from "streamd";

import { Daemon, take, texts } from "./daemon.mjs";

function check(name, body) {
  test(name, { timeout: 120_000 }, async (t) => {
    const daemon = await Daemon.start(), connections = [];
    t.after(() => daemon.remove());
    t.after(() => connections.forEach((connection) => connection.close()));
    const open = async () => {
      const connection = await connect({ socket: daemon.socket });
      connections.push(connection);
      return connection;
    };
    await body(daemon, open);
  });
}

check("a subscription continues after a kill, and one that does not reconnect ends", async (daemon, open) => {
  const connection = await open(), other = await open();
  await other.publish("notes", "before");
  const [lasting, fragile] = [connection.subscribe("notes"), connection.subscribe("notes", { reconnect: false })];
  assert.deepEqual(texts([...(await take(lasting, 1)), ...(await take(fragile, 1))]), ["before", "before"]);
  await daemon.kill();
  await daemon.begin();
  await (await open()).publish("notes", "after");
  const [event] = await take(lasting, 1);
  assert.deepEqual([event.text(), event.gap], ["after", 0]);
  await assert.rejects(fragile.next(), ConnectionLost);
  assert.equal((await connection.get("notes")).text(), "after");
});

check("what nothing restores is an error, and the next request connects anew", async (daemon, open) => {
  const connection = await open();
  const lost = assert.rejects(connection.get("never"), ConnectionLost);
  await daemon.kill();
  await lost;
  await assert.rejects(connection.publish("notes", "x"), ConnectionLost);
  await daemon.begin();
  await connection.publish("notes", "again");
  assert.equal((await connection.get("notes")).text(), "again");
});

check("requests for one value wait while others restore the connection", async (daemon, open) => {
  const connection = await open();
  await connection.publish("notes", "x");
  const subscription = connection.subscribe("notes");
  await take(subscription, 1);
  await daemon.kill();
  const waits = [connection.get("notes"), connection.make("rooms/hall")];
  await daemon.begin();
  assert.equal((await waits[0]).text(), "x");
  await waits[1];
});

check("over kills under load, each value of a name is in the stream once, and each event comes once", async (daemon, open) => {
  const connection = await open(), count = 30_000;
  const subscription = connection.subscribe("notes", { from: "-1h", credit: 64 });
  const publishers = ["one", "two"].map((name) => connection.publisher("notes", { name }));
  const publishing = publishers.map(async (publisher, index) => {
    for (let number = 1; number <= count; number++) {
      if (!publisher.write(`${index} ${number}`)) await once(publisher, "drain");
    }
    await publisher.flush();
    assert.equal(publisher.confirmed, BigInt(count));
  });
  const next = [1, 1];
  let last;
  for (let received = 1; received <= 2 * count; received++) {
    const { value: event } = await subscription.next();
    const [index, number] = event.text().split(" ").map(Number);
    assert.equal(number, next[index]++);
    assert.deepEqual([event.gap, event.id], [0, last === undefined ? event.id : last + 1n]);
    last = event.id;
    if (received % 15_000 === 7_000) {
      await daemon.kill();
      await daemon.begin();
    }
  }
  await Promise.all(publishing);
});

check("over restarts under load a connection and all that is on it continue", async (daemon, open) => {
  await daemon.stop();
  const restart = await daemon.manage(), connection = await open(), count = 20_000;
  const subscription = connection.subscribe("notes", { from: "-1h", credit: 64, reconnect: false });
  const publishers = [connection.publisher("notes"), connection.publisher("notes", { name: "named" })];
  const publishing = publishers.map(async (publisher, index) => {
    for (let number = 1; number <= count; number++) {
      if (!publisher.write(`${index} ${number}`)) await once(publisher, "drain");
    }
    await publisher.flush();
    assert.equal(publisher.confirmed, BigInt(count));
  });
  const next = [1, 1];
  for (let received = 1; received <= 2 * count; received++) {
    const { value: event } = await subscription.next(), [index, number] = event.text().split(" ").map(Number);
    assert.deepEqual([number, event.gap], [next[index]++, 0]);
    if (received % 10_000 === 5_000) await restart();
  }
  await Promise.all(publishing);
});

check("a state goes on after a kill", async (daemon, open) => {
  const connection = await open();
  for (const symbol of "AB") await connection.publish("quotes", { symbol, n: 1 });
  const states = connection.state("quotes");
  assert.equal((await states.next()).value.state.size, 2);
  await daemon.kill();
  await daemon.begin();
  await (await open()).publish("quotes", { symbol: "A", n: 2 });
  const { value } = await states.next();
  assert.deepEqual(value.type === "change" ? [value.key, value.event.json().n] : value.state.get("A").json().n, ["A", 2]);
  await states.return();
});

check("a stop of the daemon ends what does not reconnect, after its events", async (daemon, open) => {
  const connection = await open();
  await connection.publish("notes", "1");
  const subscription = connection.subscribe("notes", { reconnect: false, marker: true });
  assert.deepEqual((await take(subscription, 2)).map(({ kind }) => kind), ["event", "marker"]);
  await daemon.stop();
  await assert.rejects(subscription.next(), (error) => error instanceof Canceled || error instanceof ConnectionLost);
  assert.deepEqual(await subscription.next(), { done: true, value: undefined });
});
