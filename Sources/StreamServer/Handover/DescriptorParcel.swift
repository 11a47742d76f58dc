import CLinux
import Glibc
import StreamRuntime

/// Many descriptors in one: they wait as messages in the queue of a socket, of which only the reading end is left.
///
/// A service manager that keeps descriptors compares each new one with all that it has: thousands would take it
/// seconds, one parcel takes none.
package enum DescriptorParcel {
  /// Of one message: SCM_MAX_FD of the kernel.
  private static let perMessage = 253

  /// Packs as many as there is room for, in order. They stay open here, too.
  ///
  /// Room is bounded by the kernel: messages in a queue (net.unix.max_dgram_qlen: 512 where systemd has set it, else
  /// 10), and descriptors on their way (RLIMIT_NOFILE for each user).
  ///
  /// - Returns: the reading ends, each the caller's to close and with the place of its first descriptor; and how many
  ///   descriptors are in them, together.
  /// - Throws: when there is no socket to be had.
  package static func pack(_ descriptors: [CInt]) throws(SystemError) -> (ends: [(end: CInt, first: Int)], count: Int) {
    var ends: [(end: CInt, first: Int)] = []
    var packed = 0
    while packed < descriptors.count {
      var pair: [CInt] = [-1, -1]
      let kind = CInt(SOCK_SEQPACKET.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue)
      guard unsafe socketpair(AF_UNIX, kind, 0, &pair) == 0 else {
        let error = SystemError("socketpair")
        for (end, _) in ends { close(end) }
        throw error
      }
      let before = packed
      while packed < descriptors.count {
        let count = min(perMessage, descriptors.count - packed)
        let sent = unsafe descriptors.withUnsafeBufferPointer {
          unsafe send_descriptors(pair[1], $0.baseAddress! + packed, CInt(count))
        }
        guard sent >= 0 else { break }
        packed += count
      }
      close(pair[1])
      guard packed > before else {
        close(pair[0])
        break
      }
      ends.append((pair[0], before))
    }
    return (ends, packed)
  }

  /// Copies what is in a parcel, in order; it stays in there, for any process that has the parcel.
  ///
  /// - Parameter each: gets each descriptor with its place among those in this parcel; closed on exec, and the callee's
  ///   to close. Places are left out where the process has no room for more descriptors: it needs 253 at a time.
  package static func copy(from end: CInt, _ each: (_ index: Int, _ descriptor: CInt) -> Void) {
    var offset: CInt = 0  // of the next look, in bytes; a message has one. Shared by all holders of the parcel.
    guard unsafe setsockopt(end, SOL_SOCKET, SO_PEEK_OFF, &offset, socklen_t(MemoryLayout<CInt>.size)) == 0 else {
      return
    }
    var message = [CInt](repeating: -1, count: perMessage)
    var first = 0
    while case let count = unsafe receive_descriptors(end, &message, CInt(MSG_PEEK)), count >= 0 {
      for (index, descriptor) in message.prefix(Int(count)).enumerated() { each(first + index, descriptor) }
      first += perMessage
    }
  }
}
