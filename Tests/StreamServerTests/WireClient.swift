import CLinux
import Glibc
import RSocket
import StreamRuntime
import TestSupport
import Testing

@testable import StreamServer

/// A client that sends any bytes, valid or not, over a real socket.
final class WireClient {
  struct Silence: Error {}

  let descriptor: OwnedDescriptor
  private var input: [UInt8] = []
  /// Those that came with the input so far; the test closes them.
  private(set) var descriptors: [CInt] = []

  /// - Parameter receiveBuffer: of the kernel, in bytes; nil: the system's.
  init(_ path: String, receiveBuffer: CInt? = nil) throws {
    descriptor = try UnixSocket.connect(to: path)
    LocalSocket.admitDescriptors(on: descriptor.raw)  // for maps
    _ = fcntl(descriptor.raw, F_SETFL, 0)
    if var size = receiveBuffer {
      setsockopt(descriptor.raw, SOL_SOCKET, SO_RCVBUF, &size, socklen_t(MemoryLayout<CInt>.size))
    }
  }

  /// - Parameter descriptor: of a connected socket; owned by the client from here on.
  init(taking descriptor: CInt) {
    self.descriptor = OwnedDescriptor(descriptor)
    _ = fcntl(descriptor, F_SETFL, 0)
  }

  /// A client with this user's credentials; nil: without credentials.
  init(_ server: StreamServer, user: UInt32?) throws {
    var ends: [CInt] = [0, 0]
    let type = CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue)
    guard socketpair(AF_UNIX, type, 0, &ends) == 0 else { throw SystemError("socketpair") }
    _ = fcntl(ends[1], F_SETFL, O_NONBLOCK)
    descriptor = OwnedDescriptor(ends[0])
    let other = ends[1]
    server.loops[0].execute {
      server.accept(
        OwnedDescriptor(other), user.map { PeerCredentials(process: 4711, user: $0, group: $0) })
    }
    send(.setup(Setup()))
  }

  /// A client that has sent SETUP.
  /// - Parameter setup: by default with the longest lifetime, which no test exceeds on a slow machine.
  static func ready(_ path: String, _ setup: Setup = Setup(maximumLifetime: .seconds(300))) throws -> WireClient {
    let client = try WireClient(path)
    client.send(.setup(setup))
    return client
  }

  func send(_ frame: Frame) {
    var bytes: [UInt8] = []
    frame.encode(into: &bytes)
    send(bytes)
  }

  func send(_ bytes: [UInt8]) {
    var offset = 0
    while offset < bytes.count {
      let count = bytes.withUnsafeBytes {
        Glibc.send(descriptor.raw, $0.baseAddress! + offset, bytes.count - offset, CInt(MSG_NOSIGNAL))
      }
      guard count > 0 else { return }
      offset += count
    }
  }

  /// REQUEST_STREAM.
  func subscribe(_ name: String, credit: UInt32, options: String = "", id: UInt32 = 1) {
    let payload = Payload(metadata: [UInt8(name.utf8.count)] + Array(name.utf8), data: Array(options.utf8))
    send(.request(StreamID(id), .stream, initialRequest: credit, payload, follows: false, isComplete: false))
  }

  /// REQUEST_RESPONSE.
  func get(_ name: String, options: String = "", id: UInt32 = 1) {
    let payload = Payload(metadata: [UInt8(name.utf8.count)] + Array(name.utf8), data: Array(options.utf8))
    send(.request(StreamID(id), .response, initialRequest: 1, payload, follows: false, isComplete: false))
  }

  /// REQUEST_CHANNEL.
  func publish(_ name: String, _ data: [UInt8], isComplete: Bool = false, id: UInt32 = 1) {
    let payload = Payload(metadata: [UInt8(name.utf8.count)] + Array(name.utf8), data: data)
    send(.request(StreamID(id), .channel, initialRequest: 1, payload, follows: false, isComplete: isComplete))
  }

  /// REQUEST_FNF.
  func toss(_ name: String, _ data: [UInt8], id: UInt32) {
    let payload = Payload(metadata: [UInt8(name.utf8.count)] + Array(name.utf8), data: data)
    send(.request(StreamID(id), .fireAndForget, initialRequest: 0, payload, follows: false, isComplete: false))
  }

  /// PAYLOADs with a value each.
  func value(_ data: [UInt8]..., isComplete: Bool = false, id: UInt32 = 1) {
    values(data, isComplete: isComplete, id: id)
  }

  func values(_ values: [[UInt8]], isComplete: Bool = false, id: UInt32 = 1) {
    var bytes: [UInt8] = []
    for (index, data) in values.enumerated() {
      let isLast = isComplete && index == values.count - 1
      Frame.payload(StreamID(id), Payload(data: data), follows: false, isComplete: isLast, isNext: true)
        .encode(into: &bytes)
    }
    send(bytes)
  }

  /// A separate COMPLETE.
  func complete(id: UInt32 = 1) {
    send(.payload(StreamID(id), Payload(), follows: false, isComplete: true, isNext: false))
  }

  /// Publishes `values` within the credit, then COMPLETE, and waits for the reply.
  func publishAll(_ name: String, _ values: [[UInt8]], id: UInt32 = 1) throws {
    publish(name, values[0], id: id)
    var sent = 1
    while true {
      switch try receive() {
      case .requestN(StreamID(id), let count)?:
        let next = values[sent..<min(values.count, sent + Int(count))]
        guard !next.isEmpty else { continue }
        sent += next.count
        self.values(Array(next), isComplete: sent == values.count, id: id)
      case .payload(StreamID(id), _, follows: false, isComplete: true, isNext: false)?: return
      case let other:
        Issue.record("expected credit or COMPLETE, got \(String(describing: other))")
        throw Silence()
      }
    }
  }

  /// Whether there is unread input.
  var hasInput: Bool {
    var ready = pollfd(fd: descriptor.raw, events: Int16(POLLIN), revents: 0)
    return !input.isEmpty || poll(&ready, 1, 0) == 1
  }

  /// The next frame; nil at the connection's end.
  /// - Throws: `Silence` after `hangTime`.
  func receive(sourceLocation: SourceLocation = #_sourceLocation) throws -> Frame? {
    while true {
      if input.count >= 3 {
        let count = Int(input[0]) << 16 | Int(input[1]) << 8 | Int(input[2])
        if input.count >= 3 + count {
          let frame = try input.withUnsafeBytes {
            try Frame.decode(UnsafeRawBufferPointer(rebasing: $0[3..<3 + count]))
          }
          input.removeFirst(3 + count)
          return frame
        }
      }
      var ready = pollfd(fd: descriptor.raw, events: Int16(POLLIN), revents: 0)
      guard poll(&ready, 1, CInt(hangTime.wholeMilliseconds)) == 1 else {
        Issue.record("nothing came", sourceLocation: sourceLocation)
        throw Silence()
      }
      guard readInput() else { return nil }
    }
  }

  /// - Returns: false at the connection's end.
  private func readInput() -> Bool {
    var buffer = [UInt8](repeating: 0, count: 256 << 10)
    var control = [UInt8](repeating: 0, count: 128)
    let count = buffer.withUnsafeMutableBytes { buffer in
      control.withUnsafeMutableBytes { control in
        var data = iovec(iov_base: buffer.baseAddress, iov_len: buffer.count)
        return withUnsafeMutablePointer(to: &data) { data in
          var message = msghdr()
          (message.msg_iov, message.msg_iovlen) = (data, 1)
          (message.msg_control, message.msg_controllen) = (control.baseAddress, control.count)
          let count = recvmsg(descriptor.raw, &message, CInt(MSG_CMSG_CLOEXEC))
          // A header of 16 bytes, which begins with the whole length.
          guard count > 0, message.msg_controllen >= 16 else { return count }
          for offset in stride(from: 16, to: control.load(as: Int.self), by: 4) {
            descriptors.append(control.load(fromByteOffset: offset, as: CInt.self))
          }
          return count
        }
      }
    }
    guard count > 0 else { return false }
    input += buffer[..<count]
    return true
  }

  /// The next event: its id and data.
  func event(sourceLocation: SourceLocation = #_sourceLocation) throws -> (id: UInt64, data: [UInt8]) {
    let (metadata, data) = try payload(sourceLocation: sourceLocation)
    return (metadata.prefix(8).reduce(0) { $0 << 8 | UInt64($1) }, data)
  }

  /// The next event, fragments put together: its metadata and data.
  func payload(sourceLocation: SourceLocation = #_sourceLocation) throws -> (metadata: [UInt8], data: [UInt8]) {
    var metadata: [UInt8] = []
    var data: [UInt8] = []
    while true {
      let frame = try receive(sourceLocation: sourceLocation)
      guard case .payload(_, let payload, let follows, _, true) = frame else {
        Issue.record("expected an event, got \(String(describing: frame))", sourceLocation: sourceLocation)
        throw Silence()
      }
      metadata += payload.metadata ?? []
      data += payload.data
      guard follows else { break }
    }
    return (metadata, data)
  }

  func events(_ count: Int, sourceLocation: SourceLocation = #_sourceLocation) throws -> [[UInt8]] {
    try (0..<count).map { _ in try event(sourceLocation: sourceLocation).data }
  }

  /// Whether nothing more arrives: the only replies are two KEEPALIVEs, one after the other. Pending frames are
  /// sent at the end of the turn that replies to the first.
  func isSilent(sourceLocation: SourceLocation = #_sourceLocation) throws -> Bool {
    for round in [1, 2] as [UInt8] {
      send(.keepalive(respond: true, position: 0, data: [round]))
      guard try receive(sourceLocation: sourceLocation) == .keepalive(respond: false, position: 0, data: [round]) else {
        return false
      }
    }
    return true
  }
}
