// The frames of RSocket 1.0 that a client sends and receives: "Framing Protocol" and "Frame Types".

import { ProtocolError } from "./errors.js";

export const SETUP = 0x01, KEEPALIVE = 0x03, REQUEST_RESPONSE = 0x04, REQUEST_STREAM = 0x06, REQUEST_CHANNEL = 0x07,
  REQUEST_N = 0x08, CANCEL = 0x09, PAYLOAD = 0x0a, ERROR = 0x0b, METADATA_PUSH = 0x0c;
export const IGNORE = 0x200, METADATA = 0x100, FOLLOWS = 0x80, RESPOND = 0x80, COMPLETE = 0x40, NEXT = 0x20;

/** Credit without limit, and the largest id of a request. */
export const UNLIMITED = 0x7fffffff;

/** The bytes of a frame's length, id, type and flags: every frame has them. */
const HEAD_BYTES = 9;
/** Values with more bytes are sent in several frames. */
const FRAGMENT_BYTES = 64 << 10;
/**
 * Values with fewer bytes are copied behind the head of their frame, which costs less than a piece of their own for the
 * system.
 */
const SMALL_BYTES = 4 << 10;

/**
 * Divides received bytes into frames, and calls `receive(bytes, start, end)` for each. Frames stay where they came:
 * only one that ends in a later chunk is copied. `check(id)` throws if no frame may have the id; it is called before
 * the whole frame is there, because a peer that is not streamd may announce a large length.
 */
export class FrameReader {
  #check;
  #receive;
  #partial = null; // the head of a frame, or room for all of it
  #filled = 0;
  #isStopped = false;

  constructor(check, receive) {
    this.#check = check;
    this.#receive = receive;
  }

  /** Whatever follows is not read. */
  stop() {
    this.#isStopped = true;
    this.#partial = null;
  }

