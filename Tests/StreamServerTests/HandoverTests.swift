import Dispatch
import Events
import Glibc
import RSocket
import Reactive
import ReplayLog
import StreamRuntime
import Synchronization
import TestSupport
import Testing

@testable import StreamServer

/// Connections that continue in another server, as in the next process.
@Suite struct HandoverTests {
  private static let unlimited: UInt32 = 0x7FFF_FFFF

  /// Two servers; `body` calls its last argument in between.
  private func withTwoServers(
    _ workers: Int = 2, _ body: (ServerHarness, ServerHarness, () async throws -> Void) async throws -> Void
  ) async throws {
    try await StreamServerTests.withTwoServers(ServerLimits(workers: workers)) { first, next in
      try await body(first, next) { try await first.handOver(to: next) }
    }
  }

  @Test(arguments: [1, 2]) func creditIsHandedOverAndNotExceeded(workers: Int) async throws {
    try await withTwoServers(workers) { first, next, handOver in
      let source = try first.add("s")
      let later = try next.add("s")
      let clients = try (0..<20).map { _ in try WireClient.ready(first.path) }
      for client in clients { client.subscribe("s", credit: 5) }
      first.eventually { first.server.statistics.subscribers == 20 }
      source.send([0], [1])
      for client in clients { #expect(try client.events(2) == [[0], [1]]) }
      try await handOver()
      #expect(source.cancellations == 1)
      next.eventually { next.server.statistics.subscribers == 20 }
      later.send([2], [3], [4], [5], [6])
      for client in clients {
        #expect(try client.events(3) == [[2], [3], [4]])
        #expect(try client.isSilent())
        client.send(.requestN(StreamID(1), 1))
        #expect(try client.events(1) == [[5]])
      }
      #expect(next.server.statistics.connections == 20)
    }
  }

  /// A rejected request whose ID is reused in the same write: the error belongs to the first request only.
  @Test func anIDReusedAfterARejectedRequestIsANewRequest() async throws {
    try await withTwoServers { first, next, handOver in
      let source = try first.add("s")
      let later = try next.add("s")
      let other = try WireClient.ready(first.path)
      other.subscribe("s", credit: 5)
      let client = try WireClient.ready(first.path)
      var bytes: [UInt8] = []
      for name in ["none", "s"] {
        Frame.request(
          StreamID(1), .stream, initialRequest: 5, Payload(metadata: [UInt8(name.utf8.count)] + Array(name.utf8)),
          follows: false, isComplete: true
        ).encode(into: &bytes)
        if name == "none" { Frame.cancel(StreamID(1)).encode(into: &bytes) }
      }
      client.send(bytes)
      #expect(try client.receive() == .error(StreamID(1), .rejected, #"no stream named "none""#))
      first.eventually { first.server.statistics.subscribers == 2 }
      source.send([1])
      #expect(try client.events(1) == [[1]] && other.events(1) == [[1]])
      try await handOver()
      next.eventually { next.server.statistics.subscribers == 2 }
      later.send([2])
      #expect(try client.events(1) == [[2]] && other.events(1) == [[2]])
      client.send(.cancel(StreamID(1)))
      next.eventually { next.server.statistics.subscribers == 1 }
    }
  }

  @Test func aPublisherAtTheLargestNumberIsRestored() async throws {
    try await withTwoServers { first, next, handOver in
      for harness in [first, next] { try harness.addPublished("s") }
      let setup = Setup(metadataMIMEType: MetadataFormat.composite.mimeType)
      let client = try WireClient.ready(first.path, setup)
      let entry = try PublisherEntry(name: [1], firstNumber: PublisherEntry.numberLimit - 2)
      client.send(
        .request(
          StreamID(1), .channel, initialRequest: 9,
          Payload(metadata: try MetadataFormat.composite.metadata(route: "s", publisher: entry)), follows: false,
          isComplete: false))
      _ = try client.receive()
      _ = try client.receive()
      client.value([1], id: 1)
      first.eventually { first.server.statistics.eventsIn == 1 }
      try await handOver()
      next.eventually { next.server.statistics.publishers == 1 }
      client.value([2], id: 1)
      next.eventually { next.server.statistics.eventsIn == 1 }
    }
  }

  @Test func aHandoverIsInvisibleToAClientInAnyState() async throws {
    try await withTwoServers { first, next, handOver in
      for harness in [first, next] {
        try harness.addPublished("p")
        _ = try harness.add("quiet")
      }
      let client = try WireClient(first.path)
      let frames = [Frame.setup(Setup()), .keepalive(respond: true, position: 0, data: Array("half".utf8))]
      let bytes = frames.flatMap { frame in
        var bytes: [UInt8] = []
        frame.encode(into: &bytes)
        return bytes
      }
      client.send(Array(bytes.dropLast(3)))
      client.send([])
      first.eventually { first.server.statistics.connections == 1 }
      let stranger = try WireClient(first.path)  // has not sent SETUP yet
      let waiting = try WireClient.ready(first.path)
      waiting.get("quiet")
      first.eventually { first.server.statistics.subscribers == 1 && first.server.statistics.connections == 3 }
      try await handOver()
      client.send(bytes.suffix(3))
      #expect(try client.receive() == .keepalive(respond: false, position: 0, data: Array("half".utf8)))
      client.publish("p", [1])
      guard case .requestN = try client.receive() else {
        Issue.record("no credit")
        return
      }
      stranger.send(.setup(Setup()))
      #expect(try stranger.isSilent())
      stranger.subscribe("p", credit: 1)
      #expect(try stranger.events(1) == [[1]])
      #expect(try waiting.isSilent())
      #expect(next.server.statistics.connections == 3)
      let newcomer = try WireClient.ready(next.path)
      #expect(try newcomer.isSilent())
      #expect(next.server.statistics.accepted == 4)
    }
  }

  @Test func aPublisherContinuesAndIsConfirmedWhenAllValuesAreStored() async throws {
    try await withTwoServers { first, next, handOver in
      for harness in [first, next] { try harness.addPublished("p") }
      let publisher = try WireClient.ready(first.path)
      publisher.publish("p", [0])
      guard case .requestN(_, let credit) = try publisher.receive() else {
        Issue.record("no credit")
        return
      }
      publisher.value([1])
      first.eventually { first.server.statistics.eventsIn == 2 }
      try await handOver()
      for _ in 1..<credit { publisher.value([2]) }
      guard case .requestN = try publisher.receive() else {
        Issue.record("no more credit")
        return
      }
      publisher.complete()
      while case .requestN = try publisher.receive() {}
      #expect(next.server.statistics.eventsIn == UInt64(credit) - 1)
      let greedy = try WireClient.ready(next.path)
      #expect(try greedy.isSilent())
    }
  }

  @Test func aPublisherWhoseValuesThePipelineStillHasIsCanceled() async throws {
    try await withTwoServers { first, next, handOver in
      let source = PublishSource()
      // A pipeline that keeps what it takes, as its time does not pass.
      let pipeline = source.delay(for: .seconds(1), scheduler: VirtualTimeScheduler())
      try first.server.add(
        StreamConfiguration(name: "p", source: "publish"), source: pipeline.setFailureType(to: StreamFailure.self),
        publishSource: source)
      try next.addPublished("p")
      let publisher = try WireClient.ready(first.path)
      publisher.publish("p", [0])
      first.eventually { source.heldBytes == 1 }
      try await handOver()
      var frame = try publisher.receive()
      while case .requestN = frame { frame = try publisher.receive() }
      #expect(
        frame == .error(StreamID(1), .canceled, "streamd restarts before the stream has stored all values"),
        "\(String(describing: frame))")
      #expect(next.server.statistics.eventsIn == 0)
    }
  }

