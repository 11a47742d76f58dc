import Reactive
import Testing

// Operators with several upstreams. Demand, order and release are tested by the contract suite.
@Suite struct JunctionTests {
  private func signals<P: Publisher>(
    of publisher: P, demand: Subscribers.Demand = .unlimited
  ) -> [Signal<P.Output>] where P.Output: Equatable & Sendable {
    let recorder = Recorder<P.Output, P.Failure>(demand)
    publisher.subscribe(recorder)
    return recorder.signals
  }

  @Test func mergeDeliversInTheOrderOfArrival() {
    let a = PassthroughSubject<Int, Never>()
    let b = PassthroughSubject<Int, Never>()
    let recorder = Recorder<Int, Never>()
    a.map { $0 }.merge(with: b).subscribe(recorder)
    a.send(1)
    b.send(2)
    a.send(completion: .finished)
    b.send(3)
    b.send(completion: .finished)
    #expect(recorder.signals == [.subscribed, .value(1), .value(2), .value(3), .finished])
  }

  @Test func mergeEndsWithTheFirstFailureAndCancelsTheOthers() {  // row 5
    let a = Probe<Int, TestError>()
    let b = Probe<Int, TestError>()
    let recorder = Recorder<Int, TestError>()
    Publishers.MergeMany(a, b).subscribe(recorder)
    a.send(1)
    b.send(completion: .failure(TestError()))
    a.send(2)
    #expect(recorder.signals == [.subscribed, .value(1), .failed])
    #expect(a.state.cancels == 1)
  }

  @Test func mergeOfNoPublishersFinishesImmediately() {
    #expect(signals(of: Publishers.MergeMany([Just<Int>]())) == [.subscribed, .finished])
  }

  @Test func mergeRequestsOneValueAheadWhileDemandIsFinite() {  // row 21
    let a = Probe<Int, Never>()
    let b = Probe<Int, Never>()
    let recorder = Recorder<Int, Never>(.none)
    Publishers.MergeMany(a, b).subscribe(recorder)
    #expect(a.requested == .max(1) && b.requested == .max(1))
    recorder.request(1)
    a.send(1)
    b.send(2)
    #expect(recorder.values == [1])
    #expect(a.requested == .max(2) && b.requested == .max(1))
    recorder.request(1)
    #expect(recorder.values == [1, 2] && b.requested == .max(2))
    recorder.request(.unlimited)
    #expect(a.requested == .unlimited && b.requested == .unlimited)
  }

  @Test func completionFollowsTheValuesThatWaitForDemand() {  // row 13
    let recorder = Recorder<Int, Never>(.max(1))
    Just(1).merge(with: Just(2)).subscribe(recorder)
    #expect(recorder.signals == [.subscribed, .value(1)])
    recorder.request(1)
    #expect(recorder.signals == [.subscribed, .value(1), .value(2), .finished])
  }

  @Test func combineLatestDeliversOnceBothHaveAValue() {
    let a = PassthroughSubject<Int, Never>()
    let b = PassthroughSubject<Int, Never>()
    let recorder = Recorder<[Int], Never>()
    a.combineLatest(b) { [$0, $1] }.subscribe(recorder)
    a.send(1)
    a.send(2)
    b.send(10)
    b.send(20)
    a.send(completion: .finished)
    b.send(30)
    b.send(completion: .finished)
    #expect(recorder.signals == [.subscribed, .value([2, 10]), .value([2, 20]), .value([2, 30]), .finished])
  }

  @Test func valueWithoutDemandOnlyReplacesTheNewest() {  // row 15
    let a = CurrentValueSubject<Int, Never>(1)
    let b = CurrentValueSubject<Int, Never>(10)
    let recorder = Recorder<[Int], Never>(.max(1))
    a.combineLatest(b) { [$0, $1] }.subscribe(recorder)
    a.send(2)
    b.send(20)
    recorder.request(1)
    #expect(recorder.values == [[1, 10], [2, 20]])
  }

