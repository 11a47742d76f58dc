@testable import Reactive

/// A shared log's machine and its environment: a storage that is a count, upstreams, timers and two readers. The
/// actions that the machine returns are performed immediately or when the test decides, as on several threads. Records
/// each violated rule.
struct SharingModel {
  enum Input: CaseIterable {
    case firstJoins, secondJoins, firstLeaves, secondLeaves
    case firstWantsOne, firstWantsAll, firstWantsNothing, secondWantsThree
    case firstReads, secondReads
    case valueArrives, largeValueArrives, unrequestedValueArrives, receiveReturns, valueIsAppended
    case upstreamEnds, logEnds, timerFires
    case freezes, freezesDropping, freezesWaiting, thaws, upstreamIsReplaced, shutsDown
  }

  enum Effect: Equatable {
    case cancel(UInt64), connect(UInt64), request(UInt64, Subscribers.Demand), retract(UInt64)
    case startLinger(SharingMachine.Linger), notifyOfAppend, act(UInt64)
  }

  /// One connection, as upstream sees it.
  struct Link {
    var isSubscribed = false
    /// Elements arrived from elsewhere or without a request: the demand of readers may be met before they look.
    var isOvertaken = false
    var requested = Subscribers.Demand.none
    var delivered = 0
    var cancels = 0
    /// Its end was also the log's end.
    var hasEnded = false
    var retracts = 0
    /// What has been requested past the log's end, as the machine decided it: the calls may still be on their way.
    var decided = Subscribers.Demand.none
    var firstPosition: UInt64 = 0
    var largestRequest: UInt64 = 0
    /// Calls that upstream acts on later, on its own thread, in order, and not while it is inside `receive`.
    var calls: [Call] = []

    enum Call { case request(Subscribers.Demand), retract }

    mutating func act(on call: Call) {
      switch call {
      case .request(let more): requested += more
      case .retract: requested = .max(delivered)
      }
    }
  }

  struct Reader {
    var isAttached = false
    var requestedThrough: UInt64 = 0
    var oldestUnread = UInt64.max
  }

  private final class Key: Sendable {}
  private static let keys = [Key(), Key()]
  private static let capacity: UInt64 = 3

  let demand: UpstreamDemand
  var machine: SharingMachine
  var start: ShareStart
  private(set) var violations: [String] = []
  private(set) var effects: [Effect] = []
  private var readers = [Reader(), Reader()]
  private var end: UInt64 = 0
  private var held = UInt64.max
  private var waiting: [UInt64] = []
  private var notifying = 0
  private var links: [UInt64: Link] = [:]
  /// The connection that the machine has, and whether the log holds its subscription.
  private var live: UInt64?
  private var holdsSubscription = false
  private var receiving: UInt64?
  private var timers: [SharingMachine.Linger] = []
  private var timer: SharingMachine.Linger?
  private var isFrozen = false
  private var isEnding = false
  private var isComplete = false
  private var isShutDown = false

  init(_ start: ShareStart, _ demand: UpstreamDemand, _ overflow: LogOverflow) {
    (self.start, self.demand) = (start, demand)
    machine = SharingMachine(start: start, demand: demand, overflow: overflow)
    machine.setUpstream()
    step { $0.begin($1) }
    performAll()
  }

  private var subscribers: Int { readers.count { $0.isAttached } }
  private var runsFreely: Bool { if case .whileSubscribed = start { false } else { true } }
  private var room: UInt64 {
    machine.isLossless && held != .max ? Self.capacity - min(end - held, Self.capacity) : .max
  }
  private var extent: SharingMachine.Extent { .init(end: end, isFull: room == 0) }
  private var isWanted: Bool { runsFreely || readers.contains { $0.isAttached && $0.requestedThrough > end } }

  private mutating func expect(_ condition: Bool, _ rule: String) {
    if !condition { violations.append(rule) }
  }

  /// Steps the machine and an equal one: they must stay equal.
  private mutating func twice<R: Equatable>(_ body: (inout SharingMachine, SharingMachine.Extent) -> R) -> R {
    var twin = machine
    let (one, other) = (body(&machine, extent), body(&twin, extent))
    expect(one == other && machine == twin, "the same input has the same actions")
    return one
  }

  private mutating func step(_ body: (inout SharingMachine, SharingMachine.Extent) -> SharingMachine.Actions) {
    take(twice(body))
  }

  // MARK: - Inputs

