import CLinux
import Glibc
import StreamRuntime
import TestSupport

@testable import StreamSources

/// The other side of a connection, under the test's control. Its calls wait; a test calls them from its own thread.
final class LinePeer: Sendable {
  private let socket: CInt

  init(_ socket: CInt) { self.socket = socket }

  deinit { close(socket) }

  /// Sends all of it, also nothing, which is a message.
  func send(_ text: String) async throws { try await send(Array(text.utf8)) }

  func send(_ bytes: [UInt8]) async throws {
    var rest = bytes[...]
    if rest.isEmpty { Glibc.send(socket, "", 0, 0) }
    guard
      try await eventually({
        var count = rest.withUnsafeBytes { Glibc.send(socket, $0.baseAddress, $0.count, CInt(MSG_NOSIGNAL)) }
        if count < 0, errno == ENOTSOCK { count = rest.withUnsafeBytes { write(socket, $0.baseAddress, $0.count) } }
        if count < 0, errno == EPIPE || errno == ECONNRESET { throw SourceFailure("the connection has ended") }
        if count > 0 { rest = rest.dropFirst(count) }
        return rest.isEmpty
      })
    else { throw SourceFailure("cannot send: \(errno)") }
  }

  /// Sends a byte with a socket that lingers.
  /// - Returns: 0 or an errno.
  func send(_ lingering: LingeringSocket) -> CInt { lingering.send([0], over: socket) }

  /// The next bytes, as many as `count`; fewer at the end of the connection.
  func receive(_ count: Int) async throws -> String {
    String(decoding: try await receiveBytes(count), as: UTF8.self)
  }

  func receiveBytes(_ count: Int) async throws -> [UInt8] {
    var bytes: [UInt8] = []
    guard
      try await eventually({
        var room = [UInt8](repeating: 0, count: count - bytes.count)
        let size = read(socket, &room, room.count)
        if size > 0 { bytes += room[..<size] }
        return size == 0 || bytes.count == count
      })
    else { throw SourceFailure("nothing comes") }
    return bytes
  }

  /// Waits until the source has closed the connection.
  func waitForEnd() async throws { _ = try await receive(1) }
}

/// Accepts the connections of a source.
final class LineListener: Sendable {
  private let socket: OwnedDescriptor

  init(_ socket: consuming OwnedDescriptor) { self.socket = socket }

  /// At a Unix socket of sequenced packets.
  static func messages(at path: String) throws -> LineListener {
    let listener = Glibc.socket(AF_UNIX, CInt(SOCK_SEQPACKET.rawValue | SOCK_NONBLOCK.rawValue), 0)
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
    let isBound = withUnsafePointer(to: &address) { pointer in
      pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        bind(listener, $0, socklen_t(MemoryLayout<sockaddr_un>.size)) == 0
      }
    }
    guard isBound, listen(listener, 5) == 0 else { throw SystemError("bind", path) }
    return LineListener(OwnedDescriptor(listener))
  }

  /// Whether a connection waits to be accepted.
  var hasConnection: Bool {
    var poll = pollfd(fd: socket.raw, events: Int16(POLLIN), revents: 0)
    return Glibc.poll(&poll, 1, 0) > 0
  }

  /// The next connection.
  func accept() async throws -> LinePeer {
    var connection: CInt = -1
    guard
      try await eventually({
        connection = accept4(socket.raw, nil, nil, CInt(SOCK_NONBLOCK.rawValue | SOCK_CLOEXEC.rawValue))
        return connection >= 0
      })
    else { throw SourceFailure("nobody connects") }
    return LinePeer(connection)
  }
}

/// A serial line: a pseudoterminal.
final class SerialLine: Sendable {
  /// The device of the source.
  let path: String
  let peer: LinePeer

  init() throws {
    var (controller, device): (CInt, CInt) = (-1, -1)
    var name = [CChar](repeating: 0, count: 64)
    guard openpty(&controller, &device, &name, nil, nil) == 0 else { throw SystemError("openpty") }
    close(device)
    _ = fcntl(controller, F_SETFL, O_NONBLOCK)
    _ = fcntl(controller, F_SETFD, FD_CLOEXEC)
    path = String(decoding: name.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    peer = LinePeer(controller)
  }

  /// The settings of the device.
  func settings() throws -> termios {
    let device = open(path, O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC)
    defer { close(device) }
    var settings = termios()
    guard device >= 0, tcgetattr(device, &settings) == 0 else { throw SystemError("tcgetattr", path) }
    return settings
  }
}
