import CLinux
import Glibc

/// Where a streamd listens, in the grammar of all programs and clients: `unix:/path` or `/path`, and `tcp:host:port` or
/// `host:port`, where the host is a name, an IPv4 address, or an IPv6 address in brackets.
package enum ServerAddress: Hashable, Sendable {
  /// The path of a Unix socket: absolute, at most 107 bytes.
  case unix(String)
  /// A name or a numeric address, an IPv6 address without brackets, and a port of TCP, which is at least 1.
  case tcp(host: String, port: UInt16)

  /// - Returns: nil for any other text.
  package init?(_ text: String) {
    let path = text.hasPrefix("unix:") ? text.dropFirst("unix:".utf8.count) : text[...]
    if path.hasPrefix("/") {
      guard path.utf8.count <= 107, path.utf8.allSatisfy({ $0 > 0x1f && $0 != 0x7f }) else { return nil }
      self = .unix(String(path))
      return
    }
    let place = text.hasPrefix("tcp:") ? text.dropFirst("tcp:".utf8.count) : text[...]
    if let address = InternetAddress(String(place)) {
      self = .tcp(host: address.host, port: address.port)
      return
    }
    // The port is checked with an address that is certainly numeric.
    guard let colon = place.lastIndex(of: ":"), let any = InternetAddress("127.0.0.1\(place[colon...])"),
      Self.isName(place[..<colon])
    else { return nil }
    self = .tcp(host: String(place[..<colon]), port: any.port)
  }

  private static func isName(_ host: Substring) -> Bool {
    (1...253).contains(host.utf8.count)
      && host.utf8.allSatisfy { byte in
        (0x61...0x7a).contains(byte | 0x20) || (0x30...0x39).contains(byte) || "-._".utf8.contains(byte)
      }
  }

  /// The address, if it needs no look-up.
  package var numeric: InternetAddress? {
    guard case .tcp(let host, let port) = self else { return nil }
    return InternetAddress(host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)")
  }

  /// Begins to connect, as `UnixSocket` and `TCPSocket` do.
  /// - Returns: nil for a name, for which there is `ServerConnector`.
  package func connect() throws(SystemError) -> OwnedDescriptor? {
    if case .unix(let path) = self { return try UnixSocket.connect(to: path) }
    guard let numeric else { return nil }
    return try TCPSocket.connect(to: numeric)
  }

  /// The text of `init(_:)` without a scheme.
  package var place: String { String(description.drop { $0 != ":" }.dropFirst()) }
}

extension ServerAddress: CustomStringConvertible {
  /// A text of `init(_:)`, with its scheme.
  package var description: String {
    switch self {
    case .unix(let path): "unix:\(path)"
    case .tcp(let host, let port): host.contains(":") ? "tcp:[\(host)]:\(port)" : "tcp:\(host):\(port)"
    }
  }
}

extension InternetAddress {
  /// The addresses of a name, at most 16, in the order in which they should be tried: that of the system, but with the two
  /// kinds in turn. The look-up blocks. Source: RFC 8305, section 4.
  ///
  /// - Throws: an error of `connect` with the reason of getaddrinfo(3).
  package static func all(ofName name: String, port: UInt16) throws(SystemError) -> [InternetAddress] {
    var hints = unsafe addrinfo()
    unsafe hints.ai_family = AF_UNSPEC
    unsafe hints.ai_socktype = CInt(SOCK_STREAM.rawValue)
    var list: UnsafeMutablePointer<addrinfo>?
    let status = unsafe getaddrinfo(name, String(port), &hints, &list)
    guard status == 0 else {
      throw unresolved(name, unsafe String(cString: gai_strerror(status)))
    }
    defer { unsafe freeaddrinfo(list) }
    var kinds: [[InternetAddress]] = [[], []]
    var (next, firstKind) = unsafe (list, Int?.none)
    while let entry = unsafe next?.pointee, kinds[0].count + kinds[1].count < 16 {
      if let address = unsafe InternetAddress(entry.ai_addr, entry.ai_addrlen, port) {
        let kind = address.isIPv6 ? 1 : 0
        firstKind = firstKind ?? kind
        kinds[kind].append(address)
      }
      unsafe next = entry.ai_next
    }
    if firstKind == 1 { kinds.swapAt(0, 1) }
    let addresses = (0..<16).flatMap { index in kinds.compactMap { index < $0.count ? $0[index] : nil } }
    guard !addresses.isEmpty else { throw unresolved(name, "it has no address") }
    return addresses
  }

  private static func unresolved(_ name: String, _ reason: String) -> SystemError {
    SystemError("connect", name, code: EHOSTUNREACH, reason: "the name cannot be resolved: \(reason)")
  }

  private init?(_ address: UnsafePointer<sockaddr>?, _ count: socklen_t, _ port: UInt16) {
    var room = [CChar](repeating: 0, count: Int(NI_MAXHOST))
    guard let address = unsafe address,
      unsafe getnameinfo(address, count, &room, socklen_t(room.count), nil, 0, NI_NUMERICHOST) == 0
    else { return nil }
    let host = String(decoding: room.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    self.init(host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)")
  }
}