  /// - Returns: False if it makes no sense now.
  @discardableResult mutating func apply(_ input: Input) -> Bool {
    switch input {
    case .firstJoins: return join(0)
    case .secondJoins: return join(1)
    case .firstLeaves: return leave(0)
    case .secondLeaves: return leave(1)
    case .firstWantsOne: return request(0, through: end + 1)
    case .firstWantsAll: return request(0, through: .max)
    case .firstWantsNothing: return request(0, through: 0)
    case .secondWantsThree: return request(1, through: end + 3)
    case .firstReads: return read(0)
    case .secondReads: return read(1)
    case .valueArrives: return value(1, isRequested: true)
    case .largeValueArrives: return demand == .oneAtATime && value(5, isRequested: true)
    case .unrequestedValueArrives: return demand == .oneAtATime && value(2, isRequested: false)
    case .receiveReturns: return receiveReturns()
    case .valueIsAppended:
      if let live { links[live]?.isOvertaken = true }
      place(1, from: nil)
      return true
    case .upstreamEnds: return upstreamEnds()
    case .logEnds: return logEnds()
    case .timerFires: return timerFires()
    case .freezes: return freeze(machine.isLossless ? .waitForSlowest : .dropOldest, start)
    case .freezesDropping: return freeze(.dropOldest, .whileSubscribed(linger: .seconds(1)))
    case .freezesWaiting: return freeze(.waitForSlowest, .always)
    case .thaws: return thaw()
    case .upstreamIsReplaced: return replaceUpstream()
    case .shutsDown:
      guard !isShutDown else { return false }
      isShutDown = true
      step { machine, _ in machine.shutDown() }
      live = nil
      return true
    }
  }

  private mutating func join(_ index: Int) -> Bool {
    guard !readers[index].isAttached else { return false }
    readers[index] = Reader(isAttached: true)
    machine.attach(ObjectIdentifier(Self.keys[index]))
    if machine.isLossless { setOldestUnread(index) }
    request(index, through: end + 1)
    step { $0.subscriberJoined($1) }
    return true
  }

  private mutating func leave(_ index: Int) -> Bool {
    guard readers[index].isAttached else { return false }
    readers[index] = Reader()
    _ = machine.detach(ObjectIdentifier(Self.keys[index]))
    if machine.isLossless { drain() }
    step { $0.subscriberLeft($1) }
    return true
  }

  @discardableResult private mutating func request(_ index: Int, through position: UInt64) -> Bool {
    guard readers[index].isAttached else { return false }
    let before = demand == .exact ? readers[index].requestedThrough : 0
    readers[index].requestedThrough = max(before, position)
    if let live, let largest = links[live]?.largestRequest { links[live]?.largestRequest = max(largest, position) }
    step { $0.request(through: position, by: ObjectIdentifier(Self.keys[index]), $1) }
    return true
  }

  private mutating func read(_ index: Int) -> Bool {
    guard readers[index].isAttached else { return false }
    setOldestUnread(index)
    return true
  }

  private mutating func setOldestUnread(_ index: Int) {
    readers[index].oldestUnread = end
    machine.setOldestUnread(end, of: ObjectIdentifier(Self.keys[index]))
    if machine.isLossless { drain() }
  }

  private mutating func drain() {
    guard machine.mayDrain else { return }
    let appending = appendWaiting()
    step { [waiting] in $0.drained(appending: appending, waiting: waiting.count, $1) }
  }

  private mutating func appendWaiting() -> Bool {
    held = machine.oldestUnread
    expect(
      !machine.isLossless || held == readers.reduce(.max) { min($0, $1.oldestUnread) },
      "the oldest unread element is that of the reader furthest behind")
    let before = (end, waiting.count)
    while let first = waiting.first, room > 0 {
      let count = min(first, room)
      end += count
      if count == first { waiting.removeFirst() } else { waiting[0] -= count }
    }
    let appending = (end, waiting.count) != before
    if appending { notifying += 1 }
    return appending
  }

  private mutating func value(_ count: UInt64, isRequested: Bool) -> Bool {
    guard receiving == nil, let generation = links.keys.max(), let link = links[generation], !link.hasEnded,
      link.cancels == 0, !isRequested || link.requested > .max(link.delivered)
    else { return false }
    links[generation]?.delivered += 1
    if !isRequested { links[generation]?.isOvertaken = true }
    if demand == .oneAtATime {  // one that was not requested, or not any more
      links[generation]?.decided = max(link.decided, .max(link.delivered + 1))
      links[generation]?.requested = max(link.requested, .max(link.delivered + 1))
    }
    receiving = generation
    place(count, from: generation)
    return true
  }

  private mutating func place(_ count: UInt64, from generation: UInt64?) {
    let placement = twice { machine, _ in machine.valueArrived(generation) }
    let isOver = generation.map { $0 != live } ?? false || isEnding || isShutDown
    expect((placement == .discard) == isOver, "a value is discarded if and only if all is over")
    switch placement {
    case .discard: return
    case .append:
      expect(!isFrozen && !machine.isLossless, "nothing is appended while the log is frozen")
      end += count
      notifying += 1
    case .enqueue:
      expect(!isFrozen && machine.isLossless, "nothing is appended while the log is frozen")
      waiting.append(count)
      let appending = waiting.count == 1 && appendWaiting()
      machine.setWaiting(waiting.count)
      if !appending { return }
    case .setAside:
      expect(isFrozen, "a value is set aside only while the log is frozen")
      return waiting.append(count)
    }
    machine.valueAppended(fromUpstream: generation != nil)
    effects.append(.notifyOfAppend)
  }

