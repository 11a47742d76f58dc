import Reactive
import ReplayLog
import StreamRuntime
import Synchronization

/// The bases of a derived stream, and how far it has read them. Thread-safe.
final class Derivation: Sendable {
  /// The bases that are served.
  let bases: @Sendable () -> [ServedStream]
  /// Events of bases that were evicted before they were read; 1 for each loss of an unknown number.
  let missed = Atomic<UInt64>(0)
  /// The readers of the present subscription.
  let readers = Locked<[BaseReader]>([])

  init(bases: @escaping @Sendable () -> [ServedStream]) { self.bases = bases }

  /// Keeps what the present subscription has not read, for the next one.
  func holds() -> [BaseHold] { readers.withLock { $0 }.map { BaseHold($0.base, from: $0.position) } }
}

/// Finds what derived streams show of their bases, for one view of all streams or one check of a stream. It examines
/// each stream once, however many streams are derived from it.
struct BaseSurvey {
  /// Why a stream waits or fails.
  struct Trouble: Equatable {
    /// Its state.
    let word: String
    /// The base at which the problem begins, and its reason.
    let name: String
    let reason: String

    func sentence(showsNames: Bool) -> String {
      showsNames ? "\"\(name)\" is \(word): \(reason)" : "a base is \(word)"
    }
  }

  /// What a stream shows of itself and its bases.
  struct Finding: Equatable {
    /// When the stream was last known to have read the newest event of each base, and these events to be the present
    /// ones. In nanoseconds of the monotonic clock; nil: this is unknown, the stream has not read all, or it is not
    /// derived.
    var basesProvedAt: UInt64?
    /// Since when the stream is stale, or else the base that has been stale longest; microseconds since the Unix epoch.
    var staleSince: UInt64?
    /// The problem of the first base that waits or fails.
    var trouble: Trouble?
  }

  private enum State {
    /// The stream's bases are being examined. They lead back to it only during a reload; it is then left out.
    case open
    case known(Finding)
  }

  private let now = EventLoop.monotonicNow()
  private let wallTime = EventLoop.wallClock()
  private var states: [ObjectIdentifier: State] = [:]

  /// Examines a stream and its bases, unless they are known. Complexity: O(bases of bases).
  mutating func finding(on stream: ServedStream) -> Finding {
    // Most streams have no bases. A finding on each of very many would take more memory than all that is shown of them.
    guard stream.status.derivation != nil else { return known(stream) ?? examine(stream) }
    // A chain may be longer than a thread's stack.
    var path = [stream]
    while let next = path.last {
      let base = next.status.derivation?.bases().first { states[ObjectIdentifier($0)] == nil }
      if let base, known(next) == nil {
        states[ObjectIdentifier(next)] = .open
        path.append(base)
      } else {
        if known(next) == nil { states[ObjectIdentifier(next)] = .known(examine(next)) }
        path.removeLast()
      }
    }
    return known(stream) ?? Finding()
  }

  private func known(_ stream: ServedStream) -> Finding? {
    if case .known(let finding)? = states[ObjectIdentifier(stream)] { finding } else { nil }
  }

  /// Examines a stream whose bases are known.
  private func examine(_ stream: ServedStream) -> Finding {
    var finding = Finding(staleSince: stream.freshness.withLock { $0?.stale?.wallTime })
    guard let derivation = stream.status.derivation else { return finding }
    let bases = derivation.bases()
    finding.staleSince = finding.staleSince ?? bases.compactMap { known($0)?.staleSince }.min()
    finding.trouble = bases.lazy.compactMap { trouble(of: $0) }.first
    let proofs = derivation.readers.withLock { $0 }.map { $0.isCurrent ? provedAt($0.base) : nil }
    if !proofs.contains(nil) { finding.basesProvedAt = proofs.compactMap { $0 }.min() }
    return finding
  }

  private func trouble(of base: ServedStream) -> Trouble? {
    guard !base.log.hasEnded else { return nil }
    switch base.status.health {
    case .failing(let reason): return Trouble(word: "failing", name: base.name, reason: reason)
    case .waiting(let reason): return Trouble(word: "waiting", name: base.name, reason: reason)
    case .healthy:
      guard base.log.isConnected, base.holder.withLock({ $0 }) == nil else { return nil }
      return known(base)?.trouble
    }
  }

  /// When the newest event of a base was last known to be the present one.
  private func provedAt(_ base: ServedStream) -> UInt64? {
    let newest = base.log.read { storage, _ in storage.newestTime }
    let age = newest.flatMap { $0 <= wallTime ? (wallTime - $0) &* 1000 : nil }
    let event = age.flatMap { $0 <= now ? now - $0 : nil }
    return [base.status.fetchedAt, known(base)?.basesProvedAt, event].compactMap { $0 }.max()
  }
}
