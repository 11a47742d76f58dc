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
    let status = try unsafe withAddress(path) { address, length in unsafe Glibc.connect(socket.raw, address, length) }
    if status == 0 { throw SystemError("bind", path, code: EADDRINUSE) }
    if errno == ECONNREFUSED, isSocket(path) { unsafe unlink(path) }  // a file that is not a socket refuses, too
    let listener = try open()
    // The file inherits the socket's mode minus the umask; chmod then restores the rest.
    guard fchmod(listener.raw, mode) == 0 else { throw SystemError("fchmod", path) }
    let bound = try unsafe withAddress(path) { address, length in unsafe bind(listener.raw, address, length) }
    guard bound == 0 else { throw SystemError("bind", path) }
    guard unsafe chmod(path, mode) == 0 else { throw SystemError("chmod", path) }
    guard Glibc.listen(listener.raw, 4096) == 0 else { throw SystemError("listen", path) }  // cut to net.core.somaxconn
    return listener
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

  private static func isSocket(_ path: String) -> Bool {
    var status = stat()
    return unsafe lstat(path, &status) == 0 && status.st_mode & S_IFMT == S_IFSOCK
  }

  private static func open(_ type: __socket_type = SOCK_STREAM) throws(SystemError) -> OwnedDescriptor {
    let raw = socket(AF_UNIX, CInt(type.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue), 0)
    guard raw >= 0 else { throw SystemError("socket") }
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
