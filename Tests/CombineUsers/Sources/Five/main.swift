// A package in Swift 5 mode: what tutorials teach, with classes, inout loggers, and subscriptions in variables.
import Dispatch
import Foundation
#if canImport(Combine)
  import Combine
#else
  import ReactiveFoundation
#endif

final class Log: TextOutputStream {
  private(set) var lines: [String] = []
  func write(_ string: String) {
    let line = string.trimmingCharacters(in: .newlines)
    if !line.isEmpty { lines.append(line) }
  }
}

func expect<T: Equatable>(_ is: T, _ wanted: T, line: Int = #line) {
  if `is` != wanted { fatalError("line \(line): \(`is`), not \(wanted)") }
}

// MARK: An operator as an extension

do {
  var values: [Int] = []
  let publisher: AnyPublisher<Int?, Never> = [1, 2, nil, 3, nil, 4].publisher.eraseToAnyPublisher()
  let subscription = publisher.unwrap().sink { values.append($0) }
  expect(values, [1, 2, 3, 4])
  _ = subscription
}

extension Publisher {
  func doubled() -> Publishers.CompactMap<Self, Int> where Output == Int { compactMap { $0 * 2 } }
}
do {
  var values: [Int] = []
  _ = (1...3).publisher.doubled().sink { values.append($0) }
  expect(values, [2, 4, 6])
}

extension Publisher where Output == Int {
  typealias Peer = Publisher<Int, Failure>
  func evenSums<P: Peer>(_ p: P) -> Publishers.CompactMap<Publishers.CombineLatest<Self, P>, Int> {
    combineLatest(p).compactMap { ($0 + $1).isMultiple(of: 2) ? $0 + $1 : nil }
  }
  func small<P: Peer>(_ p: P) -> Publishers.PrefixWhile<Publishers.Merge3<Self, P, P>> {
    merge(with: p, p).prefix { $0 < 3 }
  }
  func total<P: Peer>(_ p: P) -> Publishers.TryReduce<Publishers.Concatenate<Self, P>, Int> {
    append(p).tryReduce(0) { if $1 < 0 { throw CancellationError() } else { $0 + $1 } }
  }
  func firstAfter<P: Peer>(_ p: P) -> Publishers.FirstWhere<Publishers.DropUntilOutput<Self, P>> {
    drop(untilOutputFrom: p).first { $0 > 1 }
  }
  func running<P: Peer>(_ p: P) -> Publishers.Scan<Publishers.FlatMap<P, Publishers.Zip<Self, P>>, Int> {
    zip(p).flatMap { _ in p }.scan(0, +)
  }
}
do {
  var values: [Int] = []
  let numbers = [1, 2, 3].publisher
  _ = numbers.evenSums([4].publisher).sink { values.append($0) }
  _ = numbers.small(numbers).sink { values.append($0) }
  _ = numbers.total(numbers).sink(receiveCompletion: { _ in }, receiveValue: { values.append($0) })
  _ = numbers.firstAfter(numbers).sink { values.append($0) }
  _ = numbers.running([1].publisher).sink { values.append($0) }
  expect(values, [1, 2, 12, 2, 1])
}

// MARK: The same member for several operators

