import CLinux
import Glibc

/// Sockets of a library on which nothing is to come while they are in the set. The library may close them at any time: the
/// kernel then removes them.
package final class QuietSockets {
  private let epoll: OwnedDescriptor
  /// A socket whose other end is closed.
  private let closed: OwnedDescriptor

  /// - Throws: when the process has no free descriptor.
  package init() throws(SystemError) {
    let raw = epoll_create1(CInt(EPOLL_CLOEXEC))
    guard raw >= 0 else { throw SystemError("epoll_create1") }
    epoll = OwnedDescriptor(raw)
    let (mine, theirs) = try UnixSocket.pair(SOCK_STREAM.rawValue)
    close(theirs)
    closed = OwnedDescriptor(mine)
  }

  /// Adds a socket; one that is in the set stays there.
  package func insert(_ socket: CInt) {
    var event = unsafe epoll_event()
    unsafe event.events = EPOLLIN.rawValue
    unsafe event.data.fd = socket
    unsafe epoll_ctl(epoll.raw, EPOLL_CTL_ADD, socket, &event)
  }

  /// Removes a socket, if it is in the set.
  package func remove(_ socket: CInt) { epoll_ctl(epoll.raw, EPOLL_CTL_DEL, socket, nil) }

  /// Closes the connections on which something has come, or which have ended. To the library, the other side has closed
  /// them.
  package func closeReadable() {
    unsafe withUnsafeTemporaryAllocation(of: epoll_event.self, capacity: 64) { events in
      guard let start = events.baseAddress else { return }
      while true {
        let count = unsafe epoll_wait(epoll.raw, start, CInt(events.count), 0)
        guard count > 0 else { return }
        for index in 0..<Int(count) {
          let socket = unsafe events[index].data.fd
          remove(socket)  // the connection may live on for a moment, in a program that is being started
          dup2(closed.raw, socket)
          _ = fcntl(socket, F_SETFD, FD_CLOEXEC)
        }
      }
    }
  }
}
