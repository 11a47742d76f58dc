import Events
import Testing

@testable import ReplayLog

/// What a source has lost, in a log.
@Suite struct LossTests {
  private func batch(_ events: [[UInt8]], _ loss: EventLoss?, _ checkpoint: UInt8? = nil) -> EventBatch {
    var batch = EventBatch(events)
    batch.loss = loss
    batch.checkpoint = checkpoint.flatMap { Checkpoint([$0]) }
    return batch
  }

  @Test func aLossIsAHoleBeforeTheEvents() throws {
    let log = try #require(EventLog(name: "d", limits: EventLog.Limits(events: 16), firstID: 100))
    log.append([[1]])
    log.append(batch([], .known(5), 1))
    #expect(log.endPosition == 106 && log.newestID == 100 && log.checkpoint?.bytes == [1])
    log.append(batch([[2]], .unknown))
    #expect(log.newestID == 107 && log.firstPosition == 100 && log.skip(101) == 107)
    #expect(log.loss(from: 100, to: 107) == .unknown && log.loss(from: 50, to: 107) == .possible)
    #expect(log.loss(from: 107, to: 108) == .known(1) && log.appendedEvents == 2)
  }

  @Test func aSecondLossEvictsWhatIsBeforeTheFirst() throws {
    let log = try #require(EventLog(name: "d", limits: EventLog.Limits(events: 16), firstID: 100))
    log.append([[1]])
    log.append(batch([[2]], .known(5)))
    #expect(log.firstPosition == 100)
    log.append(batch([[3]], .known(0)))
    #expect(log.firstPosition == 106 && log.newestID == 108 && log.appendedEvents == 3)
  }

  @Test func aLossWaitsWithItsBatchForHeldEvents() throws {
    let log = try #require(EventLog(name: "d", limits: EventLog.Limits(events: 16), firstID: 100))
    log.append([[1]])
    log.append(batch([[2]], .known(5)))
    log.hold(from: 100)
    let third = batch([[3]], .known(1), 3)
    #expect(log.appendWhatFits(third) == third)
    #expect(log.endPosition == 107 && log.checkpoint == nil)
    log.hold(from: 106)
    #expect(log.appendWhatFits(third) == nil)
    #expect(log.firstPosition == 106 && log.newestID == 108 && log.checkpoint?.bytes == [3])
  }

  @Test func aPossibleLossEvictsNothing() throws {
    let log = try #require(EventLog(name: "d", limits: EventLog.Limits(events: 16), firstID: 100))
    log.append([[1]])
    log.append(batch([[2]], .possible))
    #expect(log.newestID == 102 && log.skip(101) == 102)
    log.append(batch([[3]], .possible, 1))
    #expect(log.firstPosition == 100 && log.newestID == 103 && log.checkpoint?.bytes == [1])
  }

  @Test func aPositionWithoutAnEventNeedsNoRoom() throws {
    let log = try #require(EventLog(name: "d", limits: EventLog.Limits(events: 2), firstID: 1))
    log.append([[1], [2]])
    log.hold(from: 1)
    #expect(log.isFull && log.appendWhatFits(batch([], nil, 7)) == nil && log.checkpoint?.bytes == [7])
  }

  @Test func aBatchThatFillsUpTheLogIsSplitAfterItsLoss() throws {
    let log = try #require(EventLog(name: "d", limits: EventLog.Limits(events: 2), firstID: 1))
    log.append([[1]])
    log.hold(from: 1)
    let rest = log.appendWhatFits(batch([[2], [3]], .known(4)))
    #expect(rest == [[3]] && log.newestID == 6)
    log.hold(from: 6)
    #expect(log.appendWhatFits(try #require(rest)) == nil && log.newestID == 7)
  }
}
