import CLinux
import Glibc
import RSocket
import StreamRuntime

/// The limits to compare with: a process that does nothing but the system calls which cannot be avoided. It is this program
/// again, told so by its arguments.
///
/// One byte decides what a connection is for: `g` (go) has ready-made blocks written to it as fast as it reads, until `s`
/// (stop); anything else is answered with a ready-made frame and the end.
final class BareServer {
  static let argument = "--bare-server"
  /// A frame of streamd's with id, time and 64 bytes: what the deliveries would be.
  static let shape = EventShape(byteCount: 92, dataOffset: 28, idOffset: nil, request: [], requestDataOffset: 0)

  private let process: ServerProcess
  var path: String { process.folder + "/s" }

  init() throws {
    process = try ServerProcess("/proc/self/exe") { [Self.argument, $0 + "/s"] }
    try process.waitUntilItServes { [process] () throws -> CInt in try Handshake.connect(to: process.folder + "/s") }
  }

  static func run(_ path: String) throws {
    let server = try BareWriter(path)
    while true { try server.turn() }
  }
}

/// The server's side, in a process of its own.
private final class BareWriter {
  private struct Client {
    /// Where in the block the next write begins.
    var offset = 0
    var isBlocked = false
  }

  private let listener: CInt
  private let epoll: CInt
  private let events = UnsafeMutableBufferPointer<epoll_event>.allocate(capacity: 256)
  private let block: [UInt8]
  private let answer: [UInt8]
  private var clients: [CInt: Client] = [:]
  private var going: [CInt] = []

  init(_ path: String) throws {
    listener = try UnixSocket.listen(at: path, mode: 0o600).release()
    epoll = epoll_create1(0)
    var frame: [UInt8] = []
    Frame.keepalive(respond: false, position: 0, data: []).encode(into: &frame)
    answer = frame
    block = [UInt8](repeating: UInt8(ascii: "x"), count: (64 << 10) / 92 * 92)
    try watch(listener, EPOLLIN.rawValue)
  }

  deinit { events.deallocate() }

  private func watch(_ descriptor: CInt, _ wanted: UInt32) throws {
    var event = epoll_event()
    event.events = wanted
    event.data.fd = descriptor
    guard epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event) == 0 else { throw SystemError("epoll_ctl") }
  }

  /// One block to each that can take one, then a look at what else there is.
  func turn() throws {
    var isIdle = true
    for descriptor in going {
      guard var client = clients[descriptor], !client.isBlocked else { continue }
      isIdle = false
      let count = block.withUnsafeBytes {
        send(
          descriptor, $0.baseAddress.map { $0 + client.offset }, $0.count - client.offset,
          CInt(MSG_NOSIGNAL | MSG_DONTWAIT))
      }
      if count < 0 { client.isBlocked = true } else { client.offset = (client.offset + count) % block.count }
      clients[descriptor] = client
    }
    let ready = epoll_wait(epoll, events.baseAddress, CInt(events.count), isIdle ? -1 : 0)
    for event in events.prefix(max(0, Int(ready))) {
      let descriptor = event.data.fd
      if descriptor == listener {
        acceptAll()
      } else {
        if event.events & EPOLLOUT.rawValue != 0 { clients[descriptor]?.isBlocked = false }
        if event.events & ~EPOLLOUT.rawValue != 0 { hear(descriptor) }
      }
    }
  }

  private func acceptAll() {
    while true {
      let descriptor = accept4(listener, nil, nil, CInt(SOCK_CLOEXEC.rawValue))
      guard descriptor >= 0 else { return }
      try? watch(descriptor, EPOLLIN.rawValue | EPOLLOUT.rawValue | EPOLLET.rawValue)
      clients[descriptor] = Client()
    }
  }

  private func hear(_ descriptor: CInt) {
    var words = [UInt8](repeating: 0, count: 4096)
    let count = recv(descriptor, &words, words.count, CInt(MSG_DONTWAIT))
    if count < 0, errno == EAGAIN { return }
    // Of several words the last one counts.
    let isOrder = count > 0 && [UInt8(ascii: "g"), UInt8(ascii: "s")].contains(words[0])
    switch isOrder ? words[count - 1] : 0 {
    case UInt8(ascii: "g"): going.append(descriptor)
    case UInt8(ascii: "s"): going.removeAll { $0 == descriptor }
    default:
      if count > 0 { send(descriptor, answer, answer.count, CInt(MSG_NOSIGNAL)) }
      going.removeAll { $0 == descriptor }
      clients[descriptor] = nil
      close(descriptor)
    }
  }
}
