import CLinux
import EventLoop
import Glibc
import RSocket

/// A client of one connection that waits for its answers.
final class BenchClient {
  private let socket: OwnedDescriptor

  private static let echo: [UInt8] = encoded(.keepalive(respond: false, position: 0, data: []))

  init(_ path: String) throws {
    while true {
      do throws(SystemError) {
        socket = try UnixSocket.connect(to: path)
        break
      } catch {
        guard error.code == EAGAIN else { throw error }
        usleep(100)  // the backlog is full
      }
    }
    _ = fcntl(socket.raw, F_SETFL, 0)
  }

  /// SETUP, then a subscription if one is wanted, then a KEEPALIVE whose echo proves that all of it has been handled.
  func greet(subscribingTo stream: String? = nil) {
    var bytes = Self.encoded(.setup(Setup(maximumLifetime: .seconds(3600))))
    if let stream {
      let payload = Payload(metadata: [UInt8(stream.utf8.count)] + Array(stream.utf8))
      bytes += Self.encoded(
        .request(StreamID(1), .stream, initialRequest: 100, payload, follows: false, isComplete: false))
    }
    bytes += Self.encoded(.keepalive(respond: true, position: 0, data: []))
    send(socket.raw, bytes, bytes.count, CInt(MSG_NOSIGNAL))
  }

  func awaitEcho() throws {
    var answer = [UInt8](repeating: 0, count: Self.echo.count)
    let count = recv(socket.raw, &answer, answer.count, CInt(MSG_WAITALL))
    guard count == answer.count, answer == Self.echo else { throw SystemError("recv", "echo", code: EPROTO) }
  }

  private static func encoded(_ frame: Frame) -> [UInt8] {
    var bytes: [UInt8] = []
    frame.encode(into: &bytes)
    return bytes
  }
}
