import HTTP
import StreamServer

extension Configuration {
  /// `[[tokens]]`: a token that identifies clients over TCP.
  struct Token: Sendable, Equatable {
    /// Letters, digits, `.`, `_` and `-`; 1 to 48 bytes.
    var name: String
    /// The token itself, which clients send.
    var secret: Secret
    /// The streams that its clients may read, in addition to those whose own `read` admits them: names, or prefixes
    /// followed by `*`.
    var read: [String] = []
    /// The streams to which its clients may publish, in the same form.
    var write: [String] = []
  }
}

extension Configuration.Stream {
  /// Sets the tokens that admit clients to the stream.
  mutating func admit(_ tokens: [Configuration.Token]) {
    readers = tokens.filter { $0.read.contains(where: isNamed) }.map(\.name)
    writers = tokens.filter { $0.write.contains(where: isNamed) }.map(\.name)
  }

  /// Whether a token has the stream's name, or that of its template.
  private func isNamed(by pattern: String) -> Bool {
    func fits(_ name: String) -> Bool {
      pattern.last == "*" ? name.hasPrefix(pattern.dropLast()) : name == pattern
    }
    return fits(name) || template.map(fits) == true
  }
}

extension Configuration.Token {
  /// Reads one of `[[tokens]]`.
  ///
  /// - Parameter others: the tokens before it.
  /// - Returns: `nil`, after recording an error, without a name or a secret.
  init?(_ table: ConfigurationTable, besides others: [Self]) {
    for key in ["name", "credential"] { table.require(key) }
    let name = table.value("name", .tokenName)
    if let name, others.contains(where: { $0.name == name }) { table.addError("is the name of two tokens", at: "name") }
    let secret = table.holds("credential") ? table.credential() : nil
    if let secret, !secret.content.isEmpty {
      if !Self.isToken(secret.content) {
        table.addError(
          "the credential \"\(secret.name)\" has no token: expected 16 to \(ClientToken.maximumByteCount) letters, digits "
            + "and characters of -._~+/, then any number of =", at: "credential")
      } else if others.contains(where: { $0.secret.content == secret.content }) {
        table.addError("the credential \"\(secret.name)\" has the same token as another one", at: "credential")
      }
    }
    let (read, write) = (table.values("read", .streamPattern) ?? [], table.values("write", .streamPattern) ?? [])
    guard let name, let secret else { return nil }
    self.init(name: name, secret: secret, read: read, write: write)
  }

  /// Whether a client can send `text` as a token over HTTP. Source: RFC 6750, section 2.1.
  private static func isToken(_ text: String) -> Bool {
    let count = ClientToken.maximumByteCount
    let characters = text.prefix(upTo: text.lastIndex { $0 != "=" }.map(text.index(after:)) ?? text.startIndex)
    return (16...count).contains(text.utf8.count)
      && (characters.isEmpty || characters.isName(upTo: count, with: "-._~+/"))
  }
}

extension ConfigurationShape where Value == String {
  /// The name of a token.
  fileprivate static var tokenName: Self {
    text("a name of letters, digits, \".\", \"_\" and \"-\", at most 48 bytes") { $0.isName(upTo: 48, with: "._-") }
  }

  /// The name of a stream or of a template, or a prefix of names followed by `*`.
  fileprivate static var streamPattern: Self {
    text("the name of a stream, or the beginning of names and \"*\"") { text in
      let beginning = text.last == "*" ? text.dropLast() : text[...]
      return text == "*" || text.utf8.count <= 255 && beginning.isName(upTo: 255, with: "._-/{}")
    }
  }
}
