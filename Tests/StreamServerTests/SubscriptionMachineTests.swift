import StreamProtocol
import Reactive
import Testing

@testable import StreamServer

/// The machine alone: every phase with every event, and runs of random events against a model of a log and a socket.
struct SubscriptionMachineTests {
  private static let format = EventFormat(ids: true, completes: false)

  private static func machine(
    demand: Subscribers.Demand = .max(3), onLag: LagPolicy = .skip, format: EventFormat = format,
    phase: SubscriptionMachine.Phase = .idle, at cursor: Cursor = Cursor(position: 10)
  ) -> SubscriptionMachine {
    SubscriptionMachine(cursor: cursor, demand: demand, onLag: onLag, format: format, phase: phase, gap: Gap.none)
  }

  private static let phases: [SubscriptionMachine.Phase] = [
    .idle, .waiting, .ready, .serving, .standby, .updating(beginsWithNewest: true), .blocked, .ended,
  ]

  @Test func eachInputWakesOnlyTheStatesThatWaitForIt() {
    typealias Row = (
      event: (inout SubscriptionMachine) -> SubscriptionMachine.Action, wakes: [SubscriptionMachine.Phase]
    )
    let rows: [Row] = [
      ({ $0.begin() }, [.idle]),
      ({ $0.request(.max(1)) }, [.idle]),
      ({ $0.logGrew() }, [.waiting]),
      ({ $0.logEnded() }, [.idle, .waiting]),
      ({ $0.becameCurrent(newest: 12) }, [.updating(beginsWithNewest: true)]),
      ({ $0.socketIsWritable() }, [.blocked]),
    ]
    for (index, row) in rows.enumerated() {
      for phase in Self.phases {
        var machine = Self.machine(phase: phase)
        let action = row.event(&machine)
        #expect(action == (row.wakes.contains(phase) ? .enqueue : .none), "event \(index) in \(phase)")
      }
    }
  }

  @Test(arguments: phases) func eventsAreSentOnlyInATurn(phase: SubscriptionMachine.Phase) {
    var machine = Self.machine(phase: phase)
    let actions = machine.found(.events, hasEnded: false)
    #expect(actions == .init(phase == .serving ? .send : .none))
    #expect(machine.phase == phase)
  }

  @Test(arguments: phases) func aTurnBeginsOnlyFromTheQueue(phase: SubscriptionMachine.Phase) {
    var machine = Self.machine(phase: phase)
    let isTaken = machine.take()
    #expect(isTaken == (phase == .ready))
    #expect(machine.phase == (phase == .ready ? .serving : phase))
  }

  @Test(arguments: phases) func noInputHasAnEffectAfterTheEnd(phase: SubscriptionMachine.Phase) {
    var machine = Self.machine(phase: phase)
    machine.end()
    let end = machine
    let actions = [
      machine.begin(), machine.logGrew(), machine.logEnded(), machine.socketIsWritable(), machine.socketIsFull(),
      machine.becameCurrent(newest: 90),
    ]
    #expect(actions.allSatisfy { $0 == .none })
    #expect(machine.found(.events, hasEnded: false) == .init(.none))
    let isTaken = machine.take()
    #expect(!isTaken)
    machine.queue(hasPlace: true)
    machine.queue(hasPlace: false)
    #expect(machine == end)
  }

