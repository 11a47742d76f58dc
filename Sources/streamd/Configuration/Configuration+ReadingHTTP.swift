extension Configuration.HTTP.Fetching {
  fileprivate var isServerSentEvents: Bool {
    if case .stream(.sse, _) = self { true } else { false }
  }
}

extension ConfigurationReader {
  /// Reads `http`.
  ///
  /// - Returns: `nil`, after recording an error, without a URL to fetch.
  func http(_ table: ConfigurationTable) -> Configuration.HTTP? {
    let url = url(table)
    let fetching = fetching(table)
    var http = Configuration.HTTP(url: url ?? "", fetching: fetching ?? .poll(every: .seconds(1)))
    http.eventForm = table.value("sse", .choice, default: http.eventForm)
    if table.holds("sse"), fetching.map({ !$0.isServerSentEvents }) == true {
      table.addError("expected sse only with stream = \"sse\"", at: "sse", lacking: ["stream"])
    }
    http.timeout = table.value("timeout", .duration(), default: http.timeout)
    http.maxBodyBytes = table.value("max_body", .size(1...1 << 30))
    http.headers = table.table("headers", headers) ?? []
    http.query = table.table("query", query) ?? []
    http.authorization = authorization(table, headers: http.headers)
    http.unixSocket = table.value("unix_socket", .socketPath)
    http.settings = settings(table)
    if table.holds("unix_socket"), table.holds("proxy"), http.settings.proxy != .none {
      table.addError("expected proxy or unix_socket, got both", at: "proxy")
    }
    return url == nil || fetching == nil ? nil : http
  }

  /// `every`, or `stream` with its options.
  private func fetching(_ table: ConfigurationTable) -> Configuration.HTTP.Fetching? {
    let format: Configuration.HTTP.Format? = table.value("stream", .choice)
    let idleTimeout = table.value("idle_timeout", .duration())
    guard table.holds("stream") else {
      if table.holds("idle_timeout") {
        table.addError("expected idle_timeout only with stream", at: "idle_timeout", lacking: ["stream"])
      }
      if !table.holds("every") {
        table.addError(
          "expected every, such as every = \"30s\", or stream, got neither", lacking: ["every", "stream"])
      }
      return table.value("every", .duration()).map { .poll(every: $0) }
    }
    if table.holds("every") {
      table.addError("expected every or stream, got both")
      _ = table.value("every", .duration())
    }
    return format.map { .stream($0, idleTimeout: idleTimeout) }
  }

  private func url(_ table: ConfigurationTable) -> String? {
    if !table.holds("url") {
      table.addError("expected url, such as url = \"https://example.org/\", got none", lacking: ["url"])
    }
    guard let text = table.value("url", .text("a URL such as \"https://example.org/\"") { _ in true }) else {
      return nil
    }
    do {
      try UpstreamURL.check(text)
      return text
    } catch {
      switch error {
      case .holdsCredentials:
        table.addError(
          "expected a URL without a user or password; use basic, bearer, headers or query with a credential", at: "url")
      case .holdsVariable:
        table.addError("expected a URL without ${…}: no variable is replaced in it", at: "url")
      case .noURL: table.expected("a URL such as \"https://example.org/\"", at: "url")
      }
    }
    return nil
  }

  /// `bearer` or `basic`, but not together with an `Authorization` header.
  private func authorization(
    _ table: ConfigurationTable, headers: [Configuration.Header]
  ) -> Configuration.Authorization? {
    let bearer = table.table("bearer", expecting: "{ credential = \"name\" }", secret)
    let basic = table.table("basic", expecting: "{ user = \"name\", password = { credential = \"name\" } }", login)
    let header = headers.first { $0.name.lowercased() == "authorization" }
    let ways = ["bearer", "basic"].filter { table.holds($0) }
    if ways.count == 2 {
      table.addError("expected bearer or basic, got both", at: "basic")
    } else if let way = ways.first, let header {
      table.addError("expected \(way) or the header \(header.name), got both", at: way)
    }
    return bearer.map(Configuration.Authorization.bearer) ?? basic.map(Configuration.Authorization.basic)
  }

  private func query(_ table: ConfigurationTable) -> [Configuration.QueryItem] {
    table.keys.compactMap { name in
      if !(1...256).contains(name.utf8.count) || name.hasControlCharacters {
        table.addError("expected a name of 1 to 256 bytes without control characters", at: name)
      }
      return header(name, table).map { Configuration.QueryItem(name: name, value: $0) }
    }
  }

  private func headers(_ table: ConfigurationTable) -> [Configuration.Header] {
    table.keys.compactMap { name in
      if !isToken(name) { table.addError("expected the name of a header", at: name) }
      return header(name, table).map { Configuration.Header(name: name, value: $0) }
    }
  }

  private func header(_ name: String, _ table: ConfigurationTable) -> Configuration.Header.Value? {
    guard let text = table.text(name) else {
      return table.table(name, expecting: "a string or { credential = \"name\" }", secret).map { .secret($0) }
    }
    guard text.utf8.count <= 8192, !text.hasControlCharacters else {
      table.expected("at most 8192 bytes without control characters", at: name, secret: true)
      return nil
    }
    return .plain(text)
  }

  /// A token (RFC 9110, 5.6.2).
  private func isToken(_ text: String) -> Bool {
    !text.isEmpty && text.utf8.count <= 256
      && text.unicodeScalars.allSatisfy {
        $0.isASCII && ($0.properties.isAlphabetic || "0123456789!#$%&'*+-.^_`|~".unicodeScalars.contains($0))
      }
  }
}