  private mutating func receiveReturns() -> Bool {
    guard let generation = receiving else { return false }
    receiving = nil
    let demand = twice { $0.valueReceived(generation, isStored: false, $1) }
    if demand != .none {
      check(demand, of: generation)
      links[generation]?.requested += demand
    }
    if links[generation]?.calls.isEmpty == false { effects.append(.act(generation)) }
    return true
  }

  private mutating func upstreamEnds() -> Bool {
    guard receiving == nil, let generation = links.keys.max(), let link = links[generation], link.isSubscribed,
      !link.hasEnded, link.cancels == 0
    else { return false }
    guard let actions = twice({ machine, _ in machine.finish(generation) }) else {
      expect(generation != live, "the end of the connection is the log's")
      return true
    }
    expect(generation == live && !isEnding, "a log ends once, by its own connection")
    links[generation]?.hasEnded = true
    ended(actions)
    return true
  }

  private mutating func logEnds() -> Bool {
    let actions = twice { machine, _ in machine.finish(nil) }
    expect((actions == nil) == (isEnding || isShutDown), "a second end has no effect")
    if let actions { ended(actions) }
    return actions != nil
  }

  private mutating func ended(_ actions: SharingMachine.Actions) {
    isEnding = true
    expect(actions.completes == (!isFrozen && waiting.isEmpty), "the end comes behind the values that wait")
    expect(actions.notifies, "readers are notified of an end")
    take(actions)
    live = nil
  }

  private mutating func timerFires() -> Bool {
    // One that was cancelled may have fired already.
    guard !timers.isEmpty else { return false }
    let linger = timers.removeFirst()
    let isDue = machine.needs(linger)
    expect(!isDue || live != nil && subscribers == 0, "a linger is for a connection without subscribers")
    expect(!isDue || timer == linger, "a linger of an earlier time is void")
    if timer == linger { timer = nil }
    step { machine, _ in machine.lingerEnded(linger) }
    if isDue { live = nil }
    return true
  }

  private mutating func freeze(_ overflow: LogOverflow, _ start: ShareStart) -> Bool {
    guard demand == .oneAtATime, !isFrozen else { return false }
    machine.freeze(start: start, overflow: overflow)
    (isFrozen, self.start) = (true, start)
    if machine.isLossless, readers[0].isAttached { setOldestUnread(0) }
    return true
  }

  private mutating func thaw() -> Bool {
    guard isFrozen else { return false }
    machine.thaw()
    isFrozen = false
    let appending = machine.mayDrain && appendWaiting()
    let isLeft = live != nil && subscribers == 0 && start == .whileSubscribed(linger: .zero)
    step { [waiting] in $0.thawed(appending: appending, waiting: waiting.count, $1) }
    if isLeft { live = nil }
    return true
  }

  private mutating func replaceUpstream() -> Bool {
    guard isFrozen else { return false }
    step { machine, _ in machine.replaceUpstream() }
    (live, isEnding, isComplete) = (nil, false, false)
    return true
  }

  // MARK: - Actions

  private mutating func take(_ actions: SharingMachine.Actions) {
    if actions.completes {
      expect(isEnding && !isComplete && !isFrozen && waiting.isEmpty && !isShutDown, "an end is reached once, and last")
      expect(actions.notifies, "readers are notified of an end")
      isComplete = true
    }
    if actions.cancelsLinger { timer = nil }  // the log gives it up at once
    if actions.release != .keep {
      expect(holdsSubscription, "only a subscription that there is can leave")
      if actions.release == .cancel, let live { effects.append(.cancel(live)) }
    }
    if actions.notifiesOfAppend {
      expect(actions.notifies, "readers are notified of an append")
      effects.append(.notifyOfAppend)
    }
    if actions.release != .keep || !machine.isConnected { (holdsSubscription, live) = (false, nil) }
    if let generation = actions.connects {
      expect(live == nil && !isFrozen && !isEnding && !isShutDown, "there is one connection, while there may be one")
      expect(links[generation] == nil, "a generation is new")
      let largest = readers.filter(\.isAttached).map(\.requestedThrough).max() ?? 0
      links[generation] = Link(firstPosition: end, largestRequest: largest)
      live = generation
      effects.append(.connect(generation))
    }
    if let linger = actions.startsLinger {
      expect(live != nil && subscribers == 0, "a linger is for a connection without subscribers")
      effects.append(.startLinger(linger))
    }
    if let generation = actions.retracts {
      expect(generation == live && subscribers > 0 && !isWanted, "what is wanted is not retracted")
      effects.append(.retract(generation))
    }
    if actions.requests != .none {
      expect(holdsSubscription, "only of a subscription that there is something is requested")
      if let live {
        check(actions.requests, of: live)
        effects.append(.request(live, actions.requests))
      }
    }
  }

