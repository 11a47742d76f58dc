import Reactive

// Separate from the other files, which do not depend on `Reactive`.
extension EventLog: ReplayStorage {
  /// Writes appended events to the disk; nil for a log in memory.
  @usableFromInline package var appendObserver: (any LogReader)? {
    didGrow.map { GrowthObserver(didGrow: $0) }
  }
}

private final class GrowthObserver: LogReader {
  private let didGrow: @Sendable () -> Void

  init(didGrow: @escaping @Sendable () -> Void) { self.didGrow = didGrow }

  func logDidChange() { didGrow() }
}
