import CLinux
import Glibc
import Synchronization

/// Local sockets over which no descriptors come (SCM_RIGHTS), because the peer would choose what this process has to close.
///
/// The last close of a TCP socket with SO_LINGER takes as long as its own peer does not read. The kernel closes passed descriptors
/// in the call that drops their message: a recv(2) without room for them, or the close(2) of the socket in whose queue they wait.
/// From Linux 6.16 on, the peer's send fails instead (SO_PASSRIGHTS). Before, `receive` finds descriptors and leaves them in
/// the queue, and `close` closes the socket at the end of a thread, where the kernel does not linger.
package enum LocalSocket {
  /// Whether to do without SO_PASSRIGHTS: for tests.
  package static let isOldKernelAssumed = Atomic(false)

  private static let isKnownToKernel: Bool = {
    let probe = Glibc.socket(AF_UNIX, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
    defer { Glibc.close(probe) }
    return passesDescriptors(probe) != nil
  }()

  /// Whether the kernel keeps descriptors out of sockets for which `refuseDescriptors` was called.
  package static var isKernelInCharge: Bool { isKnownToKernel && !isOldKernelAssumed.load(ordering: .relaxed) }

  /// Before a socket is connected or listens, after it was accepted, or when it comes from another process. Has no effect on
  /// sockets of other families.
  /// - Returns: false: descriptors are in its queue already. The caller ends it with `closeAside`, unread.
  @discardableResult package static func refuseDescriptors(on socket: CInt) -> Bool {
    // A byte out of band would be dropped with its descriptors by the next read of other bytes.
    var (on, off): (CInt, CInt) = (1, 0)
    let size = socklen_t(MemoryLayout<CInt>.size)
    guard isKernelInCharge else {
      if isLocal(socket) { unsafe setsockopt(socket, SOL_SOCKET, SO_OOBINLINE, &on, size) }
      return true
    }
    guard passesDescriptors(socket) == true else { return true }
    unsafe setsockopt(socket, SOL_SOCKET, SO_PASSRIGHTS, &off, size)
    unsafe setsockopt(socket, SOL_SOCKET, SO_OOBINLINE, &on, size)
    return !hasDescriptors(socket)
  }

  /// Lets descriptors come that this process has asked for: it then reads with `receive_with_descriptors`.
  package static func admitDescriptors(on socket: CInt) {
    var on: CInt = 1
    unsafe setsockopt(socket, SOL_SOCKET, SO_PASSRIGHTS, &on, socklen_t(MemoryLayout<CInt>.size))
  }

  /// As recv(2) of any socket, without waiting.
  /// - Returns: -1 with the errno EPROTO if descriptors have come. They stay in the queue; the caller closes the socket.
  package static func receive(
    _ socket: CInt, into room: UnsafeMutableRawBufferPointer, flags: CInt = 0
  ) -> Int {
    isKernelInCharge || !isLocal(socket)
      ? unsafe recv(socket, room.baseAddress, room.count, flags | CInt(MSG_DONTWAIT))
      : unsafe receive_without_descriptors(socket, room.baseAddress, room.count, flags)
  }

  /// As send(2) on any socket, without waiting, without SIGPIPE, and again after a signal.
  /// - Returns: the number of bytes that it has taken; 0: it takes none now; or a negative errno.
  package static func send(_ socket: CInt, _ bytes: UnsafeRawBufferPointer) -> Int {
    while true {
      let count = unsafe Glibc.send(socket, bytes.baseAddress, bytes.count, CInt(MSG_NOSIGNAL | MSG_DONTWAIT))
      if count >= 0 { return count }
      let code = errno
      if code != EINTR { return code == EAGAIN ? 0 : -Int(code) }
    }
  }

  /// As close(2) of any descriptor, without a wait for what is in the queue of a local socket.
  package static func close(_ descriptor: CInt) {
    if isKernelInCharge || !isLocal(descriptor) { Glibc.close(descriptor) } else { closeAside(descriptor) }
  }

  // MARK: On another thread

  private struct Waiting: Sendable {
    var sockets: [CInt] = []
    var hasThread = false
  }

  private static let waiting = Locked(Waiting())

  /// Closes a socket soon, without a wait on this thread.
  package static func closeAside(_ socket: CInt) {
    let needsThread = waiting.withLock { waiting in
      waiting.sockets.append(socket)
      defer { waiting.hasThread = true }
      return !waiting.hasThread
    }
    guard needsThread else { return }
    do throws(SystemError) { try BackgroundThread.start(name: "close", closeWaiting) } catch { closeWaiting() }
  }

  @Sendable private static func closeWaiting() {
    while true {
      let sockets = waiting.withLock { waiting in
        defer { waiting = Waiting(sockets: [], hasThread: !waiting.sockets.isEmpty) }
        return waiting.sockets.sorted()
      }
      guard !sockets.isEmpty else { return }
      // Without a second thread they are closed here.
      if unsafe close_with_thread(sockets, CInt(sockets.count)) != 0 { for socket in sockets { Glibc.close(socket) } }
    }
  }

  // MARK: What a socket is

  private static func isLocal(_ descriptor: CInt) -> Bool { option(SO_DOMAIN, of: descriptor) == AF_UNIX }

  /// nil: not a local socket, or the kernel does not know the option.
  private static func passesDescriptors(_ socket: CInt) -> Bool? { option(SO_PASSRIGHTS, of: socket).map { $0 != 0 } }

  private static func option(_ name: CInt, of descriptor: CInt) -> CInt? {
    var (value, size): (CInt, socklen_t) = (0, socklen_t(MemoryLayout<CInt>.size))
    return unsafe getsockopt(descriptor, SOL_SOCKET, name, &value, &size) == 0 ? value : nil
  }

  /// Looks through the queue, and leaves it as it is.
  private static func hasDescriptors(_ socket: CInt) -> Bool {
    var offset: CInt = 0  // of the next MSG_PEEK, which advances it
    let size = socklen_t(MemoryLayout<CInt>.size)
    unsafe setsockopt(socket, SOL_SOCKET, SO_PEEK_OFF, &offset, size)
    defer {
      offset = -1
      unsafe setsockopt(socket, SOL_SOCKET, SO_PEEK_OFF, &offset, size)
    }
    return unsafe withUnsafeTemporaryAllocation(byteCount: 65536, alignment: 16) { room in
      while true {
        let count = unsafe peek_for_descriptors(socket, room.baseAddress, room.count, 0)
        guard count > 0 else { return count < 0 && errno == EPROTO }
      }
    }
  }
}
