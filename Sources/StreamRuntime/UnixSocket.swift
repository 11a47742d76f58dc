import CLinux
import Glibc

/// Non-blocking Unix sockets: of streams, and to connect to, also of sequenced packets.
public enum UnixSocket {
  /// Listens on `path`. A stale socket file, without a listener, is replaced; a file with a listener is an error.
  ///
  /// - Parameters:
  ///   - path: at most 107 bytes, the kernel's limit.
  ///   - mode: the mode of the socket file, as for `chmod`; applies before the first client can connect.
  /// - Throws: the call that failed, with the path.
  public static func listen(at path: String, mode: mode_t) throws(SystemError) -> OwnedDescriptor {
    let socket = try open()
    let former = File(at: path)
    let status = try unsafe withAddress(path) { address, length in unsafe Glibc.connect(socket.raw, address, length) }
    if status == 0 { throw SystemError("bind", path, code: EADDRINUSE) }
    if errno == ECONNREFUSED { former?.remove() }  // a file that is not a socket refuses, too
    let listener = try open()
    // The file inherits the socket's mode minus the umask; chmod then restores the rest.
    guard fchmod(listener.raw, mode) == 0 else { throw SystemError("fchmod", path) }
    let bound = try unsafe withAddress(path) { address, length in unsafe bind(listener.raw, address, length) }
    guard bound == 0 else { throw SystemError("bind", path) }
    // Another process may take the file for an abandoned one until this one listens.
    guard let file = File(at: path) else { throw SystemError("bind", path, code: EADDRINUSE) }
    try file.setMode(mode)
    guard Glibc.listen(listener.raw, 4096) == 0 else { throw SystemError("listen", path) }  // cut to net.core.somaxconn
    guard file.hasPath else { throw SystemError("bind", path, code: EADDRINUSE) }
    return listener
  }

  /// The file of a socket, whatever has its path later.
  public final class File: Sendable {
    /// Its path at first.
    public let path: String
    /// While it is open, no other file gets the number of this one.
    private let descriptor: OwnedDescriptor

    /// - Returns: nil if nothing has the path, or something else than a socket.
    public init?(at path: String) {
      let raw = unsafe Glibc.open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC)
      guard raw >= 0 else { return nil }
      descriptor = OwnedDescriptor(raw)
      self.path = path
      var status = stat()
      guard unsafe fstat(raw, &status) == 0, status.st_mode & S_IFMT == S_IFSOCK else { return nil }
    }

    /// Whether it still has its path.
    fileprivate var hasPath: Bool { FileIdentity(at: path, followsLinks: false) == FileIdentity(of: descriptor.raw) }

    fileprivate func setMode(_ mode: mode_t) throws(SystemError) {
      guard unsafe chmod("/proc/self/fd/\(descriptor.raw)", mode) == 0 else { throw SystemError("chmod", path) }
    }

    /// Removes the file, unless another one has the path by now. While a process listens on the socket, no other one takes its
    /// path: its owner calls this before it stops listening.
    public func remove() {
      if hasPath { unsafe unlink(path) }
    }
  }

  /// Connects to the socket at `path`; a Unix socket connects at once, so this does not block.
  /// - Parameter hasMessages: whether it is a socket of sequenced packets, each a message, instead of a stream.
  /// - Throws: `connect` with the path; `EAGAIN` when the listener's backlog is full, `EPROTOTYPE` when the listener is of
  ///   the other type.
  public static func connect(to path: String, hasMessages: Bool = false) throws(SystemError) -> OwnedDescriptor {
    let socket = try open(hasMessages ? SOCK_SEQPACKET : SOCK_STREAM)
    let status = try unsafe withAddress(path) { address, length in unsafe Glibc.connect(socket.raw, address, length) }
    guard status == 0 else { throw SystemError("connect", path) }
    return socket
  }

  /// A listener at a free name of the abstract namespace, as unix(7) has it ("autobind").
  package static func listenAnywhere() throws(SystemError) -> OwnedDescriptor {
    let listener = try open()
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    let bound = unsafe withUnsafePointer(to: &address) { pointer in
      unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        unsafe bind(listener.raw, $0, socklen_t(MemoryLayout<sa_family_t>.size))
      }
    }
    guard bound == 0 else { throw SystemError("bind") }
    guard Glibc.listen(listener.raw, 16) == 0 else { throw SystemError("listen") }
    return listener
  }

  /// Two connected sockets, each of which the caller owns.
  /// - Parameter type: the kind, such as `SOCK_STREAM`; with `SOCK_NONBLOCK`, or without.
  package static func pair(_ type: UInt32) throws(SystemError) -> (CInt, CInt) {
    var ends: [CInt] = [-1, -1]
    guard unsafe socketpair(AF_UNIX, CInt(type | SOCK_CLOEXEC.rawValue), 0, &ends) == 0 else {
      throw SystemError("socketpair")
    }
    return (ends[0], ends[1])
  }

  /// - Returns: the next connection of this process to `listener`; nil: there is none.
  package static func acceptOwn(_ listener: CInt) -> OwnedDescriptor? {
    while true {
      let raw = accept4(listener, nil, nil, CInt(SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue))
      guard raw >= 0 else { return nil }
      let socket = OwnedDescriptor(raw)
      var peer = ucred()
      var size = socklen_t(MemoryLayout<ucred>.size)
      let status = unsafe getsockopt(raw, SOL_SOCKET, SO_PEERCRED, &peer, &size)
      if status == 0, peer.pid == getpid() { return socket }
    }
  }

  /// A socket without an address.
  package static func open(_ type: __socket_type = SOCK_STREAM) throws(SystemError) -> OwnedDescriptor {
    let raw = socket(AF_UNIX, CInt(type.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue), 0)
    guard raw >= 0 else { throw SystemError("socket") }
    LocalSocket.refuseDescriptors(on: raw)
    return OwnedDescriptor(raw)
  }

  private static func withAddress(
    _ path: String, _ body: (UnsafePointer<sockaddr>, socklen_t) -> CInt
  ) throws(SystemError) -> CInt {
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    let capacity = MemoryLayout.size(ofValue: address.sun_path)
    guard path.utf8.count < capacity, !path.isEmpty else { throw SystemError("socket path", path, code: ENAMETOOLONG) }
    unsafe withUnsafeMutableBytes(of: &address.sun_path) { unsafe $0.copyBytes(from: path.utf8) }
    return unsafe withUnsafePointer(to: &address) { pointer in
      unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        unsafe body($0, socklen_t(MemoryLayout<sockaddr_un>.size))
      }
    }
  }
}
