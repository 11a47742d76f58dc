import FoundationEssentials

/// How a response gives events.
enum EventStreamFormat: String {
  case events = "sse"
  case lines = "ndjson"
  case sequence = "json-seq"
  case raw
  /// Messages of a WebSocket.
  case message

  var mediaType: String {
    switch self {
    case .events: "text/event-stream"
    case .lines: "application/x-ndjson"
    case .sequence: "application/json-seq"
    case .raw, .message: "application/octet-stream"
    }
  }
}

/// What becomes of an event's bytes on their way to a client.
enum EventForm {
  case exact
  /// Every end of a line is a line feed, and what is not UTF-8 is replaced.
  case lines
  /// What is not UTF-8 is replaced.
  case text
  /// As ``text``, but a JSON text as it is; a string, which cannot be told from a text, without its quotes.
  case embedded

  func applied(to data: [UInt8]) -> [UInt8] {
    switch self {
    case .exact: return data
    case .lines:
      let data = Self.text.applied(to: data)
      guard data.contains(13) else { return data }
      var bytes: [UInt8] = []
      for (index, byte) in data.enumerated() where !(byte == 10 && index > 0 && data[index - 1] == 13) {
        bytes.append(byte == 13 ? 10 : byte)
      }
      return bytes
    case .text: return Array(String(decoding: data, as: UTF8.self).utf8)
    case .embedded:
      guard data.count > 1, data.first == 34, data.last == 34 else { return Self.text.applied(to: data) }
      return Array(data[1..<data.count - 1])
    }
  }
}

/// Divides the body of a streaming response into its events, strictly. It shares no code with the server.
struct EventReader {
  /// One event, or what else a format has.
  struct Item {
    var name: String?
    var id: String?
    var time: UInt64?
    var data: [UInt8]?
    var retry: Int?
    /// Whether it is no event, but shows that the client has all events.
    var isMarker = false
    /// The number of events that are missing before the next one; `.max`: it is unknown.
    var gap: UInt64?
    /// The place of its first byte in the connection.
    let place: Int
  }

  let format: EventStreamFormat
  private let hasEnvelope: Bool
  /// For each stream's name, whether its events are text.
  private let isText: [String: Bool]
  private let client: String
  private var buffer: [UInt8] = []
  private var place = 0
  private var searched = 0

  init(_ format: EventStreamFormat, hasEnvelope: Bool, isText: [String: Bool], client: String) {
    (self.format, self.hasEnvelope, self.isText, self.client) = (format, hasEnvelope, isText, client)
  }

  /// Whether no part of an event is there.
  var isEmpty: Bool { buffer.isEmpty }

  mutating func append(_ bytes: UnsafeRawBufferPointer, at place: Int) {
    if buffer.isEmpty { self.place = place }
    buffer += bytes
  }

  /// What a body without separators has since the last event.
  var rest: (bytes: [UInt8], place: Int) { (buffer, place) }

  mutating func drop() {
    buffer = []
    searched = 0
  }

  private func wants(_ condition: Bool, _ what: @autoclosure () -> String) {
    require(condition, "responses", "\(client) got \(what())")
  }

  /// - Returns: nil where more is needed.
  mutating func next() -> Item? {
    switch format {
    case .raw, .message: return nil
    case .events:
      guard let end = end(of: [10, 10]) else { return nil }
      return block(take(end), at: takePlace(end))
    case .lines, .sequence:
      guard let end = end(of: [10]) else { return nil }
      var bytes = take(end)[...]
      if format == .sequence {
        wants(bytes.first == 30, "a text of a sequence that begins with \(bytes.first ?? 0)")
        bytes = bytes.dropFirst()
      }
      bytes = bytes.dropLast()
      guard !hasEnvelope else { return envelope(bytes, at: takePlace(end)) }
      // What is no JSON text comes as a string.
      return Item(data: bytes.first == 34 ? string(bytes) : Array(bytes), place: takePlace(end))
    }
  }

  /// The whole of what is there.
  mutating func message() -> Item {
    let count = buffer.count
    return envelope(take(count)[...], at: takePlace(count))
  }

  private mutating func end(of mark: [UInt8]) -> Int? {
    var index = max(0, searched - mark.count)
    while index + mark.count <= buffer.count {
      if buffer[index] == mark[0], buffer[index + mark.count - 1] == 10 { return index + mark.count }
      index += 1
    }
    searched = buffer.count
    return nil
  }

  private mutating func take(_ count: Int) -> [UInt8] {
    let bytes = Array(buffer[..<count])
    buffer.removeFirst(count)
    searched = 0
    return bytes
  }

  /// The place of what was just taken.
  private mutating func takePlace(_ count: Int) -> Int {
    defer { place += count }
    return place
  }

