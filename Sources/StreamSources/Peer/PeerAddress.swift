import Glibc
import StreamRuntime

/// Where another streamd listens.
package enum PeerAddress: Hashable, Sendable {
  /// The path of a Unix socket: absolute, at most 107 bytes.
  case unix(String)
  /// A name or a numeric address, an IPv6 address without brackets, and a port of TCP, which is at least 1.
  case tcp(host: String, port: UInt16)

  /// - Parameter text: `unix:` and an absolute path, or `tcp:`, a host and a port, such as `tcp:[::1]:7878`.
  package init?(_ text: String) {
    if text.hasPrefix("unix:/") {
      let path = String(text.dropFirst("unix:".utf8.count))
      guard path.utf8.count <= 107, path.utf8.allSatisfy({ $0 > 0x1f && $0 != 0x7f }) else { return nil }
      self = .unix(path)
      return
    }
    guard text.hasPrefix("tcp:") else { return nil }
    let rest = text.dropFirst("tcp:".utf8.count)
    if let address = InternetAddress(String(rest)) {
      self = .tcp(host: address.host, port: address.port)
      return
    }
    // The port is checked with an address that is certainly numeric.
    guard let colon = rest.lastIndex(of: ":"), let any = InternetAddress("127.0.0.1\(rest[colon...])"),
      Self.isName(rest[..<colon])
    else { return nil }
    self = .tcp(host: String(rest[..<colon]), port: any.port)
  }

  private static func isName(_ host: Substring) -> Bool {
    (1...253).contains(host.utf8.count)
      && host.utf8.allSatisfy { byte in
        (0x61...0x7a).contains(byte | 0x20) || (0x30...0x39).contains(byte) || "-._".utf8.contains(byte)
      }
  }

  /// The address, if it needs no lookup. `localhost` is `127.0.0.1`, as for clients.
  package var numeric: InternetAddress? {
    guard case .tcp(let host, let port) = self else { return nil }
    let name = host == "localhost" ? "127.0.0.1" : host
    return InternetAddress(name.contains(":") ? "[\(name)]:\(port)" : "\(name):\(port)")
  }

  /// The addresses of a name, in the order in which they should be tried. The lookup blocks.
  static func addresses(of host: String, port: UInt16) -> Result<[InternetAddress], HTTPFailure> {
    var hints = unsafe addrinfo()
    unsafe hints.ai_family = AF_UNSPEC
    unsafe hints.ai_socktype = CInt(SOCK_STREAM.rawValue)
    var list: UnsafeMutablePointer<addrinfo>?
    let status = unsafe getaddrinfo(host, String(port), &hints, &list)
    guard status == 0 else {
      return .failure(
        HTTPFailure("the name \(host) cannot be resolved: \(unsafe String(cString: gai_strerror(status)))"))
    }
    defer { unsafe freeaddrinfo(list) }
    var addresses: [InternetAddress] = []
    var next = unsafe list
    while let entry = unsafe next?.pointee, addresses.count < addressLimit {
      if let address = unsafe Self.address(entry.ai_addr, entry.ai_addrlen, port) { addresses.append(address) }
      unsafe next = entry.ai_next
    }
    return addresses.isEmpty ? .failure(HTTPFailure("the name \(host) has no address")) : .success(addresses)
  }

  private static let addressLimit = 16

  private static func address(
    _ address: UnsafePointer<sockaddr>?, _ count: socklen_t, _ port: UInt16
  ) -> InternetAddress? {
    var room = [CChar](repeating: 0, count: Int(NI_MAXHOST))
    guard let address = unsafe address,
      unsafe getnameinfo(address, count, &room, socklen_t(room.count), nil, 0, NI_NUMERICHOST) == 0
    else { return nil }
    let host = String(decoding: room.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    return InternetAddress(host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)")
  }
}

extension PeerAddress: CustomStringConvertible {
  /// The text of `init(_:)`.
  package var description: String {
    switch self {
    case .unix(let path): "unix:\(path)"
    case .tcp(let host, let port): host.contains(":") ? "tcp:[\(host)]:\(port)" : "tcp:\(host):\(port)"
    }
  }
}