  push(chunk) {
    let at = this.#partial ? this.#complete(chunk) : 0;
    while (!this.#isStopped && chunk.length - at >= HEAD_BYTES) {
      const end = at + this.#sizeOf(chunk, at);
      if (end > chunk.length) break;
      this.#receive(chunk, at + 3, end);
      at = end;
    }
    if (this.#isStopped || at === chunk.length) return;
    const size = chunk.length - at < HEAD_BYTES ? HEAD_BYTES : this.#sizeOf(chunk, at);
    this.#partial = Buffer.allocUnsafe(size);
    this.#filled = chunk.copy(this.#partial, 0, at);
  }

  /** Adds to the partial frame. Returns the number of bytes that it took. */
  #complete(chunk) {
    let taken = 0;
    while (this.#partial) {
      const count = chunk.copy(this.#partial, this.#filled, taken);
      taken += count;
      this.#filled += count;
      if (this.#filled < this.#partial.length) break;
      const frame = this.#partial, size = this.#sizeOf(frame, 0);
      if (size > frame.length) {
        this.#partial = Buffer.allocUnsafe(size);
        frame.copy(this.#partial);
      } else {
        this.#partial = null;
        this.#receive(frame, 3, size);
      }
    }
    return taken;
  }

  /** The bytes of the frame at a place, with those of its length. */
  #sizeOf(bytes, at) {
    const length = bytes.readUIntBE(at, 3);
    if (length < HEAD_BYTES - 3) throw new ProtocolError("a frame has fewer than 6 bytes");
    this.#check(bytes.readUInt32BE(at + 3));
    return 3 + length;
  }
}

/** A frame with room for `size` bytes after its head. */
function frame(id, type, flags, size) {
  const bytes = Buffer.allocUnsafe(HEAD_BYTES + size);
  bytes.writeUIntBE(HEAD_BYTES - 3 + size, 0, 3);
  bytes.writeUInt32BE(id, 3);
  bytes.writeUInt16BE(type << 10 | flags, 7);
  return bytes;
}

function number(value, byteCount) {
  const bytes = Buffer.allocUnsafe(byteCount);
  bytes.writeUIntBE(value, 0, byteCount);
  return bytes;
}

function framed(id, type, flags, ...parts) {
  const body = Buffer.concat(parts), bytes = frame(id, type, flags, body.length);
  body.copy(bytes, HEAD_BYTES);
  return bytes;
}

const COMPOSITE = "message/x.rsocket.composite-metadata.v0", JSON_TYPE = "application/json";
const PUBLISHER = "message/x.streamd.publisher.v0";
/** The data of SETUP: this client knows the daemon's reasons. */
const ANNOUNCEMENT = Buffer.from('{"reasons":true}');

/**
 * Times are in milliseconds. The metadata has a token: the well-known type of authentication 0x7c, and in it the type
 * bearer, 0x81.
 */
export function setup(keepalive, lifetime, token) {
  const mimeTypes = [COMPOSITE, JSON_TYPE].flatMap((type) => [number(type.length, 1), Buffer.from(type)]);
  const head = [number(0x00010000, 4), number(keepalive, 4), number(lifetime, 4), ...mimeTypes];
  if (!token) return framed(0, SETUP, 0, ...head, ANNOUNCEMENT);
  const entry = [number(0x80 | 0x7c, 1), number(1 + token.length, 3), number(0x81, 1), token];
  return framed(0, SETUP, METADATA, ...head, number(5 + token.length, 3), ...entry, ANNOUNCEMENT);
}

/** Without a position: resumption is not supported. */
export function keepalive(flags, data = Buffer.alloc(0)) {
  return framed(0, KEEPALIVE, flags, Buffer.alloc(8), data);
}

export function requestN(id, count) {
  const bytes = frame(id, REQUEST_N, 0, 4);
  bytes.writeUInt32BE(count, HEAD_BYTES);
  return bytes;
}

export function cancel(id) {
  return frame(id, CANCEL, 0, 0);
}

export function complete(id) {
  return frame(id, PAYLOAD, COMPLETE, 0);
}

export function error(code, sentence) {
  return framed(0, ERROR, 0, number(code, 4), Buffer.from(sentence));
}

/**
 * A request as pieces to write. `route.stream` is a buffer, as is `route.publisher`, the name of a named publisher,
 * whose next value has the number `route.number`. `credit` is null for a REQUEST_RESPONSE.
 */
export function request(id, type, credit, route, data) {
  const metadata = routing(route), first = data.subarray(0, FRAGMENT_BYTES - 1024); // beside the metadata
  const flags = METADATA | (first.length < data.length ? FOLLOWS : 0);
  const head = credit === null ? [] : [number(credit, 4)];
  return [framed(id, type, flags, ...head, number(metadata.length, 3), metadata, first), ...fragments(id, data, first.length)];
}

/** A value of a publisher as pieces to write. */
export function value(id, data) {
  if (data.length > SMALL_BYTES) return fragments(id, data, 0);
  const bytes = frame(id, PAYLOAD, NEXT, data.length);
  data.copy(bytes, HEAD_BYTES);
  return [bytes];
}

/**
 * The well-known routing type 0x7e; then the publisher's entry, whose type has no number: its length is less by one.
 */
function routing({ stream, publisher, number: first }) {
  const parts = [number(0x80 | 0x7e, 1), number(stream.length + 1, 3), number(stream.length, 1), stream];
  if (publisher) {
    const place = Buffer.allocUnsafe(8);
    place.writeBigUInt64BE(first);
    parts.push(number(PUBLISHER.length - 1, 1), Buffer.from(PUBLISHER), number(8 + publisher.length, 3), place, publisher);
  }
  return Buffer.concat(parts);
}

/** The rest of a value, whose bytes are not copied. */
function fragments(id, data, start) {
  const pieces = [];
  for (let at = start; at < data.length; at += FRAGMENT_BYTES) {
    const part = data.subarray(at, at + FRAGMENT_BYTES), head = Buffer.allocUnsafe(HEAD_BYTES);
    head.writeUIntBE(HEAD_BYTES - 3 + part.length, 0, 3);
    head.writeUInt32BE(id, 3);
    head.writeUInt16BE(PAYLOAD << 10 | NEXT | (at + part.length < data.length ? FOLLOWS : 0), 7);
    pieces.push(head, part);
  }
  return pieces;
}
