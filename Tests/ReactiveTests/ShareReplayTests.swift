import Locks
import Testing

@testable import Reactive

@Suite struct ShareReplayTests {
  // MARK: - Signals to a subscriber

  @Test func newSubscribersReceiveTheLastValuesThenLiveOnes() {  // row 12
    let subject = PassthroughSubject<Int, Never>()
    let shared = subject.shareReplay(capacity: 2)
    let first = Recorder<Int, Never>()
    let second = Recorder<Int, Never>()
    let third = Recorder<Int, Never>()
    shared.subscribe(first)
    (1...3).forEach(subject.send)
    shared.subscribe(second)
    (4...5).forEach(subject.send)
    subject.send(completion: .finished)
    shared.subscribe(third)
    #expect(first.signals == [.subscribed] + (1...5).map { .value($0) } + [.finished])
    #expect(second.signals == [.subscribed] + (2...5).map { .value($0) } + [.finished])
    #expect(third.signals == [.subscribed, .value(4), .value(5), .finished])
  }

  @Test func firstSubscriberReceivesAllValuesOfASynchronousUpstream() {  // rows 3, 14
    let recorder = Recorder<Int, Never>()
    (1...1000).publisher.shareReplay(capacity: 1).subscribe(recorder)
    #expect(recorder.values == Array(1...1000))
    #expect(recorder.isEnded)
  }

  @Test func valuesDeliveredInsideARequestAreNotLost() {  // row 22
    let recorder = Recorder<Int, Never>(.none)
    (1...1000).publisher.shareReplay(capacity: 1).subscribe(recorder)
    recorder.request(5)
    #expect(recorder.values == [1, 2, 3, 4, 5])
    recorder.request(500)
    #expect(recorder.values == Array(1...505))
  }

  @Test func replayIsDeliveredOnDemand() {  // rows 15, 22
    let subject = ReplaySubject<Int, Never>(bufferSize: 10)
    (1...5).forEach(subject.send)
    let recorder = Recorder<Int, Never>(.max(2))
    subject.shareReplay(5).subscribe(recorder)
    #expect(recorder.values == [1, 2])
    recorder.request(1)
    #expect(recorder.values == [1, 2, 3])
  }

  @Test func completionFollowsTheBacklog() {  // row 13
    let subject = PassthroughSubject<Int, TestError>()
    let recorder = Recorder<Int, TestError>(.none)
    let shared = subject.shareReplay(capacity: 3, start: .fromFirstSubscriber)
    shared.subscribe(recorder)
    (1...2).forEach(subject.send)
    subject.send(completion: .failure(TestError()))
    #expect(recorder.signals == [.subscribed])
    recorder.request(1)
    #expect(recorder.signals == [.subscribed, .value(1)])
    recorder.request(1)
    #expect(recorder.signals == [.subscribed, .value(1), .value(2), .failed])
  }

  @Test func completionWithoutABacklogNeedsNoDemand() {  // row 13
    let subject = PassthroughSubject<Int, Never>()
    let recorder = Recorder<Int, Never>(.none)
    subject.shareReplay(capacity: 3).subscribe(recorder)
    subject.send(completion: .finished)
    #expect(recorder.signals == [.subscribed, .finished])
  }

  @Test func capacityOfZeroDeliversLiveValuesAndKeepsTheEnd() {  // row 11
    let subject = PassthroughSubject<Int, TestError>()
    let shared = subject.shareReplay(capacity: 0)
    let early = Recorder<Int, TestError>()
    let late = Recorder<Int, TestError>()
    let afterwards = Recorder<Int, TestError>()
    shared.subscribe(early)
    subject.send(1)
    shared.subscribe(late)
    subject.send(2)
    subject.send(completion: .failure(TestError()))
    shared.subscribe(afterwards)
    #expect(early.signals == [.subscribed, .value(1), .value(2), .failed])
    #expect(late.signals == [.subscribed, .value(2), .failed])
    #expect(afterwards.signals == [.subscribed, .failed])
  }

  @Test func laggingSubscriberLosesTheOldestValuesAndReceivesTheirNumber() {  // rows 21, 27
    let lost = Locked<[UInt64]>([])
    let subject = PassthroughSubject<Int, Never>()
    let shared = subject.shareReplay(capacity: 3) { count in lost.withLock { $0.append(count) } }
    let fast = Recorder<Int, Never>()
    let slow = Recorder<Int, Never>(.max(1))
    shared.subscribe(fast)
    shared.subscribe(slow)
    (1...10).forEach(subject.send)
    #expect(slow.values == [1])
    slow.request(2)
    #expect(slow.values == [1, 8, 9])
    slow.request(5)
    (11...20).forEach(subject.send)
    #expect(slow.values == [1, 8, 9, 10, 11, 12, 13, 14])
    #expect(fast.values == Array(1...20))
    #expect(lost.withLock { $0 } == [6])
  }

