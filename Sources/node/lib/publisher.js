// Publishers: values, the daemon's credit for them, and how they are confirmed: see "Credit" and "Named publishers" in
// WIRE.md.
//
// A named publisher keeps its values until the daemon confirms their numbers, and sends them again after a loss. For
// one without a name only the end of a request confirms its values: a flush ends the request, and the next value begins
// another one.

import { addAbortSignal, Writable } from "node:stream";

import { Canceled, Closed, Invalid, ProtocolError, Reason } from "./errors.js";
import * as frames from "./frames.js";
import { bytesOf, checkedName } from "./options.js";
import { Queue } from "./queue.js";
import { Request } from "./request.js";

const QUEUE_VALUES = 4096, QUEUE_BYTES = 8 << 20;
/** The largest `max_request` of a daemon. */
const VALUE_LIMIT = (16 << 20) - 1;
/**
 * Milliseconds for which a name may be in use by another connection: it may be a former one of this publisher, which
 * the daemon has not given up yet.
 */
const FIRST_PATIENCE = 2_000, PATIENCE = 90_000;
const NOTHING = Buffer.alloc(0);

/** Values are counted from 1; a named publisher's have the numbers `base` + count. */
class Delivery extends Request {
  #publisher; // the name, or null
  #values = new Queue(); // sent ones that are kept, then unsent ones
  #bytes = 0;
  #sent = 0; // how many of them are sent
  #count = 0; // of all values so far
  #confirmed = 0; // of values that are known to be in the stream; for a name relative to `base`, and so possibly negative
  #base = null; // null: the daemon has not said where the name continues
  #isGreeted = false; // on this connection
  #uncertain = 0; // values that were sent before a loss, and not confirmed
  #refusedAt = 0; // when the name was first found in use; 0: it is not
  #credit = 0;
  #isCompleting = false; // COMPLETE is sent
  #flushes = []; // calls of flush(), in order
  #failure = null; // how it has ended
  #report;

  /** `report(error)` is called when there is progress, and at the end; `error` is undefined for progress. */
  constructor(connection, stream, publisher, report) {
    super(connection, stream);
    this.#publisher = publisher;
    this.#report = report;
  }

  get restores() {
    return this.#publisher !== null && !this.isOver;
  }

  get count() {
    return this.#count;
  }

  get confirmed() {
    if (this.#publisher === null) return BigInt(this.#confirmed);
    return this.#base === null ? null : this.#base + BigInt(this.#confirmed);
  }

  /** Whether another value would be sent, or kept, without further ones having to be confirmed. */
  get hasRoom() {
    if (this.#publisher !== null) return this.#values.length < QUEUE_VALUES && this.#bytes < QUEUE_BYTES;
    return this.#values.length === 0;
  }

  get #unsent() {
    return this.#values.length - this.#sent;
  }

  push(value) {
    this.#values.push(value);
    this.#bytes += value.length;
    this.#count++;
    if (this.id) this.#send();
    else this.connection.open(this);
  }

  /**
   * Returns once the first `count` values are in the stream, and for a named publisher the daemon has said where the
   * name continues.
   */
  flush(count) {
    if (this.isOver) return Promise.reject(this.#failure);
    return new Promise((resolve, reject) => {
      this.#flushes.push({ count, resolve, reject });
      this.#settle();
      if (this.id) this.#send();
    });
  }

  #isFlushed(count) {
    return this.#publisher === null ? this.#confirmed >= count : this.#isGreeted && this.#first > count;
  }

  /** The first kept value. */
  get #first() {
    return this.#count - this.#values.length + 1;
  }

  #settle() {
    while (this.#flushes.length > 0 && this.#isFlushed(this.#flushes[0].count)) this.#flushes.shift().resolve();
  }