  /// The finding in the log × demand × whether the log has ended.
  @Test func theFindingDeterminesTheAction() {
    typealias Row = (
      SubscriptionMachine.Finding, Subscribers.Demand, hasEnded: Bool, SubscriptionMachine.Action,
      SubscriptionMachine.Phase
    )
    let rows: [Row] = [
      (.events, .max(1), false, .send, .serving),
      (.events, .max(1), true, .send, .serving),
      (.events, .none, false, .rest, .idle),
      (.events, .none, true, .rest, .idle),
      (.unexamined, .max(1), false, .enqueue, .serving),
      (.unexamined, .max(1), true, .enqueue, .serving),
      (.nothing, .max(1), false, .wait, .waiting),
      (.nothing, .none, false, .rest, .idle),
      (.nothing, .max(1), true, .finish, .serving),
      (.nothing, .none, true, .finish, .serving),
    ]
    for (finding, demand, hasEnded, action, phase) in rows {
      var machine = Self.machine(demand: demand, phase: .serving)
      let result = machine.found(finding, hasEnded: hasEnded)
      #expect(result == .init(action), "\(finding), \(demand), \(hasEnded)")
      #expect(machine.phase == phase, "\(finding), \(demand), \(hasEnded)")
    }
  }

  /// Policy × whether a part of the event was sent.
  @Test(arguments: [LagPolicy.skip, .latest, .fail], [0, 7])
  func anOvertakenSubscriptionContinuesUnlessItsPolicyOrAPartlySentEventForbids(policy: LagPolicy, sentBytes: Int) {
    var machine = Self.machine(onLag: policy, phase: .serving, at: Cursor(position: 10, sentBytes: sentBytes))
    let actions = machine.found(.overtaken(next: 25, lost: 15, missed: .init(count: 14)), hasEnded: false)
    if sentBytes > 0 {
      #expect(actions == .init(.lost(15), .fail(.cutOff(position: 10))))
    } else if policy == .fail {
      #expect(actions == .init(.lost(15), .fail(.lagged(15))))
    } else {
      #expect(actions == .init(.lost(15), .skipped(from: 10), .enqueue))
      #expect(machine.cursor == Cursor(position: 25) && machine.demand == .max(3) && machine.gap == Gap(count: 14))
    }
  }

  @Test func aSubscriptionInAHoleContinuesAtItsEnd() {
    var machine = Self.machine(phase: .serving)
    let actions = machine.found(.inGap(end: 4096), hasEnded: false)
    #expect(actions == .init(.skipped(from: 10), .enqueue) && machine.gap == .unknown)
    #expect(machine.cursor == Cursor(position: 4096) && machine.demand == .max(3))
    var halfSent = Self.machine(phase: .serving, at: Cursor(position: 10, sentBytes: 3))
    let failure = halfSent.found(.inGap(end: 4096), hasEnded: false)
    #expect(failure == .init(.fail(.cutOff(position: 10))))
  }