  @Test func zipDeliversPairs() {
    let numbers = (1...3).publisher
    #expect(
      signals(of: numbers.zip(["a", "b"].publisher) { "\($0)\($1)" })
        == [.subscribed, .value("1a"), .value("2b"), .finished])
    #expect(
      signals(of: numbers.zip(numbers, numbers, numbers) { [$0, $1, $2, $3] }.first())
        == [.subscribed, .value([1, 1, 1, 1]), .finished])
  }

  @Test func zipFinishesWhenAFinishedPublisherHasNoWaitingValue() {
    let a = PassthroughSubject<Int, Never>()
    let b = PassthroughSubject<Int, Never>()
    let recorder = Recorder<Int, Never>()
    a.zip(b, +).subscribe(recorder)
    a.send(1)
    a.send(2)
    a.send(completion: .finished)
    b.send(10)
    #expect(recorder.signals == [.subscribed, .value(11)])
    b.send(20)
    #expect(recorder.signals == [.subscribed, .value(11), .value(22), .finished])
  }

  @Test func outputOfTheOtherPublisherEndsOrStartsDelivery() {
    let source = PassthroughSubject<Int, Never>()
    let trigger = PassthroughSubject<Void, Never>()
    let until = Recorder<Int, Never>()
    let from = Recorder<Int, Never>(.max(1))
    source.prefix(untilOutputFrom: trigger).subscribe(until)
    source.drop(untilOutputFrom: trigger).subscribe(from)
    source.send(1)
    trigger.send()
    source.send(2)
    source.send(3)
    #expect(until.signals == [.subscribed, .value(1), .finished])
    #expect(from.signals == [.subscribed, .value(2)])
  }

  @Test func promptOtherPublisherEndsAPrefixAfterItsSubscription() {
    let (source, trigger) = (Probe<Int, Never>(), CurrentValueSubject<Int, Never>(1))
    let until = Recorder<Int, Never>()
    source.prefix(untilOutputFrom: trigger).subscribe(until)
    #expect(until.signals == [.subscribed, .finished] && source.state.subscriptions == 0)
    let end = Probe<Int, Never>()
    let from = Recorder<Int, Never>()
    source.drop(untilOutputFrom: end).subscribe(from)
    end.send(1)
    #expect(end.state.cancels == 1)
  }

  @Test func publisherThatArrivesDuringADeliveryFollowsIt() {
    let outer = PassthroughSubject<AnyPublisher<Int, Never>, Never>()
    nonisolated(unsafe) var notes: [String] = []
    let sink = outer.switchToLatest().sink { value in
      notes.append("\(value)")
      if value == 1 { outer.send([3, 4].publisher.eraseToAnyPublisher()) }
      notes.append("end of \(value)")
    }
    let inner = PassthroughSubject<Int, Never>()
    outer.send(inner.eraseToAnyPublisher())
    inner.send(1)
    inner.send(2)
    #expect(notes == ["1", "end of 1", "3", "end of 3", "4", "end of 4"])
    sink.cancel()
  }

  @Test func endOfTheOtherPublisherLeavesAPrefixAndEndsADrop() {
    let source = Probe<Int, TestError>()
    let until = Recorder<Int, TestError>()
    source.prefix(untilOutputFrom: Fail<Int, any Error>(error: TestError())).subscribe(until)
    #expect(until.signals == [.subscribed])
    let from = Recorder<Int, TestError>()
    source.drop(untilOutputFrom: Empty<Int, TestError>()).subscribe(from)
    #expect(from.signals == [.subscribed, .finished])
  }

  @Test func flatMapLimitsItsActivePublishers() {
    let outer = Probe<Int, Never>()
    nonisolated(unsafe) var inner: [PassthroughSubject<Int, Never>] = []
    let recorder = Recorder<Int, Never>()
    outer.flatMap(maxPublishers: .max(2)) { _ in
      inner.append(PassthroughSubject())
      return inner[inner.count - 1]
    }.subscribe(recorder)
    #expect(outer.requested == .max(2))
    outer.send(0)
    outer.send(1)
    inner[1].send(10)
    inner[0].send(20)
    inner[1].send(completion: .finished)
    #expect(outer.requested == .max(3))
    outer.send(completion: .finished)
    #expect(recorder.signals == [.subscribed, .value(10), .value(20)])
    inner[0].send(completion: .finished)
    #expect(recorder.signals == [.subscribed, .value(10), .value(20), .finished])
  }

  @Test func flatMapCountsPublishersWithWaitingValues() {  // row 21
    let recorder = Recorder<Int, Never>(.max(3))
    nonisolated(unsafe) var made = 0
    (0..<1000).publisher.flatMap(maxPublishers: .max(2)) { value in
      made += 1
      return Just(value)
    }.subscribe(recorder)
    #expect(recorder.values == [0, 1, 2])
    #expect(made <= 3 + 2)
    recorder.request(2)
    #expect(recorder.values == [0, 1, 2, 3, 4])
    #expect(made <= 5 + 2)
    recorder.subscription?.request(.unlimited)
    #expect(recorder.values == Array(0..<1000) && recorder.isEnded)
  }

  @Test func flatMapCancelsAllPublishers() {  // row 4
    let outer = Probe<Int, Never>()
    let inner = Probe<Int, Never>()
    let recorder = Recorder<Int, Never>()
    outer.flatMap { _ in inner }.subscribe(recorder)
    outer.send(0)
    outer.send(1)
    recorder.cancel()
    #expect(outer.state.cancels == 1 && inner.state.cancels == 2)
  }

  @Test func flatMapConvertsFailureTypes() {
    struct Other: Error {}
    let never = Just(1)
    let failing = Just(1).setFailureType(to: TestError.self)
    #expect(signals(of: never.flatMap { _ in failing }) == [.subscribed, .value(1), .finished])
    #expect(signals(of: failing.flatMap { _ in never }) == [.subscribed, .value(1), .finished])
    #expect(signals(of: never.map { _ in failing }.switchToLatest()) == [.subscribed, .value(1), .finished])
    #expect(signals(of: failing.map { _ in never }.switchToLatest()) == [.subscribed, .value(1), .finished])
  }

  @Test func latestPublisherReceivesTheUnmetDemand() {
    let outer = PassthroughSubject<Int, Never>()
    let recorder = Recorder<Int, Never>(.max(3))
    let inner = [Probe<Int, Never>(), Probe<Int, Never>()]
    outer.map { inner[$0] }.switchToLatest().subscribe(recorder)
    outer.send(0)
    #expect(inner[0].requested == .max(3))
    inner[0].send(1)
    outer.send(1)
    inner[0].send(2)
    #expect(inner[0].state.cancels == 1 && inner[1].requested == .max(2))
    inner[1].send(3)
    outer.send(completion: .finished)
    inner[1].send(completion: .finished)
    #expect(recorder.signals == [.subscribed, .value(1), .value(3), .finished])
  }

  @Test func deliveryContinuesWhenDemandSaturates() {  // row 15
    func values<P: Publisher<Int, Never>>(_ publisher: P) -> [Int] {
      let recorder = Recorder<Int, Never>(.max(.max)) { _, _ in .max(.max) }
      publisher.subscribe(recorder)
      #expect(recorder.isEnded)
      return recorder.values
    }
    let numbers = (0..<5).publisher
    #expect(values(numbers.map { $0 }.merge(with: Empty())) == [0, 1, 2, 3, 4])
    #expect(values(numbers.flatMap { _ in (0..<2).publisher }).count == 10)
    #expect(
      values(numbers.flatMap { $0 == 2 ? numbers.eraseToAnyPublisher() : Just($0).eraseToAnyPublisher() }).count == 9)
    #expect(values(numbers.flatMap { Just($0) }) == [0, 1, 2, 3, 4])
  }

  private final class Held: Equatable, Sendable {
    static func == (lhs: Held, rhs: Held) -> Bool { lhs === rhs }
  }
  private typealias Source = PassthroughSubject<Held, TestError>

  @Test(arguments: [true, false])
  func endReleasesTheWaitingValues(isCancelled: Bool) {  // row 20
    var subscriptions: [any Subscription] = []
    func held<P: Publisher>(_ make: (Source, Source) -> P) -> () -> Held? where P.Failure == TestError {
      let (a, b) = (Source(), Source())
      let subscriber = AnySubscriber<P.Output, TestError>(receiveSubscription: {
        subscriptions.append($0)
        $0.request(.max(1))
      })
      make(a, b).subscribe(subscriber)
      a.send(Held())
      let value = Held()
      b.send(value)
      if isCancelled { subscriptions.last?.cancel() } else { a.send(completion: .failure(TestError())) }
      return { [weak value] in value }
    }
    let merged = held { $0.merge(with: $1) }
    let flat = held { $0.merge(with: $1).flatMap { Just($0) } }
    let zipped = held { $0.dropFirst().zip($1) }
    let latest = held { $0.dropFirst().combineLatest($1) }
    let collected = held { $0.merge(with: $1).collect() }
    let last = held { $0.merge(with: $1).last() }
    for value in [merged, flat, zipped, latest, collected, last] { #expect(value() == nil) }
    withExtendedLifetime(subscriptions) {}
  }
}
