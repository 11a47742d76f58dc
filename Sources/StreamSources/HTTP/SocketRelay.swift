import CLinux
import Glibc
import StreamRuntime

/// Passes bytes between a server at a Unix socket and libcurl, on kernels before Linux 6.16: libcurl's own reads would close the
/// descriptors that the server passes. Lives until one of both ends the connection. Confined to the loop.
final class SocketRelay: @unchecked Sendable {  // confined to the loop
  private let loop: EventLoop
  private let ended: (SocketRelay) -> Void
  /// The socket to which libcurl connects. A connected socket cannot be given to libcurl instead: 7.88 calls connect(2) on it as
  /// well, which fails.
  private var listener: OwnedDescriptor?
  private let server: End
  /// nil: libcurl has not connected yet.
  private var client: End?

  /// The largest number of bytes that wait in each direction, beside the kernel's.
  private static let pieceBytes = 64 << 10

  /// One of both sockets.
  private final class End: EventLoop.Handler {
    let socket: OwnedDescriptor
    weak var relay: SocketRelay?
    var registration: EventLoop.Registration?
    /// The bytes that the socket has not taken yet. Nothing is read from the other socket until it has.
    var unwritten: ArraySlice<UInt8> = []

    init(_ socket: consuming OwnedDescriptor) { self.socket = socket }

    func descriptorIsReady(_ readiness: EventLoop.Readiness) { relay?.pass(from: self, readiness) }

    /// - Returns: false at the end of the connection.
    func write() -> Bool {
      while !unwritten.isEmpty {
        let count = unsafe unwritten.withUnsafeBytes {
          unsafe send(socket.raw, $0.baseAddress, $0.count, CInt(MSG_NOSIGNAL | MSG_DONTWAIT))
        }
        guard count >= 0 else { return errno == EAGAIN || errno == EINTR }
        unwritten = unwritten.dropFirst(count)
      }
      return true
    }
  }

  /// - Parameters:
  ///   - path: where the server listens.
  ///   - ended: called at the end of the connection.
  init(to path: String, on loop: EventLoop, ended: @escaping (SocketRelay) -> Void) throws(SystemError) {
    (self.loop, self.ended) = (loop, ended)
    server = End(try UnixSocket.connect(to: path))
    listener = try UnixSocket.listenAnywhere()
    server.relay = self
    loop.execute { [weak self] in self?.accept() }
  }

  /// Where libcurl connects to, within this turn: 8 bytes (unix(7)).
  func getAddress(_ address: UnsafeMutablePointer<sockaddr>, _ length: UnsafeMutablePointer<UInt32>) {
    unsafe length.pointee = UInt32(MemoryLayout<sockaddr>.size)
    _ = unsafe getsockname(listener?.raw ?? -1, address, length)
  }

  private func accept() {
    guard let socket = UnixSocket.acceptOwn(listener?.raw ?? -1) else { return end() }
    listener = nil
    let client = End(socket)
    client.relay = self
    self.client = client
    if (try? watch()) == nil { end() }
  }

  /// Ends the connection on both sides.
  func stop() {
    for end in [server, client] { if let registration = end?.registration.take() { loop.unregister(registration) } }
  }

  private func end() {
    stop()
    ended(self)
  }

  private func pass(from end: End, _ readiness: EventLoop.Readiness) {
    guard let other = end === server ? client : server else { return }
    let mayRead = readiness.contains(.readable) && other.unwritten.isEmpty
    guard end.write(), !mayRead || read(from: end, to: other), (try? watch()) != nil else { return self.end() }
  }

  private func watch() throws(SystemError) {
    guard let client else { return }
    try watch(server, reads: client.unwritten.isEmpty)
    try watch(client, reads: server.unwritten.isEmpty)
  }

  /// A socket from which nothing is wanted is not watched: the loop reports a closed one in each turn.
  private func watch(_ end: End, reads: Bool) throws(SystemError) {
    var wanted: EventLoop.Readiness = reads ? .readable : []
    if !end.unwritten.isEmpty { wanted.insert(.writable) }
    if wanted.isEmpty {
      if let registration = end.registration.take() { loop.unregister(registration) }
    } else if let registration = end.registration {
      loop.update(registration, for: wanted)
    } else {
      end.registration = try loop.register(end.socket.raw, for: wanted, handler: end)
    }
  }

  /// - Returns: false at the end of the connection.
  private func read(from end: End, to other: End) -> Bool {
    let isOpen = unsafe withUnsafeTemporaryAllocation(byteCount: Self.pieceBytes, alignment: 16) { room in
      let count = unsafe LocalSocket.receive(end.socket.raw, into: room)
      if count > 0 { other.unwritten = unsafe Array(room[..<count])[...] }
      return count > 0 || count < 0 && (errno == EAGAIN || errno == EINTR)
    }
    return isOpen && other.write()
  }
}
