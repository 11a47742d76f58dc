import StreamRuntime

/// Proves progress: the service manager gets its keep-alive only once every participant has come round.
///
/// A round begins at a tick: each participant is pinged and beats back from wherever it does its work (an event loop
/// from its next turn). With the last beat the keep-alive goes out. While one is missing no new round begins, so a
/// participant that hangs ends the keep-alives, and the manager restarts the service. Time is whoever calls `tick`.
public final class Watchdog: Sendable {
  /// Asks one participant to call `beat`, from its own thread. It may come on any thread, late, or twice.
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

  /// The time between two ticks: half of what the manager allows, as sd_watchdog_enabled(3) advises. The other half is
  /// what a round may take.
  public static func period(for interval: Duration) -> Duration { interval / 2 }

  /// Begins a round, unless one is under way.
  ///
  /// - Returns: indices, rising, of the participants that the round under way still waits for; empty when a new one
  ///   could begin.
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
