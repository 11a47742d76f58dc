import Dispatch
import Events
import Glibc
import RSocket
import Reactive
import StreamRuntime
import Testing

@testable import StreamServer

/// The wire's rows about publishing, over real sockets.
@Suite struct PublishingTests {
  private func number(_ value: Int) -> [UInt8] { Array("\(value)".utf8) }

  /// The publisher's next grant; fails on any other frame.
  private func grant(_ client: WireClient, id: UInt32 = 1) throws -> Int {
    let frame = try client.receive()
    guard case .requestN(StreamID(id), let count)? = frame else {
      Issue.record("expected credit, got \(String(describing: frame))")
      throw WireClient.Silence()
    }
    return Int(count)
  }

  private func complete(_ id: UInt32 = 1) -> Frame {
    .payload(StreamID(id), Payload(), follows: false, isComplete: true, isNext: false)
  }

  @Test func twoThousandValuesPublishedInOrderArriveInOrder() async throws {
    try await withServer { harness in
      try harness.addPublished("p")
      let subscriber = try WireClient.ready(harness.path)
      subscriber.subscribe("p", credit: 0x7FFF_FFFF)
      harness.eventually { harness.server.statistics.subscribers == 1 }
      let values = (0..<2000).map(number)
      try WireClient.ready(harness.path).publishAll("p", values)
      #expect(try subscriber.events(2000) == values)
      #expect(try subscriber.isSilent())
    }
  }

  @Test func theRequestCarriesTheFirstValueAndCompleteIsConfirmedWhenAllAreStored() async throws {
    try await withServer { harness in
      try harness.addPublished("p")
      let client = try WireClient.ready(harness.path)
      client.publish("p", [1], isComplete: true)
      #expect(try client.receive() == complete())
      client.subscribe("p", credit: 5, id: 3)
      #expect(try client.events(1) == [[1]])
      client.publish("p", [2], id: 5)
      #expect(try grant(client, id: 5) > 0)
      #expect(try client.events(1) == [[2]])
      client.complete(id: 5)
      #expect(try client.receive() == complete(5))
      #expect(try client.isSilent())
    }
  }

  /// In JSON neither is white space. Such a value has its number and its confirmation.
  @Test(arguments: [("application/json", ["1", "2", "3"]), ("text/plain", ["1", " ", "2", "\n", "3"])])
  func anEmptyValueIsNoEvent(type: String, expected: [String]) async throws {
    try await withServer { harness in
      try harness.addPublished("p") { $0.type = type }
      let client = try WireClient.ready(harness.path)
      client.publish("p", [])
      _ = try grant(client, id: 1)
      client.values(["1", "", " ", "2", "\n", ""].map { Array($0.utf8) }, id: 1)
      client.complete(id: 1)
      #expect(try client.receive() == complete())
      for value in ["", "3"] { client.toss("p", Array(value.utf8), id: value.isEmpty ? 3 : 5) }
      client.subscribe("p", credit: 9, id: 7)
      #expect(try client.events(expected.count) == expected.map { Array($0.utf8) })
      #expect(try client.isSilent())
      #expect(harness.server.statistics.droppedValues == 0)
    }
  }

  @Test func creditIsGrantedInLargeSteps() async throws {
    try await withServer { harness in
      try harness.addPublished("p")
      let client = try WireClient.ready(harness.path)
      client.publish("p", [0])
      var credit = try grant(client)
      #expect(credit == 128)
      var grants: [Int] = []
      for round in 0..<10_000 {
        if credit == 0 {
          grants.append(try grant(client))
          credit += grants[grants.count - 1]
        }
        client.value(number(round))
        credit -= 1
      }
      #expect(grants.allSatisfy { $0 >= 2048 } && grants.count <= 5)
    }
  }

  @Test func largeValuesReduceTheCredit() async throws {
    try await withServer { harness in
      try harness.addPublished("p")
      let client = try WireClient.ready(harness.path)
      client.publish("p", [UInt8](repeating: 7, count: 1_000_000))
      #expect(try grant(client) == 4)
    }
  }

