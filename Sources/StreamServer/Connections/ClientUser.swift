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
        unsafe .ipv4($0.loadUnaligned(fromByteOffset: 4, as: UInt32.self)).withOneLoopback
      }
    case AF_INET6:
      self = unsafe withUnsafeBytes(of: address) { bytes in
        let isMapped = unsafe bytes[8..<18].allSatisfy { $0 == 0 } && bytes[18..<20].allSatisfy { $0 == 0xFF }
        guard !isMapped else {
          return unsafe ClientUser.ipv4(bytes.loadUnaligned(fromByteOffset: 20, as: UInt32.self)).withOneLoopback
        }
        let isLoopback = unsafe bytes[8..<23].allSatisfy { $0 == 0 } && bytes[23] == 1
        return unsafe isLoopback ? .loopback : .ipv6(bytes.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
      }
    default: self = .unknown
    }
  }
}

extension ClientUser {
  /// Every local process over TCP: it can choose among 16 million addresses.
  static let loopback = ClientUser.ipv4(UInt32(0x7F00_0001).bigEndian)

  /// The user itself, and for each address of loopback the same one.
  var withOneLoopback: ClientUser {
    if case .ipv4(let address) = self, UInt32(bigEndian: address) >> 24 == 127 { .loopback } else { self }
  }

  /// What a user's identity costs, which decides what it may take from others.
  enum Standing: Int, CaseIterable {
    /// An address. One computer may have very many: all hosts together take no more of a total than one user.
    case host
    /// A user that the kernel or a token names. The kernel names 65,536 for a user that has subordinate ids.
    case named
    /// Root and the server's own user, which a part of each total is reserved for.
    case owner
  }

  var standing: Standing {
    switch self {
    case .ipv4, .ipv6, .unknown: .host
    case .token: .named
    case .uid(let id): id == 0 || id == Self.ownID ? .owner : .named
    }
  }

  private static let ownID = geteuid()
}

extension ClientUser {
  /// The text for another process: `uid N`, `token NAME`, `ipv4 N`, `ipv6 N` or `unknown`.
  var saved: String {
    switch self {
    case .uid(let id): "uid \(id)"
    case .token(let name): "token \(name)"
    case .ipv4(let address): "ipv4 \(address)"
    case .ipv6(let prefix): "ipv6 \(prefix)"
    case .unknown: "unknown"
    }
  }

  /// - Returns: nil for any other text.
  init?(saved text: String) {
    let parts = text.split(separator: " ", maxSplits: 1).map(String.init)
    switch (parts.first, parts.last) {
    case ("uid", let id?): if let id = UInt32(id) { self = .uid(id) } else { return nil }
    case ("token", let name?): self = .token(name)
    case ("ipv4", let address?): if let address = UInt32(address) { self = .ipv4(address) } else { return nil }
    case ("ipv6", let prefix?): if let prefix = UInt64(prefix) { self = .ipv6(prefix) } else { return nil }
    case ("unknown", _): self = .unknown
    default: return nil
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