  open() {
    this.#credit = 0;
    const route = { stream: this.name };
    if (this.#publisher === null) {
      if (this.#values.length === 0) return this.lose(); // the next value opens it
      this.connection.send(...frames.request(this.id, frames.REQUEST_CHANNEL, 1, route, this.#drop()));
    } else {
      Object.assign(route, { publisher: this.#publisher, number: this.#base === null ? 1n : this.#base + BigInt(this.#first) });
      this.connection.send(...frames.request(this.id, frames.REQUEST_CHANNEL, frames.UNLIMITED, route, NOTHING));
    }
    this.#send();
  }

  /** Removes the first value. */
  #drop() {
    const value = this.#values.shift();
    this.#bytes -= value.length;
    if (this.#sent > 0) this.#sent--;
    return value;
  }

  /** Sends the values for which there is credit, up to those that a flush is for. */
  #send() {
    if (this.#isCompleting || (this.#publisher !== null && !this.#isGreeted)) return;
    const ends = this.#publisher === null && this.#flushes.length > 0, last = ends ? this.#flushes[0].count : Infinity;
    while (this.#unsent > 0 && this.#credit > 0 && this.#count - this.#unsent < last && this.connection.hasRoom) {
      this.#credit--;
      const value = this.#publisher === null ? this.#drop() : this.#values.at(this.#sent++);
      this.connection.send(...frames.value(this.id, value));
    }
    if (this.#count - this.#unsent >= last && this.id) {
      this.#isCompleting = true;
      this.connection.send(frames.complete(this.id));
    }
    this.#report();
  }

  resume() {
    this.#send();
  }

  interrupt() {
    this.#uncertain = Math.max(this.#uncertain, this.#sent);
    this.#sent = 0;
    this.#isGreeted = this.#isCompleting = false;
  }

  // What the daemon sends.

  grant(credit) {
    this.#credit += credit;
    this.#send();
  }

  /** The daemon accepts no more values. */
  cancel() {
    this.end(new Canceled("the daemon accepts no more values"));
  }

  receive(bytes, metadata, start, end) {
    if (this.#publisher === null) return; // no values are expected, and none were requested
    const size = end - start;
    if (!this.#isGreeted) {
      if (size !== 16) throw new ProtocolError("the first reply to a publisher has not 16 bytes");
      return this.#greet(bytes.readBigUInt64BE(start), bytes.readBigUInt64BE(start + 8));
    }
    if (size !== 8) throw new ProtocolError("a confirmation has not 8 bytes");
    const confirmed = Number(bytes.readBigUInt64BE(start) - this.#base);
    if (confirmed > this.#count - this.#unsent) throw new ProtocolError("the daemon confirms a value that was not sent");
    this.#confirm(confirmed);
    this.#report();
  }

  /** The first reply on a connection: all values up to `stored` are in the stream, and the daemon takes `next` next. */
  #greet(stored, next) {
    if (stored >= next || next > 2n ** 62n) throw new ProtocolError("the numbers of a publisher are out of range");
    const isFirst = this.#base === null;
    if (isFirst) this.#base = next - 1n;
    const start = Number(next - this.#base);
    if (start < this.#first) throw new ProtocolError("the daemon wants a value that it has confirmed");
    if (start > this.#count + 1) return this.leave(new Canceled("another publisher has used the name meanwhile"));
    if (!isFirst && stored === 0n && this.confirmed > 0n && this.#uncertain > 0) {
      return this.leave(new Canceled("the stream has discarded the name: values that were sent may be in it or not"));
    }
    this.#sent = start - this.#first;
    this.#isGreeted = true;
    this.#refusedAt = this.#uncertain = 0;
    if (isFirst) this.#confirmed = Number(stored - this.#base);
    this.#confirm(Number(stored - this.#base));
    this.#send();
  }

  #confirm(count) {
    this.#confirmed = Math.max(this.#confirmed, count);
    while (this.#values.length > 0 && this.#first <= count) this.#drop();
    this.#settle();
  }

  complete() {
    if (!this.#isCompleting) return this.end(new Canceled("the daemon has ended the request before the last value"));
    this.lose();
    this.#confirm(this.#count - this.#values.length);
    if (this.#values.length > 0) this.connection.open(this);
    this.#report();
  }

  continuesAfter(error) {
    if (!super.continuesAfter(error)) return false;
    if (error.reason !== Reason.NAME_IN_USE && error.reason !== null) return true;
    this.#refusedAt ||= performance.now();
    return performance.now() - this.#refusedAt < (this.#base === null ? FIRST_PATIENCE : PATIENCE);
  }

  // The end.

  /** The program is done: with COMPLETE if every value was sent. */
  leave(error = null) {
    const isDone = this.#unsent === 0 && (this.#publisher === null || this.#isGreeted);
    if (this.id && !this.#isCompleting) this.connection.send(isDone && !error ? frames.complete(this.id) : frames.cancel(this.id));
    this.end(error);
  }

  finish(error) {
    this.#failure = error ?? new Closed("the program has closed the publisher");
    for (const { reject } of this.#flushes.splice(0)) reject(this.#failure);
    this.#values.clear();
    this.#report(error);
  }
}

function checkedValue(value) {
  const bytes = bytesOf(value);
  if (bytes.length <= VALUE_LIMIT) return bytes;
  throw new Invalid(`a value of ${bytes.length} bytes is larger than any request may be`, Reason.TOO_LARGE);
}

function checkedPublisher(name) {
  if (name === undefined || name === null) return null;
  const bytes = Buffer.from(name);
  if (bytes.length < 1 || bytes.length > 48) throw new Invalid("a publisher's name has 1 to 48 bytes");
  return bytes;
}

/** Returns once a value is in the stream. */
export async function publishOne(connection, stream, value, { signal } = {}) {
  signal?.throwIfAborted();
  const delivery = new Delivery(connection, checkedName(stream), null, () => {}), bytes = checkedValue(value);
  const abort = () => delivery.leave(signal.reason);
  connection.add(delivery);
  delivery.push(bytes);
  signal?.addEventListener("abort", abort, { once: true });
  try {
    await delivery.flush(1);
  } finally {
    signal?.removeEventListener("abort", abort);
    delivery.leave();
  }
}

/** Values for a stream. */
export class Publisher extends Writable {
  #delivery;
  #pending = 0; // values that the delivery has, and whose callback was not called
  #callback = null;

  constructor(connection, stream, { name, signal } = {}) {
    super({ objectMode: true, decodeStrings: false, highWaterMark: 256 });
    this.stream = stream;
    this.#delivery = new Delivery(connection, checkedName(stream), checkedPublisher(name), (error) => this.#progress(error));
    connection.add(this.#delivery);
    if (signal) addAbortSignal(signal, this);
  }

  /**
   * The number of the last value that is known to be in the stream; null: the daemon has not said where the name
   * continues.
   */
  get confirmed() {
    return this.#delivery.confirmed;
  }

  /** Returns once every value so far is in the stream. A program that flushes need not listen for `error`. */
  flush() {
    if (this.listenerCount("error") === 0) this.on("error", () => {});
    if (this.errored) return Promise.reject(this.errored);
    return this.#delivery.flush(this.#delivery.count + this.writableLength - this.#pending);
  }

  #progress(error) {
    if (error !== undefined) return this.destroyed || this.destroy(error instanceof Closed ? null : error);
    if (!this.#callback || !this.#delivery.hasRoom) return;
    const callback = this.#callback;
    this.#callback = null;
    process.nextTick(() => { // it may call the program
      this.#pending = 0;
      callback();
    });
  }

  #accept(values, callback) {
    try {
      const all = values.map(checkedValue);
      this.#pending = all.length;
      this.#callback = callback;
      for (const value of all) this.#delivery.push(value);
    } catch (error) {
      return callback(error);
    }
    if (this.#delivery.hasRoom && this.#callback) {
      this.#callback = null;
      this.#pending = 0;
      callback();
    }
  }

  _write(value, encoding, callback) {
    this.#accept([value], callback);
  }

  _writev(chunks, callback) {
    this.#accept(chunks.map(({ chunk }) => chunk), callback);
  }

  _final(callback) {
    this.#delivery.flush(this.#delivery.count).then(() => callback(), callback);
  }

  _destroy(error, callback) {
    this.#delivery.leave(error);
    callback(error);
  }
}
