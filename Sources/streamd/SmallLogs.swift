import ReplayLog
import StreamRuntime
import Synchronization
import Systemd

/// The shared regions of the small logs in memory: one that the service manager keeps, and one of streams that it does not.
///
/// Confined to one thread at a time.
final class SmallLogs {
  private let journal: Journal
  let budget: LogBudget
  private var kept: SharedRegion?
  private var other: SharedRegion?
  /// Whether the service manager has the kept one.
  private(set) var isStored = false

  /// - Parameter refused: called on any thread when a log could not grow: it must not block.
  init(journal: Journal, refused: @escaping @Sendable () -> Void) {
    self.journal = journal
    let warning = Warning()
    budget = LogBudget {
      warning.note(to: journal)
      refused()
    }
  }

  /// The region of a stream's log; nil: the log has memory of its own.
  /// - Parameter store: gives a descriptor to the service manager; returns whether that keeps it.
  func region(
    for stream: Configuration.Stream, _ limits: EventLog.Limits, store: (CInt) -> Bool
  ) -> SharedRegion? {
    guard limits.isSmall, stream.share != .fleet, stream.keep != .disk else { return nil }
    if stream.keep == .no {
      if other == nil { other = SharedRegion(name: "small", isKept: false, budget: budget) }
      return other
    }
    if kept == nil, let new = SharedRegion(name: "small", isKept: true, budget: budget) {
      (kept, isStored) = (new, store(new.descriptor))
    }
    return kept
  }

  /// Whether the service manager keeps a log, because it has its region.
  func keeps(_ log: EventLog) -> Bool { isStored && kept.map { log.isStored(in: $0) } ?? false }

  /// Takes a region that the service manager has stored. The first one is used on.
  func adopt(_ descriptor: CInt, progress: () -> Void) throws(LogRefusal) -> [LogRemains] {
    let (region, logs) = try SharedRegion.adopted(
      descriptor, budget: budget,
      damaged: { journal.write(.stateLost, .warning, "the log of a stream could not be reused: \($0)") },
      progress: progress)
    if kept == nil { (kept, isStored) = (region, true) }
    return logs
  }

  /// Reports, at most once a minute, that small logs could not grow.
  private final class Warning: Sendable {
    private let next = Atomic<UInt64>(0)

    func note(to journal: Journal) {
      let (now, due) = (EventLoop.monotonicNow(), next.load(ordering: .relaxed))
      guard now >= due,
        next.compareExchange(expected: due, desired: now + 60_000_000_000, ordering: .relaxed).exchanged
      else { return }
      journal.write(
        .stateNotKept, .error,
        "the memory of small buffers is used up (server.memory): some hold fewer events than they may")
    }
  }
}
