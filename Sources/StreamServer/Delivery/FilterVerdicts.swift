import Events
import ReplayLog
import StreamProtocol
import StreamRuntime

/// The verdicts of one filter on the events of a stream, for all subscriptions with this filter on all event loops. An
/// event is examined once, as long as its verdict is remembered. Used under the lock of the stream's log.
final class FilterVerdicts: @unchecked Sendable {
  /// The filter, as it was compiled for this and other streams.
  let compiled: RequestFilter
  var filter: EventFilter { compiled.filter }
  private var matcher: EventMatcher
  /// For each position modulo the number of bits: whether its event was examined, and whether it fits. Empty before the
  /// first event: a request of few bytes may have filters of many streams.
  private var examined: [UInt64] = []
  private var fitting: [UInt64] = []
  private let mask: UInt64
  /// The position after the highest examined one. Verdicts on as many positions before it as there are bits are
  /// remembered.
  private var end: UInt64 = 0
  /// The event that is examined in parts, and how often another one has waited for it since its last part. Only one
  /// event at a time is examined in parts: under one lock, two would take as long. Events that need no parts do not
  /// wait.
  private var partial: (id: UInt64, waits: Int)?
  /// The matcher of that event.
  private var partialMatcher: EventMatcher?
  /// The verdicts on large events of a state that are before the remembered positions.
  private var largeVerdicts: [UInt64: Bool] = [:]
  /// The maximum memory of the verdicts, in bytes.
  let byteCount: Int
  /// The number of examined events.
  private(set) var examinationCount = 0

  /// The maximum number of remembered verdicts, of two bits each.
  private static let verdictLimit = 1 << 18
  /// The maximum number of verdicts on large events before the remembered positions. At this number, all of them are
  /// forgotten.
  private static let largeVerdictLimit = 256
  /// An event is large from this size on; to examine a smaller one again takes no longer than to send it.
  private static let largeByteCount = 16 << 10
  /// After this number of waits, which takes about 40 ms, the subscription that examines an event in parts counts as
  /// ended: each user with a subscription has had a slice by then.
  private static let waitLimit = 16_384
  /// The fixed cost of an event, in bytes that are examined in the same time.
  private static let eventCost = 64
  /// Bytes of memory for each byte of a filter's text: its JSON, its conditions, and the scalars that are looked up.
  private static let textCost = 24
  /// Bytes of memory for each step of a pointer.
  private static let stepCost = 128
  /// Bytes of memory for any filter, with the verdicts on large events.
  private static let baseCost = 8 << 10

  /// - Parameter eventCount: the maximum number of events in the log.
  init(_ compiled: RequestFilter, eventCount: Int) {
    self.compiled = compiled
    matcher = compiled.matcher
    byteCount = compiled.byteCount + Self.verdictBytes(forEvents: eventCount)
    mask = UInt64(Self.wordCount(forEvents: eventCount) * 64 - 1)
  }

  private static func wordCount(forEvents count: Int) -> Int {
    let words = (min(max(count, 1), verdictLimit) + 63) / 64
    return 1 << (Int.bitWidth - (words - 1).leadingZeroBitCount)
  }

  /// The memory of the verdicts on events of a log, before they exist.
  static func verdictBytes(forEvents count: Int) -> Int { wordCount(forEvents: count) * 2 * MemoryLayout<UInt64>.size }

  /// The memory of a filter besides them.
  static func byteCount(of filter: EventFilter) -> Int {
    let steps = filter.conditions.reduce(0) { count, condition in
      condition.pointer.utf8.reduce(count) { $1 == UInt8(ascii: "/") ? $0 + 1 : $0 }
    }
    return filter.json.count * textCost + steps * stepCost + baseCost
  }

  /// The next event that fits, from a position on.
  enum Next: Equatable {
    case event(UInt64)
    /// No event before this position fits. The events or the budget end there.
    case none(before: UInt64)
  }

