import Dispatch
import Foundation
import Reactive
import Testing

// Documented behaviour of Combine that programs depend on, in single cases.
@Suite(.timeLimit(.minutes(10))) struct CombineTests {
  @Test func eachChangeOfACurrentValueIsDeliveredOnce() {
    let subject = CurrentValueSubject<Int, Never>(0)
    let recorder = Recorder<Int, Never>(.none)
    subject.subscribe(recorder)
    subject.send(1)
    for _ in 0..<3 { recorder.request(1) }
    #expect(recorder.values == [1])
    subject.send(2)
    subject.send(3)
    subject.send(4)
    subject.send(5)
    recorder.request(1)
    recorder.request(1)
    #expect(recorder.values == [1, 2, 3, 5])
  }

  @Test func aCurrentValueInFlatMapIsNeitherRepeatedNorMissed() {
    let subject = CurrentValueSubject<Int, Never>(0)
    let inner = PassthroughSubject<Int, Never>()
    nonisolated(unsafe) var values: [Int] = []
    let sink = subject.flatMap(maxPublishers: .max(1)) { Just($0) }.sink { values.append($0) }
    (1...3).forEach(subject.send)
    #expect(values == [0, 1, 2, 3])
    sink.cancel()
    _ = inner
  }

  @Test func valuesOfAPropertyWaitForAChange() async {
    final class Model: @unchecked Sendable { @Published var value = 1 }  // one task at a time
    let model = Model()
    var iterator = model.$value.values.makeAsyncIterator()
    #expect(await iterator.next() == 1)
    let next = Task { [iterator] in
      var iterator = iterator
      return await iterator.next()
    }
    while model.value < 50, !next.isCancelled {
      model.value += 1
      await Task.yield()
    }
    #expect(await next.value ?? 0 > 1)
  }

  @Test func sinkInAReferenceCycleIsReleasedAtTheEnd() {
    final class Model: @unchecked Sendable {
      var bag: Set<AnyCancellable> = []
      var sink: Subscribers.Sink<Int, Never>?
      var sum = 0
      func start(_ publisher: some Publisher<Int, Never>) {
        publisher.sink { self.sum += $0 }.store(in: &bag)
        let sink = Subscribers.Sink<Int, Never>(receiveCompletion: { _ in }) { self.sum += $0 }
        self.sink = sink
        publisher.subscribe(sink)
        publisher.assign(to: \.sum, on: self).store(in: &bag)
      }
    }
    for publisher in [
      Just(1).eraseToAnyPublisher(), Future<Int, Never> { $0(.success(1)) }.eraseToAnyPublisher(),
      CurrentValueSubject(1).first().eraseToAnyPublisher(), Empty().eraseToAnyPublisher(),
    ] {
      weak var model: Model?
      do {
        let started = Model()
        model = started
        started.start(publisher)
      }
      #expect(model == nil)
    }
  }

  @Test func sinkSubscriberReleasesItsClosuresWhenCancelledInsideOne() {
    final class Token: Sendable {}
    final class Holder: @unchecked Sendable { var cancel: () -> Void = {} }
    weak var token: Token?
    let subject = PassthroughSubject<Int, Never>()
    let sink: Subscribers.Sink<Int, Never>
    do {
      let captured = Token()
      token = captured
      let holder = Holder()
      sink = Subscribers.Sink(receiveCompletion: { _ in }) { [captured] _ in
        holder.cancel()
        _ = captured
      }
      holder.cancel = { [weak sink] in sink?.cancel() }
      subject.subscribe(sink)
      subject.send(1)
      holder.cancel = {}
    }
    #expect(token == nil)
    sink.receiveValue(2)
  }

  /// A program's operator may pass upstream's subscription on as its own, and complete inside `receive`.
  @Test(arguments: [1, 2]) func endInsideTheClosureOfASinkKeepsTheClosureUntilItReturns(depth: Int) {
    final class Forwarding: Publisher, @unchecked Sendable {
      typealias Output = Int
      typealias Failure = Never
      let subject = PassthroughSubject<Int, Never>()
      var down: AnySubscriber<Int, Never>?
      func receive<S: Subscriber<Int, Never>>(subscriber: S) {
        down = AnySubscriber(subscriber)
        subject.subscribe(
          AnySubscriber(
            receiveSubscription: subscriber.receive, receiveValue: subscriber.receive,
            receiveCompletion: subscriber.receive))
      }
    }
    final class Token: Sendable {}
    nonisolated(unsafe) weak var token: Token?
    let publisher = Forwarding()
    nonisolated(unsafe) var isHeld: [Bool] = []
    func watch() -> AnyCancellable {
      let captured = Token()
      token = captured
      return publisher.sink { value in
        if value == depth {
          publisher.down?.receive(completion: .finished)
        } else {
          _ = publisher.down?.receive(value + 1)
        }
        isHeld.append(token != nil)
        _ = captured
      }
    }
    let sink = watch()
    publisher.subject.send(1)
    #expect(isHeld == Array(repeating: true, count: depth))
    #expect(token == nil)
    withExtendedLifetime(sink) {}
  }

  @Test func cancellingASinkRacesWithItsClosure() {
    final class Token: @unchecked Sendable { var count = 0 }
    for _ in 0..<300 {
      let probe = Probe<Int, Never>()
      let token = Token()
      let sink = probe.sink { _ in token.count += 1 }
      DispatchQueue.concurrentPerform(iterations: 2) { index in
        if index == 1 { return sink.cancel() }
        for number in 0..<20 { probe.send(number) }
      }
      let count = token.count
      probe.send(1)
      #expect(token.count == count)
    }
  }

  @Test func leastAndGreatestAreTheFirstOfEqualValues() {
    typealias Pair = (key: Int, index: Int)
    let pairs: [Pair] = [(2, 0), (1, 1), (2, 2), (1, 3)]
    nonisolated(unsafe) var compared: [[Int]] = []
    @Sendable func less(_ a: Pair, _ b: Pair) -> Bool {
      compared.append([a.index, b.index])
      return a.key < b.key
    }
    nonisolated(unsafe) var found: [Int] = []
    let publisher = pairs.publisher.eraseToAnyPublisher()
    _ = publisher.max(by: less).sink { found.append($0.index) }
    #expect(compared == [[0, 1], [0, 2], [0, 3]])
    _ = publisher.min(by: less).sink { found.append($0.index) }
    #expect(compared.dropFirst(3) == [[1, 0], [2, 1], [3, 1]])
    _ = publisher.tryMax(by: less).sink(receiveCompletion: { _ in }, receiveValue: { found.append($0.index) })
    _ = publisher.tryMin(by: less).sink(receiveCompletion: { _ in }, receiveValue: { found.append($0.index) })
    #expect(found == [0, 1, 0, 1])
  }

  @Test func valueSetAfterTheEndIsStored() {
    let subject = CurrentValueSubject<Int, Never>(1)
    let recorder = Recorder<Int, Never>()
    subject.subscribe(recorder)
    subject.send(completion: .finished)
    subject.send(2)
    #expect(subject.value == 1)
    subject.value = 3
    #expect(subject.value == 3 && recorder.signals == [.subscribed, .value(1), .finished])
  }

  @Test func firstKeepsAValueThatArrivesBeforeDemand() {
    for make in [
      { $0.first().eraseToAnyPublisher() }, { $0.first { $0 > 1 }.eraseToAnyPublisher() },
      { $0.tryFirst { $0 > 1 }.mapError { _ in TestError() }.eraseToAnyPublisher() },
    ] as [(Probe<Int, TestError>) -> AnyPublisher<Int, TestError>] {
      let probe = Probe<Int, TestError>()
      let recorder = Recorder<Int, TestError>(.none)
      make(probe).subscribe(recorder)
      #expect(probe.requested == .unlimited)
      probe.send(2)
      #expect(recorder.signals == [.subscribed] && probe.state.cancels == 1)
      recorder.request(1)
      #expect(recorder.signals == [.subscribed, .value(2), .finished])
    }
  }

  @Test func completionWithoutAResultWaitsForDemand() {
    let empty = Empty<Int, Never>()
    for publisher in [
      empty.eraseToAnyPublisher().first().eraseToAnyPublisher(), empty.last().eraseToAnyPublisher(),
      empty.max().eraseToAnyPublisher(), empty.min().eraseToAnyPublisher(),
      Just(1).eraseToAnyPublisher().last { $0 > 1 }.eraseToAnyPublisher(),
    ] {
      let recorder = Recorder<Int, Never>(.none)
      publisher.subscribe(recorder)
      #expect(recorder.signals == [.subscribed])
      recorder.request(1)
      #expect(recorder.signals == [.subscribed, .finished])
    }
  }

  @Test func requestInsideReceiveSubscriptionDeliversInsideIt() {
    final class Asking: Subscriber {
      typealias Input = Int
      typealias Failure = Never
      var inside: [Int]?
      var values: [Int] = []
      func receive(subscription: any Subscription) {
        subscription.request(.max(2))
        inside = values
      }
      func receive(_ input: Int) -> Subscribers.Demand {
        values.append(input)
        return .none
      }
      func receive(completion: Subscribers.Completion<Never>) {}
    }
    for (publisher, expected) in [
      ([1, 2, 3].publisher.eraseToAnyPublisher(), [1, 2]),
      (Record<Int, Never>(output: [1, 2, 3], completion: .finished).eraseToAnyPublisher(), [1, 2]),
      (CurrentValueSubject<Int, Never>(1).eraseToAnyPublisher(), [1]),
    ] {
      let asking = Asking()
      publisher.subscribe(asking)
      #expect(asking.inside == expected && asking.values == expected)
    }
  }

  @Test func objectWillChangeNeedsNoDemand() {
    let publisher = ObservableObjectPublisher()
    final class Counter: Subscriber {
      typealias Input = Void
      typealias Failure = Never
      var count = 0
      func receive(subscription: any Subscription) {}
      func receive(_ input: Void) -> Subscribers.Demand {
        count += 1
        return .none
      }
      func receive(completion: Subscribers.Completion<Never>) {}
    }
    let counter = Counter()
    publisher.subscribe(counter)
    publisher.send()
    publisher.send()
    #expect(counter.count == 2)
  }

  @Test func twoTasksMayAwaitOneIterator() async {
    let probe = Probe<Int, Never>()
    nonisolated(unsafe) let iterator = probe.values.makeAsyncIterator()
    let tasks = (0..<3).map { _ in
      Task {
        var copy = iterator
        return await copy.next()
      }
    }
    while probe.requested < .max(3) { await Task.yield() }
    probe.send(1)
    probe.send(2)
    probe.send(completion: .finished)
    var answers: [Int?] = []
    for task in tasks { answers.append(await task.value) }
    #expect(answers.compactMap { $0 }.sorted() == [1, 2] && answers.contains(nil))
  }

  @Test func singleDeliversTheFirstValueAndFailsWithoutOne() {
    let probe = Probe<Int, Never>()
    let recorder = Recorder<Int, any Error>()
    probe.asSingle().subscribe(recorder)
    #expect(probe.state.requested == [.max(1)])
    probe.send(1)
    #expect(recorder.signals == [.subscribed, .value(1), .finished] && probe.state.cancels == 1)
    probe.send(2)
    #expect(recorder.values == [1])
    nonisolated(unsafe) var failure: SingleError?
    _ = Empty<Int, Never>().asSingle().sink(
      receiveCompletion: { if case .failure(let error) = $0 { failure = error as? SingleError } },
      receiveValue: { _ in })
    #expect(failure == .noElements)
  }

  @Test func assigningAProjectedValueLeavesTheValue() {
    final class Model { @Published var x = 1 }
    let (one, two) = (Model(), Model())
    two.x = 2
    nonisolated(unsafe) var seen: [Int] = []
    let sink = one.$x.sink { seen.append($0) }
    one.$x = two.$x
    two.x = 3
    one.x = 4
    #expect(one.x == 4 && two.x == 3 && seen == [1, 4])
    sink.cancel()
  }

  @Test func stridesConvertFromUnits() throws {
    #expect(DispatchQueue.SchedulerTimeType.Stride(exactly: 2) == .nanoseconds(2))
    #expect(DispatchQueue.SchedulerTimeType.Stride(2) == .seconds(2))
    #expect(ImmediateScheduler.SchedulerTimeType.Stride(exactly: 2)?.magnitude == 2)
    #expect(DispatchQueue.SchedulerTimeType.Stride(exactly: UInt.max) == nil)
    let json = try JSONEncoder().encode(DispatchQueue.SchedulerTimeType.Stride.nanoseconds(5))
    #expect(String(decoding: json, as: UTF8.self) == #"{"magnitude":5}"#)
  }

  @Test func theImmediateSchedulersTimeStandsStill() {
    let now = ImmediateScheduler.shared.now
    #expect(now.advanced(by: 5) == now && now.distance(to: now.advanced(by: 5)) == 0)
    nonisolated(unsafe) var arrays: [[Int]] = []
    _ = (1...3).publisher.collect(.byTime(ImmediateScheduler.shared, 5)).sink { arrays.append($0) }
    #expect(arrays.flatMap { $0 } == [1, 2, 3])
  }

  @Test func identifiersOfDifferentObjectsDiffer() {
    final class Thing: CustomCombineIdentifierConvertible {}
    let things = (0..<2000).map { _ in Thing() }
    let identifiers = Set(things.map(\.combineIdentifier) + things.map { _ in CombineIdentifier() })
    #expect(identifiers.count == 4000)
    #expect(CombineIdentifier(things[0]) == things[0].combineIdentifier)
  }

  @Test func theLinksOfAnOperatorHaveOneIdentifier() {
    final class Telling: Publisher {
      typealias Output = Int
      typealias Failure = Never
      var identifier: CombineIdentifier?
      func receive<S: Subscriber<Int, Never>>(subscriber: S) {
        identifier = subscriber.combineIdentifier
        subscriber.receive(subscription: Subscriptions.empty)
      }
    }
    for make in [
      { $0.map { $0 }.eraseToAnyPublisher() }, { $0.handleEvents().eraseToAnyPublisher() },
      { $0.reduce(0, +).eraseToAnyPublisher() }, { $0.receive(on: ImmediateScheduler.shared).eraseToAnyPublisher() },
      { $0.subscribe(on: ImmediateScheduler.shared).eraseToAnyPublisher() },
    ] as [(Telling) -> AnyPublisher<Int, Never>] {
      let source = Telling()
      let recorder = Recorder<Int, Never>()
      make(source).subscribe(recorder)
      #expect(recorder.subscription?.combineIdentifier == source.identifier)
    }
  }

  @Test func lastValueIsDeliveredBeforeUpstreamIsCancelled() {
    for make in [
      { $0.prefix(2).eraseToAnyPublisher() }, { $0.output(in: 0...1).eraseToAnyPublisher() },
    ] as [(Probe<Int, Never>) -> AnyPublisher<Int, Never>] {
      let probe = Probe<Int, Never>()
      var cancels: [Int] = []
      let recorder = Recorder<Int, Never> { _, value in
        cancels.append(probe.state.cancels)
        if value == 2 { probe.send(3) }
        return .max(1)
      }
      make(probe).subscribe(recorder)
      probe.send(1)
      probe.send(2)
      #expect(recorder.signals == [.subscribed, .value(1), .value(2), .finished])
      #expect(cancels == [0, 0] && probe.state.cancels == 1)
    }
  }

  @Test func aRecordingEncodesIntoAnEncoder() throws {
    struct Wrapped: Encodable {
      let recording: Record<Int, TestFailure>.Recording
      func encode(to encoder: any Encoder) throws { try recording.encode(into: encoder) }
    }
    struct TestFailure: Error, Codable {}
    let wrapped = Wrapped(recording: .init(output: [1]))
    let encoder = JSONEncoder()
    encoder.outputFormatting = .sortedKeys
    let text = String(decoding: try encoder.encode(wrapped), as: UTF8.self)
    #expect(text == #"{"completion":{"success":true},"output":[1]}"#)
  }

  @Test func negativeCountsTrapWithTheirName() async {
    func text(_ result: ExitTest.Result?) -> String {
      String(decoding: result?.standardErrorContent ?? [], as: UTF8.self)
    }
    let prefix = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
      _ = Empty<Int, Never>().eraseToAnyPublisher().prefix(-1)
    }
    let prefixText = text(prefix)
    #expect(prefixText.contains("maxLength must not be negative"))
    let output = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
      _ = Empty<Int, Never>().eraseToAnyPublisher().output(at: -1)
    }
    let outputText = text(output)
    #expect(outputText.contains("index must not be negative"))
    await #expect(processExitsWith: .failure) { _ = Just(1).dropFirst(-1) }
    let arrays = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
      _ = Empty<Int, Never>().collect(-1)
    }
    let arraysText = text(arrays)
    #expect(arraysText.contains("count must not be negative"))
  }
}
