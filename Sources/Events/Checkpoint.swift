/// The position of a source: what it needs to resume after an event, such as a Last-Event-ID, or a page's validators and
/// digest. Opaque to all but the source that made it, and hostile to that, too: it may come from a damaged disk, an
/// older version, or another source that the stream had before.
public struct Checkpoint: Equatable, Sendable {
  /// The largest size.
  public static let maximumByteCount = 4096

  /// In the source's own format.
  public let bytes: [UInt8]

  /// - Returns: nil for more than `maximumByteCount` bytes.
  public init?(_ bytes: [UInt8]) {
    guard bytes.count <= Self.maximumByteCount else { return nil }
    self.bytes = bytes
  }
}
