import CCurl

/// How a source's requests reach the network.
public enum HTTPRoute: Sendable, Equatable {
  /// As the environment says: `http_proxy`, `https_proxy`, `all_proxy` and `no_proxy`, as curl reads them.
  case environment
  /// To the upstream itself, whatever the environment says.
  case direct
  /// Through this proxy, to every host, whatever the environment says.
  case proxy(HTTPProxy)
}

/// A proxy, and who one is to it.
public struct HTTPProxy: Sendable, Equatable {
  /// `http://`, `https://`, `socks5://` (names are looked up here) or `socks5h://` (names are looked up by the proxy),
  /// a host and maybe a port. Nothing else.
  public var url: String
  /// For basic authentication to an HTTP proxy, or the method of SOCKS that does the same. Seen by the proxy alone.
  public var login: HTTPLogin?

  /// Takes both as they are; `HTTPConfiguration.problems` checks them.
  public init(url: String, login: HTTPLogin? = nil) {
    self.url = url
    self.login = login
  }

  /// Host and port, for a sentence.
  var authority: String {
    let rest = url.firstRange(of: "://").map { url[$0.upperBound...] } ?? url[...]
    return String(rest.prefix { $0 != "/" })
  }

  /// What is wrong with it, in a sentence; nil: nothing.
  var problem: String? {
    guard let parsed = curl_url() else { return nil }
    defer { curl_url_cleanup(parsed) }
    let flags = UInt32(CURLU_NON_SUPPORT_SCHEME)  // its parser knows no scheme of a proxy
    guard curl_url_set(parsed, CURLUPART_URL, url, flags) == CURLUE_OK,
      ["http://", "https://", "socks5://", "socks5h://"].contains(where: { url.lowercased().hasPrefix($0) }),
      !authority.isEmpty, !authority.contains("@"), url.hasSuffix(authority) || url.hasSuffix(authority + "/")
    else { return "proxy: not a URL such as http://proxy.example.org:3128" }
    return login?.problem.map { "proxy: " + $0 }
  }
}

/// A name and the password that goes with it.
public struct HTTPLogin: Sendable, Equatable {
  /// Without a colon and control characters.
  public var user: String
  /// A secret, never printed.
  public var password: String

  /// Takes both as they are; `HTTPConfiguration.problems` checks them.
  public init(user: String, password: String) {
    self.user = user
    self.password = password
  }

  /// What is wrong with it, in a sentence without the password; nil: nothing.
  var problem: String? {
    if user.utf8.contains(UInt8(ascii: ":")) { return "a user may not have a colon in it" }
    guard (user + password).utf8.allSatisfy({ $0 >= 0x20 && $0 != 0x7F }) else {
      return "a control character in user or password"
    }
    return nil
  }
}
