import CCurl
import Glibc

/// How a source's requests reach the network.
public enum HTTPRoute: Sendable, Equatable {
  /// As in the environment: `http_proxy`, `https_proxy`, `all_proxy` and `no_proxy`, with curl's rules.
  case environment
  /// Directly to the upstream; the environment is ignored.
  case direct
  /// Through this proxy to every host; the environment is ignored.
  case proxy(HTTPProxy)
}

/// A proxy and the login for it.
public struct HTTPProxy: Sendable, Equatable {
  /// `http://`, `https://`, `socks5://` (resolves names locally) or `socks5h://` (the proxy resolves names), a host and
  /// optionally a port, and nothing else.
  public var url: String
  /// For basic authentication to an HTTP proxy, or the user/password method of SOCKS. Sent to the proxy only.
  public var login: HTTPLogin?

  /// Does not validate; `HTTPConfiguration.problems` does.
  public init(url: String, login: HTTPLogin? = nil) {
    self.url = url
    self.login = login
  }

  /// Whether the environment names any proxy, in one of the variables that libcurl reads.
  static let isInEnvironment = ["http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"].contains {
    guard let value = unsafe getenv($0) else { return false }
    return unsafe value.pointee != 0
  }

  /// Host and port, for a message.
  var authority: String {
    let rest = url.firstRange(of: "://").map { url[$0.upperBound...] } ?? url[...]
    return String(rest.prefix { $0 != "/" })
  }

  /// The error in it, as a sentence; nil: none.
  var problem: String? {
    guard let parsed = unsafe curl_url() else { return nil }
    defer { unsafe curl_url_cleanup(parsed) }
    let flags = UInt32(CURLU_NON_SUPPORT_SCHEME)  // its parser does not accept a proxy's schemes
    guard unsafe curl_url_set(parsed, CURLUPART_URL, url, flags) == CURLUE_OK,
      ["http://", "https://", "socks5://", "socks5h://"].contains(where: { url.lowercased().hasPrefix($0) }),
      !authority.isEmpty, !authority.contains("@"), url.hasSuffix(authority) || url.hasSuffix(authority + "/")
    else { return "proxy: not a URL such as http://proxy.example.org:3128" }
    return login?.problem.map { "proxy: " + $0 }
  }
}

/// A user and a password.
public struct HTTPLogin: Sendable, Equatable {
  /// Without colon and control characters.
  public var user: String
  /// A secret, never printed.
  public var password: String

  /// Does not validate; `HTTPConfiguration.problems` does.
  public init(user: String, password: String) {
    self.user = user
    self.password = password
  }

  /// The error in it, as a sentence without the password; nil: none.
  var problem: String? {
    if user.utf8.contains(UInt8(ascii: ":")) { return "a user may not have a colon in it" }
    guard (user + password).utf8.allSatisfy({ $0 >= 0x20 && $0 != 0x7F }) else {
      return "a control character in user or password"
    }
    return nil
  }
}

extension UpstreamRequest {
  /// The proxy to which a request would have connected, because the environment names it.
  ///
  /// - Parameters:
  ///   - detail: libcurl's text, `Failed to connect to HOST port PORT after…` (its `connect.c`).
  ///   - origin: the server that was meant.
  /// - Returns: nil if it is that server, or if the text is another one.
  func proxyOfEnvironment(in detail: String, insteadOf origin: HTTPURL.Origin) -> String? {
    guard case .environment = route, unixSocket == nil,
      let start = detail.firstRange(of: "Failed to connect to ")?.upperBound,
      let end = detail[start...].firstRange(of: " port ")
    else { return nil }
    let (host, port) = (detail[start..<end.lowerBound], detail[end.upperBound...].prefix(while: \.isNumber))
    let hosts = [host.lowercased(), "[\(host.lowercased())]"]
    let isServer = port == origin.port && hosts.contains(origin.host.lowercased())
    return isServer ? nil : "the environment's proxy \(host):\(port)"
  }
}
