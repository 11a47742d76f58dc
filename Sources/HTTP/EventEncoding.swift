/// The parts of an event besides its data.
public struct EventHead: Equatable, Sendable {
  /// The event's id; nil for a server-sent event that has none, such as `gap` and `end`.
  public var id: UInt64?
  /// For server-sent events instead of `id`: the positions in all streams of the response, or a time for a pattern of
  /// streams, which envelopes contain, too; empty: there is none yet.
  public var position: String?
  /// The stream's name if a response has several, or the type of a server-sent event.
  public var name: String?
  /// When the daemon received the event; only envelopes contain it.
  public var microsecondsSinceEpoch: UInt64

  /// Creates a head.
  public init(id: UInt64? = nil, position: String? = nil, name: String? = nil, microsecondsSinceEpoch: UInt64 = 0) {
    self.id = id
    self.position = position
    self.name = name
    self.microsecondsSinceEpoch = microsecondsSinceEpoch
  }
}

/// How events are written in a streaming response.
///
/// An event is written whole, or in parts that are determined by its bytes and an offset in them. So a subscription
/// needs no other state to continue in the middle of an event, even in another process.
public struct EventEncoding: Equatable, Sendable {
  /// The format of the response.
  public enum Format: UInt8, Sendable, CaseIterable {
    /// `text/event-stream`. Source: WHATWG HTML, "Server-sent events".
    case serverSentEvents
    /// `application/x-ndjson`: one JSON text per line.
    case ndjson
    /// `application/json-seq`: each JSON text between RS and LF. Source: RFC 7464.
    case jsonSequence
    /// The bytes of the events. A JSON or text event ends with a line feed, which is added if the event has none.
    /// Binary events have no separators.
    case raw
    /// A message of a WebSocket for each event: text for JSON and text, otherwise binary.
    case message
  }

  /// The kind of a stream's events.
  public enum Content: UInt8, Sendable, CaseIterable {
    /// JSON texts. The caller writes any other event with ``EventEncoding/ofOther``, if ``EventEncoding/required`` says so.
    case json
    /// Text in UTF-8. In an envelope, the caller writes any other event with ``EventEncoding/ofOther``.
    case text
    /// Any bytes.
    case binary
  }

  /// The format of the response.
  public let format: Format
  /// The kind of the events, as far as it matters: JSON is text in server-sent events, raw events, and messages without an
  /// envelope.
  public let content: Content
  /// Whether an event is only what an upstream has sent, and the response ends as that of the upstream.
  public var isRelayed: Bool { format == .serverSentEvents && hasEnvelope }
  /// Whether an event is a JSON object on its own: `{"id":1,"time":"2026-01-02T03:04:05.678901Z","data":…}`, JSON data
  /// embedded, text in UTF-8 as a string, otherwise `"data_base64"`. The first member is `"stream"` if the head has a name.
  public let hasEnvelope: Bool

  /// - Parameter hasEnvelope: has no effect on server-sent events, which carry their ids.
  /// - Returns: nil if the format cannot represent the content: binary data as server-sent events, raw data in
  ///   envelopes, and anything but JSON as JSON without an envelope.
  public init?(_ format: Format, _ content: Content, hasEnvelope: Bool) {
    switch (format, content, hasEnvelope) {
    case (.serverSentEvents, .binary, _), (.raw, _, true), (.ndjson, .text, false), (.ndjson, .binary, false),
      (.jsonSequence, .text, false), (.jsonSequence, .binary, false):
      return nil
    case (.serverSentEvents, _, _): self.init(format, .text, envelope: false)
    case (.raw, _, false), (.message, _, false):
      self.init(format, content == .binary ? .binary : .text, envelope: false)
    case (.ndjson, _, _), (.jsonSequence, _, _), (.message, _, true):
      self.init(format, content, envelope: hasEnvelope)
    }
  }

