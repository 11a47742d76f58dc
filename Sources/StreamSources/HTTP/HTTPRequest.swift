/// A header field of a request.
public struct HTTPHeader: Sendable, Equatable {
  /// A token, as RFC 9110 has it: letters, digits and ``!#$%&'*+-.^_`|~``.
  public let name: String
  /// Without line breaks and other control characters. May be a secret: never printed.
  public let value: String

  /// Takes both as they are; `HTTPConfiguration.problems` checks them.
  public init(name: String, value: String) {
    self.name = name
    self.value = value
  }

  /// Whether it may go to whoever a redirect points at: the fields that a browser, too, sends anywhere without asking
  /// (Fetch Standard, "CORS-safelisted request-header"). Any other may be a key to the first server.
  var isPublic: Bool {
    ["accept", "accept-language", "content-language"].contains(name.lowercased())
  }
}

/// Where a redirect may lead. One that leads elsewhere is a failure that says where to.
public enum HTTPRedirects: String, Sendable, CaseIterable {
  /// Nowhere: an answer that redirects is a failure.
  case none
  /// To the scheme, host and port of the source's URL alone.
  case sameOrigin = "same-origin"
  /// There, and to any host over https. The host may be one that only this machine can reach.
  case https
  /// To any host over http or https, also from https to http.
  case any
}

/// A GET. Everything secret in it stays with the origin of its URL, whatever redirects say.
struct HTTPRequest: Equatable, Sendable {
  let url: HTTPURL
  var headers: [HTTPHeader] = []
  /// Sent as `Authorization: Bearer`; goes before a login.
  var bearer: String?
  /// Goes before a user and password in the URL.
  var login: HTTPLogin?
  var validators: Validators?
  /// Where to connect instead of the URL's host; redirects stay on it.
  var unixSocket: String?
  var route = HTTPRoute.environment
  var trust = HTTPTrust()
  /// For all of it, redirects included but not the time in line for a host; nil: none. Of an answer without end, for its
  /// head.
  var timeout: Duration?
  var isEndless = false
  var redirects = HTTPRedirects.sameOrigin
  var userAgent: String

  /// The header lines for a request that goes to `hop`, as libcurl takes them.
  func headerLines(for hop: HTTPURL) -> [String] {
    let isHome = hop.origin == url.origin
    var lines = headers.filter { isHome || $0.isPublic }.map { header in
      // A semicolon: libcurl takes a colon with nothing behind it as "leave this header out".
      header.value.isEmpty ? "\(header.name);" : "\(header.name): \(header.value)"
    }
    if isHome, let bearer { lines.append("Authorization: Bearer \(bearer)") }
    if let validators, validators.url == hop.string {
      if let entityTag = validators.entityTag { lines.append("If-None-Match: \(entityTag)") }
      if let lastModified = validators.lastModified { lines.append("If-Modified-Since: \(lastModified)") }
    }
    return lines
  }

  /// Where a redirect to `target` is not allowed to lead, in a sentence; nil: it is.
  func refusal(ofRedirectTo target: HTTPURL) -> HTTPFailure? {
    let isAllowed =
      switch redirects {
      case .none: false
      case .sameOrigin: target.origin == url.origin
      case .https: target.origin == url.origin || target.origin.scheme == "https"
      case .any: true
      }
    // A host's name has at most 253 characters; what is longer is not for a log.
    let place = "\(target.origin.scheme)://\(target.origin.authority)"
    let shown = place.utf8.count <= 270 ? place : "elsewhere"
    return isAllowed ? nil : HTTPFailure("redirected to \(shown), which redirects = \"\(redirects.rawValue)\" forbids")
  }

  /// Who answers at `hop`, for a sentence.
  func place(of hop: HTTPURL) -> String { unixSocket ?? hop.origin.authority }
}

/// What an answer says before its body.
struct ResponseHead: Equatable, Sendable {
  let status: Int
  /// Where it came from, after redirects.
  let url: String
  /// Of the body as it is transferred, compressed or not; nil when the server does not say.
  let contentLength: Int?
  let contentType: String?
  let entityTag: String?
  let lastModified: String?
  /// From now; a date in the past is 0.
  let retryAfter: Duration?

  /// Whether the body is server-sent events; parameters of the type do not matter.
  var isEventStream: Bool {
    let type = contentType?.prefix { $0 != ";" } ?? ""
    return type.filter { !$0.isWhitespace }.lowercased() == "text/event-stream"
  }

  /// What to ask with the next time; nil when the server gave nothing to ask with. Without what is over
  /// `Validators.limit`.
  var validators: Validators? {
    let (entityTag, lastModified) = (Validators.fitting(entityTag), Validators.fitting(lastModified))
    guard entityTag != nil || lastModified != nil else { return nil }
    return Validators(url: url, entityTag: entityTag, lastModified: lastModified)
  }

  /// The fields that are too long to be sent back.
  var oversizedValidators: [String] {
    [("ETag", entityTag), ("Last-Modified", lastModified)].filter { $0.1 != nil && Validators.fitting($0.1) == nil }
      .map(\.0)
  }
}
