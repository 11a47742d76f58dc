import Glibc
import RSocket
import Reactive
import StreamRuntime
import TestSupport
import Testing

@testable import StreamServer

/// Connections that close while a loop handles their subscriptions or timers.
@Suite struct ClosingTests {
  private static let unlimited: UInt32 = 0x7FFF_FFFF

  private func numbers(_ range: Range<Int>) -> [[UInt8]] { range.map { Array("event \($0)".utf8) } }

  /// Unread input would make the kernel reset the connection, and a client could lose the reason for its end.
  @Test(arguments: ["", "/rsocket", "/streams/s", "/streams/p?publish=1"])
  func aConnectionThatTheServerEndsIsReadUntilItsClientHasTheReason(target: String) async throws {
    try await withServer(ServerLimits(workers: 1)) { harness in
      _ = try harness.add("s")
      try harness.addPublished("p")
      let client = try HTTPWireClient(harness)
      if !target.isEmpty {
        client.send(WebSocketClient.handshake(at: target))
        #expect(try client.head()?.status == 101)
      }
      client.send([0, 0, 6] + [UInt8](repeating: 255, count: 150_000))
      let answers = try client.rest()
      #expect(target.isEmpty ? answers.count > 9 : answers.first == 0x88, "\(answers)")
      client.closeWriting()
      harness.eventually { harness.server.statistics.connections == 0 }
    }
  }

  /// It gets a second to close its end.
  @Test func aClientThatNeverClosesIsCutOff() async throws {
    try await withServer(ServerLimits(workers: 1)) { harness in
      let client = try HTTPWireClient(harness)
      client.send([0, 0, 6] + [UInt8](repeating: 255, count: 100))
      #expect(try client.rest().count > 9)
      harness.eventually { harness.server.statistics.connections == 0 }
    }
  }

  /// The first subscription's error is written to a closed socket, which closes the connection; the second
  /// subscription ends with it.
  @Test func closingAConnectionDuringAStallEndsEachSubscriptionOnce() async throws {
    try await withServer(ServerLimits(workers: 1)) { harness in
      let source = try harness.add("s") {
        $0.limits = .init(events: 16)
        $0.overflow = .block(timeout: .milliseconds(40))
      }
      let holder = try WireClient.ready(harness.path)
      holder.subscribe("s", credit: 1, id: 1)
      holder.subscribe("s", credit: 1, id: 3)
      let reader = try WireClient.ready(harness.path)
      reader.subscribe("s", credit: Self.unlimited)
      harness.eventually { harness.server.statistics.subscribers == 3 }
      source.send(batch: numbers(0..<100))
      _ = try holder.events(2)
      shutdown(holder.descriptor.raw, CInt(SHUT_RD))
      #expect(try reader.events(100) == numbers(0..<100))
      harness.eventually { harness.server.statistics.connections == 1 && harness.server.statistics.subscribers == 1 }
      #expect(try reader.isSilent())
    }
  }

  /// The answer of a request that ends is written to a closed socket, which closes the connection within the request's end.
  @Test(arguments: ["removed", "ended", "failed", "denied"], ["?wait=60s", "?as=sse"])
  func anAnswerThatClosesTheConnectionEndsTheSubscriptionOnce(reason: String, query: String) async throws {
    try await withServer(ServerLimits(workers: 1)) { harness in
      let source = try harness.add("s")
      let reader = try WireClient.ready(harness.path)
      reader.subscribe("s", credit: Self.unlimited)
      let client = try HTTPWireClient(harness)
      client.get("/streams/s\(query)")
      harness.eventually { harness.server.statistics.subscribers == 2 }
      shutdown(client.wire.descriptor.raw, CInt(SHUT_RD))
      switch reason {
      case "removed": #expect(harness.server.change([], removing: ["s"]).isEmpty)
      case "ended": source.finish()
      case "failed": source.finish(.failure(StreamFailure("no more")))
      default:
        var terms = StreamConfiguration(name: "s")
        terms.read = AccessRules([.user(4_000_000)])
        #expect(harness.server.change([StreamChange(terms)], removing: []).isEmpty)
      }
      harness.eventually { harness.server.statistics.connections == 1 && harness.server.statistics.subscribers == 0 }
      #expect(try WireClient.ready(harness.path).isSilent())
    }
  }

