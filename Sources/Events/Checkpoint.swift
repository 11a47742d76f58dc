/// The position from which a source resumes after an event, such as a Last-Event-ID, or a page's validators and digest.
/// Only the source that created it interprets it, and must treat it as untrusted: it may come from a damaged disk, an
/// older version, or another source that the stream had before.
public struct Checkpoint: Equatable, Sendable {
  /// The maximum size in bytes.
  public static let maximumByteCount = 9 << 10

  /// The position in the source's own format.
  public let bytes: [UInt8]

  /// - Returns: nil for more than `maximumByteCount` bytes.
  public init?(_ bytes: [UInt8]) {
    guard bytes.count <= Self.maximumByteCount else { return nil }
    self.bytes = bytes
  }
}
