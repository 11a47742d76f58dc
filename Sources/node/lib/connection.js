// The socket, its losses, and the frames of the daemon for requests.

import { createConnection } from "node:net";

import { addressOf } from "./address.js";
import { Closed, ConnectionLost, endOfConnection, errorOf, Invalid, ProtocolError } from "./errors.js";
import * as frames from "./frames.js";

/** Milliseconds between two KEEPALIVE frames, and those without a frame after which the daemon counts as lost. */
const KEEPALIVE = 20_000, LIFETIME = 90_000;
/**
 * Milliseconds for connecting, and those before a new attempt: half of a delay is random, so that clients do not come
 * all at once.
 */
const CONNECT = 10_000, FIRST_DELAY = 200, LONGEST_DELAY = 5_000;
/** Unsent bytes beyond which values wait, and beyond which a daemon that does not read counts as lost. */
const OUTPUT_ROOM = 256 << 10, OUTPUT_LIMIT = 64 << 20;

/** The one connection of a `Connection`, restored while a request wants that. */
export class Link {
  #address;
  #token;
  #keepalive;
  #requests = new Set(); // in the order in which they were made
  #open = new Map(); // those on the wire, by id
  #socket = null;
  #reader;
  #nextId = 1;
  #state = "lost"; // can become: connecting, open, waiting, closed; "lost": the next request connects
  #losses = 0;
  #retry; // the timer of a new attempt
  #beat; // the timer of KEEPALIVE
  #silentSince = 0; // when the first KEEPALIVE without an answer was sent; 0: none
  #greeting; // of the first connection: the functions of its promise

  constructor({ token, keepalive = KEEPALIVE, ...address }) {
    this.#address = addressOf(address);
    this.#token = token === undefined ? null : checkedToken(token);
    this.#keepalive = checkedKeepalive(keepalive);
  }

  /** Returns once the daemon has accepted the connection. */
  connect(signal) {
    return new Promise((resolve, reject) => {
      signal?.throwIfAborted();
      const abort = () => this.close(signal.reason);
      const settled = (settle) => (value) => {
        signal?.removeEventListener("abort", abort);
        this.#greeting = null;
        settle(value);
      };
      this.#greeting = { resolve: settled(resolve), reject: settled(reject) };
      signal?.addEventListener("abort", abort, { once: true });
      this.#dial();
    });
  }

  get isClosed() {
    return this.#state === "closed";
  }