  @Test func growingValuesStayWithinTheStreamsSpace() async throws {
    let count = 40
    try await withServer(ServerLimits(workers: 2)) { harness in
      let publishSource = try harness.addPublished("p") {
        $0.limits = .init(events: 1024, bytes: 2 << 20); $0.overflow = .block(timeout: nil); $0.write = .init()
      }
      let reader = try WireClient.ready(harness.path)
      reader.subscribe("p", credit: 1, options: #"{"ids": false}"#)
      harness.eventually { harness.server.statistics.subscribers == 1 }
      var publishers = try (0..<count).map { _ in try WireClient.ready(harness.path) }
      for publisher in publishers {
        publisher.publish("p", [1])
        _ = try grant(publisher)
        // Limits the wait for a server that has stopped reading.
        var timeout = timeval(tv_sec: 0, tv_usec: 20_000)
        setsockopt(publisher.descriptor.raw, SOL_SOCKET, SO_SNDTIMEO, &timeout, socklen_t(MemoryLayout<timeval>.size))
      }
      let value = [UInt8](repeating: 7, count: 900_000)
      var most = 0
      for _ in 0..<9 {
        for publisher in publishers {
          publisher.value(value)
          most = max(most, publishSource.heldBytes)
        }
      }
      // The space of the stream, and the partial value of each publisher.
      #expect(most < PublishWindow.totalBytes + count * (1 << 20))
      #expect(most > PublishWindow.totalBytes)
      publishers = []
      harness.eventually { harness.server.statistics.connections == 1 }
      #expect(publishSource.heldBytes < PublishWindow.totalBytes + count * (1 << 20))
      let newcomer = try WireClient.ready(harness.path)
      newcomer.publish("p", [2])
      #expect(
        try newcomer.receive()
          == .error(StreamID(1), .rejected, "\"p\" has no space: values of other publishers wait in it"))
      reader.send(.requestN(StreamID(1), 0x7FFF_FFFF))
      var smallCount = 0
      while publishSource.heldBytes > 0 { if try reader.event().data == [1] { smallCount += 1 } }
      newcomer.publish("p", [2], id: 3)
      while true {
        let data = try reader.event().data
        if data == [1] { smallCount += 1 }
        if data == [2] { break }
      }
      #expect(smallCount == count)
      harness.eventually { harness.server.accounts.heldBytes.load(ordering: .relaxed) == 0 }
    }
  }

  @Test func exceedingTheCreditClosesOnlyThatConnection() async throws {
    try await withServer(ServerLimits(workers: 1)) { harness in
      // Full with the greedy publisher's values: it is granted no more between two slices of its input.
      try harness.addPublished("p") {
        $0.limits.events = 16
        $0.overflow = .block(timeout: nil)
      }
      let subscriber = try WireClient.ready(harness.path)
      subscriber.subscribe("p", credit: 2)
      harness.eventually { harness.server.statistics.subscribers == 1 }
      let bystander = try WireClient.ready(harness.path)
      bystander.publish("p", [1])
      #expect(try grant(bystander) == 16)
      let greedy = try WireClient.ready(harness.path)
      greedy.publish("p", [2])
      #expect(try grant(greedy) == 16)
      #expect(try subscriber.events(2) == [[1], [2]])
      greedy.values([[UInt8]](repeating: [3], count: 17))
      let end = try greedy.receive()
      #expect(end == .error(.connection, .connectionError, "a value for request 1 exceeds the credit"))
      #expect(try greedy.receive() == nil)
      // Its values within the credit are stored.
      subscriber.send(.requestN(StreamID(1), 1000))
      #expect(try subscriber.events(16) == [[UInt8]](repeating: [3], count: 16))
      bystander.value([4], isComplete: true)
      #expect(try bystander.receive() == complete())
      #expect(try subscriber.events(1) == [[4]])
      #expect(try subscriber.isSilent())
      guard case .clientDropped? = harness.reports.last else { throw WireClient.Silence() }
    }
  }

  @Test func twoPublishersOfAStreamBothProgress() async throws {
    try await withServer { harness in
      try harness.addPublished("p")
      let subscriber = try WireClient.ready(harness.path)
      subscriber.subscribe("p", credit: 0x7FFF_FFFF)
      harness.eventually { harness.server.statistics.subscribers == 1 }
      let values = (0..<2).map { publisher in (0..<1000).map { Array("\(publisher) \($0)".utf8) } }
      let path = harness.path
      try await withThrowingTaskGroup(of: Void.self) { group in
        for publisher in 0..<2 {
          group.addTask { try WireClient.ready(path).publishAll("p", values[publisher]) }
        }
        try await group.waitForAll()
      }
      let events = try subscriber.events(2000)
      for publisher in 0..<2 {
        #expect(events.filter { $0[0] == UInt8(ascii: "0") + UInt8(publisher) } == values[publisher])
      }
    }
  }

