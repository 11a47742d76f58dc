import StreamRuntime

/// A fifth of a thread's time, for work that comes in pieces and may not hold up other work of the thread, however much of it
/// there is. Confined to the thread.
final class ThreadShare {
  /// When the next piece may begin, in nanoseconds of the monotonic clock.
  private var next: UInt64 = 0

  /// - Parameter time: nanoseconds that a piece has taken.
  /// - Returns: the time until its owner may do the next one. The turns of several owners follow each other.
  func pause(after time: UInt64) -> Duration {
    let now = EventLoop.monotonicNow()
    let start = max(now &+ time &* 4, next)
    next = start &+ time &* 5
    return .nanoseconds(start &- now)
  }
}
