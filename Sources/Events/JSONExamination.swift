/// Observes the examination of a JSON text. The calls describe the text up to its first mistake.
package protocol JSONVisitor: Sendable {
  /// A value begins at this index, with this byte.
  mutating func beginValue(at index: Int, _ first: UInt8)
  /// A string, a number, true, false or null has ended before this index.
  mutating func endScalar(before index: Int)
  /// The innermost array or object has ended before this index.
  mutating func endContainer(before index: Int)
  /// A member's name has ended.
  ///
  /// - Parameters:
  ///   - name: the bytes between the quotes, as written.
  ///   - isPlain: whether the name certainly has no escape.
  mutating func endName(_ name: UnsafeRawBufferPointer, isPlain: Bool)
}

/// Observes nothing.
package struct NoJSONVisitor: JSONVisitor {
  package init() {}
  package mutating func beginValue(at index: Int, _ first: UInt8) {}
  package mutating func endScalar(before index: Int) {}
  package mutating func endContainer(before index: Int) {}
  package mutating func endName(_ name: UnsafeRawBufferPointer, isPlain: Bool) {}
}

/// The check of a text in slices: see ``JSONSyntax``.
///
/// Any byte can be taken alone, in any phase. Where a token begins, whole tokens are taken first, which is several
/// times as fast. Such a token ends within the slice, and has only ASCII, no mistake and no escape.
package struct JSONExamination<Visitor: JSONVisitor>: Sendable {
  /// The next byte is…
  private enum Phase: UInt8 {
    case value  // the first of a value, after space
    case firstElement  // the first of a value, or the end of an array
    case firstName  // the first of a name, or the end of an object
    case name  // the first of a name
    case colon
    case afterValue  // a comma, or the end of what is open
    case string  // of a string
    case escape  // after a backslash
    case hexDigit  // one of the four after \u
    case continuation  // within a UTF-8 sequence
    case literal  // of true, false or null
    case minus  // a digit after a sign
    case zero  // after a leading zero
    case integer  // of a number
    case point  // a digit after a point
    case fraction  // of a number after its point
    case exponent  // a sign or a digit after e
    case exponentSign  // a digit after a sign
    case exponentDigits  // of an exponent

    var isBetweenTokens: Bool { rawValue <= Phase.afterValue.rawValue }
  }

  /// The observer of the text.
  package var visitor: Visitor
  private var phase = Phase.value
  private var index = 0
  /// Where the last name began.
  private var nameStart = 0
  /// Whether the string is the name of a member.
  private var isName = false
  /// In a string: the number of missing hexadecimal digits.
  private var missing = 0
  /// In a string: the characters beyond ASCII.
  private var text = UTF8Check()
  /// The rest of a literal, the next byte lowest.
  private var literal: UInt64 = 0
  private var depth = 0
  /// The index of the first byte that no text has there; nil while there is none.
  package private(set) var mistake: Int?
  /// For each open array and object, from the outermost on, a bit: 1 for an object.
  private var isObject = InlineArray<8, UInt64>(repeating: 0)

  /// Begins an examination of a text.
  package init(_ visitor: Visitor) { self.visitor = visitor }

  /// Begins with another text; the visitor stays as it is.
  package mutating func restart() {
    (phase, index, isName, depth, mistake) = (.value, 0, false, 0, nil)
    text = UTF8Check()
  }

  /// Examines further bytes.
  ///
  /// - Parameters:
  ///   - bytes: the same bytes in each call.
  ///   - count: the number of bytes to examine.
  /// - Returns: whether the bytes are one text; nil while that is not known.
  package mutating func advance(in bytes: Span<UInt8>, by count: Int) -> Bool? {
    let end = min(bytes.count, index + min(bytes.count, count))
    let isPossible = unsafe bytes.withUnsafeBytes { unsafe advance(in: $0, to: end) }
    guard isPossible else {
      mistake = index - 1
      return false
    }
    guard index == bytes.count else { return nil }
    return finish()
  }

  /// Ends the text after the examined bytes.
  /// - Returns: whether they are one text.
  package mutating func finish() -> Bool {
    guard isComplete else { return false }
    if phase != .afterValue { visitor.endScalar(before: index) }  // a number ends only here
    return true
  }

  /// Examines the bytes that were added since the last call.
  ///
  /// - Returns: whether they can be the beginning of a text. Once they cannot, no further call is useful.
  package mutating func continues(in bytes: Span<UInt8>) -> Bool {
    unsafe bytes.withUnsafeBytes { unsafe advance(in: $0, to: bytes.count) }
  }

  /// Whether a byte that is not white space was examined.
  package var hasBegun: Bool { phase != .value || depth > 0 }

  /// After a mistake: whether a text has ended before it.
  package var hasEnded: Bool { phase == .afterValue && depth == 0 }

  /// After a mistake: whether it is one level of nesting too many.
  /// - Parameter byte: at the mistake.
  package func isTooDeep(_ byte: UInt8) -> Bool {
    depth == JSONSyntax.depthLimit && (phase == .value || phase == .firstElement)
      && (byte == UInt8(ascii: "[") || byte == UInt8(ascii: "{"))
  }

  /// Whether the examined bytes are one text.
  package var isComplete: Bool {
    guard depth == 0 else { return false }
    switch phase {
    case .afterValue, .zero, .integer, .fraction, .exponentDigits: return true
    case .value, .firstElement, .firstName, .name, .colon, .string, .escape, .hexDigit, .continuation, .literal,
      .minus, .point, .exponent, .exponentSign:
      return false
    }
  }

  /// - Returns: false once they cannot be the beginning of a text.
  private mutating func advance(in bytes: UnsafeRawBufferPointer, to end: Int) -> Bool {
    while index < end {
      if phase.isBetweenTokens {
        unsafe takeTokens(bytes, end)
        guard index < end else { return true }
      }
      if phase == .string {
        unsafe skipPlain(bytes, end)
        guard index < end else { return true }
      }
      let byte = unsafe bytes[index]
      index += 1
      switch phase {
      case .value, .firstElement, .firstName, .name, .colon, .afterValue:
        if byte <= 0x20 {
          guard byte == 0x20 || byte == 0x0A || byte == 0x0D || byte == 0x09 else { return false }
          continue
        }
        guard takeStructure(byte) else { return false }
      case .string:
        if byte == UInt8(ascii: "\"") {
          unsafe endString(bytes)
        } else if byte == UInt8(ascii: "\\") {
          phase = .escape
        } else {
          guard byte >= 0x80, text.take(byte) else { return false }
          phase = .continuation
        }
      case .escape, .hexDigit, .continuation:
        guard takeInString(byte) else { return false }
      case .literal:
        guard byte == UInt8(truncatingIfNeeded: literal) else { return false }
        literal >>= 8
        if literal == 0 {
          phase = .afterValue
          visitor.endScalar(before: index)
        }
      case .minus, .zero, .integer, .point, .fraction, .exponent, .exponentSign, .exponentDigits:
        guard unsafe takeInNumber(byte, bytes, end) else { return false }
      }
    }
    return true
  }

  private mutating func endString(_ bytes: UnsafeRawBufferPointer) {
    if isName {
      phase = .colon
      unsafe visitor.endName(UnsafeRawBufferPointer(rebasing: bytes[nameStart..<index - 1]), isPlain: false)
    } else {
      phase = .afterValue
      visitor.endScalar(before: index)
    }
  }

  @inline(__always) private mutating func takeStructure(_ byte: UInt8) -> Bool {
    switch phase {
    case .afterValue:
      guard depth > 0 else { return false }
      if byte == UInt8(ascii: ",") {
        phase = isInnermostObject ? .name : .value
      } else {
        guard byte == (isInnermostObject ? UInt8(ascii: "}") : UInt8(ascii: "]")) else { return false }
        close()
      }
    case .colon:
      guard byte == UInt8(ascii: ":") else { return false }
      phase = .value
    case .firstName where byte == UInt8(ascii: "}"), .firstElement where byte == UInt8(ascii: "]"): close()
    case .firstName, .name:
      guard byte == UInt8(ascii: "\"") else { return false }
      (phase, isName, nameStart) = (.string, true, index)
    case _: return begin(byte)
    }
    return true
  }

  private mutating func begin(_ byte: UInt8) -> Bool {
    visitor.beginValue(at: index - 1, byte)
    switch byte {
    case UInt8(ascii: "{"), UInt8(ascii: "["): return open(asObject: byte == UInt8(ascii: "{"))
    case UInt8(ascii: "\""): (phase, isName) = (.string, false)
    case UInt8(ascii: "-"): phase = .minus
    case UInt8(ascii: "0"): phase = .zero
    case UInt8(ascii: "1")...UInt8(ascii: "9"): phase = .integer
    case UInt8(ascii: "t"): (phase, literal) = (.literal, 0x65_7572)  // "rue"
    case UInt8(ascii: "f"): (phase, literal) = (.literal, 0x6573_6c61)  // "alse"
    case UInt8(ascii: "n"): (phase, literal) = (.literal, 0x6c_6c75)  // "ull"
    default: return false
    }
    return true
  }

  private var isInnermostObject: Bool { isObject[(depth - 1) >> 6] >> UInt64((depth - 1) & 63) & 1 != 0 }

  private mutating func open(asObject: Bool) -> Bool {
    guard depth < JSONSyntax.depthLimit else { return false }
    push(asObject: asObject)
    phase = asObject ? .firstName : .firstElement
    return true
  }

  private mutating func push(asObject: Bool) {
    let bit: UInt64 = 1 << UInt64(depth & 63)
    if asObject { isObject[depth >> 6] |= bit } else { isObject[depth >> 6] &= ~bit }
    depth += 1
  }

  private mutating func close() {
    depth -= 1
    phase = .afterValue
    visitor.endContainer(before: index)
  }

  /// - Parameter byte: the byte before the index.
  @inline(__always) private mutating func takeInNumber(
    _ byte: UInt8, _ bytes: UnsafeRawBufferPointer, _ end: Int
  ) -> Bool {
    let isDigit = byte &- 0x30 < 10
    switch phase {
    case .integer where isDigit, .fraction where isDigit, .exponentDigits where isDigit:
      while index < end, unsafe bytes[index] &- 0x30 < 10 { index += 1 }
    case .minus where isDigit: phase = byte == 0x30 ? .zero : .integer
    case .point where isDigit: phase = .fraction
    case .exponent where isDigit, .exponentSign where isDigit: phase = .exponentDigits
    case .exponent where byte == UInt8(ascii: "+") || byte == UInt8(ascii: "-"): phase = .exponentSign
    case .zero where byte == UInt8(ascii: "."), .integer where byte == UInt8(ascii: "."): phase = .point
    case .zero where byte | 0x20 == UInt8(ascii: "e"), .integer where byte | 0x20 == UInt8(ascii: "e"),
      .fraction where byte | 0x20 == UInt8(ascii: "e"):
      phase = .exponent
    case .zero, .integer, .fraction, .exponentDigits:
      index -= 1  // the byte follows the number
      phase = .afterValue
      visitor.endScalar(before: index)
    case _: return false
    }
    return true
  }

  /// Takes a byte in an escape, or within a UTF-8 sequence.
  private mutating func takeInString(_ byte: UInt8) -> Bool {
    switch (phase, byte) {
    case (.escape, UInt8(ascii: "u")): (phase, missing) = (.hexDigit, 4)
    case (.escape, UInt8(ascii: "\"")), (.escape, UInt8(ascii: "\\")), (.escape, UInt8(ascii: "/")),
      (.escape, UInt8(ascii: "b")), (.escape, UInt8(ascii: "f")), (.escape, UInt8(ascii: "n")),
      (.escape, UInt8(ascii: "r")), (.escape, UInt8(ascii: "t")):
      phase = .string
    case (.hexDigit, UInt8(ascii: "0")...UInt8(ascii: "9")), (.hexDigit, UInt8(ascii: "A")...UInt8(ascii: "F")),
      (.hexDigit, UInt8(ascii: "a")...UInt8(ascii: "f")):
      missing -= 1
      if missing == 0 { phase = .string }
    case (.continuation, _):
      guard text.take(byte) else { return false }
      if text.isComplete { phase = .string }
    case _: return false
    }
    return true
  }

  /// Skips the bytes of a string that need no examination.
  private mutating func skipPlain(_ bytes: UnsafeRawBufferPointer, _ end: Int) {
    index = unsafe JSONTokens.plainEnd(bytes, index, end)
  }

  /// Takes whole tokens. The next byte begins a token that is taken byte by byte, or no token.
  private mutating func takeTokens(_ bytes: UnsafeRawBufferPointer, _ end: Int) {
    var (index, phase) = (self.index, self.phase)
    var isInObject = depth > 0 && isInnermostObject
    defer { (self.index, self.phase) = (index, phase) }
    while index < end {
      let byte = unsafe bytes[index]
      if byte <= 0x20 {
        guard byte == 0x20 || byte == 0x0A || byte == 0x0D || byte == 0x09 else { return }
        index += 1
        continue
      }
      switch phase {
      case .name,
        .firstName where byte == UInt8(ascii: "\""):
        guard byte == UInt8(ascii: "\""), let nameEnd = unsafe JSONTokens.stringEnd(bytes, index, end) else { return }
        unsafe visitor.endName(UnsafeRawBufferPointer(rebasing: bytes[index + 1..<nameEnd - 1]), isPlain: true)
        (index, phase) = (nameEnd, .colon)
        if index < end, unsafe bytes[index] == UInt8(ascii: ":") { (index, phase) = (index + 1, .value) }
      case .colon:
        guard byte == UInt8(ascii: ":") else { return }
        (index, phase) = (index + 1, .value)
      case .afterValue where byte == UInt8(ascii: ",") && depth > 0:
        (index, phase) = (index + 1, isInObject ? .name : .value)
      case .afterValue where depth > 0 && byte == (isInObject ? UInt8(ascii: "}") : UInt8(ascii: "]")),
        .firstName where byte == UInt8(ascii: "}"), .firstElement where byte == UInt8(ascii: "]"):
        index += 1
        depth -= 1
        phase = .afterValue
        isInObject = depth > 0 && isInnermostObject
        visitor.endContainer(before: index)
      case .value, .firstElement:
        if byte == UInt8(ascii: "{") || byte == UInt8(ascii: "[") {
          guard depth < JSONSyntax.depthLimit else { return }
          visitor.beginValue(at: index, byte)
          index += 1
          isInObject = byte == UInt8(ascii: "{")
          push(asObject: isInObject)
          phase = isInObject ? .firstName : .firstElement
        } else {
          guard let scalarEnd = unsafe JSONTokens.scalarEnd(byte, bytes, index, end) else { return }
          visitor.beginValue(at: index, byte)
          visitor.endScalar(before: scalarEnd)
          (index, phase) = (scalarEnd, .afterValue)
          if index < end, depth > 0, unsafe bytes[index] == UInt8(ascii: ",") {
            (index, phase) = (index + 1, isInObject ? .name : .value)
          }
        }
      case _: return
      }
    }
  }
}