  /// A connection whose client was silent for too long is closed during the restore; its lease is not renewed later.
  @Test func aConnectionClosedDuringRestoreRenewsNoLease() async throws {
    var limits = ServerLimits(workers: 1)
    limits.leaseTime = .milliseconds(50)
    let next = try ServerHarness(limits, restores: true)
    try await withServer(limits) { first in
      let client = try WireClient.ready(first.path, Setup(maximumLifetime: .seconds(60), honorsLease: true))
      guard case .lease = try client.receive() else {
        Issue.record("no lease")
        return
      }
      let saved = try await first.handOver()
      let silent = saved.connections.map { connection in
        SavedConnection(
          descriptor: connection.descriptor, number: connection.number, machine: connection.machine,
          silence: 120_000_000_000, input: [], unsent: [], subscriptions: [], channels: [])
      }
      await next.restore(SavedConnections(silent, waiting: []))
      next.eventually { next.server.statistics.connections == 0 }
      guard case .clientDropped(_, let reason)? = next.reports.first else {
        Issue.record("not reported: \(next.reports)")
        return
      }
      #expect(reason.hasPrefix("silent for its maximum lifetime"))
      // The lease would have been renewed by now.
      let later = EventLoop.monotonicNow() + 200_000_000
      next.eventually { EventLoop.monotonicNow() > later }
      let newcomer = try WireClient.ready(next.path)
      #expect(try newcomer.isSilent())
    }
    await next.stop()
  }

  /// The end-of-turn work of a stopped server's loop does not need the server.
  @Test func aServerCanBeReleasedOnceItHasStopped() async throws {
    for _ in 0..<50 {
      let server = try StreamServer(limits: ServerLimits(workers: 1))
      try server.start()
      await withCheckedContinuation { continuation in server.stop { continuation.resume() } }
    }
  }