  @Test func valuesSentInsideReceiveReachAllInOrder() {  // row 17
    let subject = PassthroughSubject<Int, Never>()
    let shared = subject.shareReplay(1)
    let first = Recorder<Int, Never> { _, value in
      if value < 30 { subject.send(value + 1) }
      return .none
    }
    let second = Recorder<Int, Never>()
    shared.subscribe(first)
    shared.subscribe(second)
    subject.send(1)
    #expect(first.values == Array(1...30))
    #expect(second.values == Array(1...30))
  }

  @Test func demandReturnedFromReceiveIsAdditional() {  // row 16
    let probe = Probe<Int, Never>()
    let recorder = Recorder<Int, Never>(.max(2)) { _, value in value == 1 ? .max(3) : .none }
    probe.shareReplay(2).subscribe(recorder)
    for value in 1...9 { probe.send(value) }
    #expect(recorder.values == [1, 2, 3, 4, 5])
    #expect(probe.requested == .max(5))
  }

  @Test func requestInsideReceiveDoesNotRecurse() {  // row 17
    let recorder = Recorder<Int, Never>(.max(1)) { recorder, _ in
      recorder.request(1)
      return .none
    }
    (0..<100_000).publisher.shareReplay(1).subscribe(recorder)
    #expect(recorder.values.count == 100_000)
  }

  @Test func hugeDemandSaturates() {  // row 15
    let probe = Probe<Int, Never>()
    let recorder = Recorder<Int, Never>(.max(.max))
    probe.shareReplay(1).subscribe(recorder)
    for _ in 1...3 { recorder.request(.max) }
    #expect(probe.requested == .unlimited)
    for value in 1...3 { probe.send(value) }
    #expect(recorder.values == [1, 2, 3])
  }

  @Test func cancelInsideReceiveStopsImmediately() {  // rows 18, 20
    let subject = PassthroughSubject<Int, Never>()
    let shared = subject.shareReplay(capacity: 5, start: .fromFirstSubscriber)
    let keeper = Recorder<Int, Never>()
    shared.subscribe(keeper)
    (1...5).forEach(subject.send)
    let recorder = Recorder<Int, Never> { recorder, value in
      if value == 2 { recorder.cancel() }
      return .unlimited
    }
    shared.subscribe(recorder)
    subject.send(6)
    subject.send(completion: .finished)
    recorder.request(1)
    recorder.cancel()
    #expect(recorder.signals == [.subscribed, .value(1), .value(2)])
  }

  @Test func subscriptionInsideReceiveReceivesLaterValues() {  // row 18
    let subject = PassthroughSubject<Int, Never>()
    let shared = subject.shareReplay(2)
    let late = Recorder<Int, Never>()
    let recorder = Recorder<Int, Never> { _, value in
      if value == 2 { shared.subscribe(late) }
      return .none
    }
    shared.subscribe(recorder)
    (1...3).forEach(subject.send)
    #expect(recorder.values == [1, 2, 3])
    #expect(late.values == [1, 2, 3])
  }

  // MARK: - Demand and cancellation upstream

  @Test func upstreamDemandEqualsTheLargestDemandOfASubscriber() {
    let probe = Probe<Int, Never>()
    let shared = probe.shareReplay(2)
    let modest = Recorder<Int, Never>(.max(3))
    let greedy = Recorder<Int, Never>(.max(5))
    shared.subscribe(modest)
    #expect(probe.requested == .max(3))
    shared.subscribe(greedy)
    #expect(probe.requested == .max(5))
    modest.request(1)
    #expect(probe.requested == .max(5))
    modest.request(2)
    #expect(probe.requested == .max(6))
    greedy.request(.unlimited)
    modest.request(50)
    #expect(probe.requested == .unlimited)
    #expect(probe.state.subscriptions == 1)
  }

  @Test func replayedValuesAreNotRequestedAgain() {
    let probe = Probe<Int, Never>()
    let shared = probe.shareReplay(2)
    let first = Recorder<Int, Never>(.max(2))
    shared.subscribe(first)
    probe.send(1)
    probe.send(2)
    let second = Recorder<Int, Never>(.max(3))
    shared.subscribe(second)
    #expect(second.values == [1, 2])
    #expect(probe.requested == .max(3))
  }

  @Test func withoutDemandNothingIsRequested() {
    let probe = Probe<Int, Never>()
    let recorder = Recorder<Int, Never>(.none)
    probe.shareReplay(1).subscribe(recorder)
    #expect(probe.state.subscriptions == 1)
    #expect(probe.state.requested.isEmpty)
  }

