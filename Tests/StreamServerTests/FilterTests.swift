import Events
import Glibc
import RSocket
import Reactive
import ReplayLog
import StreamProtocol
import TestSupport
import Testing

@testable import StreamServer

/// The option `where`: only events that fit, and the number of those left out.
@Suite struct FilterTests {
  private static let unlimited: UInt32 = 0x7FFF_FFFF
  private static let even = #"{"where":{"/even":true}}"#

  /// `{"n":7,"even":false}`
  private static func event(_ number: Int) -> [UInt8] {
    Array(#"{"n":\#(number),"even":\#(number.isMultiple(of: 2))}"#.utf8)
  }

  private static func events(_ numbers: some Sequence<Int>) -> EventBatch { EventBatch(numbers.map(event)) }

  /// Ids 1000 and so on.
  private func add(
    _ harness: ServerHarness, events: Int = 1024, stored: EventBatch = [],
    _ change: (inout StreamConfiguration) -> Void = { _ in }
  ) throws -> HandFedSource {
    var configuration = StreamConfiguration(name: "s", replay: 65536, start: .always)
    configuration.type = "application/json"
    configuration.limits = EventLog.Limits(events: events, bytes: 8 << 20)
    change(&configuration)
    let source = HandFedSource()
    let log = try #require(EventLog(name: "s", limits: configuration.limits, firstID: 1000))
    log.append(stored)
    try harness.server.add(configuration, log: log, source: source)
    return source
  }

  /// The next event's id, the number of events left out before it, and what else is in the metadata.
  private func next(_ client: WireClient) throws -> (id: UInt64, leftOut: UInt64, rest: [UInt8]) {
    let metadata = try client.payload().metadata
    try #require(metadata.count >= 24)
    let numbers = [0, 16].map { metadata[$0..<$0 + 8].reduce(UInt64(0)) { $0 << 8 | UInt64($1) } }
    return (numbers[0], numbers[1], Array(metadata[24...]))
  }

  private func expect(_ client: WireClient, _ id: UInt64, leftOut: UInt64, gap: UInt64? = nil) throws {
    let next = try next(client)
    #expect(next.id == id && next.leftOut == leftOut)
    let rest: [UInt8] = if let gap { (0..<8).map { UInt8(truncatingIfNeeded: gap >> (56 - 8 * $0)) } } else { [] }
    #expect(next.rest == rest)
  }

  private func verdicts(_ harness: ServerHarness) -> [FilterVerdicts] { harness.server.streams["s"]?.filters.all ?? [] }

  /// How many events each filter of the stream has examined.
  private func examinationCounts(_ harness: ServerHarness) -> [Int] {
    let stream = harness.server.streams["s"]
    return stream?.log.read { _, _ in stream?.filters.all.map(\.examinationCount) ?? [] } ?? []
  }

  // MARK: What is delivered

  @Test func onlyFittingEventsArriveWithTheNumberLeftOut() async throws {
    try await withServer { harness in
      let source = try add(harness)
      source.send(batch: Self.events([1, 2, 3, 5, 7, 4, 6]))
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: Self.unlimited, options: Self.even)
      try expect(client, 1001, leftOut: 1)
      try expect(client, 1005, leftOut: 3)
      try expect(client, 1006, leftOut: 0)
      for number in [9, 11, 13] { source.send(Self.event(number)) }
      source.send(batch: Self.events([15, 8, 10]))
      try expect(client, 1011, leftOut: 4)
      try expect(client, 1012, leftOut: 0)
    }
  }

  @Test func dataAloneHasNoNumbers() async throws {
    try await withServer { harness in
      let source = try add(harness)
      source.send(batch: Self.events([1, 2]))
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 1, options: #"{"where":{"/even":true},"ids":false}"#)
      let payload = try client.payload()
      #expect(payload.metadata.isEmpty && payload.data == Self.event(2))
    }
  }

