/// What the address of an upstream must be. Everything else about it is for libcurl to judge.
enum UpstreamURL {
  /// What is wrong with an address.
  enum Fault: Error, Equatable {
    case noURL
    /// A user or a password in it would be shown wherever the address is.
    case holdsCredentials
    /// `${NAME}`, which nothing replaces.
    case holdsVariable
  }

  /// Checks `text`: one of `schemes`, printable ASCII, a host (an IPv6 address in brackets), maybe a port.
  static func check(_ text: String, schemes: [String] = ["http://", "https://"]) throws(Fault) {
    let scheme = schemes.first { text.lowercased().hasPrefix($0) }
    guard let scheme, text.utf8.count <= 8192, text.utf8.allSatisfy({ (0x21...0x7e).contains($0) }) else {
      throw .noURL
    }
    guard !text.contains("${") else { throw .holdsVariable }
    let authority = text.dropFirst(scheme.count).prefix { !"/?#".contains($0) }
    guard !authority.contains("@") else { throw .holdsCredentials }
    guard !authority.contains("\\") else { throw .noURL }  // some readers take it for a slash
    let host: Substring
    if authority.first == "[" {
      host = authority.prefix { $0 != "]" }.dropFirst()
      guard host.contains(":"), host.allSatisfy({ $0.isHexDigit || $0 == ":" || $0 == "." }) else { throw .noURL }
      try checkPort(authority.dropFirst(host.count + 1), opening: "]")
    } else {
      host = authority.prefix { $0 != ":" }
      try checkPort(authority.dropFirst(host.count), opening: "")
    }
    guard !host.isEmpty, host.unicodeScalars.allSatisfy(isHostCharacter) else { throw .noURL }
  }

  /// Of a name or an address; what else RFC 3986 (3.2.2) allows is in no host's name.
  private static func isHostCharacter(_ scalar: Unicode.Scalar) -> Bool {
    scalar.properties.isAlphabetic || "0123456789.-_~:".unicodeScalars.contains(scalar)
  }

  /// What follows the host: `opening`, then nothing or a colon and a port.
  private static func checkPort(_ rest: Substring, opening: String) throws(Fault) {
    guard rest.hasPrefix(opening) else { throw .noURL }
    let port = rest.dropFirst(opening.count)
    guard
      port.isEmpty || port.first == ":" && port.dropFirst().allSatisfy(\.isNumber) && UInt16(port.dropFirst()) ?? 0 > 0
    else { throw .noURL }
  }
}