  @Test func unlimitedDemandStartsWithTheFirstSubscriber() {
    let probe = Probe<Int, Never>()
    let shared = probe.shareReplay(capacity: 2, start: .fromFirstSubscriber)
    #expect(probe.state.subscriptions == 0)
    let recorder = Recorder<Int, Never>(.none)
    shared.subscribe(recorder)
    #expect(probe.requested == .unlimited)
    recorder.cancel()
    #expect(probe.state.cancels == 0)
    shared.subscribe(Recorder<Int, Never>())
    #expect(probe.state.subscriptions == 1)
  }

  @Test func alwaysConnectsWithoutASubscriber() {
    let probe = Probe<Int, Never>()
    let shared = probe.shareReplay(capacity: 2, start: .always)
    #expect(probe.requested == .unlimited)
    for value in 1...3 { probe.send(value) }
    let recorder = Recorder<Int, Never>()
    shared.subscribe(recorder)
    #expect(recorder.values == [2, 3])
    #expect(probe.state.subscriptions == 1)
  }

  @Test func upstreamIsCancelledWhenTheSharedPublisherIsReleased() {
    let probe = Probe<Int, Never>()
    do {
      let shared = probe.shareReplay(capacity: 2, start: .always)
      let recorder = Recorder<Int, Never>()
      shared.subscribe(recorder)
      recorder.cancel()
      #expect(probe.state.cancels == 0)
    }
    #expect(probe.state.cancels == 1)
  }

  @Test func subscribersKeepTheSharedPublisherAlive() {
    let probe = Probe<Int, Never>()
    let recorder = Recorder<Int, Never>()
    probe.shareReplay(capacity: 2, start: .fromFirstSubscriber).subscribe(recorder)
    probe.send(1)
    #expect(recorder.values == [1])
    recorder.cancel()
    #expect(probe.state.cancels == 1)
  }

  // MARK: - Completion and reconnection

  @Test func lastCancellationCancelsUpstream() {  // row 8
    let probe = Probe<Int, Never>()
    let shared = probe.shareReplay(1)
    let recorders = [Recorder<Int, Never>(), Recorder<Int, Never>()]
    recorders.forEach(shared.subscribe)
    recorders[0].cancel()
    recorders[0].cancel()
    #expect(probe.state.cancels == 0)
    recorders[1].cancel()
    #expect(probe.state.cancels == 1)
  }

  @Test func subscriberAfterADisconnectReceivesTheReplayAndANewSubscription() {
    let probe = Probe<Int, Never>()
    let shared = probe.shareReplay(2)
    let first = Recorder<Int, Never>(.max(5))
    shared.subscribe(first)
    probe.send(1)
    first.cancel()
    let second = Recorder<Int, Never>(.max(3))
    shared.subscribe(second)
    #expect(probe.state.subscriptions == 2)
    #expect(probe.state.requested.last == .max(2))
    probe.send(7)
    #expect(second.values == [1, 7])
  }

  @Test func finishedSourceIsReplayedWithoutSubscribingAgain() {  // row 9
    let probe = Probe<Int, Never> { probe in
      probe.send(1)
      probe.send(completion: .finished)
    }
    let shared = probe.shareReplay(5)
    for _ in 1...3 {
      let recorder = Recorder<Int, Never>()
      shared.subscribe(recorder)
      #expect(recorder.signals == [.subscribed, .value(1), .finished])
    }
    #expect(probe.state.subscriptions == 1)
  }

  @Test func failureIsReplayed() {  // row 10, as decided for the library
    let probe = Probe<Int, TestError> { probe in
      probe.send(1)
      probe.send(completion: .failure(TestError()))
    }
    let shared = probe.shareReplay(5)
    for _ in 1...2 {
      let recorder = Recorder<Int, TestError>()
      shared.subscribe(recorder)
      #expect(recorder.signals == [.subscribed, .value(1), .failed])
    }
    #expect(probe.state.subscriptions == 1)
  }

  @Test func synchronousSourceIsSubscribedToOnce() {  // row 7
    let empty = Probe<Int, TestError> { $0.send(completion: .finished) }
    let failing = Probe<Int, TestError> { $0.send(completion: .failure(TestError())) }
    for probe in [empty, failing] {
      let shared = probe.shareReplay(1)
      let first = Recorder<Int, TestError>()
      let second = Recorder<Int, TestError>()
      shared.subscribe(first)
      shared.subscribe(second)
      #expect(first.signals.count == 2 && first.signals == second.signals)
      #expect(probe.state.subscriptions == 1)
      #expect(shared.log.subscriberCount == 0)
    }
  }

  @Test func cancelDuringSubscribeNeverConnects() {  // row 4
    final class Leaver: Subscriber {
      typealias Input = Int
      typealias Failure = Never
      func receive(subscription: any Subscription) {
        subscription.request(.unlimited)
        subscription.cancel()
      }
      func receive(_ input: Int) -> Subscribers.Demand { .none }
      func receive(completion: Subscribers.Completion<Never>) {}
    }
    let probe = Probe<Int, Never>()
    let shared = probe.shareReplay(1)
    shared.subscribe(Leaver())
    #expect(probe.state.subscriptions == 0)
    #expect(shared.log.subscriberCount == 0)
  }

