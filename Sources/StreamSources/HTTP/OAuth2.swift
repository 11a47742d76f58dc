import HTTP

/// How a source gets the token of its requests. Two sources with equal values share one token.
public struct OAuth2: Sendable, Equatable {
  /// What is exchanged for a token.
  public enum Grant: Sendable, Equatable {
    /// Source: RFC 6749, 4.4.
    case clientCredentials
    /// The server may replace it with each use. Source: RFC 6749, 6.
    case refreshToken(String)
  }

  /// The token endpoint.
  public var tokenURL: String
  /// The client's id.
  public var clientID: String
  /// A secret, never printed; nil: the client has none.
  public var clientSecret: String?
  /// What is exchanged for a token.
  public var grant: Grant
  /// The requested scope; nil: none is requested.
  public var scope: String?
  /// Whether the client's id and secret are in the body instead of `Authorization: Basic`.
  public var sendsSecretInForm = false
  /// How requests reach the token endpoint.
  public var route = HTTPRoute.environment
  /// The trusted authorities of the token endpoint.
  public var trust = HTTPTrust()
  /// The User-Agent header.
  public var userAgent = "streamd"

  /// Everything else has a default.
  public init(tokenURL: String, clientID: String, clientSecret: String? = nil, grant: Grant) {
    (self.tokenURL, self.clientID, self.clientSecret, self.grant) = (tokenURL, clientID, clientSecret, grant)
  }

  /// A name for what is stored of the token; the same for other credentials.
  var name: String {
    let parts = [tokenURL, clientID, scope ?? ""].map { "\($0.utf8.count) \($0)" }.joined()
    return "token-" + Self.hexadecimal(sha256(Array(parts.utf8)).prefix(16))
  }

  static func hexadecimal(_ bytes: some Sequence<UInt8>) -> String {
    bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
  }

  /// The request for a token.
  /// - Parameter refreshToken: the present one; nil: the grant has none.
  func request(_ refreshToken: String?) throws(SourceFailure) -> UpstreamRequest {
    var request = UpstreamRequest(url: try HTTPURL(tokenURL), userAgent: userAgent)
    (request.route, request.redirects, request.timeout) = (route, .none, .seconds(30))
    request.trust.authorities = trust.authorities
    request.headers = [HTTPHeader(name: "Accept", value: "application/json")]
    // A refresh token may be valid once, and libcurl must not send it twice.
    (request.method, request.isIdempotent) = (.post, false)
    var form = [HTTPQueryItem(name: "grant_type", value: refreshToken == nil ? "client_credentials" : "refresh_token")]
    if let refreshToken { form.append(HTTPQueryItem(name: "refresh_token", value: refreshToken)) }
    if let scope { form.append(HTTPQueryItem(name: "scope", value: scope)) }
    if let clientSecret, !sendsSecretInForm {
      // Source: RFC 6749, 2.3.1.
      request.login = HTTPLogin(
        user: HTTPQueryItem.encoded(clientID), password: HTTPQueryItem.encoded(clientSecret))
    } else {
      form.append(HTTPQueryItem(name: "client_id", value: clientID))
      if let clientSecret { form.append(HTTPQueryItem(name: "client_secret", value: clientSecret)) }
    }
    let body = form.map(\.encoded).joined(separator: "&")
    request.body = HTTPBody(Array(body.utf8), type: "application/x-www-form-urlencoded", isSecret: true)
    return request
  }
}

/// Keeps refresh tokens that servers have replaced. Each is a secret.
public struct TokenStore: Sendable {
  /// The content under a name; nil: there is none.
  let load: @Sendable (_ name: String) -> [UInt8]?
  /// Replaces the content under a name.
  /// - Parameter completed: called once, on any thread, when it survives a loss of power; with the reason if it does not.
  let save: @Sendable (_ name: String, _ content: [UInt8], _ completed: @escaping @Sendable (String?) -> Void) -> Void

  /// Both closures are called on the source thread.
  public init(
    load: @escaping @Sendable (String) -> [UInt8]?,
    save: @escaping @Sendable (String, [UInt8], @escaping @Sendable (String?) -> Void) -> Void
  ) {
    (self.load, self.save) = (load, save)
  }
}
