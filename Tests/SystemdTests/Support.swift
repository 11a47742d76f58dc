import Glibc
import Synchronization

@testable import Systemd

/// Time that only the test moves.
final class TestClock: Sendable {
  private struct State {
    var now = ContinuousClock.now
    var calls: [(due: ContinuousClock.Instant, call: @Sendable () -> Void)] = []
  }

  private let state = Mutex(State())

  var timekeeper: Journal.Timekeeper {
    Journal.Timekeeper(
      now: { self.state.withLock { $0.now } },
      after: { delay, call in self.state.withLock { $0.calls.append(($0.now + delay, call)) } })
  }

  /// - Returns: how many calls were due.
  func advance(by duration: Duration) -> Int {
    let due = state.withLock { state in
      state.now += duration
      let due = state.calls.filter { $0.due <= state.now }.map(\.call)
      state.calls.removeAll { $0.due <= state.now }
      return due
    }
    due.forEach { $0() }
    return due.count
  }
}

/// A pipe in place of standard error.
final class Pipe: Sendable {
  struct Failure: Error { let errorNumber: CInt }

  let writing: CInt
  private let reading: CInt

  init() throws {
    var ends: [CInt] = [-1, -1]
    guard pipe(&ends) == 0 else { throw Failure(errorNumber: errno) }
    (reading, writing) = (ends[0], ends[1])
  }

  deinit {
    close(writing)
    close(reading)
  }

  /// Writes until a write would block.
  func fill() {
    let flags = fcntl(writing, F_GETFL)
    _ = fcntl(writing, F_SETFL, flags | O_NONBLOCK)
    while write(writing, "x", 1) == 1 {}
    _ = fcntl(writing, F_SETFL, flags)
  }

  /// Reads what `fill` wrote, up to its last byte.
  func discard() {
    var buffer = [UInt8](repeating: 0, count: 65536)
    _ = read(reading, &buffer, buffer.count)
  }

  /// The content written so far; nothing may be in flight.
  func readToEnd() -> String {
    _ = fcntl(reading, F_SETFL, fcntl(reading, F_GETFL) | O_NONBLOCK)
    var text: [UInt8] = []
    var buffer = [UInt8](repeating: 0, count: 65536)
    while true {
      let count = read(reading, &buffer, buffer.count)
      guard count > 0 else { return String(decoding: text, as: UTF8.self) }
      text += buffer[..<count]
    }
  }
}
