import Events
import Glibc

/// An event or a line is longer than the configuration allows.
struct EventTooLong: Error, Equatable {
  let maximumBytes: Int
}

/// Splits the bytes of a response into events. A value: each connection starts with a new one.
protocol EventSplitter: Sendable {
  /// Takes the next bytes, split at any point, and appends the events that they complete.
  /// - Throws: when an event exceeds the limit; the splitter must not be used afterwards.
  mutating func split(_ bytes: UnsafeRawBufferPointer, into events: inout EventBatch) throws(EventTooLong)
  /// The response ended regularly.
  /// - Throws: when the last event exceeds the limit.
  mutating func end(into events: inout EventBatch) throws(EventTooLong)
}

/// How lines end.
public struct LineEnd: Sendable, Equatable {
  /// What a CR before the last byte is.
  enum CarriageReturn { case optional, required, ofLine }

  let byte: UInt8
  let carriageReturn: CarriageReturn

  /// With LF or CRLF.
  public static let automatic = LineEnd(byte: 0x0A, carriageReturn: .optional)

  private init(byte: UInt8, carriageReturn: CarriageReturn) {
    (self.byte, self.carriageReturn) = (byte, carriageReturn)
  }

  /// - Parameter text: `cr`, `lf`, `crlf`, or a character up to U+00FF, which stands for the byte with its number.
  public init?(_ text: String) {
    switch text {
    case "cr": self.init(byte: 0x0D, carriageReturn: .ofLine)
    case "lf": self.init(byte: 0x0A, carriageReturn: .ofLine)
    case "crlf": self.init(byte: 0x0A, carriageReturn: .required)
    case _ where text.unicodeScalars.count == 1:
      guard let byte = text.unicodeScalars.first.flatMap({ UInt8(exactly: $0.value) }) else { return nil }
      self.init(byte: byte, carriageReturn: .ofLine)
    default: return nil
    }
  }
}

/// One event per line, as in NDJSON. Lines end with LF or CRLF, or as `end` says. Lines of white space, which servers
/// send as keep-alives, are skipped, and so is a byte order mark before the first line. A last line without line end is
/// an event if the response was complete.
struct LineSplitter: EventSplitter {
  /// Maximum bytes of a line, without its line end.
  let maximumBytes: Int
  /// Whether a longer line is left out and counted, instead of an error.
  private let dropsLongLines: Bool
  /// The number of lines that were left out since `takeDroppedCount`.
  private var droppedCount = 0
  /// Whether the last line so far was left out, and none that is an event has followed.
  private(set) var endsWithDroppedLine = false
  private let end: LineEnd
  private var line: [UInt8] = []
  /// The bytes of the current line.
  private(set) var unendedByteCount = 0
  /// The last one of the current line; 0: it has none.
  private var lastByte: UInt8 = 0
  private var isFirstLine = true
  /// Whether the current line is left out.
  private var isDropping = false

  init(maximumBytes: Int, end: LineEnd = .automatic, dropsLongLines: Bool = false) {
    (self.maximumBytes, self.end, self.dropsLongLines) = (maximumBytes, end, dropsLongLines)
  }

  /// Whether the current line has a CR, as far as it is there.
  var hasCarriageReturn: Bool { line.contains(0x0D) }

  mutating func split(_ bytes: UnsafeRawBufferPointer, into events: inout EventBatch) throws(EventTooLong) {
    var rest = unsafe bytes
    while true {
      if line.isEmpty, !isFirstLine, !isDropping, unsafe rest.first?.isWhiteSpace == true {
        unsafe rest = unsafe UnsafeRawBufferPointer(rebasing: rest[(try blankLines(rest))...])
      }
      guard let count = unsafe byteCount(before: rest) else { break }
      let piece = unsafe UnsafeRawBufferPointer(rebasing: rest[..<count])
      if line.isEmpty, !isDropping {
        try unsafe take(piece, into: &events)  // copied once, into the batch
      } else {
        try unsafe append(piece)
        try takeLine(into: &events)
      }
      lastByte = 0
      unsafe rest = unsafe UnsafeRawBufferPointer(rebasing: rest[(count + 1)...])
    }
    if let last = unsafe rest.last { lastByte = last }
    try unsafe append(rest)
  }

