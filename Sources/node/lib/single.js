// Requests with one reply: the newest event, and commands.

import { ProtocolError, Reason } from "./errors.js";
import { StreamEvent } from "./event.js";
import * as frames from "./frames.js";
import { checkedName } from "./options.js";
import { Request } from "./request.js";

/** Milliseconds of a timer; what is more is without limit. */
const LONGEST_WAIT = 2 ** 31 - 1;

class SingleRequest extends Request {
  #data;
  #settle;
  reply = null;
  /** How often it was sent. */
  count = 0;

  /** `settle(error)` is called at the end. */
  constructor(connection, stream, data, settle) {
    super(connection, stream);
    this.#data = Buffer.from(data);
    this.#settle = settle;
  }

  get isRepeatable() {
    return true;
  }

  open() {
    this.count++;
    this.connection.send(...frames.request(this.id, frames.REQUEST_RESPONSE, null, { stream: this.name }, this.#data));
  }

  receive(bytes, metadata, start, end) {
    this.reply = { bytes, metadata, start, end };
    this.end();
  }

  complete() {
    this.end();
  }

  finish(error) {
    this.#settle(error);
  }
}

class Command extends SingleRequest {
  #verb;

  constructor(connection, verb, stream, settle) {
    super(connection, "$control", JSON.stringify({ [verb]: stream }), settle);
    this.#verb = verb;
  }

  /** A loss hides whether the first request has ended the stream. */
  fail(error) {
    if (this.#verb === "forget" && this.count > 1 && error.reason === Reason.NO_STREAM) this.end();
    else super.fail(error);
  }
}

/** It is not made again after a loss: the upstream may have been asked. */
class UpstreamRequest extends SingleRequest {
  get isRepeatable() {
    return this.count === 0;
  }
}

/**
 * Returns the reply to a request, which `make` makes of a function for its end. `wait`: after so many milliseconds it
 * is given up.
 */
function replyTo(connection, make, { wait, signal }) {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    let timer;
    const abort = () => request.leave(signal.reason);
    const request = make((error) => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
      if (error) reject(error);
      else resolve(request.reply);
    });
    connection.add(request);
    if (request.isOver) return;
    signal?.addEventListener("abort", abort, { once: true });
    if (wait !== undefined && wait <= LONGEST_WAIT) timer = setTimeout(() => request.leave(null), wait);
  });
}

/**
 * The newest event, or the first one if there is none yet; null: the stream has ended without one, or `wait` is over.
 */
export async function getNewest(connection, stream, { key, wait, signal } = {}) {
  checkedName(stream);
  const data = key === undefined ? "" : JSON.stringify({ key: String(key) });
  const reply = await replyTo(connection, (settle) => new SingleRequest(connection, stream, data, settle), { wait, signal });
  if (!reply) return null;
  const { bytes, metadata, start, end } = reply;
  if (start - metadata !== 16) throw new ProtocolError("the metadata of a reply has not 16 bytes");
  return new StreamEvent(stream, "event", bytes, metadata, metadata, start, end, 0, 0);
}

export async function askUpstream(connection, stream, data, { signal } = {}) {
  checkedName(stream);
  const body = typeof data === "string" ? Buffer.from(data) : data;
  if (!body.length) throw new TypeError("a request for an upstream is not empty");
  const reply = await replyTo(connection, (settle) => new UpstreamRequest(connection, stream, body, settle), { signal });
  if (!reply) throw new ProtocolError("a request for an upstream has got no reply");
  return reply.bytes.toString("utf8", reply.start, reply.end);
}

export async function giveCommand(connection, verb, stream, { signal } = {}) {
  checkedName(stream);
  await replyTo(connection, (settle) => new Command(connection, verb, stream, settle), { signal });
}
