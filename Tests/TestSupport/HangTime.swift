import StreamRuntime

/// How long a test waits before it fails as one that hangs.
///
/// Nothing that passes takes this long, also beside many times more programs than the machine has processors. The limits
/// of suites (`timeLimit`) are longer: they include the time in which other tests have the processors.
public let hangTime = Duration.seconds(300)

/// A deadline on `EventLoop.monotonicNow()`.
public func hangDeadline() -> UInt64 { EventLoop.monotonicNow() + UInt64(hangTime.wholeNanoseconds) }

/// Waits until `condition` holds, for `hangTime` at most.
///
/// - Returns: whether it holds.
public func eventually(_ condition: () async throws -> Bool) async throws -> Bool {
  let deadline = hangDeadline()
  while try await !condition() {
    guard EventLoop.monotonicNow() < deadline else { return false }
    try await Task.sleep(for: .milliseconds(10))
  }
  return true
}