extension Publishers.Map { var kind: String { "map" } }
extension Publishers.TryMap { var kind: String { "tryMap" } }
extension Publishers.MapKeyPath { var kind: String { "key path" } }
extension Publishers.Scan { var kind: String { "scan" } }
extension Publishers.Filter { var kind: String { "filter" } }
extension Publishers.RemoveDuplicates { var kind: String { "removeDuplicates" } }
extension Publishers.First { var kind: String { "first" } }
extension Publishers.Last { var kind: String { "last" } }
extension Publishers.Count { var kind: String { "count" } }
extension Publishers.Collect { var kind: String { "collect" } }
extension Publishers.Debounce { var kind: String { "debounce" } }
extension Publishers.Throttle { var kind: String { "throttle" } }
extension Publishers.Merge { var kind: String { "merge" } }
extension Publishers.Merge3 { var kind: String { "merge of three" } }
extension Publishers.Zip { var kind: String { "zip" } }
extension Publishers.Zip3 { var kind: String { "zip of three" } }
extension Publishers.Catch { var kind: String { "catch" } }
extension Publishers.ReplaceError { var kind: String { "replaceError" } }
do {
  let numbers = PassthroughSubject<Int, URLError>()
  let seconds = RunLoop.SchedulerTimeType.Stride.seconds(1)
  expect([numbers.map { $0 }.kind, numbers.tryMap { $0 }.kind], ["map", "tryMap"])
  expect(numbers.map(\.magnitude).kind, "key path")
  expect([numbers.scan(0, +).kind, numbers.filter { $0 > 0 }.kind], ["scan", "filter"])
  expect([numbers.removeDuplicates().kind, numbers.first().kind], ["removeDuplicates", "first"])
  expect(numbers.last().kind, "last")
  expect([numbers.count().kind, numbers.collect().kind], ["count", "collect"])
  expect(numbers.debounce(for: seconds, scheduler: RunLoop.main).kind, "debounce")
  expect(numbers.throttle(for: seconds, scheduler: RunLoop.main, latest: true).kind, "throttle")
  expect(numbers.merge(with: numbers.map { $0 }).kind, "merge")
  expect([numbers.merge(with: numbers, numbers).kind, numbers.zip(numbers).kind], ["merge of three", "zip"])
  expect([numbers.zip(numbers, numbers).kind, numbers.catch { _ in numbers }.kind], ["zip of three", "catch"])
  expect(numbers.replaceError(with: 0).kind, "replaceError")
}

// MARK: Custom publishers, subscriptions and subscribers

class CustomSubscriber: Subscriber {
  typealias Input = Int
  typealias Failure = Never
  var log: [String] = []

  func receive(subscription: any Subscription) {
    log.append("CustomSubscriber subscription.request")
    subscription.request(.max(5))
  }

  func receive(_ input: Int) -> Subscribers.Demand {
    log.append("New value \(input)")
    return .none
  }

  func receive(completion: Subscribers.Completion<Never>) { log.append("Completion: \(completion)") }
}

class CustomPublisher: Publisher {
  typealias Output = Int
  typealias Failure = Never

  func receive<S>(subscriber: S) where S: Subscriber, Failure == S.Failure, Output == S.Input {
    let subscription = CustomSubscription(subscriber: subscriber)
    subscriber.receive(subscription: subscription)
  }
}

class CustomSubscription<S: Subscriber>: Subscription where S.Input == Int, S.Failure == Never {
  private var subscriber: S
  private var counter = 0
  private var isCompleted = false

  init(subscriber: S) { self.subscriber = subscriber }

  func request(_ demand: Subscribers.Demand) {
    guard !isCompleted else { return }
    for _ in 0..<(demand.max ?? 10) {
      _ = subscriber.receive(counter)
      counter += 1
    }
    if counter >= 5 {
      subscriber.receive(completion: .finished)
      isCompleted = true
    }
  }

  func cancel() { isCompleted = true }
}

class CustomCombineViewModel: ObservableObject {
  var subscription: AnyCancellable?
  let subscriber = CustomSubscriber()
  var log: [String] = []

  func testMethod1() { CustomPublisher().subscribe(subscriber) }

  func testMethod2() {
    subscription = CustomPublisher().sink { completion in
      self.log.append("sink completion: \(completion)")
    } receiveValue: { value in
      self.log.append("sink new value \(value)")
    }
  }
}

do {
  let model = CustomCombineViewModel()
  model.testMethod1()
  expect(
    model.subscriber.log,
    ["CustomSubscriber subscription.request"] + (0..<5).map { "New value \($0)" } + ["Completion: finished"])
  model.testMethod2()
  expect(model.log, (0..<10).map { "sink new value \($0)" } + ["sink completion: finished"])
}

// MARK: A timer on a queue

do {
  let queue = DispatchQueue(label: "timer")
  let done = DispatchSemaphore(value: 0)
  var count = 0
  let publisher = Publishers.timer(queue: queue, interval: .milliseconds(5), times: .max(6))
  let subscription = publisher.sink(receiveCompletion: { _ in done.signal() }, receiveValue: { _ in count += 1 })
  done.wait()
  expect(count, 6)
  subscription.cancel()
  let configuration = DispatchTimerConfiguration(
    queue: nil, interval: .seconds(1), leeway: .nanoseconds(0), times: .unlimited)
  expect(Publishers.DispatchTimer(configuration: configuration).configuration.times, .unlimited)
}

// MARK: One upstream, replayed to later subscribers

