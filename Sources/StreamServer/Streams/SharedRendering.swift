import StreamRuntime

/// A value that requests share: those within a short time, and those that wait while it is rendered. Thread-safe.
final class SharedRendering: Sendable {
  /// Requests within that time share a value; in nanoseconds.
  var maximumAge: UInt64 { UInt64(max(0, age() / .nanoseconds(1))) }
  private let age: @Sendable () -> Duration
  private let state = Locked(State())

  private struct State {
    var value: [UInt8] = []
    /// When the last rendering began, in nanoseconds of the monotonic clock.
    var time: UInt64?
    /// Called after the rendering in progress; empty: there is none.
    var waiting: [ObjectIdentifier: @Sendable ([UInt8]) -> Void] = [:]

    func isYounger(than age: UInt64) -> Bool { time.map { EventLoop.monotonicNow() - $0 < age } ?? false }
  }

  enum Answer {
    /// The value is recent enough.
    case recent([UInt8])
    /// The value is rendered already; the waiter is called.
    case waits
    /// As `waits`, but the caller must render: nobody does.
    case mustRender
  }

  /// - Parameter age: the maximum age of a value that requests share, at present. Called by each request.
  init(maximumAge age: @escaping @Sendable () -> Duration) { self.age = age }

  /// Requests a value.
  ///
  /// - Parameters:
  ///   - waiter: the requester, which is called once for all requests that wait.
  ///   - completed: called on any thread, unless the value is recent enough.
  func request(for waiter: AnyObject, completed: @escaping @Sendable ([UInt8]) -> Void) -> Answer {
    let maximumAge = maximumAge
    return state.withLock { state in
      if state.isYounger(than: maximumAge) { return .recent(state.value) }
      let isFirst = state.waiting.isEmpty
      state.waiting[ObjectIdentifier(waiter)] = completed
      return isFirst ? .mustRender : .waits
    }
  }

  func isYounger(than age: UInt64) -> Bool { state.withLock { $0.isYounger(than: age) } }

  /// Whether requests wait, or share the value.
  var isUsed: Bool {
    let maximumAge = maximumAge
    return state.withLock { !$0.waiting.isEmpty || $0.isYounger(than: maximumAge) }
  }

  /// Replaces the value.
  ///
  /// - Parameters:
  ///   - value: nil: the former value stays.
  ///   - time: when the rendering began.
  /// - Returns: whether the value has changed.
  func set(_ value: [UInt8]?, begunAt time: UInt64) -> Bool {
    state.withLock { state in
      state.time = time
      guard let value, state.value != value else { return false }
      state.value = value
      return true
    }
  }

  /// Calls those who wait.
  func finish() {
    let (value, waiting) = state.withLock { state in
      defer { state.waiting = [:] }
      return (state.value, state.waiting)
    }
    for completed in waiting.values { completed(value) }
  }
}
