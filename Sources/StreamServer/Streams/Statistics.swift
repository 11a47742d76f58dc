/// The `$stats` of clients other than the server's own user and root: sums over the streams that they see.
struct VisibleStatistics: Encodable {
  let version: String
  let uptimeSeconds: UInt64
  let uptimeMicroseconds: UInt64
  let streams: Int
  let subscribers: Int
  let publishers: Int
  let eventsIn: UInt64
  let bytesIn: UInt64
  let errors: UInt64
  let eventsOut: UInt64
  let bytesOut: UInt64
  let byStream: [Statistics.Stream]

  init(
    version: String, uptimeSeconds: UInt64, uptimeMicroseconds: UInt64, publishers: Int, byStream: [Statistics.Stream]
  ) {
    func sum(_ count: (Statistics.Stream) -> UInt64) -> UInt64 { byStream.reduce(0) { $0 &+ count($1) } }
    (self.version, self.uptimeSeconds, self.uptimeMicroseconds) = (version, uptimeSeconds, uptimeMicroseconds)
    streams = byStream.count
    subscribers = byStream.reduce(0) { $0 + $1.subscribers }
    self.publishers = publishers
    (eventsIn, bytesIn, errors) = (sum(\.eventsIn), sum(\.bytesIn), sum(\.errors))
    (eventsOut, bytesOut) = (sum(\.eventsOut), sum(\.bytesOut))
    self.byStream = byStream
  }

  private enum CodingKeys: String, CodingKey {
    case version, streams, subscribers, publishers, errors
    case uptimeSeconds = "uptime_seconds"
    case uptimeMicroseconds = "uptime_microseconds"
    case byStream = "by_stream"
    case eventsIn = "events_in"
    case bytesIn = "bytes_in"
    case eventsOut = "events_out"
    case bytesOut = "bytes_out"
  }
}

/// Counters since the start, and gauges. The content of `$stats`, as JSON.
public struct Statistics: Encodable, Equatable, Sendable {
  /// The program's version.
  public var version: String
  /// Whole seconds since the start.
  public var uptimeSeconds: UInt64
  /// The same, exact, from a monotonic clock. Rates are differences of counters over differences of this.
  public var uptimeMicroseconds: UInt64
  /// The number of streams, without system streams.
  public var streams: Int
  /// Open connections.
  public var connections: Int
  /// Live subscriptions to `streams`.
  public var subscribers: Int
  /// Live requests that publish to `streams`.
  public var publishers: Int
  /// Connections accepted.
  public var accepted: UInt64
  /// Rejected connections and requests.
  public var refused: UInt64
  /// Events that sources delivered.
  public var eventsIn: UInt64
  /// Data bytes of `eventsIn`.
  public var bytesIn: UInt64
  /// Events that pipelines failed on.
  public var errors: UInt64
  /// Events written to clients.
  public var eventsOut: UInt64
  /// Bytes of frames written to clients.
  public var bytesOut: UInt64
  /// The system calls for these; `eventsOut` divided by it is the average batch.
  public var writes: UInt64
  /// Events that were evicted before subscriptions had been sent them.
  public var laggedEvents: UInt64
  /// The number of stalls of lossless streams.
  public var holdUps: UInt64
  /// Values of fire-and-forget requests that were refused or had no space.
  public var droppedValues: UInt64
  /// For each event loop that serves clients, the time in which it was not waiting.
  public var busyMicroseconds: [UInt64]
  /// In the order of their names.
  public var byStream: [Stream]

  /// One of `streams`.
  public struct Stream: Encodable, Equatable, Sendable {
    /// Its name.
    public var name: String
    /// As in `$streams`.
    public var state: String
    /// Live subscriptions.
    public var subscribers: Int
    /// Events that its source delivered.
    public var eventsIn: UInt64
    /// Data bytes of `eventsIn`.
    public var bytesIn: UInt64
    /// Events that its pipeline failed on.
    public var errors: UInt64
    /// Events written to clients.
    public var eventsOut: UInt64
    /// Bytes of frames written to clients.
    public var bytesOut: UInt64
    /// The largest number of events that a subscription has not been sent, evicted events included; about a
    /// second old. Nil until it is measured, which requires a subscription to `$stats`.
    public var lag: UInt64?
    /// The time of its newest event, in microseconds since the Unix epoch; nil before the first.
    public var newest: UInt64?

    private enum CodingKeys: String, CodingKey {
      case name, state, subscribers, lag, newest, errors
      case eventsIn = "events_in"
      case bytesIn = "bytes_in"
      case eventsOut = "events_out"
      case bytesOut = "bytes_out"
    }
  }

  private enum CodingKeys: String, CodingKey {
    case version, streams, connections, subscribers, publishers, accepted, refused, writes, errors
    case uptimeSeconds = "uptime_seconds"
    case uptimeMicroseconds = "uptime_microseconds"
    case busyMicroseconds = "busy_microseconds"
    case byStream = "by_stream"
    case eventsIn = "events_in"
    case bytesIn = "bytes_in"
    case eventsOut = "events_out"
    case bytesOut = "bytes_out"
    case laggedEvents = "lagged_events"
    case holdUps = "hold_ups"
    case droppedValues = "dropped_values"
  }
}