  /// Server-sent events as an upstream sends them, without ids and events of the server's own.
  public static let relayed = EventEncoding(.serverSentEvents, .text, envelope: true)
  /// The same for events that are JSON objects with the `event` and the `data` of the upstream's.
  public static let relayedWithNames = EventEncoding(.serverSentEvents, .json, envelope: true)
  private var hasNames: Bool { isRelayed && content == .json }

  private init(_ format: Format, _ content: Content, envelope: Bool) {
    (self.format, self.content, hasEnvelope) = (format, content, envelope)
  }

  /// The encoding of other content in the same format; nil if the format cannot represent it.
  public func with(_ content: Content) -> EventEncoding? { EventEncoding(format, content, hasEnvelope: hasEnvelope) }

  /// What each event must be, because it becomes a part of a JSON text or a line of its own: JSON, or text in UTF-8; nil:
  /// any bytes. Server-sent events are lines of any bytes, with U+FFFD for what is not UTF-8.
  public var required: Content? {
    switch content {
    case .json: isRelayed ? nil : .json
    case .text: hasEnvelope && !isRelayed ? .text : nil
    case .binary: nil
    }
  }

  /// The encoding of an event that is not as ``required``: its bytes in base64 in an envelope, otherwise a string. So no
  /// event can break a line, or add members to the envelope around it, and an envelope changes none of its bytes.
  public var ofOther: EventEncoding {
    required == nil ? self : EventEncoding(format, hasEnvelope ? .binary : .text, envelope: hasEnvelope)
  }

  /// Returns the size of a whole event, without a chunk's header.
  /// - Complexity: O(data), unless it is written unchanged or in base64.
  public func byteCount(_ head: EventHead, _ data: Span<UInt8>) -> Int {
    var counter = ByteWriter()
    _ = write(head, data, to: &counter)
    return counter.count
  }

  /// Returns a room in which every event with this head makes progress.
  public static func sufficientRoom(for head: EventHead) -> Int {
    // The longest frame of an envelope has 94 bytes, one piece of data 7; a byte of a text becomes at most 6.
    128 + 6 * ((head.name?.utf8.count ?? 0) + (head.position?.utf8.count ?? 0))
  }

  /// Writes an event, or the next part of it.
  ///
  /// - Parameter offset: 0, or the result of the previous call for this event.
  /// - Returns: the number of bytes of `data` that are written now; the event is complete when this is `data.count`.
  ///   Nil, and nothing is written, if the room is too small: ``sufficientRoom(for:)`` is not.
  public func write(_ head: EventHead, _ data: Span<UInt8>, from offset: Int = 0, to writer: inout ByteWriter) -> Int? {
    guard offset == 0 || 0..<data.count ~= offset else { return data.count }
    if hasNames, let event = RelayedEvent(data) { return write(event, data, from: offset, to: &writer) }
    let suffix = suffix(of: data)
    let reserve = suffix.utf8.count
    let start = writer.count
    if offset == 0 {
      if writer.room < Self.sufficientRoom(for: head) {
        var counter = ByteWriter()
        writePrefix(head, to: &counter)
        guard counter.count + reserve <= writer.room else { return nil }
      }
      writePrefix(head, to: &writer)
    }
    guard reserve <= writer.room else { return nil }
    let next = writeData(data, from: offset, reserving: reserve, to: &writer)
    guard next > offset || data.isEmpty else {
      writer.truncate(to: start)
      return nil
    }
    if next == data.count { writer.append(suffix) }
    return next
  }

