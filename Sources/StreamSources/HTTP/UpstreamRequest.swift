import HTTP

/// A header field of a request.
public struct HTTPHeader: Sendable, Equatable {
  /// A token (RFC 9110): letters, digits and some signs.
  public let name: String
  /// Without line breaks and other control characters. May be a secret: never printed.
  public let value: String

  /// Does not validate; `HTTPConfiguration.problems` does.
  public init(name: String, value: String) {
    self.name = name
    self.value = value
  }

  /// Whether it may be sent to any redirect target: the fields that a browser sends across origins without a preflight
  /// (Fetch Standard, "CORS-safelisted request-header"). Any other field may be a credential for the first server.
  var isPublic: Bool {
    ["accept", "accept-language", "content-language"].contains(name.lowercased())
  }

  fileprivate var isCookie: Bool { name.lowercased() == "cookie" }
}

/// Where a redirect may lead. Any other redirect is a failure that names its target.
public enum HTTPRedirects: String, Sendable, CaseIterable {
  /// Nowhere: a redirect is a failure.
  case none
  /// Only to the scheme, host and port of the source's URL.
  case sameOrigin = "same-origin"
  /// To that origin, and to any host over https. The host may be one that only this machine can reach.
  case https
  /// To any host over http or https, also from https to http.
  case any
}

/// A request. Its secrets are sent only to the origin of its URL, whatever the redirects: see `sent(to:)`.
struct UpstreamRequest: Equatable, Sendable {
  var url: HTTPURL
  var method = HTTPMethod.get
  var body: HTTPBody?
  /// Whether libcurl may send it again, on another connection, if an idle one ends before the answer.
  var isIdempotent = true
  var headers: [HTTPHeader] = []
  /// Sent as `Authorization: Bearer`; takes precedence over a login.
  var bearer: String?
  /// Takes precedence over a user and password in the URL.
  var login: HTTPLogin?
  var validators: Validators?
  /// The id of the last server-sent event.
  var lastEventID: FieldValue?
  /// The field with the position of a cursor.
  var positionField: HTTPHeader?
  /// The names of fields in the response that the owner reads.
  var wantedFields: [String] = []
  /// Whether `UpstreamResponse.pause` is that of `max-age`, too.
  var obeysMaximumAge = false
  /// Identifies the credentials; a host's rate limits are for requests with the same ones.
  var account = ""
  /// The Unix socket to connect to instead of the URL's host; redirects use it, too.
  var unixSocket: String?
  var route = HTTPRoute.environment
  var trust = HTTPTrust()
  /// The time limit for the whole transfer, with redirects but without the time in a host's queue; nil: none. For a
  /// streaming response, the limit for its head.
  var timeout: Duration?
  var isEndless = false
  /// Asks for a WebSocket, on a connection of its own; nil: for a body.
  var offer: WebSocketOffer?
  /// Whether secrets follow on that connection, which only the origin of the URL may receive.
  var secretsFollow = false
  var redirects = HTTPRedirects.sameOrigin
  var userAgent: String

  /// The request as the server at `hop`, the URL or the target of a redirect, may receive it: the one place that decides
  /// which part leaves the URL's origin. Another origin receives the parts that are named here, and no others.
  func sent(to hop: HTTPURL) -> UpstreamRequest {
    var sent: UpstreamRequest
    if hop.origin == url.origin {
      sent = self
      sent.login = login ?? url.login
      sent.url = hop
    } else {
      sent = UpstreamRequest(url: hop, headers: headers.filter(\.isPublic), userAgent: userAgent)
      (sent.unixSocket, sent.route, sent.offer) = (unixSocket, route, offer)
      (sent.method, sent.body, sent.isIdempotent) = (method, body, isIdempotent)
      sent.trust.authorities = trust.authorities
    }
    sent.validators = validators?.url == hop.string ? validators : nil
    return sent
  }

  /// The header lines of the request, in libcurl's format.
  var headerLines: [[UInt8]] {
    let sent = headers.filter { !$0.isCookie }
    var lines = sent.map { header in
      // With a semicolon: libcurl removes a header whose colon is followed by nothing.
      Array((header.value.isEmpty ? "\(header.name);" : "\(header.name): \(header.value)").utf8)
    }
    func add(_ name: String, _ value: FieldValue?) {
      if let value, !value.bytes.isEmpty { lines.append(Array("\(name): ".utf8) + value.bytes) }
    }
    if tlsName != nil, !sent.contains(where: { $0.name.lowercased() == "host" }) {
      add("Host", FieldValue(Array(url.origin.authority.utf8)))
    }
    for field in offer?.fields ?? [] { add(field.name, FieldValue(Array(field.value.utf8))) }
    // Without these fields, which libcurl adds to a request that is followed by other bytes.
    if offer != nil { lines += [Array("Expect:".utf8), Array("Transfer-Encoding:".utf8)] }
    if offer == nil, !sent.contains(where: { $0.name.lowercased() == "accept-encoding" }) {
      add("Accept-Encoding", FieldValue(Array(ContentCoding.accepted.utf8)))
    }
    for line in body.map({ ["Content-Type: \($0.type)", "Expect:"] }) ?? [] { lines.append(Array(line.utf8)) }
    // Without the type of a form, which libcurl adds.
    if body == nil, method != .get { lines.append(Array("Content-Type:".utf8)) }
    if let positionField { add(positionField.name, FieldValue(Array(positionField.value.utf8))) }
    if let bearer { add("Authorization", FieldValue(Array("Bearer \(bearer)".utf8))) }
    add("Last-Event-ID", lastEventID)
    add("If-None-Match", validators?.entityTag)
    add("If-Modified-Since", validators?.lastModified)
    return lines
  }

