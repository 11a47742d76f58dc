import ClientTestSupport
import Glibc
import RSocket
import Reactive
import StreamClient
import StreamRuntime
import Synchronization
import Testing

/// A publisher that the test controls, and that records its demand.
private final class ScriptedPublisher: Publisher, Sendable {
  typealias Output = [UInt8]
  typealias Failure = Never

  enum Signal: Equatable {
    case demand(Int?)
    case cancelled
  }

  private final class Link: Subscription {
    let signals: Recorder<Signal>
    init(_ signals: Recorder<Signal>) { self.signals = signals }
    func request(_ demand: Subscribers.Demand) { signals.record(.demand(demand.max)) }
    func cancel() { signals.record(.cancelled) }
  }

  private let signals = Recorder<Signal>()
  private let subscriber = Locked<AnySubscriber<[UInt8], Never>?>(nil)

  func receive<S: Subscriber>(subscriber: S) where S.Input == [UInt8], S.Failure == Never {
    self.subscriber.withLock { $0 = AnySubscriber(subscriber) }
    subscriber.receive(subscription: Link(signals))
  }

  func next() async -> Signal? { await signals.next() }
  func send(_ text: String) { _ = subscriber.withLock { $0 }?.receive(Array(text.utf8)) }
  func finish() { subscriber.withLock { $0 }?.receive(completion: .finished) }
}

