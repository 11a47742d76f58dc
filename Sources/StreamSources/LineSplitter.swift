import Events
import Glibc

/// An event, or a line, that is longer than the configuration allows.
struct EventTooLong: Error, Equatable {
  let maximumBytes: Int
}

/// Cuts the bytes of a response into events. A value: each connection starts with a fresh one.
protocol EventSplitter: Sendable {
  /// Takes the next bytes, split wherever the network pleased, and appends the events that they complete.
  /// - Throws: when an event is over the limit; nothing more may be fed then.
  mutating func feed(_ bytes: UnsafeRawBufferPointer, into events: inout EventBatch) throws(EventTooLong)
  /// The response has ended as its server meant it to.
  mutating func end(into events: inout EventBatch)
}

/// An event per line: NDJSON and the like. Lines end with LF or CRLF; empty ones, which servers send to show that they
/// live, are no events. A last line without an end is one if the response was whole.
struct LineSplitter: EventSplitter {
  /// Bytes of a line, its end not counted.
  let maximumBytes: Int
  private var line: [UInt8] = []

  init(maximumBytes: Int) {
    self.maximumBytes = maximumBytes
  }

  mutating func feed(_ bytes: UnsafeRawBufferPointer, into events: inout EventBatch) throws(EventTooLong) {
    var rest = bytes
    while let start = rest.baseAddress, let end = memchr(start, 0x0A, rest.count) {
      let count = UnsafeRawPointer(end) - start
      try append(UnsafeRawBufferPointer(rebasing: rest[..<count]))
      finishLine(into: &events)
      rest = UnsafeRawBufferPointer(rebasing: rest[(count + 1)...])
    }
    try append(rest)
  }

  mutating func end(into events: inout EventBatch) {
    finishLine(into: &events)
  }

  private mutating func append(_ bytes: UnsafeRawBufferPointer) throws(EventTooLong) {
    guard bytes.count <= maximumBytes - line.count + 1 else {  // one more: a CR that may turn out to be an end
      throw EventTooLong(maximumBytes: maximumBytes)
    }
    line.append(contentsOf: bytes)
  }

  private mutating func finishLine(into events: inout EventBatch) {
    if line.last == 0x0D { line.removeLast() }
    if !line.isEmpty { events.append(line) }
    line.empty()
  }
}

extension [UInt8] {
  /// Keeps the room for the next line, unless this one was very long.
  mutating func empty() { removeAll(keepingCapacity: capacity <= 4096) }
}
