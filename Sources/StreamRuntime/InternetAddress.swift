import CLinux
import Glibc

/// An IPv4 or IPv6 address and a port of TCP or UDP.
public struct InternetAddress: Hashable, Sendable {
  /// The address as the kernel writes it, without brackets: equal addresses have equal texts.
  public let host: String
  /// At least 1.
  public let port: UInt16

  /// - Parameter text: `127.0.0.1:7878` or `[::1]:7878`, numeric.
  /// - Returns: nil for any other text: a name, an address with a scope, an IPv4 address in the form of IPv6, port 0.
  public init?(_ text: String) {
    guard let colon = text.lastIndex(of: ":") else { return nil }
    let (host, digits) = (text[..<colon], text[text.index(after: colon)...])
    guard (1...5).contains(digits.utf8.count), digits.utf8.allSatisfy({ (0x30...0x39).contains($0) }),
      let port = UInt16(digits), port > 0
    else { return nil }
    let isInBrackets = host.first == "[" && host.last == "]" && host.utf8.count > 2
    guard let name = Self.canonical(isInBrackets ? String(host.dropFirst().dropLast()) : String(host)),
      isInBrackets == name.contains(":"), !name.hasPrefix("::ffff:")
    else { return nil }
    (self.host, self.port) = (name, port)
  }

  private static func canonical(_ host: String) -> String? {
    guard !host.utf8.contains(0) else { return nil }
    let family = host.contains(":") ? AF_INET6 : AF_INET
    var bytes = [UInt8](repeating: 0, count: 16)
    guard unsafe inet_pton(family, host, &bytes) == 1 else { return nil }
    var text = [CChar](repeating: 0, count: Int(INET6_ADDRSTRLEN))
    guard unsafe inet_ntop(family, bytes, &text, socklen_t(text.count)) != nil else { return nil }
    return String(decoding: text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }

  /// Whether the address is reachable only from this machine.
  public var isLoopback: Bool { host.hasPrefix("127.") || host == "::1" }

  /// Whether this is the address of a multicast group. Source: RFC 5771 and RFC 4291, 2.7.
  public var isMulticast: Bool {
    if isIPv6 { return host.hasPrefix("ff") && host.prefix { $0 != ":" }.utf8.count == 4 }
    return host.split(separator: ".").first.flatMap { UInt8($0) }.map { (224...239).contains($0) } ?? false
  }

  /// Whether it means something else on each network interface. Source: RFC 4291, 2.5.6 and 2.7.
  public var needsInterface: Bool {
    isIPv6 && (host.hasPrefix("fe80:") || isMulticast && ["1", "2"].contains(host.dropFirst(3).first))
  }

  /// Whether this is an IPv6 address.
  public var isIPv6: Bool { host.contains(":") }

  /// Calls `body` with the address in the kernel's form.
  func withSocketAddress(_ body: (UnsafePointer<sockaddr>, socklen_t) -> CInt) -> CInt {
    if isIPv6 {
      var address = sockaddr_in6()
      (address.sin6_family, address.sin6_port) = (sa_family_t(AF_INET6), port.bigEndian)
      unsafe inet_pton(AF_INET6, host, &address.sin6_addr)
      return unsafe Self.call(body, with: address)
    }
    var address = sockaddr_in()
    (address.sin_family, address.sin_port) = (sa_family_t(AF_INET), port.bigEndian)
    unsafe inet_pton(AF_INET, host, &address.sin_addr)
    return unsafe Self.call(body, with: address)
  }

  private static func call<Address>(
    _ body: (UnsafePointer<sockaddr>, socklen_t) -> CInt, with address: Address
  ) -> CInt {
    unsafe withUnsafePointer(to: address) { pointer in
      unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        unsafe body($0, socklen_t(MemoryLayout<Address>.size))
      }
    }
  }
}

extension InternetAddress: CustomStringConvertible {
  /// The text of `init(_:)`.
  public var description: String { isIPv6 ? "[\(host)]:\(port)" : "\(host):\(port)" }
}
