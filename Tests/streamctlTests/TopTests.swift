import ClientTestSupport
import Glibc
import RSocket
import Reactive
import StreamRuntime
import StreamServer
import TestSupport
import Testing

/// The built program's `top`.
@Suite(.timeLimit(.minutes(10))) struct TopTests {
  /// A snapshot of one stream, `seconds` after the daemon's start.
  private static func look(_ seconds: Int, name: String = "clock", events: Int) -> String {
    #"""
    {"version":"1.2.3","uptime_microseconds":\#(seconds)000000,"connections":1,"subscribers":2,"by_stream":[{"name":
    "\#(name)","state":"running","subscribers":2,"events_in":\#(events),"events_out":0,"bytes_in":0,"lag":3,"more":[]}]}
    """#
  }

  private static let row = "clock  running"
  private static let restored = "\u{1b}[?7h\u{1b}[?25h\u{1b}[?1049l"

  /// Replies to each request with the next snapshot; nil sends no reply.
  private func withDaemon(_ looks: [String?], body: (ScriptedServer) async throws -> Void) async throws {
    let given = Locked(0)
    try await ScriptedServer.run(
      script: { peer, event in
        switch event {
        case .request(let id, _, _, _, _), .other(.requestN(let id, _)):
          let number = given.withLock { given in
            defer { given += 1 }
            return given
          }
          if number < looks.count, let look = looks[number] { peer.send(look, on: id) }
        default: break
        }
      }, body: body)
  }

  private func start(_ arguments: [String], on terminal: PseudoTerminal) throws -> ChildProcess {
    try ChildProcess(
      "env", ["TERM=xterm", ChildProcess.built("streamctl")] + arguments, terminal: terminal.program,
      output: .descriptor(terminal.program))
  }

  @Test func asJSONItPrintsOneSnapshotPerLineUpToTheCount() async throws {
    let looks = [Self.look(1, events: 0), Self.look(2, events: 5)]
    try await withDaemon(looks) { server in
      let command = try Command(["--socket", server.path, "top", "--json", "--count", "2"])
      let lines = await command.rest().split(separator: "\n", omittingEmptySubsequences: false)
      #expect(await command.end() == (0, ""))
      #expect(lines.map(String.init) == looks.map { $0.split(separator: "\n").joined(separator: " ") } + [""])
    }
  }

  @Test func asJSONItHasNoOrder() async throws {
    let command = try Command(["top", "--json", "--sort", "rate"])
    #expect(await command.end().code == 64)
  }

  @Test(arguments: [("list", "$streams", "[]"), ("status", "$stats", "{}"), ("config", "$config", "{}")])
  func otherCommandsPrintTheirStreamAsJSON(command: String, stream: String, value: String) async throws {
    try await ScriptedServer.run(script: { peer, event in
      if case .request(let id, .response, _, stream, _) = event { peer.send(value, on: id, isComplete: true) }
    }) { server in
      let command = try Command(["--socket", server.path, command, "--json"])
      #expect(await command.rest() == value + "\n")
      #expect(await command.end() == (0, ""))
    }
  }

  @Test func withoutATerminalItPrintsOneTablePerSnapshotUpToTheCount() async throws {
    try await withDaemon([Self.look(1, events: 0), Self.look(2, events: 5), Self.look(3, events: 25)]) { server in
      let command = try Command(["--socket", server.path, "top", "--count", "2"])
      #expect(
        await server.next()
          == .request(StreamID(1), .stream, 1, "$stats", #"{"from":"latest","on_lag":"latest","gaps":true}"#))
      let lines = await command.rest().split(separator: "\n", omittingEmptySubsequences: false)
      #expect(await command.end() == (0, ""))
      #expect(lines.count == 13)
      #expect(lines[0] == "streamd 1.2.3, up 2s, 1 connection, 2 subscribers, 1 stream")
      #expect(lines[3].hasPrefix("NAME "))
      #expect(lines[4] == "clock  running       5.0        0       0            2    3    -      -")
      #expect(lines[10] == "clock  running        20        0       0            2    3    -      -")
    }
  }

  @Test func onATerminalItRedrawsFollowsTheSizeAndRestoresItOnQ() async throws {
    try await withDaemon([Self.look(1, events: 0), Self.look(2, name: "a\\u001b[2Jb", events: 5)]) { server in
      let terminal = try PseudoTerminal(width: 80, height: 10)
      let command = try start(["--socket", server.path, "top"], on: terminal)
      let picture = try await terminal.picture { $0.count == 5 && $0[0].contains("up 2s") }
      #expect(picture[4].hasPrefix(#"a\u{1B}[2Jb  running"#))
      #expect(picture.allSatisfy { $0.count <= 80 })
      #expect(terminal.text.hasPrefix("\u{1b}[?1049h\u{1b}[?25l"))
      #expect(!terminal.editsLines)
      terminal.resize(width: 30, height: 3)
      command.signal(SIGWINCH)
      let smaller = try await terminal.picture { $0.count == 3 }
      #expect(smaller.allSatisfy { $0.count <= 30 })
      terminal.type("xq")
      try await terminal.drawn(Self.restored)
      #expect(await command.end() == 0)
      #expect(terminal.editsLines)
    }
  }

  @Test(arguments: [SIGINT, SIGTERM, SIGHUP, SIGQUIT])
  func aSignalRestoresTheTerminal(signal: CInt) async throws {
    try await withDaemon([Self.look(1, events: 0)]) { server in
      let terminal = try PseudoTerminal(width: 80, height: 24)
      let command = try start(["--socket", server.path, "top"], on: terminal)
      _ = try await terminal.picture { $0.count == 5 && $0[4].hasPrefix(Self.row) }
      command.signal(signal)
      try await terminal.drawn(Self.restored)
      #expect(await command.end() == 128 + signal)
      #expect(terminal.editsLines)
    }
  }

  @Test func aSuspendedProgramRestoresTheTerminalUntilItContinues() async throws {
    try await withDaemon([Self.look(1, events: 0)]) { server in
      let terminal = try PseudoTerminal(width: 80, height: 24)
      let command = try start(["--socket", server.path, "top"], on: terminal)
      _ = try await terminal.picture { $0.count == 5 && $0[4].hasPrefix(Self.row) }
      command.signal(SIGTSTP)
      try await terminal.drawn(Self.restored)
      await command.stopped()  // before that, the signal to continue would have no effect
      command.signal(SIGCONT)
      try await terminal.drawn("\u{1b}[J")
      terminal.type("q")
      try await terminal.drawn(Self.restored)
      #expect(await command.end() == 0)
    }
  }

  @Test func itReconnectsToARestartedDaemonWithoutNegativeRates() async throws {
    try await withDaemon(
      [Self.look(9, events: 700), Self.look(10, events: 800), nil, Self.look(1, events: 3)]
    ) { server in
      let terminal = try PseudoTerminal(width: 80, height: 24)
      let command = try start(["--socket", server.path, "top"], on: terminal)
      _ = try await terminal.picture { $0.count == 5 && $0[4].contains(" 100 ") }
      // The picture is drawn before the next snapshot is requested, and only what is requested has its turn.
      for _ in 0..<3 { _ = await server.next() }
      server.act { $0.close() }
      let waiting = try await terminal.picture { $0.count == 5 && !$0[2].contains("quit") }
      #expect(waiting[2].contains("the server closed the connection"))
      let again = try await terminal.picture { $0.count == 5 && $0[2].contains("q quit") && $0[0].contains("up 1s") }
      #expect(again[4].hasPrefix("clock  running         -"))
      command.signal(SIGINT)
      try await terminal.drawn(Self.restored)
      #expect(await command.end() == 130)
    }
  }

  @Test func aMissingDaemonIsOneLineOnTheRestoredTerminal() async throws {
    let terminal = try PseudoTerminal(width: 80, height: 24)
    let command = try start(["--socket", "/nowhere/at/all", "top"], on: terminal)
    #expect(await command.end() == 69)
    try await terminal.drawn(Self.restored)
    #expect(await command.text(of: command.errors).hasPrefix("streamctl: "))
  }

  @Test func itShowsTheRatesOfAServer() async throws {
    let folder = try TemporaryFolder()
    let path = folder.path("s")
    let server = try StreamServer(limits: ServerLimits(workers: 2), version: "1.2.3")
    let ticks = Publishers.timer(interval: .milliseconds(5)).map { _ in [Array("12345678".utf8)] }
    try server.add(StreamConfiguration(name: "ticks"), source: ticks.setFailureType(to: StreamFailure.self))
    try server.start()
    server.listen(on: try UnixSocket.listen(at: path, mode: 0o600))
    let follower = try Command(["--socket", path, "sub", "ticks"])
    #expect(await follower.line() == "12345678")
    let terminal = try PseudoTerminal(width: 100, height: 24)
    let command = try start(["--socket", path, "top"], on: terminal)
    let picture = try await terminal.picture { $0.count == 5 && !$0[4].contains(" - ") }
    let cells = picture[4].split(separator: " ").map(String.init)
    #expect(cells.prefix(2) == ["ticks", "running"] && cells[5] == "1")
    #expect((Double(cells[2]) ?? 0) > 0 && cells[7].hasSuffix("s"))
    command.signal(SIGINT)
    follower.interrupt()
    #expect(await command.end() == 130)
    _ = await follower.end()
    await withCheckedContinuation { continuation in server.stop { continuation.resume() } }
  }
}
