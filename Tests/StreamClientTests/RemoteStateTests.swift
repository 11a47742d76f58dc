import ClientTestSupport
import Events
import RSocket
import Reactive
import ReplayLog
import StreamClient
import StreamRuntime
import StreamServer
import TestSupport
import Testing

/// The state of a stream with keys, from a server and from a scripted one. Events are `KEY=VALUE`, tombstones `KEY`.
@Suite(.timeLimit(.minutes(10))) struct RemoteStateTests {
  private let reports = Recorder<ReconnectPolicy.Report>()
  private static let loss = StreamError.disconnected("the server closed the connection")
  private static let fromState = #"{"from":"state","gaps":true,"marker":true}"#

  private var policy: ReconnectPolicy {
    ReconnectPolicy(first: .milliseconds(1)) { [reports] in reports.record($0) }
  }

  /// An element without ids and times.
  private enum Change: Equatable, Sendable {
    case snapshot([String: String])
    case change(String, String)
    case removal(String)
  }

  private static func text(_ event: StreamEvent) -> String { String(decoding: event.data, as: UTF8.self) }

  private static func change(_ element: RemoteState<String>.Element?) -> Change? {
    switch element {
    case .snapshot(let state): .snapshot(state.mapValues(text))
    case .change(let key, let event): .change(key, text(event))
    case .removal(let key): .removal(key)
    case nil: nil
    }
  }

  private func state(_ server: ScriptedServer, reconnects: Bool = true) throws -> RemoteState<String> {
    try StreamConnection(socket: server.path).stream("s", reconnect: reconnects ? policy : nil)
      .state(
        key: { event in
          let text = Self.text(event)
          return text.first.flatMap { $0 == "-" ? nil : String($0) }
        }, isTombstone: { $0.data.count == 1 })
  }

  /// The request with these options; requests for more are skipped.
  private func request(_ server: ScriptedServer, options: String = fromState) async {
    while let event = await server.next() {
      guard case .request(_, .stream, 64, "s", let found) = event else { continue }
      #expect(found == options)
      return
    }
  }

  private static func send(_ peer: Peer, _ events: [(UInt64, String)], on id: UInt32 = 1, marker: UInt64? = nil) {
    for (number, text) in events { peer.send(text, on: StreamID(id), number: number, kind: 0) }
    if let marker { peer.send("", on: StreamID(id), number: marker, kind: 1) }
  }

  @Test func snapshotPrecedesEveryChange() async throws {
    try await ScriptedServer.run(script: { peer, event in
      guard case .request = event else { return }
      Self.send(peer, [(1, "a=1"), (3, "b=1"), (5, "-none"), (7, "c=1"), (8, "c")], marker: 9)
      Self.send(peer, [(10, "b=2"), (11, "-none"), (12, "a"), (13, "d=1")], marker: 13)
      peer.send("a=2", on: StreamID(1), number: 14, kind: 0, isComplete: true)
    }) { server in
      var found: [Change?] = []
      for try await element in try state(server, reconnects: false) { found.append(Self.change(element)) }
      #expect(
        found == [
          .snapshot(["a": "a=1", "b": "b=1"]), .change("b", "b=2"), .removal("a"), .change("d", "d=1"),
          .change("a", "a=2"),
        ])
      await request(server)
    }
  }

  @Test func endOfAStreamCompletesTheState() async throws {
    try await ScriptedServer.run(script: { peer, event in
      guard case .request = event else { return }
      Self.send(peer, [(1, "a=1")])
      peer.send("b=1", on: StreamID(1), number: 2, kind: 0, isComplete: true)
    }) { server in
      var found: [Change?] = []
      for try await element in try state(server) { found.append(Self.change(element)) }
      #expect(found == [.snapshot(["a": "a=1", "b": "b=1"])])
    }
  }

  /// The first connections end within the state: their keys do not remain, as they may have been removed.
  @Test func lossWithinTheStateTakesItAgain() async throws {
    try await ScriptedServer.run(script: { peer, event in
      guard case .request = event else { return }
      switch peer.id {
      case 0...1:
        Self.send(peer, [(1, "a=1"), (2, "b=1")])
        peer.close()
      case 2: peer.close()
      default: Self.send(peer, [(2, "b=1"), (30, "c=1")], marker: 40)
      }
    }) { server in
      var elements = try state(server).makeAsyncIterator()
      #expect(Self.change(try await elements.next()) == .snapshot(["b": "b=1", "c": "c=1"]))
      for _ in 0..<4 { await request(server) }
      #expect(await reports.next() == .lost(Self.loss))
      #expect(await reports.next() == .resumed(missing: nil))
    }
  }

  @Test func restOfAStateThatIsLostIsTakenAgainOnTheSameConnection() async throws {
    try await ScriptedServer.run(script: { peer, event in
      guard case .request(let id, _, _, _, _) = event else { return }
      if id == StreamID(1) {
        Self.send(peer, [(1, "a=1"), (2, "b=1")])
        peer.machine.sendError(id, .canceled, "the rest of the state of \"s\" is lost: subscribe again")
      } else {
        Self.send(peer, [(5, "c=1")], on: 3, marker: 5)
      }
    }) { server in
      var elements = try state(server).makeAsyncIterator()
      #expect(Self.change(try await elements.next()) == .snapshot(["c": "c=1"]))
      for _ in 0..<2 { await request(server) }
      #expect(server.connectionCount == 1)
    }
  }

  @Test func lossAfterTheSnapshotContinuesWithTheChanges() async throws {
    try await ScriptedServer.run(script: { peer, event in
      guard case .request = event else { return }
      if peer.id == 0 {
        Self.send(peer, [(1, "a=1")], marker: 9)
        peer.close()
      } else {
        Self.send(peer, [(10, "a=2")])
      }
    }) { server in
      var elements = try state(server).makeAsyncIterator()
      #expect(Self.change(try await elements.next()) == .snapshot(["a": "a=1"]))
      #expect(Self.change(try await elements.next()) == .change("a", "a=2"))
      await request(server)
      guard case .request(_, _, _, _, let options) = await server.next() else { return }
      #expect(options == #"{"from":9,"gaps":true,"marker":true}"#)
    }
  }

  @Test(arguments: [false, true]) func lossWithoutAPolicyIsThrown(afterSnapshot: Bool) async throws {
    try await ScriptedServer.run(script: { peer, event in
      guard case .request = event else { return }
      Self.send(peer, [(1, "a=1")], marker: afterSnapshot ? 9 : nil)
      peer.close()
    }) { server in
      var elements = try state(server, reconnects: false).makeAsyncIterator()
      if afterSnapshot { #expect(Self.change(try await elements.next()) == .snapshot(["a": "a=1"])) }
      await #expect(throws: Self.loss) { try await elements.next() }
      #expect(try await elements.next() == nil)
    }
  }

  private enum Interruption: CaseIterable { case gap, markedGap, lagged, unknownID }

  /// Events that the stream lost before they were sent: the state is taken again.
  @Test(arguments: Interruption.allCases, [false, true])
  private func gapIsFollowedByAnotherSnapshot(how: Interruption, reconnects: Bool) async throws {
    try await ScriptedServer.run(script: { peer, event in
      guard case .request(let id, _, _, _, _) = event else { return }
      guard id == StreamID(1) else { return Self.send(peer, [(80, "c=1")], on: id.rawValue, marker: 90) }
      Self.send(peer, [(1, "a=1")], marker: 9)
      switch how {
      case .gap: peer.send("a=2", on: id, number: 50, gap: 40, kind: 0)
      case .markedGap: peer.send("", on: id, number: 50, gap: .max, kind: 1)
      case .lagged: peer.machine.sendError(id, .lagged, "lagged: 40 events lost")
      case .unknownID: peer.machine.sendError(id, .invalid, "no event has the id 9")
      }
    }) { server in
      var elements = try state(server, reconnects: reconnects).makeAsyncIterator()
      #expect(Self.change(try await elements.next()) == .snapshot(["a": "a=1"]))
      #expect(Self.change(try await elements.next()) == .snapshot(["c": "c=1"]))
      for _ in 0..<2 { await request(server) }
    }
  }

  @Test func gapWithinTheStateTakesItAgain() async throws {
    try await ScriptedServer.run(script: { peer, event in
      guard case .request(let id, _, _, _, _) = event else { return }
      guard id.rawValue < 7 else { return Self.send(peer, [(80, "c=1")], on: id.rawValue, marker: 90) }
      Self.send(peer, [(1, "a=1")], on: id.rawValue)
      peer.send("b=2", on: id, number: 50, gap: 40, kind: 0)
      Self.send(peer, [], on: id.rawValue, marker: 50)
    }) { server in
      var elements = try state(server).makeAsyncIterator()
      #expect(Self.change(try await elements.next()) == .snapshot(["c": "c=1"]))
      for _ in 0..<4 { await request(server) }
    }
  }

  @Test func streamWithoutKeysIsAFailure() async throws {
    try await ScriptedServer.run(script: { peer, event in
      guard case .request(let id, _, _, _, _) = event else { return }
      peer.machine.sendError(id, .invalid, "the stream has no keys, and so no state")
    }) { server in
      var elements = try state(server).makeAsyncIterator()
      await #expect(throws: StreamError.invalid("the stream has no keys, and so no state")) {
        try await elements.next()
      }
    }
  }

  @Test func closedConnectionEndsTheRetries() async throws {
    try await ScriptedServer.run(script: { peer, event in
      guard case .request = event else { return }
      Self.send(peer, [(1, "a=1")])
    }) { server in
      let connection = try StreamConnection(socket: server.path)
      let state = connection.stream("s", reconnect: policy).state(key: { Self.text($0) })
      let task = Task { for try await _ in state {} }
      await request(server)
      connection.close()
      await #expect(throws: StreamError.self) { try await task.value }
    }
  }

  @Test func endOfTheLoopCancelsTheSubscription() async throws {
    try await ScriptedServer.run(script: { peer, event in
      guard case .request = event else { return }
      Self.send(peer, [(1, "a=1")], marker: 9)
    }) { server in
      for try await _ in try state(server) { break }
      await request(server)
      #expect(await server.next() == .other(.cancel(StreamID(1))))
    }
  }

  @Test func cancellationOfTheTaskCancelsTheSubscription() async throws {
    try await ScriptedServer.run { server in
      let state = try state(server)
      let task = Task { for try await _ in state {} }
      await request(server)
      task.cancel()
      #expect(await server.next() == .other(.cancel(StreamID(1))))
      try await task.value
    }
  }

  /// Ids of a state are no positions: a plain stream cannot resume within it.
  @Test func plainStreamEndsWithALossWithinTheState() async throws {
    try await ScriptedServer.run(script: { peer, event in
      guard case .request = event else { return }
      Self.send(peer, [(1, "a=1"), (5, "b=1")], marker: peer.id == 0 ? 9 : nil)
      if peer.id == 0 { peer.close() }
    }) { server in
      let options = SubscribeOptions(from: .state)
      let probe = try StreamConnection(socket: server.path).stream("s", options: options, reconnect: policy).probe(9)
      #expect(await server.next() == .request(StreamID(1), .stream, 9, "s", Self.fromState))
      #expect(await probe.next() == .value("a=1"))
      #expect(await probe.next() == .value("b=1"))
      let resumed = #"{"from":9,"gaps":true,"marker":true}"#
      #expect(await server.next() == .request(StreamID(1), .stream, 7, "s", resumed))
      probe.cancel()
    }
    try await ScriptedServer.run(script: { peer, event in
      guard case .request = event else { return }
      Self.send(peer, [(1, "a=1"), (5, "b=1")])
      peer.close()
    }) { server in
      let options = SubscribeOptions(from: .state)
      let probe = try StreamConnection(socket: server.path).stream("s", options: options, reconnect: policy).probe(9)
      #expect(await probe.next() == .value("a=1"))
      #expect(await probe.next() == .value("b=1"))
      #expect(await probe.next() == .failed(Self.loss))
    }
  }

  // MARK: Snapshots

  /// Requests what the test sets, and records the texts of each state.
  private final class StateProbe: Subscriber, @unchecked Sendable {
    let states = Recorder<[String: String]>()
    let completions = Recorder<Subscribers.Completion<StreamError>>()
    let subscription = Locked<(any Subscription)?>(nil)

    func receive(subscription: any Subscription) { self.subscription.withLock { $0 = subscription } }
    func receive(_ state: [String: StreamEvent]) -> Subscribers.Demand {
      states.record(state.mapValues(RemoteStateTests.text))
      return .none
    }
    func receive(completion: Subscribers.Completion<StreamError>) { completions.record(completion) }
    func request(_ count: Int) { subscription.withLock(\.self)?.request(.max(count)) }
  }

  @Test func slowSubscriberReceivesTheNewestState() async throws {
    try await ScriptedServer.run(script: { peer, event in
      if case .request = event { Self.send(peer, [(1, "a=1")], marker: 9) }
    }) { server in
      let probe = StateProbe()
      try state(server).snapshots.subscribe(probe)
      #expect(server.connectionCount == 0)
      probe.request(1)
      #expect(await probe.states.next() == ["a": "a=1"])
      await request(server)
      // More than the credit of the beginning: the next credit shows that the first events were applied.
      server.act { peer in
        Self.send(peer, (10..<40).map { ($0, "b=\($0)") })
        Self.send(peer, [(40, "a"), (41, "c=1")])
      }
      guard case .other(.requestN(StreamID(1), let count)) = await server.next() else { return }
      #expect(count == 32)
      server.act { peer in Self.send(peer, (50..<82).map { ($0, "d=\($0)") }) }
      guard case .other(.requestN(StreamID(1), 32)) = await server.next() else { return }
      probe.request(1)
      let newest = try #require(await probe.states.next())
      #expect(newest["a"] == nil && newest["b"] == "b=39" && newest["c"] == "c=1" && newest["d"] != nil)
      probe.subscription.withLock(\.self)?.cancel()
      #expect(await server.next() == .other(.cancel(StreamID(1))))
    }
  }

  @Test func everyChangeIsDeliveredToASubscriberThatKeepsUp() async throws {
    try await ScriptedServer.run(script: { peer, event in
      if case .request = event { Self.send(peer, [], marker: 9) }
    }) { server in
      let probe = StateProbe()
      try state(server).snapshots.subscribe(probe)
      probe.request(4)
      #expect(await probe.states.next() == [:])
      server.act { Self.send($0, [(10, "a=1")]) }
      #expect(await probe.states.next() == ["a": "a=1"])
      server.act { Self.send($0, [(11, "b=1")]) }
      #expect(await probe.states.next() == ["a": "a=1", "b": "b=1"])
      server.act { Self.send($0, [(12, "a")]) }
      #expect(await probe.states.next() == ["b": "b=1"])
      // The last change waits for demand, and the completion for the change.
      server.act { $0.send("c=1", on: StreamID(1), number: 13, kind: 0, isComplete: true) }
      probe.request(1)
      #expect(await probe.states.next() == ["b": "b=1", "c": "c=1"])
      #expect(await probe.completions.next() == .finished)
    }
  }

  @Test func failureEndsTheSnapshots() async throws {
    try await ScriptedServer.run(script: { peer, event in
      guard case .request(let id, _, _, _, _) = event else { return }
      peer.machine.sendError(id, .rejected, "no stream named \"s\"")
    }) { server in
      let probe = StateProbe()
      try state(server).snapshots.subscribe(probe)
      probe.request(1)
      #expect(await probe.completions.next() == .failure(.rejected("no stream named \"s\"")))
    }
  }

  // MARK: With a server

  private static func quote(_ key: String, _ value: Int, isTombstone: Bool = false) -> String {
    #"{"k":"\#(key)","v":\#(value),"d":\#(isTombstone)}"#
  }

  /// Runs `body` with a server whose stream "s" has keys and stores `events` events.
  private func withServer(
    events: Int, _ body: (StreamConnection, RemoteStream) async throws -> Void
  ) async throws {
    let folder = try TemporaryFolder()
    let path = folder.path("s")
    let server = try StreamServer(limits: ServerLimits(workers: 1))
    let source = PublishSource()
    var configuration = StreamConfiguration(name: "s", replay: 9)
    configuration.key = KeyDefinition(key: ".k", tombstone: ".d")
    configuration.limits = EventLog.Limits(
      events: events, bytes: 1 << 20, state: KeyedState.Settings(keys: 1000, bytes: 1 << 20, keyDigest: 1))
    try server.add(configuration, source: source.setFailureType(to: StreamFailure.self), publishSource: source)
    try server.start()
    server.listen(on: try UnixSocket.listen(at: path, mode: 0o600))
    let connection = try StreamConnection(socket: path)
    let result: Result<Void, any Error>
    do { result = .success(try await body(connection, connection.stream("s", reconnect: policy))) } catch {
      result = .failure(error)
    }
    await withCheckedContinuation { continuation in server.stop { continuation.resume() } }
    try result.get()
  }

  /// What the member `k` and `d` have, in the form of ``quote(_:_:isTombstone:)``.
  private static func key(_ event: StreamEvent) -> String? {
    text(event).split(separator: "\"").dropFirst(3).first.map(String.init)
  }

  private static func isTombstone(_ event: StreamEvent) -> Bool { text(event).hasSuffix("true}") }

  private func publish(_ values: [String], _ connection: StreamConnection) async throws {
    try await connection.publish(values.publisher.values, to: "s")
  }

  @Test func serverSendsStateAndChanges() async throws {
    try await withServer(events: 100) { connection, stream in
      try await publish(
        [
          Self.quote("a", 1), Self.quote("b", 1), Self.quote("a", 2), Self.quote("c", 1), "no JSON",
          Self.quote("c", 1, isTombstone: true),
        ], connection)
      var elements = stream.state(key: Self.key, isTombstone: Self.isTombstone).makeAsyncIterator()
      let snapshot = ["a": Self.quote("a", 2), "b": Self.quote("b", 1)]
      #expect(Self.change(try await elements.next()) == .snapshot(snapshot))
      try await publish([Self.quote("d", 1), Self.quote("a", 2, isTombstone: true)], connection)
      #expect(Self.change(try await elements.next()) == .change("d", Self.quote("d", 1)))
      #expect(Self.change(try await elements.next()) == .removal("a"))
    }
  }

  @Test func filterAppliesToStateAndChanges() async throws {
    try await withServer(events: 100) { connection, _ in
      try await publish([Self.quote("a", 1), Self.quote("b", 1), Self.quote("a", 2)], connection)
      let filter = try EventFilter(.init("/k", .oneOf(["a", "d"])))
      var elements = connection.stream("s", where: filter, reconnect: policy)
        .state(key: Self.key, isTombstone: Self.isTombstone).makeAsyncIterator()
      #expect(Self.change(try await elements.next()) == .snapshot(["a": Self.quote("a", 2)]))
      try await publish([Self.quote("b", 2), Self.quote("d", 1)], connection)
      #expect(Self.change(try await elements.next()) == .change("d", Self.quote("d", 1)))
    }
  }

  /// The stream stores fewer events than the loop falls behind: another snapshot has what it missed, and at the end it has
  /// the newest event of every key.
  @Test func slowLoopReceivesAnotherSnapshot() async throws {
    try await withServer(events: 16) { connection, stream in
      try await publish([Self.quote("a", 0), Self.quote("b", 0)], connection)
      var elements = stream.state(key: Self.key, isTombstone: Self.isTombstone).makeAsyncIterator()
      let first = ["a": Self.quote("a", 0), "b": Self.quote("b", 0)]
      #expect(Self.change(try await elements.next()) == .snapshot(first))
      for batch in 0..<40 {
        try await publish((0..<10).map { Self.quote("c", batch * 10 + $0) }, connection)
      }
      try await publish([Self.quote("b", 0, isTombstone: true), Self.quote("e", 1)], connection)
      var (table, snapshots) = ([String: String](), 0)
      while table["e"] == nil {
        switch Self.change(try await elements.next()) {
        case .snapshot(let state): (table, snapshots) = (state, snapshots + 1)
        case .change(let key, let text): table[key] = text
        case .removal(let key): table[key] = nil
        case nil: return
        }
      }
      #expect(snapshots > 0)
      #expect(table == ["a": Self.quote("a", 0), "c": Self.quote("c", 399), "e": Self.quote("e", 1)])
    }
  }
}