  /// Complete or partial write × end of the log × remaining demand × whether the log has ended.
  @Test func theWriteResultDeterminesTheAction() {
    for isWhole in [true, false] {
      for isLast in [true, false] {
        for count in [0, 1, 3] {
          for hasEnded in [true, false] {
            var machine = Self.machine(demand: .max(3), phase: .serving)
            let next = Cursor(position: 10 + UInt64(count), sentBytes: count == 0 ? 5 : 0)
            let actions = machine.wrote(
              .init(count: count, cursor: next, isLast: isLast), isWhole: isWhole, hasEnded: hasEnded, at: 0)
            let moved = SubscriptionMachine.Action.moved(from: 10, past: count)
            let expected: SubscriptionMachine.Action =
              !isWhole || count == 3 && !(isLast && hasEnded) ? .rest : isLast && !hasEnded ? .wait : .enqueue
            let message: Comment = "whole \(isWhole), last \(isLast), \(count) events, ended \(hasEnded)"
            #expect(
              actions == (expected == .wait ? .init(.none, .wait, moved) : .init(.none, moved, expected)), message)
            #expect(machine.cursor == next && machine.demand == .max(3 - count), message)
            #expect((machine.phase == .blocked) == !isWhole, message)
          }
        }
      }
    }
  }

  @Test(arguments: [true, false]) func aResponseOfOneEventCompletesOnceItIsWritten(isWhole: Bool) {
    let format = EventFormat(ids: true, completes: true)
    var machine = Self.machine(demand: .max(1), format: format, phase: .serving)
    let part = machine.wrote(
      .init(count: 0, cursor: Cursor(position: 10, sentBytes: 9)), isWhole: false, hasEnded: false, at: 0)
    #expect(part.third == .rest)
    machine.queue(hasPlace: true)
    let isTaken = machine.take()
    #expect(isTaken)
    let rest = machine.wrote(
      .init(count: 1, cursor: Cursor(position: 11), isLast: true), isWhole: isWhole, hasEnded: false, at: 0)
    #expect(rest.third == .complete)
  }

  @Test func missedEventsAddUpUntilAPayloadReportsThem() {
    var machine = Self.machine(phase: .serving)
    machine.miss(Gap(count: 4))
    machine.miss(Gap(count: 3))
    #expect(machine.gap == Gap(count: 7))
    _ = machine.wrote(.init(count: 0, cursor: machine.cursor, hasBegun: false), isWhole: false, hasEnded: false, at: 0)
    #expect(machine.gap == Gap(count: 7))
    _ = machine.wrote(.init(count: 1, cursor: Cursor(position: 11)), isWhole: true, hasEnded: false, at: 0)
    #expect(machine.gap == .none)
    // The block crossed the hole of the log's ids.
    _ = machine.wrote(
      .init(count: 1, cursor: Cursor(position: 90), gap: .unknown), isWhole: true, hasEnded: false, at: 0)
    #expect(machine.gap == .unknown)
    machine.miss(Gap(count: 3))
    #expect(machine.gap == .unknown)
    var silent = SubscriptionMachine(
      cursor: Cursor(position: 10), demand: .max(3), onLag: .skip, format: Self.format, phase: .serving)
    silent.miss(.unknown)
    _ = silent.wrote(
      .init(count: 1, cursor: Cursor(position: 90), gap: .unknown), isWhole: true, hasEnded: false, at: 0)
    #expect(silent.gap == .none && silent.notes == .init())
  }

  @Test func eventsThatAFilterLeavesOutAreCountedUntilAPayloadReportsThem() {
    var machine = Self.machine(phase: .serving)
    #expect(machine.found(.passed(upTo: 17), hasEnded: false) == .init(.passed(from: 10), .enqueue))
    #expect(machine.cursor == Cursor(position: 17) && machine.notes.leftOut == 7)
    machine.leaveOut(3, upTo: 20)
    #expect(machine.cursor == Cursor(position: 20) && machine.notes.leftOut == 10)
    let copy = machine
    _ = machine.wrote(.init(count: 1, cursor: Cursor(position: 25), leftOut: 2), isWhole: true, hasEnded: false, at: 0)
    #expect(machine.notes.leftOut == 2 && copy.notes.leftOut == 10)
  }

  @Test func aStateIsReadToItsEndAndThenReleased() {
    var machine = Self.machine(phase: .serving)
    machine.readState()
    let part = machine.found(.readState(upTo: 40, leftOut: 2, isEnd: false), hasEnded: false)
    #expect(part == .init(.none, .skipped(from: 10), .enqueue))
    #expect(machine.notes.isReadingState && machine.notes.leftOut == 2)
    _ = machine.wrote(.init(count: 2, cursor: Cursor(position: 60)), isWhole: true, hasEnded: false, at: 0)
    #expect(machine.notes.stateCount == 2 && machine.notes.leftOut == 0)
    var empty = machine
    let end = empty.found(.readState(upTo: 90, leftOut: 0, isEnd: true), hasEnded: false)
    #expect(end == .init(.endState, .skipped(from: 60), .enqueue) && !empty.notes.isReadingState)
    let last = machine.wrote(
      .init(count: 1, cursor: Cursor(position: 90), isStateEnd: true), isWhole: true, hasEnded: false, at: 0)
    #expect(last == .init(.endState, .moved(from: 60, past: 1), .rest) && !machine.notes.isReadingState)
  }

  @Test func aMarkerIsDueAtFirstAndAfterSilence() {
    let format = EventFormat(ids: true, completes: false, hasKind: true)
    var machine = Self.machine(demand: .unlimited, format: format, phase: .serving)
    #expect(machine.isMarkerDue(at: 5, after: .nanoseconds(10)))
    // All events are sent: the turn that follows sends the first marker.
    let event = machine.wrote(
      .init(count: 1, cursor: Cursor(position: 11), isLast: true), isWhole: true, hasEnded: false, at: 6)
    #expect(event.third == .enqueue && machine.isMarkerDue(at: 7, after: .nanoseconds(10)))
    let marker = machine.wrote(
      .init(count: 1, cursor: Cursor(position: 11), isLast: true, isMarker: true), isWhole: true, hasEnded: false, at: 8
    )
    #expect(marker.contains(.wait))
    for (now, isDue) in [(8, false), (17, false), (18, true)] as [(UInt64, Bool)] {
      #expect(machine.isMarkerDue(at: now, after: .nanoseconds(10)) == isDue)
    }
    _ = machine.wrote(
      .init(count: 1, cursor: Cursor(position: 12), isLast: true), isWhole: true, hasEnded: false, at: 17)
    #expect(!machine.isMarkerDue(at: 26, after: .nanoseconds(10)))
    #expect(!Self.machine().isMarkerDue(at: 1000, after: .nanoseconds(10)))
  }

  @Test func demandCoversPositionsFromTheCursorOn() {
    #expect(Self.machine(demand: .none).requestedThrough == 0)
    #expect(Self.machine(demand: .max(5)).requestedThrough == 15)
    #expect(Self.machine(demand: .unlimited).requestedThrough == .max)
  }

  /// A log that grows, evicts and ends, a socket that fills, and a client that requests at random: no
  /// event is sent beyond the demand or twice, none is skipped except by an overtaking, and the subscription is in
  /// exactly the list that its phase names, so that it misses no wake-up.
  @Test(arguments: 0..<40) func randomRunsPreserveDemandOrderAndWakeUps(seed: Int) {
    var random = SplitMix64(UInt64(seed))
    var world = World(policy: [.skip, .latest, .fail][seed % 3])
    for step in 0..<2000 where !world.isOver {
      world.step(Int.random(in: 0..<10, using: &random), &random)
      world.check("seed \(seed), step \(step)")
    }
    world.settle(&random)
    world.checkQuiet("seed \(seed)")
  }
}

