import Reactive

/// The waiting members of a lane with one filter.
///
/// When the log has grown, one of them, the scout, is served alone. If no new event fits the filter, the scout waits
/// again, and the position of all others has moved with its own. Otherwise all are served. An event that does not fit
/// therefore costs one turn of one member, regardless of their number.
final class FilterGroup {
  /// The filter's verdicts.
  let verdicts: FilterVerdicts
  fileprivate var waiting: [StreamSubscription] = []
  /// The position of all members that wait: no unread event before it fits.
  fileprivate var position: UInt64 = 0
  /// Events that were left out while members waited.
  fileprivate var leftOut: UInt64 = 0
  /// The largest demand of the members that wait, or that have waited with them.
  fileprivate var demand = Subscribers.Demand.none
  fileprivate weak var scout: StreamSubscription?

  init(_ verdicts: FilterVerdicts) { self.verdicts = verdicts }

  /// Adds a member that waits at the group's position.
  fileprivate func add(_ subscription: StreamSubscription) {
    if waiting.isEmpty { demand = .none }
    demand = max(demand, subscription.machine.demand)
    subscription.extras?.leftOutBefore = leftOut
    subscription.waitingIndex = Int32(waiting.count)
    waiting.append(subscription)
  }

  /// Removes a member that waits, and moves it to the group's position.
  func remove(_ subscription: StreamSubscription) {
    Lane.remove(subscription, from: &waiting)
    settle(subscription)
  }

  /// Moves all members that wait to the group's position.
  func settle() { waiting.forEach(settle) }

  fileprivate func removeAll() -> [StreamSubscription] {
    let all = waiting
    waiting = []
    all.forEach(settle)
    return all
  }

  private func settle(_ subscription: StreamSubscription) {
    guard let extras = subscription.extras, position > subscription.cursor.position else { return }
    subscription.machine.leaveOut(leftOut - extras.leftOutBefore, upTo: position)
    extras.leftOutBefore = leftOut
  }
}

extension Lane {
  /// Adds a member that waits, whose cursor is at the log's end.
  func wait(_ subscription: StreamSubscription, inGroupOf verdicts: FilterVerdicts) {
    let group = filterGroups[ObjectIdentifier(verdicts)] ?? FilterGroup(verdicts)
    filterGroups[ObjectIdentifier(verdicts)] = group
    let isScout = group.scout === subscription
    if isScout { group.scout = nil }
    if group.position != subscription.cursor.position {
      // The others, and the scout, are at an earlier position: this member began to look later, or has passed a gap.
      group.scout = nil
      wakeAll(group)
      group.position = subscription.cursor.position
    }
    group.add(subscription)
    guard isScout else { return }
    raiseRequest(to: group.requestedThrough)
    if stream.log.isLossless { worker.remeasure(self) }
  }

  /// The log has grown: one member examines the new events.
  func sendScout(of group: FilterGroup) {
    guard group.scout == nil, let scout = group.waiting.last else { return }
    group.remove(scout)
    group.scout = scout
    worker.perform(scout.machine.logGrew(), scout)
  }

  /// Serves all members that wait.
  func wakeAll(_ group: FilterGroup) {
    for member in group.removeAll() { worker.perform(member.machine.logGrew(), member) }
  }

  /// A member has passed events that do not fit, up to its cursor. So have the members for which it is the scout.
  func passed(from position: UInt64, by subscription: StreamSubscription) {
    guard let group = group(of: subscription), group.scout === subscription else { return }
    let count = subscription.cursor.position - position
    // There is a gap between the two positions, which each member has to report.
    guard group.position == position else { return endScouting(by: subscription, found: true) }
    group.leftOut += count
    group.position += count
  }

  /// A member was served and will not wait: a scout has found an event, or could not look for one.
  func endScouting(by subscription: StreamSubscription, found: Bool) {
    guard let verdicts = subscription.extras?.verdicts, let group = filterGroups[ObjectIdentifier(verdicts)],
      group.scout === subscription
    else { return }
    group.scout = nil
    if found { wakeAll(group) } else { sendScout(of: group) }
  }

  /// A member ends.
  func leaveFilter(_ subscription: StreamSubscription) {
    guard let verdicts = subscription.extras?.verdicts else { return }
    endScouting(by: subscription, found: false)
    if let group = filterGroups[ObjectIdentifier(verdicts)], group.waiting.isEmpty, group.scout == nil {
      filterGroups[ObjectIdentifier(verdicts)] = nil
    }
    stream.filters.leave(verdicts.filter, subscription.connection.share.account, in: worker.accounts)
  }

  /// The position before which a member needs no event of the log any more.
  func position(of member: StreamSubscription) -> UInt64 {
    // The daemon does not know how far a map's reader with unlimited demand has read.
    if member.machine.format.isMap, member.machine.demand == .unlimited { return .max }
    // The events of a state do not come from the log.
    if let reading = member.extras?.reading { return reading.walk.end }
    guard member.phase == .waiting, let group = group(of: member) else { return member.cursor.position }
    return max(member.cursor.position, group.position)
  }

  /// The position before which a member's demand covers everything. Members that wait in a group have one in common.
  func requestedThrough(of member: StreamSubscription) -> UInt64 {
    guard member.phase == .waiting, let group = group(of: member) else { return member.machine.requestedThrough }
    return group.requestedThrough
  }

  private func group(of member: StreamSubscription) -> FilterGroup? {
    member.extras?.verdicts.flatMap { filterGroups[ObjectIdentifier($0)] }
  }
}

extension FilterGroup {
  fileprivate var requestedThrough: UInt64 { demand.max.map { position &+ UInt64($0) } ?? .max }
}
