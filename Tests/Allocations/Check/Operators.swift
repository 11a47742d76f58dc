import Reactive

/// Encodes an integer as itself.
private struct PlainCoder: TopLevelEncoder, TopLevelDecoder {
  func encode<T: Encodable>(_ value: T) throws -> Int { value as? Int ?? 0 }

  func decode<T: Decodable>(_ type: T.Type, from input: Int) throws -> T {
    guard let value = input as? T else { throw Broken() }
    return value
  }
}

private struct Point {
  let x, y, z: Int
  init(_ value: Int) { (x, y, z) = (value, value &+ 1, value &+ 2) }
}

/// Checks operators that handle each value immediately, and operators that observe signals.
func checkStages() {
  operation("subject") { $0 }
  operation("AnyPublisher") { $0.eraseToAnyPublisher() }
  operation("map") { $0.map { $0 &+ 1 } }
  operation("tryMap") { $0.tryMap { if $0 < 0 { throw Broken() } else { $0 } } }
  operation("map to properties") { $0.map { Point($0) }.map(\.x, \.y, \.z).map(\.0, \.1).map(\.0) }
  operation("mapError") { $0.mapError { $0 } }
  operation("compactMap") { $0.compactMap { $0 < 0 ? nil : $0 } }
  operation("tryCompactMap") { $0.tryCompactMap { $0 < 0 ? nil : $0 } }
  operation("unwrap") { $0.map { Optional($0) }.unwrap() }
  operation("replaceNil") { $0.map { $0 > 5 ? $0 : nil }.replaceNil(with: 0) }
  operation("filter") { $0.filter { $0 >= 0 } }
  operation("tryFilter") { $0.tryFilter { $0 >= 0 } }
  operation("replaceEmpty") { $0.replaceEmpty(with: 0) }
  operation("replaceError") { $0.replaceError(with: 0) }
  operation("setFailureType") { $0.replaceError(with: 0).setFailureType(to: Broken.self) }
  operation("assertNoFailure") { $0.assertNoFailure() }
  operation("scan") { $0.scan(0) { $0 &+ $1 } }
  operation("tryScan") { $0.tryScan(0) { $0 &+ $1 } }
  operation("output in") { $0.output(in: 5...) }
  operation("prefix") { $0.prefix(.max) }
  operation("prefix while") { $0.prefix { $0 >= 0 } }
  operation("tryPrefix while") { $0.tryPrefix { $0 >= 0 } }
  operation("dropFirst") { $0.dropFirst(5) }
  operation("drop while") { $0.drop { $0 < 5 } }
  operation("tryDrop while") { $0.tryDrop { $0 < 5 } }
  operation("removeDuplicates") { $0.removeDuplicates() }
  operation("tryRemoveDuplicates") { $0.tryRemoveDuplicates { $0 == $1 } }
  operation("encode") { $0.encode(encoder: PlainCoder()) }
  operation("decode") { $0.decode(type: Int.self, decoder: PlainCoder()) }
  operation("handleEvents") { $0.handleEvents(receiveOutput: { _ in }, receiveRequest: { _ in }) }
  operation("breakpoint") { $0.breakpoint(receiveOutput: { $0 < 0 }) }
  operation("measureInterval") { $0.measureInterval(using: ImmediateScheduler.shared) }
  operation("buffer") { $0.buffer(size: 4, prefetch: .byRequest, whenFull: .dropOldest) }
  operation("subscribe on") { $0.subscribe(on: ImmediateScheduler.shared) }
}

/// Checks operators with several upstreams, at a time or one after another.
func checkJunctions() {
  let one = Just(1).setFailureType(to: Broken.self)
  operation("append") { Empty().append($0) }
  operation("prepend") { $0.prepend(1, 2, 3) }
  operation("catch") { $0.catch { _ in Just(1) } }
  operation("tryCatch") { $0.tryCatch { _ in Just(1) } }
  operation("retry") { $0.retry(3) }
  operation("merge") { $0.map { $0 }.merge(with: $0) }
  operation("merge of many") { $0.merge(with: $0) }
  operation("merge of eight") { $0.merge(with: $0, $0, $0, $0, $0, $0, $0) }
  operation("combineLatest") { $0.combineLatest($0) }
  operation("combineLatest of four") { $0.combineLatest($0, $0, $0) { $0 &+ $1 &+ $2 &+ $3 } }
  operation("zip") { $0.zip($0) }
  operation("zip of four") { $0.zip($0, $0, $0) { $0 &+ $1 &+ $2 &+ $3 } }
  operation("prefix until output") { $0.prefix(untilOutputFrom: Empty<Int, Broken>(completeImmediately: false)) }
  operation("drop until output") { $0.drop(untilOutputFrom: one) }
  operation("flatMap") { source in one.flatMap { _ in source } }
  operation("switchToLatest") { source in one.map { _ in source }.switchToLatest() }
  operation("flatMap into one value") { $0.replaceError(with: 0).flatMap { Just($0) } }
}

