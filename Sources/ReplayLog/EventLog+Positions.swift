// Which positions there are, and which events they had.

extension EventLog {
  /// The first event whose time is `time` or later; `endPosition` when there is none. Skips events whose time is later
  /// than the present: the clock was ahead then.
  ///
  /// Where the clock was set back several positions can match; the oldest one is returned. After more than 64 steps
  /// back within the stored events, the oldest steps are ignored, and the result among the events before the others may
  /// differ.
  /// - Complexity: O(steps back · log n).
  public func position(since time: UInt64) -> UInt64 {
    let now = clock()
    let count = count(from: firstPosition, to: endPosition)
    func position(_ index: UInt64) -> UInt64 { self.position(ofLast: count - index) }
    var start: UInt64 = 0
    for end in stepsBack.lazy.map({ self.count(from: self.firstPosition, to: $0) }) + [count] where end > start {
      var (low, high) = (start, end)
      while low < high {
        let middle = low + (high - low) / 2
        if self.time(of: position(middle)) < time { low = middle + 1 } else { high = middle }
      }
      if low < end, self.time(of: position(low)) <= now { return position(low) }
      start = end
    }
    return endPosition
  }

  /// The first of the last `count` stored events; `endPosition` for none.
  public func position(ofLast count: UInt64) -> UInt64 {
    let position = endPosition - min(count, self.count(from: firstPosition, to: endPosition))
    return firstPosition < holeStart && position < holeEnd ? position - (holeEnd - holeStart) : position
  }

  /// The number of events that are or were between two positions, as far as that is known: from the log's history on.
  public func count(from start: UInt64, to end: UInt64) -> UInt64 { distance(from: max(start, historyStart), to: end) }

  func distance(from start: UInt64, to end: UInt64) -> UInt64 {
    guard start < end else { return 0 }
    let (low, high) = (max(start, holeStart), min(end, holeEnd))
    return end - start - (low < high ? high - low : 0)
  }

  /// The number of events that a reader misses by resuming at `end` instead of `start`.
  /// - Returns: `nil` if unknown: a hole lies between, or `start` precedes the log's history.
  public func missedEvents(from start: UInt64, to end: UInt64) -> UInt64? {
    guard start < end else { return 0 }
    guard start >= historyStart, start >= holeEnd || end <= holeStart else { return nil }
    return end - start
  }

  /// Every position from here up to `endPosition` was assigned to an event.
  public var countedFrom: UInt64 { max(historyStart, holeEnd) }

  /// The position itself, or the hole's end for a position in the hole.
  public func skip(_ position: UInt64) -> UInt64 {
    position >= holeStart && position < holeEnd ? holeEnd : position
  }

  /// The end of the contiguous events from `position`: the hole's start before the hole, else `endPosition`.
  public func endOfRun(from position: UInt64) -> UInt64 { position < holeStart ? holeStart : endPosition }
}

/// Has a copy of a log's events, and sees each of them.
package protocol LogMirror: AnyObject {
  /// Called after events were appended, and before any of them is evicted; by the log's guard, so that it must neither
  /// block nor use the guard.
  func logDidGrow(_ log: EventLog)
}
