// Subscribes to, reads, publishes and makes the streams of streamd.
//
//     const connection = await connect();
//     for await (const event of connection.subscribe("quotes", { where: { "/symbol": "AAPL" } })) console.log(event.json());
//     connection.close();
//
// A wait that `signal` aborts throws the signal's reason. Arguments that cannot be valid throw at once: Invalid,
// TypeError. Nothing is unhandled: an error that nobody awaits has no effect; a publisher is a Writable, and has the
// event `error`.

import { Readable, Writable } from "node:stream";
import { ReadableStream } from "node:stream/web";

/**
 * Connects to the daemon at `socket`, at `host` and `port`, or by default at $STREAMD_SOCKET, else at the system's
 * socket.
 */
export function connect(options?: ConnectOptions): Promise<Connection>;

export interface ConnectOptions {
  /** A path, or an address as $STREAMD_SOCKET has it: `unix:/path`, `tcp:host:port`, `host:port`. */
  socket?: string;
  /** With `port`, for TCP, where nothing is encrypted; default `localhost`. */
  host?: string;
  port?: number;
  /** Says over TCP which user this is: see `[[tokens]]` in streamd.toml(5). */
  token?: string;
  /** Ends the attempt to connect; afterwards it has no effect. */
  signal?: AbortSignal;
  /** Milliseconds between two signs of life, at most 45,000; default 20,000. */
  keepalive?: number;
}

/**
 * A connection to a daemon. It keeps the process running until `close()`.  After a loss, subscriptions with `reconnect`
 * and publishers with a name restore it, and continue. Everything else ends with ConnectionLost, except that get(),
 * make() and forget() wait while others restore it. On a connection that nothing restores, the next request connects
 * anew.
 */
export interface Connection {
  /**
   * The events of a stream, or of all streams that fit a pattern, in which `*` stands for any characters. The request
   * is made at once; a refusal is an error of the first wait for an event.
   */
  subscribe(stream: string, options?: SubscribeOptions): Subscription;
  /**
   * The newest event, or the first one if there is none yet; null: the stream has ended without one, or `wait` is over.
   */
  get(stream: string, options?: GetOptions): Promise<StreamEvent | null>;
  /** Returns when the value is in the stream. */
  publish(stream: string, value: Value, options?: { signal?: AbortSignal }): Promise<void>;
  /** Many values for a stream. */
  publisher(stream: string, options?: PublisherOptions): Publisher;
  /** The state of a stream with keys: a snapshot, then every change; another snapshot if changes were missed. */
  state<Key = string | number | boolean>(
    stream: string, options?: StateOptions<Key>,
  ): AsyncGenerator<StateElement<Key>, void, void>;
  /**
   * Asks the upstream of a template that takes requests, once; resolves to the name of the stream of the answer. `stream`:
   * that name, or the name without the last parameter, which the daemon then makes. The same request for the same name has the
   * same answer. It is not made again after a loss of the connection.
   */
  request(stream: string, data: string | Uint8Array, options?: { signal?: AbortSignal }): Promise<string>;
  /** Makes a stream of a template; one that is there stays. Subscribing and publishing make it, too. */
  make(stream: string, options?: { signal?: AbortSignal }): Promise<void>;
  /** Ends a stream of a template with its events. For who made it, who may publish to it, and root. */
  forget(stream: string, options?: { signal?: AbortSignal }): Promise<void>;
  /** Ends the connection, and with Closed what was made from it. Values that were not flushed may be lost. */
  close(): void;
}

/**
 * Text is sent as UTF-8, bytes as they are, and anything else as JSON. Bytes must stay unchanged until they are in the
 * stream.
 */
export type Value = string | ArrayBufferView | ArrayBuffer | object | number | boolean;

/** A filter: conditions by JSON pointers, or its JSON text, whose numbers are not rounded. See "Filters" in WIRE.md. */
export type Where = { [pointer: string]: unknown } | string;

