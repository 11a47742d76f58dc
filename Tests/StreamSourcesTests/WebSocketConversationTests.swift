import Events
import Reactive
import TestSupport
import Testing

@testable import StreamSources

/// Sources that answer what a service asks, and services that insist on it.
@Suite(.timeLimit(.minutes(10))) struct WebSocketConversationTests {
  typealias Verdict = WebSocketConversation.Verdict

  let upstream: Upstream
  let key = uniqueKey()
  let reports = Shared<[SourceReport]>([])

  init() throws { upstream = try Upstream.shared.get() }

  private var sentences: [String] {
    reports.withLock { $0.compactMap { if case .failing(let sentence, _, _) = $0 { sentence } else { nil } } }
  }

  private func source(
    _ service: String, on thread: SourceThread, _ change: (inout WebSocketConfiguration) -> Void
  ) throws -> Source<WebSocketSource> {
    let url = upstream.url("/websocket/\(key)?service=\(service)")
    var configuration = WebSocketConfiguration(
      HTTPConfiguration(
        url: url, maximumBodyBytes: 100_000, retry: Backoff(first: .milliseconds(1), max: .milliseconds(2))))
    change(&configuration)
    let executable = try ChildProcess.built("streamd")
    return WebSocketSource(configuration).source(
      on: thread, report: { [reports] report in reports.withLock { $0.append(report) } }
    ) { $0.executable = executable }
  }

  /// The first failure of a source.
  private func failure(_ service: String, _ change: @Sendable (inout WebSocketConfiguration) -> Void) async throws
    -> String?
  {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      try source(service, on: thread, change).subscribe(taker)
      // On a busy machine the handshake may take longer than the time for an answer: the next attempt comes.
      let isSought = { (sentence: String) in !sentence.hasPrefix("no response from ") }
      guard try await eventually({ sentences.contains(where: isSought) }) else { throw SourceFailure("hangs") }
      taker.cancel()
      return sentences.first(where: isSought)
    }
  }

  /// A service, the configuration for it, and an event of the second connection.
  static let services: [(String, @Sendable (inout WebSocketConfiguration) -> Void, String)] = [
    (
      "graphql",
      {
        $0.messages = [
          #"{"type":"connection_init","payload":{"token":"t"}}"#,
          .init(
            #"{"id":"1","type":"subscribe","payload":{"query":"subscription { x }"}}"#,
            after: ".type == \"connection_ack\" # or not"),
        ]
        $0.answers = [.init(to: ".type == \"ping\"", with: "{type: \"pong\"}")]
      }, #""x": 2, "init": {"token": "t"}"#
    ),
    (
      "htx",
      {
        $0.messages = [#"{"sub":"market.btcusdt.trade.detail"}"#]
        ($0.decode, $0.answers) = (.gzip, [.init(to: ".ping", with: "{pong: .ping}")])
      }, #""tick": 2"#
    ),
    (
      "deribit",
      {
        $0.messages = [#"{"id":1,"method":"public/set_heartbeat"}"#, #"{"id":2,"method":"public/subscribe"}"#]
        $0.answers = [
          .init(
            to: ".method == \"heartbeat\" and .params.type == \"test_request\"",
            with: "{jsonrpc: \"2.0\", id: 8212, method: \"public/test\", params: {}}"),
          .init(to: ".method == \"heartbeat\"", with: "empty"),
        ]
      }, #""data": 2"#
    ),
    (
      "crypto",
      {
        $0.messages = [#"{"method":"subscribe"}"#]
        $0.answers = [
          .init(to: ".method == \"public/heartbeat\"", with: "{id, method: \"public/respond-heartbeat\"}")
        ]
      }, #""data": [2]"#
    ),
    (
      "okx",
      {
        ($0.messages, $0.ignored) = ([#"{"op":"subscribe"}"#], ["pong"])
        $0.heartbeat = ("ping", .milliseconds(5))
      }, #""data": [2]"#
    ),
    (
      "signalr",
      {
        $0.messages = [
          "{\"protocol\":\"json\",\"version\":1}\u{1e}",
          .init(
            "{\"type\":4,\"invocationId\":\"1\",\"target\":\"Stream\",\"arguments\":[]}\u{1e}",
            after: #". == "{}\u001e""#),
        ]
        $0.answers = [.init(to: #". == "{\"type\":6}\u001e""#, with: ".")]
      }, #""item":2}"#
    ),
  ]

  /// A connection that ends begins the conversation anew.
  @Test(arguments: services.indices) func eachServiceGetsWhatItAsksFor(index: Int) async throws {
    let (service, change, event) = Self.services[index]
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      try source(service, on: thread, change).subscribe(taker)
      var events: [String] = []
      while !events.contains(where: { $0.contains(event) }) {
        events += await taker.next(1)[0].split(separator: "|").map(String.init)
      }
      taker.cancel()
      for part in ["ping", "pong", "heartbeat", "type\":6"] { #expect(!events.joined().contains(part), "\(events)") }
      #expect(sentences.isEmpty, "\(sentences)")
    }
  }

  @Test func eachEventUsesDemandAndWaitsForIt() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.max(1))
      try source("graphql", on: thread, Self.services[0].1).subscribe(taker)
      #expect(await taker.next(1) == [#"{"type": "connection_ack"}"#])
      taker.request(.max(1))
      #expect(await taker.next(1)[0].contains(#""type": "next""#))
      #expect(taker.count == 2)
      taker.cancel()
      #expect(sentences.isEmpty)
    }
  }

  @Test func anOpeningThatIsNotAnsweredIsAFailureThatNamesWhatDidNotCome() async throws {
    let sentence = try await failure("mute") {
      $0.messages = ["a", .init("b", after: ".type == \"connection_ack\""), .init("c", after: ".x")]
      $0.request.timeout = .milliseconds(300)
    }
    #expect(
      sentence
        == "no message that fits after = '.type == \"connection_ack\"' within 300 ms: the rest of send was not sent")
  }

  @Test func answersAreBounded() async throws {
    let sentence = try await failure("greedy") { $0.answers = [.init(to: ".ping", with: "{pong: .ping}")] }
    #expect(sentence == "the upstream asks for more answers than 20 at once and 10 in a second")
    reports.withLock { $0 = [] }
    let long = try await failure("greedy") { $0.answers = [.init(to: ".ping", with: "[range(9999)]")] }
    #expect(long == "the answer to a message is over 4 KiB")
    reports.withLock { $0 = [] }
    let faulty = try await failure("greedy") { $0.answers = [.init(to: ".ping", with: ".ping.x")] }
    #expect(faulty?.hasPrefix("the program of an answer fails: Cannot index number with") == true, "\(faulty ?? "")")
    reports.withLock { $0 = [] }
    let wrong = try await failure("greedy") { $0.answers = [.init(to: "def f: 1;", with: ".")] }
    #expect(wrong?.hasPrefix("the programs of send and answer: syntax error") == true, "\(wrong ?? "")")
  }

  @Test func aProcessThatCannotBeStartedOrEndsIsAFailure() async throws {
    for (executable, sentence) in [
      ("/nonexistent", "jq cannot be started: "), ("/bin/true", "the programs of send and answer: "),
    ] {
      try await withSourceThread { thread in
        let url = upstream.url("/websocket/\(uniqueKey())?texts=a")
        var configuration = WebSocketConfiguration(HTTPConfiguration(url: url))
        configuration.answers = [.init(to: ".ping", with: ".")]
        let taker = Taker(.unlimited)
        WebSocketSource(configuration).source(
          on: thread, report: { [reports] report in reports.withLock { $0.append(report) } }
        ) { $0.executable = executable }.subscribe(taker)
        guard try await eventually({ sentences.contains { $0.hasPrefix(sentence) } }) else {
          throw SourceFailure("\(sentences)")
        }
        taker.cancel()
      }
    }
  }

  // MARK: Without a socket

  private func conversation(
    _ change: (inout WebSocketConfiguration) -> Void
  ) -> WebSocketConversation {
    var configuration = WebSocketConfiguration(HTTPConfiguration(url: "ws://h/", timeout: .seconds(5)))
    change(&configuration)
    return WebSocketConversation(configuration)
  }

  private func texts(_ bytes: [[UInt8]]) -> [String] { bytes.map { String(decoding: $0, as: UTF8.self) } }

  @Test func eachTextWaitsForItsMessageAndThoseBefore() throws {
    var conversation = conversation {
      $0.messages = ["a", "b", .init("c", after: "1"), "d", .init("e", after: "2"), .init("f", after: "3")]
    }
    #expect(texts(conversation.begin(at: .zero)) == ["a", "b"] && conversation.due == .seconds(5))
    let steps: [([Bool], [String])] = [
      ([false, true, true], []), ([true, true, true], ["c", "d"]), ([true, false, true], []), ([], []),
      ([false, true, false], ["e"]), ([false, false, true], ["f"]), ([true, true, true], []),
    ]
    for (second, (fitting, sent)) in zip(1..., steps) {
      #expect(conversation.needsVerdicts == (second < 7))
      #expect(texts(try conversation.hear(Verdict(fitting: fitting), at: .seconds(second))) == sent)
    }
    #expect(conversation.isOpened && conversation.due == nil)
  }

  @Test func answersAreLimitedInTime() throws {
    var conversation = conversation { $0.answers = [.init(to: ".", with: ".")] }
    #expect(conversation.begin(at: .zero).isEmpty && conversation.isOpened && conversation.needsVerdicts)
    let verdict = Verdict(isAnswered: true, answer: [0x61])
    for _ in 0..<20 { _ = try conversation.hear(verdict, at: .seconds(9)) }
    #expect(throws: SourceFailure.self) { try conversation.hear(verdict, at: .seconds(9)) }
    for tenth in 0..<100 { _ = try conversation.hear(verdict, at: .seconds(20) + .milliseconds(100 * tenth)) }
  }

  @Test func aVerdictIsWhatTheProgramSays() throws {
    func verdict(_ outputs: [String], failure: String? = nil) throws -> Verdict {
      try Verdict(JQAnswer(outputs: outputs.map { .init(event: Array($0.utf8)) }, failure: failure))
    }
    #expect(try verdict(["[true,false,false]"]) == Verdict(fitting: [true, false]))
    #expect(try verdict(["[true]", #"["a\"\u001e"]"#]) == Verdict(isAnswered: true, answer: Array("a\"\u{1e}".utf8)))
    #expect(try verdict(["[true]", #"[{"a":[1]}]"#]) == Verdict(isAnswered: true, answer: Array(#"{"a":[1]}"#.utf8)))
    #expect(try verdict(["[true]", "[]"]) == Verdict(isAnswered: true))
    for outputs in [[], [""], ["["], ["[true]", "["], ["[true]", "x"], ["[true]", "[1", "2]"]] {
      #expect(try verdict(outputs).answer == nil, "\(outputs)")
    }
    #expect(try verdict(["[true]", "[1]"], failure: "too deep") == Verdict())
    #expect(throws: SourceFailure("the program of an answer fails: bad")) {
      try verdict(["[true]", #"{"error":"bad"}"#])
    }
    #expect(throws: SourceFailure.self) { try verdict(["[true]", "{}"]) }
  }

  @Test func aMessageThatIsNotJSONIsAStringToTheProgram() {
    func question(_ message: [UInt8]) -> String {
      String(decoding: WebSocketConversation.question(on: message), as: UTF8.self)
    }
    #expect(question(Array(#"{"a": 1}"#.utf8)) == #"{"a": 1}"#)
    #expect(question(Array("ping\n".utf8)) == #""ping\n""#)
    #expect(question([0xff]) == "null")
    #expect(question(Array(repeating: 0x31, count: 70_000)) == "null")
  }
}
