/// The head of a response: its status line and fields. Source: RFC 9112, section 4.
///
/// No value can end its line: bytes that a field must not contain become spaces.
public struct ResponseHead: Sendable {
  /// All but the empty line.
  private var bytes: [UInt8] = []

  /// Begins with the status line. It names HTTP/1.1 also to a client of HTTP/1.0: RFC 9110, section 6.2.
  public init(_ status: Status) { self.init(code: status.rawValue, status.title) }

  /// - Parameters:
  ///   - code: any status of a response with a body, 200 to 599.
  ///   - title: its reason phrase.
  public init(code: Int, _ title: String) {
    bytes.reserveCapacity(256)
    bytes += "HTTP/1.1 ".utf8
    for place in [100, 10, 1] { bytes.append(UInt8(ascii: "0") + UInt8(code / place % 10)) }
    bytes.append(.space)
    bytes += title.utf8
    bytes += "\r\n".utf8
  }

  /// Adds a field.
  /// - Parameters:
  ///   - name: a token; a literal, so that it never comes from outside.
  ///   - value: control characters become spaces.
  public mutating func add(_ name: StaticString, _ value: String) {
    name.withUTF8Buffer { unsafe bytes.append(contentsOf: $0) }
    bytes += ": ".utf8
    let start = bytes.count
    bytes += value.utf8
    for index in start..<bytes.count where !bytes[index].isFieldText { bytes[index] = .space }
    bytes += "\r\n".utf8
  }

  /// Appends the head with its end to a connection's output; the body follows.
  public consuming func append(to output: inout [UInt8]) {
    output += bytes
    output += "\r\n".utf8
  }

  /// Returns the form of a Date or Last-Modified field.
  /// - Parameter seconds: since the Unix epoch.
  public static func date(secondsSinceEpoch seconds: UInt64) -> String {
    var bytes: [UInt8] = []
    ByteWriter.append(to: &bytes) { CivilTime(secondsSinceEpoch: seconds).writeIMFFixdate(to: &$0) }
    return String(decoding: bytes, as: UTF8.self)
  }
}

/// The body of an error response. Source: RFC 9457.
public struct Problem: Equatable, Sendable {
  /// The media type.
  public static let mediaType = "application/problem+json"

  /// The status of the response.
  public var status: Status
  /// One sentence.
  public var detail: String
  /// A URI for its reason; nil: the status says all.
  public var type: String?
  /// For a publisher: the number of values that are in the stream.
  public var accepted: UInt64?

  /// Creates a problem.
  public init(_ status: Status, _ detail: String, accepted: UInt64? = nil) {
    self.status = status
    self.detail = detail
    self.accepted = accepted
  }

  /// Creates the problem that a rejected request has.
  public init(_ rejection: Rejection) {
    self.init(rejection.status, rejection.detail)
    type = rejection.type
  }

  /// The body: JSON with a line feed at its end.
  public var body: [UInt8] {
    var bytes: [UInt8] = []
    ByteWriter.append(to: &bytes) { writer in
      writer.append("{\"type\":")
      writer.append(quoted: type ?? "about:blank")
      writer.append(",\"title\":")
      writer.append(quoted: status.title)
      writer.append(",\"status\":")
      writer.append(decimal: UInt64(status.rawValue))
      writer.append(",\"detail\":")
      writer.append(quoted: detail)
      if let accepted {
        writer.append(",\"accepted\":")
        writer.append(decimal: accepted)
      }
      writer.append("}\n")
    }
    return bytes
  }
}
