import HTTP
import RSocket
import ReplayLog
import StreamProtocol

/// The encoding of a subscription's events. Subscriptions of equal format share a block.
///
/// Two bytes, because every subscription has one.
struct EventFormat: Equatable {
  /// The form of an event in the connection's output.
  enum Encoding: Equatable {
    /// PAYLOAD frames.
    case rsocket
    /// PAYLOAD frames, each in a binary message.
    case webSocket
    /// A part of a response's body, or a message of a WebSocket.
    case body(EventEncoding, BodyCoding)
    /// No bytes: the connection is notified of the first event, and makes the answer itself.
    case notice
    /// Nothing: the client reads them in the stream's map.
    case map

    var isNotice: Bool { self == .notice }
  }

  /// The division of a streaming response's body. An event is a message of a WebSocket if its encoding says so.
  struct BodyCoding: Equatable {
    /// Whether each event is a chunk; otherwise the connection's end is the end of the body.
    var isChunked: Bool
    /// Whether the response has several streams: each event then carries the name of its stream.
    var isNamed: Bool
  }

  /// In formats of responses: 0x80, chunked 0x40, named 0x20, envelope 0x10, content (2 bits), format (2 bits); in those of
  /// messages `messageCode`, and the content in the lowest 2 bits. Otherwise the place in `frameEncodings`.
  private let code: UInt8
  private let flags: UInt8

  /// In the place of the content.
  private static let messageCode: UInt8 = 0x0C

  private static let frameEncodings: [Encoding] = [.rsocket, .webSocket, .notice, .map]

  /// - Parameters:
  ///   - counts: each payload has the number of events that were left out before it.
  ///   - hasKind: each payload has its kind.
  ///   - hasName: each payload has the name of its stream, and the position to resume from.
  init(
    _ encoding: Encoding = .rsocket, ids: Bool, completes: Bool, counts: Bool = false, hasKind: Bool = false,
    hasName: Bool = false
  ) {
    flags = (ids ? 1 : 0) | (completes ? 2 : 0) | (counts ? 4 : 0) | (hasKind ? 8 : 0) | (hasName ? 16 : 0)
    switch encoding {
    case .rsocket: code = 0
    case .webSocket: code = 1
    case .notice: code = 2
    case .map: code = 3
    case .body(let encoding, let coding):
      code =
        0x80 | (coding.isChunked ? 0x40 : 0) | (coding.isNamed ? 0x20 : 0) | (encoding.hasEnvelope ? 0x10 : 0)
        | (encoding.format == .message
          ? Self.messageCode | encoding.content.rawValue : encoding.content.rawValue << 2 | encoding.format.rawValue)
    }
  }

  /// - Parameter code: a value of ``savedEncoding``.
  /// - Returns: nil for a code that no server saves.
  init?(savedEncoding code: UInt8, ids: Bool, completes: Bool, counts: Bool = false, hasKind: Bool = false) {
    let saved = EventFormat(code: code, flags: 0)
    guard saved.isBody ? saved.body != nil : code <= 1 || code == 3 else { return nil }
    // Several codes may mean the same.
    self.init(saved.encoding, ids: ids, completes: completes, counts: counts, hasKind: hasKind)
  }

  /// The format of a member of a pattern.
  func with(names: Bool) -> EventFormat { EventFormat(code: code, flags: names ? flags | 16 : flags) }

  private init(code: UInt8, flags: UInt8) { (self.code, self.flags) = (code, flags) }

  /// Whether each event has its id and time.
  var ids: Bool { flags & 1 != 0 }
  /// Whether the first event also completes the request.
  var completes: Bool { flags & 2 != 0 }
  /// Whether each payload has the number of events that were left out before it.
  var counts: Bool { flags & 4 != 0 }
  /// Whether each payload has its kind: of an event, or of a marker.
  var hasKind: Bool { flags & 8 != 0 }
  /// Whether each payload has the name of its stream, and the position to resume from.
  var hasName: Bool { flags & 16 != 0 }
  /// Whether each event has its id and time and nothing else.
  var isPlain: Bool { flags == 1 }
  /// Whether events are part of a response or messages of a WebSocket, whose credit is the space in the socket.
  var isBody: Bool { code & 0x80 != 0 }
  var isNamed: Bool { code & 0xA0 == 0xA0 }
  var isNotice: Bool { code == 2 }
  /// Whether no event is sent.
  var isMap: Bool { code == 3 }
  /// The index of the encoding's block among the blocks of a worker, below `encodingCount`.
  var encodingIndex: Int { Int(code) }
  /// The number of the encoding in the record of a connection that is handed over.
  var savedEncoding: UInt8 { code }

  static let encodingCount = 256

