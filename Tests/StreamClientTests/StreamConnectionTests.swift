import ClientTestSupport
import Glibc
import RSocket
import Reactive
import StreamClient
import StreamRuntime
import Testing

@Suite(.timeLimit(.minutes(10))) struct StreamConnectionTests {
  @Test func theSetupCarriesKeepaliveLifetimeAndTypes() async throws {
    let setups = Recorder<Setup>()
    try await ScriptedServer.run(script: { _, event in
      if case .other(.setup(let setup)) = event { setups.record(setup) }
    }) { server in
      let connection = try StreamConnection(
        socket: server.path, keepaliveInterval: .seconds(3), maximumLifetime: .seconds(7))
      _ = connection.stream("s").probe(1)
      let setup = await setups.next()
      #expect(setup?.keepaliveInterval == .seconds(3))
      #expect(setup?.maximumLifetime == .seconds(7))
      #expect(setup?.metadataMIMEType == "message/x.rsocket.composite-metadata.v0")
      #expect(setup?.dataMIMEType == "application/json")
      #expect(setup?.honorsLease == false)
    }
  }

  @Test(arguments: ["", "unix:"]) func aSocketWithoutAServerIsCannotConnect(kind: String) async throws {
    let path = "/tmp/streamd-test-there-is-no-such-folder/s"
    let probe = try StreamConnection(socket: kind + path).stream("s").probe(1)
    #expect(await probe.next() == .failed(.cannotConnect(SystemError("connect", path, code: ENOENT))))
  }

  @Test(arguments: ["localhost:1", "tcp:localhost:1", "tcp:127.0.0.1:1"]) func localhostIsAnAddress(
    text: String
  ) async throws {
    let probe = try StreamConnection(socket: text).stream("s").probe(1)
    let place = text.replacing("tcp:", with: "")
    #expect(await probe.next() == .failed(.cannotConnect(SystemError("connect", place, code: ECONNREFUSED))))
  }

  @Test func aLostConnectionFailsEachStreamAfterItsReceivedEvents() async throws {
    try await ScriptedServer.run { server in
      let connection = try StreamConnection(socket: server.path)
      let first = connection.stream("first").probe(5)
      _ = await server.next()
      let second = connection.stream("second").probe(5)
      _ = await server.next()
      server.act { peer in
        peer.send("1", on: StreamID(1))
        peer.close()
      }
      #expect(await first.next() == .value("1"))
      #expect(await first.next() == .failed(.disconnected("the server closed the connection")))
      #expect(await second.next() == .failed(.disconnected("the server closed the connection")))
    }
  }

  @Test func aNewSubscriptionAfterALossOpensANewConnection() async throws {  // SEMANTICS 5
    try await ScriptedServer.run(script: { peer, event in
      guard case .request(let id, _, _, _, _) = event else { return }
      if peer.id == 0 { peer.close() } else { peer.send("again", on: id) }
    }) { server in
      let connection = try StreamConnection(socket: server.path)
      let second = Probe(onSubscription: { $0.request(.max(1)) })
      let first = Probe(onSubscription: { $0.request(.max(1)) }, onEnd: { connection.stream("s").subscribe(second) })
      connection.stream("s").subscribe(first)
      #expect(await first.next() == .failed(.disconnected("the server closed the connection")))
      #expect(await second.next() == .value("again"))
    }
  }

  @Test(arguments: [
    (ErrorCode.connectionClose, StreamError.disconnected("no more of this")),
    (.connectionError, .cutOff("no more of this")), (.rejectedSetup, .disconnected("no more of this")),
  ]) func theServersFinalErrorIsReported(code: ErrorCode, error: StreamError) async throws {
    try await ScriptedServer.run(script: { peer, event in
      if case .request = event { peer.machine.close(code, "no more of this") }
    }) { server in
      let probe = try StreamConnection(socket: server.path).stream("s").probe(1)
      #expect(await probe.next() == .failed(error))
    }
  }

  @Test func valuesBeyondTheDemandCloseTheConnectionAndAreNotDelivered() async throws {  // SEMANTICS 15
    let frames = { @Sendable (id: StreamID) -> [UInt8] in
      var bytes: [UInt8] = []
      for text in ["1", "2"] {
        let payload = Payload(data: Array(text.utf8))
        Frame.payload(id, payload, follows: false, isComplete: false, isNext: true).encode(into: &bytes)
      }
      return bytes
    }
    try await ScriptedServer.run(script: { peer, event in
      if case .request(let id, _, _, _, _) = event { peer.write(frames(id)) }
    }) { server in
      let probe = try StreamConnection(socket: server.path).stream("s").probe(1)
      _ = await server.next()
      #expect(await probe.next() == .value("1"))
      guard case .failed(.disconnected) = await probe.next() else { return #expect(Bool(false), "still connected") }
      guard case .other(.closed(.connectionError, _)) = await server.next() else {
        return #expect(Bool(false), "the server was not told")
      }
    }
  }

  @Test func aServerThatIsSilentForTheLifetimeIsDisconnected() async throws {
    try await ScriptedServer.run(reads: false) { server in
      let connection = try StreamConnection(
        socket: server.path, keepaliveInterval: .milliseconds(5), maximumLifetime: .milliseconds(20))
      let probe = connection.stream("s").probe(1)
      #expect(await probe.next() == .failed(.disconnected("the server was silent for 0.02 seconds")))
    }
  }

  @Test func keepalivesRequestAReply() async throws {
    var expected: [UInt8] = []
    Frame.keepalive(respond: true, position: 0, data: []).encode(into: &expected)
    let keepalive = expected
    let received = Locked<[UInt8]>([])
    try await ScriptedServer.run(
      raw: true,
      script: { peer, event in
        guard case .bytes(let bytes) = event else { return }
        received.withLock { $0 += bytes }
      }
    ) { server in
      let connection = try StreamConnection(socket: server.path, keepaliveInterval: .milliseconds(1))
      _ = connection.stream("s").probe(1)
      // It may arrive together with the previous one, or not.
      var bytes: [UInt8] = []
      while !bytes.suffix(keepalive.count).elementsEqual(keepalive) {
        _ = await server.next()
        bytes = received.withLock { $0 }
      }
    }
  }

  @Test func closingFailsLiveAndLaterRequests() async throws {
    try await ScriptedServer.run { server in
      let connection = try StreamConnection(socket: server.path)
      let live = connection.stream("s").probe(1)
      _ = await server.next()
      connection.close()
      #expect(await live.next() == .failed(.disconnected("the connection was closed locally")))
      #expect(await server.next() == .gone)
      let late = connection.stream("s").probe(1)
      #expect(await late.next() == .failed(.disconnected("the connection was closed locally")))
    }
  }

  @Test func aReleasedConnectionStaysOpenForItsLastStream() async throws {
    try await ScriptedServer.run { server in
      let probe = try StreamConnection(socket: server.path).stream("s").probe(2)
      _ = await server.next()
      server.act { $0.send("1", on: StreamID(1)) }
      #expect(await probe.next() == .value("1"))
      server.act { $0.send("2", on: StreamID(1), isComplete: true) }
      #expect(await probe.next() == .value("2"))
      #expect(await probe.next() == .finished)
      #expect(await server.next() == .gone)
    }
  }

  @Test func aServerThatReadsLateReceivesEachRequestOnceAndAllDemand() async throws {
    // 100 requests of 60 kB exceed the socket and the transport's buffer: most wait in their subscriptions.
    let long = String(repeating: "x", count: 60_000)
    try await ScriptedServer.run(reads: false) { server in
      let connection = try StreamConnection(socket: server.path)
      let probes = (0..<100).map { number in
        connection.stream("\(number)", options: SubscribeOptions(from: .since(long))).probe(1)
      }
      for probe in probes { for _ in 0..<10 { probe.request(1) } }
      while server.connectionCount == 0 { await Task.yield() }
      server.act { $0.reads = true }
      var demand: [StreamID: UInt32] = [:]
      var names: Set<String> = []
      while demand.values.reduce(0, +) < 1100 {
        switch await server.next() {
        case .request(let id, _, let count, let name, _):
          #expect(demand[id] == nil && names.insert(name).inserted)
          demand[id] = count
        case .other(.requestN(let id, let count)): demand[id, default: 0] += count
        case let other: return #expect(Bool(false), "\(String(describing: other))")
        }
      }
      #expect(demand.values.allSatisfy { $0 == 11 })
      #expect(demand.count == 100)
    }
  }

  @Test func aServerThatRequestsRepliesWithoutReadingIsDisconnected() async throws {
    var frame: [UInt8] = []
    Frame.keepalive(respond: true, position: 0, data: [UInt8](repeating: 0, count: 60_000)).encode(into: &frame)
    let flood = [[UInt8]](repeating: frame, count: 100).flatMap { $0 }
    try await ScriptedServer.run(reads: false) { server in
      let probe = try StreamConnection(socket: server.path).stream("s").probe(1)
      while server.connectionCount == 0 { await Task.yield() }
      server.act { $0.write(flood) }
      #expect(await probe.next() == .failed(.disconnected("the server does not read")))
    }
  }
}
