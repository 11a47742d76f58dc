extension ConfigurationReader {
  /// Reads `{ credential = "name" }`.
  ///
  /// - Returns: `nil`, after recording an error, when the secret cannot be read.
  func secret(_ table: ConfigurationTable) -> Secret? { secret(table, allowsLines: false) }

  /// Reads a secret, as above.
  ///
  /// - Parameter allowsLines: whether it may have several lines.
  func secret(_ table: ConfigurationTable, allowsLines: Bool) -> Secret? {
    if !table.holds("credential") {
      table.addError("expected { credential = \"name\" }, got no credential", lacking: ["credential"])
    }
    let name = table.value(
      "credential", .text("the name of a credential", where: CredentialFolder.isName), secret: true)
    guard let name else { return nil }
    unread?.note(name)
    guard readsSecrets, unread == nil else { return Secret(name: name, content: "") }
    do {
      return try credentials.secret(named: name, allowsLines: allowsLines)
    } catch {
      table.addError("the credential \"\(name)\" cannot be read: \(error.reason)", at: "credential")
      return nil
    }
  }

  /// Reads `{ user = "name", password = { credential = "name" } }`.
  ///
  /// - Returns: `nil`, after recording an error, when either is missing or invalid.
  func login(_ table: ConfigurationTable) -> Configuration.Login? {
    for key in ["user", "password"] where !table.holds(key) {
      table.addError("expected \(key), got none", lacking: [key])
    }
    let form = "a name of at most 256 bytes without a colon and control characters"
    let user = table.value(
      "user",
      .text(form) { (1...256).contains($0.utf8.count) && !$0.contains(":") && !$0.hasControlCharacters }, secret: true)
    let password = table.table("password", expecting: "{ credential = \"name\" }", secret)
    return user.flatMap { user in password.map { Configuration.Login(user: user, password: $0) } }
  }

  /// Returns the path of a file: the value of `key`, or the file of the credential that it names.
  ///
  /// - Parameters:
  ///   - label: the start of a line in the file, as in PEM: `-----BEGIN CERTIFICATE-----`. Cut where it varies.
  /// - Returns: `nil` when the key is absent, or, after recording an error, when there is no such file.
  func file(_ key: String, _ table: ConfigurationTable, label: String) -> String? {
    guard let path = path(key, table) else { return nil }
    guard readsSecrets, path.hasPrefix("/") else { return path }
    do {
      let text = try readFile(at: path, limit: 16 << 20)
      let isOfTheKind = String(decoding: text, as: UTF8.self).split(separator: "\n").contains { line in
        line.hasPrefix("-----BEGIN ") && line.contains(label)
      }
      if !isOfTheKind {
        table.addError("expected a file in PEM with a \(label.lowercased()), \(path) has none", at: key)
      }
      return path
    } catch {
      table.addError("\(path) cannot be read: \(error.reason)", at: key)
      return nil
    }
  }

  private func path(_ key: String, _ table: ConfigurationTable) -> String? {
    guard table.holds(key) else { return nil }
    let form = "an absolute path or { credential = \"name\" }"
    guard table.text(key) == nil else {
      return table.value(
        key, .text(form) { $0.hasPrefix("/") && $0.utf8.count < 4096 && !$0.hasControlCharacters },
        secret: key != "ca_file")
    }
    return table.table(key, expecting: form) { table in
      if !table.holds("credential") {
        table.addError("expected { credential = \"name\" }, got no credential", lacking: ["credential"])
      }
      let name = table.value(
        "credential", .text("the name of a credential", where: CredentialFolder.isName), secret: true)
      guard let name else { return nil }
      unread?.note(name)
      guard readsSecrets, unread == nil else { return name }
      if credentials.path == nil {
        table.addError(
          "the credential \"\(name)\" cannot be read: \(CredentialFolder.absence.reason)", at: "credential")
      }
      return credentials.path.map { "\($0)/\(name)" }
    }
  }
}
