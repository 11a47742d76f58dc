import HTTP
import StreamServer

extension Configuration {
  /// `[[tokens]]`: a user over TCP.
  struct Token: Sendable, Equatable {
    /// Letters, digits, `.`, `_` and `-`; 1 to 48 bytes.
    var name: String
    /// What its clients send.
    var secret: Secret
    /// The streams that it may read, in addition to those of their `read`: names, or beginnings of names with `*`.
    var read: [String] = []
    /// The same for publishing.
    var write: [String] = []
  }
}

extension Configuration.Stream {
  /// Notes the tokens that admit clients to it.
  mutating func admit(_ tokens: [Configuration.Token]) {
    readers = tokens.filter { $0.read.contains(where: isNamed) }.map(\.name)
    writers = tokens.filter { $0.write.contains(where: isNamed) }.map(\.name)
  }

  private func isNamed(by pattern: String) -> Bool {
    pattern.last == "*" ? name.hasPrefix(pattern.dropLast()) : name == pattern
  }
}

extension ConfigurationReader {
  /// Reads one of `[[tokens]]`.
  /// - Parameter others: those before it.
  func token(_ table: ConfigurationTable, besides others: [Configuration.Token]) -> Configuration.Token? {
    for key in ["name", "credential"] where !table.holds(key) {
      table.addError("expected \(key), got none", lacking: [key])
    }
    let name = table.value("name", .tokenName)
    if let name, others.contains(where: { $0.name == name }) { table.addError("is the name of two tokens", at: "name") }
    let secret = table.holds("credential") ? secret(table) : nil
    if let secret, !secret.content.isEmpty {
      if !Self.isToken(secret.content) {
        table.addError(
          "the credential \"\(secret.name)\" has no token: expected 16 to \(ClientToken.maximumByteCount) letters, digits "
            + "and characters of -._~+/, then any number of =", at: "credential")
      } else if others.contains(where: { $0.secret.content == secret.content }) {
        table.addError("the credential \"\(secret.name)\" has the token of another name", at: "credential")
      }
    }
    let (read, write) = (table.values("read", .streamPattern) ?? [], table.values("write", .streamPattern) ?? [])
    return name.flatMap { name in
      secret.map { Configuration.Token(name: name, secret: $0, read: read, write: write) }
    }
  }

  /// Whether a client can send it over HTTP. Source: RFC 6750, section 2.1.
  private static func isToken(_ text: String) -> Bool {
    (16...ClientToken.maximumByteCount).contains(text.utf8.count)
      && text.utf8.reversed().drop { $0 == UInt8(ascii: "=") }.allSatisfy { byte in
        "-._~+/".utf8.contains(byte) || isLetterOrDigit(byte)
      }
  }
}

private func isLetterOrDigit(_ byte: UInt8) -> Bool {
  (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte | 0x20)
    || (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte)
}

extension ConfigurationShape where Value == String {
  /// The name of a token.
  fileprivate static var tokenName: Self {
    text("a name of letters, digits, \".\", \"_\" and \"-\", at most 48 bytes") { text in
      (1...48).contains(text.utf8.count) && text.utf8.allSatisfy { "._-".utf8.contains($0) || isLetterOrDigit($0) }
    }
  }

  /// A stream's name, or the beginning of names.
  fileprivate static var streamPattern: Self {
    text("the name of a stream, or the beginning of names and \"*\"") { text in
      (1...255).contains(text.utf8.count)
        && (text.last == "*" ? text.dropLast() : text[...]).utf8.allSatisfy {
          "._-/".utf8.contains($0) || isLetterOrDigit($0)
        }
    }
  }
}
