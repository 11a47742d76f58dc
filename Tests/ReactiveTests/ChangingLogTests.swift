import Testing

@testable import Reactive

@Suite struct ChangingLogTests {
  private typealias Log = SharedLog<Ring, TestError>

  @Test func valuesThatArriveWhileFrozenAreAppendedAfterThawing() {
    let probe = Probe<[Int], TestError>()
    let (log, _) = Log.connected(to: probe, .dropOldest)
    #expect(probe.send([1, 2]) == .max(1))
    let old = log.freeze(start: .always, overflow: .dropOldest)
    #expect(probe.send([3, 4]) == Subscribers.Demand.none)
    log.append([5, 6])
    #expect(log.values == [1, 2] && old.values == [1, 2])
    log.thaw(Ring(5, takingOver: old))
    #expect(log.values == [2, 3, 4, 5, 6])
    #expect(probe.state.requested == [.max(1), .max(1), .max(1)])
    #expect(log.read { storage, _ in storage.firstPosition } == 1)
  }

  @Test func endWhileFrozenFollowsTheDeferredValues() {
    let probe = Probe<[Int], TestError>()
    let (log, _) = Log.connected(to: probe, .dropOldest)
    _ = log.freeze(start: .always, overflow: .dropOldest)
    _ = probe.send([1])
    probe.send(completion: .finished)
    #expect(!log.hasEnded)
    log.thaw()
    #expect(log.values == [1] && log.hasEnded)
  }

  @Test func signalsOfTheFormerUpstreamAreIgnored() {
    let (probe, next) = (Probe<[Int], TestError>(), Probe<[Int], TestError>())
    let (log, _) = Log.connected(to: probe, .dropOldest)
    _ = probe.send([1])
    probe.send(completion: .finished)
    #expect(log.hasEnded)
    _ = log.freeze(start: .always, overflow: .dropOldest)
    log.replaceUpstream(next.eraseToAnyPublisher())
    #expect(!log.hasEnded)
    log.thaw()
    _ = probe.send([8])
    _ = next.send([2])
    #expect(log.values == [1, 2])
  }

  @Test func aReaderThatReportsItsPositionHoldsTheLogOnceThatWaits() {
    let probe = Probe<[Int], TestError>()
    let (log, reader) = Log.connected(to: probe, .dropOldest)
    _ = probe.send([1, 2, 3, 4, 5])
    log.reader(reader, oldestUnread: 3)
    #expect(probe.send([6]) == .max(1) && log.values == [3, 4, 5, 6])
    _ = log.freeze(start: .always, overflow: .waitForSlowest)
    log.thaw()
    #expect(probe.send([7, 8]) == Subscribers.Demand.none)
    #expect(log.values == [4, 5, 6, 7])
    log.reader(reader, oldestUnread: 4)
    #expect(log.values == [5, 6, 7, 8])
  }

  @Test func changingBetweenWaitingAndDroppingLosesNoValueThatFits() {
    let probe = Probe<[Int], TestError>()
    let (log, reader) = Log.connected(to: probe, .waitForSlowest)
    #expect(probe.send([1, 2, 3, 4, 5, 6]) == Subscribers.Demand.none)
    #expect(log.values == [1, 2, 3, 4] && log.isLossless)
    _ = log.freeze(start: .always, overflow: .dropOldest)
    #expect(!log.isLossless)
    log.thaw()
    #expect(log.values == [3, 4, 5, 6])
    _ = log.freeze(start: .always, overflow: .waitForSlowest)
    #expect(log.reader(reader, oldestUnread: 3) == 3)
    log.thaw()
    _ = probe.send([7, 8, 9])
    #expect(log.values == [4, 5, 6, 7])
    log.reader(reader, oldestUnread: 5)
    #expect(log.values == [6, 7, 8, 9])
  }

  @Test func deferredValuesMayBeRefusedWhenAppended() {
    let probe = Probe<[Int], TestError>()
    let (log, _) = Log.connected(to: probe, .waitForSlowest)
    _ = probe.send([1, 2, 3, 4, 50, 6])
    let old = log.freeze(start: .always, overflow: .waitForSlowest)
    log.append([70, 8])
    log.thaw(Ring(8, takingOver: old)) { $0.filter { $0 < 10 } }
    #expect(log.values == [1, 2, 3, 4, 6, 8])
  }
}