do {
  let log = Log()
  let printed = Log()
  var logger = log
  let subject = PassthroughSubject<Int, Never>()
  let publisher = subject.print("shareReplay", to: printed).shareReplay(capacity: 2)
  subject.send(0)
  let subscription1 = publisher.sink(
    receiveCompletion: { print("subscription1 completed: \($0)", to: &logger) },
    receiveValue: { print("subscription1 received \($0)", to: &logger) })
  subject.send(1)
  subject.send(2)
  subject.send(3)
  let subscription2 = publisher.sink(
    receiveCompletion: { print("subscription2 completed: \($0)", to: &logger) },
    receiveValue: { print("subscription2 received \($0)", to: &logger) })
  subject.send(4)
  subject.send(5)
  subject.send(completion: .finished)
  var subscription3: Cancellable? = nil
  subscription3 = publisher.sink(
    receiveCompletion: { print("subscription3 completed: \($0)", to: &logger) },
    receiveValue: { print("subscription3 received \($0)", to: &logger) })
  expect(
    log.lines,
    [
      "subscription1 received 1", "subscription1 received 2", "subscription1 received 3", "subscription2 received 2",
      "subscription2 received 3", "subscription1 received 4", "subscription2 received 4", "subscription1 received 5",
      "subscription2 received 5", "subscription1 completed: finished", "subscription2 completed: finished",
      "subscription3 received 4", "subscription3 received 5", "subscription3 completed: finished",
    ])
  expect(
    printed.lines,
    ["shareReplay: receive subscription: (PassthroughSubject)", "shareReplay: request unlimited"]
      + (1...5).map { "shareReplay: receive value: (\($0))" } + ["shareReplay: receive finished"])
  _ = (subscription1, subscription2, subscription3)
}

// MARK: One value

do {
  var values: [Int] = []
  var failed = false
  _ = Just(5).asSingle().sink(receiveCompletion: { _ in }, receiveValue: { values.append($0) })
  expect(values, [5])
  _ = Empty<Int, Never>().asSingle().sink(
    receiveCompletion: { if case .failure = $0 { failed = true } }, receiveValue: { values.append($0) })
  expect(failed, true)
}

do {
  var values: [Int] = []
  var isOver = false
  _ = [1, 2].publisher.asSingle().sink(
    receiveCompletion: { if case .finished = $0 { isOver = true } }, receiveValue: { values.append($0) })
  expect(values, [1])
  expect(isOver, true)
}

// MARK: A publisher made of a closure

do {
  var values: [Int] = []
  var isStopped = false
  let publisher = Create<Int, Never> { subscriber in
    for number in [4, 2, 7] { subscriber.receive(number) }
    subscriber.receive(completion: .finished)
    return AnyCancellable { isStopped = true }
  }
  _ = publisher.sink(receiveCompletion: { _ in values.append(-1) }, receiveValue: { values.append($0) })
  expect(values, [4, 2, 7, -1])
  _ = isStopped
}

do {
  var thread: Thread?
  let enough = DispatchSemaphore(value: 0)
  let numberGenerator = Create<Int, Never> { subscriber in
    thread = Thread {
      var i = 0
      while !Thread.current.isCancelled {
        subscriber.receive(i)
        i += 1
      }
    }
    thread?.start()
    return AnyCancellable { thread?.cancel() }
  }
  let subscription = numberGenerator.prefix(100).sink(
    receiveCompletion: { _ in enough.signal() }, receiveValue: { _ in })
  enough.wait()
  subscription.cancel()
}

do {
  let enough = DispatchSemaphore(value: 0)
  var values: [Int] = []
  let publisher = Create<Int, Never> { subscriber, context in
    var i = 0
    while !context.cancelled {
      context.waitIfPaused()
      subscriber.receive(i)
      i += 1
    }
  }
  let subscription = publisher.prefix(5).sink(
    receiveCompletion: { _ in enough.signal() }, receiveValue: { values.append($0) })
  enough.wait()
  expect(values, [0, 1, 2, 3, 4])
  subscription.cancel()
}

// MARK: A subscriber that pauses

do {
  var values: [Int] = []
  var isOver = false
  let subscription = [1, 2, 3, 4, 5, 6].publisher.pausableSink(
    receiveCompletion: { _ in isOver = true }
  ) { value -> Bool in
    values.append(value)
    return value % 2 == 1
  }
  expect(values, [1, 2])
  expect(subscription.paused, true)
  subscription.resume()
  expect(values, [1, 2, 3, 4])
  subscription.resume()
  subscription.resume()
  expect(values, [1, 2, 3, 4, 5, 6])
  expect(isOver, true)
}