  @Test func aConnectionPublishesToSeveralStreamsAndReadsThem() async throws {
    try await withServer { harness in
      try harness.addPublished("a")
      try harness.addPublished("b")
      let client = try WireClient.ready(harness.path)
      client.publish("a", [1], id: 1)
      #expect(try grant(client, id: 1) > 0)
      client.publish("b", [2], id: 3)
      #expect(try grant(client, id: 3) > 0)
      client.value([3], id: 1)
      client.value([4], id: 3)
      harness.eventually { harness.server.statistics.eventsIn == 4 }
      #expect(harness.server.statistics.publishers == 2)
      client.subscribe("a", credit: 9, id: 5)
      #expect(try client.events(2) == [[1], [3]])
      client.subscribe("b", credit: 9, id: 7)
      #expect(try client.events(2) == [[2], [4]])
    }
  }

  @Test func aConnectionLostInsideAFragmentLeavesOnlyCompleteValues() async throws {
    try await withServer { harness in
      try harness.addPublished("p")
      let subscriber = try WireClient.ready(harness.path)
      subscriber.subscribe("p", credit: 100)
      do {
        let client = try WireClient.ready(harness.path)
        client.publish("p", [1])
        #expect(try grant(client) > 0)
        client.value([2])
        client.send(.payload(StreamID(1), Payload(data: [3]), follows: true, isComplete: false, isNext: true))
        client.send(.payload(StreamID(1), Payload(data: [4]), follows: true, isComplete: false, isNext: true))
      }
      #expect(try subscriber.events(2) == [[1], [2]])
      harness.eventually { harness.server.statistics.publishers == 0 }
      try WireClient.ready(harness.path).publishAll("p", [[5], [6]])
      #expect(try subscriber.events(2) == [[5], [6]])
    }
  }

  @Test func aFragmentedValueCostsItsPublisherOneCredit() async throws {
    try await withServer { harness in
      try harness.addPublished("p")
      let client = try WireClient.ready(harness.path)
      let name: [UInt8] = [1, UInt8(ascii: "p")]
      client.send(
        .request(
          StreamID(1), .channel, initialRequest: 1, Payload(metadata: name, data: [1]), follows: true,
          isComplete: false))
      client.send(.payload(StreamID(1), Payload(data: [2]), follows: false, isComplete: false, isNext: true))
      let credit = try grant(client)
      for part in 0..<3 {
        client.send(
          .payload(StreamID(1), Payload(data: [8]), follows: part < 2, isComplete: part == 2, isNext: true))
      }
      #expect(try client.receive() == complete())
      #expect(credit == 128)
      client.subscribe("p", credit: 9, id: 3)
      #expect(try client.events(2) == [[1, 2], [8, 8, 8]])
    }
  }

  @Test func valuesOfACancelledPublisherStay() async throws {
    try await withServer { harness in
      try harness.addPublished("p")
      let client = try WireClient.ready(harness.path)
      client.publish("p", [1])
      _ = try grant(client)
      client.value([2])
      client.send(.cancel(StreamID(1)))
      client.value([3])
      #expect(try client.isSilent())
      #expect(harness.server.statistics.publishers == 0)
      client.subscribe("p", credit: 9, id: 3)
      #expect(try client.events(2) == [[1], [2]])
      #expect(try client.isSilent())
    }
  }

  @Test func aValueOverTheLimitOfEventsIsInvalidWhateverTheBuffer() async throws {
    try await withServer { harness in
      try harness.addPublished("p") { $0.eventByteLimit = 100 }
      let client = try WireClient.ready(harness.path)
      client.publish("p", [UInt8](repeating: 0, count: 101))
      let sentence = "a value of 101 bytes is too large for \"p\", whose limit is 100 bytes"
      #expect(try client.receive() == .error(StreamID(1), .invalid, sentence))
    }
  }