  private var body: EventEncoding? {
    let isMessage = code & Self.messageCode == Self.messageCode
    guard isBody, let format = isMessage ? .message : EventEncoding.Format(rawValue: code & 3),
      let content = EventEncoding.Content(rawValue: (isMessage ? code : code >> 2) & 3)
    else { return nil }
    if format == .serverSentEvents, code & 0x10 != 0 { return content == .json ? .relayedWithNames : .relayed }
    return EventEncoding(format, content, hasEnvelope: code & 0x10 != 0)
  }

  var encoding: Encoding {
    if let body { return .body(body, BodyCoding(isChunked: code & 0x40 != 0, isNamed: isNamed)) }
    return Self.frameEncodings[min(Int(code), 3)]
  }
}

/// The request of a subscription within its connection: the protocol's number.
struct RequestID: Hashable, Comparable {
  let rawValue: UInt32
  init(_ rawValue: UInt32) { self.rawValue = rawValue }
  static func < (one: RequestID, other: RequestID) -> Bool { one.rawValue < other.rawValue }
}

/// The label of an event in a response with several streams.
struct EventLabel: Equatable {
  /// The name of the stream.
  let name: String
  /// The positions in the other streams. The id of the event between them makes the position of a client that has
  /// received the event.
  var before = ""
  var after = ""
  /// The time to resume from, of an event of a pattern.
  var position: PatternPosition?
}

/// Writes the events of one format.
struct EventWriter {
  /// One frame, message or chunk: an event, or a part of a large one.
  struct Piece {
    /// The bytes of the piece, including everything around the data.
    let byteCount: Int
    /// Bytes of the event's data.
    let dataByteCount: Int
    /// Whether another piece of the same event follows.
    let follows: Bool
  }

  /// Maximum bytes of a piece.
  static let maximumPieceBytes = PayloadFrame.maximumContentByteCount + 4096

  private let format: EventFormat
  private let encoding: EventFormat.Encoding
  private let label: EventLabel?
  /// What each event is examined for: one that is not that is written in another form. Nil: none is.
  let required: EventEncoding.Content?

  init(_ format: EventFormat, _ label: EventLabel? = nil) {
    (self.format, encoding, self.label) = (format, format.encoding, label)
    required = if case .body(let body, _) = encoding { body.required } else { nil }
  }

  /// The notes before an event, for one subscription.
  struct Before: Equatable {
    /// The gap that the piece reports; `.none`: no report.
    var gap = Gap.none
    /// The number of events that the filter left out.
    var leftOut: UInt64 = 0
    /// The time to resume from after the event, of a pattern; 0: none.
    var position: UInt64 = 0
  }

  /// Writes the next piece of an event.
  ///
  /// - Parameters:
  ///   - record: id and time, 8 bytes each, then the data.
  ///   - offset: data bytes in earlier pieces.
  ///   - isOther: whether the event is not as required.
  ///   - piece: space for ``maximumPieceBytes``.
  @inline(__always)
  func write(
    _ record: UnsafeRawBufferPointer, from offset: Int, _ before: Before, isOther: Bool, for request: RequestID,
    at piece: UnsafeMutableRawPointer
  ) -> Piece {
    switch encoding {
    case .rsocket: unsafe writeFrame(record, from: offset, before, for: request, at: piece)
    case .webSocket: unsafe writeMessage(record, from: offset, before, for: request, at: piece)
    case .body(let body, let coding):
      unsafe write(record, from: offset, before, as: isOther ? body.ofOther : body, coding, at: piece)
    case .notice, .map: preconditionFailure("no bytes are written for it")
    }
  }

  /// Whether an event without notes that is at most ``maximumPlainByteCount`` long is a plain frame, which has its id, its
  /// time and its data.
  var isPlain: Bool { encoding == .rsocket && format.isPlain }

  /// Maximum bytes of the record of a plain frame.
  static var maximumPlainByteCount: Int { PayloadFrame.maximumContentByteCount }

  /// Writes a plain frame.
  /// - Returns: its size.
  @inline(__always) static func writePlain(
    _ record: UnsafeRawBufferPointer, for request: RequestID, at piece: UnsafeMutableRawPointer
  ) -> Int {
    let header = unsafe PayloadFrame.writeHeader(
      StreamID(request), .next, metadataByteCount: EventLog.stampBytes,
      dataByteCount: record.count - EventLog.stampBytes, at: piece)
    unsafe (piece + header).copyMemory(from: record.baseAddress!, byteCount: record.count)
    return header + record.count
  }