/// The publishing half of the library against a scripted server.
@Suite(.timeLimit(.minutes(10))) struct RemoteSinkTests {
  private let id = StreamID(1)

  private func value(_ text: String) -> ServerEvent {
    .other(.payload(id, Payload(data: Array(text.utf8)), isComplete: false))
  }

  /// Publishes the values of `values`, with the completion as a signal.
  private func publish(_ values: some Publisher<[UInt8], Never>, _ server: ScriptedServer) throws -> (
    AnyCancellable, Recorder<Signal>
  ) {
    let ends = Recorder<Signal>()
    let publication = try StreamConnection(socket: server.path).publish(values, to: "p") { completion in
      switch completion {
      case .finished: ends.record(.finished)
      case .failure(let error): ends.record(.failed(error))
      }
    }
    return (publication, ends)
  }

  @Test func theFirstValueOpensTheRequestAndFurtherValuesWaitForCredit() async throws {
    try await ScriptedServer.run { server in
      let values = ScriptedPublisher()
      let (publication, ends) = try publish(values, server)
      #expect(await values.next() == .demand(1))
      values.send("a")
      #expect(await server.next() == .request(id, .channel, 1, "p", "a"))
      server.act { $0.machine.sendRequestN(StreamID(1), 2) }
      #expect(await values.next() == .demand(2))
      values.send("b")
      #expect(await server.next() == value("b"))
      server.act { $0.machine.sendRequestN(StreamID(1), 3) }
      #expect(await values.next() == .demand(3))
      values.send("c")
      #expect(await server.next() == value("c"))
      values.finish()
      #expect(await server.next() == .other(.complete(id)))
      server.act { $0.machine.sendComplete(StreamID(1)) }
      #expect(await ends.next() == .finished)
      publication.cancel()
    }
  }

  @Test func largeCreditIsRequestedInStepsAndValuesArriveInOrder() async throws {
    let received = Locked<[Int]>([])
    let produced = Count()
    try await ScriptedServer.run(script: { peer, event in
      switch event {
      case .request(let id, _, _, _, _): peer.machine.sendRequestN(id, Credit.unlimited)
      case .other(.payload(_, let payload, _)):
        let count = received.withLock {
          $0.append(payload.data.count)
          return $0.count
        }
        // Values of 1 KiB and more that wait here and in the sockets are limited.
        #expect(produced.count - count < 2000)
      case .other(.complete(let id)): peer.machine.sendComplete(id)
      default: break
      }
    }) { server in
      let values = (0..<20_000).lazy.map { number in
        produced.raise()
        return [UInt8](repeating: 7, count: 1024 + number % 100)
      }
      let (publication, ends) = try publish(values.publisher, server)
      #expect(await ends.next() == .finished)
      #expect(received.withLock { $0 } == (1..<20_000).map { 1024 + $0 % 100 })
      publication.cancel()
    }
  }

  private final class Count: Sendable {
    private let value = Atomic(0)
    func raise() { value.add(1, ordering: .relaxed) }
    var count: Int { value.load(ordering: .relaxed) }
  }

  @Test func aValueOfManyFragmentsIsNotAStalledServer() async throws {
    let large = [UInt8](repeating: 1, count: 5 << 20)
    try await ScriptedServer.run(script: { peer, event in
      switch event {
      case .request(let id, _, _, _, let data):
        #expect(data.utf8.count == 5 << 20)
        peer.machine.sendRequestN(id, 1)
      case .other(.payload(let id, let payload, _)):
        #expect(payload.data.count == 5 << 20)
        peer.machine.sendComplete(id)
      default: break
      }
    }) { server in
      let (publication, ends) = try publish([large, large].publisher, server)
      #expect(await ends.next() == .finished)
      publication.cancel()
    }
  }

  @Test(arguments: [
    (ErrorCode.rejected, StreamError.rejected("no")), (.invalid, .invalid("no")), (.canceled, .canceled("no")),
  ]) func aRejectionEndsTheSinkAndCancelsThePublisher(code: ErrorCode, error: StreamError) async throws {
    try await ScriptedServer.run(script: { peer, event in
      if case .request(let id, _, _, _, _) = event { peer.machine.sendError(id, code, "no") }
    }) { server in
      let values = ScriptedPublisher()
      let (publication, ends) = try publish(values, server)
      #expect(await values.next() == .demand(1))
      values.send("a")
      #expect(await ends.next() == .failed(error))
      #expect(await values.next() == .cancelled)
      values.send("late")
      values.finish()
      publication.cancel()
    }
  }

  @Test func aLossAndAConnectionErrorAreReported() async throws {
    try await ScriptedServer.run(script: { peer, event in
      guard case .request = event else { return }
      if peer.id == 0 { peer.close() } else { peer.machine.close(.connectionError, "too long") }
    }) { server in
      for error in [StreamError.disconnected("the server closed the connection"), .cutOff("too long")] {
        let (publication, ends) = try publish(["a", "b"].publisher.map { Array($0.utf8) }, server)
        #expect(await ends.next() == .failed(error))
        publication.cancel()
      }
    }
  }

  @Test func aCancelledSinkSendsAnErrorAndReceivesNothingMore() async throws {
    try await ScriptedServer.run { server in
      let values = ScriptedPublisher()
      let (publication, ends) = try publish(values, server)
      #expect(await values.next() == .demand(1))
      values.send("a")
      #expect(await server.next() == .request(id, .channel, 1, "p", "a"))
      publication.cancel()
      #expect(await server.next() == .other(.cancel(id)))
      #expect(await values.next() == .cancelled)
      ends.record(.value("silence"))
      #expect(await ends.next() == .value("silence"))
    }
  }

  @Test func anEarlyCompletionByTheServerIsAFailure() async throws {
    try await ScriptedServer.run(script: { peer, event in
      if case .request(let id, _, _, _, _) = event { peer.machine.sendComplete(id) }
    }) { server in
      let values = ScriptedPublisher()
      let (publication, ends) = try publish(values, server)
      #expect(await values.next() == .demand(1))
      values.send("a")
      guard case .failed(.canceled) = await ends.next() else { return #expect(Bool(false), "finished") }
      #expect(await values.next() == .cancelled)
      publication.cancel()
    }
  }

  @Test func aPublisherWithoutValuesFinishesWithoutARequest() async throws {
    try await ScriptedServer.run { server in
      let values = ScriptedPublisher()
      let (publication, ends) = try publish(values, server)
      values.finish()
      #expect(await ends.next() == .finished)
      #expect(server.connectionCount == 0)
      publication.cancel()
    }
  }

  @Test func aNameThatIsTooLongIsInvalid() async throws {
    try await ScriptedServer.run { server in
      let ends = Recorder<Bool>()
      let connection = try StreamConnection(socket: server.path)
      let publication = connection.publish(Just([1]), to: String(repeating: "n", count: 256)) { completion in
        if case .failure(.invalid) = completion { ends.record(true) } else { ends.record(false) }
      }
      #expect(await ends.next() == true)
      publication.cancel()
    }
  }

  @Test func aSequenceIsAwaitedAsCreditArrives() async throws {
    try await ScriptedServer.run(script: { peer, event in
      switch event {
      case .request(let id, _, _, _, _): peer.machine.sendRequestN(id, 2)
      case .other(.payload(let id, let payload, _)) where payload.data == [2]: peer.machine.sendRequestN(id, 5)
      case .other(.complete(let id)): peer.machine.sendComplete(id)
      default: break
      }
    }) { server in
      let (values, source) = AsyncStream.makeStream(of: [UInt8].self)
      for number in 0..<5 as Range<UInt8> { source.yield([number]) }
      source.finish()
      try await StreamConnection(socket: server.path).publish(values, to: "p")
      guard case .request(_, .channel, 1, "p", _) = await server.next() else {
        return #expect(Bool(false), "no request")
      }
      for number in 1..<5 as Range<UInt8> {
        #expect(await server.next() == .other(.payload(id, Payload(data: [number]), isComplete: false)))
      }
    }
  }

  @Test func aCancelledTaskCancelsTheRequest() async throws {
    try await ScriptedServer.run { server in
      let (values, source) = AsyncStream.makeStream(of: [UInt8].self)
      source.yield([1])
      let connection = try StreamConnection(socket: server.path)
      let task = Task {
        do throws(StreamError) {
          try await connection.publish(values, to: "p")
          return StreamError?.none
        } catch {
          return error
        }
      }
      guard case .request = await server.next() else { return #expect(Bool(false), "no request") }
      task.cancel()
      #expect(await task.value == .canceled("the task was cancelled"))
      #expect(await server.next() == .other(.cancel(id)))
    }
  }
}
