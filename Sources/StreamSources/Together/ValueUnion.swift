import Events
import Reactive
import StreamRuntime
import Synchronization

/// What several streams of a template ask one upstream for: the union of their values. Each stream is a member, which brings
/// the demand for its value and gets the parts of the answers that belong to it.
///
/// A member that has no demand keeps the newest parts, up to a limit, and tells what it has dropped: no reader stops the union.
/// Confined to the source thread, except `ValueUnions`, which has the unions by name.
public class ValueUnion: @unchecked Sendable {
  /// A value, and the streams that want it: one, or two for a moment while one replaces the other.
  final class Slot {
    let value: String
    fileprivate(set) var members: [UnionMember] = []
    fileprivate var pending = EventBatch()
    /// Whether a part of it has come in the present answer.
    var isFound = false
    /// Whether the value fails alone.
    var isFailing = false

    init(_ value: String) { self.value = value }

    /// Whether any stream can take a part now.
    var hasDemand: Bool { members.contains { $0.hasDemand } }

    /// Reports on the value alone.
    func report(_ report: SourceReport) { for member in members { member.context.report(report) } }

    /// Reports on what concerns other values as well.
    ///
    /// - Parameter isCounted: whether the report is a failure that no other stream has counted.
    func share(_ report: SourceReport, isCounted: Bool = false) {
      for member in members { member.context.shared(report, isCounted) }
    }
  }

  /// Its name is that of the template, and its reports are made once for all streams.
  final let context: SourceContext
  private(set) final var slots: [String: Slot] = [:]
  /// The slots by the forms that their values may have in a part.
  private final var table: [[UInt8]: Slot] = [:]
  private final var touched: [Slot] = []
  private final var unroutedCount = 0
  /// Bytes that its members keep.
  fileprivate final var heldBytes = 0
  private final var turn: TimerID?
  /// The state of the upstream, if it does not work.
  final var failure: SourceReport?

  init(in context: SourceContext) { self.context = context }

  final var now: Duration { EventLoop.monotonicTime }

  // MARK: For the kinds of unions

  /// A value has its first stream, or none any more.
  func added(_ slot: Slot) {}
  func removed(_ slot: Slot) {}
  /// Any of its streams has or has lost the demand.
  func demandChanged(_ slot: Slot) {}
  /// Asks for what is wanted now. Called after each change, at most once in a turn.
  func advance() {}
  /// Asks the upstream before the next time.
  func refresh(completed: @escaping @Sendable (RefreshRefusal?) -> Void) {
    context.refresh.perform(completed: completed)
  }
  /// A refusal of a value has come.
  func refused(_ slot: Slot) {}

  /// Lets `advance` be called in another turn, which comes after all that is under way.
  final func changed() {
    guard turn == nil else { return }
    turn = context.thread.loop.schedule(after: .zero) { [self] in
      turn = nil
      advance()
    }
  }

  /// Reports the state of the upstream: once for the union, and in the status of each stream.
  final func report(_ report: SourceReport) {
    context.report(report)
    switch report {
    case .failing, .halted, .waiting: failure = report
    case .recovered: failure = nil
    case .limited, .lost, .complete, .said, .missed, .current: return
    }
    share(report, of: slots.values)
  }

  /// Reports on several values, which is counted on the first one.
  final func share(_ report: SourceReport, of slots: some Sequence<Slot>) {
    var isCounted = true
    for slot in slots where !slot.isFailing {
      slot.share(report, isCounted: isCounted)
      isCounted = false
    }
  }

  /// Counts on one of the streams, so that the sum of all is right.
  final func progress(_ progress: SourceProgress) { slots.first?.value.members.first?.context.progress(progress) }

  // MARK: Parts

  /// Takes a part of an answer, or of a message.
  /// - Parameter key: its value in the form of `EventKey`; nil: it has none.
  final func route(_ part: Span<UInt8>, _ key: [UInt8]?, _ isRefusal: Bool = false) {
    guard let key, let slot = table[key] else {
      unroutedCount += 1
      return
    }
    if isRefusal { return refused(slot) }
    if slot.pending.isEmpty { touched.append(slot) }
    unsafe part.withUnsafeBytes { unsafe slot.pending.append($0) }
    slot.isFound = true
  }

