import FoundationEssentials

/// The reply to a request for a map. Source: WIRE.md, "Mapped streams".
package struct MapReply: Codable, Equatable, Sendable {
  /// The version of the memory's layout.
  package var version: UInt64
  package var generation: UInt64
  /// Bytes of the region.
  package var size: UInt64
  /// Where `from` begins.
  package var position: UInt64
  /// Events between the id from which the client resumes and `position`; nil: unknown.
  package var missed: UInt64?

  package init(version: UInt64, generation: UInt64, size: UInt64, position: UInt64, missed: UInt64?) {
    (self.version, self.generation, self.size) = (version, generation, size)
    (self.position, self.missed) = (position, missed)
  }

  /// - Returns: nil for data that are no such reply.
  package init?(json: [UInt8]) {
    guard let reply = try? JSONDecoder().decode(Self.self, from: Data(json)) else { return nil }
    self = reply
  }

  package var json: [UInt8] {
    let missed = missed.map { String($0) } ?? "null"
    return Array(
      "{\"version\":\(version),\"generation\":\(generation),\"size\":\(size),\"position\":\(position),\"missed\":\(missed)}"
        .utf8)
  }
}
