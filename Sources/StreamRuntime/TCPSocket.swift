import CLinux
import Glibc

/// Non-blocking TCP sockets.
public enum TCPSocket {
  /// Listens on an address; an IPv6 socket accepts only IPv6.
  ///
  /// - Parameter leaving: listening sockets that will be closed, and that may have the port until then. Otherwise the
  ///   sockets of `0.0.0.0` and of `127.0.0.1` exclude each other.
  /// - Throws: the call that failed, with the address.
  public static func listen(
    on address: InternetAddress, inPlaceOf leaving: [CInt] = []
  ) throws(SystemError) -> OwnedDescriptor {
    let subject = address.description
    let socket = try open(address)
    set(SO_REUSEADDR, of: socket.raw, to: true)  // TIME_WAIT of an earlier process
    if address.isIPv6 { set(IPV6_V6ONLY, of: socket.raw, to: true, level: CInt(IPPROTO_IPV6)) }
    let sharing = leaving.isEmpty ? [] : leaving + [socket.raw]
    for socket in sharing { set(SO_REUSEPORT, of: socket, to: true) }
    defer { for socket in sharing { set(SO_REUSEPORT, of: socket, to: false) } }
    guard unsafe address.withSocketAddress({ unsafe bind(socket.raw, $0, $1) }) == 0 else {
      throw SystemError("bind", subject)
    }
    guard Glibc.listen(socket.raw, 4096) == 0 else { throw SystemError("listen", subject) }  // at most somaxconn
    return socket
  }

  /// The address of the other end: `127.0.0.1:50312`, `[::1]:50312`; nil: the socket is not connected over TCP.
  public static func peerAddress(of socket: CInt) -> String? {
    var address = sockaddr_storage()
    var length = socklen_t(MemoryLayout<sockaddr_storage>.size)
    var host = [CChar](repeating: 0, count: 64)
    var port = [CChar](repeating: 0, count: 8)
    let isKnown = unsafe withUnsafeMutablePointer(to: &address) {
      unsafe $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        unsafe getpeername(socket, $0, &length) == 0
          && getnameinfo(
            $0, length, &host, socklen_t(host.count), &port, socklen_t(port.count), NI_NUMERICHOST | NI_NUMERICSERV)
            == 0
      }
    }
    guard isKnown, [AF_INET, AF_INET6].contains(CInt(address.ss_family)) else { return nil }
    func text(_ room: [CChar]) -> String {
      String(decoding: room.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
    let (name, number) = (text(host), text(port))
    return name.contains(":") ? "[\(name)]:\(number)" : "\(name):\(number)"
  }

  /// Begins to connect. The socket can be written once it is connected; a failure is the error of its first use.
  /// - Throws: the call that failed, with the address.
  public static func connect(to address: InternetAddress) throws(SystemError) -> OwnedDescriptor {
    let socket = try open(address)
    sendAtOnce(on: socket.raw)
    guard unsafe address.withSocketAddress({ unsafe Glibc.connect(socket.raw, $0, $1) }) == 0 || errno == EINPROGRESS
    else { throw SystemError("connect", address.description) }
    return socket
  }

  /// Sends written bytes at once, however few they are.
  public static func sendAtOnce(on socket: CInt) { set(TCP_NODELAY, of: socket, to: true, level: CInt(IPPROTO_TCP)) }

  private static func open(_ address: InternetAddress) throws(SystemError) -> OwnedDescriptor {
    let type = CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue)
    let raw = socket(address.isIPv6 ? AF_INET6 : AF_INET, type, 0)
    guard raw >= 0 else { throw SystemError("socket", address.description) }
    return OwnedDescriptor(raw)
  }

  private static func set(_ option: CInt, of socket: CInt, to isOn: Bool, level: CInt = SOL_SOCKET) {
    var value: CInt = isOn ? 1 : 0
    unsafe setsockopt(socket, level, option, &value, socklen_t(MemoryLayout<CInt>.size))
  }
}