// MARK: Sharing by a subject

extension Publisher {
  func replayed(_ bufferSize: Int) -> AnyPublisher<Output, Failure> {
    multicast(subject: ReplaySubject(bufferSize: bufferSize)).autoconnect().eraseToAnyPublisher()
  }
}

do {
  let subject = PassthroughSubject<Int, Never>()
  let users = subject.replayed(1)
  var seen: [String] = []
  let sub1 = users.sink(receiveValue: { value in seen.append("subscriber1: \(value)") })
  subject.send(1)
  let sub2 = users.sink(receiveValue: { value in seen.append("subscriber2: \(value)") })
  subject.send(2)
  expect(seen.prefix(2), ["subscriber1: 1", "subscriber2: 1"])
  expect(seen.dropFirst(2).sorted(), ["subscriber1: 2", "subscriber2: 2"])
  _ = (sub1, sub2)
}

// MARK: A future, and a result that is fetched once

struct User: Codable, Equatable {
  let name: String
}

do {
  let json = Data(#"[{"name":"Ada"},{"name":"Grace"}]"#.utf8)
  var fetches = 0
  func getUsers() -> AnyPublisher<Result<[User], Error>, Never> {
    Deferred {
      Future<Data, Error> { promise in
        fetches += 1
        promise(.success(json))
      }
    }
    .decode(type: [User].self, decoder: JSONDecoder())
    .map { users in .success(users) }
    .catch { error in Just(.failure(error)) }
    .subscribe(on: DispatchQueue(label: "networking"))
    .receive(on: RunLoop.main)
    .shareReplay(1)
    .eraseToAnyPublisher()
  }
  let users = getUsers()
  var seen: [[User]] = []
  let sub1 = users.sink(receiveValue: { if case .success(let users) = $0 { seen.append(users) } })
  let sub2 = users.sink(receiveValue: { if case .success(let users) = $0 { seen.append(users) } })
  while seen.count < 2 { _ = RunLoop.main.run(mode: .default, before: Date().addingTimeInterval(0.05)) }
  expect(seen, Array(repeating: [User(name: "Ada"), User(name: "Grace")], count: 2))
  expect(fetches, 1)
  _ = (sub1, sub2)
}

// MARK: Properties

final class Model: ObservableObject {
  @Published var text = ""
  @Published var length = 0
  var plain = ""
  var subscriptions = Set<AnyCancellable>()
}

do {
  let model = Model()
  var changes = 0
  model.objectWillChange.sink { changes += 1 }.store(in: &model.subscriptions)
  model.$text.map(\.count).assign(to: &model.$length)
  model.$text.dropFirst().assign(to: \.plain, on: model).store(in: &model.subscriptions)
  model.text = "four"
  expect(model.length, 4)
  expect(model.plain, "four")
  expect(changes, 3)
}

// MARK: Operators made by their own names

struct Failed: Error {}
func signals<P: Publisher>(_ publisher: P) -> String {
  var text = ""
  _ = publisher.sink(
    receiveCompletion: { if case .failure = $0 { text += "x" } else { text += "|" } },
    receiveValue: { text += "\($0)" })
  return text
}

do {
  let u = [1, 1, 2, 3].publisher
  let up = u.setFailureType(to: Failed.self)
  expect(signals(Publishers.Map(upstream: u, transform: { $0 * 2 })), "2246|")
  expect(signals(Publishers.TryMap(upstream: u, transform: { if $0 > 1 { throw Failed() } else { $0 } })), "11x")
  expect(signals(Publishers.CompactMap(upstream: u, transform: { $0 > 1 ? $0 : nil })), "23|")
  expect(signals(Publishers.TryCompactMap(upstream: up, transform: { $0 > 1 ? $0 : nil })), "23|")
  expect(signals(Publishers.Scan(upstream: u, initialResult: 0, nextPartialResult: +)), "1247|")
  expect(signals(Publishers.TryScan(upstream: u, initialResult: 0, nextPartialResult: { $0 + $1 })), "1247|")
  expect(signals(Publishers.MapError(upstream: up, transform: { $0 as Error })), "1123|")
  expect(signals(Publishers.MapError(upstream: up, { $0 as Error })), "1123|")
  expect(signals(Publishers.SetFailureType<_, Failed>(upstream: u)), "1123|")
  expect(signals(Publishers.AssertNoFailure(upstream: up, prefix: "", file: #file, line: #line)), "1123|")
  expect(signals(Publishers.Filter(upstream: u, isIncluded: { $0 > 1 })), "23|")
  expect(signals(Publishers.TryFilter(upstream: u, isIncluded: { if $0 > 1 { throw Failed() } else { true } })), "11x")
  expect(signals(Publishers.RemoveDuplicates(upstream: u, predicate: ==)), "123|")
  expect(signals(Publishers.TryRemoveDuplicates(upstream: u, predicate: { $0 == $1 })), "123|")
  expect(signals(Publishers.Drop(upstream: u, count: 2)), "23|")
  expect(signals(Publishers.DropWhile(upstream: u, predicate: { $0 < 3 })), "3|")
  expect(signals(Publishers.TryDropWhile(upstream: u, predicate: { $0 < 3 })), "3|")
  expect(signals(Publishers.Output(upstream: u, range: 1..<3)), "12|")
  expect(signals(Publishers.PrefixWhile(upstream: u, predicate: { $0 < 3 })), "112|")
  expect(signals(Publishers.TryPrefixWhile(upstream: u, predicate: { $0 < 3 })), "112|")
  expect(signals(Publishers.First(upstream: u)), "1|")
  expect(signals(Publishers.FirstWhere(upstream: u, predicate: { $0 > 1 })), "2|")
  expect(signals(Publishers.TryFirstWhere(upstream: u, predicate: { $0 > 1 })), "2|")
  expect(signals(Publishers.Reduce(upstream: u, initial: "", nextPartialResult: { "\($1)" + $0 })), "3211|")
  expect(signals(Publishers.TryReduce(upstream: u, initial: 0, nextPartialResult: { $0 + $1 })), "7|")
  expect(signals(Publishers.Collect(upstream: u)), "[1, 1, 2, 3]|")
  expect(signals(Publishers.CollectByCount(upstream: u, count: 3)), "[1, 1, 2][3]|")
  expect(signals(Publishers.Count(upstream: u)), "4|")
  expect(signals(Publishers.Comparison(upstream: u, areInIncreasingOrder: >)), "1|")
  expect(signals(Publishers.TryComparison(upstream: u, areInIncreasingOrder: { $0 < $1 })), "3|")
  expect(signals(Publishers.Last(upstream: u)), "3|")
  expect(signals(Publishers.LastWhere(upstream: u, predicate: { $0 < 3 })), "2|")
  expect(signals(Publishers.TryLastWhere(upstream: u, predicate: { $0 < 3 })), "2|")
  expect(signals(Publishers.IgnoreOutput(upstream: u)), "|")
  expect(signals(Publishers.Contains(upstream: u, output: 2)), "true|")
  expect(signals(Publishers.ContainsWhere(upstream: u, predicate: { $0 > 3 })), "false|")
  expect(signals(Publishers.TryContainsWhere(upstream: u, predicate: { $0 > 2 })), "true|")
  expect(signals(Publishers.AllSatisfy(upstream: u, predicate: { $0 > 0 })), "true|")
  expect(signals(Publishers.TryAllSatisfy(upstream: u, predicate: { $0 > 1 })), "false|")
  expect(signals(Publishers.Concatenate(prefix: u, suffix: u)), "11231123|")
  expect(signals(Publishers.Catch(upstream: Fail<Int, Failed>(error: Failed()), handler: { _ in u })), "1123|")
  expect(signals(Publishers.TryCatch(upstream: Fail<Int, Failed>(error: Failed())) { _ in up }), "1123|")
  expect(signals(Publishers.Retry(upstream: up, retries: 2)), "1123|")
  expect(signals(Publishers.ReplaceError(upstream: up, output: 9)), "1123|")
  expect(signals(Publishers.ReplaceEmpty(upstream: Empty<Int, Never>(), output: 9)), "9|")
  expect(signals(Publishers.Merge(u, Just(4))), "11234|")
  expect(signals(Publishers.Merge3(u, Just(4), u)), "112341123|")
  expect(signals(Publishers.Merge4(u, u, u, u)), "1123112311231123|")
  expect(signals(Publishers.Merge8(u, Just(4), u, u, u, u, Empty(), u)).count, 26)
  expect(signals(Publishers.MergeMany(u, u)), "11231123|")
  expect(signals(Publishers.CombineLatest(Just(1), u)), "(1, 1)(1, 1)(1, 2)(1, 3)|")
  expect(signals(Publishers.CombineLatest3(Just(1), Just("a"), Just(2.5))), #"(1, "a", 2.5)|"#)
  expect(signals(Publishers.CombineLatest4(Just(1), Just("a"), Just(2), Just(3))), #"(1, "a", 2, 3)|"#)
  expect(signals(Publishers.Zip(u, u)), "(1, 1)(1, 1)(2, 2)(3, 3)|")
  expect(signals(Publishers.Zip3(Just(1), u, u)), "(1, 1, 1)|")
  expect(signals(Publishers.Zip4(Just(1), u, Just(2), u)), "(1, 1, 2, 1)|")
  expect(signals(Publishers.FlatMap(upstream: u, maxPublishers: .max(1)) { Just($0) }), "1123|")
  expect(signals(Publishers.SwitchToLatest(upstream: Just(u))), "1123|")
  expect(
    signals(Publishers.PrefixUntilOutput(upstream: u, other: Empty<Int, Never>(completeImmediately: false))), "1123|")
  expect(signals(Publishers.DropUntilOutput(upstream: u, other: Just(1))), "1123|")
  expect(signals(Publishers.Share(upstream: u)), "1123|")
  expect(signals(Publishers.Autoconnect(upstream: Publishers.MakeConnectable(upstream: u))), "1123|")
  expect(signals(Publishers.Multicast(upstream: u) { PassthroughSubject() }.autoconnect()), "1123|")
  expect(signals(Publishers.Buffer(upstream: u, size: 2, prefetch: .keepFull, whenFull: .dropNewest)), "1123|")
  let now = ImmediateScheduler.shared
  expect(signals(Publishers.ReceiveOn(upstream: u, scheduler: now, options: nil)), "1123|")
  expect(signals(Publishers.SubscribeOn(upstream: u, scheduler: now, options: nil)), "1123|")
  expect(signals(Publishers.Delay(upstream: u, interval: 1, tolerance: 0, scheduler: now)), "1123|")
  expect(signals(Publishers.Debounce(upstream: u, dueTime: 1, scheduler: now, options: nil)), "1123|")
  expect(signals(Publishers.Throttle(upstream: u, interval: 1, scheduler: now, latest: true)), "1123|")
  let later = DispatchQueue(label: "timeout")
  _ = Publishers.Timeout(upstream: u, interval: 1, scheduler: later, options: nil, customError: nil)
  let strategy = Publishers.TimeGroupingStrategy.byTimeOrCount(now, 1, 2)
  expect(signals(Publishers.CollectByTime(upstream: u, strategy: strategy, options: nil)).last, "|")
  expect(signals(Publishers.MeasureInterval(upstream: u, scheduler: now).map { _ in 0 }), "0000|")
  expect(signals(Publishers.HandleEvents(upstream: u, receiveRequest: nil)), "1123|")
  expect(signals(Publishers.Print(upstream: u, prefix: "", to: Log())), "1123|")
  expect(signals(Publishers.Breakpoint(upstream: u, receiveOutput: { $0 > 3 })), "1123|")
  expect(signals(Publishers.Encode(upstream: Just([1]), encoder: JSONEncoder()).map(\.count)), "3|")
  expect(
    signals(Publishers.Decode<_, [Int], _>(upstream: Just(Data("[1]".utf8)), decoder: JSONDecoder()).map(\.count)), "1|"
  )
}

// MARK: Time

do {
  let queue = OperationQueue()
  queue.maxConcurrentOperationCount = 1
  let done = DispatchSemaphore(value: 0)
  let typed = PassthroughSubject<String, Never>()
  var searched: [String] = []
  let search =
    typed
    .debounce(for: .milliseconds(20), scheduler: queue)
    .removeDuplicates()
    .sink {
      searched.append($0)
      done.signal()
    }
  for text in ["s", "sw", "swi", "swift"] { typed.send(text) }
  done.wait()
  expect(searched, ["swift"])
  search.cancel()
}

print("Swift 5 mode: as Combine has it")
