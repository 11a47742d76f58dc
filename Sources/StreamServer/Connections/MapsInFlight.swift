import CLinux
import Glibc
import StreamRuntime

/// The replies with descriptors that clients may not have read.
///
/// The kernel limits the descriptors that are on their way, in all sockets to which the daemon's user has written together,
/// also in sockets that are closed on this side. A client that does not read must not use that limit up: the daemon could
/// not hand its connections over at a restart. What the socket of a reply has unread is known from the kernel.
final class MapsInFlight: Sendable {
  /// One connection's.
  private struct Entry {
    let user: ClientUser
    let socket: CInt
    /// The connection has ended, and left its socket.
    var isLeft = false
    /// Replies that are in the connection's output.
    var unsent = 0
    /// Replies that the socket has taken.
    var sent = 0

    /// Whether the client may still get a descriptor, or keep one from the system.
    mutating func update() -> Bool {
      var unread: CInt = 0
      if sent > 0, unsafe bytes_unread(socket, &unread) != 0 || unread <= 0 { sent = 0 }
      return unsent + sent > 0
    }
  }

  /// Replies of all connections; a user may have as many as are free.
  static let capacity = 64

  /// By the connection's number.
  private let entries = Locked<[UInt64: Entry]>([:])

  /// Counts a reply that is added to a connection's output.
  ///
  /// - Parameter socket: the connection's.
  /// - Returns: false, without any effect: its user has too many.
  func add(of client: UInt64, _ user: ClientUser, to socket: CInt) -> Bool {
    entries.withLock { entries in
      for (number, entry) in entries {
        var entry = entry
        let isNeeded = entry.update()
        if !isNeeded, entry.isLeft { close(entry.socket) }
        entries[number] = isNeeded ? entry : nil
      }
      let counts = entries.values.map { (isOwn: $0.user == user, count: $0.unsent + $0.sent) }
      let own = counts.reduce(0) { $1.isOwn ? $0 + $1.count : $0 }
      guard own < Self.capacity - counts.reduce(0, { $0 + $1.count }) else { return false }
      entries[client, default: Entry(user: user, socket: socket)].unsent += 1
      return true
    }
  }

  /// The socket has taken a reply.
  func noteSent(by client: UInt64) {
    entries.withLock {
      $0[client]?.unsent -= 1
      $0[client]?.sent += 1
    }
  }

  /// A reply is not sent.
  func noteWithdrawn(by client: UInt64) { entries.withLock { $0[client]?.unsent -= 1 } }

  /// The connection ends, with what it has not sent. A socket that has unread descriptors stays open without it, shut down.
  func leave(_ client: UInt64, _ socket: consuming OwnedDescriptor) {
    let isKept = entries.withLock { entries -> Bool in
      guard var entry = entries[client] else { return false }
      (entry.unsent, entry.isLeft) = (0, true)
      let isNeeded = entry.update()
      entries[client] = isNeeded ? entry : nil
      return isNeeded
    }
    guard isKept else { return }
    shutdown(socket.raw, CInt(SHUT_RDWR))
    _ = socket.release()
  }

  deinit {
    entries.withLock { entries in for entry in entries.values where entry.isLeft { close(entry.socket) } }
  }
}

extension StreamServer {
  /// Descriptors that replies with maps can take, at most: those on their way, and the sockets.
  package static let maximumMapDescriptors = 3 * MapsInFlight.capacity
  /// Waiting pages of one mapped stream, at most.
  package static let maximumWaitingPages = StreamMap.mostPages
}
