import Dispatch
import Reactive
import Testing

// An operator requests the values that it needs for itself. A value that arrives before the subscriber's first demand, or
// between two of its requests, is therefore not lost.
@Suite(.timeLimit(.minutes(10))) struct OwnDemandTests {
  typealias Source = Probe<Int, Never>

  /// An operator, the demand that it sends upstream on subscription, and the sum after a demand of 2.
  struct Row: CustomTestStringConvertible, @unchecked Sendable {  // the closures capture nothing
    let testDescription: String
    let own: Subscribers.Demand
    let sum: Subscribers.Demand
    let attach: (Source, @escaping (any Subscription) -> Void) -> Void

    init<P: Publisher>(
      _ name: String, _ own: Subscribers.Demand, _ sum: Subscribers.Demand, _ make: @escaping (Source) -> P
    ) {
      (testDescription, self.own, self.sum) = (name, own, sum)
      attach = { source, keep in make(source).subscribe(AnySubscriber(receiveSubscription: keep)) }
    }
  }

  private static let silent = Empty<Int, Never>(completeImmediately: false)
  private static let time = ImmediateScheduler.shared

  static let rows = [
    Row("dropFirst", .max(3), .max(5)) { $0.dropFirst(3) },
    Row("dropFirst of none", .none, .max(2)) { $0.dropFirst(0) },
    Row("dropFirst of all", .max(.max), .unlimited) { $0.dropFirst(.max) },
    Row("collect by count", .none, .max(6)) { $0.collect(3) },
    Row("collect of any count", .none, .unlimited) { $0.collect(0) },
    Row("collect by time or count", .none, .max(6)) { $0.collect(.byTimeOrCount(time, 1, 3)) },
    Row("collect by time", .none, .unlimited) { $0.collect(.byTime(time, 1)) },
    Row("merge", .max(1), .max(1)) { $0.merge(with: silent) },
    Row("flatMap of the publisher", .max(1), .max(1)) { source in Just(1).flatMap { _ in source } },
    Row("flatMap of upstream", .max(4), .max(4)) { $0.flatMap(maxPublishers: .max(4)) { _ in silent } },
    Row("switchToLatest", .unlimited, .unlimited) { $0.map { _ in silent }.switchToLatest() },
    Row("prefix until output", .max(1), .max(1)) { silent.prefix(untilOutputFrom: $0) },
    Row("drop until output", .max(1), .max(1)) { silent.drop(untilOutputFrom: $0) },
    Row("buffer", .max(4), .max(4)) { $0.buffer(size: 4, prefetch: .keepFull, whenFull: .dropNewest) },
    Row("buffer by request", .unlimited, .unlimited) {
      $0.buffer(size: 4, prefetch: .byRequest, whenFull: .dropNewest)
    },
    Row("debounce", .unlimited, .unlimited) { $0.debounce(for: 1, scheduler: time) },
    Row("throttle", .unlimited, .unlimited) { $0.throttle(for: 1, scheduler: time, latest: true) },
    Row("first", .unlimited, .unlimited) { $0.first() },
    Row("first where", .unlimited, .unlimited) { $0.first { $0 > 0 } },
    Row("last", .unlimited, .unlimited) { $0.last() },
    Row("max", .unlimited, .unlimited) { $0.max() },
    Row("contains", .unlimited, .unlimited) { $0.contains(1) },
    Row("allSatisfy", .unlimited, .unlimited) { $0.allSatisfy { $0 > 0 } },
    Row("collect", .unlimited, .unlimited) { $0.collect() },
    Row("reduce", .unlimited, .unlimited) { $0.reduce(0, +) },
    Row("ignoreOutput", .unlimited, .unlimited) { $0.ignoreOutput() },
    Row("asSingle", .max(1), .max(1)) { $0.asSingle() },
    // These omit values that only a closure knows, or the first of which is not theirs: they return the unit of demand.
    Row("filter", .none, .max(2)) { $0.filter { $0 > 0 } },
    Row("compactMap", .none, .max(2)) { $0.compactMap { $0 } },
    Row("removeDuplicates", .none, .max(2)) { $0.removeDuplicates() },
    Row("drop while", .none, .max(2)) { $0.drop { $0 > 0 } },
    Row("output in", .none, .max(2)) { $0.output(in: 3..<9) },
    Row("prefix", .none, .max(2)) { $0.prefix(9) },
    Row("drop until output of another", .none, .max(2)) { $0.drop(untilOutputFrom: silent) },
    Row("combineLatest", .none, .max(2)) { $0.combineLatest(silent) },
    Row("zip", .none, .max(2)) { $0.zip(silent) },
    Row("scan", .none, .max(2)) { $0.scan(0, +) },
    Row("replaceEmpty", .none, .max(2)) { $0.replaceEmpty(with: 1) },
  ]

  @Test(arguments: rows) func requestsForItselfWhatItNeeds(_ row: Row) {
    let source = Source()
    var subscription: (any Subscription)?
    row.attach(source) { subscription = $0 }
    #expect(source.requested == row.own)
    subscription?.request(.max(2))
    #expect(source.requested == row.sum)
    subscription?.cancel()
  }

  @Test func valuesBeforeTheFirstDemandAreDropped() {
    let subject = PassthroughSubject<Int, Never>()
    let recorder = Recorder<Int, Never>(.none)
    subject.dropFirst(2).subscribe(recorder)
    subject.send(1)
    subject.send(2)
    recorder.request(1)
    subject.send(3)
    subject.send(4)
    #expect(recorder.values == [3])
  }

  @MainActor @Test func changesAfterTheCurrentValueAreAwaited() async {
    @MainActor final class Model { @Published var x = 0 }
    let model = Model()
    var iterator = model.$x.dropFirst().values.makeAsyncIterator()
    let waiting = Task { @MainActor in model.x = 1 }
    #expect(await iterator.next() == 1)
    await waiting.value
  }

  /// The operator between requests demand for each value only when its turn comes.
  @Test func valuesOfAnArrayAreRequestedTogether() {
    let (subject, time) = (PassthroughSubject<Int, Never>(), VirtualTimeScheduler())
    let recorder = Recorder<[Int], Never>(.max(1)) { _, array in array == [1, 2, 3] ? .max(1) : .none }
    subject.receive(on: time).collect(3).subscribe(recorder)
    for value in 1...3 { subject.send(value) }
    time.advance()
    for value in 4...9 { subject.send(value) }
    time.advance()
    #expect(recorder.values == [[1, 2, 3], [4, 5, 6]])
  }

  @Test func oneValueOfEachPublisherWaitsForTheFirstDemand() {
    let outer = PassthroughSubject<PassthroughSubject<Int, Never>, Never>()
    let (one, two) = (PassthroughSubject<Int, Never>(), PassthroughSubject<Int, Never>())
    let flat = Recorder<Int, Never>(.none)
    let merged = Recorder<Int, Never>(.none)
    outer.flatMap { $0 }.subscribe(flat)
    one.merge(with: two).subscribe(merged)
    outer.send(one)
    outer.send(two)
    one.send(1)
    two.send(2)
    one.send(3)  // only one value ahead was requested
    for recorder in [flat, merged] {
      #expect(recorder.signals == [.subscribed])
      recorder.request(1)
      recorder.request(1)
      #expect(recorder.values == [1, 2])
    }
    one.send(4)
    two.send(completion: .finished)
    one.send(completion: .finished)
    outer.send(completion: .finished)
    for recorder in [flat, merged] {
      #expect(recorder.values == [1, 2])
      recorder.request(.unlimited)
      #expect(recorder.values == [1, 2, 4] && recorder.isEnded)
    }
  }

  /// The demand that is taken back includes what an operator requested for itself.
  @Test func demandIsMetAfterARetraction() {
    for count in 0...3 {
      let source = RetractableNumbers()
      let recorder = Recorder<Int, Never>(.max(2))
      source.dropFirst(3).subscribe(recorder)
      source.send(count)
      (recorder.subscription as? any RetractableSubscription)?.retract()
      source.send(9)
      #expect(recorder.values == [])
      recorder.request(2)
      source.send(9)
      #expect(recorder.values == [4, 5])
    }
    let source = RetractableNumbers()
    let recorder = Recorder<[Int], Never>(.max(1))
    source.collect(3).subscribe(recorder)
    source.send(2)
    (recorder.subscription as? any RetractableSubscription)?.retract()
    source.send(9)
    recorder.request(1)
    source.send(9)
    #expect(recorder.values == [[1, 2, 3]])
  }

  /// Numbers from 1 on, for one subscriber, whose demand can be taken back.
  private final class RetractableNumbers: Publisher, RetractableSubscription {
    typealias Output = Int
    typealias Failure = Never
    private var down: AnySubscriber<Int, Never>?
    private var demand = Subscribers.Demand.none
    private var last = 0

    func receive<S: Subscriber<Int, Never>>(subscriber: S) {
      down = AnySubscriber(subscriber)
      subscriber.receive(subscription: self)
    }

    func send(_ limit: Int) {
      for _ in 0..<limit where demand > .none {
        demand -= 1
        last += 1
        demand += down?.receive(last) ?? .none
      }
    }

    func request(_ demand: Subscribers.Demand) { self.demand += demand }
    func retract() { demand = .none }
    func cancel() { down = nil }
  }
}
