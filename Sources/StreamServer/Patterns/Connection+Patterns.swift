import ReplayLog
import StreamProtocol
import StreamRuntime

// The patterns that a connection reads.

extension Connection {
  /// The readers of patterns, by request.
  var readers: [RequestID: PatternReader] { extras?.readers ?? [:] }

  /// All subscriptions, with the members of patterns.
  var allSubscriptions: [StreamSubscription] { Array(subscriptions) + readers.values.flatMap(\.members.values) }

  /// Begins to read a pattern.
  /// - Throws: if the user has too many requests, or the options are not for patterns.
  func read(_ reader: PatternReader) throws(Refusal) {
    let (pattern, options) = (reader.pattern.text, reader.options)
    guard !pattern.hasPrefix("$") else {
      throw Refusal(nil, .init(.noStream, "a pattern such as \"\(pattern)\" fits no system stream"))
    }
    let mistake: String? =
      options.map
      ? "option \"map\" is not for patterns"
      : options.key != nil
        ? "option \"key\" is not for patterns"
        : options.from == .state ? "option \"from\" must not be \"state\" for a pattern" : nil
    if let mistake { throw Refusal(nil, .init(.invalidRequest, mistake)) }
    try checkRequests(of: pattern, adding: PatternReader.cost - 1)
    needExtras().readers[reader.request] = reader
    worker.trace(identity, "reads \(pattern)")
    reader.begin()
    settle()
  }

  /// Ends a pattern.
  /// - Parameter failure: nil: the client has cancelled it.
  func end(_ reader: PatternReader, with failure: RequestFailure? = nil) {
    guard !reader.hasEnded else { return }
    worker.leave(reader.end())
    extras?.readers[reader.request] = nil
    if let failure { refuse(reader.request, failure, of: reader.pattern.text) }
    settle()
    speaker?.didRemove()
    _ = flush()
  }

  /// Whether streams wait to be looked at by a reader.
  var hasOffers: Bool { extras?.readers.values.contains { $0.hasOffers } == true }

  /// Joins streams that patterns fit, until the connection's slice is over.
  /// - Returns: false if none had to be.
  @discardableResult func joinStreams(until deadline: UInt64) -> Bool {
    guard hasOffers else { return false }
    for reader in readers.values where reader.hasOffers { reader.join(until: deadline) }
    if phase == .open { settle() }
    return true
  }

  // MARK: From one process to the next

  func restore(_ saved: SavedConnection.Pattern) {
    guard let reader = PatternReader(restoring: saved, on: self) else { return }
    needExtras().readers[reader.request] = reader
  }
}

extension PatternReader {
  /// Where a member begins; nil: as any subscription. Called under the log's lock.
  /// - Parameter id: where the stream begins for this reader; nil: where the client has asked.
  func beginning(in log: EventLog, at id: UInt64?) -> SubscribeOptions.Start.Beginning? {
    if let id {
      let position = log.skip(min(max(id, log.firstPosition), log.endPosition))
      return .init(position, Gap(log.missedEvents(from: id, to: position)), in: log)
    }
    guard let time = options.from.resumeTime else { return nil }
    log.dropExpired()
    let position = log.position(since: time)
    // Events that are gone may have been later than the time, and after a clock was set back, those that are there are not.
    let mayBeGone = position == log.firstPosition && (log.isCut || log.count(from: 0, to: position) > 0)
    let isLost = time > EventLoop.wallClock() || mayBeGone && log.newestTime.map { $0 >= time } ?? false
    return .init(position, isLost ? .unknown : .none, in: log)
  }
}