  @Test func aValueOverTheBufferIsInvalidAndEarlierValuesStay() async throws {
    try await withServer { harness in
      try harness.addPublished("p") { $0.limits.bytes = 4096 }
      let client = try WireClient.ready(harness.path)
      let large = [UInt8](repeating: 0, count: 4073)
      let sentence = "a value of 4073 bytes is too large for \"p\", whose limit is 4072 bytes"
      client.publish("p", large)
      #expect(try client.receive() == .error(StreamID(1), .invalid, sentence))
      client.publish("p", [1], id: 3)
      _ = try grant(client, id: 3)
      client.values([[2], large, [3]], id: 3)
      #expect(try client.receive() == .error(StreamID(3), .invalid, "value 3: \(sentence)"))
      client.subscribe("p", credit: 9, id: 5)
      #expect(try client.events(2) == [[1], [2]])
      #expect(try client.isSilent())
    }
  }

  @Test func publishingWithoutAccessOrToOtherSourcesIsRejected() async throws {
    try await withServer { harness in
      _ = try harness.add("read-only")
      _ = try harness.add("clock") { $0.source = "timer" }
      try harness.addPublished("ours")
      try harness.addPublished("theirs") { $0.write = AccessRules([.user(4_000_000)]) }
      try harness.addPublished("mine") { $0.write = AccessRules([.group(getgid())]) }
      let client = try WireClient.ready(harness.path)
      for (id, name, sentence) in [
        (1, "nowhere", "no stream named \"nowhere\""), (3, "read-only", "\"read-only\" does not accept values"),
        (5, "theirs", "uid \(getuid()) may not write \"theirs\"; to admit it, add \"uid:\(getuid())\" to its write"),
        (7, "$stats", "\"$stats\" does not accept values"),
        (11, "clock", "with the source timer, not publish, \"clock\" does not accept values"),
      ] as [(UInt32, String, String)] {
        client.publish(name, [1], id: id)
        #expect(try client.receive() == .error(StreamID(id), .rejected, sentence))
      }
      let own = Set([0, geteuid()]).sorted().map { "\"uid:\($0)\"" }.joined(separator: ", ")
      for (user, advice) in [
        (4_000_000 as UInt32?, "set write = [\(own), \"uid:4000000\"]"),
        (nil, "give it a token with write = [\"ours\"] ([[tokens]])"),
      ] {
        let stranger = try WireClient(harness.server, user: user)
        stranger.publish("ours", [1])
        guard case .error(_, .rejected, let sentence) = try stranger.receive() else { throw WireClient.Silence() }
        #expect(sentence.hasSuffix(" may not write \"ours\"; to admit it, \(advice)"))
      }
      client.publish("mine", [1], id: 9)
      #expect(try grant(client, id: 9) > 0)
      #expect(harness.server.statistics.refused == 7)
    }
  }

  @Test func withoutRulesOnlyTheServersUserAndRootMayWrite() {
    for user in [geteuid(), 0] {
      #expect(AccessRules.owner.admit(PeerCredentials(process: 1, user: user, group: 5), groups: { [] }))
    }
    #expect(!AccessRules.owner.admit(PeerCredentials(process: 1, user: 4_000_000, group: 0), groups: { [0] }))
    #expect(!AccessRules.owner.admit(nil, groups: { [] }))
  }