/// A log of positions, a socket with a number of free units, and one subscription in its lists.
private struct World {
  private var machine: SubscriptionMachine
  private var first: UInt64 = 1
  private var end: UInt64 = 1
  private var hasEnded = false
  private var room = 4
  private var queued = false
  private var isWaitingForLog = false
  private var isWaitingForRoom = false
  private var granted = 0
  private var delivered: UInt64 = 0
  private var nextExpected: UInt64 = 1
  private(set) var isOver = false

  init(policy: LagPolicy) {
    machine = SubscriptionMachine(
      cursor: Cursor(position: 1), demand: .none, onLag: policy, format: EventFormat(ids: true, completes: false))
    perform(machine.begin())
  }

  mutating func step(_ choice: Int, _ random: inout SplitMix64) {
    switch choice {
    case 0, 1:
      guard !hasEnded else { return }
      end += UInt64.random(in: 1...4, using: &random)
      if isWaitingForLog {
        isWaitingForLog = false
        perform(machine.logGrew())
      }
    case 2: if end - first > 8 { first = end - UInt64.random(in: 0...8, using: &random) }
    case 3, 4:
      let count = Int.random(in: 1...5, using: &random)
      granted += count
      perform(machine.request(.max(count)))
    case 5, 6:
      room += 3
      if isWaitingForRoom {
        isWaitingForRoom = false
        perform(machine.socketIsWritable())
      }
    case 7 where Int.random(in: 0..<300, using: &random) == 0 && !hasEnded: endLog()
    default: serve(&random)
    }
  }

