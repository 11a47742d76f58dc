import Events

/// The checkpoint of a stream whose pipeline compares events: the digest of the last event's key, and the checkpoint of the
/// source.
///
/// Encoding: u8 0xDC, u64 digest (big endian), the source's checkpoint. A source's own checkpoint begins with another byte.
struct PipelineCheckpoint: Equatable {
  var key: BodyDigest?
  var source: Checkpoint?

  private static let head: UInt8 = 0xDC
  private static let headByteCount = 9

  init(key: BodyDigest?, source: Checkpoint?) { (self.key, self.source) = (key, source) }

  /// - Parameter checkpoint: untrusted; without the head all of it is the source's.
  init(_ checkpoint: Checkpoint?) {
    guard let bytes = checkpoint?.bytes, bytes.first == Self.head, bytes.count >= Self.headByteCount else {
      source = checkpoint
      return
    }
    key = BodyDigest(value: bytes[1..<Self.headByteCount].reduce(0) { $0 << 8 | UInt64($1) })
    if bytes.count > Self.headByteCount { source = Checkpoint(Array(bytes[Self.headByteCount...])) }
  }

  /// Has no key if there is no room for both.
  var checkpoint: Checkpoint? {
    guard let key else { return source }
    let digits = (0..<8).map { UInt8(truncatingIfNeeded: key.value >> (56 - 8 * $0)) }
    return Checkpoint([Self.head] + digits + (source?.bytes ?? [])) ?? source
  }
}
