import ClientTestSupport
import Glibc
import RSocket
import Reactive
import StreamRuntime
import Testing

@testable import StreamClient

/// Streams that outlive their connection.
@Suite(.timeLimit(.minutes(10))) struct ReconnectTests {
  private let reports = Recorder<ReconnectPolicy.Report>()
  private static let loss = StreamError.disconnected("the server closed the connection")

  private func policy(first: Duration = .milliseconds(1)) -> ReconnectPolicy {
    ReconnectPolicy(first: first) { [reports] in reports.record($0) }
  }

  /// A probe of a stream "s" that has had two events, 7 and 8, and lost its connection.
  private func interrupted(
    _ server: ScriptedServer, demand: Int, options: SubscribeOptions = SubscribeOptions()
  ) async throws -> Probe {
    let probe = try StreamConnection(socket: server.path).stream("s", options: options, reconnect: policy())
      .probe(demand)
    guard case .request(_, _, UInt32(demand), _, _) = await server.next() else { throw CancellationError() }
    server.act { peer in
      for number in [7, 8] as [UInt64] { peer.send("\(number)", on: StreamID(1), number: number) }
      peer.close()
    }
    #expect(await probe.next() == .value("7"))
    #expect(await probe.next() == .value("8"))
    return probe
  }

  @Test func aStreamResumesAfterTheLastEventWithTheRemainingDemand() async throws {
    try await ScriptedServer.run { server in
      let probe = try await interrupted(server, demand: 5, options: SubscribeOptions(from: .new, onLag: .skip))
      #expect(await server.next() == .request(StreamID(1), .stream, 3, "s", #"{"from":8,"on_lag":"skip","gaps":true}"#))
      server.act(1) { $0.send("9", on: StreamID(1), number: 9) }
      #expect(await probe.next() == .value("9"))
      probe.request(4)
      #expect(await server.next() == .other(.requestN(StreamID(1), 4)))
      server.act(1) { $0.send("10", on: StreamID(1), number: 10, isComplete: true) }
      #expect(await probe.next() == .value("10"))
      #expect(await probe.next() == .finished)
      #expect(await reports.next() == .lost(Self.loss))
      #expect(await reports.next() == .resumed(missing: nil))
    }
  }

  @Test func repeatedEventsAreDroppedAndTheirDemandReturned() async throws {
    try await ScriptedServer.run { server in
      let probe = try await interrupted(server, demand: 5)
      _ = await server.next()
      server.act(1) { peer in
        for number in [7, 8, 9] as [UInt64] { peer.send("\(number)", on: StreamID(1), number: number) }
      }
      #expect(await probe.next() == .value("9"))
      var givenBack: UInt32 = 0
      while givenBack < 2, case .other(.requestN(_, let count)) = await server.next() { givenBack += count }
      #expect(givenBack == 2)
      probe.cancel()
      #expect(await server.next() == .other(.cancel(StreamID(1))))
    }
  }

  @Test func aGapIsReportedBeforeTheEventAfterIt() async throws {
    try await ScriptedServer.run { server in
      let probe = try await interrupted(server, demand: 5)
      _ = await server.next()
      server.act(1) { $0.send("12", on: StreamID(1), number: 12, gap: 3) }
      #expect(await reports.next() == .lost(Self.loss))
      #expect(await reports.next() == .resumed(missing: .events(3)))
      #expect(await probe.next() == .value("12"))
    }
  }

  @Test func withoutAnEventTheOriginalRequestIsRepeated() async throws {
    try await ScriptedServer.run { server in
      let options = SubscribeOptions(from: .since("-5m"))
      let probe = Probe(onSubscription: { $0.request(.unlimited) })
      try StreamConnection(socket: server.path).stream("s", options: options, reconnect: policy()).subscribe(probe)
      for connection in 0..<4 {
        #expect(await server.next() == .request(StreamID(1), .stream, 0x7fff_ffff, "s", #"{"from":"-5m","gaps":true}"#))
        server.act(connection) { $0.close() }
      }
      // However often it is reported, it is one loss.
      _ = await server.next()
      server.act(4) { $0.send("1", on: StreamID(1), number: 1) }
      #expect(await probe.next() == .value("1"))
      #expect(await reports.next() == .lost(Self.loss))
      #expect(await reports.next() == .resumed(missing: nil))
      probe.cancel()
    }
  }

  @Test func withoutDemandNothingIsRequested() async throws {
    try await ScriptedServer.run { server in
      let probe = try await interrupted(server, demand: 2)
      #expect(await reports.next() == .lost(Self.loss))
      #expect(server.connectionCount == 1)
      probe.request(6)
      #expect(await server.next() == .request(StreamID(1), .stream, 6, "s", #"{"from":8,"gaps":true}"#))
    }
  }

  @Test func aStoppingDaemonIsALoss() async throws {
    try await ScriptedServer.run(script: { peer, event in
      guard case .request(let id, _, _, _, _) = event else { return }
      if peer.id == 0 {
        peer.machine.sendError(id, .canceled, "streamd is stopping")
        peer.machine.close(.connectionClose, "streamd is stopping")
      } else {
        peer.send("1", on: id, number: 1)
      }
    }) { server in
      let probe = try StreamConnection(socket: server.path).stream("s", reconnect: policy()).probe(1)
      #expect(await probe.next() == .value("1"))
      #expect(await reports.next() == .lost(.canceled("streamd is stopping")))
    }
  }

  @Test(arguments: [
    (ErrorCode.rejected, StreamError.rejected("why")), (.invalid, .invalid("why")), (.lagged, .lagged("why")),
    (.applicationError, .failed(.applicationError, "why")),
  ]) func anErrorThatIsNotALossEndsAReconnectedStream(code: ErrorCode, expected: StreamError) async throws {
    try await ScriptedServer.run(script: { peer, event in
      guard case .request(let id, _, _, _, _) = event, peer.id > 0 else { return }
      peer.machine.sendError(id, code, "why")
    }) { server in
      let probe = try await interrupted(server, demand: 5)
      #expect(await probe.next() == .failed(expected))
    }
  }

  @Test func aLossAfterAnEventWithoutIdEndsTheStream() async throws {
    try await ScriptedServer.run(script: { peer, event in
      guard case .request(let id, _, _, _, _) = event else { return }
      peer.machine.sendPayload(id, Payload(data: Array("bare".utf8)))
      peer.close()
    }) { server in
      let probe = try StreamConnection(socket: server.path).stream("s", reconnect: policy()).probe(2)
      #expect(await probe.next() == .value("bare"))
      #expect(await probe.next() == .failed(Self.loss))
    }
  }

  @Test func aFailedFirstConnectionIsAFailure() async throws {
    let path = "/tmp/streamd-test-there-is-no-such-folder/s"
    let probe = try StreamConnection(socket: path).stream("s", reconnect: policy()).probe(1)
    #expect(await probe.next() == .failed(.cannotConnect(SystemError("connect", path, code: ENOENT))))
  }

  @Test func aRejectedConnectionIsAFailureAtFirstAndALossLater() async throws {
    try await ScriptedServer.run(script: { peer, event in
      guard case .request(let id, _, _, _, _) = event else { return }
      switch peer.id {
      case 1: peer.send("1", on: id, number: 1)
      case 3: peer.send("2", on: id, number: 2)
      default: peer.machine.close(.rejectedSetup, "too many connections")
      }
    }) { server in
      let connection = try StreamConnection(socket: server.path)
      let early = connection.stream("s", reconnect: policy()).probe(2)
      #expect(await early.next() == .failed(.disconnected("too many connections")))
      let late = connection.stream("s", reconnect: policy()).probe(2)
      #expect(await late.next() == .value("1"))
      server.act(1) { $0.close() }
      #expect(await late.next() == .value("2"))
    }
  }

  @Test func attemptsContinueWhileTheDaemonIsAway() async throws {
    try await ScriptedServer.run { server in
      let away = server.path + "-away"
      let probe = try StreamConnection(socket: server.path).stream("s", reconnect: policy()).probe(3)
      _ = await server.next()
      rename(server.path, away)
      server.act { peer in
        peer.send("7", on: StreamID(1), number: 7)
        peer.close()
      }
      #expect(await probe.next() == .value("7"))
      #expect(await reports.next() == .lost(Self.loss))
      rename(away, server.path)
      #expect(await server.next() == .request(StreamID(1), .stream, 2, "s", #"{"from":7,"gaps":true}"#))
    }
  }

  @Test func cancellingDuringTheDelayIsFinal() async throws {
    try await ScriptedServer.run { server in
      let connection = try StreamConnection(socket: server.path)
      weak var released: Probe?
      var subscription: (any Subscription)?
      do {
        let probe = connection.stream("s", reconnect: policy(first: .seconds(3600))).probe(1)
        released = probe
        subscription = probe.subscription
        _ = await server.next()
      }
      server.act { $0.close() }
      #expect(await reports.next() == .lost(Self.loss))
      subscription?.cancel()
      while released != nil { await Task.yield() }
    }
  }

  @Test func cancellingInTheReportIsFinal() async throws {
    try await ScriptedServer.run { server in
      let connection = try StreamConnection(socket: server.path)
      let cancellable = Locked<Probe?>(nil)
      let policy = ReconnectPolicy(first: .nanoseconds(1)) { [reports] report in
        reports.record(report)
        cancellable.withLock { $0 }?.cancel()
      }
      let probe = connection.stream("s", reconnect: policy).probe()
      cancellable.withLock { $0 = probe }
      probe.request(1)
      _ = await server.next()
      server.act { $0.close() }
      #expect(await reports.next() == .lost(Self.loss))
      for number in 0..<3 {
        // Pending work of the loop for the other stream precedes these.
        let later = connection.stream("later \(number)").probe(1)
        guard case .request(let id, .stream, 1, "later \(number)", #"{"gaps":true}"#) = await server.next() else {
          return #expect(Bool(false), "asked for again")
        }
        server.act(1) { $0.send("x", on: id) }
        #expect(await later.next() == .value("x"))
        later.cancel()
        #expect(await server.next() == .other(.cancel(id)))
      }
    }
  }

  @Test func aLocallyClosedConnectionIsNotReopened() async throws {
    try await ScriptedServer.run { server in
      let connection = try StreamConnection(socket: server.path)
      let probe = connection.stream("s", reconnect: policy()).probe(1)
      _ = await server.next()
      connection.close()
      #expect(await probe.next() == .failed(.disconnected("the connection was closed locally")))
    }
  }

  @Test func valuesContinueAfterALoss() async throws {
    try await ScriptedServer.run(script: { peer, event in
      guard case .request(let id, _, _, _, _) = event else { return }
      peer.send("event", on: id, number: UInt64(peer.id + 1), isComplete: peer.id == 2)
      if peer.id < 2 { peer.close() }
    }) { server in
      var ids: [UInt64?] = []
      for try await event in try StreamConnection(socket: server.path).stream("s", reconnect: policy()).values {
        ids.append(event.id)
      }
      #expect(ids == [1, 2, 3])
    }
  }

  @Test func delaysDoubleUpToTheMaximumAndHalfOfEachIsRandom() {
    let policy = ReconnectPolicy()
    let waits = [1, 2, 3, 7, 8, Int.max].map { policy.delay(afterLosses: $0, fraction: 0) }
    #expect(waits == [50, 100, 200, 3200, 5000, 5000].map { .milliseconds($0) })
    #expect(policy.delay(afterLosses: 1, fraction: 0.5) == .milliseconds(75))
  }
}
