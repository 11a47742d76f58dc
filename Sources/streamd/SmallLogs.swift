import ReplayLog
import StreamRuntime
import Synchronization
import Systemd

/// The shared regions of the small logs in memory: one that the service manager keeps, and one of streams that it does not.
///
/// Confined to one thread at a time.
final class SmallLogs {
  private let journal: Journal
  private let warning = Warning()
  private var kept: SharedRegion?
  private var other: SharedRegion?
  /// Whether the service manager has the kept one.
  private(set) var isStored = false

  init(journal: Journal) { self.journal = journal }

  /// The region of a stream's log; nil: the log has memory of its own.
  /// - Parameter store: gives a descriptor to the service manager; returns whether that keeps it.
  func region(
    for stream: Configuration.Stream, _ limits: EventLog.Limits, store: (CInt) -> Bool
  ) -> SharedRegion? {
    guard limits.isSmall, stream.share != .fleet, stream.keep != .disk else { return nil }
    if stream.keep == .no {
      if other == nil { other = SharedRegion(name: "small", isKept: false, didRefuse: refusal) }
      return other
    }
    if kept == nil, let new = SharedRegion(name: "small", isKept: true, didRefuse: refusal) {
      (kept, isStored) = (new, store(new.descriptor))
    }
    return kept
  }

  /// Whether the service manager keeps a log, because it has its region.
  func keeps(_ log: EventLog) -> Bool { isStored && kept.map { log.isStored(in: $0) } ?? false }

  /// Takes a region that the service manager has stored. The first one is used on.
  func adopt(_ descriptor: CInt, progress: () -> Void) throws(LogRefusal) -> [LogRemains] {
    let (region, logs) = try SharedRegion.adopted(
      descriptor, didRefuse: refusal,
      damaged: { journal.write(.stateLost, .warning, "the log of a stream could not be reused: \($0)") },
      progress: progress)
    if kept == nil { (kept, isStored) = (region, true) }
    return logs
  }

  private var refusal: @Sendable () -> Void {
    { [journal, warning] in warning.note(to: journal) }
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
        "the shared memory of small logs is full: streams have fewer events than their buffers allow")
    }
  }
}
