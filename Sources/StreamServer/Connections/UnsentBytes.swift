/// Bytes that a socket has not taken yet, in order. A first part of them may have been written.
struct UnsentBytes {
  private var bytes: [UInt8] = []
  /// The number of written bytes. A client that does not read makes it at most some MiB; small, because every connection
  /// has one.
  private var start: UInt32 = 0

  init() {}
  init(_ bytes: [UInt8]) { self.bytes = bytes }

  /// The number of bytes to be written.
  var count: Int { bytes.count - Int(start) }
  var isEmpty: Bool { count == 0 }
  /// The bytes in memory. Those that were written are released with the last one, or before others are added.
  var heldByteCount: Int { bytes.count }
  /// A copy of the bytes to be written.
  var array: [UInt8] { Array(bytes[Int(start)...]) }

  /// Adds bytes at the end.
  /// - Complexity: O(1) if all is written, otherwise O(`count` + `more`).
  mutating func append(_ more: [UInt8]) {
    bytes.removeFirst(Int(start))  // otherwise it would grow for a client that never reads everything
    start = 0
    if bytes.isEmpty { bytes = more } else { bytes += more }
  }

  /// The first `written` bytes, at most ``count``, were written.
  mutating func removeFirst(_ written: Int) {
    start += UInt32(written)
    if isEmpty { self = UnsentBytes() }
  }

  /// Replaces bytes that were not written.
  /// - Parameter offset: among the bytes to be written.
  mutating func replace(_ count: Int, at offset: Int, by others: [UInt8]) {
    bytes.replaceSubrange(Int(start) + offset..<Int(start) + offset + count, with: others)
  }

  /// Calls `body` with the bytes to be written, in place.
  func withUnsafeBytes<R>(_ body: (UnsafeRawBufferPointer) -> R) -> R {
    unsafe bytes.withUnsafeBytes { unsafe body(UnsafeRawBufferPointer(rebasing: $0[Int(start)...])) }
  }
}
