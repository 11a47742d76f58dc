/// Finds and checks the head of a request at the start of a client's bytes. It holds none of the bytes.
///
/// The parser is strict: it refuses ambiguous input, because a proxy before the server may read it in another way. Each
/// refusal depends only on one byte and those before it, so the splits of the input do not change the result.
///
/// A restart needs no state of the parser: a new one reads the unconsumed bytes again. Source: RFC 9112, sections 2 to
/// 5.
public struct RequestParser: Sendable {
  /// The maximum size of a request line, without its line end; beyond it 414. Precedent: nginx, 8 KiB.
  public static let maximumRequestLineByteCount = 8 << 10
  /// The maximum size of a head with all line ends; beyond it 431.
  public static let maximumHeadByteCount = 16 << 10
  /// The maximum number of field lines; beyond it 431. Precedent: Apache httpd, 100.
  public static let maximumFieldCount = 100
  /// The maximum number of empty lines before a request line, which some clients send after a body.
  public static let maximumEmptyLineCount = 4

  private struct RequestLine {
    var method: Range<Int>
    var target: Range<Int>
    var version: RequestHead.Version
  }

  /// The number of bytes that have been checked.
  private var scannedByteCount = 0
  /// The offset of the request line.
  private var start = 0
  /// The offset of the current line.
  private var lineStart = 0
  private var emptyLineCount = 0
  /// Nil until it is complete. Offsets count from `start`, here and in `fields`.
  private var requestLine: RequestLine?
  private var fields: [RequestHead.Field] = []

  /// Creates a parser.
  public init() {}

  /// Reads the head at the start of `bytes`, once all of it has arrived. Afterwards, the parser is ready for the next
  /// one.
  ///
  /// - Parameter bytes: all bytes of the client after the previous request: at least as many as in the previous call,
  ///   unless that returned a head. Beyond ``maximumHeadByteCount`` bytes after the empty lines there is a result
  ///   or an error. After a result the caller drops ``RequestHead/byteCount`` bytes.
  /// - Returns: nil while bytes are missing.
  /// - Throws: 400, 414, 431 or 505. The connection cannot be used any more, except for the response.
  /// - Complexity: O(new bytes), with two allocations for a head.
  public mutating func parse(_ bytes: Span<UInt8>) throws(Rejection) -> RequestHead? {
    while scannedByteCount < bytes.count {
      let byte = bytes[scannedByteCount]
      guard scannedByteCount - start < Self.maximumHeadByteCount else {
        throw Rejection(.requestHeaderFieldsTooLarge, "the request's head exceeds \(Self.maximumHeadByteCount) bytes")
      }
      let followsReturn = scannedByteCount > lineStart && bytes[scannedByteCount - 1] == .carriageReturn
      switch byte {
      case .lineFeed:
        guard followsReturn else { throw .malformed("a line ends with a line feed without a carriage return") }
        let line = lineStart..<scannedByteCount - 1
        scannedByteCount += 1
        lineStart = scannedByteCount
        guard try receive(line, bytes) else { continue }
        return try finish(bytes)
      default:
        guard !followsReturn else { throw .malformed("a carriage return is not followed by a line feed") }
        guard
          requestLine != nil || byte == .carriageReturn
            || scannedByteCount - lineStart < Self.maximumRequestLineByteCount
        else {
          throw Rejection(.uriTooLong, "the request line exceeds \(Self.maximumRequestLineByteCount) bytes")
        }
        scannedByteCount += 1
      }
    }
    return nil
  }

  /// - Returns: whether the line ends the head.
  private mutating func receive(_ line: Range<Int>, _ bytes: Span<UInt8>) throws(Rejection) -> Bool {
    switch (requestLine, line.isEmpty) {
    case (nil, false):
      requestLine = try parseRequestLine(line, bytes)
      fields.reserveCapacity(16)
    case (nil, true):
      guard emptyLineCount < Self.maximumEmptyLineCount else {
        throw .malformed("more than \(Self.maximumEmptyLineCount) empty lines precede the request")
      }
      emptyLineCount += 1
      start = lineStart
    case (_?, false):
      guard fields.count < Self.maximumFieldCount else {
        throw Rejection(.requestHeaderFieldsTooLarge, "the request has more than \(Self.maximumFieldCount) fields")
      }
      fields.append(try parseField(line, bytes))
    case (_?, true): return true
    }
    return false
  }