export interface SubscribeOptions {
  /**
   * Where to begin: with the last events as the stream is configured (`"replay"`, the default), the newest one
   * (`"latest"`), the next one (`"new"`) or the newest of each key (`"state"`); after an id; since a time, a Date or a
   * text of RFC 3339; or since an age such as `"-5m"`.
   */
  from?: "replay" | "latest" | "new" | "state" | bigint | number | Date | (string & {});
  /** Begins with the last so many events; excludes `from`. */
  last?: number | bigint;
  where?: Where;
  /** The daemon never sends more events than were taken, and so many; default 256. */
  credit?: number;
  /** Delivers markers, too: every event up to a marker's id was delivered. */
  marker?: boolean;
  /**
   * If events are lost, continue with the oldest stored one or the newest, or throw Lagged; default as the stream is
   * configured.
   */
  onLag?: "skip" | "latest" | "fail";
  /** Restores a lost connection, and continues after the last event; what was lost is its `gap`. Default true. */
  reconnect?: boolean;
  signal?: AbortSignal;
}

/**
 * The events of a stream. The loop ends when the stream has ended, and throws a StreamError if it ended otherwise.
 * `break`, `return` and `throw` in the loop cancel the request.
 */
export interface Subscription extends AsyncIterableIterator<StreamEvent> {
  readonly stream: string;
  next(): Promise<IteratorResult<StreamEvent, undefined>>;
  /** Cancels the request. */
  return(value?: any): Promise<IteratorResult<StreamEvent, any>>;
  throw(error?: any): Promise<IteratorResult<StreamEvent, any>>;
  /**
   * The events as a stream of objects; destroying it cancels the request. It takes one or two events before its reader
   * does.
   */
  toReadable(): Readable;
  /** Likewise, as the Web has it. It takes an event when its reader waits for one. */
  toWeb(): ReadableStream<StreamEvent>;
}

/**
 * Its bytes are part of what was read from the socket, up to 64 KiB: who keeps few of many events should copy their
 * data.
 */
export class StreamEvent {
  private constructor();
  /** The name of its stream, also if the subscription is to a pattern; the pattern, for a marker of one. */
  readonly stream: string;
  readonly kind: "event" | "marker";
  readonly id: bigint;
  /** When the daemon received it, in microseconds since the Unix epoch. */
  readonly time: bigint;
  readonly date: Date;
  /**
   * `from` of another subscription that continues here: the id, or for a pattern a time; null: a pattern has not sent
   * something of all streams yet.
   */
  readonly position: bigint | null;
  /** Empty for a marker. */
  readonly data: Buffer;
  /** How many events were missed directly before this one; null: their number is unknown. */
  readonly gap: number | null;
  /** How many events the filter left out since the last one. */
  readonly leftOut: number;
  /** The data as UTF-8. */
  text(): string;
  /** The data as JSON. */
  json(): any;
}

export interface GetOptions {
  /** Of a stream with keys: the newest event of this key. */
  key?: string | number | boolean;
  /** Milliseconds after which to give up without an error. */
  wait?: number;
  signal?: AbortSignal;
}

export interface PublisherOptions {
  /**
   * 1 to 48 bytes. The values are then numbered, kept until they are confirmed, and sent again after a loss of the
   * connection and a kill of the daemon: each is in the stream once. Without a name, a loss of the connection is an
   * error.
   */
  name?: string | Uint8Array;
  signal?: AbortSignal;
}

/**
 * Values for a stream. write() returns false while the daemon has no credit for more, and a named publisher while 4,096
 * values or 8 MiB are not confirmed. The end waits until every value is in the stream: so does stream.pipeline().
 * destroy() does not wait.
 */
export interface Publisher extends Writable {
  readonly stream: string;
  /**
   * The number of the last value that is known to be in the stream; null: the daemon has not said where the name
   * continues.
   */
  readonly confirmed: bigint | null;
  /**
   * Returns when every value so far is in the stream. Who flushes learns errors there, and need not listen for `error`.
   */
  flush(): Promise<void>;
  write(value: Value, callback?: (error: Error | null | undefined) => void): boolean;
  write(value: Value, encoding: BufferEncoding, callback?: (error: Error | null | undefined) => void): boolean;
}

