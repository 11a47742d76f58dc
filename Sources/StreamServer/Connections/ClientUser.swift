import CLinux
import Glibc

/// The user to which a connection belongs, for limits and shares.
enum ClientUser: Hashable, Sendable {
  /// A user of this machine, from the kernel.
  case uid(UInt32)
  /// A host over TCP, without a token: its IPv4 address, as in the kernel's memory.
  case ipv4(UInt32)
  /// The first 64 bits of its IPv6 address, because a host can choose the others.
  case ipv6(UInt64)
  /// All clients with the token of this name.
  case token(String)
  /// All other peers together.
  case unknown

  /// - Parameter descriptor: a connected socket.
  init(_ credentials: PeerCredentials?, of descriptor: CInt) {
    if let credentials {
      self = .uid(credentials.user)
      return
    }
    var address = sockaddr_storage()
    var length = socklen_t(MemoryLayout<sockaddr_storage>.size)
    let result = unsafe withUnsafeMutablePointer(to: &address) {
      unsafe $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { unsafe getpeername(descriptor, $0, &length) }
    }
    self = result == 0 ? ClientUser(address) : .unknown
  }

  init(_ address: sockaddr_storage) {
    switch CInt(address.ss_family) {
    case AF_INET:
      self = unsafe withUnsafeBytes(of: address) {
        unsafe .ipv4($0.loadUnaligned(fromByteOffset: 4, as: UInt32.self))
      }
    case AF_INET6:
      self = unsafe withUnsafeBytes(of: address) { bytes in
        let isMapped = unsafe bytes[8..<18].allSatisfy { $0 == 0 } && bytes[18..<20].allSatisfy { $0 == 0xFF }
        return unsafe isMapped
          ? .ipv4(bytes.loadUnaligned(fromByteOffset: 20, as: UInt32.self))
          : .ipv6(bytes.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
      }
    default: self = .unknown
    }
  }
}

extension ClientUser: CustomStringConvertible {
  /// As `ClientIdentity.user`: the subject of messages.
  var description: String {
    switch self {
    case .uid(let id): "uid \(id)"
    case .token(let name): "token \"\(name)\""
    case .ipv4, .ipv6, .unknown: "a client without credentials"
    }
  }
}