  /// Writes an event, or the next part of it, as one chunk. Parameters and result are those of
  /// ``write(_:_:from:to:)``; a chunk takes ``Chunk/maximumOverheadByteCount`` bytes more.
  public func writeChunk(
    _ head: EventHead, _ data: Span<UInt8>, from offset: Int = 0, to writer: inout ByteWriter
  ) -> Int? {
    if format == .serverSentEvents, !hasEnvelope, offset == 0, head.name == nil, head.position == nil, let id = head.id,
      Self.writeLine(id, data, to: &writer)
    {
      return data.count
    }
    if offset == 0, data.count <= Self.smallByteCount, format != .raw, format != .message, !hasNames,
      writer.room >= Self.sufficientRoom(for: head) + Self.largestExpansion * data.count
        + Chunk.maximumOverheadByteCount
    {
      writer.appendChunk(expecting: data.count + Self.usualPrefixByteCount) { writer in
        writePrefix(head, to: &writer)
        _ = writeData(data, from: 0, reserving: 0, to: &writer)
        writer.append(suffix(of: data))
      }
      return data.count
    }
    guard
      let (next, byteCount) = writeCounted(
        head, data, from: offset, overhead: Chunk.maximumOverheadByteCount, to: &writer,
        { byteCount, _, writer in
          // A chunk without data would end the body.
          if byteCount > 0 { Chunk.writeHeader(byteCount: byteCount, to: &writer) }
        })
    else { return nil }
    if byteCount > 0 { Chunk.writeEnd(to: &writer) }
    return next
  }

  /// Writes an event, or the next part of it, as one frame of its message. Parameters and result are those of
  /// ``write(_:_:from:to:)``; a frame takes ``WebSocketFrame/maximumHeaderByteCount`` bytes more. A character may be divided
  /// between two frames of JSON.
  public func writeFrame(
    _ head: EventHead, _ data: Span<UInt8>, from offset: Int = 0, to writer: inout ByteWriter
  ) -> Int? {
    let overhead = WebSocketFrame.maximumHeaderByteCount
    return writeCounted(head, data, from: offset, overhead: overhead, to: &writer) { byteCount, isLast, writer in
      let opcode: WebSocketFrame.Opcode =
        offset > 0 ? .continuation : hasEnvelope || content != .binary ? .text : .binary
      WebSocketFrame.writeHeader(opcode, isLast: isLast, byteCount: byteCount, to: &writer)
    }?.next
  }

  /// Writes an event, or the next part of it, after a header with its size.
  /// - Parameter overhead: the bytes of the header and of what the caller adds behind the event.
  @inline(__always) private func writeCounted(
    _ head: EventHead, _ data: Span<UInt8>, from offset: Int, overhead: Int, to writer: inout ByteWriter,
    _ writeHeader: (_ byteCount: Int, _ isLast: Bool, inout ByteWriter) -> Void
  ) -> (next: Int, byteCount: Int)? {
    var counter = ByteWriter(countingUpTo: writer.room - overhead)
    guard let next = write(head, data, from: offset, to: &counter) else { return nil }
    writeHeader(counter.count, next == data.count, &writer)
    // A part that does not end the event has left the suffix's bytes free.
    let end = writer.limit(to: counter.count + (next == data.count ? 0 : suffix(of: data).utf8.count))
    let written = write(head, data, from: offset, to: &writer)
    precondition(written == next, "\(next) bytes were counted, but \(written ?? -1) written")
    writer.restore(end: end)
    return (next, counter.count)
  }