  @Test func aStoppedServerIsFreed() async throws {
    weak var worker: Worker?
    weak var connection: Connection?
    do {
      let harness = try ServerHarness(ServerLimits(workers: 1))
      _ = try harness.add("s")
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 1)
      harness.eventually { harness.server.statistics.subscribers == 1 }
      worker = harness.server.workers[0]
      let first = Locked<Connection?>(nil)
      harness.server.workers[0].loop.execute { [worker = harness.server.workers[0]] in
        first.withLock { $0 = worker.allConnections.first }
      }
      harness.eventually { first.withLock { $0 != nil } }
      connection = first.withLock { $0.take() }
      await harness.stop()
    }
    let deadline = hangDeadline()
    while worker != nil || connection != nil, EventLoop.monotonicNow() < deadline { usleep(1000) }
    #expect(worker == nil)
    #expect(connection == nil)
  }

  @Test func aConnectionThatIsClosingDuringASaveIsFreed() async throws {
    weak var connection: Connection?
    do {
      let harness = try ServerHarness(ServerLimits(workers: 1))
      let source = try harness.add("s") { $0.limits = .init(events: 100, bytes: 16 << 20) }
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 100)
      harness.eventually { harness.server.statistics.subscribers == 1 }
      source.send([UInt8](repeating: 65, count: 8 << 20))
      let first = Locked<Connection?>(nil)
      harness.eventually {
        harness.server.workers[0].loop.execute { [worker = harness.server.workers[0]] in
          if let blocked = worker.allConnections.first, blocked.isBlocked { first.withLock { $0 = blocked } }
        }
        return first.withLock { $0 != nil }
      }
      connection = first.withLock { $0.take() }
      harness.server.workers[0].loop.execute { [worker = harness.server.workers[0]] in
        worker.allConnections.first?.speaker?.refuse("the test says so")
      }
      let saved = await withCheckedContinuation { continuation in
        harness.server.save { continuation.resume(returning: $0) }
      }
      #expect(saved.connections.isEmpty)
      await harness.stop()
    }
    let deadline = hangDeadline()
    while connection != nil, EventLoop.monotonicNow() < deadline { usleep(1000) }
    #expect(connection == nil)
  }

  /// A peer that has shut down only its reading end.
  @Test func aClientThatClosesItsReadingEndLosesSubscriptionsAndStillPublishes() async throws {
    try await withServer(ServerLimits(workers: 1, requestsPerConnection: 4)) { harness in
      let source = try harness.add("s")
      try harness.addPublished("p")
      let client = try WireClient.ready(harness.path)
      client.publish("p", [0], id: 1)
      guard case .requestN(StreamID(1), let credit)? = try client.receive() else { throw WireClient.Silence() }
      client.subscribe("s", credit: Self.unlimited, id: 3)
      client.subscribe("s", credit: Self.unlimited, id: 5)
      harness.eventually { harness.server.statistics.subscribers == 2 }
      shutdown(client.descriptor.raw, CInt(SHUT_RD))
      source.send([1])
      harness.eventually { harness.server.statistics.subscribers == 0 }
      // Its subscriptions have ended, and a new one ends at once.
      client.subscribe("s", credit: 1, id: 7)
      client.publish("p", [1], id: 27)
      client.toss("p", [2], id: 29)
      client.values(numbers(0..<Int(credit)), id: 1)
      harness.eventually { harness.server.statistics.eventsIn == 4 + UInt64(credit) }
      let statistics = harness.server.statistics
      #expect(statistics.connections == 1 && statistics.subscribers == 0 && statistics.publishers == 2)
      shutdown(client.descriptor.raw, CInt(SHUT_WR))
      harness.eventually { harness.server.statistics.connections == 0 && harness.server.statistics.publishers == 0 }
      #expect(harness.server.accounts.heldBytes.load(ordering: .relaxed) == 0)
    }
  }

  /// Its input is still in the socket when the write of an event fails.
  @Test func inputOfAClientThatClosedItsReadingEndIsProcessedToTheEnd() throws {
    let server = try StreamServer(limits: ServerLimits(workers: 1))
    let loop = server.loops[0]
    let source = HandFedSource()
    try server.add(StreamConfiguration(name: "s", start: .always), source: source)
    let publishSource = PublishSource()
    try server.add(
      StreamConfiguration(name: "p", write: .init()), source: publishSource.setFailureType(to: StreamFailure.self),
      publishSource: publishSource
    )
    let client = try WireClient(server, user: 1001)
    client.subscribe("s", credit: Self.unlimited)
    while server.statistics.subscribers == 0 { loop.runOneTurn() }
    shutdown(client.descriptor.raw, CInt(SHUT_RD))
    // More than one read.
    for _ in 0..<10 { client.send(.keepalive(respond: false, position: 0, data: [UInt8](repeating: 0, count: 10_000))) }
    client.toss("p", [1], id: 3)
    source.send([1])
    for _ in 0..<50 { loop.runOneTurn() }
    #expect(server.statistics.subscribers == 0 && server.statistics.byStream[0].eventsIn == 1)
    shutdown(client.descriptor.raw, CInt(SHUT_WR))
    for _ in 0..<10 { loop.runOneTurn() }
    #expect(server.statistics.connections == 0)
  }

  @Test func aClientThatClosedItsReadingEndWithoutPublishingIsDisconnected() throws {
    let server = try StreamServer(limits: ServerLimits(workers: 1))
    let loop = server.loops[0]
    let source = HandFedSource()
    try server.add(StreamConfiguration(name: "s", start: .always), source: source)
    let client = try WireClient(server, user: 1001)
    client.subscribe("s", credit: Self.unlimited)
    while server.statistics.subscribers == 0 { loop.runOneTurn() }
    shutdown(client.descriptor.raw, CInt(SHUT_RD))
    for _ in 0..<10 { client.send(.keepalive(respond: false, position: 0, data: [UInt8](repeating: 0, count: 10_000))) }
    source.send([1])
    for _ in 0..<50 { loop.runOneTurn() }
    #expect(server.statistics.connections == 0)
  }
}
