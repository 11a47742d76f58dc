import Events

/// Splits a program's standard error into lines for the journal. Lines of white space are skipped. A line that is too long is
/// returned at once, so that nothing waits for its end, and the rest of it is skipped.
struct ErrorLines {
  /// Maximum bytes kept of a line: more than a person reads.
  static let limit = 2 << 10

  private var line: [UInt8] = []
  /// The input up to the next line end belongs to a line that was cut.
  private var isCut = false

  /// Takes the next bytes, and returns the lines that they complete.
  mutating func split(_ bytes: UnsafeRawBufferPointer) -> [String] {
    var lines: [String] = []
    var rest = unsafe bytes[...]
    while unsafe !rest.isEmpty {
      let piece = unsafe rest.prefix { $0 != 0x0A }
      unsafe rest = unsafe rest.dropFirst(piece.count)
      if !isCut {
        unsafe line.append(contentsOf: piece.prefix(Self.limit + 1 - line.count))
        if line.count > Self.limit {
          lines.append(String(decoding: line.dropLast(), as: UTF8.self) + "… (cut at 2 KiB)")
          line = []
          isCut = true
        }
      }
      guard unsafe rest.popFirst() != nil else { break }
      lines += end()
      isCut = false
    }
    return lines
  }

  /// The program or its pipe has ended.
  /// - Returns: the unfinished line.
  mutating func end() -> [String] {
    if line.last == 0x0D { line.removeLast() }
    defer { line = [] }
    return line.isWhiteSpace ? [] : [String(decoding: line, as: UTF8.self)]
  }
}
