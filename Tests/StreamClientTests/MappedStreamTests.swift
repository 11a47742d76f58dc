import ClientTestSupport
import Events
import RSocket
import Reactive
import ReplayLog
import StreamClient
import StreamRuntime
import StreamServer
import TestSupport
import Testing

/// Maps of a real server in this process.
@Suite(.timeLimit(.minutes(10))) struct MappedStreamTests {
  /// A server whose stream "s" is mapped.
  private final class Harness: Sendable {
    let server: StreamServer
    let source = PassthroughSubject<EventBatch, StreamFailure>()
    let connection: StreamConnection
    private let folder: TemporaryFolder

    init(events: Int, start: ShareStart) throws {
      folder = try TemporaryFolder()
      server = try StreamServer(limits: ServerLimits(workers: 1))
      try server.add(Self.configuration(events: events, start: start), source: source)
      try server.start()
      server.listen(on: try UnixSocket.listen(at: folder.path("s"), mode: 0o600))
      connection = try StreamConnection(socket: folder.path("s"))
    }

    static func configuration(events: Int, start: ShareStart = .always) -> StreamConfiguration {
      var configuration = StreamConfiguration(name: "s", start: start)
      (configuration.isMapped, configuration.replay) = (true, 9)
      configuration.limits = EventLog.Limits(events: events, bytes: 1 << 20)
      return configuration
    }

    func send(_ texts: String...) { source.send(EventBatch(texts.map { Array($0.utf8) })) }

    /// Waits until so many readers have demand.
    func wait(forReaders count: Int) async throws {
      let server = server
      let isMapped = try await eventually { server.statistics.byStream.first?.mapReaders == count }
      #expect(isMapped)
    }

    func stop() async {
      await withCheckedContinuation { continuation in server.stop { continuation.resume() } }
    }
  }

  private func withHarness(
    events: Int = 100, start: ShareStart = .always, _ body: (Harness) async throws -> Void
  ) async throws {
    let harness = try Harness(events: events, start: start)
    let result: Result<Void, any Error>
    do { result = .success(try await body(harness)) } catch { result = .failure(error) }
    await harness.stop()
    try result.get()
  }

  @Test func aMapHasTheEventsOfASubscription() async throws {
    try await withHarness { harness in
      harness.send("1", "2")
      let seen = Recorder<StreamEvent>()
      let probe = harness.connection.mapped("s").handleEvents(receiveOutput: { seen.record($0) })
        .probe(10)
      let remote = Recorder<StreamEvent>()
      let other = harness.connection.stream("s").handleEvents(receiveOutput: { remote.record($0) })
        .probe(10)
      for number in 1...2 { #expect(await probe.next() == .value("\(number)")) }
      harness.send("3")
      #expect(await probe.next() == .value("3"))
      for _ in 0..<3 {
        let event = await seen.next()
        let same = await remote.next()
        #expect(event != nil && event == same && event?.gap == nil)
      }
      probe.cancel()
      other.cancel()
    }
  }

  @Test func aSubscriberGetsWhatItHasRequested() async throws {
    try await withHarness { harness in
      harness.send("1", "2", "3")
      let probe = harness.connection.mapped("s").probe(1)
      #expect(await probe.next() == .value("1"))
      // A reply on the same connection comes later than what was sent before.
      let newest = try await harness.connection.value(of: "s").value
      #expect(newest.data == Array("3".utf8))
      probe.request(1)
      #expect(await probe.next() == .value("2"))
      probe.request(5)
      #expect(await probe.next() == .value("3"))
      harness.send("4")
      #expect(await probe.next() == .value("4"))
      probe.cancel()
    }
  }

  @Test func theDemandReachesTheSource() async throws {
    try await withHarness(start: .whileSubscribed(linger: .zero)) { harness in
      let probe = harness.connection.mapped("s").probe(2)
      try await harness.wait(forReaders: 1)
      harness.send("1")
      #expect(await probe.next() == .value("1"))
      harness.send("2")
      #expect(await probe.next() == .value("2"))
      probe.cancel()
      try await harness.wait(forReaders: 0)
    }
  }

  @Test(arguments: [LagPolicy?.none, .skip, .latest, .fail])
  func anOvertakenSubscriberContinuesAsItHasChosen(onLag: LagPolicy?) async throws {
    try await withHarness(events: 4) { harness in
      let seen = Recorder<StreamEvent>()
      let probe = harness.connection.mapped("s", onLag: onLag).handleEvents(receiveOutput: {
        seen.record($0)
      }).probe(1)
      harness.send("0")
      #expect(await probe.next() == .value("0"))
      for number in 1...10 { harness.send("\(number)") }
      probe.request(9)
      guard onLag != .fail else {
        return #expect(await probe.next() == .failed(.lagged("lagged: 6 events lost")))
      }
      _ = await seen.next()
      let event = await seen.next()
      #expect(event?.gap == .events(onLag == .latest ? 9 : 6))
      #expect(event?.data == Array((onLag == .latest ? "10" : "7").utf8))
      probe.cancel()
    }
  }

  @Test(arguments: [true, false]) func theEndFollowsTheLastEvent(succeeds: Bool) async throws {
    try await withHarness { harness in
      let probe = harness.connection.mapped("s").probe(3)
      harness.send("1")
      #expect(await probe.next() == .value("1"))
      harness.send("2")
      harness.source.send(completion: succeeds ? .finished : .failure(StreamFailure("it broke")))
      #expect(await probe.next() == .value("2"))
      #expect(
        await probe.next()
          == (succeeds ? .finished : .failed(.failed(.applicationError, "it broke"))))
    }
  }

  @Test func aReloadContinuesInAnotherRegion() async throws {
    try await withHarness { harness in
      let probe = harness.connection.mapped("s").probe(100)
      for round in 0..<4 {
        harness.send("\(2 * round)")
        #expect(await probe.next() == .value("\(2 * round)"))
        let configuration = Harness.configuration(events: 200 + round)
        let errors = harness.server.change(
          [
            StreamChange(configuration) {
              try #require(EventLog(name: "s", limits: configuration.limits, takingOver: $0))
            }
          ], removing: [])
        #expect(errors.isEmpty)
        harness.send("\(2 * round + 1)")
        #expect(await probe.next() == .value("\(2 * round + 1)"))
      }
      _ = harness.server.change([], removing: ["s"])
      guard case .failed = await probe.next() else {
        return #expect(Bool(false), "the map goes on")
      }
    }
  }

  @Test func refusalsAreFailures() async throws {
    try await withHarness { harness in
      #expect(
        await harness.connection.mapped("none").probe(1).next()
          == .failed(.rejected(#"no stream named "none""#)))
      let plain = StreamConfiguration(name: "plain")
      try harness.server.add(plain, source: PassthroughSubject<EventBatch, StreamFailure>())
      #expect(
        await harness.connection.mapped("plain").probe(1).next()
          == .failed(.invalid(#""plain" is not mapped"#)))
      #expect(
        await harness.connection.mapped("s", from: .state).probe(1).next()
          == .failed(.invalid(#"option "from" must not be "state" for maps"#)))
    }
  }

  @Test func aTaskReadsEvents() async throws {
    try await withHarness(events: 10_000) { harness in
      for number in 0..<5000 { harness.send("\(number)") }
      var next = 0
      for try await event in harness.connection.mapped("s", from: .last(5000)).values {
        #expect(event.data == Array("\(next)".utf8) && event.gap == nil)
        next += 1
        if next == 5000 { break }
      }
      #expect(next == 5000)
      try await harness.wait(forReaders: 0)
    }
  }

  /// The memory outlives the connection; without a policy, the map ends after what is there.
  @Test func aLostConnectionEndsOrIsRestored() async throws {
    try await withHarness { harness in
      let reports = Recorder<ReconnectPolicy.Report>()
      let policy = ReconnectPolicy(first: .milliseconds(1)) { reports.record($0) }
      let ending = harness.connection.mapped("s").probe(10)
      let lasting = harness.connection.mapped("s", reconnect: policy).probe(10)
      harness.send("1")
      #expect(await ending.next() == .value("1"))
      #expect(await lasting.next() == .value("1"))
      try await harness.wait(forReaders: 2)
      _ = try? await harness.connection.perform(.kick(client: 1)).value
      guard case .failed? = await ending.next() else {
        return #expect(Bool(false), "the map goes on")
      }
      guard case .lost = await reports.next() else {
        return #expect(Bool(false), "the loss is not reported")
      }
      try await harness.wait(forReaders: 1)
      harness.send("2")
      #expect(await lasting.next() == .value("2"))
      #expect(await reports.next() == .resumed(missing: nil))
      lasting.cancel()
    }
  }

  @Test func aReplyWithoutMemoryIsAFailure() async throws {
    try await ScriptedServer.run(script: { peer, event in
      guard case .request(let id, _, _, _, _) = event else { return }
      let json = #"{"version":1,"generation":1,"size":65536,"position":0,"missed":0}"#
      peer.machine.sendPayload(id, Payload(data: Array(json.utf8)), isComplete: true)
    }) { server in
      let probe = try StreamConnection(socket: server.path).mapped("s").probe(1)
      #expect(
        await probe.next()
          == .failed(
            .failed(.connectionError, "the reply to a request for a map has no descriptor")))
    }
  }
}
