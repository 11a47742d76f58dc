import CLinux
import Events
import Glibc
import RSocket
import Reactive
import ReplayLog
import StreamRuntime
import Testing

@testable import StreamServer

/// Connections that another server restores: with other rules, limits and clocks, and after a server that ended before
/// it served them.
@Suite struct RestoringTests {
  private static let unlimited: UInt32 = 0x7FFF_FFFF

  // MARK: Access

  @Test func aRestoredSubscriberWithoutAccessIsRejected() async throws {
    try await withTwoServers { first, next in
      _ = try first.add("s")
      let later = try next.add("s") { $0.read = AccessRules([.user(4_000_000_000)]) }
      let client = try WireClient.ready(first.path)
      client.subscribe("s", credit: 5)
      first.eventually { first.server.statistics.subscribers == 1 }
      try await first.handOver(to: next)
      later.send([1])
      #expect(try client.receive() == .error(StreamID(1), .rejected, #"uid \#(getuid()) may not read "s""#))
      #expect(try client.isSilent())
      #expect(next.server.statistics.subscribers == 0)
      guard case .clientRefused(_, stream: "s", let reason)? = next.reports.first else {
        Issue.record("not reported: \(next.reports)")
        return
      }
      #expect(reason == #"uid \#(getuid()) may not read "s""#)
    }
  }

