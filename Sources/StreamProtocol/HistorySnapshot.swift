/// The object of `$history`. Source of the meanings: `docs/WIRE.md`, "System streams".
package struct HistorySnapshot: Codable, Equatable, Sendable {
  /// One stream. Both arrays are absent if nothing came in all periods.
  package struct Stream: Codable, Equatable, Sendable {
    package var name: String
    /// The events of each period, the oldest one first. The last period is the same for all streams; fewer than 60 since
    /// the stream's first event.
    package var events: [UInt32]?
    /// The bytes of their data.
    package var bytes: [UInt32]?

    package init(name: String, events: [UInt32]? = nil, bytes: [UInt32]? = nil) {
      (self.name, self.events, self.bytes) = (name, events, bytes)
    }

    private enum CodingKeys: String, CodingKey {
      case name, events, bytes
    }
  }

  /// The length of a period.
  package var seconds: Double
  /// When the last period ended, in microseconds since the Unix epoch.
  package var end: UInt64
  package var byStream: [Stream]

  package init(seconds: Double, end: UInt64, byStream: [Stream]) {
    (self.seconds, self.end, self.byStream) = (seconds, end, byStream)
  }

  private enum CodingKeys: String, CodingKey {
    case seconds, end
    case byStream = "by_stream"
  }
}
