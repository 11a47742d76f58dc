/// Assembles messages from the bytes read.
struct HelperMessageReader {
  /// Maximum bytes that are not taken: with more, the sender is hostile.
  let limit: Int
  private var bytes: [UInt8] = []
  private var start = 0

  init(limit: Int) { self.limit = limit }

  mutating func append(_ more: UnsafeRawBufferPointer) {
    if start > 0 {
      bytes.removeFirst(start)
      start = 0
    }
    unsafe bytes += more
  }

  /// Whether a message exceeds the limit.
  var isOverLimit: Bool { bytes.count - start > limit }

  /// The next complete message.
  mutating func next() -> ArraySlice<UInt8>? {
    var rest = bytes[start...]
    guard let count = rest.takeLength(), count <= rest.count else { return nil }
    let message = rest.prefix(count)
    start = message.endIndex
    return message
  }
}

extension [UInt8] {
  /// Appends a length and those bytes.
  mutating func appendMessage(_ bytes: some Collection<UInt8>) {
    unsafe Swift.withUnsafeBytes(of: UInt32(bytes.count)) { unsafe append(contentsOf: $0) }
    append(contentsOf: bytes)
  }
}

extension ArraySlice<UInt8> {
  /// Removes a length from the front.
  mutating func takeLength() -> Int? {
    guard count >= 4 else { return nil }
    let length = unsafe withUnsafeBytes { unsafe $0.loadUnaligned(as: UInt32.self) }
    removeFirst(4)
    return Int(length)
  }
}
