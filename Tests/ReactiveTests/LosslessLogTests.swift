import Testing

@testable import Reactive

@Suite struct LosslessLogTests {
  private typealias Log = SharedLog<Ring, Never>

  private func connectedLog(
    _ probe: Probe<[Int], Never>, _ start: ShareStart = .always
  ) -> (log: Log, reader: SilentReader) {
    let log = Log(storage: Ring(4), start: start, demand: .oneAtATime, overflow: .waitForSlowest)
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

  @Test func upstreamWaitsForTheSlowestAndNothingIsLost() {
    let probe = Probe<[Int], Never>()
    let (log, slow) = connectedLog(probe)
    let fast = SilentReader()
    log.attach(fast)
    log.reader(fast, holdsFrom: 0)
    #expect(probe.send([1, 2, 3]) == .max(1))
    #expect(probe.send([4, 5, 6, 7, 8, 9]) == Subscribers.Demand.none)
    #expect(held(log) == [1, 2, 3, 4])
    #expect(log.upstreamWaits(forReaderAt: 0))
    log.reader(fast, holdsFrom: 4)
    #expect(held(log) == [1, 2, 3, 4])
    log.reader(slow, holdsFrom: 3)
    #expect(held(log) == [4, 5, 6, 7])
    #expect(log.upstreamWaits(forReaderAt: 3) && !log.upstreamWaits(forReaderAt: 4))
    log.reader(slow, holdsFrom: 7)
    #expect(held(log) == [5, 6, 7, 8])
    log.reader(fast, holdsFrom: 7)
    #expect(held(log) == [6, 7, 8, 9])
    #expect(probe.requested == .max(3) && !log.upstreamWaits(forReaderAt: 7))
  }

  @Test func aFullLogIsNotAskedForMoreThoughItHasTakenEverything() {
    let probe = Probe<[Int], Never>()
    let (log, reader) = connectedLog(probe)
    #expect(probe.send([1, 2, 3, 4]) == Subscribers.Demand.none)
    log.reader(reader, holdsFrom: 1)
    #expect(probe.requested == .max(2))
  }

  @Test func whoeverLeavesNoLongerHoldsAnything() {
    let probe = Probe<[Int], Never>()
    let (log, reader) = connectedLog(probe)
    _ = probe.send([1, 2, 3, 4, 5, 6])
    log.detach(reader)
    log.subscriberLeft()
    #expect(held(log) == [3, 4, 5, 6])
    #expect(probe.requested == .max(2))
    #expect(log.reader(reader, holdsFrom: 3) == 3)  // a late word of one who is gone
    #expect(probe.send([7, 8]) == .max(1))
  }

  @Test func aReaderThatComesHoldsFromTheOldestThatIsStillThere() {
    let probe = Probe<[Int], Never>()
    let (log, reader) = connectedLog(probe)
    log.reader(reader, holdsFrom: .max)
    _ = probe.send([1, 2, 3, 4, 5, 6])
    #expect(log.reader(reader, holdsFrom: 1) == 2)
  }

  @Test func theEndComesAfterWhatHadNoRoom() {  // SEMANTICS 13
    let probe = Probe<[Int], Never>()
    let (log, reader) = connectedLog(probe)
    _ = probe.send([1, 2, 3, 4, 5])
    probe.send(completion: .finished)
    probe.send(completion: .finished)
    #expect(!log.hasEnded && !log.isConnected)
    log.reader(reader, holdsFrom: 4)
    #expect(held(log) == [2, 3, 4, 5])
    #expect(log.hasEnded && log.read { _, completion in completion?.isFinished == true })
  }

  @Test func whatIsSentWithoutBeingAskedForWaitsItsTurn() {
    let probe = Probe<[Int], Never>()
    let (log, reader) = connectedLog(probe)
    for value in 1...9 { _ = probe.send([value]) }
    log.reader(reader, holdsFrom: 4)
    #expect(held(log) == [5, 6, 7, 8])
    log.reader(reader, holdsFrom: 8)
    #expect(held(log) == [6, 7, 8, 9])
  }

  @Test func withoutDemandFromAnybodyUpstreamIsNotAskedThoughThereIsRoom() {
    let probe = Probe<[Int], Never>()
    let (log, reader) = connectedLog(probe, .whileSubscribed(linger: .zero))
    log.reader(reader, wantsThrough: 1)
    #expect(probe.send([1, 2]) == Subscribers.Demand.none)
    log.reader(reader, holdsFrom: 2)
    #expect(probe.requested == .max(1))
    log.reader(reader, wantsThrough: 3)
    #expect(probe.requested == .max(2))
  }
}
