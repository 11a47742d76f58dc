/// What one request or one value carries.
public struct Payload: Equatable, Sendable {
  /// `nil` and empty are different on the wire: whether the metadata flag is set.
  public var metadata: [UInt8]?
  /// The bytes of the event.
  public var data: [UInt8]

  /// A payload; without arguments an empty one.
  public init(metadata: [UInt8]? = nil, data: [UInt8] = []) {
    self.metadata = metadata
    self.data = data
  }

  /// Metadata and data together, without any header.
  var byteCount: Int { (metadata?.count ?? 0) + data.count }

  /// Adds the next fragment of the same payload.
  mutating func append(_ fragment: Payload) {
    if let more = fragment.metadata {
      if metadata == nil { metadata = more } else { metadata?.append(contentsOf: more) }
    }
    data.append(contentsOf: fragment.data)
  }
}

/// The four interactions of RSocket.
public enum RequestKind: UInt8, Sendable, CaseIterable {
  /// One value back.
  case response
  /// Nothing back, not even an error.
  case fireAndForget
  /// Any number of values back, as many as were asked for.
  case stream
  /// Values both ways, each against the other side's demand.
  case channel

  /// Whether the request frame carries an initial demand.
  var hasInitialRequest: Bool { self == .stream || self == .channel }
}

/// Demand on the wire.
public enum Credit {
  /// 2^31-1: no limit, and sticky.
  public static let unlimited: UInt32 = 0x7fff_ffff

  /// The sum, saturating at ``unlimited``. Both are at most that.
  public static func sum(_ credit: UInt32, _ more: UInt32) -> UInt32 { min(credit + more, unlimited) }
}