  /// Writes a marker.
  ///
  /// - Parameters:
  ///   - stamp: id and time, 8 bytes each.
  ///   - position: the id before the next event. If ids were skipped, the newest event has a lower id.
  ///   - piece: as above.
  func writeMarker(
    _ stamp: UnsafeRawBufferPointer, _ before: Before, upTo position: UInt64, for request: RequestID,
    at piece: UnsafeMutableRawPointer
  ) -> Piece {
    switch encoding {
    case .rsocket: return unsafe writeFrame(stamp, from: 0, before, isMarker: true, for: request, at: piece)
    case .webSocket: return unsafe writeMessage(stamp, from: 0, before, isMarker: true, for: request, at: piece)
    case .body(let body, let coding):
      var head = unsafe head(of: stamp)
      var writer = unsafe ByteWriter(UnsafeMutableRawBufferPointer(start: piece, count: Self.maximumPieceBytes))
      if body.format == .serverSentEvents {
        head.position = "\(label?.before ?? "")\(position)\(label?.after ?? "")"
      }
      if before.gap != .none, body.reportsGaps { Self.write(before.gap, label, body, coding, to: &writer) }
      Self.writePart(body, coding, to: &writer) { body.writeMarker(head, to: &$0) }
      return Piece(byteCount: writer.count, dataByteCount: 0, follows: false)
    case .notice, .map: preconditionFailure("no bytes are written for it")
    }
  }

  private func writeFrame(
    _ record: UnsafeRawBufferPointer, from offset: Int, _ before: Before, isMarker: Bool = false,
    for request: RequestID, at piece: UnsafeMutableRawPointer
  ) -> Piece {
    let stamp = offset == 0 && format.ids ? EventLog.stampBytes : 0
    // After the stamp: the number of events left out, a gap, and the kind.
    let gapBytes = stamp > 0 && (before.gap != .none || format.hasName) ? EventStamp.gapByteCount : 0
    let countBytes = stamp > 0 && format.counts ? EventStamp.gapByteCount : 0
    let kindBytes = stamp > 0 && format.hasKind ? 1 : 0
    let nameBytes = stamp > 0 && format.hasName ? EventStamp.namePrefixByteCount + (label?.name.utf8.count ?? 0) : 0
    let noteBytes = countBytes + gapBytes + kindBytes + nameBytes
    let left = record.count - EventLog.stampBytes - offset
    let count = min(left, PayloadFrame.maximumContentByteCount - stamp - noteBytes)
    let follows = count < left
    var flags = FrameFlags.next
    if follows { flags.insert(.follows) }
    if format.completes, !follows { flags.insert(.complete) }
    let header = unsafe PayloadFrame.writeHeader(
      StreamID(request), flags, metadataByteCount: stamp > 0 ? stamp + noteBytes : nil, dataByteCount: count,
      at: piece)
    let source = unsafe record.baseAddress! + EventLog.stampBytes + offset - stamp
    if noteBytes == 0 {
      unsafe (piece + header).copyMemory(from: source, byteCount: stamp + count)
    } else {
      unsafe (piece + header).copyMemory(from: source, byteCount: stamp)
      let notes = unsafe piece + header + stamp
      if countBytes > 0 { unsafe notes.storeBytes(of: before.leftOut.bigEndian, as: UInt64.self) }
      if gapBytes > 0 {
        unsafe notes.storeBytes(of: before.gap.count.bigEndian, toByteOffset: countBytes, as: UInt64.self)
      }
      if format.hasKind {
        let kind = isMarker ? EventStamp.Kind.marker : .event
        unsafe notes.storeBytes(of: kind.rawValue, toByteOffset: countBytes + gapBytes, as: UInt8.self)
      }
      if nameBytes > 0 { unsafe writeName(before.position, at: notes + countBytes + gapBytes + kindBytes) }
      unsafe (notes + noteBytes).copyMemory(from: source + stamp, byteCount: count)
    }
    return Piece(byteCount: header + stamp + noteBytes + count, dataByteCount: count, follows: follows)
  }

  private func writeName(_ position: UInt64, at start: UnsafeMutableRawPointer) {
    let name = label?.name ?? ""
    unsafe start.storeBytes(of: position.bigEndian, as: UInt64.self)
    unsafe start.storeBytes(of: UInt8(clamping: name.utf8.count), toByteOffset: 8, as: UInt8.self)
    var target = unsafe start + EventStamp.namePrefixByteCount
    for byte in name.utf8 {
      unsafe target.storeBytes(of: byte, as: UInt8.self)
      unsafe target += 1
    }
  }