  /// Writes the chunk of a server-sent event that has an id, no name, and one line of data: nearly every event. Its
  /// size is known, so a few stores write everything around the data.
  ///
  /// - Returns: false, and nothing is written, for any other event, an id of other than 16 digits, and without room.
  private static func writeLine(_ id: UInt64, _ data: Span<UInt8>, to writer: inout ByteWriter) -> Bool {
    // Microseconds since 1970 have 16 digits from 2001 to 2286.
    let eventByteCount = 4 + 16 + 7 + data.count + 2
    guard 1_000_000_000_000_000..<10_000_000_000_000_000 ~= id, 0x10...0xfff ~= eventByteCount else { return false }
    let digitCount = eventByteCount > 0xff ? 3 : 2
    let byteCount = digitCount + 2 + eventByteCount + 2
    guard byteCount <= writer.room, data.isLine else { return false }
    guard var target = unsafe writer.advance(by: byteCount) else { return true }
    if digitCount == 3 { unsafe target.storeBytes(of: hexadecimalDigit(eventByteCount >> 8), as: UInt8.self) }
    unsafe target += digitCount
    unsafe target.storeBytes(of: hexadecimalDigit(eventByteCount >> 4), toByteOffset: -2, as: UInt8.self)
    unsafe target.storeBytes(of: hexadecimalDigit(eventByteCount), toByteOffset: -1, as: UInt8.self)
    // "\r\nid: " and "\ndata: ", each as 8 bytes, the last of which are overwritten.
    unsafe target.storeBytes(of: UInt64(0x203a_6469_0a0d).littleEndian, as: UInt64.self)
    unsafe target.storeBytes(of: decimalDigits(id / 100_000_000), toByteOffset: 6, as: UInt64.self)
    unsafe target.storeBytes(of: decimalDigits(id % 100_000_000), toByteOffset: 14, as: UInt64.self)
    unsafe target.storeBytes(of: UInt64(0x203a_6174_6164_0a).littleEndian, toByteOffset: 22, as: UInt64.self)
    unsafe data.withUnsafeBytes {
      if let start = $0.baseAddress { unsafe (target + 29).copyMemory(from: start, byteCount: $0.count) }
    }
    // "\n\n\r\n"
    unsafe target.storeBytes(of: UInt32(0x0a0d_0a0a).littleEndian, toByteOffset: 29 + data.count, as: UInt32.self)
    return true
  }

  /// Writes a marker, which shows that a client has all events up to the head's id: in an envelope, or as an event
  /// without data of its own. Raw events have no place for it.
  public func writeMarker(_ head: EventHead, to writer: inout ByteWriter) {
    switch format {
    case .raw: return
    case .serverSentEvents:
      var event = head
      event.name = "caught-up"
      writePrefix(event, to: &writer)
    case .jsonSequence: writer.append(0x1e)
    case .ndjson, .message: break
    }
    writer.append("{")
    writeMembers(head, to: &writer)
    switch format {
    case .serverSentEvents: writer.append("\"}\n\n")
    case .message: writer.append("\",\"caught_up\":true}")
    case .ndjson, .jsonSequence, .raw: writer.append("\",\"caught_up\":true}\n")
    }
  }

  /// The digit for the lowest four bits.
  private static func hexadecimalDigit(_ number: Int) -> UInt8 {
    let digit = UInt8(truncatingIfNeeded: number & 15)
    return digit + (digit < 10 ? UInt8(ascii: "0") : UInt8(ascii: "a") - 10)
  }

  /// The eight digits of a number below 10^8, the first one in the lowest byte: halves, quarters and then single digits
  /// are divided at once, each in its part of a word.
  private static func decimalDigits(_ number: UInt64) -> UInt64 {
    let fours = number / 10_000 | (number % 10_000) << 32
    // Multiplied by 2^20/100 and 2^10/10, rounded up: exact for four and two digits.
    let hundreds = (fours &* 10_486) >> 20 & 0x0000_007f_0000_007f
    let twos = hundreds | (fours &- hundreds &* 100) << 16
    let tens = (twos &* 103) >> 10 & 0x000f_000f_000f_000f
    let ones = tens | (twos &- tens &* 10) << 8
    return (ones | 0x3030_3030_3030_3030).littleEndian
  }

  /// Data up to this size is written in one pass, if the room suffices for its largest expansion.
  private static let smallByteCount = 1024
  /// A line end becomes 7 bytes; a control character in a JSON string 6.
  private static let largestExpansion = 7
  /// The prefix of a server-sent event with an id and without a name.
  private static let usualPrefixByteCount = 32

