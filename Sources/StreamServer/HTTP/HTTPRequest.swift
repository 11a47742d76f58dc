import HTTP

/// The parts of a request that its response needs.
struct HTTPRequest {
  /// Whether the response has no body.
  let isHead: Bool
  /// Whether a further request may follow on the connection.
  let keepsConnection: Bool
  /// Whether the body may be chunked.
  let allowsChunks: Bool
  /// The origin of the pages that may read the response; nil: no other site's page may.
  let allowedOrigin: String?

  init(_ head: RequestHead, allowedOrigin: String?) {
    isHead = head.method == .head
    // A body that nothing reads would be taken for the next request.
    keepsConnection = head.keepsConnection && (head.method == .post || head.framing.isEmpty)
    allowsChunks = head.version == .http11
    self.allowedOrigin = allowedOrigin
  }

  init(isHead: Bool, keepsConnection: Bool, allowsChunks: Bool, allowedOrigin: String?) {
    (self.isHead, self.keepsConnection) = (isHead, keepsConnection)
    (self.allowsChunks, self.allowedOrigin) = (allowsChunks, allowedOrigin)
  }

  /// Whether the response would be server-sent events, as far as the request alone shows it.
  static func isForEvents(_ head: RequestHead) -> Bool {
    guard !WebSocketHandshake.isRequested(by: head) else { return false }
    guard head.method == .get, head.target.path.hasPrefix("/streams") || head.target.path == "/stats" else {
      return false
    }
    if let format = head.target.parameters.first(where: { $0.name == "as" }) { return format.value == "sse" }
    let types = ["application/json", EventEncoding.Format.serverSentEvents.mediaType].compactMap { MediaType($0) }
    return MediaType.preferred(head["Accept"], among: types) == 1
  }

  /// A request for the answer to input that is not a request, or not a complete one. The connection ends.
  ///
  /// - Parameter head: the bytes that have arrived, or the first ``startByteCount`` of them. A response to HEAD has no
  ///   body, even if the request has errors.
  init(malformed head: [UInt8]) {
    let line = head.drop { $0 == UInt8(ascii: "\r") || $0 == UInt8(ascii: "\n") }
    self.init(
      isHead: line.starts(with: Self.headMethod), keepsConnection: false, allowsChunks: true, allowedOrigin: nil)
  }

  private static let headMethod = "HEAD ".utf8
  /// The number of bytes that show the method: empty lines may precede it.
  static let startByteCount = 2 * RequestParser.maximumEmptyLineCount + headMethod.count
}

extension ResponseHead {
  /// The fields that every response has.
  ///
  /// - Parameters:
  ///   - date: the time, for the Date field.
  ///   - idleTime: the longest time until the next request of the connection; nil: it takes none. A client that sends one
  ///     later may find it closed.
  init(_ status: Status, to request: HTTPRequest, date: String, idleTime: Duration?) {
    self.init(status)
    addFields(to: request, date: date, idleTime: idleTime)
  }

  /// - Parameters: as above.
  mutating func addFields(to request: HTTPRequest, date: String, idleTime: Duration?) {
    add("Date", date)
    if let idleTime {
      add("Connection", "keep-alive")
      add("Keep-Alive", "timeout=\(idleTime.components.seconds)")
    } else {
      add("Connection", "close")
    }
    add("X-Content-Type-Options", "nosniff")
    if let origin = request.allowedOrigin {
      add("Access-Control-Allow-Origin", origin)
      add("Access-Control-Expose-Headers", "ETag, Last-Event-ID, Retry-After")
      add("Vary", "Origin")
    }
  }

  /// The fields of an error.
  mutating func addFields(of rejection: Rejection) {
    add("Cache-Control", "no-store")
    if rejection.status == .serviceUnavailable { add("Retry-After", "10") }
    if rejection.status == .unauthorized { addChallenge() }
  }

  /// Adds the field that asks for a token: credentials might affect the response. Source: RFC 9110, 11.6.1.
  mutating func addChallenge() { add("WWW-Authenticate", "Bearer realm=\"streamd\"") }

  /// Adds the field for a body that a publisher or an upstream has written. A browser then runs no script in it, which
  /// would have the rights of the page at `/`. It loads no resource that the body names, because that would tell others
  /// who reads the stream.
  mutating func addSandbox() {
    add("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; sandbox")
  }

  /// The fields of a response whose body is events, except for those of its length.
  mutating func addFields(ofEventsAs mediaType: String) {
    add("Content-Type", mediaType)
    addSandbox()
    add("Cache-Control", "no-store, no-transform")
    add("X-Accel-Buffering", "no")
  }
}

extension ServerSentEvents {
  /// The body for a client that is to connect again later: an EventSource stops at any status but 200.
  static func retryLater(_ rejection: Rejection) -> [UInt8] {
    Array((retry(milliseconds: 10_000) + end(reason: rejection.detail, type: rejection.type)).utf8)
  }
}

extension EventEncoding.Format {
  var mediaType: String {
    switch self {
    case .serverSentEvents: "text/event-stream"
    case .ndjson: "application/x-ndjson"
    case .jsonSequence: "application/json-seq"
    case .raw, .message: "application/octet-stream"  // a message has no media type
    }
  }
}

extension EventEncoding.Content {
  /// The content of events with a media type.
  init(ofType type: String) {
    let type = MediaType(type)
    self = type?.isJSON == true ? .json : type?.name.hasPrefix("text/") == true ? .text : .binary
  }
}
