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
  mutating func feed(_ bytes: UnsafeRawBufferPointer, into events: inout EventBatch) throws(EventTooLong)
  /// The response ended regularly.
  /// - Throws: when the last event exceeds the limit.
  mutating func end(into events: inout EventBatch) throws(EventTooLong)
}

/// One event per line, as in NDJSON. Lines end with LF or CRLF. Lines of white space, which servers send as keep-alives, are
/// skipped, and so is a byte order mark before the first line. A last line without line end is an event if the response was
/// complete.
struct LineSplitter: EventSplitter {
  /// Maximum bytes of a line, without its line end.
  let maximumBytes: Int
  /// Whether a longer line is left out and counted, instead of an error.
  private let dropsLongLines: Bool
  /// The number of lines that were left out since `takeDroppedCount`.
  private var droppedCount = 0
  /// Whether the last line so far was left out, and none that is an event has followed.
  private(set) var endsWithDroppedLine = false
  private var line: [UInt8] = []
  private var isFirstLine = true
  /// Whether the current line is left out.
  private var isDropping = false

  init(maximumBytes: Int, dropsLongLines: Bool = false) {
    (self.maximumBytes, self.dropsLongLines) = (maximumBytes, dropsLongLines)
  }

  mutating func feed(_ bytes: UnsafeRawBufferPointer, into events: inout EventBatch) throws(EventTooLong) {
    var rest = unsafe bytes
    while true {
      if line.isEmpty, !isFirstLine, !isDropping, unsafe rest.first?.isWhiteSpace == true {
        unsafe rest = unsafe UnsafeRawBufferPointer(rebasing: rest[(try blankLines(rest))...])
      }
      guard let start = rest.baseAddress, let end = unsafe memchr(start, 0x0A, rest.count) else { break }
      let count = unsafe UnsafeRawPointer(end) - start
      let piece = unsafe UnsafeRawBufferPointer(rebasing: rest[..<count])
      if line.isEmpty, !isDropping {
        try unsafe take(piece, into: &events)  // copied once, into the batch
      } else {
        try unsafe append(piece)
        try takeLine(into: &events)
      }
      unsafe rest = unsafe UnsafeRawBufferPointer(rebasing: rest[(count + 1)...])
    }
    try unsafe append(rest)
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
      if byte == 0x0A {
        let hasCR = unsafe index > start && bytes[index - 1] == 0x0D
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

  /// - Parameter bytes: a line without its LF.
  private mutating func take(_ bytes: UnsafeRawBufferPointer, into events: inout EventBatch) throws(EventTooLong) {
    var text = unsafe bytes[...]
    if isFirstLine { unsafe text = unsafe text.withoutByteOrderMark }
    isFirstLine = false
    if unsafe text.last == 0x0D { unsafe text = unsafe text.dropLast() }
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
