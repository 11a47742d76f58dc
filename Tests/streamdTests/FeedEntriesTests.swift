import StreamServer
import StreamSources
import Systemd
import Testing

@testable import streamd

/// What the journal has of a stream's source and pipeline, on a clock that the tests move.
@Suite struct FeedEntriesTests {
  /// The entries of one stream, of priority info and more urgent, with the seconds at which they are written.
  private struct Log {
    private var entries = FeedEntries(of: "quotes")
    private(set) var now = Duration.zero
    private(set) var lines: [String] = []
    private(set) var detailCount = 0

    mutating func take(_ report: SourceReport) { note(entries.take(report, at: now)) }
    mutating func take(_ report: PipelineReport) { note(entries.take(report, at: now)) }

    mutating func fail(_ reason: String, attempt: Int = 1) {
      take(.failing(reason, attempt: attempt, retryIn: .seconds(1)))
    }

    /// Waits, and writes what is due meanwhile.
    mutating func wait(_ time: Duration) {
      let end = now + time
      while let due = entries.due, due <= end {
        now = max(now, due)
        note(entries.passed(at: now))
      }
      now = end
    }

    private mutating func note(_ entries: [Journal.Entry]) {
      for entry in entries {
        #expect(entry.fields == [.stream("quotes")])
        if entry.priority == .debug {
          detailCount += 1
        } else {
          lines.append("\(Int((now / .seconds(1)).rounded())): \(entry.message)")
        }
      }
    }
  }

