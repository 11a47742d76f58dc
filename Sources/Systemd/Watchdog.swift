import StreamRuntime

/// Proves progress: the service manager receives a keep-alive only after every participant has responded.
///
/// A round begins at a tick: each participant is pinged and calls `beat` from its own thread (an event loop from its
/// next turn). The last beat sends the keep-alive. While one is missing no new round begins, so a participant that
/// hangs stops the keep-alives, and the manager restarts the service. The caller of `tick` provides the time.
public final class Watchdog: Sendable {
  /// Asks one participant to call `beat` from its own thread. The call may come on any thread, late, or twice.
  public typealias Participant = @Sendable (_ beat: @escaping @Sendable () -> Void) -> Void

  private struct Round {
    var number: UInt64 = 0
    var missing: Set<Int> = []
  }

  private let participants: [Participant]
  private let keepAlive: @Sendable () -> Void
  private let round = Locked(Round())

  /// - Parameter keepAlive: called once per round, on the thread of the last beat.
  public init(participants: [Participant], keepAlive: @escaping @Sendable () -> Void) {
    self.participants = participants
    self.keepAlive = keepAlive
  }

  /// The time between two ticks: half of the manager's interval, as sd_watchdog_enabled(3) advises. A round may take
  /// the other half.
  public static func period(for interval: Duration) -> Duration { interval / 2 }

  /// Begins a round, unless one is in progress.
  ///
  /// - Returns: the ascending indices of the participants that have not yet responded in the round in progress; empty
  ///   when a new one began.
  @discardableResult public func tick() -> [Int] {
    let (number, missing) = round.withLock { round in
      guard round.missing.isEmpty else { return (nil as UInt64?, round.missing.sorted()) }
      round.number += 1
      round.missing = Set(participants.indices)
      return (round.number, [])
    }
    guard let number else { return missing }
    if participants.isEmpty { keepAlive() }
    for (index, ping) in participants.enumerated() {
      ping { [weak self] in self?.beat(index, in: number) }
    }
    return []
  }

  private func beat(_ participant: Int, in number: UInt64) {
    let isLast = round.withLock { round in
      guard round.number == number, round.missing.remove(participant) != nil else { return false }
      return round.missing.isEmpty
    }
    if isLast { keepAlive() }
  }
}
