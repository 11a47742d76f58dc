import ClientTestSupport
import Glibc
import RSocket
import Reactive
import StreamClient
import StreamRuntime
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(10))) struct RemoteStreamTests {
  @Test func demandBecomesTheInitialRequestAndThenRequestN() async throws {
    try await ScriptedServer.run { server in
      let connection = try StreamConnection(socket: server.path)
      let probe = connection.stream("clock").probe(3)
      #expect(await server.next() == .request(StreamID(1), .stream, 3, "clock", #"{"gaps":true}"#))
      probe.request(2)
      #expect(await server.next() == .other(.requestN(StreamID(1), 2)))
      probe.cancel()
      // Nothing else was sent in between.
      #expect(await server.next() == .other(.cancel(StreamID(1))))
    }
  }

  @Test func nothingIsSentWithoutDemand() async throws {
    try await ScriptedServer.run { server in
      let connection = try StreamConnection(socket: server.path)
      let quiet = connection.stream("quiet").probe()
      let cancelled = connection.stream("cancelled").probe()
      cancelled.cancel()
      cancelled.request(1)
      #expect(server.connectionCount == 0)
      let loud = connection.stream("loud").probe(1)
      #expect(await server.next() == .request(StreamID(1), .stream, 1, "loud", #"{"gaps":true}"#))
      quiet.request(4)
      #expect(await server.next() == .request(StreamID(3), .stream, 4, "quiet", #"{"gaps":true}"#))
      #expect(server.connectionCount == 1)
      loud.cancel()
    }
  }

  /// SEMANTICS 19: no value can overtake the subscription.
  @Test func demandDuringTheSubscriptionIsSentAtOnce() async throws {
    try await ScriptedServer.run { server in
      let connection = try StreamConnection(socket: server.path)
      let probe = Probe(onSubscription: { subscription in
        subscription.request(.max(2))
        subscription.request(.max(3))
      })
      connection.stream("s").subscribe(probe)
      #expect(await server.next() == .request(StreamID(1), .stream, 5, "s", #"{"gaps":true}"#))
    }
  }

  @Test func unlimitedDemandIsTheLargestRequestNAndIsSentOnce() async throws {  // SEMANTICS 15
    try await ScriptedServer.run { server in
      let connection = try StreamConnection(socket: server.path)
      let probe = Probe(onSubscription: { $0.request(.unlimited) })
      connection.stream("s").subscribe(probe)
      #expect(await server.next() == .request(StreamID(1), .stream, 0x7fff_ffff, "s", #"{"gaps":true}"#))
      probe.request(7)
      probe.subscription?.request(.unlimited)
      probe.cancel()
      #expect(await server.next() == .other(.cancel(StreamID(1))))
    }
  }

  @Test func demandReturnedFromReceiveIsAdded() async throws {  // SEMANTICS 16
    try await ScriptedServer.run(script: { peer, event in
      guard case .request(let id, _, _, _, _) = event else { return }
      for number in 1...3 { peer.send("\(number)", on: id) }
    }) { server in
      let connection = try StreamConnection(socket: server.path)
      let probe = Probe(onValue: { _, _ in .max(2) })
      connection.stream("s").subscribe(probe)
      probe.request(3)
      guard case .request = await server.next() else { return #expect(Bool(false), "no request") }
      var granted: UInt32 = 0
      while granted < 6, case .other(.requestN(_, let more)) = await server.next() { granted += more }
      #expect(granted == 6)
    }
  }

  @Test func demandFromManyThreadsAddsUpExactly() async throws {
    try await ScriptedServer.run { server in
      let connection = try StreamConnection(socket: server.path)
      let probe = connection.stream("s").probe(1)
      guard case .request = await server.next() else { return #expect(Bool(false), "no request") }
      await withTaskGroup(of: Void.self) { group in
        for _ in 0..<8 { group.addTask { for _ in 0..<500 { probe.request(1) } } }
      }
      var granted: UInt32 = 0
      while granted < 4000, case .other(.requestN(_, let more)) = await server.next() { granted += more }
      #expect(granted == 4000)
      probe.cancel()
      #expect(await server.next() == .other(.cancel(StreamID(1))))
    }
  }

  @Test func valuesArriveInOrderBeforeTheCompletion() async throws {
    try await ScriptedServer.run(script: { peer, event in
      guard case .request(let id, _, _, _, _) = event else { return }
      for number in 1...3 { peer.send("\(number)", on: id) }
      peer.machine.sendComplete(id)
    }) { server in
      let probe = try StreamConnection(socket: server.path).stream("s").probe(5)
      for number in 1...3 { #expect(await probe.next() == .value("\(number)")) }
      #expect(await probe.next() == .finished)
    }
  }

  @Test func aPayloadWithNextAndCompleteIsAValueAndACompletion() async throws {
    try await ScriptedServer.run(script: { peer, event in
      guard case .request(let id, _, _, _, _) = event else { return }
      peer.send("last", on: id, isComplete: true)
    }) { server in
      let probe = try StreamConnection(socket: server.path).stream("s").probe(5)
      #expect(await probe.next() == .value("last"))
      #expect(await probe.next() == .finished)
    }
  }

  @Test func aFragmentedValueCostsOneCredit() async throws {  // WIRE: fragments; SEMANTICS 28
    let long = String(repeating: "x", count: 300_000)
    try await ScriptedServer.run(script: { peer, event in
      guard case .request(let id, _, _, _, _) = event else { return }
      peer.send(long, on: id)
      peer.send("short", on: id)
    }) { server in
      let probe = try StreamConnection(socket: server.path).stream("s").probe(2)
      #expect(await probe.next() == .value(long))
      #expect(await probe.next() == .value("short"))
    }
  }

  @Test func anEventHasIdAndTimeOrNeither() async throws {
    try await ScriptedServer.run(script: { peer, event in
      guard case .request(let id, _, _, _, _) = event else { return }
      peer.send("a", on: id, number: 0x0102_0304_0506_0708)
      peer.machine.sendPayload(id, Payload(data: [1]))
    }) { server in
      var events: [StreamEvent] = []
      for try await event in try StreamConnection(socket: server.path).stream("s").values {
        events.append(event)
        if events.count == 2 { break }
      }
      let number: UInt64 = 0x0102_0304_0506_0708
      #expect(events[0] == StreamEvent(id: number, time: number + 1_000_000, data: Array("a".utf8)))
      #expect(events[1] == StreamEvent(id: nil, time: nil, data: [1]))
    }
  }

  @Test(arguments: [
    (ErrorCode.rejected, StreamError.rejected("why")), (.invalid, .invalid("why")), (.canceled, .canceled("why")),
    (.lagged, .lagged("why")), (.applicationError, .failed(.applicationError, "why")),
    (ErrorCode(rawValue: 0x999), .failed(ErrorCode(rawValue: 0x999), "why")),
  ]) func anErrorEndsOnlyItsStream(code: ErrorCode, expected: StreamError) async throws {
    try await ScriptedServer.run(script: { peer, event in
      guard case .request(let id, _, _, let name, _) = event else { return }
      if name == "bad" { peer.machine.sendError(id, code, "why") } else { peer.send("1", on: id) }
    }) { server in
      let connection = try StreamConnection(socket: server.path)
      let good = connection.stream("good").probe(2)
      #expect(await good.next() == .value("1"))
      let bad = connection.stream("bad").probe(1)
      #expect(await bad.next() == .failed(expected))
      server.act { $0.send("2", on: StreamID(1)) }
      #expect(await good.next() == .value("2"))
    }
  }

  @Test func cancellingInsideReceiveDropsValuesThatHaveArrived() async throws {  // SEMANTICS 18, 20
    try await ScriptedServer.run(script: { peer, event in
      guard case .request(let id, _, _, let name, _) = event else { return }
      if name == "later" { return peer.send("x", on: id) }
      for number in 1...3 { peer.send("\(number)", on: id) }
      peer.machine.sendComplete(id)
    }) { server in
      let connection = try StreamConnection(socket: server.path)
      let probe = Probe(onValue: { probe, _ in
        probe.cancel()
        probe.cancel()
        return .max(1)
      })
      connection.stream("s").subscribe(probe)
      probe.request(3)
      #expect(await probe.next() == .value("1"))
      // The reply to a later request follows all that the server sent for "s".
      let later = connection.stream("later").probe(1)
      #expect(await later.next() == .value("x"))
      probe.signals.record(.value("nothing else"))
      #expect(await probe.next() == .value("nothing else"))
    }
  }

  @Test func aCancelledSubscriberIsReleased() async throws {
    try await ScriptedServer.run { server in
      let connection = try StreamConnection(socket: server.path)
      weak var released: Probe?
      var subscription: (any Subscription)?
      do {
        let probe = connection.stream("s").probe(1)
        released = probe
        subscription = probe.subscription
        _ = await server.next()
      }
      subscription?.cancel()
      #expect(await server.next() == .other(.cancel(StreamID(1))))
      #expect(released == nil)
    }
  }

  @Test func aNameThatIsTooLongFailsOnlyItsOwnRequest() async throws {
    try await ScriptedServer.run { server in
      let connection = try StreamConnection(socket: server.path)
      let probe = connection.stream(String(repeating: "n", count: 256)).probe(1)
      guard case .failed(.invalid) = await probe.next() else { return #expect(Bool(false), "not invalid") }
      _ = connection.stream("s").probe(1)
      #expect(await server.next() == .request(StreamID(1), .stream, 1, "s", #"{"gaps":true}"#))
    }
  }

  @Test func theNewestValueIsOneRequestAndOneResponse() async throws {
    try await ScriptedServer.run(script: { peer, event in
      guard case .request(let id, _, _, let name, _) = event else { return }
      if name == "s" { peer.send("newest", on: id, isComplete: true) }
      if name == "empty" { peer.machine.sendComplete(id) }
      if name == "none" { peer.machine.sendError(id, .rejected, "no stream named \"none\"") }
    }) { server in
      let connection = try StreamConnection(socket: server.path)
      let probe = connection.value(of: "s").probe(3)
      #expect(await server.next() == .request(StreamID(1), .response, 1, "s", ""))
      #expect(await probe.next() == .value("newest"))
      #expect(await probe.next() == .finished)
      #expect(try await connection.value(of: "s").value.data == Array("newest".utf8))
      await #expect(throws: StreamError.rejected("no stream named \"none\"")) {
        try await connection.value(of: "none").value
      }
      await #expect(throws: StreamError.self) { try await connection.value(of: "empty").value }
    }
  }
}
