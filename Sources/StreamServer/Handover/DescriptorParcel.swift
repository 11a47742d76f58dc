import CLinux
import Glibc
import StreamRuntime

/// Many descriptors in one: messages in the queue of a socket, of which only the reading end is open.
///
/// A service manager compares each new descriptor with all stored ones: thousands would take
/// seconds, a parcel does not.
package enum DescriptorParcel {
  /// Maximum descriptors of one message: SCM_MAX_FD of the kernel.
  package static let mostPerMessage = 253
  /// A process with few free descriptors can open this many together.
  package static let fewPerMessage = 16

  /// Packs descriptors in order, as many as there is space for. They also stay open in this process.
  ///
  /// The kernel limits messages in a queue by the size of the socket's send buffer (about 280 by default), and descriptors
  /// in flight (RLIMIT_NOFILE for each user).
  ///
  /// - Parameter perMessage: the number of descriptors in each message but the last. `copy` needs the same number.
  /// - Returns: the reading ends, which the caller closes, each with the index of its first descriptor; and the number
  ///   of descriptors in all of them.
  /// - Throws: when no socket can be created.
  package static func pack(
    _ descriptors: [CInt], perMessage: Int
  ) throws(SystemError) -> (ends: [(end: CInt, first: Int)], count: Int) {
    var ends: [(end: CInt, first: Int)] = []
    var packed = 0
    while packed < descriptors.count {
      let pair: (CInt, CInt)
      do throws(SystemError) {
        pair = try UnixSocket.pair(SOCK_SEQPACKET.rawValue | SOCK_NONBLOCK.rawValue)
      } catch {
        for (end, _) in ends { LocalSocket.close(end) }
        throw error
      }
      let before = packed
      while packed < descriptors.count {
        let count = min(perMessage, descriptors.count - packed)
        let sent = unsafe descriptors.withUnsafeBufferPointer {
          unsafe send_descriptors(pair.1, $0.baseAddress! + packed, CInt(count))
        }
        guard sent >= 0 else { break }
        packed += count
      }
      LocalSocket.close(pair.1)
      guard packed > before else {
        LocalSocket.close(pair.0)
        break
      }
      ends.append((pair.0, before))
    }
    return (ends, packed)
  }

  /// Copies the descriptors of a parcel, in order; they stay in it, for any process that has the parcel.
  ///
  /// - Parameter each: receives each descriptor with its index in this parcel; closed on exec, and owned by the callee.
  ///   Indexes are skipped if the process cannot open as many descriptors as a message has.
  package static func copy(from end: CInt, perMessage: Int, _ each: (_ index: Int, _ descriptor: CInt) -> Void) {
    var offset: CInt = 0  // the start of the next read; a message has one byte. All holders of the parcel share it.
    guard unsafe setsockopt(end, SOL_SOCKET, SO_PEEK_OFF, &offset, socklen_t(MemoryLayout<CInt>.size)) == 0 else {
      return
    }
    var message = [CInt](repeating: -1, count: mostPerMessage)
    var first = 0
    while case let count = unsafe receive_descriptors(end, &message, CInt(MSG_PEEK)), count >= 0 {
      for (index, descriptor) in message.prefix(Int(count)).enumerated() { each(first + index, descriptor) }
      first += perMessage
    }
  }
}
