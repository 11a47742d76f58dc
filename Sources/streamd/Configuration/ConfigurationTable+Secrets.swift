extension ConfigurationTable {
  /// Reads `key = { credential = "name" }`.
  ///
  /// - Parameters:
  ///   - what: a description of a valid secret.
  ///   - allowsLines: whether the secret may have several lines.
  ///   - isValid: whether a secret is valid.
  /// - Returns: `nil` when the key is absent or, after recording an error, the secret cannot be read.
  func secret(
    _ key: String, is what: String = "", allowsLines: Bool = false, where isValid: (String) -> Bool = { _ in true }
  ) -> Secret? {
    table(key, expecting: "{ credential = \"name\" }") { table in
      guard let secret = table.credential(allowsLines: allowsLines) else { return nil }
      if context.unread == nil, !isValid(secret.content) {
        table.addError("expected \(what); the credential \"\(secret.name)\" has something else", at: "credential")
      }
      return secret
    }
  }

  /// Reads `credential = "name"`. Returns `nil` after recording an error.
  func credential(allowsLines: Bool = false) -> Secret? {
    guard let name = credentialName() else { return nil }
    guard context.readsSecrets, context.unread == nil else { return Secret(name: name, content: "") }
    if let secret = context.memory?.secret(named: name) { return secret }
    do {
      let secret = try context.credentials.secret(named: name, allowsLines: allowsLines)
      context.memory?.keep(secret)
      return secret
    } catch {
      addError("the credential \"\(name)\" cannot be read: \(error.reason)", at: "credential")
      return nil
    }
  }

  private func credentialName() -> String? {
    if !holds("credential") {
      addError("expected { credential = \"name\" }, got no credential", lacking: ["credential"])
    }
    let name = value("credential", .text("the name of a credential", where: CredentialFolder.isName), secret: true)
    if let name { context.unread?.note(name) }
    return name
  }

  /// Reads `user = "name"` and `password = { credential = "name" }`.
  ///
  /// - Returns: `nil`, after recording an error, when either is missing or invalid.
  func login() -> Configuration.Login? {
    for key in ["user", "password"] { require(key) }
    let form = "a name of at most 256 bytes without a colon and control characters"
    let user = value(
      "user",
      .text(form) { (1...256).contains($0.utf8.count) && !$0.contains(":") && !$0.hasControlCharacters }, secret: true)
    let password = secret("password")
    return user.flatMap { user in password.map { Configuration.Login(user: user, password: $0) } }
  }

  /// The table at `key`, whose keys are `names`, each with one of `texts` or `{ credential = "name" }`.
  func named(
    _ key: String, _ names: ConfigurationShape<String>, _ texts: ConfigurationShape<String>
  ) -> [Configuration.NamedValue]? {
    table(key) { table in
      table.keys.compactMap { name in
        do throws(Expected) {
          _ = try names.read(ConfigurationNode(line: 0, value: .string(name)))
        } catch {
          table.addError("expected \(error.text)", at: name)
        }
        return table.secretText(name, texts).map { .init(name: name, value: $0) }
      }
    }
  }

  /// The text at `key`: one of `texts`, or `{ credential = "name" }`.
  ///
  /// - Parameter allowsLines: whether the credential may have several lines.
  func secretText(
    _ key: String, _ texts: ConfigurationShape<String>, allowsLines: Bool = false
  ) -> Configuration.NamedValue.Value? {
    guard text(key) == nil else { return value(key, texts, secret: true).map { .plain($0) } }
    return table(key, expecting: "a string or { credential = \"name\" }") { $0.credential(allowsLines: allowsLines) }
      .map { .secret($0) }
  }

  /// The path of a file: the value of `key`, or the file of the credential that it names.
  ///
  /// - Parameter label: a part of a label in the PEM file, such as `PRIVATE KEY` of `-----BEGIN RSA PRIVATE KEY-----`.
  /// - Returns: `nil` when the key is absent or, after recording an error, invalid, or when the file cannot be read.
  func file(_ key: String, label: String) -> String? {
    guard let path = path(key) else { return nil }
    guard context.readsSecrets, !context.isRepeated, path.hasPrefix("/") else { return path }
    do {
      let text = try readFile(at: path, limit: 16 << 20)
      let isOfTheKind = String(decoding: text, as: UTF8.self).split(separator: "\n").contains { line in
        line.hasPrefix("-----BEGIN ") && line.contains(label)
      }
      if !isOfTheKind {
        addError("expected a file in PEM with a \(label.lowercased()), \(path) has none", at: key)
      }
      return path
    } catch {
      addError("\(path) cannot be read: \(error.reason)", at: key)
      return nil
    }
  }

  /// The content of the file at a path, which is the value of `key`; `nil` after recording an error.
  func content(of path: String, at key: String, limit: Int) -> [UInt8]? {
    if let known = context.memory?.content(ofFile: path) { return known }
    do {
      let bytes = try readFile(at: path, limit: limit)
      context.memory?.keep(bytes, ofFile: path)
      return bytes
    } catch {
      addError("\(path) cannot be read: \(error.reason)", at: key)
      return nil
    }
  }

  private func path(_ key: String) -> String? {
    let form = "an absolute path or { credential = \"name\" }"
    guard text(key) == nil else {
      return value(
        key, .text(form) { $0.hasPrefix("/") && $0.utf8.count < 4096 && !$0.hasControlCharacters },
        secret: key != "ca_file")
    }
    return table(key, expecting: form) { table in
      guard let name = table.credentialName() else { return nil }
      guard context.readsSecrets, context.unread == nil else { return name }
      if context.credentials.path == nil {
        table.addError(
          "the credential \"\(name)\" cannot be read: \(CredentialFolder.absence(of: name).reason)", at: "credential")
      }
      return context.credentials.path.map { "\($0)/\(name)" }
    }
  }

  /// The files of `client_certificate` and `client_key`.
  ///
  /// - Parameter isNone: whether `client_certificate` says that there is no certificate.
  /// - Returns: `nil` when there is none, or after recording an error.
  func certificateAndKey(isNone: Bool = false) -> (certificate: String, key: String)? {
    let hasKey = holds("client_key")
    guard holds("client_certificate"), !isNone else {
      refuse(["client_key"], onlyWith: "client_certificate", lacking: ["client_certificate"])
      return nil
    }
    let certificate = file("client_certificate", label: "CERTIFICATE")
    guard certificate != nil || hasKey else { return nil }
    let key = file(hasKey ? "client_key" : "client_certificate", label: "PRIVATE KEY")
    return certificate.flatMap { certificate in key.map { (certificate, $0) } }
  }
}