  private func writePrefix(_ head: EventHead, to writer: inout ByteWriter) {
    switch format {
    case .serverSentEvents where hasEnvelope: writer.append("data: ")
    case .serverSentEvents:
      if let position = head.position, position.isEmpty {
        // The client keeps the position that it has.
      } else if let position = head.position {
        writer.append("id: ")
        writer.append(singleLine: position)
        writer.append(.lineFeed)
      } else if let id = head.id {
        writer.append("id: ")
        writer.append(decimal: id)
        writer.append(.lineFeed)
      }
      if let name = head.name {
        writer.append("event: ")
        writer.append(singleLine: name)
        writer.append(.lineFeed)
      }
      writer.append("data: ")
    case .jsonSequence:
      writer.append(0x1e)
      writeEnvelope(head, to: &writer)
    case .ndjson: writeEnvelope(head, to: &writer)
    case .message where hasEnvelope: writeEnvelope(head, to: &writer)
    case .raw, .message: break
    }
  }

  /// Writes the bytes before the data: the beginning of an envelope, or the quote of a string.
  private func writeEnvelope(_ head: EventHead, to writer: inout ByteWriter) {
    guard hasEnvelope else {
      if content == .text { writer.append(.quote) }
      return
    }
    writer.append("{")
    writeMembers(head, to: &writer)
    switch content {
    case .json: writer.append("\",\"data\":")
    case .text: writer.append("\",\"data\":\"")
    case .binary: writer.append("\",\"data_base64\":\"")
    }
  }

  /// Writes the name, the id and the time, without the quote after it.
  private func writeMembers(_ head: EventHead, to writer: inout ByteWriter) {
    if let name = head.name {
      writer.append("\"stream\":")
      writer.append(quoted: name)
      writer.append(.comma)
    }
    writer.append("\"id\":")
    if let id = head.id { writer.append(decimal: id) } else { writer.append("null") }
    if format != .serverSentEvents, let position = head.position {
      writer.append(",\"position\":")
      writer.append(position.isEmpty ? "null" : position)
    }
    writer.append(",\"time\":\"")
    CivilTime(secondsSinceEpoch: head.microsecondsSinceEpoch / 1_000_000)
      .writeRFC3339(microseconds: head.microsecondsSinceEpoch % 1_000_000, to: &writer)
  }

  /// Writes the data of an upstream's event, or the next part of it. Parameters and result are those of `write`.
  private func write(
    _ event: RelayedEvent, _ data: Span<UInt8>, from offset: Int, to writer: inout ByteWriter
  ) -> Int? {
    let content = data.extracting(event.data)
    let start = writer.count
    if offset == 0 {
      var counter = ByteWriter()
      event.writePrefix(to: &counter)
      guard counter.count + 2 <= writer.room else { return nil }
      event.writePrefix(to: &writer)
    }
    guard writer.room >= 2 else { return nil }
    let from = max(0, offset - event.data.lowerBound)
    let next = writer.append(lines: content, from: from, reserving: 2)
    guard next > from || content.isEmpty else {
      writer.truncate(to: start)
      return nil
    }
    guard next == content.count else { return event.data.lowerBound + next }
    writer.append("\n\n")
    return data.count
  }

  private func suffix(of data: Span<UInt8>) -> String {
    switch (format, hasEnvelope, content) {
    case (.serverSentEvents, _, _): "\n\n"
    case (.raw, _, .binary), (.message, false, _): ""
    case (.raw, _, _): !data.isEmpty && data[data.count - 1] == .lineFeed ? "" : "\n"
    case (.ndjson, false, .text), (.jsonSequence, false, .text): "\"\n"
    case (.ndjson, false, _), (.jsonSequence, false, _): "\n"
    case (.ndjson, true, .json), (.jsonSequence, true, .json): "}\n"
    case (.ndjson, true, .text), (.jsonSequence, true, .text), (.ndjson, true, .binary), (.jsonSequence, true, .binary):
      "\"}\n"
    case (.message, true, .json): "}"
    case (.message, true, .text), (.message, true, .binary): "\"}"
    }
  }