  @Test func fireAndForgetFollowsTheSameRulesWithoutReply() async throws {
    try await withServer { harness in
      try harness.addPublished("p") { $0.limits.bytes = 4096 }
      try harness.addPublished("theirs") { $0.write = AccessRules([.user(4_000_000)]) }
      let client = try WireClient.ready(harness.path)
      for (id, name) in [(1, "p"), (3, "theirs"), (5, "p")] as [(UInt32, String)] {
        client.toss(name, [UInt8(id)], id: id)
      }
      client.toss("p", [UInt8](repeating: 0, count: 4073), id: 7)
      #expect(try client.isSilent())
      #expect(harness.server.statistics.droppedValues == 2)
      let reasons = harness.reports.compactMap { report -> String? in
        if case .clientRefused(_, _, let reason) = report { reason } else { nil }
      }
      #expect(
        reasons.first == "uid \(getuid()) may not write \"theirs\"; to admit it, add \"uid:\(getuid())\" to its write"
          && reasons.count == 2)
      client.subscribe("p", credit: 9, id: 9)
      #expect(try client.events(2) == [[1], [5]])
    }
  }

  @Test func fireAndForgetWithoutSpaceIsDroppedCountedAndReported() async throws {
    try await withServer(ServerLimits(workers: 1)) { harness in
      // Nothing is requested from the publish source: its pipeline waits for another publisher.
      let publishSource = PublishSource()
      var configuration = StreamConfiguration(name: "p")
      configuration.limits.events = 4
      try harness.server.add(
        configuration, source: Empty<[[UInt8]], StreamFailure>(), publishSource: publishSource)
      let client = try WireClient.ready(harness.path)
      for id in 0..<6 as Range<UInt32> { client.toss("p", [1], id: 2 * id + 1) }
      #expect(try client.isSilent())
      #expect(harness.server.statistics.droppedValues == 2)
      let dropped = harness.reports.reduce(0) { sum, report in
        if case .valuesDropped(_, stream: "p", let count) = report { sum + count } else { sum }
      }
      #expect(dropped == 2)
    }
  }

  @Test(arguments: [false, true]) func valuesThatWaitForSpaceAreReportedIfTheyAreLost(byRemoval: Bool) async throws {
    let harness = try ServerHarness(ServerLimits(workers: 1))
    try harness.addPublished("p") { ($0.limits.events, $0.replay, $0.overflow) = (4, 4, .block(timeout: nil)) }
    let reader = try WireClient.ready(harness.path)
    reader.subscribe("p", credit: 1)
    harness.eventually { harness.server.statistics.subscribers == 1 }
    let client = try HTTPWireClient(harness)
    client.post("/streams/p", (1...8).map { "\($0)\n" }.joined(), "Content-Type: application/x-ndjson")
    harness.eventually { harness.server.statistics.eventsIn == 5 }
    if byRemoval { _ = harness.server.change([], removing: ["p"]) }
    await harness.stop()
    harness.server.endOverflow(storingThatOf: [])
    let lost = harness.reports.compactMap { report -> Int? in
      if case .waitingEventsLost(stream: "p", let count) = report { count } else { nil }
    }
    #expect(lost == [3])
    withExtendedLifetime((reader, client)) {}
  }

  @Test func aLosslessStreamLimitsItsPublisherToItsBuffer() async throws {
    try await withServer { harness in
      try harness.addPublished("p") {
        $0.overflow = .block(timeout: nil)
        $0.limits.events = 16
      }
      let slow = try WireClient.ready(harness.path)
      slow.subscribe("p", credit: 10)
      harness.eventually { harness.server.statistics.subscribers == 1 }
      let client = try WireClient.ready(harness.path)
      var sent = 0
      func send(_ count: Int) {
        let next = (sent..<min(500, sent + count)).map(number)
        sent += next.count
        if !next.isEmpty { client.values(next, isComplete: sent == 500) }
      }
      client.publish("p", number(0))
      sent = 1
      try harness.eventually {
        while client.hasInput { send(try grant(client)) }
        return harness.server.statistics.eventsIn == 26
      }
      #expect(try slow.events(10) == (0..<10).map(number))
      #expect(try slow.isSilent())
      #expect(harness.server.statistics.eventsIn == 26)  // 10 are read, 16 are in the buffer
      #expect(sent <= 42)  // as many wait before it
      slow.send(.requestN(StreamID(1), 0x7FFF_FFFF))
      while true {
        let frame = try client.receive()
        if frame == complete() { break }
        guard case .requestN(_, let count)? = frame else { throw WireClient.Silence() }
        send(Int(count))
      }
      #expect(try slow.events(490) == (10..<500).map(number))
      #expect(try slow.isSilent())
    }
  }

  @Test func twoPublishersOfALosslessStreamLoseNothing() async throws {
    try await withServer { harness in
      try harness.addPublished("p") {
        $0.overflow = .block(timeout: nil)
        $0.limits.events = 4
      }
      let subscriber = try WireClient.ready(harness.path)
      subscriber.subscribe("p", credit: 5)
      harness.eventually { harness.server.statistics.subscribers == 1 }
      let path = harness.path
      let values = (0..<2).map { publisher in (0..<100).map { [UInt8(publisher), UInt8($0)] } }
      let publishing = DispatchGroup()
      for publisher in 0..<2 {
        DispatchQueue.global().async(group: publishing) {  // not a task, because it blocks its thread
          #expect(throws: Never.self) { try WireClient.ready(path).publishAll("p", values[publisher]) }
        }
      }
      var events = try subscriber.events(5)
      for _ in 0..<39 {
        subscriber.send(.requestN(StreamID(1), 5))
        events += try subscriber.events(5)
      }
      publishing.wait()
      for publisher in 0..<2 { #expect(events.filter { $0[0] == publisher } == values[publisher]) }
    }
  }

  @Test func aStopCancelsPublishersLikeAnyRequest() async throws {
    let harness = try ServerHarness()
    try harness.addPublished("p")
    let client = try WireClient.ready(harness.path)
    client.publish("p", [1])
    _ = try grant(client)
    await harness.stop()
    #expect(try client.receive() == .error(StreamID(1), .canceled, "streamd is stopping"))
    #expect(try client.receive() == .error(.connection, .connectionClose, "streamd is stopping"))
    #expect(try client.receive() == nil)
  }

  @Test func publishersOfAnEndedStreamAreCanceled() async throws {
    try await withServer { harness in
      let publishSource = PublishSource()
      try harness.server.add(
        StreamConfiguration(name: "p"), source: publishSource.prefix(2).setFailureType(to: StreamFailure.self),
        publishSource: publishSource)
      let client = try WireClient.ready(harness.path)
      client.publish("p", [1])
      _ = try grant(client)
      client.value([2])
      #expect(try client.receive() == .error(StreamID(1), .canceled, "\"p\" has ended"))
    }
  }

  @Test func operatorsCanBePlacedBetweenThePublishSourceAndTheStream() async throws {
    try await withServer { harness in
      let publishSource = PublishSource()
      let source = publishSource.map { $0.filter { $0 != [0] }.map { $0 + [9] } }
      try harness.server.add(
        StreamConfiguration(name: "p", replay: 9), source: source.setFailureType(to: StreamFailure.self),
        publishSource: publishSource)
      try WireClient.ready(harness.path).publishAll("p", [[1], [0], [2]])
      let client = try WireClient.ready(harness.path)
      client.subscribe("p", credit: 9)
      #expect(try client.events(2) == [[1, 9], [2, 9]])
    }
  }

  @Test func theCatalogueShowsPublishAsTheSource() async throws {
    try await withServer { harness in
      try harness.addPublished("p")
      let client = try WireClient.ready(harness.path)
      client.get("$streams")
      let row = String(decoding: try client.event().data, as: UTF8.self)
      #expect(row.contains("\"source\":\"publish\"") && row.contains("\"state\":\"running\""))
    }
  }

  @Test(arguments: [900, 1000, 1500])
  func completeValuesOfADisconnectedPublisherAreStored(byteCount: Int) async throws {
    try await withServer { harness in
      try harness.addPublished("p")
      let value = [UInt8](repeating: 1, count: byteCount)
      do {
        let client = try WireClient.ready(harness.path)
        client.publish("p", value)
        _ = try grant(client)
        client.values(Array(repeating: value, count: 127))
      }  // closed, with credit that cannot be delivered
      harness.eventually { harness.server.statistics.eventsIn == 128 }
      harness.eventually { harness.server.statistics.connections == 0 }
      #expect(harness.server.statistics.publishers == 0)
    }
  }

  /// Publishes `count` values of 900 kB, all at once, to a lossless stream that it also reads, one event at a time.
  private func publishGrowingValues(_ harness: ServerHarness, _ count: Int) throws -> WireClient {
    try harness.addPublished("p") {
      $0.limits = .init(events: 1024, bytes: 2 << 20)
      $0.overflow = .block(timeout: nil)
    }
    let client = try WireClient.ready(harness.path)
    // Limits the wait for a server that has stopped reading.
    var timeout = timeval(tv_sec: 3, tv_usec: 0)
    setsockopt(client.descriptor.raw, SOL_SOCKET, SO_SNDTIMEO, &timeout, socklen_t(MemoryLayout<timeval>.size))
    client.publish("p", [1])
    #expect(try grant(client) > count)
    client.subscribe("p", credit: 1, options: #"{"ids": false}"#, id: 3)
    client.values(Array(repeating: [UInt8](repeating: 7, count: 900_000), count: count))
    return client
  }

  @Test func aConnectionThatReadsItsOwnGrowingValuesReceivesAll() async throws {
    try await withServer { harness in
      let client = try publishGrowingValues(harness, 20)
      let accounts = harness.server.accounts
      // All bytes beyond a publisher's share that are neither in the buffer nor on the way to it.
      harness.eventually {
        accounts.heldBytes.load(ordering: .relaxed) > 18_000_000 - (2 << 20) - PublishWindow.bytes - 900_000
      }
      var sizes: [Int] = []
      var byteCount = 0
      while sizes.count < 21 {
        switch try client.receive() {
        case .payload(StreamID(3), let payload, let follows, _, isNext: true)?:
          byteCount += payload.data.count
          guard !follows else { continue }
          sizes.append(byteCount)
          byteCount = 0
          client.send(.requestN(StreamID(3), 1))
        case .requestN(StreamID(1), _)?: continue
        case let other:
          Issue.record("expected an event, got \(String(describing: other))")
          throw WireClient.Silence()
        }
      }
      #expect(sizes == [1] + Array(repeating: 900_000, count: 20))
      harness.eventually { accounts.heldBytes.load(ordering: .relaxed) == 0 }
    }
  }

  @Test func unreadPublishedValuesStayWithinTheUsersBudget() async throws {
    try await withServer(ServerLimits(workers: 1, inputBytesPerUser: 8 << 20)) { harness in
      let client = try publishGrowingValues(harness, 40)
      let sentence = "uid \(getuid()) has more than \(8 << 20) bytes of unprocessed data (max_input_per_user)"
      while let frame = try client.receive() {
        if case .payload = frame { continue }
        #expect(frame == .error(.connection, .connectionError, sentence))
        break
      }
      #expect(harness.server.accounts.heldBytes.load(ordering: .relaxed) < 10 << 20)
      harness.eventually { harness.server.statistics.connections == 0 }
    }
  }

  // MARK: Streams that hosts share

  @Test func valuesThatAnotherHostHasPublishedAreLeftOut() throws {
    let key = PublisherKey([1], of: .unknown)
    func checkpoint(_ number: UInt64) -> Checkpoint? {
      var marks = PublisherMarks()
      marks.set(key, to: number) { _ in false }
      return marks.checkpoint
    }
    for (stored, missing) in [(nil, 3), (4, 3), (5, 2), (7, 0), (9, 0)] as [(UInt64?, Int)] {
      var values: EventBatch = [[5], [6], [7]]
      values.checkpoint = checkpoint(7)
      let merged = PublishSource.merge(values, stored.flatMap { checkpoint($0) })
      #expect(Array(merged) == Array([[5], [6], [7]].suffix(missing)))
      #expect(PublisherMarks(merged.checkpoint)[key] == max(7, stored ?? 0))
    }
    // Values without a name, and marks of another kind.
    #expect(PublishSource.merge([[1]], checkpoint(9)) == [[1]])
    var values: EventBatch = [[1]]
    values.checkpoint = checkpoint(1)
    #expect(PublishSource.merge(values, Checkpoint([1, 2])) == values)
  }

  @Test func aBatchHasValuesOfOnePublisherIfTheyAreSeparated() throws {
    let publishSource = PublishSource()
    publishSource.separatesPublishers = true
    publishSource.admitNamed(nil)
    let queues = try (0..<3).map { _ in try #require(publishSource.join {}) }
    let batches = Locked<[EventBatch]>([])
    publishSource.subscribe(
      AnySubscriber(
        receiveSubscription: { $0.request(.unlimited) },
        receiveValue: { batch in
          batches.withLock { $0.append(batch) }
          return .none
        }))
    for (index, queue) in queues.enumerated() {
      _ = publishSource.take([[UInt8(index)], [UInt8(index)]], isComplete: false, from: queue)
    }
    let all = batches.withLock { $0 }
    #expect(all.allSatisfy { Set(Array($0)).count == 1 })
    #expect(all.reduce(0) { $0 + $1.count } == 6)
  }
}
