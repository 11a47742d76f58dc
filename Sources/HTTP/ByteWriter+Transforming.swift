import Events

// The forms in which the bytes of an event are written. Each function continues at `start`, leaves `reserve` bytes of
// the room free, and returns the offset of the first unwritten byte. Its output depends only on the bytes and on
// `start`, so an event can be written in parts without other state.

extension ByteWriter {
  /// Appends the lines of an event as fields `data` of a server-sent event. CR, LF and CRLF end a line. What is not
  /// valid UTF-8 is replaced as in a JSON string.
  mutating func append(lines bytes: Span<UInt8>, from start: Int, reserving reserve: Int) -> Int {
    var index = start
    while index < bytes.count {
      let limit = index + min(bytes.count - index, max(0, room - reserve))
      let end = firstIndex(of: .carriageReturn, or: .lineFeed, in: bytes, index..<limit)
      index = append(line: bytes, index..<end, reserving: reserve)
      guard index >= end, index < bytes.count else { break }
      let byte = bytes[index]
      if byte == .lineFeed, index > 0, bytes[index - 1] == .carriageReturn {
        index += 1  // the rest of a line end that is written already
        continue
      }
      guard byte == .lineFeed || byte == .carriageReturn, room - reserve >= Self.lineStart.utf8.count else { break }
      append(Self.lineStart)
      index += 1
    }
    return index
  }

  private static let lineStart = "\ndata: "

  /// Appends text. What is not valid UTF-8 is replaced as in a JSON string.
  mutating func append(text bytes: Span<UInt8>, from start: Int, reserving reserve: Int) -> Int {
    append(line: bytes, start..<bytes.count, reserving: reserve)
  }

  /// Appends a part of a line. A character that continues after the part is appended whole, or not at all.
  private mutating func append(line bytes: Span<UInt8>, _ range: Range<Int>, reserving reserve: Int) -> Int {
    var index = range.lowerBound
    while index < range.upperBound {
      let limit = index + min(range.upperBound - index, max(0, room - reserve))
      let end = index + bytes.extracting(index..<limit).validUTF8Count
      append(bytes.extracting(index..<end))
      index = end
      guard index < range.upperBound, let next = append(sequenceOf: bytes, at: index, reserving: reserve) else { break }
      index = next
    }
    return index
  }

  /// Appends a character beyond ASCII, or U+FFFD for bytes that are not valid. Returns nil, and appends nothing, if the
  /// room does not suffice.
  private mutating func append(sequenceOf bytes: Span<UInt8>, at index: Int, reserving reserve: Int) -> Int? {
    let (byteCount, isValid) = utf8Sequence(in: bytes, at: index)
    guard room - reserve >= (isValid ? byteCount : 3) else { return nil }
    if isValid { append(bytes.extracting(index..<index + byteCount)) } else { append("\u{FFFD}") }
    return index + byteCount
  }

  /// Appends bytes with spaces for the two values `first` and `second`.
  mutating func append(
    replacing first: UInt8, _ second: UInt8, in bytes: Span<UInt8>, from start: Int, reserving reserve: Int
  ) -> Int {
    let limit = start + min(bytes.count - start, max(0, room - reserve))
    var index = start
    while true {
      let end = firstIndex(of: first, or: second, in: bytes, index..<limit)
      append(bytes.extracting(index..<end))
      guard end < limit else { return limit }
      append(.space)
      index = end + 1
    }
  }

  /// Appends text as the inside of a JSON string; each maximal part that is not valid UTF-8 becomes U+FFFD. Source:
  /// RFC 8259, section 7.
  mutating func append(jsonString bytes: Span<UInt8>, from start: Int, reserving reserve: Int) -> Int {
    var index = start
    while index < bytes.count {
      let limit = index + min(bytes.count - index, max(0, room - reserve))
      var end = index
      while end < limit, 0x20...0x7f ~= bytes[end], bytes[end] != .quote, bytes[end] != .backslash { end += 1 }
      append(bytes.extracting(index..<end))
      index = end
      guard index < bytes.count else { break }
      let free = room - reserve
      let byte = bytes[index]
      if byte < 0x80 {
        let escape = Self.escape(byte)
        guard free >= (escape == nil ? 6 : 2) else { break }
        append(.backslash)
        if let escape {
          append(escape)
        } else {
          append("u00")
          append(UInt64(byte), digitCount: 2, base: 16)
        }
        index += 1
      } else {
        guard let next = append(sequenceOf: bytes, at: index, reserving: reserve) else { break }
        index = next
      }
    }
    return index
  }

  /// The letter of a short escape sequence.
  private static func escape(_ byte: UInt8) -> UInt8? {
    switch byte {
    case .quote, .backslash: byte
    case .lineFeed: UInt8(ascii: "n")
    case .carriageReturn: UInt8(ascii: "r")
    case .tab: UInt8(ascii: "t")
    default: nil
    }
  }

