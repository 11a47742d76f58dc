import Events
import Glibc

/// What a NATS server sends.
enum NATSOperation: Sendable {
  case information(NATSInformation)
  case message(NATSMessage, subscription: UInt32)
  case ping
  case pong
  /// The server accepts a line or message; only sent on request.
  case accepted
  /// The server refuses a line, a message or the connection.
  /// - Parameter reason: the server's text, of at most 256 bytes.
  case refused(reason: String)
}

/// A server's description of itself.
struct NATSInformation: Sendable, Equatable {
  /// The size of the largest message that it accepts.
  var maximumMessageByteCount: Int
  var hasHeaders: Bool
  var requiresTLS: Bool
  var offersTLS: Bool
  /// The bytes that a client signs to prove that it has a key.
  var nonce: String?

  /// - Returns: nil unless the text is a JSON object. A missing or invalid member has the protocol's default.
  init?(_ text: [UInt8]) {
    guard let members = JSONMembers(text) else { return nil }
    maximumMessageByteCount = Int(clamping: members.number("max_payload") ?? 0)
    hasHeaders = members.flag("headers") ?? false
    requiresTLS = members.flag("tls_required") ?? false
    offersTLS = members.flag("tls_available") ?? false
    nonce = members.string("nonce")
  }
}

/// Why a connection to NATS cannot be used: a sentence without its full stop, which may contain text of the server.
struct NATSFailure: Error, Equatable {
  let reason: String
}

/// Reads what a NATS server sends, split at any point.
///
/// A server is untrusted: everything is limited, and a violation of the protocol is a failure, after which the parser
/// must not be used. Headers come from other clients: malformed or oversized headers become a status of the message.
/// Memory grows with the received bytes, not with the announced ones.
///
/// Source: NATS's client protocol, and `parser.go` of nats-server. That server ends lines with CRLF and separates words
/// by a space.
struct NATSParser {
  /// The limit of a line other than INFO. A server accepts lines of 4 KiB, and adds a number to them.
  static let maximumLineByteCount = 8 << 10
  /// The limit of INFO, in which a server lists the addresses of its cluster.
  static let maximumInformationByteCount = 64 << 10
  /// The limit of a message with its headers. The largest message is an entry of 1 MiB in base64, with a broker's
  /// members around it.
  static let maximumMessageByteCount = 2 << 20
  /// The limit of the stored headers of a message; the rest is skipped. A broker's headers take some hundred bytes.
  static let maximumHeaderByteCount = 16 << 10

  /// The next byte is…
  private enum Phase {
    case line  // of a line
    case headers(missing: Int)  // of a message's headers
    case content  // of a message's content
    case end  // after a message
  }

  private var phase = Phase.line
  private var line: [UInt8] = []
  private var subscription: UInt32 = 0
  private var message = NATSMessage(subject: "", bytes: [])
  private var hasHeaders = false
  /// The first `maximumHeaderByteCount` bytes of the headers; one byte more if they are longer.
  private var headers: [UInt8] = []
  /// The size of the message's content.
  private var contentByteCount = 0

  /// Reads up to the end of the next operation.
  ///
  /// - Parameters:
  ///   - bytes: the received bytes.
  ///   - index: the first unread byte; on return, the byte after the operation.
  /// - Returns: nil if all bytes are read.
  /// - Complexity: O(bytes read).
  mutating func next(in bytes: UnsafeRawBufferPointer, from index: inout Int) throws(NATSFailure) -> NATSOperation? {
    while index < bytes.count {
      let rest = unsafe UnsafeRawBufferPointer(rebasing: bytes[index...])
      switch phase {
      case .line:
        let lineByteCount = unsafe Self.lineByteCount(rest)
        let count = lineByteCount ?? rest.count
        unsafe line.append(contentsOf: UnsafeRawBufferPointer(rebasing: rest[..<count]))
        index += count
        try checkLine()
        guard lineByteCount != nil else { return nil }
        if let operation = try takeLine() { return operation }
      case .headers(let missing):
        let count = min(missing, rest.count)
        let kept = min(count, Self.maximumHeaderByteCount + 1 - headers.count)
        unsafe headers.append(contentsOf: UnsafeRawBufferPointer(rebasing: rest[..<kept]))
        index += count
        phase = count < missing ? .headers(missing: missing - count) : .content
      case .content:
        let count = min(contentByteCount - message.bytes.count, rest.count)
        makeRoom(for: count)
        unsafe message.bytes.append(contentsOf: UnsafeRawBufferPointer(rebasing: rest[..<count]))
        index += count
        if message.bytes.count == contentByteCount { phase = .end }
      case .end:
        let count = min(2 - line.count, rest.count)
        unsafe line.append(contentsOf: UnsafeRawBufferPointer(rebasing: rest[..<count]))
        index += count
        guard line.count == 2 else { return nil }
        guard line == [0x0D, 0x0A] else { throw .violation("a message does not end where its announced size ends") }
        return takeMessage()
      }
    }
    return nil
  }

