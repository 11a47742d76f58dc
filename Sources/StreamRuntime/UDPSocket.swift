import CLinux
import Glibc

/// Non-blocking UDP sockets.
public enum UDPSocket {
  /// Receives the datagrams that arrive at an address, or at a multicast group, which is joined on the interface that the
  /// system selects. The address `::` includes IPv4. Several sockets can receive at one group.
  ///
  /// - Throws: the call that failed, with the address.
  public static func listen(on address: InternetAddress) throws(SystemError) -> OwnedDescriptor {
    let subject = address.description
    let type = CInt(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue)
    let raw = socket(address.isIPv6 ? AF_INET6 : AF_INET, type, 0)
    guard raw >= 0 else { throw SystemError("socket", subject) }
    let socket = OwnedDescriptor(raw)
    _ = count_dropped_datagrams(raw)
    var on: CInt = 1
    let size = socklen_t(MemoryLayout<CInt>.size)
    if address.isIPv6 {
      var isAlone: CInt = address.host == "::" ? 0 : 1  // whatever the system's default is
      unsafe setsockopt(raw, CInt(IPPROTO_IPV6), IPV6_V6ONLY, &isAlone, size)
    }
    if address.isMulticast { unsafe setsockopt(raw, SOL_SOCKET, SO_REUSEADDR, &on, size) }
    guard unsafe address.withSocketAddress({ unsafe bind(raw, $0, $1) }) == 0 else {
      throw SystemError("bind", subject)
    }
    guard !address.isMulticast || join(address, raw) else { throw SystemError("join", subject) }
    return socket
  }

  private static func join(_ group: InternetAddress, _ socket: CInt) -> Bool {
    if group.isIPv6 {
      var request = ipv6_mreq()
      unsafe inet_pton(AF_INET6, group.host, &request.ipv6mr_multiaddr)
      return unsafe setsockopt(
        socket, CInt(IPPROTO_IPV6), IPV6_JOIN_GROUP, &request, socklen_t(MemoryLayout<ipv6_mreq>.size)) == 0
    }
    var request = ip_mreq()
    unsafe inet_pton(AF_INET, group.host, &request.imr_multiaddr)
    return unsafe setsockopt(
      socket, CInt(IPPROTO_IP), IP_ADD_MEMBERSHIP, &request, socklen_t(MemoryLayout<ip_mreq>.size)) == 0
  }
}
