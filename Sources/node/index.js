// Subscribes to, reads, publishes and makes the streams of streamd. index.d.ts has the rules.

import { Link } from "./lib/connection.js";
import { checkedName } from "./lib/options.js";
import { Publisher, publishOne } from "./lib/publisher.js";
import { askUpstream, getNewest, giveCommand } from "./lib/single.js";
import { statesOf } from "./lib/state.js";
import { Subscription } from "./lib/subscription.js";

export {
  Canceled, Closed, ConnectionLost, Invalid, Lagged, LimitExceeded, NoSuchStream, NotAllowed, NotSupported, ProtocolError,
  Reason, Rejected, SourceFailed, StreamError,
} from "./lib/errors.js";
export { StreamEvent } from "./lib/event.js";

class Connection {
  #link;

  constructor(link) {
    this.#link = link;
  }

  subscribe(stream, options = {}) {
    return new Subscription(this.#link, checkedName(stream), options);
  }

  get(stream, options) {
    return getNewest(this.#link, stream, options);
  }

  publish(stream, value, options) {
    return publishOne(this.#link, stream, value, options);
  }

  publisher(stream, options) {
    return new Publisher(this.#link, stream, options);
  }

  state(stream, options) {
    return statesOf(this.#link, checkedName(stream), options);
  }

  request(stream, data, options) {
    return askUpstream(this.#link, stream, data, options);
  }

  make(stream, options) {
    return giveCommand(this.#link, "make", stream, options);
  }

  forget(stream, options) {
    return giveCommand(this.#link, "forget", stream, options);
  }

  close() {
    this.#link.close();
  }
}

export async function connect({ signal, ...options } = {}) {
  const link = new Link(options);
  await link.connect(signal);
  return new Connection(link);
}
