import { inspect } from "node:util";

/** An item of a stream. Its bytes stay in what was read from the socket; each property is made when it is asked for. */
export class StreamEvent {
  #bytes;
  #metadata; // where the id begins, and 8 bytes later the time
  #place; // where the position begins
  #start;
  #end;
  #data;

  constructor(stream, kind, bytes, metadata, place, start, end, gap, leftOut) {
    this.stream = stream;
    this.kind = kind;
    this.gap = gap;
    this.leftOut = leftOut;
    this.#bytes = bytes;
    this.#metadata = metadata;
    this.#place = place;
    this.#start = start;
    this.#end = end;
  }

  get id() {
    return this.#bytes.readBigUInt64BE(this.#metadata);
  }

  get time() {
    return this.#bytes.readBigUInt64BE(this.#metadata + 8);
  }

  get position() {
    const position = this.#bytes.readBigUInt64BE(this.#place);
    return position === 0n ? null : position;
  }

  get date() {
    return new Date(Number(this.time / 1000n));
  }

  get data() {
    return this.#data ??= this.#bytes.subarray(this.#start, this.#end);
  }

  text() {
    return this.#bytes.toString("utf8", this.#start, this.#end);
  }

  json() {
    return JSON.parse(this.text());
  }

  [inspect.custom](depth, options) {
    const { stream, kind, id, time, gap, leftOut, data } = this;
    return `StreamEvent ${inspect({ stream, kind, id, time, gap, leftOut, data }, options)}`;
  }
}
