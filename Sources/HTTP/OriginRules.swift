/// Which web pages may use a server, by the fields in which a browser names a request's origin.
///
/// They protect only against pages of other sites, even if DNS maps the site's name to this host. Other clients can
/// send any fields, so the rights of users do not depend on these rules.
public struct OriginRules: Sendable {
  /// Additional hosts: `server.hosts`, with small letters and without ports.
  public var hosts: Set<String>
  /// Origins of other sites that may use the server: `server.origins`, as browsers send them.
  public var origins: Set<String>
  /// Whether the connection came through a Unix socket.
  public var isUnixSocket: Bool

  /// Creates rules.
  public init(hosts: Set<String> = [], origins: Set<String> = [], isUnixSocket: Bool) {
    self.hosts = hosts
    self.origins = origins
    self.isUnixSocket = isUnixSocket
  }

  /// Checks a request with any method, also one for a WebSocket.
  ///
  /// - Returns: the origin for the field Access-Control-Allow-Origin, if it is another site's that is allowed.
  /// - Throws: 403.
  public func check(_ head: RequestHead) throws(Rejection) -> String? {
    // The checks of load balancers may have no Host, which every browser sends.
    let isCheck = head.authority.kind == .empty && (head.target.path == "/healthz" || head.method == .options)
    guard isCheck || allowsHost(head.authority) else {
      let host = head.authority.kind == .name ? Self.quoted(head.authority.host) : "this host"
      throw Rejection(
        .forbidden, "\(host) is not served: add it to server.hosts in the configuration, if it is the server's name")
    }
    let origin = head["Origin"]
    if let origin, origins.contains(origin) { return origin }
    switch head["Sec-Fetch-Site"] {
    case "none", "same-origin": return nil
    case _? where head.target.path == "/" && head.method == .get && head["Sec-Fetch-Mode"] == "navigate": return nil
    case nil where origin.map({ Self.isOrigin($0, of: head.authority) }) ?? true: return nil
    case _:
      let page = origin == nil || origin == "null" ? "a page of another site" : "a page of \(Self.quoted(origin ?? ""))"
      throw Rejection(
        .forbidden, "\(page) made this request: add its origin to server.origins in the configuration")
    }
  }

  /// A name that the client has sent, short and printable, for a sentence.
  private static func quoted(_ name: String) -> String {
    let isShown = name.utf8.count <= 255 && name.utf8.allSatisfy { 0x21...0x7E ~= $0 && $0 != UInt8(ascii: "\"") }
    return isShown ? "\"\(name)\"" : "another host"
  }

  /// Whether the server has this name. Its port does not matter.
  func allowsHost(_ authority: Authority) -> Bool {
    switch authority.kind {
    case .ipv4, .ipv6: true
    case .empty, .socketPath: isUnixSocket
    case .name:
      authority.isLocalhost || hosts.contains(authority.host) || isUnixSocket && !authority.host.contains(".")
    }
  }

  /// Whether an Origin field names this host: the port of the origin's scheme may be omitted in both. Source: RFC 6454,
  /// section 7.
  static func isOrigin(_ origin: String, of host: Authority) -> Bool {
    for (scheme, port) in [("http://", UInt16(80)), ("https://", 443)] where origin.hasPrefix(scheme) {
      guard let authority = Authority(String(origin.dropFirst(scheme.count))) else { return false }
      return authority.kind != .empty && authority.host == host.host && authority.kind == host.kind
        && (authority.port ?? port) == (host.port ?? port)
    }
    return false
  }
}
