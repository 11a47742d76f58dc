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

/// One event of a remote stream, or a marker.
public struct StreamEvent: Equatable, Sendable {
  /// What a subscription receives.
  public enum Kind: Equatable, Sendable {
    /// An event of the stream.
    case event
    /// The subscription is current: it has been sent every event up to ``StreamEvent/id``. Only with
    /// ``SubscribeOptions/marker``.
    case marker
  }

  /// Whether this is an event or a marker.
  public let kind: Kind
  /// The event's number. It rises by 1 from event to event, and by more at a ``gap`` or after events that a filter left
  /// out. A marker has the number of the stream's newest event. `nil` if the subscription requested no ids, or the
  /// server does not send them.
  public let id: UInt64?
  /// The time at which the daemon stored the event, or sent the marker, in microseconds since the Unix epoch. `nil` as
  /// for ``id``.
  public let time: UInt64?
  /// The event's bytes, exactly as its source sent them; a marker has none.
  public let data: [UInt8]
  /// The events that this subscriber missed directly before this one; `nil`: none. Only available with ``id``.
  public let gap: EventGap?
  /// The number of events that ``SubscribeOptions/filter`` left out since the previous event or marker: they are no
  /// ``gap``. 0 without a filter and without ``id``.
  public let leftOutCount: UInt64
  /// The name of the event's stream, if the subscription is to a pattern; empty for its markers.
  public private(set) var stream: String?
  /// The position of a subscription to a pattern from which another one resumes after this event:
  /// ``SubscribeOptions/Start/after(id:)`` takes it. `nil` as long as there is none.
  public private(set) var position: UInt64?

  /// Creates an event, or a marker, from its parts.
  public init(
    id: UInt64?, time: UInt64?, data: [UInt8], gap: EventGap? = nil, leftOutCount: UInt64 = 0, kind: Kind = .event
  ) {
    (self.id, self.time, self.data) = (id, time, data)
    (self.gap, self.leftOutCount, self.kind) = (gap, leftOutCount, kind)
  }

  /// Converts a payload. Metadata that is not a stamp of streamd is ignored.
  ///
  /// - Parameters:
  ///   - isFiltered: the request has a filter.
  ///   - hasKind: it has markers.
  ///   - hasName: it is for a pattern.
  init(_ payload: Payload, isFiltered: Bool, hasKind: Bool, hasName: Bool) {
    self.init(
      payload.metadata.flatMap { EventStamp($0, isFiltered: isFiltered, hasKind: hasKind, hasName: hasName) },
      data: payload.data)
  }

  /// Converts a payload in place: only its data are copied.
  init(
    metadata: UnsafeRawBufferPointer?, data: UnsafeRawBufferPointer, isFiltered: Bool, hasKind: Bool, hasName: Bool
  ) {
    var stamp: EventStamp?
    if let metadata = unsafe metadata {
      stamp =
        unsafe hasName
        ? EventStamp(named: metadata, isFiltered: isFiltered, hasKind: hasKind)
        : EventStamp(metadata, isFiltered: isFiltered, hasKind: hasKind)
    }
    self.init(stamp, data: unsafe [UInt8](data))
  }

  private init(_ stamp: EventStamp?, data: [UInt8]) {
    self.data = data
    (id, time, leftOutCount) = (stamp?.id, stamp?.time, stamp?.leftOutCount ?? 0)
    kind = stamp?.kind == .marker ? .marker : .event
    (stream, position) = (stamp?.name, stamp.flatMap { $0.position > 0 ? $0.position : nil })
    switch stamp?.missedCount ?? 0 {
    case 0: gap = nil
    case EventStamp.unknownCount: gap = .unknown
    case let count: gap = .events(count)
    }
  }

  /// The event with another gap and another left out count.
  func with(_ gap: EventGap?, leftOutCount: UInt64) -> StreamEvent {
    var event = StreamEvent(id: id, time: time, data: data, gap: gap, leftOutCount: leftOutCount, kind: kind)
    (event.stream, event.position) = (stream, position)
    return event
  }
}
