import Events
import Glibc
import RSocket
import Reactive
import ReplayLog
import Testing

@testable import StreamServer

/// Changes of streams while clients publish to them.
@Suite struct ChangingPublishedTests {
  private func terms(_ change: (inout StreamConfiguration) -> Void = { _ in }) -> StreamConfiguration {
    var configuration = StreamConfiguration(name: "p", source: "publish", replay: 65536)
    change(&configuration)
    return configuration
  }

  private func feed(_ publishSource: PublishSource, _ change: @escaping @Sendable ([UInt8]) -> [UInt8] = { $0 })
    -> StreamChange.Feed
  {
    .init(
      source: publishSource.map { EventBatch($0.map(change)) }.setFailureType(to: StreamFailure.self),
      publishSource: publishSource)
  }

  private func grant(_ client: WireClient) throws -> Int {
    let frame = try client.receive()
    guard case .requestN(_, let count)? = frame else {
      Issue.record("expected credit, got \(String(describing: frame))")
      throw WireClient.Silence()
    }
    return Int(count)
  }

  @Test func aPublisherKeepsItsCreditWhenThePipelineIsReplaced() async throws {
    try await withServer { harness in
      let publishSource = try harness.addPublished("p")
      let publisher = try WireClient.ready(harness.path)
      publisher.publish("p", [0])
      let credit = try grant(publisher)
      let subscriber = try WireClient.ready(harness.path)
      subscriber.subscribe("p", credit: 0x7FFF_FFFF)
      #expect(try subscriber.events(1) == [[0]])
      #expect(
        harness.server.change([StreamChange(terms(), feed: feed(publishSource) { $0 + [9] })], removing: []).isEmpty)
      for _ in 0..<credit { publisher.value([1]) }
      #expect(try subscriber.events(credit) == Array(repeating: [1, 9], count: credit))
      #expect(try grant(publisher) > 0)
      let larger = terms { $0.limits = .init(events: 70_000) }
      let change = StreamChange(larger) { old in
        publisher.value([2])
        return EventLog(name: "p", limits: larger.limits, takingOver: old)!
      }
      #expect(harness.server.change([change], removing: []).isEmpty)
      publisher.complete()
      while case .requestN = try publisher.receive() {}
      #expect(try subscriber.events(1) == [[2, 9]])
      #expect(try subscriber.isSilent())
    }
  }

  @Test func aPublisherWhoseValuesMayBeLostIsCanceled() async throws {
    try await withServer { harness in
      func full(_ configuration: inout StreamConfiguration) {
        configuration.limits = .init(events: 4)
        configuration.overflow = .block(timeout: nil)
      }
      let publishSource = try harness.addPublished("p", full)
      let reader = try WireClient.ready(harness.path)
      reader.subscribe("p", credit: 1)
      harness.eventually { harness.server.statistics.subscribers == 1 }
      let publisher = try WireClient.ready(harness.path)
      publisher.publish("p", [0])
      let credit = try grant(publisher)
      #expect(try reader.events(1) == [[0]])
      for number in 1...credit { publisher.value([UInt8(number)]) }
      harness.eventually { harness.server.statistics.eventsIn == UInt64(credit) + 1 }
      _ = harness.server.change([StreamChange(terms(full), feed: feed(publishSource))], removing: [])
      var frame = try publisher.receive()
      while case .requestN = frame { frame = try publisher.receive() }
      #expect(
        frame == .error(StreamID(1), .canceled, #""p" was changed before it had stored all values"#))
      // A further publisher works as usual.
      reader.send(.requestN(StreamID(1), 0x7FFF_FFFF))
      publisher.publish("p", [99], isComplete: true, id: 3)
      while try reader.event().data != [99] {}
      #expect(
        try publisher.receive() == .payload(StreamID(3), Payload(), follows: false, isComplete: true, isNext: false))
    }
  }

  @Test func publishersAreCanceledAndSubscribersStayWhenASourceReplacesThem() async throws {
    try await withServer { harness in
      try harness.addPublished("p")
      let client = try WireClient.ready(harness.path)
      client.publish("p", [0])
      _ = try grant(client)
      client.subscribe("p", credit: 10, id: 3)
      #expect(try client.events(1) == [[0]])
      let source = HandFedSource()
      _ = harness.server.change([StreamChange(terms(), feed: .init(source: source))], removing: [])
      #expect(try client.receive() == .error(StreamID(1), .canceled, #""p" no longer accepts values"#))
      source.send([1])
      #expect(try client.events(1) == [[1]])
      client.publish("p", [2], id: 5)
      #expect(try client.receive() == .error(StreamID(5), .rejected, #""p" does not accept values"#))
      let publishSource = PublishSource()
      _ = harness.server.change([StreamChange(terms(), feed: feed(publishSource))], removing: [])
      #expect(source.cancellations == 1)
      client.publish("p", [3], isComplete: true, id: 7)
      #expect(
        try [client.receive(), client.receive()].contains(
          .payload(StreamID(7), Payload(), follows: false, isComplete: true, isNext: false)))
      #expect(harness.server.statistics.eventsIn == 3)
    }
  }

  @Test func publishersWithoutAccessAreRejected() async throws {
    try await withServer { harness in
      try harness.addPublished("p")
      let client = try WireClient.ready(harness.path)
      client.publish("p", [0])
      _ = try grant(client)
      _ = harness.server.change([StreamChange(terms { $0.write = AccessRules([.user(4_000_000)]) })], removing: [])
      #expect(
        try client.receive()
          == .error(
            StreamID(1), .rejected,
            #"uid \#(getuid()) may not write "p"; to admit it, add "uid:\#(getuid())" to its write"#))
      #expect(harness.server.statistics.publishers == 0)
    }
  }
}