  /// Gives the streams what has come for them.
  /// - Returns: the values of which something has come.
  @discardableResult final func deliver() -> [Slot] {
    let slots = touched
    touched = []
    if unroutedCount > 0 { context.unrouted(unroutedCount) }
    unroutedCount = 0
    for slot in slots {
      let events = slot.pending
      slot.pending = EventBatch()
      for member in slot.members { member.take(events) }
    }
    return slots
  }

  // MARK: Members

  fileprivate final func demandChanged(of member: UnionMember) {
    if let slot = slots[member.value] { demandChanged(slot) }
    changed()
  }

  fileprivate final func join(_ member: UnionMember) {
    let slot = slots[member.value] ?? Slot(member.value)
    slot.members.append(member)
    if let failure { member.context.shared(failure, false) }
    if slot.members.count == 1 {
      slots[member.value] = slot
      for key in EventKeyReader.keys(namedBy: member.value) { table[key] = slot }
      added(slot)
    }
    changed()
  }

  fileprivate final func leave(_ member: UnionMember) {
    guard let slot = slots[member.value], slot.members.contains(where: { $0 === member }) else { return }
    slot.members.removeAll { $0 === member }
    if slot.members.isEmpty {
      slots[member.value] = nil
      for key in EventKeyReader.keys(namedBy: member.value) where table[key] === slot { table[key] = nil }
      removed(slot)
    }
    demandChanged(slot)
    changed()
  }
}

/// The unions of a process by their names. Thread-safe.
public final class ValueUnions: Sendable {
  private struct Entry: Sendable {
    weak var union: ValueUnion?
  }

  private let unions = Locked<[String: Entry]>([:])

  /// Creates it without unions.
  public init() {}

  /// The union of a name, which exists while a stream has it.
  /// - Parameter make: makes it, if there is none of this kind.
  public func union<Union: ValueUnion>(_ name: String, make: () -> Union) -> Union {
    unions.withLock { unions in
      if let union = unions[name]?.union as? Union { return union }
      unions = unions.filter { $0.value.union != nil }
      let union = make()
      unions[name] = Entry(union: union)
      return union
    }
  }
}

/// One value of a union as the source of a stream.
public struct UnionValue: SourceDriver {
  fileprivate let union: ValueUnion
  fileprivate let value: String

  /// - Parameter value: one that no other stream of the union has.
  public init(_ value: String, of union: ValueUnion) { (self.union, self.value) = (union, value) }

  /// Makes the subscriptions of one source.
  public func subscriptions(in context: SourceContext) -> SubscriptionMaker {
    { UnionMember(self, context, $0) }
  }
}

/// A subscription of a stream to its value. Sendable: everything except `isCancelled` is confined to the source thread.
final class UnionMember: RetractableSubscription, RefreshableSource, @unchecked Sendable {
  let context: SourceContext
  fileprivate let value: String
  private let union: ValueUnion
  private let isCancelled = Atomic(false)
  private var down: AnySubscriber<EventBatch, Never>?
  private var demand = Subscribers.Demand.none
  private var isJoined = false
  /// What has come without demand, and its bytes.
  private var held = EventBatch()
  private var heldBytes = 0
  private var lostCount: UInt64 = 0

  /// What is kept without demand, besides one event; and the bytes that all members of a union keep, above which those that get
  /// another event keep nothing.
  private static let limits = (events: 1024, bytes: 256 << 10, bytesOfAll: 64 << 20)

  fileprivate init(_ driver: UnionValue, _ context: SourceContext, _ down: AnySubscriber<EventBatch, Never>) {
    (union, value) = (driver.union, driver.value)
    (self.context, self.down) = (context, down)
  }

  private var isLive: Bool { !isCancelled.load(ordering: .acquiring) }
  var hasDemand: Bool { demand > .none }

