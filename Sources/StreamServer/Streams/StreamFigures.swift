/// What the metrics show of one stream, or of several streams of a template together.
struct StreamFigures: Sendable {
  private(set) var counts: Statistics.Stream
  /// Events evicted before a subscription was sent them.
  private(set) var laggedEvents: UInt64

  /// - Parameters: as for `ServedStream.statistics`.
  init(_ stream: ServedStream, hasLag: Bool, _ survey: inout BaseSurvey) {
    (counts, laggedEvents) = (stream.statistics(hasLag: hasLag, &survey), stream.laggedEvents)
  }

  /// The figures of no stream.
  /// - Parameter hasLag: whether the lag of others was measured recently.
  init(hasLag: Bool) {
    counts = Statistics.Stream(
      name: "", state: "idle", subscribers: 0, eventsIn: 0, bytesIn: 0, errors: 0, malformed: 0, eventsOut: 0,
      bytesOut: 0, lag: hasLag ? 0 : nil)
    laggedEvents = 0
  }

  /// Adds the figures of other streams: counters and sizes are summed, of times the newest one stays, and otherwise the
  /// worst: the largest lag, a failure, a state that is incomplete.
  mutating func add(_ other: StreamFigures) {
    laggedEvents &+= other.laggedEvents
    counts.add(other.counts)
  }

  /// What remains of a stream that is gone: its counters, and the times of what has come last.
  func withoutPresent() -> StreamFigures {
    var past = self
    (past.counts.state, past.counts.subscribers, past.counts.lag) = ("idle", 0, nil)
    (past.counts.staleSince, past.counts.expectEvery) = (nil, nil)
    (past.counts.keyedState, past.counts.fleet) = (nil, nil)
    (past.counts.mapReaders, past.counts.isOnDisk) = (nil, nil)
    past.counts.upstream?.nextAttempt = nil
    return past
  }
}

extension Statistics.Stream {
  /// Whether `streamd_stream_up` is 0.
  var isFailing: Bool { state == "failing" || state == "failed" }

  fileprivate mutating func add(_ other: Self) {
    if other.isFailing { state = other.state }
    subscribers += other.subscribers
    eventsIn &+= other.eventsIn
    bytesIn &+= other.bytesIn
    errors &+= other.errors
    malformed &+= other.malformed
    eventsOut &+= other.eventsOut
    bytesOut &+= other.bytesOut
    lag = combined(lag, other.lag, by: max)
    newest = combined(newest, other.newest, by: max)
    fresh = combined(fresh, other.fresh, by: max)
    staleSince = combined(staleSince, other.staleSince, by: min)
    expectEvery = combined(expectEvery, other.expectEvery, by: min)
    keyedState = combined(keyedState, other.keyedState) { one, other in
      KeyedStateStatus(
        keys: one.keys + other.keys, bytes: one.bytes + other.bytes,
        incompleteness: one.incompleteness ?? other.incompleteness)
    }
    upstream = combined(upstream, other.upstream) { $0.joined(with: $1) }
    mapReaders = combined(mapReaders, other.mapReaders, by: +)
    missed = combined(missed, other.missed, by: &+)
    isOnDisk = combined(isOnDisk, other.isOnDisk) { $0 && $1 }
  }
}

extension UpstreamFigures {
  /// The figures of two sources together: the last answer of both, and the first of their next attempts.
  fileprivate func joined(with other: UpstreamFigures) -> UpstreamFigures {
    var sum = self
    sum.add(other)
    sum.lastAnswer = combined(lastAnswer, other.lastAnswer, by: max)
    sum.nextAttempt = combined(nextAttempt, other.nextAttempt, by: min)
    return sum
  }
}

/// Two values as one; nil counts as none.
private func combined<Value>(_ one: Value?, _ other: Value?, by join: (Value, Value) -> Value) -> Value? {
  guard let one, let other else { return one ?? other }
  return join(one, other)
}
