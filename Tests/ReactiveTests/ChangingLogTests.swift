import Testing

@testable import Reactive

@Suite struct ChangingLogTests {
  private typealias Log = SharedLog<Ring, TestError>

  private func makeLog(_ probe: Probe<[Int], TestError>, _ overflow: LogOverflow = .dropOldest) -> (Log, SilentReader) {
    let log = Log(storage: Ring(4), start: .always, demand: .oneAtATime, overflow: overflow)
    log.setUpstream(probe.eraseToAnyPublisher())
    let reader = SilentReader()
    log.attach(reader)
    log.reader(reader, holdsFrom: 0)
    log.reader(reader, wantsThrough: .max)
    log.start()
    log.subscriberJoined()
    return (log, reader)
  }

  private func held(_ log: Log) -> [Int] { log.read { storage, _ in storage.values } }

  @Test func whatComesWhileALogIsFrozenIsSetAsideAndComesInWhenItThaws() {
    let probe = Probe<[Int], TestError>()
    let (log, _) = makeLog(probe)
    #expect(probe.send([1, 2]) == .max(1))
    let old = log.freeze(start: .always, overflow: .dropOldest)
    #expect(probe.send([3, 4]) == Subscribers.Demand.none)
    log.append([5, 6])
    #expect(held(log) == [1, 2] && old.values == [1, 2])
    log.thaw(Ring(5, takingOver: old))
    #expect(held(log) == [2, 3, 4, 5, 6])
    #expect(probe.state.requested == [.max(1), .max(1), .max(1)])
    #expect(log.read { storage, _ in storage.firstPosition } == 1)
  }

  @Test func anEndThatComesMeanwhileComesBehindIt() {
    let probe = Probe<[Int], TestError>()
    let (log, _) = makeLog(probe)
    _ = log.freeze(start: .always, overflow: .dropOldest)
    _ = probe.send([1])
    probe.send(completion: .finished)
    #expect(!log.hasEnded)
    log.thaw()
    #expect(held(log) == [1] && log.hasEnded)
  }

  @Test func theFormerUpstreamHasNoSayAnyMoreAndItsEndNeither() {
    let (probe, next) = (Probe<[Int], TestError>(), Probe<[Int], TestError>())
    let (log, _) = makeLog(probe)
    _ = probe.send([1])
    probe.send(completion: .finished)
    #expect(log.hasEnded)
    _ = log.freeze(start: .always, overflow: .dropOldest)
    log.replaceUpstream(next.eraseToAnyPublisher())
    #expect(!log.hasEnded)
    log.thaw()
    _ = probe.send([8])
    _ = next.send([2])
    #expect(held(log) == [1, 2])
  }

  @Test func betweenWaitingAndDroppingNothingIsLostThatHadRoom() {
    let probe = Probe<[Int], TestError>()
    let (log, reader) = makeLog(probe, .waitForSlowest)
    #expect(probe.send([1, 2, 3, 4, 5, 6]) == Subscribers.Demand.none)
    #expect(held(log) == [1, 2, 3, 4] && log.isLossless)
    _ = log.freeze(start: .always, overflow: .dropOldest)
    #expect(!log.isLossless)
    log.thaw()
    #expect(held(log) == [3, 4, 5, 6])
    _ = log.freeze(start: .always, overflow: .waitForSlowest)
    #expect(log.reader(reader, holdsFrom: 3) == 3)
    log.thaw()
    _ = probe.send([7, 8, 9])
    #expect(held(log) == [4, 5, 6, 7])
    log.reader(reader, holdsFrom: 5)
    #expect(held(log) == [6, 7, 8, 9])
  }

  @Test func whatWaitsMayBeTurnedAwayWhenItComesIn() {
    let probe = Probe<[Int], TestError>()
    let (log, _) = makeLog(probe, .waitForSlowest)
    _ = probe.send([1, 2, 3, 4, 50, 6])
    let old = log.freeze(start: .always, overflow: .waitForSlowest)
    log.append([70, 8])
    log.thaw(Ring(8, takingOver: old)) { $0.filter { $0 < 10 } }
    #expect(held(log) == [1, 2, 3, 4, 6, 8])
  }
}
