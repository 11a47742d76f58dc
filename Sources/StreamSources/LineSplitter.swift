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
  mutating func end(into events: inout EventBatch)
}

/// One event per line, as in NDJSON. Lines end with LF or CRLF; empty lines, which servers send as keep-alives, are
/// skipped. A last line without line end is an event if the response was complete.
struct LineSplitter: EventSplitter {
  /// Maximum bytes of a line, without its line end.
  let maximumBytes: Int
  private var line: [UInt8] = []

  init(maximumBytes: Int) {
    self.maximumBytes = maximumBytes
  }

  mutating func feed(_ bytes: UnsafeRawBufferPointer, into events: inout EventBatch) throws(EventTooLong) {
    var rest = unsafe bytes
    while let start = rest.baseAddress, let end = unsafe memchr(start, 0x0A, rest.count) {
      let count = unsafe UnsafeRawPointer(end) - start
      let piece = unsafe UnsafeRawBufferPointer(rebasing: rest[..<count])
      if line.isEmpty {
        try unsafe appendLine(piece, to: &events)
      } else {
        try unsafe append(piece)
        finishLine(into: &events)
      }
      unsafe rest = unsafe UnsafeRawBufferPointer(rebasing: rest[(count + 1)...])
    }
    try unsafe append(rest)
  }

  mutating func end(into events: inout EventBatch) {
    finishLine(into: &events)
  }

  private mutating func append(_ bytes: UnsafeRawBufferPointer) throws(EventTooLong) {
    try check(line.count + bytes.count)
    unsafe line.append(contentsOf: bytes)
  }

  /// Allows one byte more than an event: a CR that may belong to the end of the line.
  private func check(_ byteCount: Int) throws(EventTooLong) {
    guard byteCount - 1 <= maximumBytes else { throw EventTooLong(maximumBytes: maximumBytes) }
  }

  /// A line that arrives whole is copied once, into the batch.
  private func appendLine(_ bytes: UnsafeRawBufferPointer, to events: inout EventBatch) throws(EventTooLong) {
    try check(bytes.count)
    let count = unsafe bytes.last == 0x0D ? bytes.count - 1 : bytes.count
    if count > 0 { unsafe events.append(UnsafeRawBufferPointer(rebasing: bytes[..<count])) }
  }

  private mutating func finishLine(into events: inout EventBatch) {
    if line.last == 0x0D { line.removeLast() }
    if !line.isEmpty { events.append(line) }
    line.empty()
  }
}

extension [UInt8] {
  /// Keeps the capacity for the next line, unless this one was very long.
  mutating func empty() { removeAll(keepingCapacity: capacity <= 4096) }
}
