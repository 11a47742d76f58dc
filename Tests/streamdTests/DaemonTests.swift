import FoundationEssentials
import Glibc
import RSocket
import Reactive
import StreamClient
import StreamProtocol
import StreamRuntime
import TestSupport
import Testing

@testable import streamd

/// The built binary, over real sockets, with a real HTTP server upstream.
@Suite struct DaemonTests {
  @Test func sixtyClientsOfAPollCauseAsManyFetchesAsOne() async throws {
    let upstream = try Upstream.shared.get()
    let key = uniqueKey()
    let daemon = try await DaemonProcess(
      #"""
      [streams.feed]
      http = { url = "\#(upstream.url("/count/\(key)"))", every = "200ms" }
      replay = 1
      """#)
    let connections = try (0..<60).map { _ in try StreamConnection(socket: daemon.socket) }
    let received = try await withThrowingTaskGroup(of: [Int].self) { group in
      for connection in connections {
        group.addTask {
          var numbers: [Int] = []
          for try await event in connection.stream("feed").values {
            numbers.append(Int(String(decoding: event.data.dropLast(), as: UTF8.self)) ?? -1)
            if numbers.count == 6 { break }
          }
          return numbers
        }
      }
      return try await group.reduce(into: [[Int]]()) { $0.append($1) }
    }
    connections.forEach { $0.close() }
    // The upstream returns the number of fetches: a step in it would show another client's fetch.
    for numbers in received { #expect(numbers == Array(numbers[0]..<numbers[0] + 6)) }
    #expect(received.count == 60)
    #expect(await daemon.stop() == 0)
  }

  @Test func aDaemonThatStopsLeavesTheSocketOfTheNextOne() async throws {
    let daemon = try await DaemonProcess(
      """
      [streams.program]
      exec = { command = ["sh", "-c", "trap '' TERM; echo 1; while :; do sleep 1; done"] }
      start = "always"
      """)
    let connection = try StreamConnection(socket: daemon.socket)
    for try await _ in connection.stream("program").values { break }
    connection.close()
    async let status = daemon.stop()
    // It waits for its program.
    var next: CInt = -1
    #expect(
      try await eventually {
        next = (try? UnixSocket.listen(at: daemon.socket, mode: 0o600).release()) ?? -1
        return next >= 0
      })
    #expect(!daemon.log.contains("has stopped"))
    #expect(await status == 0)
    #expect(UnixSocket.File(at: daemon.socket)?.path == daemon.socket)
    close(next)
  }

  @Test func noFetchIsMadeWithoutCreditAndADueOneWhenCreditArrives() async throws {
    let upstream = try Upstream.shared.get()
    let key = uniqueKey()
    let daemon = try await DaemonProcess(
      #"""
      [streams.feed]
      http = { url = "\#(upstream.url("/count/\(key)"))", every = "20ms" }
      """#)
    let connection = try StreamConnection(socket: daemon.socket)
    let probe = CreditProbe()
    connection.stream("feed").subscribe(probe)
    probe.request(1)
    let first = await probe.next()
    #expect(first.data == Array("1\n".utf8))
    // Many intervals later nothing has been fetched: another stream's ticks tell that time has passed.
    let clock = try StreamConnection(socket: daemon.socket)
    var ticks = clock.stream("ticks").values.makeAsyncIterator()
    for _ in 0..<20 { _ = try await ticks.next() }
    #expect(try upstream.count(key) == 1)
    probe.request(2)
    let second = await probe.next()
    let third = await probe.next()
    #expect(second.data == Array("2\n".utf8))
    #expect(third.data == Array("3\n".utf8))
    connection.close()
    clock.close()
    #expect(await daemon.stop() == 0)
  }

  @Test func anUnchangedFeedIsNotFetchedAfterTheLastCreditIsTakenBack() async throws {
    let upstream = try Upstream.shared.get()
    let key = uniqueKey()
    let daemon = try await DaemonProcess(
      #"""
      [streams.feed]
      http = { url = "\#(upstream.url("/once/\(key)"))", every = "10ms" }
      """#)
    let poor = try StreamConnection(socket: daemon.socket)
    let rich = try StreamConnection(socket: daemon.socket)
    let (spent, left) = (CreditProbe(), CreditProbe())
    poor.stream("feed").subscribe(spent)
    spent.request(1)
    #expect(await spent.next().data == Array("1\n".utf8))
    rich.stream("feed").subscribe(left)
    left.request(100)
    #expect(await left.next().data == Array("1\n".utf8))
    while try upstream.count(key) < 5 { try await Task.sleep(for: .milliseconds(1)) }
    rich.close()
    // Whatever was on its way when the client left has come long before these ticks have.
    let clock = try StreamConnection(socket: daemon.socket)
    var ticks = clock.stream("ticks").values.makeAsyncIterator()
    for _ in 0..<10 { _ = try await ticks.next() }
    let before = try upstream.count(key)
    for _ in 0..<20 { _ = try await ticks.next() }
    #expect(try upstream.count(key) == before)
    spent.request(1)
    while try upstream.count(key) == before { try await Task.sleep(for: .milliseconds(1)) }
    poor.close()
    clock.close()
    #expect(await daemon.stop() == 0)
  }

  @Test func aStreamingResponseIsSharedAndResumed() async throws {
    let upstream = try Upstream.shared.get()
    let key = uniqueKey()
    let path = "/stream/\(key)?body=\(Upstream.escaped("id: %n\ndata: one %n\n\ndata: two %n\n\n"))"
    let daemon = try await DaemonProcess(
      #"""
      [streams.feed]
      http = { url = "\#(upstream.url(path))", stream = "sse" }
      retry = { first = "20ms", max = "40ms" }
      """#)
    let connection = try StreamConnection(socket: daemon.socket)
    let taken = try await withThrowingTaskGroup(of: [String].self) { group in
      for _ in 0..<10 {
        group.addTask {
          var texts: [String] = []
          for try await event in connection.stream("feed", options: .init(from: .new)).values {
            texts.append(String(decoding: event.data, as: UTF8.self))
            if texts.count == 4 { break }
          }
          return texts
        }
      }
      return try await group.reduce(into: [[String]]()) { $0.append($1) }
    }
    for texts in taken { #expect(texts[1].split(separator: " ").count == 2 && Set(texts).count == 4) }
    #expect(taken.count == 10)
    connection.close()
    #expect(await daemon.stop() == 0)
  }

  @Test func jqSplitsAPageAndDistinctDropsRepeatedEvents() async throws {
    let upstream = try Upstream.shared.get()
    let body = #"{"quotes":[{"id":1,"n":%n},{"id":1},{"id":2},{"id":3,"env":"$ENV"}]}"# + "\n"
    let daemon = try await DaemonProcess(
      #"""
      [streams.feed]
      http = { url = "\#(upstream.url("/stream/\(uniqueKey())?type=text/plain&body=\(Upstream.escaped(body))"))", stream = "lines" }
      retry = { first = "1ms", max = "2ms" }
      jq = 'if .quotes[0].n == 2 then error("the second") else .quotes[] | {id, n, home: $ENV.HOME} end'
      distinct = ".id"
      """#)
    let connection = try StreamConnection(socket: daemon.socket)
    var events: [String] = []
    for try await event in connection.stream("feed").values {
      events.append(String(decoding: event.data, as: UTF8.self))
      if events.count == 6 { break }
    }
    #expect(
      events == [
        #"{"id":1,"n":1,"home":null}"#, #"{"id":2,"n":null,"home":null}"#, #"{"id":3,"n":null,"home":null}"#,
        #"{"id":1,"n":3,"home":null}"#, #"{"id":2,"n":null,"home":null}"#, #"{"id":3,"n":null,"home":null}"#,
      ])
    var statistics = connection.stream("$stats").values.makeAsyncIterator()
    let counters = try #require(try await statistics.next())
    #expect(String(decoding: counters.data, as: UTF8.self).contains(#""errors":1,"events_in""#))
    connection.close()
    #expect(await daemon.stop() == 0)
    #expect(try await daemon.logs("feed: event failed: the second\n"))
  }

  @Test func aFastStreamIsThrottled() async throws {
    let daemon = try await DaemonProcess(
      """
      [streams.slow]
      timer = { every = "10ms" }
      throttle = "1h"
      """)
    let connection = try StreamConnection(socket: daemon.socket)
    var slow = connection.stream("slow").values.makeAsyncIterator()
    let first = try #require(try await slow.next())
    var ticks = connection.stream("ticks").values.makeAsyncIterator()
    for _ in 0..<20 { _ = try await ticks.next() }
    var newest = connection.stream("slow", options: .init(from: .latest)).values.makeAsyncIterator()
    #expect(try await newest.next()?.id == first.id)
    connection.close()
    #expect(await daemon.stop() == 0)
  }

  @Test func aFailingSourceIsAStateAndDoesNotEndTheStream() async throws {
    let upstream = try Upstream.shared.get()
    let key = uniqueKey()
    let daemon = try await DaemonProcess(
      #"""
      [streams.feed]
      description = "fails twice"
      http = { url = "\#(upstream.url("/status/\(key)?code=503&times=2"))", every = "20ms" }
      retry = { first = "20ms", max = "40ms" }
      """#)
    let connection = try StreamConnection(socket: daemon.socket)
    var events = connection.stream("feed").values.makeAsyncIterator()
    let event = try await events.next()
    #expect(event?.data.isEmpty == false)
    connection.close()
    #expect(await daemon.stop() == 0)
    // One entry at the beginning, and one at the end.
    #expect(daemon.log.components(separatedBy: "feed: source failing: HTTP 503").count == 2, "\(daemon.log)")
    #expect(try await daemon.logs("feed: source recovered after 2 failures\n"))
  }

  @Test func aFailingPipelineIsInTheCatalogueUntilAnEventPasses() async throws {
    let daemon = try await DaemonProcess(
      #"""
      [streams.parsed]
      publish = true
      jq = ".price"
      """#)
    let connection = try StreamConnection(socket: daemon.socket)
    var events = connection.stream("parsed").values.makeAsyncIterator()
    func row(where condition: (String) -> Bool) async throws -> String {
      for try await event in connection.stream("$streams").values {
        let rows = String(decoding: event.data, as: UTF8.self).split(separator: "{")
        if let row = rows.map(String.init).first(where: { $0.contains(#""name":"parsed""#) }), condition(row) {
          return row
        }
      }
      return ""
    }
    func publish(_ value: String) async throws {
      let program = try ChildProcess(
        ChildProcess.built("streamctl"), ["--socket", daemon.socket, "pub", "parsed", value])
      #expect(await program.end() == 0)
    }
    for value in ["[1]", "[2]"] { try await publish(value) }
    let failing = try await row { $0.contains(#""errors":2"#) }
    #expect(failing.contains(#""state":"failing""#) && failing.contains("the last event failed: Cannot index array"))
    try await publish(#"{"price":3}"#)
    #expect(try await events.next().map { String(decoding: $0.data, as: UTF8.self) } == "3")
    let running = try await row { $0.contains(#""state":"running""#) }
    #expect(running.contains(#""errors":2"#) && !running.contains("message"))
    connection.close()
    #expect(await daemon.stop() == 0)
  }

  @Test func clientsPublishAsConfigured() async throws {
    let daemon = try await DaemonProcess(
      #"""
      [streams.log]
      type = "text/plain"
      publish = true
      replay = 10
      [streams.theirs]
      publish = {}
      write = ["uid:4000000"]
      [streams.work]
      publish = true
      overflow = "block"
      buffer = { events = 16 }
      """#)
    let program = try ChildProcess.built("streamctl")
    let lines = try ChildProcess(program, ["--socket", daemon.socket, "pub", "log"], holdsInput: true)
    await lines.write(Array("one\ntwo\n\nfour".utf8))
    lines.endInput()
    #expect(await lines.end() == 0)
    let connection = try StreamConnection(socket: daemon.socket)
    var texts: [String] = []
    for try await event in connection.stream("log").values {
      texts.append(String(decoding: event.data, as: UTF8.self))
      if texts.count == 3 { break }
    }
    #expect(texts == ["one", "two", "four"])
    let refused = try ChildProcess(program, ["--socket", daemon.socket, "pub", "theirs", "x"])
    #expect(
      await refused.text(of: refused.errors)
        == "streamctl: uid \(getuid()) may not write \"theirs\"; to admit it, add \"uid:\(getuid())\" to its write\n")
    #expect(await refused.end() == 77)
    // Lossless: the subscriber takes ten and rests; all the same none of the 500 is lost.
    let probe = CreditProbe()
    connection.stream("work").subscribe(probe)
    probe.request(10)
    _ = try await connection.value(of: "$streams").value  // answered after what was asked before
    let work = try ChildProcess(program, ["--socket", daemon.socket, "pub", "work"], holdsInput: true)
    await work.write(Array((0..<500).map { "\($0)\n" }.joined().utf8))
    work.endInput()
    for number in 0..<10 { #expect(await probe.next().data == Array("\(number)".utf8)) }
    probe.request(1000)
    for number in 10..<500 { #expect(await probe.next().data == Array("\(number)".utf8)) }
    #expect(await work.end() == 0)
    connection.close()
    #expect(await daemon.stop() == 0)
    #expect(try await daemon.logs("(uid \(getuid())): theirs: refused: uid \(getuid()) may not write"))
  }

  @Test func onTermSubscribersGetCanceledAndTheDaemonExitsWithZero() async throws {
    let daemon = try await DaemonProcess("")
    let connection = try StreamConnection(socket: daemon.socket)
    var events = connection.stream("ticks").values.makeAsyncIterator()
    _ = try await events.next()
    #expect(await daemon.stop() == 0)
    await #expect(throws: StreamError.canceled("streamd is stopping")) {
      while try await events.next() != nil {}
    }
    #expect(access(daemon.socket, F_OK) != 0)
  }

  @Test func checkPrintsEveryErrorAndExitsWith78() async throws {
    let folder = try TemporaryFolder([
      "streamd.toml": """
      [server]
      sockett = "x"
      [streams.a]
      timer = { every = "soon" }
      """
    ])
    let (status, _, output) = try await run(["--check", "--config", folder.path("streamd.toml")])
    #expect(status == 78)
    #expect(output.split(separator: "\n").count == 2)
    #expect(output.contains("streamd.toml:2:"))
    #expect(output.contains("streamd.toml:4:"))
    #expect(try await run(["--config", folder.path("streamd.toml")]).status == 78)
    #expect(try await run(["--config"]).status == 64)
    let client = try ChildProcess(ChildProcess.built("streamctl"), ["--version"])
    #expect(await client.text(of: client.output) == "streamctl \(Version.description)\n")
    #expect(try await run(["--version"]).output == "streamd \(Version.description)\n")
  }
}

@Suite struct ArgumentsTests {
  @Test func theCommandLineIsParsed() throws {
    #expect(try DaemonArguments.parse([]) == .serve(configuration: "/etc/streamd/streamd.toml"))
    #expect(try DaemonArguments.parse(["--check", "--config", "a"]) == .check(configuration: "a"))
    #expect(try DaemonArguments.parse(["--check", "a"]) == .check(configuration: "a"))
    #expect(try DaemonArguments.parse(["--check", "-"]) == .check(configuration: "-"))
    for words in [["a"], ["--check", "a", "b"], ["--check", "--config", "a", "b"], ["--check", "-x"]] {
      #expect(throws: DaemonArguments.UsageError.self) { try DaemonArguments.parse(words) }
    }
    #expect(try DaemonArguments.parse(["--config=b"]) == .serve(configuration: "b"))
    #expect(try DaemonArguments.parse(["--check", "--help"]) == .help)
    #expect(throws: DaemonArguments.UsageError(sentence: "--config needs a file")) {
      try DaemonArguments.parse(["--config"])
    }
    #expect(throws: DaemonArguments.UsageError(sentence: "unknown argument \"-x\"; try --help")) {
      try DaemonArguments.parse(["-x"])
    }
  }
}
