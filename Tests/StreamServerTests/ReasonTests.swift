import Reactive
import RSocket
import StreamProtocol
import Testing

@testable import StreamServer

/// What clients that know reasons get, and those of the last release.
@Suite struct ReasonTests {
  private static let announcing = Setup(
    maximumLifetime: .seconds(300), payload: Payload(data: FailureReason.announcement))

  /// Makes requests as a client of the last release and as one that knows reasons: the former gets the RSocket code, the
  /// latter the reason beside it, and the sentences are the same.
  private func expect(
    _ reason: FailureReason, from harness: ServerHarness, _ isInSentence: Bool = true,
    _ request: (WireClient) throws -> Void
  ) throws {
    var sentences: [String] = []
    for setup in [Setup(maximumLifetime: .seconds(300)), Self.announcing] {
      let client = try WireClient.ready(harness.path, setup)
      try request(client)
      guard case .error(let id, let code, let sentence)? = try client.receive() else {
        Issue.record("no error with the reason \(reason)")
        return
      }
      let isKnown = !sentences.isEmpty
      #expect(code == (isKnown ? ErrorCode(reason) : ErrorCode(reason).base), "\(id): \(sentence)")
      #expect(!isKnown || FailureReason(code: code.rawValue, sentence: sentence) == reason)
      if !isKnown, isInSentence {
        #expect(FailureReason(code: code.rawValue, sentence: sentence) == reason, "\(sentence)")
      }
      sentences.append(sentence)
    }
    #expect(sentences[0] == sentences[1])
  }

  @Test func requestsEndWithTheirReasons() async throws {
    try await withServer { harness in
      _ = try harness.add("s")
      _ = try harness.add("private") { $0.read = AccessRules([.user(4_000_000)]) }
      _ = try harness.addPublished("p") { $0.write = AccessRules([.user(4_000_000)]) }
      try expect(.noStream, from: harness) { $0.subscribe("none", credit: 1) }
      try expect(.noStream, from: harness) { $0.get("none") }
      try expect(.mayNotRead, from: harness) { $0.subscribe("private", credit: 1) }
      try expect(.mayNotWrite, from: harness) { $0.publish("p", [1]) }
      try expect(.takesNoValues, from: harness) { $0.publish("s", [1]) }
      try expect(.unknownPosition, from: harness) {
        $0.subscribe("s", credit: 1, options: #"{"from":99999999999999999}"#)
      }
      try expect(.invalidRequest, from: harness, false) { $0.subscribe("s", credit: 1, options: "{") }
      try expect(.noState, from: harness, false) { $0.subscribe("s", credit: 1, options: #"{"from":"state"}"#) }
      try expect(.notMapped, from: harness) { $0.get("s", options: #"{"map":true}"#) }
    }
  }

  @Test func theStopAndTheRestartHaveReasons() async throws {
    try await withServer { harness in
      _ = try harness.add("s")
      let client = try WireClient.ready(harness.path, Self.announcing)
      client.subscribe("s", credit: 1)
      harness.eventually { harness.server.statistics.subscribers == 1 }
      await harness.save().cancel(from: 0)
      #expect(try client.receive() == .error(StreamID(1), ErrorCode(.restarting), "streamd is restarting"))
      let code = ErrorCode(.restarting, over: .connectionClose)
      #expect(try client.receive() == .error(.connection, code, "streamd is restarting"))
    }
    let harness = try ServerHarness()
    let client = try WireClient.ready(harness.path, Self.announcing)
    client.subscribe("$streams", credit: 1)
    _ = try client.event()
    await harness.stop()
    #expect(try client.receive() == .error(StreamID(1), ErrorCode(.stopping), "streamd is stopping"))
  }

  @Test func aConnectionKnowsReasonsAlsoInTheNextProcess() async throws {
    try await withTwoServers { first, next in
      _ = try first.add("s")
      _ = try next.add("s")
      let client = try WireClient.ready(first.path, Self.announcing)
      client.subscribe("s", credit: 1)
      first.eventually { first.server.statistics.subscribers == 1 }
      try await first.handOver(to: next)
      client.subscribe("none", credit: 1, id: 3)
      #expect(try client.receive() == .error(StreamID(3), ErrorCode(.noStream), "no stream named \"none\""))
    }
  }

  @Test(arguments: [1, 7, 1000]) func aRefusedConnectionGetsTheReason(size: Int) {
    for (data, code) in [
      (FailureReason.announcement, ErrorCode(.tooManyConnections)), ([], .rejectedSetup),
      (Array("x".utf8), .rejectedSetup),
    ] {
      var bytes: [UInt8] = []
      Frame.setup(Setup(payload: Payload(data: data))).encode(into: &bytes)
      var machine = RefusalMachine("full", nil, date: "now")
      var answer: [UInt8]?
      var rest = bytes[...]
      while answer == nil, !rest.isEmpty {
        answer = machine.receive(rest.prefix(size))
        rest = rest.dropFirst(size)
      }
      var expected: [UInt8] = []
      Frame.error(.connection, code, "full").encode(into: &expected)
      #expect(answer == expected && rest.isEmpty)
    }
  }

  @Test func responsesHaveTheReasonAsAType() async throws {
    try await withServer { harness in
      _ = try harness.add("s")
      _ = try harness.add("private") { $0.read = AccessRules([.user(4_000_000)]) }
      for (path, status, type) in [
        ("/streams/none", 404, "urn:streamd:no-stream"), ("/streams/private", 403, "urn:streamd:may-not-read"),
        ("/nowhere", 404, "about:blank"),
      ] {
        let response = try HTTPWireClient(harness).fetch(path)
        #expect(response.status == status && response.text.hasPrefix(#"{"type":"\#(type)","#), "\(response.text)")
      }
      let response = try HTTPWireClient(harness).fetch("/streams/s?as=ndjson&from=99999999999999999")
      #expect(response.text.contains("urn:streamd:unknown-position"))
    }
  }
}
