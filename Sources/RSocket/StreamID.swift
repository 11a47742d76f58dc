/// The ID of one request on a connection; zero stands for the connection itself.
///
/// A client's requests have odd IDs, a server's even ones. Source: RSocket 1.0, "Stream Identifiers".
public struct StreamID: RawRepresentable, Hashable, Comparable, Sendable {
  /// 31 bits; the top bit is never set.
  public let rawValue: UInt32

  /// Creates an ID. The reserved top bit is dropped, because a receiver must ignore it.
  public init(rawValue: UInt32) { self.rawValue = rawValue & 0x7fff_ffff }

  /// Shorthand for ``init(rawValue:)``.
  public init(_ rawValue: UInt32) { self.init(rawValue: rawValue) }

  /// The ID of SETUP, LEASE, KEEPALIVE, METADATA_PUSH and connection errors.
  public static let connection = StreamID(0)

  /// Orders by number, which is the order in which one side opened its requests.
  public static func < (left: StreamID, right: StreamID) -> Bool { left.rawValue < right.rawValue }
}

extension StreamID: CustomStringConvertible {
  /// The number.
  public var description: String { String(rawValue) }
}