  /// - Parameters:
  ///   - position: the position of a stored event, or `runEnd`.
  ///   - runEnd: the end of the events that follow without a gap.
  ///   - budget: bytes of events to examine; reduced by the cost. At 0 the search ends.
  func next(from position: UInt64, before runEnd: UInt64, in storage: EventLog, budget: inout Int) -> Next {
    var position = position
    while position < runEnd {
      guard let isFit = verdict(on: position, in: storage, &budget) else { return .none(before: position) }
      if isFit { return .event(position) }
      position += 1
    }
    return .none(before: position)
  }

  /// Whether an event of a state fits. The log need not have the event.
  ///
  /// - Parameter budget: as above.
  /// - Returns: nil at the end of the budget: the next call continues.
  func fits(_ event: StateEvent, at id: UInt64, _ budget: inout Int) -> Bool? {
    guard budget > 0 else { return nil }
    if let known = remembered(id) {
      budget -= 1
      return known
    }
    let byteCount = event.byteCount
    // Copying an event costs as much as examining a part of it.
    let count = unsafe max(budget, event.undivided == nil ? byteCount / 4 : 0)
    guard !waits(id, byteCount, count) else {
      budget = 0
      return nil
    }
    return unsafe examine(event.whole, id, count, &budget)
  }

  /// - Returns: nil at the end of the budget.
  private func verdict(on position: UInt64, in storage: EventLog, _ budget: inout Int) -> Bool? {
    guard budget > 0 else { return nil }
    if let known = remembered(position) {
      budget -= 1
      return known
    }
    let record = unsafe storage.record(at: position)
    guard !waits(position, record.count, budget) else {
      budget = 0
      return nil
    }
    return unsafe examine(record, position, budget, &budget)
  }

  /// Whether an event must wait for another one that is examined in parts.
  ///
  /// - Parameter count: bytes of it that may be examined now.
  private func waits(_ id: UInt64, _ byteCount: Int, _ count: Int) -> Bool {
    guard let other = partial, other.id != id, byteCount - EventLog.stampBytes > max(count, Self.eventCost),
      other.waits < Self.waitLimit
    else { return false }
    partial?.waits += 1
    return true
  }

  /// - Parameters:
  ///   - record: id and time, 8 bytes each, then the data.
  ///   - count: bytes to examine.
  /// - Returns: nil before the last part.
  private func examine(_ record: UnsafeRawBufferPointer, _ id: UInt64, _ count: Int, _ budget: inout Int) -> Bool? {
    let data = unsafe UnsafeRawBufferPointer(rebasing: record[EventLog.stampBytes...]).bindMemory(to: UInt8.self)
    let count = max(count, Self.eventCost)
    budget -= min(count, data.count) + Self.eventCost
    let isFit: Bool
    if data.count <= count, partial?.id != id {
      isFit = unsafe matcher.fits(data.span)
    } else {
      if partial?.id != id {
        partialMatcher = matcher
        partialMatcher?.begin()
      }
      let verdict = unsafe partialMatcher?.advance(in: data.span, by: count) ?? nil
      partial = verdict == nil ? (id, 0) : nil
      guard let verdict else { return nil }
      partialMatcher = nil
      isFit = verdict
    }
    examinationCount += 1
    remember(isFit, on: id, isLarge: data.count >= Self.largeByteCount)
    return isFit
  }

  private func remembered(_ id: UInt64) -> Bool? {
    guard id < end, end - id <= mask else { return largeVerdicts.isEmpty ? nil : largeVerdicts[id] }
    let (word, bit) = (Int(id & mask) >> 6, UInt64(1) << (id & 63))
    return examined[word] & bit != 0 ? fitting[word] & bit != 0 : nil
  }

  private func remember(_ isFit: Bool, on id: UInt64, isLarge: Bool) {
    if id >= end { forget(through: id) }
    guard end - id <= mask else {
      if largeVerdicts.count >= Self.largeVerdictLimit { largeVerdicts = [:] }
      if isLarge { largeVerdicts[id] = isFit }
      return
    }
    let (word, bit) = (Int(id & mask) >> 6, UInt64(1) << (id & 63))
    examined[word] |= bit
    if isFit { fitting[word] |= bit } else { fitting[word] &= ~bit }
  }

