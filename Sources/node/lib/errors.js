// Errors by kind, and the daemon's reasons: see "Reasons" in WIRE.md.

/** The base of all errors. `message` is the daemon's sentence, if it gave one; it is for people, and may change. */
export class StreamError extends Error {
  /** The daemon's reason, one of `Reason` or a number of a later daemon; null: unknown, or not the daemon's. */
  reason;

  constructor(message, reason = null, options = undefined) {
    super(message, options);
    this.reason = reason;
  }
}

export class Rejected extends StreamError {}
export class NoSuchStream extends Rejected {}
export class NotAllowed extends Rejected {}
export class NotSupported extends Rejected {}
export class LimitExceeded extends Rejected {}
export class Invalid extends StreamError {}
export class Lagged extends StreamError {}
export class Canceled extends StreamError {}
export class SourceFailed extends StreamError {}
export class ConnectionLost extends StreamError {}
export class ProtocolError extends StreamError {}
export class Closed extends StreamError {}

const kinds = {
  StreamError, Rejected, NoSuchStream, NotAllowed, NotSupported, LimitExceeded, Invalid, Lagged, Canceled, SourceFailed,
  ConnectionLost, ProtocolError, Closed,
};
for (const [name, kind] of Object.entries(kinds)) Object.defineProperty(kind.prototype, "name", { value: name });

// Whether a request is made again: soon on the same connection, or on a new one.
const LATER = "later", RECONNECT = "new connection";

// In the order of their numbers, which begin with 1.
const REASONS = [
  ["NO_STREAM", NoSuchStream],
  ["MAY_NOT_READ", NotAllowed],
  ["MAY_NOT_WRITE", NotAllowed],
  ["MAY_NOT_COMMAND", NotAllowed],
  ["TAKES_NO_VALUES", NotSupported],
  ["NO_SPACE", LimitExceeded],
  ["NO_KEY", NoSuchStream],
  ["NO_EFFECT", NotSupported],
  ["TOO_MANY_REQUESTS", LimitExceeded],
  ["TOO_MANY_VIEWS", LimitExceeded],
  ["TOO_MANY_PUBLISHERS", LimitExceeded],
  ["TOO_MANY_MAPS", LimitExceeded, LATER],
  ["NO_DESCRIPTORS", LimitExceeded, LATER],
  ["NO_MEMORY", LimitExceeded],
  ["TOO_MANY_FILTERS", Invalid],
  ["FILTERS_TOO_LARGE", LimitExceeded],
  ["INVALID_REQUEST", Invalid],
  ["UNKNOWN_POSITION", Invalid],
  ["NO_STATE", Invalid],
  ["TOO_LARGE", Invalid],
  ["NOT_JSON", Invalid],
  ["NOT_MAPPED", NotSupported],
  ["NOT_MAPPABLE", NotSupported],
  ["FAILED", SourceFailed],
  ["LAGGED", Lagged],
  ["EVENT_LOST", Lagged],
  ["STALLED", Lagged],
  ["STOPPING", Canceled, RECONNECT],
  ["RESTARTING", Canceled, LATER],
  ["KICKED", Canceled, RECONNECT],
  ["TOKEN_REMOVED", Canceled, RECONNECT],
  ["NO_CAPACITY", Canceled, RECONNECT],
  ["REMOVED", Canceled],
  ["ENDED", Canceled],
  ["TAKES_NO_MORE_VALUES", Canceled],
  ["VALUES_LOST", Canceled, LATER],
  ["NAME_IN_USE", Canceled, LATER],
  ["MAP_REMOVED", Canceled],
  ["STATE_LOST", Canceled, LATER],
  ["TYPE_CHANGED", Canceled],
  ["INVALID_TOKEN", NotAllowed],
  ["INVALID_AUTHENTICATION", ConnectionLost],
  ["TOO_MANY_CONNECTIONS", LimitExceeded, RECONNECT],
  ["NOT_CONFIGURED", ConnectionLost, RECONNECT],
  ["TOO_MUCH_INPUT", LimitExceeded],
  ["REQUEST_TOO_LARGE", Invalid, RECONNECT],
  ["TOO_MANY_STREAMS", LimitExceeded, LATER],
  ["OTHER_REQUEST", NotSupported],
  ["NOT_KEPT", LimitExceeded],
];

/** The numbers of reasons by their names. */
export const Reason = Object.freeze(Object.fromEntries(REASONS.map(([name], index) => [name, index + 1])));

const KIND_OF_CODE = new Map([[0x201, SourceFailed], [0x202, Rejected], [0x203, Canceled], [0x204, Invalid], [0x301, Lagged]]);

/** The error of an ERROR frame for a request. */
export function errorOf(code, message) {
  const { reason, kind } = meaningOf(code);
  return new (kind ?? KIND_OF_CODE.get(code > 0xffff ? code >>> 16 : code) ?? StreamError)(message, reason);
}

/**
 * The error of an ERROR frame for the connection, which the daemon had accepted before, and whether a new connection
 * may resolve it.
 */
export function endOfConnection(code, message) {
  const { reason, kind } = meaningOf(code), plain = code > 0xffff ? code >>> 16 : code;
  switch (plain) {
    case 0x003: return { error: new (kind ?? ConnectionLost)(message, reason), isLoss: reason !== Reason.INVALID_TOKEN };
    case 0x101: return { error: new (kind ?? ProtocolError)(message, reason), isLoss: reason === Reason.REQUEST_TOO_LARGE };
    case 0x102: return { error: new ConnectionLost(message, reason), isLoss: true };
    default: return { error: new ProtocolError(message, reason), isLoss: false };
  }
}

/**
 * Whether the daemon has canceled a request that may be made again. One of the last release gives no reason: if the
 * stream was removed, the next request is refused.
 */
export function isTransient(error) {
  return error instanceof Canceled && (error.reason === null || REASONS[error.reason - 1]?.[2] !== undefined);
}

/** The upper half of a code has RSocket's code, the lower half the reason, if the daemon knows reasons. */
function meaningOf(code) {
  const reason = code > 0xffff ? code & 0xffff : 0;
  return { reason: reason || null, kind: REASONS[reason - 1]?.[1] };
}