/// JSON tokens that end before the end of the bytes and need no examination byte by byte.
private enum JSONTokens {
  /// - Parameter start: the index of a string's opening quote.
  /// - Returns: the index after the closing quote; nil for a string with an escape or with non-ASCII bytes.
  @inline(__always) static func stringEnd(_ bytes: UnsafeRawBufferPointer, _ start: Int, _ end: Int) -> Int? {
    let index = unsafe plainEnd(bytes, start + 1, end)
    guard index < end, unsafe bytes[index] == UInt8(ascii: "\"") else { return nil }
    return index + 1
  }

  /// - Parameter first: the byte at `start`.
  /// - Returns: the index after the scalar that begins at `start`.
  @inline(__always) static func scalarEnd(
    _ first: UInt8, _ bytes: UnsafeRawBufferPointer, _ start: Int, _ end: Int
  ) -> Int? {
    switch first {
    case UInt8(ascii: "\""): unsafe stringEnd(bytes, start, end)
    case UInt8(ascii: "t"): unsafe has(0x6575_7274, bytes, start, end) ? start + 4 : nil  // "true"
    case UInt8(ascii: "n"): unsafe has(0x6c6c_756e, bytes, start, end) ? start + 4 : nil  // "null"
    case UInt8(ascii: "f"): unsafe has(0x6573_6c61, bytes, start + 1, end) ? start + 5 : nil  // "alse"
    case _: unsafe numberEnd(bytes, start, end)
    }
  }

