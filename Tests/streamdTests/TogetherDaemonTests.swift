import Glibc
import StreamClient
import TestSupport
import Testing

/// The built binary with an upstream for all streams of a template.
@Suite(.timeLimit(.minutes(10))) struct TogetherDaemonTests {
  private let upstream: Upstream
  private let key = uniqueKey()

  init() throws { upstream = try Upstream.shared.get() }

  private func text(_ event: StreamEvent?) -> String { String(decoding: event?.data ?? [], as: UTF8.self) }

  private func quotes(_ more: String = "", query: String = "", every: String = "1s") -> String {
    """
    [streams."price/{symbol}".http]
    url = "\(upstream.url("/quotes/\(key)"))?x=1\(query){&symbols}"
    every = "\(every)"
    together = { parameter = "symbol", as = "symbols", most = 100, each = ".quotes[]", route = ".symbol" }
    [streams."price/{symbol}"]
    \(more)
    """
  }

  private func exchange(_ more: String = "") -> String {
    """
    [streams."trades/{symbol}".websocket]
    url = "ws\(upstream.url("/exchange/\(key)").dropFirst(4))"
    together = { parameter = "symbol", most = 200, route = ".data.s", refused = ".error.symbol" }
    subscribe = '{"op":"subscribe","args":["trade.{symbol*}"]}'
    unsubscribe = '{"op":"unsubscribe","args":["trade.{symbol*}"]}'
    pace = "10/s"
    [streams."trades/{symbol}"]
    \(more)
    """
  }

  private func row(_ name: String, on connection: StreamConnection) async throws -> String {
    for try await event in connection.stream("$streams").values {
      let rows = text(event).split(separator: "{").filter { $0.contains("\"name\":\"\(name)\"") }
      return String(rows.first ?? "")
    }
    return ""
  }

  private func first(of name: String, on connection: StreamConnection) -> Task<StreamEvent?, any Error> {
    Task {
      for try await event in connection.stream(name).values { return event }
      return nil
    }
  }

  // MARK: Polls

  @Test func aHundredNamesAreOneRequestInAPeriod() async throws {
    let daemon = try await DaemonProcess(quotes(query: "&extra=1"))
    let connections = try Connections(to: daemon.socket)
    let names = (0..<100).map { "S\(100 + $0)" }
    let events = try await connections.events(3, of: names.map { "price/\($0)" })
    for name in names {
      #expect(events["price/\(name)"]?.allSatisfy { $0.contains("{\"symbol\": \"\(name)\", \"n\": ") } == true)
    }
    let asked = try upstream.unioned(key).requests
    #expect(asked.allSatisfy { $0.count <= 100 })
    // The first requests may be without the names that came later, and the last ones without those that had all they wanted.
    #expect(asked.contains(names) && asked.count <= 6, "\(asked.map(\.count))")
    let counted = try await eventually {
      for try await event in connections.all[0].stream("$templates").values {
        let templates = text(event)
        return templates.contains("\"unrouted\":") && !templates.contains("\"unrouted\":0")
      }
      return false
    }
    #expect(counted)
    connections.close()
    #expect(await daemon.stop() == 0)
  }

  @Test func aRefusedNameAndOneWithoutAPartFailAlone() async throws {
    let daemon = try await DaemonProcess(
      quotes("retry = { first = \"50ms\", max = \"100ms\" }\nkeep = \"no\"", every: "50ms"))
    let connection = try StreamConnection(socket: daemon.socket)
    var subscriptions = ["good", "other"].map { connection.stream("price/\($0)").values.makeAsyncIterator() }
    let (refused, silent) = (first(of: "price/bad", on: connection), first(of: "price/none", on: connection))
    for index in [0, 1] { #expect(text(try await subscriptions[index].next()).contains("symbol")) }
    #expect(
      try await eventually {
        try await row("price/bad", on: connection).contains("the upstream refuses the value: HTTP 400")
      })
    #expect(try await eventually { try await row("price/none", on: connection).contains("no part for none") })
    let good = try await row("price/good", on: connection)
    #expect(!good.contains("failing"), "\(good)")
    refused.cancel()
    silent.cancel()
    connection.close()
    #expect(await daemon.stop() == 0)
    #expect(!daemon.log.contains("price/none: source failing"))
  }

  @Test func nothingIsAskedForWithoutDemand() async throws {
    let daemon = try await DaemonProcess(quotes("linger = \"0s\"", every: "20ms"))
    let connection = try StreamConnection(socket: daemon.socket)
    var events = connection.stream("price/A").values.makeAsyncIterator()
    #expect(text(try await events.next()).contains("\"A\""))
    #expect(text(try await events.next()).contains("\"A\""))
    connection.close()
    // Once the stream has no subscriber, requests end.
    #expect(
      try await eventually {
        let count = try upstream.unioned(key).requests.count
        try await Task.sleep(for: .milliseconds(300))
        return try upstream.unioned(key).requests.count == count
      })
    #expect(await daemon.stop() == 0)
  }

  @Test func clientsThatComeAndGoCauseNoMoreRequests() async throws {
    let daemon = try await DaemonProcess(quotes("linger = \"0s\"", every: "1h"))
    let connections = try Connections(to: daemon.socket)
    _ = try await connections.events(1, of: ["price/A"])
    for round in 0..<50 {
      let tasks = connections.subscribe(to: (0..<4).map { "price/S\((round + $0) % 10)" })
      _ = try await row("price/A", on: connections.all[0])
      tasks.forEach { $0.cancel() }
    }
    #expect(try upstream.unioned(key).requests.count == 1)
    connections.close()
    #expect(await daemon.stop() == 0)
  }

  @Test func aProgramMayFindTheValues() async throws {
    let daemon = try await DaemonProcess(
      quotes(every: "50ms").replacing("\".symbol\" }", with: "\".symbol | ascii_upcase\" }"))
    let connection = try StreamConnection(socket: daemon.socket)
    var events = connection.stream("price/A").values.makeAsyncIterator()
    #expect(text(try await events.next()).contains(#""symbol":"A""#))
    connection.close()
    #expect(await daemon.stop() == 0)
  }

  @Test func ifAllAreRefusedRequestsGetFewer() async throws {
    let daemon = try await DaemonProcess(
      quotes("retry = { first = \"100ms\", max = \"10s\" }", query: "&refuse=1", every: "20ms"))
    let connections = try Connections(to: daemon.socket)
    let subscribers = connections.subscribe(to: (0..<8).map { "price/S\($0)" })
    let isShown = try await eventually {
      try await row("price/S7", on: connections.all[0]).contains("the upstream refuses the value: HTTP 400")
    }
    #expect(isShown)
    // The log has an entry for each refused value, and one for the upstream, which may be in one minute more.
    #expect(daemon.log.split(separator: "\n").filter { $0.contains("source failing") }.count <= 2 * 9)
    subscribers.forEach { $0.cancel() }
    connections.close()
    #expect(await daemon.stop() == 0)
  }

  @Test func aProgramThatFailsIsInTheJournalAndStopsNothing() async throws {
    let daemon = try await DaemonProcess(
      quotes(every: "50ms").replacing(
        "\".symbol\" }", with: "'if .symbol == \"A\" then error(\"no\") else .symbol end' }"))
    let connections = try Connections(to: daemon.socket)
    let subscribers = connections.subscribe(to: ["price/A"])
    let events = try await connections.events(3, of: ["price/b.C_d-1"])
    #expect(events["price/b.C_d-1"]?.allSatisfy { $0.contains("b.C_d-1") } == true)
    #expect(try await daemon.logs("route or each fails: key: no"))
    #expect(try await eventually { try await row("price/A", on: connections.all[0]).contains("no part for A") })
    subscribers.forEach { $0.cancel() }
    connections.close()
    #expect(await daemon.stop() == 0)
  }

  @Test func anAnswerWithManyPartsIsTakenApart() async throws {
    let daemon = try await DaemonProcess(quotes(query: "&many=100000", every: "100ms"))
    let connections = try Connections(to: daemon.socket)
    let events = try await connections.events(3, of: ["price/A", "price/x99999"])
    #expect(events.values.allSatisfy { $0.count == 3 })
    connections.close()
    #expect(await daemon.stop() == 0)
  }

  // MARK: Streaming responses

  @Test func anotherUnionIsAnotherRequestAndNoEventIsMissingOrComesTwice() async throws {
    let daemon = try await DaemonProcess(
      """
      [streams."flow/{symbol}".http]
      url = "\(upstream.url("/flow/\(key)")){?symbols}"
      stream = "sse"
      pace = "5/s"
      together = { as = "symbols", each = ".quotes[]", route = ".s" }
      [streams."flow/{symbol}"]
      linger = "10ms"
      """)
    let connections = try Connections(to: daemon.socket)
    let first = Task { try await connections.events(150, of: ["flow/A"])["flow/A"] ?? [] }
    for number in 0..<6 {
      _ = try await connections.events(5, of: ["flow/S\(number)"])
    }
    let numbers = try await first.value.map { Int($0.split(separator: ":").last?.filter(\.isNumber) ?? "") ?? 0 }
    #expect(numbers == Array((numbers.first ?? 0)..<(numbers.first ?? 0) + 150))
    let asked = try upstream.unioned(key)
    #expect(asked.requests.contains { $0.contains("A") && $0.contains("S5") })
    #expect(try await eventually { try upstream.unioned(key).open <= 1 })
    connections.close()
    #expect(await daemon.stop() == 0)
  }

  // MARK: WebSockets

  @Test func aThousandNamesAreFiveConnectionsWithOneSubscriptionEach() async throws {
    let daemon = try await DaemonProcess(exchange())
    let connections = try Connections(to: daemon.socket)
    let names = (0..<1000).map { "S\($0)" }
    let subscribers = connections.subscribe(to: names.map { "trades/\($0)" })
    #expect(try await eventually { try upstream.unioned(key).values == names.sorted() })
    let told = try upstream.unioned(key)
    #expect(told.connections == 5 && told.broken == 0)
    #expect(told.subscribed.values.allSatisfy { $0 == 1 } && told.unsubscribed.isEmpty)
    // After the ends of all connections each value is subscribed to once more.
    _ = try upstream.unioned(key, cuts: true)
    #expect(try await eventually { try upstream.unioned(key).subscribed.values.allSatisfy { $0 == 2 } })
    #expect(try await eventually { try upstream.unioned(key).values == names.sorted() })
    subscribers.forEach { $0.cancel() }
    connections.close()
    #expect(await daemon.stop() == 0)
    #expect(try upstream.unioned(key).broken == 0)
  }

  @Test func whatIsNotWantedAnyMoreIsUnsubscribedAfterItsLinger() async throws {
    let daemon = try await DaemonProcess(exchange("linger = \"10ms\""))
    let connection = try StreamConnection(socket: daemon.socket)
    var staying = connection.stream("trades/A").values.makeAsyncIterator()
    _ = try await staying.next()
    let other = try StreamConnection(socket: daemon.socket)
    var events = other.stream("trades/B").values.makeAsyncIterator()
    _ = try await events.next()
    other.close()
    #expect(try await eventually { try upstream.unioned(key).values == ["A"] })
    let told = try upstream.unioned(key)
    #expect(told.subscribed == ["A": 1, "B": 1] && told.unsubscribed == ["B": 1])
    connection.close()
    #expect(await daemon.stop() == 0)
  }

  @Test func aRefusedValueFailsAloneAndALostSubscriptionIsFound() async throws {
    let daemon = try await DaemonProcess(
      exchange("expect_every = \"300ms\"\nretry = { first = \"10s\", max = \"10s\" }\nkeep = \"no\""))
    let connection = try StreamConnection(socket: daemon.socket)
    var good = connection.stream("trades/A").values.makeAsyncIterator()
    _ = try await good.next()
    let refused = first(of: "trades/bad1", on: connection)
    #expect(try await eventually { try await row("trades/bad1", on: connection).contains("refuses the value") })
    var lost = connection.stream("trades/mute1").values.makeAsyncIterator()
    #expect(text(try await lost.next()).contains("mute1"))
    // On a busy machine A may have been silent for as long as well.
    let told = try upstream.unioned(key)
    #expect(told.subscribed["mute1"] ?? 0 >= 2 && told.subscribed["bad1"] == 1)
    #expect(told.broken == 0)
    refused.cancel()
    connection.close()
    #expect(await daemon.stop() == 0)
  }

  @Test func aRestartSubscribesToTheUnionAgain() async throws {
    let daemon = try RestartedDaemon()
    try daemon.makeListener()
    let configuration = exchange("keep = \"no\"\nlinger = \"10ms\"")
    try await daemon.start(configuration)
    let connection = try StreamConnection(socket: daemon.folder.path("s"))
    let subscribers = ["A", "B"].map { name in
      Task { for try await _ in connection.stream("trades/\(name)").values {} }
    }
    #expect(try await eventually { try upstream.unioned(key).values == ["A", "B"] })
    daemon.signal(SIGTERM)
    #expect(try await daemon.end() == 0)
    try await daemon.start(configuration)
    #expect(try await eventually { try upstream.unioned(key).values == ["A", "B"] && upstream.unioned(key).open == 1 })
    let told = try upstream.unioned(key)
    #expect(told.subscribed == ["A": 2, "B": 2] && told.unsubscribed.isEmpty && told.connections == 2)
    subscribers.forEach { $0.cancel() }
    connection.close()
    #expect(await daemon.stop() == 0)
  }

  @Test func aLateReaderGetsTheStateFromTheLog() async throws {
    let daemon = try await DaemonProcess(quotes("key = \".symbol\"\nlinger = \"10m\"", every: "1h"))
    let connections = try Connections(to: daemon.socket)
    let first = try await connections.events(1, of: ["price/A"])
    var options = SubscribeOptions()
    options.from = .state
    for try await event in connections.all[0].stream("price/A", options: options).values {
      #expect(text(event) == first["price/A"]?.first)
      break
    }
    #expect(try upstream.unioned(key).requests.count == 1)
    connections.close()
    #expect(await daemon.stop() == 0)
  }

  @Test func whateverClientsDoTheUpstreamHasWhatIsWantedWithinThePace() async throws {
    let daemon = try await DaemonProcess(exchange("linger = \"10ms\""))
    let connections = try Connections(to: daemon.socket)
    let staying = (0..<20).map { "S\($0 * 5)" }
    let subscribers = connections.subscribe(to: staying.map { "trades/\($0)" })
    try await withThrowingTaskGroup(of: Void.self) { group in
      for task in 0..<100 {
        group.addTask {
          var random = SystemRandomNumberGenerator()
          for round in 0..<20 {
            let names = (0..<3).map { _ in "trades/S\(Int.random(in: 0..<100, using: &random))" }
            let tasks = connections.subscribe(to: names)
            if (task + round).isMultiple(of: 3) { await Task.yield() } else { _ = try upstream.unioned(key).open }
            tasks.forEach { $0.cancel() }
            if task == 50, round == 10 { _ = try upstream.unioned(key, cuts: true) }
          }
        }
      }
      try await group.waitForAll()
    }
    #expect(try await eventually { try upstream.unioned(key).values == staying.sorted() })
    let told = try upstream.unioned(key)
    #expect(told.broken == 0 && told.open == 1, "\(told.broken) \(told.open)")
    subscribers.forEach { $0.cancel() }
    connections.close()
    #expect(await daemon.stop() == 0)
  }

  @Test func aReloadMovesOnlyTheValuesThatAreTooMany() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    let configuration = exchange("linger = \"100ms\"")
    try await daemon.start(configuration)
    let connections = try Connections(to: daemon.folder.path("s"))
    let names = ["A", "B", "C", "D"]
    let subscribers = connections.subscribe(to: names.map { "trades/\($0)" })
    #expect(try await eventually { try upstream.unioned(key).values == names })
    func reload(_ former: String, _ new: String) async throws {
      try daemon.write(configuration.replacing(former, with: new))
      let count = daemon.log.split(separator: "\n").filter { $0.contains("configuration reloaded") }.count
      daemon.signal(SIGHUP)
      let isDone = try await eventually {
        daemon.log.split(separator: "\n").filter { $0.contains("configuration reloaded") }.count > count
      }
      #expect(isDone)
    }
    try await reload("route = \".data.s\"", "route = \".data | .s\"")
    _ = try await connections.events(3, of: ["trades/A"])
    #expect(try upstream.unioned(key).subscribed == ["A": 1, "B": 1, "C": 1, "D": 1])
    try await reload("most = 200", "most = 3")
    #expect(
      try await eventually { try upstream.unioned(key).connections == 2 && upstream.unioned(key).values == names })
    let told = try upstream.unioned(key)
    #expect(told.subscribed.values.sorted() == [1, 1, 1, 2] && told.unsubscribed.values.sorted() == [1])
    for name in names { _ = try await connections.events(3, of: ["trades/\(name)"]) }
    subscribers.forEach { $0.cancel() }
    connections.close()
    daemon.signal(SIGTERM)
    #expect(try await daemon.end() == 0)
  }
}

/// Connections for more streams than one may have.
private struct Connections {
  let all: [StreamConnection]

  init(to socket: String) throws { all = try (0..<8).map { _ in try StreamConnection(socket: socket) } }

  func close() { for connection in all { connection.close() } }

  /// So many events of each stream, all at the same time.
  func events(_ count: Int, of names: [String]) async throws -> [String: [String]] {
    try await withThrowingTaskGroup(of: (String, [String]).self) { group in
      for (index, name) in names.enumerated() {
        group.addTask {
          var texts: [String] = []
          for try await event in all[index % all.count].stream(name).values {
            texts.append(String(decoding: event.data, as: UTF8.self))
            if texts.count == count { break }
          }
          return (name, texts)
        }
      }
      var found: [String: [String]] = [:]
      for try await (name, texts) in group { found[name] = texts }
      return found
    }
  }

  /// Reads all streams until they are cancelled.
  func subscribe(to names: [String]) -> [Task<Void, any Error>] {
    names.enumerated().map { index, name in
      Task { for try await _ in all[index % all.count].stream(name).values {} }
    }
  }
}
