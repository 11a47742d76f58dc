import ReplayLog
import StreamProtocol
import StreamRuntime

extension SubscribeOptions.Start {
  /// The start position in `log`; called under the log's lock.
  ///
  /// - Parameters:
  ///   - replay: the stream's `replay`.
  ///   - awaits: whether an id that no event has yet begins at the log's end, until that event is there.
  /// - Returns: a position in `firstPosition...endPosition`, not in the hole; 0 for the state.
  /// - Throws: for an id that no event has yet: treating it as "now" would hide a loss.
  func position(in log: EventLog, replay: Int, awaits: Bool = false) throws(SubscribeOptions.Malformed) -> UInt64 {
    log.dropExpired()
    switch self {
    case .replay: return log.position(ofLast: UInt64(clamping: replay))
    case .latest: return log.position(ofLast: 1)
    case .new: return log.endPosition
    case .last(let count): return log.position(ofLast: count)
    case .state:
      _ = try Self.state(of: log)
      return 0
    case .after(let id):
      guard id < log.endPosition else {
        guard awaits, id <= EventLog.stampedIDLimit else { throw .init(Self.unknown(id), .unknownPosition) }
        return log.endPosition
      }
      return log.skip(max(log.firstPosition, id + 1))
    case .since(let text):
      switch StartTime(text) {
      case .at(let time): return log.position(since: time)
      case .ago(let microseconds):
        let now = EventLoop.wallClock()
        return log.position(since: now - min(now, microseconds))
      case nil: throw .init("\"\(text)\" is no time")
      }
    }
  }

  /// Where a subscription begins.
  struct Beginning {
    var position: UInt64
    /// The gap before it.
    let gap: Gap
    /// The events from there on.
    var count: UInt64
    /// As `awaitedID(in:)`.
    var awaitedID: UInt64 = 0

    init(_ position: UInt64, _ gap: Gap, in log: EventLog) {
      (self.position, self.gap, count) = (position, gap, log.count(from: position, to: log.endPosition))
    }
  }

  /// - Parameters: as for `position`.
  func beginning(in log: EventLog, replay: Int, awaits: Bool) throws(SubscribeOptions.Malformed) -> Beginning {
    let position = try position(in: log, replay: replay, awaits: awaits)
    var beginning = Beginning(position, gap(before: position, in: log), in: log)
    beginning.awaitedID = awaitedID(in: log)
    return beginning
  }

  static func unknown(_ id: UInt64) -> String { "no event has the id \(id) yet" }

  /// The state of the stream; called under the log's lock.
  /// - Throws: if it is not served.
  static func state(of log: EventLog) throws(SubscribeOptions.Malformed) -> KeyedState {
    guard let state = log.state else { throw .init("the stream has no keys, and so no state", .noState) }
    if let lack = state.incompleteness { throw .init(lack.sentence, .noState) }
    return state
  }

  /// The id after which a subscription resumes, if no event has it yet; 0: another start.
  func awaitedID(in log: EventLog) -> UInt64 {
    guard case .after(let id) = self, id >= log.endPosition else { return 0 }
    return id
  }

  /// The gap of a subscription that begins at `position`: the events after the id from which it resumes.
  func gap(before position: UInt64, in log: EventLog) -> Gap {
    guard case .after(let id) = self, id < position else { return .none }
    return Gap(log.missedEvents(from: id + 1, to: position))
  }
}