  private func parseRequestLine(_ line: Range<Int>, _ bytes: Span<UInt8>) throws(Rejection) -> RequestLine {
    guard let first = line.first(where: { bytes[$0] == .space }),
      let last = line.last(where: { bytes[$0] == .space }), first < last
    else { throw .malformed("the request line must be a method, a target and a version, with one space between them") }
    let (method, target) = (line.lowerBound..<first, first + 1..<last)
    guard !method.isEmpty, method.allSatisfy({ bytes[$0].isToken }) else { throw .malformed("the method is malformed") }
    let version = try parseVersion(last + 1..<line.upperBound, bytes)
    guard !target.isEmpty,
      target.allSatisfy({ bytes[$0] > .space && bytes[$0] != 0x7f && bytes[$0] != UInt8(ascii: "#") })
    else {
      throw .malformed("the request's target contains a byte that must be percent-encoded, or is empty")
    }
    return RequestLine(method: method.moved(by: -start), target: target.moved(by: -start), version: version)
  }

  private func parseVersion(_ range: Range<Int>, _ bytes: Span<UInt8>) throws(Rejection) -> RequestHead.Version {
    let name = "HTTP/".utf8
    guard range.count == name.count + 3, zip(range, name).allSatisfy({ bytes[$0] == $1 }),
      bytes[range.upperBound - 3].isDigit, bytes[range.upperBound - 2] == UInt8(ascii: "."),
      bytes[range.upperBound - 1].isDigit
    else { throw .malformed("the request line does not end with a version such as HTTP/1.1") }
    switch (bytes[range.upperBound - 3], bytes[range.upperBound - 1]) {
    case (UInt8(ascii: "1"), UInt8(ascii: "1")): return .http11
    case (UInt8(ascii: "1"), UInt8(ascii: "0")): return .http10
    default: throw Rejection(.httpVersionNotSupported, "the versions HTTP/1.1 and HTTP/1.0 are supported")
    }
  }

  private func parseField(_ line: Range<Int>, _ bytes: Span<UInt8>) throws(Rejection) -> RequestHead.Field {
    guard !bytes[line.lowerBound].isWhitespace else {
      throw .malformed("a field line begins with whitespace: folded lines are not supported")
    }
    guard let colon = line.first(where: { bytes[$0] == .colon }) else {
      throw .malformed("a field line contains no colon")
    }
    let name = line.lowerBound..<colon
    guard let last = name.last else { throw .malformed("a field has an empty name") }
    guard !bytes[last].isWhitespace else { throw .malformed("a field name is followed by whitespace") }
    guard name.allSatisfy({ bytes[$0].isToken }) else { throw .malformed("a field name is not a token") }
    var value = colon + 1..<line.upperBound
    while let first = value.first, bytes[first].isWhitespace { value = first + 1..<value.upperBound }
    while let last = value.last, bytes[last].isWhitespace { value = value.lowerBound..<last }
    guard value.allSatisfy({ bytes[$0].isFieldText }) else {
      throw .malformed("a field value contains a control character")
    }
    return RequestHead.Field(name: name.moved(by: -start), value: value.moved(by: -start))
  }

  private mutating func finish(_ bytes: Span<UInt8>) throws(Rejection) -> RequestHead? {
    guard let line = requestLine else { return nil }
    let head = try RequestHead(
      bytes: bytes.extracting(start..<scannedByteCount).copied, fields: fields, byteCount: scannedByteCount,
      method: line.method, target: line.target, version: line.version)
    self = RequestParser()
    return head
  }
}

extension Range<Int> {
  fileprivate func moved(by distance: Int) -> Range<Int> { lowerBound + distance..<upperBound + distance }
}

extension Span<UInt8> {
  /// An array of the bytes.
  var copied: [UInt8] { unsafe withUnsafeBytes { unsafe [UInt8]($0) } }
}