  /// Appends bytes in base64 with padding. `start` must be a multiple of 3, as is the result before the end. Source:
  /// RFC 4648, section 4.
  mutating func append(base64 bytes: Span<UInt8>, from start: Int, reserving reserve: Int = 0) -> Int {
    let groupCount = max(0, min((bytes.count - start + 2) / 3, (room - reserve) / 4))
    let end = min(bytes.count, start + 3 * groupCount)
    let digits = unsafe Self.base64Digits.utf8Start
    guard let target = unsafe advance(by: 4 * groupCount) else { return end }
    for group in 0..<groupCount {
      let index = start + 3 * group
      let byteCount = min(3, end - index)
      let second = byteCount > 1 ? bytes[index + 1] : 0
      let bits = UInt32(bytes[index]) << 16 | UInt32(second) << 8 | UInt32(byteCount > 2 ? bytes[index + 2] : 0)
      for place in 0..<4 {
        let digit = unsafe digits[Int(bits >> (18 - 6 * UInt32(place)) & 63)]
        let byte = place <= byteCount ? digit : UInt8(ascii: "=")
        unsafe target.storeBytes(of: byte, toByteOffset: 4 * group + place, as: UInt8.self)
      }
    }
    return end
  }

  private static let base64Digits: StaticString = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

  /// Appends text on one line: CR, LF and NUL become spaces.
  mutating func append(singleLine text: String) {
    for byte in text.utf8 { append(byte == .carriageReturn || byte == .lineFeed || byte == 0 ? .space : byte) }
  }

  /// Appends text as a JSON string with its quotes.
  public mutating func append(quoted text: String) {
    append(.quote)
    let bytes = text.utf8.span
    _ = append(jsonString: bytes, from: 0, reserving: 0)
    append(.quote)
  }
}

extension Span<UInt8> {
  /// Whether the bytes are valid UTF-8 without CR and LF. Examines all bytes, without a branch for each, so that the
  /// compiler takes many at once.
  var isLine: Bool {
    var (hits, all): (UInt8, UInt8) = (0, 0)
    for index in indices {
      hits |= (self[index] == .carriageReturn ? 1 : 0) | (self[index] == .lineFeed ? 1 : 0)
      all |= self[index]
    }
    return hits == 0 && (all < 0x80 || validUTF8Count == count)
  }

  /// The number of bytes before the first that is not part of a whole and valid UTF-8 sequence.
  public var validUTF8Count: Int {
    do throws(UTF8.ValidationError) {
      _ = try UTF8Span(validating: self)
      return count
    } catch {
      return error.byteOffsets.lowerBound
    }
  }
}

/// Returns the first offset in `range` of either byte, else the range's end. Examines eight bytes at a time.
private func firstIndex(of first: UInt8, or second: UInt8, in bytes: Span<UInt8>, _ range: Range<Int>) -> Int {
  let ones: UInt64 = 0x0101_0101_0101_0101
  let (firsts, seconds) = (ones &* UInt64(first), ones &* UInt64(second))
  return unsafe bytes.extracting(range).withUnsafeBytes { buffer in
    var index = 0
    while index + 8 <= buffer.count {
      let word = UInt64(littleEndian: unsafe buffer.loadUnaligned(fromByteOffset: index, as: UInt64.self))
      let (a, b) = (word ^ firsts, word ^ seconds)
      // The lowest bit that is set belongs to the first byte that is zero in `a` or `b`; higher ones may be wrong.
      let hits = ((a &- ones) & ~a | (b &- ones) & ~b) & (ones << 7)
      if hits != 0 { return range.lowerBound + index + hits.trailingZeroBitCount / 8 }
      index += 8
    }
    while index < buffer.count {
      let byte = unsafe buffer[index]
      if byte == first || byte == second { break }
      index += 1
    }
    return range.lowerBound + index
  }
}

/// Returns the size of the UTF-8 sequence at `index`, or of an incomplete sequence that cannot be continued: at least
/// 1. Source: Unicode 15, table 3-7 and "U+FFFD Substitution of Maximal Subparts".
private func utf8Sequence(in bytes: Span<UInt8>, at index: Int) -> (byteCount: Int, isValid: Bool) {
  var (text, byteCount) = (UTF8Check(), 0)
  repeat {
    guard index + byteCount < bytes.count, text.take(bytes[index + byteCount]) else {
      return (max(1, byteCount), false)
    }
    byteCount += 1
  } while !text.isComplete
  return (byteCount, true)
}

/// Returns the base64 form of bytes, with padding.
public func base64(_ bytes: [UInt8]) -> String {
  var text: [UInt8] = []
  ByteWriter.append(to: &text) { _ = $0.append(base64: bytes.span, from: 0) }
  return String(decoding: text, as: UTF8.self)
}