  /// Passes on what has come, or keeps it while there is no demand.
  fileprivate func take(_ events: EventBatch) {
    guard isLive, !events.isEmpty else { return }
    if hasDemand, held.isEmpty { return give(events) }
    held.append(contentsOf: events)
    unsafe events.withUnsafeBytes(of: 0..<events.count) { event in
      setHeldBytes(heldBytes + event.count)
      return true
    }
    trim()
    giveHeld()
  }

  /// Drops the oldest events above the limit.
  private func trim() {
    var count = 0
    unsafe held.withUnsafeBytes(of: 0..<held.count) { event in
      let isOver = held.count - count > Self.limits.events || heldBytes > Self.limits.bytes
      guard union.heldBytes > Self.limits.bytesOfAll || isOver && held.count - count > 1 else { return false }
      setHeldBytes(heldBytes - event.count)
      count += 1
      return true
    }
    guard count > 0 else { return }
    held.removeFirst(count)
    lostCount += UInt64(count)
  }

  private func setHeldBytes(_ count: Int) {
    union.heldBytes += count - heldBytes
    heldBytes = count
  }

  private func giveHeld() {
    guard hasDemand, !held.isEmpty else { return }
    var events = held
    if lostCount > 0 {
      events.loss = .known(lostCount)
      context.report(.missed(.known(lostCount), of: context.name ?? value))
    }
    let isMissing = lostCount > 0
    (held, lostCount) = (EventBatch(), 0)
    setHeldBytes(0)
    give(events)
    if isMissing { context.report(.current) }
  }

  private func give(_ events: EventBatch) {
    guard let down else { return }
    demand -= .max(1)
    demand += down.receive(events)
    if !hasDemand { union.demandChanged(of: self) }
  }

  // MARK: From any thread

  func request(_ more: Subscribers.Demand) {
    context.thread.loop.execute { [self] in
      guard isLive else { return }
      let hadDemand = hasDemand
      demand += more
      if !isJoined {
        isJoined = true
        context.refresh.attach(self)
        union.join(self)
      }
      giveHeld()
      if hasDemand != hadDemand { union.demandChanged(of: self) }
    }
  }

  func retract() {
    context.thread.loop.execute { [self] in
      demand = .none
      if isJoined { union.demandChanged(of: self) }
    }
  }

  func refresh(completed: @escaping @Sendable (RefreshRefusal?) -> Void) {
    context.thread.loop.execute { [self] in
      guard isLive, hasDemand else { return completed(.noDemand) }
      union.refresh(completed: completed)
    }
  }

  func cancel() {
    guard !isCancelled.exchange(true, ordering: .acquiringAndReleasing) else { return }
    context.thread.loop.execute { [self] in
      context.refresh.detach(self)
      if isJoined { union.leave(self) }
      setHeldBytes(0)
      (down, held, demand) = (nil, EventBatch(), .none)
    }
  }
}

/// The union's side of a source that it asks.
final class UnionLink: Subscriber, @unchecked Sendable {  // confined to the source thread
  private var subscription: (any Subscription)?
  private let taken: (EventBatch) -> Void

  /// - Parameter taken: called with each batch.
  init(taken: @escaping (EventBatch) -> Void) { self.taken = taken }

  func receive(subscription: any Subscription) { self.subscription = subscription }

  func receive(_ events: EventBatch) -> Subscribers.Demand {
    taken(events)
    return .none
  }

  func receive(completion: Subscribers.Completion<Never>) { subscription = nil }

  func request(_ demand: Subscribers.Demand) { subscription?.request(demand) }
  func retract() { (subscription as? any RetractableSubscription)?.retract() }

  func cancel() {
    subscription?.cancel()
    subscription = nil
  }
}

/// What a driver refers to, and must not retain: it has the driver's source.
final class WeakReference: @unchecked Sendable {  // set once; a weak reference may be read on any thread
  private(set) weak var object: AnyObject?

  init(_ object: AnyObject) { self.object = object }
}