  private func expectCompletion(_ publisher: WireClient) throws {
    var frame = try publisher.receive()
    while case .requestN = frame { frame = try publisher.receive() }
    if case .error(_, let code, let text) = frame { Issue.record("\(code): \(text)") }
  }

  /// The loop of one publisher delivers the values of all: while it does so, they wait in their queues.
  @Test func valuesThatAnotherLoopDeliversAreStoredBeforeTheHandover() async throws {
    try await withTwoServers { first, next, _ in
      let (source, gate) = (PublishSource(), Gate())
      let gated = source.map { batch in
        gate.pass()
        return batch
      }
      try first.server.add(
        StreamConfiguration(name: "p", source: "publish"), source: gated.setFailureType(to: StreamFailure.self),
        publishSource: source)
      _ = try next.addPublished("p")
      defer { gate.open() }
      // The last connection is on the second loop, which delivers.
      let clients = try (0...first.server.limits.neighbours).map { _ in try WireClient.ready(first.path) }
      let publishers = [clients[clients.count - 1], clients[0]]
      publishers[0].publish("p", [0])
      first.eventually { gate.isReached }
      publishers[1].publish("p", [1])
      first.eventually { source.heldBytes == 2 }
      let loops = first.server.loops
      try await first.handOver(to: next) {
        // The loop that is free has had its part of the handover by then.
        loops[0].execute { for loop in loops { loop.execute { gate.open() } } }
      }
      for publisher in publishers {
        guard case .requestN = try publisher.receive() else {
          Issue.record("a publisher has no credit")
          return
        }
        publisher.complete()
        try expectCompletion(publisher)
      }
      #expect(first.server.statistics.eventsIn == 2)
    }
  }

