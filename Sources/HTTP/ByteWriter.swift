/// Writes bytes into the caller's memory, or only counts them: the code that writes also finds the size.
///
/// It allocates nothing. Its functions must not be given more than ``room`` bytes; those with `reserving` write less.
@safe public struct ByteWriter: ~Copyable {
  /// Nil: bytes are counted.
  private let base: UnsafeMutableRawPointer?
  /// The offset at which the room ends.
  private(set) var end: Int
  /// The number of bytes written.
  public private(set) var count = 0

  /// Counts bytes, at most `limit`.
  public init(countingUpTo limit: Int = .max) {
    unsafe base = nil
    end = max(limit, 0)
  }

  /// Writes from the start of `buffer`, which must be valid while the writer is in use.
  @unsafe public init(_ buffer: UnsafeMutableRawBufferPointer) {
    unsafe base = buffer.baseAddress
    end = buffer.count
  }

  /// The number of bytes that can be written.
  public var room: Int { end - count }

  /// Ends the room after `byteCount` further bytes, if it is larger. Returns the former end for ``restore(end:)``.
  mutating func limit(to byteCount: Int) -> Int {
    defer { end = min(end, count + byteCount) }
    return end
  }

  mutating func restore(end: Int) { self.end = end }

  /// Drops the bytes after the first `count`.
  mutating func truncate(to count: Int) { self.count = min(count, self.count) }

  /// Appends one byte.
  public mutating func append(_ byte: UInt8) {
    guard let target = unsafe advance(by: 1) else { return }
    unsafe target.storeBytes(of: byte, as: UInt8.self)
  }

  /// Appends bytes unchanged.
  public mutating func append(_ bytes: Span<UInt8>) {
    guard let target = unsafe advance(by: bytes.count) else { return }
    unsafe bytes.withUnsafeBytes { source in
      if let start = source.baseAddress { unsafe target.copyMemory(from: start, byteCount: source.count) }
    }
  }

  /// Appends text in UTF-8, unchanged.
  public mutating func append(_ text: String) {
    let bytes = text.utf8.span
    append(bytes)
  }

  /// Appends a number in decimal digits.
  public mutating func append(decimal number: UInt64) {
    var digitCount = 1
    var rest = number / 10
    while rest > 0 {
      digitCount += 1
      rest /= 10
    }
    append(number, digitCount: digitCount, base: 10)
  }

  /// Appends a number in hexadecimal digits, as few as possible.
  mutating func append(hexadecimal number: UInt64) {
    append(number, digitCount: Self.hexadecimalDigitCount(number), base: 16)
  }

  static func hexadecimalDigitCount(_ number: UInt64) -> Int { max(1, (67 - number.leadingZeroBitCount) / 4) }

  /// Appends the last digits of a number.
  @inline(__always)
  mutating func append(_ number: UInt64, digitCount: Int, base: UInt64) {
    guard let target = unsafe advance(by: digitCount) else { return }
    var rest = number
    for offset in stride(from: digitCount - 1, through: 0, by: -1) {
      let digit = UInt8(rest % base)
      rest /= base
      let letter = digit < 10 ? UInt8(ascii: "0") + digit : UInt8(ascii: "a") + digit - 10
      unsafe target.storeBytes(of: letter, toByteOffset: offset, as: UInt8.self)
    }
  }

  /// Appends the output of `write`, at least one byte, as a chunk. It takes one pass if the chunk's size has as many
  /// digits as `byteCount`.
  mutating func appendChunk(expecting byteCount: Int, _ write: (inout ByteWriter) -> Void) {
    let start = count
    let expected = Self.hexadecimalDigitCount(UInt64(byteCount))
    append(0, digitCount: expected, base: 16)
    append("\r\n")
    let bodyStart = count
    write(&self)
    let end = count
    let digitCount = Self.hexadecimalDigitCount(UInt64(end - bodyStart))
    if digitCount != expected, let base = unsafe base {
      let moved = bodyStart + digitCount - expected
      precondition(digitCount - expected <= room, "no room for the size of a chunk")
      unsafe (base + moved).copyMemory(from: base + bodyStart, byteCount: end - bodyStart)
    }
    count = start
    Chunk.writeHeader(byteCount: end - bodyStart, to: &self)
    count = end + digitCount - expected
    Chunk.writeEnd(to: &self)
  }

  /// - Returns: where to write the bytes; nil: nowhere.
  mutating func advance(by byteCount: Int) -> UnsafeMutableRawPointer? {
    precondition(byteCount <= room, "\(byteCount) bytes exceed the room of \(room) after \(count)")
    defer { count += byteCount }
    guard let base = unsafe base else { return nil }
    return unsafe base + count
  }
}

extension ByteWriter {
  /// Appends the output of `write` to an array. `write` is called twice: the first call only counts.
  public static func append(to bytes: inout [UInt8], _ write: (inout ByteWriter) -> Void) {
    var counter = ByteWriter()
    write(&counter)
    // Swift 6.3 can append without the zeros.
    let start = bytes.count
    bytes += repeatElement(0, count: counter.count)
    unsafe bytes.withUnsafeMutableBytes { buffer in
      var writer = unsafe ByteWriter(UnsafeMutableRawBufferPointer(rebasing: buffer[start...]))
      write(&writer)
      precondition(writer.count == counter.count, "\(writer.count) bytes were written, and \(counter.count) counted")
    }
  }
}
