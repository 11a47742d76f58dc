/// The content of one request or one value.
public struct Payload: Equatable, Sendable {
  /// The metadata. `nil` and empty differ on the wire: in the metadata flag.
  public var metadata: [UInt8]?
  /// The bytes of the event.
  public var data: [UInt8]

  /// Creates a payload, by default an empty one.
  public init(metadata: [UInt8]? = nil, data: [UInt8] = []) {
    self.metadata = metadata
    self.data = data
  }

  /// The number of bytes of metadata and data, without headers.
  var byteCount: Int { (metadata?.count ?? 0) + data.count }

  /// Appends the next fragment of the same payload.
  mutating func append(_ fragment: Payload) {
    if let more = fragment.metadata {
      if metadata == nil { metadata = more } else { metadata?.append(contentsOf: more) }
    }
    data.append(contentsOf: fragment.data)
  }
}

/// The interaction models of RSocket.
public enum RequestKind: UInt8, Sendable, CaseIterable {
  /// One value in response.
  case response
  /// No response, not even an error.
  case fireAndForget
  /// Any number of values in response, within the demand.
  case stream
  /// Values in both directions, each within the other side's demand.
  case channel

  /// Whether the request frame carries an initial demand.
  var hasInitialRequest: Bool { self == .stream || self == .channel }
}

/// Demand on the wire.
public enum Credit {
  /// 2^31-1: no limit. Adding to it does not change it.
  public static let unlimited: UInt32 = 0x7fff_ffff

  /// Returns the sum, saturating at ``unlimited``. Both must be at most that.
  public static func sum(_ credit: UInt32, _ more: UInt32) -> UInt32 { min(credit + more, unlimited) }
}
