import StreamProtocol
import RSocket

/// Events that a subscriber has missed: they had left the stream's buffer before its demand reached them.
public enum EventGap: Equatable, Sendable {
  /// Exactly so many, at least 1.
  case events(UInt64)
  /// Some, or none: the daemon cannot know. The stream's events did not outlive a restart or a loss of power, or the id to
  /// resume from is older than the stream's log.
  case unknown
}

/// One event of a remote stream.
public struct StreamEvent: Equatable, Sendable {
  /// The event's number. It rises by 1 from event to event, and by more where there is a ``gap``. `nil` when the subscription asked for no ids, or the server is none that sends them.
  public let id: UInt64?
  /// When the daemon took the event in, in microseconds since the Unix epoch. `nil` as for ``id``.
  public let time: UInt64?
  /// The event's bytes, exactly as its source gave them.
  public let data: [UInt8]
  /// What this subscriber has missed right before this event; `nil`: nothing. Only known beside ``id``.
  public let gap: EventGap?

  /// An event from its parts.
  public init(id: UInt64?, time: UInt64?, data: [UInt8], gap: EventGap? = nil) {
    self.id = id
    self.time = time
    self.data = data
    self.gap = gap
  }

  /// Metadata that is no stamp is not streamd's.
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