/// Checks operators with several subscribers.
func checkSharing() {
  operation("multicast") { $0.multicast { PassthroughSubject() }.autoconnect() }
  operation("makeConnectable") { $0.replaceError(with: 0).makeConnectable().autoconnect() }
  operation("share") { $0.share() }
  operation("share of a share") { $0.share().merge(with: $0.share()) }
  operation("shareReplay") { $0.shareReplay(16) }
  operation("multicast with replay") { $0.multicast(subject: ReplaySubject(bufferSize: 16)).autoconnect() }
  operation("multicast with a value") { $0.multicast(subject: CurrentValueSubject(0)).autoconnect() }
  let shared = Source()
  let replayed = shared.shareReplay(16)
  let sinks = (0..<10).map { _ in
    replayed.sink(receiveCompletion: { _ in }, receiveValue: { _ in delivered += 1 })
  }
  check("shareReplay, 10 sinks", shared.send)
  withExtendedLifetime(sinks) {}
}

/// Checks operators with one result.
func checkFolds() {
  fold("reduce") { $0.reduce(0) { $0 &+ $1 } }
  fold("tryReduce") { $0.tryReduce(0) { $0 &+ $1 } }
  fold("count") { $0.count() }
  fold("max") { $0.max() }
  fold("tryMax") { $0.tryMax { $0 < $1 } }
  fold("min") { $0.min() }
  fold("last") { $0.last() }
  fold("last where") { $0.last { $0 > 5 } }
  fold("tryLast where") { $0.tryLast { $0 > 5 } }
  fold("first where") { $0.first { $0 < 0 } }
  fold("tryFirst where") { $0.tryFirst { $0 < 0 } }
  fold("contains") { $0.contains(-1) }
  fold("contains where") { $0.contains { $0 < 0 } }
  fold("tryContains where") { $0.tryContains { $0 < 0 } }
  fold("allSatisfy") { $0.allSatisfy { $0 >= 0 } }
  fold("tryAllSatisfy") { $0.tryAllSatisfy { $0 >= 0 } }
  fold("ignoreOutput") { $0.ignoreOutput() }
}

/// Checks a sink whose subscription was passed on by a program's operator and that completes inside `receive`: its
/// closure must outlive the call. A debug build retains it anyway.
func checkEndInsideAValue() {
  final class Token: Sendable {}
  final class Forwarding: Publisher, @unchecked Sendable {
    typealias Output = Int
    typealias Failure = Never
    let subject = PassthroughSubject<Int, Never>()
    var down: AnySubscriber<Int, Never>?
    func receive<S: Subscriber<Int, Never>>(subscriber: S) {
      down = AnySubscriber(subscriber)
      subject.subscribe(
        AnySubscriber(receiveSubscription: subscriber.receive, receiveValue: subscriber.receive))
    }
  }
  let publisher = Forwarding()
  nonisolated(unsafe) weak var token: Token?
  nonisolated(unsafe) var isFreed = false
  func watch() -> AnyCancellable {
    let captured = Token()
    token = captured
    return publisher.sink { _ in
      publisher.down?.receive(completion: .finished)
      isFreed = token == nil
      withExtendedLifetime(captured) {}
    }
  }
  let sink = watch()
  publisher.subject.send(1)
  judge("end inside a value", isFreed ? 1 : 0, allowed: 0, of: "closures freed during their call")
  judge("end inside a value", token == nil ? 0 : 1, allowed: 0, of: "closures kept after the end")
  withExtendedLifetime(sink) {}
}
