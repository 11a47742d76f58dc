import Reactive
import Testing

/// A pipeline with an operator, for the contract suite. Each operator has an entry in the array of its family.
struct OperatorCase: CustomTestStringConvertible, @unchecked Sendable {
  // Sendable: the closures capture nothing.

  /// A watcher's subscription.
  struct Attached {
    /// The argument of `subscribe`. No other strong reference exists.
    let subscriber: AnyObject
    /// Runs all work that is due, after advancing the time.
    let settle: () -> Void
  }
  let testDescription: String
  let attach: (CountingSource, Watcher) -> Attached
  /// Attaches a sink that passes the values and the completion on as text.
  let sink: (CountingSource, @escaping (String) -> Void) -> (sink: AnyCancellable, settle: () -> Void)

  /// - Parameter make: Applies the operator to the source.
  init<P: Publisher>(_ name: String, _ make: @escaping (CountingSource) -> P) {
    self.init(name, settling: { (make($0), {}) })
  }

  /// - Parameter make: Also returns a closure that runs all work that is due on the operator's scheduler.
  init<P: Publisher>(_ name: String, settling make: @escaping (CountingSource) -> (P, settle: () -> Void)) {
    testDescription = name
    attach = { source, watcher in
      let (publisher, settle) = make(source)
      let eye = Watcher.Eye<P.Output, P.Failure>(watcher)
      publisher.subscribe(eye)
      return Attached(subscriber: eye, settle: settle)
    }
    sink = { source, note in
      let (publisher, settle) = make(source)
      nonisolated(unsafe) let note = note
      return (publisher.sink(receiveCompletion: { note("\($0)") }, receiveValue: { note("\($0)") }), settle)
    }
  }

  static let all: [Self] = stages + folds + sequential + junctions + subscribers + observing + timed

  /// Operators that handle each value immediately.
  private static let stages: [Self] = [
    Self("map") { $0.map { $0 + 1 } },
    Self("tryMap") { $0.tryMap { $0 + 1 } },
    Self("tryMap that throws") { $0.tryMap { if $0 == 7 { throw TestError() } else { $0 } } },
    Self("map to properties") {
      $0.map { (a: $0, b: $0, c: $0) }.map(\.a, \.b, \.c).map(\.0, \.1).map(\.1)
    },
    Self("compactMap") { $0.compactMap { $0.isMultiple(of: 2) ? $0 : nil } },
    Self("tryCompactMap") { $0.tryCompactMap { $0 < 30 ? $0 : nil } },
    Self("unwrap") { $0.map { $0.isMultiple(of: 2) ? $0 : nil }.unwrap() },
    Self("replaceNil") { $0.map { $0.isMultiple(of: 2) ? $0 : nil }.replaceNil(with: 0) },
    Self("filter") { $0.filter { $0.isMultiple(of: 3) } },
    Self("tryFilter") { $0.tryFilter { $0.isMultiple(of: 3) } },
    Self("scan") { $0.scan(0, +) },
    Self("tryScan") { $0.tryScan(0) { if $1 == 20 { throw TestError() } else { $0 + $1 } } },
    Self("removeDuplicates") { $0.map { $0 / 4 }.removeDuplicates() },
    Self("removeDuplicates by") { $0.removeDuplicates { $0 / 4 == $1 / 4 } },
    Self("tryRemoveDuplicates") { $0.tryRemoveDuplicates { $0 / 4 == $1 / 4 } },
    Self("mapError") { $0.mapError { $0 } },
    Self("setFailureType") { $0.replaceError(with: 7).setFailureType(to: TestError.self) },
    Self("assertNoFailure") { $0.replaceError(with: 7).setFailureType(to: TestError.self).assertNoFailure() },
    Self("encode") { $0.encode(encoder: NumberCoder()) },
    Self("encode that throws") { $0.map { 5 - $0 }.encode(encoder: NumberCoder()) },
    Self("decode") { $0.map { "\($0)" }.decode(type: Int.self, decoder: NumberCoder()) },
    Self("decode that throws") { $0.map { $0 < 5 ? "\($0)" : "" }.decode(type: Int.self, decoder: NumberCoder()) },
    Self("drop while") { $0.drop { $0 < 5 } },
    Self("tryDrop while") { $0.tryDrop { $0 < 5 } },
    Self("dropFirst") { $0.dropFirst(4) },
    Self("prefix while") { $0.prefix { $0 < 5 } },
    Self("tryPrefix while") { $0.tryPrefix { if $0 == 20 { throw TestError() } else { true } } },
    Self("tryFirst where") { $0.tryFirst { $0 == 5 } },
    Self("output in") { $0.output(in: 3..<9) },
    Self("output at") { $0.output(at: 3) },
    Self("prefix") { $0.prefix(4) },
    Self("prefix of none") { $0.prefix(0) },
    Self("first") { $0.first() },
    Self("first where") { $0.first { $0 == 5 } },
    Self("AnyPublisher") { $0.eraseToAnyPublisher().map { $0 }.eraseToAnyPublisher() },
    Self("a long pipeline") { $0.map { $0 + 1 }.filter { $0.isMultiple(of: 2) }.map { -$0 }.prefix(8) },
    Self("shareReplay") { $0.shareReplay(capacity: .max) },
  ]