  /// Whether upstream may be requested for that now.
  private mutating func check(_ more: Subscribers.Demand, of generation: UInt64) {
    guard var link = links[generation] else { return expect(false, "there is a connection to request of") }
    expect(generation == live, "nothing is requested of a former upstream")
    link.decided += more
    switch demand {
    case .exact:
      let most = link.largestRequest - min(link.largestRequest, link.firstPosition)
      let isWithin = runsFreely || link.largestRequest == .max || link.decided <= .max(Int(most))
      expect(isWithin, "exact demand equals the largest request past the end")
    case .oneAtATime:
      expect(!isFrozen && waiting.isEmpty && room > 0 && isWanted, "nothing is requested without room and a reader")
      expect(link.decided <= .max(link.delivered + 1 + link.retracts), "one value is outstanding")
    }
    links[generation] = link
  }

  /// Performs an effect that the machine has returned.
  mutating func perform(_ index: Int) {
    switch effects.remove(at: index) {
    case .cancel(let generation):
      links[generation]?.cancels += 1
    case .connect(let generation):
      links[generation]?.isSubscribed = true
      if let actions = twice({ $0.subscriptionArrived(generation, canRetract: true, $1) }) {
        expect(generation == live, "a subscription of a former connection is refused")
        holdsSubscription = true
        take(actions)
      } else {
        expect(generation != live, "the connection takes its subscription")
        links[generation]?.cancels += 1
      }
    case .request(let generation, let more):
      call(.request(more), generation)
    case .retract(let generation):
      links[generation]?.retracts += 1
      call(.retract, generation)
      step { $0.retracted(generation, $1) }
    case .act(let generation):
      guard receiving != generation, let calls = links[generation]?.calls else { return }
      for call in calls { links[generation]?.act(on: call) }
      links[generation]?.calls = []
    case .startLinger(let linger):
      timers.append(linger)
      if machine.needs(linger) { timer = linger }
    case .notifyOfAppend:
      notifying -= 1
      let mayTrim = machine.readersNotified()
      expect(mayTrim == (notifying == 0), "what readers are being notified of is kept")
    }
  }

  private mutating func call(_ call: Link.Call, _ generation: UInt64) {
    links[generation]?.calls.append(call)
    effects.append(.act(generation))
  }

  mutating func performAll() {
    while !effects.isEmpty { perform(0) }
  }

  // MARK: - At rest

  /// What must hold once everything has been performed.
  mutating func checkAtRest() {
    guard effects.isEmpty, receiving == nil else { return }
    for (generation, link) in links where generation != live {
      expect(link.cancels + (link.hasEnded ? 1 : 0) == 1, "a connection that is over was cancelled once, or ended")
    }
    for (generation, link) in links where generation == live {
      expect(link.cancels == 0 && !link.hasEnded, "a connection that lasts was not cancelled")
    }
    expect((live != nil) == machine.isConnected, "there is a connection if the machine has one")
    let isHeldBack = isFrozen || isShutDown || !waiting.isEmpty
    expect(!isEnding || isComplete || isHeldBack, "an end that nothing waits for is reached")
    if start == .always || subscribers > 0, !isFrozen, !isEnding, !isShutDown {
      expect(live != nil, "a log that has a reason to is connected")
    }
    if case .whileSubscribed(let linger) = start, subscribers == 0, live != nil, !isFrozen {
      expect(linger > .zero && timer.map(machine.needs) == true, "without subscribers a connection lingers")
    }
    guard let live, let link = links[live], holdsSubscription, !isFrozen else { return }
    switch demand {
    case .exact:
      let most = link.largestRequest - min(link.largestRequest, link.firstPosition)
      let requested: Subscribers.Demand =
        runsFreely || link.largestRequest == .max ? .unlimited : .max(Int(most))
      expect(link.requested == requested, "exact demand equals the largest request past the end")
    case .oneAtATime:
      let isOutstanding = link.requested > .max(link.delivered)
      if isWanted && waiting.isEmpty && room > 0 { expect(isOutstanding, "what is wanted and has room is requested") }
      if link.retracts == 0, !link.isOvertaken, subscribers > 0, !isWanted {
        expect(!isOutstanding, "demand that no reader has is retracted")
      }
    }
    if let position = machine.positionUpstreamWaitsFor {
      expect(machine.isLossless && subscribers > 0, "upstream waits only for subscribers of a lossless log")
      expect(position == readers.reduce(.max) { min($0, $1.oldestUnread) }, "upstream waits for the slowest reader")
    }
  }
}
