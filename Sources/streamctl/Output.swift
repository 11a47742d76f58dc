import Glibc
import StreamRuntime

/// Buffered standard output: written when the buffer is large enough, or when there is nothing else to do.
struct Output {
  private var gathered: [UInt8] = []

  private static let gatheredByteLimit = 64 << 10

  mutating func write(_ bytes: some Collection<UInt8>) throws(Stop) {
    gathered.append(contentsOf: bytes)
    if gathered.count >= Self.gatheredByteLimit { try flush() }
  }

  /// Blocks until everything is written.
  mutating func flush() throws(Stop) {
    var rest = gathered[...]
    gathered = []
    while !rest.isEmpty {
      let count = unsafe rest.withUnsafeBytes { unsafe Glibc.write(STDOUT_FILENO, $0.baseAddress, $0.count) }
      let code = errno
      if count >= 0 {
        rest = rest.dropFirst(count)
      } else if code == EAGAIN {  // another process made the shared terminal non-blocking
        var waiting = pollfd(fd: STDOUT_FILENO, events: Int16(POLLOUT), revents: 0)
        _ = unsafe poll(&waiting, 1, -1)
      } else if code != EINTR {
        throw .output(SystemError("write", "standard output", code: code))
      }
    }
  }
}

extension Output {
  /// Writes one text and flushes.
  static func print(_ text: String) throws(Stop) {
    var output = Output()
    try output.write(text.utf8)
    try output.flush()
  }
}

/// Detects that the reader of standard output has closed it while there is nothing to write. A file has no reader and
/// is not watched.
final class OutputWatch: EventLoop.Handler {
  private let loop: EventLoop
  private let closed: () -> Void
  private var registration: EventLoop.Registration?

  init(on loop: EventLoop, closed: @escaping () -> Void) {
    self.loop = loop
    self.closed = closed
    registration = try? loop.register(STDOUT_FILENO, for: [], handler: self)
  }

  /// The only event is the close of the other end.
  func descriptorIsReady(_ readiness: EventLoop.Readiness) {
    if let registration { loop.unregister(registration) }
    registration = nil
    closed()
  }
}
