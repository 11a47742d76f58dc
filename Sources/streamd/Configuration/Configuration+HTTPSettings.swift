import StreamSources

extension Configuration {
  /// `[http]`: the limit of transfers, and the defaults of HTTP sources.
  struct Upstreams: Sendable, Equatable {
    /// Concurrent transfers to one host and port, or to one Unix socket; 1 to 1024.
    var maxPerHost = 4
    /// The settings of all streams that do not override them.
    var settings = HTTPSettings()
  }

  /// The User-Agent, proxy, TLS trust and redirects of transfers. `[http]` sets the defaults for the streams' own
  /// settings.
  struct HTTPSettings: Sendable, Equatable {
    /// The User-Agent, 1 to 256 bytes without control characters; `nil`: the daemon's name and version.
    var userAgent: String?
    var proxy = Proxy.environment
    /// Path of a PEM file with the only trusted authorities; `nil`: the system's.
    var authorities: String?
    /// The client certificate; `nil`: none is sent.
    var identity: Identity?
    var redirects = HTTPRedirects.sameOrigin
  }

  /// The proxy to use.
  enum Proxy: Sendable, Equatable {
    /// The proxy of the environment variables http_proxy, https_proxy, all_proxy and no_proxy.
    case environment
    case none
    /// A URL of scheme `http`, `https`, `socks5` or `socks5h`, without user, password and path.
    case server(String, Login?)
  }

  /// A client certificate.
  struct Identity: Sendable, Equatable {
    /// Path of a PEM file.
    var certificate: String
    /// Path of a PEM file, possibly that of the certificate.
    var key: String
    /// The passphrase of the key.
    var passphrase: Secret?
  }
}

extension Configuration.HTTPSettings: ConfigurationSection {
  static let keys: [ConfigurationKey<Self>] = [
    .init(
      "user_agent", \.userAgent,
      .text("a text of 1 to 256 bytes without control characters") {
        (1...256).contains($0.utf8.count) && !$0.hasControlCharacters
      }),
    .init(["proxy"], \.proxy) { $1 = readProxy($0) ?? $1 },
    .init("redirects", \.redirects, .choice),
    .part(\.self, trustKeys),
  ]

  /// The keys for TLS.
  static let trustKeys: [ConfigurationKey<Self>] = [
    .init(["ca_file"], \.authorities) { table, path in
      path = table.text("ca_file") == "system" ? nil : table.file("ca_file", label: "CERTIFICATE") ?? path
    },
    .init(["client_certificate", "client_key", "client_key_passphrase"], \.identity, read: readIdentity),
  ]

  /// - Returns: `nil` when the key is absent or invalid.
  private static func readProxy(_ table: ConfigurationTable) -> Configuration.Proxy? {
    guard table.holds("proxy") else { return nil }
    let form = "\"none\", a URL such as \"http://proxy.example.org:3128\", or { url, user, password }"
    if let text = table.text("proxy") {
      if text == "none" { return Configuration.Proxy.none }
      guard isProxy(text) else {
        table.expected(form, at: "proxy")
        return nil
      }
      return .server(text, nil)
    }
    return table.table("proxy", expecting: form) { table in
      table.require("url", suchAs: "url = \"http://proxy.example.org:3128\"")
      let login = table.holds("user") || table.holds("password") ? table.login() : nil
      guard let url = table.text("url"), isProxy(url) else {
        if table.holds("url") {
          table.expected("a URL such as \"http://proxy.example.org:3128\"", at: "url", secret: true)
        }
        return nil
      }
      return .server(url, login)
    }
  }

  /// Whether `text` is the URL of a proxy: without user, password and path, except for a slash at the end.
  private static func isProxy(_ text: String) -> Bool {
    let server = text.hasSuffix("/") ? String(text.dropLast()) : text
    do {
      try UpstreamURL.checkServer(server, schemes: ["http://", "https://", "socks5://", "socks5h://"])
      return true
    } catch {
      return false
    }
  }

  private static func readIdentity(_ table: ConfigurationTable, _ identity: inout Configuration.Identity?) {
    let passphrase = table.secret("client_key_passphrase")
    let isNone = table.text("client_certificate") == "none"
    if isNone || !table.holds("client_certificate") {
      table.refuse(
        ["client_key_passphrase"], onlyWith: "client_certificate", lacking: ["client_certificate"])
    }
    let files = table.certificateAndKey(isNone: isNone)
    if isNone {
      identity = nil
    } else if let files {
      identity = .init(certificate: files.certificate, key: files.key, passphrase: passphrase)
    }
  }
}

extension Configuration.HTTPSettings {
  var route: HTTPRoute {
    switch proxy {
    case .environment: .environment
    case .none: .direct
    case .server(let url, let login): .proxy(HTTPProxy(url: url, login: login.map { HTTPLogin($0) }))
    }
  }

  /// - Parameter serverName: as in `HTTPTrust`.
  func trust(serverName: String?) -> HTTPTrust {
    let identity = identity.map {
      HTTPIdentity(certificate: $0.certificate, key: $0.key, passphrase: $0.passphrase?.content)
    }
    return HTTPTrust(authorities: authorities, identity: identity, serverName: serverName)
  }
}

extension HTTPLogin {
  init(_ login: Configuration.Login) { self.init(user: login.user, password: login.password.content) }
}

extension Configuration.Upstreams: ConfigurationSection {
  static let keys: [ConfigurationKey<Self>] = [
    .init("max_per_host", \.maxPerHost, .count(1...1024)),
    .part(\.settings),
  ]
}
