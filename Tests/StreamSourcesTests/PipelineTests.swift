import Events
import Reactive
import TestSupport
import Testing

@testable import StreamSources

/// The operators on a source thread, with programs in separate processes.
@Suite(.timeLimit(.minutes(10))) struct PipelineTests {
  let reports = Shared<[PipelineReport]>([])

  private var errors: [String] {
    reports.withLock { $0.compactMap { if case .failedEvent(let sentence) = $0 { sentence } else { nil } } }
  }

  private func jq(
    _ source: ScriptedSource, _ program: String?, distinctBy: String? = nil, key: KeyDefinition? = nil,
    variables: [String: String] = [:], of template: String? = nil, timePerEvent: Duration = .seconds(60),
    executable: String? = nil, on thread: SourceThread
  ) throws -> AnyPublisher<EventBatch, Never> {
    let executable = try executable ?? ChildProcess.built("streamd")
    var transform = JQTransform(program: program, distinctBy: distinctBy)
    (transform.key, transform.variables, transform.template) = (key, variables, template)
    return source.jq(
      transform, name: "test", executable: executable, timePerEvent: timePerEvent, on: thread
    ) { [reports] report in reports.withLock { $0.append(report) } }
  }

  // MARK: jq

  @Test func anEventBecomesNoneOneOrMany() async throws {
    try await withSourceThread { thread in
      let source = ScriptedSource([["[1,2]", "[]"], ["[]"], ["[3]"]])
      let taker = Taker(.unlimited)
      try jq(source, ".[]", on: thread).subscribe(taker)
      #expect(await taker.next(9) == ["1|2", "3"])
      #expect(source.now.requested == 3)
    }
  }

  @Test func theProgramsOfAStreamHaveItsVariables() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      // A word of the language is a variable's name as long as no program uses it.
      let variables = ["city": "oslo", "day": "7", "if": "x"]
      try jq(
        ScriptedSource([["[\"rome\",\"oslo\"]"], ["[\"oslo\"]"]]), ".[] | select(. == $city) + $day",
        distinctBy: "$city + $day", variables: variables, on: thread
      ).subscribe(taker)
      #expect(await taker.next(3) == ["\"oslo7\""])
      #expect(errors == [])
    }
  }

  @Test func demandIsForwardedExactly() async throws {  // SEMANTICS 38
    try await withSourceThread { thread in
      let source = ScriptedSource()
      let taker = Taker(.none)
      try jq(source, "select(. > 0)", on: thread).subscribe(taker)
      try await source.until { $0.subscriptions == 1 }
      #expect(source.now.requested == .none)
      taker.request(.max(2))
      try await source.until { $0.requested == 1 }
      source.send("0")
      try await source.until { $0.requested == 2 }
      source.send("1")
      #expect(await taker.next(1) == ["1"])
      try await source.until { $0.requested == 3 }
      source.send("2")
      #expect(await taker.next(1) == ["2"])
      #expect(source.now.requested == 3)
      taker.cancel()
      try await source.until { $0.cancellations == 1 }
    }
  }

  @Test func retractedDemandIsRetractedUpstream() async throws {
    try await withSourceThread { thread in
      let source = ScriptedSource()
      let taker = Taker(.max(1))
      try jq(source, ".", on: thread).distinct().throttle(to: .milliseconds(1), on: thread).subscribe(taker)
      try await source.until { $0.requested == 1 }
      taker.retract()
      try await source.until { $0.retractions == 1 }
      taker.request(.max(1))
      try await source.until { $0.requested == 2 }
      source.send("1")
      #expect(await taker.next(1) == ["1"])
      taker.cancel()
    }
  }

  @Test func aFailedEventIsReportedAndDropped() async throws {
    try await withSourceThread { thread in
      let source = ScriptedSource([["1", "x", #"{"a":1}"#, "2 3", "4"], ["5"]])
      let taker = Taker(.unlimited)
      try jq(source, ". + 1", on: thread).subscribe(taker)
      #expect(await taker.next(9) == ["2|5", "6"])
      #expect(errors.count == 3)
      #expect(errors.last?.hasPrefix("more than one JSON text; split = \"json\"") == true)
    }
  }

  @Test func anEventThatEndsTheProcessDoesNotAffectOthers() async throws {
    try await withSourceThread { thread in
      // Exceeds the memory limit.
      let source = ScriptedSource([["1", "2", "3"], ["4"]])
      let taker = Taker(.unlimited)
      try jq(source, #"if . == 2 then reduce range(40) as $_ ("x"; . + .) else . end"#, on: thread).subscribe(taker)
      #expect(await taker.next(9) == ["1|3", "4"])
      #expect(errors.count == 1)
    }
  }

  @Test func noEventIsDroppedForMemoryThatEarlierOnesHaveLeaked() async throws {
    try await withSourceThread { thread in
      // jq 1.6 leaks the argument: 1.25 GiB, and 300 MiB at once for one event.
      let program = #"[range(.) | "y" | ltrimstr("x" * 1024 * 1024)] | length"#
      let counts = Array(repeating: "32", count: 40) + ["300", "1"]
      let taker = Taker(.unlimited)
      try jq(ScriptedSource([counts, ["2"]]), program, on: thread).subscribe(taker)
      #expect(await taker.next(9) == [counts.joined(separator: "|"), "2"])
      #expect(reports.withLock { $0.allSatisfy { $0 == .passing } })
    }
  }

  @Test func anEventOverTheTimeLimitIsDropped() async throws {
    try await withSourceThread { thread in
      let source = ScriptedSource([["1", "2", "3"], ["4"]])
      let taker = Taker(.unlimited)
      try jq(source, "if . == 2 then until(false; .) else . end", timePerEvent: .milliseconds(500), on: thread)
        .subscribe(taker)
      #expect(await taker.next(9) == ["1|3", "4"])
      #expect(errors == ["no result within 0.5 seconds of processor time"])
    }
  }

  @Test func hangingProgramsDoNotDelayOtherStreams() async throws {  // SEMANTICS 37
    try await withSourceThread { thread in
      let hanging = try (0..<3).map { _ in
        let taker = Taker(.unlimited)
        try jq(ScriptedSource([["1"], ["2"]]), "until(false; .)", on: thread).subscribe(taker)
        return taker
      }
      let source = ScriptedSource((0..<50).map { ["\($0)"] })
      let taker = Taker(.unlimited)
      try jq(source, ".", on: thread).throttle(to: .nanoseconds(1), on: thread).subscribe(taker)
      #expect(await taker.next(99).last == "49")
      #expect(hanging.allSatisfy { $0.count == 0 } && errors.isEmpty)
      hanging.forEach { $0.cancel() }
    }
  }

  // MARK: A process that streams of a template share

  /// The processes that streams of templates share.
  private func sharedCount(_ thread: SourceThread) async -> Int {
    await withCheckedContinuation { continuation in
      thread.loop.execute { continuation.resume(returning: thread.jqProcesses.count) }
    }
  }

  @Test func streamsOfATemplateShareAProcessAndHaveTheirOwnVariables() async throws {
    try await withSourceThread { thread in
      let program = ".[] | select(. == $city)"
      func subscribe(_ city: String, of template: String) throws -> (ScriptedSource, Taker) {
        let (source, taker) = (ScriptedSource(), Taker(.unlimited))
        try jq(source, program, variables: ["city": city], of: template, on: thread).subscribe(taker)
        return (source, taker)
      }
      let streams = try (0..<20).map { try subscribe("c\($0)", of: "t/{city}") }
      let other = try subscribe("x", of: "u/{city}")
      for round in 1...3 {
        for (number, (source, _)) in streams.enumerated() {
          try await source.until { $0.requested == .max(round) }
          source.send("[\(number - 1), \"c\(number)\", \"c\(number + 1)\"]")
        }
        for (number, (_, taker)) in streams.enumerated() { #expect(await taker.next(1) == ["\"c\(number)\""]) }
      }
      #expect(errors == [])
      #expect(await sharedCount(thread) == 2)
      for (_, taker) in streams + [other] { taker.cancel() }
    }
  }

  @Test func anEventThatEndsASharedProcessIsLostAlone() async throws {
    try await withSourceThread { thread in
      let program = "if . == \"bad\" then reduce range(40) as $_ (\"x\"; . + .) else . end"
      let takers = try (0..<4).map { number in
        let taker = Taker(.unlimited)
        let batches = (0..<30).map { ["\($0)", number == 2 && $0 == 5 ? "\"bad\"" : "-\($0)"] }
        try jq(ScriptedSource(batches), program, of: "t/{x}", on: thread).subscribe(taker)
        return taker
      }
      for (number, taker) in takers.enumerated() {
        let expected = (0..<30).map { number == 2 && $0 == 5 ? "\($0)" : "\($0)|-\($0)" }
        #expect(await taker.next(30) == expected)
      }
      #expect(errors.count == 1)
    }
  }

  @Test func anEventThatTakesLongDelaysNoOtherStreamOfTheTemplate() async throws {  // SEMANTICS 37
    try await withSourceThread { thread in
      let program = "if . == \"slow\" then until(false; .) else . end"
      let slow = Taker(.unlimited)
      try jq(ScriptedSource([["1"], ["\"slow\""]]), program, of: "t/{x}", on: thread).subscribe(slow)
      #expect(await slow.next(1) == ["1"])
      let takers = try (0..<4).map { _ in
        let taker = Taker(.unlimited)
        try jq(ScriptedSource((0..<50).map { ["\($0)"] }), program, of: "t/{x}", on: thread).subscribe(taker)
        return taker
      }
      for taker in takers { #expect(await taker.next(99).last == "49") }
      #expect(slow.count == 1 && errors.isEmpty)
      slow.cancel()
    }
  }

  @Test func aStreamThatLeavesASharedProcessDisturbsNone() async throws {
    try await withSourceThread { thread in
      let (staying, source) = (Taker(.unlimited), ScriptedSource())
      try jq(source, ".", of: "t/{x}", on: thread).subscribe(staying)
      for round in 0..<10 {
        let (leaving, other) = (Taker(.unlimited), ScriptedSource())
        try jq(other, ".", of: "t/{x}", on: thread).subscribe(leaving)
        try await other.until { $0.requested == 1 }
        other.send("0")
        leaving.cancel()
        try await source.until { $0.requested == .max(round + 1) }
        source.send("\(round)")
        #expect(await staying.next(1) == ["\(round)"])
      }
      #expect(await sharedCount(thread) == 1)
      staying.cancel()
      try await source.until { $0.cancellations == 1 }
      #expect(await sharedCount(thread) == 0)
    }
  }

  @Test func cancelStopsDeliveryAndEndsAHangingProgram() async throws {
    try await withSourceThread { thread in
      let source = ScriptedSource()
      let taker = Taker(.max(1))
      let events = try jq(source, "until(. == 2; .)", on: thread)
      events.subscribe(taker)
      try await source.until { $0.requested == 1 }
      source.send("1")
      taker.cancel()
      taker.cancel()
      try await source.until { $0.cancellations == 1 }
      source.send("2")
      taker.request(.max(1))
      let next = Taker(.max(1))
      events.subscribe(next)
      try await source.until { $0.subscriptions == 2 && $0.requested == 2 }
      source.send("2")
      #expect(await next.next(1) == ["2"])
      #expect(taker.count == 0 && errors.isEmpty)
      next.cancel()
    }
  }

  @Test func aSubscriberCanCancelInsideReceive() async throws {
    try await withSourceThread { thread in
      let source = ScriptedSource([["1"], ["2"]])
      let taker = Taker(.unlimited) { taker in
        taker.cancel()
        return .unlimited
      }
      try jq(source, ".", on: thread).subscribe(taker)
      #expect(await taker.next(1) == ["1"])
      try await source.until { $0.cancellations == 1 }
      #expect(taker.count == 1)
    }
  }

  @Test func largeEventsPassUnchanged() async throws {
    try await withSourceThread { thread in
      let source = ScriptedSource([["3000000", "1"]])
      let taker = Taker(.unlimited)
      try jq(source, #""x" * . | ., ."#, on: thread).subscribe(taker)
      let pieces = await taker.next(9)
      #expect(pieces.map(\.utf8.count) == [6_000_005, 7])
    }
  }

  @Test func aFailedStartIsReportedAndRetried() async throws {
    try await withSourceThread { thread in
      let cases = [
        ("/nonexistent", "posix_spawn /nonexistent: No such file or directory"),
        ("/bin/true", "jq exited with status 0"),
      ]
      for (executable, reason) in cases {
        let taker = Taker(.unlimited)
        try jq(ScriptedSource([["1"]]), ".", executable: executable, on: thread).subscribe(taker)
        func isReported(_ report: PipelineReport) -> Bool {
          guard case .process(.failing(let sentence, let attempt, _)) = report else { return false }
          return sentence == "jq cannot be started: \(reason)" && attempt > 1
        }
        while !reports.withLock({ $0.contains(where: isReported) }) { try await Task.sleep(for: .milliseconds(1)) }
        taker.cancel()
      }
    }
  }

  // MARK: keys

  @Test func eventsKeepTheirKeysThroughThePipeline() async throws {
    try await withSourceThread { thread in
      let source = ScriptedSource([[#"[{"k":1},{"k":1},{"k":2,"gone":1},{"x":0},{"k":3}]"#]])
      let keys = Shared<[String]>([])
      let key = KeyDefinition(key: ".k | tostring?", tombstone: ".gone == 1")
      let taker = Taker(.unlimited)
      try jq(source, ".[]", key: key, on: thread).distinct().map { batch in
        let found = batch.keys
        keys.withLock { keys in
          for index in batch.indices {
            let key = found?[index]
            keys.append(
              (key.map { String(decoding: $0.bytes, as: UTF8.self) } ?? "") + (key?.isTombstone == true ? "!" : ""))
          }
        }
        return batch
      }.eraseToAnyPublisher().subscribe(taker)
      _ = await taker.next(9)
      #expect(keys.withLock { $0 } == ["s1", "s2!", "snull", "s3"])
    }
  }

  // MARK: distinct

  @Test func anEventEqualToThePreviousOneIsDropped() async throws {
    let source = ScriptedSource([["1", "1", "2"], ["2"], ["2", "1"], ["1 "]])
    let taker = Taker(.unlimited)
    source.distinct().subscribe(taker)
    #expect(await taker.next(9) == ["1|2", "1", "1 "])
  }

  @Test func theComparedEventOutlivesASubscription() async throws {
    let source = ScriptedSource()
    let events = source.distinct()
    for (sent, expected) in [("1", "1"), ("1", nil), ("2", "2")] as [(String, String?)] {
      let taker = Taker(.unlimited)
      events.subscribe(taker)
      source.send(sent)
      if let expected { #expect(await taker.next(1) == [expected]) }
      taker.cancel()
      #expect(taker.count == (expected == nil ? 0 : 1))
    }
  }

  /// Where the log is: the checkpoint of the last batch that a subscriber has received.
  private final class Logged: Sendable {
    let checkpoint = Shared<Checkpoint?>(nil)

    var resumption: SourceResumption { SourceResumption { self.checkpoint.withLock { $0 } } }

    func recording(_ events: AnyPublisher<EventBatch, Never>) -> AnyPublisher<EventBatch, Never> {
      events.handleEvents(receiveOutput: { batch in self.checkpoint.withLock { $0 = batch.checkpoint ?? $0 } })
        .eraseToAnyPublisher()
    }
  }

  @Test func theComparedEventOutlivesAProcessAndIsThatOfTheLog() async throws {
    let logged = Logged()
    let source = try #require(Checkpoint([1, 2, 3]))
    // Nothing but its position is left of the last batch.
    for (sent, expected) in [(["1", "2"], "1|2"), (["2", "3"], "3"), (["3"], "")] {
      let taker = Taker(.unlimited)
      // Another process, or another host: nothing else is common.
      let checked = ScriptedSource([sent]).map { batch in
        var batch = batch
        batch.checkpoint = source
        return batch
      }.eraseToAnyPublisher()
      logged.recording(checked.distinct(resumption: logged.resumption)).subscribe(taker)
      #expect(await taker.next(1) == [expected])
      #expect(logged.resumption.checkpoint() == source)
    }
  }

  @Test func theComparedResultOutlivesAProcess() async throws {
    try await withSourceThread { thread in
      let logged = Logged()
      for (sent, expected) in [#"[{"a":1},{"a":2}]"#: 2, #"[{"a":2},{"a":3}]"#: 1].sorted(by: { $0.key < $1.key }) {
        let taker = Taker(.unlimited)
        let events = ScriptedSource([[sent]]).jq(
          JQTransform(program: ".[]", distinctBy: ".a"), name: "test", executable: try ChildProcess.built("streamd"),
          resumption: logged.resumption, on: thread
        ) { _ in }
        logged.recording(events).subscribe(taker)
        #expect(await taker.next(1).first?.split(separator: "|").count == expected)
      }
      #expect(logged.resumption.checkpoint() == nil && logged.resumption.key() != nil)
    }
  }

  @Test func aCheckpointWithoutAKeyIsTheSources() throws {
    let longest = [UInt8](repeating: 0, count: Checkpoint.maximumByteCount)
    for bytes in [[], [1], [0xDC], [UInt8](repeating: 0xDC, count: 8), longest] {
      let checkpoint = try #require(Checkpoint(bytes))
      #expect(PipelineCheckpoint(checkpoint) == PipelineCheckpoint(key: nil, source: checkpoint))
      // What has no room for both keeps the source's.
      let both = PipelineCheckpoint(key: BodyDigest(value: 7), source: checkpoint)
      let expected = bytes == longest ? PipelineCheckpoint(key: nil, source: checkpoint) : both
      #expect(PipelineCheckpoint(both.checkpoint) == (bytes.isEmpty ? .init(key: both.key, source: nil) : expected))
    }
  }

  @Test func eventsAreComparedByTheResultOfAProgram() async throws {
    try await withSourceThread { thread in
      let source = ScriptedSource([
        [#"{"id":1, "n":1}"#, #"{"id":1,"n":2}"#, #"{ "id":2 }"#], [#"{"id": 2}"#], ["[1]", "[1]", #"{"id":2,"n":3}"#],
      ])
      let taker = Taker(.unlimited)
      try jq(source, nil, distinctBy: ".id", on: thread).subscribe(taker)
      #expect(await taker.next(9) == [#"{"id":1, "n":1}|{ "id":2 }"#, #"[1]|[1]|{"id":2,"n":3}"#])
      #expect(errors.count == 2 && errors.allSatisfy { $0.hasPrefix("distinct: Cannot index array") })
    }
  }

  @Test func idsAbove2To53AreComparedAndPassedOnExactly() async throws {
    try await withSourceThread { thread in
      let events = (121...124).map { #"{"id":50000000014435\#($0)}"# }
      for (program, distinctBy) in [(nil, ".id"), ("select(.id > 1)", ".id"), (".", ".id"), ("select(true)", nil)] {
        let taker = Taker(.unlimited)
        try jq(ScriptedSource([events]), program, distinctBy: distinctBy, on: thread).subscribe(taker)
        #expect(await taker.next(9) == [events.joined(separator: "|")])
      }
      #expect(errors.isEmpty)
    }
  }

  @Test func theComparedResultOutlivesASubscription() async throws {
    try await withSourceThread { thread in
      let source = ScriptedSource()
      let events = try jq(source, ".[]", distinctBy: ".a", on: thread)
      for expected in [#"{"a":2}|{"a":1}|{"a":2,"b":0}"#, #"{"a":1}|{"a":2,"b":0}"#] {
        let taker = Taker(.max(1))
        let before = source.now.requested
        events.subscribe(taker)
        try await source.until { $0.requested > before }
        source.send(#"[{"a":2}]"#, #"[{"a":1},{"a":1,"b":1},{"a":2,"b":0}]"#)
        #expect(await taker.next(1) == [expected])
        taker.cancel()
      }
    }
  }

  // MARK: throttle

  @Test func theFirstAndTheNewestOfABurstPass() async throws {
    try await withSourceThread { thread in
      let source = ScriptedSource()
      let taker = Taker(.unlimited)
      source.throttle(to: .milliseconds(20), on: thread).subscribe(taker)
      try await source.until { $0.requested == 1 }
      source.send("1")
      #expect(await taker.next(1) == ["1"])
      source.send("2")
      source.send("3", "4")
      source.finish()
      #expect(await taker.next(9).last == "4")
    }
  }

  @Test func anIntervalIsKeptAcrossSubscriptions() async throws {
    try await withSourceThread { thread in
      let source = ScriptedSource()
      let events = source.throttle(to: .seconds(3600), on: thread)
      let first = Taker(.unlimited)
      events.subscribe(first)
      source.send("1")
      #expect(await first.next(1) == ["1"])
      first.cancel()
      let before = source.now.requested
      let second = Taker(.unlimited)
      events.subscribe(second)
      source.send("2")
      try await source.until { $0.requested > before + 1 }  // requests continue: the event is held
      #expect(second.count == 0)
      second.cancel()
    }
  }

  @Test func aHeldEventPassesBeforeItsSubscriptionEnds() async throws {
    try await withSourceThread { thread in
      let source = ScriptedSource()
      let taker = Taker(.unlimited)
      let hold = ThrottleHold()
      source.throttle(to: .seconds(3600), hold: hold, on: thread).subscribe(taker)
      try await source.until { $0.requested == 1 }
      source.send("1")
      #expect(await taker.next(1) == ["1"])
      source.send("2")
      try await source.until { $0.requested == 3 }  // 2 counts as taken
      await withCheckedContinuation { passed in thread.open([hold]) { passed.resume() } }
      #expect(taker.count == 2)
      source.send("3")
      #expect(await taker.next(2) == ["2", "3"])
      thread.close([hold])
      let before = source.now.requested
      source.send("4")
      try await source.until { $0.requested > before }
      #expect(taker.count == 3)
      taker.cancel()
    }
  }

  @Test func anIntervalContinuesAfterTheLastEventOfAnotherHost() async throws {
    try await withSourceThread { thread in
      for (elapsed, passes) in [(60, false), (3600, true), (-86400, false)] as [(Int, Bool)] {
        let source = ScriptedSource()
        let taker = Taker(.unlimited)
        source.throttle(to: .seconds(3600), sinceLast: { .seconds(elapsed) }, on: thread).subscribe(taker)
        try await source.until { $0.requested == 1 }
        source.send("1")
        try await source.until { $0.requested > 1 }
        #expect(taker.count == (passes ? 1 : 0))
        taker.cancel()
      }
    }
  }
}