  /// A subscriber that reads makes room, for which the stream takes values that are being saved.
  @Test func nothingIsSentOnceTheHandoverHasBegun() async throws {
    try await withTwoServers(1) { first, next, _ in
      // Until its operator is given up, the handover waits.
      let held = PublishSource()
      let pipeline = held.delay(for: .seconds(1), scheduler: VirtualTimeScheduler())
      try first.server.add(
        StreamConfiguration(name: "p", source: "publish"), source: pipeline.setFailureType(to: StreamFailure.self),
        publishSource: held)
      let source = try first.add("s")
      _ = try next.add("s")
      let subscriber = try WireClient.ready(first.path)
      subscriber.subscribe("s", credit: Self.unlimited)
      first.eventually { first.server.statistics.subscribers == 1 }
      let publisher = try WireClient.ready(first.path)
      publisher.publish("p", [0])
      first.eventually { held.heldBytes == 1 }
      let loop = first.server.loops[0]
      try await first.handOver(to: next) {
        // The handover has begun on the loop by then.
        loop.execute { loop.execute { source.send([1]) } }
      }
      #expect(first.server.statistics.eventsIn == 1 && first.server.statistics.eventsOut == 0)
      #expect(next.server.statistics.connections == 2)
    }
  }

  @Test(arguments: [false, true]) func valuesWithoutSpaceAreHandedOverWithTheirRequest(isComplete: Bool) async throws {
    try await withTwoServers { first, next, handOver in
      for harness in [first, next] {
        _ = try harness.addPublished("p") {
          $0.limits = .init(events: 4)
          $0.overflow = .block(timeout: nil)
        }
      }
      let reader = try WireClient.ready(first.path)
      reader.subscribe("p", credit: 1)
      first.eventually { first.server.statistics.subscribers == 1 }
      let publishers = try (0..<2).map { _ in try WireClient.ready(first.path) }
      for (index, publisher) in publishers.enumerated() {
        let number = UInt8(100 * index)
        publisher.publish("p", [number])
        guard case .requestN(_, let credit) = try publisher.receive() else {
          Issue.record("no credit")
          return
        }
        for value in 1...UInt8(min(credit, 3)) { publisher.value([number + value]) }
        if isComplete { publisher.complete() }
      }
      #expect(try reader.events(1) == [[0]])
      first.eventually { (first.server.streams["p"]?.publishSource?.heldBytes ?? 0) > 0 }
      try await handOver()
      reader.send(.requestN(StreamID(1), Self.unlimited))
      if !isComplete { for publisher in publishers { publisher.complete() } }
      for publisher in publishers { try expectCompletion(publisher) }
      // What was stored is lost with the log of this test; every value is there once, in the order of its publisher.
      let count = Int(first.server.statistics.eventsIn + next.server.statistics.eventsIn)
      #expect(count == 8)
      let events = try reader.events(Int(next.server.statistics.eventsIn))
      for index in 0..<2 {
        let own = events.filter { $0[0] / 100 == index }
        #expect(own == Array((0...3).map { [UInt8(100 * index + $0)] }.suffix(own.count)))
      }
    }
  }

