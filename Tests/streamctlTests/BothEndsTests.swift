import ClientTestSupport
import Glibc
import Reactive
import StreamClient
import StreamRuntime
import StreamServer
import TestSupport
import Testing

/// Both ends as they are: the client library and the program against the server library.
@Suite(.timeLimit(.minutes(10))) struct BothEndsTests {
  /// Serves a stream `five` of the events 1 to 5, a batch each, and then its end.
  private func withServer<R>(_ body: (String) async throws -> R) async throws -> R {
    let folder = try TemporaryFolder()
    let path = folder.path("s")
    let server = try StreamServer(limits: ServerLimits(workers: 1), version: "1.2.3")
    let source = (1...5).map { [Array("\($0)".utf8)] }.publisher.setFailureType(to: StreamFailure.self)
    try server.add(StreamConfiguration(name: "five", description: "One to five", replay: 5), source: source)
    try server.start()
    server.listen(on: try UnixSocket.listen(at: path, mode: 0o600))
    let publishSource = PublishSource()
    try server.add(
      StreamConfiguration(name: "lines", source: "publish", replay: 65536),
      source: publishSource.setFailureType(to: StreamFailure.self),
      publishSource: publishSource)
    let result = try await body(path)
    await withCheckedContinuation { continuation in server.stop { continuation.resume() } }
    return result
  }

  @Test func demandIsMetExactlyAndCompletionFollowsTheLastEvent() async throws {
    try await withServer { path in
      let connection = try StreamConnection(socket: path)
      let probe = connection.stream("five").probe(3)
      for number in 1...3 { #expect(await probe.next() == .value("\(number)")) }
      // A reply on the same connection follows all that the server had to send until then.
      let newest = try await connection.value(of: "five").value
      probe.signals.record(.value("silence"))
      #expect(await probe.next() == .value("silence"))
      #expect(newest.id != nil && newest.time != nil)
      probe.request(2)
      #expect(await probe.next() == .value("4"))
      #expect(await probe.next() == .value("5"))
      #expect(await probe.next() == .finished)
    }
  }

  @Test func idsRiseByOneAndResumptionFollowsTheGivenId() async throws {
    try await withServer { path in
      let connection = try StreamConnection(socket: path)
      var ids: [UInt64] = []
      for try await event in connection.stream("five").values { ids.append(try #require(event.id)) }
      #expect(ids == Array(ids[0]..<(ids[0] + 5)))
      var later: [UInt64?] = []
      for try await event in connection.stream("five", options: .init(from: .after(id: ids[2]))).values {
        later.append(event.id)
      }
      #expect(later == [ids[3], ids[4]])
      var bare: [StreamEvent] = []
      for try await event in connection.stream("five", options: .init(ids: false)).values { bare.append(event) }
      #expect(bare.map(\.data) == (1...5).map { Array("\($0)".utf8) })
      #expect(bare.allSatisfy { $0.id == nil && $0.time == nil })
    }
  }

  @Test func rejectionsHaveTheirErrorCase() async throws {
    try await withServer { path in
      let connection = try StreamConnection(socket: path)
      #expect(await connection.stream("six").probe(1).next() == .failed(.rejected("no stream named \"six\"")))
      let wrong = connection.stream("five", options: .init(from: .since("\"yesterday\"\n"))).probe(1)
      guard case .failed(.invalid) = await wrong.next() else { return #expect(Bool(false), "not invalid") }
    }
  }

  @Test func theProgramPrintsTheServersEvents() async throws {
    try await withServer { path in
      let events = try Command(["--socket", path, "sub", "five", "--credit", "2"])
      #expect(await events.rest() == "1\n2\n3\n4\n5\n")
      #expect(await events.end() == (0, ""))
      let list = try Command(["--socket", path, "list"])
      let lines = await list.rest().split(separator: "\n").map { $0.split(separator: " ").map(String.init) }
      #expect(lines.map(\.first) == ["NAME", "five", "lines"] && lines[1].suffix(3) == ["One", "to", "five"])
      #expect(await list.end() == (0, ""))
      let status = try Command(["--socket", path, "status"])
      let report = await status.rest()
      #expect(report.hasPrefix("version") && report.contains("events in") && report.contains("uptime"))
      #expect(await status.end() == (0, ""))
      let none = try Command(["--socket", path, "get", "six"])
      #expect(await none.end() == (77, "streamctl: no stream named \"six\"\n"))
    }
  }

  @Test func theProgramPrintsTheEventsThatFitAndEndsOnceCurrent() async throws {
    try await withServer { path in
      let lines = try Command(["--socket", path, "pub", "lines"], holdsInput: true)
      await lines.write(#"{"a":1}"# + "\n[]\nx\n" + #"{"a":7,"b":null}"# + "\n" + #"{"a":2}"# + "\n")
      lines.endInput()
      #expect(await lines.end() == (0, ""))
      let command = ["--socket", path, "sub", "lines", "--no-follow"]
      let some = try Command(command + ["--where", "/a>=2", "--where=!/b"])
      #expect(await some.rest() == #"{"a":2}"# + "\n")
      #expect(await some.end() == (0, ""))
      let all = try Command(command + ["--marker", "--credit", "1"])
      #expect(await all.rest().split(separator: "\n").count == 5)
      #expect(await all.end().errors.hasPrefix("streamctl: caught up with event "))
    }
  }

  @Test func severalStreamsHaveTheirNamesInFront() async throws {
    try await withServer { path in
      let value = try Command(["--socket", path, "pub", "lines", #"{"a":1}"#])
      #expect(await value.end() == (0, ""))
      let five = try Command(["--socket", path, "sub", "five"])
      #expect(await five.rest() == "1\n2\n3\n4\n5\n")
      let some = try Command(["--socket", path, "sub", "five", "lines", "-n", "2", "--no-follow"])
      #expect(
        await some.rest().split(separator: "\n").sorted() == ["five\t4", "five\t5", "lines\t{\"a\":1}"])
      #expect(await some.end() == (0, ""))
      let json = try Command(["--socket", path, "sub", "l*n*", "-n1", "-o", "json", "--no-follow"])
      let line = await json.rest()
      #expect(line.hasPrefix(#"{"stream":"lines","id":"#) && line.hasSuffix(#","data":{"a":1}}"# + "\n"), "\(line)")
      #expect(await json.end() == (0, ""))
      let none = try Command(["--socket", path, "sub", "x*", "--no-follow"])
      #expect(await none.end() == (77, "streamctl: no stream fits \"x*\"\n"))
      let missing = try Command(["--socket", path, "sub", "six", "l*"])
      #expect(await missing.end() == (77, "streamctl: no stream named \"six\"\n"))
    }
  }

  @Test func clientsAreListedAndKickedAndSourcesRefreshed() async throws {
    try await withServer { path in
      let reader = try Command(["--socket", path, "sub", "lines", "--credit", "7", "--no-reconnect"])
      let value = try Command(["--socket", path, "pub", "lines", "x"])
      #expect(await value.end() == (0, ""))
      #expect(await reader.line() == "x")
      let list = try Command(["--socket", path, "clients"])
      let rows = await list.rest().split(separator: "\n").map { $0.split(separator: " ").map(String.init) }
      #expect(
        rows.first == ["CLIENT", "USER", "PID", "COMMAND", "PROTOCOL", "AGE", "SENT", "STREAM", "CREDIT", "LAG"])
      let row = try #require(rows.first { $0.contains("lines") })
      #expect(row[3] == "streamctl" && row[4] == "rsocket" && row.suffix(3) == ["lines", "6", "0"])
      #expect(await list.end() == (0, ""))
      let json = try Command(["--socket", path, "clients", "-o", "json"])
      #expect(await json.rest().hasPrefix(#"{"clients":[{"bytes_out":"#))
      let kick = try Command(["--socket", path, "kick", row[0]])
      #expect(await kick.end() == (0, ""))
      #expect(await reader.end() == (69, "streamctl: an operator has ended this connection\n"))
      let again = try Command(["--socket", path, "kick", row[0]])
      #expect(await again.end() == (77, "streamctl: no client \(row[0])\n"))
      let refresh = try Command(["--socket", path, "refresh", "five"])
      #expect(await refresh.end() == (77, "streamctl: \"five\" is not refreshed: its source has no upstream\n"))
    }
  }

  @Test func aStreamThatComesLaterIsFollowedIfAPatternFits() async throws {
    let folder = try TemporaryFolder()
    let path = folder.path("s")
    let server = try StreamServer(limits: ServerLimits(workers: 1), version: "1.2.3")
    try server.start()
    server.listen(on: try UnixSocket.listen(at: path, mode: 0o600))
    func add(_ name: String) throws {
      let source = [[Array(name.utf8)]].publisher.setFailureType(to: StreamFailure.self)
      try server.add(StreamConfiguration(name: name, replay: 5), source: source)
    }
    for name in ["other", "s/a"] { try add(name) }
    let command = try Command(["--socket", path, "sub", "s/*", "--count", "2"])
    #expect(await command.line() == "s/a\ts/a")
    try add("s/b/c")
    #expect(await command.line() == "s/b/c\ts/b/c")
    #expect(await command.end() == (0, ""))
    await withCheckedContinuation { continuation in server.stop { continuation.resume() } }
  }

  @Test func publishedValuesArriveInOrderOnAnotherConnection() async throws {
    try await withServer { path in
      let values = (0..<2000).map { Array("value \($0)".utf8) }
      try await StreamConnection(socket: path).publish(values.async, to: "lines")
      #expect(try await events(2000, of: "lines", at: path) == values.map { String(decoding: $0, as: UTF8.self) })
    }
  }

  @Test func theProgramPublishesEachInputLine() async throws {
    try await withServer { path in
      let lines = (0..<5000).map { "line \($0) \(String(repeating: "x", count: $0 % 90))" }
      let command = try Command(["--socket", path, "pub", "lines"], holdsInput: true)
      await command.write("first\n")
      #expect(try await events(1, of: "lines", at: path) == ["first"])  // as soon as it is stored
      await command.write("\n" + lines.joined(separator: "\n"))  // an empty line, and one without a line end
      command.endInput()
      #expect(await command.end() == (0, ""))
      #expect(try await events(5001, of: "lines", at: path) == ["first"] + lines)
      let none = try Command(["--socket", path, "pub", "lines", ""])
      #expect(
        await none.end() == (64, "streamctl: pub requires an event that is not empty; see streamctl --help\n"))
      let one = try Command(["--socket", path, "pub", "lines", "the last"])
      #expect(await one.end() == (0, ""))
      #expect(try await StreamConnection(socket: path).value(of: "lines").value.data == Array("the last".utf8))
    }
  }

  @Test func longLinesArePublishedInFragmentsOrRefused() async throws {
    try await withServer { path in
      let long = String(repeating: "y", count: 1_000_000)
      let command = try Command(["--socket", path, "pub", "lines"], holdsInput: true)
      await command.write(long + "\nshort\n")
      command.endInput()
      #expect(await command.end() == (0, ""))
      #expect(try await events(2, of: "lines", at: path) == [long, "short"])
      let over = try Command(["--socket", path, "pub", "lines"], holdsInput: true)
      await over.write("before\n" + long + long + "\nafter\n")
      let end = await over.end()
      #expect(end.code == 65)
      let sentence = "value 2: its fragments exceed the limit of 1048576 bytes for incomplete requests"
      #expect(end.errors == "streamctl: \(sentence)\n")
      #expect(try await events(3, of: "lines", at: path).last == "before")
    }
  }

  /// A stream `large` of one event of 20 MB, more than a frame can have.
  private func withLargeEvent(_ body: (String, [UInt8]) async throws -> Void) async throws {
    let folder = try TemporaryFolder()
    let path = folder.path("s")
    let server = try StreamServer(limits: ServerLimits(workers: 1))
    let event = [UInt8](repeating: UInt8(ascii: "x"), count: 20_000_000)
    try server.add(
      StreamConfiguration(name: "large", limits: .init(events: 4, bytes: 32 << 20), start: .always),
      source: Just([event]).setFailureType(to: StreamFailure.self))
    try server.add(
      StreamConfiguration(name: "small", start: .always),
      source: [1, 2].map { [Array("\($0)".utf8)] }.publisher.setFailureType(to: StreamFailure.self))
    try server.start()
    server.listen(on: try UnixSocket.listen(at: path, mode: 0o600))
    try await body(path, event)
    await withCheckedContinuation { continuation in server.stop { continuation.resume() } }
  }

  @Test func anEventLargerThanAnyFrameArrives() async throws {
    try await withLargeEvent { path, event in
      #expect(try await StreamConnection(socket: path).value(of: "large").value.data == event)
      let command = try Command(["--socket", path, "get", "large", "--format", "raw"])
      #expect(await command.rest().utf8.count >= 20_000_000)
      #expect(await command.end() == (0, ""))
    }
  }

  @Test func anEventOverTheLimitFailsOnlyItsStreamPermanently() async throws {
    try await withLargeEvent { path, event in
      let connection = try StreamConnection(socket: path, maximumEventBytes: event.count - 1)
      let sentence = "a value has more than \(event.count - 1) bytes, the limit of the receiver"
      let small = connection.stream("small").probe(1)
      #expect(await small.next() == .value("2"))
      let large = connection.stream("large", reconnect: ReconnectPolicy()).probe(1)
      #expect(await large.next() == .failed(.invalid(sentence)))
      small.request(1)
      #expect(await small.next() == .finished)
      for (size, count) in [("1MiB", "1048576 bytes"), ("1B", "1 byte")] {
        let command = try Command(["--socket", path, "sub", "large", "--max-event", size])
        #expect(await command.end() == (65, "streamctl: a value has more than \(count), the limit of the receiver\n"))
      }
    }
  }

  @Test func theProgramPrintsWhyItsEventsAreRejected() async throws {
    try await withServer { path in
      for (name, sentence) in [
        ("five", "\"five\" does not accept values"), ("six", "no stream named \"six\""),
      ] {
        let one = try Command(["--socket", path, "pub", name, "x"])
        #expect(await one.end() == (77, "streamctl: \(sentence)\n"))
        // Its input stays open, and nothing waits for it.
        let many = try Command(["--socket", path, "pub", name], holdsInput: true)
        await many.write("x\n")
        #expect(await many.end() == (77, "streamctl: \(sentence)\n"))
      }
      let nothing = try Command(["--socket", path, "pub", "lines"])
      #expect(await nothing.end() == (0, ""))
    }
  }

  /// The first stored events of a stream.
  private func events(_ count: Int, of name: String, at path: String) async throws -> [String] {
    let connection = try StreamConnection(socket: path)
    var texts: [String] = []
    for try await event in connection.stream(name).values {
      texts.append(String(decoding: event.data, as: UTF8.self))
      if texts.count == count { break }
    }
    return texts
  }
}

extension Array where Element: Sendable {
  /// The elements, without waiting.
  fileprivate var async: AsyncStream<Element> {
    AsyncStream { continuation in
      for element in self { continuation.yield(element) }
      continuation.finish()
    }
  }
}
