import StreamSources

extension Configuration {
  /// `http.oauth2`: how the token of requests is got.
  struct OAuth2: Sendable, Equatable {
    /// A URL of scheme `http` or `https`, without a user and password.
    var tokenURL = ""
    var clientID = ""
    var clientSecret: Secret?
    /// `nil`: client credentials.
    var refreshToken: Secret?
    var scope: String?
    var auth = Auth.basic

    /// Where a request for a token has the client's id and secret.
    enum Auth: String, Sendable, CaseIterable {
      case basic, form
    }
  }
}

extension Configuration.OAuth2: ConfigurationSection {
  static let example = #"{ token_url = "https://…", client_id = "…", client_secret = { credential = "…" } }"#

  static let keys: [ConfigurationKey<Self>] = [
    .init(required: "token_url", suchAs: "token_url = \"https://id.example.org/token\"", \.tokenURL, .tokenURL),
    .init(required: "client_id", suchAs: "client_id = \"streamd\"", \.clientID, .word("an id of 1 to 1024 bytes")),
    .init(["client_secret"], \.clientSecret) { $1 = $0.secret("client_secret") },
    .init(["refresh_token"], \.refreshToken) { $1 = $0.secret("refresh_token") },
    .init("scope", \.scope, .word("scopes of 1 to 1024 bytes")),
    .init("auth", \.auth, .choice),
    .check { table, oauth2 in
      if !table.holds("client_secret"), !table.holds("refresh_token") {
        table.addError(
          "expected client_secret or refresh_token, got neither", lacking: ["client_secret", "refresh_token"])
      }
      if !table.holds("client_secret") { table.refuse(["auth"], onlyWith: "client_secret", lacking: ["client_secret"]) }
    },
  ]

  var definition: [DefinitionField] {
    [
      ("http.oauth2.token_url", tokenURL), ("client_id", clientID), ("client_secret", clientSecret?.name ?? ""),
      ("refresh_token", refreshToken?.name ?? ""), ("scope", scope ?? ""),
    ]
  }

  /// As the source has it.
  func token(_ settings: Configuration.HTTPSettings, _ userAgent: String) -> OAuth2 {
    var token = OAuth2(
      tokenURL: tokenURL, clientID: clientID, clientSecret: clientSecret?.content,
      grant: refreshToken.map { .refreshToken($0.content) } ?? .clientCredentials)
    (token.scope, token.sendsSecretInForm, token.userAgent) = (scope, auth == .form, userAgent)
    (token.route, token.trust.authorities) = (settings.route, settings.authorities)
    return token
  }
}

extension ConfigurationShape where Value == String {
  fileprivate static var tokenURL: Self {
    text("a URL such as \"https://id.example.org/token\", without a user and password") { text in
      do {
        try UpstreamURL.check(text)
        return true
      } catch { return false }
    }
  }

  fileprivate static func word(_ what: String) -> Self {
    text("\(what) without control characters") { (1...1024).contains($0.utf8.count) && !$0.hasControlCharacters }
  }
}
