import CLinux
import Glibc
import StreamRuntime
import Synchronization

/// A minimal HTTP server on its own thread: every request gets the same few bytes, and its arrival time is recorded
/// under the number in its path. It also listens on a second port, where it never responds.
final class HTTPUpstream: @unchecked Sendable {  // everything except constants is confined to the loop's thread
  let port: UInt16
  let stalledPort: UInt16
  private let loop: EventLoop
  private var listeners: [Listener] = []
  private var connections: [ObjectIdentifier: Connection] = [:]
  private var stalled: [Held] = []
  private var arrivals: [[UInt64]]

  private static let answer = Array(
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 14\r\n\r\n{\"answer\": 42}".utf8)

  /// Serves `count` paths: `/0` and so on.
  init(count: Int) throws {
    arrivals = Array(repeating: [], count: count)
    loop = try EventLoop(name: "upstream")
    let answering = try Self.listen()
    let silent = try Self.listen()
    (port, stalledPort) = (Self.port(of: answering.raw), Self.port(of: silent.raw))
    listeners = [
      Listener(answering, on: loop) { [unowned self] in
        accept($0)
      } paused: {
        complain("\($0)")
      },
      Listener(silent, on: loop) { [unowned self] in
        stalled.append(Held($0))
      } paused: {
        complain("\($0)")
      },
    ]
    for listener in listeners { listener.start() }
    try loop.start()
  }

  /// The arrival times of each path's requests so far, in nanoseconds of the monotonic clock. Called on another thread.
  func takeArrivals() -> [[UInt64]] {
    let taken = Mutex<[[UInt64]]?>(nil)
    loop.execute { [self] in taken.withLock { $0 = arrivals } }
    while true {
      if let arrivals = taken.withLock({ $0 }) { return arrivals }
      usleep(1000)
    }
  }

  func stop() { loop.stop() }

  private func accept(_ descriptor: consuming OwnedDescriptor) {
    let connection = Connection(descriptor, of: self)
    connections[ObjectIdentifier(connection)] = connection
    connection.start()
  }

  /// A socket that is only kept open.
  private final class Held {
    private let descriptor: OwnedDescriptor
    init(_ descriptor: consuming OwnedDescriptor) { self.descriptor = descriptor }
  }

  private final class Connection: EventLoop.Handler {
    private let descriptor: OwnedDescriptor
    private unowned let server: HTTPUpstream
    private var registration: EventLoop.Registration?
    private var unread: [UInt8] = []

    init(_ descriptor: consuming OwnedDescriptor, of server: HTTPUpstream) {
      self.descriptor = descriptor
      self.server = server
    }

    func start() {
      registration = try? server.loop.register(descriptor.raw, for: .readable, handler: self)
    }

    func descriptorIsReady(_ readiness: EventLoop.Readiness) {
      let now = monotonicNanoseconds()
      let count = unsafe withUnsafeTemporaryAllocation(byteCount: 4096, alignment: 1) { buffer in
        let count = unsafe recv(descriptor.raw, buffer.baseAddress, buffer.count, 0)
        if count > 0 { unsafe unread += UnsafeRawBufferPointer(rebasing: buffer[..<count]) }
        return count
      }
      guard count > 0 else {
        if count == 0 || errno != EAGAIN { close() }
        return
      }
      guard unread.count >= 4, unread.suffix(4).elementsEqual("\r\n\r\n".utf8) else { return }
      // `GET /123 HTTP/1.1`: one request at a time, because its client sends none before the response.
      let digits = unread.dropFirst("GET /".utf8.count).prefix { (0x30...0x39).contains($0) }
      let number = digits.reduce(0) { $0 * 10 + Int($1 - 0x30) }
      unread.removeAll(keepingCapacity: true)
      if number < server.arrivals.count { server.arrivals[number].append(now) }
      unsafe send(descriptor.raw, HTTPUpstream.answer, HTTPUpstream.answer.count, CInt(MSG_NOSIGNAL))
    }

    private func close() {
      if let registration { server.loop.unregister(registration) }
      registration = nil
      server.connections[ObjectIdentifier(self)] = nil
    }
  }

  /// Listens on a port of 127.0.0.1 that the system chooses.
  static func listen() throws(SystemError) -> OwnedDescriptor {
    let descriptor = OwnedDescriptor(socket(AF_INET, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0))
    guard descriptor.raw >= 0 else { throw SystemError("socket") }
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
    let bound = unsafe withUnsafePointer(to: &address) {
      unsafe $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        unsafe bind(descriptor.raw, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
      }
    }
    guard bound == 0 else { throw SystemError("bind", "127.0.0.1") }
    guard Glibc.listen(descriptor.raw, 128) == 0 else { throw SystemError("listen", "127.0.0.1") }
    return descriptor
  }

  static func port(of descriptor: CInt) -> UInt16 {
    var address = sockaddr_in()
    var length = socklen_t(MemoryLayout<sockaddr_in>.size)
    _ = unsafe withUnsafeMutablePointer(to: &address) {
      unsafe $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { unsafe getsockname(descriptor, $0, &length) }
    }
    return UInt16(bigEndian: address.sin_port)
  }
}
