import Events
import Foundation
import Reactive
import TestSupport
import Testing

@testable import StreamSources

@Suite struct TickCounterTests {
  @Test func ticksOnTimeCountUp() {
    var counter = TickCounter(interval: 100)
    #expect([5000, 5100, 5200, 5300].map { counter.number(at: $0) } == [1, 2, 3, 4])
  }

  @Test func aDelayBelowAnIntervalIsNotCounted() {
    var counter = TickCounter(interval: 100)
    #expect([5000, 5199, 5200, 5399, 5401].map { counter.number(at: $0) } == [1, 2, 3, 4, 5])
  }

  @Test func aLateFirstTickIsCounted() {
    var counter = TickCounter(interval: 100)
    #expect([5090, 5100, 5200, 5300, 5900].map { counter.number(at: $0) } == [1, 2, 3, 4, 10])
  }

  @Test func missedTicksAreAStepInTheCount() {  // row 30
    var counter = TickCounter(interval: 100)
    #expect([0, 100, 700, 800, 1_000_000].map { counter.number(at: $0) } == [1, 2, 8, 9, 10_001])
  }
}

@Suite(.timeLimit(.minutes(10))) struct TimerSourceTests {
  private struct Event: Decodable {
    let tick: Int
    let time: String
  }

  private func decode(_ events: [String]) throws -> [Event] {
    try events.map { try JSONDecoder().decode(Event.self, from: Data($0.utf8)) }
  }

  @Test func eachTickIsABatchOfOneEvent() async throws {
    let taker = Taker(.max(5))
    TimerSource(every: .milliseconds(2)).subscribe(taker)
    let events = try decode(await taker.next(5))
    taker.cancel()
    #expect(events.first?.tick == 1)
    #expect(zip(events, events.dropFirst()).allSatisfy { $0.tick < $1.tick && $0.time <= $1.time })
    #expect(events.allSatisfy { $0.time.wholeMatch(of: /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/) != nil })
  }

  @Test func ticksWithoutDemandAreMissedAndCounted() async throws {  // row 30
    let taker = Taker(.max(1))
    TimerSource(every: .milliseconds(2)).subscribe(taker)
    _ = await taker.next(1)
    let clock = Taker(.max(20))
    TimerSource(every: .milliseconds(2)).subscribe(clock)
    _ = await clock.next(20)
    taker.request(.max(1))
    let events = try decode(await taker.next(1))
    #expect(taker.count == 2)
    #expect(events.first?.tick ?? 0 > 2)
    taker.cancel()
    clock.cancel()
  }

  @Test func itFinishesAfterTheGivenNumberOfEvents() async throws {
    let taker = Taker(.unlimited)
    TimerSource(every: .milliseconds(1), leeway: .microseconds(500), times: 3).subscribe(taker)
    #expect(await taker.next(1000).count == 3)
  }

  @Test func aSubscriptionThatResumesCountsOnFromTheLog() async throws {
    let stored = Shared<Checkpoint?>(nil)
    let resumption = SourceResumption { stored.withLock { $0 } }
    var last = 0
    for _ in 0..<3 {
      let taker = Taker(.max(3))
      TimerSource(every: .milliseconds(2), resumption: resumption).handleEvents(receiveOutput: { batch in
        stored.withLock { $0 = batch.checkpoint }
      }).subscribe(taker)
      let ticks = try decode(await taker.next(3)).map(\.tick)
      taker.cancel()
      #expect(ticks.first == last + 1 && Set(ticks).count == 3 && ticks == ticks.sorted(), "\(ticks) after \(last)")
      last = try #require(ticks.last)
    }
    // What another source has left there, and a number at the limit.
    for checkpoint in [Checkpoint([1, 2, 3]), SourcePosition.timer(lastTick: 5).checkpoint(BodyDigest(value: 1))] {
      stored.withLock { $0 = checkpoint }
      let taker = Taker(.max(1))
      TimerSource(every: .milliseconds(2), resumption: resumption).subscribe(taker)
      #expect(try decode(await taker.next(1)).first?.tick == 1)
      taker.cancel()
    }
  }

  @Test func everySubscriptionHasItsOwnCount() async throws {
    let source = TimerSource(every: .milliseconds(2))
    for _ in 0..<2 {
      let taker = Taker(.max(1))
      source.subscribe(taker)
      #expect(try decode(await taker.next(1)).first?.tick == 1)
      taker.cancel()
    }
  }
}
