/// What the body of a response is meant to be.
public enum HTTPContent: Sendable {
  /// Bytes, which are used as they are.
  case any
  /// Text: one in another charset, which the response or a byte order mark of UTF-16 declares, becomes UTF-8.
  case text
  /// JSON: the same, and a response that says that it is a document or has several parts, and is no JSON, is a failure.
  case json
}

/// What to fetch over HTTP, and the limits: the same for a poll and for a streaming response.
public struct HTTPConfiguration: Sendable, Equatable {
  /// Absolute, http or https. A user and password in it are sent as basic authentication and never printed.
  public var url: String
  /// What stands for the URL in stored positions; nil: the URL itself, which is no secret then.
  package var urlName: String?
  /// Identifies the credentials in what is stored, and has none of them; nil: nothing is stored of their rate limits.
  package var account: String?
  /// Whether a poll waits for the end of an answer's `max-age` (Cache-Control).
  public var obeysMaximumAge = false
  /// The method. Requests are conditional with GET only.
  public var method = HTTPMethod.get
  /// Not with GET.
  public var body: HTTPBody?
  /// Whether a request is repeated on which the upstream may have acted. If not, the source makes no further attempt before a
  /// refresh.
  public var isIdempotent = true
  /// Where a poll continues; nil: each request is the same.
  public var cursor: HTTPCursor?
  /// The time limit for the whole response, redirects included; for a streaming response, for its head.
  public var timeout: Duration
  /// Maximum bytes of one event, decompressed.
  public var maximumBodyBytes: Int
  /// Sent only to the origin of `url`, whatever the redirects, except Accept, Accept-Language and Content-Language.
  public var headers: [HTTPHeader]
  /// Sent as `Authorization: Bearer …`, only to the origin of `url`.
  public var bearer: String?
  /// Sent as `Authorization: Basic …`, only to the origin of `url`. Takes precedence over a user and password in `url`;
  /// `bearer` takes precedence over both.
  public var login: HTTPLogin?
  /// How `bearer` is got for each request; nil: it is as it is.
  public var oauth2: OAuth2?
  /// Added to the URL's query, percent-encoded. Values may be secret: they are not printed, and not sent to a
  /// redirect's target.
  public var query: [HTTPQueryItem]
  /// The path of a Unix socket to connect to instead of the URL's host. `route` is then ignored.
  public var unixSocket: String?
  /// How requests reach the network: directly or through a proxy.
  public var route: HTTPRoute
  /// TLS trust for https.
  public var trust: HTTPTrust
  /// Where redirects may lead.
  public var redirects: HTTPRedirects
  /// The delay after failures.
  public var retry: Backoff
  /// The User-Agent header.
  public var userAgent: String
  /// What a body is meant to be.
  public var content = HTTPContent.any

  /// Everything except the URL has a default.
  public init(
    url: String, timeout: Duration = .seconds(30), maximumBodyBytes: Int = 8 << 20,
    headers: [HTTPHeader] = [], bearer: String? = nil, login: HTTPLogin? = nil, query: [HTTPQueryItem] = [],
    unixSocket: String? = nil, route: HTTPRoute = .environment, trust: HTTPTrust = HTTPTrust(),
    redirects: HTTPRedirects = .sameOrigin,
    retry: Backoff = Backoff(), userAgent: String = "streamd"
  ) {
    self.url = url
    self.timeout = timeout
    self.maximumBodyBytes = maximumBodyBytes
    self.headers = headers
    self.bearer = bearer
    self.login = login
    self.query = query
    self.unixSocket = unixSocket
    self.route = route
    self.trust = trust
    self.redirects = redirects
    self.retry = retry
    self.userAgent = userAgent
  }

  /// The errors in the configuration, a sentence each, without secrets. With any error, each fetch fails with a report.
  public var problems: [String] {
    var problems: [String] = []
    do throws(SourceFailure) { _ = try HTTPURL(url) } catch { problems.append("url: \(error.sentence)") }
    if timeout <= .zero { problems.append("timeout: must be greater than zero") }
    if maximumBodyBytes < 0 { problems.append("maximum body: must not be negative") }
    for header in headers {
      if header.name.isEmpty || !header.name.utf8.allSatisfy(Self.isTokenByte) {
        problems.append("headers: a name may have only letters, digits and !#$%&'*+-.^_`|~")
      } else if !header.value.utf8.allSatisfy(Self.isValueByte) {
        problems.append("headers: \(header.name) has a control character in its value")
      }
    }
    if let bearer, !bearer.utf8.allSatisfy(Self.isValueByte) {
      problems.append("bearer: has a control character in it")
    }
    if let problem = login?.problem { problems.append("login: \(problem)") }
    if case .proxy(let proxy) = route, let problem = proxy.problem { problems.append(problem) }
    if query.contains(where: \.name.isEmpty) { problems.append("query: a name may not be empty") }
    if body != nil, method == .get { problems.append("body: a GET has none") }
    if body?.type.utf8.allSatisfy(Self.isValueByte) == false {
      problems.append("body: its type has a control character in it")
    }
    if !userAgent.utf8.allSatisfy(Self.isValueByte) {
      problems.append("user agent: has a control character in it")
    }
    if let unixSocket, !(1...107).contains(unixSocket.utf8.count) {
      problems.append("unix socket: a path has 1 to 107 bytes")
    }
    return problems
  }

  /// - Throws: the first of `problems`.
  func request(_ validators: Validators?) throws(SourceFailure) -> UpstreamRequest {
    if let problem = problems.first { throw SourceFailure(problem) }
    var request = UpstreamRequest(
      url: try HTTPURL(url, adding: query), method: method, body: body, isIdempotent: isIdempotent, headers: headers,
      bearer: bearer, login: login, validators: validators, unixSocket: unixSocket, route: route, trust: trust,
      timeout: timeout, redirects: redirects, userAgent: userAgent)
    (request.account, request.obeysMaximumAge) = (account ?? credentials, obeysMaximumAge)
    return request
  }

  /// A text that is equal for equal credentials, in this process alone.
  private var credentials: String {
    let parts = [bearer ?? "", login?.user ?? "", login?.password ?? "", oauth2?.name ?? ""]
    let logins = headers.filter { ["authorization", "cookie"].contains($0.name.lowercased()) }.map(\.value)
    return "\(BodyDigest(parts: parts + logins).value)"
  }

  /// RFC 9110, 5.6.2.
  private static func isTokenByte(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
      UInt8(ascii: "0")...UInt8(ascii: "9"):
      true
    default: "!#$%&'*+-.^_`|~".utf8.contains(byte)
    }
  }

  /// RFC 9110, 5.5.
  private static func isValueByte(_ byte: UInt8) -> Bool { byte == 0x09 || (byte >= 0x20 && byte != 0x7F) }
}
