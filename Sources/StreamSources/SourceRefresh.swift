import Reactive
import StreamRuntime

/// Why a source does not ask its upstream at once.
public enum RefreshRefusal: Error, Equatable, Sendable {
  /// No subscriber wants an event.
  case noDemand
  /// The server has asked for no request for this time (Retry-After, or the `retry` of server-sent events).
  case resting(Duration)
  /// A response or a program is running, and its events arrive by themselves.
  case running
}

/// Makes a source ask its upstream now, before the next attempt is due. Each source has its own.
///
/// Thread-safe.
public final class SourceRefresh: Sendable {
  private let source = Locked<RefreshableSource?>(nil)

  /// Creates a refresh without a source.
  public init() {}

  /// - Parameter completed: called once on any thread; nil: the source asks now, or did so already and has no response
  ///   yet. The request may still wait for its host.
  public func perform(completed: @escaping @Sendable (RefreshRefusal?) -> Void) {
    guard let source = source.withLock({ $0 }) else { return completed(.noDemand) }
    source.refresh(completed: completed)
  }

  func attach(_ source: any RefreshableSource) { self.source.withLock { $0 = source } }

  /// Has no effect after another source was attached.
  func detach(_ former: any RefreshableSource) { source.withLock { if $0 === former { $0 = nil } } }
}

/// A subscription to a source. Its methods are thread-safe.
protocol RefreshableSource: AnyObject, Sendable {
  func refresh(completed: @escaping @Sendable (RefreshRefusal?) -> Void)
}