  private static func has(_ word: UInt32, _ bytes: UnsafeRawBufferPointer, _ start: Int, _ end: Int) -> Bool {
    unsafe start + 4 <= end
      && UInt32(littleEndian: bytes.loadUnaligned(fromByteOffset: start, as: UInt32.self)) == word
  }

  /// - Returns: nil for a number that may continue at the end.
  @inline(__always) private static func numberEnd(
    _ bytes: UnsafeRawBufferPointer, _ start: Int, _ end: Int
  ) -> Int? {
    var index = unsafe start + (bytes[start] == UInt8(ascii: "-") ? 1 : 0)
    guard let integerEnd = unsafe digitsEnd(bytes, index, end),
      unsafe bytes[index] != UInt8(ascii: "0") || integerEnd == index + 1
    else { return nil }
    index = integerEnd
    if unsafe bytes[index] == UInt8(ascii: ".") {
      guard let fractionEnd = unsafe digitsEnd(bytes, index + 1, end) else { return nil }
      index = fractionEnd
    }
    // An exponent is rare.
    return unsafe bytes[index] | 0x20 == UInt8(ascii: "e") ? nil : index
  }

  /// - Returns: the index after one or more digits, which is before `end`.
  @inline(__always) private static func digitsEnd(
    _ bytes: UnsafeRawBufferPointer, _ start: Int, _ end: Int
  ) -> Int? {
    var index = start
    while index < end, unsafe bytes[index] &- 0x30 < 10 { index += 1 }
    return index > start && index < end ? index : nil
  }

