import RSocket

/// One event of a remote stream.
public struct StreamEvent: Equatable, Sendable {
  /// The event's number. It rises by 1 from event to event; a greater step means that events between were lost to this
  /// subscriber. `nil` when the subscription asked for no ids, or the server is none that sends them.
  public let id: UInt64?
  /// When the daemon took the event in, in microseconds since the Unix epoch. `nil` as for ``id``.
  public let time: UInt64?
  /// The event's bytes, exactly as its source gave them.
  public let data: [UInt8]

  /// An event from its parts.
  public init(id: UInt64?, time: UInt64?, data: [UInt8]) {
    self.id = id
    self.time = time
    self.data = data
  }

  /// Reads id and time from metadata of 16 bytes, both big endian; any other metadata is not streamd's.
  init(_ payload: Payload) {
    data = payload.data
    guard let metadata = payload.metadata, metadata.count == 16 else {
      id = nil
      time = nil
      return
    }
    id = metadata[..<8].reduce(0) { $0 << 8 | UInt64($1) }
    time = metadata[8...].reduce(0) { $0 << 8 | UInt64($1) }
  }
}
