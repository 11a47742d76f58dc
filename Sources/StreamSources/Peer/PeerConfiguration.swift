import StreamProtocol
import StreamRuntime

/// A stream of another streamd, and the limits.
package struct PeerConfiguration: Sendable {
  package var address: ServerAddress
  /// The stream's name there; at most 255 bytes.
  package var stream: String
  /// Only events that it fits are requested; nil: all.
  package var filter: EventFilter?
  /// The token for a streamd over TCP; nil: none. A secret: never printed.
  package var token: String?
  /// Maximum bytes of one event.
  package var maximumEventBytes = 8 << 20
  /// Maximum events of a batch, and bytes of one with several events: a log stores a batch and its position together.
  package var batchLimit = (events: 1024, bytes: 64 << 10)
  package var retry = Backoff()

  package init(address: ServerAddress, stream: String) { (self.address, self.stream) = (address, stream) }

  /// The stream as it is named in messages: `"quotes" of tcp:192.0.2.1:7878`.
  var place: String { "\"\(stream)\" of \(address)" }

  /// With a filter, markers are positions after events that it left out.
  var hasMarkers: Bool { filter != nil }

  /// A digest of what a position depends on. Another filter continues at the position.
  var fingerprint: BodyDigest {
    BodyDigest(Array(["streamd", "\(address)", stream].map { "\($0.utf8.count) \($0)" }.joined().utf8))
  }
}
