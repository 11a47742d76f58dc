import Foundation
import ReactiveFoundation
import Testing

@Suite(.timeLimit(.minutes(10))) struct ReactiveFoundationTests {
  /// A run loop on its own thread.
  private final class Loop: @unchecked Sendable {
    let runLoop: RunLoop

    init() {
      final class Box: @unchecked Sendable { var loop: RunLoop? }
      let box = Box()
      let started = DispatchSemaphore(value: 0)
      Thread {
        box.loop = .current
        // Keeps a loop without work from ending.
        RunLoop.current.add(Timer(timeInterval: 86400, repeats: true) { _ in }, forMode: .default)
        started.signal()
        while RunLoop.current.run(mode: .default, before: .distantFuture) {}
      }.start()
      started.wait()
      guard let loop = box.loop else { fatalError("a thread without a run loop") }
      runLoop = loop
    }
  }

  private struct Item: Codable, Equatable { var name: String }

  /// All values up to the completion.
  private func values<P: Publisher>(of publisher: P) async throws -> [P.Output] {
    var values: [P.Output] = []
    for try await value in publisher.buffer(size: .max, prefetch: .byRequest, whenFull: .dropNewest).values {
      values.append(value)
    }
    return values
  }

  @Test func runLoopDeliversInOrderAlsoAfterSleeping() async throws {
    let loop = Loop()
    let delivered = (1...100).publisher.receive(on: loop.runLoop)
      .handleEvents(receiveOutput: { _ in #expect(RunLoop.current === loop.runLoop) })
    #expect(try await values(of: delivered) == Array(1...100))
  }

  @Test func runLoopDeliversAtTheScheduledTime() async throws {
    let loop = Loop()
    let start = loop.runLoop.now
    let delayed = Just(1).delay(for: .milliseconds(20), scheduler: loop.runLoop)
    #expect(try await values(of: delayed) == [1])
    #expect(start.distance(to: loop.runLoop.now) >= .milliseconds(19))
  }

  @Test func operationQueueDeliversInOrder() async throws {
    let queue = OperationQueue()
    queue.maxConcurrentOperationCount = 4
    let delivered = (1...1000).publisher.receive(on: queue).delay(for: 0.01, scheduler: queue)
    #expect(try await values(of: delivered) == Array(1...1000))
  }

  @Test func schedulersHaveTheirOwnTimeTypes() throws {
    #expect(RunLoop.SchedulerTimeType.self != OperationQueue.SchedulerTimeType.self)
    #expect(RunLoop.SchedulerTimeType.Stride(exactly: 2) == .seconds(2.0))
    let strides = [
      try JSONEncoder().encode(RunLoop.SchedulerTimeType.Stride(1.5)),
      try JSONEncoder().encode(OperationQueue.SchedulerTimeType.Stride(1.5)),
    ]
    for stride in strides { #expect(String(decoding: stride, as: UTF8.self) == #"{"magnitude":1.5}"#) }
  }

  @Test func cancellableEndsRepeatedWork() async throws {
    let queue = OperationQueue()
    let loop = Loop()
    for ticks in [
      ticks { queue.schedule(after: queue.now, interval: .milliseconds(2), $0) },
      ticks { loop.runLoop.schedule(after: loop.runLoop.now, interval: .milliseconds(2), $0) },
    ] {
      #expect(try await values(of: ticks.prefix(3)).count == 3)
    }
  }

  private func ticks(
    _ start: @escaping (@escaping () -> Void) -> any Cancellable
  ) -> AnyPublisher<Void, Never> {
    let subject = PassthroughSubject<Void, Never>()
    let timer = AnyCancellable(start { subject.send() })
    return subject.handleEvents(receiveCancel: { timer.cancel() }).eraseToAnyPublisher()
  }

  @Test func timerTicksWhileConnected() async throws {
    let loop = Loop()
    let timer = Timer.publish(every: 0.002, on: loop.runLoop, in: .default)
    let connection = timer.connect()
    let dates = try await values(of: timer.prefix(3))
    connection.cancel()
    #expect(dates.count == 3 && dates == dates.sorted())
  }

  @Test func notificationsAreDeliveredUntilTheSubscriberCancels() {
    let center = NotificationCenter()
    let name = Notification.Name("test")
    nonisolated(unsafe) var seen: [Int] = []
    let sink = center.publisher(for: name).compactMap { $0.userInfo?["n"] as? Int }.sink { seen.append($0) }
    center.post(name: name, object: nil, userInfo: ["n": 1])
    center.post(name: Notification.Name("other"), object: nil, userInfo: ["n": 2])
    center.post(name: name, object: nil, userInfo: ["n": 3])
    sink.cancel()
    center.post(name: name, object: nil, userInfo: ["n": 4])
    #expect(seen == [1, 3])
  }

  @Test func foundationCodersAreTopLevelCoders() async throws {
    let items = [Item(name: "a"), Item(name: "b")]
    let json = items.publisher.encode(encoder: JSONEncoder()).decode(type: Item.self, decoder: JSONDecoder())
    #expect(try await values(of: json) == items)
    let lists = items.publisher.encode(encoder: PropertyListEncoder())
      .decode(type: Item.self, decoder: PropertyListDecoder())
    #expect(try await values(of: lists) == items)
  }
}