  @Test func cancelWhileConnectingCancelsUpstream() {  // row 4
    let recorder = Recorder<Int, Never>()
    let probe = Probe<Int, Never> { _ in recorder.cancel() }
    let shared = probe.shareReplay(1)
    shared.subscribe(recorder)
    #expect(probe.state.cancels == 1)
    #expect(!shared.log.isConnected && shared.log.subscriberCount == 0)
  }

  @Test func demandMetByTheReplayDoesNotConnect() {
    let probe = Probe<Int, Never>()
    let shared = probe.shareReplay(1)
    let first = Recorder<Int, Never>()
    shared.subscribe(first)
    probe.send(1)
    first.cancel()
    let second = Recorder<Int, Never>()
    shared.first().subscribe(second)
    #expect(second.signals == [.subscribed, .value(1), .finished])
    #expect(probe.state.subscriptions == 1)
  }

  @Test func subscriptionInsideTheCompletionReceivesTheEnd() {  // row 5
    let subject = PassthroughSubject<Int, TestError>()
    let shared = subject.shareReplay(1)
    let second = Recorder<Int, TestError>()
    let counts = Locked<[Int]>([])
    let sink = shared.sink { _ in
      counts.withLock { $0.append(shared.log.subscriberCount) }
      shared.subscribe(second)
    } receiveValue: { _ in
    }
    subject.send(1)
    subject.send(completion: .failure(TestError()))
    #expect(second.signals == [.subscribed, .value(1), .failed])
    #expect(counts.withLock { $0 } == [0])
    sink.cancel()
  }

  @Test func valuesOfAnEndedConnectionAreIgnored() {  // row 20
    let probe = Probe<Int, Never>()
    let shared = probe.shareReplay(5)
    let first = Recorder<Int, Never>()
    shared.subscribe(first)
    let dead = probe.state.subscriber
    first.cancel()
    let second = Recorder<Int, Never>()
    shared.subscribe(second)
    #expect(dead?.receive(666) == Subscribers.Demand.none)
    dead?.receive(completion: .finished)
    probe.send(1)
    #expect(second.signals == [.subscribed, .value(1)])
  }

  // MARK: - Linger, with a manual clock

  @Test func upstreamIsCancelledAfterTheLinger() {
    let clock = ManualClock()
    let probe = Probe<Int, Never>()
    let shared = Publishers.ShareReplay(
      upstream: probe, capacity: 1, start: .whileSubscribed(linger: .seconds(30)), schedule: clock.schedule)
    let recorder = Recorder<Int, Never>()
    shared.subscribe(recorder)
    recorder.cancel()
    #expect(shared.log.isConnected && probe.state.cancels == 0)
    #expect(clock.pending.map(\.delay) == [.seconds(30)])
    clock.all[0].body()
    #expect(!shared.log.isConnected && probe.state.cancels == 1)
  }

  @Test func subscriberDuringTheLingerKeepsTheConnection() {  // row 2
    let clock = ManualClock()
    let probe = Probe<Int, Never>()
    let shared = Publishers.ShareReplay(
      upstream: probe, capacity: 1, start: .whileSubscribed(linger: .seconds(30)), schedule: clock.schedule)
    let first = Recorder<Int, Never>()
    shared.subscribe(first)
    first.cancel()
    let second = Recorder<Int, Never>()
    shared.subscribe(second)
    #expect(clock.pending.isEmpty)
    clock.all[0].body()  // expired before, and runs late
    probe.send(1)
    #expect(second.values == [1])
    second.cancel()
    clock.all[0].body()  // not the linger that has just started
    #expect(probe.state.cancels == 0)
    clock.all[1].body()
    #expect(probe.state.cancels == 1 && probe.state.subscriptions == 1)
  }

  @Test func endDuringTheLingerCancelsTheLinger() {  // row 6
    let clock = ManualClock()
    let probe = Probe<Int, Never>()
    let shared = Publishers.ShareReplay(
      upstream: probe, capacity: 1, start: .whileSubscribed(linger: .seconds(30)), schedule: clock.schedule)
    let first = Recorder<Int, Never>()
    shared.subscribe(first)
    probe.send(1)
    first.cancel()
    probe.send(completion: .finished)
    #expect(clock.pending.isEmpty)
    clock.all[0].body()
    #expect(probe.state.cancels == 0)
    let second = Recorder<Int, Never>()
    shared.subscribe(second)
    #expect(second.signals == [.subscribed, .value(1), .finished])
    #expect(probe.state.subscriptions == 1)
  }
}