  private func block(_ bytes: [UInt8], at place: Int) -> Item {
    var item = Item(place: place)
    for line in bytes.dropLast(2).split(separator: 10, omittingEmptySubsequences: false) where line.first != 58 {
      func value(_ field: String) -> ArraySlice<UInt8>? {
        line.starts(with: field.utf8) ? line.dropFirst(field.utf8.count) : nil
      }
      if let text = value("data: ") {
        item.data = item.data.map { $0 + [10] + text } ?? Array(text)
      } else if let text = value("id: ") {
        wants(item.id == nil, "an event with two ids")
        item.id = String(decoding: text, as: UTF8.self)
      } else if let text = value("event: ") {
        wants(item.name == nil, "an event with two names")
        item.name = String(decoding: text, as: UTF8.self)
      } else if let text = value("retry: ") {
        item.retry = Int(String(decoding: text, as: UTF8.self))
        wants(item.retry != nil, "a time that is no number")
      } else {
        wants(false, "the line \(String(decoding: line.prefix(80), as: UTF8.self)) among server-sent events")
      }
    }
    return item
  }

  /// `{"stream":"s0","id":1,"time":"2026-01-02T03:04:05.678901Z","data":…}`, or for a marker `"caught_up":true`
  private func envelope(_ bytes: ArraySlice<UInt8>, at place: Int) -> Item {
    var (rest, item) = (bytes, Item(place: place))
    func skip(_ text: String) -> Bool {
      guard rest.starts(with: text.utf8) else { return false }
      rest = rest.dropFirst(text.utf8.count)
      return true
    }
    func text(upTo end: String) -> String {
      let found = rest.prefix { $0 != end.utf8.first }
      rest = rest.dropFirst(found.count)
      wants(skip(end), "an envelope without \(end): \(String(decoding: bytes.prefix(100), as: UTF8.self))")
      return String(decoding: found, as: UTF8.self)
    }
    wants(skip("{") && rest.last == 125, "no envelope")
    if format == .message, skip("\"lost\":") {
      let count = String(decoding: rest.prefix { $0 != 44 && $0 != 125 }, as: UTF8.self)
      rest = rest.dropFirst(count.utf8.count)
      item.gap = count == "null" ? .max : UInt64(count)
      if skip(",\"stream\":\"") { item.name = text(upTo: "\"") }
      wants(item.gap != nil && rest.elementsEqual("}".utf8), "the gap \(String(decoding: bytes, as: UTF8.self))")
      return item
    }
    if skip("\"stream\":\"") { item.name = text(upTo: "\",") }
    wants(skip("\"id\":"), "an envelope without an id")
    item.id = text(upTo: ",\"time\":\"")
    item.time = Self.microseconds(text(upTo: "\","))
    wants(item.time != nil, "an envelope with a wrong time")
    rest = rest.dropLast()
    if skip("\"caught_up\":true") {
      item.isMarker = true
      item.data = []
      wants(rest.isEmpty, "a marker with something behind it")
    } else if skip("\"data_base64\":\"") {
      item.data = Data(base64Encoded: String(decoding: rest.dropLast(), as: UTF8.self)).map { Array($0) }
      wants(rest.last == 34 && item.data != nil, "data that are not base64")
    } else {
      wants(skip("\"data\":"), "an envelope without data")
      item.data = isText[item.name ?? isText.keys.first ?? ""] ?? false ? string(rest) : Array(rest)
    }
    return item
  }

  private func string(_ bytes: ArraySlice<UInt8>) -> [UInt8] {
    wants(bytes.count >= 2 && bytes.first == 34 && bytes.last == 34, "a text without quotes")
    var made: [UInt8] = []
    var rest = bytes.dropFirst().dropLast()
    while let byte = rest.popFirst() {
      guard byte == 92, let escape = rest.popFirst() else {
        made.append(byte)
        continue
      }
      switch escape {
      case UInt8(ascii: "n"): made.append(10)
      case UInt8(ascii: "r"): made.append(13)
      case UInt8(ascii: "t"): made.append(9)
      case UInt8(ascii: "u"):
        made.append(UInt8(String(decoding: rest.prefix(4), as: UTF8.self), radix: 16) ?? 0)
        rest = rest.dropFirst(4)
      default: made.append(escape)
      }
    }
    return made
  }

  /// Reads a time with microseconds in UTC, since the epoch.
  private static func microseconds(_ text: String) -> UInt64? {
    let numbers = text.split { !$0.isNumber }.compactMap { UInt64($0) }
    guard numbers.count == 7, text.utf8.count == 27, text.hasSuffix("Z") else { return nil }
    // Days since the first of March of the year 0, from Gauss's count of the days of months.
    let year = numbers[1] > 2 ? numbers[0] : numbers[0] - 1
    let month = (numbers[1] + 9) % 12
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (month * 306 + 5) / 10 + numbers[2] - 1
    let seconds = (days - 719_468) * 86_400 + numbers[3] * 3600 + numbers[4] * 60 + numbers[5]
    return seconds * 1_000_000 + numbers[6]
  }
}
