import Glibc
import Testing

@testable import Systemd

struct JournalTests {
  private let refusal = Journal.Entry(
    .clientRefused, .notice, "uid 1000 may not read \"pay\"", [.stream("pay"), .client(7), .uid(1000)])

  @Test func theJournalGetsEveryFieldByItsName() {
    #expect(
      refusal.assignments == [
        "MESSAGE=client 7 (uid 1000): pay: uid 1000 may not read \"pay\"", "PRIORITY=5",
        "MESSAGE_ID=3320c18bba324ef2aff62219dd39cf69",
        "SYSLOG_IDENTIFIER=streamd", "STREAMD_STREAM=pay", "STREAMD_CLIENT=7", "STREAMD_UID=1000",
      ])
    #expect(
      Journal.Entry(nil, .debug, "x").assignments == ["MESSAGE=x", "PRIORITY=7", "SYSLOG_IDENTIFIER=streamd"])
  }

  @Test func theTextBeginsWithTheNamesOfTheClientAndTheStream() {
    #expect(refusal.line == "client 7 (uid 1000): pay: uid 1000 may not read \"pay\"\n")
    func text(_ fields: Journal.Field...) -> String { Journal.Entry(nil, .info, "m", fields).text }
    #expect(text() == "m")
    #expect(text(.stream("quotes")) == "quotes: m")
    #expect(text(.client(7)) == "client 7: m")
    #expect(text(.uid(1000), .client(7)) == "client 7 (uid 1000): m")
    #expect(text(Journal.Field("STREAMD_X", "y")) == "m")
  }

  @Test func externalTextCannotForgeALineOrControlATerminal() {
    let entry = Journal.Entry(nil, .info, "no stream \"a\nPRIORITY=0\u{1b}[2J\"", [.stream("b\r\nc")])
    #expect(entry.line == #"b\r\nc: no stream "a\nPRIORITY=0\u{1B}[2J""# + "\n")
    #expect(entry.assignments.first == #"MESSAGE=b\r\nc: no stream "a\nPRIORITY=0\u{1B}[2J""#)
    #expect(entry.assignments.last == #"STREAMD_STREAM=b\r\nc"#)
  }

  @Test func charactersThatReorderOrHideTextAreEscaped() {
    let entry = Journal.Entry(
      nil, .info, "say \u{202E}txt.exe\u{2066} é \u{200B}\u{2028}\u{61C}\u{E0041}!", [.stream("\u{200F}a")])
    let text = #"\u{200F}a: say \u{202E}txt.exe\u{2066} é \u{200B}\u{2028}\u{061C}\u{000E0041}!"#
    #expect(entry.line == text + "\n")
    #expect(entry.assignments.first == "MESSAGE=" + text)
    #expect(entry.assignments.last == #"STREAMD_STREAM=\u{200F}a"#)
  }

  @Test func longTextIsCutBetweenCharacters() {
    let entry = Journal.Entry(nil, .info, "x" + String(repeating: "é", count: 5000))
    let message = entry.line.dropLast()
    #expect(message.utf8.count == 4095 + "…".utf8.count)
    #expect(message.hasSuffix("é…"))
  }

  @Test func entriesBelowTheLevelAreNotWritten() throws {
    let pipe = try Pipe()
    let journal = Journal(level: .warning, destination: .descriptor(pipe.writing))
    journal.write(.start, .info, "one")
    journal.write(.start, .warning, "two")
    journal.level = .info
    journal.write(.start, .info, "three")
    journal.write(.start, .debug, "four")
    #expect(journal.flush(within: .seconds(60)))
    #expect(pipe.readToEnd() == "two\nthree\n")
  }

  @Test func aLineOnStandardErrorBeginsWithTheTimeOfWriting() throws {
    let pipe = try Pipe()
    let time = Journal.Timekeeper(wallClock: { 1_795_322_712_045 })
    let journal = Journal(destination: .descriptor(pipe.writing), time: time)
    journal.write(.start, .info, "one")
    #expect(journal.flush(within: .seconds(60)))
    #expect(pipe.readToEnd() == "2026-11-22T04:45:12.045Z one\n")
    #expect(Journal.stamp(0) == "1970-01-01T00:00:00.000Z")
    #expect(Journal.stamp(951_782_400_999) == "2000-02-29T00:00:00.999Z")
  }

  @Test func prioritiesHaveTheNamesAndNumbersOfSyslog() {
    #expect(Journal.Priority(name: "emergency")?.rawValue == 0)
    #expect(Journal.Priority(name: "warning")?.rawValue == 4)
    #expect(Journal.Priority(name: "debug")?.rawValue == 7)
    #expect(Journal.Priority(name: "loud") == nil)
  }

  @Test func onlyTheFileNamedByTheVariableIsTheJournal() throws {
    let pipe = try Pipe()
    var file = stat()
    #expect(fstat(pipe.writing, &file) == 0)
    let name = "\(file.st_dev):\(file.st_ino)"
    func destination(_ variable: String?) -> Journal.Destination {
      Journal.destination(journalStream: variable, standardError: pipe.writing)
    }
    #expect(destination(name) == .journal)
    #expect(destination(nil) == .descriptor(pipe.writing))
    #expect(destination("\(file.st_dev):\(file.st_ino + 1)") == .descriptor(pipe.writing))
    #expect(destination("garbage") == .descriptor(pipe.writing))
  }

  @Test func aFloodOfOneKindIsLimitedAndCountedWithoutAffectingOthers() throws {
    let pipe = try Pipe()
    let clock = TestClock()
    let journal = Journal(destination: .descriptor(pipe.writing), time: clock.timekeeper)
    for index in 1...500 { journal.write(.clientLagged, .notice, "lag \(index)") }
    journal.write(.sourceFailing, .warning, "feed is down")
    #expect(clock.advance(by: FloodLimit.window - .nanoseconds(1)) == 0)
    journal.write(.clientLagged, .notice, "still the same window")
    #expect(clock.advance(by: .nanoseconds(1)) == 1)
    journal.write(.clientLagged, .notice, "lag again")
    #expect(journal.flush(within: .seconds(60)))
    let expected =
      (1...20).map { "lag \($0)" } + [
        "feed is down",
        "481 more such messages suppressed, the last: still the same window", "lag again",
      ]
    #expect(pipe.readToEnd() == expected.joined(separator: "\n") + "\n")
  }

  @Test func aLastingFloodIsOneBurstAndOneSummaryPerWindow() throws {
    let pipe = try Pipe()
    let clock = TestClock()
    let journal = Journal(destination: .descriptor(pipe.writing), time: clock.timekeeper)
    for _ in 0..<3 {
      for _ in 0..<1000 { journal.write(.limitReached, .warning, "full") }
      #expect(clock.advance(by: FloodLimit.window) == 1)
    }
    #expect(journal.flush(within: .seconds(60)))
    let summary = "980 more such messages suppressed, the last: full\n"
    let once = String(repeating: "full\n", count: 20) + summary
    #expect(pipe.readToEnd() == once + once + once)
  }

  @Test func aFloodOfOneUserOrStreamDoesNotHideAnother() throws {
    let pipe = try Pipe()
    let clock = TestClock()
    let journal = Journal(destination: .descriptor(pipe.writing), time: clock.timekeeper)
    // The name of a requested stream is the client's choice.
    for index in 0..<500 {
      journal.write(.clientRefused, .notice, "no", .client(index), .stream("s\(index)"), .uid(1000))
    }
    journal.write(.clientRefused, .notice, "no", .client(500), .stream("s"), .uid(1001))
    for _ in 0..<500 { journal.write(.programSaid, .info, "noise", .stream("loud")) }
    journal.write(.programSaid, .info, "alarm", .stream("quiet"))
    #expect(clock.advance(by: FloodLimit.window) == 2)
    #expect(journal.flush(within: .seconds(60)))
    let lines = pipe.readToEnd().split(separator: "\n")
    #expect(lines.count { $0.contains(" (uid 1000): ") && $0.hasSuffix(": no") && !$0.contains("more") } == 20)
    #expect(lines.contains("client 500 (uid 1001): s: no"))
    #expect(lines.contains("quiet: alarm"))
    #expect(
      lines.contains(
        "client 499 (uid 1000): s499: 480 more such messages suppressed, the last: no"))
    #expect(lines.contains("loud: 480 more such messages suppressed, the last: noise"))
  }

  @Test func subjectsBeyondTheLimitShareOneBurst() throws {
    let pipe = try Pipe()
    let clock = TestClock()
    let journal = Journal(destination: .descriptor(pipe.writing), time: clock.timekeeper)
    for round in 0..<2 {
      for index in 0..<1000 { journal.write(.sourceFailing, .warning, "down", .stream("r\(round)s\(index)")) }
      #expect(clock.advance(by: FloodLimit.window) == 1)
    }
    #expect(journal.flush(within: .seconds(60)))
    let lines = pipe.readToEnd().split(separator: "\n")
    let passed = FloodLimit.subjectLimit + FloodLimit.burst
    #expect(lines.count == 2 * (passed + 1))
    #expect(
      lines.last == "r1s999: \(1000 - passed) more such messages suppressed, the last: down")
  }

  @Test func theEndReportsTheSuppressedEntries() throws {
    let pipe = try Pipe()
    let journal = Journal(destination: .descriptor(pipe.writing), time: TestClock().timekeeper)
    for _ in 0..<22 { journal.write(.clientRefused, .notice, "no") }
    #expect(journal.flush(within: .seconds(60)))
    #expect(pipe.readToEnd().hasSuffix("no\n2 more such messages suppressed, the last: no\n"))
  }

  @Test func aStoppedReaderDelaysNothingAndTheLossIsReported() throws {  // row 34
    let pipe = try Pipe()
    let clock = TestClock()
    let journal = Journal(destination: .descriptor(pipe.writing), time: clock.timekeeper, waitingLimit: 8)
    pipe.fill()
    for _ in 0..<10 { journal.write(.clientLagged, .info, "lost or not") }
    #expect(!journal.flush(within: .milliseconds(1)))
    pipe.discard()
    #expect(journal.flush(within: .seconds(60)))
    let rest = String(repeating: "lost or not\n", count: 7)
    #expect(pipe.readToEnd() == "lost or not\n2 log messages lost: they were not written in time\n" + rest)
  }

  @Test func aClosedStandardErrorIsAccepted() async {  // row 34
    await #expect(processExitsWith: .success) {
      signal(SIGPIPE, SIG_IGN)
      var ends: [CInt] = [-1, -1]
      #expect(pipe(&ends) == 0)
      close(ends[0])
      let journal = Journal(destination: .descriptor(ends[1]))
      journal.write(.start, .info, "nobody reads this")
      #expect(journal.flush(within: .seconds(60)))
      let closed = Journal(destination: .descriptor(-1))
      closed.write(.start, .info, "nor this")
      #expect(closed.flush(within: .seconds(60)))
    }
  }

  @Test func entriesOfManyThreadsAreNotMixed() async throws {
    let pipe = try Pipe()
    let journal = Journal(destination: .descriptor(pipe.writing))
    await withTaskGroup { group in
      for index in 0..<4 {
        let id = MessageID(0, UInt64(index))
        group.addTask { for _ in 0..<20 { journal.write(id, .info, "thread \(index) speaks") } }
      }
    }
    #expect(journal.flush(within: .seconds(60)))
    let lines = pipe.readToEnd().split(separator: "\n")
    for index in 0..<4 { #expect(lines.count { $0 == "thread \(index) speaks" } == 20) }
    #expect(lines.count == 80)
  }

  @Test func messageIDsAreDistinctAndWrittenInFull() {
    let catalogue: [MessageID] = [
      .start, .stop, .clientRefused, .clientCutOff, .clientLagged, .sourceFailing, .sourceRecovered, .limitReached,
      .configurationRefused, .reloaded, .reloadRefused, .restartNeeded, .descriptorRefused, .progressLate,
    ]
    #expect(Set(catalogue).count == catalogue.count)
    #expect(MessageID(0x1, 0xab).description == "000000000000000100000000000000ab")
  }
}
