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

  private struct State {
    var renderings: [Key: SharedRendering] = [:]
    var renderer: Renderer?
  }

  private let state = Locked(State())
  private let maximumAge: Duration
  private let queue: DispatchQueue

  /// The maximum number of renderings at a time: two formats, with and without streams, for sixteen sets of rights.
  private static let limit = 64

  /// - Parameters:
  ///   - maximumAge: requests within that time share a rendering.
  ///   - queue: for the cache's own work.
  init(maximumAge: Duration, on queue: DispatchQueue) {
    (self.maximumAge, self.queue) = (maximumAge, queue)
  }

  func setRenderer(_ renderer: @escaping Renderer) { state.withLock { $0.renderer = renderer } }

  /// Requests a rendering.
  ///
  /// - Parameters:
  ///   - waiter: the requester, which makes no other request until it has the rendering.
  ///   - completed: called once, at once or later on any thread.
  /// - Returns: false if there are too many renderings; `completed` is not called then.
  func request(_ key: Key, for waiter: AnyObject, completed: @escaping @Sendable ([UInt8]) -> Void) -> Bool {
    let (renderer, rendering) = state.withLock { state -> (Renderer?, SharedRendering?) in
      if state.renderings[key] == nil, state.renderings.count < Self.limit {
        state.renderings[key] = SharedRendering { [maximumAge] in maximumAge }
      }
      return (state.renderer, state.renderings[key])
    }
    guard let renderer, let rendering else { return false }
    let now = EventLoop.monotonicNow()
    switch rendering.request(for: waiter, completed: completed) {
    case .recent(let text): completed(text)
    case .waits: break
    case .mustRender:
      renderer(key) { [self] text in
        _ = rendering.set(text, begunAt: now)
        rendering.finish()
        queue.asyncAfter(deadline: .now() + .nanoseconds(Int(clamping: rendering.maximumAge))) { [weak self] in
          self?.state.withLock { $0.renderings = $0.renderings.filter { $0.value.isUsed } }
        }
      }
    }
    return true
  }

  /// Drops all renderings, because clients may see fewer streams than before. Requests that wait get theirs.
  func dropAll() { state.withLock { $0.renderings = [:] } }
}