  /// The index of the first byte that ends a plain run in a string: a quote, a backslash, a control character, or a
  /// non-ASCII byte.
  @inline(__always) static func plainEnd(_ bytes: UnsafeRawBufferPointer, _ start: Int, _ end: Int) -> Int {
    var index = start
    while index + 8 <= end {
      let hits = unsafe special(bytes.loadUnaligned(fromByteOffset: index, as: UInt64.self))
      guard hits == 0 else { return index + hits.trailingZeroBitCount / 8 }
      index += 8
    }
    guard index < end, end >= 8 else {
      while index < end, unsafe special(UInt64(bytes[index])) & 0xFF == 0 { index += 1 }
      return index
    }
    // Reads the last eight bytes again, without those before the index; the zero bytes in their place are hits.
    let word = unsafe UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: end - 8, as: UInt64.self))
    return index + special((word >> UInt64(8 * (8 - (end - index)))).littleEndian).trailingZeroBitCount / 8
  }

  /// The lowest bit that is set belongs to the first byte that is below 0x20, over 0x7F, a quote or a backslash; higher
  /// ones may be wrong.
  @inline(__always) private static func special(_ word: UInt64) -> UInt64 {
    let word = UInt64(littleEndian: word)
    let ones: UInt64 = 0x0101_0101_0101_0101
    let quotes = word ^ ones &* UInt64(UInt8(ascii: "\""))
    let backslashes = word ^ ones &* UInt64(UInt8(ascii: "\\"))
    return
      (word | (word &- ones &* 0x20) & ~word | (quotes &- ones) & ~quotes | (backslashes &- ones) & ~backslashes)
      & (ones << 7)
  }
}

extension JSONExamination where Visitor == NoJSONVisitor {
  /// An examination without an observer.
  package init() { self.init(NoJSONVisitor()) }
}