  /// Writes the frame as a message. The message's length replaces that of the frame.
  private func writeMessage(
    _ record: UnsafeRawBufferPointer, from offset: Int, _ before: Before, isMarker: Bool = false,
    for request: RequestID, at piece: UnsafeMutableRawPointer
  ) -> Piece {
    let frame = unsafe piece + WebSocketFrame.maximumHeaderByteCount
    let written = unsafe writeFrame(record, from: offset, before, isMarker: isMarker, for: request, at: frame)
    let messageByteCount = written.byteCount - PayloadFrame.lengthByteCount
    var writer = unsafe ByteWriter(
      UnsafeMutableRawBufferPointer(start: piece, count: WebSocketFrame.maximumHeaderByteCount))
    WebSocketFrame.writeHeader(messageByteCount: messageByteCount, to: &writer)
    unsafe (piece + writer.count).copyMemory(from: frame + PayloadFrame.lengthByteCount, byteCount: messageByteCount)
    return Piece(
      byteCount: writer.count + messageByteCount, dataByteCount: written.dataByteCount, follows: written.follows)
  }

  private func write(
    _ record: UnsafeRawBufferPointer, from offset: Int, _ before: Before, as body: EventEncoding,
    _ coding: EventFormat.BodyCoding, at piece: UnsafeMutableRawPointer
  ) -> Piece {
    let data = unsafe UnsafeRawBufferPointer(rebasing: record[EventLog.stampBytes...]).bindMemory(to: UInt8.self)
    var writer = unsafe ByteWriter(UnsafeMutableRawBufferPointer(start: piece, count: Self.maximumPieceBytes))
    var head = unsafe head(of: record)
    if label?.position != nil {
      head.position = before.position > 0 ? String(before.position) : ""
    } else if let label, let id = head.id, body.format == .serverSentEvents {
      head.position = "\(label.before)\(id)\(label.after)"
    }
    if offset == 0, before.gap != .none, body.reportsGaps { Self.write(before.gap, label, body, coding, to: &writer) }
    let next =
      unsafe body.format == .message
      ? body.writeFrame(head, data.span, from: offset, to: &writer)
      : coding.isChunked
        ? body.writeChunk(head, data.span, from: offset, to: &writer)
        : body.write(head, data.span, from: offset, to: &writer)
    guard let next else { preconditionFailure("a piece has no room for event \(head)") }
    return Piece(byteCount: writer.count, dataByteCount: next - offset, follows: next < data.count)
  }

  private func head(of record: UnsafeRawBufferPointer) -> EventHead {
    let id = UInt64(bigEndian: unsafe record.loadUnaligned(as: UInt64.self))
    return EventHead(id: id, name: label?.name, microsecondsSinceEpoch: unsafe Self.time(of: record))
  }

  /// The time of an event, in microseconds since the Unix epoch.
  static func time(of record: UnsafeRawBufferPointer) -> UInt64 {
    UInt64(bigEndian: unsafe record.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
  }

  /// Writes a report of missing events, as an event or a message of its own.
  private static func write(
    _ gap: Gap, _ label: EventLabel?, _ body: EventEncoding, _ coding: EventFormat.BodyCoding,
    to writer: inout ByteWriter
  ) {
    writePart(body, coding, to: &writer) { writer in
      let isEvent = body.format == .serverSentEvents
      writer.append(isEvent ? "event: gap\ndata: {\"lost\":" : "{\"lost\":")
      if gap == .unknown { writer.append("null") } else { writer.append(decimal: gap.count) }
      if let label {
        writer.append(",\"stream\":")
        writer.append(quoted: label.name)
      }
      writer.append(isEvent ? "}\n\n" : "}")
    }
  }

  /// Writes a part of the response that is no event: as a chunk, a message, or as it is.
  /// - Parameter write: it may be called twice, and the first call only counts.
  private static func writePart(
    _ body: EventEncoding, _ coding: EventFormat.BodyCoding, to writer: inout ByteWriter,
    _ write: (inout ByteWriter) -> Void
  ) {
    guard body.format != .message else { return WebSocketFrame.writeText(to: &writer, write) }
    if coding.isChunked {
      var counter = ByteWriter()
      write(&counter)
      Chunk.writeHeader(byteCount: counter.count, to: &writer)
    }
    write(&writer)
    if coding.isChunked { Chunk.writeEnd(to: &writer) }
  }
}

extension EventEncoding {
  /// Whether a report precedes an event before which events are missing.
  fileprivate var reportsGaps: Bool { format == .serverSentEvents || format == .message && hasEnvelope }
}

extension EventFormat {
  /// Sets the request of the piece at `start`.
  func address(_ start: UnsafeMutableRawPointer, to request: RequestID) {
    switch code {
    case 0: unsafe PayloadFrame.setStreamID(StreamID(request), at: start)
    case 1:
      let length = unsafe start.load(fromByteOffset: 1, as: UInt8.self)
      let header = length < 126 ? 2 : length == 126 ? 4 : 10
      unsafe PayloadFrame.setStreamID(StreamID(request), at: start + header - PayloadFrame.lengthByteCount)
    case _: break  // a response answers its connection's only request
    }
  }
}