  close(reason = new Closed("the program has closed the connection")) {
    if (this.isClosed) return;
    this.#hangUp();
    this.#state = "closed";
    this.#greeting?.reject(reason);
    for (const request of [...this.#requests]) request.end(reason);
  }

  // What requests use.

  add(request) {
    if (this.isClosed) throw new Closed("the program has closed the connection");
    this.#requests.add(request);
    if (this.#state === "lost") this.#dial();
    else this.open(request);
  }

  /** Sends a request that is ready, if there is a connection. */
  open(request) {
    if (this.#state !== "open" || request.id || request.isOver || request.isPaused) return;
    if (this.#nextId > frames.UNLIMITED) return this.#lose(new ConnectionLost("the connection has no request id left"));
    request.id = this.#nextId;
    this.#nextId += 2;
    this.#open.set(request.id, request);
    request.open();
  }

  /** A request is not on the wire any more. */
  forget(request) {
    this.#open.delete(request.id);
  }

  remove(request) {
    this.forget(request);
    this.#requests.delete(request);
  }

  /** Whether a loss of the connection would be restored. */
  get isRestored() {
    for (const request of this.#requests) if (request.restores) return true;
    return false;
  }

  /** Whether the socket has room for values. */
  get hasRoom() {
    return this.#state === "open" && this.#socket.writableLength < OUTPUT_ROOM;
  }

  /** What is written at one time goes out together. */
  send(...pieces) {
    if (this.#state !== "open") return;
    const socket = this.#socket;
    if (!socket.writableCorked) {
      socket.cork();
      process.nextTick(() => socket.uncork());
    }
    for (const piece of pieces) socket.write(piece);
    if (socket.writableLength > OUTPUT_LIMIT) this.#lose(new ConnectionLost("the daemon does not read"));
  }

  // The socket.

  #dial() {
    this.#state = "connecting";
    clearTimeout(this.#retry);
    const socket = this.#socket = createConnection({
      ...this.#address, noDelay: true, autoSelectFamily: true, autoSelectFamilyAttemptTimeout: CONNECT / 4,
    });
    this.#reader = new frames.FrameReader((id) => this.#check(id), (bytes, start, end) => this.#receive(bytes, start, end));
    this.#nextId = 1;
    this.#beat = setTimeout(() => socket.destroy(new Error("the time is over")), CONNECT);
    // A socket that was given up has no effect.
    const on = (event, handle) => socket.on(event, (value) => socket === this.#socket && handle(value));
    on("connect", () => this.#connected());
    on("data", (chunk) => this.#read(chunk));
    on("drain", () => this.#resume());
    on("error", (error) => this.#fail(error));
    on("end", () => this.#lose(new ConnectionLost("the daemon has closed the connection")));
  }

  #fail(error) {
    const what = this.#state === "connecting" ? `cannot connect to ${this.#place}` : "the connection is lost";
    this.#lose(new ConnectionLost(`${what}: ${error.code ?? error.message}`, null, { cause: error }));
  }

  get #place() {
    const { path, host, port } = this.#address;
    return path ?? `${host}:${port}`;
  }

  #connected() {
    const { localPort, localAddress, remotePort, remoteAddress } = this.#socket;
    // While no daemon listens at a port of this host, the kernel may give that port to this socket, which is then its
    // own peer.
    if (localPort !== undefined && localPort === remotePort && localAddress === remoteAddress) {
      return this.#lose(new ConnectionLost(`cannot connect to ${this.#place}: nothing listens`));
    }
    clearTimeout(this.#beat);
    this.#state = "open";
    this.#silentSince = 0;
    this.send(frames.setup(this.#keepalive, LIFETIME, this.#token));
    this.#keepAlive();
    this.#beat = setInterval(() => this.#keepAlive(), this.#keepalive);
    for (const request of [...this.#requests]) this.open(request);
  }

  /** The first KEEPALIVE is sent at once: its answer shows that the daemon has accepted the connection. */
  #keepAlive() {
    const since = this.#silentSince;
    if (since && performance.now() - since > LIFETIME - this.#keepalive) {
      // A program that was busy has not read yet what has come.
      setImmediate(() => this.#silentSince === since && this.#lose(new ConnectionLost("the daemon is silent")));
      return;
    }
    if (!since) this.#silentSince = performance.now();
    if (this.hasRoom) this.send(frames.keepalive(frames.RESPOND));
  }

  #read(chunk) {
    this.#silentSince = 0;
    try {
      this.#reader.push(chunk);
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error;
      this.send(frames.error(0x101, error.message));
      this.#lose(error);
    }
  }

  #resume() {
    for (const request of [...this.#open.values()]) request.resume();
  }

  #hangUp() {
    clearTimeout(this.#retry);
    clearInterval(this.#beat);
    this.#silentSince = 0;
    this.#reader?.stop();
    const socket = this.#socket;
    this.#socket = null;
    if (!socket) return;
    while (socket.writableCorked) socket.uncork(); // the last frames
    socket.destroy();
    this.#open.clear();
  }

  /**
   * Ends the connection. Requests that restore it are made again if the error is a loss, and with them those for one
   * value.
   */
  #lose(error, isLoss = error instanceof ConnectionLost) {
    if (this.#state === "lost" || this.#state === "waiting" || this.isClosed) return;
    this.#hangUp();
    this.#state = "lost";
    if (this.#greeting) return this.close(error);
    const requests = [...this.#requests];
    if (isLoss && this.isRestored) {
      const longest = Math.min(FIRST_DELAY * 2 ** this.#losses++, LONGEST_DELAY);
      this.#state = "waiting";
      this.#retry = setTimeout(() => this.#dial(), longest / 2 * (1 + Math.random()));
    }
    for (const request of requests) {
      if (this.#state === "waiting" && (request.restores || request.isRepeatable)) request.lose();
      else request.end(error);
    }
  }

  // The daemon's frames.

  #check(id) {
    if (id && (id % 2 === 0 || id >= this.#nextId)) throw new ProtocolError("a frame has the id of a request that was not made");
  }

  #receive(bytes, start, end) {
    const id = bytes.readUInt32BE(start), head = bytes.readUInt16BE(start + 4), type = head >> 10;
    if (type === frames.PAYLOAD && id) this.#receivePayload(this.#open.get(id), bytes, head, start + 6, end);
    else this.#receiveOther(id, type, head, bytes.subarray(start + 6, end));
    if (this.#losses) this.#losses = 0;
    this.#greeting?.resolve();
  }

  #receivePayload(request, bytes, head, at, end) {
    let start = at, metadata = at;
    if (head & frames.METADATA) {
      if (end - at < 3) throw new ProtocolError("a payload ends inside the length of its metadata");
      metadata = at + 3;
      start = metadata + bytes.readUIntBE(at, 3);
      if (start > end) throw new ProtocolError("the metadata of a payload is longer than its frame");
    }
    request?.payload(head, bytes, metadata, start, end); // else it was canceled
  }

  #receiveOther(id, type, head, body) {
    switch (type) {
      case frames.KEEPALIVE:
        if (id || body.length < 8) throw new ProtocolError("a KEEPALIVE is malformed");
        if (head & frames.RESPOND) this.send(frames.keepalive(0, body.subarray(8)));
        return;
      case frames.REQUEST_N:
        if (!id || body.length < 4 || body.readInt32BE() <= 0) throw new ProtocolError("a REQUEST_N is malformed");
        return this.#open.get(id)?.grant?.(body.readInt32BE());
      case frames.ERROR:
        if (body.length < 4) throw new ProtocolError("an ERROR has no code");
        return this.#receiveError(id, body.readUInt32BE(), sentence(body.subarray(4)));
      case frames.CANCEL:
        if (!id) throw new ProtocolError("a CANCEL has no stream id");
        return this.#open.get(id)?.cancel?.();
      case frames.METADATA_PUSH:
        return;
      default:
        if (!(head & frames.IGNORE)) throw new ProtocolError("a frame has a type that a server does not send");
    }
  }

  /** An ERROR for the connection is the last frame that is read. */
  #receiveError(id, code, text) {
    if (id) return this.#open.get(id)?.fail(errorOf(code, text));
    const { error, isLoss } = endOfConnection(code, text || "the daemon has closed the connection");
    this.#lose(error, isLoss);
  }
}

function checkedToken(token) {
  const bytes = Buffer.from(token);
  if (bytes.length < 1 || bytes.length > 1024) throw new Invalid("a token has 1 to 1,024 bytes");
  return bytes;
}

function checkedKeepalive(keepalive) {
  if (keepalive >= 1 && keepalive <= LIFETIME / 2) return Math.floor(keepalive);
  throw new Invalid(`keepalive: ${keepalive} is not between 1 and ${LIFETIME / 2}`);
}

/** Without characters that control a terminal, or display as something else than themselves. */
function sentence(bytes) {
  return bytes.toString("utf8", 0, 1024).replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, " ");
}
