import Events

extension EventLog {
  /// Maximum ids that a loss takes.
  private static let lossLimit: UInt64 = 1 << 32

  /// Leaves ids before the next event without one: readers see that events are missing. A loss that is only possible
  /// leaves none if that would evict events.
  /// - Returns: false, without any effect, if it would evict events that are held.
  func leaveHole(for loss: EventLoss) -> Bool {
    let evicts = (holeStart == holeEnd || holeEnd < endPosition) && firstPosition < holeStart
    guard !evicts || loss != .possible else { return true }
    return leaveHole(to: endPosition + min(loss.count, Self.lossLimit))
  }

  /// What a reader misses by resuming at `end` instead of `start`, between which events or ids are missing.
  /// - Returns: a possible loss if `start` precedes the log's history: another log may have ended there.
  package func loss(from start: UInt64, to end: UInt64) -> EventLoss {
    missedEvents(from: start, to: end).map { .known($0) } ?? (start >= historyStart ? .unknown : .possible)
  }
}