  /// Operators with one result.
  private static let folds: [Self] = [
    Self("reduce") { $0.reduce(0, +) },
    Self("tryReduce") { $0.tryReduce(0) { if $1 == 20 { throw TestError() } else { $0 + $1 } } },
    Self("collect") { $0.collect() },
    Self("collect by count") { $0.collect(3) },
    Self("count") { $0.count() },
    Self("max") { $0.max() },
    Self("max by") { $0.max { $0 < $1 } },
    Self("min") { $0.min() },
    Self("min by") { $0.min { $0 < $1 } },
    Self("tryMax") { $0.tryMax { $0 < $1 } },
    Self("tryMin") { $0.tryMin { if $0 == 20 { throw TestError() } else { $0 < $1 } } },
    Self("last") { $0.last() },
    Self("last where") { $0.last { $0 < 20 } },
    Self("tryLast where") { $0.tryLast { $0 < 20 } },
    Self("ignoreOutput") { $0.ignoreOutput() },
    Self("contains") { $0.contains(20) },
    Self("contains where") { $0.contains { $0 < 0 } },
    Self("tryContains where") { $0.tryContains { $0 == 3 } },
    Self("allSatisfy") { $0.allSatisfy { $0 < 20 } },
    Self("tryAllSatisfy") { $0.tryAllSatisfy { _ in true } },
    Self("asSingle") { $0.asSingle() },
    Self("asSingle of one") { $0.first().asSingle() },
  ]

  /// Operators that continue with another publisher.
  private static let sequential: [Self] = [
    Self("append") { $0.append(1, 2, 3) },
    Self("append a publisher") { $0.append($0) },
    Self("prepend") { $0.prepend([1, 2, 3]) },
    Self("prepend a publisher") { $0.prepend($0) },
    Self("catch") { $0.catch { _ in Just(1) } },
    Self("catch with the same") { source in source.catch { _ in source } },
    Self("tryCatch") { source in source.tryCatch { _ in source } },
    Self("tryCatch that throws") { $0.tryCatch { error -> Just<Int> in throw error } },
    Self("retry") { $0.retry(3) },
    Self("replaceError") { $0.replaceError(with: 7) },
    Self("Deferred") { source in Deferred { source }.map { $0 } },
    Self("replaceEmpty") { $0.replaceEmpty(with: 7) },
  ]

  /// Operators with several upstreams at a time.
  private static let junctions: [Self] = [
    Self("merge") { $0.map { $0 }.merge(with: $0) },
    Self("merge of many") { $0.merge(with: $0).merge(with: $0) },
    Self("merge of three") { $0.merge(with: $0, $0.prefix(5)) },
    Self("merge of four") { $0.merge(with: $0, $0.filter { $0 > 3 }, $0) },
    Self("merge of five") { $0.merge(with: $0, $0, $0, $0.first()) },
    Self("merge of six") { $0.merge(with: $0.last(), $0, $0, $0, $0) },
    Self("merge of seven") { $0.merge(with: $0, $0, $0, $0, $0, $0) },
    Self("merge of eight") { $0.merge(with: $0.first(), $0.last(), $0, $0, $0, $0.filter { $0 > 3 }, $0) },
    Self("combineLatest") { $0.combineLatest($0) },
    Self("combineLatest of three") { $0.combineLatest($0.prefix(3), $0) },
    Self("combineLatest of four") { $0.combineLatest($0, $0.dropFirst(), $0) { $0 + $1 + $2 + $3 } },
    Self("zip") { $0.zip($0) },
    Self("zip with a shorter one") { $0.zip($0.prefix(5)) },
    Self("zip of three") { $0.zip($0, $0) },
    Self("zip of four") { $0.zip($0, $0.dropFirst(), $0) { $0 + $1 + $2 + $3 } },
    Self("prefix until output") { $0.prefix(untilOutputFrom: $0.dropFirst(3)) },
    Self("drop until output") { $0.drop(untilOutputFrom: $0.first()) },
    Self("flatMap") { source in source.flatMap { _ in source.prefix(2) } },
    Self("flatMap one at a time") { source in source.flatMap(maxPublishers: .max(1)) { _ in source.prefix(2) } },
    Self("flatMap into publishers that never fail") { $0.flatMap { Just($0) } },
    Self("flatMap into one value") { $0.flatMap(maxPublishers: .max(1)) { Just($0) } },
    Self("share") { $0.share() },
    Self("multicast") { $0.multicast(subject: PassthroughSubject()).autoconnect() },
    Self("makeConnectable") { $0.replaceError(with: 7).makeConnectable().autoconnect() },
    Self("switchToLatest") { source in source.map { _ in source.prefix(3) }.switchToLatest() },
  ]

  /// Sinks whose values a publisher with a closure passes on.
  private static let subscribers: [Self] = [
    Self("Create") { source in
      Create<Int, TestError> {
        source.sink(receiveCompletion: $0.receive(completion:), receiveValue: $0.receive)
      }
    },
    Self("pausableSink") { source in
      Create<Int, TestError> { receiver in
        source.pausableSink(receiveCompletion: receiver.receive(completion:)) { value in
          receiver.receive(value)
          return true
        }
      }
    },
  ]
}

/// Encodes and decodes plain numbers.
struct NumberCoder: TopLevelEncoder, TopLevelDecoder {
  func encode<T: Encodable>(_ value: T) throws -> String {
    guard let value = value as? Int, value >= 0 else { throw TestError() }
    return "\(value)"
  }

  func decode<T: Decodable>(_ type: T.Type, from input: String) throws -> T {
    guard let value = Int(input) as? T else { throw TestError() }
    return value
  }
}
