import Dispatch
import Events
import FoundationEssentials
import Reactive
import ReplayLog
import StreamRuntime

/// What feeds a stream of the server itself: a value that is looked at every so often while a client listens, and when a
/// client asks and the last look is too old, and appended when it has changed.
///
/// A look may take long, with thousands of streams; it happens on a queue of its own, never on an event loop. The timer runs
/// under the same rules as any source: without subscribers, or without credit, there is none.
final class SystemFeed: Sendable {
  /// Which streams it shows.
  let visibility: Visibility
  private let current: @Sendable () -> [UInt8]
  private let queue: DispatchQueue
  private let maximumAge: UInt64
  private let state = Locked(State())

  private struct State {
    var value: [UInt8] = []
    /// When the last look began, in nanoseconds of the monotonic clock.
    var time: UInt64?
    /// Called after the look that is under way, by the worker that asked.
    var waiting: [ObjectIdentifier: @Sendable () -> Void] = [:]

    func isYounger(than age: UInt64) -> Bool { time.map { EventLoop.monotonicNow() - $0 < age } ?? false }
  }

  /// The ring's room is for the largest value; of it as much is used as so many take of the size that there is.
  private static let heldValues = 8
  private static let smallValueBytes = 8 << 10

  /// - Parameters:
  ///   - maximumAge: what was looked at so lately is shared by all that ask.
  ///   - queue: serial, where looks happen.
  ///   - current: the value now, as JSON.
  init(
    _ visibility: Visibility, maximumAge: Duration, on queue: DispatchQueue, current: @escaping @Sendable () -> [UInt8]
  ) {
    self.visibility = visibility
    self.maximumAge = UInt64(max(0, maximumAge / .nanoseconds(1)))
    self.queue = queue
    self.current = current
  }

  /// Whether the stream's newest event is young enough to be an answer.
  ///
  /// - Parameters:
  ///   - worker: that asks, and is called once for all that it asks until then.
  ///   - updated: called on any thread, if it is not, when it is.
  func isCurrent(
    in stream: ServedStream, for worker: AnyObject, orAfter updated: @escaping @Sendable () -> Void
  ) -> Bool {
    let (isCurrent, isFirst) = state.withLock { state in
      if state.isYounger(than: maximumAge) { return (true, false) }
      let isFirst = state.waiting.isEmpty
      state.waiting[ObjectIdentifier(worker)] = updated
      return (false, isFirst)
    }
    if isFirst { queue.async { [self] in refresh(stream) } }
    return isCurrent
  }

  private func refresh(_ stream: ServedStream) {
    if let changed = update(for: stream, after: maximumAge) { stream.log.append([changed]) }
    let waiting = state.withLock { state in
      defer { state.waiting = [:] }
      return state.waiting
    }
    for updated in waiting.values { updated() }
  }

  /// The value at each tick of a timer, when it has changed. The stream is not kept alive.
  func ticks(for stream: ServedStream, everyMilliseconds interval: Int) -> AnyPublisher<EventBatch, StreamFailure> {
    Publishers.timer(interval: .milliseconds(interval))
      .compactMap { [self, weak stream] _ in
        guard let stream else { return nil }
        // The first tick comes with the first subscriber, for whom there was a look already.
        return queue.sync { update(for: stream, after: UInt64(interval) * 500_000) }.map { [$0] }
      }
      .setFailureType(to: StreamFailure.self)
      .eraseToAnyPublisher()
  }

  /// On the queue.
  ///
  /// - Parameter age: nothing is looked at if the last look is younger, in nanoseconds.
  /// - Returns: the value, if it is another than before.
  private func update(for stream: ServedStream, after age: UInt64) -> [UInt8]? {
    let now = EventLoop.monotonicNow()
    guard !state.withLock({ $0.isYounger(than: age) }) else { return nil }
    let value = current()
    let isHeld = value.count <= stream.maximumEventBytes
    if isHeld {
      stream.log.read { storage, _ in storage.usedBytes = Self.heldValues * max(value.count, Self.smallValueBytes) }
    }
    return state.withLock { state in
      state.time = now
      guard isHeld, state.value != value else { return nil }
      state.value = value
      return value
    }
  }

  /// JSON with keys in a fixed order, so that equal values are equal bytes.
  static func json(_ value: some Encodable) -> [UInt8] {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
    guard let data = try? encoder.encode(value) else { preconditionFailure("\(value) has no JSON form") }
    return [UInt8](data)
  }
}
