/// What the server has done and has to do: counters since the start, and gauges. `$stats` shows it as JSON.
public struct Statistics: Encodable, Equatable, Sendable {
  /// Of the program that serves.
  public var version: String
  /// Whole seconds since the start.
  public var uptimeSeconds: UInt64
  /// Streams, the system's own not counted.
  public var streams: Int
  /// Open connections.
  public var connections: Int
  /// Live subscriptions to `streams`.
  public var subscribers: Int
  /// Connections accepted.
  public var accepted: UInt64
  /// Connections and requests turned away.
  public var refused: UInt64
  /// Events that sources delivered, their data bytes, and events lost to lagging subscribers.
  public var eventsIn: UInt64
  /// Data bytes of `eventsIn`.
  public var bytesIn: UInt64
  /// Events written to clients.
  public var eventsOut: UInt64
  /// Bytes of frames written to clients.
  public var bytesOut: UInt64
  /// System calls that wrote them.
  public var writes: UInt64
  /// Events that lagging subscribers did not get.
  public var laggedEvents: UInt64
  /// How often a subscriber held up a stream that drops nothing.
  public var holdUps: UInt64

  private enum CodingKeys: String, CodingKey {
    case version, streams, connections, subscribers, accepted, refused, writes
    case uptimeSeconds = "uptime_seconds"
    case eventsIn = "events_in"
    case bytesIn = "bytes_in"
    case eventsOut = "events_out"
    case bytesOut = "bytes_out"
    case laggedEvents = "lagged_events"
    case holdUps = "hold_ups"
  }
}
