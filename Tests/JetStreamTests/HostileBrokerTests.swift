import Fleet
import Glibc
import StreamRuntime
import TestSupport
import Testing

@testable import JetStream

@Suite(.timeLimit(.minutes(10))) struct HostileBrokerTests {
  /// What a broker answers about the stream of the test.
  static let information = #"""
    {"config":{"subjects":["streamd.test.log.0.>"],"allow_direct":true,"retention":"limits","discard":"old",
    "num_replicas":1,"republish":{"src":"streamd.test.log.0.>","dest":"streamd.test.tail.0.>"}},
    "state":{"first_seq":1,"last_seq":5}}
    """#

  private func host(_ broker: FakeBroker, _ change: (inout JetStreamOptions) -> Void = { _ in }) throws -> FleetHost {
    var options = JetStreamOptions(servers: [broker.url], fleet: "test", shardCount: 1)
    options.replicaCount = 1
    options.pingInterval = .seconds(30)
    options.connectTimeout = .seconds(30)
    options.answerTimeout = .seconds(30)
    change(&options)
    return try FleetHost(options)
  }

  static let answers: [(headers: String?, text: String)] = [
    (nil, ""), (nil, "{"), (nil, "null"), (nil, "[]"), (nil, "{}"), (nil, "\u{0}"), (nil, "\"stream\""),
    (nil, String(repeating: "[", count: 100_000)), (nil, String(repeating: "{\"a\":", count: 600)),
    (nil, #"{"stream":"streamd-test-0"}"#), (nil, #"{"stream":"streamd-test-0","seq":6} x"#),
    (nil, #"{"stream":"streamd-test-0","seq":7}"#), (nil, #"{"stream":"streamd-test-0","seq":-6}"#),
    (nil, #"{"stream":"streamd-test-0","seq":6.0}"#), (nil, #"{"stream":"streamd-test-0","seq":6e0}"#),
    (nil, #"{"stream":"streamd-test-0","seq":"6"}"#), (nil, #"{"stream":"streamd-test-0","seq":06}"#),
    (nil, #"{"stream":"streamd-test-0","seq":18446744073709551616}"#),
    (nil, #"{"stream":"streamd-test-0","seq":99999999999999999999999999999999}"#),
    (nil, #"{"stream":"streamd-test-0","seq":6,"seq":6}"#), (nil, #"{"stream":"streamd-other-0","seq":6}"#),
    (nil, #"{"stream":"streamd-test-0\u0000","seq":6}"#), (nil, #"{"stream":"streamd-test-0\uD800","seq":6}"#),
    (nil, #"{"error":null,"stream":"streamd-test-0","seq":9}"#), (nil, #"{"error":{}}"#),
    (nil, #"{"error":{"err_code":10071}}"#), (nil, #"{"error":{"err_code":10071,"description":""}}"#),
    (nil, #"{"error":{"err_code":10071,"description":"wrong last sequence: "}}"#),
    (nil, #"{"error":{"err_code":10071,"description":"wrong last sequence: 99999999999999999999999"}}"#),
    (nil, #"{"error":{"err_code":10071,"description":"wrong last sequence: 18446744073709551615"}}"#),
    (nil, #"{"error":{"err_code":99999999999999999999,"description":"wrong last sequence: 4"}}"#),
    (nil, #"{"error":{"err_code":10077,"description":"maximum messages exceeded"}}"#),
    (nil, #"{"state":{"first_seq":1,"last_seq":18446744073709551615}}"#),
    (nil, #"{"state":{"first_seq":18446744073709551615,"last_seq":0}}"#),
    (nil, #"{"state":{"first_seq":7,"last_seq":5}}"#), (nil, #"{"state":[1]}"#),
    (nil, #"{"message":{"seq":18446744073709551615,"data":""}}"#), (nil, #"{"message":{"seq":0,"data":""}}"#),
    (nil, #"{"message":{"seq":5,"data":"*"}}"#), (nil, #"{"message":{"seq":5,"data":7}}"#),
    (nil, #"{"message":{"seq":5,"data":"QUJ"}}"#), (nil, #"{"message":{"seq":5,"data":"QR=="}}"#),
    ("NATS/1.0 503\r\n\r\n", ""), ("NATS/1.0 500\r\n\r\n", ""), ("NATS/1.0 408 Bad Request\r\n\r\n", ""),
    ("NATS/1.0 \r\n\r\n", ""), ("NATS/1.0 x\r\n\r\n", ""), ("NATS/1.0 99999999999999999999999\r\n\r\n", "x"),
    ("NATS/1.0\r\nStatus: -1\r\n\r\n", ""), ("NATS/1.0\r\nNats-Sequence: \r\n\r\n", "x"),
    ("NATS/1.0\r\nNats-Sequence: 0\r\n\r\n", "x"), ("NATS/1.0\r\nNats-Sequence: -1\r\n\r\n", "x"),
    ("NATS/1.0\r\nNats-Sequence: 6x\r\n\r\n", "x"), ("NATS/1.0\r\nNats-Sequence: 18446744073709551615\r\n\r\n", "x"),
    ("NATS/1.0\r\nNats-Sequence: \(String(repeating: "1", count: 30_000))\r\n\r\n", "x"),
    ("NATS/1.0\r\n: \r\n\r\n", "x"), ("NATS/1.0\r\nx\r\n\r\n", "x"), ("\r\n\r\n", ""), ("x", "x"), ("NATS/1.0", ""),
  ]

  @Test(arguments: answers.indices) func wrongAnswerIsAFailureOfThatCallOnly(index: Int) async throws {
    let isHostile = Locked(false)
    let (headers, text) = Self.answers[index]
    let broker = try FakeBroker { subject, _, _ in
      if isHostile.withLock({ $0 }) { return [.message(headers: headers, Array(text.utf8))] }
      if subject.hasPrefix("$JS.API.STREAM.INFO.") { return [.message(Array(Self.information.utf8))] }
      return [.message(Array(#"{"stream":"streamd-test-0","seq":6}"#.utf8))]
    }
    defer { broker.stop() }
    let host = try host(broker)
    #expect(await host.isConnected())
    isHostile.withLock { $0 = true }
    #expect(await host.append([1], after: 5) == .unknown)
    #expect(await host.findClaim() == nil)
    #expect(await host.newest() == nil)
    #expect(await host.read(after: 0) == nil)
    isHostile.withLock { $0 = false }
    #expect(await host.append([1], after: 5) == .stored)
    #expect(host.reports.connections == 1 && host.reports.reasons == [])
  }

  @Test func refusalContainsTheLastSequenceNumber() async throws {
    let broker = try FakeBroker { subject, _, _ in
      if subject.hasPrefix("$JS.API.STREAM.INFO.") { return [.message(Array(Self.information.utf8))] }
      return [.message(Array(#"{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 41"}}"#.utf8))]
    }
    defer { broker.stop() }
    let host = try host(broker)
    #expect(await host.isConnected())
    #expect(await host.append([1], after: 5) == .refused(last: 41))
  }

  @Test func shardWithoutALeaderDoesNotKeepTheOthersWaiting() async throws {
    let isLed = Locked(false)
    let broker = try FakeBroker { subject, _, _ in
      let shard = subject.hasSuffix("-1") || subject.contains(".1.") ? "1" : "0"
      guard shard == "0" || isLed.withLock({ $0 }) else { return [] }
      let information = Self.information.replacing(".0.", with: ".\(shard).")
      if subject.hasPrefix("$JS.API.STREAM.INFO.") { return [.message(Array(information.utf8))] }
      return [.message(Array("{\"stream\":\"streamd-test-\(shard)\",\"seq\":6}".utf8))]
    }
    defer { broker.stop() }
    let host = try host(broker) {
      $0.shardCount = 2
      $0.answerTimeout = .seconds(1)
    }
    #expect(await host.isConnected(), "\(host.reports.reasons)")
    #expect(await host.append([1], to: 1, after: 5) == .unknown)
    var isStored = false
    for _ in 0..<60 where !isStored { isStored = await host.append([1], to: 0, after: 5) == .stored }
    #expect(isStored)
    isLed.withLock { $0 = true }
    isStored = false
    for _ in 0..<60 where !isStored { isStored = await host.append([1], to: 1, after: 5) == .stored }
    #expect(isStored && host.reports.connections == 1 && host.reports.reasons == [])
  }

  @Test func missingAnswersAreUnknownAfterTheTimeout() async throws {
    let broker = try FakeBroker { subject, _, _ in
      subject.hasPrefix("$JS.API.STREAM.INFO.") ? [.message(Array(Self.information.utf8))] : []
    }
    defer { broker.stop() }
    let host = try host(broker) { $0.answerTimeout = .milliseconds(500) }
    #expect(await host.isConnected())
    #expect(await host.append([1], after: 5) == .unknown)
    #expect(await host.findClaim() == nil)
    #expect(await host.newest() == nil)
    #expect(await host.read(after: 0) == nil)
    #expect(host.reports.reasons == [])
  }

  /// The answers of a replica that is frozen without the others' notice, that lags, and that has lost entries.
  @Test(arguments: [nil, "NATS/1.0 404 Message Not Found\r\n\r\n", "NATS/1.0\r\nNats-Sequence: 5\r\n\r\n"])
  func leaderIsReadIfReplicasHaveNoAnswer(headers: String?) async throws {
    let broker = try FakeBroker { subject, _, content in
      if subject.hasPrefix("$JS.API.STREAM.INFO.") { return [.message(Array(Self.information.utf8))] }
      guard subject.hasPrefix("$JS.API.STREAM.MSG.GET.") else {
        return headers.map { [.message(headers: $0, [])] } ?? []
      }
      let question = String(decoding: content, as: UTF8.self)
      let sequence = (1...5).first { question.contains("\"seq\":\($0),") } ?? 3
      return [.message(Array(#"{"message":{"seq":\#(sequence),"data":"QUJD"}}"#.utf8))]
    }
    defer { broker.stop() }
    let host = try host(broker)
    #expect(await host.isConnected())
    let read = await host.read(after: 0)
    #expect(read?.entries.map(\.sequence) == Array(1...5) && read?.last == 5)
    #expect(read?.entries.allSatisfy { $0.bytes == [0x41, 0x42, 0x43] } == true)
    guard case .found(_, sequence: 3)? = await host.findClaim() else { return #expect(Bool(false)) }
  }

  @Test func messagesThatNothingHasAskedForAreIgnored() async throws {
    let inbox = Locked("")
    let broker = try FakeBroker { subject, _, _ in
      if subject.hasPrefix("$JS.API.STREAM.INFO.") { return [.message(Array(Self.information.utf8))] }
      let sequence = "NATS/1.0\r\nNats-Sequence: 6\r\n\r\n"
      let inbox = inbox.withLock { $0 }
      return ["0", "18446744073709551615", "99999999999999999999999", "x", "-1", "1"].map {
        .to(subject: inbox + $0, [1])
      } + [
        .to(subject: "streamd.test.tail.1.part", headers: sequence, [1]),
        .to(subject: "streamd.test.tail.x.part", headers: sequence, [2]),
        .to(subject: "streamd.test.tail.-1.part", headers: sequence, [3]),
        .to(subject: "streamd.test.tail.18446744073709551615.part", headers: sequence, [4]),
        .to(subject: "streamd.test.tail.0.part", [5]),
        .to(subject: "streamd.test.tail.0.part", headers: "NATS/1.0\r\nNats-Sequence: 0\r\n\r\n", [6]),
        .to(
          subject: "streamd.test.tail.0.part", headers: "NATS/1.0\r\nNats-Sequence: 4611686018427387904\r\n\r\n", [7]),
        .to(subject: "streamd.test.tail.0.part", headers: sequence, [8]),
        .message(Array(#"{"stream":"streamd-test-0","seq":6}"#.utf8)),
        .message(Array(#"{"stream":"streamd-test-0","seq":6}"#.utf8)),
      ]
    }
    defer { broker.stop() }
    let host = try host(broker)
    #expect(await host.isConnected())
    let names: String = await host.answer { engine, done in done(engine.names.inbox) }
    inbox.withLock { $0 = names }
    for _ in 0..<3 { #expect(await host.append([1], after: 5) == .stored) }
    #expect(await host.reaches { $0.tail.count >= 3 })
    #expect(host.reports.tail.allSatisfy { $0 == .init(shard: 0, sequence: 6, bytes: [8]) })
    #expect(host.reports.reasons == [])
  }

  @Test(arguments: [
    "MSG x\r\n", "MSG streamd 1 99999999999999999999\r\n", "MSG a 1 -1\r\n",
    "HMSG a 1 9 4\r\n",
    "HMSG a 1 99999 2\r\nxx\r\n",
    "\r\n\r\n\r\n", "\0\0\0\0", "-ERR 'x'\r\n", "-ERR 'Stale Connection'\r\n", "+OK\r\nPONG\r\nPONG\r\nPONG\r\nX",
    "INFO {\r\n", "INFO \(String(repeating: "x", count: 100_000))\r\n",
    "MSG \(String(repeating: "x", count: 5000)) 1 1\r\nx\r\n",
  ])
  func brokenProtocolCostsTheConnectionAtMost(text: String) async throws {
    let isHostile = Locked(true)
    let broker = try FakeBroker { subject, _, _ in
      if subject.hasPrefix("$JS.API.STREAM.INFO.") { return [.message(Array(Self.information.utf8))] }
      let answer = FakeBroker.Answer.message(Array(#"{"stream":"streamd-test-0","seq":6}"#.utf8))
      let wasHostile = isHostile.withLock { isHostile in
        defer { isHostile = false }
        return isHostile
      }
      return wasHostile ? [.raw(Array(text.utf8)), answer, .close] : [answer]
    }
    defer { broker.stop() }
    let host = try host(broker) { $0.answerTimeout = .seconds(5) }
    #expect(await host.isConnected())
    _ = await host.append([1], after: 5)
    #expect(await host.reaches { !$0.reasons.isEmpty })
    #expect(await host.isConnected(times: 2))
    #expect(await host.append([1], after: 5) == .stored)
    let visible = host.reports.reasons.allSatisfy { $0.utf8.count < 300 && $0.utf8.allSatisfy { 0x20..<0x7F ~= $0 } }
    #expect(visible, "\(host.reports.reasons)")
  }

  static let announcements: [(text: String, reason: String)] = [
    ("MSG a 1 2147483647\r\n", "the server announces a message of 2147483647 bytes: at most 2097152 are accepted"),
    ("MSG a 1 1073741824\r\nx", "the server announces a message of 1073741824 bytes: at most 2097152 are accepted"),
    ("HMSG a 1 b 12 2097153\r\n", "the server announces a message of 2097153 bytes: at most 2097152 are accepted"),
    (
      "MSG a 1 18446744073709551616\r\n",
      "the server breaks NATS's protocol: the announcement of a message is malformed"
    ),
    ("MSG a 1 -1\r\n", "the server breaks NATS's protocol: the announcement of a message is malformed"),
    (
      "HMSG a 1 9 4\r\n",
      "the server breaks NATS's protocol: a message is announced with headers that are larger than the message"
    ),
    ("MSG a 1 1\r\nxyz", "the server breaks NATS's protocol: a message does not end where its announced size ends"),
  ]

  @Test(arguments: announcements.indices) func impossibleMessageCostsTheConnectionWithOneSentence(
    index: Int
  ) async throws {
    let (text, reason) = Self.announcements[index]
    let isHostile = Locked(true)
    let broker = try FakeBroker { subject, _, _ in
      if subject.hasPrefix("$JS.API.STREAM.INFO.") { return [.message(Array(Self.information.utf8))] }
      if isHostile.withLock({ $0 }) { return [.raw(Array(text.utf8))] }
      return [.message(Array(#"{"stream":"streamd-test-0","seq":6}"#.utf8))]
    }
    defer { broker.stop() }
    let host = try host(broker)
    #expect(await host.isConnected())
    #expect(await host.append([1], after: 5) == .unknown)
    isHostile.withLock { $0 = false }
    #expect(await host.isConnected(times: 2))
    #expect(host.reports.reasons == ["the connection to NATS was lost: \(reason)"])
    #expect(await host.append([1], after: 5) == .stored)
  }

  static let greetings: [(greeting: FakeBroker.Greeting, reason: String)] = [
    (.init(text: "INFO {\r\n"), "the server breaks NATS's protocol: INFO is no JSON object"),
    (.init(text: "INFO []\r\n"), "the server breaks NATS's protocol: INFO is no JSON object"),
    (.init(text: "INFO {\"headers\":\"\u{0}\"}\r\n"), "the server breaks NATS's protocol: INFO is no JSON object"),
    (.init(text: "INFO {}\r\n"), "the server does not support headers"),
    (
      .init(text: "HTTP/1.1 400 Bad Request\r\n\r\n"),
      "the server breaks NATS's protocol: a line is not part of the protocol"
    ),
    (.init(text: "PING\r\n"), "the server breaks NATS's protocol: it does not begin with INFO"),
    (.init(text: "-ERR 'Too \u{1B}[1mmany'\r\n"), "Too ?[1mmany"),
    (.init(text: "", isAll: true), "the server has closed the connection"),
    (.init(text: "INFO {\"headers\":true}\r\n", isAll: true), "the server has closed the connection"),
    (
      .init(text: "INFO {\"headers\":true,\"tls_required\":true}\r\n", isAll: true),
      "the server has closed the connection"
    ),
    (
      .init(text: "INFO {\"headers\":true,\"tls_required\":true}\r\nPING\r\n"),
      "the server breaks NATS's protocol: it sends more before TLS begins"
    ),
    (
      .init(text: "INFO \(String(repeating: "x", count: 70_000))\r\n"),
      "the server breaks NATS's protocol: a line has more than 65536 bytes"
    ),
    (
      .init(text: String(repeating: "x", count: 9000)),
      "the server breaks NATS's protocol: a line has more than 8192 bytes"
    ),
  ]

  @Test(arguments: greetings.indices) func hostileGreetingIsReportedInOneSentence(index: Int) async throws {
    let (greeting, reason) = Self.greetings[index]
    let broker = try FakeBroker(greeting: greeting) { _, _, _ in [] }
    defer { broker.stop() }
    let host = try host(broker)
    #expect(await host.reaches { !$0.reasons.isEmpty })
    #expect(host.reports.reasons.first == "cannot connect to NATS: \(reason)")
    #expect(host.reports.connections == 0)
  }

  @Test func brokerThatSendsByteByByteIsUnderstood() async throws {
    let broker = try FakeBroker(greeting: .init(isSlow: true)) { subject, _, _ in
      if subject.hasPrefix("$JS.API.STREAM.INFO.") { return [.message(Array(Self.information.utf8))] }
      return [.message(headers: "NATS/1.0\r\na: b\r\n\r\n", Array(#"{"stream":"streamd-test-0","seq":6}"#.utf8))]
    }
    defer { broker.stop() }
    let host = try host(broker)
    #expect(await host.isConnected(), "\(host.reports.reasons)")
    #expect(await host.append([1], after: 5) == .stored)
  }

  @Test func brokerThatSaysNothingIsNotWaitedForLong() async throws {
    let broker = try FakeBroker(greeting: .init(text: "")) { _, _, _ in [] }
    defer { broker.stop() }
    let host = try host(broker) { $0.connectTimeout = .milliseconds(100) }
    #expect(await host.reaches { !$0.reasons.isEmpty })
    #expect(host.reports.reasons.first == "cannot connect to NATS: the server does not answer in time")
  }

  /// In a process of its own, whose memory no other test takes.
  @Test func hostileBrokersTakeNoMemory() async throws {
    await #expect(processExitsWith: .success) {
      let kind = Locked(0)
      let broker = try FakeBroker { subject, _, _ in
        if subject.hasPrefix("$JS.API.STREAM.INFO.") { return [.message(Array(Self.information.utf8))] }
        let piece = [UInt8](repeating: UInt8(ascii: "x"), count: 1 << 20)
        let number = kind.withLock { kind in
          kind += 1
          return kind
        }
        switch number % 6 {
        case 0: return [.endless(piece)]
        case 1: return [.raw(Array("INFO ".utf8)), .endless(piece)]
        case 2: return [.raw(Array("MSG a 1 1073741824\r\n".utf8)), .endless(piece)]
        case 3: return [.raw(Array("HMSG a 1 2097152 2097152\r\n".utf8)), .endless(piece)]
        case 4: return [.endless(Array(repeating: Array("PING\r\n".utf8), count: 10_000).flatMap(\.self))]
        case _: return [.endless(Array(repeating: Array("MSG a 9 1\r\nx\r\n".utf8), count: 10_000).flatMap(\.self))]
        }
      }
      defer { broker.stop() }
      var options = JetStreamOptions(servers: [broker.url], fleet: "test", shardCount: 1)
      (options.replicaCount, options.answerTimeout) = (1, .milliseconds(300))
      (options.connectTimeout, options.pingInterval) = (.seconds(30), .milliseconds(300))
      let host = try FleetHost(options)
      try #require(await host.isConnected())
      let before = residentByteCount()
      for count in 1...6 {
        #expect(await host.isConnected(times: count))
        _ = await host.append([1], after: 5)
        #expect(await host.reaches { $0.reasons.count >= count })
      }
      #expect(residentByteCount() < before + 128 << 20, "\(residentByteCount()) after \(before)")
    }
  }

  @Test func messagesThatArriveTooFastAreDroppedAndReportedOnce() async throws {
    let broker = try FakeBroker { subject, _, _ in
      if subject.hasPrefix("$JS.API.STREAM.INFO.") { return [.message(Array(Self.information.utf8))] }
      let stored = FakeBroker.Answer.message(Array(#"{"stream":"streamd-test-0","seq":6}"#.utf8))
      guard subject.hasSuffix(".claim") else { return [stored] }
      let entry = FakeBroker.Answer.to(
        subject: "streamd.test.tail.0.part", headers: "NATS/1.0\r\nNats-Sequence: 6\r\n\r\n",
        [UInt8](repeating: 1, count: 1 << 20))
      return Array(repeating: entry, count: 200) + [stored]
    }
    defer { broker.stop() }
    let host = try host(broker)
    #expect(await host.isConnected())
    let isBlocked = Locked(true)
    host.publish([1], to: "streamd.test.log.0.claim", reply: "streamd.test.answer.0.0")
    host.block { isBlocked.withLock { $0 } }
    // The client receives all, and keeps 64 MiB.
    #expect(try await eventually { broker.answeredCount >= 2 })
    isBlocked.withLock { $0 = false }
    #expect(await host.reaches { $0.drops == 1 })
    #expect(await host.append([1], after: 5) == .stored)
    #expect(host.reports.tail.count < 200 && host.reports.drops == 1 && host.reports.reasons == [])
  }

  @Test func repeatedPasswordIsNotReported() async throws {
    let broker = try FakeBroker(refusal: "Authorization Violation for hunter22") { _, _, _ in [] }
    defer { broker.stop() }
    let host = try host(broker) { $0.credentials = .password(user: "me", password: "hunter22") }
    #expect(await host.reaches { !$0.reasons.isEmpty })
    #expect(host.reports.reasons.first == "cannot connect to NATS: rejected")
  }
}

/// The largest amount of memory that this process has had.
private func residentByteCount() -> Int {
  var usage = rusage()
  getrusage(CInt(RUSAGE_SELF.rawValue), &usage)
  return usage.ru_maxrss << 10
}
