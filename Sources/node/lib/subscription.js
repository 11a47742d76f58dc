// Subscriptions: credit, untaken events, and where to continue after a loss.

import { Readable } from "node:stream";

import { Closed, ProtocolError } from "./errors.js";
import { StreamEvent } from "./event.js";
import * as frames from "./frames.js";
import { checkedCredit, placeOf, subscriptionOptions } from "./options.js";
import { Queue } from "./queue.js";
import { Request } from "./request.js";

const EVENT = 0, MARKER = 1;

/**
 * The request of a subscription. Of the credit `window`, a part is open: the daemon may send so many events. The others
 * are untaken, or were taken and are granted again once they are half of it.
 */
class SubscriptionRequest extends Request {
  #window;
  #openCredit = 0;
  #renewable = 0;
  #place; // JSON
  #options; // JSON of the other members
  #reconnects;
  #isPattern;
  #hasFilter;
  #hasKind;
  #hidesMarkers;
  #isInState;
  #hasPosition = false;
  #high = 0; // the halves of where to continue: the id of the newest event or marker, or the position of a pattern
  #low = 0;
  #resumedAfter = null; // events up to this id were received before; null: none were, or a later one has come
  #hiddenGap = 0; // of markers that are not delivered
  #hiddenLeftOut = 0;