  /// The size of the line at the beginning, including its end; nil if the end has not arrived.
  private static func lineByteCount(_ bytes: UnsafeRawBufferPointer) -> Int? {
    guard let start = bytes.baseAddress, let end = unsafe memchr(start, 0x0A, bytes.count) else { return nil }
    return unsafe UnsafeRawPointer(end) - start + 1
  }

  // MARK: Lines

  private func checkLine() throws(NATSFailure) {
    guard line.count > Self.maximumLineByteCount else { return }
    let isInformation = line.starts(with: "INFO ".utf8)
    let limit = isInformation ? Self.maximumInformationByteCount : Self.maximumLineByteCount
    guard line.count <= limit else { throw .violation("a line has more than \(limit) bytes") }
  }

  /// - Returns: nil if the line begins a message.
  private mutating func takeLine() throws(NATSFailure) -> NATSOperation? {
    defer { line.removeAll(keepingCapacity: line.capacity <= 2 * Self.maximumLineByteCount) }
    let text = line.dropLast(2)
    guard line.suffix(2).elementsEqual([0x0D, 0x0A]), !text.contains(0x0D) else {
      throw .violation("a line does not end with a carriage return and a line feed")
    }
    if text.starts(with: "MSG ".utf8) {
      try beginMessage(text.dropFirst(4), hasHeaders: false)
    } else if text.starts(with: "HMSG ".utf8) {
      try beginMessage(text.dropFirst(5), hasHeaders: true)
    } else if text.elementsEqual("PING".utf8) {
      return .ping
    } else if text.elementsEqual("PONG".utf8) {
      return .pong
    } else if text.elementsEqual("+OK".utf8) {
      return .accepted
    } else if text.starts(with: "-ERR".utf8) {
      let reason = text.dropFirst(4).drop { $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: "'") }.prefix(256)
      return .refused(reason: String(decoding: reason.filter { $0 != UInt8(ascii: "'") }, as: UTF8.self))
    } else if text.starts(with: "INFO ".utf8) {
      guard let information = NATSInformation(Array(text.dropFirst(5))) else {
        throw .violation("INFO is no JSON object")
      }
      return .information(information)
    } else {
      throw .violation("a line is not part of the protocol")
    }
    return nil
  }

  /// - Parameter text: the subject, the subscription, an optional subject for the answer, the size of the headers if
  ///   there are any, and the total size.
  private mutating func beginMessage(_ text: ArraySlice<UInt8>, hasHeaders: Bool) throws(NATSFailure) {
    let words = text.split(separator: UInt8(ascii: " "), maxSplits: 5)
    let sizeCount = hasHeaders ? 2 : 1
    guard 2 + sizeCount...3 + sizeCount ~= words.count,
      let subscription = Decimal.number(words[1]).flatMap({ UInt32(exactly: $0) }),
      let total = Decimal.number(words[words.count - 1])
    else { throw .violation("the announcement of a message is malformed") }
    guard total <= UInt64(Self.maximumMessageByteCount) else {
      throw NATSFailure(
        reason: "the server announces a message of \(total) bytes: at most \(Self.maximumMessageByteCount) are accepted"
      )
    }
    var headerByteCount = 0
    if hasHeaders {
      guard let count = Decimal.number(words[words.count - 2]), count <= total else {
        throw .violation("a message is announced with headers that are larger than the message")
      }
      headerByteCount = Int(count)
    }
    contentByteCount = Int(total) - headerByteCount
    self.subscription = subscription
    self.hasHeaders = hasHeaders
    message = NATSMessage(subject: String(decoding: words[0], as: UTF8.self), bytes: [])
    if words.count == 3 + sizeCount { message.reply = String(decoding: words[2], as: UTF8.self) }
    phase = headerByteCount > 0 ? .headers(missing: headerByteCount) : contentByteCount > 0 ? .content : .end
  }

  // MARK: Messages

  /// Reserves memory for a large message: at most four times the bytes that have arrived.
  private mutating func makeRoom(for count: Int) {
    let needed = message.bytes.count + count
    guard message.bytes.capacity < needed else { return }
    message.bytes.reserveCapacity(min(contentByteCount, max(needed, 4 * message.bytes.count)))
  }

  private mutating func takeMessage() -> NATSOperation {
    if headers.count > Self.maximumHeaderByteCount {
      message.status = 0
    } else if hasHeaders {
      message.readHeaders(headers)
    }
    let complete = NATSOperation.message(message, subscription: subscription)
    message = NATSMessage(subject: "", bytes: [])
    headers.removeAll(keepingCapacity: true)
    line.removeAll(keepingCapacity: true)
    phase = .line
    return complete
  }
}

extension NATSFailure {
  /// A failure of a server that does not follow the protocol.
  static func violation(_ reason: String) -> NATSFailure {
    NATSFailure(reason: "the server breaks NATS's protocol: \(reason)")
  }
}
