import Reactive

// Apart from the rest, which needs nothing of `Reactive`.
extension EventLog: ReplayStorage {
  /// Brings what was appended to the disk; nil for a log in memory.
  @usableFromInline package var appendObserver: (any LogReader)? {
    didGrow.map { GrowthObserver(didGrow: $0) }
  }
}

private final class GrowthObserver: LogReader {
  private let didGrow: @Sendable () -> Void

  init(didGrow: @escaping @Sendable () -> Void) { self.didGrow = didGrow }

  func logDidChange() { didGrow() }
}
