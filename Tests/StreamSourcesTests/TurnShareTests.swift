import Events
import Glibc
import Reactive
import Synchronization
import TestSupport
import Testing

@testable import StreamRuntime
@testable import StreamSources

/// The share of an upstream in one turn of the source thread. The test runs the thread: it counts turns.
@Suite(.timeLimit(.minutes(10))) struct TurnShareTests {
  let upstream: Upstream
  let key = uniqueKey()

  init() throws { upstream = try Upstream.shared.get() }

  /// Bytes of events per turn. Has unlimited demand, and takes time for each batch.
  private final class Meter: Subscriber, Sendable {
    typealias Input = EventBatch
    typealias Failure = Never
    private let subscription = Locked<(any Subscription)?>(nil)
    let turns = Locked<[UInt64: Int]>([:])
    let loop: EventLoop
    let pause: UInt32

    /// - Parameter pause: microseconds that each batch takes.
    init(_ loop: EventLoop, pause: UInt32 = 0) { (self.loop, self.pause) = (loop, pause) }

    func receive(subscription: any Subscription) {
      self.subscription.withLock { $0 = subscription }
      subscription.request(.unlimited)
    }

    func receive(_ batch: EventBatch) -> Subscribers.Demand {
      turns.withLock { $0[loop.now, default: 0] += batch.byteCount + batch.count }
      usleep(pause)
      return .none
    }

    func receive(completion: Subscribers.Completion<Never>) {}
    func cancel() { subscription.withLock { $0 }?.cancel() }
    var byteCount: Int { turns.withLock { $0.values.reduce(0, +) } }
  }

  private func floods(_ count: Int, pause: UInt32 = 0, on thread: SourceThread) -> [Meter] {
    (0..<count).map { number in
      let meter = Meter(thread.loop, pause: pause)
      let configuration = HTTPConfiguration(url: upstream.url("/dense/\(number)\(key)"))
      HTTPStream(configuration, format: .lines).source(on: thread).subscribe(meter)
      return meter
    }
  }

  /// A turn, and a pause for other tests.
  private func turn(_ thread: SourceThread) async throws {
    thread.loop.runOneTurn()
    try await Task.sleep(for: .milliseconds(1))
  }

  @Test func aFloodStaysWithinItsShareOfATurnAndPollsContinue() async throws {
    let thread = try SourceThread(transfersPerHost: 8)
    let meters = floods(3, on: thread)
    let polls = Meter(thread.loop)
    HTTPPoll(HTTPConfiguration(url: upstream.otherURL("/count/\(key)")), every: .milliseconds(1)).source(on: thread)
      .subscribe(polls)
    let share = 4 * HTTPClient.shareOfTurn
    while meters.contains(where: { $0.byteCount < 4 * share }) || polls.turns.withLock({ $0.count }) < 20 {
      try await turn(thread)
    }
    // Complete lines: one that began in the previous turn may be included.
    for meter in meters { #expect(meter.turns.withLock { $0.values.max() ?? 0 } <= HTTPClient.shareOfTurn + 2) }
    thread.stop()
    thread.loop.runOneTurn()
  }

  @Test func aTurnOverItsTimeLeavesTheRestToTheNextTurn() async throws {
    let thread = try SourceThread(transfersPerHost: 8)
    let meters = floods(4, pause: 6000, on: thread)
    while meters.contains(where: { $0.turns.withLock { $0.count } < 8 }) { try await turn(thread) }
    var batches: [UInt64: Int] = [:]
    for meter in meters { for turn in meter.turns.withLock({ $0.keys }) { batches[turn, default: 0] += 1 } }
    // Each batch takes longer than a turn's share.
    #expect(batches.values.allSatisfy { $0 == 1 })
    let counts = meters.map { $0.turns.withLock { $0.count } }
    #expect((counts.max() ?? 0) <= 3 * (counts.min() ?? 0), "\(counts)")
    thread.stop()
    thread.loop.runOneTurn()
  }
}