  @Test func aFailureHasAnEntryAtItsBeginningAndOneAtItsEnd() {
    var log = Log()
    for attempt in 1...50 {
      log.fail("HTTP 503", attempt: attempt)
      log.wait(.seconds(10))
    }
    log.take(.recovered(afterFailures: 50))
    log.wait(.seconds(1000))
    #expect(
      log.lines == ["0: source failing: HTTP 503; next try in 1 s", "500: source recovered after 50 failures"])
    #expect(log.detailCount == 49)
  }

  @Test func whatASourceHasDroppedOrLostHasEntriesUntilItPasses() {
    var log = Log()
    log.take(.lost("an entry over 64 KiB was left out (max_body)", count: 1))
    log.take(.lost("an entry over 64 KiB was left out (max_body)", count: 1))
    log.take(.missed(.unknown, of: "the journal"))
    log.wait(.seconds(1))
    log.take(.complete)
    log.take(.current)
    log.wait(.seconds(1000))
    #expect(
      log.lines == [
        "0: event failed: an entry over 64 KiB was left out (max_body)",
        "0: events missed: an unknown number of events of the journal, not read in time",
        "1: events no longer fail, after 2 failures", "1: misses no event any more; it had missed some once",
      ])
  }

  @Test func failuresThatAreFarApartHaveEntriesOfTheirOwn() {
    var log = Log()
    for _ in 0..<2 {
      log.fail("reset")
      log.wait(.seconds(1))
      log.take(.recovered(afterFailures: 1))
      log.wait(.seconds(60))
    }
    #expect(
      log.lines == [
        "0: source failing: reset; next try in 1 s", "1: source recovered after 1 failure",
        "61: source failing: reset; next try in 1 s", "62: source recovered after 1 failure",
      ])
  }

  @Test func aSourceThatFlapsHasOneEntryInAMinuteWithTheNumberOfFailures() {
    var log = Log()
    for number in 0..<40 {  // cut off every 5 s
      log.fail("cut \(number)")
      log.wait(.seconds(1))
      log.take(.recovered(afterFailures: 1))
      log.wait(.seconds(4))
    }
    log.wait(.seconds(1000))
    #expect(
      log.lines == [
        "0: source failing: cut 0; next try in 1 s", "1: source recovered after 1 failure",
        "61: source failed 12 times in the last minute, last: cut 12",
        "121: source failed 12 times in the last minute, last: cut 24",
        "181: source failed 12 times in the last minute, last: cut 36",
        "241: source failed 3 times in the last minute, last: cut 39", "301: source recovered after 39 failures",
      ])
  }

  @Test func aSourceThatFailsForLongAfterFlappingIsReportedUntilItRecovers() {
    var log = Log()
    for _ in 0..<2 {
      log.fail("cut")
      log.wait(.seconds(1))
      log.take(.recovered(afterFailures: 1))
      log.wait(.seconds(1))
    }
    log.fail("refused")
    log.wait(.seconds(10_000))
    log.take(.recovered(afterFailures: 1))
    #expect(
      log.lines == [
        "0: source failing: cut; next try in 1 s", "1: source recovered after 1 failure",
        "61: source failed 2 times in the last minute, last: refused", "10004: source recovered after 2 failures",
      ])
  }

  /// However a source fails, recovers and waits, the journal says at the end what it does, and has at most one entry in a
  /// minute after those of the first failure and recovery.
  @Test(arguments: 0..<200) func theJournalIsBoundedAndEndsWithTheTruth(seed: UInt64) {
    var random = SeededGenerator(state: seed)
    var log = Log()
    var isFailing = false
    for _ in 0..<200 {
      if Int.random(in: 0..<10, using: &random) < 6 {
        log.fail("x")
        isFailing = true
      } else {
        log.take(.recovered(afterFailures: 1))
        isFailing = false
      }
      let isLong = Int.random(in: 0..<10, using: &random) == 0
      log.wait(.milliseconds(Int.random(in: 0...(isLong ? 100_000 : 5000), using: &random)))
    }
    let minutes = Int(log.now / .seconds(60)) + 1
    #expect(log.lines.count <= 2 * minutes)
    log.wait(.seconds(1000))
    #expect(log.lines.last?.contains("recovered") == !isFailing)
  }

  @Test func aWaitHasAnEntryAtItsBeginningAndOneAtItsEnd() {
    var log = Log()
    log.take(.waiting("rate-limited"))
    log.wait(.seconds(2))
    log.take(.recovered(afterFailures: 0))
    log.wait(.seconds(100))
    log.take(.waiting("rate-limited"))
    log.fail("HTTP 429")
    log.wait(.seconds(70))
    log.take(.recovered(afterFailures: 1))
    #expect(
      log.lines == [
        "0: source waits: rate-limited", "2: source resumed", "102: source waits: rate-limited",
        "102: source failing: HTTP 429; next try in 1 s", "172: source recovered after 1 failure",
      ])
  }

  @Test func eventsOnWhichAProgramFailsAreCounted() {
    var log = Log()
    for number in 0..<1000 {  // every second event
      log.take(.failedEvent("no number: \(number)"))
      log.take(.passing)
      log.wait(.milliseconds(100))
    }
    log.wait(.seconds(1000))
    #expect(
      log.lines == [
        "0: event failed: no number: 0", "0: events no longer fail, after 1 failure",
        "60: 599 events failed in the last minute, last: no number: 599",
        "120: 400 events failed in the last minute, last: no number: 999",
        "180: events no longer fail, after 999 failures",
      ])
  }

  @Test func thePipelineAndTheSourceFailEachByItself() {
    var log = Log()
    log.fail("HTTP 503")
    log.take(.process(.failing("jq cannot be started: no memory", attempt: 1, retryIn: .milliseconds(1250))))
    log.take(.process(.recovered(afterFailures: 1)))
    log.take(.process(.limited("jq runs unconfined")))
    log.take(.said("hello"))
    #expect(
      log.lines == [
        "0: source failing: HTTP 503; next try in 1 s",
        "0: source failing: jq cannot be started: no memory; next try in 1.3 s",
        "0: source recovered after 1 failure", "0: source limited: jq runs unconfined",
        "0: program wrote: hello",
      ])
  }

  @Test func lossesOfADerivedStreamHaveOneEntryUntilAllIsReadAgain() {
    var entries = FeedEntries(of: "d")
    let times: [(Duration, DerivedSource.Report)] = [
      (.zero, .missed(.known(1), base: "a")), (.seconds(1), .missed(.unknown, base: "b")), (.seconds(2), .current),
    ]
    let written = times.flatMap { entries.take($1, at: $0) }.filter { $0.priority != .debug }
    #expect(
      written.map(\.message) == [
        "events missed: 1 event of \"a\", not read in time", "misses no event any more; it had missed some 2 times",
      ])
  }
}
