/// An object of `$stats`. Only the names of streams are required: client and daemon can have different versions, and
/// clients without the rights of the daemon's user get a part of it. Source of the meanings: `docs/WIRE.md`, "System
/// streams".
package struct StatisticsSnapshot: Codable, Equatable, Sendable {
  /// One stream.
  package struct Stream: Codable, Equatable, Sendable {
    package var name: String
    /// As in `$streams`.
    package var state: String?
    package var subscribers: UInt64?
    package var eventsIn: UInt64?
    package var bytesIn: UInt64?
    package var errors: UInt64?
    /// As in `CatalogueEntry`.
    package var malformed: UInt64?
    /// As in `CatalogueEntry`.
    package var missed: UInt64?
    package var eventsOut: UInt64?
    package var bytesOut: UInt64?
    package var lag: UInt64?
    /// Microseconds since the Unix epoch.
    package var newest: UInt64?
    /// When the newest event was last known to be the present one, in microseconds since the Unix epoch.
    package var fresh: UInt64?
    /// As in `CatalogueEntry`.
    package var keys: UInt64?
    /// The size of the state of a stream with keys.
    package var stateBytes: UInt64?
    /// As in `CatalogueEntry`.
    package var staleSince: UInt64?
    /// As `lag` in `CatalogueEntry.Fleet`, at most a second old.
    package var fleetLag: UInt64?
    /// What the source has done with its upstream.
    package var upstream: Upstream?

    package init(name: String) { self.name = name }

    private enum CodingKeys: String, CodingKey {
      case name, state, subscribers, lag, newest, fresh, errors, malformed, missed, keys, upstream
      case stateBytes = "state_bytes"
      case staleSince = "stale_since"
      case eventsIn = "events_in"
      case bytesIn = "bytes_in"
      case eventsOut = "events_out"
      case bytesOut = "bytes_out"
      case fleetLag = "fleet_lag"
    }
  }

  /// What the source of a stream has done with its upstream.
  package struct Upstream: Codable, Equatable, Sendable {
    package var attempts: UInt64?
    package var unchanged: UInt64?
    package var failures: UInt64?
    package var bytes: UInt64?
    /// Microseconds since the Unix epoch.
    package var lastAnswer: UInt64?
    /// Microseconds since the Unix epoch.
    package var nextAttempt: UInt64?

    package init() {}

    private enum CodingKeys: String, CodingKey {
      case attempts, unchanged, failures, bytes
      case lastAnswer = "last_answer"
      case nextAttempt = "next_attempt"
    }
  }

  package var version: String?
  /// As in `ConfigurationReport`.
  package var configurationError: String?
  /// `connected`, or why the brokers of the fleet cannot be reached; absent without a fleet.
  package var fleet: String?
  package var uptimeSeconds: UInt64?
  package var uptimeMicroseconds: UInt64?
  package var streams: UInt64?
  package var connections: UInt64?
  package var subscribers: UInt64?
  package var publishers: UInt64?
  package var accepted: UInt64?
  package var refused: UInt64?
  package var eventsIn: UInt64?
  package var bytesIn: UInt64?
  package var errors: UInt64?
  package var malformed: UInt64?
  package var eventsOut: UInt64?
  package var bytesOut: UInt64?
  package var writes: UInt64?
  package var laggedEvents: UInt64?
  package var holdUps: UInt64?
  package var droppedValues: UInt64?
  /// The time that each event loop was busy.
  package var busyMicroseconds: [UInt64]?
  /// Physical memory of the daemon.
  package var memoryBytes: UInt64?
  package var byStream: [Stream]?

  package init() {}

  private enum CodingKeys: String, CodingKey {
    case version, streams, connections, subscribers, publishers, accepted, refused, writes, errors, malformed, fleet
    case configurationError = "configuration_error"
    case uptimeSeconds = "uptime_seconds"
    case uptimeMicroseconds = "uptime_microseconds"
    case busyMicroseconds = "busy_microseconds"
    case memoryBytes = "memory_bytes"
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
