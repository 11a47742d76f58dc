import Glibc
import StreamRuntime

/// The address of a NATS server.
struct NATSServer: Sendable, Equatable {
  /// A name or an address; an IPv6 address has no brackets.
  let host: String
  let port: UInt16

  static let defaultPort: UInt16 = 4222
  /// The maximum number of addresses that are tried for one name.
  private static let addressLimit = 16

  /// - Parameter url: nats:// or tls://, a host, and optionally a port.
  init?(_ url: String) {
    guard let scheme = ["nats://", "tls://"].first(where: url.hasPrefix), url.utf8.count <= 512 else { return nil }
    var rest = url.dropFirst(scheme.count)
    if rest.hasSuffix("/") { rest.removeLast() }
    guard rest.utf8.allSatisfy({ 0x21...0x7E ~= $0 }), !rest.contains(where: { "@/?#\\".contains($0) }) else {
      return nil
    }
    if rest.hasPrefix("[") {
      guard let end = rest.firstIndex(of: "]") else { return nil }
      host = String(rest[..<end].dropFirst())
      rest = rest[end...].dropFirst()
    } else {
      let end = rest.firstIndex(of: ":") ?? rest.endIndex
      host = String(rest[..<end])
      rest = rest[end...]
    }
    guard !host.isEmpty else { return nil }
    if rest.isEmpty || rest == ":" {
      port = Self.defaultPort
    } else {
      guard rest.hasPrefix(":"), rest.dropFirst().utf8.allSatisfy({ 0x30...0x39 ~= $0 }),
        let port = UInt16(rest.dropFirst()), port > 0
      else { return nil }
      self.port = port
    }
  }

  /// The host and the port.
  var name: String { host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)" }

  /// The addresses of the host, in random order. The lookup blocks.
  func addresses() throws(NATSFailure) -> [SocketAddress] {
    var hints = unsafe addrinfo()
    unsafe hints.ai_family = AF_UNSPEC
    unsafe hints.ai_socktype = CInt(SOCK_STREAM.rawValue)
    var list: UnsafeMutablePointer<addrinfo>?
    let status = unsafe getaddrinfo(host, String(port), &hints, &list)
    let code = errno
    guard status != EAI_SYSTEM else { throw NATSFailure(code: code) }
    guard status == 0 else { throw NATSFailure(reason: unsafe String(cString: gai_strerror(status))) }
    defer { unsafe freeaddrinfo(list) }
    var addresses: [SocketAddress] = []
    var next = unsafe list
    while let entry = unsafe next?.pointee, addresses.count < Self.addressLimit {
      if let address = unsafe SocketAddress(entry.ai_addr, count: entry.ai_addrlen) { addresses.append(address) }
      unsafe next = entry.ai_next
    }
    guard !addresses.isEmpty else { throw NATSFailure(reason: "the host has no address") }
    return addresses.shuffled()
  }
}

/// An address and a port.
struct SocketAddress: Sendable {
  private var storage = sockaddr_storage()
  private let byteCount: socklen_t

  /// - Returns: nil unless it is an IPv4 or IPv6 address.
  fileprivate init?(_ address: UnsafePointer<sockaddr>?, count: socklen_t) {
    guard let address = unsafe address, Int(count) <= MemoryLayout<sockaddr_storage>.size,
      unsafe [AF_INET, AF_INET6].contains(CInt(address.pointee.sa_family))
    else { return nil }
    byteCount = count
    unsafe withUnsafeMutableBytes(of: &storage) {
      unsafe $0.copyMemory(from: UnsafeRawBufferPointer(start: address, count: Int(count)))
    }
  }

  /// Returns a socket that connects to the address, non-blocking and close-on-exec.
  func connect() throws(NATSFailure) -> OwnedDescriptor {
    let type = SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue
    let raw = socket(CInt(storage.ss_family), CInt(type), 0)
    guard raw >= 0 else { throw NATSFailure(code: errno) }
    let descriptor = OwnedDescriptor(raw)
    var yes: CInt = 1
    unsafe setsockopt(raw, CInt(IPPROTO_TCP), TCP_NODELAY, &yes, socklen_t(MemoryLayout<CInt>.size))
    let status = unsafe withUnsafePointer(to: storage) { pointer in
      unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { unsafe Glibc.connect(raw, $0, byteCount) }
    }
    let code = errno
    guard status == 0 || code == EINPROGRESS else { throw NATSFailure(code: code) }
    return descriptor
  }
}

extension NATSFailure {
  /// - Parameter code: the errno of a system call.
  init(code: CInt) { self.init(reason: unsafe String(cString: strerror(code))) }
}
