import Events

/// Where a source was when its process ended: what a stream's log has kept of it.
public struct SourceResumption: Sendable {
  /// What the log says now, of events that are in it. Called on the source thread, at a subscription's first demand.
  let checkpoint: @Sendable () -> Checkpoint?
  /// What makes events of what a poll fetches, as a text: after another one, a page is new that was seen before.
  let pipeline: String

  /// Resumes by what `checkpoint` gives.
  public init(pipeline: String = "", checkpoint: @escaping @Sendable () -> Checkpoint?) {
    (self.pipeline, self.checkpoint) = (pipeline, checkpoint)
  }
}

/// A source's position, and what it was a position in.
///
/// As bytes: u8 version, u64 fingerprint of the source (little endian, as all), u8 kind, then for a poll (1): u64 digest of
/// the last page, entity tag, last modification; for server-sent events (2): u64 reconnection time in milliseconds, last
/// event id. Texts are u16 count and bytes. Nothing secret is in it: no URL, and of what stands in the fingerprint no
/// credential.
enum SourcePosition: Equatable {
  /// - validators: nil also where they came from another place than the source's URL.
  case poll(BodyDigest, entityTag: String?, lastModified: String?)
  case serverSentEvents(lastEventID: [UInt8], reconnectionTime: Duration?)

  private static let version: UInt8 = 1

  func checkpoint(_ fingerprint: BodyDigest) -> Checkpoint? {
    var bytes = [Self.version]
    bytes.append(number: fingerprint.value)
    switch self {
    case .poll(let digest, let entityTag, let lastModified):
      bytes.append(1)
      bytes.append(number: digest.value)
      bytes.append(text: Array((entityTag ?? "").utf8))
      bytes.append(text: Array((lastModified ?? "").utf8))
    case .serverSentEvents(let lastEventID, let time):
      bytes.append(2)
      bytes.append(number: UInt64(time?.wholeMilliseconds ?? 0))
      bytes.append(text: lastEventID)
    }
    return Checkpoint(bytes)
  }

  /// - Returns: nil for another source's, another version's, and what is damaged.
  init?(_ checkpoint: Checkpoint, _ fingerprint: BodyDigest) {
    var rest = checkpoint.bytes[...]
    guard rest.popFirst() == Self.version, rest.takeNumber() == fingerprint.value, let kind = rest.popFirst() else {
      return nil
    }
    switch kind {
    case 1:
      guard let digest = rest.takeNumber(), let entityTag = rest.takeFieldValue(),
        let lastModified = rest.takeFieldValue(), rest.isEmpty
      else { return nil }
      self = .poll(
        BodyDigest(value: digest), entityTag: entityTag.isEmpty ? nil : entityTag,
        lastModified: lastModified.isEmpty ? nil : lastModified)
    case 2:
      guard let time = rest.takeNumber(), let id = rest.takeText(), id.count <= Validators.limit, rest.isEmpty else {
        return nil
      }
      self = .serverSentEvents(
        lastEventID: id, reconnectionTime: time == 0 ? nil : .milliseconds(Int64(clamping: time)))
    default: return nil
    }
  }
}

extension HTTPConfiguration {
  /// What a position depends on: other positions mean nothing here.
  ///
  /// - Parameter more: besides what is asked for, and of whom.
  func fingerprint(_ more: [String]) -> BodyDigest {
    let parts = [url, unixSocket ?? ""] + query.map(\.name) + [""] + more
    return BodyDigest(Array(parts.map { "\($0.utf8.count) \($0)" }.joined().utf8))
  }
}

extension [UInt8] {
  fileprivate mutating func append(number: UInt64) {
    Swift.withUnsafeBytes(of: number.littleEndian) { append(contentsOf: $0) }
  }

  fileprivate mutating func append(text: [UInt8]) {
    Swift.withUnsafeBytes(of: UInt16(text.count).littleEndian) { append(contentsOf: $0) }
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

  /// Fit to be a header's value.
  fileprivate mutating func takeFieldValue() -> String? {
    guard let text = takeText(), text.count <= Validators.limit,
      text.allSatisfy({ $0 == 0x09 || ($0 >= 0x20 && $0 != 0x7F) })
    else { return nil }
    return String(validating: text, as: UTF8.self)
  }
}