  private func writeData(
    _ data: Span<UInt8>, from offset: Int, reserving reserve: Int, to writer: inout ByteWriter
  ) -> Int {
    switch (format, content) {
    case (.serverSentEvents, _): return writer.append(lines: data, from: offset, reserving: reserve)
    case (.ndjson, .json):
      return writer.append(replacing: .carriageReturn, .lineFeed, in: data, from: offset, reserving: reserve)
    // RS starts a text, and is not valid within one.
    case (.jsonSequence, .json):
      return writer.append(replacing: 0x1e, 0x1e, in: data, from: offset, reserving: reserve)
    case (.message, .text) where !hasEnvelope: return writer.append(text: data, from: offset, reserving: reserve)
    case (.ndjson, .text), (.jsonSequence, .text), (.message, .text):
      return writer.append(jsonString: data, from: offset, reserving: reserve)
    case (.message, .binary) where hasEnvelope, (.ndjson, .binary), (.jsonSequence, .binary):
      return writer.append(base64: data, from: offset, reserving: reserve)
    case (.raw, _), (.message, .json), (.message, .binary):
      let end = offset + min(data.count - offset, writer.room - reserve)
      writer.append(data.extracting(offset..<end))
      return end
    }
  }
}

/// An event as `{"event":"NAME","id":"…","data":…}`, where the id may be missing.
private struct RelayedEvent {
  let name: String
  /// Where its data is. Of a string without escapes, that is what it has between its quotes.
  let data: Range<Int>

  func writePrefix(to writer: inout ByteWriter) {
    if name != "message" {
      writer.append("event: ")
      writer.append(singleLine: name)
      writer.append(.lineFeed)
    }
    writer.append("data: ")
  }

  /// - Returns: nil for another text.
  init?(_ text: Span<UInt8>) {
    var place = 0
    func skip(_ bytes: String) -> Bool {
      let end = place + bytes.utf8.count
      guard end <= text.count else { return false }
      for (index, byte) in bytes.utf8.enumerated() where text[place + index] != byte { return false }
      place = end
      return true
    }
    /// The end of a string whose first quote is before `place`.
    func string() -> Range<Int>? {
      let start = place
      while place < text.count, text[place] != UInt8(ascii: "\"") { place += text[place] == UInt8(ascii: "\\") ? 2 : 1 }
      guard place < text.count else { return nil }
      place += 1
      return start..<place - 1
    }
    guard skip("{\"event\":\""), let name = string(), name.count <= 64 else { return nil }
    guard skip(",\"id\":\"") ? string() != nil : true, skip(",\"data\":"), place < text.count - 1 else { return nil }
    self.name = unsafe text.extracting(name).withUnsafeBytes { unsafe String(decoding: $0, as: UTF8.self) }
    let whole = place..<text.count - 1
    guard text[place] == UInt8(ascii: "\"") else {
      data = whole
      return
    }
    place += 1
    let content = string()
    let isPlain = content.map { content in content.allSatisfy { text[$0] != UInt8(ascii: "\\") } } == true
    data = isPlain ? content ?? whole : whole
  }
}

/// The parts of an event stream that are not events. Source: WHATWG HTML, "Server-sent events".
public enum ServerSentEvents {
  /// A comment, which shows that the connection is in use.
  public static let comment = ":\n\n"

  /// Sets the time after which a client connects again.
  public static func retry(milliseconds: Int) -> String { "retry: \(milliseconds)\n\n" }

  /// The last event of a response that the server ends.
  ///
  /// - Parameters:
  ///   - reason: one sentence.
  ///   - type: a URI for it, as that of a ``Problem``; nil: the response has all that was asked for.
  public static func end(reason: String, type: String? = nil) -> String {
    var bytes: [UInt8] = []
    ByteWriter.append(to: &bytes) {
      $0.append("event: end\ndata: {\"reason\":")
      $0.append(quoted: reason)
      if let type {
        $0.append(",\"type\":")
        $0.append(quoted: type)
      }
      $0.append("}\n\n")
    }
    return String(decoding: bytes, as: UTF8.self)
  }
}
