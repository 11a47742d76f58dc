import FoundationEssentials
import StreamClient

/// One `$stats` object, as far as `top` shows it. Only the names of streams are required.
struct StatsSnapshot: Decodable, Equatable {
  struct Stream: Decodable, Equatable {
    var name: String
    var state: String?
    var subscribers: UInt64?
    var eventsIn: UInt64?
    var bytesIn: UInt64?
    var eventsOut: UInt64?
    var lag: UInt64?
    /// Microseconds since the Unix epoch.
    var newest: UInt64?

    enum CodingKeys: String, CodingKey {
      case name, state, subscribers, lag, newest
      case eventsIn = "events_in"
      case bytesIn = "bytes_in"
      case eventsOut = "events_out"
    }
  }

  var version: String?
  /// Microseconds since the daemon's start.
  var uptime: UInt64?
  var connections: UInt64?
  var subscribers: UInt64?
  var eventsIn: UInt64?
  var bytesIn: UInt64?
  var eventsOut: UInt64?
  var bytesOut: UInt64?
  var writes: UInt64?
  /// Of each event loop, in microseconds.
  var busy: [UInt64]?
  var streams: [Stream]?
  /// The time of the snapshot, on the clock of `newest`. Not in the object: it is the event's own time.
  var time: UInt64?

  enum CodingKeys: String, CodingKey {
    case version, connections, subscribers, writes
    case uptime = "uptime_microseconds"
    case eventsIn = "events_in"
    case bytesIn = "bytes_in"
    case eventsOut = "events_out"
    case bytesOut = "bytes_out"
    case busy = "busy_microseconds"
    case streams = "by_stream"
  }
}

extension StatsSnapshot {
  init(_ event: StreamEvent) throws(Stop) {
    do {
      self = try JSONDecoder().decode(StatsSnapshot.self, from: Data(event.data))
    } catch {
      throw .badAnswer("unexpected reply from the daemon: the counters cannot be read")
    }
    time = event.time
  }
}