  @Test func aRestoredPublisherIsRejectedWithoutAccessAndCanceledForAnotherSource() async throws {
    try await withTwoServers { first, next in
      for name in ["closed", "fed otherwise"] { try first.addPublished(name) }
      try next.addPublished("closed") { $0.write = AccessRules([.user(4_000_000_000)]) }
      _ = try next.add("fed otherwise")
      let client = try WireClient.ready(first.path)
      client.publish("closed", [1], id: 1)
      client.publish("fed otherwise", [1], id: 3)
      for _ in 0..<2 {
        guard case .requestN = try client.receive() else {
          Issue.record("no credit")
          return
        }
      }
      try await first.handOver(to: next)
      let errors = try [client.receive(), client.receive()]
      #expect(
        errors.contains(
          .error(
            StreamID(1), .rejected,
            #"uid \#(getuid()) may not write "closed"; to admit it, add "uid:\#(getuid())" to its write"#)))
      #expect(
        errors.contains(.error(StreamID(3), .canceled, #""fed otherwise" no longer accepts values"#)))
      client.value([2], id: 1)
      #expect(try client.isSilent())
      #expect(next.server.statistics.eventsIn == 0 && next.server.statistics.publishers == 0)
    }
  }

  // MARK: Other limits

  @Test func heldEventsOverASmallerLimitAreDroppedAndReported() async throws {
    try await withTwoServers { first, next in
      let source = try first.add("s") {
        $0.limits = .init(events: 4)
        $0.overflow = .block(timeout: nil)
      }
      _ = try next.add("s") {
        $0.limits = .init(events: 4, bytes: 4096)
        $0.overflow = .block(timeout: nil)
      }
      let client = try WireClient.ready(first.path)
      client.subscribe("s", credit: 1)
      first.eventually { first.server.statistics.subscribers == 1 }
      let large = [UInt8](repeating: 7, count: 10_000)
      source.send(batch: [[0], [1], [2], [3], [4], [5], large, [6], large])
      #expect(try client.events(1) == [[0]])
      first.eventually { first.server.statistics.eventsIn == 5 }
      try await first.handOver(to: next)
      client.send(.requestN(StreamID(1), Self.unlimited))
      #expect(try client.events(2) == [[5], [6]])
      #expect(lost(next) == [4])
      guard case .eventsTooLarge(stream: "s", count: 2, limit: 4072)? = next.reports.dropFirst().first else {
        Issue.record("not reported: \(next.reports)")
        return
      }
    }
  }

  /// The count after id and time; nil without one.
  private func gap(_ client: WireClient) throws -> UInt64? {
    let metadata = try client.payload().metadata
    return metadata.count == 24 ? metadata[16...].reduce(0) { $0 << 8 | UInt64($1) } : nil
  }

  /// The number of lost events for each reported client.
  private func lost(_ harness: ServerHarness) -> [UInt64] {
    harness.reports.compactMap { report in
      if case .clientLagged(_, stream: "s", let lost) = report { lost } else { nil }
    }
  }

  @Test(arguments: [OverflowPolicy.drop, .block(timeout: nil)], [false, true])
  func aRestoredSubscriberBehindTheLogLags(overflow: OverflowPolicy, beginsAnew: Bool)
    async throws
  {
    try await withTwoServers { first, next in
      var configuration = StreamConfiguration(name: "s", replay: 100, start: .always)
      configuration.overflow = overflow
      let source = HandFedSource()
      let log = try #require(EventLog(name: "s", limits: configuration.limits, firstID: 1000))
      try first.server.add(configuration, log: log, source: source)
      let options = [#"{"gaps":true,"on_lag":"fail"}"#, #"{"gaps":true}"#]
      let clients = try options.map { options in
        let client = try WireClient.ready(first.path)
        client.subscribe("s", credit: 1, options: options)
        return client
      }
      let current = try WireClient.ready(first.path)
      current.subscribe("s", credit: Self.unlimited, options: options[0])
      first.eventually { first.server.statistics.subscribers == 3 }
      source.send(batch: (0..<10).map { [$0] })
      for client in clients { #expect(try client.event().id == 1000) }
      for id in 1000..<1010 { #expect(try current.event().id == UInt64(id)) }

      configuration.limits = .init(events: 4, bytes: 8 << 20)
      let later = HandFedSource()
      let smaller = try #require(
        EventLog(name: "s", limits: configuration.limits, firstID: beginsAnew ? 5000 : 1000))
      if !beginsAnew { smaller.append(EventBatch((0..<10).map { [$0] })) }
      try next.server.add(configuration, log: smaller, source: later)
      try await first.handOver(to: next)
      let count: UInt64 = beginsAnew ? 9 : 5
      #expect(try clients[0].receive() == .error(StreamID(1), .lagged, "lagged: \(count) events lost"))
      if beginsAnew { later.send([1]) }
      clients[1].send(.requestN(StreamID(1), 1))
      #expect(try gap(clients[1]) == count)
      #expect(lost(next) == [count, count] && next.server.statistics.laggedEvents == 2 * count)
      #expect(next.server.statistics.subscribers == 2)
      if beginsAnew { #expect(try current.event().id == 5000) }
      #expect(try current.isSilent())
    }
  }

  /// If some of the ids may never have been assigned, no number is exact.
  @Test(arguments: [nil, 1000, 1002] as [UInt64?]) func aGapIsCountedIfTheIdsOfTheLostLogAreKnown(
    countedFrom: UInt64?
  ) async throws {
    try await withTwoServers { first, next in
      let configuration = StreamConfiguration(name: "s", start: .always)
      let source = HandFedSource()
      let log = try #require(EventLog(name: "s", limits: configuration.limits, firstID: 1000))
      try first.server.add(configuration, log: log, source: source)
      let later = try next.add("s")
      let (behind, current) = (try WireClient.ready(first.path), try WireClient.ready(first.path))
      behind.subscribe("s", credit: 1, options: #"{"gaps":true}"#)
      current.subscribe("s", credit: Self.unlimited, options: #"{"gaps":true}"#)
      first.eventually { first.server.statistics.subscribers == 2 }
      source.send(batch: (0..<10).map { [$0] })
      #expect(try behind.event().id == 1000)
      for id in 1000..<1010 { #expect(try current.event().id == UInt64(id)) }
      var saved = try await first.handOver()
      #expect(saved.ends["s"] == StreamEnd(position: 1010, countedFrom: 1000))
      saved.ends["s"]?.countedFrom = countedFrom
      await next.restore(saved)
      later.send([1])
      behind.send(.requestN(StreamID(1), 1))
      #expect(try gap(behind) == (countedFrom == 1000 ? 9 : .max))
      #expect(try gap(current) == (countedFrom == nil ? .max : nil))
    }
  }

  // MARK: Another clock

  @Test(arguments: ["s", "$stats"]) func aNewLogBeginsAtTheEndOfTheLastOneWhateverTheClock(
    name: String
  ) async throws {
    try await withTwoServers { first, next in
      _ = try first.add("s")
      let later = try next.add("s")
      let client = try WireClient.ready(first.path)
      client.subscribe(name, credit: Self.unlimited)
      first.eventually { first.server.streams[name]?.log.subscriberCount == 1 }
      let saved = try await first.handOver()
      while client.hasInput { _ = try client.event() }
      // As if the clock had been an hour ahead until now.
      let ahead: UInt64 = 3_600_000_000
      let connections = saved.connections.map { connection in
        SavedConnection(
          descriptor: connection.descriptor, number: connection.number, machine: connection.machine, silence: 0,
          input: [], unsent: [],
          subscriptions: connection.subscriptions.map {
            .init(
              stream: $0.stream, id: $0.id, format: $0.format, onLag: $0.onLag,
              cursor: Cursor(position: $0.cursor.position + ahead), credit: $0.credit)
          }, channels: [])
      }
      let ends = saved.ends.mapValues { StreamEnd(position: $0.position + ahead) }
      #expect(ends.count == 9)
      await next.restore(SavedConnections(connections, ends: ends))
      later.send([1])
      let id = try client.event().id
      #expect(try id >= #require(ends[name]?.position))
      #expect(next.server.statistics.eventsIn == 1)
    }
  }

  @Test func aCursorPastTheEndReceivesTheNextEvent() async throws {
    try await withTwoServers { first, next in
      _ = try first.add("s")
      let later = try next.add("s")
      let client = try WireClient.ready(first.path)
      client.subscribe("s", credit: Self.unlimited)
      first.eventually { first.server.statistics.subscribers == 1 }
      let saved = try await first.handOver()
      let connection = try #require(saved.connections.first)
      for position in [UInt64.max, 1 << 62, 0] {
        let subscription = try #require(connection.subscriptions.first)
        let moved = SavedConnection(
          descriptor: dup(connection.descriptor), number: connection.number, machine: connection.machine, silence: 0,
          input: [], unsent: [],
          subscriptions: [
            .init(
              stream: "s", id: subscription.id, format: subscription.format, onLag: subscription.onLag,
              cursor: Cursor(position: position), credit: .unlimited)
          ], channels: [])
        await next.restore(SavedConnections([moved], ends: ["s": StreamEnd(position: position)]))
        later.send([UInt8(truncatingIfNeeded: position)])
        #expect(try client.event().data == [UInt8(truncatingIfNeeded: position)])
      }
      close(connection.descriptor)
    }
  }

  @Test(arguments: [0, 5, 6, 1 << 40]) func aPartlySentEventContinuesOnlyIfItIsStored(sentBytes: Int) async throws {
    try await withTwoServers { first, next in
      _ = try first.add("s")
      let client = try WireClient.ready(first.path)
      client.subscribe("s", credit: 5)
      first.eventually { first.server.statistics.subscribers == 1 }
      let saved = try await first.handOver()
      let log = try #require(EventLog(name: "s", limits: .init(), firstID: 100))
      log.append([Array("sixsix".utf8)])
      let source = HandFedSource()
      try next.server.add(StreamConfiguration(name: "s", start: .always), log: log, source: source)
      let connection = try #require(saved.connections.first)
      let subscription = try #require(connection.subscriptions.first)
      let moved = SavedConnection(
        descriptor: connection.descriptor, number: connection.number, machine: connection.machine, silence: 0,
        input: [], unsent: [],
        subscriptions: [
          .init(
            stream: "s", id: subscription.id, format: subscription.format, onLag: subscription.onLag,
            cursor: Cursor(position: 100, sentBytes: sentBytes), credit: .unlimited)
        ], channels: [])
      await next.restore(SavedConnections([moved]))
      if sentBytes < 6 {
        #expect(try client.event().data == Array("sixsix".utf8.dropFirst(sentBytes)))
      } else {
        #expect(
          try client.receive()
            == .error(StreamID(1), .lagged, "lagged: event 100 was lost after a part of it had been sent"))
      }
      #expect(try client.isSilent())
    }
  }

  // MARK: A process that ends before it serves

  @Test func beforeTheRestoreIsFinishedAnotherServerCanRestoreTheSame() async throws {
    let failing = try ServerHarness(restores: true)
    let failingSource = try failing.add("s") { $0.replay = 10 }
    try failing.addPublished("p")
    try await withTwoServers { first, next in
      let source = try first.add("s")
      try first.addPublished("p")
      let later = try next.add("s")
      try next.addPublished("p")
      let client = try WireClient.ready(first.path)
      client.subscribe("s", credit: 5)
      client.publish("p", [1], id: 3)
      guard case .requestN = try client.receive() else {
        Issue.record("no credit")
        return
      }
      source.send([1])
      #expect(try client.events(1) == [[1]])
      let saved = try await first.handOver()
      client.send(.keepalive(respond: true, position: 0, data: [7]))
      let copies = SavedConnections(
        saved.connections.map { connection in
          var copy = connection
          copy.descriptor = dup(connection.descriptor)
          return copy
        }, waiting: [.init(stream: "s", events: [[2]])], ends: saved.ends)
      await withCheckedContinuation { continuation in failing.server.restore(copies) { continuation.resume() } }
      // Events in its logs are sent to no client.
      failing.server.workers[0].loop.execute { [server = failing.server] in
        server.streams["s"]?.log.append([[66]])
      }
      failing.eventually { failing.server.statistics.eventsIn == 1 }
      #expect(failing.server.statistics.subscribers == 1 && failingSource.subscriptions == 0)
      var ready = pollfd(fd: client.descriptor.raw, events: Int16(POLLIN), revents: 0)
      #expect(poll(&ready, 1, 100) == 0)
      await next.restore(
        SavedConnections(saved.connections, waiting: [.init(stream: "s", events: [[2]])], ends: saved.ends))
      later.send([3])
      var events: [[UInt8]] = []
      var others: [Frame] = []
      while events.count < 2 || others.count < 2 {
        let frame = try client.receive()
        if case .payload(StreamID(1), let payload, _, _, _) = frame {
          events.append(payload.data)
        } else {
          others.append(try #require(frame))
        }
      }
      #expect(events == [[2], [3]])
      #expect(others.contains(.keepalive(respond: false, position: 0, data: [7])))
      client.value([4], isComplete: true, id: 3)
      #expect(try client.receive() == .payload(StreamID(3), Payload(), follows: false, isComplete: true, isNext: false))
      #expect(next.server.statistics.eventsIn == 3)
    }
    await failing.stop()
  }

  // MARK: Invalid state

  private func savedState(_ body: (WireClient) -> Void) async throws -> [UInt8] {
    var state: [UInt8] = []
    try await withServer { harness in
      _ = try harness.add("s")
      try harness.addPublished("p")
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 3, id: 1)
      client.subscribe("s", credit: Self.unlimited, id: 3)
      client.publish("p", [1], id: 5)
      guard case .requestN = try client.receive() else {
        Issue.record("no credit")
        return
      }
      body(client)
      #expect(try client.isSilent())
      let saved = try await harness.handOver()
      for descriptor in saved.descriptors { close(descriptor) }
      state = saved.state(ofFirst: 1)
    }
    return state
  }

  /// Any bytes are refused, or become connections that a server can serve.
  @Test func damagedStateDoesNotEndTheServer() async throws {
    let state = try await savedState { client in
      var fragment: [UInt8] = []
      Frame.payload(StreamID(5), Payload(data: [1, 2]), follows: true, isComplete: false, isNext: true)
        .encode(into: &fragment)
      client.send(fragment)
    }
    var generator = SystemRandomNumberGenerator()
    var taken = 0
    for _ in 0..<300 {
      var damaged = state
      for _ in 0..<Int.random(in: 1...4, using: &generator) {
        let index = Int.random(in: SavedState.headerBytes..<damaged.count, using: &generator)
        damaged[index] = [0, 1, 0x7F, 0x80, 0xFF, damaged[index] ^ 1].randomElement(using: &generator) ?? 0
      }
      damaged = SavedState.seal(Array(damaged[SavedState.headerBytes...]), as: .connections)
      var pair: [CInt] = [-1, -1]
      socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue), 0, &pair)
      guard let saved = try? SavedConnections(state: damaged, [pair[0]]) else {
        for end in pair { close(end) }
        continue
      }
      taken += 1
      let harness = try ServerHarness(ServerLimits(workers: 1), restores: true)
      let source = try harness.add("s")
      try harness.addPublished("p")
      await harness.restore(saved)
      source.send([1], [2], [3], [4])
      var bytes: [UInt8] = [9, 9]
      Frame.requestN(StreamID(1), Self.unlimited).encode(into: &bytes)
      Frame.payload(StreamID(5), Payload(data: [1, 2]), follows: false, isComplete: false, isNext: true)
        .encode(into: &bytes)
      send(pair[1], bytes, bytes.count, CInt(MSG_NOSIGNAL))
      let newcomer = try WireClient.ready(harness.path)
      #expect(try newcomer.isSilent())
      await harness.stop()
      close(pair[1])
    }
    #expect(taken > 0)
  }

  @Test func anInconsistentConnectionIsReplacedByAnError() async throws {
    let state = try await savedState { _ in }
    let saved = try SavedConnections(state: state)
    let connection = saved.connections[0]
    func replaced(
      _ change: (SavedConnection) -> (UInt64, [SavedConnection.Subscription], [SavedConnection.Channel])
    ) -> Bool {
      let (number, subscriptions, channels) = change(connection)
      let changed = SavedConnection(
        descriptor: -1, number: number, machine: connection.machine, silence: 0, input: [], unsent: [],
        subscriptions: subscriptions,
        channels: channels)
      let read = try? SavedConnections(state: SavedConnections([changed, connection]).state(ofFirst: 2))
      #expect(read?.connections.last?.subscriptions == connection.subscriptions)
      return read?.connections.first == .invalid(number: number)
    }
    #expect(!replaced { ($0.number, $0.subscriptions, $0.channels) })
    #expect(replaced { ($0.number, $0.subscriptions + $0.subscriptions, $0.channels) })
    #expect(replaced { ($0.number, $0.subscriptions, [.init(id: StreamID(7), stream: "p", credit: 1, named: nil)]) })
    #expect(
      replaced { ($0.number, $0.subscriptions, [.init(id: StreamID(5), stream: "p", credit: 1 << 40, named: nil)]) })
    for (nameBytes, next) in [(1, 0), (1, 1 << 63), (1, .max), (49, 1)] as [(Int, UInt64)] {
      let named = ChannelNumbering(
        name: Array(repeating: 0xff, count: nameBytes), next: next, demand: 1, confirmed: .max)
      #expect(
        replaced { ($0.number, $0.subscriptions, [.init(id: StreamID(5), stream: "p", credit: 1, named: named)]) })
    }
  }
}
