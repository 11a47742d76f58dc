/// Checks an upstream's URL. Everything else about it is checked by libcurl.
enum UpstreamURL {
  /// The error in a URL.
  enum Fault: Error, Equatable {
    case noURL
    /// A user or a password, which would be shown with the URL.
    case holdsCredentials
    /// `${NAME}`, which is not substituted.
    case holdsVariable
  }

  /// Checks `text`: one of `schemes`, printable ASCII, a host (an IPv6 address in brackets), optionally a port.
  static func check(_ text: String, schemes: [String] = ["http://", "https://"]) throws(Fault) {
    let scheme = schemes.first { text.lowercased().hasPrefix($0) }
    guard let scheme, text.utf8.count <= 8192, text.utf8.allSatisfy({ (0x21...0x7e).contains($0) }) else {
      throw .noURL
    }
    guard !text.contains("${") else { throw .holdsVariable }
    let authority = text.dropFirst(scheme.count).prefix { !"/?#".contains($0) }
    guard !authority.contains("@") else { throw .holdsCredentials }
    guard !authority.contains("\\") else { throw .noURL }  // some parsers treat it as a slash
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

  /// Checks the URL of a server, which has no path, query and fragment.
  static func checkServer(_ text: String, schemes: [String]) throws(Fault) {
    try check(text, schemes: schemes)
    let authority = text.firstRange(of: "://").map { text[$0.upperBound...] } ?? ""
    guard !authority.contains(where: { "/?#".contains($0) }) else { throw .noURL }
  }

  /// Whether a host's name or address may have this character. No host's name has the others that RFC 3986 (3.2.2)
  /// allows.
  private static func isHostCharacter(_ scalar: Unicode.Scalar) -> Bool {
    scalar.properties.isAlphabetic || "0123456789.-_~:".unicodeScalars.contains(scalar)
  }

  /// Checks the text after the host: `opening`, then nothing or a colon and a port.
  private static func checkPort(_ rest: Substring, opening: String) throws(Fault) {
    guard rest.hasPrefix(opening) else { throw .noURL }
    let port = rest.dropFirst(opening.count)
    guard
      port.isEmpty || port.first == ":" && port.dropFirst().allSatisfy(\.isNumber) && UInt16(port.dropFirst()) ?? 0 > 0
    else { throw .noURL }
  }
}
