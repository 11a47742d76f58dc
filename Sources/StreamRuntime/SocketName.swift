import Glibc

/// The address of a bound socket, as text.
public enum SocketName {
  /// The path of a Unix socket (`@name` in the abstract namespace), or `host:port`, numeric, an IPv6 address in
  /// brackets.
  /// - Returns: `nil` for a socket of another kind, or an unbound one.
  public static func text(of descriptor: CInt) -> String? {
    var storage = sockaddr_storage()
    var length = socklen_t(MemoryLayout<sockaddr_storage>.size)
    let status = unsafe withUnsafeMutablePointer(to: &storage) { pointer in
      unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { unsafe getsockname(descriptor, $0, &length) }
    }
    guard status == 0 else { return nil }
    switch CInt(storage.ss_family) {
    case AF_UNIX: return unsafe withUnsafeBytes(of: storage) { unsafe unixName($0.prefix(Int(length))) }
    case AF_INET, AF_INET6: return internetName(&storage, length)
    default: return nil
    }
  }

  private static func unixName(_ address: Slice<UnsafeRawBufferPointer>) -> String? {
    let name = unsafe address.dropFirst(MemoryLayout<sa_family_t>.size)
    guard let first = unsafe name.first else { return nil }
    if first == 0 { return unsafe "@" + String(decoding: name.dropFirst(), as: UTF8.self) }
    return unsafe String(decoding: name.prefix { $0 != 0 }, as: UTF8.self)
  }

  private static func internetName(_ address: inout sockaddr_storage, _ length: socklen_t) -> String? {
    var host = [CChar](repeating: 0, count: Int(NI_MAXHOST))
    var port = [CChar](repeating: 0, count: Int(NI_MAXSERV))
    let family = CInt(address.ss_family)
    let status = unsafe withUnsafePointer(to: &address) { pointer in
      unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        unsafe getnameinfo(
          $0, length, &host, socklen_t(host.count), &port, socklen_t(port.count), NI_NUMERICHOST | NI_NUMERICSERV)
      }
    }
    guard status == 0 else { return nil }
    func text(_ bytes: [CChar]) -> String {
      String(decoding: bytes.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
    return family == AF_INET6 ? "[\(text(host))]:\(text(port))" : "\(text(host)):\(text(port))"
  }
}
