import Testing

@testable import Reactive

@Suite struct LosslessLogTests {
  private typealias Log = SharedLog<Ring, Never>

  @Test func upstreamWaitsForTheSlowestReader() {
    let probe = Probe<[Int], Never>()
    let (log, slow) = Log.connected(to: probe, .waitForSlowest)
    let fast = SilentReader()
    log.attach(fast)
    log.reader(fast, oldestUnread: 0)
    #expect(probe.send([1, 2, 3]) == .max(1))
    #expect(probe.send([4, 5, 6, 7, 8, 9]) == Subscribers.Demand.none)
    #expect(log.values == [1, 2, 3, 4])
    #expect(log.positionUpstreamWaitsFor == 0)
    log.reader(fast, oldestUnread: 4)
    #expect(log.values == [1, 2, 3, 4])
    log.reader(slow, oldestUnread: 3)
    #expect(log.values == [4, 5, 6, 7])
    #expect(log.positionUpstreamWaitsFor == 3)
    log.reader(slow, oldestUnread: 7)
    #expect(log.values == [5, 6, 7, 8])
    log.reader(fast, oldestUnread: 7)
    #expect(log.values == [6, 7, 8, 9])
    #expect(probe.requested == .max(3) && log.positionUpstreamWaitsFor == nil)
  }

  @Test func fullLogRequestsNothing() {
    let probe = Probe<[Int], Never>()
    let (log, reader) = Log.connected(to: probe, .waitForSlowest)
    #expect(probe.send([1, 2, 3, 4]) == Subscribers.Demand.none)
    log.reader(reader, oldestUnread: 1)
    #expect(probe.requested == .max(2))
  }

  @Test func detachedReaderHoldsNoValues() {
    let probe = Probe<[Int], Never>()
    let (log, reader) = Log.connected(to: probe, .waitForSlowest)
    _ = probe.send([1, 2, 3, 4, 5, 6])
    log.detach(reader)
    log.subscriberLeft()
    #expect(log.values == [3, 4, 5, 6])
    #expect(probe.requested == .max(2))
    #expect(log.reader(reader, oldestUnread: 3) == 3)  // a late call by a detached reader
    #expect(probe.send([7, 8]) == .max(1))
  }

  @Test func newReaderHoldsTheLogFromItsOldestValue() {
    let probe = Probe<[Int], Never>()
    let (log, reader) = Log.connected(to: probe, .waitForSlowest)
    log.reader(reader, oldestUnread: .max)
    _ = probe.send([1, 2, 3, 4, 5, 6])
    #expect(log.reader(reader, oldestUnread: 1) == 2)
  }

  @Test func endFollowsTheDeferredValues() {  // SEMANTICS 13
    let probe = Probe<[Int], Never>()
    let (log, reader) = Log.connected(to: probe, .waitForSlowest)
    _ = probe.send([1, 2, 3, 4, 5])
    probe.send(completion: .finished)
    probe.send(completion: .finished)
    #expect(!log.hasEnded && !log.isConnected)
    log.reader(reader, oldestUnread: 4)
    #expect(log.values == [2, 3, 4, 5])
    #expect(log.hasEnded && log.read { _, completion in completion?.isFinished == true })
  }

  @Test func aLogThatAwaitsAReaderKeepsWhatNobodyHasRead() {
    let probe = Probe<[Int], Never>()
    let log = Log(storage: Ring(4), start: .always, demand: .oneAtATime, overflow: .waitForReader)
    log.setUpstream(probe.eraseToAnyPublisher())
    log.start()
    #expect(probe.requested == .max(1))
    #expect(probe.send([1, 2, 3]) == .max(1) && !log.isHeld)
    #expect(probe.send([4, 5]) == Subscribers.Demand.none && log.isHeld)
    #expect(log.values == [1, 2, 3, 4])
    let reader = SilentReader()
    log.attach(reader)
    #expect(log.reader(reader, oldestUnread: 0) == 0)
    log.reader(reader, oldestUnread: 3)
    #expect(log.values == [2, 3, 4, 5])
    // What it has read may go after it has left, and nothing else.
    log.detach(reader)
    #expect(probe.send([6, 7]) == Subscribers.Demand.none && log.values == [4, 5, 6, 7] && log.isHeld)
    let other = SilentReader()
    log.attach(other)
    log.reader(other, oldestUnread: 4)
    #expect(!log.isHeld && probe.send([8]) == Subscribers.Demand.none && log.values == [5, 6, 7, 8])
  }

  @Test func unrequestedValuesWaitForRoom() {
    let probe = Probe<[Int], Never>()
    let (log, reader) = Log.connected(to: probe, .waitForSlowest)
    for value in 1...9 { _ = probe.send([value]) }
    log.reader(reader, oldestUnread: 4)
    #expect(log.values == [5, 6, 7, 8])
    log.reader(reader, oldestUnread: 8)
    #expect(log.values == [6, 7, 8, 9])
  }

  @Test func roomWithoutDemandRequestsNothing() {
    let probe = Probe<[Int], Never>()
    let (log, reader) = Log.connected(to: probe, .waitForSlowest, .whileSubscribed(linger: .zero))
    log.reader(reader, requestedThrough: 1)
    #expect(probe.send([1, 2]) == Subscribers.Demand.none)
    log.reader(reader, oldestUnread: 2)
    #expect(probe.requested == .max(1))
    log.reader(reader, requestedThrough: 3)
    #expect(probe.requested == .max(2))
  }
}
