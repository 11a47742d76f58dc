import StreamProtocol
import RSocket

/// Events that a subscriber has missed: they left the stream's buffer before its demand reached them.
public enum EventGap: Equatable, Sendable {
  /// Exactly this number of events, at least 1.
  case events(UInt64)
  /// Any number of events, also none: the daemon has no record. The stream's events did not survive a restart or a
  /// power failure, or the id to resume from is older than the stream's log.
  case unknown
}

/// One event of a remote stream.
public struct StreamEvent: Equatable, Sendable {
  /// The event's number. It rises by 1 from event to event, and by more at a ``gap``. `nil` if the subscription
  /// requested no ids, or the server does not send them.
  public let id: UInt64?
  /// The time at which the daemon stored the event, in microseconds since the Unix epoch. `nil` as for ``id``.
  public let time: UInt64?
  /// The event's bytes, exactly as its source sent them.
  public let data: [UInt8]
  /// The events that this subscriber missed directly before this event; `nil`: none. Only available with ``id``.
  public let gap: EventGap?

  /// Creates an event from its parts.
  public init(id: UInt64?, time: UInt64?, data: [UInt8], gap: EventGap? = nil) {
    self.id = id
    self.time = time
    self.data = data
    self.gap = gap
  }

  /// Converts a payload. Metadata that is not a stamp of streamd is ignored.
  init(_ payload: Payload) {
    data = payload.data
    let stamp = payload.metadata.flatMap { EventStamp($0) }
    (id, time) = (stamp?.id, stamp?.time)
    switch stamp?.missedCount ?? 0 {
    case 0: gap = nil
    case EventStamp.unknownCount: gap = .unknown
    case let count: gap = .events(count)
    }
  }
}
