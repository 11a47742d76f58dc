import Synchronization

/// The memory that the places of shared regions may take together. Thread-safe.
public final class LogBudget: Sendable {
  private let limit: Atomic<Int>
  private let used = Atomic(0)
  private let didRefuse: @Sendable () -> Void

  /// - Parameters:
  ///   - limit: bytes.
  ///   - didRefuse: called on any thread, under the lock of a log, when a log could not grow: it must not block.
  public init(limit: Int = .max, didRefuse: @escaping @Sendable () -> Void = {}) {
    self.limit = Atomic(limit)
    self.didRefuse = didRefuse
  }

  /// Bytes that are in use. They may exceed the limit, if that was lowered, or a former process had a higher one.
  public var usedBytes: Int { used.load(ordering: .relaxed) }

  /// Whether there is room for a new log, and for others to grow: an eighth of the limit, at most 1 MiB.
  public var hasRoom: Bool {
    let limit = limit.load(ordering: .relaxed)
    return usedBytes <= limit - min(limit / 8, 1 << 20)
  }

  /// Sets the limit in bytes. Logs that exceed a lower one stay.
  public func setLimit(_ bytes: Int) { limit.store(bytes, ordering: .relaxed) }

  /// - Parameter isForced: whether the limit does not matter: it is only reported that it is exceeded.
  /// - Returns: false, without any effect, if the limit does not allow it.
  func take(_ bytes: Int, isForced: Bool) -> Bool {
    guard used.add(bytes, ordering: .relaxed).newValue > limit.load(ordering: .relaxed) else { return true }
    refuse()
    if !isForced { give(bytes) }
    return isForced
  }

  /// Takes bytes whatever the limit is.
  func add(_ bytes: Int) { used.add(bytes, ordering: .relaxed) }
  func give(_ bytes: Int) { used.subtract(bytes, ordering: .relaxed) }
  func refuse() { didRefuse() }
}
