import Events

/// The event made of a server-sent event.
public enum ServerSentEventForm: String, Sendable, CaseIterable {
  /// Its data, byte for byte.
  case data
  /// A JSON object: `event`, its name (by default `message`), `id`, the last event id if there is one, and `data`: its
  /// data unchanged if that is a JSON text, else as a string.
  case envelope
}

/// A complete parser of the event stream format. Source: WHATWG HTML, 9.2.6 "Interpreting an event stream".
///
/// An event is its data, or a JSON text with its name and id. The last event id and the reconnection time belong to the
/// connection. An id longer than `longestID` bytes is ignored.
struct ServerSentEventSplitter: EventSplitter {
  /// The Last-Event-ID for the next connection; empty: none. Set when an event ends.
  private(set) var lastEventID: [UInt8]
  /// The server's `retry`; nil: none.
  private(set) var reconnectionTime: Duration?
  /// Whether an id exceeded the limit: the one before it remains.
  private(set) var hasDroppedID = false

  /// Maximum bytes of an id, which is sent back with each reconnection: what servers commonly accept as one header field.
  static let longestID = 8 << 10
  /// Maximum reconnection time; a server that asks for more is contacted after this time.
  static let longestReconnectionTime = Duration.seconds(24 * 3600)

  /// Maximum data bytes of an event, and of any line.
  private let maximumBytes: Int
  private var line: [UInt8] = []
  private var data: [UInt8] = []
  private var hasData = false
  private var name: [UInt8] = []
  private let form: ServerSentEventForm
  private var nextID: [UInt8]
  /// The last byte was a CR: a following LF belongs to the same line end.
  private var isAfterCR = false
  private var isFirstLine = true
  /// The last line was empty: another one has no effect.
  private var isBetweenEvents = false

  /// - Parameter lastEventID: the id from the previous connection.
  init(maximumBytes: Int, form: ServerSentEventForm = .data, lastEventID: [UInt8] = []) {
    self.maximumBytes = maximumBytes
    self.form = form
    self.lastEventID = lastEventID
    nextID = lastEventID
  }

  mutating func split(_ bytes: UnsafeRawBufferPointer, into events: inout EventBatch) throws(EventTooLong) {
    var rest = unsafe bytes[...]
    while let first = unsafe rest.first {
      if isAfterCR, first == 0x0A { unsafe rest = unsafe rest.dropFirst() }
      isAfterCR = false
      let emptyBytes = unsafe emptyLines(rest)
      if emptyBytes > 0 {
        isAfterCR = unsafe rest[rest.startIndex + emptyBytes - 1] == 0x0D
        unsafe rest = unsafe rest.dropFirst(emptyBytes)
        continue
      }
      let piece = unsafe rest.prefix { $0 != 0x0A && $0 != 0x0D }
      guard unsafe line.count + piece.count <= maximumBytes + Self.longestFieldName else {
        throw EventTooLong(maximumBytes: maximumBytes)
      }
      unsafe rest = unsafe rest.dropFirst(piece.count)
      guard let end = unsafe rest.popFirst() else { return unsafe line.append(contentsOf: piece) }
      isAfterCR = end == 0x0D
      if line.isEmpty {
        try unsafe interpret(piece, into: &events)
      } else {
        unsafe line.append(contentsOf: piece)
        var whole = [UInt8]()
        swap(&whole, &line)
        try interpret(whole, into: &events)
        whole.empty()
        swap(&whole, &line)
      }
    }
  }

  /// The bytes of the empty lines at the beginning that have no effect, because they follow another one. They are found in
  /// one pass: a compressed response can have hundreds of millions.
  func emptyLines(_ bytes: Slice<UnsafeRawBufferPointer>) -> Int {
    guard isBetweenEvents, line.isEmpty else { return 0 }
    return unsafe (bytes.firstIndex { $0 != 0x0A && $0 != 0x0D } ?? bytes.endIndex) - bytes.startIndex
  }

  /// An event without its final empty line is discarded.
  mutating func end(into events: inout EventBatch) {}

  /// `event:`, `retry:` and the following space, with room for a byte order mark.
  private static let longestFieldName = 16

  private mutating func interpret(_ line: some Collection<UInt8>, into events: inout EventBatch) throws(EventTooLong) {
    let line = isFirstLine ? line.withoutByteOrderMark : line[...]
    isFirstLine = false
    isBetweenEvents = line.isEmpty
    guard !line.isEmpty else { return dispatch(into: &events) }
    let name = line.prefix { $0 != UInt8(ascii: ":") }
    var value = line[name.endIndex...].dropFirst()
    if value.first == UInt8(ascii: " ") { value = value.dropFirst() }
    try take(field: name, value: value)  // an empty name is a comment
  }

  private mutating func take(field: some Collection<UInt8>, value: some Collection<UInt8>) throws(EventTooLong) {
    if field.elementsEqual("data".utf8) {
      guard data.count + (hasData ? 1 : 0) + value.count <= maximumBytes else {
        throw EventTooLong(maximumBytes: maximumBytes)
      }
      if hasData { data.append(0x0A) }
      data.append(contentsOf: value)
      hasData = true
    } else if field.elementsEqual("event".utf8) {
      if form == .envelope { name = Array(value) }
    } else if field.elementsEqual("id".utf8) {
      guard !value.contains(0) else { return }
      if value.count > Self.longestID { hasDroppedID = true } else { nextID = Array(value) }
    } else if field.elementsEqual("retry".utf8) {
      guard !value.isEmpty, value.allSatisfy({ (0x30...0x39).contains($0) }) else { return }
      let milliseconds = Int64(String(decoding: value, as: UTF8.self))  // nil: more than any number
      let longest = Self.longestReconnectionTime
      reconnectionTime = min(milliseconds.map { .milliseconds($0) } ?? longest, longest)
    }
  }

  private mutating func dispatch(into events: inout EventBatch) {
    lastEventID = nextID
    defer { name.empty() }
    guard hasData else { return }
    // One empty data line makes an event, as in the standard's text: "data" alone appends a line feed, and only an
    // empty buffer makes no event.
    let text = String(validating: data, as: UTF8.self) == nil ? Array(String(decoding: data, as: UTF8.self).utf8) : data
    events.append(form == .envelope ? envelope(text) : text)
    data.empty()
    hasData = false
  }

  /// `{"event":"price","id":"7","data":{"eur":3}}`
  private func envelope(_ data: [UInt8]) -> [UInt8] {
    func string(_ bytes: [UInt8]) -> [UInt8] { Array(JSONScalar.quoted(String(decoding: bytes, as: UTF8.self)).utf8) }
    var bytes = Array(#"{"event":"#.utf8) + (name.isEmpty ? Array(#""message""#.utf8) : string(name))
    if !lastEventID.isEmpty { bytes += Array(#","id":"#.utf8) + string(lastEventID) }
    let embedded = JSONSyntax.holds(for: data.span) ? data : string(data)
    return bytes + Array(#","data":"#.utf8) + embedded + [UInt8(ascii: "}")]
  }
}