  /// The configured cookies; nil: none. Not among the header lines: a server's cookies of this fetch are sent in the same
  /// field.
  var cookies: String? {
    let values = headers.filter(\.isCookie).map(\.value)
    return values.isEmpty ? nil : values.joined(separator: "; ")
  }

  /// Why a redirect to `target` is not allowed, as a sentence; nil: it is allowed.
  func refusal(ofRedirectTo target: HTTPURL) -> SourceFailure? {
    let isAllowed =
      switch redirects {
      case .none: false
      case .sameOrigin: target.origin == url.origin
      case .https: target.origin == url.origin || target.origin.scheme == "https"
      case .any: true
      }
    // A host name has at most 253 characters; a longer text does not belong in the journal.
    let place = "\(target.origin.scheme)://\(target.origin.authority)"
    let shown = place.utf8.count <= 270 ? place : "elsewhere"
    guard isAllowed else {
      return SourceFailure("redirected to \(shown), which redirects = \"\(redirects.rawValue)\" forbids")
    }
    guard target.origin != url.origin else { return nil }
    if body?.isSecret == true {
      return SourceFailure("redirected to \(shown), which may not receive the body: it is for the origin of url")
    }
    return secretsFollow
      ? SourceFailure(
        "redirected to \(shown), which may not receive the credentials that are sent as messages: they are for the origin of url"
      ) : nil
  }

  /// The proxy of the configuration.
  var proxy: HTTPProxy? {
    guard unixSocket == nil, case .proxy(let proxy) = route else { return nil }
    return proxy
  }

  /// The server at `hop`, for a message.
  func place(of hop: HTTPURL) -> String { unixSocket ?? hop.origin.authority }
}

extension CharsetDecoder {
  /// The decoder of a body that is not in UTF-8; see `of(_:_:)`.
  static func of(_ head: UpstreamResponse?, _ start: UnsafeRawBufferPointer) throws(SourceFailure) -> CharsetDecoder? {
    do throws(ContentFault) { return try unsafe of(head?.mediaType?.charset, start) } catch {
      throw SourceFailure(error.sentence)
    }
  }
}

/// The head of a response.
struct UpstreamResponse: Equatable, Sendable {
  let status: Int
  /// The URL that responded, after redirects.
  let url: String
  /// Bytes of the body as transferred, compressed or not; nil when the server does not send it.
  let contentLength: Int?
  let contentType: String?
  let entityTag: FieldValue?
  let lastModified: FieldValue?
  /// From now on; a date in the past is 0.
  let retryAfter: Duration?
  /// The pause before the next request of the same source; nil: there is none.
  var pause: RequestPause?
  /// The fields of `UpstreamRequest.wantedFields`, by these names.
  var answer: [String: [String]] = [:]

  /// Whether the body is the requested one, or that body as a proxy has transformed it (203).
  var isContent: Bool { status == 200 || status == 203 }

  /// Whether the body is server-sent events. The type's parameters are ignored. Of several types in one field, which some
  /// proxies make of two equal fields, the last one counts, as in browsers.
  var isEventStream: Bool {
    let type = contentType?.split(separator: ",").last?.prefix { $0 != ";" } ?? ""
    return type.filter { !$0.isWhitespace }.lowercased() == "text/event-stream"
  }

  /// The type of the body as far as it matters; of several, the last one as above.
  var mediaType: MediaType? {
    (contentType?.split(separator: ",").last).flatMap { MediaType($0.drop { $0 == " " }.description) }
  }

  /// Why the body cannot be one that is meant to be `content`; nil: it can.
  func refusal(as content: HTTPContent) -> SourceFailure? {
    guard content == .json, let name = mediaType?.name, name.hasPrefix("multipart/") else { return nil }
    let subtypes = ["byteranges", "form-data", "mixed", "related", "x-mixed-replace"]
    let subtype = subtypes.first { name == "multipart/\($0)" } ?? "…"
    return SourceFailure("the response is multipart/\(subtype), which is not JSON")
  }

  /// The failure of a body that is no JSON, and that the head does not call JSON either; nil if the head does not say what it is.
  var documentFailure: SourceFailure? {
    switch mediaType?.name {
    case "text/html": SourceFailure("the response is text/html, which is not JSON")
    case "application/xhtml+xml": SourceFailure("the response is application/xhtml+xml, which is not JSON")
    default: nil
    }
  }

  /// The validators for the next request; nil when the server sent none. Without those above `Validators.limit`.
  var validators: Validators? {
    let (entityTag, lastModified) = (Validators.fitting(entityTag), Validators.fitting(lastModified))
    guard entityTag != nil || lastModified != nil else { return nil }
    return Validators(url: url, entityTag: entityTag, lastModified: lastModified)
  }

  /// The fields that are too long to send back.
  var oversizedValidators: [String] {
    [("ETag", entityTag), ("Last-Modified", lastModified)].filter { $0.1 != nil && Validators.fitting($0.1) == nil }
      .map(\.0)
  }
}
