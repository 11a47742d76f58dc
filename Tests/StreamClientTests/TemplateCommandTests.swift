import ClientTestSupport
import StreamClient
import Testing

/// The commands that make and end streams of templates: what is sent, and how they end.
@Suite(.timeLimit(.minutes(10))) struct TemplateCommandTests {
  /// Replies to each command with a payload without data, as the daemon does.
  private static let accepting: @Sendable (ClientTestSupport.Peer, ServerEvent) -> Void = { peer, event in
    if case .request(let id, .response, _, "$control", _) = event { peer.send("", on: id, isComplete: true) }
  }

  @Test func theNameIsAJSONTextOfTheCommand() async throws {
    let sent = Recorder<String>()
    try await ScriptedServer.run(script: { peer, event in
      if case .request(_, .response, 1, "$control", let data) = event { sent.record(data) }
      Self.accepting(peer, event)
    }) { server in
      let connection = try StreamConnection(socket: server.path)
      try await connection.make("weather/\"oslo\"")
      try await connection.forget("weather/oslo")
      #expect(await sent.next() == #"{"make":"weather/\"oslo\""}"#)
      #expect(await sent.next() == #"{"forget":"weather/oslo"}"#)
    }
  }

  @Test func aRefusalIsThrown() async throws {
    try await ScriptedServer.run(script: { peer, event in
      if case .request(let id, _, _, _, _) = event { peer.machine.sendError(id, .rejected, "no stream named \"s\"") }
    }) { server in
      let connection = try StreamConnection(socket: server.path)
      await #expect(throws: StreamError.rejected("no stream named \"s\"")) { try await connection.make("s") }
      await #expect(throws: StreamError.rejected("no stream named \"s\"")) { try await connection.forget("s") }
    }
  }

  @Test func aLostConnectionAndACancelledTaskEndTheCommand() async throws {
    try await ScriptedServer.run { server in
      let connection = try StreamConnection(socket: server.path)
      let cancelled = Task { try await connection.make("a") }
      _ = await server.next()
      cancelled.cancel()
      await #expect(throws: StreamError.canceled("the task was cancelled")) { try await cancelled.value }
      let lost = Task { try await connection.forget("b") }
      while let event = await server.next() {
        if case .request(_, _, _, _, #"{"forget":"b"}"#) = event { break }
      }
      server.act { $0.close() }
      await #expect(throws: StreamError.disconnected("the server closed the connection")) { try await lost.value }
    }
  }
}
