import Glibc

/// Reads what a server sends over HTTP, strictly. It shares no code with the server.
struct ResponseReader {
  struct Head {
    let status: Int
    /// By names in small letters.
    let fields: [String: String]
    subscript(name: String) -> String? { fields[name] }
    /// The connection ends after the response.
    var isLast: Bool { fields["connection"] == "close" }
    var isInterim: Bool { 100...199 ~= status && status != 101 }
  }

  enum Part {
    case head(Head)
    /// A whole chunk, the whole body where it has a length, or what has arrived of one that ends with the connection.
    case body(Range<Int>)
    /// A frame of a WebSocket.
    case frame(WebSocketFrames.Frame)
    case end
  }

  private enum State {
    case head
    case body(Int)
    case chunk
    /// The body ends with the connection.
    case rest
    case bodyIsComplete
    /// The connection is a WebSocket.
    case frames
    /// No response may follow.
    case over
  }

  private var state = State.head
  private var isLast = false
  /// The client that a failure names.
  private let client: String

  init(client: String) { self.client = client }

  /// Whether all has arrived that the server sends on this connection.
  var isOver: Bool { if case .over = state { true } else { false } }
  /// Whether a body with a length has begun, and not arrived whole.
  var isWithinBody: Bool { if case .body = state { true } else { false } }

  /// - Parameters:
  ///   - bytes: from `offset` on, what has arrived and was not read.
  ///   - hasBody: whether the response may have a body, unlike one to HEAD.
  /// - Returns: nil where more is needed.
  mutating func next(in bytes: UnsafeRawBufferPointer, _ offset: inout Int, hasBody: Bool) -> Part? {
    let rest = UnsafeRawBufferPointer(rebasing: bytes[offset...])
    switch state {
    case .head:
      guard let end = Self.end(of: [13, 10, 13, 10], in: rest, within: 16 << 10) else {
        wants(rest.count < 16 << 10, "a head without an end")
        return nil
      }
      offset += end
      let head = head(String(decoding: rest[..<(end - 4)], as: UTF8.self))
      begin(head, hasBody: hasBody)
      return .head(head)
    case .body(let count):
      guard rest.count >= count else { return nil }
      defer { offset += count }
      state = .bodyIsComplete
      return .body(offset..<offset + count)
    case .chunk: return chunk(rest, &offset)
    case .rest:
      guard !rest.isEmpty else { return nil }
      defer { offset = bytes.count }
      return .body(offset..<bytes.count)
    case .bodyIsComplete:
      state = isLast ? .over : .head
      return .end
    case .frames:
      guard let frame = WebSocketFrames.next(in: bytes, from: offset, client: client) else { return nil }
      offset = frame.payload.upperBound
      return .frame(frame)
    case .over:
      wants(rest.isEmpty, "\(rest.count) bytes after the last response")
      return nil
    }
  }

  /// Nothing may follow what was read.
  mutating func end() { state = .over }

  private func wants(_ condition: Bool, _ what: @autoclosure () -> String) {
    require(condition, "responses", "\(client) got \(what())")
  }

  private static func end(of mark: [UInt8], in bytes: UnsafeRawBufferPointer, within limit: Int) -> Int? {
    guard bytes.count >= mark.count else { return nil }
    for start in 0...min(limit, bytes.count - mark.count) where bytes[start..<start + mark.count].elementsEqual(mark) {
      return start + mark.count
    }
    return nil
  }

  private func head(_ text: String) -> Head {
    wants(!text.unicodeScalars.contains { $0.value < 32 && $0 != "\r" && $0 != "\n" }, "a control character in a head")
    var lines = text.components(by: "\r\n")[...]
    let words = lines.removeFirst().split(separator: " ", maxSplits: 2, omittingEmptySubsequences: false)
    wants(words.count == 3 && words[0] == "HTTP/1.1" && words[1].utf8.count == 3, "the status line \(words)")
    var fields: [String: String] = [:]
    for line in lines {
      let parts = line.split(separator: ":", maxSplits: 1).map(String.init)
      wants(parts.count == 2 && parts[1].first == " " && !parts[0].contains(" "), "the field line \(line)")
      let name = parts[0].lowercased()
      wants(fields[name] == nil || name == "vary", "the field \(name) twice")
      fields[name] = String(parts[1].dropFirst())
    }
    return Head(status: Int(words[1]) ?? 0, fields: fields)
  }

  private mutating func begin(_ head: Head, hasBody: Bool) {
    guard !head.isInterim else { return }
    isLast = head.isLast
    let length = head["content-length"]
    wants(length == nil || head["transfer-encoding"] == nil, "a body with a length and chunks")
    if head.status == 101 {
      state = .frames
    } else if !hasBody || head.status == 204 || head.status == 304 {
      wants(hasBody ? length == nil && head["transfer-encoding"] == nil : true, "a length without a body")
      state = .bodyIsComplete
    } else if let length {
      guard let count = Int(length), count >= 0 else { return wants(false, "a body of \(length) bytes") }
      state = .body(count)
    } else if let coding = head["transfer-encoding"] {
      wants(coding == "chunked" && isLast, "the coding \(coding)")
      state = .chunk
    } else {
      wants(isLast, "a body without an end, on a connection that stays")
      state = .rest
    }
  }

  private mutating func chunk(_ bytes: UnsafeRawBufferPointer, _ offset: inout Int) -> Part? {
    guard let dataStart = Self.end(of: [13, 10], in: bytes, within: 16) else {
      wants(bytes.count < 16, "a chunk without a size")
      return nil
    }
    let digits = String(decoding: bytes[..<(dataStart - 2)], as: UTF8.self)
    guard !digits.isEmpty, digits.allSatisfy(\.isHexDigit), let size = Int(digits, radix: 16) else {
      wants(false, "a chunk of the size \"\(digits)\"")
      return nil
    }
    guard bytes.count >= dataStart + size + 2 else { return nil }
    wants(bytes[dataStart + size] == 13 && bytes[dataStart + size + 1] == 10, "a chunk that is longer than its size")
    defer { offset += dataStart + size + 2 }
    guard size > 0 else {
      state = .over
      return .end
    }
    return .body(offset + dataStart..<offset + dataStart + size)
  }
}

extension String {
  /// Its parts between marks.
  func components(by mark: String) -> [String] {
    var parts: [String] = []
    var rest = utf8[...]
    let mark = Array(mark.utf8)
    var start = rest.startIndex
    while let index = rest.firstIndex(of: mark[0]) {
      guard rest[index...].starts(with: mark) else {
        rest = rest[rest.index(after: index)...]
        continue
      }
      parts.append(String(decoding: utf8[start..<index], as: UTF8.self))
      rest = utf8[utf8.index(index, offsetBy: mark.count)...]
      start = rest.startIndex
    }
    parts.append(String(decoding: utf8[start...], as: UTF8.self))
    return parts
  }
}