  @Test func heldEventsOfALosslessStreamFollowTheStoredOnes() async throws {
    try await withTwoServers { first, next, handOver in
      func block(_ configuration: inout StreamConfiguration) {
        configuration.limits = .init(events: 4)
        configuration.overflow = .block(timeout: nil)
      }
      let source = try first.add("s", block)
      let later = HandFedSource()
      var configuration = StreamConfiguration(name: "s", start: .always)
      block(&configuration)
      let log = try #require(EventLog(name: "s", limits: configuration.limits))
      try next.server.add(configuration, log: log, source: later)
      let client = try WireClient.ready(first.path)
      client.subscribe("s", credit: 1)
      first.eventually { first.server.statistics.subscribers == 1 }
      var batch = EventBatch((0..<10).map { [$0] })
      batch.checkpoint = Checkpoint([7])
      source.send(batch: batch)
      #expect(try client.events(1) == [[0]])
      first.eventually { first.server.statistics.eventsIn == 5 }
      try await handOver()
      client.send(.requestN(StreamID(1), Self.unlimited))
      // The second server has a new log: stored events are lost, held events are not.
      #expect(try client.events(5) == (5..<10).map { [$0] })
      next.eventually { later.demand == .max(1) }
      #expect(log.checkpoint == batch.checkpoint)
      #expect(client.descriptor.raw >= 0)
    }
  }

  @Test func theRestOfAPartlyWrittenFrameIsSentFirst() async throws {
    try await withTwoServers { first, next, handOver in
      let source = try first.add("s") { $0.limits = .init(events: 1000, bytes: 64 << 20) }
      let later = try next.add("s")
      let client = try WireClient(first.path, receiveBuffer: 4096)
      client.send(.setup(Setup()))
      client.subscribe("s", credit: Self.unlimited)
      first.eventually { first.server.statistics.subscribers == 1 }
      let event = [UInt8](repeating: 7, count: 50_000)
      source.send(batch: [[UInt8]](repeating: event, count: 200))
      var writes: UInt64 = 0
      first.eventually {
        defer { writes = first.server.statistics.writes }
        return writes > 0 && writes == first.server.statistics.writes
      }
      try await handOver()
      later.send([1])
      var count = 0
      while true {
        let data = try client.event().data
        if data == [1] { break }
        #expect(data == event)
        count += 1
      }
      #expect(count > 0 && count < 200)
    }
  }

  @Test func requestsForRemovedStreamsAreCanceled() async throws {
    try await withTwoServers { first, _, handOver in
      _ = try first.add("gone")
      try first.addPublished("gone too")
      let client = try WireClient.ready(first.path)
      client.subscribe("gone", credit: 5)
      client.publish("gone too", [1], id: 3)
      guard case .requestN = try client.receive() else {
        Issue.record("no credit")
        return
      }
      first.eventually { first.server.statistics.subscribers == 1 }
      try await handOver()
      #expect(try client.receive() == .error(StreamID(1), .canceled, #""gone" is no longer served"#))
      #expect(try client.receive() == .error(StreamID(3), .canceled, #""gone too" is no longer served"#))
      #expect(try client.isSilent())
    }
  }

  @Test func sourcesStartAfterTheRestore() async throws {
    let next = try ServerHarness(restores: true)
    let source = try next.add("s")
    #expect(source.subscriptions == 0)
    await next.finishRestore()
    #expect(source.subscriptions == 1)
    let other = try next.add("later")
    #expect(other.subscriptions == 1)
    await next.stop()
  }

