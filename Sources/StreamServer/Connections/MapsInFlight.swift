import CLinux
import Glibc
import StreamRuntime
import Synchronization

/// The replies with descriptors that clients may not have read.
///
/// The kernel limits the descriptors that are on their way, in all sockets to which the daemon's user has written together,
/// also in sockets that are closed on this side. A client that does not read must not use that limit up: the daemon could
/// not hand its connections over at a restart. How much of a socket is unread is known from the kernel.
final class MapsInFlight: Sendable {
  /// The bytes that a connection has written to its socket, for other threads.
  final class WrittenBytes: Sendable {
    let count = Atomic<UInt64>(0)
  }

  /// Why a user gets no further reply.
  struct Excess: Equatable {
    /// Its replies, and those that are free.
    let own, free: Int
    /// The replies that there can be.
    let capacity: Int

    func sentence(for user: String) -> String {
      "\(user) has \(own) maps that it has not received, with \(free) of \(capacity) left"
    }
  }

  /// One connection's.
  private struct Entry {
    let user: ClientUser
    let socket: CInt
    let written: WrittenBytes
    /// The connection has ended, and left its socket.
    var isLeft = false
    /// Replies that are in the connection's output.
    var unsent = 0
    /// For each reply that the socket has taken, the bytes written before it.
    var sent: [UInt64] = []

    var count: Int { unsent + sent.count }

    /// Removes the replies that the client has read, with which the kernel has passed the descriptors.
    /// - Returns: whether the client may still get a descriptor, or keep one from the system.
    mutating func update() -> Bool {
      guard !sent.isEmpty else { return unsent > 0 }
      // In this order: what is written meanwhile is only in the queue. The kernel counts at least the unread bytes, and more
      // for each message.
      let written = written.count.load(ordering: .acquiring)
      var queued: CInt = 0
      if unsafe bytes_unread(socket, &queued) != 0 || queued <= 0 {
        sent = []
      } else {
        sent.removeAll { $0 + UInt64(queued) < written }
      }
      return count > 0
    }
  }

  /// Replies of all connections. A user may have as many as are free: a dynamic threshold, as in `ServerLimits`.
  static let capacity = 64
  /// The replies over `capacity` are for users that have none: clients that do not read cannot keep maps from them.
  static let capacityForFirst = 2 * capacity
  /// Places over that number are for root and the server's own user: others may have very many user ids.
  static let capacityForOwners = capacityForFirst + 8

  /// By the connection's number.
  private let entries = Locked<[UInt64: Entry]>([:])

  /// Counts a reply that is added to a connection's output.
  ///
  /// - Parameters:
  ///   - socket: the connection's.
  ///   - written: the connection's.
  /// - Returns: nil; or, without any effect, why not.
  func add(of client: UInt64, _ user: ClientUser, to socket: CInt, _ written: WrittenBytes) -> Excess? {
    entries.withLock { entries in
      for (number, entry) in entries {
        var entry = entry
        let isNeeded = entry.update()
        if !isNeeded, entry.isLeft { LocalSocket.close(entry.socket) }
        entries[number] = isNeeded ? entry : nil
      }
      let all = entries.values.reduce(0) { $0 + $1.count }
      let own = entries.values.reduce(0) { $1.user == user ? $0 + $1.count : $0 }
      let most = user.standing == .owner ? Self.capacityForOwners : Self.capacityForFirst
      let capacity = own == 0 ? most : Self.capacity
      let free = max(0, capacity - all)
      guard own < free else { return Excess(own: own, free: free, capacity: capacity) }
      entries[client, default: Entry(user: user, socket: socket, written: written)].unsent += 1
      return nil
    }
  }

  /// The socket has taken a reply.
  /// - Parameter offset: the bytes that were written before it.
  func noteSent(by client: UInt64, at offset: UInt64) {
    entries.withLock {
      $0[client]?.unsent -= 1
      $0[client]?.sent.append(offset)
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
    entries.withLock { entries in for entry in entries.values where entry.isLeft { LocalSocket.close(entry.socket) } }
  }
}

extension StreamServer {
  /// Descriptors that replies with maps can take, at most: those on their way, and the sockets.
  package static let maximumMapDescriptors = 3 * MapsInFlight.capacityForOwners
  /// Waiting pages of one mapped stream, at most.
  package static let maximumWaitingPages = StreamMap.mostPages
}
