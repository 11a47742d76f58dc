import Events
import Glibc
import Reactive
import StreamRuntime
import TestSupport
import Testing

@testable import StreamServer

/// A source that the test controls, and that records its demand.
final class HandFedSource: Publisher, Sendable {
  typealias Output = EventBatch
  typealias Failure = StreamFailure

  private struct State {
    var link: Link?
    var subscriptions = 0
    var cancellations = 0
    var demand = Subscribers.Demand.none
  }

  private let state = Locked(State())

  var subscriptions: Int { state.withLock { $0.subscriptions } }
  var cancellations: Int { state.withLock { $0.cancellations } }
  var demand: Subscribers.Demand { state.withLock { $0.demand } }
  var isSubscribed: Bool { state.withLock { $0.link != nil } }

  func receive<S: Subscriber>(subscriber: S) where S.Input == EventBatch, S.Failure == StreamFailure {
    let link = Link(source: self, subscriber: AnySubscriber(subscriber))
    state.withLock {
      $0.link = link
      $0.subscriptions += 1
      $0.demand = .none
    }
    subscriber.receive(subscription: link)
  }

  /// Delivers a batch, whether it was requested or not.
  func send(_ events: [UInt8]...) { send(batch: events) }

  func send(batch: some Sequence<[UInt8]>) {
    let more = state.withLock { $0.link }?.subscriber.receive(EventBatch(batch)) ?? .none
    state.withLock {
      if $0.demand > .none { $0.demand -= 1 }; $0.demand += more
    }
  }

  func finish(_ completion: Subscribers.Completion<StreamFailure> = .finished) {
    state.withLock { $0.link }?.subscriber.receive(completion: completion)
  }

  final class Link: RetractableSubscription, @unchecked Sendable {  // a test sends from one thread at a time
    let source: HandFedSource
    let subscriber: AnySubscriber<EventBatch, StreamFailure>
    init(source: HandFedSource, subscriber: AnySubscriber<EventBatch, StreamFailure>) {
      self.source = source
      self.subscriber = subscriber
    }
    func retract() { source.state.withLock { $0.demand = .none } }
    func request(_ demand: Subscribers.Demand) { source.state.withLock { $0.demand += demand } }
    func cancel() {
      source.state.withLock {
        $0.link = nil
        $0.cancellations += 1
      }
    }
  }
}

extension ServerLimits {
  /// Hundreds of tests share two processors, so that a step of a test may take longer than any default, which no test is
  /// about: a test sets the time that it is about.
  fileprivate mutating func extendDefaultTimes() {
    let ordinary = ServerLimits()
    for time in [\ServerLimits.handshakeTimeout, \.resumeWait, \.http.stallTime, \.http.fullTime]
    where self[keyPath: time] == ordinary[keyPath: time] {
      self[keyPath: time] = .seconds(600)
    }
  }
}

/// A running server on a socket of its own.
final class ServerHarness: Sendable {
  let server: StreamServer
  let path: String
  private let folder: TemporaryFolder
  private let seen = ReportLog()

  var reports: [ServerReport] { seen.reports.withLock { $0 } }
  /// Whether the actions of clients are reported.
  func setWantsDetails(_ wanted: Bool) { seen.wantsDetails.withLock { $0 = wanted } }

  private final class ReportLog: Sendable {
    let reports = Locked<[ServerReport]>([])
    let wantsDetails = Locked(false)
  }

  /// Connections are assigned to the loops one by one, so that few of them test several threads.
  ///
  /// - Parameters:
  ///   - restores: another server will `handOver` to it.
  ///   - systemStreamAge: zero updates system streams for each request.
  init(
    _ limits: ServerLimits = ServerLimits(workers: 2), restores: Bool = false, systemStreamAge: Duration = .zero
  ) throws {
    var limits = limits
    limits.neighbours = 1
    limits.systemStreamAge = systemStreamAge
    limits.extendDefaultTimes()
    folder = try TemporaryFolder()
    path = folder.path("s")
    server = try StreamServer(
      limits: limits, restores: restores, version: "1.2.3",
      wantsDetails: { [seen] in seen.wantsDetails.withLock { $0 } },
      report: { [seen] report in seen.reports.withLock { $0.append(report) } })
    try server.start()
    server.listen(on: try UnixSocket.listen(at: path, mode: 0o600))
  }