  private mutating func endLog() {
    hasEnded = true
    isWaitingForLog = false
    perform(machine.logEnded())
  }

  private mutating func serve(_ random: inout SplitMix64) {
    guard queued else { return }
    queued = false
    if machine.phase == .standby { machine.queue(hasPlace: true) }
    guard machine.take() else { return }
    guard room > 0 else { return perform(machine.socketIsFull()) }
    let cursor = machine.cursor.position
    let finding: SubscriptionMachine.Finding =
      cursor < first
      ? .overtaken(next: machine.onLag == .latest ? max(first, end - 1) : first, lost: first - cursor, missed: .none)
      : cursor == end ? .nothing : .events
    let actions = machine.found(finding, hasEnded: hasEnded)
    if case .overtaken(let next, _, _) = finding, actions.third == .enqueue { nextExpected = next }
    guard actions.first == .send else { return perform(actions) }
    let covered = min(Int(end - cursor), machine.demand.max ?? .max)
    let taken = min(covered, room)
    room -= taken
    for position in cursor..<cursor + UInt64(taken) {
      #expect(position == nextExpected)
      nextExpected = position + 1
    }
    delivered += UInt64(taken)
    let next = Cursor(position: cursor + UInt64(taken))
    perform(
      machine.wrote(
        .init(count: taken, cursor: next, isLast: next.position == end), isWhole: taken == covered, hasEnded: hasEnded,
        at: 0))
  }

  private mutating func perform(_ actions: SubscriptionMachine.Actions) {
    for action in [actions.first, actions.second, actions.third] { perform(action) }
  }

  private mutating func perform(_ action: SubscriptionMachine.Action) {
    switch action {
    case .none: break
    case .enqueue:
      #expect(!queued, "it is in the queue already")
      queued = true
      machine.queue(hasPlace: delivered % 3 != 0)
    case .wait: isWaitingForLog = true
    case .rest: isWaitingForRoom = machine.phase == .blocked
    case .send, .passed, .endState: Issue.record("there is no filter and no state, and the rest is sent at once")
    case .lost, .skipped, .moved: break
    case .finish, .complete, .fail:
      isOver = true
      machine.end()
    }
  }

  func check(_ message: String) {
    #expect(Int(delivered) <= granted, "\(message): more than was requested")
    #expect(machine.demand == .max(granted - Int(delivered)), "\(message)")
    guard !isOver else { return }
    switch machine.phase {
    case .idle: #expect(!queued && !isWaitingForLog && !isWaitingForRoom && machine.demand == .none, "\(message)")
    case .waiting: #expect(!queued && isWaitingForLog, "\(message)")
    case .blocked: #expect(!queued && isWaitingForRoom, "\(message)")
    case .ready, .standby: #expect(queued, "\(message)")
    case .serving, .updating, .ended: Issue.record("\(message): \(machine.phase) between two events")
    }
  }

  /// With unlimited space and turns, everything is delivered.
  mutating func settle(_ random: inout SplitMix64) {
    for _ in 0..<3000 where !isOver {
      step(5, &random)
      serve(&random)
    }
  }

  func checkQuiet(_ message: String) {
    guard !isOver else { return }
    #expect(!hasEnded || machine.cursor.position < end, "\(message): the end was not delivered")
    #expect(machine.demand == .none || machine.cursor.position == end, "\(message): events and demand are left")
  }
}

/// The same numbers on every machine. Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators".
struct SplitMix64: RandomNumberGenerator {
  private var state: UInt64
  init(_ seed: UInt64) { state = seed }
  mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var mixed = state
    mixed = (mixed ^ mixed >> 30) &* 0xBF58_476D_1CE4_E5B9
    mixed = (mixed ^ mixed >> 27) &* 0x94D0_49BB_1331_11EB
    return mixed ^ mixed >> 31
  }
}