  @Test func connectionsWithoutSpaceAreCanceledAndClosed() async throws {
    try await withServer { harness in
      _ = try harness.add("s")
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 1)
      harness.eventually { harness.server.statistics.subscribers == 1 }
      await harness.save().cancel(from: 0)
      #expect(try client.receive() == .error(StreamID(1), .canceled, "streamd is restarting"))
      #expect(try client.receive() == .error(.connection, .connectionClose, "streamd is restarting"))
      #expect(try client.receive() == nil)
    }
  }

  @Test(arguments: [
    (
      "/streams/s?as=sse",
      "retry: 30000\n\nevent: end\ndata: {\"reason\":\"streamd is restarting\",\"type\":\"urn:streamd:restarting\"}\n\n"
    ),
    ("/streams/s?as=ndjson", ""),
  ])
  func responsesWithoutSpaceEnd(target: String, end: String) async throws {
    try await withServer { harness in
      _ = try harness.add("s")
      let client = try HTTPWireClient(harness)
      client.get(target)
      harness.eventually { harness.server.statistics.subscribers == 1 }
      await harness.save().cancel(from: 0)
      let response = try client.response()
      #expect(response.status == 200 && response.isComplete && response.text.hasSuffix(end))
      #expect(try client.isAtEnd())
    }
  }

  /// Nothing follows a part of an event.
  @Test func responseWithoutSpaceIsCutOffWithinAnEvent() async throws {
    try await withServer { harness in
      let source = try harness.add("s") { $0.limits = .init(events: 100, bytes: 16 << 20) }
      let client = try HTTPWireClient(harness.path, receiveBuffer: 4096)
      client.get("/streams/s?as=sse")
      harness.eventually { harness.server.statistics.subscribers == 1 }
      source.send([UInt8](repeating: 97, count: 8 << 20))
      harness.eventually { harness.server.statistics.writes > 1 }
      await harness.save().cancel(from: 0)
      let response = try client.response()
      #expect(!response.isComplete && !response.text.contains("event: end"))
    }
  }

  @Test func waitingRequestsWithoutSpaceAreAnswered() async throws {
    try await withServer { harness in
      _ = try harness.add("s")
      try harness.addPublished("p")
      let clients = [try HTTPWireClient(harness), try HTTPWireClient(harness)]
      clients[0].get("/streams/s?wait=60s")
      clients[1].send("POST /streams/p HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n")
      clients[1].send("Content-Length: 9\r\n\r\n1\n2\n3")
      harness.eventually { harness.server.statistics.subscribers == 1 && harness.server.statistics.eventsIn == 2 }
      await harness.save().cancel(from: 0)
      let answers = try clients.map { try $0.response() }
      #expect(answers.map(\.status) == [503, 503] && answers.allSatisfy { $0["Retry-After"] == "10" })
      #expect(answers[0].text.contains("\"detail\":\"streamd is restarting\"}"))
      #expect(answers[1].text.contains("\"accepted\":2"))
    }
  }

  @Test func webSocketsWithoutSpaceAreCanceledAndClosed() async throws {
    try await withServer { harness in
      _ = try harness.add("s")
      let client = try WebSocketClient(harness)
      client.send(.setup(Setup()))
      client.subscribe("s", credit: 1)
      harness.eventually { harness.server.statistics.subscribers == 1 }
      await harness.save().cancel(from: 0)
      #expect(try client.frame() == .error(StreamID(1), .canceled, "streamd is restarting"))
      #expect(try client.frame() == .error(.connection, .connectionClose, "streamd is restarting"))
      let close = try client.message()
      #expect(close?.opcode == 8 && close?.payload == [3, 233])
      #expect(try client.message() == nil)
    }
  }

  @Test func invalidStateIsRefusedAsAWhole() async throws {
    try await withServer { harness in
      _ = try harness.add("s")
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 1)
      harness.eventually { harness.server.statistics.subscribers == 1 }
      let saved = await harness.save()
      let state = saved.state(ofFirst: 1)
      #expect(throws: Never.self) { try SavedConnections(state: state, [3]) }
      for count in 0..<state.count {
        #expect(throws: InvalidSavedState.self) { try SavedConnections(state: Array(state.prefix(count)), [3]) }
      }
      #expect(throws: InvalidSavedState.self) { try SavedConnections(state: state, []) }
      #expect(throws: InvalidSavedState.self) { try SavedConnections(state: state + [0], [3]) }
    }
  }
}

/// Holds the thread that passes it until it is open.
private final class Gate: Sendable {
  private let condition = DispatchSemaphore(value: 0)
  private let reached = Atomic(false)
  private let opened = Atomic(false)

  var isReached: Bool { reached.load(ordering: .acquiring) }

  func pass() {
    reached.store(true, ordering: .releasing)
    guard !opened.load(ordering: .acquiring) else { return }
    condition.wait()
    condition.signal()
  }

  func open() {
    opened.store(true, ordering: .releasing)
    condition.signal()
  }
}
