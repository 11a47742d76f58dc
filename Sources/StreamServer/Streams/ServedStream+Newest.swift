import HTTP
import ReplayLog

/// The object of `$newest`. Source of the meanings: `docs/WIRE.md`, "System streams".
struct NewestSnapshot: Encodable {
  /// The newest event of one stream.
  struct Stream: Encodable {
    let name: String
    /// The size of its data.
    let bytes: Int
    /// The first characters of its data; nil if the stream's type is neither JSON nor text.
    var text: String?
    /// Whether more characters follow; nil: no.
    var isCut: Bool?

    enum CodingKeys: String, CodingKey {
      case name, bytes, text
      case isCut = "cut"
    }
  }

  /// The streams that have an event.
  let byStream: [Stream]

  enum CodingKeys: String, CodingKey {
    case byStream = "by_stream"
  }
}

extension NewestSnapshot.Stream {
  private static let mostCharacters = 60
  /// Has that many characters, unless the event has much white space.
  private static let mostBytes = 480

  /// - Parameter data: the event's, of which only the beginning is read.
  fileprivate init(name: String, isText: Bool, data: UnsafeRawBufferPointer) {
    (self.name, bytes) = (name, data.count)
    guard isText else { return }
    var (beginning, count, isAfterSpace) = (String.UnicodeScalarView(), 0, true)
    let isLong = bytes > Self.mostBytes
    for scalar in unsafe String(decoding: data.prefix(Self.mostBytes), as: UTF8.self).unicodeScalars {
      let isSpace = scalar.properties.isWhitespace
      defer { isAfterSpace = isSpace }
      guard !isSpace || !isAfterSpace else { continue }
      guard count < Self.mostCharacters else {
        (text, isCut) = (String(beginning), true)
        return
      }
      beginning.append(isSpace ? " " : scalar)
      count += 1
    }
    (text, isCut) = (String(beginning), isLong ? true : nil)
  }
}

extension ServedStream {
  /// How the newest event begins; nil: there is none.
  var newestBeginning: NewestSnapshot.Stream? {
    let content = EventEncoding.Content(ofType: configuration.type)
    return log.read { storage, _ in
      storage.dropExpired()
      guard storage.firstPosition < storage.endPosition else { return nil }
      let record = unsafe storage.record(at: storage.position(ofLast: 1))
      return unsafe .init(
        name: name, isText: content != .binary,
        data: UnsafeRawBufferPointer(rebasing: record[EventLog.stampBytes...]))
    }
  }
}