  /** `deliver(event)` takes an event; `onEnd(error)` the end. */
  constructor(connection, stream, options, deliver, onEnd) {
    super(connection, stream);
    const { from, where, marker = false, reconnect = true, credit = 256 } = options;
    this.deliver = deliver;
    this.finish = onEnd;
    this.untaken = 0;
    this.#window = checkedCredit(credit);
    this.#reconnects = reconnect;
    this.#isPattern = stream.includes("*");
    this.#isInState = from === "state";
    this.#hasFilter = where !== undefined;
    // A marker is a position to continue from: events that were left out before a loss are not examined again, and a
    // state has an end.
    this.#hidesMarkers = reconnect && !marker && (this.#hasFilter || this.#isInState);
    this.#hasKind = marker || this.#hidesMarkers;
    this.#place = placeOf(options);
    const members = subscriptionOptions(options, this.#hidesMarkers, this.#isPattern);
    this.#options = Object.entries(members).map(([name, text]) => `,"${name}":${text}`).join("");
  }

  /** A loss in a state is final: its ids are no positions, and keys may be removed meanwhile. */
  get restores() {
    return this.#reconnects && !this.isOver && !(this.#isInState && this.#hasPosition);
  }

  get #position() {
    return BigInt(this.#high) << 32n | BigInt(this.#low);
  }

  open() {
    this.#renewable = 0;
    this.#openCredit = this.#window - this.untaken;
    if (this.#openCredit === 0) return this.lose(); // it is sent when the program takes an event
    const place = this.#hasPosition ? this.#position : this.#place;
    const data = Buffer.from(`{"from":${place}${this.#options}}`);
    this.connection.send(...frames.request(this.id, frames.REQUEST_STREAM, this.#openCredit, { stream: this.name }, data));
  }

  interrupt() {
    this.#openCredit = 0;
    if (this.#hasPosition && !this.#isPattern) this.#resumedAfter = this.#position;
  }

  /** The program has taken an event. */
  take() {
    this.untaken--;
    this.#renew();
  }

  #renew() {
    this.#renewable++;
    if (this.#renewable * 2 < this.#window || this.isOver) return;
    if (this.id === 0) return this.connection.open(this);
    this.connection.send(frames.requestN(this.id, this.#renewable));
    this.#openCredit += this.#renewable;
    this.#renewable = 0;
  }

  /** Reads what WIRE.md, "Content of a payload" has. */
  receive(bytes, metadata, start, end) {
    const least = 16 + (this.#hasFilter ? 8 : 0) + (this.#hasKind ? 1 : 0) + (this.#isPattern ? 17 : 0), size = start - metadata;
    if (size < least) throw new ProtocolError("the metadata of an event has an unexpected length");
    if (this.#openCredit === 0) throw new ProtocolError("the daemon has sent more events than were requested");
    this.#openCredit--;
    let at = metadata + 16, place = metadata, gap = 0, leftOut = 0, kind = EVENT, stream = this.stream;
    if (this.#hasFilter) {
      leftOut = bytes.readUInt32BE(at) * 2 ** 32 + bytes.readUInt32BE(at + 4);
      at += 8;
    }
    if (this.#isPattern || size >= least + 8) {
      gap = gapAt(bytes, at);
      at += 8;
    }
    if (this.#hasKind) kind = bytes[at++];
    if (this.#isPattern) {
      place = at;
      at += 9 + bytes[at + 8];
      if (at > place + 9) stream = bytes.toString("utf8", place + 9, at);
    }
    if (at !== start || kind > MARKER) throw new ProtocolError("the metadata of an event is malformed");
    if (kind === MARKER && end > start) throw new ProtocolError("a marker has data");
    if (this.#resumedAfter !== null && !this.#isNew(bytes.readBigUInt64BE(metadata), kind)) return this.#renew();
    this.#setPosition(bytes.readUInt32BE(place), bytes.readUInt32BE(place + 4));
    if (kind === MARKER) this.#isInState = false;
    this.#pass(stream, kind, bytes, metadata, place, start, end, gap, leftOut);
  }

  /** A pattern has no position, which is 0, until it has had something of all streams. */
  #setPosition(high, low) {
    if (high === 0 && low === 0 && this.#isPattern) return;
    this.#high = high;
    this.#low = low;
    this.#hasPosition = true;
  }

  #isNew(id, kind) {
    const isNew = id > this.#resumedAfter || (id === this.#resumedAfter && kind === MARKER);
    if (id > this.#resumedAfter) this.#resumedAfter = null;
    return isNew;
  }

  #pass(stream, kind, bytes, metadata, place, start, end, gap, leftOut) {
    if (this.#hiddenGap !== 0) gap = gap === null || this.#hiddenGap === null ? null : gap + this.#hiddenGap;
    leftOut += this.#hiddenLeftOut;
    if (kind === MARKER && this.#hidesMarkers) {
      [this.#hiddenGap, this.#hiddenLeftOut] = [gap, leftOut];
      return this.#renew();
    }
    this.#hiddenGap = this.#hiddenLeftOut = 0;
    this.untaken++;
    const name = kind === MARKER ? "marker" : "event";
    this.deliver(new StreamEvent(stream, name, bytes, metadata, place, start, end, gap, leftOut));
  }

  complete() {
    this.end();
  }
}

/** All bits are set if the number is unknown. */
function gapAt(bytes, at) {
  const high = bytes.readUInt32BE(at), low = bytes.readUInt32BE(at + 4);
  return high === 0xffffffff && low === 0xffffffff ? null : high * 2 ** 32 + low;
}

const done = (value) => Promise.resolve({ done: true, value });

/** The events of a stream, as an asynchronous iterator. */
export class Subscription {
  #request;
  #events = new Queue();
  #waiting = new Queue(); // calls of next() that no event has answered
  #isOver = false;
  #error = null; // how it has ended, until next() has thrown it
  #signal;

  constructor(connection, stream, options) {
    this.stream = stream;
    const deliver = (event) => this.#deliver(event), onEnd = (error) => this.#end(error);
    this.#request = new SubscriptionRequest(connection, stream, options, deliver, onEnd);
    this.#signal = options.signal;
    if (this.#signal?.aborted) return void this.#end(this.#signal.reason);
    connection.add(this.#request);
    this.#signal?.addEventListener("abort", this.#abort, { once: true });
  }

  #abort = () => this.#leave(this.#signal.reason);

  #deliver(event) {
    if (this.#waiting.length === 0) return this.#events.push(event);
    const { resolve } = this.#waiting.shift();
    resolve({ done: false, value: event });
    this.#request.take();
  }

  #end(error) {
    this.#isOver = true;
    this.#error = error;
    this.#signal?.removeEventListener("abort", this.#abort);
    if (error instanceof Closed) this.#events.clear();
    while (this.#waiting.length > 0) {
      const { resolve, reject } = this.#waiting.shift(), failure = this.#error;
      this.#error = null;
      if (failure) reject(failure);
      else resolve({ done: true, value: undefined });
    }
  }

  /** Ends the subscription, without the events that were not taken. */
  #leave(error = null) {
    this.#events.clear();
    if (this.#isOver) this.#error = null;
    else this.#request.leave(error);
  }

  next() {
    if (this.#events.length > 0) {
      const value = this.#events.shift();
      this.#request.take();
      return Promise.resolve({ done: false, value });
    }
    if (!this.#isOver) return new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }));
    const error = this.#error;
    this.#error = null;
    return error ? Promise.reject(error) : done();
  }

  return(value) {
    this.#leave();
    return done(value);
  }

  throw(error) {
    this.#leave();
    return Promise.reject(error);
  }

  [Symbol.asyncIterator]() {
    return this;
  }

  toReadable() {
    return Readable.from(this, { highWaterMark: 1 });
  }

  toWeb() {
    return new ReadableStream({
      pull: async (controller) => {
        const { done: isOver, value } = await this.next();
        if (isOver) controller.close();
        else controller.enqueue(value);
      },
      cancel: () => void this.return(),
    }, { highWaterMark: 0 });
  }
}
