/// What to fetch over HTTP, and within which limits: the same for a poll and for a response without end.
public struct HTTPConfiguration: Sendable, Equatable {
  /// Absolute, http or https. A user and password in it are sent as basic authentication and never printed.
  public var url: String
  /// Until the whole response is there, redirects included; for one without end, until its head is.
  public var timeout: Duration
  /// Of one event, decompressed.
  public var maximumBodyBytes: Int
  /// Sent to the origin of `url` only, whatever redirects say, but for Accept, Accept-Language and Content-Language.
  public var headers: [HTTPHeader]
  /// Sent as `Authorization: Bearer …` to the origin of `url` only.
  public var bearer: String?
  /// Sent as `Authorization: Basic …` to the origin of `url` only. Goes before a user and password in `url`, and `bearer`
  /// before both.
  public var login: HTTPLogin?
  /// Added to the URL's query, encoded as it needs. Values may be secret: they are not printed, and whoever a redirect
  /// points at gets none of them.
  public var query: [HTTPQueryItem]
  /// The path of a Unix socket to connect to instead of the URL's host. Then `route` does not matter.
  public var unixSocket: String?
  /// Through a proxy or not.
  public var route: HTTPRoute
  /// For https.
  public var trust: HTTPTrust
  /// Where redirects may lead.
  public var redirects: HTTPRedirects
  /// After failures.
  public var retry: Backoff
  /// What the server is told who asks.
  public var userAgent: String

  /// Everything but the URL has a default.
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

  /// What is wrong with it, a sentence each, without anything secret. A source whose configuration has problems
  /// reports a failure at every fetch.
  public var problems: [String] {
    var problems: [String] = []
    do throws(HTTPFailure) { _ = try HTTPURL(url) } catch { problems.append("url: \(error.sentence)") }
    if timeout <= .zero { problems.append("timeout: must be more than nothing") }
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
    if !userAgent.utf8.allSatisfy(Self.isValueByte) {
      problems.append("user agent: has a control character in it")
    }
    if let unixSocket, !(1...107).contains(unixSocket.utf8.count) {
      problems.append("unix socket: a path has 1 to 107 bytes")
    }
    return problems
  }

  /// - Throws: the first of `problems`.
  func request(_ validators: Validators?) throws(HTTPFailure) -> HTTPRequest {
    if let problem = problems.first { throw HTTPFailure(problem) }
    return HTTPRequest(
      url: try HTTPURL(url, adding: query), headers: headers, bearer: bearer, login: login, validators: validators,
      unixSocket: unixSocket, route: route, trust: trust, timeout: timeout, redirects: redirects, userAgent: userAgent)
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
