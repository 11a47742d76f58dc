extension ConfigurationReader {
  /// Reads `[http]`.
  ///
  /// - Returns: its own values, and the settings of all streams that do not override them.
  func upstreams(_ table: ConfigurationTable) -> (Configuration.Upstreams, Configuration.HTTPSettings) {
    let maxPerHost = table.value("max_per_host", .count(1...1024), default: Configuration.Upstreams().maxPerHost)
    return (Configuration.Upstreams(maxPerHost: maxPerHost), settings(table))
  }

  /// Reads the settings among the other keys of `table`; absent ones keep their defaults.
  func settings(_ table: ConfigurationTable) -> Configuration.HTTPSettings {
    var settings = standardSettings
    settings.userAgent =
      table.value(
        "user_agent",
        .text("a text of 1 to 256 bytes without control characters") {
          (1...256).contains($0.utf8.count) && !$0.hasControlCharacters
        }) ?? settings.userAgent
    settings.proxy = proxy(table) ?? settings.proxy
    if table.text("ca_file") == "system" {
      settings.authorities = nil
    } else if let authorities = file("ca_file", table, label: "CERTIFICATE") {
      settings.authorities = authorities
    }
    settings.redirects = table.value("redirects", .choice, default: settings.redirects)
    if let identity = identity(table) { settings.identity = identity.value }
    return settings
  }

  /// - Returns: `nil` when the key is absent or invalid.
  private func proxy(_ table: ConfigurationTable) -> Configuration.Proxy? {
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
      if !table.holds("url") {
        table.addError("expected url, such as url = \"http://proxy.example.org:3128\", got none", lacking: ["url"])
      }
      let login = table.holds("user") || table.holds("password") ? login(table) : nil
      guard let url = table.text("url"), isProxy(url) else {
        if table.holds("url") {
          table.expected("a URL such as \"http://proxy.example.org:3128\"", at: "url", secret: true)
        }
        return nil
      }
      return .server(url, login)
    }
  }

  /// Without user, password and path, but a slash at the end.
  private func isProxy(_ text: String) -> Bool {
    let server = text.hasSuffix("/") ? String(text.dropLast()) : text
    do {
      try UpstreamURL.checkServer(server, schemes: ["http://", "https://", "socks5://", "socks5h://"])
      return true
    } catch {
      return false
    }
  }

  /// The client certificate's keys in a table.
  private struct Said {
    let value: Configuration.Identity?
  }

  /// - Returns: `nil` when the keys are absent.
  private func identity(_ table: ConfigurationTable) -> Said? {
    let passphrase = table.table("client_key_passphrase", expecting: "{ credential = \"name\" }", secret)
    let isNone = table.text("client_certificate") == "none"
    if table.holds("client_key_passphrase"), isNone || !table.holds("client_certificate") {
      table.addError(
        "expected client_key_passphrase only with client_certificate", at: "client_key_passphrase",
        lacking: ["client_certificate"])
    }
    let files = certificateAndKey(table, isNone: isNone)
    if isNone { return Said(value: nil) }
    return files.map {
      Said(value: Configuration.Identity(certificate: $0.certificate, key: $0.key, passphrase: passphrase))
    }
  }

  /// The files of `client_certificate` and `client_key`.
  ///
  /// - Parameter isNone: the former says that there is none.
  /// - Returns: `nil` when there is none, or after recording an error.
  func certificateAndKey(_ table: ConfigurationTable, isNone: Bool = false) -> (certificate: String, key: String)? {
    let hasKey = table.holds("client_key")
    guard table.holds("client_certificate"), !isNone else {
      if hasKey {
        table.addError(
          "expected client_key only with client_certificate", at: "client_key", lacking: ["client_certificate"])
      }
      return nil
    }
    let certificate = file("client_certificate", table, label: "CERTIFICATE")
    let key = file(hasKey ? "client_key" : "client_certificate", table, label: "PRIVATE KEY")
    return certificate.flatMap { certificate in key.map { (certificate, $0) } }
  }
}
