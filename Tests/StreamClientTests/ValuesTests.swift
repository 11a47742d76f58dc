import ClientTestSupport
import RSocket
import StreamClient
import Testing

@Suite(.timeLimit(.minutes(10))) struct ValuesTests {
  @Test func theFirstAwaitRequestsAWindowAndReplenishesItAtHalf() async throws {
    try await ScriptedServer.run { server in
      let connection = try StreamConnection(socket: server.path)
      var iterator = connection.stream("s").values.makeAsyncIterator()
      async let finished: Void = {
        #expect(await server.next() == .request(StreamID(1), .stream, 16, "s", #"{"gaps":true}"#))
        server.act { peer in for number in 1...16 { peer.send("\(number)", on: StreamID(1)) } }
        #expect(await server.next() == .other(.requestN(StreamID(1), 8)))
        server.act { $0.machine.sendError(StreamID(1), .lagged, "lagged: 3 events lost") }
      }()
      for number in 1...8 { #expect(try await iterator.next()?.data == Array("\(number)".utf8)) }
      await finished
      for number in 9...16 { #expect(try await iterator.next()?.data == Array("\(number)".utf8)) }
      await #expect(throws: StreamError.lagged("lagged: 3 events lost")) { try await iterator.next() }
      #expect(try await iterator.next() == nil)
    }
  }

  @Test func cancellingTheTaskEndsTheLoopAndCancelsTheStream() async throws {
    try await ScriptedServer.run { server in
      let connection = try StreamConnection(socket: server.path)
      let task = Task {
        var count = 0
        for try await _ in connection.stream("s").values { count += 1 }
        return count
      }
      guard case .request = await server.next() else { return #expect(Bool(false), "no request") }
      task.cancel()
      #expect(try await task.value == 0)
      #expect(await server.next() == .other(.cancel(StreamID(1))))
    }
  }

  @Test func leavingTheLoopCancelsTheStream() async throws {
    try await ScriptedServer.run(script: { peer, event in
      if case .request(let id, _, _, _, _) = event { peer.send("1", on: id) }
    }) { server in
      let connection = try StreamConnection(socket: server.path)
      for try await event in connection.stream("s").values {
        #expect(event.data == Array("1".utf8))
        break
      }
      guard case .request = await server.next() else { return #expect(Bool(false), "no request") }
      #expect(await server.next() == .other(.cancel(StreamID(1))))
    }
  }

  @Test func completionEndsTheLoop() async throws {
    try await ScriptedServer.run(script: { peer, event in
      guard case .request(let id, _, _, _, _) = event else { return }
      peer.send("1", on: id)
      peer.send("2", on: id, isComplete: true)
    }) { server in
      let connection = try StreamConnection(socket: server.path)
      var texts: [String] = []
      for try await event in connection.stream("s").values { texts.append(String(decoding: event.data, as: UTF8.self)) }
      #expect(texts == ["1", "2"])
    }
  }
}
