import StreamProtocol

/// Counters since the start, and gauges: the content of `$stats`.
public struct Statistics: Equatable, Sendable {
  /// The program's version.
  public var version: String
  /// Whole seconds since the start.
  public var uptimeSeconds: UInt64
  /// Microseconds since the start, by a monotonic clock. Rates are differences of counters over differences of this.
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
  /// Events that were left out because a program failed on them, or that the source could not take, such as one that is
  /// too long.
  public var errors: UInt64
  /// Events and published values that are not JSON, of streams with keys, with a type of JSON, or that require it.
  public var malformed: UInt64
  /// Events written to clients.
  public var eventsOut: UInt64
  /// Bytes of frames written to clients.
  public var bytesOut: UInt64
  /// The system calls that wrote `bytesOut`; `eventsOut` divided by it is the average batch.
  public var writes: UInt64
  /// Events that were evicted before subscriptions had been sent them.
  public var laggedEvents: UInt64
  /// The number of stalls of lossless streams.
  public var holdUps: UInt64
  /// Values of fire-and-forget requests that were refused or had no space.
  public var droppedValues: UInt64
  /// For each event loop that serves clients, the time in which it was not waiting.
  public var busyMicroseconds: [UInt64]
  /// The counters of each stream, in the order of the names.
  public var byStream: [Stream]

  /// The counters of one stream.
  public struct Stream: Equatable, Sendable {
    /// Its name.
    public var name: String
    /// The state, as in `$streams`.
    public var state: String
    /// Live subscriptions.
    public var subscribers: Int
    /// Events that its source delivered.
    public var eventsIn: UInt64
    /// Data bytes of `eventsIn`.
    public var bytesIn: UInt64
    /// Events that its pipeline failed on.
    public var errors: UInt64
    /// Its events and published values that are not JSON, if it has keys, a type of JSON, or requires it.
    public var malformed: UInt64
    /// Events written to clients.
    public var eventsOut: UInt64
    /// Bytes of frames written to clients.
    public var bytesOut: UInt64
    /// The largest number of events that a subscription has not been sent, evicted events included; about a
    /// second old. Nil until it is measured, which requires a subscription to `$stats`.
    public var lag: UInt64?
    /// The time of its newest event, in microseconds since the Unix epoch; nil before the first.
    public var newest: UInt64?
    /// When the newest event was last known to be the present one, because it came or a fetch found nothing newer. In
    /// microseconds since the Unix epoch; nil: unknown.
    public var fresh: UInt64?
    /// Since when nothing has come for longer than `expectEvery`, in microseconds since the Unix epoch; nil: something has.
    public var staleSince: UInt64?
    /// The stream's limit; nil: none.
    public var expectEvery: Duration?
    /// The state of a stream with keys; nil for others.
    public var keyedState: KeyedStateStatus?
    /// This host's part in a stream that hosts share; nil for others.
    public var fleet: FleetStatus?
    /// The figures of the source's upstream; nil until the source has asked an upstream or run a program.
    public var upstream: UpstreamFigures?
    /// Requests for the demand of the readers of its map; nil for a stream that is not mapped.
    public var mapReaders: Int?
    /// Events of its bases, or of another streamd, that it has missed; nil for other streams.
    public var missed: UInt64?
    /// Whether its events are on disk; nil for a stream whose events are not meant to be.
    public var isOnDisk: Bool?
  }
}

extension StatisticsSnapshot {
  /// The snapshot for the server's own user and root.
  init(_ statistics: Statistics) {
    self.init()
    (version, streams) = (statistics.version, UInt64(statistics.streams))
    (uptimeSeconds, uptimeMicroseconds) = (statistics.uptimeSeconds, statistics.uptimeMicroseconds)
    (connections, subscribers) = (UInt64(max(0, statistics.connections)), UInt64(statistics.subscribers))
    (publishers, accepted, refused) = (UInt64(statistics.publishers), statistics.accepted, statistics.refused)
    (eventsIn, bytesIn, errors) = (statistics.eventsIn, statistics.bytesIn, statistics.errors)
    malformed = statistics.malformed
    (eventsOut, bytesOut, writes) = (statistics.eventsOut, statistics.bytesOut, statistics.writes)
    (laggedEvents, holdUps) = (statistics.laggedEvents, statistics.holdUps)
    (droppedValues, busyMicroseconds) = (statistics.droppedValues, statistics.busyMicroseconds)
    byStream = statistics.byStream.map(Stream.init)
  }

  /// The snapshot for another client, with sums over the streams that it sees.
  init(version: String, uptimeMicroseconds: UInt64, publishers: Int, byStream: [Statistics.Stream]) {
    func sum(_ count: (Statistics.Stream) -> UInt64) -> UInt64 { byStream.reduce(0) { $0 &+ count($1) } }
    self.init()
    (self.version, self.publishers, streams) = (version, UInt64(publishers), UInt64(byStream.count))
    (uptimeSeconds, self.uptimeMicroseconds) = (uptimeMicroseconds / 1_000_000, uptimeMicroseconds)
    (subscribers, errors, malformed) = (sum { UInt64($0.subscribers) }, sum(\.errors), sum(\.malformed))
    (eventsIn, bytesIn, eventsOut, bytesOut) = (sum(\.eventsIn), sum(\.bytesIn), sum(\.eventsOut), sum(\.bytesOut))
    self.byStream = byStream.map(Stream.init)
  }
}

extension StatisticsSnapshot.Stream {
  fileprivate init(_ stream: Statistics.Stream) {
    self.init(name: stream.name)
    (state, subscribers) = (stream.state, UInt64(stream.subscribers))
    (errors, malformed, missed) = (stream.errors, stream.malformed, stream.missed)
    (eventsIn, bytesIn, eventsOut, bytesOut) = (stream.eventsIn, stream.bytesIn, stream.eventsOut, stream.bytesOut)
    (lag, newest, fleetLag) = (stream.lag, stream.newest, stream.fleet?.lag)
    (fresh, staleSince) = (stream.fresh, stream.staleSince)
    upstream = stream.upstream.map { .init($0) }
    (keys, stateBytes) = (stream.keyedState.map { UInt64($0.keys) }, stream.keyedState.map { UInt64($0.bytes) })
  }
}

extension StatisticsSnapshot.Upstream {
  fileprivate init(_ figures: UpstreamFigures) {
    self.init()
    (attempts, unchanged, failures) = (figures.attempts, figures.unchanged, figures.failures)
    (bytes, lastAnswer, nextAttempt) = (figures.bytes, figures.lastAnswer, figures.nextAttempt)
  }
}