  /// Makes `position` the highest examined one. Forgets the verdicts whose bits the new positions use.
  private func forget(through position: UInt64) {
    if examined.isEmpty {
      examined = [UInt64](repeating: 0, count: Int(mask / 64) + 1)
      fitting = examined
    } else if position - end > mask {
      for word in examined.indices { examined[word] = 0 }
    } else {
      for skipped in end...position { examined[Int(skipped & mask) >> 6] &= ~(1 << (skipped & 63)) }
    }
    end = position + 1
  }
}

/// The filters of a stream's subscriptions.
final class StreamFilters: Sendable {
  private struct Entry {
    let verdicts: FilterVerdicts
    let owner: ClientUser
    /// The subscriptions of each user. The filter counts in the account of each user, because another one may leave
    /// first.
    var subscriptionCounts: [ClientUser: Int] = [:]
  }

  /// The maximum number of different filters of one stream. Each takes a part of the time that its subscribers' event
  /// loops have, and two bits for each event of the log.
  static let limit = 2048

  private struct Table {
    var entries: [EventFilter: Entry] = [:]
    /// The number of filters of each owner; never 0.
    var counts: [ClientUser: Int] = [:]
    /// That of all hosts.
    var hostCount = 0

    func admits(_ user: ClientUser) -> Bool {
      ServerLimits.admitsOne(
        after: counts[user, default: 0], ofHosts: user.standing == .host ? hostCount : nil,
        free: StreamFilters.limit - entries.count)
    }
  }

  private let table = Locked(Table())

  /// Adds a subscription to those with this filter.
  ///
  /// - Parameter limits: the limits of the user's account; nil: the subscription exists already, and continues.
  /// - Throws: at a limit. A user has at most three times as many filters of a stream as are free.
  func join(
    _ compiled: RequestFilter, _ account: UserAccount, of stream: ServedStream, in accounts: UserAccounts,
    within limits: ServerLimits?
  ) throws(RequestFailure) -> FilterVerdicts {
    let filter = compiled.filter
    let (user, eventCount) = (account.user, stream.log.read { storage, _ in storage.limits.events })
    return try table.withLock { table -> Result<FilterVerdicts, RequestFailure> in
      let known = table.entries[filter]
      guard known != nil || table.admits(user) else {
        return .failure(
          .init(
            .tooManyFilters, "\(user) has too many filters of \"\(stream.name)\", which has \(Self.limit) at most"))
      }
      if known?.subscriptionCounts[user] == nil {
        let byteCount =
          known?.verdicts.byteCount ?? compiled.byteCount + FilterVerdicts.verdictBytes(forEvents: eventCount)
        if let sentence = accounts.holdFilter(byteCount, account, within: limits) {
          return .failure(.init(.filtersTooLarge, sentence))
        }
      }
      if known == nil {
        table.counts[user, default: 0] += 1
        if user.standing == .host { table.hostCount += 1 }
      }
      var entry = known ?? Entry(verdicts: FilterVerdicts(compiled, eventCount: eventCount), owner: user)
      entry.subscriptionCounts[user, default: 0] += 1
      table.entries[filter] = entry
      return .success(entry.verdicts)
    }.get()
  }

  /// Removes a subscription from those with this filter.
  func leave(_ filter: EventFilter, _ account: UserAccount, in accounts: UserAccounts) {
    table.withLock { table in
      guard let entry = table.entries[filter], let count = entry.subscriptionCounts[account.user] else { return }
      table.entries[filter]?.subscriptionCounts[account.user] = count > 1 ? count - 1 : nil
      guard count == 1 else { return }
      accounts.releaseFilter(entry.verdicts.byteCount, account)
      guard entry.subscriptionCounts.count == 1 else { return }
      table.entries[filter] = nil
      let ownCount = table.counts[entry.owner, default: 1] - 1
      table.counts[entry.owner] = ownCount > 0 ? ownCount : nil
      if entry.owner.standing == .host { table.hostCount -= 1 }
    }
  }

  /// The verdicts of all filters, each once.
  var all: [FilterVerdicts] { table.withLock { $0.entries.values.map(\.verdicts) } }
}
