import Reactive
import StreamClient
import StreamRuntime
import StreamServer
import TestSupport
import Testing

/// Every public function can be called from the main actor, from an actor and from a detached task: compiling this
/// is most of the test.
@Suite(.timeLimit(.minutes(10))) struct IsolationTests {
  private static let options = SubscribeOptions(from: .replay, onLag: .skip, ids: true)

  /// Runs `body` with the path of a server that has a stream `numbers` of the events 1 to 3, and one that is published
  /// to.
  private func withServer(_ body: (String) async throws -> Void) async throws {
    let folder = try TemporaryFolder()
    let path = folder.path("s")
    let server = try StreamServer(limits: ServerLimits(workers: 1))
    let numbers = (1...3).map { [Array("\($0)".utf8)] }.publisher.setFailureType(to: StreamFailure.self)
    try server.add(StreamConfiguration(name: "numbers", replay: 3, start: .always), source: numbers)
    let publishSource = PublishSource()
    try server.add(
      StreamConfiguration(name: "words", replay: 100), source: publishSource.setFailureType(to: StreamFailure.self),
      publishSource: publishSource)
    try server.start()
    server.listen(on: try UnixSocket.listen(at: path, mode: 0o600))
    do {
      try await body(path)
    } catch {
      Issue.record(error)
    }
    await withCheckedContinuation { continuation in server.stop { continuation.resume() } }
  }

  private static let expected = ["1", "2", "3", "a", "b", "c", "d", "e"]

  @Test func theMainActorCanUseEverything() async throws {
    try await withServer { path in
      let texts = try await MainUser(path).use()
      #expect(texts == Self.expected)
    }
  }

  @Test func anActorCanUseEverything() async throws {
    try await withServer { path in
      let texts = try await ActorUser(path).use()
      #expect(texts == Self.expected)
    }
  }

  @Test func aDetachedTaskCanUseEverything() async throws {
    try await withServer { path in
      let options = Self.options
      let connection = try StreamConnection(socket: path)
      let stream = connection.stream("numbers", options: options, reconnect: ReconnectPolicy())
      let value = connection.value(of: "numbers")
      let texts = try await Task.detached {
        var texts: [String] = []
        for try await event in stream.values { texts.append(String(decoding: event.data, as: UTF8.self)) }
        #expect(try await value.value.data == Array("3".utf8))
        #expect(try await connection.value(of: "numbers").value.gap == nil)
        for try await event in value.values { #expect(event.id != nil) }
        try await connection.publish(words(["a", "b"]), to: "words")
        try await connection.publish(asyncBytes(["c"]), to: "words")
        let published = Future<Void, StreamError> { promise in
          let publisher = ["d", "e"].publisher
          connection.publish(publisher, to: "words") { completion in
            promise(completion == .finished ? .success(()) : .failure(.canceled("")))
          }.store(in: &Held.shared)
        }
        try await published.value
        for try await event in connection.stream("words").values {
          texts.append(String(decoding: event.data, as: UTF8.self))
          if texts.count == 8 { break }
        }
        connection.close()
        return texts
      }.value
      #expect(texts == Self.expected)
    }
  }

  @Test @MainActor func theAsyncPartsOfReactiveWorkOnTheMainActor() async throws {
    let subject = CurrentValueSubject<Int, Never>(1)
    for await value in subject.values {
      #expect(value == 1)
      break
    }
    for try await value in [1].publisher.setFailureType(to: StreamError.self).values { #expect(value == 1) }
    let future = Future<Int, Never> { $0(.success(7)) }
    #expect(await future.value == 7)
    let failing = Future<Int, StreamError> { $0(.failure(.canceled("x"))) }
    await #expect(throws: StreamError.canceled("x")) { try await failing.value }
    var iterator = (1...2).publisher.values.makeAsyncIterator()
    #expect(await iterator.next() == 1)
    #expect(await iterator.next(isolation: MainActor.shared) == 2)
  }
}

/// Keeps subscriptions for as long as the tests run.
private enum Held {
  nonisolated(unsafe) private static var cancellables: Set<AnyCancellable> = []
  private static let lock = Locked(())
  static var shared: Set<AnyCancellable> {
    get { lock.withLock { _ in cancellables } }
    set { lock.withLock { _ in cancellables = newValue } }
  }
}

private func words(_ words: [String]) -> AsyncStream<String> {
  AsyncStream { continuation in
    for word in words { continuation.yield(word) }
    continuation.finish()
  }
}

private func asyncBytes(_ words: [String]) -> AsyncStream<[UInt8]> {
  AsyncStream { continuation in
    for word in words { continuation.yield(Array(word.utf8)) }
    continuation.finish()
  }
}

@MainActor private final class MainUser {
  private let connection: StreamConnection
  private let stream: RemoteStream
  private var cancellables: Set<AnyCancellable> = []
  private var texts: [String] = []

  init(_ path: String) throws {
    connection = try StreamConnection(socket: path)
    stream = connection.stream("numbers", options: SubscribeOptions())
  }

  func use() async throws -> [String] {
    for try await event in stream.values { texts.append(String(decoding: event.data, as: UTF8.self)) }
    #expect(try await connection.value(of: "numbers").value.data == Array("3".utf8))
    let value = connection.value(of: "numbers")
    for try await event in value.values { #expect(event.time != nil) }
    try await connection.publish(words(["a", "b"]), to: "words")
    try await connection.publish(asyncBytes(["c"]), to: "words")
    let connection = connection
    let completion = await withCheckedContinuation { continuation in
      connection.publish(["d"].publisher, to: "words") { continuation.resume(returning: $0) }.store(in: &cancellables)
    }
    #expect(completion == .finished)
    let second = await withCheckedContinuation { continuation in
      let sink = connection.sink(to: "words") { continuation.resume(returning: $0) }
      Just(Array("e".utf8)).subscribe(sink)
      AnyCancellable(sink).store(in: &cancellables)
    }
    #expect(second == .finished)
    for try await event in connection.stream("words").values {
      texts.append(String(decoding: event.data, as: UTF8.self))
      if texts.count == 8 { break }
    }
    connection.close()
    return texts
  }
}

private actor ActorUser {
  private let connection: StreamConnection
  private let stream: RemoteStream
  private var cancellables: Set<AnyCancellable> = []
  private var texts: [String] = []

  init(_ path: String) throws {
    connection = try StreamConnection(socket: path)
    stream = connection.stream("numbers", reconnect: ReconnectPolicy())
  }

  func use() async throws -> [String] {
    for try await event in stream.values { texts.append(String(decoding: event.data, as: UTF8.self)) }
    #expect(try await connection.value(of: "numbers").value.data == Array("3".utf8))
    let value = connection.value(of: "numbers")
    for try await event in value.values { #expect(event.time != nil) }
    try await connection.publish(words(["a", "b"]), to: "words")
    try await connection.publish(asyncBytes(["c"]), to: "words")
    let connection = connection
    let completion = await withCheckedContinuation { continuation in
      connection.publish([Array("d".utf8)].publisher, to: "words") { continuation.resume(returning: $0) }
        .store(in: &cancellables)
    }
    #expect(completion == .finished)
    let second = await withCheckedContinuation { continuation in
      let sink = connection.sink(to: "words") { continuation.resume(returning: $0) }
      Just(Array("e".utf8)).subscribe(sink)
      AnyCancellable(sink).store(in: &cancellables)
    }
    #expect(second == .finished)
    for try await event in connection.stream("words").values {
      texts.append(String(decoding: event.data, as: UTF8.self))
      if texts.count == 8 { break }
    }
    connection.close()
    return texts
  }
}