  /// A stream that starts at once, so that a test can send before there are subscriptions.
  func add(
    _ name: String, start: ShareStart = .always, status: SourceStatus = SourceStatus(),
    _ change: (inout StreamConfiguration) -> Void = { _ in }
  ) throws -> HandFedSource {
    var configuration = StreamConfiguration(name: name, start: start)
    change(&configuration)
    let source = HandFedSource()
    try server.add(configuration, source: source, status: status)
    return source
  }

  /// A stream that clients publish to.
  @discardableResult
  func addPublished(_ name: String, _ change: (inout StreamConfiguration) -> Void = { _ in }) throws -> PublishSource {
    var configuration = StreamConfiguration(name: name, source: "publish", replay: 65536)
    change(&configuration)
    let publishSource = PublishSource()
    publishSource.isDirect = true
    try server.add(
      configuration, source: publishSource.setFailureType(to: StreamFailure.self), publishSource: publishSource)
    return publishSource
  }

  /// Hands every connection over to another server, as to another process.
  /// - Parameter meanwhile: called once the handover has begun.
  func handOver(to next: ServerHarness, meanwhile: () -> Void = {}) async throws {
    await next.restore(try await handOver(meanwhile: meanwhile))
  }

  /// Saves every connection, with the descriptors of this server.
  func save() async -> SavedConnections {
    await withCheckedContinuation { continuation in server.save { continuation.resume(returning: $0) } }
  }

  /// Saves every connection.
  /// - Returns: the connections as another process receives them.
  func handOver(meanwhile: () -> Void = {}) async throws -> SavedConnections {
    let saved = await withCheckedContinuation { continuation in
      server.save { continuation.resume(returning: $0) }
      meanwhile()
    }
    let perMessage = DescriptorParcel.fewPerMessage
    let (ends, count) = try DescriptorParcel.pack(saved.descriptors, perMessage: perMessage)
    #expect(count == saved.descriptors.count)
    var descriptors: [CInt] = []
    for (end, _) in ends {
      DescriptorParcel.copy(from: end, perMessage: perMessage) { descriptors.append($1) }
      close(end)
    }
    return try SavedConnections(state: saved.state(ofFirst: count), descriptors)
  }

  /// Restores the saved connections of another server, and serves them.
  func restore(_ saved: SavedConnections) async {
    await withCheckedContinuation { continuation in
      server.restore(saved) { continuation.resume() }
    }
    await finishRestore()
  }

  /// Serves what was restored, if anything was.
  func finishRestore() async {
    await withCheckedContinuation { continuation in
      server.finishRestore { continuation.resume() }
    }
  }

  /// Returns when each loop has ended what it is doing.
  func endTurns() async {
    for loop in server.loops {
      await withCheckedContinuation { continuation in loop.execute { continuation.resume() } }
    }
  }

  /// Waits until `condition` holds.
  func eventually(_ condition: () throws -> Bool, sourceLocation: SourceLocation = #_sourceLocation) rethrows {
    let deadline = hangDeadline()
    while try !condition() {
      guard EventLoop.monotonicNow() < deadline else {
        Issue.record("the condition never came true", sourceLocation: sourceLocation)
        return
      }
      usleep(1000)
    }
  }

  /// Whether the socket of the only connection takes no more.
  func isBlocked() async -> Bool {
    await withCheckedContinuation { continuation in
      server.loops[0].execute { [server] in
        continuation.resume(returning: server.workers[0].allConnections.first?.isBlocked == true)
      }
    }
  }

  func stop() async {
    await withCheckedContinuation { continuation in
      server.stop { continuation.resume() }
    }
  }
}

func withServer(_ limits: ServerLimits = ServerLimits(workers: 2), _ body: (ServerHarness) async throws -> Void)
  async throws
{
  let harness = try ServerHarness(limits)
  do {
    try await body(harness)
  } catch {
    await harness.stop()
    throw error
  }
  await harness.stop()
}

/// A server, and one that continues with its connections: see `ServerHarness.handOver`.
func withTwoServers(
  _ limits: ServerLimits = ServerLimits(workers: 2), _ body: (ServerHarness, ServerHarness) async throws -> Void
) async throws {
  let next = try ServerHarness(limits, restores: true)
  try await withServer(limits) { first in try await body(first, next) }
  await next.stop()
}
