import ClientTestSupport
import Glibc
import RSocket
import StreamRuntime
import TestSupport
import Testing

/// The built program against a scripted server.
@Suite(.timeLimit(.minutes(10))) struct CommandTests {
  @Test func creditIsGrantedAndReplenishedAtHalf() async throws {
    try await ScriptedServer.run { server in
      let command = try Command(["--socket", server.path, "sub", "clock", "--credit", "4"])
      #expect(await server.next() == .request(StreamID(1), .stream, 4, "clock", #"{"gaps":true}"#))
      server.act { $0.send("1", on: StreamID(1)) }
      #expect(await command.line() == "1")
      server.act { $0.send("2", on: StreamID(1)) }
      #expect(await server.next() == .other(.requestN(StreamID(1), 2)))
      server.act { peer in for number in 3...4 { peer.send("\(number)", on: StreamID(1)) } }
      #expect(await server.next() == .other(.requestN(StreamID(1), 2)))
      server.act { $0.machine.sendComplete(StreamID(1)) }
      #expect(await command.rest() == "2\n3\n4\n")
      #expect(await command.end() == (0, ""))
    }
  }

  @Test func noMoreEventsAreRequestedThanTheCount() async throws {
    try await ScriptedServer.run(script: { peer, event in
      switch event {
      case .request(let id, _, let count, _, _), .other(.requestN(let id, let count)):
        for _ in 0..<count { peer.send("x", on: id) }
      default: break
      }
    }) { server in
      let command = try Command(["--socket=\(server.path)", "sub", "--credit=2", "--count", "5", "clock"])
      var granted: UInt32 = 0
      while true {
        switch await server.next() {
        case .request(_, _, let count, _, _), .other(.requestN(_, let count)):
          granted += count
          continue
        default: break
        }
        break
      }
      #expect(granted == 5)
      #expect(await command.rest() == "x\nx\nx\nx\nx\n")
      #expect(await command.end() == (0, ""))
    }
  }

  @Test func optionsReachTheServer() async throws {
    try await ScriptedServer.run(script: { peer, event in
      if case .request(let id, _, _, _, _) = event { peer.machine.sendError(id, .invalid, "no such time") }
    }) { server in
      let command = try Command(["--socket", server.path, "sub", "clock", "--from", "-5m", "--on-lag", "fail"])
      let options = #"{"from":"-5m","on_lag":"fail","gaps":true}"#
      #expect(await server.next() == .request(StreamID(1), .stream, 256, "clock", options))
      #expect(await command.end() == (65, "streamctl: no such time\n"))
    }
  }

  @Test func aKeyReachesTheServer() async throws {
    try await ScriptedServer.run(script: { peer, event in
      if case .request(let id, .response, _, "prices", _) = event {
        peer.machine.sendPayload(id, Payload(data: Array("7".utf8)), isComplete: true)
      }
    }) { server in
      let command = try Command(["--socket", server.path, "get", "prices", "--key", "New \"York\""])
      let options = #"{"key":"New \"York\""}"#
      #expect(await server.next() == .request(StreamID(1), .response, 1, "prices", options))
      #expect(await command.rest() == "7\n")
      #expect(await command.end() == (0, ""))
    }
  }

  @Test func eachEventOfASlowStreamIsPrintedAtOnceAndAnInterruptCancels() async throws {
    try await ScriptedServer.run(script: { peer, event in
      if case .request(let id, _, _, _, _) = event { peer.send("first", on: id) }
    }) { server in
      let command = try Command(["--socket", server.path, "sub", "clock"])
      guard case .request(let id, _, _, _, _) = await server.next() else { return #expect(Bool(false), "no request") }
      #expect(await command.line() == "first")
      server.act { $0.send("second", on: id) }
      #expect(await command.line() == "second")
      command.interrupt()
      #expect(await server.next() == .other(.cancel(id)))
      #expect(await command.end() == (130, ""))
    }
  }

  @Test func aClosedOutputEndsTheProgramSilentlyEvenWithoutEvents() async throws {
    try await ScriptedServer.run(script: { peer, event in
      if case .request(let id, _, _, _, _) = event { peer.send("first", on: id) }
    }) { server in
      let command = try Command(["--socket", server.path, "sub", "clock"])
      #expect(await command.line() == "first")
      command.closeOutput()
      #expect(await command.end() == (0, ""))
    }
  }

  @Test func aBlockedOutputOnlyDelaysCredit() async throws {
    // The pipe is never read: it fills, and then no more events are requested.
    let line = String(repeating: "x", count: 9_999)
    try await ScriptedServer.run(script: { peer, event in
      switch event {
      case .request(let id, _, let count, _, _), .other(.requestN(let id, let count)):
        for _ in 0..<count { peer.send(line, on: id) }
      default: break
      }
    }) { server in
      var ends: [CInt] = [0, 0]
      guard pipe(&ends) == 0 else { return #expect(Bool(false), "pipe: errno \(errno)") }
      for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
      let command = try Command(["--socket", server.path, "sub", "clock", "--credit", "10"], output: ends[1])
      close(ends[1])
      // Until the pipe is full: 65,536 bytes, 6 lines, of which 5 were replenished.
      #expect(await server.next() == .request(StreamID(1), .stream, 10, "clock", #"{"gaps":true}"#))
      #expect(await server.next() == .other(.requestN(StreamID(1), 5)))
      command.interrupt()
      #expect(await server.next() == .other(.cancel(StreamID(1))))
      #expect(await command.end().code == 130)
      close(ends[0])
    }
  }

  @Test(
    arguments: [
      (64, "clients extra"), (64, "publish"), (64, ""), (64, "sub"), (64, "sub a --credit 0"), (64, "get a --count 1"),
      (64, "sub a --on-lag wait"), (64, "get a --no-reconnect"), (64, "get a --timeout 5"), (64, "get a --timeout 0s"),
      (64, "list --timeout 5s"), (64, "config a"), (64, "reload"), (64, "reload 0"), (64, "reload -- -1"),
      (64, "reload 1x"),
      (64, "reload 1 2"), (64, "reload 1 --json"), (64, "make"), (64, "forget"), (64, "make a --json"),
      (64, "sub a --where"), (64, "sub a --where a=1"), (64, "sub a --where /a==1"), (64, "sub a --where /a!=1"),
      (64, "sub a --where !/a=1"), (64, "sub a --where /a>x"), (64, "sub a --where {\"/a\":[]}"),
      (64, "sub a --where /a=1 --where /a=2"), (64, "get a --where /a=1"), (64, "get a --marker"),
      (64, "top --no-follow"),
      (64, "sub a --max-event 5GiB"), (64, "sub a --max-event x"), (69, "--socket /nowhere sub a"), (64, "pub"),
      (64, "pub a b c"), (64, "request"), (64, "request a b c"), (64, "request a b --json"), (64, "pub a --count 1"),
      (64, "pub a --as b --no-reconnect"),
      (65, "pub a b --as 0123456789012345678901234567890123456789012345678"),
      (69, "--socket /nowhere pub a b"), (64, "--colour list"), (69, "--socket /nowhere/at/all list"),
    ] as [(CInt, String)]) func usageErrorsAreOneLineAndAnExitCode(code: CInt, arguments: String) async throws
  {
    let end = try await Command(arguments.split(separator: " ").map(String.init)).end()
    #expect(end.code == code)
    #expect(end.errors.hasPrefix("streamctl: ") && end.errors.filter { $0 == "\n" }.count == 1)
  }

  @Test(arguments: [
    (ErrorCode.rejected, CInt(77)), (.invalid, 65), (.canceled, 69), (.lagged, 75), (.applicationError, 70),
  ]) func aRejectionIsOneLineAndAnExitCode(code: ErrorCode, exitCode: CInt) async throws {
    try await ScriptedServer.run(script: { peer, event in
      if case .request(let id, _, _, _, _) = event { peer.machine.sendError(id, code, "because") }
    }) { server in
      let command = try Command(["--socket", server.path, "get", "x"])
      #expect(await command.end() == (exitCode, "streamctl: because\n"))
    }
  }

  @Test(arguments: ["data", "json", "raw"]) func aValueEndsItsLineOnATerminal(format: String) async throws {
    try await ScriptedServer.run(script: { peer, event in
      if case .request(let id, .response, _, "x", _) = event { peer.send("1", on: id, isComplete: true) }
    }) { server in
      let terminal = try PseudoTerminal(width: 80, height: 24)
      let words = ["--socket", server.path, "get", "x", "--format", format]
      let command = try Command(words, output: terminal.program)
      try await terminal.drawn("\r\n")
      #expect(await command.end() == (0, ""))
      let piped = try Command(words)
      let output = await piped.rest()
      #expect(output.hasSuffix("\n") == (format != "raw"))
      #expect(terminal.text == output.replacing("\n", with: "") + "\r\n")
      #expect(await piped.end() == (0, ""))
    }
  }

  @Test(arguments: ["sub", "get", "list"]) func eachCommandHasItsOwnHelp(verb: String) async throws {
    for words in [[verb, "--help"], ["-h", verb], [verb, "x", "--count", "1", "--help"]] {
      let command = try Command(words)
      let text = await command.rest()
      #expect(text.hasPrefix("Usage: streamctl [OPTION…] \(verb)") && text.contains("\nOther options:\n"))
      #expect(text.contains("--credit") == (verb == "sub") && text.contains("--format") == (verb != "list"))
      #expect(await command.end() == (0, ""))
    }
  }

  @Test(arguments: [
    ("lst", "unknown command lst; did you mean \"list\"?"),
    ("stauts --help", "unknown command stauts; did you mean \"status\"?"),
    ("sub x --formt raw", "unknown option --formt; did you mean \"--format\"?"),
    ("nope", "unknown command nope; see streamctl --help"),
    ("frobnicate", "unknown command frobnicate; see streamctl --help"),
    ("--frobnicate", "unknown option --frobnicate; see streamctl --help"),
    ("check x --bad", "unknown option --bad; see streamctl --help"),
    ("list --json=yes", "--json accepts no value; see streamctl --help"),
    ("--socket= list", "--socket requires a path or an address; see streamctl --help"),
    ("--socket unix: list", "--socket requires a path or an address; see streamctl --help"),
  ]) func unknownWordsGetASuggestion(words: String, sentence: String) async throws {
    let command = try Command(words.split(separator: " ").map(String.init))
    #expect(await command.end() == (64, "streamctl: \(sentence)\n"))
  }

  @Test func linesArePublishedWithinTheCreditAndTheEndIsConfirmed() async throws {
    try await ScriptedServer.run { server in
      let id = StreamID(1)
      let command = try Command(["--socket", server.path, "pub", "--no-reconnect", "log"], holdsInput: true)
      await command.write("1\n2\n3\n4\n5")
      #expect(await server.next() == .request(id, .channel, 1, "log", "1"))
      for grant in [1, 2] as [UInt32] {
        server.act { $0.machine.sendRequestN(StreamID(1), grant) }
        for _ in 0..<grant {
          guard case .other(.payload(id, _, isComplete: false)) = await server.next() else { throw CancellationError() }
        }
      }
      command.endInput()
      server.act { $0.machine.sendRequestN(StreamID(1), 9) }
      #expect(await server.next() == .other(.payload(id, Payload(data: Array("5".utf8)), isComplete: false)))
      #expect(await server.next() == .other(.complete(id)))
      server.act { $0.machine.sendComplete(StreamID(1)) }
      #expect(await command.end() == (0, ""))
    }
  }

  @Test func endsOfLinesAndAByteOrderMarkAreNotPublished() async throws {
    try await ScriptedServer.run { server in
      let command = try Command(["--socket", server.path, "pub", "--no-reconnect", "log"], holdsInput: true)
      await command.write("\u{FEFF}1\r\n\r\n\u{FEFF}2\r")
      #expect(await server.next() == .request(StreamID(1), .channel, 1, "log", "1"))
      command.endInput()
      server.act { $0.machine.sendRequestN(StreamID(1), 9) }
      for value in ["", "\u{FEFF}2"] {
        let payload = Payload(data: Array(value.utf8))
        #expect(await server.next() == .other(.payload(StreamID(1), payload, isComplete: false)))
      }
      #expect(await server.next() == .other(.complete(StreamID(1))))
      server.act { $0.machine.sendComplete(StreamID(1)) }
      #expect(await command.end() == (0, ""))
    }
  }

  @Test func anInterruptCancelsPublishing() async throws {
    try await ScriptedServer.run { server in
      let command = try Command(["--socket", server.path, "pub", "--no-reconnect", "log"], holdsInput: true)
      await command.write("1\n")
      #expect(await server.next() == .request(StreamID(1), .channel, 1, "log", "1"))
      command.interrupt()
      #expect(await server.next() == .other(.cancel(StreamID(1))))
      #expect(await command.end() == (130, ""))
    }
  }

  @Test func aConnectionLostBeforeTheConfirmationIsAFailure() async throws {
    try await ScriptedServer.run(script: { peer, event in
      if case .request = event { peer.close() }
    }) { server in
      let command = try Command(["--socket", server.path, "pub", "log", "x", "--no-reconnect"])
      #expect(await command.end() == (69, "streamctl: the server closed the connection\n"))
    }
  }

  @Test func aSubscriptionOutlivesItsConnectionAndReportsIt() async throws {
    try await ScriptedServer.run { server in
      let command = try Command(["--socket", server.path, "sub", "s", "--from", "new", "--count", "5"])
      #expect(await server.next() == .request(StreamID(1), .stream, 5, "s", #"{"from":"new","gaps":true}"#))
      server.act { peer in
        for number in 1...2 { peer.send("\(number)", on: StreamID(1), number: UInt64(number)) }
        peer.close()
      }
      #expect(await server.next() == .request(StreamID(1), .stream, 3, "s", #"{"from":2,"gaps":true}"#))
      server.act(1) { peer in
        peer.send("3", on: StreamID(1), number: 3)
        peer.machine.sendError(StreamID(1), .canceled, "streamd is stopping")
        peer.close()
      }
      #expect(await server.next() == .request(StreamID(1), .stream, 2, "s", #"{"from":3,"gaps":true}"#))
      server.act(2) { peer in
        for number in [10, 11] as [UInt64] { peer.send("\(number)", on: StreamID(1), number: number) }
      }
      #expect(await command.rest() == "1\n2\n3\n10\n11\n")
      let notices = """
        streamctl: connection lost, reconnecting
        streamctl: reconnected
        streamctl: connection lost, reconnecting: streamd is stopping
        streamctl: reconnected

        """
      #expect(await command.end() == (0, notices))
    }
  }

  @Test(arguments: ["sub", "pub"]) func aRefusalOfTheTokenEndsReconnecting(verb: String) async throws {
    let refused = Locked(false)
    try await ScriptedServer.run(script: { peer, event in
      guard case .request(let id, _, _, _, _) = event else { return }
      guard refused.withLock({ $0 }) else {
        refused.withLock { $0 = true }
        if verb == "sub" { peer.send("1", on: id, number: 1) }
        return peer.machine.close(.connectionClose, "token \"a\" is not valid any more")
      }
      peer.machine.close(.rejectedSetup, "the token is not valid")
    }) { server in
      let command = try Command(["--socket", server.path, verb, "s"] + (verb == "pub" ? ["x"] : []))
      #expect(await command.rest() == (verb == "sub" ? "1\n" : ""))
      let errors = "streamctl: connection lost, reconnecting\nstreamctl: the token is not valid\n"
      #expect(await command.end() == (77, errors))
    }
  }

  @Test func gapsAreCountedOnStandardErrorAndInTheExitCode() async throws {
    try await ScriptedServer.run(script: { peer, event in
      guard case .request(let id, _, _, _, _) = event else { return }
      for (index, gap) in ([1, nil, 2] as [UInt64?]).enumerated() {
        peer.send("x", on: id, number: UInt64(10 + index), gap: gap)
      }
      peer.machine.sendComplete(id)
    }) { server in
      let command = try Command(["--socket", server.path, "sub", "s"])
      #expect(await command.rest() == "x\nx\nx\n")
      let errors = """
        streamctl: 1 event lost before event 10
        streamctl: 2 events lost before event 12
        streamctl: in all 3 events lost in 2 gaps

        """
      #expect(await command.end() == (75, errors))
    }
  }

  @Test func withoutReconnectionALossIsAFailure() async throws {
    try await ScriptedServer.run(script: { peer, event in
      guard case .request(let id, _, _, _, _) = event else { return }
      peer.send("1", on: id, number: 1)
      peer.close()
    }) { server in
      let command = try Command(["--socket", server.path, "sub", "--no-reconnect", "s"])
      #expect(await command.rest() == "1\n")
      #expect(await command.end() == (69, "streamctl: the server closed the connection\n"))
    }
  }

  @Test func listAndStatusReadTheSystemStreams() async throws {
    let streams = #"""
      [{"name":"clock","description":"Once a second","type":"application/json","source":"timer","state":"running",
      "subscribers":2,"last_id":17,"new":[1]},{"name":"quotes","description":"","type":"text/plain","source":"http",
      "state":"failing","subscribers":0,"last_id":null,"message":"404\u001b[2J"}]
      """#
    let stats = #"""
      {"version":"1.2.3","uptime_seconds":93784,"connections":3,"events_in":17,"lagged_events":0,"x":{},
      "configuration_error":"f:3: x\u001b[2J"}
      """#
    try await ScriptedServer.run(script: { peer, event in
      guard case .request(let id, _, _, let name, _) = event else { return }
      // A daemon of an earlier version has no such stream.
      guard name != "$templates" else { return peer.machine.sendError(id, .rejected, "no stream named \"$templates\"") }
      peer.send(name == "$stats" ? stats : streams, on: id, isComplete: true)
    }) { server in
      let list = try Command(["--socket", server.path, "list"])
      #expect(
        await list.rest() == """
          NAME    STATE    SOURCE  SUBSCRIBERS  AGE  DESCRIPTION    REASON
          clock   running  timer   2            -    Once a second
          quotes  failing  http    0            -                   404\\u{1B}[2J

          """)
      #expect(await list.end() == (0, ""))
      let long = try Command(["--socket", server.path, "list", "-l"])
      #expect(
        await long.rest() == """
          NAME    STATE    SOURCE  SUBSCRIBERS  AGE  LAST ID  DESCRIPTION    REASON
          clock   running  timer   2            -    17       Once a second
          quotes  failing  http    0            -    -                       404\\u{1B}[2J

          """)
      #expect(await long.end() == (0, ""))
      for words in [["ls", "--failing"], ["list", "q*"], ["list", "quotes"]] {
        let some = try Command(["--socket", server.path] + words)
        #expect(
          await some.rest() == """
            NAME    STATE    SOURCE  SUBSCRIBERS  AGE  DESCRIPTION  REASON
            quotes  failing  http    0            -                 404\\u{1B}[2J

            """)
        #expect(await some.end() == (0, ""))
      }
      let none = try Command(["--socket", server.path, "list", "clok"])
      #expect(await none.end() == (77, "streamctl: no stream named \"clok\"; did you mean \"clock\"?\n"))
      let status = try Command(["--socket", server.path, "status"])
      #expect(
        await status.rest() == """
          version        1.2.3
          configuration  the previous one is served: f:3: x\\u{1B}[2J
          uptime         1d 2h 3m 4s
          connections    3
          streams        2 (1 running, 1 failing)
          events in      17
          lagged events  0
          failing        quotes: 404\\u{1B}[2J

          """)
      #expect(await status.end() == (0, ""))
    }
  }

  @Test func listAndStatusShowSharedStreams() async throws {
    let streams = #"""
      [{"name":"clock","source":"timer","state":"running","subscribers":2,"last_id":17,
      "fleet":{"role":"follower","leader":"n\u001b2","term":7,"epoch":1,"lag":3,"stale_since":1767225600000000},
      "message":"stale since 2026-01-01T00:00:00Z: no leader is heard"},
      {"name":"own","source":"timer","state":"idle","subscribers":0},
      {"name":"quotes","source":"http","state":"running","subscribers":0,"last_id":1,
      "fleet":{"role":"leader","leader":"n1","term":9,"epoch":1,"lag":0}}]
      """#
    let stats = #"{"version":"1.2.3","fleet":"not connected: no route","connections":3}"#
    try await ScriptedServer.run(script: { peer, event in
      guard case .request(let id, _, _, let name, _) = event else { return }
      // A daemon of an earlier version has no such stream.
      guard name != "$templates" else { return peer.machine.sendError(id, .rejected, "no stream named \"$templates\"") }
      peer.send(name == "$stats" ? stats : streams, on: id, isComplete: true)
    }) { server in
      let list = try Command(["--socket", server.path, "list", "--long"])
      #expect(
        await list.rest() == """
          NAME    STATE    SOURCE  FLEET                           SUBSCRIBERS  AGE  LAST ID  DESCRIPTION  REASON
          clock   running  timer   follower of n\\u{1B}2, 3 behind  2            -    17                    \
          stale since 2026-01-01T00:00:00Z: no leader is heard
          own     idle     timer   -                               0            -    -
          quotes  running  http    leader                          0            -    1

          """)
      #expect(await list.end() == (0, ""))
      let status = try Command(["--socket", server.path, "status"])
      #expect(
        await status.rest() == """
          version      1.2.3
          fleet        not connected: no route
          connections  3
          streams      3 (2 running, 1 idle)
          shared       2 (1 leader, 1 follower, 1 stale)
          stale        clock: stale since 2026-01-01T00:00:00Z: no leader is heard

          """)
      #expect(await status.end() == (0, ""))
    }
  }

  @Test func configPrintsTheTextAndRemarks() async throws {
    let report = #"""
      {"text":"# a\n\n[server]\nx = \"\u001b\"\n","error":"f:3: x","restart_keys":["server.mode","server.hosts"],"new":1}
      """#
    try await ScriptedServer.run(script: { peer, event in
      if case .request(let id, .response, _, "$config", _) = event { peer.send(report, on: id, isComplete: true) }
    }) { server in
      let command = try Command(["--socket", server.path, "config"])
      #expect(
        await command.rest() == """
          # The previous configuration is served: f:3: x
          # These keys take effect after a restart: server.mode, server.hosts
          # a

          [server]
          x = "\\u{1B}"

          """)
      #expect(await command.end() == (0, ""))
    }
  }

  /// The end of a message for a user without a daemon.
  private static let hint =
    "; see systemctl status streamd.socket, or name another socket with --socket or STREAMD_SOCKET\n"

  @Test(arguments: ["localhost:0", "127.0.0.1:99999"]) func whatIsNoAddressIsExplained(name: String) async throws {
    let command = try Command(["--socket", name, "list"])
    #expect(
      await command.end() == (
        69,
        "streamctl: connect \(name): No such file or directory; this is read as a path, since an address of TCP is "
          + "a host and a port from 1 to 65535, such as localhost:7878\n"
      ))
  }

  @Test func aNameThatIsNotFoundIsToldInTheWordsOfTheResolver() async throws {
    let name = String(repeating: "x", count: 64)  // too long for a label: it is not asked for
    let (code, message) = await (try Command(["--socket", "\(name):7878", "list"])).end()
    #expect(
      code == 69 && message.hasPrefix("streamctl: connect \(name):7878: the name cannot be resolved: "), "\(message)")
  }

  @Test func socketOfOthersIsExplained() async throws {
    let folder = try TemporaryFolder()
    let listener = try UnixSocket.listen(at: folder.path("s"), mode: 0)
    defer { withExtendedLifetime(listener) {} }
    // Root may connect to any socket.
    let words = geteuid() == 0 ? ["setpriv", "--reuid=65534", "--clear-groups", "--inh-caps=-all"] : ["env"]
    chmod(folder.path, 0o755)
    let program = try ChildProcess.built("streamctl")
    let command = try ChildProcess(words[0], words.dropFirst() + [program, "--socket", folder.path("s"), "list"])
    let text = await command.text(of: command.errors)
    #expect(
      text == "streamctl: connect \(folder.path("s")): Permission denied; members of its group may connect: "
        + "adduser NAME streamd, and log in again\n")
    #expect(await command.end() == 77)
  }

  /// A child that outlives SIGHUP in place of the daemon.
  private func stubborn() async throws -> ChildProcess {
    let process = try ChildProcess(
      "sh", ["-c", "echo streamd > /proc/$$/comm; trap '' HUP; echo ready; sleep 600 & wait"])
    _ = await process.line()
    return process
  }

  @Test func reloadWaitsForFilesThatWereReadAfterTheSignal() async throws {
    let daemon = try await stubborn()
    defer { daemon.signal(SIGKILL) }
    for (error, code) in [(nil, 0), ("f:3: x", 78)] as [(String?, CInt)] {
      try await ScriptedServer.run { server in
        let command = try Command(["--socket", server.path, "reload", "\(daemon.id)"])
        guard case .request(let id, .stream, 1, "$config", _) = await server.next() else {
          return #expect(Bool(false), "no request")
        }
        server.act { $0.send(#"{"text":"","error":"an older one","read_monotonic_microseconds":1}"#, on: id) }
        #expect(await server.next() == .other(.requestN(id, 1)))
        let now = EventLoop.monotonicNow() / 1000
        let said = error.map { #""error":"\#($0)","# } ?? ""
        server.act { $0.send(#"{"text":"",\#(said)"read_monotonic_microseconds":\#(now)}"#, on: id) }
        let errors = error.map { "streamctl: configuration not reloaded: \($0)\n" } ?? ""
        #expect(await command.end() == (code, errors))
      }
    }
  }

  @Test func onlyStreamdIsSignalled() async throws {
    let other = try ChildProcess(
      "sh", ["-c", "trap 'echo signalled; exit' HUP; echo ready; read line; echo left"], holdsInput: true)
    #expect(await other.line() == "ready")
    let command = try Command(["--socket", "/nowhere", "reload", "\(other.id)"])
    #expect(await command.end() == (69, "streamctl: process \(other.id) is \"sh\", not streamd\n"))
    other.endInput()
    #expect(await other.line() == "left")
  }

  @Test func aReloadWithoutAnOutcomeEndsSoonAndSaysSo() async throws {
    let daemon = try await stubborn()
    let unknown = "streamctl: a reload was requested, but its outcome is unknown: "
    try await ScriptedServer.run(script: { peer, event in
      if case .request(let id, _, _, _, _) = event { peer.machine.sendError(id, .rejected, "no access") }
    }) { server in
      let refused = try Command(["--socket", server.path, "reload", "\(daemon.id)"])
      #expect(await refused.end() == (69, unknown + "no access\n"))
    }
    let alone = try Command(["--socket", "/nowhere", "reload", "\(daemon.id)"])
    #expect(await alone.end() == (69, unknown + "connect /nowhere: No such file or directory" + Self.hint))
    try await ScriptedServer.run { server in
      let late = try Command(["--socket", server.path, "reload", "\(daemon.id)", "--timeout", "100ms"])
      #expect(await late.end() == (69, unknown + "no reply from the daemon for 0.1 seconds\n"))
      let waiting = try Command(["--socket", server.path, "reload", "\(daemon.id)"])
      while let event = await server.next() { if case .request = event { break } }
      while let event = await server.next() { if case .request = event { break } }
      daemon.signal(SIGKILL)
      _ = await daemon.end()
      #expect(await waiting.end() == (69, unknown + "process \(daemon.id) has ended\n"))
      let gone = try Command(["--socket", server.path, "reload", "\(daemon.id)"])
      #expect(await gone.end() == (69, "streamctl: kill process \(daemon.id): No such process\n"))
    }
    try await ScriptedServer.run(script: { peer, event in if case .request = event { peer.close() } }) { server in
      let daemon = try await stubborn()
      let command = try Command(["--socket", server.path, "reload", "\(daemon.id)"])
      #expect(await command.end() == (69, unknown + "the server closed the connection\n"))
      daemon.signal(SIGKILL)
    }
  }

  @Test func aCheckHasItsOutcomeWithoutAReaderOfItsLine() async throws {
    var ends: [CInt] = [0, 0]
    try #require(pipe(&ends) == 0)
    close(ends[0])
    let command = try Command(["--socket", "/nowhere/s", "check", "clock"], output: ends[1])
    close(ends[1])
    #expect(await command.end() == (3, ""))
  }

  @Test(arguments: ["sub", "get"]) func theStateOfASilentStreamIsReportedOnceAndATimeoutEndsTheWait(verb: String)
    async throws
  {
    let streams = #"[{"name":"other","state":"failing"},{"name":"s","state":"failing","message":"no\u202eroute"}]"#
    try await ScriptedServer.run(script: { peer, event in
      guard case .request(let id, _, _, "$streams", _) = event else { return }
      peer.send(streams, on: id, isComplete: true)
    }) { server in
      let command = try Command(["--socket", server.path, verb, "s", "--timeout", "6s"])
      let errors = """
        streamctl: "s" is failing: no\\u{202E}route; waiting for an event
        streamctl: no event of "s" for 6.0 seconds

        """
      #expect(await command.end() == (69, errors))
    }
  }

  @Test func anEventRestartsTheTimeout() async throws {
    try await ScriptedServer.run { server in
      let command = try Command(["--socket", server.path, "sub", "s", "--timeout", "20s", "--count", "2"])
      guard case .request(let id, _, _, "s", _) = await server.next() else { return #expect(Bool(false), "no request") }
      server.act { $0.send("1", on: id, number: 1) }
      #expect(await command.line() == "1")
      server.act { $0.send("2", on: id, number: 2) }
      #expect(await command.rest() == "2\n")
      #expect(await command.end() == (0, ""))
    }
  }

  @Test func externalMessagesCannotControlTheTerminal() async throws {
    try await ScriptedServer.run(script: { peer, event in
      if case .request(let id, _, _, _, _) = event {
        peer.machine.sendError(
          id, .rejected, "no stream \"\u{1b}[2J\u{202e}\u{2066}\u{2028}é👩\u{200d}🔬\"\nstreamctl: ok")
      }
    }) { server in
      let command = try Command(["--socket", server.path, "get", "s"])
      let expected = #"streamctl: no stream "\u{1B}[2J\u{202E}\u{2066}\u{2028}é👩"# + "\u{200d}🔬" + #""\nstreamctl: ok"#
      #expect(await command.end() == (77, expected + "\n"))
    }
  }

  @Test(arguments: [
    ("data", "{\"a\": 1 }\ntwo\nlines\n"), ("raw", "{\"a\":\n1 }\ntwo\nlines"),
    (
      "json",
      """
      {"id":1,"time":"1970-01-01T00:00:01.000001Z","data":{"a": 1 }}
      {"id":2,"time":"1970-01-01T00:00:01.000002Z","data":"two\\nlines"}

      """
    ),
  ]) func eventsArePrintedInTheRequestedFormat(format: String, expected: String) async throws {
    try await ScriptedServer.run(script: { peer, event in
      guard case .request(let id, _, _, _, _) = event else { return }
      peer.send("{\"a\":\n1 }\n", on: id, number: 1)
      peer.send("two\nlines", on: id, number: 2, isComplete: true)
    }) { server in
      let command = try Command(["--socket", server.path, "sub", "s", "--format", format])
      #expect(await command.rest() == expected)
    }
  }

  @Test func bytesThatAreNoTextArePrintedInBase64() async throws {
    try await ScriptedServer.run(script: { peer, event in
      guard case .request(let id, _, _, _, _) = event else { return }
      peer.send([0x61, 0xff], on: id, number: 1, isComplete: true)
    }) { server in
      let command = try Command(["--socket", server.path, "sub", "s", "--format", "json"])
      #expect(await command.rest() == #"{"id":1,"time":"1970-01-01T00:00:01.000001Z","data_base64":"Yf8="}"# + "\n")
    }
  }

  @Test func markersAreShownOnStandardErrorAndCostCreditButCountForNothing() async throws {
    try await ScriptedServer.run { server in
      let command = try Command(["--socket", server.path, "sub", "s", "--marker", "--count", "2"])
      #expect(await server.next() == .request(StreamID(1), .stream, 2, "s", #"{"gaps":true,"marker":true}"#))
      server.act { peer in
        peer.send("1", on: StreamID(1), number: 7, kind: 0)
        peer.send("", on: StreamID(1), number: 7, kind: 1)
      }
      #expect(await server.next() == .other(.requestN(StreamID(1), 1)))
      #expect(await command.line() == "1")
      server.act { $0.send("", on: StreamID(1), number: 7, kind: 1) }
      #expect(await server.next() == .other(.requestN(StreamID(1), 1)))
      server.act { $0.send("2", on: StreamID(1), number: 9, gap: 1, kind: 0) }
      #expect(await command.rest() == "2\n")
      #expect(
        await command.end() == (75, "streamctl: caught up with event 7\nstreamctl: 1 event lost before event 9\n"))
    }
  }

  @Test func markersAreObjectsInJSONAndNoFollowEndsWithTheFirst() async throws {
    try await ScriptedServer.run(script: { peer, event in
      guard case .request(let id, _, _, _, _) = event else { return }
      peer.send("1", on: id, number: 7, kind: 0)
      peer.send("", on: id, number: 7, kind: 1)
    }) { server in
      let socket = ["--socket", server.path, "sub", "s", "--format", "json", "--no-follow"]
      let event = #"{"id":7,"time":"1970-01-01T00:00:01.000007Z","data":1}"# + "\n"
      let marker = #"{"id":7,"time":"1970-01-01T00:00:01.000007Z","caught_up":true}"# + "\n"
      let shown = try Command(socket + ["--marker"])
      #expect(await shown.rest() == event + marker)
      #expect(await shown.end() == (0, ""))
      let hidden = try Command(socket)
      #expect(await hidden.rest() == event)
      #expect(await hidden.end() == (0, ""))
    }
  }

  @Test func stateIsPrintedAndNoFollowEndsAfterIt() async throws {
    try await ScriptedServer.run(script: { peer, event in
      guard case .request(let id, _, _, _, _) = event else { return }
      peer.send("1", on: id, number: 7, kind: 0)
      peer.send("2", on: id, number: 9, kind: 0)
      peer.send("", on: id, number: 20, kind: 1)
    }) { server in
      let command = try Command(["--socket", server.path, "sub", "s", "--from", "state", "--no-follow"])
      let options = #"{"from":"state","gaps":true,"marker":true}"#
      #expect(await server.next() == .request(StreamID(1), .stream, 256, "s", options))
      #expect(await command.rest() == "1\n2\n")
      #expect(await command.end() == (0, ""))
    }
  }

  @Test func aMarkerIsNoEventForTheTimeoutAndTheReportOfTheState() async throws {
    let isGone = Locked(false)
    @Sendable func sendMarkers(_ peer: Peer, _ id: StreamID) {
      guard !isGone.withLock({ $0 }) else { return }
      peer.send("", on: id, number: 7, kind: 1)
      peer.flush()
      _ = peer.loop.schedule(after: .milliseconds(500)) { sendMarkers(peer, id) }
    }
    try await ScriptedServer.run(script: { peer, event in
      switch event {
      case .request(let id, _, _, "$streams", _):
        peer.send(#"[{"name":"s","state":"failing"}]"#, on: id, isComplete: true)
      case .request(let id, _, _, _, _): sendMarkers(peer, id)
      case .gone: isGone.withLock { $0 = true }
      default: break
      }
    }) { server in
      let command = try Command(["--socket", server.path, "sub", "s", "--marker", "--timeout", "6s"])
      let errors = """
        streamctl: caught up with event 7
        streamctl: "s" is failing; waiting for an event
        streamctl: no event of "s" for 6.0 seconds

        """
      #expect(await command.end() == (69, errors))
    }
  }
}