  /// The number of bytes before the last byte of the next line end; nil: there is none.
  private func byteCount(before bytes: UnsafeRawBufferPointer) -> Int? {
    guard let start = bytes.baseAddress else { return nil }
    var index = 0
    while let found = unsafe memchr(start + index, CInt(end.byte), bytes.count - index) {
      index = unsafe UnsafeRawPointer(found) - start
      guard end.carriageReturn == .required, unsafe (index > 0 ? bytes[index - 1] : lastByte) != 0x0D else {
        return index
      }
      index += 1
    }
    return nil
  }

  mutating func end(into events: inout EventBatch) throws(EventTooLong) { try takeLine(into: &events) }

  mutating func takeDroppedCount() -> Int {
    defer { droppedCount = 0 }
    return droppedCount
  }

  /// The bytes of the lines of white space at the beginning, which are found in one pass: a compressed response can have
  /// hundreds of millions.
  func blankLines(_ bytes: UnsafeRawBufferPointer) throws(EventTooLong) -> Int {
    var start = 0
    for index in bytes.indices {
      let byte = unsafe bytes[index]
      let hasCR = unsafe end.carriageReturn != .ofLine && index > start && bytes[index - 1] == 0x0D
      if byte == end.byte, hasCR || end.carriageReturn != .required {
        guard dropsLongLines || index - start - (hasCR ? 1 : 0) <= maximumBytes else {
          throw EventTooLong(maximumBytes: maximumBytes)
        }
        start = index + 1
      } else if !byte.isWhiteSpace {
        break
      }
    }
    return start
  }

  private mutating func append(_ bytes: UnsafeRawBufferPointer) throws(EventTooLong) {
    unendedByteCount += bytes.count
    guard !isDropping else { return }
    // Bytes that may not belong to the event: a CR before the line's end, and a byte order mark.
    guard line.count + bytes.count - (isFirstLine ? 4 : 1) <= maximumBytes else {
      try refuse()
      line = []
      isDropping = true
      return
    }
    unsafe line.append(contentsOf: bytes)
  }

  /// The line is too long.
  private mutating func refuse() throws(EventTooLong) {
    guard dropsLongLines else { throw EventTooLong(maximumBytes: maximumBytes) }
    droppedCount += 1
    endsWithDroppedLine = true
  }

  private mutating func takeLine(into events: inout EventBatch) throws(EventTooLong) {
    unendedByteCount = 0
    guard !isDropping else {
      (isDropping, isFirstLine) = (false, false)
      return
    }
    let whole = line
    line.empty()
    var failure: EventTooLong?
    unsafe whole.withUnsafeBytes { bytes in
      do throws(EventTooLong) { try unsafe take(bytes, into: &events) } catch { failure = error }
    }
    if let failure { throw failure }
  }

  /// - Parameter bytes: a line without the last byte of its end.
  private mutating func take(_ bytes: UnsafeRawBufferPointer, into events: inout EventBatch) throws(EventTooLong) {
    var text = unsafe bytes[...]
    if isFirstLine { unsafe text = unsafe text.withoutByteOrderMark }
    isFirstLine = false
    if end.carriageReturn != .ofLine, unsafe text.last == 0x0D { unsafe text = unsafe text.dropLast() }
    guard unsafe text.count <= maximumBytes else { return try refuse() }
    guard unsafe !text.isWhiteSpace else { return }
    unsafe events.append(UnsafeRawBufferPointer(rebasing: text))
    endsWithDroppedLine = false
  }
}

extension [UInt8] {
  /// Keeps the capacity for the next line, unless this one was very long.
  mutating func empty() { removeAll(keepingCapacity: capacity <= 4096) }
}
