// Uses the whole interface of the package, for a type checker: it is never run.

import {
  Canceled, Closed, connect, ConnectionLost, Invalid, Lagged, LimitExceeded, NoSuchStream, NotAllowed, NotSupported, ProtocolError,
  Reason, Rejected, SourceFailed, StreamError, StreamEvent,
  type Connection, type Publisher, type StateElement, type Subscription, type Value,
} from "streamd";

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
function is<Expected>() {
  return <Actual,>(value: Actual, ...proof: Equal<Actual, Expected> extends true ? [] : [never]): void => {};
}

const errors: (new (...words: never[]) => StreamError)[] = [
  Canceled, Closed, ConnectionLost, Invalid, Lagged, LimitExceeded, NoSuchStream, NotAllowed, NotSupported, ProtocolError, Rejected,
  SourceFailed,
];

function show(event: StreamEvent): void {
  is<string>()(event.stream);
  is<"event" | "marker">()(event.kind);
  is<bigint>()(event.id);
  is<bigint>()(event.time);
  is<Date>()(event.date);
  is<bigint | null>()(event.position);
  is<Buffer>()(event.data);
  is<number | null>()(event.gap);
  is<number>()(event.leftOut);
  is<string>()(event.text());
  event.json().price;
  // @ts-expect-error: it is read-only
  event.id = 1n;
}

async function subscriptions(connection: Connection, signal: AbortSignal): Promise<void> {
  const subscription = connection.subscribe("s", {
    from: "latest", where: { "/symbol": "AAPL", "/price": { gt: 1 } }, credit: 1, marker: true, onLag: "skip", reconnect: false,
    signal,
  });
  is<Subscription>()(subscription);
  for await (const event of subscription) is<StreamEvent>()(event);
  const { done, value } = await subscription.next();
  if (!done) show(value);
  await subscription.return();
  subscription.toReadable().destroy();
  await subscription.toWeb().cancel();
  for (const from of [1, 1n, new Date(), "-5m", "state" as const]) connection.subscribe("s", { from });
  connection.subscribe("s", { last: 10, where: "{}" });
  // @ts-expect-error: there is no such policy
  connection.subscribe("s", { onLag: "wait" });
  const newest = await connection.get("s", { key: "k", wait: 1000, signal });
  is<StreamEvent | null>()(newest);
}

async function publishers(connection: Connection, value: Value): Promise<void> {
  await connection.publish("s", value);
  await connection.publish("s", Buffer.from("bytes"), {});
  await connection.publish("s", { any: ["object"] });
  // @ts-expect-error: undefined is no value
  await connection.publish("s", undefined);
  const publisher = connection.publisher("s", { name: "sensor" });
  is<Publisher>()(publisher);
  is<boolean>()(publisher.write({ a: 1 }));
  is<bigint | null>()(publisher.confirmed);
  await publisher.flush();
  publisher.on("drain", () => {}).end("last");
}

async function states(connection: Connection): Promise<void> {
  for await (const element of connection.state("s")) {
    is<StateElement>()(element);
    if (element.type === "snapshot") is<Map<string | number | boolean, StreamEvent>>()(element.state);
    else show(element.event);
  }
  for await (const element of connection.state("s", { key: (event) => event.json().name as string, tombstone: "/gone" })) {
    if (element.type === "removal") is<string>()(element.key);
  }
}

async function main(): Promise<void> {
  const connection = await connect({ socket: "/socket", token: "secret", keepalive: 1000 });
  is<Connection>()(connection);
  (await connect({ host: "h", port: 7878 })).close();
  await connection.make("s/x");
  await connection.forget("s/x", { signal: new AbortController().signal });
  try {
    await connection.get("s");
  } catch (error) {
    if (error instanceof StreamError) is<number | null>()(error.reason);
    if (error instanceof NoSuchStream && error.reason === Reason.NO_STREAM) throw error;
  }
  // @ts-expect-error: it has no constructor
  new StreamEvent();
  is<void>()(connection.close());
}
