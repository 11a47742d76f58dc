import Events
import Fleet
import Glibc
import Reactive
import StreamRuntime
import StreamServer
import Systemd
import Testing

@testable import streamd

/// A host of a fleet between an engine and sources that the tests control, alone in its fleet. The tests are its loop.
@Suite struct FleetMemberTests {
  private let engine = MemoryEngine()
  private let loop: EventLoop
  private let member: FleetMember

  init() throws {
    loop = try EventLoop(name: "fleet")
    let server = try StreamServer(limits: ServerLimits(workers: 1))
    member = FleetMember(engine, shardCount: 1, on: loop, server, Journal(level: .emergency))
  }

  /// Runs the loop and the engine until this holds. A turn without an answer takes a millisecond.
  private func turn(atMost count: Int = 20_000, until holds: () -> Bool) -> Bool {
    for _ in 0..<count {
      if holds() { return true }
      loop.runOneTurn()
      if !engine.answer() { usleep(1000) }
    }
    return holds()
  }

  /// Runs them until nothing is left to do at once.
  private func settle() { _ = turn(atMost: 20) { false } }

  private func stream(_ kind: FleetMachine.Stream.Kind, _ source: ControlledSource?) -> FleetMember.Stream {
    FleetMember.Stream(
      definition: .init(name: "s", definition: 1, kind: kind, canLead: true, end: 1), linger: .zero,
      publisher: source?.eraseToAnyPublisher(), publishSource: kind == .publish ? PublishSource() : nil,
      status: SourceStatus())
  }

  /// A stream that is wanted here, on the leader of its shard, with a source that is asked for the first batch.
  private func share(_ kind: FleetMachine.Stream.Kind) throws -> ControlledSource {
    let source = ControlledSource()
    member.start()
    member.setStreams([stream(kind, source)])
    member.demand(of: "s").wants(true)
    try #require(turn { source.isAsked && !engine.log.isEmpty })
    settle()
    return source
  }

  /// Whether a poll that is due fetches.
  private func admitsFetch() -> Bool? {
    let decision = Locked<Bool?>(nil)
    member.admitFetch(of: "s") { isAdmitted in decision.withLock { $0 = isAdmitted } }
    _ = turn { decision.withLock { $0 != nil } }
    return decision.withLock { $0 }
  }

  @Test func aReloadKeepsTheSourceAndTheDemandUnlessTheSourceIsAnotherOne() throws {
    let source = try share(.continuous)
    member.setStreams([stream(.continuous, nil)])
    settle()
    #expect(source.isAsked && !source.isCancelled)
    let other = ControlledSource()
    member.setStreams([stream(.continuous, other)])
    #expect(turn { source.isCancelled && other.isAsked })
    member.setStreams([])
    #expect(turn { other.isCancelled && engine.subjects == [.heartbeats, .host(engine.host)] })
  }

  @Test func theStatusSaysAtOnceThatTheBrokersCannotBeReached() {
    engine.connects = false
    let stream = stream(.continuous, ControlledSource())
    member.start()
    member.setStreams([stream])
    settle()
    #expect(stream.status.fleet?.outage?.reason == "not connected yet")
    member.engineDisconnected("Connection refused")
    let outage = stream.status.fleet?.outage
    #expect(outage?.reason == "Connection refused")
    member.engineDisconnected("No route to host")
    #expect(stream.status.fleet?.outage?.reason == "No route to host")
    #expect(stream.status.fleet?.outage?.since == outage?.since)
    member.engineConnected()
    #expect(stream.status.fleet != nil && stream.status.fleet?.outage == nil)
    member.engineDisconnected("closed")
    #expect(stream.status.fleet?.outage?.reason == "closed")
  }

  @Test func aReloadOfAStreamWithValuesThatAreNotStoredGoesOnWithTheNextOnes() throws {
    let source = try share(.publish)
    engine.holdsAppends = true
    source.send([[1]])
    #expect(turn { engine.hasHeld })
    let other = ControlledSource()
    member.setStreams([stream(.publish, other)])
    #expect(turn { source.isCancelled && other.isAsked })
    engine.holdsAppends = false
    engine.decide(.stored)
    other.send([[2]])
    #expect(turn { other.isAsked })
    #expect(engine.log.count == 3)  // the claim, and a record for each batch
  }

  @Test(arguments: [true, false])
  func aStopWaitsForPublishedValuesButNotForLong(isStored: Bool) throws {
    let source = try share(.publish)
    engine.holdsAppends = true
    source.send([[1]])
    #expect(turn { engine.hasHeld })
    let hasLeft = Locked(false)
    member.leave { hasLeft.withLock { $0 = true } }
    settle()
    #expect(!hasLeft.withLock { $0 } && !engine.hasStopped && !source.isAsked)
    if isStored { engine.decide(.stored) }
    #expect(turn(atMost: isStored ? 100 : 20_000) { hasLeft.withLock { $0 } } && engine.hasStopped)
    #expect(engine.log.count == (isStored ? 2 : 1))
  }

  @Test func aPollIsRefusedWhileTheLogDoesNotAppendAndMadeOnceItDoes() throws {
    let source = try share(.poll)
    #expect(admitsFetch() == true)
    engine.holdsAppends = true
    source.send([[1]])
    #expect(turn { source.isAsked } && admitsFetch() == true)
    engine.decide(.unknown)
    #expect(admitsFetch() == false && turn { !source.isAsked })
    engine.holdsAppends = false
    #expect(turn { source.isAsked } && admitsFetch() == true)
    #expect(engine.log.count == 2)
  }

