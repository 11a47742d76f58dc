/// A host with an optional port, as in the Host field and in an http URL. Source: RFC 3986, section 3.2; RFC 9110,
/// section 7.2. User information, IPvFuture, zone identifiers and percent-encoding are refused, except percent-encoding
/// in the path of a socket.
public struct Authority: Equatable, Sendable {
  /// How the host is written.
  public enum Kind: Sendable {
    /// No host, as in the Host field of a client for which the server has no name.
    case empty
    /// A dotted quad.
    case ipv4
    /// An address, whose brackets are removed.
    case ipv6
    /// The path of a Unix socket, as some of its clients write it: percent-encoded or not, also after `unix:`. A URL
    /// parser refuses such a host, so that no browser sends it.
    case socketPath
    /// Anything else. It need not be a valid domain name.
    case name
  }

  /// How the host is written.
  public let kind: Kind
  /// The host with small letters.
  public let host: String
  /// Nil without a port, also after a colon.
  public let port: UInt16?

  /// No host.
  init() { (kind, host, port) = (.empty, "", nil) }

  /// - Returns: nil if the text is malformed.
  public init?(_ text: String) {
    var host = text[...]
    var digits = Substring()
    if text.utf8.first == UInt8(ascii: "[") {
      guard let end = text.utf8.firstIndex(of: UInt8(ascii: "]")) else { return nil }
      let rest = text[text.utf8.index(after: end)...]
      guard rest.isEmpty || rest.utf8.first == .colon else { return nil }
      (host, digits) = (text[..<end].dropFirst(), rest.dropFirst())
      guard Self.isIPv6(host) else { return nil }
      kind = .ipv6
    } else if Self.isSocketPath(text) {
      kind = .socketPath
    } else {
      if let colon = text.utf8.firstIndex(of: .colon) {
        (host, digits) = (text[..<colon], text[text.utf8.index(after: colon)...])
      }
      guard host.utf8.allSatisfy(Self.isNameCharacter) else { return nil }
      kind = host.isEmpty ? .empty : Self.isIPv4(host) ? .ipv4 : .name
    }
    guard digits.utf8.allSatisfy(\.isDigit), digits.isEmpty || UInt16(digits) != nil else { return nil }
    port = UInt16(digits)
    self.host = host.asciiLowercased
  }

  /// Whether the host is `localhost` or in the domain `localhost`, which resolves to the loopback interface. Source:
  /// RFC 6761, section 6.3.
  var isLocalhost: Bool { kind == .name && (host == "localhost" || host.hasSuffix(".localhost")) }

  /// Colons may precede the path or follow it.
  private static func isSocketPath(_ text: String) -> Bool {
    var rest = (text.hasPrefix("unix:") ? text.dropFirst("unix:".count) : text[...]).utf8
    guard rest.first == .slash || Substring(rest.prefix(3)).equalsIgnoringCase("%2F") else { return false }
    while let byte = rest.popFirst() {
      if byte == .percent {
        guard rest.popFirst()?.hexValue != nil, rest.popFirst()?.hexValue != nil else { return false }
      } else {
        guard byte == .slash || byte == .colon || isNameCharacter(byte) else { return false }
      }
    }
    return true
  }

  /// An unreserved character or a sub-delimiter.
  private static func isNameCharacter(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: "#"), .percent, UInt8(ascii: "^"), UInt8(ascii: "`"), UInt8(ascii: "|"): false
    case UInt8(ascii: "("), UInt8(ascii: ")"), UInt8(ascii: ","), UInt8(ascii: ";"), UInt8(ascii: "="): true
    default: byte.isToken
    }
  }

  private static func isIPv4(_ text: Substring) -> Bool {
    guard text.utf8.last?.isDigit == true else { return false }
    let parts = text.utf8.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
    return parts.count == 4
      && parts.allSatisfy { part in
        1...3 ~= part.count && part.allSatisfy(\.isDigit) && (part.count == 1 || part.first != UInt8(ascii: "0"))
          && UInt8(Substring(part)) != nil
      }
  }

  /// Eight groups of at most four digits; `::` replaces at least one group. An IPv4 address may replace the last two.
  private static func isIPv6(_ text: Substring) -> Bool {
    guard let gap = text.range(of: "::") else { return groupCount(text) == 8 }
    let (head, tail) = (text[..<gap.lowerBound], text[gap.upperBound...])
    guard let before = head.isEmpty ? 0 : groupCount(head, mayEndWithIPv4: false),
      let after = tail.isEmpty ? 0 : groupCount(tail)
    else { return false }
    return before + after <= 7
  }

  private static func groupCount(_ text: Substring, mayEndWithIPv4: Bool = true) -> Int? {
    let groups = text.split(separator: ":", omittingEmptySubsequences: false)
    guard let last = groups.last else { return nil }
    let endsWithIPv4 = mayEndWithIPv4 && isIPv4(last)
    let digits = endsWithIPv4 ? groups.dropLast() : groups[...]
    guard digits.allSatisfy({ 1...4 ~= $0.utf8.count && $0.utf8.allSatisfy { $0.hexValue != nil } }) else { return nil }
    return digits.count + (endsWithIPv4 ? 2 : 0)
  }
}

extension Substring {
  /// The first occurrence of two equal ASCII characters side by side.
  fileprivate func range(of pair: String) -> Range<Index>? {
    guard let byte = pair.utf8.first else { return nil }
    for index in utf8.indices where utf8[index] == byte {
      let next = utf8.index(after: index)
      guard next < endIndex, utf8[next] == byte else { continue }
      return index..<utf8.index(after: next)
    }
    return nil
  }
}
