import FoundationEssentials
import Glibc
import RSocket
import StreamProtocol
import StreamRuntime
import TestSupport
import Testing

@testable import StreamServer

/// What root and the daemon's user see of the clients, and do to them. The tests run as one of these.
@Suite struct ClientCommandTests {
  private func clients(_ client: WireClient, id: UInt32 = 1) throws -> ClientsSnapshot {
    client.get("$clients", id: id)
    return try JSONDecoder().decode(ClientsSnapshot.self, from: Data(try client.event().data))
  }

  private func order(_ client: WireClient, _ command: String, id: UInt32 = 1) throws -> Frame? {
    client.get("$control", options: command, id: id)
    return try client.receive()
  }

  private let done = Frame.payload(StreamID(1), Payload(data: []), follows: false, isComplete: true, isNext: true)

  @Test func eachClientIsListedWithWhatItIsSubscribedTo() async throws {
    try await withServer { harness in
      let source = try harness.add("quotes") { $0.replay = 8 }
      try harness.addPublished("lines")
      let reader = try WireClient.ready(harness.path)
      reader.subscribe("quotes", credit: 2)
      reader.publish("lines", [1], id: 3)
      _ = try reader.receive()  // credit
      source.send([0x31], [0x32], [0x33], [0x34], [0x35])
      _ = try reader.event()
      let address = try harness.listenOnTCP()
      let web = try HTTPWireClient(address)
      web.get("/streams/quotes?as=sse")
      #expect(try web.head()?.status == 200)
      let administrator = try WireClient.ready(harness.path)
      var found = try clients(administrator)
      harness.eventually {
        found = (try? clients(administrator)) ?? found
        return found.clients.count == 3 && found.clients[0].subscriptions?.first?.credit == 0
          && found.clients[1].subscriptions?.first?.lag == 0
      }
      #expect(found.clients.map(\.id) == [1, 2, 3] && found.others == nil)
      #expect(found.clients.map(\.protocol) == ["rsocket", "http", "rsocket"])
      let first = found.clients[0]
      #expect(first.user == getuid() && first.process == getpid() && first.command?.isEmpty == false)
      #expect(first.subscriptions == [.init(stream: "quotes", credit: 0, lag: 3)])
      #expect(first.publishes == ["lines"] && first.bytesOut > 0 && first.address == nil)
      let second = found.clients[1]
      #expect(second.subscriptions?.map(\.stream) == ["quotes"] && second.address?.hasPrefix("127.") == true)
      #expect(second.user == nil && second.process == nil && second.command == nil)
      #expect(try HTTPWireClient(harness).fetch("/clients").text.contains(#""stream":"quotes""#))
    }
  }

  @Test func theDemandOfAMapIsListedAsAMap() async throws {
    try await withServer { harness in
      let source = try harness.add("quotes") { $0.isMapped = true }
      let reader = try WireClient.ready(harness.path)
      let map = try reader.map("quotes")
      reader.subscribe("quotes", credit: 5, options: #"{"map":true,"position":\#(map.position)}"#, id: 3)
      harness.eventually { harness.server.statistics.subscribers == 1 }
      source.send([0x31], [0x32])
      let administrator = try WireClient.ready(harness.path)
      #expect(
        try clients(administrator).clients[0].subscriptions == [.init(stream: "quotes", credit: 5, lag: 2, map: true)])
      administrator.get("$clients", id: 3)
      let json = String(decoding: try administrator.event().data, as: UTF8.self)
      #expect(json.contains(#""map":true"#))
    }
  }

  @Test func aClientWithManySubscriptionsShowsThoseWithTheMostLag() async throws {
    try await withServer { harness in
      let source = try harness.add("quotes") { $0.replay = 8 }
      source.send([0x31], [0x32], [0x33])
      let reader = try WireClient.ready(harness.path)
      for number in 0..<20 as Range<UInt32> {
        reader.subscribe("quotes", credit: 1 + number % 3, id: 2 * number + 1)
      }
      for _ in 0..<7 * 1 + 7 * 2 + 6 * 3 { _ = try reader.event() }
      let administrator = try WireClient.ready(harness.path)
      let found = try clients(administrator).clients[0]
      #expect(found.subscriptions?.map(\.lag).sorted() == [1, 2, 2, 2, 2, 2, 2, 2] && found.more == 12)
      #expect(found.lag == 7 * 2 + 7)
      let web = try HTTPWireClient(harness)
      #expect(try web.fetch("/clients").text.contains(#""more":12,"#))
    }
  }