  @Test func aPollIsMadeOnlyIfThisHostOrAnotherOneWantsItsEvent() throws {
    let source = try share(.poll)
    member.demand(of: "s").wants(false)
    #expect(turn { !source.isAsked } && admitsFetch() == false)
    engine.isWantedElsewhere = true
    #expect(admitsFetch() == true)
  }

  /// - Parameter answer: whether another host wants the event; nil: none has answered.
  @Test(arguments: [nil, false])
  func aClientOfTheLeaderThatComesWhileOtherHostsAreAskedIsServed(answer: Bool?) throws {
    let source = try share(.poll)
    engine.isWantedElsewhere = true
    member.demand(of: "s").wants(false)
    settle()
    #expect(source.isAsked)
    engine.isWantedElsewhere = answer
    let decision = Locked<Bool?>(nil)
    member.admitFetch(of: "s") { isAdmitted in decision.withLock { $0 = isAdmitted } }
    member.demand(of: "s").wants(true)
    loop.runOneTurn()
    settle()
    #expect(decision.withLock { $0 } == true && source.isAsked)
  }

  /// A host that hangs is asked in the place of others.
  @Test func aPollIsMadeIfNoHostAnswersAndOneWantedTheEventBefore() throws {
    let source = try share(.poll)
    engine.isWantedElsewhere = true
    member.demand(of: "s").wants(false)
    settle()
    engine.isWantedElsewhere = nil
    #expect(admitsFetch() == true && source.isAsked)
    engine.isWantedElsewhere = false
    #expect(admitsFetch() == false && turn { !source.isAsked })
    engine.isWantedElsewhere = nil
    #expect(admitsFetch() == false && !source.isAsked)
  }
}

/// An engine in memory with one shard.
private final class MemoryEngine: FleetEngine {
  private(set) var log: [[UInt8]] = []
  private(set) var subjects: Set<FleetSubject> = []
  private(set) var hasStopped = false
  /// Whether a start finds the brokers.
  var connects = true
  /// Whether appends wait for `decide`.
  var holdsAppends = false
  /// nil: no host answers.
  var isWantedElsewhere: Bool? = false
  private var held: [(ShardMachine.AppendResult) -> Void] = []
  var hasHeld: Bool { !held.isEmpty }
  private var answers: [() -> Void] = []

  /// The only one in the fleet.
  var host: HostID {
    for case .host(let host) in subjects { return host }
    return .random()
  }

  /// Gives the answers to what was asked until now.
  /// - Returns: whether there were any.
  func answer() -> Bool {
    let present = answers
    answers = []
    for answer in present { answer() }
    return !present.isEmpty
  }

  /// Answers for the appends that wait.
  func decide(_ result: ShardMachine.AppendResult) {
    let waiting = held
    held = []
    for decide in waiting { decide(result) }
  }

  func start(_ observer: any FleetEngineObserver) {
    if connects { answers.append { observer.engineConnected() } }
  }
  func stop() { hasStopped = true }

  func append(
    _ entry: [UInt8], isClaim: Bool, to shard: Int, after: UInt64,
    _ done: @escaping (ShardMachine.AppendResult) -> Void
  ) {
    let decide = { [self] (result: ShardMachine.AppendResult) in
      guard result == .stored else { return done(result) }
      guard after == log.count else { return done(.refused(last: UInt64(log.count))) }
      log.append(entry)
      done(.stored)
    }
    if holdsAppends { held.append(decide) } else { answers.append { decide(.stored) } }
  }

  func read(_ shard: Int, after: UInt64, _ done: @escaping (FleetEntries?) -> Void) {
    answers.append { [self] in
      let entries = log.enumerated().dropFirst(Int(after)).map { (UInt64($0.offset + 1), $0.element) }
      done(FleetEntries(entries: entries, first: log.isEmpty ? 0 : 1, last: UInt64(log.count)))
    }
  }

  func findClaim(_ shard: Int, _ done: @escaping (FleetClaim?) -> Void) {
    answers.append { [self] in done(FleetClaim.none(last: UInt64(log.count))) }
  }

  func newest(_ shard: Int, _ done: @escaping (FleetNewest?) -> Void) {
    answers.append { [self] in done(FleetNewest(last: UInt64(log.count), entry: log.last)) }
  }

  func send(_ message: [UInt8], to subject: FleetSubject) {}

  func ask(
    _ message: [UInt8], to subject: FleetSubject, count: Int, timeout: Duration,
    _ done: @escaping ([[UInt8]]?) -> Void
  ) {
    answers.append { [self] in
      done(subject.isShared ? isWantedElsewhere.map { $0 ? [[]] : [] } : [])
    }
  }

  func subscribe(to subject: FleetSubject, _ receive: @escaping ([UInt8]) -> [UInt8]?) { subjects.insert(subject) }
  func unsubscribe(from subject: FleetSubject) { subjects.remove(subject) }
}

/// A source whose batches the test sends.
private final class ControlledSource: Publisher, RetractableSubscription, @unchecked Sendable {
  typealias Output = EventBatch
  typealias Failure = StreamFailure

  private(set) var isAsked = false
  private(set) var isCancelled = false
  private var subscriber: AnySubscriber<EventBatch, StreamFailure>?

  func receive<S: Subscriber>(subscriber: S) where S.Input == EventBatch, S.Failure == StreamFailure {
    self.subscriber = AnySubscriber(subscriber)
    subscriber.receive(subscription: self)
  }

  func send(_ batch: EventBatch) {
    isAsked = false
    _ = subscriber?.receive(batch)
  }

  func request(_ demand: Subscribers.Demand) { isAsked = true }
  func retract() { isAsked = false }

  func cancel() {
    (isAsked, isCancelled) = (false, true)
    subscriber = nil
  }
}
