/// Checks text in UTF-8 that arrives in pieces, split anywhere. Source: Unicode 15, table 3-7.
package struct UTF8Check: Equatable, Sendable {
  /// The bytes that the current character lacks, and the valid values of the next of them.
  private var missing = 0
  private var next: ClosedRange<UInt8> = 0x80...0xbf

  /// Starts before the first byte.
  package init() {}

  /// Whether the text may end here.
  package var isComplete: Bool { missing == 0 }

  /// Examines the next bytes.
  /// - Returns: false if the text is invalid, whatever follows.
  package mutating func take(_ bytes: Span<UInt8>) -> Bool {
    unsafe bytes.withUnsafeBytes { buffer in
      var index = 0
      while index < buffer.count {
        if missing == 0 {
          while index + 8 <= buffer.count,
            unsafe buffer.loadUnaligned(fromByteOffset: index, as: UInt64.self) & 0x8080_8080_8080_8080 == 0
          { index += 8 }
          guard index < buffer.count else { break }
        }
        guard unsafe take(buffer[index]) else { return false }
        index += 1
      }
      return true
    }
  }

  /// Examines the next byte. An invalid byte changes nothing.
  package mutating func take(_ byte: UInt8) -> Bool {
    if missing > 0 {
      guard next ~= byte else { return false }
      (missing, next) = (missing - 1, 0x80...0xbf)
      return true
    }
    switch byte {
    case 0x00...0x7f: break
    case 0xc2...0xdf: missing = 1
    case 0xe0: (missing, next) = (2, 0xa0...0xbf)
    case 0xed: (missing, next) = (2, 0x80...0x9f)
    case 0xe1...0xef: missing = 2
    case 0xf0: (missing, next) = (3, 0x90...0xbf)
    case 0xf1...0xf3: missing = 3
    case 0xf4: (missing, next) = (3, 0x80...0x8f)
    default: return false
    }
    return true
  }
}
