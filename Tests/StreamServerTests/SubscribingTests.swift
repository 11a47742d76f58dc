import Glibc
import RSocket
import Reactive
import Testing

@testable import StreamServer

@Suite struct SubscribingTests {
  @Test func eventsAreSentExactlyWithinTheCredit() async throws {
    try await withServer { harness in
      let source = try harness.add("s") { $0.replay = 10 }
      source.send(batch: (1...9).map { [$0] })
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 3)
      #expect(try client.events(3) == [[1], [2], [3]])
      #expect(try client.isSilent())
      client.send(.requestN(StreamID(1), 2))
      #expect(try client.events(2) == [[4], [5]])
      #expect(try client.isSilent())
    }
  }

  @Test func aNewSubscriptionReceivesTheReplayAndThenNewEventsInOrder() async throws {  // SEMANTICS 12, 22
    try await withServer { harness in
      let source = try harness.add("s") { $0.replay = 3 }
      source.send(batch: (1...5).map { [$0] })
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 100)
      #expect(try client.events(3) == [[3], [4], [5]])
      source.send([6])
      source.send([7], [8])
      #expect(try client.events(3) == [[6], [7], [8]])
    }
  }

  @Test func idsRiseByOneAndEachPayloadHasIdAndTime() async throws {
    try await withServer { harness in
      let source = try harness.add("s") { $0.replay = 3 }
      source.send([1], [2], [3])
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 100)
      let events = try (0..<3).map { _ in try client.event() }
      #expect(events.map(\.id) == [events[0].id, events[0].id + 1, events[0].id + 2])
      client.subscribe("s", credit: 100, options: #"{"ids": false}"#, id: 3)
      guard case .payload(_, let payload, _, _, _) = try client.receive() else { throw WireClient.Silence() }
      #expect(payload == Payload(data: [1]))
    }
  }

  @Test func everyStartPositionIsSupported() async throws {  // SEMANTICS 26
    try await withServer { harness in
      let source = try harness.add("s") { $0.replay = 2 }
      source.send([1], [2], [3], [4])
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 100, options: #"{"from": "-1h"}"#, id: 1)
      let first = try client.event()
      #expect(first.data == [1])
      #expect(try client.events(3) == [[2], [3], [4]])
      client.send(.cancel(StreamID(1)))
      client.subscribe("s", credit: 100, options: #"{"from": \#(first.id + 1)}"#, id: 3)
      #expect(try client.events(2) == [[3], [4]])
      client.send(.cancel(StreamID(3)))
      client.subscribe("s", credit: 100, options: #"{"from": "latest"}"#, id: 5)
      #expect(try client.events(1) == [[4]])
      client.send(.cancel(StreamID(5)))
      client.subscribe("s", credit: 100, options: #"{"from": "2001-01-01T00:00:00.5Z"}"#, id: 7)
      #expect(try client.events(4) == [[1], [2], [3], [4]])
      client.send(.cancel(StreamID(7)))
      for (count, id) in [(1, 9), (3, 11), (4, 13), (1 << 60, 15)] as [(Int, UInt32)] {
        client.subscribe("s", credit: 100, options: #"{"from": -\#(count)}"#, id: id)
        #expect(try client.events(min(count, 4)) == [[1], [2], [3], [4]].suffix(count))
        client.send(.cancel(StreamID(id)))
      }
      client.subscribe("s", credit: 100, options: #"{"from": "new"}"#, id: 17)
      #expect(try client.isSilent())
      source.send([5])
      #expect(try client.events(1) == [[5]])
    }
  }

  @Test(arguments: [
    (#"{"from": "yesterday"}"#, "option \"from\" must be"), (#"{"from": true}"#, "option \"from\" must be"),
    (#"{"on_lag": "wait"}"#, "option \"on_lag\" must be"), (#"{"ids": 1}"#, "option \"ids\" must be"),
    (#"{"form": 1}"#, "unknown option \"form\""), ("[1]", "options must be a JSON object"),
    ("{", "options must be a JSON object"), (#"{"from": 18446744073709551615}"#, "no event has the id"),
    (#"{"from": -0.3}"#, "option \"from\" must be"),
  ])
  func malformedOptionsAreInvalidWithAMessage(options: String, sentence: String) async throws {  // SEMANTICS 24
    try await withServer { harness in
      _ = try harness.add("s")
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 1, options: options)
      guard case .error(StreamID(1), .invalid, let message) = try client.receive() else { throw WireClient.Silence() }
      #expect(message.hasPrefix(sentence))
      #expect(try client.isSilent())
    }
  }

  @Test func overlongOptionsAreInvalidWithoutBeingParsedOrRepeated() async throws {
    try await withServer { harness in
      _ = try harness.add("s")
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 1, options: #"{"\#(String(repeating: "x", count: 100_000))": 1}"#)
      #expect(try client.receive() == .error(StreamID(1), .invalid, "options of 100007 bytes: 8192 at most"))
    }
  }

  @Test func anUnknownNameIsRejectedWithASimilarOneThatTheClientMaySee() async throws {
    try await withServer { harness in
      _ = try harness.add("clock") { $0.read = .owner }
      _ = try harness.add("s")
      func refusal(_ name: String, user: UInt32 = getuid()) throws -> String {
        usleep(110_000)  // similar names are searched ten times a second
        let client = try WireClient(harness.server, user: user)
        client.subscribe(name, credit: 1)
        guard case .error(StreamID(1), .rejected, let sentence) = try client.receive() else {
          throw WireClient.Silence()
        }
        return sentence
      }
      #expect(try refusal("clok") == #"no stream named "clok"; did you mean "clock"?"#)
      #expect(try refusal("$stat") == #"no stream named "$stat"; did you mean "$stats"?"#)
      #expect(try refusal("clok", user: 4_000_000) == #"no stream named "clok""#)
      #expect(try refusal("t") == #"no stream named "t""#)
      #expect(try refusal("clockwork") == #"no stream named "clockwork""#)
    }
  }

  @Test func similarNamesAreNotSearchedForEachOfManyUnknownOnes() async throws {
    try await withServer { harness in
      _ = try harness.add("clock")
      let client = try WireClient.ready(harness.path)
      for id in 0..<100 { client.subscribe("clok", credit: 1, id: UInt32(2 * id + 1)) }
      var suggestions = 0
      for _ in 0..<100 {
        guard case .error(_, .rejected, let sentence) = try client.receive() else { throw WireClient.Silence() }
        if sentence.contains("clock") { suggestions += 1 }
      }
      #expect(suggestions >= 1 && suggestions < 50, "\(suggestions)")
    }
  }

  @Test func anUnknownStreamIsRejectedWithItsName() async throws {
    try await withServer { harness in
      let client = try WireClient.ready(harness.path)
      client.subscribe("nowhere", credit: 1)
      #expect(try client.receive() == .error(StreamID(1), .rejected, "no stream named \"nowhere\""))
      client.get("nowhere", id: 3)
      #expect(try client.receive() == .error(StreamID(3), .rejected, "no stream named \"nowhere\""))
    }
  }

  @Test func aRequestResponseReturnsTheNewestOrTheFirstEvent() async throws {
    try await withServer { harness in
      let source = try harness.add("s")
      let client = try WireClient.ready(harness.path)
      client.get("s", options: #"{"ids": false}"#)
      #expect(try client.isSilent())
      source.send([1])
      #expect(
        try client.receive()
          == .payload(StreamID(1), Payload(data: [1]), follows: false, isComplete: true, isNext: true))
      source.send([2])
      client.get("s", options: #"{"ids": false}"#, id: 3)
      #expect(
        try client.receive()
          == .payload(StreamID(3), Payload(data: [2]), follows: false, isComplete: true, isNext: true))
      #expect(try client.isSilent())
      harness.eventually { harness.server.statistics.subscribers == 0 }
    }
  }

  @Test(arguments: [65_519, 65_520, 65_521, 65_536, 200_000, 3_000_000])
  func aLargeEventIsFragmentedAndCostsOneCredit(size: Int) async throws {  // SEMANTICS 28
    try await withServer { harness in
      let source = try harness.add("s") { $0.limits = .init(bytes: 8 << 20) }
      let event = (0..<size).map { UInt8(truncatingIfNeeded: $0 &* 31) }
      source.send(event)
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 1)
      var received: [UInt8] = []
      while true {
        guard case .payload(_, let payload, let follows, _, true) = try client.receive() else {
          throw WireClient.Silence()
        }
        #expect(payload.data.count + (payload.metadata?.count ?? 0) <= 65536)
        received += payload.data
        if !follows { break }
      }
      #expect(received == event)
      source.send([1])
      #expect(try client.isSilent())
      client.send(.requestN(StreamID(1), 1))
      #expect(try client.events(1) == [[1]])
    }
  }

  @Test func noFragmentOfAnEventIsSentWithoutCreditForIt() async throws {  // RS 1.1
    try await withServer { harness in
      let source = try harness.add("s") { $0.replay = 2 }
      let large = [UInt8](repeating: 2, count: 200_000)
      source.send([1], large)
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 1)
      #expect(try client.events(1) == [[1]])
      #expect(try client.isSilent())
      client.send(.requestN(StreamID(1), 1))
      #expect(try client.events(1) == [large])
    }
  }

  @Test func aFinishedSourceReplaysItsValuesThenCompletesWithoutASecondSubscription() async throws {  // SEMANTICS 9, 13
    try await withServer { harness in
      let source = try harness.add("s") { $0.replay = 10 }
      source.send([1], [2])
      source.finish()
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 1)
      #expect(try client.events(1) == [[1]])
      #expect(try client.isSilent())
      client.send(.requestN(StreamID(1), 1))
      #expect(try client.events(1) == [[2]])
      #expect(
        try client.receive() == .payload(StreamID(1), Payload(), follows: false, isComplete: true, isNext: false))
      #expect(source.subscriptions == 1)
    }
  }

  @Test func completionNeedsNoCreditAfterTheLastEvent() async throws {  // RS 2.9
    try await withServer { harness in
      let source = try harness.add("s")
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 1, options: #"{"from": "new"}"#)
      #expect(try client.isSilent())
      source.send([1])
      #expect(try client.events(1) == [[1]])
      #expect(try client.isSilent())
      source.finish(.failure(StreamFailure("the feed is closed")))
      #expect(try client.receive() == .error(StreamID(1), .applicationError, "the feed is closed"))
    }
  }

  @Test func requestsOfAConnectionAreIndependent() async throws {
    try await withServer { harness in
      let one = try harness.add("one")
      let two = try harness.add("two")
      let client = try WireClient.ready(harness.path)
      client.subscribe("one", credit: 2, id: 1)
      client.subscribe("two", credit: 1, id: 3)
      harness.eventually { harness.server.statistics.subscribers == 2 }
      one.send([1])
      #expect(try client.events(1) == [[1]])
      two.send([2])
      #expect(try client.events(1) == [[2]])
      client.send(.cancel(StreamID(3)))
      harness.eventually { harness.server.statistics.subscribers == 1 }
      two.send([3])
      one.send([4])
      #expect(try client.events(1) == [[4]])
      #expect(try client.isSilent())
    }
  }
}
