// What requests have in common. A request is ready, on the wire with an id, or over. A loss of its connection makes it
// ready again if it can continue, and else ends it.

import { isTransient, ProtocolError } from "./errors.js";
import { cancel, COMPLETE, FOLLOWS, NEXT } from "./frames.js";

/** How long a request that the daemon has canceled waits before it is made again, in milliseconds. */
const PAUSE = 100;
/** The bytes of an event that comes in fragments. */
const EVENT_LIMIT = 64 << 20;

export class Request {
  /** The number of the request on the present connection; 0: it is not on the wire. */
  id = 0;
  isOver = false;
  /** Whether it waits before it is made again. */
  isPaused = false;
  /** Payloads that belong to one event: pairs of metadata and data. */
  #fragments = null;
  #fragmentBytes = 0;
  #endsWithFragments = false;
  #timer;

  constructor(connection, stream) {
    this.connection = connection;
    this.stream = stream;
    this.name = Buffer.from(stream);
  }

  /** Whether this request restores a lost connection. */
  get restores() {
    return false;
  }

  /** Whether it is made again where others restore the connection. */
  get isRepeatable() {
    return false;
  }

  /** Whether an ERROR is an interruption, after which the request is made again. */
  continuesAfter(error) {
    return isTransient(error) && (this.restores || (this.isRepeatable && this.connection.isRestored));
  }

  /** Sends the request, with `this.id`. */
  open() {}
  /** The request has lost its id. */
  interrupt() {}
  /** A payload: its metadata and data are in `bytes`, which stay as they are. */
  receive(bytes, metadata, start, end) {}
  /** The daemon has sent COMPLETE. */
  complete() {}
  /** The socket takes more. */
  resume() {}
  /** The request is over; `error` is null after a success. */
  finish(error) {}

  payload(flags, bytes, metadata, start, end) {
    const follows = (flags & FOLLOWS) !== 0, completes = (flags & COMPLETE) !== 0;
    if (follows || this.#fragments) {
      this.#gather(bytes, metadata, start, end, completes);
      if (!follows) this.#receiveFragments();
      return;
    }
    if (flags & NEXT) this.receive(bytes, metadata, start, end);
    else if (!completes) throw new ProtocolError("a payload has neither a value nor an end");
    if (completes && !this.isOver) this.complete();
  }

  #gather(bytes, metadata, start, end, completes) {
    this.#fragments ??= { metadata: [], data: [] };
    if (start > metadata && this.#fragments.data.length > 0) throw new ProtocolError("a fragment has metadata after data");
    if (start > metadata) this.#fragments.metadata.push(bytes.subarray(metadata, start));
    if (end > start) this.#fragments.data.push(bytes.subarray(start, end));
    this.#fragmentBytes += end - metadata;
    this.#endsWithFragments ||= completes;
    if (this.#fragmentBytes > EVENT_LIMIT) throw new ProtocolError("an event has more than 64 MiB");
  }

  #receiveFragments() {
    const { metadata, data } = this.#fragments, completes = this.#endsWithFragments;
    const bytes = Buffer.concat([...metadata, ...data]);
    this.#forgetFragments();
    this.receive(bytes, 0, metadata.reduce((sum, part) => sum + part.length, 0), bytes.length);
    if (completes && !this.isOver) this.complete();
  }

  #forgetFragments() {
    this.#fragments = null;
    this.#fragmentBytes = 0;
    this.#endsWithFragments = false;
  }

  fail(error) {
    if (!this.continuesAfter(error)) return this.end(error);
    this.lose();
    this.isPaused = true;
    this.#timer = setTimeout(() => {
      this.isPaused = false;
      this.connection.open(this);
    }, PAUSE);
  }

  /** The request is not on the wire any more. */
  lose() {
    clearTimeout(this.#timer);
    this.isPaused = false;
    this.connection.forget(this);
    this.id = 0;
    this.#forgetFragments();
    this.interrupt();
  }

  /** The program gives it up. */
  leave(error = null) {
    if (this.id) this.connection.send(cancel(this.id));
    this.end(error);
  }

  end(error = null) {
    if (this.isOver) return;
    this.isOver = true;
    clearTimeout(this.#timer);
    this.connection.remove(this);
    this.id = 0;
    this.#forgetFragments();
    this.finish(error);
  }
}
