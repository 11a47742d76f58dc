import Events

/// The position of a source when its last process ended, from the stream's log.
public struct SourceResumption: Sendable {
  /// Returns the log's checkpoint, whose events are in the log. Called on the source thread, at a subscription's first
  /// demand; for a timer on any thread, at its first tick.
  private let stored: @Sendable () -> Checkpoint?
  /// Text that identifies the pipeline: with a different pipeline, an unchanged page counts as new.
  let pipeline: String

  /// Resumes from the result of `checkpoint`.
  public init(pipeline: String = "", checkpoint: @escaping @Sendable () -> Checkpoint?) {
    (self.pipeline, stored) = (pipeline, checkpoint)
  }

  /// The checkpoint of the source.
  package func checkpoint() -> Checkpoint? { PipelineCheckpoint(stored()).source }

  /// The digest of the last event's key.
  func key() -> BodyDigest? { PipelineCheckpoint(stored()).key }
}

/// A source's position, and the source to which it belongs.
///
/// Encoding: u8 version, u64 fingerprint of the source (little endian, like all numbers), u8 kind, then for a poll (1):
/// u64 digest of the last page or output, entity tag, last modification; with a cursor (6) the same, u8 1 for a number and
/// 0 for a text, position; for server-sent events (2): u64 reconnection time in
/// milliseconds, last event id; for a timer (3): u64 last tick; for a journal (4): cursor of the last entry; for
/// another streamd (5): u64 last id. Texts are u16 count and bytes. Contains no credential, and no URL except a link's path
/// and query without what the configuration adds; the fingerprint includes no credential.
enum SourcePosition: Equatable {
  /// - validators: nil also if they came from another URL than the source's.
  /// - position: that of the next request.
  case poll(BodyDigest, entityTag: FieldValue?, lastModified: FieldValue?, position: HTTPCursor.Position? = nil)
  case serverSentEvents(lastEventID: [UInt8], reconnectionTime: Duration?)
  case timer(lastTick: UInt64)
  case journal(cursor: [UInt8])
  case peer(lastID: UInt64)

  private static let version: UInt8 = 1

  func checkpoint(_ fingerprint: BodyDigest) -> Checkpoint? {
    var bytes = [Self.version]
    bytes.append(number: fingerprint.value)
    switch self {
    case .poll(let digest, let entityTag, let lastModified, let position):
      bytes.append(position == nil ? 1 : 6)
      bytes.append(number: digest.value)
      bytes.append(text: entityTag?.bytes ?? [])
      bytes.append(text: lastModified?.bytes ?? [])
      if let position {
        bytes.append(position.isNumber ? 1 : 0)
        bytes.append(text: Array(position.text.utf8))
      }
    case .serverSentEvents(let lastEventID, let time):
      bytes.append(2)
      bytes.append(number: UInt64(time?.wholeMilliseconds ?? 0))
      bytes.append(text: lastEventID)
    case .timer(let tick):
      bytes.append(3)
      bytes.append(number: tick)
    case .journal(let cursor):
      bytes.append(4)
      bytes.append(text: cursor)
    case .peer(let id):
      bytes.append(5)
      bytes.append(number: id)
    }
    return Checkpoint(bytes)
  }

  /// - Returns: nil for another source's or version's checkpoint, and for a damaged one.
  init?(_ checkpoint: Checkpoint, _ fingerprint: BodyDigest) {
    var rest = checkpoint.bytes[...]
    guard rest.popFirst() == Self.version, rest.takeNumber() == fingerprint.value, let kind = rest.popFirst() else {
      return nil
    }
    switch kind {
    case 1, 6:
      guard let digest = rest.takeNumber(), let entityTag = rest.takeFieldValue(),
        let lastModified = rest.takeFieldValue()
      else { return nil }
      let position = kind == 6 ? rest.takePosition() : nil
      guard rest.isEmpty, kind == 1 || position != nil else { return nil }
      self = .poll(
        BodyDigest(value: digest), entityTag: entityTag.bytes.isEmpty ? nil : entityTag,
        lastModified: lastModified.bytes.isEmpty ? nil : lastModified, position: position)
    case 2:
      guard let time = rest.takeNumber(), let id = rest.takeText(), id.count <= ServerSentEventSplitter.longestID,
        rest.isEmpty
      else {
        return nil
      }
      self = .serverSentEvents(
        lastEventID: id, reconnectionTime: time == 0 ? nil : .milliseconds(Int64(clamping: time)))
    case 3:
      guard let tick = rest.takeNumber(), rest.isEmpty else { return nil }
      self = .timer(lastTick: tick)
    case 4:
      guard let cursor = rest.takeText(), cursor.count <= JournalMessage.cursorLimit, rest.isEmpty else { return nil }
      self = .journal(cursor: cursor)
    case 5:
      guard let id = rest.takeNumber(), rest.isEmpty else { return nil }
      self = .peer(lastID: id)
    default: return nil
    }
  }
}

extension HTTPConfiguration {
  /// A digest of everything that a position depends on; a position is valid only with the same fingerprint.
  ///
  /// - Parameter more: further parts, besides the request and its URL.
  func fingerprint(_ more: [String]) -> BodyDigest {
    BodyDigest(parts: [urlName ?? url, unixSocket ?? ""] + query.map(\.name) + [""] + more)
  }

  /// The same for the position of a cursor, which stays valid with other parameters, bodies and pipelines.
  func fingerprint(of cursor: HTTPCursor) -> BodyDigest {
    BodyDigest(parts: ["cursor", urlName ?? url, unixSocket ?? "", method.rawValue] + cursor.definition)
  }
}

extension [UInt8] {
  fileprivate mutating func append(number: UInt64) {
    unsafe Swift.withUnsafeBytes(of: number.littleEndian) { unsafe append(contentsOf: $0) }
  }

  fileprivate mutating func append(text: [UInt8]) {
    unsafe Swift.withUnsafeBytes(of: UInt16(text.count).littleEndian) { unsafe append(contentsOf: $0) }
    append(contentsOf: text)
  }
}

extension ArraySlice<UInt8> {
  fileprivate mutating func takeNumber() -> UInt64? {
    guard count >= 8 else { return nil }
    defer { removeFirst(8) }
    return prefix(8).reversed().reduce(0) { $0 << 8 | UInt64($1) }
  }

  fileprivate mutating func takeText() -> [UInt8]? {
    guard count >= 2 else { return nil }
    let length = Int(self[startIndex]) | Int(self[startIndex + 1]) << 8
    removeFirst(2)
    guard count >= length else { return nil }
    defer { removeFirst(length) }
    return Array(prefix(length))
  }

  /// The position of a cursor, up to the end.
  fileprivate mutating func takePosition() -> HTTPCursor.Position? {
    guard let form = popFirst(), form <= 1, let bytes = takeText(), bytes.count <= HTTPCursor.Position.limit,
      let text = String(validating: bytes, as: UTF8.self), !text.isEmpty
    else { return nil }
    return HTTPCursor.Position(text, isNumber: form == 1)
  }

  /// A text that is valid as a header's value.
  fileprivate mutating func takeFieldValue() -> FieldValue? {
    guard let value = takeText().map({ FieldValue($0) }), value.bytes.count <= Validators.limit, value.isValid else {
      return nil
    }
    return value
  }
}
