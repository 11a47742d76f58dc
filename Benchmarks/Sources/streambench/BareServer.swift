import CLinux
import Glibc
import RSocket
import StreamRuntime

/// The baseline of the comparison: a process that makes only the unavoidable system calls. It is this executable again,
/// selected by its arguments.
///
/// The first byte selects a connection's use: after `g` (go) the server writes prepared blocks as fast as the client
/// reads, until `s` (stop); to any other byte it sends a prepared frame and closes the connection.
final class BareServer {
  static let argument = "--bare-server"
  /// The shape of a streamd frame with id, time and 64 bytes, as in the measured deliveries.
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

/// The server, in its own process.
@safe private final class BareWriter {
  private struct Client {
    /// The block's offset of the next write.
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

  deinit { unsafe events.deallocate() }

  private func watch(_ descriptor: CInt, _ wanted: UInt32) throws {
    var event = unsafe epoll_event()
    unsafe event.events = wanted
    unsafe event.data.fd = descriptor
    guard unsafe epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event) == 0 else { throw SystemError("epoll_ctl") }
  }

  /// Writes one block to each writable connection, then handles other input.
  func turn() throws {
    var isIdle = true
    for descriptor in going {
      guard var client = clients[descriptor], !client.isBlocked else { continue }
      isIdle = false
      let count = unsafe block.withUnsafeBytes {
        unsafe send(
          descriptor, $0.baseAddress.map { unsafe $0 + client.offset }, $0.count - client.offset,
          CInt(MSG_NOSIGNAL | MSG_DONTWAIT))
      }
      if count < 0 { client.isBlocked = true } else { client.offset = (client.offset + count) % block.count }
      clients[descriptor] = client
    }
    guard let start = unsafe events.baseAddress else { return }
    let ready = unsafe epoll_wait(epoll, start, CInt(events.count), isIdle ? -1 : 0)
    for index in 0..<max(0, Int(ready)) {
      let event = unsafe events[index]
      let descriptor = unsafe event.data.fd
      if descriptor == listener {
        acceptAll()
      } else {
        if unsafe event.events & EPOLLOUT.rawValue != 0 { clients[descriptor]?.isBlocked = false }
        if unsafe event.events & ~EPOLLOUT.rawValue != 0 { hear(descriptor) }
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
    let count = unsafe recv(descriptor, &words, words.count, CInt(MSG_DONTWAIT))
    if count < 0, errno == EAGAIN { return }
    // The last of several commands applies.
    let isOrder = count > 0 && [UInt8(ascii: "g"), UInt8(ascii: "s")].contains(words[0])
    switch isOrder ? words[count - 1] : 0 {
    case UInt8(ascii: "g"): going.append(descriptor)
    case UInt8(ascii: "s"): going.removeAll { $0 == descriptor }
    default:
      if count > 0 { unsafe send(descriptor, answer, answer.count, CInt(MSG_NOSIGNAL)) }
      going.removeAll { $0 == descriptor }
      clients[descriptor] = nil
      close(descriptor)
    }
  }
}

/// The baseline of batches: a process that sends what the publisher has sent to every subscriber as it is, with one system call
/// for each. It is this executable again, selected by its arguments.
///
/// The first byte of a connection, which is sent back, selects its use: `s` (subscribe), or `p` (publish).
final class BareRelay: Broker {
  static let argument = "--bare-relay"

  let name = "bare limit"
  let process: ServerProcess
  let shape: EventShape

  init() throws {
    process = try ServerProcess("/proc/self/exe") { [Self.argument, $0 + "/s"] }
    let bare = BareServer.shape
    shape = EventShape(
      byteCount: bare.byteCount, dataOffset: bare.dataOffset,
      request: [UInt8](repeating: 0, count: bare.dataOffset) + EventShape.data, requestDataOffset: bare.dataOffset)
    try process.waitUntilItServes(connectPublisher)
  }

  func subscribe() throws -> CInt { try connect("s") }
  func connectPublisher() throws -> CInt { try connect("p") }

  private func connect(_ use: Character) throws -> CInt {
    let raw = try Handshake.connect(to: process.folder + "/s")
    try Handshake.say(Array(String(use).utf8), to: raw)
    try Handshake.hear(Array(String(use).utf8), from: raw)
    return raw
  }

  static func run(_ path: String) throws {
    let listener = try UnixSocket.listen(at: path, mode: 0o600).release()
    var (subscribers, publisher) = ([CInt](), CInt(-1))
    var bytes = [UInt8](repeating: 0, count: 128 << 10)
    while true {
      var ready = [listener, publisher].map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
      guard unsafe poll(&ready, 2, -1) > 0 else { continue }
      if ready[0].revents != 0 {
        let raw = accept4(listener, nil, nil, CInt(SOCK_CLOEXEC.rawValue))
        guard unsafe recv(raw, &bytes, 1, 0) == 1, unsafe send(raw, bytes, 1, CInt(MSG_NOSIGNAL)) == 1 else { continue }
        if bytes[0] == UInt8(ascii: "s") { subscribers.append(raw) } else { publisher = raw }
      } else {
        let count = unsafe recv(publisher, &bytes, bytes.count, 0)
        guard count > 0 else {
          close(publisher)
          publisher = -1
          continue
        }
        for subscriber in subscribers { unsafe send(subscriber, bytes, count, CInt(MSG_NOSIGNAL)) }
      }
    }
  }
}