  @Test func eventThatIsNoJSONFitsNothing() async throws {
    try await withServer { harness in
      let source = try add(harness)
      source.send(Array("{".utf8), Array("\u{1}".utf8), [], [0xff], Array(#"{"even":true}x"#.utf8), Self.event(2))
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: Self.unlimited, options: #"{"where":{"/nothing":{"exists":false}}}"#)
      try expect(client, 1005, leftOut: 5)
    }
  }

  @Test func creditCountsFittingEventsOnly() async throws {
    try await withServer { harness in
      let source = try add(harness)
      source.send(batch: Self.events(1...10))
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 2, options: Self.even)
      try expect(client, 1001, leftOut: 1)
      try expect(client, 1003, leftOut: 1)
      #expect(try client.isSilent())
      client.send(.requestN(StreamID(1), 1))
      try expect(client, 1005, leftOut: 1)
    }
  }

  @Test func largeEventIsExaminedInPartsAndDelivered() async throws {
    try await withServer { harness in
      let source = try add(harness)
      let padding = String(repeating: "x", count: 1 << 20)
      for number in 1...4 {
        source.send(Array(#"{"padding":"\#(padding)","even":\#(number.isMultiple(of: 2))}"#.utf8))
      }
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: Self.unlimited, options: Self.even)
      try expect(client, 1001, leftOut: 1)
      try expect(client, 1003, leftOut: 1)
    }
  }

  @Test(arguments: [#"{"where":{}}"#, #"{"where":1}"#, #"{"where":{"a":1}}"#, #"{"where":{"/a":{"gt":"x"}}}"#])
  func filterThatIsNoneIsRefused(options: String) async throws {
    try await withServer { harness in
      _ = try add(harness)
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 1, options: options)
      guard case .error(StreamID(1), .invalid, let sentence)? = try client.receive() else {
        Issue.record("no error")
        return
      }
      #expect(sentence.contains("where"))
      #expect(verdicts(harness).isEmpty)
    }
  }

  // MARK: What it costs

  @Test func eventIsExaminedOncePerFilter() async throws {
    try await withServer(ServerLimits(workers: 2)) { harness in
      let source = try add(harness)
      let clients = try (0..<20).map { _ in try WireClient.ready(harness.path) }
      for (index, client) in clients.enumerated() {
        client.subscribe(
          "s", credit: Self.unlimited, options: index.isMultiple(of: 2) ? Self.even : #"{"where":{"/n":{"gt":90}}}"#)
      }
      harness.eventually { harness.server.statistics.subscribers == 20 }
      for number in 1...100 { source.send(Self.event(number)) }
      for (index, client) in clients.enumerated() {
        for number in index.isMultiple(of: 2) ? Array(stride(from: 2, through: 100, by: 2)) : Array(91...100) {
          #expect(try next(client).id == UInt64(999 + number))
        }
      }
      #expect(verdicts(harness).count == 2)
      harness.eventually { examinationCounts(harness).allSatisfy { $0 == 100 } }
    }
  }

  @Test func filtersEndWithTheirSubscriptions() async throws {
    try await withServer { harness in
      _ = try add(harness)
      let client = try WireClient.ready(harness.path)
      for id in [1, 3, 5] as [UInt32] { client.subscribe("s", credit: 1, options: Self.even, id: id) }
      client.subscribe("s", credit: 1, options: #"{"where":{"/n":1}}"#, id: 7)
      harness.eventually { verdicts(harness).count == 2 }
      for id in [1, 3, 7] as [UInt32] { client.send(.cancel(StreamID(id))) }
      harness.eventually { verdicts(harness).count == 1 }
      client.send(.cancel(StreamID(5)))
      harness.eventually { verdicts(harness).isEmpty }
    }
  }

  @Test func userHasAPartOfTheFiltersOfAStream() async throws {
    var limits = ServerLimits(workers: 1)
    limits.requestsPerConnection = 4096
    try await withServer(limits) { harness in
      _ = try add(harness)
      let client = try WireClient.ready(harness.path)
      let limit = StreamFilters.limit * 3 / 4
      for number in 0...limit {
        client.subscribe("s", credit: 1, options: #"{"where":{"/n":\#(number)}}"#, id: UInt32(2 * number + 1))
      }
      let last = StreamID(UInt32(2 * limit + 1))
      guard case .error(last, .invalid, let sentence)? = try client.receive() else {
        Issue.record("no error")
        return
      }
      let limitSentence = "too many filters of \"s\", which has \(StreamFilters.limit) at most"
      #expect(sentence == "uid \(getuid()) has \(limitSentence)")
      client.subscribe("s", credit: 1, options: #"{"where":{"/n":7}}"#, id: 100_001)  // one that there is
      #expect(try client.isSilent())
    }
  }

  /// A filter on `/n`. All of them have the same length.
  private static func filter(_ number: Int) -> String { #"{"where":{"/n":\#(100 + number)}}"# }

  /// The first of these filters that a limit refuses, and with which sentence.
  private func firstRefused(_ client: WireClient, of count: Int) throws -> (number: Int, sentence: String)? {
    for number in 0..<count {
      client.subscribe("s", credit: 1, options: Self.filter(number), id: UInt32(2 * number + 1))
    }
    guard case .error(let id, .rejected, let sentence)? = try client.receive() else { return nil }
    return (Int(id.rawValue) / 2, sentence)
  }

  @Test func userHasABudgetOfFiltersAndKeepsItsConnections() async throws {
    try await withServer(ServerLimits(workers: 1, inputBytesPerUser: 1 << 20)) { harness in
      _ = try add(harness)
      let client = try WireClient(harness.server, user: 1001)
      let refused = try #require(try firstRefused(client, of: 200))
      #expect(refused.sentence == "uid 1001 would have filters of more than 1048576 bytes (max_input_per_user)")
      #expect(refused.number == (1 << 20) / (verdicts(harness).first?.byteCount ?? 1))
      for _ in refused.number + 1..<200 { _ = try client.receive() }
      // The connection continues. A filter that its user has costs nothing more, and one that ends makes space.
      client.subscribe("s", credit: 1, options: Self.filter(0), id: 1001)
      #expect(try client.isSilent())
      client.send(.cancel(StreamID(3)))
      client.subscribe("s", credit: 1, options: Self.filter(500), id: 1003)
      #expect(try client.isSilent())
      client.send(.cancel(StreamID(1)))  // another subscription has it, too
      client.subscribe("s", credit: 1, options: Self.filter(501), id: 1005)
      guard case .error(StreamID(1005), .rejected, _)? = try client.receive() else { throw WireClient.Silence() }
      let other = try WireClient(harness.server, user: 1002)
      other.subscribe("s", credit: 1, options: Self.filter(501))
      #expect(try other.isSilent())
      let web = try HTTPWireClient(harness.server, user: 1001)
      web.request("GET", "/streams/s?where=%7B%22/n%22:1000%7D", ["Accept: application/x-ndjson"])
      let response = try web.response()
      #expect(response.status == 503 && response.text.contains("max_input_per_user"), "\(response)")
    }
  }

  /// A request of some KiB must not make the server compile its filter for each of its streams, or take memory for
  /// verdicts on events that nothing has looked at.
  @Test func filterOfARequestForManyStreamsIsCompiledOnce() async throws {
    try await withServer(ServerLimits(workers: 1)) { harness in
      let names = (0..<64).map { "s\($0)" }
      for name in names { _ = try harness.add(name) }
      let shared = String(repeating: "/a", count: 100)
      let conditions = (0..<14).map { "\"\(shared)/\($0)\":1" }.joined(separator: ",")
      let filter = "{\(conditions)}".replacing("{", with: "%7B").replacing("}", with: "%7D").replacing(
        "\"", with: "%22")
      let client = try HTTPWireClient(harness)
      client.get("/streams/\(names.joined(separator: ","))?as=sse&where=\(filter)")
      harness.eventually { harness.server.statistics.subscribers == 64 }
      let compiled = harness.server.userStreams.flatMap { $0.filters.all.map { ObjectIdentifier($0.compiled) } }
      #expect(compiled.count == 64 && Set(compiled).count == 1)
      let again = try WireClient.ready(harness.path)
      for (index, name) in names.enumerated() {
        again.subscribe(name, credit: 1, options: "{\"where\":{\(conditions)}}", id: UInt32(2 * index + 1))
      }
      harness.eventually { harness.server.statistics.subscribers == 128 }
      #expect(harness.server.userStreams.allSatisfy { $0.filters.all.count == 1 })
    }
  }

  @Test func filterIsInTheAccountOfEachUserThatHasIt() async throws {
    try await withServer(ServerLimits(workers: 2)) { harness in
      _ = try add(harness)
      let accounts = harness.server.accounts
      var clients = try [1001, 1001, 1002].map { try WireClient(harness.server, user: $0) }
      for client in clients { client.subscribe("s", credit: 1, options: Self.even) }
      harness.eventually { harness.server.statistics.subscribers == 3 }
      let byteCount = try #require(verdicts(harness).first).byteCount
      #expect(accounts.filterBytes.load(ordering: .relaxed) == 2 * byteCount)
      clients.removeFirst()
      harness.eventually { harness.server.statistics.subscribers == 2 }
      #expect(accounts.filterBytes.load(ordering: .relaxed) == 2 * byteCount)
      clients.removeFirst()
      harness.eventually { accounts.filterBytes.load(ordering: .relaxed) == byteCount }
      #expect(verdicts(harness).count == 1)
      clients = []
      harness.eventually { accounts.filterBytes.load(ordering: .relaxed) == 0 }
      #expect(verdicts(harness).isEmpty)
    }
  }

  @Test func filtersOfAllUsersHaveABudget() async throws {
    try await withServer(ServerLimits(workers: 1, inputBytes: 1 << 20, inputBytesPerUser: 1 << 19)) { harness in
      _ = try add(harness)
      var counts: [Int] = []
      var clients: [WireClient] = []
      for user in 1001...1003 as ClosedRange<UInt32> {
        clients.append(try WireClient(harness.server, user: user))
        counts.append(try #require(try firstRefused(clients[clients.count - 1], of: 200)).number)
      }
      #expect(counts[0] > counts[1] && counts[1] > counts[2] && counts[2] > 0, "\(counts)")
    }
  }

  @Test func filtersAreInTheAccountInTheNextProcess() async throws {
    try await withTwoServers { first, next in
      for harness in [first, next] { _ = try add(harness) }
      var clients = try (0..<2).map { _ in try WireClient.ready(first.path) }
      for client in clients { client.subscribe("s", credit: 1, options: Self.even) }
      first.eventually { first.server.statistics.subscribers == 2 }
      let held = first.server.accounts.filterBytes.load(ordering: .relaxed)
      try await first.handOver(to: next)
      next.eventually { next.server.statistics.subscribers == 2 }
      #expect(held > 0 && next.server.accounts.filterBytes.load(ordering: .relaxed) == held)
      clients = []
      next.eventually { next.server.accounts.filterBytes.load(ordering: .relaxed) == 0 }
    }
  }

  // MARK: Waiting

  @Test func waitingSubscriptionDoesNotFallBehindWhatItsFilterLeavesOut() async throws {
    try await withServer(ServerLimits(workers: 1)) { harness in
      let source = try add(harness, events: 4)
      let clients = try (0..<3).map { _ in try WireClient.ready(harness.path) }
      for client in clients {
        client.subscribe("s", credit: 3, options: #"{"where":{"/even":true},"gaps":true,"on_lag":"fail"}"#)
      }
      harness.eventually { harness.server.statistics.subscribers == 3 }
      for number in 0..<50 {
        source.send(Self.event(2 * number + 1))
        harness.eventually { examinationCounts(harness).allSatisfy { $0 == number + 1 } }
      }
      source.send(Self.event(2))
      for client in clients { try expect(client, 1050, leftOut: 50) }
    }
  }

  @Test func eventThatIsLostIsAGapAndNotLeftOut() async throws {
    try await withServer { harness in
      let source = try add(harness, events: 4)
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 1, options: #"{"where":{"/even":true},"gaps":true}"#)
      source.send(Self.event(2))
      try expect(client, 1000, leftOut: 0)
      source.send(batch: Self.events([1, 4, 3, 6, 5, 7, 8]))
      client.send(.requestN(StreamID(1), 2))
      try expect(client, 1004, leftOut: 0, gap: 3)
      try expect(client, 1007, leftOut: 2)
    }
  }

  @Test func othersReceiveWhatTheSubscriptionThatLooksCannotTake() async throws {
    try await withServer(ServerLimits(workers: 1)) { harness in
      let source = try add(harness)
      let clients = try (0..<10).map { _ in try WireClient.ready(harness.path) }
      for client in clients { client.subscribe("s", credit: Self.unlimited, options: Self.even) }
      harness.eventually { harness.server.statistics.subscribers == 10 }
      for (index, client) in clients.enumerated().dropLast() {
        source.send(Self.event(1))
        client.send(.cancel(StreamID(1)))
        source.send(Self.event(2))
        harness.eventually { harness.server.statistics.subscribers == 9 - index }
      }
      for index in 0..<9 { try expect(clients[9], UInt64(1001 + 2 * index), leftOut: 1) }
    }
  }

  @Test func losslessStreamDoesNotWaitForAFilter() async throws {
    try await withServer { harness in
      let source = try add(harness, events: 4) { $0.overflow = .block(timeout: nil, pace: .seconds(1)) }
      let clients = try (0..<3).map { _ in try WireClient.ready(harness.path) }
      for client in clients { client.subscribe("s", credit: 2, options: Self.even) }
      harness.eventually { harness.server.statistics.subscribers == 3 }
      for number in 0..<40 {
        harness.eventually { source.demand > .none }
        source.send(Self.event(2 * number + 1))
      }
      harness.eventually { source.demand > .none }
      source.send(Self.event(2))
      for client in clients { try expect(client, 1040, leftOut: 40) }
    }
  }

  @Test func upstreamIsAskedUntilAnEventFits() async throws {
    try await withServer { harness in
      let source = try add(harness) { $0.start = .whileSubscribed(linger: .seconds(600)) }
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 1, options: Self.even)
      for number in [1, 3, 5, 7, 2] {
        harness.eventually { source.demand > .none }
        source.send(Self.event(number))
      }
      try expect(client, 1004, leftOut: 4)
      #expect(try client.isSilent())
      #expect(source.demand == .none)
    }
  }

  /// Whatever is evicted, granted and cancelled: every id is accounted for, as sent, left out or lost.
  @Test(arguments: seeds(60)) func idsAddUp(seed: UInt64) async throws {
    try await withServer { harness in
      var random = SplitMix64(seed)
      let source = try add(harness, events: 16)
      let clients = try (0..<12).map { _ in try WireClient.ready(harness.path) }
      var last = [UInt64?](repeating: nil, count: clients.count)
      for (index, client) in clients.enumerated() {
        client.subscribe(
          "s", credit: UInt32(random.next() % 4 + 1),
          options: #"{"where":{"/n":{"ge":\#(index % 4 * 30)}},"gaps":true,"from":"new"}"#)
      }
      harness.eventually { harness.server.statistics.subscribers == clients.count }
      func takeAll() throws {
        for (index, client) in clients.enumerated() {
          while client.hasInput {
            let payload = try client.payload()
            let numbers = stride(from: 0, to: payload.metadata.count, by: 8).map { start in
              payload.metadata[start..<start + 8].reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
            }
            let missed = numbers.count > 3 ? numbers[3] : 0
            #expect(numbers[0] - (last[index] ?? 999) - 1 == numbers[2] + missed)
            last[index] = numbers[0]
            let text = String(decoding: payload.data, as: UTF8.self)
            let number = Int(text.drop { !$0.isNumber }.prefix(while: \.isNumber))
            #expect(try #require(number) >= index % 4 * 30)
          }
        }
      }
      for _ in 0..<150 {
        let count = Int(random.next() % 7 == 0 ? random.next() % 40 : random.next() % 4)
        if count > 0 { source.send(batch: Self.events((0..<count).map { _ in Int(random.next() % 120) })) }
        for client in clients where random.next() % 3 == 0 {
          client.send(.requestN(StreamID(1), UInt32(random.next() % 8 + 1)))
        }
        try takeAll()
      }
      for client in clients { client.send(.requestN(StreamID(1), Self.unlimited)) }
      source.send(Self.event(200))
      let end = try #require(harness.server.streams["s"]).log.read { storage, _ in storage.endPosition }
      harness.eventually {
        try? takeAll()
        return last.allSatisfy { $0 == end - 1 }
      }
    }
  }

  // MARK: The next process

  @Test func nextProcessContinuesWithTheFilterAndWhatItLeftOut() async throws {
    try await withTwoServers { first, next in
      let source = try add(first)
      let later = try add(next, stored: Self.events([1, 2, 3]))  // as if the log had been restored, too
      let (waiting, behind) = (try WireClient.ready(first.path), try WireClient.ready(first.path))
      waiting.subscribe("s", credit: Self.unlimited, options: Self.even)
      behind.subscribe("s", credit: 1, options: Self.even)
      first.eventually { first.server.statistics.subscribers == 2 }
      source.send(batch: Self.events([1, 2]))
      for client in [waiting, behind] { try expect(client, 1001, leftOut: 1) }
      source.send(Self.event(3))
      first.eventually { examinationCounts(first).allSatisfy { $0 == 3 } }
      try await first.handOver(to: next)
      later.send(batch: Self.events([5, 4]))
      behind.send(.requestN(StreamID(1), 1))
      for client in [waiting, behind] { try expect(client, 1004, leftOut: 2) }
    }
  }

  // MARK: HTTP

  @Test func responseHasOnlyFittingEvents() async throws {
    try await withServer { harness in
      let source = try add(harness)
      source.send(batch: Self.events(1...6))
      let client = try HTTPWireClient(harness)
      client.request(
        "GET",
        "/streams/s?as=ndjson&follow=0&from=0&where=%7B%22/n%22:%7B%22gt%22:2,%22le%22:5%7D,%22/even%22:false%7D", [])
      let response = try client.response()
      #expect(response.status == 200 && response.isComplete)
      #expect(response.text == [3, 5].map { String(decoding: Self.event($0), as: UTF8.self) + "\n" }.joined())
    }
  }

  @Test(arguments: ["/streams/s?as=sse&where=1", "/streams/s?where=%7B%22/n%22:1%7D", "/streams/s?as=sse&where=%7B%7D"])
  func requestWithAFilterThatIsNoneIsABadRequest(target: String) async throws {
    try await withServer { harness in
      _ = try add(harness)
      let client = try HTTPWireClient(harness)
      client.request("GET", target, [])
      #expect(try client.response().status == 400)
    }
  }
}
