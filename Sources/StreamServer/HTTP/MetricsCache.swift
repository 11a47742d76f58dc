import Dispatch
import StreamRuntime

/// Renderings of the server's metrics, each shared by all clients that request the same within a short time.
///
/// Rendering takes milliseconds with thousands of streams; it never happens on an event loop.
final class MetricsCache: Sendable {
  /// The properties in which renderings differ.
  struct Key: Hashable, Sendable {
    let visibility: Visibility
    let format: MetricsFormat
    /// False: without the metrics of single streams.
    let hasStreams: Bool
  }

  /// Renders metrics and passes them on, on any thread.
  typealias Renderer = @Sendable (Key, _ completed: @escaping @Sendable ([UInt8]) -> Void) -> Void

  private struct Entry {
    var text: [UInt8] = []
    /// When the last rendering began, in nanoseconds of the monotonic clock.
    var time: UInt64?
    /// Called after the rendering in progress; empty: there is none.
    var waiting: [@Sendable ([UInt8]) -> Void] = []
    /// Whether the rendering in progress must not be shared with later requests.
    var isOutdated = false
  }

  private struct State {
    var entries: [Key: Entry] = [:]
    var renderer: Renderer?
  }

  private let state = Locked(State())
  private let maximumAge: UInt64
  private let queue: DispatchQueue

  /// The maximum number of renderings at a time: two formats, with and without streams, for sixteen sets of rights.
  private static let entryLimit = 64

  /// - Parameters:
  ///   - maximumAge: requests within that time share a rendering.
  ///   - queue: for the cache's own work.
  init(maximumAge: Duration, on queue: DispatchQueue) {
    self.maximumAge = UInt64(max(0, maximumAge / .nanoseconds(1)))
    self.queue = queue
  }

  func setRenderer(_ renderer: @escaping Renderer) { state.withLock { $0.renderer = renderer } }

  /// Requests a rendering.
  ///
  /// - Parameter completed: called once, at once or later on any thread.
  /// - Returns: false if there are too many renderings; `completed` is not called then.
  func request(_ key: Key, completed: @escaping @Sendable ([UInt8]) -> Void) -> Bool {
    enum Step {
      case refuse, wait
      case render(Renderer)
      case complete([UInt8])
    }
    let now = EventLoop.monotonicNow()
    let step = state.withLock { state -> Step in
      guard let renderer = state.renderer else { return .refuse }
      var entry = state.entries[key] ?? Entry()
      if let time = entry.time, now - min(now, time) < maximumAge { return .complete(entry.text) }
      if state.entries[key] == nil, state.entries.count >= Self.entryLimit { return .refuse }
      entry.waiting.append(completed)
      state.entries[key] = entry
      return entry.waiting.count == 1 ? .render(renderer) : .wait
    }
    switch step {
    case .refuse: return false
    case .wait: break
    case .render(let renderer): renderer(key) { [self] text in finish(key, text, begunAt: now) }
    case .complete(let text): completed(text)
    }
    return true
  }

  private func finish(_ key: Key, _ text: [UInt8], begunAt time: UInt64) {
    let waiting = state.withLock { state in
      let former = state.entries[key]
      state.entries[key] = former?.isOutdated ?? true ? nil : Entry(text: text, time: time)
      return former?.waiting ?? []
    }
    for completed in waiting { completed(text) }
    queue.asyncAfter(deadline: .now() + .nanoseconds(Int(clamping: maximumAge))) { [weak self] in self?.dropOld() }
  }

  private func dropOld() {
    let now = EventLoop.monotonicNow()
    state.withLock { state in
      state.entries = state.entries.filter { _, entry in
        !entry.waiting.isEmpty || entry.time.map { now - min(now, $0) < maximumAge } ?? true
      }
    }
  }

  /// Drops all renderings: clients may see fewer streams than before.
  func dropAll() {
    state.withLock { state in
      for key in state.entries.keys {
        if state.entries[key]?.waiting.isEmpty ?? true {
          state.entries[key] = nil
        } else {
          state.entries[key]?.isOutdated = true
        }
      }
    }
  }
}