  @Test func aLateOutcomeIsNotThatOfACommandWithTheSameID() async throws {
    try await withServer { harness in
      let status = SourceStatus()
      let held = Locked<[@Sendable (String?) -> Void]>([])
      status.setRefresh { completed in held.withLock { $0.append(completed) } }
      _ = try harness.add("a", status: status)
      let client = try WireClient.ready(harness.path)
      client.get("$control", options: #"{"refresh":"a"}"#)
      client.send(.cancel(StreamID(1)))
      client.get("$control", options: #"{"refresh":"a"}"#)
      harness.eventually { held.withLock { $0.count } == 2 }
      let outcomes = held.withLock { $0 }
      outcomes[0]("the former")
      outcomes[1](nil)
      #expect(try client.receive() == done)
    }
  }

  @Test func onlyRootAndTheUserOfTheDaemonSeeClientsAndGiveCommands() async throws {
    try await withServer { harness in
      _ = try harness.add("quotes")
      let other = try WireClient(harness.server, user: 4_000_000)
      other.get("$clients")
      #expect(try other.receive() == .error(StreamID(1), .rejected, "uid 4000000 may not read \"$clients\""))
      for command in [#"{"kick":1}"#, #"{"refresh":"quotes"}"#, "x"] {
        #expect(
          try order(other, command)
            == .error(
              StreamID(1), .rejected,
              "uid 4000000 may not give commands: only root and the daemon's user may"))
      }
      let web = try HTTPWireClient(try harness.listenOnTCP())
      #expect(try web.fetch("/clients").status == 403)
    }
  }

  @Test func aKickEndsTheRequestsAndTheConnectionOfOneClient() async throws {
    try await withServer { harness in
      _ = try harness.add("quotes")
      let victims = try (0..<2).map { _ in try WireClient.ready(harness.path) }
      for victim in victims {
        victim.subscribe("quotes", credit: 1)
        #expect(try victim.isSilent())
      }
      let web = try HTTPWireClient(harness)
      web.get("/streams/quotes?as=sse")
      #expect(try web.head()?.status == 200)
      let administrator = try WireClient.ready(harness.path)
      #expect(try order(administrator, #"{"kick": 1}"#) == done)
      #expect(
        try victims[0].receive() == .error(StreamID(1), .canceled, "an operator has ended this connection"))
      #expect(
        try victims[0].receive()
          == .error(StreamID(0), .connectionClose, "an operator has ended this connection"))
      #expect(try victims[0].receive() == nil)
      #expect(try victims[1].isSilent())
      #expect(try order(administrator, #"{"kick": 3}"#) == done)
      var text = ""
      while let chunk = try web.chunkText() { text += chunk }
      #expect(text.contains("an operator has ended this connection"))
      #expect(try order(administrator, #"{"kick": 1}"#) == .error(StreamID(1), .rejected, "no client 1"))
      let dropped = harness.reports.compactMap {
        if case .clientDropped(let client, let reason) = $0 { (client, reason) } else { nil }
      }
      #expect(dropped.map(\.0.number) == [1, 3])
      #expect(dropped.allSatisfy { $0.1.hasPrefix("kicked by client 4 (uid ") })
      // Itself: its own reply may not come any more.
      #expect(
        try order(administrator, #"{"kick": 4}"#)
          == .error(StreamID(1), .canceled, "an operator has ended this connection"))
    }
  }

  @Test func malformedCommandsSayWhatACommandIs() async throws {
    try await withServer { harness in
      let client = try WireClient.ready(harness.path)
      let known = #"a command is {"kick": CLIENT}, {"refresh": "STREAM"}, {"make": "STREAM"} or {"forget": "STREAM"}"#
      for (command, sentence) in [
        ("", known), ("[]", known), ("{}", known), (#"{"kick":1,"refresh":"a"}"#, known), (#"{"stop":1}"#, known),
        (#"{"kick":"#, known), (#"{"kick":"1"}"#, "\"kick\" must be the number of a client"),
        (#"{"kick":-1}"#, "\"kick\" must be the number of a client"),
        (#"{"kick":99999999999999999999}"#, "\"kick\" must be the number of a client"),
        (#"{"refresh":7}"#, "\"refresh\" must be the name of a stream"),
        (#"{"refresh":""# + String(repeating: "x", count: 5000) + #""}"#, known),
      ] {
        #expect(try order(client, command) == .error(StreamID(1), .invalid, sentence))
      }
      client.subscribe("$control", credit: 1)
      #expect(try client.receive() == .error(StreamID(1), .rejected, "no stream named \"$control\""))
    }
  }

  @Test func aRefreshReachesTheSourceOrSaysWhyNot() async throws {
    try await withServer { harness in
      let (healthy, refusing) = (SourceStatus(), SourceStatus())
      let count = Locked(0)
      healthy.setRefresh { completed in
        count.withLock { $0 += 1 }
        completed(nil)
      }
      refusing.setRefresh { completed in completed("no subscriber with credit wants an event") }
      _ = try harness.add("a", status: healthy)
      _ = try harness.add("b", status: refusing)
      _ = try harness.add("clock")
      let client = try WireClient.ready(harness.path)
      #expect(try order(client, #"{"refresh":"a"}"#) == done)
      #expect(count.withLock { $0 } == 1)
      for (name, sentence) in [
        ("b", "\"b\" is not refreshed: no subscriber with credit wants an event"),
        ("clock", "\"clock\" is not refreshed: its source has no upstream"), ("c", "no stream named \"c\""),
        ("$stats", "no stream named \"$stats\""),
      ] {
        #expect(try order(client, #"{"refresh":"\#(name)"}"#) == .error(StreamID(1), .rejected, sentence))
      }
      healthy.fleet = FleetStatus(isLeading: false, leader: "n2", term: 1, epoch: 1, lag: 0, staleSince: nil)
      #expect(
        try order(client, #"{"refresh":"a"}"#)
          == .error(StreamID(1), .rejected, "\"a\" is not refreshed: host n2 asks its upstream, for all hosts"))
      #expect(count.withLock { $0 } == 1)
    }
  }

  /// An accessor that wraps the former value once more would need more stack with each command.
  @Test func everyCommandCostsWhatTheFirstOneDoes() async throws {
    try await withServer { harness in
      let status = SourceStatus()
      status.setRefresh { completed in completed(nil) }
      _ = try harness.add("a", status: status)
      let client = try WireClient.ready(harness.path)
      for round in 0..<400 {
        let command = round.isMultiple(of: 2) ? #"{"kick":99999}"# : #"{"refresh":"a"}"#
        for number in 0..<100 as Range<UInt32> { client.get("$control", options: command, id: 2 * number + 1) }
        for _ in 0..<100 { _ = try client.receive() }
      }
      #expect(try client.isSilent())
    }
  }

  @Test func aCommandWithoutAReplyEndsWithTheProcess() async throws {
    try await withTwoServers { first, second in
      let held = Locked<[@Sendable (String?) -> Void]>([])
      for harness in [first, second] {
        let status = SourceStatus()
        status.setRefresh { completed in held.withLock { $0.append(completed) } }
        _ = try harness.add("a", status: status)
      }
      let client = try WireClient.ready(first.path)
      client.get("$control", options: #"{"refresh":"a"}"#)
      first.eventually { held.withLock { $0.count } == 1 }
      try await first.handOver(to: second)
      #expect(try client.receive() == .error(StreamID(1), .canceled, "streamd restarts"))
      held.withLock { $0 }[0](nil)
      #expect(try client.isSilent())
    }
  }
}
