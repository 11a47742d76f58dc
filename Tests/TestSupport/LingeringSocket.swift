import CLinux
import Glibc
import StreamRuntime

/// A TCP socket whose last close takes an hour, unless its closing thread ends: it lingers, and its peer does not read. It is sent
/// over local sockets, together with a pipe that shows when the last process has closed what was sent.
public final class LingeringSocket {
  private let peer: OwnedDescriptor
  private let descriptors: [CInt]
  private let shows: OwnedDescriptor
  private var isSent = false

  /// - Throws: the call that failed.
  public init() throws {
    let address = uniqueAddress()
    peer = try TCPSocket.listen(on: address)
    var small: CInt = 2048
    setsockopt(peer.raw, SOL_SOCKET, SO_RCVBUF, &small, socklen_t(MemoryLayout<CInt>.size))
    let socket = try TCPSocket.connect(to: address).release()
    var ends: [CInt] = [-1, -1]
    guard pipe2(&ends, O_CLOEXEC) == 0 else { throw SystemError("pipe2") }
    shows = OwnedDescriptor(ends[0])
    descriptors = [socket, ends[1]]
    var writable = pollfd(fd: socket, events: Int16(POLLOUT), revents: 0)
    guard poll(&writable, 1, CInt(hangTime.wholeMilliseconds)) == 1 else { throw SystemError("poll") }
    let bytes = [UInt8](repeating: 0, count: 1 << 16)
    while Glibc.send(socket, bytes, bytes.count, CInt(MSG_DONTWAIT | MSG_NOSIGNAL)) > 0 {}
    linger(for: 3600)
  }

  private func linger(for seconds: CInt) {
    var value = Glibc.linger(l_onoff: seconds == 0 ? 0 : 1, l_linger: seconds)
    setsockopt(descriptors[0], SOL_SOCKET, SO_LINGER, &value, socklen_t(MemoryLayout<Glibc.linger>.size))
  }

  /// Sends the socket with bytes, which the receiver must not have read before this returns: its copy is then the last one.
  /// - Returns: 0, or an errno.
  public func send(_ bytes: [UInt8], over socket: CInt, flags: CInt = 0) -> CInt {
    guard send_with_descriptors(socket, bytes, bytes.count, descriptors, 2, flags) >= 0 else { return errno }
    isSent = true
    for descriptor in descriptors { close(descriptor) }
    return 0
  }

  /// Whether no process has what was sent.
  public var isClosed: Bool {
    var end = pollfd(fd: shows.raw, events: 0, revents: 0)
    return isSent && poll(&end, 1, 0) == 1
  }

  deinit {
    guard !isSent else { return }
    linger(for: 0)
    for descriptor in descriptors { close(descriptor) }
  }
}