export interface StateOptions<Key> {
  /**
   * Where events have their key, if the daemon does not know it as a JSON pointer; `undefined`: the event has none, and
   * is left out.
   */
  key?: string | ((event: StreamEvent) => Key | undefined);
  /** What is true in an event that removes its key; by default as the stream is configured, unless there is a `key`. */
  tombstone?: string | ((event: StreamEvent) => boolean);
  where?: Where;
  credit?: number;
  /** As in a subscription; after a loss within the state it is taken again. */
  reconnect?: boolean;
  signal?: AbortSignal;
}

export type StateElement<Key = string | number | boolean> =
  | { type: "snapshot"; state: Map<Key, StreamEvent> }
  | { type: "change" | "removal"; key: Key; event: StreamEvent };

/** The base of all errors. `message` is the daemon's sentence, if it gave one; it is for people, and may change. */
export class StreamError extends Error {
  /** The daemon's reason, one of `Reason` or a number of a later daemon; null: unknown, or not the daemon's. */
  readonly reason: number | null;
}

/** The daemon refuses the request. */
export class Rejected extends StreamError {}
/** No stream has this name, or no event this key. */
export class NoSuchStream extends Rejected {}
/** The access rules do not admit this user, or its token is not valid. */
export class NotAllowed extends Rejected {}
/** The stream accepts no values; a command has no effect on it. */
export class NotSupported extends Rejected {}
/** A limit of the daemon, for this user or connection. */
export class LimitExceeded extends Rejected {}
/** Options, a filter, an id that no event has yet, or a value that is too large. */
export class Invalid extends StreamError {}
/** Events were lost with `onLag: "fail"`, or this reader stalled a lossless stream. */
export class Lagged extends StreamError {}
/** The daemon stopped, the stream was removed, or another publisher has the name. */
export class Canceled extends StreamError {}
/** The source of the stream has failed permanently. */
export class SourceFailed extends StreamError {}
/** Could not connect, or the connection was lost and nothing restores it. */
export class ConnectionLost extends StreamError {}
/** The peer is not streamd. */
export class ProtocolError extends StreamError {}
/** The program has closed the connection or the publisher. */
export class Closed extends StreamError {}

/** The reasons of errors, by name: see "Reasons" in WIRE.md. */
export const Reason: {
  readonly NO_STREAM: 1; readonly MAY_NOT_READ: 2; readonly MAY_NOT_WRITE: 3; readonly MAY_NOT_COMMAND: 4;
  readonly TAKES_NO_VALUES: 5; readonly NO_SPACE: 6; readonly NO_KEY: 7; readonly NO_EFFECT: 8; readonly TOO_MANY_REQUESTS: 9;
  readonly TOO_MANY_VIEWS: 10; readonly TOO_MANY_PUBLISHERS: 11; readonly TOO_MANY_MAPS: 12; readonly NO_DESCRIPTORS: 13;
  readonly NO_MEMORY: 14; readonly TOO_MANY_FILTERS: 15; readonly FILTERS_TOO_LARGE: 16; readonly INVALID_REQUEST: 17;
  readonly UNKNOWN_POSITION: 18; readonly NO_STATE: 19; readonly TOO_LARGE: 20; readonly NOT_JSON: 21; readonly NOT_MAPPED: 22;
  readonly NOT_MAPPABLE: 23; readonly FAILED: 24; readonly LAGGED: 25; readonly EVENT_LOST: 26; readonly STALLED: 27;
  readonly STOPPING: 28; readonly RESTARTING: 29; readonly KICKED: 30; readonly TOKEN_REMOVED: 31; readonly NO_CAPACITY: 32;
  readonly REMOVED: 33; readonly ENDED: 34; readonly TAKES_NO_MORE_VALUES: 35; readonly VALUES_LOST: 36; readonly NAME_IN_USE: 37;
  readonly MAP_REMOVED: 38; readonly STATE_LOST: 39; readonly TYPE_CHANGED: 40; readonly INVALID_TOKEN: 41;
  readonly INVALID_AUTHENTICATION: 42; readonly TOO_MANY_CONNECTIONS: 43; readonly NOT_CONFIGURED: 44;
  readonly TOO_MUCH_INPUT: 45; readonly REQUEST_TOO_LARGE: 46; readonly TOO_MANY_STREAMS: 47;
  readonly OTHER_REQUEST: 48; readonly NOT_KEPT: 49;
};
